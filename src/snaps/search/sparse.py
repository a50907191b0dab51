"""The loops behind `similarity_graph`. They know arrays, nothing of the API above them.

Rows of features come as CSR arrays (`ptr`, `cols`, `vals`); a dense matrix is the same with an
empty `cols`. The best neighbours found so far lie in `sims` and `nodes` (n, k), best first,
`counts` of them valid. Approximate cosines in float32 rule out most candidates. Those that could
be among the best in spite of their error are compared by the exact cosine: its dot product adds the
terms one by one in column order, in float64, so that neither the path, blocks, threads nor the
order of the nodes can change a bit. Threads are the caller's: each takes rows of its own.

A search looks for the best candidates of some rows. An update also asks the other way round: for
which candidates may such a row be among the best? `wanted` has the cosine that each must see
(empty: no query), and the answer is offers: arrays of to whom, who, and their dot product.
"""

from __future__ import annotations

import numpy as np

from snaps._kernels.compiling import helper, loop
from snaps._runtime.memory import pieces
from snaps._runtime.randomness import hashes

STEP = 64  # candidates that one vectorised test rules out at a time
UNIT = 2.0**-24  # what rounding to float32 changes, at most and relatively
FEW = 2  # a row that takes fewer steps than candidates / FEW keeps a list of those it meets
TINY = 1e-30  # smaller cosines count as zero: float32 could lose them


def no_neighbours(n, k):
    """Room for k neighbours of each node: their cosines, who they are, how many."""
    return np.empty((n, k)), np.empty((n, k), np.int32), np.zeros(n, np.int64)


def row_sizes(ptr, vals):
    """Squared norm, largest absolute value and number of entries of each row."""
    n = len(ptr) - 1
    squares, peaks, filled = np.zeros(n), np.zeros(n), np.zeros(n, np.int64)
    _row_sizes(ptr, vals, squares, peaks, filled)
    return squares, peaks, filled


@loop
def _row_sizes(ptr, vals, squares, peaks, filled):
    for i in range(len(ptr) - 1):
        for p in range(ptr[i], ptr[i + 1]):
            value = np.float64(vals[p])
            squares[i] += value * value
            peaks[i] = max(peaks[i], abs(value))
            filled[i] += value != 0


def row_words(rows, ptr, cols, vals):
    """A hash of each row's values: rows that are equal have the same."""
    width = int(cols.max(initial=0)) + 1 if len(cols) else int(ptr[1] - ptr[0])
    factors = hashes(0, np.arange(width), 0)
    words = np.empty(len(rows), np.uint64)
    for some in pieces(len(rows), 40 * (int(ptr[-1]) // (len(ptr) - 1) + 1)):
        entries, first = entries_of(rows[some], ptr)
        values = vals[entries] + vals.dtype.type(0)  # negative zeros become zeros
        bits = values.view(f"u{values.itemsize}").astype(np.uint64)
        bits ^= bits >> np.uint64(32)
        products = bits * (factors[cols[entries]] if len(cols) else np.resize(factors, len(bits)))
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(products)])
        words[some] = np.diff(sums[first])
    return words


def entries_of(rows, ptr):
    """Where the entries of some rows are, one row after the other; and where each row begins."""
    sizes = ptr[rows + 1] - ptr[rows]
    first = np.concatenate([[0], np.cumsum(sizes)])
    return np.arange(first[-1]) + np.repeat(ptr[rows] - first[:-1], sizes), first


