"""The score field: each node's own scores beside the means over the nodes it resembles or links to.

s^ = (1 - lam - mu) S + lam As S + mu A S is linear, so the two products are made once; weights,
levels and splits are cheap afterwards. Nothing here sees a label or a role.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from snaps.graph import Graph


@dataclass(frozen=True)
class ScoreField:
    """Named tables (n, K); a method's score is a weighted sum of them."""

    parts: Mapping[str, np.ndarray]

    def mix(
        self, weights: Mapping[str, float], rows: np.ndarray | slice = slice(None)
    ) -> np.ndarray:
        """The weighted sum, for all nodes or for some rows."""
        mixed = np.zeros_like(self.parts["own"][rows])
        for name, weight in weights.items():
            if weight:
                mixed += weight * self.parts[name][rows]
        return mixed


def neighbour_mean(matrix: sp.csr_array | None, table: np.ndarray) -> np.ndarray:
    """Row-normalised matrix times table; a node without neighbours gets its own row back.

    That is how the weight of a missing part returns to the node itself.
    """
    if matrix is None or matrix.nnz == 0:
        return table
    from snaps.kernels import aggregation

    return aggregation.neighbour_mean(matrix.indptr, matrix.indices, matrix.data, table)


def score_field(
    own: np.ndarray, graph: Graph | None, similarity: sp.csr_array | None, names: tuple[str, ...]
) -> ScoreField:
    """Compute the named parts among own, similar and linked."""
    parts = {"own": own}
    if "similar" in names:
        parts["similar"] = neighbour_mean(similarity, own)
    if "linked" in names:
        parts["linked"] = neighbour_mean(None if graph is None else graph.adjacency, own)
    return ScoreField(parts)
