"""The loops behind `similarity_graph`. They know arrays, nothing of the API above them.

Rows of features come as CSR arrays (`ptr`, `cols`, `vals`); a dense matrix is the same with an
empty `cols`. The best neighbours found so far lie in `sims` and `nodes` (n, k), best first,
`counts` of them valid. Approximate cosines in float32 rule out most candidates. Whoever could be
among the best in spite of their error is compared by the cosine proper: its dot product adds the
terms one by one in column order, in float64, so that neither the path, blocks, threads nor the
order of the nodes can change a bit.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

ROWS = 32  # rows a thread takes at a time: two cache lines of float32
STEP = 64  # candidates that one vectorised test rules out at a time
UNIT = 2.0**-24  # what rounding to float32 changes, at most and relatively
TINY = 1e-30  # smaller cosines count as zero: float32 could lose them


@njit(cache=True)
def row_sizes(ptr, vals):
    """Squared norm and largest absolute value of each row."""
    n = len(ptr) - 1
    squares, peaks = np.zeros(n), np.zeros(n)
    for i in range(n):
        for p in range(ptr[i], ptr[i + 1]):
            value = np.float64(vals[p])
            squares[i] += value * value
            peaks[i] = max(peaks[i], abs(value))
    return squares, peaks


@njit(cache=True)
def shortlist(approx, k, low, error, places):
    """Write the places that may hold one of the k largest above `low`; return how many."""
    m, lanes = len(approx), 8 * k
    tops = np.full(lanes, -2, np.float32)
    for start in range(0, m, lanes):
        part = approx[start : start + lanes]
        for lane in range(len(part)):
            tops[lane] = np.fmax(part[lane], tops[lane])
    # Whatever k of the lanes' maxima exceed bounds the k-th largest from below. Counting finds
    # such a bound without a branch to mispredict, several times faster than sorting.
    bound, beyond = np.float32(low), np.float32(1.0)
    for _ in range(16):
        middle = (bound + beyond) / np.float32(2)
        hits = 0
        for lane in range(lanes):
            hits += tops[lane] > middle
        if hits >= k:
            bound = middle
        else:
            beyond = middle
    low = max(low, bound - 2 * error)
    limit, count = np.float32(low), 0
    for start in range(0, m, STEP):
        stop = min(start + STEP, m)
        hits = 0
        for j in range(start, stop):
            hits += approx[j] > limit
        if hits:
            for j in range(start, stop):
                places[count] = j
                count += approx[j] > limit
    return count


@njit(cache=True)
def offer(i, j, dot, squares, rank, sims, nodes, counts):
    """Put j into i's list if it is among the best so far; of equals the lower rank wins."""
    if dot <= 0:
        return
    # One division of exact squares: equal cosines of whole numbers come out equal.
    sim = min(np.sqrt(dot * dot / (squares[i] * squares[j])), 1.0)
    if sim < TINY:
        return
    k, place = sims.shape[1], counts[i]
    counts[i] = min(place + 1, k)
    while place > 0:
        other = sims[i, place - 1]
        if other > sim or (other == sim and rank[nodes[i, place - 1]] < rank[j]):
            break
        if place < k:
            sims[i, place], nodes[i, place] = other, nodes[i, place - 1]
        place -= 1
    if place < k:
        sims[i, place], nodes[i, place] = sim, j


