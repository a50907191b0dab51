"""Thresholds, sets and p-values of calibrated estimators against a plain transcription."""

from __future__ import annotations

import json
import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import snaps
import snaps.datasets
from snaps import metrics
from snaps._kernels import aggregation, scoring, splitting
from snaps._runtime.threads import limit_threads
from tests.helpers import transcription as t
from tests.helpers.worlds import (
    ALPHAS,
    METHODS,
    as_sets,
    fixed_method,
    larger_world,
    numbers_of,
    quietly,
    split_worlds,
)


@given(split_worlds(), METHODS, st.sampled_from(ALPHAS))
def test_threshold_and_sets(split, name, alpha):
    world, calib, test = split
    cp = fixed_method(world, alpha, name)
    assert quietly(cp.calibrate, *world.arrays(), calib) is cp
    scores = cp.scores_.tolist()
    q = t.threshold(t.true_scores(scores, world.labels, calib), alpha)
    assert cp.threshold_ == q
    sets = quietly(cp.predict_set, test)
    expected = [t.prediction_set(scores[i], q) for i in test]
    assert as_sets(sets.mask) == expected
    assert sets.nodes.tolist() == test
    assert sets.sizes.tolist() == [len(c) for c in expected]
    assert [set(labels.tolist()) for labels in sets.labels()] == expected
    assert len(sets) == len(test)


@given(split_worlds(), METHODS, st.sampled_from(ALPHAS))
def test_nodes_asked_for_by_default(split, name, alpha):
    world, calib, test = split
    cp = quietly(fixed_method(world, alpha, name).calibrate, *world.arrays(), calib)
    assert sorted(cp.calib_nodes_.tolist()) == sorted(calib)
    sets = quietly(cp.predict_set)
    assert sorted(sets.nodes.tolist()) == sorted(test)
    asked = quietly(cp.predict_set, sets.nodes)
    np.testing.assert_array_equal(sets.mask, asked.mask)
    np.testing.assert_array_equal(cp.predict_p(), cp.predict_p(sets.nodes))


@given(split_worlds(), METHODS)
def test_p_values(split, name):
    """(1 + #{s_i >= s}) / (n + 1), and a label is in the set exactly when p > alpha."""
    world, calib, test = split
    cp = quietly(fixed_method(world, 0.1, name).calibrate, *world.arrays(), calib)
    scores = cp.scores_.tolist()
    truth = t.true_scores(scores, world.labels, calib)
    expected = [[t.p_value(truth, s) for s in scores[i]] for i in test]
    np.testing.assert_allclose(cp.predict_p(test), np.array(expected, float), rtol=1e-15)
    for alpha in ALPHAS:
        sets = quietly(cp.predict_set, test, alpha=alpha)
        assert sets.mask.tolist() == [[p > t.exact(alpha) for p in row] for row in expected]


@given(split_worlds(), METHODS)
def test_smoothed_p_values(split, name):
    world, calib, test = split
    cp = quietly(fixed_method(world, 0.1, name).calibrate, *world.arrays(), calib)
    scores = cp.scores_.tolist()
    truth = t.true_scores(scores, world.labels, calib)
    smoothed = cp.predict_p(test, smoothed=True)
    for i, row in zip(test, smoothed, strict=True):
        for s, p in zip(scores[i], row, strict=True):
            low, high = t.smoothed_p_range(truth, s)
            assert float(low) - 1e-15 <= p <= float(high) + 1e-15
    np.testing.assert_array_equal(smoothed, cp.predict_p(test, smoothed=True))


@given(split_worlds(), METHODS)
def test_sets_are_nested_in_alpha(split, name):
    world, calib, test = split
    cp = quietly(fixed_method(world, 0.1, name).calibrate, *world.arrays(), calib)
    masks = [quietly(cp.predict_set, test, alpha=alpha).mask for alpha in sorted(ALPHAS)]
    for larger, smaller in pairwise(masks):
        assert not (smaller & ~larger).any()


