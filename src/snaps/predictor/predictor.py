"""`Predictor`: the result of calibration, and the sets and p-values that it gives.

A `Method` is an estimator's parameters, checked; `Method.calibrate` makes a `Predictor`. Both are
immutable: an estimator replaces its `Predictor` as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, cast

import numpy as np

from snaps._checks import (
    Rates,
    check_disjoint,
    check_flag,
    check_level,
    check_share,
    plainly,
    warn_confidence,
)
from snaps._checks.named import class_order, column_names
from snaps._runtime.memory import taken
from snaps._runtime.progress import stage
from snaps._runtime.randomness import locate_keys
from snaps._version import __version__
from snaps.conformal.calibration import Calibration, Level, Promise
from snaps.conformal.chances import effective_labels
from snaps.errors import NotCalibratedError, SnapsError, warn
from snaps.graph import Graph
from snaps.predictor.chances import check_chances, check_promise, uneven, warn_full
from snaps.predictor.fingerprint import Fingerprint, Fingerprints
from snaps.predictor.roles import Roles, read_nodes, smoothing_draws
from snaps.scoring.evidence import Keys
from snaps.scoring.local import Inputs
from snaps.scoring.parts import Context, FittedScorer, Links, Scorer, Similar
from snaps.sets import PredictionSets, SetPromise, trusted_sets
from snaps.similarity import SimilarityGraph


@dataclass(frozen=True)
class Method:
    """An estimator's parameters, checked.

    Attributes
    ----------
    name : str
        The estimator's class.
    scorer : Scorer
        The method before its fit.
    level : Fraction or Rates
        The miscoverage, or that of each class.
    seed : int
    class_conditional : bool
    promise : Promise
        What is promised beyond an average coverage.
    needs_graph : bool
    uses_evidence : bool
        Whether labels of known nodes make a difference.
    items : bool
        Whether rows of features stand for a graph: items without links.
    without_features : str
        A warning for graphs without features, if any.
    """

    name: str
    scorer: Scorer
    level: Fraction | Rates
    seed: int
    class_conditional: bool = False
    promise: Promise = field(default_factory=Promise)
    needs_graph: bool = True
    uses_evidence: bool = False
    items: bool = False
    without_features: str = ""

    @property
    def alpha(self) -> Fraction:
        """The miscoverage; of several the smallest, which is tuned for."""
        return self.level.smallest if isinstance(self.level, Rates) else self.level

    def with_group_floor(self, group_floor: Any, groups: Any) -> Method:
        """The same with a floor for every group."""
        floor = check_share(group_floor, "group_floor")
        if floor is None:
            return self
        if groups is None:
            raise SnapsError("'groups' must be given with group_floor, got None")
        if self.class_conditional:
            raise SnapsError(
                "'group_floor' must be left out with class_conditional=True (--class-conditional), "
                f"got {plainly(group_floor)}"
            )
        return replace(self, promise=replace(self.promise, group_floor=floor))

    def check_smoothed(self, smoothed: Any) -> bool:
        """Whether sets are to be smoothed, which a promise with confidence does not allow."""
        if check_flag(smoothed, "smoothed") and self.promise.confidence is not None:
            raise SnapsError("'smoothed' must be False with confidence, got True")
        return bool(smoothed)

    def read(
        self, graph: Any, probs: Any, similarity: Any, logits: bool, classes: Any = None
    ) -> Inputs:
        """Check graph, probabilities and similarity graph as users pass them."""
        if self.items:
            graph = read_items(graph)
        elif graph is None and self.needs_graph:
            raise SnapsError(f"'graph' must be a snaps.Graph for {self.name}, got None")
        return Inputs.read(graph, probs, similarity, logits=logits, classes=classes)

    def warn_missing(self, has: frozenset[str]) -> None:
        """Warn where the data lacks what the method is about."""
        if self.without_features and "similar" not in has:
            warn(self.without_features)

    def calibrate(
        self,
        graph: Any,
        probs: Any,
        labels: Any,
        nodes: Any,
        *,
        similarity: Any = None,
        logits: bool = False,
        classes: Any = None,
        group_floor: Any = None,
        **roles: Any,
    ) -> Predictor:
        """From what users pass to `SNAPS.calibrate`; `roles` go to `Roles.read`."""
        method = self.with_group_floor(group_floor, roles.get("groups"))
        promise, missing = method.promise, roles.get("missing_labels", 0)
        if roles.get("chances") is not None:
            check_promise(promise, missing)
        if missing and (promise.class_floor is not None or promise.group_floor is not None):
            raise SnapsError(
                "'missing_labels' must be 0 with class_floor or group_floor, "
                f"got {plainly(missing)}"
            )
        warn_confidence(self.alpha)
        with stage("reading"):
            probs, classes = class_order(probs, labels, classes)
            inputs = self.read(graph, probs, similarity, logits, classes)
            read = Roles.read(
                inputs.graph, inputs.num_classes, labels, nodes, classes=classes,
                named=column_names(probs) is not None,
                tune=self.alpha if self.scorer.needs_tuning else None, seed=self.seed, **roles,
            )  # fmt: skip
        return method.fit(inputs, read)

    def fit(self, inputs: Inputs, roles: Roles, fitted: FittedScorer | None = None) -> Predictor:
        """Fit the scorer on the tuning nodes unless it is given, and set the threshold."""
        kept = fitted is not None
        if fitted is None:
            self.warn_missing(inputs.has)
            (fitted,) = self.scorer.fit(inputs, roles.tuning, roles.known, [self.alpha])
        level = level_for(self.level, roles.classes)
        positions = inputs.positions(roles.calib.keys)
        scores = inputs.score(fitted, positions)[np.arange(len(positions)), roles.calib.labels]
        scores.flags.writeable = False
        odds = None
        if roles.odds is not None and uneven(roles.odds, positions):
            odds = roles.odds[positions]
        calibration = Calibration(
            scores,
            roles.calib.labels,
            inputs.num_classes,
            roles.groups.codes[positions] if roles.groups.given else 0,
            len(roles.groups),
            self.class_conditional,
            self.promise,
            roles.missing,
            odds,
        )
        calibration.warn_few(level, roles.classes, roles.groups.names)
        if not kept and fitted.tuning_scores is not None:
            labels = roles.tuning.labels
            calibration.warn_weak(self.alpha, fitted.tuning_scores, labels, roles.classes)
        return Predictor(
            self, inputs, roles, fitted, calibration,
            given_similarity=inputs.similarity is not None and not len(roles.reference),
            weighted=inputs.graph.weighted, directed=inputs.graph.directed,
            fingerprints=_fingerprints(inputs, roles),
        )  # fmt: skip


def read_items(features: Any) -> Graph:
    """Items as a graph without links."""
    if features is None or (isinstance(features, Graph) and features.features is None):
        raise SnapsError("'features' must have a row for each item, got none")
    return features if isinstance(features, Graph) else Graph(None, features)


def most_demanding(methods: Iterable[Method]) -> Method:
    """The method whose inputs serve all of them, in whatever order they come."""
    return max(methods, key=lambda method: (method.needs_graph, not method.items))


@dataclass(frozen=True, eq=False)
class Predictor:
    """A fitted scorer, calibrated: both layers together.

    Attributes
    ----------
    method : Method
    data : Inputs or None
        None if it was saved without data; see `inputs`.
    roles : Roles
    scorer : FittedScorer
    calibration : Calibration
    given_similarity : bool
        Whether the user passed the similarity graph.
    weighted : bool
        Whether links had weights.
    directed : bool or None
        Whether links had a direction; None in files without a record of it.
    apart : bool
        Whether the graph is another than the one calibrated on: no node of it was used.
    asked : Fraction, Rates or None
        Another level than the one calibrated for.
    fingerprints : mapping of str to Fingerprint
        What nodes looked like: those "used" (calibration, tuning, known) and the "reference".
    """

    method: Method
    data: Inputs | None
    roles: Roles
    scorer: FittedScorer
    calibration: Calibration
    given_similarity: bool = False
    weighted: bool = False
    directed: bool | None = None
    apart: bool = False
    asked: Fraction | Rates | None = None
    fingerprints: Mapping[str, Fingerprint] = field(default_factory=dict)

    @property
    def inputs(self) -> Inputs:
        """Graph and probabilities; an error if it was saved without them."""
        if self.data is None:
            raise NotCalibratedError(
                f"this {self.method.name} was saved without data: call recalibrate() with a "
                "graph and probabilities first"
            )
        return self.data

    @property
    def num_tuned(self) -> int:
        """How many nodes parameters were chosen on."""
        return len(self.roles.tuning) if self.method.scorer.needs_tuning else 0

    def at(self, alpha: Any, quiet: bool = False) -> Predictor:
        """The same at another level; warns where that level needs more nodes."""
        level = check_level(alpha, self.method.class_conditional)
        if level == self.method.level:
            return self
        new = replace(self, asked=level)
        if not quiet:
            warn_confidence(new.alpha)
            self.calibration.warn_few(new.level, self.roles.classes, self.roles.groups.names)
        return new

    @property
    def level(self) -> Level:
        """The level of the sets, or one per class."""
        level = self.method.level if self.asked is None else self.asked
        return cast("Level", level_for(level, self.roles.classes))

    @property
    def alpha(self) -> Fraction:
        """The level of the sets; of several the smallest."""
        level = self.level
        return min(level) if isinstance(level, tuple) else level  # type: ignore[return-value]

    def counts(self, positions: np.ndarray | None = None) -> np.ndarray | None:
        """How many nodes of each group are predicted: by default all that were not used.

        None where thresholds don't depend on it.
        """
        if self.method.promise.confidence is None or self.data is None:
            return None
        positions = self.wanted(None) if positions is None else positions
        codes = self.roles.groups.codes[positions]
        return np.bincount(codes, minlength=len(self.roles.groups))

    def odds(self, positions: np.ndarray) -> np.ndarray | None:
        """The odds of nodes against having been drawn; None where thresholds don't depend on it."""
        uneven = self.calibration.odds is not None and self.roles.odds is not None
        return self.roles.odds[positions] if uneven else None  # type: ignore[index]

    @property
    def effective_labels(self) -> float | None:
        """How many evenly drawn labels say as much; None where no chances were given."""
        odds = self.calibration.odds
        if self.roles.odds is None:
            return None
        return float(len(self.calibration)) if odds is None else effective_labels(odds)

    def limits_of(self, positions: np.ndarray, counted: np.ndarray | None = None) -> np.ndarray:
        """The thresholds of nodes (m or 1, classes or 1); those `counted` are predicted."""
        codes = self.roles.groups.codes[positions]
        counts, odds = self.counts(counted), self.odds(positions)
        return np.atleast_2d(self.calibration.limits_of(self.level, codes, counts, odds))

    def threshold(self, positions: np.ndarray | None = None) -> Any:
        """A number; an array per class or group; or, with unequal chances, one per node."""
        if self.calibration.odds is None:
            return self.calibration.threshold(self.level, self.counts(positions))
        limits = self.limits_of(
            np.arange(self.inputs.num_nodes) if positions is None else positions
        )
        return limits if self.calibration.per_class else limits[:, 0]

    # -- which nodes --------------------------------------------------------------------------

    def used(self) -> Iterator[tuple[str, Keys]]:
        """Keys of the nodes whose labels were used, with a name for messages."""
        if not self.apart:
            yield "the calibration nodes", self.roles.calib.keys
            yield "the tuning nodes", self.roles.tuning.keys
            yield "the known nodes", self.roles.known.keys

    def wanted(self, nodes: Any) -> np.ndarray:
        """Positions of the nodes asked for; by default of all that were not used."""
        inputs = self.inputs
        if nodes is None:
            rest = np.ones(inputs.num_nodes, bool)
            used = [*(keys for _, keys in self.used()), self.roles.reference]
            rest[inputs.positions(np.concatenate(used))] = False
            return np.flatnonzero(rest)
        wanted = read_nodes(inputs.graph, nodes, "nodes", True)
        self._refuse("the reference, which is not to be predicted", self.roles.reference, wanted)
        if not self.apart:
            known = "the known nodes, whose labels were used"
            self._refuse(known, self.roles.known.keys, wanted)
        return wanted

    def refuse_used(self, wanted: np.ndarray) -> None:
        """Refuse nodes whose labels were used, and those that could not be drawn."""
        for name, keys in self.used():
            self._refuse(name, keys, wanted)
        if self.roles.odds is not None:
            check_chances(self.roles.odds, self.inputs.graph, wanted, "nodes")

    def _refuse(self, name: str, keys: Keys, wanted: np.ndarray) -> None:
        if len(keys):
            inputs = self.inputs
            check_disjoint(wanted, "nodes", inputs.positions(keys), name, inputs.graph.ids)

    def _predicted(self, nodes: Any) -> np.ndarray:
        """As `wanted`; warns of nodes that were used."""
        wanted = self.wanted(nodes)
        if self.roles.odds is not None:
            check_chances(self.roles.odds, self.inputs.graph, wanted, "nodes")
        if nodes is not None and not self.apart:
            used = np.zeros(self.inputs.num_nodes, bool)
            for labelled in (self.roles.calib, self.roles.tuning):
                used[self.inputs.positions(labelled.keys)] = True
            count = int(np.count_nonzero(used[wanted]))
            if count:
                warn(
                    f"{count} of the nodes were used to calibrate or tune: the guarantee does "
                    "not apply"
                )
        return wanted

    # -- sets and p-values ------------------------------------------------------------------------

    def sets(
        self, nodes: Any = None, smoothed: bool = False, empty: str = "keep"
    ) -> PredictionSets:
        """Prediction sets, by default of all nodes that were not used."""
        return self.sets_of(self._predicted(nodes), smoothed, empty)

    def sets_of(
        self, positions: np.ndarray, smoothed: bool = False, empty: str = "keep"
    ) -> PredictionSets:
        """As `sets`, of nodes that are checked already."""
        if empty not in ("keep", "top"):
            raise SnapsError(f"'empty' must be 'keep' or 'top', got {plainly(empty)}")
        smoothed = self.method.check_smoothed(smoothed)
        sets = self.sets_at(positions, smoothed)
        if empty == "top":
            bare = np.flatnonzero(~sets.mask.any(axis=1))
            top = np.asarray(taken(self.inputs.probs, sets.nodes[bare])).argmax(axis=1)
            sets.mask[bare, top] = True
        made = {
            "version": __version__,
            "method": self.method.name,
            "score": repr(self.scorer.score),
            "alpha": self.shown_level(),
            **self.shown_promise(),
            **({"empty": empty} if empty == "top" else {}),
            "seed": self.method.seed,
            "calibration_nodes": len(self.roles.calib),
            "tuning_nodes": len(self.roles.tuning),
        }
        if self.calibration.odds is not None:
            made["effective_labels"] = effective_labels(self.calibration.odds)
            warn_full(self.limits_of(sets.nodes), len(self.calibration), float(self.alpha))
        sets.metadata = {f"snaps.{name}": str(value) for name, value in made.items()}
        return sets

    def shown_level(self) -> float | dict[str, float]:
        """The miscoverage as JSON has it: a number, or one per class by name."""
        level = self.level
        if not isinstance(level, tuple):
            return float(level)
        names = [str(name) for name in self.roles.classes]
        return {name: float(rate) for name, rate in zip(names, level, strict=True)}

    def promised(self, kind: str) -> list[float | None] | None:
        """The coverage promised for each "class" or "group"; None where nothing is."""
        calibration, level = self.calibration, self.level
        count = len(self.roles.classes if kind == "class" else self.roles.groups)
        if kind in calibration.kind:
            rates = level if isinstance(level, tuple) else (level,) * count
            return [float(1 - rate) for rate in rates]
        floor, poor = calibration.floor_of(kind)
        return None if floor is None else [None if few else float(floor) for few in poor]

    def shown_promise(self) -> dict[str, float]:
        """What is promised beyond an average, by name, as JSON has it."""
        promise = vars(self.method.promise)
        return {name: float(value) for name, value in promise.items() if value is not None}

    def p_values(self, nodes: Any = None, smoothed: bool = False) -> np.ndarray:
        """Conformal p-values (m, K); nodes as for `sets`."""
        return self._p_values_at(self._predicted(nodes), check_flag(smoothed, "smoothed"))

    def sets_at(self, positions: np.ndarray, smoothed: bool = False) -> PredictionSets:
        """Prediction sets of the nodes at these positions."""
        inputs, roles, level = self.inputs, self.roles, self.level
        confidence = self.method.promise.confidence
        draws = self._draws(positions) if smoothed else None
        codes, counts = roles.groups.codes[positions], self.counts(positions)
        odds = self.odds(positions)
        scores = inputs.score(self.scorer, positions)
        mask = self.calibration.contains(scores, level, codes, counts, odds, draws)
        kind = self.calibration.kind
        promise = SetPromise(
            kind,
            np.full(inputs.num_classes, np.array(level, np.float64)),
            None if "class" in kind else self.promised("class"),
            None if confidence is None else float(confidence),
        )
        ids = np.asarray(taken(inputs.graph.ids, positions))
        sets = trusted_sets(mask, positions, ids, inputs.num_nodes, roles.classes, {})
        sets.promise = promise
        return sets

    def _p_values_at(self, positions: np.ndarray, smoothed: bool) -> np.ndarray:
        draws = self._draws(positions) if smoothed else None
        scores = self.inputs.score(self.scorer, positions)
        codes, odds = self.roles.groups.codes[positions], self.odds(positions)
        return self.calibration.p_values(scores, codes, draws, odds)

    def _draws(self, positions: np.ndarray) -> np.ndarray:
        """The draws that break ties in smoothed sets and p-values."""
        keys, calib = self.inputs.keys[positions], self.roles.calib.keys
        return smoothing_draws(self.method.seed, calib, keys, self.inputs.num_classes)

    def searches(self) -> dict[str, dict[str, Any]]:
        """How similar nodes, and those in a similar context, were searched for."""
        searches = {}
        for recipe, graph in self.inputs.made(Similar, Context).items():
            if isinstance(graph, SimilarityGraph):
                among = recipe.search.candidates
                searches[type(recipe).__name__.lower()] = {
                    "method": graph.method,
                    "recall": graph.recall,
                    "candidates": None if among is None else min(among, self.inputs.num_nodes),
                }
        return searches

    def labels_of_used(self) -> np.ndarray:
        """Label codes (n,) of the nodes whose labels were used; -1 elsewhere."""
        codes = np.full(self.inputs.num_nodes, -1)
        if not self.apart:
            for nodes in (self.roles.calib, self.roles.tuning, self.roles.known):
                positions, rows = locate_keys(self.inputs.keys, nodes.keys)
                codes[positions] = nodes.labels[rows]
        return codes


def level_for(level: Fraction | Rates, classes: Iterable[Any]) -> Any:
    """A level, or one per class in the order of the classes."""
    return level.in_order(classes) if isinstance(level, Rates) else level


def _fingerprints(inputs: Inputs, roles: Roles) -> Mapping[str, Fingerprint]:
    """What the used nodes look like now, to recognise them by on another graph."""
    used = np.concatenate([roles.calib.keys, roles.tuning.keys, roles.known.keys])
    made_later = Fingerprints(inputs, {"used": used, "reference": roles.reference})
    # Features, which the user may overwrite later, matter to scores that average over neighbours.
    return dict(made_later) if inputs.made(Links, Similar, Context) else made_later
