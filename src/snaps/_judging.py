"""What a method would give at a user's own number of calibration nodes, from held-out levels.

The threshold of n calibration nodes covers a share of the pool whose distribution is known (a beta
distribution), so any number of them can be played through with the levels at hand. Errors come
from halves: numbers of a random half of the nodes vary as much about those of all as these would
among other draws of nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from snaps import metrics
from snaps._runtime.randomness import uniforms
from snaps.conformal.rank import conformal_rank
from snaps.scoring.evidence import Labelled
from snaps.sets import PredictionSets

NUMBERS = ("size", "singleton_hit", "class_gap", "sscv")
CHANCES = 20  # thresholds that stand for all that a draw of calibration nodes may give
FULL = 1.0  # the level that admits every label


@dataclass(frozen=True, eq=False)
class Judged:
    """The four numbers of one method.

    Attributes
    ----------
    means : array (4,)
    halves : array (splits, 4)
        The same from random halves of the nodes, the same halves for every method.
    """

    means: np.ndarray
    halves: np.ndarray

    @property
    def errors(self) -> np.ndarray:
        """Standard errors (4,)."""
        return self.halves.std(axis=0, ddof=1)

    def beyond(self, other: Judged) -> tuple[np.ndarray, np.ndarray]:
        """By how much the numbers are above another method's, and the standard errors of that."""
        errors = (self.halves - other.halves).std(axis=0, ddof=1)
        return self.means - other.means, errors


def judge(
    levels: np.ndarray,
    nodes: Labelled,
    splits: np.ndarray,
    n_calib: int,
    alpha: Fraction,
    by_class: bool,
    seed: int,
) -> Judged:
    """Play calibration with `n_calib` nodes through.

    Parameters
    ----------
    levels : array (m, K)
        Of the nodes' labels, held out.
    splits : array (splits, m // 2)
        Random halves; each calibrates once, and the other half is predicted.
    """
    m, num_classes = levels.shape
    own = levels[np.arange(m), nodes.labels]
    cells = nodes.labels if by_class else np.zeros(m, np.int64)
    width = num_classes if by_class else 1
    budgets = np.round(n_calib * np.bincount(cells, minlength=width) / m).astype(int)

    def thresholds(chosen: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """(draws, width), set on some of the nodes; `draws` are uniform, (draws, width)."""
        columns = [
            _thresholds(own[chosen][cells[chosen] == cell], budgets[cell], alpha, draws[:, cell])
            for cell in range(width)
        ]
        return np.stack(columns, axis=1)

    def size(limits: np.ndarray) -> float:
        return float(limits.mean() * num_classes)

    evenly = np.repeat((np.arange(CHANCES)[:, None] + 0.5) / CHANCES, width, axis=1)
    chance = uniforms(seed, np.arange(len(splits), dtype=np.uint64), width)
    halves = np.empty((len(splits), len(NUMBERS)))
    for trial, calib in enumerate(splits):
        test = np.delete(np.arange(m), calib)
        limits = thresholds(calib, chance[trial : trial + 1])
        sets = PredictionSets(levels[test] <= limits, test, num_nodes=m)
        halves[trial] = (
            size(thresholds(calib, evenly)),
            metrics.singleton_hit(sets, nodes.labels),
            metrics.class_gap(sets, nodes.labels, float(alpha)),
            metrics.sscv(sets, nodes.labels, float(alpha)),
        )
    means = halves.mean(axis=0)
    means[0] = size(thresholds(np.arange(m), evenly))
    return Judged(means, halves)


def _thresholds(own: np.ndarray, n: int, alpha: Fraction, draws: np.ndarray) -> np.ndarray:
    """Thresholds that n calibration nodes, of which `own` are a sample, set with these chances."""
    from scipy.special import betaincinv

    rank = conformal_rank(n, alpha)
    if rank > n or not len(own):
        return np.full(len(draws), FULL)
    covered = betaincinv(rank, n + 1 - rank, draws)
    return np.interp(covered * (len(own) + 1), np.arange(1, len(own) + 1), np.sort(own))
