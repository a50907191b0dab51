"""Our own selecting and sorting against NumPy's, ties and all."""

from __future__ import annotations

import numpy as np
import pytest

from snaps._kernels import sorting
from snaps._kernels.compiling import njit

# Helpers have no entry for Python.
select = njit(lambda values, rank: sorting.select(values, rank))
descending = njit(lambda *arrays: sorting.descending(*arrays))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 33, 64, 65, 1000])
@pytest.mark.parametrize("distinct", [1, 2, 7, 10**9])
def test_select_and_descending(size, distinct):
    random = np.random.default_rng(size + distinct)
    for _ in range(20):
        whole = random.integers(0, distinct, size)
        for values in (whole.astype(float), np.sort(whole).astype(float), whole.astype(np.uint64)):
            ordered = np.sort(values)
            for rank in {1, (size + 1) // 2, size}:
                assert select(values.copy(), rank) == ordered[rank - 1]
        values = whole / distinct
        order, in_order = np.empty(size, np.int64), np.empty(size)
        descending(values, order, in_order)
        assert sorted(order.tolist()) == list(range(size))
        np.testing.assert_array_equal(in_order, np.sort(values)[::-1])
        np.testing.assert_array_equal(values[order], in_order)
