"""Sparse matrices from users: every index is looked at here, once; no loop sees one unchecked."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._checks import calm, check_memory
from snaps._runtime.memory import filled
from snaps.errors import SnapsError

_LARGE, _SMALL = 2.0**500, 2.0**-500  # weights beyond are scaled before they are summed up


@calm
def check_matrix(matrix: Any, name: str) -> sp.csr_array:
    """A CSR matrix of its own, indices checked, duplicates summed, zeros dropped.

    The order within a row stays as it is where nothing is listed twice.
    """
    return _checked(matrix, name)[0]


def _checked(matrix: Any, name: str) -> tuple[sp.csr_array, bool]:
    """The matrix, and whether anything may be on its diagonal."""
    if not sp.issparse(matrix):
        raise SnapsError(f"'{name}' must be a sparse matrix, got {type(matrix).__name__}")
    if matrix.ndim != 2:
        raise SnapsError(f"'{name}' must have two dimensions, got shape {matrix.shape}")
    if matrix.dtype.kind not in "fiub":
        raise SnapsError(f"'{name}' must hold numbers, got {matrix.dtype}")
    check_memory(8 * sum(matrix.shape), name, matrix.shape)
    try:
        if matrix.format == "dia":
            matrix = copy(matrix)  # of the object alone: its arrays are looked at, not changed
            matrix.data = known_type(matrix.data)
        if matrix.format not in ("csr", "csc", "bsr", "coo"):
            matrix = matrix.tocoo()
        if matrix.format == "coo":
            out = _from_coo(matrix)
        else:
            for each in (matrix.indices, matrix.indptr):
                if np.asarray(each).dtype.kind not in "iu":
                    raise TypeError("indices and indptr must be integers")
            values = np.asarray(matrix.data)
            arrays = filled(values, _known(values.dtype)), *_own_indices(matrix)
            if matrix.format == "csr":
                out = sp.csr_array(arrays, shape=matrix.shape)
            else:
                if (arrays[2][1:] < arrays[2][:-1]).any():  # SciPy checks no empty matrix
                    raise ValueError("indptr must ascend")
                matrix = type(matrix)(arrays, shape=matrix.shape)
                matrix.check_format(full_check=True)
                out = sp.csr_array(matrix)
        repeats, diagonal = _look(out)
    except (MemoryError, SnapsError):
        raise
    except Exception as error:  # SciPy has no one error for what may be wrong
        raise SnapsError(f"'{name}' must be a valid sparse matrix: {error}") from error
    out.has_canonical_format = out.has_sorted_indices = False  # its maker may be mistaken
    if repeats:
        out.sum_duplicates()
    if out.nnz and not out.data.all():
        out.eliminate_zeros()
    return out, diagonal


def known_type(values: np.ndarray) -> np.ndarray:
    """Values of a sparse matrix, copied if SciPy has no loops for their type: half precision."""
    kind = _known(values.dtype)
    return values if values.dtype == kind else filled(values, kind)


def _known(kind: np.dtype) -> np.dtype:
    """The type that has all values of another and that SciPy knows."""
    half = kind.kind == "f" and kind.itemsize < 4
    return np.dtype(np.float32) if half else kind.newbyteorder("=")


def _own_indices(matrix: Any) -> tuple[np.ndarray, np.ndarray]:
    """Indices and where rows begin, of 32 bits where these suffice."""
    indices, indptr = np.asarray(matrix.indices), np.asarray(matrix.indptr)
    low = min(int(each.min(initial=0)) for each in (indices, indptr))
    high = max(int(each.max(initial=0)) for each in (indices, indptr))
    narrow = np.iinfo(np.int32)
    kind = np.int32 if narrow.min <= low and max(*matrix.shape, high) <= narrow.max else np.int64
    return filled(indices, kind), filled(indptr, kind)


def _look(matrix: sp.csr_array) -> tuple[bool, bool]:
    """Whether a row lists a column twice, and whether one lists itself; all indices are checked."""
    if not matrix.indptr.any():  # it has no entries
        return False, False
    from snaps._kernels.matrices import look

    fine, repeats, diagonal = look(matrix.indptr, matrix.indices, matrix.shape[1])
    if not fine:
        matrix.check_format(full_check=True)
        raise ValueError("its indices must lie within it")
    return repeats, diagonal


def _from_coo(matrix: Any) -> sp.csr_array:
    row, column = (np.asarray(each) for each in matrix.coords)
    data = known_type(np.asarray(matrix.data))
    if not len(row) == len(column) == len(data):
        raise ValueError("row, column and data differ in length")
    for ends, most in ((row, matrix.shape[0]), (column, matrix.shape[1])):
        if ends.dtype.kind not in "iu":
            raise TypeError("row and column must be integers")
        if len(ends) and not 0 <= int(ends.min()) <= int(ends.max()) < most:
            raise ValueError(f"row and column must lie from 0 to {most - 1}")
    return sp.csr_array(sp.coo_array((data, (row, column)), shape=matrix.shape).tocsr())


@calm
def scale_rows(matrix: sp.csr_array) -> sp.csr_array:
    """Weights that can be squared and summed up: extreme rows are scaled by a power of two.

    That changes no share of a weight within its row.
    """
    if matrix.nnz == 0 or (matrix.data.max() < _LARGE and matrix.data.min() > _SMALL):
        return matrix
    counts = np.diff(matrix.indptr)
    filled = np.flatnonzero(counts)
    tops = np.maximum.reduceat(np.abs(matrix.data), matrix.indptr[filled])
    exponents = np.zeros(len(counts), int)
    usual = (tops < _LARGE) & (tops > _SMALL)
    exponents[filled] = np.where(usual, 0, -np.frexp(tops)[1])
    if not exponents.any():
        return matrix
    data = np.ldexp(matrix.data, np.repeat(exponents, counts))
    return sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


@calm
def check_similarity(similarity: Any, num_nodes: int, name: str = "similarity") -> sp.csr_array:
    """A similarity graph given by the user; negative weights count as zero, the diagonal too."""
    if sp.issparse(similarity) and similarity.shape != (num_nodes, num_nodes):
        raise SnapsError(
            f"'{name}' must have shape ({num_nodes}, {num_nodes}), got {similarity.shape}"
        )
    matrix, diagonal = _checked(similarity, name)
    if matrix.dtype != np.float64:
        matrix = matrix.astype(np.float64)
    if matrix.nnz == 0:
        return matrix
    if not diagonal and _SMALL < matrix.data.min() and matrix.data.max() < _LARGE:
        return matrix
    rows = np.repeat(np.arange(num_nodes), np.diff(matrix.indptr))
    bad = np.flatnonzero(~np.isfinite(matrix.data))
    if bad.size:
        raise SnapsError(
            f"'{name}' must be finite, got {matrix.data[bad[0]]} in row {rows[bad[0]]}"
        )
    keep = (matrix.data > 0) & (matrix.indices != rows)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[keep], minlength=num_nodes))])
    kept = sp.csr_array((matrix.data[keep], matrix.indices[keep], indptr), matrix.shape)
    return scale_rows(kept)


@calm
def refuse_weights(weights: np.ndarray, title: str, where: Callable[[int], str]) -> None:
    """Raise if a number is no weight; `where` names an edge."""
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if bad.size:
        raise SnapsError(
            f"{title} must be finite weights of at least 0, got {weights[bad[0]]} {where(bad[0])}"
        )
