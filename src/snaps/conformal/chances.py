"""Thresholds and p-values where nodes were labelled with unequal chances.

Each node i of a pool is labelled by itself with a known chance pi_i, and an unlabelled node j is
predicted. Given which n + 1 nodes are calibrated on or predicted, but not which of them is j, it is
node i with probability proportional to the odds w_i = (1 - pi_i) / pi_i: everything else in the
probability of the draw is the same for each of the n + 1 (weighted exchangeability, Tibshirani et
al. 2019). So the p-value of a label of node j with score s is

    (sum of w_i over calibration scores >= s, plus w_j) / (sum of w_i over all of them, plus w_j),

and the label is in the set if it is above alpha: if s is at most the smallest score q for which
the w_i of the scores <= q sum up to (1 - alpha)(sum of all w_i, plus w_j). The node's own w_j is in
both sums, so each node has its own threshold. A factor common to all odds cancels.

Labelled nodes that tune, chosen from all labelled ones at random, change nothing: given them, the
others were drawn as before. If a number of nodes was fixed beforehand, chances are as good as this
if each set of so many nodes was drawn with probability proportional to the product of its 1 / w_i.
"""

from __future__ import annotations

import math

import numpy as np

from snaps._runtime.randomness import SPLIT_STREAM, hashes, uniforms

# Why no interval of the coverage is shown.
UNEVEN = "no interval: labels drawn with unequal chances have no Beta-binomial coverage"


def effective_labels(odds: np.ndarray) -> float:
    """How many evenly drawn labels say as much: (sum of w)^2 / sum of w^2.

    >>> effective_labels(np.array([1.0, 1.0, 1.0])), effective_labels(np.array([4.0, 1.0, 1.0]))
    (3.0, 2.0)
    """
    largest = odds.max(initial=0.0)
    if largest == 0:
        return 0.0
    shares = odds / largest
    return float(shares.sum() ** 2 / (shares**2).sum())


def tail_sums(odds: np.ndarray) -> np.ndarray:
    """Sums (n + 1,) of the odds from each place on; the last one is 0.

    >>> tail_sums(np.array([1.0, 2.0, 4.0]))
    array([7., 6., 4., 0.])
    """
    return np.append(np.cumsum(odds[::-1])[::-1], 0.0)


def _p(above: np.ndarray, own: np.ndarray, total: float) -> np.ndarray:
    """p-values; 1 where the own odds are infinite or not known: such a node cannot be drawn."""
    with np.errstate(invalid="ignore"):
        values = (above + own) / (total + own)
    return np.where(np.isfinite(values), values, 1.0)


def weighted_limits(
    ordered: np.ndarray, tails: np.ndarray, own: np.ndarray, alpha: float
) -> np.ndarray:
    """The threshold (m,) of each node; infinite where its own odds outweigh the others'.

    `ordered` are the calibration scores (n,), sorted, `tails` the tail sums of their odds, and
    `own` the odds of the nodes.

    >>> scores, odds = np.arange(9.0), np.array([1.0] * 8 + [8.0])
    >>> weighted_limits(scores, tail_sums(odds), np.array([0.5, 1.0, 20.0]), 0.5)
    array([ 8.,  8., inf])
    """
    n = len(ordered)
    # The largest number of scores below, by bisection: p-values fall with it, rounded or not.
    low, high = np.zeros(len(own), np.int64), np.full(len(own), n)
    while (low < high).any():
        middle = (low + high + 1) // 2
        above = _p(tails[middle], own, tails[0]) > alpha
        low, high = np.where(above, middle, low), np.where(above, high, middle - 1)
    return np.append(ordered, math.inf)[low]


def weighted_p_values(
    scores: np.ndarray,
    ordered: np.ndarray,
    tails: np.ndarray,
    own: np.ndarray,
    draws: np.ndarray | None = None,
) -> np.ndarray:
    """p-values (m, K) of labels with these scores; see `weighted_limits` for the rest.

    With `draws`, uniform and of the shape of `scores`, ties count by chance.

    >>> scores, odds = np.array([1.0, 2.0]), np.array([2.0, 1.0])
    >>> weighted_p_values(np.array([[0.5, 2.0, 3.0]]), scores, tail_sums(odds), np.array([1.0]))
    array([[1.  , 0.5 , 0.25]])
    """
    own, total = own[:, None], tails[0]
    above = tails[np.searchsorted(ordered, scores, side="left")]
    if draws is None:
        return _p(above, own, total)
    higher = tails[np.searchsorted(ordered, scores, side="right")]
    with np.errstate(invalid="ignore"):
        values = (higher + draws * (above - higher + own)) / (total + own)
    return np.where(np.isfinite(values), values, draws)


def draw_uneven(
    seed: int,
    keys: np.ndarray,
    odds: np.ndarray,
    n_calib: int,
    n_splits: int,
    stream: int = SPLIT_STREAM,
) -> np.ndarray:
    """Draw nodes with unequal chances: each by itself, given that n_calib of them are drawn.

    Positions (n_splits, n_calib) within `keys`; `odds` are those against being drawn. Their scale
    makes no difference to which n_calib nodes are drawn, so it is set such that this number is
    drawn often, and other numbers are thrown away.

    >>> keys, odds = np.arange(3, dtype=np.uint64), np.array([0.1, 1.0, 10.0])
    >>> draws = draw_uneven(0, keys, odds, 1, 1000)  # 100, 10 and 1 of 111
    >>> np.bincount(draws.ravel())
    array([893,  96,  11])
    """
    from scipy.optimize import brentq
    from scipy.special import expit

    logs = -np.log(odds)
    spread = logs.max() - logs.min() + 50
    middle = float(np.median(logs))
    scale = brentq(lambda t: expit(logs + t).sum() - n_calib, -middle - spread, -middle + spread)
    chances = expit(logs + scale)[:, None]
    words, draws, block = hashes(seed, keys, stream), list[np.ndarray](), 0
    while len(draws) < n_splits:
        drawn = uniforms(block, words, 1 + 2**21 // len(keys)) < chances
        draws += [np.flatnonzero(drawn[:, i]) for i in np.flatnonzero(drawn.sum(axis=0) == n_calib)]
        block += 1
    return np.stack(draws[:n_splits])
