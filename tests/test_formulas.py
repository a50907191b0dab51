"""Every number of the library against a plain transcription of its formula.

Random small graphs with everything that goes wrong in practice: nodes without edges, zero feature
rows, tied probabilities, tied similarities, repeated edges, self loops, ids in any order.
"""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import snaps
import snaps.datasets
from snaps import conformal, metrics
from snaps._kernels import aggregation, scoring, splitting
from snaps._runtime import randomness as _randomness
from snaps._runtime.threads import limit_threads
from snaps.conformal.rank import tuning_share
from tests.helpers import transcription as t

ALPHAS = [0.05, 0.1, 0.18, 0.25, 0.3, 0.4, 0.5, 0.7]
CLOSE = {"rtol": 1e-9, "atol": 1e-12}


# ---- Random worlds -----------------------------------------------------------------------------


@dataclass
class World:
    """A small graph with everything an estimator asks for, as plain lists."""

    edges: list
    features: list
    probs: list
    labels: list
    ids: list
    seed: int

    @property
    def num_nodes(self):
        return len(self.probs)

    @property
    def num_labels(self):
        return len(self.probs[0])

    def graph(self, **options):
        edges = np.array(self.edges, np.int64).reshape(-1, 2).T
        features = np.array(self.features, float)
        options.setdefault("ids", np.array(self.ids))
        return snaps.Graph(edges, features, num_nodes=self.num_nodes, **options)

    def arrays(self):
        return self.graph(), np.array(self.probs), np.array(self.labels)

    def draws(self):
        keys = np.array(self.ids, np.uint64)
        return _randomness.uniforms(self.seed, keys, self.num_labels).tolist()

    def relabelled(self, order):
        """The same world with node order[i] at place i."""
        place = {old: new for new, old in enumerate(order)}
        return World(
            [(place[a], place[b]) for a, b in self.edges],
            [self.features[i] for i in order],
            [self.probs[i] for i in order],
            [self.labels[i] for i in order],
            [self.ids[i] for i in order],
            self.seed,
        )


@st.composite
def probability_rows(draw, num_labels):
    """Rows of small whole numbers, hence full of ties and zeros, or rows in general position."""
    if draw(st.booleans()):
        counts = st.lists(st.integers(0, 4), min_size=num_labels, max_size=num_labels)
        row = draw(counts.filter(any))
    else:
        row = np.random.default_rng(draw(st.integers(0, 2**32))).exponential(size=num_labels)
    return [float(value) / float(sum(row)) for value in row]


@st.composite
def worlds(draw, min_nodes=2, general=False):
    """A world; a general one has probabilities in general position, so that no scores tie."""
    n = draw(st.integers(min_nodes, 12))
    num_labels = draw(st.integers(2, 5))
    node = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=3 * n))
    width = draw(st.integers(1, 4))
    row = st.lists(st.integers(-1, 3), min_size=width, max_size=width)
    features = draw(st.lists(row | st.just([0] * width), min_size=n, max_size=n))
    if general:
        random = np.random.default_rng(draw(st.integers(0, 2**32)))
        probs = random.dirichlet(np.ones(num_labels), n).tolist()
    else:
        probs = [draw(probability_rows(num_labels)) for _ in range(n)]
    labels = draw(st.lists(st.integers(0, num_labels - 1), min_size=n, max_size=n))
    ids = draw(st.permutations(range(n)))
    if draw(st.booleans()):
        ids = [1000 + 7 * i for i in ids]
    return World(edges, features, probs, labels, list(ids), draw(st.integers(0, 2**63 - 1)))


@st.composite
def split_worlds(draw, general=False, parts=2):
    """A world and disjoint node lists: (calibration, test) or (tuning, calibration, test)."""
    world = draw(worlds(min_nodes=2 * parts, general=general))
    order = draw(st.permutations(range(world.num_nodes)))
    cuts = sorted(
        draw(
            st.lists(
                st.integers(1, world.num_nodes - 1),
                min_size=parts - 1,
                max_size=parts - 1,
                unique=True,
            )
        )
    )
    bounds = [0, *cuts, world.num_nodes]
    return world, *(list(order[a:b]) for a, b in pairwise(bounds))


weights = st.sampled_from(t.SNAPS_GRID).map(lambda ij: (ij[0] / 20, ij[1] / 20))


