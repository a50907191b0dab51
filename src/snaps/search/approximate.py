"""Approximate neighbours over all nodes: an inverted file of cells, at a recall that is asked for.

The nodes are divided into cells by k-means. A node meets the members of its own cell and of the
cells next to it; then of all cells whose members may, by the cell's mean and spread, exceed its
k-th best cosine so far. How much doubt that *may* allows is measured: a sample of nodes is compared
with all, and the allowance is the smallest that finds the wanted share of their neighbours.

Left of the wall: nothing here knows a label or a role. Samples are chosen by hashes of ids and
worked on in the order of ids, scores are exact (see `search/cells.py`), and every node met is
compared as in the exact search: the result depends neither on the order of the nodes nor on
blocks or threads, and the row of a node not on which other rows are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._kernels.matrices import csr_parts
from snaps._runtime.memory import room
from snaps._runtime.progress import quietly
from snaps._runtime.threads import blocks, in_blocks, single_products
from snaps.search.cells import (
    GRID,
    STEPS,
    TILE,
    add_rows,
    as_number,
    meet_dense,
    meet_sparse,
    nearest,
    nearest_of_cells,
    project,
    rounded,
)
from snaps.search.sparse import no_neighbours, unit_rows
from snaps.search.tiles import new_lists, new_rooms

Found = tuple[np.ndarray, ...]
Reach = tuple[np.ndarray, np.ndarray, np.ndarray, float]  # see `choose` in search/cells.py
Advance = Callable[[int], None]

CELLS = 2.5  # per square root of the number of members
PER_CELL, ROUNDS = 20, 4  # of k-means: rows per cell, rounds
SAMPLE = 1000  # nodes that are compared with all
ENOUGH, AT_MOST = 1000, 64  # members that a row meets first; cells that these may come from
WIDE, VECTORS, LEARN = 512, 128, 20_000  # columns; singular vectors; rows that these come from
BLOCK = 16384  # rows at a time
FAR = 0.1  # of those that may be missed, in cells too far to be looked at
WORTH = 0.3  # with more than this share of all comparisons the exact search is as fast


class Source:
    """Rows of features as the cells need them: exactly for products, roughly for scores.

    Sparse rows with many columns are scored by their leading singular vectors.
    """

    def __init__(self, table: Any, squares: np.ndarray, rank: np.ndarray):
        self.width = table.shape[1]
        self.rank = rank
        self.table = (*csr_parts(table), squares)
        self.signed = bool(self.table[2].min(initial=0) < 0)
        self.wide = sp.issparse(table) and self.width > WIDE
        self._norms = np.sqrt(np.where(squares > 0, squares, 1.0))
        self._basis = np.empty((0, 0))

    def learn(self, sample: np.ndarray) -> None:
        """Find the singular vectors, from some rows."""
        if self.wide:
            ptr, cols, vals, _ = self.table
            nodes = sample[np.argsort(self.rank[sample])]  # in the order of the ids
            shape = len(ptr) - 1, self.width
            rows = sp.csr_array((vals, cols.view(np.int32), ptr), shape=shape)[nodes]
            self._basis = _singular_vectors(sp.diags_array(1 / self._norms[nodes]) @ rows)

    def unit(self, nodes: np.ndarray) -> np.ndarray:
        """Rows divided by their norms, in float32."""
        return unit_rows(nodes, *self.table[:3], self._norms, self.width)

    def rounded(self, nodes: np.ndarray) -> np.ndarray:
        """Rows on the grid of scores."""
        if self.wide:
            return rounded(project(nodes, *self.table[:3], self._norms, self._basis))
        return rounded(self.unit(nodes))


def _singular_vectors(rows: sp.csr_array) -> np.ndarray:
    """The leading right singular vectors, by subspace iteration in one thread."""
    basis = np.random.default_rng(0).standard_normal((rows.shape[1], VECTORS + 8))
    with single_products():
        for _ in range(4):
            basis = np.linalg.qr(rows.T @ (rows @ basis))[0]
        right = np.linalg.svd(rows @ basis, full_matrices=False)[2]
        return np.ascontiguousarray((basis @ right.T)[:, :VECTORS])


@dataclass(frozen=True)
class Cells:
    """Members sorted by cell, and the cells."""

    means: np.ndarray  # float32 (C, d), on the grid of scores
    scored: np.ndarray  # the same, with numbers that say which is nearest
    home: np.ndarray  # (n,): each node's own cell; -1 for rows of zeros
    members: np.ndarray  # by cell
    right: np.ndarray  # their unit rows; none if these are sparse and wide
    edges: np.ndarray  # cell c has members[edges[c] : edges[c + 1]]
    first: tuple[np.ndarray, np.ndarray]  # which cells the nodes of a cell meet first
    place: np.ndarray  # (n,): where a node stands among the members; -1: nowhere


def search_cells(
    table: Any, rows: np.ndarray, near: np.ndarray, squares: np.ndarray, rank: np.ndarray,
    words: np.ndarray, recall: float, exact: Callable[..., None], found: Found, advance: Advance,
) -> float | None:  # fmt: skip
    """Fill `found` with approximate neighbours of the rows; the recall measured on a sample.

    None, and nothing filled, if the exact search would be as fast. `words` are the nodes' hashes.
    """
    members, (n, k) = near[squares[near] > 0], found[0].shape
    if len(members) <= 4 * max(ENOUGH, k):
        return None
    source = Source(table, squares, rank)
    with single_products():
        cells = _make_cells(source, members, words)
        # The other end of the hashes: nodes that the cells were made by are not like all others.
        sample = _smallest(np.flatnonzero(squares > 0), ~words, SAMPLE)
        truth, tried = no_neighbours(n, k), no_neighbours(n, k)
        exact(table, sample, near, np.zeros(n, bool), squares, rank, truth, quietly)
        reach = _calibrate(source, cells, sample, truth, recall)
        if reach is None:
            return None
        _search(source, cells, sample, reach, tried, quietly)
        _search(source, cells, rows[squares[rows] > 0], reach, found, advance)
    return _recall(sample, truth, tried)


def _smallest(nodes: np.ndarray, words: np.ndarray, count: int) -> np.ndarray:
    """The nodes with the smallest hashes, in their order."""
    if count >= len(nodes):
        return nodes
    return np.sort(nodes[np.argpartition(words[nodes], count)[:count]])


# -- cells ---------------------------------------------------------------------------------------


def _make_cells(source: Source, members: np.ndarray, words: np.ndarray) -> Cells:
    """Divide all nodes into cells, by k-means on a sample of the members."""
    n, squares = len(words), source.table[3]
    means = _means(source, members, words, int(CELLS * np.sqrt(len(members))))
    scored = _scored(means)
    home, place = np.full(n, -1), np.full(n, -1)

    def assign(nodes: np.ndarray) -> None:
        home[nodes] = nearest(source.rounded(nodes), scored)

    in_blocks(assign, np.flatnonzero(squares > 0), BLOCK)
    members = members[np.lexsort((members, home[members]))]
    place[members] = np.arange(len(members))
    right = room((0 if source.wide else len(members), source.width), np.float32)

    def fill(part: np.ndarray) -> None:
        right[part] = source.unit(members[part])

    in_blocks(fill, np.arange(len(right)), BLOCK)
    sizes = np.bincount(home[members], minlength=len(means))
    edges = np.concatenate([[0], np.cumsum(sizes)])
    first = _first_cells(scored, sizes)
    return Cells(means, scored, home, members, right, edges, first, place)


def _means(source: Source, members: np.ndarray, words: np.ndarray, num: int) -> np.ndarray:
    """The means of so many cells, by k-means on a sample."""
    sample = _smallest(members, words, PER_CELL * num)
    source.learn(_smallest(sample, words, LEARN))
    sample = sample[np.argsort(source.rank[sample])]
    seeds = np.isin(sample, _smallest(members, words, num))
    rows = source.rounded(sample)
    means, home = rows[seeds, :-1], np.empty(len(rows), np.int64)
    for _ in range(ROUNDS):
        scored = _scored(means)

        def assign(part: np.ndarray, scored: np.ndarray = scored) -> None:
            home[part] = nearest(rows[part], scored)

        in_blocks(assign, np.arange(len(rows)), BLOCK)
        sums, sizes = np.zeros(means.shape), np.bincount(home, minlength=num)
        add_rows(rows, home, sums)
        filled = sizes > 0
        means[filled] = np.rint(sums[filled] / sizes[filled, None] * GRID) / GRID
    return means


def _scored(means: np.ndarray) -> np.ndarray:
    """Means with a last column of numbers: the highest score says which is nearest."""
    numbers = [as_number(-number / 2) for number in np.square(means, dtype=float).sum(axis=1)]
    return np.column_stack([means, numbers]).astype(np.float32)


def _first_cells(scored: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which cells a node of each cell meets first: where they begin, and which they are."""
    counts, cells = [], []
    for block in blocks(np.arange(len(scored)), 1024):
        scores = rounded(scored[block, :-1]) @ scored.T
        count, found = nearest_of_cells(block[0], scores, sizes, ENOUGH, AT_MOST)
        counts.append(count)
        cells.append(found[np.arange(AT_MOST) < count[:, None]])
    return np.concatenate([[0], *counts]).cumsum(), np.concatenate(cells)


