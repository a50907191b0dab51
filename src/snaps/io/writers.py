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
from collections.abc import Iterator
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
_PLACE = 16  # bytes that are taken to find a label, whatever its name


def write_sets(
    sets: Any, path: str | os.PathLike[str], kind: str, metadata: dict[str, str]
) -> None:
    """Write `PredictionSets` in the format `kind`: a suffix, or - for standard output."""
    if kind == ".parquet":
        _write_parquet(sets, path, metadata)
        return
    blocks = _json_blocks(sets) if kind == ".jsonl" else _csv_blocks(sets)
    if kind == "-":
        sys.stdout.flush()
        for block in blocks:
            _write_out(block)
        sys.stdout.flush()
        return
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        file.writelines(blocks)


def _write_parquet(sets: Any, path: str | os.PathLike[str], metadata: dict[str, str]) -> None:
    names = class_array(sets.classes)
    none = pa.table(_columns(sets, slice(0), names))
    schema = none.replace_schema_metadata({**sets.metadata, **metadata} or None).schema
    with (
        atomic_path(path) as temporary,
        pq.ParquetWriter(temporary, schema, write_page_checksum=True) as writer,
    ):
        for block in _blocks(sets, names, *_GROUP):
            writer.write_table(pa.table(_columns(sets, block, names), schema))


def _columns(sets: Any, block: slice, names: Any) -> dict[str, Any]:
    mask = sets.mask[block]
    return {
        "id": pa.array(sets.ids[block]),
        "labels": label_lists(mask, names),
        "size": pa.array(mask.sum(axis=1, dtype=np.int32)),
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


def _csv_blocks(sets: Any) -> Iterator[bytes]:
    names = pa.array([_quoted(name) for name in sets.classes.tolist()], pa.string())
    for block in _blocks(sets, names, *_TEXT):
        columns = _columns(sets, block, names)
        columns["labels"] = pc.binary_join(columns["labels"], ";")
        out = pa.BufferOutputStream()
        write_csv(pa.table(columns), out, WriteOptions(include_header=block.start == 0))
        yield out.getvalue().to_pybytes()


def _json_blocks(sets: Any) -> Iterator[bytes]:
    names = pa.array(map(json.dumps, sets.classes.tolist()), pa.string())
    for block in _blocks(sets, names, *_TEXT):
        columns = _columns(sets, block, names)
        ids = columns["id"].cast(pa.string())
        if sets.ids.dtype.kind == "U":
            ids = pa.array(map(json.dumps, sets.ids[block].tolist()), pa.string())
        labels = pc.binary_join(columns["labels"], ", ")
        sizes = columns["size"].cast(pa.string())
        parts = ('{"id": ', ids, ', "labels": [', labels, '], "size": ', sizes, "}\n", "")
        lines = pc.binary_join_element_wise(*parts)
        whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
        yield pc.binary_join(whole, "")[0].as_buffer().to_pybytes()


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
