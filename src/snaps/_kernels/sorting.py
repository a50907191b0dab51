"""Selecting and sorting, small enough to compile in a moment: numba's own take seconds each."""

from __future__ import annotations

from snaps._kernels.compiling import helper

_SHORT = 64  # values up to which counting takes no longer than sorting


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
def descending(values, order, ordered):
    """Fill positions and values from the largest value to the smallest; of equals in any order.

    By counting what is larger, without a branch to mispredict; of long rows by Shell's sort.
    """
    n, gap = len(values), 1
    if n <= _SHORT:
        for i in range(n):
            value, place = values[i], 0
            for j in range(i):
                place += values[j] >= value
            for j in range(i + 1, n):
                place += values[j] > value
            order[place], ordered[place] = i, value
        return
    while 3 * gap < n:
        gap = 3 * gap + 1
    for i in range(n):
        order[i], ordered[i] = i, values[i]
    while gap > 0:
        for i in range(gap, n):
            held, value, place = order[i], ordered[i], i
            while place >= gap and ordered[place - gap] < value:
                order[place], ordered[place] = order[place - gap], ordered[place - gap]
                place -= gap
            order[place], ordered[place] = held, value
        gap //= 3
