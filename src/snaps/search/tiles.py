"""The loops of the dense search: products in tiles, and lists of whom to compare properly.

A tile is a product of unit rows in float32, small enough to stay in the cache until it is looked
at. What may be among a row's best in spite of rounding goes on the row's list. Products are
compared by their bits: positive floats are ordered as the integers that have the same, and the
largest of many integers is found in a sixth of the time.

Lists are three arrays, few enough to compile quickly: the entries, with a product's bits in the
upper half and the candidate's place in the lower; integers and numbers of each list, see below.
"""

from __future__ import annotations

import numpy as np

from snaps._kernels.compiling import helper, loop
from snaps.search.sparse import UNIT, lower_bound, no_offers, settle, takers

WIDTH, CHUNK = 640, np.uint64(64)  # candidates per tile, and per look
DOUBLES = 64  # rows of a tile in float64, which also is to stay in the cache
ROOM = 96  # of a list, besides k
NEVER = 2**31 - 1  # a bar that no product exceeds
# Integers of a list: its length, the bits to exceed, where the row itself is a candidate, and
# whether it was once too short for all that float32 does not tell apart.
SIZE, BAR, ITSELF, FLOODED = 0, 1, 2, 3
# Numbers: the most that a product may be off, and what is surely not positive.
ERROR, FLOOR = 0, 1


def new_lists(rows, itself, k, table, signed):
    """Empty lists for some rows; `itself`: where these stand among the candidates, or -1."""
    ptr, _, _, squares = table
    entries = np.empty((len(rows), ROOM + k), np.int64)
    integers, numbers = np.zeros((len(rows), 4), np.int64), np.zeros((len(rows), 2))
    # The factors are rounded once each, their products and sums once a term (zeros are exact); two
    # more make room for what float64 and the limits themselves round.
    numbers[:, ERROR] = np.expm1((ptr[rows + 1] - ptr[rows] + 4) * UNIT)
    if signed:
        numbers[:, FLOOR] = -numbers[:, ERROR]
    integers[:, BAR] = np.where(squares[rows] > 0, -1, NEVER)
    integers[:, ITSELF] = itself
    return entries, integers, numbers


@helper
def as_bits(limit):
    """A limit as a bar."""
    return np.int64(np.float32(limit).view(np.int32)) if limit >= 0 else np.int64(-1)


@helper
def exceeded(q, k, enough, lists):
    """The highest bits that k entries of a list exceed, or bits that at most `enough` do."""
    entries, integers, _ = lists
    size, q = np.uint64(integers[q, SIZE]), np.uint64(q)
    # Halving by counts: no branch to mispredict.
    low, high = integers[q, BAR], 2**30
    while high - low > 1:
        middle, hits = (low + high) // 2, 0
        for c in range(size):
            hits += entries[q, c] >> 32 > middle
        if hits >= k:
            low = middle
            if hits <= enough:
                break
        else:
            high = middle
    return low


@helper
def kth_of_list(q, k, lists):
    """The k-th largest product on a list of at least k."""
    return np.float64(np.int32(exceeded(q, k, 0, lists) + 1).view(np.float32))


@helper
def thin_out(q, k, lists):
    """Drop from a list all that cannot be among its k largest."""
    entries, integers, numbers = lists
    size, q = np.uint64(integers[q, SIZE]), np.uint64(q)
    if size <= k:
        return
    kth = np.int32(exceeded(q, k, k + 2, lists)).view(np.float32)
    bar, kept = max(integers[q, BAR], as_bits(kth - 2 * numbers[q, ERROR])), np.uint64(0)
    for c in range(size):
        entry = entries[q, c]
        entries[q, kept] = entry
        kept += np.uint64(entry >> 32 > bar)
    integers[q, SIZE], integers[q, BAR] = kept, bar


