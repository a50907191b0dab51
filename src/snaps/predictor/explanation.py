"""Why a label is in or out of a node's set, and who moved its score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from snaps.errors import require
from snaps.predictor.predictor import Predictor
from snaps.predictor.roles import read_node
from snaps.scoring.parts import Averaged, Mean


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
    classes : array (K,)
        Names of the labels.
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
    classes: np.ndarray
    parts: dict[str, np.ndarray]
    weights: dict[str, float]
    mixed: np.ndarray
    threshold: np.ndarray
    inside: np.ndarray
    neighbours: list[Neighbour]

    def to_pandas(self) -> Any:
        """One row per label."""
        pandas = require("pandas", "all")
        columns = {
            **self.parts,
            "mixed": self.mixed,
            "threshold": self.threshold,
            "in": self.inside,
        }
        return pandas.DataFrame(columns, index=pandas.Index(self.classes, name="label"))

    def __str__(self) -> str:
        labels = [str(name) for name in self.classes]
        first = max(len("weight"), *map(len, labels)) + 1
        columns = {**self.parts, "mixed": self.mixed, "threshold": self.threshold}
        widths = {name: max(10, len(name) + 2) for name in columns}
        head = f"{'label':<{first}}" + "".join(f"{name:>{w}}" for name, w in widths.items())
        weights = f"{'weight':<{first}}" + "".join(
            f"{self.weights[name]:>{widths[name]}.3f}" for name in self.parts
        )
        rows = [
            f"{label:<{first}}"
            + "".join(f"{columns[name][y]:>{w}.4f}" for name, w in widths.items())
            + ("  yes" if self.inside[y] else "  -")
            for y, label in enumerate(labels)
        ]
        moved = [
            f"  {n.part} node {n.id} (weight {n.weight:.3f}): label "
            f"{labels[np.abs(n.shift).argmax()]} by {n.shift[np.abs(n.shift).argmax()]:+.4f}"
            for n in self.neighbours[:5]
        ]
        lines = [f"node {self.id}", head + "  in", weights, *rows]
        if moved:
            lines += [f"moved most by ({len(self.neighbours)} neighbours in all)", *moved]
        return "\n".join(lines)


def explain(predictor: Predictor, node: Any) -> Explanation:
    """Take a node's scores apart: by part, and by the neighbours who matter most."""
    inputs, scorer, roles = predictor.inputs, predictor.scorer, predictor.roles
    node = read_node(inputs.graph, node)
    limits = predictor.limits_of(np.array([node]))[0]
    parts, ids = scorer.parts, inputs.graph.ids
    key = inputs.keys[[node]]
    found = inputs.rows([(part, key) for part in parts.values()])
    rows = dict(zip(parts, found, strict=True))
    neighbours = []
    for name, part in parts.items():
        # Means of means have no neighbours of their own to name.
        if not isinstance(part, Mean) or isinstance(part.of, Mean) or not scorer.weights[name]:
            continue
        matrix = inputs.get(part.over)
        if matrix is None:
            continue
        (own,), table = inputs.rows([(part.of, key)])[0], inputs.get(Averaged(part.of))
        entries = slice(matrix.indptr[node], matrix.indptr[node + 1])
        shares = np.asarray(matrix.data[entries], np.float64)
        shares = shares / shares.sum()
        for j, share in zip(matrix.indices[entries], shares, strict=True):
            other = np.asarray(table[j], np.float64)
            shift = scorer.shift(name, own, other, float(share), rows[name][0])
            weight = float(scorer.weights[name] * share)
            neighbours.append(Neighbour(int(j), ids[j].item(), name, weight, shift))
    neighbours.sort(key=lambda n: -np.abs(n.shift).max())
    mixed = scorer.combine(rows, inputs.keys[[node]])[0]
    thresholds = np.broadcast_to(limits, mixed.shape).astype(np.float64)
    return Explanation(
        node=node,
        id=ids[node].item(),
        classes=roles.classes,
        parts={name: scorer.shown(name, table)[0] for name, table in rows.items()},
        weights=dict(scorer.weights),
        mixed=mixed,
        threshold=thresholds,
        inside=mixed <= thresholds,
        neighbours=neighbours,
    )
