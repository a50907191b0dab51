"""The first screen of a report: each promise and whether it was kept, and three example sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np

from snaps._runtime.randomness import REPORT_STREAM, hashes
from snaps.conformal.coverage import confident_rank, rank_interval
from snaps.conformal.rank import exact_rank
from snaps.errors import SnapsError
from snaps.predictor.predictor import Predictor
from snaps.predictor.selection import accept
from snaps.report.facts import Subject

_LEVEL = 0.99  # all promises together are found kept so often if they hold
_MANY = 0.01  # a share of sets that is worth a word
_ERROR = 0.02  # of accepted labels, as `accept` has it by default


@dataclass(frozen=True)
class PromiseRow:
    """A promise about n nodes, and what was observed.

    `low` is the coverage that chance may leave them with: the promised one where this draw was
    promised it, and None where no distribution is known.
    """

    what: str  # "all", "class" or "group"
    name: str
    promised: float | None  # None: too few calibration nodes for a promise
    observed: float
    n: int
    low: float | None

    @property
    def status(self) -> str:
        """Whether it was "kept", kept within "chance", "broken", or made at all ("none").

        It is "open" where nothing says how far chance alone leaves the coverage below.
        """
        if self.promised is None:
            return "none"
        if self.observed >= self.promised:
            return "kept"
        if self.low is None:
            return "open"
        return "broken" if self.observed < self.low else "chance"


def summarise(subject: Subject) -> SimpleNamespace:
    """What the first screen needs on top of the numbers."""
    predictor, evaluation, nodes = subject.predictor, subject.evaluation, subject.nodes
    shown, level = predictor.shown_promise(), predictor.shown_level()
    promises = _promises(subject) if evaluation is not None else []
    sets, truth = subject.sets, subject.truth[nodes]
    known = truth >= 0 if evaluation is not None else np.zeros(len(nodes), bool)
    hits = sets.mask[np.arange(len(nodes)), np.maximum(truth, 0)] & known
    single, empty = sets.sizes == 1, sets.sizes == 0
    rates = None  # the promised coverages of the classes, where these differ
    if isinstance(level, Mapping) and len(set(level.values())) > 1:
        rates = {name: float(1 - Fraction(str(rate))) for name, rate in level.items()}
    accepted, wrong = None, None
    try:
        accepted = accept(predictor, _ERROR, nodes)
    except SnapsError:  # calibration nodes drawn by chances, or on another graph
        pass
    else:
        judged = known & accepted.selected
        if judged.any():
            wrong = accepted.label[judged] != predictor.roles.classes[truth[judged]]
    # All labels could be accepted at the report's own error rate.
    everyone = accepted is not None and bool((accepted.p <= float(predictor.alpha)).all())
    easy = everyone and empty.size > 0 and float(empty.mean()) >= _MANY
    weakest = evaluation and evaluation["weakest_slice"]
    concern = bool(
        weakest and weakest["chance"] <= 0.01 and weakest["coverage"] < 1 - predictor.alpha
    )
    return SimpleNamespace(
        promises=promises,
        broken=[row for row in promises if row.status == "broken"],
        # Whether it cannot be said that all are kept.
        open=any(row.status == "open" for row in promises),
        cells=[row for row in promises if row.what != "all" and row.promised is not None],
        rates=rates,
        floors={name: value for name, value in shown.items() if name.endswith("floor")},
        confidence=shown.get("confidence"),
        accepted=accepted,  # None where no such list can be made
        accepted_wrong=None if wrong is None else float(wrong.mean()),
        accepted_empty=int((accepted.selected & empty).sum()) if accepted else 0,
        singles=int((single & known).sum()),
        right=int((single & hits).sum()),
        examples=_examples(subject, sets.mask, hits, known),
        remedy=_remedy(subject, promises, concern, easy),
        concern=concern,  # whether a slice is weaker than chance explains, and than promised
    )


def _promises(subject: Subject) -> list[PromiseRow]:
    """All promises and what was observed, the coverage of all nodes first."""
    predictor, evaluation = subject.predictor, subject.evaluation
    assert evaluation is not None
    rows = []
    if predictor.calibration.kind == "calibration":
        interval = evaluation["coverage_interval"]
        promised, n = float(1 - predictor.alpha), evaluation["n"]
        low = None if interval is None else interval[0]
        if evaluation["confidence"] is not None:  # of this draw, not on average
            low = promised
        rows.append(PromiseRow("all", "all nodes", promised, evaluation["coverage"], n, low))
    rows += [row for what in ("group", "class") for row in _cells(subject, what)]
    return rows


def _cells(subject: Subject, what: str) -> Iterator[PromiseRow]:
    """The promises for each class, or group, that is among the labelled nodes."""
    predictor, evaluation = subject.predictor, subject.evaluation
    assert evaluation is not None
    promised = predictor.promised(what)
    if promised is None:
        return
    roles, calibration = predictor.roles, predictor.calibration
    labelled = subject.nodes[subject.truth[subject.nodes] >= 0]
    own, given, names = subject.truth[labelled], calibration.labels, list(roles.classes)
    if what == "group":
        own, given = roles.groups.codes[labelled], np.asarray(calibration.groups)
        names = list(roles.groups.names)
    counts, calibrated = (np.bincount(codes, minlength=len(names)) for codes in (own, given))
    level = 1 - (1 - _LEVEL) / max(int((counts > 0).sum()), 1)
    observed = list(evaluation[f"{what}_coverage"].values())
    for place, name in enumerate(names):
        n, least = int(counts[place]), promised[place]
        if n:
            low = None
            if least is not None:
                rank = _rank(predictor, int(calibrated[place]), least)
                low = rank_interval(int(calibrated[place]), n, rank, level)[0]
            yield PromiseRow(what, str(name), least, observed[place], n, low)


def _rank(predictor: Predictor, n: int, promised: float) -> int:
    """The rank of a threshold that promises so much on n calibration nodes."""
    n += predictor.calibration.missing
    alpha, confidence = 1 - Fraction(str(promised)), predictor.method.promise.confidence
    if confidence is None:
        return exact_rank(n, alpha)
    return confident_rank(n, alpha, confidence)


def _remedy(subject: Subject, promises: list[PromiseRow], concern: bool, easy: bool) -> str:
    """What to do next: a word for the sentence in the template."""
    evaluation = subject.evaluation
    if (subject.look is not None and not subject.look.alike) or subject.predictor.apart:
        return "exchangeability"
    if not np.isfinite(subject.limits()).any():
        return "more labels"
    if evaluation is None:
        return "label"
    if any(row.status == "broken" for row in promises):
        return "more labels" if promises[0].status != "broken" else "exchangeability"
    if easy:  # the classifier alone is right more often than was asked for
        return "alpha"
    if concern:
        by: str = evaluation["weakest_slice"]["by"]
        return "more labels" if by in subject.predictor.calibration.kind else by
    return "use"


def _examples(
    subject: Subject, mask: np.ndarray, hits: np.ndarray, known: np.ndarray
) -> list[SimpleNamespace]:
    """Up to three nodes, by hash: a single label, several labels, and a miss or an empty set.

    Each with its set and, where known, its true label.
    """
    inputs, sizes = subject.predictor.inputs, mask.sum(axis=1)
    nodes, classes = subject.nodes, subject.predictor.roles.classes
    order = np.argsort(hashes(0, inputs.keys[nodes], REPORT_STREAM))
    right = hits | ~known
    wanted: list[Any] = [
        (sizes == 1) & right,
        (sizes == sizes[sizes > 1].min(initial=2)) & right,
        known & ~hits & (sizes > 0),
        sizes == 0,
        right,
    ]
    if subject.degrees is not None:  # linked nodes first
        order = order[np.argsort(subject.degrees[nodes][order] == 0, kind="stable")]
    chosen: list[int] = []
    for fits in wanted:
        place = next((i for i in order[fits[order]].tolist() if i not in chosen), None)
        if place is not None and len(chosen) < 3:
            chosen.append(place)
    truth = subject.truth[nodes]
    return [
        SimpleNamespace(
            position=int(nodes[i]),
            id=str(inputs.graph.ids[nodes[i]]),
            labels=[str(classes[label]) for label in np.flatnonzero(mask[i])],
            truth=str(classes[truth[i]]) if known[i] else None,
            hit=bool(hits[i]) if known[i] else None,
        )
        for i in chosen
    ]
