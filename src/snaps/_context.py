"""What surrounds a node: features in context, and known labels propagated.

Left of the wall: labels come as evidence, and nothing here knows a role.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps.graph import Graph

CONTEXT_SIZE = 32  # columns that sum up the features for the context graph
# Label propagation: the share of a node's mass that comes from its neighbours (the rest is its
# own start), the most steps, and the change at which it has settled.
FROM_NEIGHBOURS, STEPS, SETTLED = 0.9, 30, 1e-3


def propagate(matrix: sp.csr_array | None, start: np.ndarray) -> np.ndarray:
    """Let mass flow along the rows of a matrix: f = 0.9 W f + 0.1 start, until it settles.

    Stops after 30 steps or when no entry moves by more than 1e-3.
    """
    from snaps.kernels.aggregation import neighbour_mean

    mass = start
    for _ in range(STEPS):
        moved = FROM_NEIGHBOURS * neighbour_mean(matrix, mass)
        moved += (1 - FROM_NEIGHBOURS) * start
        change = np.abs(moved - mass).max(initial=0.0)
        mass = moved
        if change < SETTLED:
            break
    return mass


def context_features(graph: Graph, size: int = CONTEXT_SIZE) -> np.ndarray | None:
    """What a node is about and what its neighbours are about, 2 x `size` columns in all.

    The features are summed up by their leading singular vectors (rare words weighted up), then
    averaged over the links; both halves are scaled to unit rows. Two nodes whose rows are close
    have similar features in similar surroundings. None without features or without edges.
    """
    if graph.features is None or graph.adjacency.nnz == 0:
        return None
    from threadpoolctl import threadpool_limits

    from snaps.kernels.aggregation import neighbour_mean

    # Summed up in the order of the ids, by one thread: neither the order of the nodes nor the
    # number of threads can then change a bit.
    order = np.argsort(graph.keys, kind="stable")
    own = np.empty((graph.num_nodes, min(size, graph.features.shape[1])))
    with threadpool_limits(1, user_api="blas"):
        own[order] = _unit(_summary(graph.features[order], size))
    return np.hstack([own, _unit(neighbour_mean(graph.adjacency, own))]).astype(np.float32)


def _summary(features: Any, size: int, rounds: int = 2) -> np.ndarray:
    """Rows in the basis of the leading singular vectors, by subspace iteration."""
    table = _weighted(features)
    n, d = table.shape
    if d <= size:
        return table.toarray() if sp.issparse(table) else table
    wide = min(size + 8, n, d)
    basis = table @ np.random.default_rng(0).standard_normal((d, wide))
    for _ in range(rounds):
        basis = table @ (table.T @ np.linalg.qr(basis)[0])
    basis = np.linalg.qr(basis)[0]
    left, values, _ = np.linalg.svd((table.T @ basis).T, full_matrices=False)
    return (basis @ left)[:, :size] * values[:size]


def _weighted(features: Any) -> Any:
    """Unit rows; in sparse ones a column counts by the logarithm of its rarity."""
    if not sp.issparse(features):
        return _unit(np.asarray(features, np.float64))
    n, d = features.shape
    rarity = np.log((1 + n) / (1 + np.bincount(features.indices, minlength=d)))
    counts = np.diff(features.indptr)
    values = np.asarray(features.data, np.float64)
    filled = np.flatnonzero(counts)
    tops = np.ones(n)
    tops[filled] = np.maximum.reduceat(np.abs(values), features.indptr[filled])
    values = np.ldexp(values, np.repeat(_exponents(tops), counts))
    squares = sp.csr_array((values**2, features.indices, features.indptr), shape=(n, d)).sum(axis=1)
    norms = np.sqrt(np.where(squares > 0, squares, 1.0))
    data = values / np.repeat(norms, counts) * rarity[features.indices]
    return sp.csr_array((data, features.indices, features.indptr), shape=(n, d))


def _exponents(tops: np.ndarray) -> np.ndarray:
    """Powers of two that bring rows with these largest values to where squares don't overflow."""
    extreme = (tops > 2.0**250) | ((tops > 0) & (tops < 2.0**-250))
    return np.where(extreme, -np.frexp(tops)[1], 0)


def _unit(table: np.ndarray) -> np.ndarray:
    exponents = _exponents(np.abs(table).max(axis=1, initial=0.0))
    if exponents.any():
        table = np.ldexp(table, exponents[:, None])
    norms = np.linalg.norm(table, axis=1, keepdims=True)
    return table / np.where(norms > 0, norms, 1.0)
