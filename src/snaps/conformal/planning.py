"""How many calibration labels to pay for: the coverage distribution, read the other way round."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np

from snaps._checks import check_alpha, check_integer
from snaps._tables import html_table
from snaps.conformal.coverage import MOST, coverage_interval
from snaps.conformal.rank import exact_rank, fewest_nodes
from snaps.errors import SnapsError
from snaps.io.files import finished, new_axis

MOST_LABELS = 200_000  # a plan for more is refused
_SHOWN = (50, 100, 200, 500, 1000, 2000, 5000, 10_000)  # rows of the table, next to the answer
_MORE = "Labels for tuning come on top, unless nodes with role tune or valid are there."


@dataclass(frozen=True)
class Row:
    """What a number of calibration labels gives.

    Attributes
    ----------
    labels : int
    low, high : float
        Where the coverage falls with the probability asked for.
    probability : float
        That the coverage is as close to 1 - alpha as asked for.
    """

    labels: int
    low: float
    high: float
    probability: float


@dataclass(frozen=True)
class Plan:
    """How many calibration labels are needed; `print` it for a table, `plot` it for a picture.

    Attributes
    ----------
    labels : int
        The smallest number of calibration labels that is enough.
    alpha, within, confidence : float
        The coverage lies within ``1 - alpha - within`` and ``1 - alpha + within`` with probability
        `confidence`.
    nodes : int or None
        Number of nodes to predict; None for any number, where the coverage is a probability.
    rows : tuple of Row
        What other numbers of labels give.

    Examples
    --------
    >>> import snaps
    >>> print(snaps.plan(0.1, within=0.03))
    263 calibration labels: coverage within 0.90 +- 0.03 with probability 0.9
      labels  coverage with probability 0.9  within +- 0.03
          50                0.8262 - 0.9598          0.5246
         100                0.8482 - 0.9447          0.6903
         200                0.8637 - 0.9327          0.8491
         263                0.8698 - 0.9298          0.9002
         500                0.8773 - 0.9213          0.9754
        1000                0.8841 - 0.9152          0.9982
        2000                0.8888 - 0.9108          1.0000
        5000                0.8930 - 0.9069          1.0000
       10000                0.8950 - 0.9049          1.0000
    Labels for tuning come on top, unless nodes with role tune or valid are there.
    """

    labels: int
    alpha: float
    within: float
    confidence: float
    nodes: int | None
    rows: tuple[Row, ...]

    def _table(self) -> tuple[str, list[str], list[list[str]]]:
        """A sentence, and the table below it."""
        of = "" if self.nodes is None else f" of {self.nodes:,} nodes"
        sentence = (
            f"{self.labels:,} calibration labels: coverage{of} within {_plain(1 - self.alpha)} "
            f"+- {self.within:g} with probability {self.confidence:g}"
        )
        header = [
            "labels", f"coverage with probability {self.confidence:g}", f"within +- {self.within:g}"
        ]  # fmt: skip
        rows = [
            [str(row.labels), f"{row.low:.4f} - {row.high:.4f}", f"{row.probability:.4f}"]
            for row in self.rows
        ]
        return sentence, header, rows

    def __str__(self) -> str:
        sentence, header, rows = self._table()
        widths = [8, len(header[1]), len(header[2])]
        lines = [
            "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
            for row in (header, *rows)
        ]
        return "\n".join([sentence, *lines, _MORE])

    def _repr_html_(self) -> str:
        sentence, header, rows = self._table()
        return html_table(header, rows, above=sentence, below=_MORE)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, ready for JSON.

        Examples
        --------
        >>> import snaps
        >>> snaps.plan(0.1, within=0.03).to_dict()["labels"]
        263
        """
        return asdict(self)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw the interval of the coverage against the number of labels.

        Parameters
        ----------
        path : path, optional
            A file to write, .png, .svg or .pdf.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> import snaps
        >>> figure = snaps.plan(0.1, within=0.03).plot("plan.png")
        """
        alpha = check_alpha(self.alpha)
        least, most = fewest_nodes(alpha), max(4 * self.labels, 2000)
        counts = np.unique(np.geomspace(least, most, 40).astype(int))
        bounds = np.array([_interval(int(n), self.nodes, alpha, self.confidence) for n in counts])
        axis = new_axis()
        axis.fill_between(counts, *bounds.T, color="#56B4E9", alpha=0.5, linewidth=0)
        for shift in (-self.within, 0, self.within):
            line = "-" if shift == 0 else "--"
            axis.axhline(1 - self.alpha + shift, color="black", linewidth=1, linestyle=line)
        axis.axvline(self.labels, color="#D55E00", linewidth=1.5)
        axis.set_xscale("log")
        axis.set_xlabel("calibration labels")
        axis.set_ylabel(f"coverage, with probability {self.confidence:g}")
        title = f"{self.labels:,} labels: within {self.within:g} of {1 - self.alpha:g}"
        return finished(axis, title, path)


def plan(
    alpha: float | Fraction = 0.05,
    *,
    within: float | Fraction = 0.01,
    nodes: int | None = None,
    confidence: float = 0.9,
) -> Plan:
    """How many calibration labels bring the coverage close to 1 - alpha.

    Calibration labels are one random draw, so the coverage of the sets differs from 1 - alpha a
    little. With n labels and m nodes to predict it is Beta-binomial (see `docs/guarantee.md`).

    Parameters
    ----------
    alpha : float
    within : float
        How far the coverage may be from 1 - alpha, on either side.
    nodes : int, optional
        Number of nodes to predict. By default any number: the distribution is then a Beta one.
    confidence : float
        The probability of being so close.

    Returns
    -------
    Plan
        With the smallest number of labels. Ranks are whole numbers, so that a few labels more may
        be slightly worse: a multiple of 1 / alpha, minus one, is a good number.

    Examples
    --------
    >>> snaps.plan(0.05, within=0.01, nodes=10_000).labels
    1441
    """
    level, room = check_alpha(alpha), check_alpha(within, "within")
    chance = float(check_alpha(confidence, "confidence"))
    if nodes is not None:
        nodes = check_integer(nodes, "nodes", low=1, high=MOST)
    least = fewest_nodes(level)
    for most in (2_000, 20_000, MOST_LABELS):
        probability = closeness(most, level, room, nodes)
        enough = np.flatnonzero(probability[least - 1 :] >= chance)
        if enough.size:
            break
    else:
        _refuse(level, room, nodes, chance)
    labels = least + int(enough[0])
    counts = sorted({labels, *(n for n in _SHOWN if n >= least)})
    if counts[-1] > len(probability):
        probability = closeness(counts[-1], level, room, nodes)
    rows = tuple(
        Row(n, *_interval(n, nodes, level, chance), float(probability[n - 1])) for n in counts
    )
    return Plan(labels, float(level), float(room), chance, nodes, rows)


def closeness(most: int, alpha: Fraction, within: Fraction, nodes: int | None) -> np.ndarray:
    """P(coverage within 1 - alpha +- within) after calibrating on 1, ..., `most` nodes.

    >>> closeness(3, Fraction(1, 2), Fraction(1, 4), None)
    array([0.5   , 0.5   , 0.6875])
    """
    low, high = 1 - alpha - within, 1 - alpha + within
    rank = np.array([exact_rank(n, alpha) for n in range(1, most + 1)])
    rest = np.arange(2, most + 2) - rank
    if nodes is None:
        return _beta_cdf(rank, rest, high) - _beta_cdf(rank, rest, low)
    fewest, largest = -((-low * nodes) // 1), high * nodes // 1
    return _hits_cdf(rank, rest, int(largest), nodes) - _hits_cdf(
        rank, rest, int(fewest) - 1, nodes
    )


def _beta_cdf(rank: np.ndarray, rest: np.ndarray, share: Fraction) -> np.ndarray:
    """P(coverage <= share) for Beta(rank, rest); for a rest of 0 the coverage is 1."""
    from scipy.special import betainc

    if not 0 < share < 1:
        return np.full(len(rank), float(share >= 1))
    return np.where(rest > 0, betainc(rank, np.maximum(rest, 1), float(share)), 0.0)


def _hits_cdf(rank: np.ndarray, rest: np.ndarray, hits: int, m: int) -> np.ndarray:
    """P(at most so many hits among m) for BetaBinomial(m, rank, rest) with n = 1, 2, ... labels.

    P(Binomial(m, p) <= k) is P(U > p) with U ~ Beta(k + 1, m - k), so the probability is the mean
    of I_U(rank, rest), the regularised incomplete Beta function. From one n to the next either
    parameter grows by one, which adds a term that is known in closed form.
    """
    from scipy.special import betaln

    if not 0 <= hits < m:
        return np.full(len(rank), float(hits >= m))
    out = np.zeros(len(rank))
    begin = int(np.argmax(rest > 0))  # before it, all sets are full
    a, b = rank[begin:], rest[begin:]
    if b[0] == 0:
        return out
    common = betaln(hits + 1, m - hits)
    term = np.exp(betaln(a + hits + 1, b + m - hits) - common - betaln(a, b))
    steps = np.where(np.diff(a) > 0, -term[:-1] / a[:-1], term[:-1] / b[:-1])
    first = np.exp(betaln(a[0] + hits + 1, m - hits) - common)
    out[begin:] = np.cumsum(np.concatenate([[first], steps]))
    return out


def _interval(n: int, nodes: int | None, alpha: Fraction, confidence: float) -> tuple[float, float]:
    """Where the coverage falls with this probability, as much above as below."""
    if nodes is not None:
        return coverage_interval(n, nodes, alpha, level=confidence)
    from scipy import stats

    rank = exact_rank(n, alpha)
    ends = stats.beta.ppf([(1 - confidence) / 2, (1 + confidence) / 2], rank, n + 1 - rank)
    return float(ends[0]), float(ends[1])


def _refuse(alpha: Fraction, within: Fraction, nodes: int | None, confidence: float) -> NoReturn:
    """Say why no number of labels is enough."""
    if nodes is not None:
        from scipy import stats

        low, high = (1 - alpha - within) * nodes, (1 - alpha + within) * nodes
        law = stats.binom(nodes, float(1 - alpha))
        best = float(law.cdf(high // 1) - law.cdf(-(-low // 1) - 1))
        if best < confidence:
            raise SnapsError(
                f"'within' must be larger for {nodes} nodes: even with every label their coverage "
                f"is within {float(within):g} of {float(1 - alpha):g} with probability {best:.3f} "
                f"alone, got confidence {confidence:g}"
            )
    raise SnapsError(
        f"'within' must not need more than {MOST_LABELS:,} calibration labels, "
        f"got {float(within):g} at confidence {confidence:g}"
    )


def _plain(share: float) -> str:
    """A share with two digits, or as many as it takes."""
    text = f"{share:.10f}".rstrip("0")
    return text if len(text.partition(".")[2]) >= 2 else f"{share:.2f}"
