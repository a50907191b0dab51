"""Looks at the structure of sparse matrices."""

from __future__ import annotations

import numpy as np

from snaps.kernels.compiling import loop


@loop
def has_repeats(indptr, indices, num_columns):
    """Whether any row lists a column twice; all indices must lie within the matrix."""
    seen = np.full(num_columns, -1, np.int64)
    for i in range(len(indptr) - 1):
        for entry in range(indptr[i], indptr[i + 1]):
            j = indices[entry]
            if seen[j] == i:
                return True
            seen[j] = i
    return False


@loop
def odd_entries(indptr, indices, data):
    """Whether any entry is not finite, and whether any is not positive or on the diagonal."""
    infinite, dropped = False, False
    for i in range(len(indptr) - 1):
        for entry in range(indptr[i], indptr[i + 1]):
            value = data[entry]
            infinite |= not np.isfinite(value)
            dropped |= (not value > 0) | (indices[entry] == i)
    return infinite, dropped
