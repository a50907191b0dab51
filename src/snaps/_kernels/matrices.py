"""Matrices as the loops see them, and looks at their structure."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._kernels.compiling import loop


def csr_parts(table: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A table as CSR arrays, without columns if it is dense."""
    if sp.issparse(table):
        cols = table.indices.astype(np.int32, copy=False).view(np.uint32)
        return table.indptr.astype(np.int64), cols, table.data
    n, d = table.shape
    return np.arange(0, n * d + 1, d), np.empty(0, np.uint32), table.reshape(-1)


_SMALL = 2**18  # entries that are looked at by NumPy: there is less to compile


def look(indptr: np.ndarray, indices: np.ndarray, num_columns: int) -> tuple[bool, bool, bool]:
    """Whether all indices lie within the matrix, any row lists a column twice, any one itself."""
    if len(indices) > _SMALL:
        return _look(indptr, indices, num_columns)
    if indptr[0] != 0 or indptr[-1] > len(indices) or (indptr[1:] < indptr[:-1]).any():
        return False, False, False
    counts = np.diff(indptr)
    rows, columns = np.repeat(np.arange(len(counts)), counts), indices[: indptr[-1]]
    if columns.min(initial=0) < 0 or columns.max(initial=-1) >= num_columns:
        return False, False, False
    places = rows * num_columns + columns
    if not (ascending := bool((places[1:] > places[:-1]).all())):
        places = np.sort(places)
    repeats = not ascending and bool((places[1:] == places[:-1]).any())
    return True, repeats, bool((rows == columns).any())


@loop
def _look(indptr, indices, num_columns):
    repeats, diagonal, entry = False, False, 0
    if indptr[0] != 0 or indptr[-1] > len(indices):
        return False, repeats, diagonal
    seen = np.full(num_columns, -1, np.int64)
    for i in range(len(indptr) - 1):
        if indptr[i + 1] < entry or indptr[i + 1] > len(indices):
            return False, repeats, diagonal
        while entry < indptr[i + 1]:
            j = indices[entry]
            if j < 0 or j >= num_columns:
                return False, repeats, diagonal
            repeats |= seen[j] == i
            diagonal |= j == i
            seen[j] = i
            entry += 1
    return True, repeats, diagonal