def unit_rows(rows, ptr, cols, vals, norms, width):
    """Some rows divided by their norms, dense, in float32."""
    if not len(cols):
        table = vals.reshape(-1, width)[rows]
        return np.divide(table, norms[rows, None], dtype=np.float64).astype(np.float32)
    unit = np.zeros((len(rows), width), np.float32)
    for some in pieces(len(rows), 256 * len(cols) // len(norms)):  # bytes per entry
        entries, first = entries_of(rows[some], ptr)
        owner = np.repeat(np.arange(some.start, some.stop), np.diff(first))
        unit[owner, cols[entries]] = vals[entries] / norms[rows[owner]]
    return unit


@loop
def invert(rows, ptr, cols, vals, width):
    """The inverted index of some rows: per column who has it, by place in `rows`, and the values.

    Row numbers are unsigned: numba tests signed ones for wrap-around, which makes the loop that
    matters half as fast again.
    """
    index_ptr = np.zeros(width + 1, np.int64)
    for i in rows:
        for p in range(ptr[i], ptr[i + 1]):
            index_ptr[cols[p] + 1] += 1
    for c in range(width):  # numpy's cumsum takes a while to compile
        index_ptr[c + 1] += index_ptr[c]
    ends = index_ptr[:-1].copy()
    index_rows = np.empty(index_ptr[-1], np.uint32)
    index_vals = np.empty(index_ptr[-1], vals.dtype)
    for r in range(len(rows)):
        for p in range(ptr[rows[r]], ptr[rows[r] + 1]):
            q = ends[cols[p]]
            index_rows[q], index_vals[q] = r, vals[p]
            ends[cols[p]] = q + 1
    return index_ptr, index_rows, index_vals


@helper
def place_of(node, near):
    """Where a node stands among candidates in order, or their number if it is none of them.

    By hand: numba's own search takes half a second to compile.
    """
    low, high = 0, len(near)
    while low < high:
        middle = (low + high) // 2
        if near[middle] < node:
            low = middle + 1
        else:
            high = middle
    return low if low < len(near) and near[low] == node else len(near)


@helper
def lower_bound(approx, k, low):
    """What at least k of these exceed, or `low`: close to the k-th largest, far sooner."""
    lanes = 8 * k
    tops = np.empty(lanes, np.float32)
    tops[:] = -2
    for start in range(0, len(approx), lanes):
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
            if hits <= k + 2:
                break
        else:
            beyond = middle
    return bound


@helper
def shortlist(approx, k, low, error, places):
    """Write the places that may hold one of the k largest above `low`; return how many."""
    limit, count = np.float32(max(low, lower_bound(approx, k, low) - 2 * error, 0.0)), 0
    # From zero on, floats are ordered as their bits, of which many are compared at once.
    bits, bar = approx.view(np.int32), np.array([limit]).view(np.int32)[0]
    for start in range(0, len(approx), STEP):
        stop, top = min(start + STEP, len(approx)), bar
        for j in range(start, stop):
            top = max(top, bits[j])
        if top > bar:
            for j in range(start, stop):
                places[count] = j
                count += bits[j] > bar
    return count


@helper
def no_offers(most):
    """Room for so many offers; memory that none is written to is never taken."""
    return np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most)


@helper
def takers(approx, wanted, low, error, places):
    """Write the places whose own lists may take the row, if above `low`; return how many."""
    count = 0
    for start in range(0, len(wanted), STEP):
        stop = min(start + STEP, len(wanted))
        hits = 0
        for j in range(start, stop):
            hits += approx[j] > max(wanted[j] - error, low)
        if hits:
            for j in range(start, stop):
                places[count] = j
                count += approx[j] > max(wanted[j] - error, low)
    return count


@helper
def settle(i, found, who, dots, squares, rank, sims, nodes, counts):
    """Merge `found` candidates into i's list of the best; of equals the lower rank comes first."""
    k = sims.shape[1]
    for c in range(found):
        # One division of exact squares: equal cosines of whole numbers come out equal.
        dot, j, place = dots[c], who[c], counts[i]
        if dot <= 0:
            continue
        value = min(np.sqrt(dot * dot / (squares[i] * squares[j])), 1.0)
        if value < TINY:
            continue
        while place > 0:
            ahead = sims[i, place - 1]
            if ahead > value or (ahead == value and rank[nodes[i, place - 1]] < rank[j]):
                break
            if place < k:
                sims[i, place], nodes[i, place] = ahead, nodes[i, place - 1]
            place -= 1
        if place < k:
            sims[i, place], nodes[i, place] = value, j
            counts[i] = min(counts[i] + 1, k)


@loop
def settle_offers(offers, squares, rank, sims, nodes, counts):
    """Merge each of the offers into the list of the one it was made to."""
    whom, who, dots = offers
    for c in range(len(whom)):
        one = slice(c, c + 1)
        settle(whom[c], 1, who[one], dots[one], squares, rank, sims, nodes, counts)


@helper
def add_up(row, index, dots):
    """Add to `dots` the products of a row (its columns and values) with all candidates."""
    (cols, vals), (index_ptr, index_rows, index_vals) = row, index
    for p in range(len(cols)):
        value = np.float64(vals[p])
        for q in range(index_ptr[cols[p]], index_ptr[cols[p] + 1]):
            dots[index_rows[q]] += value * np.float64(index_vals[q])


@helper
def add_up_few(row, index, dots, met):
    """The same, with a list of who was met; return its length.

    A candidate whose sum was zero in between is in the list more than once.
    """
    (cols, vals), (index_ptr, index_rows, index_vals) = row, index
    count = 0
    for p in range(len(cols)):
        value = np.float64(vals[p])
        for q in range(index_ptr[cols[p]], index_ptr[cols[p] + 1]):
            j = index_rows[q]
            met[count] = j
            count += dots[j] == 0
            dots[j] += value * np.float64(index_vals[q])
    return count