# -- how far to look -----------------------------------------------------------------------------


def _calibrate(
    source: Source, cells: Cells, sample: np.ndarray, truth: Found, recall: float
) -> Reach | None:
    """A reach that finds the wanted share of the sample's neighbours.

    Empty if the first cells hold them; None if most of all members would have to be met.
    """
    nothing = np.empty(0), np.empty(0), cells.scored, 0.0
    n, k = truth[0].shape
    first = no_neighbours(n, k)
    _search(source, cells, sample, nothing, first, quietly)
    kth = np.where(first[2][sample] == k, first[0][sample, -1], 0.0)
    own, (ptr, of) = cells.home[sample], cells.first
    valid = np.arange(k) < truth[2][sample, None]
    if not valid.any():
        return nothing
    homes = cells.home[np.where(valid, truth[1][sample], sample[:, None])]
    closeness = (rounded(cells.means[own]) @ cells.scored.T).astype(np.float64)
    closeness += cells.scored[own, -1:]
    level = _quantile(np.take_along_axis(closeness, homes, 1)[valid], FAR * (1 - recall))
    spread = np.sqrt(np.maximum(1 - np.square(cells.means, dtype=np.float64).sum(axis=1), 1e-6))
    doubt = np.floor(kth[:, None] * STEPS) / STEPS - source.rounded(sample)[:, :-1] @ cells.means.T
    doubt = np.where(closeness < level, np.inf, doubt / spread)
    for r, c in enumerate(own):
        doubt[r, of[ptr[c] : ptr[c + 1]]] = -np.inf
    # Doubt is counted in units of a cell's spread, or of that and the row's own cell's: where
    # clusters are of very different width, these tell more. Whichever needs to meet fewer.
    fewest, reach = np.inf, nothing
    for factors in np.ones_like(spread), spread:
        counted = doubt / factors[own, None]
        allowed = _quantile(np.take_along_axis(counted, homes, 1)[valid], recall)
        met = ((counted <= allowed) @ np.diff(cells.edges).astype(float)).mean()
        if met < fewest and allowed > -np.inf:
            fewest, reach = met, (allowed * spread, factors, cells.scored, level)
    if len(reach[0]) and fewest + 2 * len(cells.means) > WORTH * len(cells.members):
        return None
    return reach


