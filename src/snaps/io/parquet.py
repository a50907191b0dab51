"""The files of a graph folder as columns and arrays; nothing here knows a `Graph`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types
from pyarrow.dataset import (
    ParquetFileFormat,
    ParquetFragmentScanOptions,
    dataset,
    get_partition_keys,
    partitioning,
)
from pyarrow.parquet import ParquetFile, read_metadata, read_schema

from snaps._checks import machine_memory, plainly, shown
from snaps._checks.ids import Places, locate
from snaps._runtime.memory import BLOCK, pieces, room, taken
from snaps.errors import NotEnoughMemory, SnapsError
from snaps.io.files import unreadable
from snaps.io.partitions import check_agreement, hive

# Bytes that a value takes at least, as Arrow's and as ours; strings become Python's in between.
_NUMBER, _TEXT = 16, 64
# Rows of a batch at most; and bytes that Arrow reads ahead of a column, at most and at least.
_MOST_ROWS, _AHEAD = 2**17, (2**20, 2**12)


class Columns:
    """A Parquet file, or a folder of part files, whose columns are read when asked for.

    Part files may differ in what they leave out and in number types. Folders of part files may be
    partitioned in the way of Hive (``role=calib/``); folders above them tell nothing.
    """

    metadata: Mapping[str, str] = {}

    def __init__(self, path: Path):
        if not os.path.exists(path):
            raise SnapsError(f"cannot read '{path}': no such file")
        self.path, self.file = path, path.name
        # Page checksums are held against the data where a file has them, as ours do.
        scan = ParquetFragmentScanOptions(page_checksum_verification=True)
        options: dict[str, Any] = {"format": ParquetFileFormat(default_fragment_scan_options=scan)}
        try:
            parts = dataset(path, **options)
            self._parts = list(parts.get_fragments())
            schemas = [_decoded(part.physical_schema) for part in self._parts]
            if path.is_dir():
                texts = {each.name for schema in schemas for each in schema if is_text(each.type)}
                keys = hive(path, parts.files, texts)
                options |= {"partitioning": partitioning(keys, flavor="hive")}
                options |= {"partition_base_dir": str(path)}
                schemas.append(keys)
            schema = pa.unify_schemas(schemas, promote_options="permissive")
            self._data = dataset(path, schema, **options)
            self.num_rows = self._data.count_rows()
            kept = parts.schema.metadata or {}
            self.metadata = {
                key.decode(): kept[key].decode() for key in kept if key[:6] == b"snaps."
            }
            self.types = dict(zip(schema.names, schema.types, strict=True))
            if path.is_dir() and len(keys):
                check_agreement(path, self._data.get_fragments(), self.types)
        except SnapsError:
            raise
        except Exception as error:  # pyarrow raises whatever flipped bits suggest
            if "duplicate field names" in str(error):
                raise SnapsError(f"'{path}' must have each column once, got one twice") from error
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> SnapsError:
        what = "damaged or not a Parquet file"
        if not self.path.is_dir():
            return unreadable(self.path, error, what)
        for part in sorted(self.path.rglob("*.parquet")):
            try:
                read_metadata(part)
            except Exception as cause:
                return unreadable(part, cause, what)
        what = "a file in it is damaged, not Parquet or unlike the others"
        return unreadable(self.path, error, what)

    @property
    def keys(self) -> dict[str, Any]:
        """The columns that the names of the folders of part files are, and their types."""
        schema = self._data.partitioning.schema if self.path.is_dir() else ()
        return {field.name: self.types[field.name] for field in schema}

    def unlike_parts(self) -> list[str]:
        """One part file for each schema that parts have."""
        parts = {str(part.physical_schema.remove_metadata()): part.path for part in self._parts}
        return list(parts.values())

    def width(self, name: str) -> tuple[int, np.dtype]:
        """Numbers in the first list of a column, and their type; none without the column."""
        kind = self.types.get(name)
        if kind is None or not (types.is_nested(kind) and hasattr(kind, "value_type")):
            return 0, np.dtype(np.float32)
        columns = (column for (column,) in self._valid([name], 1) if len(column))
        first = next((column[0].as_py() for column in columns), None)
        # Lists of anything but numbers are refused when they are read.
        inside = kind.value_type
        return len(first or ()), np.dtype(inside.to_pandas_dtype() if _is_number(inside) else "f4")

    def longest(self, name: str) -> int:
        """Characters of the longest string of a column; none if it is no column of strings."""
        if not is_text(self.types.get(name)):
            return 0
        columns = (column for (column,) in self._valid([name], _MOST_ROWS))
        lengths = (pc.max(pc.utf8_length(column)).as_py() for column in columns)
        return max(filter(None, lengths), default=0)

    def __contains__(self, name: str) -> bool:
        return name in self.types

    def check_memory(self, names: list[str]) -> None:
        """Refuse what no memory can hold: few bytes suffice to declare any number of equal rows."""
        cost = [_TEXT if is_text(self.types[name]) else _NUMBER for name in names]
        self._refuse(names, self.num_rows * sum(cost))

    @cached_property
    def _limit(self) -> float:
        return machine_memory()

    def _refuse(self, names: list[str], needed: int) -> None:
        if needed > self._limit:
            raise NotEnoughMemory(
                f"cannot read '{self.path}': {' and '.join(names)} in {self.num_rows} rows take "
                f"{needed / 1e9:.1f} GB of memory or more, and this machine has "
                f"{self._limit / 1e9:.1f}"
            )

    def _batches(
        self, names: list[str], width: int = 1, *, nulls: bool = False
    ) -> Iterator[tuple[slice, list[Any]]]:
        """The columns, so many rows at a time, and which rows these are; no nulls if not asked for.

        `width` numbers in each row of a column tell how many rows fit a block.
        """
        self._check_there(names)
        a_row, done = _NUMBER * len(names) * max(width, 1), 0
        for columns in self._valid(names, min(max(BLOCK // a_row, 1), _MOST_ROWS)):
            rows = slice(done, done + len(columns[0]))
            for name, column in zip(names, columns, strict=True):
                if column.null_count and not nulls:
                    row = done + int(np.flatnonzero(null_mask(column))[0])
                    raise SnapsError(f"{self.title(name)} must not be null, got null in row {row}")
            done = rows.stop
            if len(columns[0]):
                yield rows, columns
        if done != self.num_rows:
            raise self._unreadable(ValueError("columns of unlike length"))

    def _valid(self, names: list[str], num_rows: int) -> Iterator[list[Any]]:
        """The columns, so many rows at a time; what is damaged in them is one kind of error."""
        try:
            for columns in self._streamed(names, num_rows):
                for column in columns:
                    column.validate(full=True)
                yield columns
        except Exception as error:
            raise self._unreadable(error) from error

    def _streamed(self, names: list[str], num_rows: int) -> Iterator[list[Any]]:
        """The columns, so many rows at a time: Arrow's scanner would decode whole row groups."""
        ahead = min(max(BLOCK // len(names), _AHEAD[1]), _AHEAD[0])
        for part in self._data.get_fragments():
            keys = get_partition_keys(part.partition_expression)
            if any(name in keys or name not in part.physical_schema.names for name in names):
                scanner = part.scanner(schema=self._data.schema, columns=names)
                yield from (batch.columns for batch in scanner.to_batches())
                continue
            with (
                part.open() as source,
                ParquetFile(
                    source, buffer_size=ahead, pre_buffer=False, page_checksum_verification=True
                ) as file,
            ):
                for batch in file.iter_batches(num_rows, columns=names):
                    yield [batch.column(name).cast(self.types[name]) for name in names]

    def _check_there(self, names: list[str]) -> None:
        for name in names:
            if name not in self.types:
                present = ", ".join(self.types) or "none"
                needed = f"a column '{name}'"
                if name == "probs":
                    needed = "a column 'probs', or columns 'p_<class>'"
                raise SnapsError(f"{self.file} must have {needed}, got {present}")
        self.check_memory(names)

    def read(self, names: list[str], *, nulls: bool = False) -> list[Any]:
        """Columns by name, as Arrow arrays, as far as memory goes."""
        parts, size = [[pa.array([], self.types.get(name)) for name in names]], 0
        for _, columns in self._batches(names, nulls=nulls):
            size += sum(column.nbytes for column in columns)
            self._refuse(names, 2 * size)  # Arrow's, and ours
            parts.append(columns)
        return [pa.concat_arrays(column) for column in zip(*parts, strict=True)]

    def title(self, name: str) -> str:
        """A column as messages call it."""
        return f"{self.file} column '{name}'"

    def ids(self, name: str) -> np.ndarray:
        """A column of integers or of strings."""
        (column,) = self.read([name])
        if types.is_integer(column.type):
            return column.to_numpy()
        if len(column) == 0:
            return np.empty(0, str)
        if is_text(column.type):
            refuse_nuls(column, self.title(name))
            return _as_text(column)
        raise SnapsError(f"{self.title(name)} must be integers or strings, got {column.type}")

    def places(self, names: list[str], ids: np.ndarray) -> np.ndarray:
        """Columns of ids as positions among these ones, (columns, rows), a batch at a time."""
        self._check_there(names)
        kinds, batches = [self.types[name] for name in names], self._batches(names)
        if all(map(types.is_integer, kinds)):
            index, known = Places(ids), None
        elif ids.dtype.kind == "U" and all(map(is_text, kinds)):
            known = pa.array(ids)
            # Arrow hashes all ids for each look: more are looked for at a time than there are.
            batches = _gathered(batches, 4 * known.nbytes)
        else:
            return np.stack([locate(ids, self.ids(name), self.title(name)) for name in names])
        out = np.empty((len(names), self.num_rows), np.int32)
        for rows, columns in batches:
            for i, (title, column) in enumerate(zip(map(self.title, names), columns, strict=True)):
                if known is None:
                    out[i, rows] = index.find(column.to_numpy(), title)
                else:
                    out[i, rows] = _find_names(column, known, title, rows.start)
        return out

    def numbers(self, names: list[str]) -> np.ndarray:
        """Columns of numbers as a table (n, columns)."""
        self._check_there(names)
        if not self.num_rows:
            return np.empty((0, len(names)))
        kinds = [self.types[name] for name in names]
        for name, kind in zip(names, kinds, strict=True):
            if not _is_number(kind):
                raise SnapsError(f"{self.title(name)} must be numbers, got {kind}")
        common = np.result_type(*(kind.to_pandas_dtype() for kind in kinds))
        out = room((self.num_rows, len(names)), common)
        for rows, columns in self._batches(names):
            for i, column in enumerate(columns):
                out[rows, i] = column.to_numpy(zero_copy_only=False)
        return out

    def lists(self, name: str) -> np.ndarray:
        """A column of lists of equal length as a table (n, length)."""
        self._check_there([name])
        title, kind, out = self.title(name), self.types[name], np.empty((0, 0))
        listed = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        if not listed or not _is_number(kind.value_type):
            raise SnapsError(f"{title} must be a list of numbers, got {kind}")
        for rows, (column,) in self._batches([name], self.width(name)[0]):
            widths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
            values = column.flatten()
            if rows.start == 0:
                numbers, width = values.to_numpy(zero_copy_only=False), int(widths[0])
                self._refuse([name], self.num_rows * width * numbers.itemsize)
                out = room((self.num_rows, width), numbers.dtype)
            if (widths != width).any():
                row = int(np.flatnonzero(widths != width)[0])
                raise SnapsError(
                    f"{title} must have lists of equal length ({width}), "
                    f"got {widths[row]} in row {rows.start + row}"
                )
            if values.null_count:
                row = rows.start + int(np.flatnonzero(null_mask(values))[0]) // width
                raise SnapsError(f"{title} must not hold nulls, got one in row {row}")
            out[rows] = values.to_numpy(zero_copy_only=False).reshape(len(column), width)
        return out

    def values(self, name: str) -> np.ndarray:
        """A column of strings, numbers or booleans; null is None, or nan among floats."""
        (column,) = self.read([name], nulls=True)
        kind = column.type
        if types.is_floating(kind):
            return column.to_numpy(zero_copy_only=False)
        plain = (is_text, types.is_integer, types.is_boolean, types.is_null)
        if not any(fits(kind) for fits in plain):
            raise SnapsError(f"{self.title(name)} must be strings, numbers or booleans, got {kind}")
        if is_text(kind):
            refuse_nuls(column, self.title(name))
        if column.null_count:
            return np.array([*column.to_pylist(), None], object)[:-1]
        if is_text(kind):
            return _as_text(column)
        return column.to_numpy(zero_copy_only=False)


def _find_names(column: Any, known: Any, title: str, first: int) -> np.ndarray:
    """Positions of strings among ids, without an object for each of them."""
    refuse_nuls(column, title, first)
    positions = pc.index_in(column, known.cast(column.type))
    if positions.null_count:
        wrong = column[int(np.flatnonzero(null_mask(positions))[0])].as_py()
        raise SnapsError(f"{title} must name nodes of the graph, got {plainly(wrong)}")
    return positions.to_numpy()


def _gathered(
    batches: Iterator[tuple[slice, list[Any]]], least: int
) -> Iterator[tuple[slice, list[Any]]]:
    """Batches, put together until they have so many bytes."""
    first, size, held = 0, 0, list[list[Any]]()

    def joined() -> tuple[slice, list[Any]]:
        return slice(first, rows.stop), [pa.chunked_array(each) for each in zip(*held, strict=True)]

    for rows, columns in batches:
        held.append(columns)
        size += sum(column.nbytes for column in columns)
        if size >= least:
            yield joined()
            first, size, held = rows.stop, 0, []
    if held:
        yield joined()


def column_names(path: Path) -> list[str] | None:
    """The columns of a Parquet file; None if it is no such file."""
    try:
        return list(read_schema(path).names)
    except Exception:  # pyarrow raises whatever the bytes suggest
        return None


def null_mask(column: Any) -> np.ndarray:
    """Where an Arrow array is null."""
    return column.is_null().to_numpy(zero_copy_only=False)


def refuse_nuls(column: Any, title: str, first: int = 0) -> None:
    """Refuse strings that hold the character NUL: NumPy drops it at their end, two become one."""
    row = pc.index(pc.match_substring(column, "\0"), True).as_py()
    if row >= 0:
        raise SnapsError(
            f"{title} must not hold the character NUL, "
            f"got {shown(column[row].as_py())} in row {first + row}"
        )


def texts(column: Any, title: str) -> np.ndarray:
    """A column of few different strings, "" for null, with an object for each of these only."""
    refuse_nuls(column, title)
    codes = column.fill_null("").dictionary_encode()
    names = np.array(codes.dictionary.to_pylist(), str)
    return taken(names, codes.indices.to_numpy(zero_copy_only=False)) if len(column) else names


def _as_text(column: Any) -> np.ndarray:
    """A column of strings, each of which takes as many bytes as the longest."""
    longest = pc.max(pc.utf8_length(column)).as_py()
    out = room((len(column),), f"U{longest or 1}")
    for block in pieces(len(column), out.itemsize):
        out[block] = column[block].to_pylist()
    return np.asarray(out)


def is_text(kind: Any) -> bool:
    """Whether an Arrow type, or None for none, is one of strings."""
    return kind is not None and (types.is_string(kind) or types.is_large_string(kind))


def _is_number(kind: Any) -> bool:
    return types.is_floating(kind) or types.is_integer(kind)


def _decoded(schema: Any) -> Any:
    """A schema with plain types for columns that are only stored in another way."""

    def plain(kind: Any) -> Any:
        kind = kind.value_type if types.is_dictionary(kind) else kind
        if types.is_decimal(kind):
            return pa.float64() if kind.scale > 0 else pa.int64()
        if types.is_fixed_size_list(kind):
            return pa.list_(plain(kind.value_type), kind.list_size)
        if types.is_list(kind) or types.is_large_list(kind):
            make = pa.list_ if types.is_list(kind) else pa.large_list
            return make(plain(kind.value_type))
        return pa.string() if str(kind) == "string_view" else kind

    return pa.schema([field.with_type(plain(field.type)) for field in schema])
