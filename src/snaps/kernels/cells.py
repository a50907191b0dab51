"""The loops behind approximate neighbours. They know arrays, nothing of the API above them.

Nodes are divided into cells of similar ones. A *score* is the product of a unit row with a cell's
mean, both rounded to multiples of 2^-11, plus a number of the cell's own. All sums in between are
multiples of 2^-22 below 4, which float32 holds exactly: so a score has the same bits whatever the
order of its terms, and nothing that is decided by scores depends on blocks, threads or the machine.

Members are the nodes that may be neighbours, sorted by cell; cell c has members `edges[c]` to
`edges[c + 1]`.
"""

from __future__ import annotations

import numpy as np

from snaps.kernels.compiling import loop
from snaps.kernels.similarity import invert, search_sparse
from snaps.kernels.tiles import as_bits, meet, settle_lists

GRID = 2.0**11
ABOVE = 2.0  # added to all scores: positive floats are ordered as their bits
STEP = np.uint64(64)
TILE, SCORE_ROWS = 512, 128  # rows of a tile of products, and of one of scores
PAIRS = 2**21  # of rows and cells that are kept at a time


@loop
def rounded(unit):
    """Unit rows on the grid, with a last column of ones for the number of a cell's own."""
    n, d = unit.shape
    out = np.ones((n, d + 1), np.float32)
    for i in range(n):
        for j in range(d):
            out[i, j] = np.rint(unit[i, j] * np.float32(GRID)) / np.float32(GRID)
    return out


@loop
def project(rows, ptr, cols, vals, norms, basis):
    """Unit rows times a matrix; each added up in the order of its columns."""
    out = np.zeros((len(rows), basis.shape[1]))
    for r in range(len(rows)):
        for p in range(ptr[rows[r]], ptr[rows[r] + 1]):
            value = vals[p] / norms[rows[r]]
            for j in range(basis.shape[1]):
                out[r, j] += value * basis[cols[p], j]
    return out.astype(np.float32)


@loop
def nearest(rows, cells):
    """The cell with the highest score for each row; the first of equals."""
    best = np.zeros(len(rows), np.int64)
    tile = np.empty((min(SCORE_ROWS, len(rows)), len(cells)), np.float32)
    for first in range(0, len(rows), SCORE_ROWS):
        last = min(first + SCORE_ROWS, len(rows))
        scores = tile[: last - first]
        np.dot(rows[first:last], cells.T, scores)
        bits = scores.view(np.int32)
        size = np.uint64(len(cells))
        for r in range(np.uint64(last - first)):
            high = np.int32(0)
            for begin in range(np.uint64(0), size, STEP):
                stop, top = min(begin + STEP, size), high
                for c in range(begin, stop):
                    top = max(top, bits[r, c])
                if top > high:
                    high = top
                    c = begin
                    while bits[r, c] < top:
                        c += np.uint64(1)
                    best[np.uint64(first) + r] = c
    return best


@loop
def add_rows(rows, cell, sums):
    """Add each row to the sum of its cell; exact, whatever the order."""
    for i in range(len(rows)):
        for j in range(sums.shape[1]):
            sums[cell[i], j] += rows[i, j]


@loop
def nearest_of_cells(first, scores, sizes, least, most):
    """For some cells, from `first` on, which to look at first; `scores` of them with all.

    Each cell itself, then the best by score until they have enough members. Return how many each
    has, and their numbers.
    """
    counts, found = np.zeros(len(scores), np.int64), np.empty((len(scores), most), np.int64)
    for r in range(len(scores)):
        best, members = first + r, 0
        while scores[r, best] > 0:
            found[r, counts[r]] = best
            counts[r] += 1
            members += sizes[best]
            if members >= least or counts[r] == most:
                break
            scores[r, best] = 0
            best = np.argmax(scores[r])
    return counts, found


@loop
def same_cell(own, start, most):
    """Where the run of rows with the same own cell ends that begins at `start`."""
    stop = start + 1
    while stop < min(len(own), start + most) and own[stop] == own[start]:
        stop += 1
    return stop


@loop
def kth_bars(rows, found):
    """What the score of a cell must exceed, by each row's k-th best cosine so far; as bits."""
    sims, _, counts = found
    k, bars = sims.shape[1], np.empty(len(rows), np.int32)
    for r in range(len(rows)):
        kth = sims[rows[r], k - 1] if counts[rows[r]] == k else 0.0
        bars[r] = as_bits(ABOVE + kth) - 1
    return bars


