"""Prediction sets as files: Parquet, CSV, JSON lines, or CSV on standard output.

Rows are written some at a time, so that neither labels nor ids of all nodes are in memory at once.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.csv import WriteOptions, write_csv

from snaps._runtime.memory import BLOCK
from snaps.io.files import atomic_path

# Rows, and bytes of ids and labels, that are written at a time. Those of Parquet are more, for each
# group of rows begins with its own dictionaries.
_TEXT = 2**17, BLOCK
_GROUP = 2**20, 4 * BLOCK
More = Mapping[str, np.ndarray]
_PLACE = 16  # bytes that are taken to find a label, whatever its name


def write_sets(
    sets: Any,
    path: str | os.PathLike[str],
    kind: str,
    metadata: dict[str, str],
    more: More = MappingProxyType({}),
) -> None:
    """Write `PredictionSets` in the format `kind`: a suffix, or - for standard output.

    `more` has further columns of text, an entry per set.
    """
    if kind == ".parquet":
        _write_parquet(sets, path, metadata, more)
        return
    blocks = _json_blocks(sets, more) if kind == ".jsonl" else _csv_blocks(sets, more)
    _write_text(blocks, path, kind)


def write_table(columns: Mapping[str, np.ndarray], path: str | os.PathLike[str], kind: str) -> None:
    """Write columns of numbers, names and flags in the format `kind`, as `write_sets` does."""
    num_rows = len(next(iter(columns.values())))

    def rows(first: int, step: int) -> dict[str, Any]:
        return {name: pa.array(values[first : first + step]) for name, values in columns.items()}

    if kind == ".parquet":
        schema = pa.table(rows(0, 0)).schema
        with (
            atomic_path(path) as temporary,
            pq.ParquetWriter(temporary, schema, write_page_checksum=True) as writer,
        ):
            for first in range(0, num_rows, _GROUP[0]):
                writer.write_table(pa.table(rows(first, _GROUP[0])))
        return
    texts = _json_lines if kind == ".jsonl" else _csv_lines
    starts = range(0, max(num_rows, 1), _TEXT[0])
    _write_text((texts(rows(first, _TEXT[0]), first == 0) for first in starts), path, kind)


def _write_text(blocks: Iterable[bytes], path: str | os.PathLike[str], kind: str) -> None:
    """Write text to a file or, as kind -, to standard output."""
    if kind == "-":
        sys.stdout.flush()
        for block in blocks:
            _write_out(block)
        sys.stdout.flush()
        return
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        file.writelines(blocks)


def _write_parquet(
    sets: Any, path: str | os.PathLike[str], metadata: dict[str, str], more: More
) -> None:
    names = class_array(sets.classes)
    none = pa.table(_columns(sets, slice(0), names, more))
    schema = none.replace_schema_metadata({**sets.metadata, **metadata} or None).schema
    with (
        atomic_path(path) as temporary,
        pq.ParquetWriter(temporary, schema, write_page_checksum=True) as writer,
    ):
        for block in _blocks(sets, names, *_GROUP):
            writer.write_table(pa.table(_columns(sets, block, names, more), schema))


def _columns(sets: Any, block: slice, names: Any, more: More) -> dict[str, Any]:
    mask = sets.mask[block]
    return {
        "id": pa.array(sets.ids[block]),
        "labels": label_lists(mask, names),
        "size": pa.array(mask.sum(axis=1, dtype=np.int32)),
        **{name: pa.array(values[block]) for name, values in more.items()},
    }


def _blocks(sets: Any, names: Any, rows: int, size: int) -> Iterator[slice]:
    """Some sets at a time, at least once: so many rows and bytes at most, or a single row."""
    label = _PLACE + _lengths(names)
    for start in range(0, max(len(sets), 1), rows):
        block = slice(start, start + rows)
        # A product with the mask would turn all of it into numbers; einsum does not.
        taken = np.einsum("ij,j->i", sets.mask[block], label) + _widths(sets.ids[block])
        cuts = np.flatnonzero(np.diff(np.cumsum(taken) // size)) + 1
        ends = [start, *(start + cuts).tolist(), start + len(taken)]
        yield from itertools.starmap(slice, itertools.pairwise(ends))


def _csv_blocks(sets: Any, more: More) -> Iterator[bytes]:
    names = pa.array([_quoted(name) for name in sets.classes.tolist()], pa.string())
    for block in _blocks(sets, names, *_TEXT):
        columns = _columns(sets, block, names, more)
        columns["labels"] = pc.binary_join(columns["labels"], ";")
        yield _csv_lines(columns, block.start == 0)


def _csv_lines(columns: Mapping[str, Any], header: bool) -> bytes:
    out = pa.BufferOutputStream()
    write_csv(pa.table(columns), out, WriteOptions(include_header=header))
    return out.getvalue().to_pybytes()


def _json_lines(columns: Mapping[str, Any], _: bool) -> bytes:
    parts: list[Any] = []
    for name, column in columns.items():
        parts += [f"{', ' if parts else '{'}{json.dumps(name)}: ", _json_values(column)]
    return _joined(pc.binary_join_element_wise(*parts, "}\n", ""))


def _json_values(column: Any) -> Any:
    """Numbers, flags or texts as JSON has them."""
    if pa.types.is_string(column.type):
        return pa.array(map(json.dumps, column.to_pylist()), pa.string())
    return column.cast(pa.string())


def _joined(lines: Any) -> bytes:
    """All lines in one."""
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    return pc.binary_join(whole, "")[0].as_buffer().to_pybytes()


def _json_blocks(sets: Any, more: More) -> Iterator[bytes]:
    names = pa.array(map(json.dumps, sets.classes.tolist()), pa.string())
    for block in _blocks(sets, names, *_TEXT):
        columns = _columns(sets, block, names, more)
        ids = columns["id"].cast(pa.string())
        if sets.ids.dtype.kind == "U":
            ids = pa.array(map(json.dumps, sets.ids[block].tolist()), pa.string())
        labels = pc.binary_join(columns["labels"], ", ")
        sizes = columns["size"].cast(pa.string())
        parts = ['{"id": ', ids, ', "labels": [', labels, '], "size": ', sizes]
        for name in more:
            parts += [f", {json.dumps(name)}: ", _json_values(columns[name])]
        yield _joined(pc.binary_join_element_wise(*parts, "}\n", ""))


def _quoted(name: int | str) -> str:
    """A name as a field of a CSV line with ; between fields."""
    line = io.StringIO()
    csv.writer(line, delimiter=";", lineterminator="\r\n").writerow([name])
    return line.getvalue().removesuffix("\r\n")


def _write_out(block: bytes) -> None:
    """Write to standard output, in UTF-8 wherever it takes bytes."""
    if hasattr(sys.stdout, "buffer"):
        sys.stdout.buffer.write(block)
    else:
        sys.stdout.write(block.decode())


def _lengths(names: Any) -> Any:
    """Bytes of each name of an Arrow array."""
    if pa.types.is_integer(names.type):
        return np.full(len(names), names.type.bit_width // 8)
    return pc.binary_length(names).to_numpy().astype(np.int64)


def _widths(ids: np.ndarray) -> Any:
    """Bytes of each id at most: of its own characters, where NumPy has room for the longest."""
    return 4 * np.char.str_len(ids) if ids.dtype.kind == "U" else ids.itemsize


def class_array(classes: np.ndarray) -> Any:
    """The names of classes as an Arrow array, integers in 32 bits where these suffice."""
    small = classes.dtype.kind != "U" and (classes == classes.astype(np.int32)).all()
    return pa.array(classes.astype(np.int32) if small else classes)


def label_lists(mask: np.ndarray, names: Any) -> Any:
    """Sets as an Arrow array of lists of these names, for so many sets as fit into one."""
    offsets = np.concatenate([[0], np.cumsum(mask.sum(axis=1))])
    # As np.nonzero(mask)[1], but in a third of its time.
    codes = np.flatnonzero(mask) % max(mask.shape[1], 1)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), names.take(pa.array(codes)))