@given(split_worlds(), METHODS, st.sampled_from(ALPHAS))
def test_class_conditional_thresholds(split, name, alpha):
    world, calib, test = split
    cp = fixed_method(world, alpha, name, class_conditional=True)
    quietly(cp.calibrate, *world.arrays(), calib)
    scores = cp.scores_.tolist()
    truth = t.true_scores(scores, world.labels, calib)
    labels = [world.labels[i] for i in calib]
    q = t.class_thresholds(truth, labels, world.num_labels, alpha)
    np.testing.assert_array_equal(cp.threshold_, q)
    expected = [t.prediction_set(scores[i], q) for i in test]
    assert as_sets(quietly(cp.predict_set, test).mask) == expected
    pairs = list(zip(truth, labels, strict=True))
    by_class = [[s for s, y in pairs if y == c] for c in range(world.num_labels)]
    p_values = [[t.p_value(by_class[y], s) for y, s in enumerate(scores[i])] for i in test]
    np.testing.assert_allclose(cp.predict_p(test), np.array(p_values, float), rtol=1e-15)


@pytest.mark.parametrize("name", ["split", "daps", "snaps"])
def test_too_few_calibration_nodes_give_full_sets_and_a_warning(name):
    """Rank 20 of 18 does not exist: never clip, never fail, say so."""
    world = larger_world(60, 0)
    with pytest.warns(snaps.SnapsWarning):
        cp = fixed_method(world, 0.05, name).calibrate(*world.arrays(), range(18))
        sets = cp.predict_set(range(20, 60))
    assert cp.threshold_ == math.inf
    assert sets.mask.all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cp.calibrate(*world.arrays(), range(19))
        cp.predict_set(range(20, 60))
    assert math.isfinite(cp.threshold_)


@given(split_worlds(), METHODS, st.randoms(use_true_random=False))
def test_scores_know_neither_labels_nor_roles(split, name, random):
    world, calib, test = split
    graph, probs, labels = world.arrays()
    one = quietly(fixed_method(world, 0.1, name).calibrate, graph, probs, labels, calib)
    other_labels = np.array([random.randrange(world.num_labels) for _ in labels])
    two = quietly(fixed_method(world, 0.1, name).calibrate, graph, probs, other_labels, test)
    np.testing.assert_array_equal(one.scores_, two.scores_)


@given(split_worlds(parts=3), st.sampled_from(ALPHAS))
def test_labels_of_other_nodes_may_be_unknown(split, alpha):
    world, tune, calib, _ = split
    graph, probs, labels = world.arrays()
    hidden = np.full(world.num_nodes, -1)
    hidden[tune + calib] = labels[tune + calib]
    results = []
    for known in (labels, hidden):
        cp = snaps.SNAPS(alpha=alpha, k=3, seed=world.seed)
        quietly(cp.calibrate, graph, probs, known, calib, tune_nodes=tune)
        results.append((cp.weights_, cp.threshold_, quietly(cp.predict_set).mask.tolist()))
    assert results[0] == results[1]


