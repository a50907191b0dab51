"""What surrounds a node: features in context, and known labels propagated.

Left of the wall: labels come as evidence, and nothing here knows a role.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._runtime.memory import BLOCK, pieces, room
from snaps._runtime.threads import blocks, single_products
from snaps.graph import Graph

SUMMARY_SIZE = 128  # columns that sum up the features
CONTEXT_SIZE = 32  # the first of them, which the context graph is made of
BLOCK_ROWS, BLOCK_BYTES = 8192, 2**24  # of features that are summed up at a time, about
ENTRY_BYTES = 12  # of a sparse table; a small one is kept from pass to pass
ROUNDS = 2  # of subspace iteration
WELL_CONDITIONED = 1e-8  # the smallest eigenvalue over the largest, at least
# Label propagation: the share of a node's mass that comes from its neighbours (the rest is its
# own start), the most steps, and the change at which it has settled.
FROM_NEIGHBOURS, STEPS, SETTLED = 0.9, 30, 1e-3


def propagate(
    matrix: sp.csr_array | None, known: Sequence[np.ndarray], num_classes: int
) -> tuple[list[np.ndarray], list[int]]:
    """Let mass flow along the rows of a matrix: f = 0.9 W f + 0.1 start, until it settles.

    Each start is the one-hot table of known labels, given as their codes, -1 for none. Stops after
    30 steps or when no entry moves by more than 1e-3. Several starts go through the matrix
    together, each as far as it would alone. What a step leaves is kept in float32. Gives the
    masses, and the steps that each took.
    """
    from snaps._kernels.propagation import propagation_step

    done: list[np.ndarray] = [np.empty(0)] * len(known)
    steps = [0] * len(known)
    codes, still = np.asarray(known, np.int32), np.arange(len(known))
    shape = codes.shape[1], len(codes) * num_classes
    mass, moved = room(shape, np.float32), room(shape, np.float32)
    mass[:] = 0
    for place, row in enumerate(codes):
        nodes = np.flatnonzero(row >= 0)
        mass[nodes, place * num_classes + row[nodes]] = 1
    for step in range(STEPS):
        change = propagation_step(matrix, mass, codes, FROM_NEIGHBOURS, moved, first=step == 0)
        mass, moved = moved, mass
        settled = (change < SETTLED) | (step == STEPS - 1)
        for which in np.flatnonzero(settled):
            done[still[which]] = mass[:, which * num_classes : (which + 1) * num_classes]
            steps[still[which]] = step + 1
        if settled.all():
            break
        if settled.any():
            still, codes = still[~settled], codes[~settled]
            mass = np.ascontiguousarray(mass[:, np.repeat(~settled, num_classes)])
            moved = np.empty_like(mass)
    return done, steps


def mass_without(
    matrix: sp.csr_array, mass: np.ndarray, steps: int, nodes: np.ndarray, codes: np.ndarray
) -> np.ndarray:
    """What propagation in so many steps would have brought to some nodes without some labels.

    It is linear: their share is taken away, as far as walks from the nodes find it. `mass` are the
    nodes' rows with these labels, given as their codes, -1 for none.
    """
    from snaps._kernels.propagation import mass_from

    theirs = mass_from(matrix, nodes, codes, mass.shape[1], FROM_NEIGHBOURS, steps)
    return np.maximum(mass - theirs, 0.0)


def _sizes(table: np.ndarray) -> tuple[int, int]:
    """Rows, and the bytes of each."""
    return len(table), table.shape[1] * table.itemsize


def summary(graph: Graph, size: int = SUMMARY_SIZE, kind: Any = np.float64) -> np.ndarray:
    """The features in the basis of their leading singular vectors, rare words weighted up.

    Unit rows, kept as `kind`. Each number is summed up in the order of the ids, by one thread, in
    blocks that depend on the number of columns alone: neither the order of the nodes, nor threads,
    nor memory can change a bit.
    """
    assert graph.features is not None
    features, (n, d) = graph.features, graph.features.shape
    rarity = _rarity(features)

    def weighted(places: np.ndarray) -> Any:
        return _weighted(features[places], rarity)

    parts = blocks(np.argsort(graph.keys, kind="stable"), _block_rows(features))
    small = sp.issparse(features) and d > size and ENTRY_BYTES * features.nnz <= BLOCK
    kept = [weighted(some) for some in parts] if small or len(parts) == 1 else None

    def tables() -> Iterable[Any]:
        """All blocks; small or single ones are made once."""
        return map(weighted, parts) if kept is None else kept

    with single_products():
        basis = None if d <= size else _leading(tables, d, min(size + 8, n, d), size)
        out = room((n, d if basis is None else basis.shape[1]), kind)
        for some, table in zip(parts, tables(), strict=True):
            rows: Any = table if basis is None else _times(table, basis)
            out[some] = unit_rows(rows.toarray() if sp.issparse(rows) else rows)
    return out


def context_features(adjacency: sp.csr_array, table: np.ndarray) -> np.ndarray:
    """What a node is about and what its neighbours are about, side by side.

    `table` sums up the features; its leading columns are averaged over the links, and both halves
    scaled to unit rows. Two nodes whose rows are close have similar features in similar
    surroundings.
    """
    from snaps._kernels.aggregation import neighbour_mean

    n, width = len(table), min(table.shape[1], CONTEXT_SIZE)
    own, out = room((n, width), table.dtype), room((n, 2 * width), np.float32)
    for some in pieces(*_sizes(own)):
        own[some] = unit_rows(table[some, :width].astype(np.float64))
    for some in pieces(*_sizes(own)):
        out[some, :width] = own[some]
        out[some, width:] = unit_rows(neighbour_mean(adjacency, own, rows=some))
    return out


def _leading(tables: Callable[[], Iterable[Any]], d: int, wide: int, size: int) -> np.ndarray:
    """What takes rows to the basis of their leading singular vectors, by subspace iteration."""

    def through(basis: np.ndarray) -> np.ndarray:
        out = np.zeros_like(basis)
        for table in tables():
            out += _times(table.T, _times(table, basis))
        return out

    basis = np.random.default_rng(0).standard_normal((d, wide))
    for _ in range(ROUNDS):
        basis = _orthonormal(through(basis))
    # The table times the basis is tall; what makes its columns orthonormal is small.
    seen = through(basis)
    squares, turn = np.linalg.eigh(basis.T @ seen)
    turn = turn / np.sqrt(np.maximum(squares, max(1e-12 * squares[-1], 1e-200)))
    squares, left = np.linalg.eigh(turn.T @ (seen.T @ seen) @ turn)
    left *= np.sqrt(np.maximum(squares, 0))
    return basis @ (turn @ left[:, ::-1][:, :size])


def _times(table: Any, basis: np.ndarray) -> np.ndarray:
    """A product; rows of a sparse one are added up in the order of its columns."""
    from snaps._kernels.aggregation import sparse_product

    return sparse_product(table.tocsr(), basis) if sp.issparse(table) else table @ basis


def _orthonormal(table: np.ndarray) -> np.ndarray:
    """An orthonormal basis of a tall table's columns; QR takes longer, and is needed rarely."""
    squares, turn = np.linalg.eigh(table.T @ table)
    if squares[0] > WELL_CONDITIONED * squares[-1]:
        return table @ (turn / np.sqrt(squares))
    return np.linalg.qr(table)[0]


