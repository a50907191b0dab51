"""`Pooled`: its parts and its fit against plain transcriptions, its law, and its doors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import approx_fprime, minimize
from scipy.special import softmax

import snaps
from snaps._kernels import aggregation as _aggregation
from snaps._runtime.randomness import node_keys
from snaps.datasets import load, make_graph
from snaps.models import smoothed_regression
from snaps.scoring import context as _context
from snaps.scoring import local as _local
from snaps.scoring import logpool as _logpool
from snaps.scoring import pooling
from snaps.scoring import shares as _shares
from snaps.scoring.evidence import Evidence
from snaps.scoring.local import Inputs
from snaps.scoring.parts import Context
from tests.helpers import law, small
from tests.helpers.small import CALIB, LABELS, NUM_NODES, PROBS

SEED = 20251
TRAIN = np.arange(80)


@pytest.fixture(scope="module")
def case():
    data = make_graph(900, 4, seed=3)
    probs = smoothed_regression(data.graph, data.labels, TRAIN)
    return data.graph, probs, data.labels, np.arange(80, 900)


# ---- the parts -----------------------------------------------------------------------------------


def plain_parts(graph, probs, similarity, context, known):
    """The recipe word by word, a node and a label at a time."""
    n, num_classes = probs.shape
    belief = [
        [float(known[i] == y) if known[i] >= 0 else probs[i][y] for y in range(num_classes)]
        for i in range(n)
    ]

    def mean(matrix, table):
        out = []
        for i in range(n):
            row = matrix[[i]].tocoo()
            near = list(zip(row.coords[-1].tolist(), row.data.tolist(), strict=True))
            total = sum(w for _, w in near)
            out.append(
                [sum(w * table[j][y] for j, w in near) / total for y in range(num_classes)]
                if near
                else list(table[i])
            )
        return out

    def flow(matrix):
        start = [[float(known[i] == y) for y in range(num_classes)] for i in range(n)]
        mass = start
        for _ in range(30):
            step = mean(matrix, mass)
            moved = [
                [0.9 * a + 0.1 * b for a, b in zip(row, first, strict=True)]
                for row, first in zip(step, start, strict=True)
            ]
            change = max(
                abs(a - b)
                for new, old in zip(moved, mass, strict=True)
                for a, b in zip(new, old, strict=True)
            )
            mass = moved
            if change < 1e-3:
                break
        return [[(v + 1e-3) / (sum(row) + num_classes * 1e-3) for v in row] for row in mass]

    linked = mean(graph.adjacency, belief)
    tables = {
        "own": probs,
        "linked": linked,
        "two_hop": mean(graph.adjacency, linked),
        "similar": mean(similarity, belief),
        "context": mean(context, belief),
        "propagated": flow(graph.adjacency),
        "propagated_context": flow(context),
    }
    logs = {
        name: np.array([[math.log(max(v, 1e-4)) for v in row] for row in table])
        for name, table in tables.items()
    }
    told = np.flatnonzero(known >= 0)
    guesses, _ = plain_ridge(graph, context, told, known[told], num_classes)
    return logs | {"regression": 10 * guesses}


def plain_ridge(graph, context, told, labels, num_classes):
    """Guesses for all nodes, and for each labelled node by a model that never saw its label."""

    def dense(matrix):
        table = matrix.toarray()
        sums = table.sum(axis=1, keepdims=True)
        return np.where(sums > 0, table / np.where(sums > 0, sums, 1), np.eye(len(table)))

    x = _context.summary(graph)
    links, around = dense(graph.adjacency), dense(context)
    columns = np.hstack([x, links @ x, links @ links @ x, around @ x])
    target = np.eye(num_classes)[labels]

    def fit(rows, target, ridge):
        return np.linalg.solve(rows.T @ rows + ridge * np.eye(rows.shape[1]), rows.T @ target)

    best = None
    for ridge in 10.0 ** np.arange(-2, 3.5, 0.5):
        out = np.array(
            [
                columns[i]
                @ fit(columns[np.delete(told, place)], np.delete(target, place, 0), ridge)
                for place, i in enumerate(told)
            ]
        )
        error = ((out - target) ** 2).sum()
        if best is None or error < best[0]:
            best = error, columns @ fit(columns[told], target, ridge), out
    return best[1:]


def evidence_of(nodes, labels):
    nodes = nodes[np.argsort(node_keys(nodes))]
    return Evidence(nodes, node_keys(nodes), labels[nodes])


def context_graph(graph, k):
    table = _context.context_features(graph.adjacency, _context.summary(graph))
    return snaps.similarity_graph(table, k, ids=graph.keys)


def tables(graph, probs, similar, context, known):
    """The parts as the library makes them, in logarithms."""
    inputs = Inputs(graph, probs, similar).holding({Context(4): context})
    weights = dict.fromkeys(pooling.PARTS, 1 / 8)
    scorer = pooling.FittedPooling(snaps.THR(), 0, 4, known, weights, np.zeros(probs.shape[1]))
    return {name: scorer.shown(name, inputs.get(part)) for name, part in scorer.parts.items()}


def test_parts_follow_the_recipe():
    data = make_graph(60, 3, seed=1)
    random = np.random.default_rng(0)
    probs = random.dirichlet(np.ones(3), 60)
    probs[0] = [1, 0, 0]  # a sure thing meets the floor
    adjacency = data.graph.adjacency.tolil()
    adjacency[5], adjacency[:, 5] = 0, 0  # nobody's neighbour
    graph = snaps.Graph(sp.csr_array(adjacency), data.graph.features)
    similar = snaps.similarity_graph(graph.features, 4)
    context = context_graph(graph, 4)
    known = np.where(np.arange(60) < 12, data.labels, -1)
    told = evidence_of(np.arange(12), data.labels)
    found = tables(graph, probs, similar, context, told)
    expected = plain_parts(graph, probs, similar, context, known)
    assert tuple(found) == pooling.PARTS
    for name in pooling.PARTS:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-8, err_msg=name)


def test_no_row_is_made_with_the_label_of_its_own_node():
    """The rows that weights are fitted on: by the recipe, and blind to the own label."""
    data = make_graph(60, 3, seed=1)
    graph, probs = data.graph, np.random.default_rng(0).dirichlet(np.ones(3), 60)
    similar, context = snaps.similarity_graph(graph.features, 4), context_graph(graph, 4)
    inputs = Inputs(graph, probs, similar).holding({Context(4): context})
    known, tuning = (
        evidence_of(nodes, data.labels) for nodes in (np.arange(12), np.arange(12, 33))
    )

    def rows(tuning):
        asked = pooling.Pooling(snaps.THR(), 0, 4)
        return asked._cross_fitted(inputs, pooling.PARTS, tuning, known.joined(tuning))

    found = rows(tuning)
    for fold in range(5):
        here = np.arange(len(tuning)) % 5 == fold
        told = np.full(60, -1)
        told[:12] = data.labels[:12]
        told[tuning.ids[~here]] = tuning.labels[~here]
        expected = plain_parts(graph, probs, similar, context, told)
        scorer = pooling.FittedPooling(
            snaps.THR(), 0, 4, known, dict.fromkeys(pooling.PARTS, 1), np.zeros(3)
        )
        for name in pooling.PARTS[:7]:
            np.testing.assert_allclose(
                scorer.shown(name, found[name][here]), expected[name][tuning.ids[here]], atol=1e-8
            )
    both = known.joined(tuning)
    _, left_out = plain_ridge(graph, context, both.ids, both.labels, 3)
    mine = np.isin(both.keys, tuning.keys)
    np.testing.assert_allclose(found["regression"], left_out[mine], atol=1e-8)

    changed = tuning.labels.copy()
    changed[4] = (changed[4] + 1) % 3
    other = rows(Evidence(tuning.ids, tuning.keys, changed))
    for name in pooling.PARTS[:7]:
        assert (other[name][4] == found[name][4]).all(), name
    assert (other["propagated"] != found["propagated"]).any()
    assert (other["regression"] != found["regression"]).any()


def test_evidence_left_out_of_the_tuning_rows_alone(case):
    """The first edition: tuning labels choose the weights and tell nothing else."""
    graph, probs, labels, pool = case
    options = {"parts": pooling.FIRST_EDITION, "tuning_evidence": False}
    cp = snaps.Pooled(0.1, **options).calibrate(
        graph, probs, labels, pool[:200], pool[200:350], known_nodes=TRAIN
    )
    assert cp._predictor().scorer.evidence == cp._predictor().roles.known
    both = snaps.Pooled(0.1).calibrate(
        graph, probs, labels, pool[:200], pool[200:350], known_nodes=TRAIN
    )
    assert len(both._predictor().scorer.evidence) == 80 + 150
    assert (both.scores_ != cp.scores_).any()


def test_only_the_parts_that_the_data_allows():
    graph, bare = small.graph(), snaps.Graph(np.empty((2, 0), int), small.FEATURES, NUM_NODES)
    known = np.full(NUM_NODES, -1)
    known[0] = LABELS[0]

    def names(graph, parameters=None, **options):
        method = snaps.Pooled(0.2, k=5, **(parameters or {}))
        cp = method.calibrate(graph, PROBS, LABELS, CALIB[1:], **options)
        return tuple(cp.weights_)

    assert names(graph) == pooling.PARTS
    assert names(bare) == ("own", "similar", "regression")
    no_features = snaps.Graph(graph.adjacency)
    assert names(no_features) == ("own", "linked", "two_hop", "propagated")
    unseen = {"tuning_evidence": False}
    assert names(graph, unseen) == pooling.PARTS[:5]
    assert names(no_features, unseen) == ("own", "linked", "two_hop")
    assert names(no_features, unseen, known_nodes=[0]) == (
        "own", "linked", "two_hop", "propagated",
    )  # fmt: skip
    assert names(bare, unseen, known_nodes=[0]) == ("own", "similar", "regression")
    one = snaps.Pooled(0.2, parts=["linked", "own"]).calibrate(graph, PROBS, LABELS, CALIB)
    assert tuple(one.weights_) == ("own", "linked")


def test_context_features_see_the_surroundings_and_not_the_order():
    data = make_graph(300, 3, seed=2)
    table = _context.context_features(data.graph.adjacency, _context.summary(data.graph, size=8))
    assert table.shape == (300, 16)
    np.testing.assert_allclose(np.linalg.norm(table[:, :8], axis=1), 1, atol=1e-5)
    order = np.random.default_rng(0).permutation(300)
    moved = snaps.Graph(data.graph.adjacency[order][:, order], data.graph.features[order])
    again = _context.context_features(moved.adjacency, _context.summary(moved, size=8))
    np.testing.assert_allclose(again @ again.T, (table @ table.T)[order][:, order], atol=1e-3)
    # Few columns need no summary; dense features are welcome too.
    few = snaps.Graph(data.graph.adjacency, np.eye(300)[:, :5])
    assert _context.summary(few).shape == (300, 5)


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


def labellings(nodes, num_classes):
    """Label codes of all nodes, of which none, few, some or most are known."""
    random = np.random.default_rng(3)
    codes = random.integers(0, num_classes, nodes)
    return [np.where(random.random(nodes) < share, codes, -1) for share in (0.0, 0.02, 0.1, 0.9)]


def test_several_labellings_spread_as_each_would_alone():
    matrix = make_graph(200, 3, seed=4).graph.adjacency
    known = labellings(200, 3)
    together, _ = _context.propagate(matrix, known, 3)
    for codes, mass in zip(known, together, strict=True):
        assert (_context.propagate(matrix, [codes], 3)[0][0] == mass).all()


def without_links(matrix, node):
    """A node without neighbours keeps what it has."""
    kept = np.ones(matrix.shape[0])
    kept[node] = 0
    return sp.csr_array(sp.diags_array(kept) @ matrix)


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

    def size():
        cp = snaps.Pooled(0.1).calibrate(data.graph, probs, data.labels, calib, known_nodes=train)
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


# ---- the fit -------------------------------------------------------------------------------------


def test_gradient_and_hessian_are_exact():
    random = np.random.default_rng(1)
    stack, labels = random.normal(size=(3, 40, 4)), random.integers(0, 4, 40)
    point = random.normal(size=7)

    def derivatives(x):
        return _logpool._derivatives(stack, _logpool._loss(x, stack, labels)[1], labels)

    gradient, hessian = derivatives(point)
    loss = approx_fprime(point, lambda x: _logpool._loss(x, stack, labels)[0], 1e-7)
    np.testing.assert_allclose(gradient, loss, atol=1e-4)
    change = approx_fprime(point, lambda x: derivatives(x)[0], 1e-7)
    np.testing.assert_allclose(hessian, change, atol=1e-4)


@pytest.mark.parametrize("scale", [1, 100])
def test_fit_ends_where_a_general_minimiser_ends(scale):
    """Where whole steps of Newton's method would go too far, too: rows of a hundredfold size."""
    random = np.random.default_rng(5)
    stack, labels = scale * random.normal(size=(3, 60, 4)), random.integers(0, 4, 60)
    stack[0, np.arange(60), labels] += 2.0 * scale
    centre, pull = np.r_[np.full(3, 1 / 3), np.zeros(4)], np.r_[np.full(3, 10.0), np.full(4, 5.0)]

    def objective(x):
        return _logpool._loss(x, stack, labels)[0] + 0.5 * pull @ (x - centre) ** 2

    found = _logpool._minimise(stack, labels, 5.0)
    other = minimize(objective, centre, method="BFGS", options={"gtol": 1e-6})
    assert objective(found) <= other.fun + 1e-9
    np.testing.assert_allclose(found, other.x, atol=1e-3)


