"""Labels that were drawn with unequal chances: coverage by counting every draw.

Enumeration has no error: every way to label a tiny pool counts with its probability. Broken weights
must fail it.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from snaps.conformal.calibration import Calibration


def exact_coverage(scores, chances, alpha, smoothed=False, classes=None, weigh=None) -> float:
    """The expected share of unlabelled nodes covered, given that one is labelled and one is not.

    With classes, of those of class 0, and given that one of them is unlabelled. `weigh` breaks the
    weights of calibration and test nodes.
    """
    n, chances = len(scores), np.asarray(chances)
    classes = np.zeros(n, int) if classes is None else np.asarray(classes)
    odds, covered, total = (1 - chances) / chances, 0.0, 0.0
    weights, own_weights = (odds, odds) if weigh is None else weigh(odds)
    for size in range(1, n):
        for drawn in combinations(range(n), size):
            calib = np.array(drawn)
            test = np.setdiff1d(np.flatnonzero(classes == 0), calib)
            if not len(test):
                continue
            left = np.setdiff1d(np.arange(n), calib)
            probability = chances[calib].prod() * (1 - chances[left]).prod()
            by_class = bool(classes.any())
            own = Calibration(
                scores[calib], classes[calib], 2, by_class=by_class, odds=weights[calib]
            )
            table = np.repeat(scores[test, None], 2, axis=1)
            if smoothed:  # over the random draw: from the smallest to the largest p-value
                low, high = (
                    own.p_values(table, 0, np.full(table.shape, u), own_weights[test])[:, 0]
                    for u in (0.0, 1.0)
                )
                hits = np.clip((high - alpha) / (high - low), 0, 1)
            else:
                hits = own.contains(table, alpha, odds=own_weights[test])[:, 0]
                p_values = own.p_values(table, odds=own_weights[test])[:, 0]
                assert np.array_equal(hits, p_values > alpha)
            covered += probability * hits.mean()
            total += probability
    return covered / total


CHANCES = [0.9, 0.7, 0.6, 0.4, 0.3, 0.2, 0.1]
SCORES = {
    "easy first": np.arange(7.0),
    "hard first": np.arange(7.0)[::-1],
    "mixed": np.array([3.0, 0, 5, 1, 6, 2, 4]),
    "ties": np.array([3.0, 0, 3, 1, 3, 2, 3]),
}


@pytest.mark.parametrize("alpha", [0.1, 0.25, 0.5])
@pytest.mark.parametrize("scores", SCORES)
def test_coverage_by_counting_every_draw(scores, alpha):
    assert exact_coverage(SCORES[scores], CHANCES, alpha) >= 1 - alpha - 1e-12
    smoothed = exact_coverage(SCORES[scores], CHANCES, alpha, smoothed=True)
    assert smoothed == pytest.approx(1 - alpha, abs=1e-12)


def test_class_thresholds_by_counting_every_draw():
    classes = [0, 1, 0, 0, 1, 0, 0]
    for scores in SCORES.values():
        assert exact_coverage(scores, CHANCES, 0.4, classes=classes) >= 0.6 - 1e-12


MUTANTS = {
    "inverted": lambda odds: (1 / odds, 1 / odds),
    "own weight dropped": lambda odds: (odds, 1e-9 * odds),
    "one own weight for all": lambda odds: (odds, np.full_like(odds, odds.mean())),
    "one over the chance": lambda odds: (1 + odds, 1 + odds),
    "plain": lambda odds: (odds**0, odds**0 + 1e-12),
}


@pytest.mark.parametrize("kind", MUTANTS)
def test_mutants_by_counting_every_draw(kind):
    found = [
        exact_coverage(scores, CHANCES, 0.5, smoothed=True, weigh=MUTANTS[kind])
        for scores in SCORES.values()
    ]
    assert max(abs(each - 0.5) for each in found) > 1e-3
