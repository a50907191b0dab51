"""The right layer alone: thresholds, sets and p-values of every cell against counting."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import snaps
from snaps.conformal.calibration import Calibration

ALPHAS = [0.05, 0.1, 0.18, 0.25, 0.3, 0.5, Fraction(1, 3)]
K, G = 3, 4
KINDS = {
    "calibration": {},
    "class": {"by_class": True},
    "group": {"grouped": True},
    "group and class": {"grouped": True, "by_class": True},
}

# Few distinct values: most scores tie, within cells and between them.
few_scores = st.integers(0, 4).map(lambda step: step / 4)


class Case:
    """A calibration and nodes to judge, with everything needed to count by hand."""

    def __init__(self, rows, test, grouped=False, by_class=False):
        self.rows, self.test = rows, test
        self.grouped, self.by_class = grouped, by_class
        scores, labels, groups = (np.array(column) for column in zip(*rows, strict=True))
        self.calibration = Calibration(
            scores.astype(float),
            labels.astype(np.int64),
            K,
            groups.astype(np.int64) if grouped else 0,
            G if grouped else 1,
            by_class,
        )
        self.scores = np.array([row for row, _ in test], float).reshape(-1, K)
        self.groups = np.array([g for _, g in test], np.int64) if grouped else 0

    def cell(self, group, label):
        """Calibration scores that a label of a node is held against."""
        return [
            score
            for score, own_label, own_group in self.rows
            if (not self.grouped or own_group == group)
            and (not self.by_class or own_label == label)
        ]

    def cells(self):
        """(group, class, its scores) of every cell."""
        for g in range(G if self.grouped else 1):
            for y in range(K if self.by_class else 1):
                yield g, y, self.cell(g, y)


@st.composite
def cases(draw):
    rows = draw(
        st.lists(
            st.tuples(few_scores, st.integers(0, K - 1), st.integers(0, G - 1)),
            min_size=1,
            max_size=60,
        )
    )
    test = draw(
        st.lists(
            st.tuples(st.lists(few_scores, min_size=K, max_size=K), st.integers(0, G - 1)),
            max_size=6,
        )
    )
    kind = draw(st.sampled_from(list(KINDS)))
    return kind, Case(rows, test, **KINDS[kind])


def limit(scores, alpha):
    """The smallest calibration score that ceil((1 - alpha)(n + 1)) of them don't exceed."""
    rank = math.ceil((1 - Fraction(str(alpha))) * (len(scores) + 1))
    reached = [q for q in scores if sum(s <= q for s in scores) >= rank]
    return min(reached, default=math.inf)


# ---- Thresholds and sets -------------------------------------------------------------------------


@given(cases(), st.sampled_from(ALPHAS))
def test_a_threshold_per_cell(kind_and_case, alpha):
    kind, case = kind_and_case
    limits = case.calibration.limits(alpha)
    assert case.calibration.kind == kind
    assert limits.shape == (G if case.grouped else 1, K if case.by_class else 1)
    for g, y, scores in case.cells():
        assert limits[g, y] == limit(scores, alpha)
    thresholds = np.asarray(case.calibration.threshold(alpha))
    assert thresholds.shape == (G,) * case.grouped + (K,) * case.by_class
    np.testing.assert_array_equal(thresholds.reshape(-1), limits.reshape(-1))


@given(cases(), st.sampled_from(ALPHAS))
def test_sets_and_plain_p_values(kind_and_case, alpha):
    """A label is in when its score is at most its cell's threshold: when its p-value is above."""
    _, case = kind_and_case
    inside = case.calibration.contains(case.scores, alpha, case.groups)
    p = case.calibration.p_values(case.scores, case.groups)
    assert inside.shape == p.shape == (len(case.test), K)
    for i, (row, group) in enumerate(case.test):
        for y, s in enumerate(row):
            own = case.cell(group, y)
            assert inside[i, y] == (s <= limit(own, alpha))
            assert p[i, y] == (1 + sum(c >= s for c in own)) / (len(own) + 1)
            exact = Fraction(1 + sum(c >= s for c in own), len(own) + 1)
            assert inside[i, y] == (exact > Fraction(str(alpha)))
    np.testing.assert_array_equal(inside, p > float(alpha))


@given(cases(), st.data())
def test_smoothed_p_values(kind_and_case, data):
    """Those above count, those equal count by chance, and the node itself is one of the equal."""
    _, case = kind_and_case
    shape = case.scores.shape
    draw = st.lists(st.floats(0, 1), min_size=case.scores.size, max_size=case.scores.size)
    draws = np.array(data.draw(draw), float).reshape(shape)
    smoothed = case.calibration.p_values(case.scores, case.groups, draws)
    for i, (row, group) in enumerate(case.test):
        for y, s in enumerate(row):
            own = case.cell(group, y)
            above, equal = sum(c > s for c in own), 1 + sum(c == s for c in own)
            expected = (above + draws[i, y] * equal) / (len(own) + 1)
            assert smoothed[i, y] == pytest.approx(expected, abs=1e-15)
    np.testing.assert_allclose(
        case.calibration.p_values(case.scores, case.groups, np.ones(shape)),
        case.calibration.p_values(case.scores, case.groups),
    )


