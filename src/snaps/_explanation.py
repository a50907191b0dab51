"""Why a label is in or out of a node's set, and who moved its score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._errors import require
from snaps.aggregation import ScoreField
from snaps.evidence import Sources, log_floor
from snaps.pooling import Pool


@dataclass(frozen=True)
class Neighbour:
    """A node that moved another node's scores."""

    node: int
    id: Any
    part: str
    weight: float
    """Its share of the mixed score."""
    shift: np.ndarray
    """What it added to each label's score: weight * (its score - the node's own score)."""


@dataclass(frozen=True)
class Explanation:
    """A node's scores by part and label; `print` it for a table.

    Attributes
    ----------
    node, id : the node explained
    parts : dict of arrays (K,)
        The node's row of every part: scores, or log-probabilities for `Pooled`.
    weights : dict of float
        What each part weighs.
    mixed : array (K,)
        The score of each label: the weighted sum, or the score of the pooled probabilities.
    threshold : array (K,)
        The largest mixed score that is still in.
    inside : bool array (K,)
    neighbours : list of Neighbour
        Who moved the scores, most first. Their shifts sum up to mixed - own; in `Pooled` a shift
        is what the evidence would lose without that neighbour.
    """

    node: int
    id: Any
    parts: dict[str, np.ndarray]
    weights: dict[str, float]
    mixed: np.ndarray
    threshold: np.ndarray
    inside: np.ndarray
    neighbours: list[Neighbour]

    def to_pandas(self) -> Any:
        """One row a label."""
        pandas = require("pandas", "all")
        columns = {
            **self.parts,
            "mixed": self.mixed,
            "threshold": self.threshold,
            "in": self.inside,
        }
        return pandas.DataFrame(columns).rename_axis("label")

    def __str__(self) -> str:
        names = list(self.parts)
        head = (
            "label  " + "".join(f"{name:>10}" for name in [*names, "mixed", "threshold"]) + "  in"
        )
        weights = "weight " + "".join(f"{self.weights[name]:>10.3f}" for name in names)
        rows = [
            f"{y:<7}"
            + "".join(f"{self.parts[name][y]:>10.4f}" for name in names)
            + f"{self.mixed[y]:>10.4f}{self.threshold[y]:>10.4f}"
            + ("  yes" if self.inside[y] else "  -")
            for y in range(len(self.mixed))
        ]
        moved = [
            f"  {n.part} node {n.id} (weight {n.weight:.3f}): "
            f"label {int(np.abs(n.shift).argmax())} by {n.shift[np.abs(n.shift).argmax()]:+.4f}"
            for n in self.neighbours[:5]
        ]
        lines = [f"node {self.id}", head, weights, *rows]
        if moved:
            lines += [f"moved most by ({len(self.neighbours)} neighbours in all)", *moved]
        return "\n".join(lines)


def explain(
    node: int,
    ids: np.ndarray,
    field: ScoreField,
    weights: Mapping[str, float],
    links: Mapping[str, sp.csr_array | None],
    threshold: Any,
) -> Explanation:
    """Take a node's mixed score apart; `links` says whose scores each part averages."""
    own = field.parts["own"]
    neighbours = []
    for part, matrix in links.items():
        if matrix is None or not weights.get(part):
            continue
        entries = slice(matrix.indptr[node], matrix.indptr[node + 1])
        shares = np.asarray(matrix.data[entries], np.float64)
        for j, share in zip(matrix.indices[entries], shares / shares.sum(), strict=True):
            weight = float(weights[part] * share)
            shift = weight * (own[j] - own[node])
            neighbours.append(Neighbour(int(j), ids[j].item(), part, weight, shift))
    neighbours.sort(key=lambda n: -np.abs(n.shift).max())
    mixed = field.mix(weights, np.array([node]))[0]
    thresholds = np.broadcast_to(np.asarray(threshold, np.float64), mixed.shape).copy()
    return Explanation(
        node=node,
        id=ids[node].item(),
        parts={name: part[node] for name, part in field.parts.items()},
        weights=dict(weights),
        mixed=mixed,
        threshold=thresholds,
        inside=mixed <= thresholds,
        neighbours=neighbours,
    )


def explain_pool(
    node: int,
    ids: np.ndarray,
    field: ScoreField,
    sources: Sources,
    pool: Pool,
    scores: np.ndarray,
    threshold: Any,
) -> Explanation:
    """Take pooled evidence apart: by part, and by the neighbours who matter most."""
    beliefs = sources.beliefs()
    neighbours = []
    for part in field.parts:
        matrix = sources.matrix(part)
        if matrix is None:
            continue
        entries = slice(matrix.indptr[node], matrix.indptr[node + 1])
        members = matrix.indices[entries]
        shares = np.asarray(matrix.data[entries], np.float64)
        mass, weight = shares @ beliefs[members], pool.weights[part]
        for j, share in zip(members, shares, strict=True):
            rest = shares.sum() - share
            alone = rest <= 0
            without = beliefs[node] if alone else (mass - share * beliefs[j]) / rest
            shift = weight * (field.parts[part][node] - log_floor(without))
            part_share = float(weight * share / shares.sum())
            neighbours.append(Neighbour(int(j), ids[j].item(), part, part_share, shift))
    neighbours.sort(key=lambda n: -np.abs(n.shift).max())
    thresholds = np.broadcast_to(np.asarray(threshold, np.float64), scores.shape).copy()
    return Explanation(
        node=node,
        id=ids[node].item(),
        parts={name: part[node] for name, part in field.parts.items()},
        weights=dict(pool.weights),
        mixed=scores.copy(),
        threshold=thresholds,
        inside=scores <= thresholds,
        neighbours=neighbours,
    )
