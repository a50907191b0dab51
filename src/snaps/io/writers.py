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
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
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
    names = class_array(sets.classes)
    if kind != ".parquet":
        written = json.dumps if kind == ".jsonl" else _quoted
        names = pa.array(map(written, sets.classes.tolist()), pa.string())
    blocks = _blocks(sets, names, *(_GROUP if kind == ".parquet" else _TEXT))
    columns = partial(_columns, sets, names, more)
    _write(columns, blocks, path, kind, {**sets.metadata, **metadata})


def write_table(columns: Mapping[str, np.ndarray], path: str | os.PathLike[str], kind: str) -> None:
    """Write columns of numbers, names and flags in the format `kind`, as `write_sets` does."""
    (step, _), least = (_GROUP, 0) if kind == ".parquet" else (_TEXT, 1)  # a header, if no rows
    starts = range(0, max(len(next(iter(columns.values()))), least), step)

    def rows(block: slice) -> dict[str, Any]:
        return {name: pa.array(values[block]) for name, values in columns.items()}

    _write(rows, (slice(first, first + step) for first in starts), path, kind, {})


def _write(
    columns: Callable[[slice], dict[str, Any]],
    blocks: Iterable[slice],
    path: str | os.PathLike[str],
    kind: str,
    metadata: dict[str, str],
) -> None:
    """Write columns, a block of rows after the other."""
    if kind == ".parquet":
        schema = pa.table(columns(slice(0))).replace_schema_metadata(metadata or None).schema
        with (
            atomic_path(path) as temporary,
            pq.ParquetWriter(temporary, schema, write_page_checksum=True) as writer,
        ):
            for block in blocks:
                writer.write_table(pa.table(columns(block), schema))
        return
    lines = _json_lines if kind == ".jsonl" else _csv_lines
    texts = (lines(columns(block), block.start == 0) for block in blocks)
    if kind == "-":
        sys.stdout.flush()
        for text in texts:  # in UTF-8 wherever standard output takes bytes
            if hasattr(sys.stdout, "buffer"):
                sys.stdout.buffer.write(text)
            else:
                sys.stdout.write(text.decode())
        sys.stdout.flush()
        return
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        file.writelines(texts)


def _columns(sets: Any, names: Any, more: More, block: slice) -> dict[str, Any]:
    mask = sets.mask[block]
    return {
        "id": pa.array(sets.ids[block]),
        "labels": label_lists(mask, names),
        "size": pa.array(mask.sum(axis=1, dtype=np.int32)),
        **{name: pa.array(values[block]) for name, values in more.items()},
    }


def _blocks(sets: Any, names: Any, rows: int, size: int) -> Iterator[slice]:
    """Some sets at a time, at least once: so many rows and bytes at most, or a single row."""
    if pa.types.is_integer(names.type):
        label = np.full(len(names), _PLACE + names.type.bit_width // 8)
    else:
        label = _PLACE + pc.binary_length(names).to_numpy().astype(np.int64)
    for start in range(0, max(len(sets), 1), rows):
        block, ids = slice(start, start + rows), sets.ids[start : start + rows]
        # A product with the mask would turn all of it into numbers; einsum does not.
        taken = np.einsum("ij,j->i", sets.mask[block], label)
        # An id counts by its own characters, where NumPy has room for the longest.
        taken += 4 * np.char.str_len(ids) if ids.dtype.kind == "U" else ids.itemsize
        cuts = np.flatnonzero(np.diff(np.cumsum(taken) // size)) + 1
        ends = [start, *(start + cuts).tolist(), start + len(taken)]
        yield from itertools.starmap(slice, itertools.pairwise(ends))


def _csv_lines(columns: Mapping[str, Any], header: bool) -> bytes:
    joined = {
        name: pc.binary_join(column, ";") if pa.types.is_list(column.type) else column
        for name, column in columns.items()
    }
    out = pa.BufferOutputStream()
    write_csv(pa.table(joined), out, WriteOptions(include_header=header))
    return out.getvalue().to_pybytes()


def _json_lines(columns: Mapping[str, Any], _: bool) -> bytes:
    parts: list[Any] = []
    for name, column in columns.items():
        parts += [f"{', ' if parts else '{'}{json.dumps(name)}: ", *_json_values(column)]
    lines = pc.binary_join_element_wise(*parts, "}\n", "")
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    return pc.binary_join(whole, "")[0].as_buffer().to_pybytes()


def _json_values(column: Any) -> list[Any]:
    """Numbers, flags, texts or lists of names in JSON, as JSON has them."""
    if pa.types.is_list(column.type):
        return ["[", pc.binary_join(column, ", "), "]"]
    if pa.types.is_string(column.type):
        return [pa.array(map(json.dumps, column.to_pylist()), pa.string())]
    return [column.cast(pa.string())]


def _quoted(name: int | str) -> str:
    """A name as a field of a CSV line with ; between fields."""
    line = io.StringIO()
    csv.writer(line, delimiter=";", lineterminator="\r\n").writerow([name])
    return line.getvalue().removesuffix("\r\n")


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
