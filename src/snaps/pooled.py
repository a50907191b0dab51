"""`Pooled`: evidence about a node's label multiplied, not scores averaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp

from snaps._checks import (
    check_disjoint,
    check_integer,
    check_labels,
    check_number,
    check_similarity,
    shown,
)
from snaps._errors import SnapsError
from snaps._explanation import Explanation, explain_pool
from snaps.aggregation import ScoreField
from snaps.estimator import Estimator, Fit, Inputs, pack_csr
from snaps.evidence import NEEDS, PARTS, Sources, context_features
from snaps.graph import Graph, csr_from_arrays
from snaps.pooling import Pool, equal_pool, fit_pool
from snaps.scores import THR, Score, score_table
from snaps.similarity import similarity_graph
from snaps.tuning import enough, tune_score, warn_untuned


class Pooled(Estimator):
    """Smaller sets than SNAPS's: probabilities from many sides are multiplied, then scored.

    For every node the classifier's opinion of the node itself, of its links, of similar nodes and
    of nodes in a similar context, and known labels spread over the graph, are raised to fitted
    weights and multiplied; a basic score of the result gives the sets. The weights and a bias a
    class minimise the cross-entropy on the tuning nodes.

    Parameters
    ----------
    alpha : float
        Miscoverage: sets hold the true label with probability at least 1 - alpha.
    score : Score
        Of the pooled probabilities. `THR` gives the smallest sets; `APS` sets whose size tells
        more about how hard a node is.
    parts : "auto" or sequence of str
        Which evidence to use, among own, linked, two_hop, similar, context, spread and
        spread_context; "auto" takes all that the data allows.
    k : int
        Number of similar nodes.
    seed : int
        Fixes the draws of randomised scores and the choice of tuning nodes.
    class_conditional : bool
        One threshold a class, so that the guarantee holds within each class; the sets grow.

    Attributes
    ----------
    weights_ : dict of float
        What each part contributed.
    bias_ : array (K,)
        What each class gained or lost.
    probs_ : array (n, K)
        The pooled probabilities, often more accurate than the classifier's own.
    known_nodes_ : array of positions
    threshold_, scores_, score_, calib_nodes_, tune_nodes_ : see `SplitConformal`

    Notes
    -----
    The guarantee is SNAPS's: no label of a calibration or predicted node is used before the
    threshold, and nothing tells the two apart. Labels of known nodes are evidence for all alike.

    Examples
    --------
    >>> from snaps.datasets import make_graph
    >>> from snaps.models import smoothed_regression
    >>> data = make_graph(600, 4, seed=1)
    >>> train, calib = np.arange(60), np.arange(60, 260)
    >>> probs = smoothed_regression(data.graph, data.labels, train)
    >>> cp = Pooled(alpha=0.1).calibrate(data.graph, probs, data.labels, calib, known_nodes=train)
    >>> len(cp.predict_set())
    340
    """

    _parts = PARTS
    _saved = "probs"

    def __init__(
        self,
        alpha: float = 0.05,
        *,
        score: Score = THR(),  # noqa: B008
        parts: Sequence[str] | Literal["auto"] = "auto",
        k: int = 20,
        seed: int = 0,
        class_conditional: bool = False,
    ):
        self.alpha = alpha
        self.score = score
        self.parts = parts
        self.k = k
        self.seed = seed
        self.class_conditional = class_conditional

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_integer(self.k, "k", low=1)
        self._asked()

    def _asked(self) -> tuple[str, ...] | None:
        """The parts asked for, in their order; None for all that there are."""
        if isinstance(self.parts, str):
            if self.parts == "auto":
                return None
            raise SnapsError(f"'parts' must be 'auto' or a list of parts, got {shown(self.parts)}")
        try:
            asked = list(self.parts)
        except TypeError:
            asked = []
        if not asked or any(name not in PARTS for name in asked) or len(set(asked)) < len(asked):
            raise SnapsError(
                f"'parts' must be 'auto' or some of {', '.join(PARTS)}, got {shown(self.parts)}"
            )
        return tuple(name for name in PARTS if name in asked)

    @property
    def needs_tuning(self) -> bool:
        """Always: the weights and biases."""
        return True

    # -- left of the wall -----------------------------------------------------------------------

    def _similarity(self, inputs: Inputs) -> sp.csr_array | None:
        return inputs.similar(self.k) if self._wants("similar") else None

    def _context(self, inputs: Inputs) -> sp.csr_array | None:
        """The nodes with the most similar features and surroundings."""
        graph = inputs.graph
        assert graph is not None

        def make() -> sp.csr_array | None:
            features = context_features(graph)
            return None if features is None else similarity_graph(features, self.k, ids=graph.keys)

        if not self._wants("context", "spread_context"):
            return None
        return inputs.once(("context", self.k), make)

    def _wants(self, *names: str) -> bool:
        asked = self._asked()
        return asked is None or any(name in asked for name in names)

    def _sources(self, inputs: Inputs) -> Sources:
        assert inputs.graph is not None
        similar, context = self._similarity(inputs), self._context(inputs)
        return Sources(inputs.probs, inputs.graph, similar, context, inputs.known)

    def _evidence(self, inputs: Inputs) -> ScoreField:
        """The parts, made once for all levels that share these inputs."""
        sources = self._sources(inputs)
        asked, there = self._asked(), sources.available
        if asked is None:
            names = there
        else:
            names = tuple(name for name in asked if name in there)
            missing = [name for name in asked if name not in there]
            if missing:
                raise SnapsError(
                    f"'parts' must be among those that the data allows, got {missing[0]!r} "
                    f"without {NEEDS[missing[0]]}"
                )
        return ScoreField(
            {
                name: inputs.once(("evidence", name, self.k), partial(sources.part, name))
                for name in names
            }
        )

    # -- right of the wall ----------------------------------------------------------------------

    def calibrate(
        self,
        graph: Graph | None,
        probs: Any,
        labels: Any,
        nodes: Any,
        tune_nodes: Any = None,
        similarity: Any = None,
        logits: bool = False,
        known_nodes: Any = None,
    ) -> Self:
        """Pool the evidence and set the threshold on the calibration nodes.

        Parameters
        ----------
        graph, probs, labels, nodes, tune_nodes, similarity, logits : see `SNAPS.calibrate`
        known_nodes : array of positions, or mask (n,), optional
            Nodes whose labels may be used as evidence: training and validation nodes. They must
            not calibrate, tune or be predicted.

        Returns
        -------
        self
        """
        return self._calibrate(
            graph, probs, labels, nodes, tune_nodes, similarity, logits, known_nodes
        )

    def _fit(self, inputs: Inputs, nodes: np.ndarray, labels: np.ndarray, alpha: Fraction) -> Fit:
        field = self._evidence(inputs)
        # In the order of their ids: the fit then does not depend on the order of the nodes.
        nodes = nodes[np.argsort(inputs.keys[nodes])]
        if enough(len(nodes), alpha):
            # The fit knows no level and no score, so those that share these inputs share it.
            own = {name: part[nodes] for name, part in field.parts.items()}
            key = ("pool", self.k, tuple(own), nodes.tobytes(), labels[nodes].tobytes())
            pool = inputs.once(key, partial(fit_pool, own, labels[nodes]))
        else:
            pool = equal_pool(tuple(field.parts), inputs.probs.shape[1])
            warn_untuned(len(nodes), "equal weights and no biases")
        pooled = pool.probabilities(field.parts)
        score = tune_score(
            self.score, pooled[nodes], inputs.keys[nodes], labels[nodes], alpha, self.seed
        )
        scores = score_table(score, pooled, inputs.keys, self.seed)
        return Fit(score, pool.weights, field, scores, pool.bias)

    def _mixing(self, weights: Any) -> dict[str, float]:
        return dict(weights)

    def _settle(
        self, inputs: Inputs, fit: Fit, calib: np.ndarray, labels: np.ndarray, tune: np.ndarray
    ) -> None:
        self._inputs, self.bias_ = inputs, fit.bias
        none = np.empty(0, np.int64)
        self.known_nodes_ = none if inputs.known is None else np.flatnonzero(inputs.known >= 0)
        super()._settle(inputs, fit, calib, labels, tune)

    @property
    def probs_(self) -> np.ndarray:
        """The pooled probabilities."""
        self._check_calibrated()
        return self._pool().probabilities(self._field_.parts)

    def _pool(self) -> Pool:
        assert self.bias_ is not None
        return Pool(dict(self.weights_), self.bias_)

    @property
    def _evidence_nodes(self) -> np.ndarray:
        return self.known_nodes_

    def _nodes(self, nodes: Any) -> np.ndarray:
        wanted = super()._nodes(nodes)
        check_disjoint(
            wanted, "nodes", self.known_nodes_, "the known nodes, whose labels were used"
        )
        return wanted

    def explain(self, node: int) -> Explanation:
        """Why each label is in or out of a node's set, and which neighbours spoke for or against.

        The parts are log-probabilities. A neighbour's shift is what the weighted evidence of its
        part would lose without it.
        """
        self._check_calibrated()
        node = check_integer(node, "node", low=0, high=len(self.scores_) - 1)
        return explain_pool(
            node, self._ids, self._field_, self._sources(self._inputs), self._pool(),
            self.scores_[node], self.threshold_,
        )  # fmt: skip

    # -- saving ---------------------------------------------------------------------------------

    def _pack(self) -> dict[str, np.ndarray]:
        assert self.bias_ is not None
        arrays = {"probs": self._inputs.probs, "bias": self.bias_}
        if self._inputs.known is not None:
            arrays["known"] = self._inputs.known
        context = self._context(self._inputs)
        return arrays if context is None else arrays | pack_csr("context", context)

    def _unpack(
        self, inputs: Inputs, score: Score, weights: Any, arrays: Mapping[str, np.ndarray]
    ) -> tuple[Inputs, Fit]:
        n, num_classes = inputs.probs.shape
        if "context_data" in arrays:
            near = check_similarity(csr_from_arrays(arrays, "context", "it", (n, n)), n, "context")
            inputs.once(("context", self.k), lambda: near)
        if "known" in arrays:
            known = check_labels(arrays["known"], "known", num_nodes=n, num_classes=num_classes)
            inputs = replace(inputs, known=known)
        field = self._evidence(inputs)
        bias = arrays["bias"]
        if bias.shape != (num_classes,) or not np.isfinite(bias).all():
            raise SnapsError(f"'bias' must be finite of shape ({num_classes},), got {bias.shape}")
        if set(weights) != set(field.parts):
            raise SnapsError(f"'weights' must name {', '.join(field.parts)}, got {shown(weights)}")
        pool = Pool({k: check_number(weights[k], "weights", low=-1e6) for k in field.parts}, bias)
        scores = score_table(score, pool.probabilities(field.parts), inputs.keys, self.seed)
        return inputs, Fit(score, pool.weights, field, scores, bias)
