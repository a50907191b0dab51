"""Synthetic graphs: the statistics asked for, the features' signal, and one result a seed."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from snaps import SnapsError
from snaps.datasets import Dataset, make_graph, synthetic


def homophily(data: Dataset) -> float:
    edges = data.graph.adjacency.tocoo()
    return float((data.labels[edges.row] == data.labels[edges.col]).mean())


def degrees(data: Dataset) -> np.ndarray:
    return np.diff(data.graph.adjacency.indptr)


def same_graph(one: Dataset, other: Dataset) -> bool:
    difference = one.graph.adjacency != other.graph.adjacency
    return difference.nnz == 0 and np.array_equal(one.labels, other.labels)


# --- Edges and labels --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"homophily": 0.1},
        {"homophily": 1.0},
        {"homophily": 0.0, "num_classes": 2},
        {"degree": 1.5, "tail": None},
        {"degree": 60, "tail": 2.1, "num_classes": 10},
        {"imbalance": 1.0, "num_classes": 8},
    ],
)
def test_degree_and_homophily_are_met(options):
    data = make_graph(1500, **{"num_classes": 5, "seed": 3, **options})
    assert homophily(data) == pytest.approx(options.get("homophily", 0.8), abs=2e-3)
    assert degrees(data).mean() == pytest.approx(options.get("degree", 8.0), abs=2e-3)


def test_a_graph_close_to_full_is_met_too():
    data = make_graph(60, 2, degree=28, homophily=0.5, tail=2.05)
    assert degrees(data).mean() == pytest.approx(28, abs=0.05)


def test_the_graph_is_simple_and_undirected():
    adjacency = make_graph(400, degree=30).graph.adjacency
    assert (adjacency != adjacency.T).nnz == 0
    assert not adjacency.diagonal().any()
    assert (adjacency.data == 1).all()


def test_the_tail_follows_the_power_law():
    skewed = degrees(make_graph(50_000, tail=2.5, degree=20, features="dense", num_features=1))
    even = degrees(make_graph(50_000, tail=None, degree=20, features="dense", num_features=1))
    assert even.var() == pytest.approx(20, rel=0.05)
    assert skewed.max() > 25 * 20
    # Hill's estimate over the upper tail, below the cut.
    top = np.sort(skewed[(skewed > 60) & (skewed < 600)])
    exponent = 1 + 1 / np.log(top / 60).mean()
    assert exponent == pytest.approx(2.5, abs=0.35)


def test_degrees_do_not_depend_on_the_class_when_classes_are_equal():
    data = make_graph(20_000, 4, tail=None, features="dense", num_features=1)
    means = [degrees(data)[data.labels == c].mean() for c in range(4)]
    np.testing.assert_allclose(means, 8, rtol=0.03)


def test_class_sizes():
    assert np.bincount(make_graph(1001, 4, degree=2).labels).tolist() == [251, 250, 250, 250]
    sizes = np.bincount(make_graph(10_000, 4, imbalance=1.0, degree=2).labels)
    np.testing.assert_allclose(sizes / sizes.sum(), np.array([12, 6, 4, 3]) / 25, atol=1e-3)
    steep = np.bincount(make_graph(100, 5, imbalance=50, degree=0).labels)
    assert steep.tolist() == [96, 1, 1, 1, 1]


def test_classes_are_not_sorted():
    labels = make_graph(1000, 2).labels
    assert 400 < np.count_nonzero(labels[1:] != labels[:-1]) < 600


def test_no_edges():
    data = make_graph(5, 5, degree=0)
    assert data.graph.adjacency.nnz == 0
    assert data.num_classes == 5


# --- Features ----------------------------------------------------------------------------------


def test_words():
    table = make_graph(3000, num_features=500, signal=1.0).graph.features
    assert sp.issparse(table) and table.dtype == np.float32 and table.shape == (3000, 500)
    assert (table.data == 1).all() and table.has_canonical_format
    lengths = np.diff(table.indptr)
    assert lengths.min() >= 1 and 20 < lengths.mean() < 30
    used = table.sum(axis=0)
    assert used[:50].mean() > 5 * used[-50:].mean()


@pytest.mark.parametrize("signal", [0.0, 1.0, 2.0])
def test_a_class_prefers_its_topic_by_the_factor_asked_for(signal):
    rng = np.random.default_rng(0)
    cumulated = synthetic._word_distributions(rng, 6, 400, signal)
    chances = np.diff(cumulated.ravel(), prepend=0.0).reshape(6, 400)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    background = 1 / (np.arange(400) + 10)
    ratios = chances / background
    ratios /= ratios.min(axis=1, keepdims=True)
    np.testing.assert_allclose(ratios.max(axis=1), np.exp(signal))
    if signal:
        topics = ratios > 1.001
        assert (topics.sum(axis=1) == 40).all()
        assert (topics.sum(axis=0) > 1).any(), "topics must overlap"


def test_words_follow_their_distribution():
    rng = np.random.default_rng(1)
    cumulated = synthetic._word_distributions(rng, 2, 50, 2.0)
    # With one word a node nothing is lost to duplicates, so shares equal chances.
    labels = np.repeat([0, 1], 50_000)
    words, counts = synthetic._distinct_words(rng, labels, np.ones(100_000, int), cumulated)
    assert (counts == 1).all()
    for c in range(2):
        shares = np.bincount(words[labels == c], minlength=50) / 50_000
        np.testing.assert_allclose(shares, np.diff(cumulated[c] - c, prepend=0.0), atol=5e-3)


@pytest.mark.parametrize("num_features", [30, 300])
def test_dense_centres_lie_the_signal_apart(num_features):
    options = {"degree": 0, "features": "dense", "num_features": num_features}
    data = make_graph(8000, 20, signal=3.0, **options)
    table = data.graph.features
    assert table.dtype == np.float32 and table.shape == (8000, num_features)
    centres = np.stack([table[data.labels == c].mean(axis=0) for c in range(20)])
    one, other = np.triu_indices(20, 1)
    squares = ((centres[one] - centres[other]) ** 2).sum(axis=1)
    noise = 2 * num_features / 400
    assert np.sqrt(squares.mean() - noise) == pytest.approx(3, rel=0.15)
    assert (table - centres[data.labels]).std() == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("features", ["words", "dense"])
@pytest.mark.parametrize("num_features", [1, 3])
def test_few_features(features, num_features):
    data = make_graph(50, 2, degree=3, features=features, num_features=num_features)
    assert data.graph.features.shape == (50, num_features)


# --- Seeds -------------------------------------------------------------------------------------


def test_one_result_a_seed():
    one, again, other = make_graph(500, seed=1), make_graph(500, seed=1), make_graph(500, seed=2)
    assert same_graph(one, again)
    assert (one.graph.features != again.graph.features).nnz == 0
    assert not same_graph(one, other)


def test_other_features_leave_the_edges_alone():
    words = make_graph(500, seed=1)
    dense = make_graph(500, seed=1, features="dense", signal=0.3, num_features=7)
    assert same_graph(words, dense)


def test_chunks_cover_everything(monkeypatch):
    monkeypatch.setattr(synthetic, "_CHUNK", 128)
    for features in ("words", "dense"):
        data = make_graph(1000, features=features, num_features=40)
        assert homophily(data) == pytest.approx(0.8, abs=1e-3)
        assert degrees(data).mean() == pytest.approx(8)
        assert data.graph.features.shape == (1000, 40)
        assert (abs(data.graph.features).sum(axis=1) > 0).all()


def test_the_import_is_light():
    code = "import sys, snaps.datasets; print({'numba', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# --- Errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"homophily": 1.5}, "'homophily' must be .* 0 to 1, got 1.5"),
        ({"homophily": float("nan")}, "'homophily' must be .* got nan"),
        ({"degree": -1}, "'degree' must be .* got -1"),
        ({"tail": 2}, "'tail' must be None or a number above 2, got 2"),
        ({"tail": 1.5}, "'tail' must be .* got 1.5"),
        ({"imbalance": -0.1}, "'imbalance' must be .* got -0.1"),
        ({"features": "images"}, "'features' must be 'words' or 'dense', got 'images'"),
        ({"num_features": 0}, "'num_features' must be .* got 0"),
        ({"signal": -1}, "'signal' must be .* got -1"),
        ({"signal": 1000}, "'signal' must be .* got 1000"),
        ({"seed": -1}, "'seed' must be .* got -1"),
        ({"num_classes": 1}, "'num_classes' must be .* got 1"),
        ({"num_nodes": 4}, "'num_nodes' must be .* at least 5, got 4"),
        ({"num_nodes": 100, "degree": 60}, "'degree' must ask for at most half of the 950 pairs"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(SnapsError, match=message) as caught:
        make_graph(**options)
    assert "\n" not in str(caught.value)
