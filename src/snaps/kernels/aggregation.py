"""Means over neighbours: the rows of a sparse matrix say whose."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from snaps.kernels.compiling import loop
from snaps.kernels.threads import in_shares

_SHARE = 100_000  # numbers added up that are worth a thread


def neighbour_mean(
    matrix: sp.csr_array | None, table: np.ndarray, own: np.ndarray | None = None
) -> np.ndarray:
    """Row-normalised matrix times table; a node without neighbours gets its own row back.

    That is how the weight of a missing part returns to the node itself. `own` has the nodes' own
    rows where the rows of `table` are not theirs.
    """
    own = table if own is None else own
    if matrix is None or matrix.nnz == 0:
        return own
    out = np.empty(own.shape)
    n = len(own)
    share = _SHARE * n // (max(matrix.nnz, n) * table.shape[1]) + 1
    in_shares(
        _neighbour_mean, n, share, matrix.indptr, matrix.indices, matrix.data, table, own, out
    )
    return out


@loop
def _neighbour_mean(first, last, indptr, indices, weights, table, own, out):
    num_classes = table.shape[1]
    for i in range(first, last):
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
            out[i, y] = out[i, y] / total if total > 0.0 else own[i, y]
