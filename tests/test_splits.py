"""Many splits at once are what one split after the other gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import snaps
import snaps.datasets
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
    tuning_worlds,
)


def calibrating(world, pool, n_calib, n_splits):
    """The library's splits: for each, the calibration nodes and the other nodes of the pool."""
    keys = np.array(world.ids, np.uint64)[pool]
    drawn = np.asarray(snaps.splits.draw_splits(world.seed, keys, n_calib, n_splits))
    for row in drawn:
        mask = row if row.dtype == bool else np.isin(np.arange(len(pool)), row)
        yield np.array(pool)[mask].tolist(), np.array(pool)[~mask].tolist()


def check_splits(world, method, pool, n_calib, n_splits, alphas=None, tune_nodes=None):
    """evaluate_splits against calibrating and predicting one split at a time, twice over."""
    graph, probs, labels = world.arrays()
    found = quietly(
        snaps.evaluate_splits,
        method(),
        graph,
        probs,
        labels,
        np.array(pool),
        n_calib,
        n_splits=n_splits,
        seed=world.seed,
        tune_nodes=tune_nodes,
        alphas=alphas,
    )
    for number, (calib, test) in enumerate(calibrating(world, pool, n_calib, n_splits)):
        assert len(calib) == n_calib
        for row, alpha in enumerate(alphas or [None]):
            cp = method() if alpha is None else method(alpha)
            quietly(cp.calibrate, graph, probs, labels, calib, tune_nodes=tune_nodes)
            alpha = cp.alpha
            scores = cp.scores_.tolist()
            truth = t.true_scores(scores, world.labels, calib)
            q = t.threshold(truth, alpha)
            if cp.class_conditional:
                calib_labels = [world.labels[i] for i in calib]
                q = t.class_thresholds(truth, calib_labels, world.num_labels, alpha)
            sets = [t.prediction_set(scores[i], q) for i in test]
            assert as_sets(quietly(cp.predict_set, test).mask) == sets
            expected = numbers_of(sets, [world.labels[i] for i in test])
            expected |= {"threshold": q, "n_calib": n_calib, "n_test": len(test)}
            for key, value in expected.items():
                entry = np.asarray(found[key])
                entry = entry[number] if alphas is None else entry[row, number]
                assert entry == pytest.approx(value, rel=1e-12, nan_ok=True), key


@given(split_worlds(), METHODS, st.sampled_from(ALPHAS), st.data())
def test_evaluate_splits(split, name, alpha, data):
    world, pool, _ = split
    assume(len(pool) >= 2)
    n_calib = data.draw(st.integers(1, len(pool) - 1))
    check_splits(world, lambda: fixed_method(world, alpha, name), pool, n_calib, 5)


@given(split_worlds(), METHODS, st.sampled_from(ALPHAS), st.data())
@settings(max_examples=15)
def test_evaluate_splits_with_class_thresholds(split, name, alpha, data):
    world, pool, _ = split
    assume(len(pool) >= 2)
    n_calib = data.draw(st.integers(1, len(pool) - 1))

    def method():
        return fixed_method(world, alpha, name, class_conditional=True)

    check_splits(world, method, pool, n_calib, 3)


@given(split_worlds(), METHODS, st.data())
@settings(max_examples=15)
def test_evaluate_splits_at_many_alphas(split, name, data):
    world, pool, _ = split
    assume(len(pool) >= 2)
    n_calib = data.draw(st.integers(1, len(pool) - 1))

    def method(alpha=0.1):
        return fixed_method(world, alpha, name)

    check_splits(world, method, pool, n_calib, 3, alphas=[0.1, 0.3, 0.5])


@given(tuning_worlds(general=True))
@settings(max_examples=15)
def test_evaluate_splits_of_a_tuned_method(drawn):
    (world, tune, pool, _), alpha = drawn
    assume(len(pool) >= 2)

    def method():
        return snaps.SNAPS(alpha=alpha, k=3, seed=world.seed)

    check_splits(world, method, pool, len(pool) // 2, 3, tune_nodes=tune)


@pytest.mark.parametrize("n_calib, tuned", [(40, True), (40, False), (9, False)])
def test_evaluate_splits_of_a_larger_graph(n_calib, tuned):
    world = larger_world(150, 7)
    pool = list(range(40, 140))
    options = {} if tuned else {"weights": (0.3, 0.3)}

    def method(alpha=0.1):
        return snaps.SNAPS(alpha=alpha, k=5, seed=world.seed, **options)

    tune_nodes = list(range(40)) if tuned else None
    alphas = [0.1, 0.3]
    check_splits(world, method, pool, n_calib, 20, alphas=alphas, tune_nodes=tune_nodes)


def test_evaluate_splits_takes_the_tuning_part_out_of_the_budget():
    """Tuned on part of the budget: the rest calibrates, and the pool left over is the test set."""
    world = larger_world(400, 2)
    graph, probs, labels = world.arrays()
    pool = np.arange(50, 350)
    found = snaps.evaluate_splits(
        snaps.SNAPS(alpha=0.1, k=5), graph, probs, labels, pool, n_calib=100, n_splits=5
    )
    assert np.unique(found["n_calib"]).tolist() == [59]  # 54 of 60 covered is 0.9
    assert np.unique(found["n_test"]).tolist() == [200]


def test_methods_that_share_their_work_give_what_each_gives_alone():
    n, pool = 260, np.arange(40, 260)
    data = snaps.datasets.make_graph(n, 3, seed=4)
    probs = np.random.default_rng(0).dirichlet(np.ones(3), n)
    methods = {
        "APS": snaps.SplitConformal(0.1),
        "DAPS": snaps.DAPS(0.1),
        "SNAPS": snaps.SNAPS(0.2, k=5),
        "RAPS": snaps.SplitConformal(0.1, score=snaps.RAPS(), seed=1),
    }
    common = (data.graph, probs, data.labels, pool, 120, 10, 3)
    together = snaps.evaluate_splits(methods, *common, n_tune=50)
    for name, method in methods.items():
        alone = snaps.evaluate_splits(method, *common, n_tune=50)
        assert all(np.array_equal(alone[key], together[name][key]) for key in alone)
    assert together["APS"]["n_calib"][0] == 120 and together["SNAPS"]["n_calib"][0] == 70


def test_splits_name_classes_with_too_few_calibration_nodes():
    """The class thresholds of `evaluate_splits` warn as those of `calibrate` do."""
    labels = np.r_[np.zeros(150, int), np.full(4, 1)]
    probs = np.full((len(labels), 2), 0.5)
    method = snaps.SplitConformal(0.1, class_conditional=True)
    message = "1 of 2 classes .* in some splits .* class 1$"
    with pytest.warns(snaps.errors.SnapsWarning, match=message):
        out = snaps.evaluate_splits(method, None, probs, labels, np.arange(len(labels)), 80, 5)
    assert np.isinf(out["threshold"][:, 1]).all() and np.isfinite(out["threshold"][:, 0]).all()
