"""The mixed scores of SNAPS and DAPS, and their tuning, against a plain transcription."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import snaps
import snaps.datasets
from snaps._runtime import randomness as _randomness
from tests.helpers import transcription as t
from tests.helpers.worlds import (
    CLOSE,
    World,
    basic_scores,
    larger_world,
    quietly,
    tuning_worlds,
    weights,
    worlds,
)

# ---- The score field -----------------------------------------------------------------------------


@given(worlds(), weights, st.integers(1, 6), st.booleans())
@pytest.mark.parametrize("name", ["aps", "raps", "saps", "thr"])
def test_snaps_scores(name, world, weights, k, randomized):
    k = min(k, world.num_nodes - 1)
    score, own = basic_scores(world, name, randomized)
    near = t.similar(world.features, k, world.ids)
    parts = t.snaps_field(own, near, t.linked(world.edges, world.num_nodes))
    cp = snaps.SNAPS(alpha=0.5, score=score, k=k, weights=weights, seed=world.seed)
    quietly(cp.calibrate, *world.arrays(), [0])
    np.testing.assert_allclose(cp.scores_, t.mix(*parts, *weights), **CLOSE)
    assert cp.weights_ == weights


@given(worlds(), st.integers(0, 20), st.booleans())
def test_daps_scores(world, twentieths, randomized):
    weight = twentieths / 20
    score, own = basic_scores(world, "aps", randomized)
    expected = t.daps(own, t.linked(world.edges, world.num_nodes), weight)
    cp = snaps.DAPS(alpha=0.5, score=score, weight=weight, seed=world.seed)
    quietly(cp.calibrate, *world.arrays(), [0])
    np.testing.assert_allclose(cp.scores_, expected, **CLOSE)


@given(worlds(), st.booleans(), st.booleans())
def test_directed_edges_and_self_loops_only_when_asked_for(world, directed, self_loops):
    """Row i of a directed graph holds the targets of i's edges."""
    graph = world.graph(directed=directed, self_loops=self_loops)
    rows = t.linked(world.edges, world.num_nodes, directed, self_loops)
    expected = t.daps(t.table(t.aps, world.probs, world.draws()), rows, 0.6)
    cp = snaps.DAPS(alpha=0.5, weight=0.6, seed=world.seed)
    quietly(cp.calibrate, graph, np.array(world.probs), np.array(world.labels), [0])
    np.testing.assert_allclose(cp.scores_, expected, **CLOSE)


@given(worlds())
def test_edges_as_a_list_or_as_a_matrix(world):
    """Repeated edges count once in either form."""
    n = world.num_nodes
    ends = np.array(world.edges, np.int64).reshape(-1, 2).T
    matrix = sp.coo_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(n, n))
    scores = []
    for edges in (ends, matrix.tocsr(), matrix):
        graph = snaps.Graph(edges, num_nodes=n, ids=np.array(world.ids))
        cp = snaps.DAPS(alpha=0.5, weight=0.5, seed=world.seed)
        quietly(cp.calibrate, graph, np.array(world.probs), np.array(world.labels), [0])
        scores.append(cp.scores_)
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[0], scores[2])


@given(worlds(), weights)
def test_a_similarity_graph_given_is_used_as_it_is(world, weights):
    """Its weights count, rows are normalised, empty rows fall back on the node itself."""
    random = np.random.default_rng(world.seed % 2**32)
    n = world.num_nodes
    dense = random.random((n, n)) * (random.random((n, n)) < 0.3)
    np.fill_diagonal(dense, 0)
    given_rows = [{j: row[j] for j in range(n) if row[j]} for row in dense.tolist()]
    own = t.table(t.aps, world.probs, world.draws())
    parts = t.snaps_field(own, given_rows, t.linked(world.edges, n))
    cp = snaps.SNAPS(alpha=0.5, weights=weights, seed=world.seed)
    quietly(cp.calibrate, *world.arrays(), [0], similarity=sp.csr_array(dense))
    np.testing.assert_allclose(cp.scores_, t.mix(*parts, *weights), **CLOSE)


