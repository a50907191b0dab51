"""What a report says, as numbers: gathered from a calibrated estimator, without a word of HTML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from snaps._checks import check_alpha
from snaps.conformal.calibration import Calibration
from snaps.conformal.coverage import coverage_interval, coverage_pmf
from snaps.conformal.rank import enough
from snaps.predictor.evaluation import Evaluation
from snaps.predictor.exchangeability import Exchangeability
from snaps.predictor.state import State
from snaps.report._notes import Note, find_notes
from snaps.scoring.local import Inputs
from snaps.scoring.mixing import Mixing
from snaps.scoring.parts import Own, Scorer

PARTS = {
    "own": ("itself", "what the classifier says of the node itself"),
    "similar": ("similar nodes", "the nodes with the most similar features"),
    "linked": ("linked nodes", "the nodes it links to"),
    "two_hop": ("links of links", "the nodes that its links link to"),
    "context": ("nodes in a like context", "the nodes with similar features and surroundings"),
    "propagated": ("known labels, by links", "known labels, propagated over the links"),
    "propagated_context": (
        "known labels, by context",
        "known labels, propagated between nodes in a similar context",
    ),
    "regression": (
        "regression on features",
        "a linear model of known labels, from features in their context",
    ),
}
"""What a part is to a node, in short and in a line; others go by their own names."""

_BINS = 48
_LAW_POINTS = 161


@dataclass(frozen=True, eq=False)
class Subject:
    """A calibrated estimator and the nodes to report on.

    Attributes
    ----------
    name : str
        The estimator's class.
    scorer : Scorer
        The method before its fit.
    alpha : Fraction
    nodes : array
        Positions of the nodes predicted.
    truth : int array (n,)
        Classes as far as they are known; -1 elsewhere.
    evaluation : Evaluation or None
        Of those of `nodes` whose label is known.
    look : Exchangeability or None
    seed : int
    title : str
    """

    name: str
    scorer: Scorer
    state: State
    inputs: Inputs
    alpha: Fraction
    nodes: np.ndarray
    truth: np.ndarray
    evaluation: Evaluation | None
    look: Exchangeability | None
    seed: int
    title: str

    def contains(self, scores: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Which labels are in the sets of nodes with these scores."""
        groups = self.state.roles.groups
        codes = None if groups is None else groups.codes[places]
        return self.state.calibration.contains(scores, self.alpha, codes)

    @property
    def degrees(self) -> np.ndarray | None:
        """Links of every node; None without a graph."""
        adjacency = self.inputs.graph.adjacency
        return np.diff(adjacency.indptr) if adjacency.nnz else None


@dataclass(frozen=True)
class Law:
    """How the coverage of one run spreads: share of hits, and how likely each is (peak 1)."""

    at: list[float]
    likely: list[float]
    low: float
    high: float


@dataclass(frozen=True)
class Sizes:
    """How large sets are: `counts[s]` of them have s labels."""

    counts: list[int]
    coverage: float | None

    @property
    def n(self) -> int:
        return sum(self.counts)

    @property
    def mean(self) -> float:
        return sum(size * count for size, count in enumerate(self.counts)) / self.n

    @property
    def single(self) -> float:
        return self.counts[1] / self.n

    @property
    def empty(self) -> float:
        return self.counts[0] / self.n

    @property
    def full(self) -> float:
        return self.counts[-1] / self.n


@dataclass(frozen=True)
class Slice:
    """Some of the nodes: how many, how often they are covered, how large their sets are.

    `low` and `high` are where the coverage of 99 % of fair runs falls if these nodes are like all
    others that share their threshold.
    """

    name: str
    n: int
    size: float | None
    coverage: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def below(self) -> bool:
        """Whether chance hardly explains so little coverage; an empty set can't have any."""
        return self.low is not None and (self.coverage or 0) < self.low and self.size != 0


@dataclass(frozen=True)
class Weights:
    """What each part weighs and, where that was tuned on a grid, what each pair would have given.

    Attributes
    ----------
    parts : dict of float
    chosen : str
        How: "none" (there is one part), "given" (by the user), "grid", "fit", "default" (too few
        nodes to tune on) or "kept" (from another graph).
    pairs : list of (lam, mu)
    sizes : list of float
        Labels per set of the tuning nodes, for each pair.
    size : float or None
        The same for the weights chosen.
    """

    parts: dict[str, float]
    chosen: str
    pairs: list[tuple[float, float]] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    size: float | None = None

    @property
    def pair(self) -> tuple[float, float]:
        return self.parts.get("similar", 0.0), self.parts.get("linked", 0.0)


