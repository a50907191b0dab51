"""What follows from the number of labels and alpha alone: ranks, and how many labels to tune on.

The exact conformal quantile is a rank among calibration scores. Both layers use it.
"""

from __future__ import annotations

import math
from fractions import Fraction

from snaps._checks import check_alpha, check_integer

# Chosen on CoraML, PubMed and Photo: `snaps reproduce budgets`.
MOST_TUNING_NODES = 500
# Times 1 / alpha: the fewest calibration nodes where any are tuned on, and the number of labels
# from which half are.
FEWEST_CALIBRATING, MANY_LABELS = 4, 25


def conformal_rank(n: int, alpha: float | Fraction) -> int:
    """Rank of the threshold among n calibration scores: ceil((1 - alpha)(n + 1)), exactly.

    Floats would give one rank too many at times; alpha is read as the decimal that was written.
    A rank beyond n means that n is too small for alpha.

    Examples
    --------
    >>> conformal_rank(149, 0.18), math.ceil((1 - 0.18) * 150)
    (123, 124)
    """
    return exact_rank(check_integer(n, "n", low=0), check_alpha(alpha))


def exact_rank(n: int, alpha: Fraction) -> int:
    """The conformal rank of values that are known to be sound."""
    return n + 1 - alpha.numerator * (n + 1) // alpha.denominator


def fewest_nodes(alpha: float | Fraction) -> int:
    """The smallest number of calibration nodes that gives a finite threshold.

    Examples
    --------
    >>> fewest_nodes(0.05)
    19
    """
    return math.ceil(1 / check_alpha(alpha)) - 1


def enough(n: int, alpha: Fraction) -> bool:
    """Whether n nodes give a finite threshold."""
    return n > 0 and exact_rank(n, alpha) <= n


def tuning_share(n: int, alpha: Fraction) -> int:
    """How many of n labels to tune on; the rest is calibrated on. Depends on n and alpha alone.

    m calibration nodes cover (m + 1 - floor(alpha (m + 1))) / (m + 1) on average, which with few of
    them is far above 1 - alpha, unless m + 1 is a multiple of 1 / alpha. Of half to four fifths of
    the labels, the number with the least coverage is calibrated on, the smallest of equals; it is
    at least 4 / alpha - 1, and the others are enough to tune on. Where there is no such number,
    nothing is tuned. Of many labels half are tuned on, but at most 500.
    """
    least = math.ceil(FEWEST_CALIBRATING / alpha) - 1
    most = min(4 * n // 5, n + 1 - math.ceil(1 / alpha))
    if most < least:
        return 0
    share = min(MOST_TUNING_NODES, n // 2)
    if alpha * n < MANY_LABELS:
        calibrating = range(max(least, n - share), max(most, n - share) + 1)
        share = n - min(calibrating, key=lambda m: Fraction(exact_rank(m, alpha), m + 1))
    return share if enough(share, alpha) else 0