@njit(parallel=True, cache=True)
def search_sparse(
    first, last, ptr, cols, vals, index_ptr, index_rows, index_vals, near, scales, squares,
    rank, sims, nodes, counts,
):  # fmt: skip
    """Compare rows first..last with the candidates `near`, given as an inverted index.

    `scales` holds the inverse norms of `near`, zero for a row of zeros.
    Row numbers in the index are unsigned: numba tests signed ones for wrap-around, which makes
    the loop that matters half as fast again.
    """
    m, k = len(near), sims.shape[1]
    for b in prange((last - first + ROWS - 1) // ROWS):
        dots, approx = np.zeros(m), np.empty(m, np.float32)
        few, who, places = np.empty(m), np.empty(m, np.int64), np.empty(m + 1, np.int64)
        for i in range(first + b * ROWS, min(first + (b + 1) * ROWS, last)):
            steps = 0
            for p in range(ptr[i], ptr[i + 1]):
                value, begin, end = np.float64(vals[p]), index_ptr[cols[p]], index_ptr[cols[p] + 1]
                steps += end - begin
                for q in range(begin, end):
                    dots[index_rows[q]] += value * index_vals[q]
            place = np.searchsorted(near, i)
            if place < m and near[place] == i:
                dots[place] = 0
            scale = 1 / np.sqrt(squares[i]) if steps else 0.0
            low = sims[i, k - 1] - 2 * UNIT if counts[i] == k else 0.0
            if 4 * steps < m:
                count = 0
                for p in range(ptr[i], ptr[i + 1]):
                    for q in range(index_ptr[cols[p]], index_ptr[cols[p] + 1]):
                        j = index_rows[q]
                        if dots[j] > 0:
                            few[count], who[count] = dots[j], j
                            approx[count] = dots[j] * scale * scales[j]
                            count += 1
                        dots[j] = 0
                for place in places[: shortlist(approx[:count], k, low, 2 * UNIT, places)]:
                    offer(i, near[who[place]], few[place], squares, rank, sims, nodes, counts)
                continue
            for j in range(m):
                approx[j] = dots[j] * scale * scales[j]
            for place in places[: shortlist(approx, k, low, 2 * UNIT, places)]:
                offer(i, near[place], dots[place], squares, rank, sims, nodes, counts)
            dots[:] = 0


@njit(cache=True)
def dot_product(row, ptr, cols, vals, j):
    """Product of a dense row and row j."""
    total, start = 0.0, ptr[j]
    if len(cols) == 0:
        for p in range(start, ptr[j + 1]):
            total += row[p - start] * vals[p]
    else:
        for p in range(start, ptr[j + 1]):
            total += row[cols[p]] * vals[p]
    return total


@njit(parallel=True, cache=True)
def search_dense(
    tile, row_step, step, these, near, width, signed, ptr, cols, vals, squares, rank,
    sims, nodes, counts,
):  # fmt: skip
    """Compare rows `these` with the candidates `near`, given their approximate cosines.

    That of `these[r]` and `near[j]` is `tile[r * row_step + j * step]`.
    """
    m, k = len(near), sims.shape[1]
    for b in prange((len(these) + ROWS - 1) // ROWS):
        begin, end = b * ROWS, min((b + 1) * ROWS, len(these))
        # The margin keeps rows whose length is a power of two from sharing cache lines.
        approx = np.empty((end - begin, m + ROWS), np.float32)[:, :m]
        if step == 1:
            for r in range(begin, end):
                approx[r - begin] = tile[r * row_step : r * row_step + m]
        else:
            for j in range(m):
                for r in range(begin, end):
                    approx[r - begin, j] = tile[r * row_step + j * step]
        places, row = np.empty(m + 1, np.int64), np.zeros(width)
        for r in range(begin, end):
            i, start = these[r], ptr[these[r]]
            # The factors are rounded once each, their products and sums once a term (zeros are
            # exact); two more make room for what float64 and the limits themselves round.
            error = np.expm1((ptr[i + 1] - start + 4) * UNIT)
            low = -error if signed else 0.0
            if counts[i] == k:
                low = max(low, sims[i, k - 1] - error)
            place = np.searchsorted(near, i)
            if place < m and near[place] == i:
                approx[r - begin, place] = -2
            found = shortlist(approx[r - begin], k, low, error, places) if squares[i] > 0 else 0
            if found == 0:
                continue
            for p in range(start, ptr[i + 1]):
                row[cols[p] if len(cols) else p - start] = vals[p]
            for place in places[:found]:
                dot = dot_product(row, ptr, cols, vals, near[place])
                offer(i, near[place], dot, squares, rank, sims, nodes, counts)
            row[:] = 0


@njit(cache=True)
def close_gaps(sims, nodes, counts):
    """Move the valid entries of all rows next to each other, in place."""
    k, end = sims.shape[1], 0
    sims, nodes = sims.reshape(-1), nodes.reshape(-1)
    for i in range(len(counts)):
        for p in range(i * k, i * k + counts[i]):
            sims[end], nodes[end] = sims[p], nodes[p]
            end += 1
