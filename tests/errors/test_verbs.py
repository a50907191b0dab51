"""What users get wrong after calibration: prediction, splits, sets and metrics."""

from __future__ import annotations

import numpy as np
import pytest

import snaps
from snaps import metrics
from tests.errors.common import ALPHA, EMPTY, MASK, SETS, N, messages, split
from tests.helpers import small
from tests.helpers.small import LABELS, TEST, error_line

PREDICTION = {
    "this SNAPS must be calibrated first: call calibrate()": lambda: snaps.SNAPS().predict_set(),
    "this DAPS must be calibrated first: call calibrate()": lambda: snaps.DAPS().predict_p(),
    "this SplitConformal must be calibrated first: call calibrate()": lambda: (
        snaps.SplitConformal().save("x.npz")
    ),
    "'nodes' must lie from 0 to 59, got 77": lambda: small.calibrated().predict_set([77]),
    "'nodes' must be one-dimensional, got shape ()": lambda: small.calibrated().predict_set(3),
    "'nodes' must not repeat a node, got 31 twice or more": lambda: small.calibrated().predict_p(
        [31, 31]
    ),
    "'nodes' as a mask must have shape (60,), got (2,)": lambda: small.calibrated().predict_set(
        [True, False]
    ),
    f"{ALPHA} 2": lambda: small.calibrated().predict_set(alpha=2),
    "'smoothed' must be True or False, got 'yes'": lambda: small.calibrated().predict_p(
        smoothed="yes"
    ),
    "'labels' must be an array, got NoneType": lambda: small.calibrated().evaluate(None),
    "'labels' must have shape (60,), got (30,)": lambda: small.calibrated().evaluate(LABELS[:30]),
    "'nodes' must be labelled, got 30 without a label (first: 30)": lambda: (
        small.calibrated().evaluate(np.full(N, -1), TEST)
    ),
    "'nodes' must hold at least one labelled node, got none": lambda: small.calibrated().evaluate(
        np.full(N, -1)
    ),
    "'nodes' must not share nodes with the calibration nodes, got 30 in both (first: 0)": lambda: (
        small.calibrated().evaluate(LABELS, np.arange(N))
    ),
    "'nodes' must not share nodes with the tuning nodes, got 10 in both (first: 30)": lambda: (
        small.calibrated(tune_nodes=np.arange(30, 40)).evaluate(LABELS, TEST)
    ),
    "'node' must be an integer from 0 to 59, got 60": lambda: small.calibrated().explain(60),
    "'node' must name nodes of the graph, got node-77": lambda: small.calibrated(
        named=True
    ).explain("node-77"),
    "'node' must be integers as the nodes' ids are, got strings": lambda: (
        small.calibrated().explain("node-7")
    ),
}

SPLITS = {
    "'method' must be an estimator such as snaps.SNAPS(), got 'snaps'": lambda: split(
        method="snaps"
    ),
    "'method' must be an estimator such as snaps.SNAPS(), "
    "got <class 'snaps.estimators.SNAPS'>": lambda: split(method=snaps.SNAPS),
    "'pool' must hold at least two nodes, got 1": lambda: split(pool=[3], n_calib=1),
    "'pool' must hold at least one node, got none": lambda: split(pool=[]),
    "'pool' must lie from 0 to 59, got 60": lambda: split(pool=np.arange(N + 1)),
    "'n_calib' must be an integer from 1 to 29, got 30": lambda: split(n_calib=30),
    "'n_calib' must be an integer from 1 to 29, got 0": lambda: split(n_calib=0),
    "'n_calib' must be an integer from 1 to 29, got 0.5": lambda: split(n_calib=0.5),
    "'n_splits' must be an integer of at least 1, got 0": lambda: split(n_splits=0),
    "'seed' must be an integer of at least 0, got 1.5": lambda: split(seed=1.5),
    "'alphas' must be a list of at least one level, got 0.1": lambda: split(alphas=0.1),
    "'alphas' must be a list of at least one level, got []": lambda: split(alphas=[]),
    "'alphas' must lie strictly between 0 and 1, got 1.0": lambda: split(alphas=[0.1, 1.0]),
    "'alphas' must be a number between 0 and 1, got '0'": lambda: split(alphas="0.1"),
    "'tune_nodes' must not share nodes with 'pool', got 1 in both (first: 30)": lambda: split(
        tune_nodes=[5, 30]
    ),
    "'graph' must be a snaps.Graph for SNAPS, got None": lambda: split(method=snaps.SNAPS()),
}

RESULTS = {
    "'mask' must be a boolean array (nodes, classes), got int64 (2, 3)": lambda: (
        snaps.PredictionSets(MASK.astype(int))
    ),
    "'mask' must be a boolean array (nodes, classes), got bool (3,)": lambda: snaps.PredictionSets(
        MASK[0]
    ),
    "'nodes' must have one entry a set (2), got 3": lambda: snaps.PredictionSets(MASK, [0, 1, 2]),
    "'nodes' must lie from 0 to 0, got -1": lambda: snaps.PredictionSets(MASK, [-1, 0]),
    "'nodes' must be integer positions or a boolean mask, got <U1": lambda: snaps.PredictionSets(
        MASK, ["a", "b"]
    ),
    "'num_nodes' must be an integer from 1 to 2147483647, got '2'": lambda: snaps.PredictionSets(
        MASK, num_nodes="2"
    ),
    "'ids' must have one entry a set (2), got 1": lambda: snaps.PredictionSets(MASK, ids=[7]),
    "'ids' must be a list of integers or of strings, got 7": lambda: snaps.PredictionSets(
        MASK, ids=7
    ),
    "'sets' must be PredictionSets, got ndarray": lambda: metrics.coverage(MASK, [0, 1]),
    "'sets' must be PredictionSets, got list": lambda: metrics.size([[0], [1]]),
    "'sets' must hold at least one set, got none": lambda: metrics.empty(EMPTY),
    "'labels' must have shape (2,), got (3,)": lambda: metrics.coverage(SETS, [0, 1, 2]),
    "'labels' must lie from 0 to 2, or be -1 where unknown, got 3 at node 1": lambda: (
        metrics.singleton_hit(SETS, [0, 3])
    ),
    "'labels' must be labelled, got 1 without a label (first: 1)": lambda: metrics.class_coverage(
        SETS, [0, -1]
    ),
    f"{ALPHA} 1.5": lambda: metrics.sscv(SETS, [0, 1], alpha=1.5),
    f"{ALPHA} 0.0": lambda: metrics.class_gap(SETS, [0, 1], alpha=0.0),
    "'strata' must cover the sizes that occur, got [(4, 9)]": lambda: metrics.sscv(
        SETS, [0, 1], 0.1, strata=[(4, 9)]
    ),
    "'strata' must be pairs of sizes, got [0, 1, 2]": lambda: metrics.sscv(
        SETS, [0, 1], 0.1, strata=[0, 1, 2]
    ),
}


@messages(prediction=PREDICTION, splits=SPLITS, results=RESULTS)
def test_message(message, call):
    assert error_line(call) == message.rstrip()


@pytest.mark.parametrize("metric", ["size", "size_nonempty", "empty"])
def test_metrics_without_labels_refuse_no_sets(metric):
    message = error_line(lambda: getattr(metrics, metric)(EMPTY))
    assert message == "'sets' must hold at least one set, got none"
