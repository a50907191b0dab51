"""`Pooled`: evidence about a node's label multiplied, not scores averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from snaps._base import Estimator
from snaps._checks import check_flag, check_integer, check_neighbours, shown
from snaps._errors import SnapsError
from snaps._parts import Search
from snaps.pooling import PARTS, Pooling
from snaps.scores import THR, Score


@dataclass(eq=False, repr=False, kw_only=True)
class Pooled(Estimator):
    """Smaller sets than SNAPS's: probabilities from many sides are multiplied, then scored.

    For every node the classifier's opinion of the node itself, of its links, of similar nodes and
    of nodes in a similar context, known labels propagated over the graph, and a regression of known
    labels on features in context, are raised to fitted weights and multiplied; a basic score of the
    result gives the sets. The weights and a bias per class minimise the cross-entropy on the tuning
    nodes, whose labels count as known from then on.

    Parameters
    ----------
    alpha : float
        Miscoverage: sets hold the true label with probability at least 1 - alpha.
    score : Score
        Of the pooled probabilities. `THR` gives the smallest sets; `APS` sets whose size tells
        more about how hard a node is.
    parts : "auto" or sequence of str
        Which evidence to use, among own, linked, two_hop, similar, context, propagated,
        propagated_context and regression; "auto" takes all that the data allows.
    k : int
        Number of similar nodes.
    tuning_evidence : bool
        Whether the labels of tuning nodes, beside choosing the weights, are evidence about other
        nodes. The weights are then fitted with each label left out of its own node's evidence.
    neighbours : "auto", "exact" or "approximate"
        How similar nodes are looked for; "auto" is exact where that takes seconds.
    recall : float
        The share of similar nodes that an approximate search is to find.
    candidates : int, optional
        Look for similar nodes among so many random ones only, exactly.
    seed : int
        Fixes the draws of randomised scores and the choice of tuning nodes.
    class_conditional : bool
        One threshold per class, so that the guarantee holds within each class; the sets grow.

    Attributes
    ----------
    weights_ : dict of float
        What each part contributed.
    bias_ : array (K,)
        What each class gained or lost.
    probs_ : array (n, K)
        The pooled probabilities, often more accurate than the classifier's own.
    known_nodes_ : array of positions
    threshold_, scores_, score_, calib_nodes_, tune_nodes_, classes_ : see `SplitConformal`

    Notes
    -----
    The guarantee is SNAPS's: no label of a calibration or predicted node is used before the
    threshold, and nothing tells the two apart. Labels of known and tuning nodes are evidence for
    all alike.

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

    uses_evidence: ClassVar[bool] = True

    score: Score = THR()  # noqa: RUF009
    parts: Sequence[str] | Literal["auto"] = "auto"
    k: int = 20
    tuning_evidence: bool = True
    neighbours: Literal["auto", "exact", "approximate"] = "auto"
    recall: float = 0.95
    candidates: int | None = None

    def scorer(self) -> Pooling:
        """The evidence asked for."""
        self._check_shared()
        return Pooling(
            self.score,
            self.seed,
            check_integer(self.k, "k", low=1),
            _check_parts(self.parts),
            check_flag(self.tuning_evidence, "tuning_evidence"),
            Search(*check_neighbours(self.neighbours, self.recall, self.candidates)),
        )

    @property
    def weights_(self) -> dict[str, float]:
        """What each part contributed."""
        return dict(self._calibrated().scorer.weights)

    @property
    def bias_(self) -> np.ndarray:
        """What each class gained or lost."""
        return self._calibrated().scorer.bias

    @property
    def probs_(self) -> np.ndarray:
        """The pooled probabilities."""
        state, inputs = self._view()
        rows = {name: inputs.get(part) for name, part in state.scorer.parts.items()}
        return state.scorer.probabilities(rows)


def _check_parts(parts: Any) -> tuple[str, ...] | None:
    """The parts asked for, in their order; None for all that there are."""
    if isinstance(parts, str):
        if parts == "auto":
            return None
        raise SnapsError(f"'parts' must be 'auto' or a list of parts, got {shown(parts)}")
    try:
        asked = list(parts)
        known = all(isinstance(name, str) and name in PARTS for name in asked)
    except Exception:  # whatever iterating raises
        asked, known = [], False
    if not asked or not known or len(set(asked)) < len(asked):
        raise SnapsError(
            f"'parts' must be 'auto' or some of {', '.join(PARTS)}, got {shown(parts)}"
        )
    return tuple(name for name in PARTS if name in asked)
