"""Tuning nodes with other class proportions than the graph: noticed, and rarely by mistake."""

from __future__ import annotations

import numpy as np
import pytest

import snaps
from snaps.datasets import load, make_graph
from snaps.models import smoothed_regression
from snaps.scoring import shares as _shares


@pytest.mark.filterwarnings("ignore:class 4 is covered")
@pytest.mark.parametrize("imbalance", [1, 2])
def test_tuning_nodes_that_are_balanced_where_the_graph_is_not(imbalance):
    """Twenty a class tune: it is said, the shares are put right, and the sets stay small."""
    for seed in (1, 2):
        data = make_graph(3000, 5, imbalance=imbalance, seed=seed)
        order = np.random.default_rng(seed).permutation(3000)
        by_class = [order[data.labels[order] == y] for y in range(5)]
        train = np.concatenate([nodes[:20] for nodes in by_class])
        valid = np.concatenate([nodes[20:40] for nodes in by_class])
        pool = np.setdiff1d(order, np.concatenate([train, valid]))
        probs = smoothed_regression(data.graph, data.labels, train)
        arguments = data.graph, probs, data.labels, pool, 500, 20
        thirds = snaps.evaluate_splits(snaps.SNAPS(weights=(1 / 3, 1 / 3)), *arguments)
        with pytest.warns(snaps.SnapsWarning, match="tuning nodes are not like the others"):
            mine = snaps.evaluate_splits(
                snaps.Pooled(), *arguments, tune_nodes=valid, known_nodes=train
            )
        assert mine["size"].mean() < 1.02 * thirds["size"].mean()
        cp = snaps.Pooled()
        with pytest.warns(snaps.SnapsWarning, match="tuning nodes are not like the others"):
            cp.calibrate(data.graph, probs, data.labels, pool[::3], valid, known_nodes=train)
        true = np.bincount(data.labels[pool], minlength=5) / len(pool)
        assert np.abs(cp.probs_[pool].mean(axis=0) - true).max() < 0.05
        # A part of the calibration nodes is like the others, and so are nodes drawn by the user.
        snaps.Pooled().calibrate(data.graph, probs, data.labels, pool[::3], known_nodes=train)
        drawn = np.random.default_rng(seed).permutation(pool)
        snaps.Pooled().calibrate(
            data.graph, probs, data.labels, drawn[100:600], drawn[:100], known_nodes=train
        )


@pytest.mark.parametrize("name", ["amazon_photo", "amazon_computers"])
def test_balanced_tuning_nodes_on_real_graphs(name, data_dir):
    data = load(name, data_dir=data_dir)
    order = np.random.default_rng(0).permutation(len(data.labels))
    by_class = [order[data.labels[order] == y] for y in range(data.num_classes)]
    train = np.concatenate([nodes[:20] for nodes in by_class])
    valid = np.concatenate([nodes[20:40] for nodes in by_class])
    pool = np.setdiff1d(order, np.concatenate([train, valid]))
    probs = smoothed_regression(data.graph, data.labels, train)
    near = snaps.similarity_graph(data.graph.features, 20, ids=data.graph.keys)
    arguments = data.graph, probs, data.labels, pool, 1000, 20, 0, near
    thirds = snaps.evaluate_splits(snaps.SNAPS(weights=(1 / 3, 1 / 3)), *arguments)
    with pytest.warns(snaps.SnapsWarning, match="tuning nodes are not like the others"):
        mine = snaps.evaluate_splits(
            snaps.Pooled(), *arguments, tune_nodes=valid, known_nodes=train
        )
    assert mine["size"].mean() < 1.02 * thirds["size"].mean()


def test_shares_of_hundreds_of_classes_are_not_estimated_from_a_few_nodes():
    """One node a class, as in a sample of images: a label seen once is not seen again."""
    random = np.random.default_rng(0)
    labels = random.permutation(500)
    features = np.eye(500)[labels] + 0.2 * random.normal(size=(500, 500))
    graph = snaps.Graph(None, features)
    logits = 4 * np.eye(500)[labels] + random.normal(size=(500, 500))
    tune, calib = np.arange(100), np.arange(100, 300)
    plain = snaps.Pooled(0.1, tuning_evidence=False, parts=("own", "similar"))
    plain.calibrate(graph, logits, labels, calib, tune, logits=True)
    cp = snaps.Pooled(0.1)
    cp.calibrate(graph, logits, labels, calib, tune, logits=True)  # drawn at random: no warning
    assert cp.predict_set().sizes.mean() < 1.1 * plain.predict_set().sizes.mean()
    few = labels // 10  # fifty classes, and ten of them tune
    tune, rest = np.flatnonzero(few < 10), np.flatnonzero(few >= 10)
    logits = 4 * np.eye(50)[few] + random.normal(size=(500, 50))
    with pytest.warns(snaps.SnapsWarning, match="not like the others.*kept: they are too few"):
        snaps.Pooled(0.1).calibrate(graph, logits, few, rest[:200], tune, logits=True)


def test_fair_tuning_nodes_are_rarely_called_unlike():
    random = np.random.default_rng(4)
    others = random.dirichlet([0.3, 0.2, 0.1, 0.05], 4000)
    calls = sum(
        _shares.unlike(others[nodes], others, nodes.astype(np.uint64), 0)
        for nodes in (random.choice(4000, 80, replace=False) for _ in range(1000))
    )
    assert calls <= 10


@pytest.mark.parametrize(("tune", "others", "classes"), [(500, 500, 15), (500, 250, 7)])
def test_fair_tuning_nodes_are_rarely_called_unlike_where_the_others_are_few(tune, others, classes):
    """The mean of few others strays by itself."""
    random = np.random.default_rng(5)
    table = random.dirichlet(np.full(classes, 0.05), tune + others)
    calls = 0
    for trial in range(100):
        random.shuffle(table)
        calls += _shares.unlike(table[:tune], table[tune:], np.arange(tune, dtype=np.uint64), trial)
    assert calls <= 3


def test_no_tuning_nodes_and_features_of_zeros(case):
    """No tuning nodes, or no similar nodes: known nodes are evidence all the same."""
    graph, probs, labels, pool = case
    known, calib = pool[:50], pool[50:250]
    with pytest.warns(snaps.SnapsWarning, match="too few to tune on as well"):
        cp = snaps.Pooled(0.1).calibrate(graph, probs, labels, calib[:12], known_nodes=known)
    assert not len(cp.tune_nodes_) and np.isfinite(cp.scores_).all()
    empty = snaps.Graph(graph.adjacency, np.zeros((graph.num_nodes, 3)))
    cp = snaps.Pooled(0.1).calibrate(empty, probs, labels, calib, known_nodes=known)
    assert np.isfinite(cp.scores_).all()
