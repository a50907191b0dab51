"""Evidence about every node's label, from many sides: the parts that `Pooled` multiplies.

A part is a table (n, K) of log-probabilities. Known labels (training, validation) count as
evidence; those of calibration, tuning and predicted nodes are never seen here, and no role either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps.aggregation import neighbour_mean
from snaps.graph import Graph

PARTS = ("own", "linked", "two_hop", "similar", "context", "spread", "spread_context")
"""The parts, in words:

own : what the classifier says of the node itself
linked, two_hop : the mean over its links, and over their links
similar : the mean over the nodes with the most similar features
context : the mean over the nodes with the most similar features and surroundings
spread, spread_context : known labels, spread over the links and over the context graph
"""

NEEDS = {
    "linked": "edges",
    "two_hop": "edges",
    "similar": "features",
    "context": "features and edges",
    "spread": "edges and known nodes",
    "spread_context": "features, edges and known nodes",
}

FLOOR = 1e-4  # probabilities below it count as it: one source alone can't rule a label out
CONTEXT_SIZE = 32  # columns that sum up the features for the context graph
STAY, STEPS, SETTLED = 0.9, 30, 1e-3  # of the spread of labels
SMOOTHING = 1e-3  # added to the mass that reached a node


@dataclass(frozen=True)
class Sources:
    """What evidence is made of; `known` holds the known labels, -1 elsewhere, or is None."""

    probs: np.ndarray
    graph: Graph
    similarity: sp.csr_array | None
    context: sp.csr_array | None
    known: np.ndarray | None

    @property
    def available(self) -> tuple[str, ...]:
        """The parts that can be made of this."""
        linked = self.graph.adjacency.nnz > 0
        there = {
            "own": True,
            "linked": linked,
            "two_hop": linked,
            "similar": self.similarity is not None,
            "context": self.context is not None,
            "spread": linked and self.known is not None,
            "spread_context": self.context is not None and self.known is not None,
        }
        return tuple(name for name in PARTS if there[name])

    def matrix(self, part: str) -> sp.csr_array | None:
        """Whose rows a part averages; None for the node's own."""
        return {
            "linked": self.graph.adjacency,
            "similar": self.similarity,
            "context": self.context,
        }.get(part)

    def beliefs(self) -> np.ndarray:
        """The probabilities, with known labels in place of guesses."""
        if self.known is None:
            return self.probs
        sure = np.flatnonzero(self.known >= 0)
        table = self.probs.copy()
        table[sure] = 0
        table[sure, self.known[sure]] = 1
        return table

    def part(self, name: str) -> np.ndarray:
        """One part; a node without neighbours has its own row in it."""
        adjacency = self.graph.adjacency
        if name == "own":
            return log_floor(self.probs)
        if name == "spread":
            return log_floor(self._spread(adjacency))
        if name == "spread_context":
            return log_floor(self._spread(self.context))
        if name == "two_hop":
            linked = neighbour_mean(adjacency, self.beliefs())
            return log_floor(neighbour_mean(adjacency, linked))
        return log_floor(neighbour_mean(self.matrix(name), self.beliefs()))

    def _spread(self, matrix: sp.csr_array | None) -> np.ndarray:
        assert self.known is not None
        sure = np.flatnonzero(self.known >= 0)
        start = np.zeros_like(self.probs)
        start[sure, self.known[sure]] = 1
        mass = spread(matrix, start) + SMOOTHING
        return mass / mass.sum(axis=1, keepdims=True)


def log_floor(table: np.ndarray) -> np.ndarray:
    """Logarithms of probabilities, none below that of the floor."""
    return np.log(np.maximum(table, FLOOR))


def spread(matrix: sp.csr_array | None, start: np.ndarray) -> np.ndarray:
    """Let mass flow along the rows of a matrix: f = 0.9 W f + 0.1 start, until it settles.

    Stops after 30 steps or when no entry moves by more than 1e-3.
    """
    mass = start
    for _ in range(STEPS):
        moved = STAY * neighbour_mean(matrix, mass)
        moved += (1 - STAY) * start
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
    own = _unit(_summary(graph.features, size))
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
    squares = features.multiply(features).sum(axis=1)
    norms = np.sqrt(np.where(squares > 0, squares, 1.0))
    data = features.data / np.repeat(norms, np.diff(features.indptr)) * rarity[features.indices]
    return sp.csr_array((data, features.indices, features.indptr), shape=(n, d))


def _unit(table: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(table, axis=1, keepdims=True)
    return table / np.where(norms > 0, norms, 1.0)