@given(st.lists(few_scores, min_size=2, max_size=25), st.sampled_from(ALPHAS))
def test_smoothed_sets_cover_on_the_dot(scores, alpha):
    """Each of n + 1 nodes in turn is the test node: the chance of a hit is 1 - alpha in the mean.

    Not about: exactly, whatever ties; and plain sets cover no less, more where the threshold ties.
    """
    chances, plain = [], []
    for i, s in enumerate(scores):
        rest = np.array(scores[:i] + scores[i + 1 :])
        calibration = Calibration(rest, np.zeros(len(rest), int), 1)
        (low,), (high,) = (
            calibration.p_values(np.array([[s]]), draws=np.full((1, 1), u))[0] for u in (0.0, 1.0)
        )
        # p = low + u (high - low) for uniform u.
        chances.append(min(max((high - float(alpha)) / (high - low), 0), 1))
        plain.append(bool(calibration.contains(np.array([[s]]), alpha)[0, 0]))
    assert np.mean(chances) == pytest.approx(1 - float(alpha), abs=1e-12)
    assert Fraction(sum(plain), len(plain)) >= 1 - Fraction(str(alpha))


# ---- Ties ----------------------------------------------------------------------------------------


@given(cases())
def test_the_tied_share(kind_and_case):
    """Scores that occur twice or more in their own cell; other cells don't count."""
    _, case = kind_and_case
    tied = sum(
        score in others
        for _, _, scores in case.cells()
        for i, score in enumerate(scores)
        for others in [scores[:i] + scores[i + 1 :]]
    )
    assert case.calibration.tied_share() == pytest.approx(tied / len(case.rows))


def test_equal_scores_of_two_cells_don_t_tie():
    scores, groups = np.array([1.0, 2.0, 2.0, 3.0]), np.array([0, 0, 1, 1])
    labels = np.zeros(4, int)
    assert Calibration(scores, labels, 2).tied_share() == 0.5
    assert Calibration(scores, labels, 2, groups, 2).tied_share() == 0
    assert Calibration(scores, labels, 2, np.array([0, 2, 2, 4]), 6).tied_share() == 0.5
    assert Calibration(scores[:0], labels[:0], 2).tied_share() == 0


# ---- Too few nodes -------------------------------------------------------------------------------


def test_a_cell_without_nodes_holds_every_label():
    scores = np.arange(9.0)
    calibration = Calibration(scores, np.zeros(9, int), 2, np.full(9, 1), 3)
    assert calibration.threshold(0.1).tolist() == [math.inf, 8, math.inf]
    inside = calibration.contains(np.full((3, 2), 99.0), 0.1, np.arange(3))
    assert inside.tolist() == [[True] * 2, [False] * 2, [True] * 2]
    assert calibration.p_values(np.full((3, 2), 99.0), np.arange(3)).tolist() == [
        [1, 1], [0.1, 0.1], [1, 1]
    ]  # fmt: skip


WARNINGS = {
    "2 calibration nodes are too few for alpha=0.25 (at least 3): the threshold is infinite": (
        [0, 1], [0, 0], {}
    ),
    "1 of 3 classes have too few calibration nodes for alpha=0.25 (at least 3 each) and join every "
    "set: class (nodes) fox (2)": (
        [0, 0, 0, 1, 1, 1, 2, 2], [0] * 8, {"by_class": True}
    ),
    "1 of 2 groups have too few calibration nodes for alpha=0.25 (at least 3 each) and get full "
    "sets: group (nodes) south (1)": ([0] * 5, [0, 0, 0, 0, 1], {"grouped": True}),
    "2 of 6 cells (group and class) have too few calibration nodes for alpha=0.25 (at least 3 "
    "each) and get full sets: group and class (nodes) north fox (0), south dog (1)": (
        [0] * 3 + [1] * 3 + [0] * 3 + [1] + [2] * 3, [0] * 6 + [1] * 7,
        {"grouped": True, "by_class": True},
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", WARNINGS)
def test_cells_with_too_few_nodes_are_named(message):
    labels, groups, kind = WARNINGS[message]
    calibration = Calibration(
        np.arange(float(len(labels))), np.array(labels), 3,
        np.array(groups) if "grouped" in kind else 0, 2 if "grouped" in kind else 1,
        "by_class" in kind,
    )  # fmt: skip
    names = np.array(["cat", "dog", "fox"]), ("north", "south")
    with pytest.warns(snaps.SnapsWarning) as warned:
        calibration.warn_few(Fraction(1, 4), *names)
    assert [str(one.message) for one in warned] == [message]
    assert warned[0].filename == __file__


def test_enough_nodes_need_no_words():
    calibration = Calibration(np.arange(6.0), np.repeat([0, 1], 3), 2, by_class=True)
    calibration.warn_few(Fraction(1, 4), np.arange(2), ())  # a warning would be an error here


def test_at_most_five_cells_are_named():
    calibration = Calibration(np.arange(9.0), np.zeros(9, int), 8, by_class=True)
    with pytest.warns(snaps.SnapsWarning, match=r"^7 of 8 .* 5 \(0\), \.\.\.$"):
        calibration.warn_few(Fraction(1, 10), np.arange(8), ())
