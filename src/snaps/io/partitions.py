"""Folders of part files that are partitioned in the way of Hive: ``role=calib/part-0.parquet``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.dataset import get_partition_keys
from pyarrow.parquet import ParquetFile

from snaps._checks import plainly
from snaps.errors import SnapsError

_NULL = "__HIVE_DEFAULT_PARTITION__"


def hive(path: Path, files: list[str], texts: set[str]) -> Any:
    """The columns that the names of the folders of part files are, as a schema.

    A key is one of integers only if all its values are written as integers are and the files have
    no strings for it; else it is one of strings. pyarrow itself takes 01 and 1 for one integer.
    """
    values: dict[str, set[str]] = {}
    for folder in {PurePath(os.path.relpath(file, path)).parent for file in files}:
        for segment in folder.parts:
            key, equals, value = segment.partition("=")
            if equals:
                values.setdefault(unquote(key), set()).add(unquote(value))

    def kind(key: str) -> Any:
        written = values[key] - {_NULL}
        plain = bool(written) and all(
            re.fullmatch("0|-?[1-9][0-9]{0,18}", text) and abs(int(text)) < 2**63
            for text in written
        )
        return pa.int64() if plain and key not in texts else pa.string()

    return pa.schema([(key, kind(key)) for key in sorted(values)])


def check_agreement(path: Path, parts: Iterable[Any], kinds: dict[str, Any]) -> None:
    """Refuse part files with a column that differs from the value in their folders' names."""
    for part in parts:
        for name, value in get_partition_keys(part.partition_expression).items():
            if name in part.physical_schema.names:
                _compare(path, part, name, value, kinds[name])


def _compare(path: Path, part: Any, name: str, value: Any, kind: Any) -> None:
    first = 0
    with part.open() as source, ParquetFile(source) as file:
        for batch in file.iter_batches(columns=[name]):
            column = batch.column(name).cast(kind)
            same = column.is_null()
            if value is not None:
                same = pc.equal(column, pa.scalar(value, kind)).fill_null(False)
            other = np.flatnonzero(~same.to_numpy(zero_copy_only=False))
            if other.size:
                row = int(other[0])
                inside = column[row].as_py()
                raise SnapsError(
                    f"{path.name} column '{name}' must be as the folder of a part file says, "
                    f"{plainly(value)}, got {plainly(inside)} in row {first + row} of "
                    f"'{os.path.relpath(part.path, path)}'"
                )
            first += len(column)
