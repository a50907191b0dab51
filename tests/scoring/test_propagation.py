"""Labels that spread over links: until they settle, together, and with some taken away."""

from __future__ import annotations

import numpy as np
import pytest

import snaps
from snaps._kernels import aggregation as _aggregation
from snaps.datasets import load, make_graph
from snaps.models import smoothed_regression
from snaps.scoring import context as _context
from snaps.scoring import local as _local
from tests.scoring.common import labellings, without_links


def test_labels_spread_until_they_settle():
    chain = snaps.Graph(np.array([[0, 1, 2], [1, 2, 3]]), num_nodes=4).adjacency
    (mass,) = _context.propagate(chain, [np.array([0, -1, -1, 1])], 2)[0]
    start = np.zeros((4, 2))
    start[0, 0] = start[3, 1] = 1
    exact = 0.1 * np.linalg.solve(
        np.eye(4) - 0.9 * chain.toarray() / chain.toarray().sum(1, keepdims=True), start
    )
    np.testing.assert_allclose(mass, exact, atol=0.9**30)
    assert mass[1, 0] > mass[1, 1] and mass[2, 1] > mass[2, 0]


def test_several_labellings_spread_as_each_would_alone():
    matrix = make_graph(200, 3, seed=4).graph.adjacency
    known = labellings(200, 3)
    together, _ = _context.propagate(matrix, known, 3)
    for codes, mass in zip(known, together, strict=True):
        assert (_context.propagate(matrix, [codes], 3)[0][0] == mass).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_compiled_steps_of_propagation_have_the_bits_of_plain_ones(weighted, monkeypatch):
    matrix = without_links(make_graph(300, 3, seed=5).graph.adjacency, 7)
    if weighted:
        matrix.data = np.random.default_rng(0).random(matrix.nnz)
    known = labellings(300, 3)
    plain, _ = _context.propagate(matrix, known, 3)
    monkeypatch.setattr(_aggregation, "SMALL", 0)
    for mass, codes in zip(plain, known, strict=True):
        assert (_context.propagate(matrix, [codes], 3)[0][0] == mass).all()
    for mass, other in zip(plain, _context.propagate(matrix, known, 3)[0], strict=True):
        assert (other == mass).all()


def test_labels_can_be_taken_away_from_what_has_spread():
    """Propagation is linear: against the same number of steps of those labels alone, by hand."""
    matrix = without_links(make_graph(60, 3, seed=6).graph.adjacency, 7)
    random = np.random.default_rng(1)
    matrix.data = random.random(matrix.nnz) * (matrix.data > 0)
    codes = np.where(random.random(60) < 0.5, random.integers(0, 3, 60), -1)
    left_out = np.where(np.arange(60) % 5 == 0, codes, -1)
    (mass,), (steps,) = _context.propagate(matrix, [codes], 3)
    walk = matrix.toarray() / np.maximum(matrix.sum(axis=1), 1e-300)[:, None]
    walk[7, 7] = 1
    start = np.where(codes == left_out, -1, codes)[:, None] == np.arange(3)
    wanted = start.astype(float)
    for _ in range(steps):
        wanted = 0.9 * walk @ wanted + 0.1 * start
    nodes = np.arange(60)
    found = _context.mass_without(matrix, mass.astype(float), steps, nodes, left_out)
    np.testing.assert_allclose(found, wanted, atol=2e-4)  # places with 1e-4 of a walk are left out
    assert np.abs(found - mass).max() > 0.1
    half = _context.mass_without(matrix, mass[::2].astype(float), steps, nodes[::2], left_out)
    assert (half == found[::2]).all()


def test_folds_of_a_very_large_graph_are_taken_away_from_the_whole(monkeypatch):
    data = make_graph(600, 3, seed=7)
    probs = smoothed_regression(data.graph, data.labels, np.arange(30))

    def fitted():
        cp = snaps.Pooled(0.1, parts=["own", "propagated", "propagated_context"])
        cp.calibrate(data.graph, probs, data.labels, np.arange(30, 330), known_nodes=np.arange(30))
        return np.array([*cp.weights_.values()]), cp.predict_set(nodes=np.arange(330, 600))

    separate, sets = fitted()
    monkeypatch.setattr(_local, "MANY", 0)
    monkeypatch.setattr(_local.Inputs, "_propagated", counted := Counted(_local.Inputs._propagated))
    together, others = fitted()
    assert counted.calls == 2  # of twelve
    np.testing.assert_allclose(together, separate, atol=0.05)
    assert (together != separate).any()
    assert abs(others.sizes.mean() - sets.sizes.mean()) < 0.05


@pytest.mark.parametrize("name", ["cora_ml", "citeseer", "amazon_photo"])
def test_folds_taken_away_give_sets_of_the_same_size(name, data_dir, monkeypatch):
    data = load(name, data_dir=data_dir)
    order = np.random.default_rng(0).permutation(data.graph.num_nodes)
    train, calib, test = np.split(order, [20 * data.num_classes, 20 * data.num_classes + 1000])
    probs = smoothed_regression(data.graph, data.labels, train)
    similarity = snaps.similarity_graph(data.graph.features, 20, ids=data.graph.keys)

    def size():
        cp = snaps.Pooled(0.1)
        cp.calibrate(
            data.graph, probs, data.labels, calib, known_nodes=train, similarity=similarity
        )
        return cp.predict_set(nodes=test).sizes.mean()

    separate = size()
    monkeypatch.setattr(_local, "MANY", 0)
    assert size() == pytest.approx(separate, rel=0.005)


class Counted:
    """A method that counts its calls."""

    def __init__(self, method):
        self.method, self.calls = method, 0

    def __get__(self, instance, owner):
        def call(*arguments):
            self.calls += 1
            return self.method(instance, *arguments)

        return call
