"""The distribution of coverage: by counting, and where counting ends."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from snaps import conformal
from snaps.conformal.calibration import Calibration
from snaps.conformal.coverage import coverage_interval, coverage_law, coverage_pmf
from tests.helpers import small
from tests.helpers import transcription as t
from tests.helpers.worlds import ALPHAS


@given(st.integers(1, 60), st.integers(1, 60), st.sampled_from(ALPHAS))
def test_coverage_law(n, m, alpha):
    assume(t.rank(n, alpha) <= n)
    expected = [float(t.hit_probability(hits, n, m, alpha)) for hits in range(m + 1)]
    law = conformal.coverage_law(n, m, alpha)
    np.testing.assert_allclose(law.pmf(np.arange(m + 1)), expected, rtol=1e-8, atol=1e-12)


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(ALPHAS))
def test_coverage_interval(n, m, alpha):
    """The narrowest cut of both tails: at most 0.5 % lies outside on either side."""
    assume(t.rank(n, alpha) <= n)
    chances = [t.hit_probability(hits, n, m, alpha) for hits in range(m + 1)]
    low, high = conformal.coverage_interval(n, m, alpha)
    lowest, highest = round(low * m), round(high * m)
    tail = Fraction(5, 1000)
    assert sum(chances[:lowest]) <= tail <= sum(chances[: lowest + 1])
    assert sum(chances[highest + 1 :]) <= tail <= sum(chances[highest:])


@pytest.mark.parametrize("n, m, alpha", [(4, 3, 0.4), (5, 4, 0.25), (6, 2, 0.18)])
def test_the_distribution_of_hits_by_counting(n, m, alpha):
    counts = np.zeros(m + 1)
    for calib in combinations(range(n + m), n):
        calibration = Calibration(np.array(calib, float), np.zeros(n, int), 1)
        rest = np.setdiff1d(np.arange(n + m), calib)
        counts[calibration.contains(rest[:, None], alpha).sum()] += 1
    found = coverage_law(n, m, alpha)
    np.testing.assert_allclose(found.pmf(np.arange(m + 1)), counts / counts.sum(), atol=1e-12)
    np.testing.assert_allclose(coverage_pmf(n, m, alpha), counts / counts.sum(), atol=1e-12)
    low, high = coverage_interval(n, m, alpha)
    below, upto = counts[: round(low * m)].sum(), counts[: round(high * m) + 1].sum()
    assert below <= 0.005 * counts.sum() and upto >= 0.995 * counts.sum()


@pytest.mark.parametrize("n, m, alpha", [(1, 1, 0.5), (20, 300, 0.05), (999, 4000, 0.1)])
def test_both_ways_to_the_distribution_agree(n, m, alpha):
    law = coverage_law(n, m, alpha)
    np.testing.assert_allclose(
        coverage_pmf(n, m, alpha), law.pmf(np.arange(m + 1)), rtol=1e-7, atol=1e-12
    )
    ends = law.ppf(0.005) / m, law.ppf(0.995) / m
    assert coverage_interval(n, m, alpha) == ends


def test_with_too_few_nodes_everything_is_covered():
    assert coverage_law(3, 10, 0.1).mean() == 10
    assert coverage_interval(3, 10, 0.1) == (1, 1)
    assert coverage_pmf(3, 10, 0.1).tolist() == [0] * 10 + [1]


@pytest.mark.parametrize("level", [0, 1, 1.5, -0.1, math.nan, "0.9", None, True])
def test_levels_lie_between_0_and_1(level):
    assert small.error_line(coverage_interval, 100, 100, 0.1, level=level).startswith(
        "'level' must"
    )


def test_intervals_of_a_trillion_nodes(monkeypatch):
    """Without a table of all hits; where both can be computed, they agree."""
    trillion = 10**12
    low, high = coverage_interval(100, trillion, 0.1)
    assert (low, high) == pytest.approx(stats.beta(91, 10).ppf([0.005, 0.995]), abs=1e-9)
    assert coverage_interval(trillion, 1000, 0.1) == tuple(
        hits / 1000 for hits in stats.binom(1000, 0.9).ppf([0.005, 0.995])
    )
    low, high = coverage_interval(trillion, trillion, 0.1)
    spread = math.sqrt(2 * 0.1 * 0.9 / trillion)
    assert (low, high) == pytest.approx((0.9 - 2.5758 * spread, 0.9 + 2.5758 * spread), abs=1e-9)
    for value in ({"n": 10**16, "m": 5}, {"n": 5, "m": 10**16}):
        assert "must be" in small.error_line(coverage_interval, **value, alpha=0.1)
    assert "'m' must fit into memory" in small.error_line(coverage_pmf, 100, trillion, 0.1)
    exact = {pair: coverage_interval(*pair, 0.1) for pair in ((100, 10**5), (10**5, 10**5))}
    monkeypatch.setattr("snaps.conformal.coverage.MOST_COUNTED", 10)
    for pair, ends in exact.items():
        assert coverage_interval(*pair, 0.1) == pytest.approx(ends, abs=3e-5)