def quietly(call, *args, **options):
    """Call without the warnings about infinite thresholds; those have their own test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", snaps.SnapsWarning)
        return call(*args, **options)


def rows_of(matrix):
    """A sparse matrix as the transcription writes neighbours."""
    matrix = sp.csr_array(matrix)
    parts = zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)
    return [
        dict(zip(matrix.indices[a:b].tolist(), matrix.data[a:b].tolist(), strict=True))
        for a, b in parts
    ]


def as_sets(mask):
    return [set(np.flatnonzero(row).tolist()) for row in np.asarray(mask)]


def same_rows(found, expected):
    """Neighbours must be the same nodes, weights the same up to rounding."""
    assert [set(row) for row in found] == [set(row) for row in expected]
    for a, b in zip(found, expected, strict=True):
        for j in b:
            assert a[j] == pytest.approx(b[j], rel=1e-9)


# ---- Similarity ----------------------------------------------------------------------------------


@given(worlds(), st.integers(1, 13), st.booleans(), st.booleans())
def test_similarity(world, k, sparse, with_ids):
    features = np.array(world.features, float)
    ids = world.ids if with_ids else None
    k = min(k, world.num_nodes - 1)
    found = snaps.similarity_graph(
        sp.csr_array(features) if sparse else features,
        k=k,
        ids=None if ids is None else np.array(ids),
    )
    assert found.shape == (world.num_nodes, world.num_nodes)
    same_rows(rows_of(found), t.similar(world.features, k, ids))


@given(
    st.integers(0, 2**32), st.integers(2, 40), st.integers(1, 6), st.integers(1, 8), st.booleans()
)
def test_similarity_of_many_exact_ties(seed, n, width, k, sparse):
    """Whole numbers in few columns: most cosines tie, many with different norms (1:1 and 2:2)."""
    random, k = np.random.default_rng(seed), min(k, n - 1)
    features = random.integers(0, 4, (n, width)).astype(float)
    ids = random.permutation(n)
    given_features = sp.csr_array(features) if sparse else features
    found = snaps.similarity_graph(given_features, k=k, ids=ids)
    same_rows(rows_of(found), t.similar(features.astype(int).tolist(), k, ids.tolist()))


@given(st.integers(0, 2**32), st.integers(2, 30), st.integers(1, 8), st.integers(1, 5))
def test_similarity_of_real_features(seed, n, width, k):
    """Features in general position, negative ones too."""
    k = min(k, n - 1)
    features = np.random.default_rng(seed).normal(size=(n, width))
    features[::7] = 0
    if width == 1:  # then every cosine is 1 and rounding, not the formula, would order them
        features = np.sign(features)
    found = snaps.similarity_graph(features, k=k)
    same_rows(rows_of(found), t.similar(features.tolist(), k))


def small_numbers(random, n):
    """Few columns of small whole numbers: nearly all cosines tie with others."""
    return random.integers(0, 4, (n, 4))


def words(random, n):
    """Bags of words: mostly rare words, some common ones, rows without any."""
    share = np.r_[np.full(5, 0.25), np.full(595, 0.005)]
    return (random.random((n, 600)) < share) * random.integers(1, 3, (n, 600))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("make", [small_numbers, words])
@pytest.mark.parametrize("n, k", [(150, 20), (300, 3)])
def test_similarity_of_a_larger_table(n, k, make, sparse):
    """Rows beyond one block or thread, full of ties, with ids that run against positions."""
    random = np.random.default_rng(n)
    features = make(random, n)
    ids = random.permutation(10 * n)[:n]
    given_features = sp.csr_array(features.astype(float)) if sparse else features.astype(float)
    found = snaps.similarity_graph(given_features, k=k, ids=ids)
    products = features @ features.T
    squares = np.diag(products)
    for i, row in enumerate(rows_of(found)):
        others = [j for j in range(n) if j != i and products[i, j] > 0]
        keys = {j: Fraction(int(products[i, j]) ** 2, int(squares[j])) for j in others}
        best = sorted(others, key=lambda j: (-keys[j], ids[j]))[:k]
        assert set(row) == set(best)
        for j in best:
            assert row[j] == pytest.approx(products[i, j] / math.sqrt(squares[i] * squares[j]))


# ---- Basic scores --------------------------------------------------------------------------------

SCORES = {
    "aps": (lambda r: snaps.APS(randomized=r), t.aps),
    "raps": (
        lambda r: snaps.RAPS(k_reg=2, penalty=0.2, randomized=r),
        t.raps_formula(2, 0.2),
    ),
    "raps-0": (
        lambda r: snaps.RAPS(k_reg=0, penalty=0.01, randomized=r),
        t.raps_formula(0, 0.01),
    ),
    "saps": (lambda r: snaps.SAPS(weight=0.15, randomized=r), t.saps_formula(0.15)),
}


def basic_scores(world, name, randomized=True):
    """The library's score object and the transcription's table for it."""
    if name == "thr":
        return snaps.THR(), t.table(t.thr, world.probs)
    make, formula = SCORES[name]
    return make(randomized), t.table(formula, world.probs, world.draws() if randomized else None)


@given(worlds(), st.booleans())
@pytest.mark.parametrize("name", [*SCORES, "thr"])
def test_basic_scores(name, world, randomized):
    score, expected = basic_scores(world, name, randomized)
    cp = snaps.SplitConformal(alpha=0.5, score=score, seed=world.seed)
    quietly(cp.calibrate, *world.arrays(), [0])
    np.testing.assert_allclose(cp.scores_, expected, **CLOSE)


@given(worlds(), st.floats(0.1, 30))
def test_logits_are_turned_into_probabilities(world, scale):
    random = np.random.default_rng(world.seed % 2**32)
    logits = scale * random.normal(size=(world.num_nodes, world.num_labels))
    probs = [t.softmax(row) for row in logits.tolist()]
    graph, _, labels = world.arrays()
    cp = snaps.SplitConformal(alpha=0.5, seed=world.seed)
    quietly(cp.calibrate, graph, logits, labels, [0], logits=True)
    np.testing.assert_allclose(cp.scores_, t.table(t.aps, probs, world.draws()), **CLOSE)


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


# ---- Rank, law -----------------------------------------------------------------------------------


def test_rank_where_floats_fail():
    assert conformal.conformal_rank(149, 0.18) == 123
    assert math.ceil((1 - 0.18) * 150) == 124


def test_rank_of_thousands():
    """Every alpha of one to three decimals and many n, against integers alone."""
    for thousandths in range(1, 1000, 3):
        for n in [*range(0, 12), 19, 39, 99, 149, 199, 499, 500, 999, 1000, 123_456]:
            expected = -(-(1000 - thousandths) * (n + 1) // 1000)
            assert conformal.conformal_rank(n, thousandths / 1000) == expected
            assert t.rank(n, thousandths / 1000) == expected


@given(st.integers(0, 10**7), st.integers(1, 10**6 - 1))
@example(149, 180_000)
def test_rank_of_any_decimal(n, millionths):
    expected = math.ceil((1 - Fraction(millionths, 10**6)) * (n + 1))
    assert conformal.conformal_rank(n, millionths / 10**6) == expected


@given(st.integers(1, 60), st.integers(1, 60), st.sampled_from(ALPHAS))
def test_coverage_law(n, m, alpha):
    assume(t.rank(n, alpha) <= n)
    expected = [float(t.hit_probability(hits, n, m, alpha)) for hits in range(m + 1)]
    law = conformal.coverage_law(n, m, alpha)
    np.testing.assert_allclose(law.pmf(np.arange(m + 1)), expected, rtol=1e-8, atol=1e-12)


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(ALPHAS))
def test_coverage_interval(n, m, alpha):
    """The narrowest cut of both tails: at most 0.5 % lies outside on either side."""
    assume(t.rank(n, alpha) <= n)
    chances = [t.hit_probability(hits, n, m, alpha) for hits in range(m + 1)]
    low, high = conformal.coverage_interval(n, m, alpha)
    lowest, highest = round(low * m), round(high * m)
    tail = Fraction(5, 1000)
    assert sum(chances[:lowest]) <= tail <= sum(chances[: lowest + 1])
    assert sum(chances[highest + 1 :]) <= tail <= sum(chances[highest:])


# ---- Threshold, sets, p-values: exact, given the scores ------------------------------------------


def fixed_method(world, alpha, name, **options):
    """An estimator without anything to tune."""
    if name == "split":
        return snaps.SplitConformal(alpha=alpha, seed=world.seed, **options)
    if name == "plain":  # not randomised: scores tie
        score = snaps.APS(randomized=False)
        return snaps.SplitConformal(alpha=alpha, score=score, seed=world.seed, **options)
    if name == "daps":
        return snaps.DAPS(alpha=alpha, weight=0.5, seed=world.seed, **options)
    return snaps.SNAPS(alpha=alpha, k=3, weights=(0.35, 0.25), seed=world.seed, **options)


METHODS = st.sampled_from(["split", "plain", "daps", "snaps"])


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


def tuning_worlds(general):
    """Tuning, calibration and test nodes, and an alpha whose rank the tuning nodes can reach."""
    return st.tuples(split_worlds(general=general, parts=3), st.sampled_from(ALPHAS)).filter(
        lambda drawn: t.rank(len(drawn[0][1]), drawn[1]) <= len(drawn[0][1])
    )


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


def larger_world(n, seed, num_labels=4):
    """A world in general position, large enough for tuning to have something to choose from."""
    random = np.random.default_rng(seed)
    labels = random.integers(num_labels, size=n)
    probs = random.dirichlet(np.ones(num_labels), n) + 0.5 * np.eye(num_labels)[labels]
    features = np.eye(num_labels, dtype=int)[labels] * 2 + random.integers(0, 3, (n, num_labels))
    ends = random.integers(n, size=(3 * n, 2))
    kept = (labels[ends[:, 0]] == labels[ends[:, 1]]) | (random.random(3 * n) < 0.1)
    return World(
        ends[kept].tolist(),
        features.tolist(),
        (probs / probs.sum(1, keepdims=True)).tolist(),
        labels.tolist(),
        random.permutation(n).tolist(),
        seed,
    )


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
    assert sum(cp.weights_) > 0, "a test that cannot tell tuning from nothing"
    cp = snaps.DAPS(alpha=0.1, weight="minimum", seed=seed).calibrate(
        *arrays, calib, tune_nodes=tune
    )
    weight = t.tune_daps(own, rows, world.labels, tune, 0.1)
    assert weight > 0, "a test that cannot tell tuning from nothing"
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


def by_looking(n, alpha):
    """The number that calibrates, by looking at every number from half to four fifths."""
    level = t.exact(alpha)
    excess = {
        m: Fraction(t.rank(m, alpha), m + 1) - (1 - level)
        for m in range(1, n + 1)
        if n <= 2 * m and 5 * m <= 4 * n and n - m <= 500
        if (m + 1) * level >= 4 and t.rank(n - m, alpha) <= n - m
    }
    if n >= 25 / level:
        return max(n - n // 2, n - 500)
    if not excess:
        return n
    return min(m for m in excess if excess[m] == min(excess.values()))


@pytest.mark.parametrize("alpha", [0.01, 0.03, 0.05, 0.07, 0.1, 0.18, 0.2, 0.3, 0.5])
def test_few_labels_are_divided_as_looking_at_every_number_says(alpha):
    level = t.exact(alpha)
    for n in [*range(400), *range(490, 510), 999, 1000, 1001, 2499, 2500, 10_000]:
        share, calib = tuning_share(n, level), by_looking(n, alpha)
        assert share == n - calib, n
        if share:  # both parts give a finite threshold
            assert t.rank(share, alpha) <= share and t.rank(calib, alpha) <= calib
            assert share <= 500 and 2 * calib >= n


@pytest.mark.parametrize("n, alpha, calib", [(99, 0.05, 79), (150, 0.05, 79), (60, 0.1, 39)])
def test_few_labels_cover_exactly_what_was_asked_for(n, alpha, calib):
    assert n - tuning_share(n, t.exact(alpha)) == calib
    assert Fraction(t.rank(calib, alpha), calib + 1) == 1 - t.exact(alpha)


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


# ---- The wall: roles and labels do not reach the scores ------------------------------------------


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


# ---- Metrics -------------------------------------------------------------------------------------


def numbers_of(sets, labels):
    """The transcription's numbers for sets and labels of the same nodes."""
    return {
        "coverage": t.coverage(sets, labels),
        "size": t.size(sets),
        "size_nonempty": t.size_nonempty(sets),
        "singleton_hit": t.singleton_hit(sets, labels),
        "empty": t.empty(sets),
    }


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


# ---- Many splits at once -------------------------------------------------------------------------


def calibrating(world, pool, n_calib, n_splits):
    """The library's splits: for each, the pool nodes that calibrate and those that do not."""
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