@dataclass(frozen=True)
class Scores:
    """Where the threshold lies in the scores of calibration nodes.

    Attributes
    ----------
    edges : list of float
    true, other : list of int
        True labels, and all other labels, by score between the edges.
    limits : list of (str, float or None)
        The threshold of each cell by its name; None is infinite.
    at_most : int
        Calibration nodes with their true label at or below their threshold.
    true_in, other_out : float or None
        Shares of true labels that are in the calibration nodes' sets, and of others that are not.
    """

    edges: list[float]
    true: list[int]
    other: list[int]
    limits: list[tuple[str, float | None]]
    at_most: int
    true_in: float | None
    other_out: float | None


@dataclass(frozen=True)
class Facts:
    """All numbers of a report; see `gather`."""

    title: str
    method: str
    score: str
    alpha: float
    seed: int
    kind: str
    """What has a threshold of its own: calibration (all together), class, group, group and class"""
    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    n_calib: int
    n_tune: int
    n_known: int
    n_nodes: int
    evaluation: Mapping[str, Any] | None
    alike: str | None
    """One sentence on whether calibration nodes look like those predicted, if they do."""
    law: Law | None
    sizes: Sizes | None
    basic: Sizes | None
    """The basic score's sets, without neighbours."""
    by_class: list[Slice]
    by_degree: list[Slice]
    by_size: list[Slice]
    by_group: list[Slice]
    weights: Weights
    scores: Scores
    notes: list[Note]

    @property
    def promised(self) -> float:
        return 1 - self.alpha


def gather(subject: Subject) -> Facts:
    """Every number of a report, in time linear in the nodes and labels."""
    state, inputs, nodes = subject.state, subject.inputs, subject.nodes
    roles, calibration, graph = state.roles, state.calibration, inputs.graph
    mask = subject.contains(inputs.score(state.scorer, nodes), nodes)
    truth = subject.truth[nodes]
    evaluation = subject.evaluation
    law = None
    if evaluation is not None and calibration.kind == "calibration":
        law = _law(len(calibration), evaluation, subject.alpha)
    seen = truth >= 0 if evaluation is not None else np.ones(len(nodes), bool)
    sliced = _Slices(
        mask[seen], truth[seen] if evaluation is not None else None, len(calibration), subject.alpha
    )
    classes = [str(name) for name in roles.classes]
    degrees = subject.degrees
    weights = _weights(subject)
    columns = sliced.truth if sliced.truth is not None else inputs.probs[nodes].argmax(axis=1)
    return Facts(
        title=subject.title,
        method=subject.name,
        score=repr(state.scorer.score),
        alpha=float(subject.alpha),
        seed=subject.seed,
        kind=calibration.kind,
        num_nodes=inputs.num_nodes,
        num_edges=graph.num_edges,
        num_features=0 if graph.features is None else graph.features.shape[1],
        num_classes=inputs.num_classes,
        n_calib=len(calibration),
        n_tune=len(roles.tuning) if state.tuned else 0,
        n_known=len(roles.known),
        n_nodes=len(nodes),
        evaluation=evaluation,
        alike=str(subject.look) if subject.look is not None and subject.look.alike else None,
        law=law,
        sizes=_sizes(mask, truth),
        basic=_basic(subject, truth),
        by_class=sliced.by(columns, classes, _per_class(calibration)),
        by_degree=[] if degrees is None else sliced.by_degree(degrees[nodes][seen]),
        by_size=[] if sliced.truth is None else sliced.by_size(),
        by_group=_by_group(sliced, subject, seen),
        weights=weights,
        scores=_scores(subject),
        notes=find_notes(
            state, inputs, nodes, subject.alpha, subject.look, evaluation, weights.chosen
        ),
    )


# -- what was promised, what was observed --------------------------------------------------------


