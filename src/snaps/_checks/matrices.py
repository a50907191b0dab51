"""Sparse matrices from users: every index is looked at here, once; no loop sees one unchecked."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._checks import calm, check_memory
from snaps._errors import SnapsError

_LARGE, _SMALL = 2.0**500, 2.0**-500  # weights beyond are scaled before they are summed up


@calm
def check_matrix(matrix: Any, name: str) -> sp.csr_array:
    """A CSR matrix of its own, indices checked, duplicates summed, zeros dropped.

    The order within a row stays as it is where nothing is listed twice.
    """
    if not sp.issparse(matrix):
        raise SnapsError(f"'{name}' must be a sparse matrix, got {type(matrix).__name__}")
    if matrix.ndim != 2:
        raise SnapsError(f"'{name}' must have two dimensions, got shape {matrix.shape}")
    if matrix.dtype.kind not in "fiub":
        raise SnapsError(f"'{name}' must hold numbers, got {matrix.dtype}")
    check_memory(8 * sum(matrix.shape), name, matrix.shape)
    try:
        if matrix.format not in ("csr", "csc", "bsr", "coo"):
            matrix = matrix.tocoo()
        if matrix.format == "coo":
            out = _from_coo(matrix)
        else:
            for each in (matrix.indices, matrix.indptr):
                if np.asarray(each).dtype.kind not in "iu":
                    raise TypeError("indices and indptr must be integers")
            matrix = matrix.copy()
            matrix.check_format(full_check=True)
            out = sp.csr_array(matrix)
    except MemoryError:
        raise
    except Exception as error:  # SciPy has no one error for what may be wrong
        raise SnapsError(f"'{name}' must be a valid sparse matrix: {error}") from error
    out.has_canonical_format = out.has_sorted_indices = False  # whoever made it may be mistaken
    if _repeats(out):
        out.sum_duplicates()
    if out.nnz and not out.data.all():
        out.eliminate_zeros()
    return out


def _from_coo(matrix: Any) -> sp.csr_array:
    row, column = (np.asarray(each) for each in matrix.coords)
    data = np.asarray(matrix.data)
    if not len(row) == len(column) == len(data):
        raise ValueError("row, column and data differ in length")
    for ends, most in ((row, matrix.shape[0]), (column, matrix.shape[1])):
        if ends.dtype.kind not in "iu":
            raise TypeError("row and column must be integers")
        if len(ends) and not 0 <= int(ends.min()) <= int(ends.max()) < most:
            raise ValueError(f"row and column must lie from 0 to {most - 1}")
    return sp.csr_array(sp.coo_array((data, (row, column)), shape=matrix.shape).tocsr())


def _repeats(matrix: sp.csr_array) -> bool:
    """Whether a row lists a column twice."""
    if matrix.nnz == 0:
        return False
    from snaps.kernels.matrices import has_repeats

    return bool(has_repeats(matrix.indptr, matrix.indices, matrix.shape[1]))


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
    from snaps.kernels.matrices import odd_entries

    matrix = check_matrix(similarity, name).astype(np.float64, copy=False)
    infinite, dropped = odd_entries(matrix.indptr, matrix.indices, matrix.data)
    if not (infinite or dropped):
        return scale_rows(matrix)
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
