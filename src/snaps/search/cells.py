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

from snaps._kernels.compiling import helper, loop
from snaps.search.sparse import invert, search_sparse
from snaps.search.tiles import (
    ERROR,
    SIZE,
    as_bits,
    kth_of_list,
    meet,
    settle_list,
    settle_lists,
    thin_out,
)

GRID = 2.0**11
ABOVE = 2.0  # added to all scores: positive floats are ordered as their bits
STEP = np.uint64(64)
TILE, SCORE_ROWS = 512, 128  # rows of a tile of products, and of one of scores
PAIRS = 2**21  # of rows and cells that are kept at a time
STEPS = 2.0**10  # of a cosine, when cells are compared with it


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
def as_number(value):
    """A number of a cell's own, on a grid that keeps sums exact."""
    return np.float32(np.rint((ABOVE + min(max(value, -0.99), 0.99)) * GRID**2) / GRID**2)


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


@helper
def same_cell(own, start, most):
    """Where the run of rows with the same own cell ends that begins at `start`."""
    stop = start + 1
    while stop < min(len(own), start + most) and own[stop] == own[start]:
        stop += 1
    return stop


@loop
def as_bar(kth):
    """What the score of a cell must exceed, by a row's k-th best cosine so far; as bits."""
    return as_bits(ABOVE + np.floor(kth * STEPS) / STEPS) - 1


@loop
def kth_found(i, found):
    """The k-th best cosine of row i so far; 0 if it has not as many."""
    sims, _, counts = found
    return sims[i, -1] if counts[i] == sims.shape[1] else 0.0


@loop
def bars_of_lists(rows, near, row, known, lists):
    """The rows' bars by what is on their lists, which need not be settled for it.

    Only where the rounding of products might move a bar by a step is a list settled.
    """
    _, integers, numbers = lists
    k, bars = known[2][0].shape[1], np.empty(len(rows), np.int32)
    for q in range(len(rows)):
        thin_out(q, k, lists)
        kth, error, certain = 0.0, numbers[q, ERROR], known[2][2][rows[q]] == 0
        if certain and integers[q, SIZE] >= k:
            kth = kth_of_list(q, k, lists)
            certain = np.floor((kth - error) * STEPS) == np.floor((kth + error) * STEPS)
        if not certain:
            settle_list(q, rows[q], near, row, known, lists)
            kth = kth_found(rows[q], known[2])
        bars[q] = as_bar(kth)
    return bars


@loop
def meet_dense(
    rows, own, coarse, left, right, members, edges, first_cells, reach, rooms, known, lists
):
    """Compare rows, sorted by their own cell, with the members of cells near to them.

    First come the cells that `first_cells` lists for the rows' own cell, then those within `reach`,
    see `choose`. `coarse` are the rows on the grid, `left` and `right` the unit rows of rows and
    members.
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
    reached = len(rows)
    if len(reach[0]):
        bars, reached = bars_of_lists(rows, members, row, known, lists), 0
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
    bars, first = np.empty(len(rows), np.int32), 0 if len(reach[0]) else len(rows)
    for r in range(len(rows)):
        bars[r] = as_bar(kth_found(rows[r], known[2]))
    while first < len(rows):
        first, pairs, ends = choose(first, coarse, own, first_cells, reach, bars)
        for c in range(len(ends) - 1):
            if ends[c] < ends[c + 1]:
                near = members[edges[c] : edges[c + 1]]
                look_up(rows[pairs[ends[c] : ends[c + 1]]], near, width, known)


@helper
def look_up(rows, near, width, known):
    """Compare sparse rows with some candidates, in ascending order."""
    (ptr, cols, vals, squares), rank, (sims, nodes, counts) = known
    index, scales = invert(near, ptr, cols, vals, width), 1 / np.sqrt(squares[near])
    search_sparse(
        rows, ptr, cols, vals, index, near, scales, None, squares, rank, sims, nodes, counts
    )


@helper
def cells_near(own, first_cells, scored, level):
    """Which cells are not too far from one cell, besides those that its rows meet first."""
    first_ptr, first_of = first_cells
    mean, number = scored[own].copy(), scored[own, -1]
    mean[-1] = 1
    scores = np.dot(scored, mean)
    for p in range(first_ptr[own], first_ptr[own + 1]):
        scores[first_of[p]] = 0
    which, count = np.empty(len(scores), np.int64), 0
    for c in range(len(scores)):
        which[count] = c
        count += np.float64(scores[c]) + number >= level
    return which[:count]


@helper
def choose(first, coarse, own, first_cells, reach, bars):
    """Pairs of rows and cells to compare, for the rows from `first` on, until there are many.

    A cell is compared if its score with the row, and an allowance, exceed the row's bar: `reach`
    has each cell's allowance, and a factor for the rows of each own cell. It also has the cells'
    means with numbers, and the level, that say which cells are too far to be looked at.
    Return the row to go on with, the rows of all pairs by cell, and where each cell's begin.
    """
    allowances, factors, scored, level = reach
    room = PAIRS + len(scored) + 1
    pair_rows, pair_cells = np.empty(room, np.int32), np.empty(room, np.int32)
    count = np.uint64(0)
    while first < len(coarse) and count <= PAIRS:
        last = same_cell(own, first, SCORE_ROWS)
        which = cells_near(own[first], first_cells, scored, level)
        num = np.uint64(len(which))
        if num == 0:
            first = last
            continue
        cells = scored[which]
        for c in range(len(which)):
            cells[c, -1] = as_number(allowances[which[c]] * factors[own[first]])
        scores = np.dot(coarse[first:last], cells.T)
        bits = scores.view(np.int32)
        for r in range(np.uint64(last - first)):
            q = np.uint64(first) + r
            if count > PAIRS:
                last = np.int64(q)
                break
            bar = bars[q]
            for begin in range(np.uint64(0), num, STEP):
                stop, top = min(begin + STEP, num), bar
                for c in range(begin, stop):
                    top = max(top, bits[r, c])
                if top > bar:
                    for c in range(begin, stop):
                        pair_rows[count], pair_cells[count] = q, which[c]
                        count += np.uint64(bits[r, c] > bar)
        first = last
    ends = np.zeros(len(scored) + 1, np.int64)
    for p in range(count):
        ends[pair_cells[p] + 1] += 1
    ends = np.cumsum(ends)
    places, pairs = ends[:-1].copy(), np.empty(count, np.int64)
    for p in range(count):
        c = pair_cells[p]
        pairs[places[c]] = pair_rows[p]
        places[c] += 1
    return first, pairs, ends
