"""The right layer: calibration scores in, thresholds, sets and p-values out; no graph, no features.

The guarantee these give is marginal: over the draw of calibration and test nodes from one pool, a
set holds the true label with probability at least 1 - alpha. It does not hold for each class, group
or node by itself unless thresholds are set for each, and not when calibration and test nodes come
from different pools.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from snaps._checks import check_alpha, check_integer, check_memory, check_number
from snaps.errors import SnapsError, warn

# Test nodes whose hits are counted one by one, calibration nodes that logarithms can tell apart,
# and nodes that floats can tell apart.
MOST_COUNTED, MOST_EXACT, MOST = 10**7, 10**10, 10**15


def conformal_rank(n: int, alpha: float | Fraction) -> int:
    """Rank of the threshold among n calibration scores: ceil((1 - alpha)(n + 1)), exactly.

    Floats would give one rank too many at times; alpha is read as the decimal that was written.
    A rank beyond n means that n is too small for alpha.

    Examples
    --------
    >>> conformal_rank(149, 0.18), math.ceil((1 - 0.18) * 150)
    (123, 124)
    """
    n, level = check_integer(n, "n", low=0), check_alpha(alpha)
    return n + 1 - level.numerator * (n + 1) // level.denominator


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
    return n > 0 and conformal_rank(n, alpha) <= n


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores of calibration nodes' true labels, in cells that have a threshold each.

    One cell for all, or one per class, per group, or per group and class.

    Parameters
    ----------
    scores : array (n,)
    labels : int array (n,)
        Their classes; used with `by_class` alone.
    num_classes : int
    groups : int array (n,), optional
        Their groups, 0 to num_groups - 1.
    num_groups : int
    by_class : bool

    Examples
    --------
    >>> calibration = Calibration(np.arange(9.0), np.zeros(9, int), 2)
    >>> float(calibration.threshold(0.2))
    7.0
    >>> calibration.contains(np.array([[3.0, 8.5]]), 0.2)
    array([[ True, False]])
    """

    scores: np.ndarray
    labels: np.ndarray
    num_classes: int
    groups: np.ndarray | None = None
    num_groups: int = 1
    by_class: bool = False

    def __post_init__(self) -> None:
        for array in (self.scores, self.labels):
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def kind(self) -> str:
        """What a cell is."""
        if self.groups is None:
            return "class" if self.by_class else "calibration"
        return "group and class" if self.by_class else "group"

    @property
    def _width(self) -> int:
        return self.num_classes if self.by_class else 1

    @cached_property
    def _cells(self) -> tuple[np.ndarray, np.ndarray]:
        """All scores, sorted within their cell, and where each cell begins."""
        cell = np.zeros(len(self.scores), np.int64) if self.groups is None else self.groups
        if self.by_class:
            cell = cell * self.num_classes + self.labels
        order = np.lexsort((self.scores, cell))
        counts = np.bincount(cell, minlength=self.num_groups * self._width)
        return self.scores[order], np.concatenate([[0], np.cumsum(counts)])

    def limits(self, alpha: float | Fraction) -> np.ndarray:
        """The threshold of each cell, (groups, classes or 1); infinite for one with too few."""
        ordered, starts = self._cells
        sizes = np.diff(starts)
        out = np.full(len(sizes), math.inf)
        for size in np.unique(sizes):
            rank = conformal_rank(int(size), alpha)
            if rank <= size:
                same = sizes == size
                out[same] = ordered[starts[:-1][same] + rank - 1]
        return out.reshape(self.num_groups, self._width)

    def threshold(self, alpha: float | Fraction) -> Any:
        """A number; or an array (classes,), (groups,) or (groups, classes)."""
        limits = self.limits(alpha)
        if self.groups is None:
            return limits[0] if self.by_class else float(limits[0, 0])
        return limits if self.by_class else limits[:, 0]

    def warn_few(self, alpha: Fraction, classes: np.ndarray, groups: Sequence[Any]) -> None:
        """Say which cells, by their names, have too few nodes for a finite threshold."""
        few = np.argwhere(np.isinf(self.limits(alpha)))
        if not len(few):
            return
        counts = np.diff(self._cells[1]).reshape(self.num_groups, self._width)
        named = {}
        for group, y in few:
            names = [] if self.groups is None else [str(groups[group])]
            names += [str(classes[y])] if self.by_class else []
            named[" ".join(names)] = int(counts[group, y])
        warn_few(named, counts.size, self.kind, alpha)

    def contains(
        self, scores: np.ndarray, alpha: float | Fraction, groups: np.ndarray | None = None
    ) -> np.ndarray:
        """Which labels (m, K) are in the sets of nodes with these scores; ties are in."""
        limits = self.limits(alpha)
        return scores <= (limits if groups is None else limits[groups])

    def p_values(
        self,
        scores: np.ndarray,
        groups: np.ndarray | None = None,
        draws: np.ndarray | None = None,
    ) -> np.ndarray:
        """Conformal p-values (m, K), each against its own cell.

        Plain: (1 + #{calibration >= s}) / (n + 1), which is above alpha exactly for the labels of
        the prediction set. With `draws`, uniform and of the shape of `scores`, they are smoothed:
        ties count by chance and the p-value of a true label is exactly uniform.
        """
        ordered, starts = self._cells
        out = np.empty(scores.shape)
        for cell in range(len(starts) - 1):
            group, y = divmod(cell, self._width)
            rows = slice(None) if groups is None else np.flatnonzero(groups == group)
            columns = slice(y, y + 1) if self.by_class else slice(None)
            values = scores[rows, columns]
            own = ordered[starts[cell] : starts[cell + 1]]
            n = len(own)
            below = np.searchsorted(own, values, side="left")
            if draws is None:
                out[rows, columns] = (1 + n - below) / (n + 1)
            else:
                upto = np.searchsorted(own, values, side="right")
                chance = draws[rows, columns]
                out[rows, columns] = ((n - upto) + chance * (1 + upto - below)) / (n + 1)
        return out

    def tied_share(self) -> float:
        """Share of the calibration scores that another score of their cell equals."""
        ordered, starts = self._cells
        if len(ordered) == 0:
            return 0.0
        same = ordered[1:] == ordered[:-1]
        same[starts[1:-1][(starts[1:-1] > 0) & (starts[1:-1] < len(ordered))] - 1] = False
        tied = np.zeros(len(ordered), bool)
        tied[1:] |= same
        tied[:-1] |= same
        return float(tied.mean())


