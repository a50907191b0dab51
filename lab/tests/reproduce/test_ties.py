"""Equally similar nodes, and tuning nodes with other class proportions: what rules are worth."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import scipy.sparse as sp

from lab.tests.reproduce.test_evidence import small, track  # noqa: F401 - a fixture
from snaps.similarity import similarity_graph
from snaps_lab.reproduce import catalogue, render, shares, ties


def table(seed, n=60, d=12, density=0.25):
    """Binary features with many ties, a row of zeros and two equal rows."""
    features = np.random.default_rng(seed).random((n, d)) < density
    features[0] = False
    features[1] = features[2]
    return features.astype(float)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("k", [1, 5])
def test_ties_by_id_are_those_of_the_library(seed, k):
    features = table(seed)
    ids = np.random.default_rng(seed).permutation(60)
    found = ties.broken(ties.find_ties(features, k), ids)
    expected = similarity_graph(features, k, ids=ids)
    np.testing.assert_allclose(found.toarray(), expected.toarray(), atol=1e-14)
    assert (np.diff(found.indptr) <= k).all()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_shared_places_are_the_mean_over_all_orders(seed):
    features = table(seed, n=6, d=3, density=0.6)
    found = ties.find_ties(features, 2)
    orders = [ties.broken(found, np.array(order)).toarray() for order in permutations(range(6))]
    np.testing.assert_allclose(ties.shared(found).toarray(), np.mean(orders, axis=0), atol=1e-12)
    assert found.at_edge.any()


def test_the_table_of_ties(small, monkeypatch):  # noqa: F811
    data, setting = small
    monkeypatch.setattr(ties, "_ties", ties._ties.__wrapped__)
    monkeypatch.setattr(ties, "_graphs", ties._graphs.__wrapped__)
    result = ties.build("ties", ["cora_ml"], setting, track)
    assert len(result["rows"]) == len(ties.METHODS) * len(ties.ALPHAS) * 3
    assert all(row["inside_law"] for row in result["rows"])
    for row in result["rows"]:
        if row["rule"] == ties.BASE:
            assert row["to_base"] == row["changed"] == 0
    assert any(row["changed"] > 0 for row in result["rows"])
    again = ties.build("ties", ["cora_ml"], setting, track)  # from finished pieces
    assert again == result
    text = render.markdown(result)
    assert "to smaller id" in text and "have room: CoraML" in text
    # A cell is what evaluate_splits gives for the library's own graph.
    inputs, roles = ties.seen("cora_ml", 0, ties.runner.trained("", "", 0, setting).logits, setting)
    plan = ties.spending_plan("cora_ml", 0, len(roles.calib), setting)
    method = ties.methods(["SNAPS"], 0.1, seed=plan.seed)["SNAPS"]
    (expected,) = ties_splits(method, inputs, roles, plan)
    cell = ties._cell("cora_ml", 0, setting)["SNAPS"]["0.1"][ties.BASE]
    for key in ("coverage", "size", "empty"):
        assert cell[key] == pytest.approx(expected[key].mean(), abs=1e-12)
    assert sp.issparse(data.graph.features)


def ties_splits(method, inputs, roles, plan):
    from snaps._checks import check_alpha
    from snaps.splits import split_method

    return split_method(ties.method_of(method), inputs, roles, plan, [check_alpha(0.1)])


@pytest.mark.filterwarnings("ignore:the tuning nodes")
def test_the_table_of_shares(small, monkeypatch):  # noqa: F811
    _, setting = small
    result = shares.build("shares", ["cora_ml"], setting, track)
    assert [row["method"] for row in result["rows"]] == 2 * [
        shares.PLAIN, shares.CORRECTED, shares.KNOWN,
    ]  # fmt: skip
    assert all(row["inside_law"] for row in result["rows"])
    assert result["rows"][0]["ratio"] == 1
    assert shares.build("shares", ["cora_ml"], setting, track) == result
    assert "'corrected' to 'no correction'" in render.markdown(result)


def test_both_are_in_the_catalogue():
    assert catalogue.find("ties") is ties and catalogue.find("shares") is shares
