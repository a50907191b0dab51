"""Where large tables lie: in memory, or in files that are mapped into it.

Mapped files have no name: whatever ends a process, none of them is left behind. The system takes
their memory back when another process needs it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from snaps.errors import SnapsError

LARGE = 2**28  # bytes of a table from which it is made in blocks
BLOCK = 2**24  # bytes of a block, and of a table from which it is mapped where that is asked for

_folder: ContextVar[str | None] = ContextVar("folder", default=None)


def place_tables(folder: str | os.PathLike[str] | None) -> None:
    """From now on large tables lie in files of this folder; None leaves them in memory."""
    _folder.set(None if folder is None else os.fspath(folder))


@contextmanager
def placed(folder: str | os.PathLike[str] | None = None) -> Iterator[None]:
    """Within the block large tables lie in files of this folder, or where the block says."""
    token = _folder.set(None if folder is None else os.fspath(folder))
    try:
        yield
    finally:
        _folder.reset(token)


def is_placed() -> bool:
    """Whether large tables lie in files."""
    return _folder.get() is not None


def is_large(shape: tuple[int, ...], itemsize: int = 8) -> bool:
    """Whether a table of this shape is made in blocks."""
    least = LARGE if _folder.get() is None else BLOCK
    return bool(np.prod(shape, dtype=float) * itemsize >= least)


def room(shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """An array to be filled."""
    folder, kind = _folder.get(), np.dtype(dtype)
    if folder is None or not is_large(shape, kind.itemsize):
        return np.empty(shape, kind)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            # Without its blocks reserved, a full disk would end the process.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, kind, "r+" if hasattr(os, "posix_fallocate") else "w+", 0, shape)
    except OSError as error:
        raise SnapsError(
            f"cannot write {size / 1e6:,.0f} MB to '{folder}': {error.strerror or error}"
        ) from error


def filled(table: np.ndarray, dtype: Any = None) -> np.ndarray:
    """A copy of an array where large tables lie, of another type if need be."""
    out = room(table.shape, table.dtype if dtype is None else dtype)
    out[...] = table
    return out


class Passed(np.ndarray):
    """A table that is passed on: what reads it may change it instead of copying it."""


def passed(table: np.ndarray, dtype: Any) -> np.ndarray:
    """A copy of a table, to be passed on."""
    return filled(table, dtype).view(Passed)


def taken(table: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Some rows of a table, where large tables lie."""
    out = room((len(positions), *table.shape[1:]), table.dtype)
    for block in pieces(len(positions), table[:1].nbytes):
        out[block] = table[positions[block]]
    return out


def pieces(num_rows: int, row_bytes: int) -> list[slice]:
    """Rows in blocks."""
    step = max(BLOCK // max(row_bytes, 1), 1)
    return [slice(first, min(first + step, num_rows)) for first in range(0, num_rows, step)]


def softmax(table: np.ndarray) -> np.ndarray:
    """Logits as probabilities, row by row and in place."""
    table -= table.max(axis=1, keepdims=True)
    np.exp(table, out=table)
    table /= table.sum(axis=1, keepdims=True)
    return table
