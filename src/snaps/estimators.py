"""The estimators: SNAPS, its baselines, and `Pooled`. Each makes a scorer of its parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from snaps._checks import (
    check_flag,
    check_integer,
    check_neighbours,
    check_number,
    check_weights,
    shown,
)
from snaps.errors import SnapsError
from snaps.predictor.estimator import Estimator
from snaps.scores import APS, RAPS, THR, Score
from snaps.scoring.mixing import DAPS_GRID, SNAPS_GRID, Mixing
from snaps.scoring.parts import Links, Search, Similar
from snaps.scoring.pooling import PARTS, WITHOUT_REGRESSION, Pooling

TUNED = ("tune", "minimum")  # values of weights that are chosen on tuning nodes


class SplitConformal(Estimator):
    """Split conformal prediction with a basic score; the graph is not used.

    Parameters
    ----------
    alpha : float, or mapping from class to float
        Miscoverage: sets contain the true label with probability at least 1 - alpha. With
        ``class_conditional`` also a mapping from classes to such levels.
    score : Score
        `snaps.APS()`, `snaps.RAPS()`, `snaps.SAPS()`, `snaps.THR()` or your own.
    seed : int
        Fixes the draws of randomised scores and the choice of tuning nodes.
    class_conditional : bool
        One threshold per class, so that the guarantee holds within each class; the sets grow.
    class_floor : float, optional
        A least coverage for every class with enough calibration nodes, next to 1 - alpha on
        average; both are exact. Not with ``class_conditional``.
    confidence : float, optional
        Reach the coverage with this probability in the one draw of calibration nodes there is,
        instead of on average over draws.

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

    _traits: ClassVar[dict[str, Any]] = {"needs_graph": False}

    def _scorer(self) -> Mixing:
        """The basic score alone."""
        return Mixing(self.score, self.seed)


@dataclass(eq=False, repr=False, kw_only=True)
class DAPS(Estimator):
    """Diffusion over links: s^ = (1 - mu) S + mu A S.

    Parameters
    ----------
    weight : float, "tune" or "minimum"
        mu, the weight of the linked nodes. "tune" and "minimum" try 0, 0.05, ..., 0.95 on the
        tuning nodes; see `SNAPS`.
    alpha, score, seed, class_conditional, class_floor, confidence : see `SNAPS`

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

    def _scorer(self) -> Mixing:
        """Own and linked scores."""
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
    alpha : float, or mapping from class to float
        Miscoverage: sets contain the true label with probability at least 1 - alpha. With
        ``class_conditional`` also a mapping from classes to such levels.
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
        How similar nodes are searched for; "auto" is exact where that takes seconds.
    recall : float
        The share of similar nodes that an approximate search is to find.
    candidates : int, optional
        Search exactly among this many randomly sampled nodes, the same ones for all nodes.
    seed : int
        Fixes the draws of randomised scores and the choice of tuning nodes.
    class_conditional : bool
        One threshold per class, so that the guarantee holds within each class; the sets grow.
    class_floor : float, optional
        A least coverage for every class with enough calibration nodes, next to 1 - alpha on
        average; both are exact. Not with ``class_conditional``.
    confidence : float, optional
        Reach the coverage with this probability in the one draw of calibration nodes there is,
        instead of on average over draws.

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
    >>> cp = SNAPS(alpha=0.1)
    >>> cp = cp.calibrate(data.graph, probs, data.labels, nodes=np.arange(60, 260))
    >>> len(cp.predict_set(np.arange(260, 600)))
    340
    """

    _traits: ClassVar[dict[str, Any]] = {
        "without_features": "the graph has no features, so no node has similar ones: "
        "SNAPS is DAPS here"
    }

    k: int = 20
    weights: tuple[float, float] | Literal["tune", "minimum"] = "tune"
    neighbours: Literal["auto", "exact", "approximate"] = "auto"
    recall: float = 0.95
    candidates: int | None = None

    def _scorer(self) -> Mixing:
        """Own, similar and linked scores."""
        search = Search(*check_neighbours(self.neighbours, self.recall, self.candidates))
        similar = Similar(check_integer(self.k, "k", low=1), search=search)
        tuned = isinstance(self.weights, str) and self.weights in TUNED
        grid = SNAPS_GRID if tuned else (check_weights(self.weights),)
        averaged = tuned and self.weights == "tune"
        return Mixing(self.score, self.seed, similar, Links(), grid, (1 / 3, 1 / 3), averaged)


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
    score : Score
        Of the pooled probabilities. `THR` gives the smallest sets; `APS` sets whose size says
        more about how hard a node is.
    parts : "auto" or sequence of str
        Which evidence to use, among own, linked, two_hop, similar, context, propagated,
        propagated_context and regression; "auto" takes all that the data allows.
    tuning_evidence : bool
        Whether the labels of tuning nodes, which choose the weights, are also evidence about other
        nodes. The weights are then fitted with each label left out of its own node's evidence.
    alpha, k, neighbours, recall, candidates, seed, class_conditional, class_floor, \
    confidence : see `SNAPS`

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
    threshold, and nothing distinguishes the two. Labels of known and tuning nodes are evidence for
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

    _traits: ClassVar[dict[str, Any]] = {"uses_evidence": True}

    score: Score = THR()  # noqa: RUF009
    parts: Sequence[str] | Literal["auto"] = "auto"
    k: int = 20
    tuning_evidence: bool = True
    neighbours: Literal["auto", "exact", "approximate"] = "auto"
    recall: float = 0.95
    candidates: int | None = None

    def _scorer(self) -> Pooling:
        """The evidence asked for."""
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
        return self.part_weights_

    @property
    def bias_(self) -> np.ndarray:
        """What each class gained or lost."""
        scorer: Any = self._predictor().scorer
        return scorer.bias

    @property
    def probs_(self) -> np.ndarray:
        """The pooled probabilities."""
        predictor = self._predictor()
        scorer: Any = predictor.scorer
        inputs = predictor.inputs
        rows = {name: inputs.get(part) for name, part in scorer.parts.items()}
        return scorer.probabilities(rows)


