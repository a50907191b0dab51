"""How many labels: exact against brute force, and what cannot be planned is refused."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import snaps
from snaps.conformal.coverage import coverage_law
from snaps.conformal.planning import closeness
from tests.helpers.small import error_line


def summed(n, alpha, within, m):
    """P(coverage within 1 - alpha +- within), term by term, or by SciPy for any number of nodes."""
    low, high = 1 - alpha - within, 1 - alpha + within
    if m is None:
        rank = math.ceil((1 - alpha) * (n + 1))
        if rank > n:
            return float(high >= 1)
        law = stats.beta(rank, n + 1 - rank)
        return law.cdf(float(high)) - law.cdf(float(low))
    hits = np.arange(max(math.ceil(low * m), 0), min(math.floor(high * m), m) + 1)
    return coverage_law(n, m, alpha).pmf(hits).sum()


@pytest.mark.parametrize("m", [None, 1, 7, 100, 999])
@pytest.mark.parametrize("alpha", ["0.05", "0.1", "0.5", "0.7"])
@pytest.mark.parametrize("within", ["0.01", "0.06", "0.3"])
def test_probabilities_are_those_of_the_distribution(m, alpha, within):
    alpha, within = Fraction(alpha), Fraction(within)
    found = closeness(150, alpha, within, m)
    expected = [summed(n, alpha, within, m) for n in range(1, 151)]
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("m", [None, 500, 10_000])
@pytest.mark.parametrize(("alpha", "within", "confidence"), [(0.1, 0.04, 0.8), (0.05, 0.03, 0.9)])
def test_the_smallest_number_of_labels(m, alpha, within, confidence):
    plan = snaps.plan(alpha, within=within, nodes=m, confidence=confidence)
    exact = [Fraction(str(alpha)), Fraction(str(within))]
    enough = [summed(n, *exact, m) >= confidence for n in range(1, plan.labels + 1)]
    least = snaps.conformal.fewest_nodes(alpha)  # fewer give full sets, whatever the coverage
    assert not any(enough[least - 1 : -1]) and enough[-1]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_plan_comes_true(seed):
    """Through the calls users make: 150 draws of as many labels as planned."""
    plan = snaps.plan(0.1, within=0.05, nodes=400, confidence=0.8)
    random = np.random.default_rng(seed)
    close = 0
    for _ in range(150):
        chance = random.random(plan.labels + 400)
        probs = np.stack([chance, 1 - chance], axis=1)
        cp = snaps.SplitConformal(0.1, score=snaps.THR())
        cp.calibrate(None, probs, np.zeros(len(probs), int), np.arange(plan.labels))
        found = cp.evaluate(np.zeros(len(probs), int))["coverage"]
        close += round(abs(found - 0.9), 9) <= 0.05
    expected = next(row.probability for row in plan.rows if row.labels == plan.labels)
    assert stats.binomtest(close, 150, expected).pvalue > 1e-4


def test_the_table_and_the_picture(tmp_path):
    plan = snaps.plan(0.05, within=0.02, nodes=2000)
    assert plan.labels in [row.labels for row in plan.rows]
    assert all(row.low < 0.95 < row.high for row in plan.rows)
    assert f"{plan.labels:,} calibration labels" in str(plan)
    for name in ("plan.png", "plan.svg", "plan.pdf"):
        plan.plot(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    assert "'path' must end in .png" in error_line(plan.plot, tmp_path / "plan.gif")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"within": 0.001, "nodes": 100}, "'within' must be larger for 100 nodes"),
        ({"within": 1e-5}, "'within' must not need more than 200,000"),
        ({"within": 0}, "'within' must lie strictly between 0 and 1, got 0"),
        ({"confidence": 1.0}, "'confidence' must lie strictly between 0 and 1"),
        ({"nodes": 0}, "'nodes' must be an integer"),
        ({"alpha": 1.5}, "'alpha' must lie strictly between 0 and 1"),
    ],
)
def test_what_cannot_be_planned(options, words):
    assert words in error_line(snaps.plan, **options)