def _quantile(values: np.ndarray, share: float) -> float:
    """The smallest value that at least this share of all does not exceed."""
    return float(np.sort(values)[max(int(np.ceil(share * len(values))) - 1, 0)])


def _recall(sample: np.ndarray, truth: Found, tried: Found) -> float:
    """Which share of the sample's best cosines was found."""
    counts = truth[2][sample]
    last = np.take_along_axis(truth[0][sample], np.maximum(counts - 1, 0)[:, None], 1)
    valid = np.arange(truth[0].shape[1]) < tried[2][sample, None]
    hits = (valid & (tried[0][sample] >= last)).sum(axis=1)
    return float(np.minimum(hits, counts).sum() / max(counts.sum(), 1))


def _search(
    source: Source, cells: Cells, rows: np.ndarray, reach: Reach, found: Found, advance: Advance
) -> None:
    """Find the rows' neighbours, a block of rows from the same cells at a time."""
    rows = rows[np.argsort(cells.home[rows], kind="stable")]
    known, k = (source.table, source.rank, found), found[0].shape[1]

    def search(block: np.ndarray) -> None:
        own, coarse = cells.home[block], source.rounded(block)
        where = (cells.members, cells.edges, cells.first, reach)
        if source.wide:
            meet_sparse(block, own, coarse, source.width, *where, known)
        else:
            lists = new_lists(block, cells.place[block], k, source.table, source.signed)
            rooms = new_rooms(TILE, source.width)
            meet_dense(
                block, own, coarse, source.unit(block), cells.right, *where, rooms, known, lists
            )

    in_blocks(search, rows, BLOCK, advance)
