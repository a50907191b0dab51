"""The same folder on a cluster and on one machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp

import snaps
from snaps.datasets import make_graph
from snaps.folder import read_folder, write_folder
from snaps.models import smoothed_regression
from snaps.predictor.estimator import method_of

NUM_NODES = 700
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
TRAIN, CALIB = np.arange(60), np.arange(60, 360)


def write(place, *, names=None, hub=0, roles=None, dense=False, bare=False, classes=None):
    """A graph folder; the first nodes train, some calibrate, and a hub has links to others."""
    data = make_graph(NUM_NODES, 4, seed=3)
    probs = smoothed_regression(data.graph, data.labels, TRAIN)
    links = sp.coo_array(data.graph.adjacency).coords
    links = np.hstack([links, [np.zeros(hub, int), np.arange(1, hub + 1)]])
    features = data.graph.features.toarray() if dense else data.graph.features
    graph = snaps.Graph(links, None if bare else features, NUM_NODES, ids=names)
    if roles is None:
        roles = np.full(NUM_NODES, "", "U5")
        roles[TRAIN], roles[CALIB] = "train", "calib"
    labels = data.labels if classes is None else np.array(classes)[data.labels]
    write_folder(place, graph, probs, labels, roles, classes=classes)
    return place


def frames(spark, folder):
    from snaps.spark._session import read_frames

    return read_frames(spark, Path(folder))


def local(folder, method):
    """What the engine of one machine says."""
    data = read_folder(folder)
    checked = method_of(method)
    tune, known = data.tuning_and_known(checked.uses_evidence)
    method.calibrate(
        data.graph, data.probs, data.labels, data.nodes("calib"),
        tune if checked.scorer.needs_tuning else None,
        known_nodes=known if checked.uses_evidence else None, classes=data.classes,
    )  # fmt: skip
    asked = data.nodes("test")
    return method.predict_set(asked if asked.size else None)


def by_id(table):
    table = table.to_pydict()
    return dict(zip(table["id"], table["labels"], strict=True))


def assert_same(spark, folder, method, **options):
    """The same weights, threshold, scores and sets, bit by bit."""
    found = snaps.spark.predict_sets(spark, *frames(spark, folder), method, **options)
    sets = local(folder, method)
    want = dict(zip(sets.ids.tolist(), (one.tolist() for one in sets.labels()), strict=True))
    assert found.weights == method.part_weights_
    assert np.array_equal(found.threshold, method.threshold_)
    assert found.score == method.score_
    assert found.calib_ids.tolist() == method.calib_ids_.tolist()
    assert found.tune_ids.tolist() == method.tune_ids_.tolist()
    assert np.array_equal(found.calib_scores, method.calib_scores_)
    assert by_id(found.sets.toArrow()) == want
    assert len(want) > 100
    found.inputs.release()
    return found


def parts(path, change):
    """A Parquet file as a folder of two part files, the second of them changed."""
    table = pq.read_table(path)
    path.unlink()
    path.mkdir()
    half = len(table) // 2
    pq.write_table(table[:half], path / "part-0.parquet")
    pq.write_table(change(table[half:]), path / "part-1.parquet")
    return path / "part-1.parquet"