def test_fit_is_at_its_minimum_and_finds_the_part_that_tells():
    random = np.random.default_rng(2)
    labels = random.integers(0, 3, 400)
    told = np.log(np.full((400, 3), 0.15) + 0.55 * np.eye(3)[labels])
    noise = np.log(random.dirichlet(np.ones(3), 400))
    tuning = evidence_of(np.arange(400), labels)
    weights, bias = _logpool.fit_pool({"noise": noise, "told": told}, tuning)
    assert weights["told"] > 1 > 0.2 > abs(weights["noise"])
    again = _logpool.fit_pool({"noise": noise, "told": told}, tuning)
    assert again[0] == weights and (again[1] == bias).all()


def test_biases_of_many_classes_are_pulled_to_zero():
    """A handful of nodes for 200 classes must not move the classes apart."""
    random = np.random.default_rng(3)
    labels = random.integers(0, 200, 60)
    parts = {"own": np.log(random.dirichlet(np.ones(200), 60))}
    _, bias = _logpool.fit_pool(parts, evidence_of(np.arange(60), labels))
    assert np.abs(bias).max() < 0.1


def test_few_tuning_nodes_mean_equal_weights(case):
    graph, probs, labels, pool = case
    with pytest.warns(snaps.SnapsWarning, match="5 nodes are too few to tune on: using equal"):
        cp = snaps.Pooled(0.1).calibrate(graph, probs, labels, pool[5:300], pool[:5])
    assert set(cp.weights_.values()) == {1 / 8} and not cp.bias_.any()


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
    """Nobody tunes, or nobody is similar to anybody: known nodes are evidence all the same."""
    graph, probs, labels, pool = case
    known, calib = pool[:50], pool[50:250]
    with pytest.warns(snaps.SnapsWarning, match="too few to tune on as well"):
        cp = snaps.Pooled(0.1).calibrate(graph, probs, labels, calib[:12], known_nodes=known)
    assert not len(cp.tune_nodes_) and np.isfinite(cp.scores_).all()
    empty = snaps.Graph(graph.adjacency, np.zeros((graph.num_nodes, 3)))
    cp = snaps.Pooled(0.1).calibrate(empty, probs, labels, calib, known_nodes=known)
    assert np.isfinite(cp.scores_).all()


