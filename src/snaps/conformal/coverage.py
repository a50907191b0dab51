"""The distribution of coverage over the draw of calibration and test nodes: a Beta-binomial one."""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from typing import Any

import numpy as np

from snaps._checks import check_integer, check_memory, check_number
from snaps.conformal.rank import conformal_rank, exact_rank
from snaps.errors import SnapsError

# Up to so many test nodes the distribution is summed exactly; up to so many calibration nodes
# logarithms of the Beta function differ from one count to the next; floats count no further.
MOST_COUNTED, MOST_EXACT, MOST = 10**7, 10**10, 10**15


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


def coverage_pmf(n: int, m: int, alpha: float | Fraction) -> np.ndarray:
    """The probabilities (m + 1,) of 0, ..., m hits by `coverage_law`, all at once and faster.

    Examples
    --------
    >>> coverage_pmf(n=9, m=2, alpha=0.1).round(3)
    array([0.018, 0.164, 0.818])
    """
    n, m = check_integer(n, "n", low=1), check_integer(m, "m", low=1)
    return rank_pmf(n, m, conformal_rank(n, alpha))


def rank_pmf(n: int, m: int, rank: int) -> np.ndarray:
    """The same for any rank of the threshold among the n calibration scores."""
    check_memory(40 * m, "m", m)
    hits = np.arange(m, dtype=np.float64)
    if rank > n:
        return np.append(np.zeros(m), 1.0)
    rises = np.log((m - hits) * (hits + rank)) - np.log((hits + 1) * (m - hits + n - rank))
    return _from_rises(rises, m * rank // (n + 1))


def _from_rises(rises: np.ndarray, middle: int) -> np.ndarray:
    """A distribution from the steps between logarithms of successive probabilities.

    Summed from the middle outwards, where probabilities are largest: errors of rounding go to the
    tails. Importing `scipy.special` instead takes as long as predicting a small graph.
    """
    logs = np.concatenate([-np.cumsum(rises[:middle][::-1])[::-1], [0], np.cumsum(rises[middle:])])
    chances = np.exp(logs - logs.max())
    return chances / chances.sum()


def coverage_interval(
    n: int, m: int, alpha: float | Fraction, *, level: float = 0.99
) -> tuple[float, float]:
    """Where the coverage on m test nodes falls with probability `level`.

    Exact up to ten million test nodes, and approximate beyond.

    Examples
    --------
    >>> coverage_interval(1000, 5000, 0.1)
    (0.8718, 0.9252)
    """
    level = check_number(level, "level", low=0, high=1)
    if not 0 < level < 1:
        raise SnapsError(f"'level' must lie between 0 and 1, got {level:g}")
    n, m = (check_integer(value, name, low=1, high=MOST) for name, value in (("n", n), ("m", m)))
    return rank_interval(n, m, conformal_rank(n, alpha), level)


def rank_interval(n: int, m: int, rank: int, level: float = 0.99) -> tuple[float, float]:
    """The same for any rank of the threshold among the n calibration scores."""
    tails = (1 - level) / 2, (1 + level) / 2
    if rank > n:
        return 1.0, 1.0
    if m <= MOST_COUNTED and n <= MOST_EXACT:
        low, high = np.searchsorted(np.cumsum(rank_pmf(n, m, rank)), tails)
        return int(low) / m, int(high) / m
    from scipy import stats

    share = rank / (n + 1)
    if m <= MOST_COUNTED:  # so many calibration nodes that the threshold is as good as known
        low, high = stats.binom(m, share).ppf(tails)
    else:  # a Beta distribution with the same mean and variance
        size = (n + 2) * m / (n + 1 + m) - 1
        low, high = np.rint(stats.beta(share * size, (1 - share) * size).ppf(tails) * m)
    return int(low) / m, int(high) / m


def confident_rank(n: int, alpha: Fraction, confidence: Fraction, m: int | None = None) -> int:
    """The smallest rank that covers a share 1 - alpha of m nodes with this confidence.

    The confidence is the probability, over the draw of the calibration nodes, that at least
    ceil((1 - alpha) m) of the m nodes to predict are covered. Without m, and at least with it, that
    the coverage probability of a further node is 1 - alpha or more. Never below the conformal rank,
    so that the average is promised as well; n + 1 if no rank will do.

    >>> confident_rank(500, Fraction(1, 10), Fraction(9, 10))
    460
    >>> confident_rank(500, Fraction(1, 10), Fraction(9, 10), m=200)
    465
    """
    from scipy import special, stats

    hits = None if m is None else m - alpha.numerator * m // alpha.denominator

    def kept(rank: int) -> bool:
        sure = special.betainc(n + 1 - rank, rank, float(alpha))
        if hits:
            # The rank-th calibration score lies beyond the hits-th of the others if so many of the
            # first rank + hits - 1 of all scores are others.
            sure = min(sure, stats.hypergeom.sf(hits - 1, n + (m or 0), m, rank + hits - 1))
        return bool(sure >= float(confidence))

    rank = exact_rank(n, alpha)
    return bisect_left(range(rank, n + 1), True, key=kept) + rank if rank <= n else n + 1


def fewest_confident(alpha: Fraction, confidence: Fraction) -> int:
    """The smallest number of calibration nodes with which there is such a rank.

    >>> fewest_confident(Fraction(1, 20), Fraction(19, 20))
    59
    """

    def enough(n: int) -> bool:
        return confident_rank(n, alpha, confidence) <= n

    most = 1
    while not enough(most):
        most *= 2
    return bisect_left(range(most + 1), True, lo=most // 2, key=enough)


def dealt_tail(total: int, good: int, n: int, hits: float) -> float:
    """The probability of so few hits or fewer among n of the total, of which `good` are hits.

    >>> round(dealt_tail(10, 5, 2, 0), 4)
    0.2222
    """
    least, chances = _dealt(total, good, n)
    return float(min(1.0, chances[: max(0, int(hits) - least + 1)].sum()))


def dealt_quantile(total: int, good: int, n: int, level: float) -> float:
    """A quantile of the share of hits among n of the total, of which `good` are hits."""
    least, chances = _dealt(total, good, n)
    return (least + int(np.searchsorted(np.cumsum(chances), level))) / n


def _dealt(total: int, good: int, n: int) -> tuple[int, np.ndarray]:
    """The hypergeometric distribution: the least number of hits, and the chances from there on.

    Numbers so far from the mean that their chances vanish are left out.
    """
    share = good / total
    far = 40 * (1 + np.sqrt(n * share * (1 - share)))
    least = max(0, n + good - total, int(n * share - far))
    counts = np.arange(least, min(n, good, int(n * share + far)), dtype=np.float64)
    rises = np.log((good - counts) * (n - counts))
    rises -= np.log((counts + 1) * (total - good - n + counts + 1))
    return least, _from_rises(rises, min(max(int(n * share) - least, 0), len(counts)))


def far_below(
    covered: np.ndarray,
    counts: np.ndarray,
    n_calib: int,
    alpha: float | Fraction,
    *,
    chance: float,
    gap: float,
) -> int | None:
    """The class with the lowest coverage, if one is far below 1 - alpha; None if none is.

    Far below is by more than `gap`, and by more than the worst of all classes is with probability
    `chance` where all are covered alike. `covered` and `counts` (K,) are the coverage and the
    number of nodes of each class.

    >>> far_below(np.array([0.95, 0.6]), np.array([900, 99]), 500, 0.1, chance=0.01, gap=0.1)
    1
    >>> far_below(np.array([0.95, 0.6]), np.array([900, 5]), 500, 0.1, chance=0.01, gap=0.1)
    """
    promised = 1 - float(alpha)
    present = np.flatnonzero(counts)
    level = 1 - 2 * chance / max(len(present), 1)
    few = covered[present] < promised - gap
    far = [
        place
        for place in present[few].tolist()
        if covered[place] < coverage_interval(n_calib, int(counts[place]), alpha, level=level)[0]
    ]
    return min(far, key=covered.__getitem__) if far else None
