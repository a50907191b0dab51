"""Means over neighbours: the rows of a sparse matrix say whose."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numba import njit, prange


@njit(parallel=True, cache=True)
def weighted_mean(indptr, indices, weights, table):
    """Weighted mean of the neighbours' rows; a row without neighbours is its own mean."""
    n, num_classes = table.shape
    out = np.empty((n, num_classes))
    for i in prange(n):
        total = 0.0
        for y in range(num_classes):
            out[i, y] = 0.0
        for entry in range(indptr[i], indptr[i + 1]):
            weight = np.float64(weights[entry])
            total += weight
            j = indices[entry]
            for y in range(num_classes):
                out[i, y] += weight * table[j, y]
        for y in range(num_classes):
            out[i, y] = out[i, y] / total if total > 0.0 else table[i, y]
    return out


def neighbour_mean(matrix: sp.csr_array | None, table: np.ndarray) -> np.ndarray:
    """Row-normalised matrix times table; a node without neighbours gets its own row back.

    That is how the weight of a missing part returns to the node itself.
    """
    if matrix is None or matrix.nnz == 0:
        return table
    return weighted_mean(matrix.indptr, matrix.indices, matrix.data, table)
