"""What is measured of sets, against plain counts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import snaps
from snaps import metrics

# Five sets over three labels: {0}, {1, 2}, {}, {0, 1, 2}, {2}.
MASK = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 1]], bool)
TRUTH = np.array([0, 0, 1, 2, 2])  # hits: yes, no, no, yes, yes


@pytest.fixture
def sets():
    return snaps.PredictionSets(MASK)


def test_metrics(sets):
    assert metrics.coverage(sets, TRUTH) == 3 / 5
    assert metrics.size(sets) == 7 / 5
    assert metrics.size_nonempty(sets) == 7 / 4
    assert metrics.empty(sets) == 1 / 5
    assert metrics.singleton_hit(sets, TRUTH) == 2 / 5
    np.testing.assert_array_equal(metrics.class_coverage(sets, TRUTH), [1 / 2, 0, 1])
    gaps = [abs(1 / 2 - 0.9), 0.9, 0.1]
    assert metrics.class_gap(sets, TRUTH, 0.1) == pytest.approx(np.mean(gaps))


def test_sscv(sets):
    # Sizes 0 and 1: two hits of three; sizes 2 and 3: one of two.
    assert metrics.sscv(sets, TRUTH, 0.1) == pytest.approx(0.9 - 1 / 2)
    assert metrics.sscv(sets, TRUTH, 0.5) == pytest.approx(2 / 3 - 1 / 2)
    assert metrics.sscv(sets, TRUTH, 0.1, strata=[(1, 1), (3, 3)]) == pytest.approx(0.1)
    assert metrics.sscv(sets, TRUTH, 0.1, strata=((0, 0), (1, 3))) == pytest.approx(0.9)


def test_metrics_look_up_labels_by_node():
    sets = snaps.PredictionSets(MASK[:2], [3, 1], num_nodes=5)
    assert metrics.coverage(sets, [-1, 2, -1, 0, -1]) == 1.0
    assert metrics.coverage(sets, pd.Series([-1, 0, -1, 0, -1])) == 0.5
    assert metrics.coverage(sets, torch.tensor([[-1], [0], [-1], [1], [-1]])) == 0.0


def test_metrics_of_sets_that_are_all_empty():
    sets = snaps.PredictionSets(np.zeros((3, 2), bool))
    assert np.isnan(metrics.size_nonempty(sets))
    assert metrics.size(sets) == 0.0 and metrics.empty(sets) == 1.0


def test_a_class_without_nodes_has_no_coverage(sets):
    found = metrics.class_coverage(sets, np.array([0, 0, 0, 2, 2]))
    np.testing.assert_array_equal(found, [1 / 3, np.nan, 1])
    gap = metrics.class_gap(sets, np.array([0, 0, 0, 2, 2]), 0.1)
    assert gap == pytest.approx(((0.9 - 1 / 3) + 0.1) / 2)


def test_metrics_of_named_classes():
    sets = snaps.PredictionSets(MASK, classes=["b", "c", "a"])
    truth = np.array(["b", "c", "a"])[TRUTH]
    for labels in (truth, pd.Series(truth), pd.Categorical(truth), truth.tolist()):
        assert metrics.coverage(sets, labels) == 3 / 5
        assert metrics.singleton_hit(sets, labels) == 2 / 5
        np.testing.assert_array_equal(metrics.class_coverage(sets, labels), [1 / 2, 0, 1])
    numbered = snaps.PredictionSets(MASK, classes=[30, 10, 20])
    assert metrics.coverage(numbered, np.array([30, 10, 20])[TRUTH]) == 3 / 5
    # The names of the sets count, not those that occur.
    few = snaps.PredictionSets(MASK[:2], classes=["b", "c", "a"])
    assert metrics.coverage(few, ["b", "a"]) == 1.0
    with pytest.raises(snaps.SnapsError, match=r"'labels' must be among .* got 0 at"):
        metrics.coverage(sets, TRUTH)
    with pytest.raises(snaps.SnapsError, match="'labels' must be labelled, got 1 without a label"):
        metrics.coverage(sets, ["b", "c", None, "a", "a"])


GROUPS = {
    "strings": (["n", "s", "n", "s", "n"], {"n": 2 / 3, "s": 1 / 2}),
    "array": (np.array(["n", "s", "n", "s", "n"]), {"n": 2 / 3, "s": 1 / 2}),
    "numbers": (np.array([1, 2, 1, 2, 1]), {1: 2 / 3, 2: 1 / 2}),
    "tensor": (torch.tensor([1, 2, 1, 2, 1]), {1: 2 / 3, 2: 1 / 2}),
    "booleans": ([True, False, True, False, True], {True: 2 / 3, False: 1 / 2}),
    "tuples": ([(0, 1), (0, 2)] * 2 + [(0, 1)], {(0, 1): 2 / 3, (0, 2): 1 / 2}),
    "series": (pd.Series(["n", "s", "n", "s", "n"]), {"n": 2 / 3, "s": 1 / 2}),
    "by id": (pd.Series(list("nnssn"), index=[4, 0, 3, 1, 2]), {"n": 2 / 3, "s": 1 / 2}),
    "categories": (pd.Categorical(["n", "s", "n", "s", "n"]), {"n": 2 / 3, "s": 1 / 2}),
    "missing": ([None, "s", np.nan, "s", pd.NA], {None: 2 / 3, "s": 1 / 2}),
    "Int64": (pd.array([None, 2, None, 2, None], "Int64"), {None: 2 / 3, 2: 1 / 2}),
    "nan": (np.array([np.nan, 2, np.nan, 2, np.nan]), {None: 2 / 3, 2: 1 / 2}),
    "masked": (np.ma.masked_array([1, 2, 3, 2, 4], [1, 0, 1, 0, 1]), {None: 2 / 3, 2: 1 / 2}),
    "mixed": (["n", 1, "n", 1, "n"], {"n": 2 / 3, 1: 1 / 2}),
}


@pytest.mark.parametrize("groups, expected", GROUPS.values(), ids=list(GROUPS))
def test_group_coverage(sets, groups, expected):
    found = metrics.group_coverage(sets, TRUTH, groups)
    assert found == expected and list(found) == list(expected)


def test_group_coverage_of_some_nodes():
    sets = snaps.PredictionSets(MASK[:2], [3, 1], num_nodes=5)
    found = metrics.group_coverage(sets, [-1, 0, -1, 0, -1], ["never", "b", "never", "a", "never"])
    assert found == {"a": 1.0, "b": 0.0} and list(found) == ["a", "b"]


@pytest.mark.parametrize(
    "groups, message",
    [
        (["n"] * 4, "'groups' must have shape (5,), got (4,)"),
        (np.ones((5, 2)), "'groups' must have shape (5,), got (5, 2)"),
        ("north", "'groups' must be an array, got str"),
        (None, "'groups' must be an array, got NoneType"),
        ([[1]] * 5, "'groups' must be hashable, got [1] at node 0"),
    ],
)
def test_groups_that_are_wrong(sets, groups, message):
    with pytest.raises(snaps.SnapsError) as caught:
        metrics.group_coverage(sets, TRUTH, groups)
    assert str(caught.value) == message


def test_sets_of_more_than_a_thousand_labels_count_too():
    mask = np.zeros((4, 1500), bool)
    mask[0, 0] = mask[1, 1] = mask[2, :1200] = mask[3, :1400] = True
    sets = snaps.PredictionSets(mask)
    assert snaps.metrics.sscv(sets, [0, 1, 1300, 1450], alpha=0.1) == pytest.approx(0.9)