@loop
def search_sparse(
    rows, ptr, cols, vals, index, near, scales, wanted, squares, rank, sims, nodes, counts
):
    """Compare `rows` with the candidates `near`, given as an inverted index.

    `scales` holds the inverse norms of `near`, zero for a row of zeros. Return offers to those
    that are `wanted`; without any (None), what makes offers is not even compiled.
    """
    m, k = len(near), sims.shape[1]
    dots, approx, places = np.zeros(m + 1), np.empty(m, np.float32), np.empty(m + 1, np.int64)
    met, who, products = np.empty(m + 1, np.uint32), np.empty(m, np.int64), np.empty(m)
    if wanted is not None:
        limits, offers, made = np.empty(m), no_offers(len(rows) * m), 0
    for i in rows:
        row, steps = (cols[ptr[i] : ptr[i + 1]], vals[ptr[i] : ptr[i + 1]]), 0
        for col in row[0]:
            steps += index[0][col + 1] - index[0][col]
        if steps == 0 or squares[i] == 0:
            continue
        scale = 1 / np.sqrt(squares[i])
        low = sims[i, k - 1] - 2 * UNIT if counts[i] == k else 0.0
        itself = place_of(i, near)
        few, count = FEW * steps < m, m
        if few:
            count = add_up_few(row, index, dots, met)
            dots[itself] = 0
            for c in range(count):
                j = met[c]
                products[c], dots[j] = dots[j], 0
                approx[c] = products[c] * scale * scales[j]
        else:
            add_up(row, index, dots)
            dots[itself] = 0
            for j in range(m):
                approx[j] = dots[j] * scale * scales[j]
        if wanted is not None:
            for c in range(count):
                limits[c] = wanted[met[c] if few else c]
            found = takers(approx, limits[:count], 0.0, 2 * UNIT, places)
            for c in range(found):
                place = places[c]
                offers[0][made], offers[1][made] = near[met[place] if few else place], i
                offers[2][made] = products[place] if few else dots[place]
                made += 1
        found = shortlist(approx[:count], k, low, 2 * UNIT, places)
        for c in range(found):
            place = places[c]
            who[c] = near[met[place] if few else place]
            products[c] = products[place] if few else dots[place]
        settle(i, found, who, products, squares, rank, sims, nodes, counts)
        if not few:
            dots[:] = 0
    if wanted is not None:
        return offers[0][:made], offers[1][:made], offers[2][:made]


@loop
def close_gaps(sims, nodes, counts):
    """Move the valid entries of all rows next to each other, in place."""
    k, end = sims.shape[1], 0
    sims, nodes = sims.reshape(-1), nodes.reshape(-1)
    for i in range(len(counts)):
        for p in range(i * k, i * k + counts[i]):
            sims[end], nodes[end] = sims[p], nodes[p]
            end += 1


@loop
def same_rows(one, other, pairs):
    """Which rows of two tables agree: row pairs[i] of `one` with row i of `other`, if any."""
    (ptr, cols, vals), (other_ptr, other_cols, other_vals) = one, other
    same = np.zeros(len(pairs), np.bool_)
    for i in range(len(pairs)):
        if pairs[i] < 0:
            continue
        start, other_start = ptr[pairs[i]], other_ptr[i]
        size = ptr[pairs[i] + 1] - start
        if other_ptr[i + 1] - other_start != size:
            continue
        # All entries are looked at: a way out of the loop would keep it from being vectorised.
        differ = 0
        for p in range(size):
            differ += vals[start + p] != other_vals[other_start + p]
        if len(cols):
            for p in range(size):
                differ += cols[start + p] != other_cols[other_start + p]
        same[i] = differ == 0
    return same


@loop
def carry_over(place, ptr, old_nodes, old_sims, sims, nodes, counts):
    """Copy the lists of an older graph whose node i now stands at `place[i]`, nowhere if negative.

    Return whose lists still hold the best of the nodes that stayed. A list of k that lost one of
    them does not: the next one is not known. A shorter one held all there were.
    """
    k, whole = sims.shape[1], np.zeros(len(counts), np.bool_)
    for old in range(len(place)):
        i, first, last = place[old], ptr[old], ptr[old + 1]
        if i < 0:
            continue
        size = 0
        for p in range(first, last):
            j = place[old_nodes[p]]
            if j >= 0:
                sims[i, size], nodes[i, size] = old_sims[p], j
                size += 1
        whole[i] = size == last - first or last - first < k
        counts[i] = size if whole[i] else 0
    return whole
