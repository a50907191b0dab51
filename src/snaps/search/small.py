"""The exact search of small dense tables: NumPy, and one short loop that compiles in a moment.

It gives the bits of `search/tiles.py`, which takes seconds to compile and pays with more nodes.
"""

from __future__ import annotations

import numpy as np

from snaps._kernels.compiling import loop
from snaps.search.sparse import TINY, UNIT

MOST_NODES = 8192
ROWS = 64  # at a time: their products with all candidates stay in the cache
LANES = 8  # times k: the k-th largest of so many maxima is close to the k-th largest of all
MOST_EACH = 16  # times k: candidates per row that are compared exactly


def search_small(
    rows: np.ndarray, left: np.ndarray, near: np.ndarray, right: np.ndarray, itself: np.ndarray,
    table: np.ndarray, squares: np.ndarray, rank: np.ndarray, found: tuple[np.ndarray, ...],
) -> bool:  # fmt: skip
    """Fill the lists of some rows with their best among all candidates.

    `left` and `right` are the unit rows; `itself` says where a row is a candidate, or -1. Return
    False, and fill nothing, if float32 leaves too many candidates to compare exactly.
    """
    k, products = found[0].shape[1], left @ right.T
    candidates = np.flatnonzero(itself >= 0)
    products[candidates, itself[candidates]] = -2  # a node is not its own neighbour
    # The factors are rounded once each, their products and sums once a term.
    error = float(np.expm1((left.shape[1] + 4) * UNIT))
    at, who = _shortlist(products, k, error)
    if len(at) > MOST_EACH * k * len(rows):
        return False
    one, other = rows[at], near[who]
    dots = np.empty(len(at))
    _multiply(one, other, table, dots)
    positive = (dots > 0) & (squares[other] > 0)
    at, one, other, dots = at[positive], one[positive], other[positive], dots[positive]
    # One division of exact squares: equal cosines of whole numbers come out equal.
    cosines = np.minimum(np.sqrt(dots * dots / (squares[one] * squares[other])), 1.0)
    order = np.lexsort((rank[other], -cosines, at))
    at, other, cosines = at[order], other[order], cosines[order]
    place = np.arange(len(at)) - np.searchsorted(at, at)
    best = (place < k) & (cosines >= TINY)
    sims, nodes, counts = found
    sims[rows[at[best]], place[best]] = cosines[best]
    nodes[rows[at[best]], place[best]] = other[best]
    counts[rows] = np.bincount(at[best], minlength=len(rows))
    return True


def _shortlist(products: np.ndarray, k: int, error: float) -> tuple[np.ndarray, np.ndarray]:
    """The rows and columns of what may be among the k largest of its row, in spite of the error."""
    lanes, limit = LANES * k, np.full((len(products), 1), -error)
    if products.shape[1] >= lanes:
        whole = products[:, : products.shape[1] // lanes * lanes]
        tops = whole.reshape(len(products), -1, lanes).max(axis=1)
        kth = np.partition(tops, lanes - k, axis=1)[:, lanes - k, None]
        limit = np.maximum(limit, kth - 2 * error)
    places = np.flatnonzero(products > limit.astype(np.float32))
    return np.divmod(places, products.shape[1])


@loop
def _multiply(one, other, table, dots):
    """Products of pairs of rows, each added up in the order of the columns."""
    for c in range(len(one)):
        total, i, j = 0.0, one[c], other[c]
        for col in range(table.shape[1]):
            total += np.float64(table[i, col]) * np.float64(table[j, col])
        dots[c] = total
