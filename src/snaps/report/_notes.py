"""What a reader should know before relying on the sets, in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._runtime.randomness import REPORT_STREAM, smallest
from snaps.conformal.rank import conformal_rank, fewest_nodes
from snaps.predictor.exchangeability import Exchangeability
from snaps.predictor.state import State
from snaps.scoring.local import Inputs
from snaps.scoring.parts import Links, Mean, Similar

_CHECKED = 100  # nodes whose similar nodes are searched for again
_BLOCK = 2**24  # products at a time
_NAMED = 5


@dataclass(frozen=True)
class Note:
    """Something to know; a `serious` one puts the promise in doubt."""

    title: str
    text: str
    serious: bool = False


def find_notes(
    state: State,
    inputs: Inputs,
    nodes: np.ndarray,
    alpha: Fraction,
    look: Exchangeability | None,
    evaluation: Mapping[str, Any] | None,
    chosen: str,
) -> list[Note]:
    """All that applies; what puts the promise in doubt comes first."""
    notes = [
        *_pool(state, look),
        *_calibration(state, alpha),
        *_classes(state, inputs),
        *_truth(nodes, evaluation),
        *_tuning(state, chosen),
        *_isolated(state, inputs, nodes),
        *_recall(state, inputs),
    ]
    return sorted(notes, key=lambda note: not note.serious)


def _pool(state: State, look: Exchangeability | None) -> list[Note]:
    """Whether the promise speaks of these nodes at all."""
    notes = []
    if look is not None and not look.alike:
        text = f"The {str(look)[0].lower()}{str(look)[1:]}."
        notes.append(Note("The calibration nodes look different", text, True))
    if state.apart:
        text = (
            "The threshold was set on another graph and applied to this one as it is. The promise "
            "holds here only as far as these nodes are like the calibration nodes there."
        )
        notes.append(Note("The threshold comes from elsewhere", text, True))
    return notes


def _calibration(state: State, alpha: Fraction) -> list[Note]:
    calibration, n = state.calibration, len(state.calibration)
    least = fewest_nodes(alpha)
    infinite = np.argwhere(np.isinf(calibration.limits(alpha)))
    if calibration.kind == "calibration" and len(infinite):
        text = (
            f"A promise of {_percent(1 - alpha)} needs at least {least:,} calibration nodes; there "
            f"are {n:,}. Every set therefore holds every label: true, but of no use."
        )
        return [Note("Too few calibration nodes", text, True)]
    if len(infinite):
        roles = state.roles
        names = [
            " ".join(
                ([] if roles.groups is None else [str(roles.groups.names[group])])
                + ([str(roles.classes[y])] if calibration.by_class else [])
            )
            for group, y in infinite
        ]
        total = calibration.num_groups * (calibration.num_classes if calibration.by_class else 1)
        effect = "its label joins every set" if calibration.by_class else "its sets are full"
        text = (
            f"A threshold of its own needs at least {least:,} calibration nodes. {len(names):,} of "
            f"{total:,} have fewer, and for each of them {effect}: {_listed(names)}."
        )
        return [Note(f"Too few calibration nodes in some {_kind(calibration.kind)}", text)]
    low = _lowest_coverage(n, alpha)
    if calibration.kind == "calibration" and low < 1 - 2 * alpha:
        text = (
            f"With {n:,} calibration nodes the coverage of one run can fall as low as "
            f"{_percent(low)} by chance alone (1 run in 200). More calibration nodes make it "
            "steadier; the mean over many runs is as promised either way."
        )
        return [Note("Few calibration nodes", text)]
    return []


def _lowest_coverage(n: int, alpha: Fraction) -> float:
    """What one draw of n calibration nodes in 200 falls below."""
    from scipy.special import betaincinv

    rank = conformal_rank(n, alpha)
    return float(betaincinv(rank, n + 1 - rank, 0.005))


def _classes(state: State, inputs: Inputs) -> list[Note]:
    counts = np.bincount(state.calibration.labels, minlength=inputs.num_classes)
    absent = [str(state.roles.classes[y]) for y in np.flatnonzero(counts == 0)]
    if not absent:
        return []
    text = (
        f"No calibration node is of {_one_or_many(absent, 'class', 'classes')} {_listed(absent)}. "
        "The promise is about all nodes together: it says nothing of these."
    )
    return [Note("Classes without calibration nodes", text)]


def _truth(nodes: np.ndarray, evaluation: Mapping[str, Any] | None) -> list[Note]:
    if evaluation is None:
        return []
    notes = []
    if evaluation["upper_binds"] is False:
        text = (
            f"{_percent(evaluation['tied'])} of the calibration scores equal another one. Labels "
            "at the threshold are in, so more sets hold the truth than promised; smoothed sets "
            "leave ties to chance."
        )
        notes.append(Note("Scores tie at the threshold", text))
    if evaluation["n"] < len(nodes):
        text = (
            f"Coverage was observed on the {evaluation['n']:,} of {len(nodes):,} predicted nodes "
            "whose label is known. It tells of the others if these are a random part of all."
        )
        notes.append(Note("Some labels are unknown", text))
    return notes


def _tuning(state: State, chosen: str) -> list[Note]:
    if chosen != "default":
        return []
    text = (
        f"{len(state.roles.tuning):,} tuning nodes are too few to compare weights on: usual ones "
        "were taken. The promise does not depend on them; the sets may be larger than need be."
    )
    return [Note("The weights were not tuned", text)]


def _isolated(state: State, inputs: Inputs, nodes: np.ndarray) -> list[Note]:
    """Nodes that nobody can help."""
    words = {Links: "links", Similar: "similar nodes"}
    notes = []
    for name, part in state.scorer.parts.items():
        plain = isinstance(part, Mean) and not isinstance(part.of, Mean)
        if not plain or type(part.over) not in words or not state.scorer.weights[name]:
            continue
        matrix = inputs.get(part.over)
        alone = len(nodes) if matrix is None else int((np.diff(matrix.indptr)[nodes] == 0).sum())
        if alone:
            what = words[type(part.over)]
            text = (
                f"{alone:,} of {len(nodes):,} predicted nodes have no {what}: there the node's own "
                "score stands in for theirs. The promise speaks of all nodes together"
            )
            text += "; the table by links shows how these fare." if what == "links" else "."
            notes.append(Note(f"Nodes without {what}", text))
    return notes


def _recall(state: State, inputs: Inputs) -> list[Note]:
    """How many of the most similar nodes a similarity graph that was brought along has."""
    features, near = inputs.graph.features, inputs.similarity
    if not state.given or features is None or near is None:
        return []
    recall, count = measured_recall(features, near, inputs.keys)
    if recall >= 0.995:
        return []
    text = (
        f"The similarity graph was not made here. It holds {_percent(recall)} of the nodes that "
        f"are most similar by the cosine of the features (looked up for {count} nodes). Missing "
        "ones cost no coverage, only size."
    )
    return [Note("Approximate neighbours", text)]


def measured_recall(features: Any, near: sp.csr_array, keys: np.ndarray) -> tuple[float, int]:
    """Share of the truly nearest nodes that a similarity graph has, and on how many nodes."""
    table = sp.csr_array(features, dtype=np.float64)
    norms = np.sqrt(table.multiply(table).sum(axis=1))
    table = sp.csr_array(sp.diags_array(1 / np.where(norms > 0, norms, 1)) @ table)
    asked = smallest(0, keys, REPORT_STREAM, _CHECKED)
    widest = int(np.diff(near.indptr).max(initial=0))
    found = total = 0
    step = max(1, _BLOCK // len(keys))
    for first in range(0, len(asked), step):
        rows = asked[first : first + step]
        cosines = (table[rows] @ table.T).toarray()
        cosines[np.arange(len(rows)), rows] = -1  # nobody is similar to itself
        for row, node in zip(cosines, rows, strict=True):
            listed = near.indices[near.indptr[node] : near.indptr[node + 1]]
            k = min(widest, int((row > 0).sum()))
            if k:
                least = np.partition(row, -k)[-k]
                found += min(k, int((row[listed] >= least - 1e-9).sum()))
                total += k
    return (found / total if total else 1.0), len(asked)


def _percent(value: float | Fraction) -> str:
    return f"{float(value) * 100:.3g} %"


def _kind(kind: str) -> str:
    return {"class": "classes", "group": "groups"}.get(kind, "groups and classes")


def _one_or_many(names: Sequence[str], one: str, many: str) -> str:
    return one if len(names) == 1 else many


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
