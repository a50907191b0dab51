"""The scorer of `Pooled`: evidence about a node's label from many sides, multiplied, then scored.

Each part is turned into log-probabilities; weights and biases are fitted on the tuning nodes. Known
labels (training, validation) count as evidence, and so do those of the tuning nodes, each for all
nodes but itself; those of calibration and predicted nodes are never seen here, and no role either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from snaps._checks import calm
from snaps._runtime.memory import softmax
from snaps._runtime.progress import stage
from snaps.conformal.rank import enough
from snaps.errors import SnapsError, warn
from snaps.scores import Score, score_table, warn_untuned
from snaps.scoring.evidence import Evidence, Keys, check_evidence
from snaps.scoring.logpool import fit_pool
from snaps.scoring.parts import (
    Array,
    Beliefs,
    Context,
    Engine,
    Links,
    Mean,
    Part,
    Probs,
    Propagated,
    Regressed,
    Search,
    Similar,
)
from snaps.scoring.shares import FEWEST, MOST_OTHERS, moved_bias, unlike

PARTS = (
    "own",
    "linked",
    "two_hop",
    "similar",
    "context",
    "propagated",
    "propagated_context",
    "regression",
)
"""The parts, in words:

own : what the classifier says of the node itself
linked, two_hop : the mean over its links, and over their links
similar : the mean over the nodes with the most similar features
context : the mean over the nodes with the most similar features and surroundings
propagated, propagated_context : known labels, propagated over the links and the context graph
regression : a linear model of the known labels, from the features of a node and its surroundings
"""
WITHOUT_REGRESSION = PARTS[:7]

NEEDS = {
    "linked": "edges",
    "two_hop": "edges",
    "similar": "features",
    "context": "features and edges",
    "propagated": "edges and known labels",
    "propagated_context": "features, edges and known labels",
    "regression": "features and known labels",
}

FOLDS = 5  # of the tuning nodes: a fold's rows are made without the fold's labels
FLOOR = 1e-4  # probabilities below it count as it: one source alone can't rule a label out
GUESS_SCALE = 10.0  # of the regression: brings its weight near those of logarithms
SMOOTHING = 1e-3  # added to the mass of labels that reached a node


_USUAL = Search()


def log_floor(table: Array) -> Array:
    """Logarithms of probabilities, none below that of the floor."""
    return np.log(np.maximum(table, FLOOR))


def make_parts(
    names: Sequence[str], k: int, known: Evidence, search: Search = _USUAL
) -> dict[str, Part]:
    """The recipes of the named parts."""
    beliefs: Part = Beliefs(known) if len(known) else Probs()
    linked = Mean(Links(), beliefs)
    recipes: dict[str, Part] = {
        "own": Probs(),
        "linked": linked,
        "two_hop": Mean(Links(), linked),
        "similar": Mean(Similar(k, search=search), beliefs),
        "context": Mean(Context(k, search), beliefs),
        "propagated": Propagated(Links(), known),
        "propagated_context": Propagated(Context(k, search), known),
        "regression": Regressed(k, known, search=search),
    }
    return {name: recipes[name] for name in PARTS if name in names}


@dataclass(frozen=True)
class Pooling:
    """Evidence from many sides, before its weights are fitted.

    Attributes
    ----------
    parts : names, or None
        None means all that the data allows.
    tuning_evidence : bool
        Whether labels of tuning nodes are evidence about other nodes.
    """

    score: Score
    seed: int
    k: int
    parts: tuple[str, ...] | None = None
    tuning_evidence: bool = True
    search: Search = _USUAL

    @property
    def needs_tuning(self) -> bool:
        """Always: the weights and biases."""
        return True

    def evidence(self, tuning: Evidence, known: Evidence) -> Evidence:
        """Known labels, and those of the tuning nodes if they count."""
        return known.joined(tuning) if self.tuning_evidence else known

    def _names(self, engine: Engine, evidence: Evidence) -> tuple[str, ...]:
        """The parts that are asked for and that the data allows."""
        there = {
            "own": True,
            "linked": "links" in engine.has,
            "two_hop": "links" in engine.has,
            "similar": "similar" in engine.has,
            "context": "context" in engine.has,
            "propagated": "links" in engine.has and len(evidence) > 0,
            "propagated_context": "context" in engine.has and len(evidence) > 0,
            "regression": "features" in engine.has and len(evidence) > 0,
        }
        if self.parts is None:
            return tuple(name for name in PARTS if there[name])
        missing = [name for name in self.parts if not there[name]]
        if missing:
            raise SnapsError(
                f"'parts' must be among those that the data allows, got {missing[0]!r} "
                f"without {NEEDS[missing[0]]}"
            )
        return self.parts

    def fit(
        self, engine: Engine, tuning: Evidence, known: Evidence, alphas: Sequence[Fraction]
    ) -> list[FittedPooling]:
        """Fit the weights once; they know no level and no score."""
        check_evidence(tuning, known)
        evidence = self.evidence(tuning, known)
        names = self._names(engine, evidence)
        rows = self._cross_fitted(engine, names, tuning, evidence)
        equal = dict.fromkeys(names, 1 / len(names)), np.zeros(engine.num_classes)
        plain = FittedPooling(self.score, self.seed, self.k, evidence, *equal, self.search)
        logs = {name: plain.shown(name, table) for name, table in rows.items()}
        fitted = None
        out = []
        for alpha in alphas:
            one = plain
            if not enough(len(tuning), alpha):
                warn_untuned(len(tuning), "equal weights and no biases")
            else:
                if fitted is None:
                    with stage("tuning"):
                        weights, bias = fit_pool(logs, tuning)
                    fitted = self._towards_others(
                        engine, tuning, replace(plain, weights=weights, bias=bias)
                    )
                one = fitted
            probs = one.probabilities(rows)
            score = self.score.tune(probs, tuning, alpha, self.seed)
            scores = score_table(score, probs, tuning.keys, self.seed)
            own = scores[np.arange(len(tuning)), tuning.labels]
            out.append(replace(one, score=score, tuning_scores=own))
        return out

    def _towards_others(
        self, engine: Engine, tuning: Evidence, fitted: FittedPooling
    ) -> FittedPooling:
        """With biases for the shares of classes among the nodes that are no evidence."""
        if tuning.drawn:
            return fitted
        others = engine.others(fitted.evidence.keys, self.seed, MOST_OTHERS)
        seen, usual = engine.rows([(Probs(), tuning.keys), (Probs(), others)])
        if not unlike(seen, usual, tuning.keys, self.seed):
            return fitted
        many = len(tuning) >= FEWEST * engine.num_classes
        _warn_unlike(seen.mean(axis=0), usual.mean(axis=0), many)
        if not many:
            return fitted
        tables = engine.rows([(part, others) for part in fitted.parts.values()])
        table = fitted.probabilities(dict(zip(fitted.parts, tables, strict=True)))
        counts = np.bincount(tuning.labels, minlength=engine.num_classes)
        shares = (counts + 1) / (counts.sum() + len(counts))
        return replace(fitted, bias=fitted.bias + moved_bias(table, shares))

    def _cross_fitted(
        self, engine: Engine, names: Sequence[str], tuning: Evidence, evidence: Evidence
    ) -> dict[str, Array]:
        """The tuning nodes' rows of every part, none of them made with the node's own label.

        The nodes are cut in folds, and a fold's rows are made without the fold's labels; the
        regression leaves out each node by itself.
        """
        fold = np.arange(len(tuning)) % (FOLDS if self.tuning_evidence else 1)
        asks: list[tuple[str, Part, Array]] = []
        for out in np.unique(fold):
            here = np.flatnonzero(fold == out)
            seen = evidence
            if self.tuning_evidence:
                seen = evidence.subset(~np.isin(evidence.keys, tuning.keys[here]))
            for name, part in make_parts(names, self.k, seen, self.search).items():
                if name != "regression":
                    asks.append((name, part, here))
        if "regression" in names:
            guesses = Regressed(self.k, evidence, self.tuning_evidence, self.search)
            asks.append(("regression", guesses, np.arange(len(tuning))))
        tables = engine.rows([(part, tuning.keys[places]) for _, part, places in asks])
        rows = {name: np.empty((len(tuning), engine.num_classes)) for name in names}
        for (name, _, places), table in zip(asks, tables, strict=True):
            rows[name][places] = table
        return rows


def _warn_unlike(tuning: Array, others: Array, many: bool) -> None:
    y = int(np.abs(tuning - others).argmax())
    done = "estimated without labels" if many else "kept: they are too few to estimate others"
    warn(
        f"the tuning nodes are not like the others: {tuning[y]:.0%} of them are of the class in "
        f"column {y} of probs as the classifier sees it, and {others[y]:.0%} elsewhere. The shares "
        f"of the classes are {done}; better, pass these nodes as known_nodes (role valid) and tune "
        "on a part of the calibration nodes"
    )


@dataclass(frozen=True)
class FittedPooling:
    """`Pooling` with everything chosen, and the labels that count as evidence.

    `tuning_scores` are those of the tuning nodes' labels, each by a fit that did not see it.
    """

    score: Score
    seed: int
    k: int
    evidence: Evidence
    weights: dict[str, float]
    bias: np.ndarray = field(hash=False, compare=False)
    search: Search = _USUAL
    tuning_scores: Array | None = field(default=None, hash=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.bias.flags.writeable = False

    def with_evidence(self, evidence: Evidence) -> FittedPooling:
        """The same weights with the labels of another graph."""
        return replace(self, evidence=evidence)

    def with_score(self, score: Score) -> FittedPooling:
        """The same weights with another basic score."""
        return replace(self, score=score)

    def pack(self) -> dict[str, Any]:
        """Which evidence is multiplied, and the weights."""
        return {
            "kind": "pooling",
            "k": self.k,
            "search": asdict(self.search),
            "weights": self.weights,
            "bias": self.bias,
        }

    @property
    def parts(self) -> dict[str, Part]:
        """What is multiplied."""
        return make_parts(tuple(self.weights), self.k, self.evidence, self.search)

    def shown(self, name: str, rows: Array) -> Array:
        """Log-probabilities; the regression's guesses, which may be negative, as they are."""
        rows = np.asarray(rows, np.float64)
        if name == "regression":
            return GUESS_SCALE * rows
        if name.startswith("propagated"):
            rows = rows + SMOOTHING
            rows = rows / rows.sum(axis=1, keepdims=True)
        return log_floor(rows)

    @calm
    def probabilities(self, rows: Mapping[str, Array]) -> Array:
        """The pooled probabilities."""
        first = next(iter(rows.values()))
        mixed = np.zeros_like(first) + self.bias
        for name, weight in self.weights.items():
            if weight:
                mixed += weight * self.shown(name, rows[name])
        return softmax(mixed)

    def combine(self, rows: Mapping[str, Array], keys: Keys) -> Array:
        """The basic score of the pooled probabilities."""
        return score_table(self.score, self.probabilities(rows), keys, self.seed)

    def shift(self, name: str, own: Array, other: Array, share: float, mean: Array) -> Array:
        """What the weighted evidence of a part would lose without one of its neighbours."""
        without = own if share >= 1 else (mean - share * other) / (1 - share)
        return self.weights[name] * (log_floor(mean) - log_floor(np.maximum(without, 0)))
