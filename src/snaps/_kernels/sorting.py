"""Selecting and sorting, small enough to compile in a moment: numba's own take seconds each."""

from __future__ import annotations

import numpy as np

from snaps._kernels.compiling import helper


@helper
def select(values, rank):
    """The rank-th smallest value (from 1 on), by quickselect; `values` are put in another order."""
    low, high, place = 0, len(values) - 1, rank - 1
    while low < high:
        first, middle, last = values[low], values[(low + high) // 2], values[high]
        pivot = max(min(first, middle), min(max(first, middle), last))
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while pivot < values[j]:
                j -= 1
            if i <= j:
                held = values[i]
                values[i] = values[j]
                values[j] = held
                i += 1
                j -= 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            break
    return values[place]


@helper
def descending(values):
    """Positions from the largest value to the smallest; of equals in any order.

    By Shell's sort, of short rows by insertion alone.
    """
    n, gap = len(values), 1
    order = np.empty(n, np.int64)
    while n > 32 and 3 * gap < n:
        gap = 3 * gap + 1
    for i in range(n):
        order[i] = i
    while gap > 0:
        for i in range(gap, n):
            held, place = order[i], i
            value = values[held]
            while place >= gap and values[order[place - gap]] < value:
                order[place] = order[place - gap]
                place -= gap
            order[place] = held
        gap //= 3
    return order