# ---- the law -------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", [snaps.THR(), snaps.APS()], ids=["THR", "APS"])
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_coverage_follows_its_law(case, score, known):
    graph, probs, labels, pool = case
    alphas = [0.05, 0.1, 0.3]
    result = snaps.evaluate_splits(
        snaps.Pooled(score=score, seed=SEED), graph, probs, labels, pool, 400, law.SPLITS, SEED,
        known_nodes=TRAIN if known else None, alphas=alphas,
    )  # fmt: skip
    for row, alpha in enumerate(alphas):
        n, m = int(result["n_calib"][row, 0]), int(result["n_test"][row, 0])
        hits = np.rint(result["coverage"][row] * m).astype(int)
        law.assert_law(law.fit_hits(hits, law.hit_pmf(n, m, alpha)), f"Pooled at {alpha}")


def test_known_nodes_among_the_calibration_nodes_break_the_law(case):
    """What the API refuses, done by hand: labels of calibration nodes as evidence."""
    graph, probs, labels, pool = case
    context = context_graph(graph, 20)
    similar = snaps.similarity_graph(graph.features, 20)
    random, hits, n, alpha = np.random.default_rng(SEED), [], 200, 0.1
    for _ in range(60):
        order = random.permutation(pool)
        calib, test = order[:n], order[n:]
        parts = tables(graph, probs, similar, context, evidence_of(calib, labels))
        names = ("own", "propagated", "propagated_context")
        pooled = softmax(sum(parts[name] for name in names) / 3, axis=1)
        scores = 1 - pooled[np.arange(len(labels)), labels]
        q = np.sort(scores[calib])[math.ceil((1 - alpha) * (n + 1)) - 1]
        hits.append(int((scores[test] <= q).sum()))
    assert not law.fit_hits(hits, law.hit_pmf(n, len(pool) - n, alpha)).accepted