def _block_rows(features: Any) -> int:
    """Rows of a block: few if they are wide, but worth the table of all columns that each adds."""
    d = features.shape[1]
    if sp.issparse(features):
        return max(BLOCK_ROWS, d // 8)
    return min(max(BLOCK_BYTES // (8 * d), 256), BLOCK_ROWS)


def _rarity(features: Any) -> np.ndarray | None:
    """What the columns of sparse features count: the logarithm of their rarity."""
    if not sp.issparse(features):
        return None
    n, d = features.shape
    some = pieces(features.nnz, 8)  # which are counted as 64-bit integers
    counts = sum((np.bincount(features.indices[part], minlength=d) for part in some), np.zeros(d))
    return np.log((1 + n) / (1 + counts))


def _weighted(features: Any, rarity: np.ndarray | None) -> Any:
    """Unit rows; in sparse ones columns are weighted."""
    if rarity is None:
        return unit_rows(np.asarray(features, np.float64))
    n, d = features.shape
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


def unit_rows(table: np.ndarray) -> np.ndarray:
    """Rows of length one; those of zeros stay."""
    exponents = _exponents(np.abs(table).max(axis=1, initial=0.0))
    if exponents.any():
        table = np.ldexp(table, exponents[:, None])
    norms = np.linalg.norm(table, axis=1, keepdims=True)
    return table / np.where(norms > 0, norms, 1.0)
