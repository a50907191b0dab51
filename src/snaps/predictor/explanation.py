"""Why a label is in or out of a node's set, and who moved its score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from snaps._tables import html_table
from snaps.errors import require
from snaps.predictor.predictor import Predictor
from snaps.predictor.roles import read_node
from snaps.scoring.parts import Averaged, Mean
from snaps.scoring.pooling import FittedPooling

_SMALL = 0.25  # parts whose evidence is below this share of the largest are shown as one


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
    bias : array (K,) or None
        For `Pooled`: the log-probability that each class adds by itself.
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
    bias: np.ndarray | None = None

    def to_pandas(self) -> Any:
        """One row per label."""
        pandas = require("pandas", "all")
        columns = {**self.parts, "mixed": self.mixed, "threshold": self.threshold}
        columns["in"] = self.inside
        return pandas.DataFrame(columns, index=pandas.Index(self.classes, name="label"))

    @property
    def evidence(self) -> dict[str, np.ndarray]:
        """For `Pooled`, what each part adds to the log-probability of each label; else empty.

        Weight times log-probability, compared with the mean of the labels: more than 0 speaks for
        a label, less than 0 against it. ``classes`` is what the class itself adds. Parts come in
        the order of their largest entry, and their sum gives the pooled probabilities.

        Examples
        --------
        >>> import snaps
        >>> probs, labels = np.tile([0.6, 0.3, 0.1], (80, 1)), [0, 0, 0, 1] * 20
        >>> cp = snaps.Pooled(0.1, parts=("own",))
        >>> cp = cp.calibrate(snaps.Graph(None, num_nodes=80), probs, labels, np.arange(60))
        >>> cp.explain(70).evidence["own"].argmax()
        np.int64(0)
        """
        if self.bias is None:
            return {}
        added = {name: self.weights[name] * row for name, row in self.parts.items()}
        added = {name: row - row.mean() for name, row in (added | {"classes": self.bias}).items()}
        largest = sorted(added, key=lambda name: -np.abs(added[name]).max())
        return {name: added[name] for name in largest}

    def _columns(self) -> tuple[dict[str, np.ndarray], list[str]]:
        """Columns of numbers to show, and the parts that are too small for one of their own."""
        if self.bias is None:
            return {**self.parts, "mixed": self.mixed, "threshold": self.threshold}, []
        evidence = self.evidence
        total = np.sum(list(evidence.values()), axis=0)
        most = max(np.abs(row).max() for row in evidence.values())
        small = [name for name, row in evidence.items() if np.abs(row).max() < _SMALL * most]
        if len(small) == 1:
            small = []
        if small:
            evidence["others"] = np.sum([evidence.pop(name) for name in small], axis=0)
        odds = np.exp(total - total.max())
        last = {"probability": odds / odds.sum(), "score": self.mixed, "threshold": self.threshold}
        return {**evidence, **last}, small

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """The header and the rows, as text."""
        columns, _ = self._columns()
        signed = len(columns) - 3 if self.bias is not None else 0
        rows = []
        if self.bias is None:
            weights = [f"{weight:.3f}" for weight in self.weights.values()]
            rows.append(["weight", *weights, "", "", ""])
        for y, label in enumerate(self.classes):
            cells = [
                f"{values[y]:{'+.2f' if i < signed else '.4f'}}"
                for i, values in enumerate(columns.values())
            ]
            rows.append([str(label), *cells, "yes" if self.inside[y] else "-"])
        return ["label", *columns, "in"], rows

    def _notes(self) -> list[str]:
        """What the columns mean, where the header does not say it, and who moved the scores."""
        notes = []
        if self.bias is not None:
            notes.append(
                "columns before probability: evidence for (+) or against (-) a label, in units of "
                "log-probability; their sum gives the probability"
            )
            folded = self._columns()[1]
            if folded:
                notes.append(f"others: {', '.join(folded)}")
        if self.neighbours:
            notes.append(f"moved most by ({len(self.neighbours)} neighbours in all)")
        for neighbour in self.neighbours[:5]:
            most = int(np.abs(neighbour.shift).argmax())
            notes.append(
                f"  {neighbour.part} node {neighbour.id} (weight {neighbour.weight:.3f}): label "
                f"{self.classes[most]} by {neighbour.shift[most]:+.4f}"
            )
        return notes

    def __str__(self) -> str:
        header, rows = self._table()
        first = max(len("weight"), *(len(row[0]) for row in rows)) + 1
        widths = [max(10, len(name) + 2) for name in header[1:-1]]
        lines = []
        for label, *cells, inside in (header, *rows):
            numbers = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
            lines.append(f"{label:<{first}}{''.join(numbers)}  {inside}".rstrip())
        return "\n".join([f"node {self.id}", *lines, *self._notes()])

    def _repr_html_(self) -> str:
        return html_table(*self._table(), above=f"node {self.id}", below="\n".join(self._notes()))


def explain(predictor: Predictor, node: Any) -> Explanation:
    """Take a node's scores apart: by part, and by the neighbours who matter most."""
    inputs, scorer, roles = predictor.inputs, predictor.scorer, predictor.roles
    node = read_node(inputs.graph, node)
    limits = predictor.limits_of(np.array([node]))[0]
    parts, ids = scorer.parts, inputs.graph.ids
    key = inputs.keys[[node]]
    rows = dict(zip(parts, inputs.rows([(part, key) for part in parts.values()]), strict=True))
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
    mixed = scorer.combine(rows, key)[0]
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
        bias=scorer.bias if isinstance(scorer, FittedPooling) else None,
    )
