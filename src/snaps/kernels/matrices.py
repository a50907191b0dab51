"""A look at the structure of sparse matrices."""

from __future__ import annotations

import numpy as np

from snaps.kernels.compiling import loop


@loop
def look(indptr, indices, num_columns):
    """Whether all indices lie within the matrix, any row lists a column twice, any one itself."""
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