# ---- Tuning --------------------------------------------------------------------------------------

NEAR = 1e-9


def size_bounds(scores, labels, nodes, alpha):
    """Smallest and largest total size that rounding errors of the scores can make of it."""
    truth = t.true_scores(scores, labels, nodes)
    q = t.threshold(truth, alpha)
    own = {(i, labels[i]) for i in nodes if scores[i][labels[i]] == q}
    low = high = 0
    for i in nodes:
        for y, s in enumerate(scores[i]):
            low += s <= q - NEAR or (len(own) == 1 and (i, y) in own)
            high += s <= q + NEAR
    return low, high


def check_choice(chosen, choose, bounds_of):
    """`chosen` must equal the brute-force choice; where scores tie up to rounding, rival its size.

    `choose(total_size)` is the transcription's search; `bounds_of` maps a choice to its bounds.
    """
    loose = False

    def total_size(scores, labels, nodes, alpha):
        nonlocal loose
        low, high = size_bounds(scores, labels, nodes, alpha)
        loose |= low != high
        return high

    expected = choose(total_size)
    if not loose:
        assert chosen == expected
    else:
        assert bounds_of(chosen)[0] <= bounds_of(expected)[1]
    return not loose


@given(st.booleans().flatmap(tuning_worlds), st.sampled_from(["aps", "thr", "saps"]))
def test_tuned_snaps_weights(drawn, name):
    (world, tune, calib, _), alpha = drawn
    score, own = basic_scores(world, name)
    near = t.similar(world.features, 3, world.ids)
    parts = t.snaps_field(own, near, t.linked(world.edges, world.num_nodes))
    cp = snaps.SNAPS(alpha=alpha, score=score, k=3, weights="minimum", seed=world.seed)
    quietly(cp.calibrate, *world.arrays(), calib, tune_nodes=tune)
    check_choice(
        cp.weights_,
        lambda total_size: t.tune_snaps(parts, world.labels, tune, alpha, total_size),
        lambda w: size_bounds(t.mix(*parts, *w), world.labels, tune, alpha),
    )
    np.testing.assert_allclose(cp.scores_, t.mix(*parts, *cp.weights_), **CLOSE)
    assert sorted(cp.tune_nodes_.tolist()) == sorted(tune)
    assert sorted(cp.calib_nodes_.tolist()) == sorted(calib)


@given(st.booleans().flatmap(tuning_worlds))
def test_tuned_daps_weight(drawn):
    (world, tune, calib, _), alpha = drawn
    own = t.table(t.aps, world.probs, world.draws())
    rows = t.linked(world.edges, world.num_nodes)
    cp = snaps.DAPS(alpha=alpha, weight="minimum", seed=world.seed)
    quietly(cp.calibrate, *world.arrays(), calib, tune_nodes=tune)
    tables = [t.daps(own, rows, i / 20) for i in t.DAPS_GRID]
    fits = [np.allclose(cp.scores_, table, **CLOSE) for table in tables]
    assert any(fits), "the scores are those of no weight of the grid"
    sizes = [size_bounds(table, world.labels, tune, alpha) for table in tables]
    if all(low == high for low, high in sizes):
        best = t.tune_daps(own, rows, world.labels, tune, alpha)
        np.testing.assert_allclose(cp.scores_, t.daps(own, rows, best), **CLOSE)
    else:
        least = min(high for _, high in sizes)
        assert any(low <= least for (low, _), fit in zip(sizes, fits, strict=True) if fit)


@given(st.booleans().flatmap(tuning_worlds))
def test_tuned_raps_parameters(drawn):
    """By their scores: different parameters with the same scores are the same choice."""
    (world, tune, calib, _), alpha = drawn
    draws = world.draws()
    cp = snaps.SplitConformal(alpha=alpha, score=snaps.RAPS(), seed=world.seed)
    quietly(cp.calibrate, *world.arrays(), calib, tune_nodes=tune)
    grid = [(k, penalty) for k in range(world.num_labels) for penalty in t.RAPS_PENALTIES]
    tables = [t.table(t.raps_formula(*choice), world.probs, draws) for choice in grid]
    fits = [np.allclose(cp.scores_, table, **CLOSE) for table in tables]
    assert any(fits), "the scores are those of no parameters of the grid"
    sizes = [size_bounds(table, world.labels, tune, alpha) for table in tables]
    if all(low == high for low, high in sizes):
        best = t.tune_raps(world.probs, draws, world.labels, tune, alpha)
        assert fits[grid.index(best)]
    else:
        least = min(high for _, high in sizes)
        assert any(low <= least for (low, _), fit in zip(sizes, fits, strict=True) if fit)


