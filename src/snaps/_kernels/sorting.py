"""Selecting and sorting, small enough to compile in a moment: numba's own take seconds each."""

from __future__ import annotations

import numpy as np

from snaps._kernels.compiling import loop


@loop
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


@loop
def descending(values):
    """Positions from the largest value to the smallest; of equals in any order.

    Insertion beats a heap on short rows.
    """
    n = len(values)
    order = np.empty(n, np.int64)
    if n <= 32:
        for i in range(n):
            place = i
            while place > 0 and values[order[place - 1]] < values[i]:
                order[place] = order[place - 1]
                place -= 1
            order[place] = i
        return order
    for i in range(n):
        order[i] = i
    # A heap with the smallest on top; each top goes to the end.
    start, size = n // 2, n
    while size > 1:
        if start > 0:
            start -= 1
        else:
            size -= 1
            held = order[size]
            order[size] = order[0]
            order[0] = held
        root = start
        while 2 * root + 1 < size:
            child = 2 * root + 1
            if child + 1 < size and values[order[child + 1]] < values[order[child]]:
                child += 1
            if not values[order[child]] < values[order[root]]:
                break
            held = order[root]
            order[root] = order[child]
            order[child] = held
            root = child
    return order
