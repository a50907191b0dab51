"""The numbers of a report, gathered from a calibrated estimator: no sentences and no HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps.conformal.calibration import Calibration
from snaps.conformal.coverage import coverage_interval, rank_pmf
from snaps.conformal.rank import enough
from snaps.predictor.evaluation import Evaluation
from snaps.predictor.exchangeability import Exchangeability
from snaps.predictor.predictor import Predictor
from snaps.predictor.slices import confidence, in_bands, in_fifths
from snaps.scoring.mixing import Mixing
from snaps.scoring.parts import Mean, Own
from snaps.sets import PredictionSets

_BINS = 48  # of the histogram of scores
_CURVE_POINTS = 161


@dataclass(frozen=True, eq=False)
class Subject:
    """A calibrated estimator and the nodes to report on."""

    predictor: Predictor
    nodes: np.ndarray  # positions of the predicted nodes
    truth: np.ndarray  # (n,): classes of all nodes, -1 where unknown
    sets: PredictionSets  # of `nodes`
    evaluation: Evaluation | None  # of those of `nodes` whose label is known
    look: Exchangeability | None

    def contains(
        self, scores: np.ndarray, nodes: np.ndarray, calibration: Calibration | None = None
    ) -> np.ndarray:
        """Which labels (m, K) are in the sets of `nodes`, whose scores are given."""
        codes = self.predictor.roles.groups.codes[nodes]
        own, predictor = calibration or self.predictor.calibration, self.predictor
        counts, odds = predictor.counts(self.nodes), predictor.odds(nodes)
        return own.contains(scores, predictor.level, codes, counts, odds)

    def limits(self) -> np.ndarray:
        """The thresholds (groups or 1, classes or 1); with unequal chances a row per node."""
        predictor = self.predictor
        if predictor.calibration.odds is not None:
            return predictor.limits_of(self.nodes)
        return predictor.calibration.limits(predictor.level, predictor.counts(self.nodes))

    @property
    def degrees(self) -> np.ndarray | None:
        """Links of every node; None without a graph."""
        adjacency = self.predictor.inputs.graph.adjacency
        return np.diff(adjacency.indptr) if adjacency.nnz else None

    @property
    def neighbours(self) -> dict[str, sp.csr_array | None]:
        """Neighbours and their weights, for each part that averages over them; none of weight 0."""
        scorer = self.predictor.scorer
        return {
            name: self.predictor.inputs.get(part.over)
            for name, part in scorer.parts.items()
            if isinstance(part, Mean) and not isinstance(part.of, Mean) and scorer.weights[name]
        }


@dataclass(frozen=True)
class CoverageCurve:
    """The coverage distribution: coverages, their density (peak 1) and the interval of 99 %."""

    coverages: list[float]
    density: list[float]
    low: float
    high: float


@dataclass(frozen=True)
class Sizes:
    """Sizes of n sets: their mean, and the shares of single, empty and full ones.

    `counts[s]` sets have s labels; the coverage is None where no label is known.
    """

    counts: list[int]
    n: int
    mean: float
    single: float
    empty: float
    full: float
    coverage: float | None


@dataclass(frozen=True)
class Slice:
    """A part of the nodes: its name, number of nodes, mean set size and coverage.

    `low` and `high` bound the coverage in 99 % of draws if these nodes are exchangeable with all
    others that share their threshold. `promised` is what is promised to these nodes, or to all.
    """

    name: str
    n: int
    size: float | None
    coverage: float | None
    low: float | None
    high: float | None
    promised: float | None

    @property
    def below(self) -> bool:
        """Whether the coverage is below the interval; empty sets, which cover nothing, aside."""
        return self.low is not None and (self.coverage or 0) < self.low and self.size != 0


@dataclass(frozen=True)
class Weights:
    """The weight of each part and, where tuned on a grid, the set size that each pair gives.

    They were `chosen` as "none" (there is one part), "given" (by the user), "grid", "fit",
    "default" (too few tuning nodes) or "kept" (from another graph).
    """

    parts: dict[str, float]
    chosen: str
    averaged: bool = False  # over resamples of the tuning nodes
    pairs: list[tuple[float, float]] = field(default_factory=list)  # (lam, mu)
    sizes: list[float] = field(default_factory=list)  # labels per set of the tuning nodes
    size: float = 0.0  # the same for the chosen weights

    @property
    def pair(self) -> tuple[float, float]:
        return self.parts.get("similar", 0.0), self.parts.get("linked", 0.0)

    @property
    def shown(self) -> dict[str, float]:
        """The weights in hundredths; where they add up to 1, these do too."""
        hundredths = np.array([100 * weight for weight in self.parts.values()])
        rounded = np.round(hundredths)
        if abs(hundredths.sum() - 100) < 1e-6 and (hundredths >= 0).all():
            rounded = np.floor(hundredths + 1e-9)
            missing = 100 - int(rounded.sum())
            rounded[np.argsort(rounded - hundredths, kind="stable")[:missing]] += 1
        return dict(zip(self.parts, (rounded / 100).tolist(), strict=True))

    @property
    def tuned(self) -> list[str]:
        """Which of similar and linked vary on the grid."""
        names = enumerate(("similar", "linked"))
        return [name for i, name in names if any(pair[i] for pair in self.pairs)]


@dataclass(frozen=True)
class Scores:
    """Scores of the calibration nodes, and the thresholds."""

    edges: list[float]
    true: list[int]  # true labels by score, between the edges
    other: list[int]  # all other labels
    limits: list[tuple[str, float | None]]  # the threshold of each cell; None is infinite
    at_most: int  # calibration nodes with their true label at or below their threshold
    true_in: float | None  # share of true labels in the calibration nodes' sets
    other_out: float | None  # share of other labels outside

    @property
    def finite(self) -> list[float]:
        """The finite thresholds."""
        return [limit for _, limit in self.limits if limit is not None]


def gather(subject: Subject) -> SimpleNamespace:
    """Every number of a report, in time linear in the nodes and labels."""
    predictor, nodes, evaluation = subject.predictor, subject.nodes, subject.evaluation
    inputs, roles, calibration = predictor.inputs, predictor.roles, predictor.calibration
    graph, alpha, degrees = inputs.graph, predictor.alpha, subject.degrees
    mask, truth = subject.sets.mask, subject.truth[nodes]
    compared, classes = np.arange(len(nodes)), inputs.probs[nodes].argmax(axis=1)
    covered, class_counts, by_group = None, None, []
    if evaluation is not None:
        compared = np.flatnonzero(truth >= 0)
        classes = truth[compared]
        covered = mask[compared, classes]
    rates = isinstance(predictor.level, tuple) and len(set(predictor.level)) > 1
    unknown = (
        evaluation is not None
        and calibration.kind == "calibration"
        and evaluation["coverage_interval"] is None
    )
    sets = _Sets(
        mask[compared].sum(axis=1), covered, len(calibration), alpha,
        None if rates else float(1 - alpha), not (rates or unknown),
    )  # fmt: skip
    if calibration.by_class:
        class_counts = np.bincount(calibration.labels, minlength=inputs.num_classes)
    if roles.groups.given:
        names = list(map(str, roles.groups.names))
        counts = np.bincount(np.asarray(calibration.groups), minlength=len(names))
        by_group = sets.by(
            roles.groups.codes[nodes][compared], names,
            None if calibration.kind == "calibration" else counts, predictor.promised("group"),
        )  # fmt: skip
    by_confidence = []
    if len(compared):
        names, codes = in_fifths(confidence(inputs.probs, nodes[compared]))
        by_confidence = sets.present(codes, names)
    by_class = sets.by(
        classes, list(map(str, roles.classes)), class_counts, predictor.promised("class")
    )
    by_degree = [] if degrees is None else sets.in_bands(degrees[nodes][compared], single=1)
    by_size = [] if covered is None else sets.in_bands(sets.sizes)
    return SimpleNamespace(
        method=predictor.method.name,
        score=repr(predictor.scorer.score),
        alpha=float(alpha),
        promised=1 - float(alpha),
        seed=predictor.method.seed,
        uses_known=predictor.method.uses_evidence,  # whether labels of known nodes matter
        kind=calibration.kind,  # of threshold: "calibration" is one for all
        num_nodes=inputs.num_nodes,
        num_edges=graph.num_edges,
        num_features=0 if graph.features is None else graph.features.shape[1],
        num_classes=inputs.num_classes,
        n_calib=len(calibration),
        n_effective=None if calibration.odds is None else predictor.effective_labels,
        n_tune=predictor.num_tuned,
        n_known=len(roles.known),
        n_nodes=len(nodes),
        evaluation=evaluation,
        exchangeable=str(subject.look) if subject.look and subject.look.alike else None,
        coverage_curve=_coverage_curve(subject),
        sizes=_sizes(mask, truth),
        basic=_basic_sizes(subject, truth),  # of the basic score, without neighbours
        by_class=by_class,
        by_degree=by_degree,
        by_confidence=by_confidence,
        by_size=by_size,
        by_group=by_group,
        slices=[*by_group, *by_class, *by_degree, *by_confidence, *by_size],
        weights=_weights(subject),
        scores=_scores(subject),
    )


def _coverage_curve(subject: Subject) -> CoverageCurve | None:
    """The coverage distribution around the promised and the observed coverage."""
    evaluation, calibration = subject.evaluation, subject.predictor.calibration
    if evaluation is None or evaluation["coverage_interval"] is None:
        return None
    n = evaluation["n"]
    density = rank_pmf(len(calibration), n, calibration.rank(subject.predictor.alpha, n))
    ends = np.searchsorted(np.cumsum(density), [1e-4, 1 - 1e-4])
    observed = round(evaluation["coverage"] * n)
    first, last = min(ends[0], observed), max(ends[1], observed)
    hits = np.unique(np.linspace(first, last, _CURVE_POINTS).round().astype(np.int64))
    shown = density[hits] / density.max()
    return CoverageCurve((hits / n).tolist(), shown.tolist(), *evaluation["coverage_interval"])


def _sizes(mask: np.ndarray, truth: np.ndarray) -> Sizes | None:
    """Sizes of the sets, and their coverage where labels are known."""
    if not len(mask):
        return None
    sizes, num_classes = mask.sum(axis=1), mask.shape[1]
    labelled = np.flatnonzero(truth >= 0)
    return Sizes(
        counts=np.bincount(sizes, minlength=num_classes + 1).tolist(),
        n=len(sizes),
        mean=float(sizes.mean()),
        single=float((sizes == 1).mean()),
        empty=float((sizes == 0).mean()),
        full=float((sizes == num_classes).mean()),
        coverage=_share(mask[labelled, truth[labelled]]),
    )


def _basic_sizes(subject: Subject, truth: np.ndarray) -> Sizes | None:
    """Sizes with the basic score alone, calibrated on the same nodes.

    None where it is the method, or where the graph lacks some calibration nodes.
    """
    predictor, inputs = subject.predictor, subject.predictor.inputs
    positions = inputs.positions(predictor.roles.calib.keys)
    incomplete = predictor.apart or len(positions) < len(predictor.calibration)
    if incomplete or len(predictor.scorer.parts) == 1:
        return None
    scores = inputs.get(Own(predictor.scorer.score, predictor.scorer.seed))
    own = scores[positions, predictor.calibration.labels]
    calibration = replace(predictor.calibration, scores=own)
    return _sizes(subject.contains(scores[subject.nodes], subject.nodes, calibration), truth)


@dataclass(frozen=True, eq=False)
class _Sets:
    """Sizes (m,) of sets and, where labels are known, which sets contain the true label."""

    sizes: np.ndarray
    covered: np.ndarray | None
    n_calib: int
    alpha: Fraction
    promised: float | None  # None: each class has its own
    exact: bool  # whether the distribution of the coverage of all nodes is known

    def by(
        self,
        codes: np.ndarray,
        names: Sequence[str],
        n_calib: np.ndarray | None = None,
        promised: Sequence[float | None] | None = None,
    ) -> list[Slice]:
        """A slice per name; `codes` (m,) point into the names.

        `n_calib` counts the calibration nodes of each slice's threshold, by default all; `promised`
        are the slices' own promises, by default that to all nodes.
        """
        counts = np.bincount(codes, minlength=len(names)).tolist()
        labels = np.bincount(codes, self.sizes, len(names)).tolist()
        hits = None if self.covered is None else np.bincount(codes, self.covered, len(names))
        slices = []
        for i, (name, n) in enumerate(zip(names, counts, strict=True)):
            own = self.promised if promised is None else promised[i]
            coverage, low, high = None, None, None
            if n and hits is not None:
                coverage = float(hits[i]) / n
                calibrated, alpha = self.n_calib, self.alpha
                if n_calib is not None:  # a threshold of its own
                    calibrated = int(n_calib[i])
                    alpha = alpha if own is None else 1 - Fraction(str(own))
                if self.exact or n_calib is not None:
                    low, high = _interval(calibrated, n, alpha)
            size = labels[i] / n if n else None
            slices.append(Slice(name, n, size, coverage, low, high, own))
        return slices

    def present(self, codes: np.ndarray, names: Sequence[str]) -> list[Slice]:
        """A slice per name that occurs."""
        return [slice for slice in self.by(codes, names) if slice.n]

    def in_bands(self, values: np.ndarray, single: int = 12) -> list[Slice]:
        """A slice per band of whole numbers that occur."""
        names, codes = in_bands(values, single)
        return self.present(codes, names)


@lru_cache
def _interval(n_calib: int, n: int, alpha: Fraction) -> tuple[float, float]:
    """The interval of the coverage on n nodes; without calibration nodes sets are full."""
    return coverage_interval(n_calib, n, alpha) if n_calib else (1.0, 1.0)


def _weights(subject: Subject) -> Weights:
    predictor, inputs = subject.predictor, subject.predictor.inputs
    scorer = predictor.method.scorer
    parts = {name: float(weight) for name, weight in predictor.scorer.weights.items()}
    if len(parts) == 1:
        return Weights(parts, "none")
    alpha = predictor.method.alpha  # the level tuned for; it may have changed since
    tuning = predictor.roles.tuning
    if not isinstance(scorer, Mixing):
        return Weights(parts, "fit" if enough(len(tuning), alpha) else "default")
    if len(scorer.grid) == 1:
        return Weights(parts, "given")
    if predictor.apart or len(inputs.positions(tuning.keys)) < len(tuning):
        return Weights(parts, "kept")
    fitted: Any = predictor.scorer
    totals = scorer.tuning_sizes(inputs, tuning, alpha, fitted)
    if totals is None:
        return Weights(parts, "default")
    *sizes, size = (totals / len(tuning)).tolist()
    return Weights(parts, "grid", scorer.averaged, list(scorer.grid), sizes, size)


def _scores(subject: Subject) -> Scores:
    """Histograms of the calibration nodes' scores, true labels apart, and the thresholds."""
    predictor, inputs = subject.predictor, subject.predictor.inputs
    calibration, roles = predictor.calibration, predictor.roles
    true, other, true_in, other_out = calibration.scores, np.empty(0), None, None
    positions = inputs.positions(roles.calib.keys)
    if len(positions) == len(true) and not predictor.apart:
        rows = inputs.score(predictor.scorer, positions)
        is_true = np.arange(rows.shape[1]) == calibration.labels[:, None]
        inside = subject.contains(rows, positions)
        other = rows[~is_true]
        true_in, other_out = _share(inside[is_true]), _share(~inside[~is_true])
    limits = subject.limits()
    finite = np.concatenate([true, other, limits[np.isfinite(limits)]])
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    groups = [str(name) for name in roles.groups.names] or [""]
    classes = [str(name) for name in roles.classes] if calibration.per_class else [""]
    names = [", ".join(filter(None, (group, label))) for group in groups for label in classes]
    labels = calibration.labels if calibration.per_class else 0
    if calibration.odds is None:
        own_limits = limits[calibration.groups, labels]
    else:  # one per node: the ends stand for all
        own_limits = predictor.limits_of(positions)[np.arange(len(positions)), labels]
        limits = np.array([limits.min(initial=np.inf), limits.max(initial=-np.inf)])
        names = ["lowest", "highest"]
    return Scores(
        edges=edges.tolist(),
        true=np.histogram(true, edges)[0].tolist(),
        other=np.histogram(other, edges)[0].tolist(),
        limits=[
            (name, float(limit) if np.isfinite(limit) else None)
            for name, limit in zip(names, limits.reshape(-1), strict=True)
        ],
        at_most=int((true <= own_limits).sum()),
        true_in=true_in,
        other_out=other_out,
    )


def _share(which: np.ndarray) -> float | None:
    return float(which.mean()) if which.size else None
