"""Smoothed softmax regression: its loss, its smoothing, and what it reaches."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import approx_fprime

from snaps import SnapsError
from snaps import models as softmax
from snaps.datasets import make_graph
from snaps.graph import Graph
from snaps.models import smoothed_regression


def first_of_each(labels: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    classes = range(labels.max() + 1)
    return np.concatenate([order[labels[order] == c][:count] for c in classes])


def accuracy(probs: np.ndarray, labels: np.ndarray, train: np.ndarray) -> float:
    test = np.setdiff1d(np.arange(len(labels)), train)
    return float((probs[test].argmax(axis=1) == labels[test]).mean())


def dense_operator(graph: Graph) -> np.ndarray:
    links = graph.adjacency.toarray() + np.eye(graph.num_nodes)
    root = np.sqrt(links.sum(axis=1))
    return links / root[:, None] / root[None, :]


# --- The loss and its minimum ------------------------------------------------------------------


@pytest.mark.parametrize("as_matrix", [np.asarray, sp.csr_array])
def test_gradient_against_finite_differences(as_matrix):
    rng = np.random.default_rng(0)
    inputs = as_matrix(rng.normal(size=(12, 5)) * (rng.random((12, 5)) < 0.7))
    targets = rng.integers(0, 3, 12)
    point = rng.normal(size=18)
    gradient = softmax._loss(point, inputs, targets, 0.3)[1]
    numeric = approx_fprime(point, lambda p: softmax._loss(p, inputs, targets, 0.3)[0], 1e-7)
    np.testing.assert_allclose(gradient, numeric, atol=1e-5)


def test_the_loss_is_the_textbook_one():
    rng = np.random.default_rng(1)
    inputs, targets = rng.normal(size=(6, 4)), np.array([0, 1, 2, 0, 1, 2])
    table = rng.normal(size=(5, 3))
    scores = np.exp(inputs @ table[:-1] + table[-1])
    chances = scores / scores.sum(axis=1, keepdims=True)
    expected = -np.log(chances[np.arange(6), targets]).mean() + 0.05 * (table**2).sum()
    value = softmax._loss(table.ravel(), inputs, targets, 0.1)[0]
    assert value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("shape", [(40, 6), (15, 60)], ids=["tall", "wide"])
@pytest.mark.parametrize("as_matrix", [np.asarray, sp.csr_array])
def test_the_fit_is_a_minimum(shape, as_matrix):
    # Wide tables are fitted in a basis of their rows: the minimum must be that of the full problem.
    rng = np.random.default_rng(2)
    inputs = rng.normal(size=shape) * (rng.random(shape) < 0.5)
    targets = np.arange(shape[0]) % 3
    weights, bias = softmax._fit(as_matrix(inputs), targets, 3, 0.01, 500)
    length = np.sqrt((inputs**2).sum() / shape[0])
    point = np.vstack([weights * length, bias]).ravel()
    gradient = softmax._loss(point, inputs / length, targets, 0.01)[1]
    assert np.abs(gradient).max() < 1e-4


def test_a_class_without_training_nodes_stays_finite():
    data = make_graph(200, 3)
    train = np.flatnonzero(data.labels < 2)[:40]
    probs = smoothed_regression(data.graph, data.labels, train)
    assert probs.shape == (200, 3) and np.isfinite(probs).all()
    assert (probs[:, 2] < probs[:, :2].max(axis=1)).all()


# --- Smoothing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("route", [softmax._gathered, softmax._spread])
@pytest.mark.parametrize("features", ["words", "dense"])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_both_routes_smooth_alike(route, features, hops, monkeypatch):
    # So small a bound makes both routes work in many parts.
    monkeypatch.setattr(softmax, "_ENTRIES", 500)
    graph = make_graph(120, 3, features=features, num_features=30).graph
    operator = softmax._normalised_adjacency(graph)
    nodes = np.array([5, 3, 77, 119, 0])
    rest = (softmax._count_walks(operator, hops)[nodes],) if route is softmax._gathered else ()
    rows = route(operator, graph.features, nodes, hops, *rest)
    table = graph.features.toarray() if features == "words" else graph.features
    expected = np.linalg.matrix_power(dense_operator(graph), hops) @ table
    rows = rows.toarray() if sp.issparse(rows) else rows
    np.testing.assert_allclose(rows, expected[nodes], rtol=1e-6, atol=1e-7)


def test_walks_are_counted():
    graph = make_graph(60, 2, degree=4).graph
    links = graph.adjacency.toarray() + np.eye(60)
    walks = softmax._count_walks(softmax._normalised_adjacency(graph), 3)
    np.testing.assert_allclose(walks, np.linalg.matrix_power(links, 3).sum(axis=1))


@pytest.mark.parametrize("train_count", [30, 400], ids=["gathered", "spread"])
@pytest.mark.parametrize("hops", [0, 2])
def test_sparse_and_dense_features_agree(train_count, hops):
    data = make_graph(500, 3, num_features=80)
    sparse = data.graph
    dense = Graph(sparse.adjacency, features=sparse.features.toarray())
    train = np.arange(train_count)
    one = smoothed_regression(sparse, data.labels, train, hops=hops, weight_decay=1e-3)
    other = smoothed_regression(dense, data.labels, train, hops=hops, weight_decay=1e-3)
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_no_hops_ignores_the_edges():
    data = make_graph(300, 3, features="dense")
    bare = Graph(None, features=data.graph.features)
    train = np.arange(100)
    one = smoothed_regression(data.graph, data.labels, train, hops=0)
    np.testing.assert_array_equal(one, smoothed_regression(bare, data.labels, train, hops=0))
    # Without edges there is nothing to average over: any number of hops is none.
    other = smoothed_regression(bare, data.labels, train, hops=2)
    np.testing.assert_allclose(one, other, atol=1e-9)


def test_isolated_nodes_keep_their_own_features():
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    features = rng.normal(size=(60, 4)) + 4 * labels[:, None]
    edges = np.array([[0, 2, 4, 1, 3], [2, 4, 6, 3, 5]])
    probs = smoothed_regression(Graph(edges, features=features), labels, np.arange(40))
    assert accuracy(probs, labels, np.arange(40)) > 0.95


def test_self_loops_of_the_graph_count_once():
    data = make_graph(100, 2)
    edges = np.hstack([np.stack(data.graph.adjacency.nonzero()), np.tile(np.arange(100), (2, 1))])
    looped = Graph(edges, features=data.graph.features, self_loops=True)
    one = softmax._normalised_adjacency(looped)
    assert abs(one - softmax._normalised_adjacency(data.graph)).max() == 0


# --- What it reaches ---------------------------------------------------------------------------


def test_accuracy_on_a_made_graph():
    data = make_graph(2000, 5, signal=1.0)
    train = first_of_each(data.labels, 20)
    plain = smoothed_regression(data.graph, data.labels, train, hops=0)
    smooth = smoothed_regression(data.graph, data.labels, train)
    assert accuracy(plain, data.labels, train) > 0.35
    assert accuracy(smooth, data.labels, train) > 0.85


def test_accuracy_on_cora_ml(data_dir):
    graph = Graph.from_npz(data_dir / "cora_ml.npz")
    graph.features.data[:] = 1
    labels = np.load(data_dir / "cora_ml.npz")["y"]
    train = first_of_each(labels, 20)
    assert accuracy(smoothed_regression(graph, labels, train), labels, train) > 0.78


def test_probabilities():
    data = make_graph(300, 3)
    probs = smoothed_regression(data.graph, data.labels, np.arange(50), num_classes=4)
    assert probs.shape == (300, 4) and probs.dtype == np.float64
    assert (probs >= 0).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-12)


def test_only_training_labels_are_learnt_from():
    data = make_graph(300, 3)
    hidden = np.full(300, -1)
    hidden[:50] = data.labels[:50]
    one = smoothed_regression(data.graph, data.labels, np.arange(50))
    mask = np.arange(300) < 50
    np.testing.assert_array_equal(one, smoothed_regression(data.graph, hidden, mask, num_classes=3))


def test_the_scale_of_the_features_does_not_matter():
    data = make_graph(300, 3, features="dense")
    large = Graph(data.graph.adjacency, features=data.graph.features * np.float32(1024))
    one = smoothed_regression(data.graph, data.labels, np.arange(100))
    np.testing.assert_allclose(
        one, smoothed_regression(large, data.labels, np.arange(100)), atol=1e-9
    )


def test_features_of_zeros_give_the_class_shares():
    graph = Graph(None, features=np.zeros((8, 3)))
    labels = np.array([0, 0, 0, 1, -1, -1, -1, -1])
    probs = smoothed_regression(graph, labels, np.arange(4))
    np.testing.assert_allclose(probs, np.tile([0.75, 0.25], (8, 1)), atol=1e-3)


# --- Errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"graph": Graph([[0], [1]], num_nodes=50)}, "'graph' must have features"),
        ({"hops": -1}, "'hops' must be .* got -1"),
        ({"hops": 1.5}, "'hops' must be .* got 1.5"),
        ({"weight_decay": -1e-3}, "'weight_decay' must be .* got -0.001"),
        ({"max_iter": 0}, "'max_iter' must be .* got 0"),
        ({"train_nodes": []}, "'train_nodes' must hold at least one node"),
        ({"train_nodes": [50]}, "'train_nodes' must lie from 0 to 49, got 50"),
        ({"labels": np.zeros(49, int)}, r"'labels' must have shape \(50,\), got \(49,\)"),
        ({"labels": np.full(50, np.nan)}, "'labels' must be integers"),
        ({"labels": np.full(50, -1)}, "'train_nodes' must be labelled"),
        ({"num_classes": 1}, "'num_classes' must be .* got 1"),
        ({"num_classes": 2}, "'labels' must lie from 0 to 1"),
    ],
)
def test_bad_arguments(change, message):
    data = make_graph(50, 3, degree=3)
    given = {"graph": data.graph, "labels": data.labels, "train_nodes": np.arange(20), **change}
    with pytest.raises(SnapsError, match=message) as caught:
        smoothed_regression(
            given.pop("graph"), given.pop("labels"), given.pop("train_nodes"), **given
        )
    assert "\n" not in str(caught.value)