def _check_parts(parts: Any) -> tuple[str, ...] | None:
    """The parts asked for, in their order; None for all that the data allows."""
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


COMPARED = ("APS", "RAPS", "THR", "DAPS", "SNAPS", "SNAPS on THR", "Pooled")
"""Those that `snaps evaluate` compares."""

CANDIDATES = (
    *COMPARED,
    "Pooled on APS",
    "APS, class thresholds",
    "Pooled, class thresholds",
    "Pooled, class floor",
)
"""Those that `snaps.advise` recommends from."""


def all_methods(alpha: float = 0.05, *, k: int = 20, seed: int = 0) -> dict[str, Estimator]:
    """Every method with its usual settings."""
    return {
        "APS": SplitConformal(alpha, score=APS(), seed=seed),
        "RAPS": SplitConformal(alpha, score=RAPS(), seed=seed),
        "THR": SplitConformal(alpha, score=THR(), seed=seed),
        "DAPS": DAPS(alpha, seed=seed),
        "SNAPS": SNAPS(alpha, k=k, seed=seed),
        "SNAPS, minimum": SNAPS(alpha, k=k, weights="minimum", seed=seed),
        "SNAPS, thirds": SNAPS(alpha, k=k, weights=(1 / 3, 1 / 3), seed=seed),
        "SNAPS on THR": SNAPS(alpha, score=THR(), k=k, seed=seed),
        "SNAPS on THR, thirds": SNAPS(alpha, score=THR(), k=k, weights=(1 / 3, 1 / 3), seed=seed),
        "SNAPS on RAPS": SNAPS(alpha, score=RAPS(), k=k, seed=seed),
        "Pooled": Pooled(alpha, k=k, seed=seed),
        "Pooled without regression": Pooled(
            alpha, k=k, parts=WITHOUT_REGRESSION, tuning_evidence=False, seed=seed
        ),
        "Pooled on APS": Pooled(alpha, score=APS(), k=k, seed=seed),
        "APS, class thresholds": SplitConformal(alpha, class_conditional=True, seed=seed),
        "Pooled, class thresholds": Pooled(alpha, k=k, class_conditional=True, seed=seed),
        "Pooled, class floor": Pooled(
            alpha, k=k, class_floor=max(1 - 2 * alpha, 0.0) or None, seed=seed
        ),
    }


def methods(
    names: Iterable[str], alpha: float = 0.05, *, k: int = 20, seed: int = 0
) -> dict[str, Estimator]:
    """Some of them, in the order asked for."""
    known = all_methods(alpha, k=k, seed=seed)
    for name in names:
        if name not in known:
            raise SnapsError(f"'methods' must be among {', '.join(known)}, got {name!r}")
    return {name: known[name] for name in names}
