"""What all estimators share: score, aggregate, tune, calibrate, predict, in one path."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from snaps import conformal, metrics
from snaps._checks import (
    check_alpha,
    check_disjoint,
    check_flag,
    check_integer,
    check_known,
    check_labels,
    check_nodes,
    check_probs,
    check_seed,
    check_similarity,
    check_weights,
)
from snaps._errors import SnapsError
from snaps._explanation import Explanation, explain
from snaps._randomness import SMOOTH_STREAM, hashes, node_keys, uniforms
from snaps.aggregation import ScoreField, score_field
from snaps.graph import Graph
from snaps.scores import RAPS, Score, check_score, score_table
from snaps.sets import PredictionSets
from snaps.similarity import similarity_graph
from snaps.tuning import (
    enough,
    mixing_weights,
    split_budget,
    tune_score,
    tune_weights,
    warn_untuned,
)


@dataclass(frozen=True)
class Inputs:
    """What is known of every node, checked once; nothing here knows who calibrates or is predicted.

    Methods that share inputs share what is made of them: each table and graph is made once.

    Attributes
    ----------
    given : csr_array or None
        The similarity graph that the user brought.
    known : array (n,) or None
        Labels that may be used as evidence, -1 elsewhere.
    """

    graph: Graph | None
    probs: np.ndarray
    keys: np.ndarray
    given: sp.csr_array | None = None
    known: np.ndarray | None = None
    made: dict[Any, Any] = field(default_factory=dict, repr=False)

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` gives, made on the first call with this key."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def scores(self, score: Score, seed: int) -> np.ndarray:
        """The table of a basic score."""
        make = partial(score_table, score, self.probs, self.keys, seed)
        return self.once(("scores", score, seed), make) if isinstance(score, Hashable) else make()

    def similar(self, k: int) -> sp.csr_array | None:
        """The similarity graph; None without features."""
        if self.given is not None or self.graph is None or self.graph.features is None:
            return self.given
        make = partial(similarity_graph, self.graph.features, k, ids=self.keys)
        return self.once(("similar", k), make)


@dataclass(frozen=True)
class Fit:
    """The parameters a method chose, and the scores they give to every node and label."""

    score: Score
    weights: Any
    field: ScoreField
    scores: np.ndarray
    bias: np.ndarray | None = None


class Estimator:
    """What the estimators share."""

    _parts: ClassVar[tuple[str, ...]] = ("own",)
    _saved: ClassVar[str] = "own"  # the table (n, K) from which a saved estimator is rebuilt

    alpha: float | Fraction
    score: Score
    seed: int
    class_conditional: bool

    # -- what a subclass says -------------------------------------------------------------------

    def _grid(self) -> list[tuple[float, float]] | None:
        """Pairs (lam, mu) to choose from, or None when the weights are fixed."""
        return None

    def _fixed_weights(self) -> tuple[float, float]:
        """The weights when they are fixed, or when there are too few nodes to tune."""
        return 0.0, 0.0

    def _check_parameters(self) -> None:
        check_alpha(self.alpha)
        check_score(self.score)
        check_seed(self.seed)
        check_flag(self.class_conditional, "class_conditional")

    # -- left of the wall: no labels, no roles --------------------------------------------------

    def _prepare(self, graph: Graph | None, probs: Any, similarity: Any, logits: bool) -> Inputs:
        if graph is not None and not isinstance(graph, Graph):
            raise SnapsError(f"'graph' must be a snaps.Graph, got {type(graph).__name__}")
        if graph is None and len(self._parts) > 1:
            raise SnapsError(f"'graph' must be a snaps.Graph for {type(self).__name__}, got None")
        n = None if graph is None else graph.num_nodes
        table = check_probs(probs, num_nodes=n, logits=check_flag(logits, "logits"))
        keys = node_keys(np.arange(len(table))) if graph is None else graph.keys
        given = None
        if similarity is not None and "similar" in self._parts:
            given = check_similarity(similarity, len(table))
        return Inputs(graph, table, keys, given)

    def _similarity(self, inputs: Inputs) -> sp.csr_array | None:
        """The similarity graph, for the methods that use one."""
        return None

    def _field(self, inputs: Inputs, score: Score) -> ScoreField:
        own = inputs.scores(score, self.seed)
        return score_field(own, inputs.graph, self._similarity(inputs), self._parts)

    # -- right of the wall: tuning, then calibration --------------------------------------------

    @property
    def needs_tuning(self) -> bool:
        """Whether anything is left to be chosen on tuning nodes."""
        tuned_score = isinstance(self.score, RAPS) and self.score.needs_tuning
        return tuned_score or self._grid() is not None

    def _fit(self, inputs: Inputs, nodes: np.ndarray, labels: np.ndarray, alpha: Fraction) -> Fit:
        """Choose score parameters and weights on the tuning `nodes`, then score every node."""
        own = labels[nodes]
        score = tune_score(
            self.score, inputs.probs[nodes], inputs.keys[nodes], own, alpha, self.seed
        )
        field = self._field(inputs, score)
        grid = self._grid()
        if grid is None:
            weights = self._fixed_weights()
        elif enough(len(nodes), alpha):
            weights = tune_weights(field, nodes, own, grid, alpha)
        else:
            weights = self._fixed_weights()
            warn_untuned(len(nodes), f"lam={weights[0]:.3g}, mu={weights[1]:.3g}")
        return self._mixed(score, field, weights)

    def _mixed(self, score: Score, field: ScoreField, weights: tuple[float, float]) -> Fit:
        return Fit(score, weights, field, field.mix(self._mixing(weights)))

    def _mixing(self, weights: tuple[float, float]) -> dict[str, float]:
        """What each of this method's parts weighs."""
        return {k: w for k, w in mixing_weights(*weights).items() if k in self._parts}

    def calibrate(
        self,
        graph: Graph | None,
        probs: Any,
        labels: Any,
        nodes: Any,
        tune_nodes: Any = None,
        similarity: Any = None,
        logits: bool = False,
    ) -> Self:
        """Score every node and set the threshold on the calibration nodes.

        Parameters
        ----------
        graph : Graph
            May be None for `SplitConformal`.
        probs : array (n, K)
            Class probabilities of every node, or logits with ``logits=True``.
        labels : int array (n,)
            -1 where unknown; only calibration and tuning nodes need one.
        nodes : array of positions, or mask (n,)
            Calibration nodes: drawn at random from the same pool as the nodes to predict, and not
            used to train the classifier.
        tune_nodes : array of positions, or mask (n,), optional
            Nodes to choose parameters on. They may be any labelled nodes but those that calibrate
            (validation nodes cost nothing). By default a seeded half of `nodes`, at most 500, is
            spent on tuning when there is anything to tune.
        similarity : sparse (n, n), optional
            A similarity graph at hand, for instance from `snaps.similarity_graph`.
        logits : bool

        Returns
        -------
        self
        """
        return self._calibrate(graph, probs, labels, nodes, tune_nodes, similarity, logits)

    def _calibrate(
        self,
        graph: Graph | None,
        probs: Any,
        labels: Any,
        nodes: Any,
        tune_nodes: Any,
        similarity: Any,
        logits: bool,
        known_nodes: Any = None,
    ) -> Self:
        self._check_parameters()
        alpha = check_alpha(self.alpha)
        inputs = self._prepare(graph, probs, similarity, logits)
        n, num_classes = inputs.probs.shape
        table = check_labels(labels, num_nodes=n, num_classes=num_classes)
        calib = check_nodes(nodes, "nodes", num_nodes=n)
        check_known(table, calib, "nodes")
        if tune_nodes is not None:
            tune = check_nodes(tune_nodes, "tune_nodes", num_nodes=n)
            check_known(table, tune, "tune_nodes")
            check_disjoint(tune, "tune_nodes", calib, "'nodes'")
        elif self.needs_tuning:
            tune, calib = split_budget(calib, inputs.keys, alpha, self.seed)
        else:
            tune = calib[:0]
        inputs = with_known(
            inputs, known_nodes, table, {"'nodes'": calib, "the tuning nodes": tune}
        )
        fit = self._fit(inputs, tune, table, alpha)
        self._settle(inputs, fit, calib, table[calib], tune)
        return self

    def _settle(
        self, inputs: Inputs, fit: Fit, calib: np.ndarray, labels: np.ndarray, tune: np.ndarray
    ) -> None:
        """Keep what prediction, explanation and saving need."""
        self._graph, self._similarity_graph = inputs.graph, self._similarity(inputs)
        self._field_ = fit.field
        self.score_, self.weights_, self.scores_ = fit.score, fit.weights, fit.scores
        self.calib_nodes_, self.calib_labels_, self.tune_nodes_ = calib, labels, tune
        self.calib_scores_ = fit.scores[calib, labels]
        self.threshold_ = self._threshold(check_alpha(self.alpha))

    def _threshold(self, alpha: Fraction) -> Any:
        if self.class_conditional:
            return conformal.class_thresholds(
                self.calib_scores_, self.calib_labels_, self.scores_.shape[1], alpha
            )
        return conformal.threshold(self.calib_scores_, alpha)

    def _check_calibrated(self) -> None:
        if not hasattr(self, "threshold_"):
            raise SnapsError(
                f"this {type(self).__name__} must be calibrated first: call calibrate()"
            )

    @property
    def _ids(self) -> np.ndarray:
        """The nodes' own names."""
        return np.arange(len(self.scores_)) if self._graph is None else self._graph.ids

    def _nodes(self, nodes: Any) -> np.ndarray:
        """The nodes asked for; by default all that neither calibrated nor tuned."""
        self._check_calibrated()
        if nodes is not None:
            return check_nodes(nodes, "nodes", num_nodes=len(self.scores_), empty=True)
        rest = np.ones(len(self.scores_), bool)
        rest[self.calib_nodes_] = rest[self.tune_nodes_] = rest[self._evidence_nodes] = False
        return np.flatnonzero(rest)

    @property
    def _evidence_nodes(self) -> np.ndarray:
        """Nodes whose labels went into the scores: none, but for methods that use such."""
        return np.empty(0, np.int64)

    def predict_set(self, nodes: Any = None, alpha: float | None = None) -> PredictionSets:
        """Prediction sets of some nodes.

        Parameters
        ----------
        nodes : array of positions, or mask (n,), optional
            By default all nodes that neither calibrated nor tuned. The guarantee speaks of nodes
            drawn from the same pool as the calibration nodes; not of nodes that calibrated, tuned
            or trained the classifier.
        alpha : float, optional
            Another level than the one calibrated for; the weights stay.

        Returns
        -------
        PredictionSets
        """
        wanted = self._nodes(nodes)
        threshold = self.threshold_ if alpha is None else self._threshold(check_alpha(alpha))
        mask = self.scores_[wanted] <= threshold
        return PredictionSets(mask, wanted, self._ids[wanted], len(self.scores_))

    def predict_p(self, nodes: Any = None, smoothed: bool = False) -> np.ndarray:
        """Conformal p-values (m, K); a label is in the set at alpha when its p-value is above.

        Parameters
        ----------
        nodes : array of positions, or mask (n,), optional
        smoothed : bool
            Let chance decide ties, which makes the p-values of true labels exactly uniform.
        """
        wanted = self._nodes(nodes)
        scores = self.scores_[wanted]
        draws = None
        if check_flag(smoothed, "smoothed"):
            keys = hashes(0, node_keys(self._ids[wanted]), SMOOTH_STREAM)
            draws = uniforms(self.seed, keys, scores.shape[1])
        if not self.class_conditional:
            return conformal.p_values(self.calib_scores_, scores, draws)
        columns = [
            conformal.p_values(
                self.calib_scores_[self.calib_labels_ == y],
                scores[:, y],
                None if draws is None else draws[:, y],
            )
            for y in range(scores.shape[1])
        ]
        return np.stack(columns, axis=1)

    def evaluate(self, labels: Any, nodes: Any = None) -> dict[str, Any]:
        """Compare the sets of labelled nodes with the truth.

        Parameters
        ----------
        labels : int array (n,)
        nodes : array of positions, or mask (n,), optional
            By default all labelled nodes that neither calibrated nor tuned.

        Returns
        -------
        dict
            coverage, size, size_nonempty, singleton_hit, empty, n, threshold, and
            coverage_interval: where the coverage falls with probability 0.99 if the nodes were
            drawn from the same pool as the calibration nodes (None with class thresholds).
        """
        self._check_calibrated()
        n, num_classes = self.scores_.shape
        known = check_labels(labels, num_nodes=n, num_classes=num_classes)
        wanted = self._nodes(nodes)
        if nodes is None:
            wanted = wanted[known[wanted] >= 0]
        if wanted.size == 0:
            raise SnapsError("'nodes' must hold at least one labelled node, got none")
        check_known(known, wanted, "nodes")
        check_disjoint(wanted, "nodes", self.calib_nodes_, "the calibration nodes")
        check_disjoint(wanted, "nodes", self.tune_nodes_, "the tuning nodes")
        sets = self.predict_set(wanted)
        interval = None
        if not self.class_conditional:
            interval = conformal.coverage_interval(
                len(self.calib_nodes_), len(wanted), check_alpha(self.alpha)
            )
        return {
            "coverage": metrics.coverage(sets, known),
            "size": metrics.size(sets),
            "size_nonempty": metrics.size_nonempty(sets),
            "singleton_hit": metrics.singleton_hit(sets, known),
            "empty": metrics.empty(sets),
            "n": len(wanted),
            "threshold": self.threshold_,
            "coverage_interval": interval,
        }

    def explain(self, node: int) -> Explanation:
        """Why each label is in or out of a node's set, and which neighbours moved its score."""
        self._check_calibrated()
        node = check_integer(node, "node", low=0, high=len(self.scores_) - 1)
        links = {
            "similar": self._similarity_graph,
            "linked": None if self._graph is None else self._graph.adjacency,
        }
        mix = self._mixing(self.weights_)
        return explain(node, self._ids, self._field_, mix, links, self.threshold_)

    def _pack(self) -> dict[str, np.ndarray]:
        """What `save` must keep for this method, beside graphs, nodes and parameters."""
        return {"own": self._field_.parts["own"]}

    def _unpack(
        self, inputs: Inputs, score: Score, weights: Any, arrays: Mapping[str, np.ndarray]
    ) -> tuple[Inputs, Fit]:
        """Compute anew what was not kept; `inputs.probs` is the saved table."""
        field = score_field(inputs.probs, inputs.graph, inputs.given, self._parts)
        return inputs, self._mixed(score, field, check_weights(weights))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calibrated estimator to one file, whole or not at all; see `snaps.load`."""
        from snaps._persistence import save

        self._check_calibrated()
        save(self, path)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={value!r}"
            for name, value in vars(self).items()
            if not name.startswith("_") and not name.endswith("_")
        )
        return f"{type(self).__name__}({shown})"


def pack_csr(name: str, matrix: sp.csr_array) -> dict[str, np.ndarray]:
    """A sparse matrix as arrays, for saving."""
    return {f"{name}_{field}": getattr(matrix, field) for field in ("data", "indices", "indptr")}


def with_known(
    inputs: Inputs, known_nodes: Any, labels: np.ndarray, others: Mapping[str, np.ndarray]
) -> Inputs:
    """The inputs with the labels of `known_nodes` as evidence; no one else's label may be there."""
    if known_nodes is None:
        return inputs
    nodes = check_nodes(known_nodes, "known_nodes", num_nodes=len(labels), empty=True)
    if nodes.size == 0:
        return inputs
    check_known(labels, nodes, "known_nodes")
    for name, other in others.items():
        check_disjoint(nodes, "known_nodes", other, name)
    known = np.full(len(labels), -1)
    known[nodes] = labels[nodes]
    return replace(inputs, known=known)