def test_labels_of_others_are_never_read(case):
    graph, probs, labels, pool = case
    calib, tune = pool[:200], pool[200:350]
    told = np.full_like(labels, -1)
    for nodes in (calib, tune, TRAIN):
        told[nodes] = labels[nodes]
    arguments = (calib, tune)
    full = snaps.Pooled(0.1).calibrate(graph, probs, labels, *arguments, known_nodes=TRAIN)
    blind = snaps.Pooled(0.1).calibrate(graph, probs, told, *arguments, known_nodes=TRAIN)
    assert (full.scores_ == blind.scores_).all()
    swapped = told.copy()
    swapped[calib] = (swapped[calib] + 1) % 4
    other = snaps.Pooled(0.1).calibrate(graph, probs, swapped, *arguments, known_nodes=TRAIN)
    assert (full.scores_ == other.scores_).all()


# ---- it helps ------------------------------------------------------------------------------------


def test_smaller_sets_than_snaps(case):
    graph, probs, labels, pool = case
    methods = {"SNAPS": snaps.SNAPS(0.05), "pooled": snaps.Pooled(0.05)}
    found = snaps.evaluate_splits(methods, graph, probs, labels, pool, 400, known_nodes=TRAIN)
    assert found["pooled"]["size"].mean() < 0.97 * found["SNAPS"]["size"].mean()