@given(tuning_worlds(general=True))
def test_raps_is_tuned_before_the_weights(drawn):
    (world, tune, calib, _), alpha = drawn
    draws = world.draws()
    best = t.tune_raps(world.probs, draws, world.labels, tune, alpha)
    own = t.table(t.raps_formula(*best), world.probs, draws)
    near = t.similar(world.features, 3, world.ids)
    parts = t.snaps_field(own, near, t.linked(world.edges, world.num_nodes))
    cp = snaps.SNAPS(alpha=alpha, score=snaps.RAPS(), k=3, weights="minimum", seed=world.seed)
    quietly(cp.calibrate, *world.arrays(), calib, tune_nodes=tune)
    if check_choice(
        cp.weights_,
        lambda total_size: t.tune_snaps(parts, world.labels, tune, alpha, total_size),
        lambda w: size_bounds(t.mix(*parts, *w), world.labels, tune, alpha),
    ):
        np.testing.assert_allclose(cp.scores_, t.mix(*parts, *cp.weights_), **CLOSE)


@pytest.mark.parametrize("seed", range(12))
def test_tuning_breaks_ties_as_it_says(seed):
    """Few tuning nodes: many weights give sets of the same size."""
    world = larger_world(40, seed)
    tune, calib = list(range(10)), list(range(10, 30))
    own = t.table(t.aps, world.probs, world.draws())
    rows = t.linked(world.edges, world.num_nodes)
    parts = t.snaps_field(own, t.similar(world.features, 5, world.ids), rows)
    cp = snaps.SNAPS(alpha=0.2, k=5, weights="minimum", seed=seed)
    cp.calibrate(*world.arrays(), calib, tune_nodes=tune)
    assert cp.weights_ == t.tune_snaps(parts, world.labels, tune, 0.2)


@pytest.mark.parametrize("seed", range(4))
def test_tuning_finds_the_best_weights_of_a_larger_graph(seed):
    world = larger_world(120, seed)
    tune, calib = list(range(40)), list(range(40, 80))
    own = t.table(t.aps, world.probs, world.draws())
    rows = t.linked(world.edges, world.num_nodes)
    parts = t.snaps_field(own, t.similar(world.features, 5, world.ids), rows)
    arrays = world.arrays()
    cp = snaps.SNAPS(alpha=0.1, k=5, weights="minimum", seed=seed).calibrate(
        *arrays, calib, tune_nodes=tune
    )
    assert cp.weights_ == t.tune_snaps(parts, world.labels, tune, 0.1)
    assert sum(cp.weights_) > 0, "a test that cannot distinguish tuning from nothing"
    cp = snaps.DAPS(alpha=0.1, weight="minimum", seed=seed).calibrate(
        *arrays, calib, tune_nodes=tune
    )
    weight = t.tune_daps(own, rows, world.labels, tune, 0.1)
    assert weight > 0, "a test that cannot distinguish tuning from nothing"
    np.testing.assert_allclose(cp.scores_, t.daps(own, rows, weight), **CLOSE)


