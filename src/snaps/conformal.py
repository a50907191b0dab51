"""Split conformal prediction on plain arrays of scores: rank, threshold, p-values and the law.

The guarantee these give is marginal: over the draw of calibration and test nodes from one pool, a
set holds the true label with probability at least 1 - alpha. It does not hold for each class or
node by itself, and not when calibration and test nodes come from different pools.
"""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np

from snaps._checks import check_alpha, check_integer
from snaps._errors import SnapsWarning


def conformal_rank(n: int, alpha: float | Fraction) -> int:
    """Rank of the threshold among n calibration scores: ceil((1 - alpha)(n + 1)), exactly.

    Floats would give one rank too many at times; alpha is read as the decimal that was written.
    A rank beyond n means that n is too small for alpha.

    Examples
    --------
    >>> conformal_rank(149, 0.18), math.ceil((1 - 0.18) * 150)
    (123, 124)
    """
    n = check_integer(n, "n", low=0)
    return math.ceil((1 - check_alpha(alpha)) * (n + 1))


def fewest_nodes(alpha: float | Fraction) -> int:
    """The smallest number of calibration nodes that gives a finite threshold."""
    return math.ceil(1 / check_alpha(alpha)) - 1


def checked_rank(n: int, alpha: float | Fraction, *, stacklevel: int = 3) -> int:
    """The conformal rank, with a warning when n is too small for a finite threshold."""
    rank = conformal_rank(n, alpha)
    if rank > n:
        warnings.warn(
            f"{n} calibration nodes are too few for alpha={float(alpha):g} "
            f"(at least {fewest_nodes(alpha)}): the threshold is infinite",
            SnapsWarning,
            stacklevel=stacklevel + 1,
        )
    return rank


def threshold(scores: np.ndarray, alpha: float | Fraction) -> float:
    """The conformal quantile of the calibration nodes' scores (n,) of their true labels.

    It is +infinity, with a warning, when they are too few.
    """
    rank = checked_rank(len(scores), alpha)
    return float(np.partition(scores, rank - 1)[rank - 1]) if rank <= len(scores) else math.inf


def class_thresholds(
    scores: np.ndarray, labels: np.ndarray, num_classes: int, alpha: float | Fraction
) -> np.ndarray:
    """A threshold for each class from its own calibration nodes.

    With them the guarantee holds within each class. A class with too few calibration nodes gets an
    infinite threshold and is then part of every set; one warning names such classes.
    """
    out = np.full(num_classes, math.inf)
    poor = []
    for y in range(num_classes):
        own = scores[labels == y]
        rank = conformal_rank(len(own), alpha)
        if rank > len(own):
            poor.append(f"{y} ({len(own)})")
        else:
            out[y] = np.partition(own, rank - 1)[rank - 1]
    if poor:
        shown = ", ".join(poor[:5]) + (", ..." if len(poor) > 5 else "")
        warnings.warn(
            f"{len(poor)} of {num_classes} classes have too few calibration nodes for "
            f"alpha={float(alpha):g} (at least {fewest_nodes(alpha)} each) and join every set: "
            f"class (nodes) {shown}",
            SnapsWarning,
            stacklevel=3,
        )
    return out


def p_values(
    calibration: np.ndarray, scores: np.ndarray, draws: np.ndarray | None = None
) -> np.ndarray:
    """Conformal p-values of scores of any shape against n calibration scores.

    Plain: (1 + #{calibration >= s}) / (n + 1), which is above alpha exactly for the labels of the
    prediction set. With `draws`, uniform and of the shape of `scores`, they are smoothed: ties
    count by chance and the p-value of a true label is exactly uniform.
    """
    ordered = np.sort(calibration)
    n = len(ordered)
    below = np.searchsorted(ordered, scores, side="left")
    if draws is None:
        return (1 + n - below) / (n + 1)
    upto = np.searchsorted(ordered, scores, side="right")
    return ((n - upto) + draws * (1 + upto - below)) / (n + 1)


def coverage_law(n: int, m: int, alpha: float | Fraction) -> Any:
    """The distribution of hits among m test nodes after calibrating on n, both drawn from one pool.

    A frozen SciPy BetaBinomial(m, r, n + 1 - r) with r the conformal rank. It is exact when scores
    don't tie; with ties there are more hits.

    Examples
    --------
    >>> law = coverage_law(n=99, m=1000, alpha=0.1)
    >>> float(law.mean())
    900.0
    """
    from scipy import stats

    n, m = check_integer(n, "n", low=1), check_integer(m, "m", low=1)
    rank = conformal_rank(n, alpha)
    if rank > n:
        return stats.binom(m, 1.0)
    return stats.betabinom(m, rank, n + 1 - rank)


def coverage_interval(
    n: int, m: int, alpha: float | Fraction, *, level: float = 0.99
) -> tuple[float, float]:
    """Where the coverage on m test nodes falls with probability `level`, by the law."""
    law = coverage_law(n, m, alpha)
    tail = (1 - level) / 2
    return float(law.ppf(tail)) / m, float(law.ppf(1 - tail)) / m
