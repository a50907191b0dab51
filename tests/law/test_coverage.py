"""Coverage against its exact law, on real graphs and made ones; and proof that the test has teeth.

Every split draws who calibrates; `law.py` says how the hits are then distributed. Seeds are fixed
here and nowhere else, and the level leaves about one chance in a thousand of a false alarm for all
tests together, so a failure means a fault.
"""

from __future__ import annotations

import warnings
from functools import cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

import snaps
from conftest import data_dir
from snaps.datasets import make_graph
from snaps.models import smoothed_regression
from tests.helpers import law
from tests.helpers import transcription as t

ALPHAS = [0.05, 0.1, 0.3]
SEED = 20241


# ---- The distribution itself, and the test of it -------------------------------------------------


@pytest.mark.parametrize("n, m, alpha", [(4, 4, 0.4), (5, 3, 0.25), (3, 6, 0.5), (6, 2, 0.18)])
def test_the_law_by_counting_every_split(n, m, alpha):
    """All ways to choose who calibrates, one by one: no approximation anywhere."""
    counts = [0] * (m + 1)
    for calib in combinations(range(n + m), n):
        q = t.threshold(list(calib), alpha)
        counts[sum(s <= q for s in range(n + m) if s not in calib)] += 1
    expected = [t.hit_probability(hits, n, m, alpha) for hits in range(m + 1)]
    assert sum(expected) == 1
    assert counts == [p * sum(counts) for p in expected]
    np.testing.assert_allclose(law.hit_pmf(n, m, alpha), np.array(expected, float))


@pytest.mark.parametrize("scores", [[1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 2, 2, 3, 3, 4, 5], [1] * 8])
@pytest.mark.parametrize("n, alpha", [(4, 0.4), (5, 0.25), (3, 0.5), (6, 0.18), (7, 0.125)])
def test_the_law_under_ties_by_counting_every_split(scores, n, alpha):
    counts = np.zeros(9 - n)
    for calib in combinations(range(8), n):
        q = t.threshold([scores[i] for i in calib], alpha)
        counts[sum(scores[i] <= q for i in range(8) if i not in calib)] += 1
    expected = law.tied_hit_pmf(np.array(scores), n, alpha)
    np.testing.assert_allclose(counts / counts.sum(), expected, atol=1e-12)


@pytest.mark.parametrize("n, m, alpha", [(500, 2000, 0.05), (19, 200, 0.05), (9, 300, 0.1)])
def test_the_test_accepts_the_law_and_spreads_its_p_values(n, m, alpha):
    """A test of known level: p-values of true draws are spread evenly, not piled up."""
    random = np.random.default_rng(SEED)
    pmf = law.hit_pmf(n, m, alpha)
    draws = random.choice(m + 1, p=pmf / pmf.sum(), size=(200, law.SPLITS))
    fits = [law.fit_hits(hits, pmf) for hits in draws]
    assert all(fit.accepted for fit in fits)
    for p_values in ([fit.shape for fit in fits], [fit.mean for fit in fits]):
        assert 0.4 < np.mean(p_values) < 0.6
        assert 0.01 < np.mean(np.array(p_values) < 0.1) < 0.2


# ---- Graphs --------------------------------------------------------------------------------------


class Case(NamedTuple):
    graph: snaps.Graph
    probs: np.ndarray
    labels: np.ndarray
    pool: np.ndarray
    similarity: sp.csr_array


def prepare(graph, labels):
    """Train on 20 nodes a class; all others are the pool."""
    random = np.random.default_rng(SEED)
    shuffled = random.permutation(len(labels))
    train = np.concatenate([shuffled[labels[shuffled] == c][:20] for c in np.unique(labels)])
    probs = smoothed_regression(graph, labels, train)
    pool = np.setdiff1d(np.arange(len(labels)), train)
    return Case(graph, probs, labels, pool, snaps.similarity_graph(graph.features, k=20))


@cache
def load(name):
    if name == "friends":
        made = make_graph(num_nodes=1500, num_classes=4, homophily=0.8, seed=1)
        return prepare(made.graph, made.labels)
    if name == "strangers":
        made = make_graph(num_nodes=1200, num_classes=6, homophily=0.2, seed=2)
        return prepare(made.graph, made.labels)
    if name == "small":
        made = make_graph(num_nodes=400, num_classes=3, homophily=0.7, seed=3)
        return prepare(made.graph, made.labels)
    with np.load(data_dir() / f"{name}.npz") as file:
        n = len(file["adj_indptr"]) - 1
        ones = np.ones(len(file["adj_indices"]))
        edges = sp.csr_array((ones, file["adj_indices"], file["adj_indptr"]), shape=(n, n))
        binary = (file["x_data"] > 0).astype(float)
        features = sp.csr_array(
            (binary, file["x_indices"], file["x_indptr"]), shape=tuple(file["x_shape"])
        )
        return prepare(snaps.Graph(edges, features), file["y"])


