"""Arrow columns as arrays and back, in the processes of the executors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from snaps._runtime.randomness import node_keys
from snaps.scoring.evidence import Keys

MOST_BYTES = 8 * 2**20  # of a batch that goes back to Spark, which holds it in memory


def one_piece(column: Any) -> Any:
    """A column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def ids_of(column: Any) -> np.ndarray:
    """A column of ids, integers or strings."""
    column = one_piece(column)
    if pa.types.is_integer(column.type):
        return column.to_numpy(zero_copy_only=False)
    return np.array(column.to_pylist(), str)


def keys_of(ids: Any) -> Keys:
    """The 64-bit keys that draws are made with."""
    return node_keys(ids_of(ids))


def lists(column: Any) -> np.ndarray:
    """A column of lists of equal length as a table."""
    column = one_piece(column)
    values = column.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(column), len(values) // max(len(column), 1))


def features_of(column: Any, width: int) -> Any:
    """Features: lists of numbers, or structs of indices and values."""
    column = one_piece(column)
    if not pa.types.is_struct(column.type):
        return lists(column)
    indices, values = column.field("indices"), column.field("values")
    indptr = np.concatenate([[0], np.cumsum(indices.value_lengths().to_numpy())])
    inside = (values.flatten().to_numpy(), indices.flatten().to_numpy(), indptr)
    return sp.csr_array(inside, shape=(len(column), width))


def packed(table: np.ndarray) -> Any:
    """The rows of a table as binary values."""
    table = np.ascontiguousarray(table)
    size = table.itemsize * table.shape[1]
    offsets = pa.py_buffer((np.arange(len(table) + 1) * size).astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(table), [None, offsets, pa.py_buffer(table)])


def unpacked(column: Any, kind: Any) -> np.ndarray:
    """Binary values of equal length as the rows of a table."""
    column = one_piece(column)
    if not len(column):
        return np.empty((0, 0), kind)
    # Sessions may ask for large types, whose offsets have 64 bits.
    place = np.dtype(np.int64 if pa.types.is_large_binary(column.type) else np.int32)
    start = place.itemsize * column.offset
    offsets = np.frombuffer(column.buffers()[1], place, len(column) + 1, start)
    size = (offsets[-1] - offsets[0]) // np.dtype(kind).itemsize
    values = np.frombuffer(column.buffers()[2], kind, size, offsets[0])
    return values.reshape(len(column), -1)


def pieces(columns: dict[str, Any], tables: dict[str, np.ndarray]) -> Iterator[Any]:
    """Record batches of some columns and of tables as binary values, none of them large."""
    count = len(next(iter(columns.values())))
    width = sum(table.itemsize * table.shape[1] for table in tables.values())
    step = max(MOST_BYTES // (width + 64), 1)
    for start in range(0, count, step):
        block = slice(start, start + step)
        yield pa.RecordBatch.from_pydict(
            {
                **{name: pa.array(one_piece(column)[block]) for name, column in columns.items()},
                **{name: packed(table[block]) for name, table in tables.items()},
            }
        )


def gathered(batches: Iterator[Any], least: int) -> Iterator[Any]:
    """Batches of at least so many rows, but for the last; none is empty."""
    held: list[Any] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= least:
            yield pa.Table.from_batches(held).combine_chunks().to_batches()[0]
            held = []
    if sum(map(len, held)):
        yield pa.Table.from_batches(held).combine_chunks().to_batches()[0]
