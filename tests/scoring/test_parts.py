"""The parts of `Pooled` against plain transcriptions."""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp

import snaps
from snaps.datasets import make_graph
from snaps.scoring import context as _context
from snaps.scoring import pooling
from snaps.scoring.evidence import Evidence
from snaps.scoring.local import Inputs
from snaps.scoring.parts import Context
from tests.helpers import small
from tests.helpers.small import CALIB, LABELS, NUM_NODES, PROBS
from tests.scoring.common import TRAIN, context_graph, evidence_of, tables


def plain_parts(graph, probs, similarity, context, known):
    """The recipe word by word, a node and a label at a time."""
    n, num_classes = probs.shape
    belief = [
        [float(known[i] == y) if known[i] >= 0 else probs[i][y] for y in range(num_classes)]
        for i in range(n)
    ]

    def neighbours(matrix):
        rows = (matrix[[i]].tocoo() for i in range(n))
        return [list(zip(row.coords[-1].tolist(), row.data.tolist(), strict=True)) for row in rows]

    links, likenesses, around = (
        neighbours(each) for each in (graph.adjacency, similarity, context)
    )

    def mean(neighbours, table):
        out = []
        for i, near in enumerate(neighbours):
            total = sum(w for _, w in near)
            out.append(
                [sum(w * table[j][y] for j, w in near) / total for y in range(num_classes)]
                if near
                else list(table[i])
            )
        return out

    def flow(neighbours):
        start = [[float(known[i] == y) for y in range(num_classes)] for i in range(n)]
        mass = start
        for _ in range(30):
            step = mean(neighbours, mass)
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

    linked = mean(links, belief)
    tables = {
        "own": probs,
        "linked": linked,
        "two_hop": mean(links, linked),
        "similar": mean(likenesses, belief),
        "context": mean(around, belief),
        "propagated": flow(links),
        "propagated_context": flow(around),
    }
    return {
        name: np.array([[math.log(max(v, 1e-4)) for v in row] for row in table])
        for name, table in tables.items()
    }


def plain_ridge(graph, context, known, labels, num_classes):
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
                @ fit(columns[np.delete(known, place)], np.delete(target, place, 0), ridge)
                for place, i in enumerate(known)
            ]
        )
        error = ((out - target) ** 2).sum()
        if best is None or error < best[0]:
            best = error, columns @ fit(columns[known], target, ridge), out
    return best[1:]


def test_parts_follow_the_recipe():
    data = make_graph(60, 3, seed=1)
    random = np.random.default_rng(0)
    probs = random.dirichlet(np.ones(3), 60)
    probs[0] = [1, 0, 0]  # a sure thing meets the floor
    adjacency = data.graph.adjacency.tolil()
    adjacency[5], adjacency[:, 5] = 0, 0  # no node's neighbour
    graph = snaps.Graph(sp.csr_array(adjacency), data.graph.features)
    similar = snaps.similarity_graph(graph.features, 4)
    context = context_graph(graph, 4)
    known = np.where(np.arange(60) < 12, data.labels, -1)
    evidence = evidence_of(np.arange(12), data.labels)
    found = tables(graph, probs, similar, context, evidence)
    expected = plain_parts(graph, probs, similar, context, known)
    expected["regression"] = 10 * plain_ridge(graph, context, evidence.ids, evidence.labels, 3)[0]
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
        visible = np.full(60, -1)
        visible[:12] = data.labels[:12]
        visible[tuning.ids[~here]] = tuning.labels[~here]
        expected = plain_parts(graph, probs, similar, context, visible)
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
    """`tuning_evidence=False`: tuning labels choose the weights and are no evidence."""
    graph, probs, labels, pool = case
    options = {"parts": pooling.WITHOUT_REGRESSION, "tuning_evidence": False}
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
