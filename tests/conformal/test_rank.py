"""The quantile as a rank, and how many labels tune: exact, however levels are written."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from snaps import conformal
from snaps.conformal.rank import conformal_rank, enough, fewest_nodes, tuning_share
from tests.conformal.test_calibration import ALPHAS
from tests.helpers import transcription as t

# ---- Ranks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [*ALPHAS, 0.32, 0.44])  # where floats would err, too
def test_ranks(alpha):
    """The fewest of n + 1 scores, one of them the test node's, that are 1 - alpha of them."""
    exact = Fraction(str(alpha))
    for n in range(300):
        fewest = next(r for r in range(n + 2) if Fraction(r, n + 1) >= 1 - exact)
        assert conformal_rank(n, alpha) == fewest
        assert enough(n, exact) == (n > 0 and fewest <= n)
        assert (n >= fewest_nodes(alpha)) == (fewest <= n)


# ---- Rank, law -----------------------------------------------------------------------------------


def test_rank_where_floats_fail():
    assert conformal.conformal_rank(149, 0.18) == 123
    assert math.ceil((1 - 0.18) * 150) == 124


def test_rank_of_thousands():
    """Every alpha of one to three decimals and many n, against integers alone."""
    for thousandths in range(1, 1000, 3):
        for n in [*range(0, 12), 19, 39, 99, 149, 199, 499, 500, 999, 1000, 123_456]:
            expected = -(-(1000 - thousandths) * (n + 1) // 1000)
            assert conformal.conformal_rank(n, thousandths / 1000) == expected
            assert t.rank(n, thousandths / 1000) == expected


@given(st.integers(0, 10**7), st.integers(1, 10**6 - 1))
@example(149, 180_000)
def test_rank_of_any_decimal(n, millionths):
    expected = math.ceil((1 - Fraction(millionths, 10**6)) * (n + 1))
    assert conformal.conformal_rank(n, millionths / 10**6) == expected


def by_looking(n, alpha):
    """The number that calibrates, by looking at every number from half to four fifths."""
    level = t.exact(alpha)
    excess = {
        m: Fraction(t.rank(m, alpha), m + 1) - (1 - level)
        for m in range(1, n + 1)
        if n <= 2 * m and 5 * m <= 4 * n and n - m <= 500
        if (m + 1) * level >= 4 and t.rank(n - m, alpha) <= n - m
    }
    if n >= 25 / level:
        return max(n - n // 2, n - 500)
    if not excess:
        return n
    least = min(excess.values())
    return min(m for m in excess if excess[m] == least)


@pytest.mark.parametrize("alpha", [0.01, 0.03, 0.05, 0.07, 0.1, 0.18, 0.2, 0.3, 0.5])
def test_few_labels_are_divided_as_looking_at_every_number_says(alpha):
    level = t.exact(alpha)
    for n in [*range(400), *range(490, 510), 999, 1000, 1001, 2499, 2500, 10_000]:
        share, calib = tuning_share(n, level), by_looking(n, alpha)
        assert share == n - calib, n
        if share:  # both parts give a finite threshold
            assert t.rank(share, alpha) <= share and t.rank(calib, alpha) <= calib
            assert share <= 500 and 2 * calib >= n


@pytest.mark.parametrize("n, alpha, calib", [(99, 0.05, 79), (150, 0.05, 79), (60, 0.1, 39)])
def test_few_labels_cover_exactly_what_was_asked_for(n, alpha, calib):
    assert n - tuning_share(n, t.exact(alpha)) == calib
    assert Fraction(t.rank(calib, alpha), calib + 1) == 1 - t.exact(alpha)