def _law(n: int, evaluation: Evaluation, alpha: Fraction) -> Law:
    """The coverage distribution, around what was promised and what was observed."""
    m = evaluation["n"]
    likely = coverage_pmf(n, m, alpha)
    upto = np.cumsum(likely)
    observed = round(evaluation["coverage"] * m)
    left = min(int(np.searchsorted(upto, 1e-4)), observed)
    right = max(int(np.searchsorted(upto, 1 - 1e-4)), observed)
    hits = np.unique(np.linspace(left, right, _LAW_POINTS).round().astype(np.int64))
    low, high = evaluation["coverage_interval"]
    return Law((hits / m).tolist(), (likely[hits] / likely.max()).tolist(), low, high)


# -- how small the sets are ----------------------------------------------------------------------


def _sizes(mask: np.ndarray, truth: np.ndarray) -> Sizes | None:
    if not len(mask):
        return None
    counts = np.bincount(mask.sum(axis=1), minlength=mask.shape[1] + 1)
    known = np.flatnonzero(truth >= 0)
    coverage = float(mask[known, truth[known]].mean()) if known.size else None
    return Sizes(counts.tolist(), coverage)


def _basic(subject: Subject, truth: np.ndarray) -> Sizes | None:
    """Sets of the basic score alone, calibrated on the same nodes.

    None where it is the method, or where not all of these nodes are in the graph.
    """
    state, inputs = subject.state, subject.inputs
    if len(state.scorer.parts) == 1 or state.apart:
        return None
    calib = state.calibration
    places = inputs.positions(state.roles.calib.keys)
    if len(places) < len(calib):  # the threshold was kept from a graph that had them
        return None
    scores = inputs.get(Own(state.scorer.score, state.scorer.seed))
    plain = Calibration(
        scores[places, calib.labels],
        calib.labels,
        calib.num_classes,
        calib.groups,
        calib.num_groups,
        calib.by_class,
    )
    groups = state.roles.groups
    codes = None if groups is None else groups.codes[subject.nodes]
    return _sizes(plain.contains(scores[subject.nodes], subject.alpha, codes), truth)


# -- for whom it is weaker -----------------------------------------------------------------------


def _by_group(sliced: _Slices, subject: Subject, seen: np.ndarray) -> list[Slice]:
    groups, calibrated = subject.state.roles.groups, subject.state.calibration.groups
    if groups is None or calibrated is None:
        return []
    counts = np.bincount(calibrated, minlength=len(groups.names))
    codes = groups.codes[subject.nodes][seen]
    return sliced.by(codes, [str(name) for name in groups.names], counts)


def _per_class(calibration: Calibration) -> np.ndarray | None:
    """Calibration nodes of each class, where they set a threshold of its own."""
    if not calibration.by_class:
        return None
    return np.bincount(calibration.labels, minlength=calibration.num_classes)


@dataclass(frozen=True, eq=False)
class _Slices:
    """Sets (m, K) and, where known, their true labels, to be cut in slices."""

    mask: np.ndarray
    truth: np.ndarray | None
    n_calib: int
    alpha: Fraction

    def by(
        self, codes: np.ndarray, names: list[str], n_calib: np.ndarray | None = None
    ) -> list[Slice]:
        """One slice per name; `codes` (m,) says whose a set is, `n_calib` who set its threshold."""
        sizes = self.mask.sum(axis=1)
        count = np.bincount(codes, minlength=len(names)).tolist()
        labels = np.bincount(codes, weights=sizes, minlength=len(names)).tolist()
        hits = np.zeros(len(sizes))
        if self.truth is not None:
            hits = self.mask[np.arange(len(self.mask)), self.truth]
        hit = np.bincount(codes, weights=hits, minlength=len(names)).tolist()
        threshold_of = [self.n_calib] * len(names) if n_calib is None else n_calib.tolist()
        out = []
        for i, (name, n) in enumerate(zip(names, count, strict=True)):
            seen: tuple[float, ...] = ()
            if n and self.truth is not None:
                seen = hit[i] / n, *_range(threshold_of[i], n, self.alpha)
            out.append(Slice(name, n, labels[i] / n if n else None, *seen))
        return out

    def by_degree(self, degrees: np.ndarray) -> list[Slice]:
        """Bands that double: 0, 1, 2 to 3, 4 to 7, ..."""
        top = int(degrees.max(initial=0)).bit_length()
        return _filled(self.by(_doubling(degrees), [_band(i) for i in range(top + 1)]))

    def by_size(self) -> list[Slice]:
        """One slice per size, or bands that double where sizes are many."""
        sizes = self.mask.sum(axis=1)
        top = int(sizes.max(initial=0))
        if top <= 12:
            return _filled(self.by(sizes, [str(size) for size in range(top + 1)]))
        return _filled(self.by(_doubling(sizes), [_band(i) for i in range(top.bit_length() + 1)]))


