"""Why a label is in a set or out of it."""

from __future__ import annotations

import numpy as np
import pytest

import snaps
from tests.helpers import small
from tests.helpers.small import TEST

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
