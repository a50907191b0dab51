"""The loops of the dense search: products in tiles, and lists of whom to compare properly.

A tile is a product of unit rows in float32, small enough to stay in the cache until it is looked
at. Whoever may be among a row's best in spite of rounding goes on the row's list. A list holds the
products' bits (positive floats are ordered as the integers with the same bits, and the largest of
many integers is found in a sixth of the time), who they are by place among the candidates, and the
bar that a product must exceed.
"""

from __future__ import annotations

import numpy as np

from snaps.kernels.compiling import loop
from snaps.kernels.similarity import lower_bound, no_offers, settle, takers

UNIT = 2.0**-24  # what rounding to float32 changes, at most and relatively
WIDTH, CHUNK = 640, np.uint64(64)  # candidates a tile, and a look
ROOM = 96  # of a list, besides k
NEVER = np.int32(2**31 - 1)  # a bar that nobody exceeds
HIGHEST = np.float32(2).view(np.int32)


def new_lists(rows, itself, k, table, signed):
    """Empty lists of some rows, with all that goes with them, as arrays of one entry per row.

    Bits, places, sizes and bars; the most that a row's products may be off, and what they must
    exceed to be positive; where the row stands among the candidates, -1 for nowhere.
    """
    ptr, _, _, squares = table
    # The factors are rounded once each, their products and sums once a term (zeros are exact); two
    # more make room for what float64 and the limits themselves round.
    errors = np.expm1((ptr[rows + 1] - ptr[rows] + 4) * UNIT)
    floors = -errors if signed else np.zeros(len(rows))
    bits, places = (np.empty((len(rows), ROOM + k), np.int32) for _ in range(2))
    bars = np.where(squares[rows] > 0, np.int32(-1), NEVER)
    return bits, places, np.zeros(len(rows), np.int64), bars, errors, floors, itself


@loop
def as_bits(limit):
    """A limit as a bar."""
    return np.float32(limit).view(np.int32) if limit >= 0 else np.int32(-1)


