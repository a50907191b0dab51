"""A list of edges as a matrix, in little more memory than the two take."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from snaps._kernels.compiling import loop
from snaps._runtime.threads import in_shares

_SHARE = 10_000  # rows that are worth a thread
_SMALL = 2**17  # edges that NumPy sorts: there is less to compile


def link(
    source: np.ndarray, target: np.ndarray, rank: np.ndarray, both_ways: bool, self_loops: bool
) -> sp.csr_array:
    """The adjacency matrix of ones: each edge once, neighbours in the order of their ranks.

    `rank` is a permutation of the nodes.
    """
    n = len(rank)
    order = np.empty(n, np.int32)
    order[rank] = np.arange(n, dtype=np.int32)
    if len(source) <= _SMALL:
        return _link_few(source, target, rank, order, both_ways, self_loops)
    ends = np.zeros(n + 1, np.int64)
    _count(source, target, both_ways, self_loops, ends)
    indptr = np.cumsum(ends)
    ends = indptr[:-1].copy()
    indices = np.empty(indptr[-1], np.int32)
    _fill(source, target, rank, both_ways, self_loops, ends, indices)
    counts = np.empty(n, np.int64)
    in_shares(_sort_rows, n, _SHARE, indptr, indices, counts)
    size = _close_up(indptr, counts, order, indices)
    small = np.int32 if size <= np.iinfo(np.int32).max else np.int64
    ones = np.ones(size, np.float32)
    return sp.csr_array((ones, indices[:size], indptr.astype(small)), shape=(n, n))


def _link_few(
    source: np.ndarray,
    target: np.ndarray,
    rank: np.ndarray,
    order: np.ndarray,
    both_ways: bool,
    self_loops: bool,
) -> sp.csr_array:
    """The same for few edges."""
    n, source, target = len(rank), source.astype(np.int64), target.astype(np.int64)
    if both_ways:
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
    if not self_loops:
        source, target = source[source != target], target[source != target]
    row, column = np.divmod(np.unique(source * n + rank[target]), max(n, 1))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))]).astype(np.int32)
    ones = np.ones(len(row), np.float32)
    return sp.csr_array((ones, order[column], indptr), shape=(n, n))


@loop
def _count(source, target, both_ways, self_loops, ends):
    for e in range(len(source)):
        if self_loops or source[e] != target[e]:
            ends[source[e] + 1] += 1
            if both_ways:
                ends[target[e] + 1] += 1


@loop
def _fill(source, target, rank, both_ways, self_loops, ends, indices):
    for e in range(len(source)):
        one, other = source[e], target[e]
        if self_loops or one != other:
            indices[ends[one]] = rank[other]
            ends[one] += 1
            if both_ways:
                indices[ends[other]] = rank[one]
                ends[other] += 1


@loop
def _sort_rows(first, last, indptr, indices, counts):
    """Sort each row and move what is new to its front."""
    for i in range(first, last):
        row, kept = indices[indptr[i] : indptr[i + 1]], 0
        # Shell's sort: numpy's takes a second to compile.
        gap = 1
        while 3 * gap < len(row):
            gap = 3 * gap + 1
        while gap > 0:
            for p in range(gap, len(row)):
                value, place = row[p], p
                while place >= gap and row[place - gap] > value:
                    row[place] = row[place - gap]
                    place -= gap
                row[place] = value
            gap //= 3
        for p in range(len(row)):
            if p == 0 or row[p] != row[p - 1]:
                row[kept] = row[p]
                kept += 1
        counts[i] = kept


@loop
def _close_up(indptr, counts, order, indices):
    """Close the gaps between rows and turn ranks back into nodes; return the number of entries."""
    end = 0
    for i in range(len(counts)):
        begin = indptr[i]
        indptr[i] = end
        for p in range(begin, begin + counts[i]):
            indices[end] = order[indices[p]]
            end += 1
    indptr[len(counts)] = end
    return end