def _filled(slices: list[Slice]) -> list[Slice]:
    return [one for one in slices if one.n]


def _doubling(values: np.ndarray) -> np.ndarray:
    """0 for 0, 1 for 1, 2 for 2 to 3, 3 for 4 to 7, ..."""
    return np.frexp(values.astype(np.float64))[1].astype(np.int64)


def _band(place: int) -> str:
    low, high = 2**place // 2, 2**place - 1
    return str(low) if high <= low else f"{low:,}\u00a0to\u00a0{high:,}"


@lru_cache
def _range(n_calib: int, n: int, alpha: Fraction) -> tuple[float, float]:
    """Where the coverage on n nodes falls; a threshold set by nobody lets everything in."""
    return coverage_interval(n_calib, n, alpha) if n_calib else (1.0, 1.0)


# -- weights and threshold -----------------------------------------------------------------------


def _weights(subject: Subject) -> Weights:
    state, scorer = subject.state, subject.scorer
    parts = {name: float(weight) for name, weight in state.scorer.weights.items()}
    if len(parts) == 1:
        return Weights(parts, "none")
    alpha = check_alpha(state.params["alpha"])  # the level tuned for; it may have changed since
    tuning = state.roles.tuning
    if not isinstance(scorer, Mixing):
        return Weights(parts, "fit" if enough(len(tuning), alpha) else "default")
    if len(scorer.grid) == 1:
        return Weights(parts, "given")
    if state.apart or len(subject.inputs.positions(tuning.keys)) < len(tuning):
        return Weights(parts, "kept")
    totals = scorer.tuning_sizes(subject.inputs, tuning, alpha, state.scorer)
    if totals is None:
        return Weights(parts, "default")
    *sizes, size = (totals / len(tuning)).tolist()
    return Weights(parts, "grid", list(scorer.grid), sizes, size)


def _scores(subject: Subject) -> Scores:
    """The scores of calibration nodes, true labels apart from the others, and the thresholds."""
    state, inputs = subject.state, subject.inputs
    calibration, roles = state.calibration, state.roles
    true = calibration.scores
    others, true_in, other_out = np.empty(0), None, None
    places = inputs.positions(roles.calib.keys)
    if len(places) == len(true) and not state.apart:
        rows = inputs.score(state.scorer, places)
        wrong = np.ones(rows.shape, bool)
        wrong[np.arange(len(rows)), calibration.labels] = False
        inside = subject.contains(rows, places)
        others, true_in, other_out = rows[wrong], _share(inside[~wrong]), _share(~inside[wrong])
    limits = calibration.limits(subject.alpha)
    finite = limits[np.isfinite(limits)]
    both = np.concatenate([true, others, finite])
    low, high = (float(both.min()), float(both.max())) if both.size else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    groups = [""] if roles.groups is None else [str(name) for name in roles.groups.names]
    classes = [str(name) for name in roles.classes] if calibration.by_class else [""]
    names = [", ".join(filter(None, (group, y))) for group in groups for y in classes]
    return Scores(
        edges.tolist(),
        np.histogram(true, edges)[0].tolist(),
        np.histogram(others, edges)[0].tolist(),
        [
            (name, float(limit) if np.isfinite(limit) else None)
            for name, limit in zip(names, limits.reshape(-1), strict=True)
        ],
        int((true <= _own_limits(calibration, limits)).sum()),
        true_in,
        other_out,
    )


def _own_limits(calibration: Calibration, limits: np.ndarray) -> np.ndarray:
    """The threshold of each calibration node."""
    group = 0 if calibration.groups is None else calibration.groups
    return limits[group, calibration.labels if calibration.by_class else 0]


def _share(which: np.ndarray) -> float | None:
    return float(which.mean()) if which.size else None
