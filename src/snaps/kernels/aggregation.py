"""Means over neighbours: the rows of a sparse matrix say whose."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from snaps.kernels.compiling import loop
from snaps.kernels.threads import in_shares

_SHARE = 100_000  # numbers added up that are worth a thread


def neighbour_mean(
    matrix: sp.csr_array | None,
    table: np.ndarray,
    own: np.ndarray | None = None,
    rows: slice = slice(None),
) -> np.ndarray:
    """Row-normalised matrix times table; a node without neighbours gets its own row back.

    That is how the weight of a missing part returns to the node itself. `own` has the nodes' own
    rows where the rows of `table` are not theirs. `rows` asks for successive ones only.
    """
    own = table[rows] if own is None else own[rows]
    if matrix is None or matrix.nnz == 0:
        return own
    out = np.empty(own.shape)
    n = len(own)
    first = rows.start or 0
    indptr = matrix.indptr[first : first + n + 1]
    numbers = max(int(indptr[-1]) - int(indptr[0]), n) * table.shape[1]
    share = _SHARE * n // max(numbers, 1) + 1
    flat = np.ascontiguousarray(table).reshape(-1)
    in_shares(_neighbour_mean, n, share, indptr, matrix.indices, matrix.data, flat, own, out)
    return out


@loop
def _neighbour_mean(first, last, indptr, indices, weights, table, own, out):
    """Four neighbours at a time, added up in their order: one would wait for its memory."""
    num_classes = np.uint64(out.shape[1])  # unsigned places spare the test for wrap-around
    sums = np.empty(out.shape[1])
    for i in range(first, last):
        total = 0.0
        sums[:] = 0.0
        entry, stop = indptr[i], indptr[i + 1]
        while entry + 4 <= stop:
            one, two = np.float64(weights[entry]), np.float64(weights[entry + 1])
            three, four = np.float64(weights[entry + 2]), np.float64(weights[entry + 3])
            total = total + one + two + three + four
            a = np.uint64(indices[entry]) * num_classes
            b = np.uint64(indices[entry + 1]) * num_classes
            c = np.uint64(indices[entry + 2]) * num_classes
            d = np.uint64(indices[entry + 3]) * num_classes
            for y in range(num_classes):
                sums[y] = (
                    sums[y]
                    + one * table[a + y]
                    + two * table[b + y]
                    + three * table[c + y]
                    + four * table[d + y]
                )
            entry += 4
        while entry < stop:
            one, a = np.float64(weights[entry]), np.uint64(indices[entry]) * num_classes
            total += one
            for y in range(num_classes):
                sums[y] += one * table[a + y]
            entry += 1
        for y in range(num_classes):
            out[i, y] = sums[y] / total if total > 0.0 else own[i, y]
