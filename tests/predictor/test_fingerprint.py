"""Nodes that are found by id are those of before, or recalibration is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

import snaps
from snaps.models import smoothed_regression
from tests.helpers.small import error_line, made, noted
from tests.predictor.common import (
    GROWN,
    METHODS,
    SEED,
    SMALL,
    another_run,
    assert_same,
    before,
    each_method,
    numbered,
    roles,
)

pytestmark = pytest.mark.usefixtures("one_thread")

OTHERS = "calibration, tuning and known nodes under their old ids, got other nodes there"


@each_method
@pytest.mark.parametrize("probs", ["the same", "another run"])
@pytest.mark.parametrize("before_, after", [(1, 0), (0, 1), (1, 2), (1, None)])
def test_ids_that_are_shifted_are_refused(tmp_path, name, probs, before_, after):
    case = made()
    cp = METHODS[name]().calibrate(
        numbered(np.arange(GROWN) + before_), case.probs, case.labels, **roles()
    )
    cp.save(tmp_path / "cp", data=False)
    cp = snaps.load(tmp_path / "cp")
    graph = numbered(None if after is None else np.arange(GROWN) + after)
    table = case.probs if probs == "the same" else another_run()
    for missing in ("error", "drop"):
        assert OTHERS in error_line(cp.recalibrate, graph, table, missing=missing)


@pytest.mark.parametrize("probs", ["the same", "another run"])
def test_without_features_probabilities_tell_that_ids_are_shifted(probs):
    case = made()
    table = case.probs if probs == "the same" else another_run()
    order = np.argsort(case.labels, kind="stable")  # neighbours in this order have one class
    for place in (np.arange(GROWN), order):
        cp = snaps.DAPS(0.1).calibrate(
            snaps.Graph(case.graph.adjacency[place][:, place], ids=np.arange(GROWN)),
            case.probs[place], case.labels[place], **roles(),
        )  # fmt: skip
        graph = snaps.Graph(case.graph.adjacency[place][:, place], ids=np.arange(1, GROWN + 1))
        assert OTHERS in error_line(cp.recalibrate, graph, table[place], missing="drop")


def test_nodes_in_another_order_and_new_ones_that_come_first_are_refused():
    case = made()
    cp = snaps.SNAPS(0.1).calibrate(
        snaps.Graph(case.graph.adjacency[:SMALL, :SMALL], case.graph.features[:SMALL]),
        *before()[1:], **roles(),
    )  # fmt: skip
    for place in (np.roll(np.arange(GROWN), GROWN - SMALL), np.arange(GROWN)[::-1]):
        graph = snaps.Graph(case.graph.adjacency[place][:, place], case.graph.features[place])
        assert OTHERS in error_line(cp.recalibrate, graph, case.probs[place])
    half = np.concatenate([np.arange(150), [399], np.arange(150, 399)])  # one in the middle
    graph = snaps.Graph(case.graph.adjacency[half][:, half], case.graph.features[half])
    assert OTHERS in error_line(cp.recalibrate, graph, case.probs[half])


def test_features_that_a_graph_is_given_after_calibration_are_compared_with_those_before():
    case = made()
    graph = snaps.Graph(case.graph.adjacency, case.graph.features)
    cp = snaps.SNAPS(0.1).calibrate(graph, case.probs, case.labels, **roles())
    graph.features = case.graph.features[::-1].copy()
    assert OTHERS in error_line(cp.recalibrate, graph, case.probs[::-1])


@pytest.mark.parametrize("features", ["noisy", "half precision", "all new", "wider", "none"])
def test_new_features_and_another_run_of_the_classifier_are_fine(features):
    case, random = made(), np.random.default_rng(SEED)
    table = case.graph.features
    table = table.toarray() if sp.issparse(table) else table
    graph, probs, labels = before()
    cp = snaps.SNAPS(0.1).calibrate(graph, probs, labels, **roles())
    new = {
        "noisy": table + random.normal(0, 0.1 * table.std(), table.shape),
        "half precision": table.astype(np.float16),
        "all new": random.random(table.shape),
        "wider": random.random((GROWN, table.shape[1] + 1)),
        "none": None,
    }[features]
    grown_ = snaps.Graph(case.graph.adjacency, new, GROWN, ids=case.graph.ids)
    noted(cp.recalibrate, grown_, another_run())
    given = grown_, another_run(), case.labels
    fresh, _ = noted(snaps.SNAPS(0.1).calibrate, *given, **roles())
    assert_same(fresh, cp)


def test_rows_that_tell_nothing_are_not_compared():
    probs, labels = np.tile([0.6, 0.3, 0.1], (40, 1)), np.array([0, 0, 0, 1] * 10)
    cp = snaps.SplitConformal(0.2).calibrate(None, probs, labels, nodes=np.arange(20))
    cp.recalibrate(None, probs[:, [1, 0, 2]])


def test_a_kept_threshold_on_a_graph_whose_ids_are_taken_by_others():
    """Ids that happen to be the same name no node of before: all are predicted, none is known."""
    case = made()
    cp = snaps.Pooled(0.1).calibrate(numbered(np.arange(GROWN)), case.probs, case.labels, **roles())
    other = snaps.datasets.make_graph(GROWN, 4, seed=9)
    graph = snaps.Graph(other.graph.adjacency, other.graph.features, ids=np.arange(GROWN))
    plain = snaps.Graph(other.graph.adjacency, other.graph.features)
    probs = smoothed_regression(graph, other.labels, np.arange(40))[:, : case.probs.shape[1]]
    probs = probs / probs.sum(axis=1, keepdims=True)
    sets = []
    for each in (graph, plain):
        noted(cp.recalibrate, each, probs, threshold="keep")
        sets.append(cp.predict_set())
        assert len(sets[-1]) == GROWN
    np.testing.assert_array_equal(sets[0].mask, sets[1].mask)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("data", [False, True])
def test_the_direction_of_links_stays(tmp_path, directed, data):
    case = made()
    first, other = (numbered(case.graph.ids, directed=each) for each in (directed, not directed))
    cp = snaps.DAPS(0.1).calibrate(first, case.probs, case.labels, **roles())
    cp.save(tmp_path / "cp", data=data)
    rule = "directed" if directed else "undirected"
    for each in (cp, snaps.load(tmp_path / "cp")):
        assert error_line(each.recalibrate, other, case.probs) == (
            f"'graph' must be {rule}, as it was to calibrate"
        )
        each.recalibrate(first, case.probs)


def test_a_file_without_fingerprints_is_read(tmp_path):
    """As files were before: nothing is compared."""
    from snaps.io.files import read_npz, write_npz

    case = made()
    cp = snaps.DAPS(0.1).calibrate(
        numbered(np.arange(GROWN) + 1), case.probs, case.labels, **roles()
    )
    cp.save(tmp_path / "cp", data=False)
    assert (tmp_path / "cp").stat().st_size < 100_000
    arrays = read_npz(tmp_path / "cp")
    header = json.loads(arrays.pop("header").tobytes())
    for name in ("fingerprints", "links_directed", "calibrated_alpha"):
        header.pop(name)
    kept = {name: array for name, array in arrays.items() if not name.startswith("used_")}
    header["arrays"] = sorted(kept)
    kept["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    write_npz(tmp_path / "old", kept)
    old = snaps.load(tmp_path / "old")
    assert_same(cp, old.recalibrate(numbered(np.arange(GROWN) + 1), case.probs))
