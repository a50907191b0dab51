"""A graph before and after it has grown, and estimators calibrated on both."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import snaps
from snaps.images import EmbeddedSNAPS
from snaps.models import smoothed_regression
from tests.helpers.small import made

SEED = 20246

SMALL, GROWN = 300, 400  # nodes before and after
KNOWN, TUNE, OLD, NEW = (np.arange(*ends) for ends in ((0, 40), (40, 120), (120, 220), (300, 340)))

METHODS = {
    "RAPS": lambda: snaps.SplitConformal(0.1, score=snaps.RAPS()),
    "DAPS": lambda: snaps.DAPS(0.1, seed=3),
    "SNAPS": lambda: snaps.SNAPS(0.1),
    "SNAPS by class": lambda: snaps.SNAPS(0.3, class_conditional=True),
    "Pooled": lambda: snaps.Pooled(0.1),
    "EmbeddedSNAPS": lambda: EmbeddedSNAPS(0.1, eta="tune"),
}
each_method = pytest.mark.parametrize("name", METHODS)


@cache
def grown(order="as it was"):
    """The graph with 100 nodes more: graph, probabilities, labels, and where each node went."""
    case = made()
    place = np.arange(GROWN)
    if order == "reordered":
        place = np.random.default_rng(SEED).permutation(GROWN)
    graph = snaps.Graph(
        case.graph.adjacency[place][:, place], case.graph.features[place], ids=case.graph.ids[place]
    )
    # Made again: other numbers than on the small graph.
    return graph, case.probs[place], case.labels[place], np.argsort(place)


@cache
def before():
    """The graph of the first 300 nodes and its probabilities."""
    case = made()
    graph = snaps.Graph(
        case.graph.adjacency[:SMALL, :SMALL],
        case.graph.features[:SMALL],
        ids=case.graph.ids[:SMALL],
    )
    return graph, smoothed_regression(graph, case.labels[:SMALL], KNOWN), case.labels[:SMALL]


def roles(where=None, calib=OLD):
    """Arguments of calibrate for nodes that stand at `where`."""
    where = np.arange(GROWN) if where is None else where
    return {"nodes": where[calib], "tune_nodes": where[TUNE], "known_nodes": where[KNOWN]}


def assert_same(one, two):
    """Equal to the last bit."""
    assert one == two and one.score_ == two.score_
    assert one.part_weights_ == two.part_weights_
    for name in ("threshold_", "scores_", "calib_ids_", "calib_labels_", "calib_scores_",
                 "tune_ids_", "known_ids_", "calib_nodes_", "classes_"):  # fmt: skip
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
    np.testing.assert_array_equal(one.predict_set().mask, two.predict_set().mask)
    np.testing.assert_array_equal(one.predict_p(smoothed=True), two.predict_p(smoothed=True))


def numbered(ids, *, featured=True, **options):
    """The grown graph with integers as ids, or without."""
    case = made()
    features = case.graph.features if featured else None
    return snaps.Graph(case.graph.adjacency, features, GROWN, ids=ids, **options)


@cache
def another_run():
    """Probabilities of a classifier that was trained on other nodes."""
    case = made()
    return smoothed_regression(case.graph, case.labels, np.arange(340, 400))
