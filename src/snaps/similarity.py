"""The similarity graph: each node's k most similar nodes by the cosine of their features.

Left of the wall: nothing here knows a label or a role, so the guarantee holds whatever it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from concurrent.futures import ThreadPoolExecutor
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
    check_seed,
    plainly,
    to_numpy,
)
from snaps._checks.features import check_features
from snaps._errors import SnapsError
from snaps._progress import track
from snaps._randomness import CANDIDATE_STREAM, node_keys, smallest

Table = Any  # ndarray or csr_array

# Measured: one step through an inverted index takes as long as this many multiplications of a
# dense product.
STEP_COST = 40.0
# A row's products with so many candidates stay in the cache; a thread takes so many rows at a time.
SPARSE_ROWS, SHARE = 16384, 256
BLOCK_BYTES, TILE_BYTES = 32 * 2**20, 16 * 2**20  # of dense features; of a thread's products


@calm
def similarity_graph(
    features: Any,
    k: int = 20,
    *,
    ids: Any = None,
    candidates: Any = None,
    seed: int = 0,
    progress: bool = False,
) -> sp.csr_array:
    """Find each node's `k` most similar nodes; exact, in time quadratic in the number of nodes.

    Sparse features go through an inverted index, dense ones through blocked matrix products,
    whichever is estimated to be faster; both return the same bits. Memory stays near the input,
    the output and 200 MB.

    Parameters
    ----------
    features : array or torch tensor (n, d), or SciPy sparse matrix
        Finite numbers. Scaling a row changes nothing.
    k : int, default 20
        Neighbours a node, smaller than n.
    ids : integers (n,), optional
        Break ties, the smaller id first, and pick the candidates. Default: positions.
    candidates : int, or array of positions, or mask (n,), optional
        Only these nodes may be neighbours; they must be chosen without a look at who calibrates.
        A number stands for so many random nodes, for graphs too large for the exact search: the
        choice hashes `seed` and `ids`.
    seed : int, default 0
        Used by a number of `candidates` alone.
    progress : bool, default False
        Show a bar on stderr.

    Returns
    -------
    csr_array (n, n)
        Row i: the cosines of i's neighbours, most similar first, only those above zero (1e-30, to
        be exact). A node is never its own neighbour; a row of zeros has none and is nobody's.

    Examples
    --------
    >>> similar = similarity_graph([[1, 0], [3, 4], [0, 2], [0, 0]], k=1)
    >>> print(similar.toarray())
    [[0.  0.6 0.  0. ]
     [0.  0.  0.8 0. ]
     [0.  0.8 0.  0. ]
     [0.  0.  0.  0. ]]
    """
    table = check_features(features)
    n = table.shape[0]
    k = check_k(k, n)
    keys = np.arange(n) if ids is None else _check_ids(ids, n)
    near = np.arange(n)
    if isinstance(candidates, Sized):
        near = np.sort(check_nodes(candidates, "candidates", num_nodes=n))
    elif candidates is not None:
        count = check_integer(candidates, "candidates", low=1)
        near = smallest(check_seed(seed), node_keys(keys), CANDIDATE_STREAM, count)
    table, squares, search = prepare(table)
    found = no_neighbours(n, k)
    with track(check_flag(progress, "progress"), "similarity", n * len(near)) as advance:
        nobody = np.zeros(n, bool)
        search(table, np.arange(n), near, nobody, squares, ranks(keys), found, advance)
    return assemble(*found)


def check_k(k: Any, n: int) -> int:
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
    ordered = np.sort(array)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if repeated.size:
        raise SnapsError(f"'ids' must be unique, got {repeated[0]} twice or more")
    return array


def ranks(keys: np.ndarray) -> np.ndarray:
    """Each node's place in the order of the keys."""
    rank = np.empty(len(keys), np.int64)
    rank[np.argsort(keys)] = np.arange(len(keys))
    return rank


def prepare(table: Table) -> tuple[Table, np.ndarray, Callable[..., None]]:
    """The table as the search needs it, its rows' squared norms, and the search."""
    from snaps.kernels.similarity import row_sizes

    table = table.astype(np.float32 if table.dtype.itemsize <= 4 else np.float64, copy=False)
    if not sp.issparse(table):
        table = np.ascontiguousarray(table)
    table, search = _choose_path(table)
    squares, peaks = row_sizes(*csr_parts(table)[::2])
    extreme = (peaks > 0) & ~((squares > 1e-90) & (squares < 1e90))
    if extreme.any():
        table = _scale(table, np.where(extreme, -np.frexp(peaks)[1], 0))
        squares, _ = row_sizes(*csr_parts(table)[::2])
    return table, squares, search


def no_neighbours(n: int, k: int) -> tuple[np.ndarray, ...]:
    """Room for k neighbours of each node: their cosines, who they are, how many."""
    return np.empty((n, k)), np.empty((n, k), np.int32), np.zeros(n, np.int64)


def assemble(sims: np.ndarray, nodes: np.ndarray, counts: np.ndarray) -> sp.csr_array:
    """The lists as a matrix, in the memory of the lists."""
    from snaps.kernels.similarity import close_gaps

    if (counts < sims.shape[1]).any():
        close_gaps(sims, nodes, counts)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    data, indices = sims.reshape(-1)[: indptr[-1]], nodes.reshape(-1)[: indptr[-1]]
    small = np.int32 if indptr[-1] <= np.iinfo(np.int32).max else np.int64
    return sp.csr_array((data, indices, indptr.astype(small)), shape=(len(counts), len(counts)))


