"""Features in a file of their own: .npy, .npz, or what SciPy saves."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._checks import machine_memory, shown
from snaps._checks.matrices import known_type
from snaps._runtime.memory import is_placed, pieces, placed, room
from snaps.errors import SnapsError
from snaps.io.files import features_from_arrays, open_npz, unreadable

# The formats of SciPy's sparse matrices, and the arrays of indices that each has.
_FORMATS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "csr": (sp.csr_array, ("indices", "indptr")),
    "csc": (sp.csc_array, ("indices", "indptr")),
    "bsr": (sp.bsr_array, ("indices", "indptr")),
    "coo": (sp.coo_array, ("row", "col")),
    "dia": (sp.dia_array, ("offsets",)),
}


def read_feature_file(path: Path, num_nodes: int) -> tuple[Any, str]:
    """The features in a file, a row for each of so many nodes; and the mark of the file."""
    if path.suffix == ".npy":
        mapped = read_npy(path)
        _check_rows(mapped.shape, path, num_nodes)
        if is_placed() or mapped.nbytes <= machine_memory() / 4:
            return _copied(path, mapped), ""
        beside = os.access(path.parent, os.W_OK)
        with placed(path.parent if beside else tempfile.gettempdir()):
            return _copied(path, mapped), ""
    with open_npz(path) as arrays:
        if "format" in arrays:
            return _scipy_features(arrays, path, num_nodes), arrays.comment
        features, mark = features_from_arrays(arrays, path), arrays.comment
    if features is None:
        raise SnapsError(f"'{path}' must hold 'x' or 'x_data', 'x_indices', 'x_indptr', 'x_shape'")
    _check_rows(features.shape, path, num_nodes)
    return features, mark


def feature_sizes(path: Path) -> tuple[int, int, int]:
    """What features in a file take of memory, which are not read for this.

    Their bytes as read and as floats, their columns, and the bytes that turning another sparse
    format into rows takes: SciPy does it by way of arrays as large.
    """
    if path.suffix == ".npy":
        array = read_npy(path)
        return array.size * float_bytes(array.dtype), array.shape[-1] if array.ndim else 0, 0
    with open_npz(path) as arrays:
        if "x" in arrays and "format" not in arrays:
            kind, ends = arrays.header("x")
            return math.prod(ends) * float_bytes(kind), ends[-1] if ends else 0, 0
        size = sum(arrays.sizes.values())
        rows = "format" not in arrays or arrays["format"].tolist() in ("csr", b"csr")
        shape = arrays.get("shape" if "format" in arrays else "x_shape", np.empty(0))
    columns = int(shape.flat[-1]) if shape.size and shape.dtype.kind in "iu" else 0
    return size, columns, 0 if rows else 2 * size


def float_bytes(kind: np.dtype) -> int:
    """Bytes of a number as it is read, and of the float that it becomes."""
    floats = np.promote_types(kind, np.float32)
    return floats.itemsize + (0 if floats == kind else kind.itemsize)


def _check_rows(shape: tuple[int, ...], path: Path, num_nodes: int) -> None:
    if len(shape) != 2:
        raise SnapsError(f"'{path}' must have shape (nodes, features), got {shape}")
    if shape[0] != num_nodes:
        raise SnapsError(f"'{path}' must have one row a node ({num_nodes}), got {shape[0]}")


def _copied(path: Path, mapped: np.ndarray) -> np.ndarray:
    """The array of a file where large tables are stored, read without its map.

    A file that another program truncates while its map is used ends the process; one that is
    overwritten changes results.
    """
    table = room((mapped.size,), mapped.dtype)
    try:
        with open(path, "rb") as file:
            file.seek(mapped.offset)  # type: ignore[attr-defined]  # it is a memmap
            for block in pieces(len(table), table.itemsize):
                values = table[block].view(np.uint8).data
                if file.readinto(values) < len(values):
                    raise SnapsError(f"'{path}' must not change while it is read: read it again")
    except OSError as error:
        raise unreadable(path, error, error.strerror or str(error)) from error
    return table.reshape(mapped.shape, order="F" if mapped.flags.fnc else "C")


def read_npy(path: Path) -> np.ndarray:
    """An array, mapped."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise TypeError("an archive of arrays")
    except Exception as error:  # NumPy raises whatever flipped bits suggest
        raise unreadable(path, error, "damaged, or not an .npy of numbers") from error
    return array


def _scipy_features(arrays: Mapping[str, np.ndarray], path: Path, num_nodes: int) -> sp.csr_array:
    """A matrix that `scipy.sparse.save_npz` wrote, in any of its formats."""
    try:
        kind = arrays["format"].item()
        kind = kind.decode("ascii") if isinstance(kind, bytes) else kind
        if kind not in _FORMATS:
            raise SnapsError(
                f"'{path}' must have a format among {', '.join(_FORMATS)}, got {shown(kind)}"
            )
        names = _FORMATS[kind][1]
        for name in ("shape", "data", *names):
            if name not in arrays:
                raise SnapsError(f"'{path}' must hold the array '{name}' next to 'format'")
        rows, *index = (arrays[name] for name in ("shape", *names))
        if any(array.dtype.kind not in "iu" for array in (rows, *index)):
            raise TypeError(f"shape, {' and '.join(names)} must be integers")  # SciPy cuts floats
        shape = tuple(rows.tolist())
        _check_rows(shape, path, num_nodes)  # before rows that are declared take memory
        data = known_type(arrays["data"])
        inside = (data, tuple(index)) if kind == "coo" else (data, *index)
        matrix = _FORMATS[kind][0](inside, shape=shape)
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
        return sp.csr_array(matrix)
    except SnapsError:
        raise
    except MemoryError as error:
        raise unreadable(path, error, "") from error
    except Exception as error:  # SciPy has no one error for what may be wrong
        raise SnapsError(f"'{path}' must hold a valid sparse matrix: {error}") from error
