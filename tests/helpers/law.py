"""Is coverage distributed as it must be?

Where nothing before the threshold knows who calibrates, n calibration nodes are a uniform subset
of a pool of n + m nodes whose scores are fixed. Without ties the number of test nodes whose label
is in their set then follows BetaBinomial(m, r, n + 1 - r) with r = ceil((1 - alpha)(n + 1)): not
about, but exactly, and independently from split to split. So hit counts over many splits are held
to that law twice: their shape by a binned chi-square, their mean by its standard error.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import stats

from tests.helpers import transcription

# All laws together raise a false alarm at most about once in a thousand changes of the seeds: the
# suite makes about 165 tests, each of two checks.
FAMILY = 1e-3
TESTS = 165
LEVEL = FAMILY / (2 * TESTS)

SPLITS = 2_000
MIN_EXPECTED = 20


class Fit(NamedTuple):
    """How hit counts fit a law: two p-values, and the mean's distance in standard errors."""

    shape: float
    mean: float
    standard_errors: float

    @property
    def accepted(self) -> bool:
        return min(self.shape, self.mean) > LEVEL


@cache
def hit_pmf(n: int, m: int, alpha: float) -> np.ndarray:
    """P(0), ..., P(m) hits: BetaBinomial(m, r, n + 1 - r)."""
    r = transcription.rank(n, alpha)
    return stats.betabinom(m, r, n + 1 - r).pmf(np.arange(m + 1))


@cache
def smoothed_hit_pmf(n: int, m: int, alpha: float) -> np.ndarray:
    """The same for smoothed sets, without ties: their mean is m (1 - alpha), exactly.

    With alpha (n + 1) = k + f, test scores below the k + 1 largest calibration scores are hits,
    those between the last two of these with chance 1 - f, those above misses. The three counts are
    Dirichlet-multinomial (n - k, 1, k): the sum of the first two is beta-binomial, and so is the
    second given that sum.
    """
    k, f = divmod(Fraction(str(alpha)) * (n + 1), 1)
    pmf, values = np.zeros(m + 1), np.arange(m + 1)
    totals = stats.betabinom(m, n - k + 1, k).pmf(values) if k else values == m
    for total in values:
        between = stats.betabinom(total, 1, n - k).pmf(values[: total + 1])
        for count, chance in enumerate(totals[total] * between):
            hits = stats.binom(count, float(1 - f)).pmf(values[: count + 1])
            pmf[total - count : total + 1] += chance * hits
    return pmf


def tied_hit_pmf(pool_scores: np.ndarray, n: int, alpha: float) -> np.ndarray:
    """The same for a pool whose scores may tie, where a threshold admits the whole tie group.

    The threshold lies in a group if fewer than r calibration nodes come before it (C) and at least
    r before its end (B); all others up to that end are then hits. B is hypergeometric, and so is C
    given B. Without ties this is the beta-binomial law again.
    """
    total, r = len(pool_scores), transcription.rank(n, alpha)
    lengths = np.unique(pool_scores, return_counts=True)[1]
    end = np.repeat(np.cumsum(lengths), lengths)
    start = end - np.repeat(lengths, lengths)
    before_end = r + np.arange(total) - start  # r, ..., r + length - 1 for each group
    chance = stats.hypergeom.pmf(before_end, total, n, end)
    possible = chance > 0
    end, start, before_end = end[possible], start[possible], before_end[possible]
    chance = chance[possible] * stats.hypergeom.cdf(r - 1, end, before_end, start)
    return np.bincount(end - before_end, chance, minlength=total - n + 1)


def bins(probabilities: np.ndarray, least: float) -> np.ndarray:
    """First index of each bin, neighbours joined until every bin weighs at least `least`."""
    starts, weight = [0], 0.0
    for index, probability in enumerate(probabilities):
        if weight >= least:
            starts.append(index)
            weight = 0.0
        weight += probability
    if weight < least and len(starts) > 1:
        starts.pop()
    return np.array(starts)


def chi_square(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """p-value of counts against probabilities, neighbouring values joined into full bins."""
    total = counts.sum()
    starts = bins(probabilities, MIN_EXPECTED / total)
    if len(starts) < 2:
        raise ValueError(f"{total} counts are too few to compare shapes")
    observed = np.add.reduceat(counts, starts)
    expected = np.add.reduceat(probabilities, starts) * total
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(stats.chi2.sf(statistic, len(starts) - 1))


def fit_hits(hits, pmf: np.ndarray) -> Fit:
    """Fit of hit counts, one a split, to their law."""
    hits, values = np.asarray(hits), np.arange(len(pmf))
    shape = chi_square(np.bincount(hits, minlength=len(pmf)), pmf)
    mean = values @ pmf
    standard_error = np.sqrt((values - mean) ** 2 @ pmf / len(hits))
    distance = float((hits.mean() - mean) / standard_error)
    return Fit(shape, float(2 * stats.norm.sf(abs(distance))), distance)


def fit_uniforms(values) -> Fit:
    """Fit of values to the uniform law on [0, 1]; for laws that change from split to split."""
    values = np.asarray(values)
    num_bins = min(50, len(values) // MIN_EXPECTED)
    counts = np.bincount(np.minimum((values * num_bins).astype(int), num_bins - 1))
    counts = np.pad(counts, (0, num_bins - len(counts)))
    shape = chi_square(counts, np.full(num_bins, 1 / num_bins))
    distance = float((values.mean() - 0.5) * np.sqrt(12 * len(values)))
    return Fit(shape, float(2 * stats.norm.sf(abs(distance))), distance)


def to_uniform(hits: int, pmf: np.ndarray, draw: float) -> float:
    """F(hits - 1) + draw P(hits): uniform when hits follow the pmf and draw is uniform."""
    return float(pmf[:hits].sum() + draw * pmf[hits])


def assert_law(fit: Fit, what: str) -> None:
    """Fail when the fit is worse than chance allows."""
    assert fit.accepted, (
        f"{what}: hits do not follow their law: chi-square p {fit.shape:.2g}, mean off by "
        f"{fit.standard_errors:+.2f} standard errors (p {fit.mean:.2g}), level {LEVEL:.1g}"
    )