def test_methods_that_share_inputs_keep_their_own_settings(case):
    graph, probs, labels, pool = case
    methods = {
        "few": snaps.SNAPS(0.1, k=3),
        "many": snaps.SNAPS(0.1, k=30),
        "own": snaps.Pooled(0.1, parts=["own"]),
        "similar": snaps.Pooled(0.1, parts=["own", "similar"], k=7),
        "all": snaps.Pooled(0.1),
    }
    together = snaps.evaluate_splits(methods, graph, probs, labels, pool, 300, 10)
    for name, method in methods.items():
        alone = snaps.evaluate_splits(method, graph, probs, labels, pool, 300, 10)
        assert all((together[name][key] == alone[key]).all() for key in alone), name


# ---- verbs ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def calibrated(case):
    graph, probs, labels, pool = case
    return snaps.Pooled(0.1, seed=2).calibrate(graph, probs, labels, pool[:300], known_nodes=TRAIN)


def test_saved_and_loaded(calibrated, tmp_path):
    calibrated.save(tmp_path / "cp.npz")
    again = snaps.load(tmp_path / "cp.npz")
    assert type(again) is snaps.Pooled and again.weights_ == calibrated.weights_
    assert (again.scores_ == calibrated.scores_).all()
    assert (again.known_nodes_ == TRAIN).all()
    assert (again.predict_set().mask == calibrated.predict_set().mask).all()
    assert str(again.explain(800)) == str(calibrated.explain(800))


def test_tampered_files_are_refused(calibrated, tmp_path):
    calibrated.save(tmp_path / "cp.npz")
    with np.load(tmp_path / "cp.npz") as file:
        arrays = dict(file)
    for name, value, rule in (
        ("bias", np.zeros(3), "'bias' must be finite of shape (4,), got (3,)"),
        ("known_labels", np.zeros(5, int), "'known_labels' must have shape (80,), got (5,)"),
        ("probs", np.full((900, 4), np.nan), "'probs' must be finite"),
        ("near0_indices", np.zeros(9, int), "sparse matrix 'near0_*'"),
    ):
        np.savez(tmp_path / "bad.npz", **{**arrays, name: value})
        with pytest.raises(snaps.SnapsError) as caught:
            snaps.load(tmp_path / "bad.npz")
        assert rule in str(caught.value) and "\n" not in str(caught.value)


def test_explanation_takes_a_node_apart(calibrated):
    story = calibrated.explain(700)
    assert set(story.parts) == set(pooling.PARTS) == set(story.weights)
    mixed = sum(story.weights[name] * story.parts[name] for name in story.parts)
    pooled = softmax((mixed + calibrated.bias_)[None], axis=1)[0]
    np.testing.assert_allclose(story.mixed, 1 - pooled)
    assert (story.inside == calibrated.predict_set([700]).mask[0]).all()
    assert {n.part for n in story.neighbours} <= {"linked", "similar", "context"}
    sizes = [np.abs(n.shift).max() for n in story.neighbours]
    assert sizes == sorted(sizes, reverse=True)
    assert "propagated_context" in str(story)