def _choose_path(table: Table) -> tuple[Table, Callable[..., None]]:
    """Sparse or dense search, by cost, and the table in the form it needs."""
    n, d = table.shape
    if sp.issparse(table):
        filled = np.bincount(table.indices, minlength=d)
    else:
        blocks = _blocks(np.arange(n), BLOCK_BYTES // d)
        filled = sum(np.count_nonzero(table[block], axis=0) for block in blocks)
    if STEP_COST * np.square(filled, dtype=float).sum() > float(n) * n * d:
        return table, _search_dense
    if not sp.issparse(table):
        table = sp.vstack([sp.csr_array(table[block]) for block in blocks], format="csr")
    return table, _search_sparse


def _search_sparse(
    table: sp.csr_array,
    rows: np.ndarray,
    near: np.ndarray,
    waiting: np.ndarray,
    squares: np.ndarray,
    rank: np.ndarray,
    found: tuple[np.ndarray, ...],
    advance: Callable[[int], None],
) -> None:
    """Compare rows with candidates by an inverted index of these, a block of them at a time.

    Rows find their neighbours among the candidates, and candidates that are `waiting` theirs
    among the rows.
    """
    from snaps.kernels.similarity import invert, search_sparse, settle_offers

    (n, d), arrays, lock = table.shape, csr_parts(table), Lock()
    width = BLOCK_BYTES * n // (12 * table.nnz + 1)
    for block in _blocks(near, min(width, SPARSE_ROWS)):
        index = invert(block, *arrays, d)
        scales = 1 / np.sqrt(np.where(squares[block] > 0, squares[block], np.inf))
        wanted = _limits(block, waiting, *found)
        common = (*arrays, index, block, scales, wanted, squares, rank, *found)

        def search(share: np.ndarray, common: tuple = common) -> None:
            offers = search_sparse(share, *common)
            if len(offers[0]):
                with lock:
                    settle_offers(offers, squares, rank, *found)

        _in_threads(search, rows, SHARE, len(block), advance)


def _search_dense(
    table: Table,
    rows: np.ndarray,
    near: np.ndarray,
    waiting: np.ndarray,
    squares: np.ndarray,
    rank: np.ndarray,
    found: tuple[np.ndarray, ...],
    advance: Callable[[int], None],
) -> None:
    """The same by products of blocks of unit rows in float32."""
    from threadpoolctl import threadpool_limits

    from snaps.kernels.similarity import search_dense, settle_offers, unit_rows

    d, arrays, lock = table.shape[1], csr_parts(table), Lock()
    common = (d, arrays[2].min() < 0, *arrays, squares, rank, *found)
    norms = np.sqrt(np.where(squares > 0, squares, 1.0))
    for block in _blocks(near, BLOCK_BYTES // (4 * d)):
        right = unit_rows(block, *arrays, norms, d).T
        candidates = block, _limits(block, waiting, *found)

        def search(
            share: np.ndarray, right: np.ndarray = right, candidates: tuple = candidates
        ) -> None:
            tile = unit_rows(share, *arrays, norms, d) @ right
            offers = search_dense(tile, share, *candidates, *common)
            if len(offers[0]):
                with lock:
                    settle_offers(offers, squares, rank, *found)

        # One thread a product: with all of them in each, they would wait for one another.
        with threadpool_limits(1, user_api="blas"):
            most = TILE_BYTES // (4 * len(block))
            _in_threads(search, rows, most, len(block), advance)


def _limits(
    block: np.ndarray,
    waiting: np.ndarray,
    sims: np.ndarray,
    nodes: np.ndarray,
    counts: np.ndarray,
) -> np.ndarray:
    """The cosines that waiting candidates would take somebody for; empty if none of them waits."""
    if not waiting[block].any():
        return np.empty(0)
    last = np.where(counts[block] == sims.shape[1], sims[block, -1], 0.0)
    return np.where(waiting[block], last, np.inf)


def _in_threads(
    search: Callable[[np.ndarray], None],
    rows: np.ndarray,
    most: int,
    num_near: int,
    advance: Callable[[int], None],
) -> None:
    """Search the rows, at most `most` at a time, in threads of our own."""
    from snaps.kernels.threads import num_threads

    workers = num_threads()
    shares = _blocks(rows, min(most, len(rows) // (4 * workers) + 1))
    with ThreadPoolExecutor(workers) as pool:
        for share, _ in zip(shares, pool.map(search, shares), strict=True):
            advance(len(share) * num_near)


def csr_parts(table: Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The table as the kernels see it: CSR, without columns if dense."""
    if sp.issparse(table):
        cols = table.indices.astype(np.int32, copy=False).view(np.uint32)
        return table.indptr.astype(np.int64), cols, table.data
    n, d = table.shape
    return np.arange(0, n * d + 1, d), np.empty(0, np.uint32), table.reshape(-1)


def _scale(table: Table, exponents: np.ndarray) -> Table:
    """Multiply rows by powers of two, which changes no cosine and no rounding."""
    if sp.issparse(table):
        by_value = np.repeat(exponents, np.diff(table.indptr))
        data = np.ldexp(table.data, by_value)
        return sp.csr_array((data, table.indices, table.indptr), shape=table.shape)
    return np.ldexp(table, exponents[:, None])


def _blocks(rows: np.ndarray, width: int) -> list[np.ndarray]:
    return [rows[start : start + width] for start in range(0, len(rows), max(width, 1))]
