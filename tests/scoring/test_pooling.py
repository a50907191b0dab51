"""`Pooled`: its coverage distribution, its verbs, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import softmax

import snaps
from snaps.scoring import pooling
from tests.helpers import law, small
from tests.helpers.small import CALIB, LABELS, PROBS
from tests.scoring.common import SEED, TRAIN, context_graph, evidence_of, tables

# ---- coverage -----------------------------------------------------------------------------------


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
        names = ("own", "propagated", "propagated_context")
        parts = tables(graph, probs, similar, context, evidence_of(calib, labels), names)
        pooled = softmax(sum(parts.values()) / 3, axis=1)
        scores = 1 - pooled[np.arange(len(labels)), labels]
        q = np.sort(scores[calib])[math.ceil((1 - alpha) * (n + 1)) - 1]
        hits.append(int((scores[test] <= q).sum()))
    assert not law.fit_hits(hits, law.hit_pmf(n, len(pool) - n, alpha)).accepted


def test_labels_of_others_are_never_read(case):
    graph, probs, labels, pool = case
    calib, tune = pool[:200], pool[200:350]
    visible = np.full_like(labels, -1)
    for nodes in (calib, tune, TRAIN):
        visible[nodes] = labels[nodes]
    arguments = (calib, tune)
    full = snaps.Pooled(0.1).calibrate(graph, probs, labels, *arguments, known_nodes=TRAIN)
    blind = snaps.Pooled(0.1).calibrate(graph, probs, visible, *arguments, known_nodes=TRAIN)
    assert (full.scores_ == blind.scores_).all()
    swapped = visible.copy()
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
        ("bias", np.zeros(3), "'bias' must be numbers (4,), got (3,)"),
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
