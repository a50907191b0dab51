"""The similarity graph: each node's k most similar nodes by the cosine of their features.

Left of the wall: nothing here knows a label or a role, so the guarantee holds whatever it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from threading import Lock
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._checks import (
    calm,
    check_flag,
    check_integer,
    check_memory,
    check_nodes,
    check_search,
    check_seed,
    plainly,
    refuse_repeated,
    to_numpy,
)
from snaps._checks.features import check_features, check_finite
from snaps._runtime.memory import pieces, room
from snaps._runtime.progress import track
from snaps._runtime.randomness import (
    CANDIDATE_STREAM,
    CELL_STREAM,
    hashes,
    node_keys,
    ranks,
    smallest,
)
from snaps._runtime.threads import blocks, in_blocks
from snaps.errors import SnapsError

Table = Any  # ndarray or csr_array
Lists = tuple[np.ndarray, ...]  # see `no_neighbours` in search/sparse.py

# Measured: one step through an inverted index takes as long as this many multiplications of a
# dense product.
STEP_COST = 40.0
# And a look at a product as long as so many of them.
LOOK_COST = 24
# "auto" is exact up to so many multiplications, some ten seconds of two processors.
EXACT_COST = 1e12
# A row's products with so many candidates stay in the cache; a thread takes so many rows at a time.
SPARSE_ROWS, SHARE = 16384, 256
# Rows that meet less than one in so many candidates take so many times more of them at once.
WIDE = 4
BLOCK_BYTES, SHARE_DENSE = 32 * 2**20, 512


class SimilarityGraph(sp.csr_array):  # type: ignore[misc]
    """A SciPy matrix that also says how it was made.

    Attributes
    ----------
    method : str
        "exact" or "approximate".
    recall : float
        Which share of the k most similar nodes was found, measured on the sample of 1000 nodes that
        set how far to look; 1 if exact. That of all nodes differs by the error of such a sample,
        the more the smaller k is. An average: nodes at the border of a cluster fare worse.
    """

    method: str = "exact"
    recall: float = 1.0


@calm
def similarity_graph(
    features: Any,
    k: int = 20,
    *,
    method: str = "auto",
    recall: float = 0.95,
    candidates: Any = None,
    rows: Any = None,
    ids: Any = None,
    seed: int = 0,
    progress: bool = False,
) -> SimilarityGraph:
    """Find each node's `k` most similar nodes: exactly, in quadratic time, or most of them sooner.

    The exact search takes sparse features through an inverted index and dense ones through blocked
    matrix products, whichever is estimated to be faster; both return the same bits. The
    approximate one divides the nodes into cells and looks only into those that matter, as many as
    it takes to find the wanted share of the neighbours. Memory stays near the input, the output
    and 200 MB; the approximate search takes a copy of the input more, and so do rows with a single
    entry or of extreme size.

    Parameters
    ----------
    features : array or torch tensor (n, d), or SciPy sparse matrix
        Finite numbers. Scaling a row changes nothing.
    k : int, default 20
        Neighbours per node, smaller than n.
    method : "auto", "exact" or "approximate", default "auto"
        "auto" is exact while that takes seconds, about 90,000 nodes with 100 features, and
        approximate beyond. Where it sees that cells would save nothing, "approximate" is exact
        as well; where nearly all cosines are tied (one-hot columns) it may take longer than that.
    recall : float, default 0.95
        The share of neighbours that the approximate search is to find; 1 asks for all of them.
    candidates : int, or array of positions, or mask (n,), optional
        Only these nodes may be neighbours, found exactly; they must be chosen without a look at
        who calibrates. A number stands for so many random nodes: the choice hashes `seed` and
        `ids`.
    rows : array of positions, or mask (n,), optional
        Search for these nodes alone. The result then has a row for each of them, the same as
        without `rows`.
    ids : integers (n,), optional
        Break ties, the smaller id first, and pick candidates and samples. Default: positions.
    seed : int, default 0
        Used by a number of `candidates` and by the approximate search.
    progress : bool, default False
        Show a bar on stderr, and the method that was picked.

    Returns
    -------
    SimilarityGraph (n, n), a csr_array
        Row i: the cosines of i's neighbours, most similar first, only those above zero (1e-30, to
        be exact). A node is never its own neighbour; a row of zeros neither has nor is one.
        It carries the `method` and the measured `recall`.

    Notes
    -----
    The result is the same for any number of threads and moves along with the nodes when these
    change places with their ids.

    Examples
    --------
    >>> similar = similarity_graph([[1, 0], [3, 4], [0, 2], [0, 0]], k=1)
    >>> print(similar.toarray())
    [[0.  0.6 0.  0. ]
     [0.  0.  0.8 0. ]
     [0.  0.8 0.  0. ]
     [0.  0.  0.  0. ]]
    >>> similar.method, similar.recall
    ('exact', 1.0)
    """
    table = check_features(features)
    n = table.shape[0]
    method, recall = check_search(method, recall, candidates)
    show, seed = check_flag(progress, "progress"), check_seed(seed)
    keys = np.arange(n) if ids is None else _check_ids(ids, n)
    chosen = None if rows is None else check_nodes(rows, "rows", num_nodes=n)
    return nearest(table, k, keys, method, recall, candidates, seed, chosen, show)


def nearest(
    table: Table, k: int, keys: np.ndarray, method: str, recall: float, candidates: Any,
    seed: int = 0, chosen: np.ndarray | None = None, show: bool = False,
) -> SimilarityGraph:  # fmt: skip
    """The same of a table as `check_features` gives it, which a `Graph` has: it is not copied."""
    from snaps.search.sparse import no_neighbours

    check_finite(table)  # which may have been changed in place
    n = table.shape[0]
    k, allowed = check_k(k, n), _check_candidates(candidates, keys, seed)
    asked = np.arange(n) if chosen is None else chosen
    table, squares, search = prepare(table)
    rank, lists = ranks(keys), no_neighbours(n, k)
    allowed = _without_twins(allowed, table, rank, k)
    if method == "auto" and candidates is None and min(_costs(table)) > EXACT_COST:
        method = "approximate"
    if method == "approximate" and recall < 1:
        from snaps.search.approximate import search_cells

        words = hashes(seed, node_keys(keys), CELL_STREAM)
        with track(show, f"similarity (approximate, recall {recall:g})", len(asked)) as advance:
            measured = search_cells(
                table, asked, allowed, squares, rank, words, recall, search, lists, advance
            )
        if measured is not None:
            return assemble(lists, chosen, "approximate", measured)
    with track(show, "similarity (exact)", len(asked) * len(allowed)) as advance:
        search(table, asked, allowed, np.zeros(n, bool), squares, rank, lists, advance)
    return assemble(lists, chosen)


def _check_candidates(candidates: Any, keys: np.ndarray, seed: int) -> np.ndarray:
    """Who may be a neighbour, in ascending order."""
    n = len(keys)
    if candidates is None:
        return np.arange(n)
    if isinstance(candidates, Sized):
        return np.sort(check_nodes(candidates, "candidates", num_nodes=n))
    count = check_integer(candidates, "candidates", low=1)
    return smallest(seed, node_keys(keys), CANDIDATE_STREAM, count)


def check_k(k: Any, n: int) -> int:
    """A number of neighbours that so many nodes can have."""
    k = check_integer(k, "k", low=1)
    if k >= n:
        raise SnapsError(f"'k' must be smaller than the number of nodes {n}, got {plainly(k)}")
    check_memory(12 * n * k, "k", k)
    return k


def _check_ids(ids: Any, n: int) -> np.ndarray:
    """Integer keys, one a node, each once."""
    array = to_numpy(ids, "ids")
    if array.dtype.kind not in "iu":
        raise SnapsError(f"'ids' must be integers, got {array.dtype}")
    if array.shape != (n,):
        raise SnapsError(f"'ids' must have shape ({n},), got {array.shape}")
    refuse_repeated(array, "'ids' must be unique")
    return array


def _without_twins(candidates: np.ndarray, table: Table, rank: np.ndarray, k: int) -> np.ndarray:
    """The candidates without those that have k + 1 twins of smaller ids: no row needs them."""
    from snaps._kernels.matrices import csr_parts
    from snaps.search.sparse import row_words, same_rows

    arrays = csr_parts(table)
    words = row_words(candidates, *arrays)
    order = np.lexsort((rank[candidates], words))
    words = words[order]
    new = np.concatenate([[True], words[1:] != words[:-1]])
    first = np.maximum.accumulate(np.where(new, np.arange(len(candidates)), 0))
    late = np.flatnonzero(np.arange(len(candidates)) - first > k)
    if not len(late):
        return candidates
    leader = np.full(table.shape[0], -1)
    leader[candidates[order[late]]] = candidates[order[first[late]]]
    return candidates[~same_rows(arrays, arrays, leader)[candidates]]


def prepare(table: Table) -> tuple[Table, np.ndarray, Callable[..., None]]:
    """The table as the search needs it, its rows' squared norms, and the search."""
    from snaps._kernels.matrices import csr_parts
    from snaps.search.sparse import row_sizes

    table = table.astype(np.float32 if table.dtype.itemsize <= 4 else np.float64, copy=False)
    if not sp.issparse(table):
        table = np.ascontiguousarray(table)
    by_index, by_products = _costs(table)
    search = _search_dense if by_index > by_products else _search_sparse
    if search is _search_sparse and not sp.issparse(table):
        parts = blocks(np.arange(len(table)), BLOCK_BYTES // table.shape[1])
        table = sp.vstack([sp.csr_array(table[part]) for part in parts], format="csr")
    squares, peaks, filled = row_sizes(*csr_parts(table)[::2])
    extreme = (peaks > 0) & ~((squares > 1e-90) & (squares < 1e90))
    if extreme.any():  # powers of two change no cosine and no rounding
        table = _rescale(table, np.ldexp, np.where(extreme, -np.frexp(peaks)[1], 0))
        squares, peaks, filled = row_sizes(*csr_parts(table)[::2])
    # Rows with one entry in the same column are twins, whatever its size: see `_without_twins`.
    lone = (filled == 1) & (peaks != 1)
    if lone.any():
        table = _rescale(table, np.divide, np.where(lone, peaks, 1).astype(table.dtype))
        squares[lone] = 1
    return table, squares, search


def _costs(table: Table) -> tuple[float, float]:
    """The multiplications that an inverted index and dense products amount to."""
    n, d = table.shape
    if sp.issparse(table):
        parts = pieces(table.nnz, 8)  # which are counted as 64-bit integers
        filled = sum(np.bincount(table.indices[part], minlength=d) for part in parts)
    else:
        rows = blocks(np.arange(n), BLOCK_BYTES // d)
        filled = sum(np.count_nonzero(table[part], axis=0) for part in rows)
    return STEP_COST * np.square(filled, dtype=float).sum(), float(n) * n * (d + LOOK_COST)


def assemble(
    lists: Lists, rows: np.ndarray | None = None, method: str = "exact", recall: float = 1.0
) -> SimilarityGraph:
    """The lists, or those of some rows, as a matrix in the memory of the lists."""
    from snaps.search.sparse import close_gaps

    sims, nodes, counts = lists
    if (counts < sims.shape[1]).any():
        close_gaps(sims, nodes, counts)
    n, indptr = len(counts), np.concatenate([[0], np.cumsum(counts)])
    data, indices = sims.reshape(-1)[: indptr[-1]], nodes.reshape(-1)[: indptr[-1]]
    small = np.int32 if indptr[-1] <= np.iinfo(np.int32).max else np.int64
    graph = SimilarityGraph((data, indices, indptr.astype(small)), shape=(n, n))
    if rows is not None:
        graph = graph[rows]
    graph.method, graph.recall = method, recall
    return graph


def _search_sparse(
    table: sp.csr_array, rows: np.ndarray, candidates: np.ndarray, waiting: np.ndarray,
    squares: np.ndarray, rank: np.ndarray, neighbours: Lists, advance: Callable[[int], None],
) -> None:  # fmt: skip
    """Compare rows with candidates by an inverted index of these, a block of them at a time.

    Rows find their neighbours among the candidates, and candidates that are `waiting` theirs
    among the rows.
    """
    from snaps._kernels.matrices import csr_parts
    from snaps.search.sparse import search_sparse, settle_offers

    n, arrays, lock = table.shape[0], csr_parts(table), Lock()
    width = BLOCK_BYTES * n // (12 * table.nnz + 1)
    short = _costs(table)[0] < STEP_COST * n * n / WIDE and not waiting.any()
    for block in blocks(candidates, min(width, (WIDE if short else 1) * SPARSE_ROWS)):
        index = _inverted(table if np.array_equal(block, np.arange(n)) else table[block])
        scales = 1 / np.sqrt(np.where(squares[block] > 0, squares[block], np.inf))
        wanted = _limits(block, waiting, neighbours)
        common = (*arrays, index, block, scales, wanted, squares, rank, *neighbours)

        def search(share: np.ndarray, common: tuple[Any, ...] = common) -> None:
            offers = search_sparse(share, *common)
            if offers is not None:
                with lock:
                    settle_offers(offers, squares, rank, *neighbours)

        in_blocks(search, rows, SHARE, advance, len(block))


def _inverted(table: sp.csr_array) -> tuple[np.ndarray, ...]:
    """The inverted index: per column which rows have it, in ascending order, and the values.

    Row numbers are unsigned: numba tests signed ones for wrap-around, which makes the loop that
    matters half as fast again.
    """
    index = table.tocsc()
    rows = index.indices.astype(np.int32, copy=False).view(np.uint32)
    return index.indptr.astype(np.int64), rows, index.data


def _search_dense(
    table: Table, rows: np.ndarray, candidates: np.ndarray, waiting: np.ndarray,
    squares: np.ndarray, rank: np.ndarray, neighbours: Lists, advance: Callable[[int], None],
) -> None:  # fmt: skip
    """The same by products of blocks of unit rows in float32."""
    from snaps._kernels.matrices import csr_parts
    from snaps.search.small import MOST_NODES, ROWS, search_small
    from snaps.search.sparse import settle_offers, unit_rows
    from snaps.search.tiles import meet, new_lists, new_rooms, offer_dense, settle_lists

    (n, d), arrays, lock, k = table.shape, csr_parts(table), Lock(), neighbours[0].shape[1]
    known, signed = ((*arrays, squares), rank, neighbours), bool(arrays[2].min(initial=0) < 0)
    norms, place = np.sqrt(np.where(squares > 0, squares, 1.0)), np.full(n, -1)
    width = BLOCK_BYTES // (4 * d)
    alone = not (sp.issparse(table) or waiting[candidates].any() or neighbours[2][rows].any())
    small = alone and len(candidates) <= min(width, MOST_NODES)
    for block in blocks(candidates, width):
        place[block] = np.arange(len(block))
        right = unit_rows(block, *arrays, norms, d)
        wanted = _limits(block, waiting, neighbours)

        def search(
            share: np.ndarray, others: tuple[Any, ...] = (block, right), wanted: Any = wanted
        ) -> None:
            left = unit_rows(share, *arrays, norms, d)
            here = share, left, others[0], others[1], place[share]
            if small and search_small(*here, table, squares, rank, neighbours):
                return
            lists = new_lists(share, place[share], k, known[0], signed)
            rooms = new_rooms(len(share), d)
            if wanted is not None:
                offers = offer_dense(share, left, *others, wanted, rooms[2], known, lists)
                with lock:
                    settle_offers(offers, squares, rank, *neighbours)
            everyone = np.arange(len(share))
            count = len(others[0])
            meet.py_func(everyone, share, left, *others, 0, count, True, rooms, known, lists)
            settle_lists(share, others[0], rooms[2], known, lists)

        in_blocks(search, rows, ROWS if small else SHARE_DENSE, advance, len(block))
        place[block] = -1


def _limits(block: np.ndarray, waiting: np.ndarray, lists: Lists) -> np.ndarray | None:
    """The cosines that waiting candidates would be taken for; None if none of them waits."""
    sims, _, counts = lists
    if not waiting[block].any():
        return None
    last = np.where(counts[block] == sims.shape[1], sims[block, -1], 0.0)
    return np.where(waiting[block], last, np.inf)


def _rescale(table: Table, scale: np.ufunc, by: np.ndarray) -> Table:
    """A copy with each row rescaled by a number of its own."""
    if not sp.issparse(table):
        out = room(table.shape, table.dtype)
        for block in pieces(len(table), table[:1].nbytes):
            scale(table[block], by[block, None], out=out[block])
        return out
    data, counts = room(table.data.shape, table.dtype), np.diff(table.indptr)
    for block in pieces(len(counts), 8 * table.nnz // len(counts)):
        part = slice(table.indptr[block.start], table.indptr[block.stop])
        scale(table.data[part], np.repeat(by[block], counts[block]), out=data[part])
    return sp.csr_array((data, table.indices, table.indptr), shape=table.shape)
