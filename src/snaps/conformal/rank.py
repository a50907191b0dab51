"""The exact conformal quantile, as a rank among calibration scores. Both layers use it."""

from __future__ import annotations

import math
from fractions import Fraction

from snaps._checks import check_alpha, check_integer


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