REAL = ["cora_ml", "citeseer", "amazon_photo"]
MADE = ["friends", "strangers"]

METHODS = {
    "APS": lambda **o: snaps.SplitConformal(score=snaps.APS(), **o),
    "RAPS": lambda **o: snaps.SplitConformal(score=snaps.RAPS(), **o),
    "THR": lambda **o: snaps.SplitConformal(score=snaps.THR(), **o),
    "DAPS": lambda **o: snaps.DAPS(**o),
    "SNAPS": lambda **o: snaps.SNAPS(**o),
}


def hits_of(result, row):
    """Whole numbers of hits at one of the alphas, and the two counts every split shares."""
    (n,), (m,) = np.unique(result["n_calib"]), np.unique(result["n_test"])
    hits = result["coverage"][row] * m
    np.testing.assert_allclose(hits, np.rint(hits), atol=1e-6)
    return np.rint(hits).astype(int), int(n), int(m)


# ---- Many splits at once -------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", [*REAL, *MADE])
def test_coverage_follows_its_law(name, method):
    case = load(name)
    result = snaps.evaluate_splits(
        METHODS[method](seed=SEED),
        case.graph,
        case.probs,
        case.labels,
        case.pool,
        n_calib=min(1000, len(case.pool) // 2),
        n_splits=law.SPLITS,
        seed=SEED,
        similarity=case.similarity,
        alphas=ALPHAS,
    )
    for row, alpha in enumerate(ALPHAS):
        hits, n, m = hits_of(result, row)
        if method == "THR":  # nodes with equal features and neighbours tie without randomness
            pmf = law.tied_hit_pmf(1 - case.probs[case.pool, case.labels[case.pool]], n, alpha)
        else:
            pmf = law.hit_pmf(n, m, alpha)
        law.assert_law(law.fit_hits(hits, pmf), f"{method} on {name} at {alpha}")


@pytest.mark.parametrize("n_calib", [9, 10, 19, 20, 29, 30])
@pytest.mark.parametrize("method", ["APS", "SNAPS"])
def test_coverage_follows_its_law_with_few_calibration_nodes(n_calib, method):
    """Here one rank more or less is a jump of three to ten percent."""
    case = load("small")
    options = {"weights": (0.3, 0.3)} if method == "SNAPS" else {}
    alphas = [0.1, 0.18, 0.3]
    result = snaps.evaluate_splits(
        METHODS[method](seed=SEED, **options),
        case.graph,
        case.probs,
        case.labels,
        case.pool,
        n_calib=n_calib,
        n_splits=law.SPLITS,
        seed=SEED + n_calib,
        similarity=case.similarity,
        alphas=alphas,
    )
    for row, alpha in enumerate(alphas):
        hits, n, m = hits_of(result, row)
        assert n == n_calib
        what = f"{method} with {n} calibration nodes at {alpha}"
        law.assert_law(law.fit_hits(hits, law.hit_pmf(n, m, alpha)), what)


# ---- The verbs a user calls, one split at a time -------------------------------------------------


def random_splits(pool, n_calib, n_splits, seed):
    random = np.random.default_rng(seed)
    for _ in range(n_splits):
        order = random.permutation(pool)
        yield order[:n_calib], order[n_calib:]


def test_every_split_of_a_tiny_pool():
    """All 70 splits of eight nodes through the public verbs: hit counts are exactly as expected."""
    case = load("small")
    pool = case.pool[:8]
    cp = snaps.SNAPS(alpha=0.4, weights=(0.3, 0.3), seed=SEED)
    counts = [0] * 5
    for calib in combinations(pool, 4):
        test = np.setdiff1d(pool, calib)
        cp.calibrate(
            case.graph, case.probs, case.labels, np.array(calib), similarity=case.similarity
        )
        counts[int(cp.predict_set(test).mask[np.arange(4), case.labels[test]].sum())] += 1
    assert counts == [70 * t.hit_probability(hits, 4, 4, 0.4) for hits in range(5)]


@pytest.mark.parametrize("method", ["DAPS", "SNAPS"])
def test_calibrate_and_predict_follow_the_law(method):
    """Tuned again in every split, on a part of that split's calibration nodes."""
    case = load("small")
    hits = []
    for calib, test in random_splits(case.pool, 80, 200, SEED):
        cp = METHODS[method](alpha=0.1, seed=SEED)
        cp.calibrate(case.graph, case.probs, case.labels, calib, similarity=case.similarity)
        n = len(cp.calib_nodes_)
        hits.append(cp.predict_set(test).mask[np.arange(len(test)), case.labels[test]].sum())
    m = len(case.pool) - 80
    assert n == 49
    law.assert_law(
        law.fit_hits(hits, law.hit_pmf(n, m, 0.1)), f"{method}, calibrated and predicted"
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "method, budget, alpha, n",
    [
        ("SNAPS", 30, 0.1, 30),
        ("SNAPS", 100, 0.05, 79),
        ("RAPS", 50, 0.1, 39),
        ("Pooled", 60, 0.1, 39),
    ],
)
def test_few_labels_follow_the_law(method, budget, alpha, n, seed):
    """Whatever part of few labels tunes, those that calibrate are a random draw from the pool."""
    case, hits = load("small"), []
    if method == "Pooled":  # a score without ties, and no search
        cp = snaps.Pooled(alpha, score=snaps.APS(), parts=("own", "linked"), seed=seed)
    else:
        cp = METHODS[method](alpha=alpha, seed=seed)
    for calib, test in random_splits(case.pool, budget, 100, seed):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", snaps.SnapsWarning)  # thirty are too few to tune on
            cp.calibrate(case.graph, case.probs, case.labels, calib, similarity=case.similarity)
        assert len(cp.calib_nodes_) == n
        hits.append(cp.predict_set(test).mask[np.arange(len(test)), case.labels[test]].sum())
    fit = law.fit_hits(hits, law.hit_pmf(n, len(case.pool) - budget, alpha))
    law.assert_law(fit, f"{method}, {budget} labels")


def test_class_conditional_coverage_follows_its_law():
    """Given the number of calibration nodes of a class, its hits are distributed as expected."""
    case = load("small")
    alpha = 0.2
    random = np.random.default_rng(SEED)
    values = []
    cp = snaps.SNAPS(alpha=alpha, weights=(0.3, 0.3), seed=SEED, class_conditional=True)
    for calib, test in random_splits(case.pool, 60, 200, SEED):
        cp.calibrate(case.graph, case.probs, case.labels, calib, similarity=case.similarity)
        right = cp.predict_set(test).mask[np.arange(len(test)), case.labels[test]]
        for c in np.unique(case.labels):
            n, m = (case.labels[calib] == c).sum(), (case.labels[test] == c).sum()
            assert t.rank(int(n), alpha) <= n
            pmf = law.hit_pmf(int(n), int(m), alpha)
            hits = right[case.labels[test] == c].sum()
            values.append(law.to_uniform(int(hits), pmf, random.random()))
    law.assert_law(law.fit_uniforms(values), "class-conditional SNAPS")


def test_smoothed_p_values_are_uniform():
    """Over splits, the smoothed p-value of a true label is uniform; one test node a split."""
    case = load("small")
    cp = snaps.SNAPS(alpha=0.1, weights=(0.3, 0.3), seed=SEED)
    values = []
    for calib, test in random_splits(case.pool, 19, 300, SEED):
        cp.calibrate(case.graph, case.probs, case.labels, calib, similarity=case.similarity)
        values.append(cp.predict_p(test[:1], smoothed=True)[0, case.labels[test[0]]])
    law.assert_law(law.fit_uniforms(values), "smoothed p-values")


def test_an_unreachable_rank_covers_everything():
    case = load("small")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", snaps.SnapsWarning)
        result = snaps.evaluate_splits(
            snaps.SplitConformal(alpha=0.05, seed=SEED),
            case.graph,
            case.probs,
            case.labels,
            case.pool,
            n_calib=18,
            n_splits=10,
        )
    assert (result["coverage"] == 1).all()
    assert (result["threshold"] == np.inf).all()


# ---- Teeth: what is wrong must be rejected -------------------------------------------------------
#
# The library's own scores, and one fault each. `run` is the right way; every broken variant differs
# from it in the one line that its name says.


def scores_of(case, method, **options):
    """Mixed scores of all nodes, as the library computes them."""
    cp = METHODS[method](alpha=0.5, **options)
    nodes = case.pool[:3]
    cp.calibrate(case.graph, case.probs, case.labels, nodes, similarity=case.similarity)
    return cp.scores_


def own_label(scores, case, nodes):
    return scores[nodes, case.labels[nodes]]


def run(case, calibration_scores, test_scores, n, alpha, shift=0, splits=law.SPLITS):
    """Fit of the hits over random splits; the two score tables are the same unless broken."""
    hits = []
    for calib, test in random_splits(case.pool, n, splits, SEED):
        ordered = np.sort(own_label(calibration_scores, case, calib))
        q = ordered[t.rank(n, alpha) + shift - 1]
        hits.append(int((own_label(test_scores, case, test) <= q).sum()))
    return law.fit_hits(hits, law.hit_pmf(n, len(case.pool) - n, alpha))


def test_the_right_way_is_accepted():
    scores = scores_of(load("small"), "SNAPS", weights=(0.3, 0.3), seed=SEED)
    assert run(load("small"), scores, scores, 25, 0.1).accepted


@pytest.mark.parametrize("shift", [-1, 1])
@pytest.mark.parametrize("n", [15, 25, 50])
def test_a_rank_off_by_one_is_rejected(n, shift):
    scores = scores_of(load("small"), "SNAPS", weights=(0.3, 0.3), seed=SEED)
    fit = run(load("small"), scores, scores, n, 0.2, shift=shift)
    assert not fit.accepted
    assert np.sign(fit.standard_errors) == shift


def test_redrawn_randomness_is_rejected():
    """On a complete graph all linked scores share one mean, which a second draw moves for all."""
    case = load("small")
    n = len(case.labels)
    complete = snaps.Graph(sp.csr_array(np.ones((n, n)) - np.eye(n)))
    case = case._replace(graph=complete)
    alpha = 0.1

    def draw(seed):
        return scores_of(case, "DAPS", weight=1.0, seed=seed)

    kept = draw(SEED)
    assert run(case, kept, kept, 100, alpha).accepted
    hits = []
    for number, (calib, test) in enumerate(random_splits(case.pool, 100, 100, SEED)):
        q = np.sort(own_label(draw(2 * number), case, calib))[t.rank(100, alpha) - 1]
        hits.append(int((own_label(draw(2 * number + 1), case, test) <= q).sum()))
    fit = law.fit_hits(hits, law.hit_pmf(100, len(case.pool) - 100, alpha))
    assert not fit.accepted
    assert fit.standard_errors < -4


@pytest.mark.parametrize("leak", [0.01, 0.1])
def test_calibration_labels_in_the_scores_are_rejected(leak):
    """Calibration nodes' own-label scores lowered, as if known labels had been fed back."""
    case = load("small")
    scores = scores_of(case, "SNAPS", weights=(0.3, 0.3), seed=SEED)
    fit = run(case, scores - leak, scores, 100, 0.1)
    assert not fit.accepted
    assert fit.standard_errors < -4


def random_links(n):
    """D^-1 A of a graph whose edges are drawn without looking."""
    ends = np.random.default_rng(SEED).integers(n, size=(2, 3 * n))
    matrix = sp.coo_array((np.ones(3 * n), (ends[0], ends[1])), shape=(n, n)).tocsr()
    matrix = matrix + matrix.T
    return sp.diags_array(1 / np.maximum(matrix.sum(axis=1), 1)) @ matrix


def test_calibration_labels_spread_to_neighbours_are_rejected():
    """Calibration nodes swap their score of the true label for zero before the aggregation."""
    case = load("small")
    own = scores_of(case, "APS", seed=SEED)
    adjacency = random_links(len(case.labels))
    alpha, n = 0.1, 100

    def hits(leaking):
        counts = []
        for calib, test in random_splits(case.pool, n, law.SPLITS, SEED):
            basic = own.copy()
            if leaking:
                basic[calib, case.labels[calib]] = 0
            mixed = 0.5 * basic + 0.5 * (adjacency @ basic)
            q = np.sort(own_label(mixed, case, calib))[t.rank(n, alpha) - 1]
            counts.append(int((own_label(mixed, case, test) <= q).sum()))
        return law.fit_hits(counts, law.hit_pmf(n, len(case.pool) - n, alpha))

    assert hits(leaking=False).accepted
    assert not hits(leaking=True).accepted


def test_weights_chosen_on_the_calibration_nodes_are_rejected():
    """The best of 300 noisy score fields: harmless if chosen elsewhere, not if chosen here."""
    case = load("small")
    scores = scores_of(case, "APS", seed=SEED)
    truth = own_label(scores, case, case.pool)
    random = np.random.default_rng(SEED)
    fields = truth + 0.5 * random.normal(size=(300, len(truth)))
    n, alpha = 30, 0.1
    r = t.rank(n, alpha)

    def fit(chosen_on):
        hits = []
        for _ in range(law.SPLITS):
            order = random.permutation(len(truth))
            tune, calib, test = order[:n], order[n : 2 * n], order[2 * n :]
            seen = {"tuning": tune, "calibration": calib}[chosen_on]
            best = np.partition(fields[:, seen], r - 1, axis=1)[:, r - 1].argmin()
            q = np.sort(fields[best, calib])[r - 1]
            hits.append(int((fields[best, test] <= q).sum()))
        return law.fit_hits(hits, law.hit_pmf(n, len(truth) - 2 * n, alpha))

    assert fit(chosen_on="tuning").accepted
    broken = fit(chosen_on="calibration")
    assert not broken.accepted
    assert broken.standard_errors < -4
