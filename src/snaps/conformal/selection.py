"""Lists with a false discovery rate: evidence in, p-values and a selection out; no graph.

A node is a false discovery if it is selected and wrong: it has another label than the one asked
for, or its most probable label is not its own. The null hypothesis is a random event, and the
p-value bounds the probability of "wrong, with evidence as strong as this" over the draw of
calibration nodes; hence all n of them count, not only the wrong ones (Jin and Candès, JMLR 2023).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np


def wrong_counts(evidence: np.ndarray, calibration: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """For each node, 1 + the number of wrong calibration nodes with at least its evidence.

    Divided by n + 1 they are p-values, n being the number of all calibration nodes. Ties count
    against the node: the promise then needs no random draws. `evidence` (m,) is that of the nodes,
    `calibration` (n,) that of the calibration nodes, some of which are `wrong`.

    >>> calibration, wrong = np.array([0.9, 0.6, 0.6, 0.2]), np.array([False, True, False, True])
    >>> wrong_counts(np.array([0.95, 0.6, 0.1]), calibration, wrong)
    array([1, 2, 3])
    """
    ordered = np.sort(calibration[wrong])
    return 1 + len(ordered) - np.searchsorted(ordered, evidence, side="left")


def benjamini_hochberg(counts: np.ndarray, n: int, rate: Fraction) -> np.ndarray:
    """Which of m p-values, counts / (n + 1), are selected at this false discovery rate.

    The largest k such that k of them are at most rate * k / m, compared as exact fractions.

    >>> benjamini_hochberg(np.array([1, 3, 2, 9]), 9, Fraction(2, 5))
    array([ True,  True,  True, False])
    """
    as_small = np.cumsum(np.bincount(counts)).tolist()
    part, whole = rate.numerator * (n + 1), rate.denominator * len(counts)
    met = [count for count, k in enumerate(as_small) if count * whole <= part * k]
    return counts <= met[-1] if met else np.zeros(0, bool)


def list_shares(
    evidence: np.ndarray, wrong: np.ndarray, splits: np.ndarray, rate: Fraction
) -> tuple[np.ndarray, np.ndarray]:
    """For many splits of a pool, the share of test nodes selected, and the wrong share of those.

    A split is a row (n,) of positions of calibration nodes; the other nodes are test nodes.

    >>> evidence, wrong = np.arange(8.0), np.arange(8) < 4
    >>> list_shares(evidence, wrong, np.array([[0, 2, 4, 6]]), Fraction(3, 10))
    (array([0.75]), array([0.33333333]))
    """
    n, out = splits.shape[1], np.zeros((2, len(splits)))
    for i, calib in enumerate(splits):
        test = np.ones(len(evidence), bool)
        test[calib] = False
        counts = wrong_counts(evidence[test], evidence[calib], wrong[calib])
        selected = benjamini_hochberg(counts, n, rate)
        out[:, i] = selected.mean(), wrong[test][selected].mean() if selected.any() else 0.0
    return out[0], out[1]


def fewest_selected(m: int, n: int, rate: Fraction) -> int:
    """The least number of m nodes that can be selected: no p-value is below 1 / (n + 1).

    More than m means that n is too small for any list.

    >>> fewest_selected(m=1000, n=499, rate=Fraction(1, 20))
    40
    """
    return -(-m * rate.denominator // (rate.numerator * (n + 1)))