@loop
def collect(tile, whose, first, k, lists, done):
    """Append to the list of each row of a tile (in bits) columns that exceed its bar, from `done`.

    A list is thinned out when it is full. If ties leave no room, now or before, it is for the
    caller to go on; `done` says how far each row came. Return whether all are through.
    """
    entries, integers, _ = lists
    # Unsigned places spare the test for wrap-around.
    size, room = np.uint64(tile.shape[1]), np.uint64(entries.shape[1])
    hot, through = np.empty(tile.shape[1] // 64 + 1, np.uint64), True
    for r in range(np.uint64(len(tile))):
        q = np.uint64(whose[r])
        if integers[q, FLOODED]:
            through = False
            continue
        bar, count = np.int32(integers[q, BAR]), np.uint64(0)
        # First where to look, then the look: a branch in between would be mispredicted.
        for begin in range(np.uint64(done[r]), size, CHUNK):
            top = bar
            for j in range(begin, min(begin + CHUNK, size)):
                top = max(top, tile[r, j])
            hot[count] = begin
            count += np.uint64(top > bar)
        done[r] = size
        for h in range(count):
            begin, end = hot[h], np.uint64(integers[q, SIZE])
            if end + CHUNK > room:
                thin_out(q, k, lists)
                bar, end = np.int32(integers[q, BAR]), np.uint64(integers[q, SIZE])
                if end + CHUNK > room:
                    done[r], through, integers[q, FLOODED] = begin, False, 1
                    break
            for j in range(begin, min(begin + CHUNK, size)):
                if tile[r, j] > bar:
                    entries[q, end] = (np.int64(tile[r, j]) << 32) + first + np.int64(j)
                    end += np.uint64(1)
            integers[q, SIZE] = end
    return through


@helper
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


@helper
def spread(i, row, table, there):
    """Write row i into a dense row, or zeros in its place."""
    ptr, cols, vals, _ = table
    start = ptr[i]
    for p in range(start, ptr[i + 1]):
        row[cols[p] if len(cols) else p - start] = vals[p] if there else 0


@helper
def settle_list(q, i, near, row, known, lists):
    """Compare row i with all on its list q, exactly; the list is empty afterwards."""
    entries, integers, _ = lists
    who = np.empty(integers[q, SIZE], np.int64)
    for c in range(len(who)):
        who[c] = near[entries[q, c] & 0xFFFFFFFF]
    integers[q, SIZE] = 0
    compare(q, i, who, row, known, lists)


@helper
def compare(q, i, who, row, known, lists):
    """Compare row i with some candidates properly, and raise the bar of its list q."""
    table, rank, (sims, nodes, counts) = known
    _, integers, numbers = lists
    if len(who) == 0:
        return
    dots = np.empty(len(who))
    spread(i, row, table, True)
    dot_products(row, table, who, dots)
    spread(i, row, table, False)
    settle(i, len(who), who, dots, table[3], rank, sims, nodes, counts)
    if counts[i] == sims.shape[1]:
        bar = as_bits(sims[i, -1] - numbers[q, ERROR])
        integers[q, BAR] = max(integers[q, BAR], bar)


@loop
def compare_rest(which, whose, rows, bits, done, first, near, row, known, lists):
    """Compare some rows of a tile with all that they may be close to in the rest of it.

    For rows whose lists are full of candidates that float32 does not tell from one another, such
    as in a tight cluster: products in float64 do. Where these do not either, for rows that are
    multiples of one another, it is for the ids to say who comes first.
    """
    table, rank, (sims, nodes, counts) = known
    k, here = sims.shape[1], near[first : first + bits.shape[1]]
    units, order = unit_doubles(here, row, table), rank[here]
    size, error = np.uint64(len(here)), (len(row) + 8) * 2.0**-52
    for start in range(0, len(which), DOUBLES):
        some = which[start : start + DOUBLES]
        mine = rows[whose[some]]
        products = np.dot(unit_doubles(mine, row, table), units.T)
        for r in range(len(some)):
            q, i = whose[some[r]], mine[r]
            settle_list(q, i, near, row, known, lists)
            low, last = -error, len(rank)
            if counts[i] == k:
                low = sims[i, -1] - error
                if sims[i, -1] == 1:  # no row is closer
                    last = rank[nodes[i, -1]]
            bar, who, count = lists[1][q, BAR], np.empty(len(here), np.int64), 0
            for begin in range(np.uint64(done[some[r]]), size, CHUNK):
                stop, hits = min(begin + CHUNK, size), 0
                for j in range(begin, stop):
                    hits += (products[r, j] >= low) & (order[j] < last)
                for j in range(begin, stop if hits else begin):
                    who[count] = here[j]
                    may = (products[r, j] >= low) & (order[j] < last) & (bits[some[r], j] > bar)
                    count += may & (table[3][here[j]] > 0)
            compare(q, i, who[:count], row, known, lists)


@helper
def unit_doubles(who, row, table):
    """Unit rows in float64; `row` is a row of zeros."""
    out = np.empty((len(who), len(row)))
    for r in range(len(who)):
        spread(who[r], row, table, True)
        norm = np.sqrt(table[3][who[r]])
        for col in range(len(row)):
            out[r, col] = row[col] / norm if norm > 0 else 0.0
        spread(who[r], row, table, False)
    return out


@loop
def prepare(products, whose, rows, first, new, found, lists):
    """Make a tile ready to be compared by bits, and set the bars of new lists by it."""
    (sims, _, counts), (_, integers, numbers) = found, lists
    k = sims.shape[1]
    for r in range(len(products)):
        q = whose[r]
        place, floor, error = integers[q, ITSELF] - first, numbers[q, FLOOR], numbers[q, ERROR]
        if 0 <= place < products.shape[1]:
            products[r, place] = -2  # a node is not its own neighbour
        if new and integers[q, BAR] < NEVER:
            low = floor
            if counts[rows[q]] == k:
                low = max(low, sims[rows[q], k - 1] - error)
            low = max(low, lower_bound(products[r], k, low) - 2 * error)
            integers[q, BAR] = as_bits(low)
        if integers[q, BAR] < 0:
            # Negative, but not surely: as bits they must not be smaller than zero.
            for j in range(products.shape[1]):
                if floor < products[r, j] < 0:
                    products[r, j] = 0


@loop
def meet(whose, rows, left, near, right, first, last, new, rooms, known, lists):
    """Put on the rows' lists whom of the candidates from `first` to `last` they may be close to.

    `left` and `right` are the unit rows; row r has list `whose[r]`. Bars are set first if the lists
    are `new`. There must be rooms for the products, for their bits in the same place, and for a row
    of zeros.
    """
    tile, tile_bits, row = rooms
    for start in range(first, last, WIDTH):
        part = right[start : min(start + WIDTH, last)]
        size, shape = len(left) * len(part), (len(left), len(part))
        products, bits = tile[:size].reshape(shape), tile_bits[:size].reshape(shape)
        np.dot(left, part.T, products)
        prepare(products, whose, rows, start, new and start == first, known[2], lists)
        done = np.zeros(len(left), np.int64)
        if not collect(bits, whose, start, known[2][0].shape[1], lists, done):
            which = np.flatnonzero(done < len(part))
            compare_rest(which, whose, rows, bits, done, start, near, row, known, lists)


def new_rooms(most, width):
    """Rooms for tiles of so many rows, and for a row."""
    tile = np.empty(most * WIDTH, np.float32)
    return tile, tile.view(np.int32), np.zeros(width)


@loop
def settle_lists(rows, near, row, known, lists):
    """Compare all rows with all on their lists, which are empty afterwards."""
    k = known[2][0].shape[1]
    for q in range(len(rows)):
        thin_out(q, k, lists)
        settle_list(q, rows[q], near, row, known, lists)


@loop
def offer_dense(rows, left, near, right, wanted, row, known, lists):
    """The rows as offers to those candidates whose own lists may take them."""
    table, (_, integers, numbers) = known[0], lists
    takes, made = np.empty(WIDTH + 1, np.int64), 0
    whom, who, dots = no_offers(len(rows) * len(near))
    for first in range(0, len(near), WIDTH):
        products = np.dot(left, right[first : first + WIDTH].T)
        for r in range(len(rows)):
            place, floor = integers[r, ITSELF] - first, numbers[r, FLOOR]
            if 0 <= place < products.shape[1]:
                products[r, place] = -2
            if integers[r, BAR] == NEVER:
                continue
            part = wanted[first : first + WIDTH]
            end = made + takers(products[r], part, floor, numbers[r, ERROR], takes)
            for c in range(made, end):
                whom[c], who[c] = near[first + takes[c - made]], rows[r]
            spread(rows[r], row, table, True)
            dot_products(row, table, whom[made:end], dots[made:end])
            spread(rows[r], row, table, False)
            made = end
    return whom[:made], who[:made], dots[:made]