@loop
def meet_dense(
    rows, own, coarse, left, right, members, edges, first_cells, reach, rooms, known, lists
):
    """Compare rows, sorted by their own cell, with the members of cells near to them.

    First come the cells that `first_cells` lists for the rows' own cell, then whichever has a score
    of at least ABOVE plus the k-th best cosine so far, by the cells in `reach`: none if empty.
    `coarse` are the rows on the grid, `left` and `right` the unit rows of rows and members.
    """
    (first_ptr, first_of), row = first_cells, rooms[2]
    start = 0
    while start < len(rows):
        stop = same_cell(own, start, TILE)
        whose, begin, end = np.arange(start, stop), first_ptr[own[start]], first_ptr[own[start] + 1]
        for p in range(begin, end):
            first, last = edges[first_of[p]], edges[first_of[p] + 1]
            some, new = left[start:stop], p == begin
            meet(whose, rows, some, members, right, first, last, new, rooms, known, lists)
        start = stop
    settle_lists(rows, members, row, known, lists)
    bars, reached = kth_bars(rows, known[2]), 0 if len(reach) else len(rows)
    while reached < len(rows):
        reached, pairs, ends = choose(reached, coarse, own, first_cells, reach, bars)
        for c in range(len(ends) - 1):
            for begin in range(ends[c], ends[c + 1], TILE):
                whose, first, last = pairs[begin : ends[c + 1]][:TILE], edges[c], edges[c + 1]
                some = left[whose]
                meet(whose, rows, some, members, right, first, last, False, rooms, known, lists)
    settle_lists(rows, members, row, known, lists)


@loop
def meet_sparse(rows, own, coarse, width, members, edges, first_cells, reach, known):
    """The same for sparse rows, by an inverted index of the members."""
    first_ptr, first_of = first_cells
    start = 0
    while start < len(rows):
        stop, count = same_cell(own, start, len(rows)), 0
        for p in range(first_ptr[own[start]], first_ptr[own[start] + 1]):
            count += edges[first_of[p] + 1] - edges[first_of[p]]
        near, count = np.empty(count, np.int64), 0
        for p in range(first_ptr[own[start]], first_ptr[own[start] + 1]):
            for place in range(edges[first_of[p]], edges[first_of[p] + 1]):
                near[count] = members[place]
                count += 1
        look_up(rows[start:stop], np.sort(near), width, known)
        start = stop
    bars, first = kth_bars(rows, known[2]), 0 if len(reach) else len(rows)
    while first < len(rows):
        first, pairs, ends = choose(first, coarse, own, first_cells, reach, bars)
        for c in range(len(ends) - 1):
            if ends[c] < ends[c + 1]:
                near = members[edges[c] : edges[c + 1]]
                look_up(rows[pairs[ends[c] : ends[c + 1]]], near, width, known)


@loop
def look_up(rows, near, width, known):
    """Compare sparse rows with some candidates, in ascending order."""
    (ptr, cols, vals, squares), rank, (sims, nodes, counts) = known
    index, scales = invert(near, ptr, cols, vals, width), 1 / np.sqrt(squares[near])
    search_sparse(
        rows, ptr, cols, vals, index, near, scales, np.empty(0), squares, rank, sims, nodes, counts
    )


@loop
def choose(first, coarse, own, first_cells, reach, bars):
    """Pairs of rows and cells to compare, for the rows from `first` on, until there are many.

    Return the row to go on with, the rows of all pairs by cell, and where each cell's begin.
    """
    first_ptr, first_of = first_cells
    num = np.uint64(len(reach))
    room = PAIRS + len(reach) + 1
    pair_rows, pair_cells = np.empty(room, np.int32), np.empty(room, np.int32)
    count = np.uint64(0)
    while first < len(coarse) and count <= PAIRS:
        last = min(first + SCORE_ROWS, len(coarse))
        scores = np.dot(coarse[first:last], reach.T)
        bits = scores.view(np.int32)
        for r in range(np.uint64(last - first)):
            q = np.uint64(first) + r
            if count > PAIRS:
                last = q
                break
            for p in range(first_ptr[own[q]], first_ptr[own[q] + 1]):
                bits[r, first_of[p]] = 0
            bar = bars[q]
            for begin in range(np.uint64(0), num, STEP):
                stop, top = min(begin + STEP, num), bar
                for c in range(begin, stop):
                    top = max(top, bits[r, c])
                if top > bar:
                    for c in range(begin, stop):
                        pair_rows[count], pair_cells[count] = q, c
                        count += np.uint64(bits[r, c] > bar)
        first = np.int64(last)
    ends = np.zeros(len(reach) + 1, np.int64)
    for p in range(count):
        ends[pair_cells[p] + 1] += 1
    ends = np.cumsum(ends)
    places, pairs = ends[:-1].copy(), np.empty(count, np.int64)
    for p in range(count):
        c = pair_cells[p]
        pairs[places[c]] = pair_rows[p]
        places[c] += 1
    return first, pairs, ends
