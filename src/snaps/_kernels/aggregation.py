"""Means over neighbours: the rows of a sparse matrix say whose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._kernels.compiling import helper, loop, prefetch
from snaps._runtime.memory import pieces
from snaps._runtime.threads import in_shares

SHARE = 100_000  # numbers added up that are worth a thread
# Up to so many numbers all are taken in double precision: one loop to compile in place of four.
SMALL = 2**21
AHEAD = 16  # neighbours whose rows are asked for before their turn
_LINE = 64  # bytes that memory hands out at once
# Exact sums have two parts, multiples of these. Up to a sum of 2^25 nothing is rounded away.
COARSE, FINE = 2.0**-28, 2.0**-57
# Adding and taking away so much rounds to such a multiple.
_TO_COARSE, _TO_FINE = 1.5 * 2.0**52 * COARSE, 1.5 * 2.0**52 * FINE


def neighbour_mean(
    matrix: sp.csr_array | None,
    table: np.ndarray,
    own: np.ndarray | None = None,
    rows: slice = slice(None),
    *,
    exact: bool = False,
) -> np.ndarray:
    """Row-normalised matrix times table; a node without neighbours gets its own row back.

    That is how the weight of a missing part returns to the node itself. `rows` asks for successive
    ones only, whose own rows are `own` where those of `table` are not theirs. Sums are in float64,
    whatever the table is in. An `exact` mean, for a matrix of ones and a table of numbers around
    one, adds up multiples of 2^-57 without rounding: the same bits in whatever order, and by
    whatever engine.
    """
    own = np.asarray(table[rows] if own is None else own, np.float64)
    if matrix is None or matrix.nnz == 0:
        return own
    out = np.empty(own.shape)
    n = len(own)
    first = rows.start or 0
    indptr = matrix.indptr[first : first + n + 1]
    numbers = max(int(indptr[-1]) - int(indptr[0]), n) * table.shape[1]
    small = max(matrix.nnz * table.shape[1], table.size) <= SMALL
    if exact and small:
        return _small_exact_mean(indptr, matrix.indices, table, own)
    share = SHARE * n // max(numbers, 1) + 1
    weights = matrix.data
    ahead: int | None = AHEAD
    if small:
        weights, table, ahead = weights.astype(np.float64), table.astype(np.float64), None
    flat = np.ascontiguousarray(table).reshape(-1)
    if exact:
        in_shares(_exact_mean, n, share, indptr, matrix.indices, flat, own, out)
    else:
        in_shares(
            _neighbour_mean, n, share, indptr, matrix.indices, weights, flat, own, out, ahead, True
        )
    return out


def sparse_product(matrix: sp.csr_array, table: np.ndarray) -> np.ndarray:
    """Matrix times table, both in float64: the bits of SciPy, by all threads."""
    out = np.empty((matrix.shape[0], table.shape[1]))
    share = SHARE * len(out) // (matrix.nnz * table.shape[1] + 1) + 1
    flat = np.ascontiguousarray(table).reshape(-1)
    in_shares(
        _neighbour_mean, len(out), share, matrix.indptr, matrix.indices, matrix.data, flat, out,
        out, None, False,
    )  # fmt: skip
    return out


def _small_exact_mean(
    indptr: np.ndarray, indices: np.ndarray, table: np.ndarray, own: np.ndarray
) -> np.ndarray:
    """The bits of `_exact_mean`, with nothing to compile: exact sums have no order."""
    table = table.astype(np.float64)
    coarse = (table + _TO_COARSE) - _TO_COARSE
    fine = (table - coarse + _TO_FINE) - _TO_FINE
    entries = indices[indptr[0] : indptr[-1]]
    links = sp.csr_array(
        (np.ones(len(entries)), entries, indptr - indptr[0]), shape=(len(own), len(table))
    )
    counts = np.diff(indptr)[:, None]
    return np.where(counts > 0, (links @ coarse + links @ fine) / np.maximum(counts, 1), own)


def neighbour_mean_at(
    matrix: sp.csr_array,
    rows: Callable[[np.ndarray], np.ndarray],
    places: np.ndarray,
    kind: Any = np.float64,
    *,
    exact: bool = False,
) -> np.ndarray:
    """The same at some places, of a table whose `rows` are made where they are needed, as `kind`.

    Some of the places at a time: of a dense graph, the neighbours of a few are all of its edges.
    """
    parts = pieces(len(places), 16 * (matrix.nnz // matrix.shape[0] + 1))
    reached = np.zeros(matrix.shape[1], bool)
    for some in parts:
        near = matrix[places[some]]
        reached[near.indices] = True
    table = rows(np.flatnonzero(reached)).astype(kind, copy=False)
    within = np.cumsum(reached, dtype=matrix.indices.dtype) - 1
    out = np.empty((len(places), table.shape[1]))
    for some in parts:
        if len(parts) > 1:
            near = matrix[places[some]]
        ends = near.data, within[near.indices], near.indptr
        near = sp.csr_array(ends, shape=(near.shape[0], len(table)))
        own, alone = np.zeros(out[some].shape), np.flatnonzero(near.sum(axis=1) == 0)
        if len(alone):  # others don't need their own rows
            own[alone] = rows(places[some][alone])
        out[some] = neighbour_mean(near, table, own, exact=exact)
    return out


@loop
def _neighbour_mean(first, last, indptr, indices, weights, table, own, out, ahead, divided):
    num_classes = out.shape[1]
    sums = np.empty(num_classes)
    for i in range(first, last):
        ends = indptr[i], indptr[i + 1], indptr[last]
        total = sum_up(ends, indices, weights, table, sums, ahead)
        if not divided:  # sums are asked for
            total = 1.0
        if total > 0.0:  # outside of the loop, which else reads rows that it needs not
            for y in range(num_classes):
                out[i, y] = sums[y] / total
        else:
            for y in range(num_classes):
                out[i, y] = own[i, y]


@helper
def sum_up(ends, indices, weights, table, sums, ahead):
    """Four neighbours at a time, added up in their order; rows `ahead` are on their way."""
    entry, stop, end = ends
    num_classes = np.uint64(len(sums))  # unsigned places spare the test for wrap-around
    total = 0.0
    sums[:] = 0.0
    while entry + 4 <= stop:
        if ahead is not None:
            _ask(entry + ahead, end, indices, table, num_classes)
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
    return total


@loop
def _exact_mean(first, last, indptr, indices, table, own, out):
    num_classes = out.shape[1]
    coarse, fine = np.empty(num_classes), np.empty(num_classes)
    for i in range(first, last):
        total = indptr[i + 1] - indptr[i]
        _sum_exactly(indptr[i], indptr[i + 1], indptr[last], indices, table, coarse, fine)
        if total:
            for y in range(num_classes):
                out[i, y] = (coarse[y] + fine[y]) / total
        else:
            for y in range(num_classes):
                out[i, y] = own[i, y]


@helper
def _sum_exactly(entry, stop, end, indices, table, coarse, fine):
    """Sum up rows of a flat table in multiples of COARSE and of FINE, four at a time as well."""
    num_classes = np.uint64(len(coarse))
    coarse[:] = 0.0
    fine[:] = 0.0
    while entry + 4 <= stop:
        _ask(entry + AHEAD, end, indices, table, num_classes)
        a = np.uint64(indices[entry]) * num_classes
        b = np.uint64(indices[entry + 1]) * num_classes
        c = np.uint64(indices[entry + 2]) * num_classes
        d = np.uint64(indices[entry + 3]) * num_classes
        for y in range(num_classes):
            one, two = np.float64(table[a + y]), np.float64(table[b + y])
            three, four = np.float64(table[c + y]), np.float64(table[d + y])
            high_one, high_two = _rounded(one, _TO_COARSE), _rounded(two, _TO_COARSE)
            high_three, high_four = _rounded(three, _TO_COARSE), _rounded(four, _TO_COARSE)
            coarse[y] += (high_one + high_two) + (high_three + high_four)
            fine[y] += (_rounded(one - high_one, _TO_FINE) + _rounded(two - high_two, _TO_FINE)) + (
                _rounded(three - high_three, _TO_FINE) + _rounded(four - high_four, _TO_FINE)
            )
        entry += 4
    while entry < stop:
        a = np.uint64(indices[entry]) * num_classes
        for y in range(num_classes):
            one = np.float64(table[a + y])
            high = _rounded(one, _TO_COARSE)
            coarse[y] += high
            fine[y] += _rounded(one - high, _TO_FINE)
        entry += 1


@helper
def _ask(entry, end, indices, table, num_classes):
    """Ask for the rows of four neighbours, a line of memory at a time, if there are four."""
    line, last = np.uint64(_LINE // table.itemsize), num_classes - np.uint64(1)
    second, third = min(line, last), min(line + line, last)
    if entry + 4 > end:
        return
    for later in range(entry, entry + 4):  # few lines without a loop, which would cost as much
        row = np.uint64(indices[later]) * num_classes
        prefetch(table, row)
        prefetch(table, row + second)
        prefetch(table, row + third)
        prefetch(table, row + last)
    if third + line < last:
        for later in range(entry, entry + 4):
            row, y = np.uint64(indices[later]) * num_classes, third + line
            while y < last:
                prefetch(table, row + y)
                y += line


@helper
def _rounded(value, shift):
    return (value + shift) - shift


def exact_sums(indptr: np.ndarray, indices: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The sums behind an exact mean, (n, 2 K): multiples of COARSE, then of FINE.

    As integers they can be added up in parts, in any order.
    """
    out = np.empty((len(indptr) - 1, 2 * table.shape[1]), np.int64)
    _exact_sums(indptr, indices, np.ascontiguousarray(table).reshape(-1), out)
    return out


@loop
def _exact_sums(indptr, indices, table, out):
    num_classes = out.shape[1] // 2
    coarse, fine = np.empty(num_classes), np.empty(num_classes)
    for i in range(len(indptr) - 1):
        _sum_exactly(indptr[i], indptr[i + 1], indptr[-1], indices, table, coarse, fine)
        for y in range(num_classes):
            out[i, y], out[i, num_classes + y] = coarse[y] / COARSE, fine[y] / FINE


@loop
def add_rows(places, rows, out):
    """Add rows to those at some places."""
    for r in range(len(places)):
        for y in range(out.shape[1]):
            out[places[r], y] += rows[r, y]


def mean_of_sums(sums: np.ndarray, counts: np.ndarray, own: np.ndarray) -> np.ndarray:
    """The exact mean of so many rows from their sums; the own row where there are none."""
    coarse, fine = np.hsplit(sums, 2)
    total = coarse * COARSE + fine * FINE
    return np.where(counts[:, None] > 0, total / np.maximum(counts, 1)[:, None], own)