@pytest.mark.parametrize("seed", range(3))
def test_tuned_weights_are_a_mean_over_resamples(seed):
    """Of the best pairs of 24 resamples, each drawn by the tuning nodes' hashes, and of a third."""
    world = larger_world(120, seed)
    tune, calib = list(range(40)), list(range(40, 80))
    own = t.table(t.aps, world.probs, world.draws())
    rows = t.linked(world.edges, world.num_nodes)
    parts = t.snaps_field(own, t.similar(world.features, 5, world.ids), rows)
    cp = snaps.SNAPS(alpha=0.1, k=5, seed=seed).calibrate(*world.arrays(), calib, tune_nodes=tune)
    keys = _randomness.node_keys(np.array(world.ids)[tune])
    order = np.argsort(keys)
    words = _randomness.hashes(seed, keys[order], _randomness.RESAMPLE_STREAM)
    draws = _randomness.uniforms(0, words, 24)
    nodes = [tune[place] for place in order]
    samples = (draws.T * len(nodes)).astype(int).tolist()
    expected = t.average_snaps(parts, world.labels, nodes, 0.1, samples)
    np.testing.assert_allclose(cp.weights_, expected, atol=5.1e-5)


def twinned(world):
    """Every node twice, with the same features, probabilities, label and neighbours."""
    n = world.num_nodes
    return World(
        [(a + i, b + j) for a, b in world.edges for i in (0, n) for j in (0, n)],
        world.features * 2,
        world.probs * 2,
        world.labels * 2,
        list(range(2 * n)),
        world.seed,
    )


@pytest.mark.parametrize("seed", range(8))
def test_tuning_counts_tied_scores(seed):
    """Twins tie to the last bit whatever the weights, some of them at the threshold."""
    world = twinned(larger_world(30, seed))
    tune, calib = list(range(40)), list(range(40, 60))
    own = t.table(t.aps, world.probs)
    rows = t.linked(world.edges, world.num_nodes)
    score = snaps.APS(randomized=False)
    cp = snaps.DAPS(alpha=0.2, score=score, weight="minimum", seed=seed)
    cp.calibrate(*world.arrays(), calib, tune_nodes=tune)
    weight = t.tune_daps(own, rows, world.labels, tune, 0.2)
    np.testing.assert_allclose(cp.scores_, t.daps(own, rows, weight), **CLOSE)


@pytest.mark.parametrize("budget, share", [(100, 41), (400, 200), (1200, 500)])
def test_a_part_of_the_calibration_nodes_tunes_and_never_calibrates(budget, share):
    world = larger_world(1500, 5)
    arrays = world.arrays()
    nodes = np.random.default_rng(0).permutation(1500)[:budget]
    cp = snaps.SNAPS(alpha=0.1, k=5).calibrate(*arrays, nodes)
    assert len(cp.tune_nodes_) == share
    assert not set(cp.tune_nodes_.tolist()) & set(cp.calib_nodes_.tolist())
    both = [*cp.tune_nodes_.tolist(), *cp.calib_nodes_.tolist()]
    assert sorted(both) == sorted(nodes.tolist())
    assert not set(cp.predict_set().nodes.tolist()) & set(both)
    scores = cp.scores_.tolist()
    truth = t.true_scores(scores, world.labels, cp.calib_nodes_.tolist())
    assert cp.threshold_ == t.threshold(truth, 0.1)
    again = snaps.SNAPS(alpha=0.1, k=5).calibrate(*arrays, nodes[::-1].copy())
    assert sorted(again.tune_nodes_.tolist()) == sorted(cp.tune_nodes_.tolist())
    fixed = snaps.SNAPS(alpha=0.1, k=5, weights=(0.2, 0.2)).calibrate(*arrays, nodes)
    assert len(fixed.calib_nodes_) == budget


def test_too_few_nodes_to_tune_fall_back_on_fixed_weights():
    world = larger_world(60, 3)
    with pytest.warns(snaps.SnapsWarning):
        cp = snaps.SNAPS(alpha=0.1, k=5).calibrate(*world.arrays(), range(6))
    assert cp.weights_ == (1 / 3, 1 / 3)


def test_nodes_never_tune_and_calibrate_both():
    world = larger_world(60, 3)
    cp = snaps.SNAPS(alpha=0.2, k=5)
    try:
        cp.calibrate(*world.arrays(), range(30), tune_nodes=range(20, 50))
    except snaps.SnapsError:
        return
    assert not set(cp.tune_nodes_.tolist()) & set(cp.calib_nodes_.tolist())