@loop
def thin_out(q, k, lists):
    """Drop from a list all that cannot be among its k largest."""
    bits, places, sizes, bars, errors, _, _ = lists
    size, q = np.uint64(sizes[q]), np.uint64(q)
    if size <= k:
        return
    # Halving by counts: no branch to mispredict.
    low, high = bars[q], HIGHEST
    while high - low > 1:
        middle, hits = np.int32((low + high) // 2), np.int32(0)
        for c in range(size):
            hits += np.int32(bits[q, c] > middle)
        if hits >= k:
            low = middle
            if hits <= k + 2:
                break
        else:
            high = middle
    bar = max(bars[q], as_bits(np.int32(low).view(np.float32) - 2 * errors[q]))
    kept = np.uint64(0)
    for c in range(size):
        value, place = bits[q, c], places[q, c]
        bits[q, kept], places[q, kept] = value, place
        kept += np.uint64(value > bar)
    sizes[q], bars[q] = kept, bar


@loop
def collect(tile, whose, first, k, lists, done):
    """Append to the list of each row of a tile (in bits) whoever exceeds its bar, from `done` on.

    A list is thinned out when it is full. If ties leave no room, it is for the caller to empty the
    list and to go on; `done` says how far each row came. Return whether all are through.
    """
    bits, places, sizes, bars, _, _, _ = lists
    # Unsigned places spare the test for wrap-around.
    size, room = np.uint64(tile.shape[1]), np.uint64(bits.shape[1])
    hot, through = np.empty(tile.shape[1] // 64 + 1, np.uint64), True
    for r in range(np.uint64(len(tile))):
        q = np.uint64(whose[r])
        bar, count = bars[q], np.uint64(0)
        # First where to look, then the look: a branch in between would be mispredicted.
        for begin in range(np.uint64(done[r]), size, CHUNK):
            top = bar
            for j in range(begin, min(begin + CHUNK, size)):
                top = max(top, tile[r, j])
            hot[count] = begin
            count += np.uint64(top > bar)
        done[r] = size
        for h in range(count):
            begin, end = hot[h], np.uint64(sizes[q])
            if end + CHUNK > room:
                thin_out(q, k, lists)
                bar, end = bars[q], np.uint64(sizes[q])
                if end + CHUNK > room:
                    done[r], through = begin, False
                    break
            for j in range(begin, min(begin + CHUNK, size)):
                if tile[r, j] > bar:
                    bits[q, end], places[q, end] = tile[r, j], np.uint64(first) + j
                    end += np.uint64(1)
            sizes[q] = end
    return through


@loop
def dot_products(row, table, who, dots):
    """Products of a dense row with some rows, each added up in the order of the columns."""
    ptr, cols, vals, _ = table
    full = 0 if len(cols) else len(who) - len(who) % 4
    for c in range(0, full, 4):
        # Four sums at a time: one would wait for its own last addition.
        p, q, r, s = ptr[who[c]], ptr[who[c + 1]], ptr[who[c + 2]], ptr[who[c + 3]]
        one, two, three, four = 0.0, 0.0, 0.0, 0.0
        for col in range(len(row)):
            one += row[col] * vals[p + col]
            two += row[col] * vals[q + col]
            three += row[col] * vals[r + col]
            four += row[col] * vals[s + col]
        dots[c], dots[c + 1], dots[c + 2], dots[c + 3] = one, two, three, four
    for c in range(full, len(who)):
        total, start = 0.0, ptr[who[c]]
        for p in range(start, ptr[who[c] + 1]):
            total += row[cols[p] if len(cols) else p - start] * vals[p]
        dots[c] = total


@loop
def spread(i, row, table, there):
    """Write row i into a dense row, or zeros in its place."""
    ptr, cols, vals, _ = table
    start = ptr[i]
    for p in range(start, ptr[i + 1]):
        row[cols[p] if len(cols) else p - start] = vals[p] if there else 0


@loop
def settle_list(q, i, near, row, known, lists):
    """Compare row i with everybody on its list q, properly; the list is empty afterwards."""
    table, rank, (sims, nodes, counts) = known
    _, places, sizes, bars, errors, _, _ = lists
    if sizes[q] == 0:
        return
    who, dots = np.empty(sizes[q], np.int64), np.empty(sizes[q])
    for c in range(sizes[q]):
        who[c] = near[places[q, c]]
    spread(i, row, table, True)
    dot_products(row, table, who, dots)
    spread(i, row, table, False)
    settle(i, len(who), who, dots, table[3], rank, sims, nodes, counts)
    sizes[q] = 0
    if counts[i] == sims.shape[1]:
        bars[q] = max(bars[q], as_bits(sims[i, -1] - errors[q]))


@loop
def keep(products, whose, rows, near, first, new, row, known, lists):
    """Put on the rows' lists whom a tile says to be near enough; row r has list `whose[r]`.

    The bars of `new` lists are set first, by neighbours found before and by the tile.
    """
    _, _, (sims, _, counts) = known
    _, _, _, bars, errors, floors, itself = lists
    k = sims.shape[1]
    for r in range(len(products)):
        q = whose[r]
        i, place, floor = rows[q], itself[q] - first, floors[q]
        if 0 <= place < products.shape[1]:
            products[r, place] = -2  # nobody is one's own neighbour
        if new and bars[q] < NEVER:
            low = max(floor, sims[i, k - 1] - errors[q]) if counts[i] == k else floor
            bars[q] = as_bits(max(low, lower_bound(products[r], k, low) - 2 * errors[q]))
        if bars[q] < 0:
            # Negative, but not surely: as bits they must not be smaller than zero.
            for j in range(products.shape[1]):
                if floor < products[r, j] < 0:
                    products[r, j] = 0
    bits, done = products.view(np.int32), np.zeros(len(products), np.int64)
    while not collect(bits, whose, first, k, lists, done):
        for r in range(len(products)):
            if done[r] < products.shape[1]:
                settle_list(whose[r], rows[whose[r]], near, row, known, lists)


@loop
def settle_lists(rows, near, row, known, lists):
    """Compare all rows with everybody on their lists, which are empty afterwards."""
    k = known[2][0].shape[1]
    for q in range(len(rows)):
        thin_out(q, k, lists)
        settle_list(q, rows[q], near, row, known, lists)


@loop
def search_dense(rows, left, near, right, wanted, known, lists):
    """Compare `rows` with the candidates `near`; return offers.

    `left` and `right` are their unit rows in float32.
    """
    m, row, whose = len(near), np.zeros(left.shape[1]), np.arange(len(rows))
    takes = np.empty(WIDTH + 1 if len(wanted) else 0, np.int64)
    offers, made = no_offers(len(rows) * len(wanted)), 0
    tile = np.empty(len(rows) * min(WIDTH, m), np.float32)
    for first in range(0, m, WIDTH):
        last = min(first + WIDTH, m)
        products = tile[: len(rows) * (last - first)].reshape(len(rows), last - first)
        np.dot(left, right[first:last].T, products)
        keep(products, whose, rows, near, first, first == 0, row, known, lists)
        if len(wanted):
            asked = near[first:last], wanted[first:last]
            made = offer(products, rows, asked, takes, row, known[0], lists, offers, made)
    settle_lists(rows, near, row, known, lists)
    return offers[0][:made], offers[1][:made], offers[2][:made]


@loop
def offer(products, rows, asked, takes, row, table, lists, offers, made):
    """Offer rows to those of the asked whose own lists may take them; return how many offers."""
    (near, wanted), (whom, who, dots) = asked, offers
    _, _, _, bars, errors, floors, _ = lists
    for r in range(len(rows)):
        taken = takers(products[r], wanted, floors[r], errors[r], takes) if bars[r] < NEVER else 0
        if taken == 0:
            continue
        for c in range(taken):
            whom[made + c], who[made + c] = near[takes[c]], rows[r]
        spread(rows[r], row, table, True)
        dot_products(row, table, whom[made : made + taken], dots[made : made + taken])
        spread(rows[r], row, table, False)
        made += taken
    return made