@given(split_worlds(), st.data())
@pytest.mark.parametrize("tuned", [False, True], ids=["fixed", "tuned"])
def test_relabelling_nodes_changes_nothing(tuned, split, data):
    """With ids carried along, a node's set does not depend on the row it is stored in."""
    world, calib, test = split
    order = data.draw(st.permutations(range(world.num_nodes)))
    place = {old: new for new, old in enumerate(order)}
    results = []
    for w, rename in ((world, lambda i: i), (world.relabelled(order), place.get)):
        options = {} if tuned else {"weights": (0.35, 0.25)}
        cp = snaps.SNAPS(alpha=0.3, k=3, seed=w.seed, **options)
        quietly(cp.calibrate, *w.arrays(), [rename(i) for i in calib])
        sets = quietly(cp.predict_set, [rename(i) for i in test])
        results.append((cp.weights_, cp.threshold_, sets.mask.tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("seed", range(3))
def test_relabelling_a_larger_graph_changes_nothing(seed):
    world = larger_world(600, seed)
    order = np.random.default_rng(seed).permutation(600)
    place = np.argsort(order)
    moved = world.relabelled(order.tolist())
    calib, test = np.arange(300), np.arange(300, 600)
    one = snaps.SNAPS(alpha=0.1, k=10).calibrate(*world.arrays(), calib)
    two = snaps.SNAPS(alpha=0.1, k=10).calibrate(*moved.arrays(), place[calib])
    assert one.weights_ == two.weights_
    assert one.threshold_ == two.threshold_
    np.testing.assert_array_equal(one.predict_set(test).mask, two.predict_set(place[test]).mask)
    np.testing.assert_array_equal(one.scores_, two.scores_[place])


def test_the_number_of_threads_changes_nothing(monkeypatch):
    world = larger_world(3000, 1)
    pool = np.arange(2000)
    results = []
    monkeypatch.setattr(aggregation, "SHARE", 500)  # or this would be too little for threads
    for loops in (scoring, splitting):
        monkeypatch.setattr(loops, "_SHARE", 500)
    for threads in (1, 2, 5):
        with limit_threads(threads):
            graph, probs, labels = world.arrays()
            cp = snaps.SNAPS(alpha=0.1).calibrate(graph, probs, labels, pool)
            splits = snaps.evaluate_splits(
                snaps.SNAPS(alpha=0.1), graph, probs, labels, pool, n_calib=400, n_splits=10
            )
            near = snaps.similarity_graph(np.array(world.features, float))
            rows = [near.indptr, near.indices, near.data]
            numbers = [np.asarray(splits[key]) for key in sorted(splits)]
            results.append([cp.scores_, cp.predict_p(), cp.weights_, *rows, *numbers])
    for one, two, three in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


@given(split_worlds(), METHODS, st.sampled_from(ALPHAS))
def test_evaluate(split, name, alpha):
    world, calib, test = split
    cp = quietly(fixed_method(world, alpha, name).calibrate, *world.arrays(), calib)
    found = quietly(cp.evaluate, np.array(world.labels), test)
    sets = [t.prediction_set(cp.scores_[i].tolist(), cp.threshold_) for i in test]
    expected = numbers_of(sets, [world.labels[i] for i in test])
    for key, value in expected.items():
        if math.isnan(value):
            assert found[key] is None, key
        else:
            assert found[key] == pytest.approx(value, rel=1e-12), key
    assert found["n"] == len(test)
    finite = math.isfinite(cp.threshold_)
    assert found["threshold"] == (cp.threshold_ if finite else None)
    assert json.loads(json.dumps(found, allow_nan=False))["n"] == len(test)


@given(split_worlds(), METHODS, st.sampled_from(ALPHAS))
def test_metrics(split, name, alpha):
    world, calib, test = split
    cp = quietly(fixed_method(world, alpha, name).calibrate, *world.arrays(), calib)
    sets = quietly(cp.predict_set, test)
    labels = [world.labels[i] for i in test]
    plain = as_sets(sets.mask)
    given_labels = np.array(world.labels)
    expected = numbers_of(plain, labels)
    found = {
        "coverage": metrics.coverage(sets, given_labels),
        "size": metrics.size(sets),
        "size_nonempty": metrics.size_nonempty(sets),
        "empty": metrics.empty(sets),
        "singleton_hit": metrics.singleton_hit(sets, given_labels),
    }
    for key, value in found.items():
        assert value == pytest.approx(expected[key], rel=1e-12, nan_ok=True), key
    sscv = metrics.sscv(sets, given_labels, alpha)
    assert sscv == pytest.approx(t.sscv(plain, labels, alpha), rel=1e-12, abs=1e-15)
    by_class = metrics.class_coverage(sets, given_labels)
    np.testing.assert_allclose(by_class, t.class_coverage(plain, labels, world.num_labels))
