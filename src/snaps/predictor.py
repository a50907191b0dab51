"""The estimators `SplitConformal`, `DAPS` and `SNAPS`, with the same verbs.

They differ in the parts of the score field they mix and in how the weights are chosen; the rest is
`snaps.estimator`.
"""

from __future__ import annotations

import warnings
from typing import Any, Literal

import scipy.sparse as sp

from snaps._checks import check_integer, check_number, check_weights, shown
from snaps._errors import SnapsError, SnapsWarning
from snaps.estimator import Estimator, Inputs
from snaps.graph import Graph
from snaps.scores import APS, Score
from snaps.tuning import daps_grid, snaps_grid


class SplitConformal(Estimator):
    """Split conformal prediction with a basic score; the graph is not used.

    Parameters
    ----------
    alpha : float
        Miscoverage: sets hold the true label with probability at least 1 - alpha.
    score : Score
        `snaps.APS()`, `snaps.RAPS()`, `snaps.SAPS()`, `snaps.THR()` or your own.
    seed : int
    class_conditional : bool
        One threshold a class, so that the guarantee holds within each class; the sets grow.

    Attributes
    ----------
    threshold_ : float, or array (K,) with class thresholds
    scores_ : array (n, K)
    calib_nodes_, tune_nodes_ : arrays of positions
    score_ : Score, its parameters chosen

    Examples
    --------
    >>> import numpy as np
    >>> probs = np.tile([0.6, 0.3, 0.1], (40, 1))
    >>> labels = np.array([0, 0, 0, 1] * 10)
    >>> cp = SplitConformal(alpha=0.1).calibrate(None, probs, labels, nodes=np.arange(20))
    >>> len(cp.predict_set())
    20
    """

    def __init__(
        self,
        alpha: float = 0.05,
        *,
        score: Score = APS(),  # noqa: B008 - scores are immutable
        seed: int = 0,
        class_conditional: bool = False,
    ):
        self.alpha = alpha
        self.score = score
        self.seed = seed
        self.class_conditional = class_conditional


class DAPS(Estimator):
    """Diffusion over links: s^ = (1 - mu) S + mu A S.

    Parameters
    ----------
    alpha : float
    score : Score
    weight : float or "tune"
        mu, the weight of the linked nodes; tuned over 0, 0.05, ..., 0.95.
    seed : int
    class_conditional : bool

    Attributes
    ----------
    weights_ : (0.0, mu)
    threshold_, scores_, score_, calib_nodes_, tune_nodes_ : see `SplitConformal`
    """

    _parts = ("own", "linked")

    def __init__(
        self,
        alpha: float = 0.05,
        *,
        score: Score = APS(),  # noqa: B008
        weight: float | Literal["tune"] = "tune",
        seed: int = 0,
        class_conditional: bool = False,
    ):
        self.alpha = alpha
        self.score = score
        self.weight = weight
        self.seed = seed
        self.class_conditional = class_conditional

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not isinstance(self.weight, str):
            check_number(self.weight, "weight", low=0, high=1)
        elif self.weight != "tune":
            raise SnapsError(
                f"'weight' must be a number from 0 to 1 or 'tune', got {shown(self.weight)}"
            )

    def _grid(self) -> list[tuple[float, float]] | None:
        return daps_grid() if self.weight == "tune" else None

    def _fixed_weights(self) -> tuple[float, float]:
        return 0.0, 0.5 if self.weight == "tune" else float(self.weight)


class SNAPS(Estimator):
    """Similarity-navigated adaptive prediction sets: s^ = (1 - lam - mu) S + lam As S + mu A S.

    Parameters
    ----------
    alpha : float
        Miscoverage: sets hold the true label with probability at least 1 - alpha.
    score : Score
        The basic score S.
    k : int
        Number of similar nodes.
    weights : (lam, mu) or "tune"
        lam weighs the k most similar nodes, mu the linked ones. "tune" tries all pairs of
        multiples of 0.05 with lam + mu <= 1 on the tuning nodes.
    seed : int
        Fixes the draws of randomised scores and the choice of tuning nodes.
    class_conditional : bool
        One threshold a class, so that the guarantee holds within each class; the sets grow.

    Attributes
    ----------
    weights_ : (lam, mu)
    threshold_, scores_, score_, calib_nodes_, tune_nodes_ : see `SplitConformal`

    Notes
    -----
    The guarantee is marginal and asks that calibration nodes are a random draw from the pool of
    nodes to be predicted. A node without similar or linked nodes keeps that weight for itself.
    Cost: the similarity graph once (see `similarity_graph`), then two sparse products.

    Examples
    --------
    >>> import numpy as np
    >>> from snaps.datasets import make_graph
    >>> from snaps.models import smoothed_regression
    >>> data = make_graph(600, 4, seed=1)
    >>> probs = smoothed_regression(data.graph, data.labels, np.arange(60))
    >>> cp = SNAPS(alpha=0.1).calibrate(data.graph, probs, data.labels, nodes=np.arange(60, 260))
    >>> len(cp.predict_set(np.arange(260, 600)))
    340
    """

    _parts = ("own", "similar", "linked")

    def __init__(
        self,
        alpha: float = 0.05,
        *,
        score: Score = APS(),  # noqa: B008
        k: int = 20,
        weights: tuple[float, float] | Literal["tune"] = "tune",
        seed: int = 0,
        class_conditional: bool = False,
    ):
        self.alpha = alpha
        self.score = score
        self.k = k
        self.weights = weights
        self.seed = seed
        self.class_conditional = class_conditional

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_integer(self.k, "k", low=1)
        if not (isinstance(self.weights, str) and self.weights == "tune"):
            check_weights(self.weights)

    def _grid(self) -> list[tuple[float, float]] | None:
        return snaps_grid() if isinstance(self.weights, str) else None

    def _fixed_weights(self) -> tuple[float, float]:
        if isinstance(self.weights, str):
            return 1 / 3, 1 / 3
        return check_weights(self.weights)

    def _prepare(self, graph: Graph | None, probs: Any, similarity: Any, logits: bool) -> Inputs:
        inputs = super()._prepare(graph, probs, similarity, logits)
        if inputs.given is None and inputs.graph is not None and inputs.graph.features is None:
            warnings.warn(
                "the graph has no features, so no node has similar ones: SNAPS is DAPS here",
                SnapsWarning,
                stacklevel=4,
            )
        return inputs

    def _similarity(self, inputs: Inputs) -> sp.csr_array | None:
        return inputs.similar(self.k)
