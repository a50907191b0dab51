"""Prediction sets: what they hold, by position, by id and by name."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import snaps
from tests.helpers import small
from tests.helpers.small import CALIB, LABELS, PROBS

# Five sets over three labels: {0}, {1, 2}, {}, {0, 1, 2}, {2}.
MASK = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 1]], bool)


@pytest.fixture
def sets():
    return snaps.PredictionSets(MASK)


# ---- Sets ----------------------------------------------------------------------------------------


def test_sets(sets):
    assert len(sets) == 5
    assert sets.sizes.tolist() == [1, 2, 0, 3, 1]
    assert [labels.tolist() for labels in sets.labels()] == [[0], [1, 2], [], [0, 1, 2], [2]]
    assert [labels.tolist() for labels in sets] == [labels.tolist() for labels in sets.labels()]
    assert sets[1].tolist() == [1, 2] and sets[-1].tolist() == [2]
    assert sets.nodes.tolist() == sets.ids.tolist() == [0, 1, 2, 3, 4]
    assert sets.num_nodes == 5
    assert repr(sets) == "PredictionSets(5 nodes, 3 classes, mean size 1.40)"


def test_sets_of_some_nodes():
    sets = snaps.PredictionSets(torch.tensor(MASK), [7, 3, 9, 0, 1], ids=list("vwxyz"))
    assert sets.nodes.tolist() == [7, 3, 9, 0, 1] and sets.num_nodes == 10
    assert sets.ids.tolist() == list("vwxyz")
    mask = np.zeros(9, bool)
    mask[[1, 2, 4, 6, 8]] = True
    assert snaps.PredictionSets(MASK, mask).nodes.tolist() == [1, 2, 4, 6, 8]
    assert snaps.PredictionSets(MASK, mask).num_nodes == 9


def test_no_sets():
    sets = snaps.PredictionSets(MASK[:0])
    assert len(sets) == 0 and sets.labels() == [] and sets.sizes.tolist() == []
    assert repr(sets) == "PredictionSets(0 nodes, 3 classes, mean size nan)"


def test_to_pandas():
    frame = snaps.PredictionSets(MASK, ids=list("vwxyz")).to_pandas()
    assert list(frame.columns) == ["id", "labels", "size"]
    assert frame["id"].tolist() == list("vwxyz")
    assert [labels.tolist() for labels in frame["labels"]] == [[0], [1, 2], [], [0, 1, 2], [2]]
    assert frame["size"].tolist() == [1, 2, 0, 3, 1]


# ---- Some of the sets ----------------------------------------------------------------------------

CLASSES = ["cat", 'dog; "big"', "fox\nred"]
NAMED = [["cat"], CLASSES[1:], [], CLASSES, CLASSES[2:]]


def some_sets():
    return snaps.PredictionSets(MASK, [7, 3, 9, 0, 1], list("vwxyz"), 12, CLASSES)


def as_lists(sets):
    return [labels.tolist() for labels in sets]


@pytest.mark.parametrize(
    "key",
    [
        slice(0, 3),
        slice(None, None, -2),
        slice(4, 99),
        slice(3, 3),
        [0, 1],
        (4, 0),
        [-1, 2],
        [],
        np.array([3, 1]),
        np.array([True, False, True, False, True]),
        [False, False, True, True, False],
        torch.tensor([2]),
        torch.tensor([False, True, False, False, False]),
        pd.Series([4, 3]),
        range(2),
    ],
    ids=str,
)
def test_some_of_the_sets(key):
    """Once `sets[0:3]` was an array of labels of no set."""
    whole = some_sets()
    index = np.asarray(key, None if len(key) else int) if not isinstance(key, slice) else key
    expected = np.arange(5)[index]
    some = whole[key]
    assert isinstance(some, snaps.PredictionSets) and len(some) == len(expected)
    assert as_lists(some) == [NAMED[i] for i in expected]
    assert some.nodes.tolist() == whole.nodes[expected].tolist()
    assert some.ids.tolist() == whole.ids[expected].tolist()
    assert some.num_nodes == 12 and some.classes.tolist() == CLASSES


@pytest.mark.parametrize("i", range(-5, 5))
def test_one_of_the_sets(i):
    for key in (i, np.int8(i), np.array(i), torch.tensor(i)):
        assert some_sets()[key].tolist() == NAMED[i]


def test_iterating_ends():
    sets = some_sets()
    assert as_lists(sets) == NAMED and as_lists(iter(sets)) == NAMED
    assert [labels.tolist() for labels in reversed(sets)] == NAMED[::-1]
    assert as_lists(sets[:0]) == []


@pytest.mark.parametrize("key", [5, -6, 2**70, [0, 5], [-6]])
def test_beyond_the_sets(key):
    with pytest.raises(IndexError) as caught:
        some_sets()[key]
    assert isinstance(caught.value, snaps.SnapsError)
    first = key if isinstance(key, int) else key[-1]
    assert str(caught.value) == f"'sets[...]' must lie from -5 to 4, got {first}"


@pytest.mark.parametrize(
    "key",
    [
        *(None, True, 1.0, ..., (slice(2), 0), [[0, 1], [1]], [[0], [1]], [0.5], ["v", 1], {0}),
        *([True, False], np.ones((5, 3), bool), MASK[0], torch.ones(5)),
    ],
    ids=str,
)
def test_what_names_no_sets(key):
    with pytest.raises(
        snaps.SnapsError, match=r"'sets\[...\]' must be a position, a slice, a list"
    ):
        some_sets()[key]


def test_sets_by_id():
    sets = some_sets()
    for i, name in enumerate(sets.ids.tolist()):
        assert sets[name].tolist() == sets[np.str_(name)].tolist() == NAMED[i]
    order = [3, 0, 4]
    for key in (sets.ids[order], sets.ids[order].tolist(), pd.Series(sets.ids[order])):
        assert as_lists(sets[key]) == [NAMED[i] for i in order]
        assert sets[key].ids.tolist() == sets.ids[order].tolist()
    for key in ("stranger", ["v", "stranger"]):
        with pytest.raises(KeyError) as caught:
            sets[key]
        assert isinstance(caught.value, snaps.SnapsError)
        message = "'sets[...]' must be ids of nodes with a set, got 'stranger'"
        assert str(caught.value) == message


def test_integers_are_positions_whatever_the_ids():
    sets = snaps.PredictionSets(MASK, ids=[4, 3, 2, 1, 0])
    assert sets[4].tolist() == np.flatnonzero(MASK[4]).tolist()
    assert "must be a position" in small.error_line(sets.__getitem__, "4")


def test_an_id_of_two_sets():
    sets = snaps.PredictionSets(MASK, ids=["a", "b", "a", "c", "d"])
    assert sets["b"].tolist() == np.flatnonzero(MASK[1]).tolist()
    message = "'sets[...]' must be ids that a single set has, got a"
    assert small.error_line(sets.__getitem__, "a").startswith(message)


# ---- Names ---------------------------------------------------------------------------------------


def test_named_classes():
    sets = snaps.PredictionSets(MASK, classes=np.array(["a", "b", "c"]))
    assert as_lists(sets) == [["a"], ["b", "c"], [], ["a", "b", "c"], ["c"]]
    assert [labels.tolist() for labels in sets.labels()] == as_lists(sets)
    assert sets.classes.tolist() == ["a", "b", "c"]
    assert repr(sets) == "PredictionSets(5 nodes, 3 classes ['a', 'b', 'c'], mean size 1.40)"
    frame = sets.to_pandas()
    assert [labels.tolist() for labels in frame["labels"]] == as_lists(sets)
    numbered = snaps.PredictionSets(MASK, classes=[10, 5, -1])
    assert as_lists(numbered) == [[10], [5, -1], [], [10, 5, -1], [-1]]
    assert snaps.PredictionSets(MASK).classes.tolist() == [0, 1, 2]
    assert "classes, mean" in repr(
        snaps.PredictionSets(np.eye(9, dtype=bool), classes="a b".split() + list("cdefghi"))
    )


def test_names_must_fit_the_mask():
    for classes, message in (
        (["a", "b"], "'classes' must have one entry per column of probs (3), got 2"),
        (["a", "b", "a"], "'classes' must be unique, got 'a' twice or more"),
    ):
        with pytest.raises(snaps.SnapsError) as caught:
            snaps.PredictionSets(MASK, classes=classes)
        assert str(caught.value) == message


# ---- Which nodes are predicted -------------------------------------------------------------------


def test_the_nodes_asked_for():
    cp = small.calibrated(tune_nodes=np.arange(30, 35))
    with pytest.warns(snaps.SnapsWarning, match="35 of the nodes were used to calibrate or tune"):
        every = cp.predict_set(np.arange(small.NUM_NODES)).mask
    assert cp.predict_set().nodes.tolist() == list(range(35, 60))
    assert cp.tune_nodes_.tolist() == [30, 31, 32, 33, 34]
    mask = np.zeros(small.NUM_NODES, bool)
    mask[[40, 50]] = True
    for nodes in (
        [40, 50],
        (40, 50),
        mask,
        mask.tolist(),
        torch.tensor([40, 50]),
        pd.Index([40, 50]),
    ):
        sets = cp.predict_set(nodes)
        assert sets.nodes.tolist() == [40, 50]
        np.testing.assert_array_equal(sets.mask, every[[40, 50]])
        assert cp.predict_p(nodes).shape == (2, 3)
    assert cp.predict_set([50, 40]).nodes.tolist() == [50, 40]
    np.testing.assert_array_equal(cp.predict_set([50, 40]).mask, every[[50, 40]])


@pytest.mark.parametrize("nodes", [[], np.array([], int), np.zeros(small.NUM_NODES, bool)])
def test_no_nodes_asked_for(nodes):
    cp = small.calibrated()
    assert cp.predict_set(nodes).mask.shape == (0, 3)
    assert cp.predict_p(nodes, smoothed=True).shape == (0, 3)


@pytest.mark.parametrize(
    "probs, labels, nodes",
    [
        (PROBS.tolist(), LABELS.tolist(), CALIB.tolist()),
        (torch.tensor(PROBS, requires_grad=True), torch.tensor(LABELS), torch.tensor(CALIB)),
        (pd.DataFrame(PROBS), pd.Series(LABELS), pd.Series(CALIB)),
        (PROBS, LABELS[:, None].astype(np.uint8), np.arange(small.NUM_NODES) < 30),
        (np.log(PROBS) + 3, LABELS, CALIB),
    ],
    ids=["lists", "tensors", "pandas", "column and mask", "logits"],
)
def test_every_kind_of_array_gives_the_same_sets(probs, labels, nodes):
    logits = isinstance(probs, np.ndarray) and probs.min() < 0
    cp = snaps.SplitConformal(0.2).calibrate(None, probs, labels, nodes, logits=logits)
    expected = snaps.SplitConformal(0.2).calibrate(None, PROBS, LABELS, CALIB)
    np.testing.assert_allclose(cp.scores_, expected.scores_, rtol=1e-12)
    np.testing.assert_array_equal(cp.predict_set().mask, expected.predict_set().mask)


def test_probabilities_may_be_whole_numbers_or_of_half_precision():
    sure = np.eye(3, dtype=int)[LABELS]
    cp = snaps.SplitConformal(0.2, score=snaps.THR()).calibrate(None, sure, LABELS, CALIB)
    assert cp.evaluate(LABELS)["singleton_hit"] == 1.0
    half = snaps.SplitConformal(0.2).calibrate(None, PROBS.astype(np.float16), LABELS, CALIB)
    assert half.scores_.max() <= 1.0