def warn_few(cells: dict[str, int], total: int, kind: str, alpha: Fraction) -> None:
    """Say which cells have too few calibration nodes for a finite threshold.

    `cells` maps the names of such cells to their number of nodes; there are `total` of their
    `kind`: calibration (one cell for all), class, group, or group and class.
    """
    if not cells:
        return
    needed = f"(at least {fewest_nodes(alpha)}"
    if kind == "calibration":
        (count,) = cells.values()
        text = (
            f"{count} calibration nodes are too few for alpha={float(alpha):g} {needed}): "
            "the threshold is infinite"
        )
    else:
        shown = ", ".join(f"{name} ({count})" for name, count in list(cells.items())[:5])
        what = {"class": "classes have", "group": "groups have"}.get(kind, f"cells ({kind}) have")
        text = (
            f"{len(cells)} of {total} {what} too few calibration nodes for alpha={float(alpha):g} "
            f"{needed} each) and {'join every set' if kind == 'class' else 'get full sets'}: "
            f"{kind} (nodes) {shown}{', ...' * (len(cells) > 5)}"
        )
    warn(text)


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
    from scipy.special import betaln

    n, m = check_integer(n, "n", low=1), check_integer(m, "m", low=1)
    check_memory(40 * m, "m", m)
    rank, hits = conformal_rank(n, alpha), np.arange(m + 1)
    if rank > n:
        return np.where(hits == m, 1.0, 0.0)
    choices = -np.log(m + 1) - betaln(hits + 1, m - hits + 1)
    beta = betaln(hits + rank, m - hits + n + 1 - rank) - betaln(rank, n + 1 - rank)
    return np.exp(choices + beta)


def coverage_interval(
    n: int, m: int, alpha: float | Fraction, *, level: float = 0.99
) -> tuple[float, float]:
    """Where the coverage on m test nodes falls with probability `level`, by the law.

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
    tails = (1 - level) / 2, (1 + level) / 2
    rank = conformal_rank(n, alpha)
    if rank > n:
        return 1.0, 1.0
    if m <= MOST_COUNTED and n <= MOST_EXACT:
        low, high = np.searchsorted(np.cumsum(coverage_pmf(n, m, alpha)), tails)
        return int(low) / m, int(high) / m
    from scipy import stats

    share = rank / (n + 1)
    if m <= MOST_COUNTED:  # so many calibration nodes that the threshold is as good as known
        low, high = stats.binom(m, share).ppf(tails)
    else:  # a Beta distribution with the same mean and variance
        size = (n + 2) * m / (n + 1 + m) - 1
        low, high = np.rint(stats.beta(share * size, (1 - share) * size).ppf(tails) * m)
    return int(low) / m, int(high) / m


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
    `chance` where all are covered alike.

    Parameters
    ----------
    covered, counts : arrays (K,)
        The coverage and the number of nodes of each class.

    Examples
    --------
    >>> far_below(np.array([0.95, 0.6]), np.array([900, 99]), 500, 0.1, chance=0.01, gap=0.1)
    1
    >>> far_below(np.array([0.95, 0.6]), np.array([900, 5]), 500, 0.1, chance=0.01, gap=0.1)
    """
    promised = 1 - float(check_alpha(alpha))
    present = np.flatnonzero(counts)
    level = 1 - 2 * chance / max(len(present), 1)
    few = covered[present] < promised - gap
    far = [
        place
        for place in present[few].tolist()
        if covered[place] < coverage_interval(n_calib, int(counts[place]), alpha, level=level)[0]
    ]
    return min(far, key=covered.__getitem__) if far else None