def test_evidence_has_one_unit_and_adds_up(calibrated):
    for node in (700, 701, 702):
        story = calibrated.explain(node)
        assert set(story.evidence) == {*pooling.PARTS, "classes"}
        total = sum(story.evidence.values())
        np.testing.assert_allclose(1 - softmax(total), story.mixed)
        columns, folded = story._columns()
        shown = np.array([row for name, row in columns.items()][:-3])
        np.testing.assert_allclose(shown.sum(axis=0), total)
        largest = [np.abs(row).max() for row in story.evidence.values()]
        assert largest == sorted(largest, reverse=True) and len(folded) != 1
        assert all(np.abs(story.evidence[name]).max() < 0.25 * largest[0] for name in folded)
        assert f"{1 - story.mixed[0]:.4f}" in str(story) and "for (+) or against (-)" in str(story)


def test_p_values_agree_with_the_sets(calibrated, case):
    nodes = np.arange(500, 600)
    assert ((calibrated.predict_p(nodes) > 0.1) == calibrated.predict_set(nodes).mask).all()
    by_class = snaps.Pooled(0.1, class_conditional=True)
    graph, probs, labels, _ = case
    by_class.calibrate(graph, probs, labels, np.arange(80, 380))
    assert by_class.threshold_.shape == (4,)
    assert ((by_class.predict_p(nodes) > 0.1) == by_class.predict_set(nodes).mask).all()


def test_known_nodes_are_not_predicted(calibrated):
    assert not np.isin(calibrated.predict_set().nodes, TRAIN).any()
    assert np.isclose(calibrated.probs_.sum(axis=1), 1).all()


# ---- bad input -----------------------------------------------------------------------------------


BAD = {
    "'parts' must be 'auto' or a list of parts, got 'all'": {"parts": "all"},
    "'parts' must be 'auto' or some of own, linked, two_hop, similar, context, propagated, "
    "propagated_context, regression, got ['owm']": {"parts": ["owm"]},
    "'parts' must be 'auto' or some of own, linked, two_hop, similar, context, propagated, "
    "propagated_context, regression, got []": {"parts": []},
    "'parts' must be 'auto' or some of own, linked, two_hop, similar, context, propagated, "
    "propagated_context, regression, got ['own', 'own']": {"parts": ["own", "own"]},
    "'parts' must be 'auto' or some of own, linked, two_hop, similar, context, propagated, "
    "propagated_context, regression, got 3": {"parts": 3},
    "'parts' must be among those that the data allows, got 'propagated' without edges and known "
    "labels": {"parts": ["own", "propagated"], "tuning_evidence": False},
    "'tuning_evidence' must be True or False, got 1": {"tuning_evidence": 1},
    "'k' must be an integer of at least 1, got 0": {"k": 0},
    "'k' must be smaller than the number of nodes 60, got 60": {"k": 60},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_parameters(message):
    with pytest.raises(snaps.SnapsError) as caught:
        snaps.Pooled(0.2, **{"k": 5, **BAD[message]}).calibrate(small.graph(), PROBS, LABELS, CALIB)
    assert str(caught.value) == message


def test_known_nodes_of_another_role_are_refused():
    unknown = LABELS.copy()
    unknown[59] = -1
    for known, message in (
        (
            CALIB,
            "'known_nodes' must not share nodes with 'nodes', got 30 in both (first: 0)",
        ),
        ([99], "'known_nodes' must lie from 0 to 59, got 99"),
        ([59], "'known_nodes' must be labelled, got 1 without a label (first: 59)"),
    ):
        with pytest.raises(snaps.SnapsError) as caught:
            snaps.Pooled(0.2, k=5).calibrate(
                small.graph(), PROBS, unknown, CALIB, known_nodes=known
            )
        assert str(caught.value) == message
    cp = snaps.Pooled(0.2, k=5).calibrate(small.graph(), PROBS, LABELS, CALIB, known_nodes=[55, 56])
    with pytest.raises(snaps.SnapsError, match=r"'nodes' must not share .* the known nodes"):
        cp.predict_set([50, 55])
    with pytest.raises(snaps.SnapsError, match=r"'known_nodes' must not share .* 'pool'"):
        snaps.evaluate_splits(
            snaps.Pooled(0.2, k=5), small.graph(), PROBS, LABELS, np.arange(60), 30,
            known_nodes=[3],
        )  # fmt: skip
