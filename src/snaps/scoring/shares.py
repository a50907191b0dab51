"""Tuning nodes that are not like the others: noticed, and the shares of classes estimated again.

Validation nodes are often balanced by class where the graph is not; weights and biases fitted on
them then carry the wrong shares. No label is needed to see it: what the classifier says of the
tuning nodes and of the others differs by more than chance.
"""

from __future__ import annotations

import numpy as np

from snaps._runtime.randomness import SHARES_STREAM, hashes, uniforms
from snaps.scoring.evidence import Keys

MOST_OTHERS = 20_000  # of whom the shares are estimated
RESAMPLES, BEYOND_CHANCE = 50, 3.0  # how chance is measured, and how many deviations are too many
# The estimate is pulled to the tuning nodes' shares as if by so many of the others, and no class is
# taken to be more than that many times as frequent or as rare.
PULL, MOST = 0.1, 10.0
FEWEST = 5  # tuning nodes a class, on average: with fewer their own shares are not known


def unlike(tuning: np.ndarray, others: np.ndarray, keys: Keys, seed: int) -> bool:
    """Whether the mean probabilities of tuning nodes (t, K) are not those of the others (m, K).

    Compared with as many of the others, drawn again and again by the tuning nodes' `keys`. Those
    stray from a mean that they belong to; the tuning nodes from one that strays itself.
    """
    if not len(tuning) or not len(others):
        return False
    draws = uniforms(0, hashes(seed, keys, SHARES_STREAM), RESAMPLES)
    usual = others.mean(axis=0)
    chance = np.array(
        [_distance(others[places].mean(axis=0), usual) for places in _places(draws, len(others))]
    )
    limit = chance.mean() + BEYOND_CHANCE * chance.std()
    return _distance(tuning.mean(axis=0), usual) > limit * np.sqrt(1 + len(tuning) / len(others))


def _places(draws: np.ndarray, count: int) -> np.ndarray:
    return (draws.T * count).astype(np.int64)


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    return 0.5 * float(np.abs(one - other).sum())


def moved_bias(table: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """What to add to log-probabilities that were fitted where classes have these shares (K,).

    `table` (m, K) has the probabilities of other nodes. Their shares are those that explain it
    best (Saerens et al. 2002), by expectation and maximisation.
    """
    m, found = len(table), shares
    for _ in range(200):
        weighted = table * (found / shares)
        weighted /= weighted.sum(axis=1, keepdims=True)
        again = (weighted.sum(axis=0) + PULL * m * shares) / (m + PULL * m)
        moved = np.abs(again - found).max()
        found = again
        if moved < 1e-6:
            break
    return np.log(np.clip(found / shares, 1 / MOST, MOST))
