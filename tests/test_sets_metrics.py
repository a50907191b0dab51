"""Prediction sets, what is measured of them, and why a label is in or out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import small
import snaps
from small import CALIB, LABELS, PROBS, TEST
from snaps import metrics

# Five sets over three labels: {0}, {1, 2}, {}, {0, 1, 2}, {2}.
MASK = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 1]], bool)
TRUTH = np.array([0, 0, 1, 2, 2])  # hits: yes, no, no, yes, yes


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


# ---- Metrics, by hand ----------------------------------------------------------------------------


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


# ---- Which nodes are predicted -------------------------------------------------------------------


def test_the_nodes_asked_for():
    cp = small.calibrated(tune_nodes=np.arange(30, 35))
    with pytest.warns(snaps.SnapsWarning, match="35 of the nodes calibrated or tuned"):
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


# ---- Explanations --------------------------------------------------------------------------------

METHODS = {
    "snaps": snaps.SNAPS(0.2, k=5, weights=(0.3, 0.2)),
    "snaps on thr": snaps.SNAPS(0.2, k=5, weights=(0.6, 0.4), score=snaps.THR()),
    "daps": snaps.DAPS(0.2, weight=0.7),
    "split": snaps.SplitConformal(0.2),
    "class thresholds": snaps.SNAPS(0.4, k=5, weights=(0.25, 0.25), class_conditional=True),
}


@pytest.mark.parametrize("named", [False, True], ids=["positions", "names"])
@pytest.mark.parametrize("method", METHODS)
def test_explain(method, named):
    cp = small.calibrated(METHODS[method], named=named)
    ids = small.NAMES if named else np.arange(small.NUM_NODES)
    sets = cp.predict_set(TEST)
    for row, node in enumerate(TEST):
        why = cp.explain(int(node))
        assert (why.node, why.id) == (node, ids[node])
        np.testing.assert_array_equal(why.inside, sets.mask[row])
        np.testing.assert_array_equal(why.inside, why.mixed <= why.threshold)
        np.testing.assert_array_equal(why.threshold, np.broadcast_to(cp.threshold_, 3))
        np.testing.assert_allclose(why.mixed, cp.scores_[node], rtol=1e-12)
        parts = sum(why.weights[name] * part for name, part in why.parts.items())
        np.testing.assert_allclose(why.mixed, parts, rtol=1e-12)
        shifts = sum((neighbour.shift for neighbour in why.neighbours), np.zeros(3))
        np.testing.assert_allclose(shifts, why.mixed - why.parts["own"], atol=1e-12)
        largest = [np.abs(neighbour.shift).max() for neighbour in why.neighbours]
        assert largest == sorted(largest, reverse=True)
        assert all(neighbour.id == ids[neighbour.node] for neighbour in why.neighbours)


def test_the_neighbours_of_an_explanation():
    graph = snaps.Graph([[0, 0], [1, 2]], num_nodes=4, ids=["hub", "left", "right", "alone"])
    probs = np.array([[0.6, 0.4], [0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    cp = snaps.DAPS(0.5, weight=0.5, score=snaps.THR())
    cp.calibrate(graph, probs, [0, 0, 1, 1], [1, 2, 3])
    why = cp.explain(0)
    assert why.parts["own"] == pytest.approx([0.4, 0.6])
    assert why.parts["linked"] == pytest.approx([0.45, 0.55])
    assert why.mixed == pytest.approx([0.425, 0.575])
    by_id = {neighbour.id: neighbour for neighbour in why.neighbours}
    assert [neighbour.id for neighbour in why.neighbours] == ["right", "left"]
    assert by_id["left"].weight == by_id["right"].weight == 0.25
    assert by_id["left"].part == "linked"
    assert by_id["left"].shift == pytest.approx([-0.075, 0.075])
    assert by_id["right"].shift == pytest.approx([0.1, -0.1])
    assert cp.explain(3).neighbours == []


def test_an_explanation_can_be_read():
    why = small.calibrated(named=True).explain(40)
    lines = str(why).splitlines()
    assert lines[0] == f"node {small.NAMES[40]}"
    assert lines[1].split() == ["label", "own", "similar", "linked", "mixed", "threshold", "in"]
    assert lines[2].split() == ["weight", "0.500", "0.300", "0.200"]
    assert [line.split()[0] for line in lines[3:6]] == ["0", "1", "2"]
    assert [line.split()[-1] == "yes" for line in lines[3:6]] == why.inside.tolist()
    frame = why.to_pandas()
    assert list(frame.columns) == ["own", "similar", "linked", "mixed", "threshold", "in"]
    assert frame["in"].tolist() == why.inside.tolist() and frame.index.name == "label"


def test_splits_name_classes_with_too_few_calibration_nodes():
    """The class thresholds of `evaluate_splits` warn as those of `calibrate` do."""
    labels = np.r_[np.zeros(150, int), np.full(4, 1)]
    probs = np.full((len(labels), 2), 0.5)
    method = snaps.SplitConformal(0.1, class_conditional=True)
    told = "1 of 2 classes .* in some splits .* class 1$"
    with pytest.warns(snaps._errors.SnapsWarning, match=told):
        out = snaps.evaluate_splits(method, None, probs, labels, np.arange(len(labels)), 80, 5)
    assert np.isinf(out["threshold"][:, 1]).all() and np.isfinite(out["threshold"][:, 0]).all()
