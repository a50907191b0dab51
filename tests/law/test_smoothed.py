"""Smoothed sets over many splits: coverage is exactly 1 - alpha on average, in its exact law."""

from __future__ import annotations

from functools import cache
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

import snaps
from snaps import splits as _splits
from snaps._runtime.randomness import SMOOTH_STREAM, hashes, uniforms
from snaps.conformal.calibration import Calibration
from snaps.splits import draw_splits
from tests.helpers import law
from tests.law.test_promises import PROMISES, World, error_line

N, POOL, ALPHA = 12, 32, 0.1  # alpha (n + 1) is 1.3: plain sets cover 12 / 13
SEEDS = [0, 7, 20241]


@pytest.mark.parametrize("n, m, alpha", [(3, 2, 0.3), (4, 2, 0.4), (2, 3, 0.2), (4, 3, 0.25)])
def test_the_law_by_counting_every_order(n, m, alpha):
    """Of n + m scores in any order, the last m are test nodes; chance is added up by hand."""
    expected, orders = np.zeros(m + 1), list(permutations(range(n + m)))
    for order in orders:
        pmf = np.ones(1)
        for score in order[n:]:
            above = sum(each > score for each in order[:n])
            # The smoothed p-value is uniform on [above, above + 1] / (n + 1).
            hit = min(max(above + 1 - alpha * (n + 1), 0), 1)
            pmf = np.convolve(pmf, [1 - hit, hit])
        expected += pmf / len(orders)
    found = law.smoothed_hit_pmf(n, m, alpha)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert np.arange(m + 1) @ found == pytest.approx(m * (1 - alpha))


@cache
def pool_of(size, seed=3):
    """A graph whose pool is small, so that a bias of single nodes would show."""
    made = snaps.datasets.make_graph(200, 3, homophily=0.7, seed=seed)
    probs = snaps.models.smoothed_regression(made.graph, made.labels, np.arange(60))
    return made.graph, probs, made.labels, np.arange(60, 60 + size)


METHODS = {
    "APS": lambda seed: snaps.SplitConformal(ALPHA, seed=seed),
    "SNAPS": lambda seed: snaps.SNAPS(ALPHA, weights=(0.3, 0.3), seed=seed),
    "Pooled": lambda seed: snaps.Pooled(ALPHA, score=snaps.APS(), seed=seed),
}


def fit_of(name, seed, count=4000):
    graph, probs, labels, pool = pool_of(POOL)
    tune = {"tune_nodes": np.arange(100, 200)} if name == "Pooled" else {}
    found = snaps.evaluate_splits(
        METHODS[name](seed), graph, probs, labels, pool, N, count, seed, smoothed=True, **tune
    )
    assert "threshold" not in found and (found["n_calib"] == N).all()
    hits = np.rint(found["coverage"] * (POOL - N)).astype(int)
    return law.fit_hits(hits, law.smoothed_hit_pmf(N, POOL - N, ALPHA))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", METHODS)
def test_smoothed_coverage_follows_its_law(name, seed):
    law.assert_law(fit_of(name, seed), f"{name}, smoothed, seed {seed}")


def _own_draw(seed, calib, keys, num_classes):
    return uniforms(seed, hashes(0, keys, SMOOTH_STREAM), num_classes)


def _one_draw_for_all(seed, calib, keys, num_classes):
    draw = uniforms(int(calib.sum()) ^ seed, calib[:1], 1)[0, 0]
    return np.full((len(keys), num_classes), draw)


def _half(seed, calib, keys, num_classes):
    return np.full((len(keys), num_classes), 0.5)


@pytest.mark.parametrize("mutant", [_own_draw, _one_draw_for_all, _half])
def test_wrong_draws_are_rejected(mutant, monkeypatch):
    monkeypatch.setattr(_splits, "smoothing_draws", mutant)
    assert not any(fit_of("APS", seed).accepted for seed in SEEDS)


def test_plain_sets_are_rejected(monkeypatch):
    plain = Calibration.contains
    monkeypatch.setattr(Calibration, "contains", lambda self, *given: plain(self, *given[:-1]))
    assert not fit_of("APS", 0).accepted


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("by_class", [False, True])
def test_ties_do_not_lift_smoothed_coverage(seed, by_class):
    """Scores of three values, and classes with other numbers of nodes in every split."""
    random = np.random.default_rng(seed)
    rows = np.array([[0.7, 0.2, 0.1], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6]])
    kind = random.integers(3, size=120)
    labels = (random.random((120, 1)) > rows[kind].cumsum(axis=1)).sum(axis=1)
    method = snaps.SplitConformal(0.2, score=snaps.THR(), class_conditional=by_class, seed=seed)
    about = method, None, rows[kind], labels, np.arange(120), 60, 2000, seed
    found = snaps.evaluate_splits(*about, smoothed=True)["coverage"]
    error = found.std() / np.sqrt(len(found))
    assert 2 * stats.norm.sf(abs(found.mean() - 0.8) / error) > law.LEVEL
    assert snaps.evaluate_splits(*about)["coverage"].mean() > 0.8 + 5 * error


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["plain", *PROMISES])
def test_smoothed_splits_are_those_of_calibrate(name):
    world, pool = World(2), np.arange(100, 500)
    options, floors = PROMISES.get(name, ({}, {}))
    grouped = name in ("groups", "both", "in groups")
    groups = ({"groups": world.groups} if grouped else {}) | floors
    method = snaps.DAPS(**{"alpha": 0.1, "weight": 0.3, "seed": 4} | options)
    about = method, world.graph, world.probs, world.labels, pool, 201, 3
    if name == "confidence":
        words = "'smoothed' must be False with confidence, got True"
        assert error_line(snaps.evaluate_splits, *about, smoothed=True) == words
        return
    found = snaps.evaluate_splits(*about, smoothed=True, **groups)
    order = pool[np.argsort(world.graph.keys[pool], kind="stable")]
    for split, places in enumerate(draw_splits(0, world.graph.keys[order], 201, 3)):
        calib = order[places]
        test = np.setdiff1d(pool, calib)
        method.calibrate(world.graph, world.probs, world.labels, calib, **groups)
        sets = method.predict_set(test, smoothed=True)
        assert found["size"][split] == pytest.approx(sets.sizes.mean(), abs=1e-12)
        hits = sets.mask[np.arange(len(test)), world.labels[test]]
        assert found["coverage"][split] == pytest.approx(hits.mean(), abs=1e-12)


def test_a_flag_is_asked_for():
    graph, probs, labels, pool = pool_of(40)
    about = snaps.SplitConformal(), graph, probs, labels, pool, 20
    words = "'smoothed' must be True or False, got 'yes'"
    assert error_line(snaps.evaluate_splits, *about, smoothed="yes") == words
