"""Every node in the page, with its scores, its set and its neighbours."""

from __future__ import annotations

import base64
import gzip

import numpy as np
import pytest

import snaps
from snaps.models import smoothed_regression
from snaps.report import explorer
from tests.helpers.small import made
from tests.report.common import CALIB, METHODS, TEST, calibrate, write


@pytest.mark.parametrize("name", METHODS)
def test_every_node_is_packed_with_its_scores_and_set(name, tmp_path):
    case, cp = made(), calibrate(METHODS[name])
    nodes = write(cp, tmp_path, case.labels, TEST).nodes()
    assert nodes["carried"] == nodes["total"] == 400
    ids = cp.calib_ids_.dtype.kind == "U"
    assert nodes["ids"] == (case.graph.ids.tolist() if ids else [str(i) for i in range(400)])
    low, high = nodes["ranges"]["mixed"]
    mixed = low + nodes["score mixed"].reshape(400, 3) / 65535 * (high - low)
    np.testing.assert_allclose(mixed, cp.scores_, atol=(high - low) / 65535)
    bits = np.unpackbits(nodes["sets"].reshape(400, -1), axis=1, bitorder="little")[:, :3]
    np.testing.assert_array_equal(bits[TEST].astype(bool), cp.predict_set(TEST).mask)
    roles = np.array(nodes["roles"])[nodes["role"]]
    assert (roles[TEST] == "predicted").all() and (roles[cp.calib_nodes_] == "calibration").all()
    assert (roles[cp.tune_nodes_] == "tuning").all() and (roles[cp.known_nodes_] == "known").all()
    explanation = cp.explain(int(TEST[7]))
    for part, _ in nodes["parts"]:
        low, high = nodes["ranges"][part]
        row = nodes[f"score {part}"].reshape(400, 3)[TEST[7]]
        expected = explanation.parts[part]
        if name == "pooled":
            expected = explanation.weights[part] * (expected - expected.mean())
        step = (high - low) / 65535
        np.testing.assert_allclose(low + row * step, expected, atol=step)
    for part in nodes["near"]:
        begin, end = nodes[f"start {part}"][TEST[7] : TEST[7] + 2]
        near = nodes[f"near {part}"][begin:end].tolist()
        weights = explanation.weights[part] * nodes[f"share {part}"][begin:end] / 65535
        expected = {one.node: one.weight for one in explanation.neighbours if one.part == part}
        assert nodes[f"count {part}"][TEST[7]] == len(expected)
        assert dict(zip(near, weights, strict=True)) == pytest.approx(expected, abs=2e-5)


def test_a_part_of_many_nodes_is_carried(tmp_path, monkeypatch):
    case, cp = made(), calibrate(snaps.SNAPS(0.1))
    monkeypatch.setattr(explorer, "MOST_NODES", 50)
    show = case.graph.ids[[3, 399]].tolist()
    page = write(cp, tmp_path, case.labels, TEST, show=show)
    nodes = page.nodes()
    carried = nodes["ids"][:50]
    assert nodes["carried"] == 50 and set(show) <= set(carried)
    assert "This file contains 50 of 400 nodes" in page.text
    # Who is carried depends on ids, not on order; neighbours come along by name.
    order = np.random.default_rng(0).permutation(400)
    back = np.argsort(order)
    again = snaps.SNAPS(0.1).calibrate(
        snaps.Graph(
            case.graph.adjacency[order][:, order], case.graph.features[order],
            ids=case.graph.ids[order],
        ),
        case.probs[order], case.labels[order], np.sort(back[CALIB]),
    )  # fmt: skip
    other = write(again, tmp_path, case.labels[order], np.sort(back[TEST]), show=show).nodes()
    assert set(other["ids"][:50]) == set(carried) and set(other["ids"]) == set(nodes["ids"])
    place = carried.index(show[0])
    begin, end = nodes["start linked"][place : place + 2]
    near = {nodes["ids"][i] for i in nodes["near linked"][begin:end]}
    links = case.graph.adjacency[[int(case.graph.index(show[0])[0])]].indices
    assert near == set(case.graph.ids[links].tolist())


def test_fewer_nodes_are_carried_where_each_is_long(tmp_path, monkeypatch):
    cp = calibrate(snaps.SNAPS(0.1))
    monkeypatch.setattr(explorer, "MOST_BYTES", 30_000)
    page = write(cp, tmp_path, made().labels, TEST)
    assert 50 < page.nodes()["carried"] < 250
    assert len(gzip.decompress(base64.b64decode(page.packed))) < 35_000


def test_only_the_heaviest_of_many_neighbours(tmp_path):
    """A hub has more neighbours than anybody reads."""
    n = 100
    hub = np.stack([np.zeros(n - 1, int), np.arange(1, n)])
    weights = np.arange(1, n).astype(float)
    graph = snaps.Graph(hub, num_nodes=n, weighted=True, edge_weights=weights)
    probs = np.random.default_rng(0).dirichlet(np.ones(3), n)
    cp = snaps.DAPS(0.2, weight=0.5).calibrate(graph, probs, np.arange(n) % 3, np.arange(40))
    nodes = write(cp, tmp_path).nodes()
    assert nodes["count linked"][0] == n - 1 and nodes["start linked"][1] == 24
    assert nodes["near linked"][:24].tolist() == list(range(n - 1, n - 25, -1))
    assert nodes["share linked"][0] / 65535 == pytest.approx((n - 1) / weights.sum(), abs=1e-5)


def test_a_large_real_graph_makes_a_small_file(tmp_path, data_dir):
    data = snaps.datasets.load("coauthor_physics", data_dir)
    graph, n = data.graph, data.graph.num_nodes
    order = np.random.default_rng(0).permutation(n)
    probs = smoothed_regression(graph, data.labels, order[:100])
    near = snaps.similarity_graph(graph.features, 20, ids=graph.keys, candidates=500)  # quicker
    cp = snaps.SNAPS(0.05, weights=(0.4, 0.4)).calibrate(
        graph, probs, data.labels, order[100:1100], similarity=near
    )
    page = write(cp, tmp_path, data.labels, order[1100:], show=order[:3])
    assert (tmp_path / "r.html").stat().st_size < 8e6
    assert page.nodes()["carried"] == 20_000
    assert {str(i) for i in order[:3]} <= set(page.nodes()["ids"][:20_000])
