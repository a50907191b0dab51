"""nodes.csv and edges.csv, in place of Parquet files: columns of text, typed by their names.

Nothing is guessed that could merge two names: 007 is a string, and so is every value next to it.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.csv import ConvertOptions, ParseOptions, read_csv

from snaps._checks import shown
from snaps.errors import SnapsError
from snaps.io.files import unreadable
from snaps.io.parquet import Columns

FEATURE = "f_"  # how the names of columns of features begin
_NUMBERS = ("p_", FEATURE)
_INTEGER = r"^(0|-?[1-9][0-9]{0,18})$"
_WHOLE = r"^(0|-?[1-9][0-9]{0,15})\.0+$"  # as pandas writes integers where some are missing
_NUMBER = r"(?i)^\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?\s*$|^\s*([-+]?inf|nan)\s*$"


class CsvColumns(Columns):
    """A CSV file with a header, in UTF-8, held in memory; an empty field is null.

    The columns `texts` are strings, whatever they look like.
    """

    def __init__(self, path: Path, texts: Collection[str] = ()):
        self.path, self.file = path, path.name
        table = self._read()
        columns = {name: self._typed(name, table[name], texts) for name in table.column_names}
        self.types = {name: column.type for name, column in columns.items()}
        self.num_rows, self._held = table.num_rows, columns

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the columns take."""
        return sum(column.nbytes for column in self._held.values())

    def _read(self) -> Any:
        if self.path.is_dir():
            raise SnapsError(f"cannot read '{self.path}': it must be a file, got a folder")
        try:
            with open(self.path, newline="", encoding="utf-8-sig") as file:
                names = next(csv.reader(file), [])
        except (OSError, ValueError, csv.Error) as error:
            raise unreadable(self.path, error, "not a CSV file in UTF-8") from error
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise SnapsError(
                f"'{self.path}' must have each column once, got {shown(twice[0])} twice"
            )
        try:
            return read_csv(
                self.path,
                parse_options=ParseOptions(newlines_in_values=True),
                convert_options=ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
        except Exception as error:  # of whatever kind pyarrow finds fit
            raise unreadable(self.path, error, f"not a CSV file: {error}") from error

    def _typed(self, name: str, column: Any, texts: Collection[str]) -> Any:
        """Numbers where the name says so, integers where all values are written so, or strings."""
        column = column.combine_chunks()
        if name == "weight" or name.startswith(_NUMBERS):
            bad = np.flatnonzero(~_matches(column, _NUMBER))
            if bad.size:
                row = int(bad[0])
                raise SnapsError(
                    f"{self.title(name)} must be numbers, "
                    f"got {shown(column[row].as_py())} in row {row}"
                )
            plain = pc.utf8_ltrim(pc.utf8_trim_whitespace(column), "+")
            return plain.cast(pa.float64())
        if column.null_count == len(column) and name not in texts:
            return pa.nulls(len(column)) if len(column) else column
        for kind, pattern in ((pa.int64(), _INTEGER), (pa.float64(), _WHOLE)):
            wanted = name not in texts and (pattern == _INTEGER or name == "label")
            if wanted and _matches(column, pattern).all():
                with suppress(pa.ArrowInvalid):  # beyond 64 bits
                    return column.cast(kind)
        return column

    def _streamed(self, names: list[str], num_rows: int) -> Iterator[list[Any]]:
        table = pa.table({name: self._held[name] for name in names})
        for batch in table.to_batches(max_chunksize=num_rows):
            yield batch.columns

    def lists(self, name: str) -> np.ndarray:
        """CSV has no lists: say which columns take their place."""
        columns = {"probs": "p_<class>", "features": f"{FEATURE}<name>"}[name]
        raise SnapsError(
            f"{self.file} must have columns '{columns}', one per "
            f"{'class' if name == 'probs' else 'feature'}, got {', '.join(self.types) or 'none'}"
        )


def _matches(column: Any, pattern: str) -> np.ndarray:
    """Where a column of strings matches, or is null."""
    matches = pc.match_substring_regex(column, pattern).fill_null(True)
    return matches.to_numpy(zero_copy_only=False)
