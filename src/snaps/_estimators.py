"""The paper's estimators and its baselines: which scorer, then calibrate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from snaps._base import Estimator
from snaps._checks import check_integer, check_neighbours, check_number, check_weights, shown
from snaps._errors import SnapsError, warn
from snaps._inputs import Inputs
from snaps._parts import Links, Search, Similar
from snaps.scorers import DAPS_GRID, SNAPS_GRID, Mixing

TUNED = ("tune", "minimum")  # what may stand for weights that are chosen


class SplitConformal(Estimator):
    """Split conformal prediction with a basic score; the graph is not used.

    Parameters
    ----------
    alpha : float
        Miscoverage: sets hold the true label with probability at least 1 - alpha.
    score : Score
        `snaps.APS()`, `snaps.RAPS()`, `snaps.SAPS()`, `snaps.THR()` or your own.
    seed : int
        Fixes the draws of randomised scores and the choice of tuning nodes.
    class_conditional : bool
        One threshold per class, so that the guarantee holds within each class; the sets grow.

    Attributes
    ----------
    threshold_ : float, or array (K,) with class thresholds
    scores_ : array (n, K)
    calib_nodes_, tune_nodes_ : arrays of positions
    score_ : Score, its parameters chosen
    classes_ : array (K,)

    Examples
    --------
    >>> import numpy as np
    >>> probs = np.tile([0.6, 0.3, 0.1], (40, 1))
    >>> labels = np.array([0, 0, 0, 1] * 10)
    >>> cp = SplitConformal(alpha=0.1).calibrate(None, probs, labels, nodes=np.arange(20))
    >>> len(cp.predict_set())
    20
    """

    needs_graph: ClassVar[bool] = False

    def scorer(self) -> Mixing:
        """The basic score alone."""
        self._check_shared()
        return Mixing(self.score, self.seed)


@dataclass(eq=False, repr=False, kw_only=True)
class DAPS(Estimator):
    """Diffusion over links: s^ = (1 - mu) S + mu A S.

    Parameters
    ----------
    alpha : float
    score : Score
    weight : float, "tune" or "minimum"
        mu, the weight of the linked nodes. "tune" and "minimum" try 0, 0.05, ..., 0.95 on the
        tuning nodes; see `SNAPS`.
    seed : int
    class_conditional : bool

    Attributes
    ----------
    weights_ : (0.0, mu)
    threshold_, scores_, score_, calib_nodes_, tune_nodes_, classes_ : see `SplitConformal`

    Examples
    --------
    >>> import numpy as np
    >>> import snaps
    >>> from snaps.datasets import make_graph
    >>> from snaps.models import smoothed_regression
    >>> data = make_graph(600, 4, seed=1)
    >>> probs = smoothed_regression(data.graph, data.labels, np.arange(60))
    >>> cp = snaps.DAPS(alpha=0.1, weight=0.5)
    >>> cp = cp.calibrate(data.graph, probs, data.labels, nodes=np.arange(60, 260))
    >>> cp.weights_
    (0.0, 0.5)
    >>> cp.predict_set(np.arange(260, 600))
    PredictionSets(340 nodes, 4 classes, mean size 1.00)
    """

    weight: float | Literal["tune", "minimum"] = "tune"

    def scorer(self) -> Mixing:
        """Own and linked scores."""
        self._check_shared()
        if isinstance(self.weight, str):
            if self.weight not in TUNED:
                raise SnapsError(
                    "'weight' must be a number from 0 to 1, 'tune' or 'minimum', "
                    f"got {shown(self.weight)}"
                )
            grid = DAPS_GRID
        else:
            grid = ((0.0, check_number(self.weight, "weight", low=0, high=1)),)
        averaged = self.weight == "tune"
        return Mixing(
            self.score, self.seed, None, Links(), grid, fallback=(0.0, 0.5), averaged=averaged
        )


@dataclass(eq=False, repr=False, kw_only=True)
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
    weights : (lam, mu), "tune" or "minimum"
        lam weighs the k most similar nodes, mu the linked ones. "minimum" takes the pair with the
        smallest sets on the tuning nodes, of all pairs of multiples of 0.05 with lam + mu <= 1, as
        the paper does. "tune" averages the minima of 24 resamples of the tuning nodes and leans to
        (1/3, 1/3) where they are few, which gives smaller sets on other nodes.
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
    weights_ : (lam, mu)
    threshold_, scores_, score_, calib_nodes_, tune_nodes_, classes_ : see `SplitConformal`

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

    k: int = 20
    weights: tuple[float, float] | Literal["tune", "minimum"] = "tune"
    neighbours: Literal["auto", "exact", "approximate"] = "auto"
    recall: float = 0.95
    candidates: int | None = None

    def scorer(self) -> Mixing:
        """Own, similar and linked scores."""
        self._check_shared()
        search = Search(*check_neighbours(self.neighbours, self.recall, self.candidates))
        similar = Similar(check_integer(self.k, "k", low=1), search=search)
        tuned = isinstance(self.weights, str) and self.weights in TUNED
        grid = SNAPS_GRID if tuned else (check_weights(self.weights),)
        averaged = tuned and self.weights == "tune"
        return Mixing(self.score, self.seed, similar, Links(), grid, (1 / 3, 1 / 3), averaged)

    def warn_of(self, inputs: Inputs) -> None:
        if "similar" not in inputs.has:
            warn("the graph has no features, so no node has similar ones: SNAPS is DAPS here")
