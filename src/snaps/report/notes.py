"""What a reader should know before relying on the sets; the sentences are in notes.html.jinja."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import betaincinv

from snaps._runtime.randomness import REPORT_STREAM, smallest
from snaps.conformal.rank import fewest_nodes
from snaps.report.facts import Subject

_CHECKED = 100  # nodes whose similar nodes are searched for again


@dataclass(frozen=True)
class Note:
    """A kind of note, with its numbers and names; a `serious` one puts the guarantee in doubt."""

    kind: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    serious: bool = False


def find_notes(subject: Subject, chosen: str) -> list[Note]:
    """All notes that apply, serious ones first; `chosen` is how weights were chosen."""
    checks = (_pool, _calibration, _labels, _isolated, _recall)
    notes = [note for check in checks for note in check(subject)]
    if chosen == "default":
        values = {"n": len(subject.predictor.roles.tuning)}
        notes.append(Note("untuned", "The weights were not tuned", values))
    return sorted(notes, key=lambda note: not note.serious)


def _pool(subject: Subject) -> Iterator[Note]:
    """Whether the guarantee applies to these nodes at all."""
    if subject.look is not None and not subject.look.alike:
        title, values = "The calibration nodes look different", {"look": str(subject.look)}
        yield Note("different", title, values, serious=True)
    if subject.predictor.apart:
        yield Note("other graph", "The threshold comes from another graph", serious=True)


def _calibration(subject: Subject) -> Iterator[Note]:
    """Whether there are enough calibration nodes, of every class."""
    predictor = subject.predictor
    calibration, roles, alpha = predictor.calibration, predictor.roles, predictor.alpha
    n, limits = len(calibration), subject.limits()
    infinite = np.argwhere(np.isposinf(limits))
    values = {"n": n, "least": fewest_nodes(alpha), "total": limits.size}
    if calibration.odds is not None:  # then a threshold is per node
        if len(infinite) == limits.size:
            yield Note("too few", "Too few calibration nodes", values, serious=True)
    elif calibration.kind != "calibration" and len(infinite):
        groups = roles.groups.names or [""]
        classes = roles.classes if calibration.per_class else [""]
        names = [f"{groups[group]} {classes[label]}".strip() for group, label in infinite]
        kinds = {"class": "classes", "group": "groups"}.get(calibration.kind, "groups and classes")
        title = f"Too few calibration nodes in some {kinds}"
        yield Note("too few in cells", title, {**values, "names": names})
    elif len(infinite):
        yield Note("too few", "Too few calibration nodes", values, serious=True)
    elif calibration.kind == "calibration":
        rank = calibration.rank(alpha)
        low = float(betaincinv(rank, n + 1 - rank, 0.005))
        if low < 1 - 2 * alpha:
            yield Note("few", "Few calibration nodes", {**values, "low": low})
    for kind, cells in (("class", roles.classes), ("group", roles.groups.names)):
        floor, poor = calibration.floor_of(kind)
        if floor is not None and poor.any():
            plural = "classes" if kind == "class" else "groups"
            without = {"names": [str(cells[place]) for place in np.flatnonzero(poor)]}
            title = f"Some {plural} have no floor"
            yield Note("no floor", title, without | {"floor": float(floor), "plural": plural})
    counts = np.bincount(calibration.labels, minlength=calibration.num_classes)
    absent = [str(roles.classes[label]) for label in np.flatnonzero(counts == 0)]
    if absent:
        yield Note("absent classes", "Classes without calibration nodes", {"names": absent})


def _labels(subject: Subject) -> Iterator[Note]:
    """What the labels of predicted nodes do not show."""
    evaluation = subject.evaluation
    if evaluation is not None and evaluation["upper_binds"] is False:
        yield Note("ties", "Scores tie at the threshold", {"share": evaluation["tied"]})
    if evaluation is not None and evaluation["n"] < len(subject.nodes):
        yield Note("unknown labels", "Some labels are unknown", {"n": evaluation["n"]})


def _isolated(subject: Subject) -> Iterator[Note]:
    """Predicted nodes without neighbours."""
    words = {"linked": "links", "similar": "similar nodes"}
    for name, matrix in subject.neighbours.items():
        isolated = len(subject.nodes)
        if matrix is not None:
            isolated = int((np.diff(matrix.indptr)[subject.nodes] == 0).sum())
        if isolated and name in words:
            values = {"n": isolated, "what": words[name]}
            yield Note("isolated", f"Nodes without {words[name]}", values)


def _recall(subject: Subject) -> Iterator[Note]:
    """How many of the most similar nodes are in a similarity graph that the user gave."""
    inputs = subject.predictor.inputs
    features, similarity = inputs.graph.features, inputs.similarity
    if subject.predictor.given_similarity and features is not None and similarity is not None:
        recall, n = measured_recall(features, similarity, inputs.keys)
        if recall < 0.995:
            yield Note("approximate", "Approximate neighbours", {"recall": recall, "n": n})


def measured_recall(features: Any, similar: sp.csr_array, keys: np.ndarray) -> tuple[float, int]:
    """Share of the most similar nodes that a similarity graph has, and on how many nodes."""
    table = sp.csr_array(features, dtype=np.float64)
    norms = np.sqrt(table.multiply(table).sum(axis=1))
    table = sp.csr_array(sp.diags_array(1 / np.where(norms > 0, norms, 1)) @ table)
    nodes = smallest(0, keys, REPORT_STREAM, _CHECKED)
    widest = int(np.diff(similar.indptr).max(initial=0))
    right = total = 0
    for node in nodes:
        cosines = table @ table[[node]].toarray()[0]
        cosines[node] = -1  # a node is no neighbour of itself
        listed = similar.indices[similar.indptr[node] : similar.indptr[node + 1]]
        k = min(widest, int((cosines > 0).sum()))
        if k:
            least = np.partition(cosines, -k)[-k]
            right += min(k, int((cosines[listed] >= least - 1e-9).sum()))
            total += k
    return (right / total if total else 1.0), len(nodes)
