"""Lists with a false discovery rate: p-values and Benjamini-Hochberg by brute force.

On tiny pools every draw is counted, and mutants are rejected.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from snaps.conformal.selection import benjamini_hochberg, fewest_selected, wrong_counts

SEEDS = [1, 2, 3]


# ---- P-values and Benjamini-Hochberg, by brute force ---------------------------------------------


def brute_force(evidence, calibration, wrong, rate):
    """The definitions, one node at a time, in exact fractions."""
    n, m = len(calibration), len(evidence)
    p = [
        Fraction(1 + sum(w and c >= e for c, w in zip(calibration, wrong, strict=True)), n + 1)
        for e in evidence
    ]
    k = max([k for k in range(1, m + 1) if sorted(p)[k - 1] <= rate * k / m], default=0)
    return p, np.array([k > 0 and each <= rate * k / m for each in p], bool)


@pytest.mark.parametrize("seed", SEEDS)
def test_p_values_and_list_by_brute_force(seed):
    random = np.random.default_rng(seed)
    for _ in range(200):
        n, m = random.integers(1, 12), random.integers(0, 12)
        levels = random.choice([3, 1000])  # with many ties, and with hardly any
        evidence, calibration = (random.integers(0, levels, size) / levels for size in (m, n))
        wrong, rate = random.random(n) < 0.4, Fraction(int(random.integers(1, 20)), 20)
        counts = wrong_counts(evidence, calibration, wrong)
        p, selected = brute_force(evidence, calibration, wrong, rate)
        assert [Fraction(int(count), n + 1) for count in counts] == p
        assert (benjamini_hochberg(counts, n, rate) == selected).all()


def test_rates_are_compared_as_they_were_written():
    """29 / 1000 is more than 0.29 * 1 / 10 in floats, and equal as written."""
    assert 0.29 * 1 / 10 < 29 / 1000
    counts = np.array([29, *[900] * 9])
    assert benjamini_hochberg(counts, 999, Fraction("0.29")).sum() == 1
    assert benjamini_hochberg(counts, 999, Fraction("0.2899999")).sum() == 0


def test_the_shortest_list():
    for m, n, rate in [(1000, 499, "0.05"), (7, 3, "0.5"), (20, 19, "0.01")]:
        least = fewest_selected(m, n, Fraction(rate))
        for k in (least - 1, least):
            counts = np.full(m, n + 1)
            counts[: min(k, m)] = 1
            found = benjamini_hochberg(counts, n, Fraction(rate)).any()
            assert found == (least <= k <= m)


# ---- The promise on tiny pools: every draw counted -----------------------------------------------


def right(evidence, wrong, test, calib, rate):
    counts = wrong_counts(evidence[test], evidence[calib], wrong[calib])
    return benjamini_hochberg(counts, len(calib), rate)


def without_one(evidence, wrong, test, calib, rate):
    counts = wrong_counts(evidence[test], evidence[calib], wrong[calib]) - 1
    return _floats(counts / len(calib), rate)


def against_ties(evidence, wrong, test, calib, rate):
    """Calibration nodes with the same evidence don't count."""
    ordered = np.sort(evidence[calib][wrong[calib]])
    counts = 1 + len(ordered) - np.searchsorted(ordered, evidence[test], side="right")
    return benjamini_hochberg(counts, len(calib), rate)


def with_known(evidence, wrong, test, calib, rate):
    """As many nodes that trained the classifier, which it never gets wrong, among them."""
    counts = wrong_counts(evidence[test], evidence[calib], wrong[calib])
    return benjamini_hochberg(counts, 2 * len(calib), rate)


def _floats(p, rate):
    ordered, m = np.sort(p), len(p)
    met = np.flatnonzero(ordered <= float(rate) * np.arange(1, m + 1) / m)
    return p <= ordered[met[-1]] if met.size else np.zeros(m, bool)


POOLS = {
    "ordered": [0, 1, 2, 3, 4, 5, 6, 7, 8],
    "ties": [0, 0, 1, 1, 1, 2, 2, 2, 2],
    "all alike": [1] * 9,
}


def worst_excess(rule, n):
    """The largest mean false share minus its rate, over which nodes are wrong and over rates."""
    worst = -np.inf
    for values in POOLS.values():
        evidence, everyone = np.array(values, float), np.arange(9)
        for pattern in range(0, 512, 29):
            wrong = np.array([pattern >> i & 1 for i in range(9)], bool)
            for rate in (Fraction(1, 5), Fraction(2, 5), Fraction(3, 5)):
                shares = []
                for calib in combinations(range(9), n):
                    calib = np.array(calib)
                    test = np.delete(everyone, calib)
                    chosen = rule(evidence, wrong, test, calib, rate)
                    shares.append(wrong[test][chosen].mean() if chosen.any() else 0.0)
                worst = max(worst, np.mean(shares) - float(rate))
    return worst


@pytest.mark.parametrize("n", [2, 4, 6])
def test_the_promise_by_counting_every_draw(n):
    assert -0.15 < worst_excess(right, n) < 1e-12  # and it is nearly used up


@pytest.mark.parametrize("mutant", [without_one, against_ties, with_known])
def test_counting_rejects(mutant):
    assert worst_excess(mutant, 4) > 0.02
