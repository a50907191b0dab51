"""Sets made on a cluster of several processes are those of one machine, to the last label."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import snaps
from snaps._kernels.aggregation import exact_sums, mean_of_sums, neighbour_mean
from snaps.folder import read_folder, write_folder
from snaps.graph import graph_from_arrays
from snaps.io.files import read_npz
from snaps.models import smoothed_regression
from tests.spark.common import (
    CALIB,
    NUM_NODES,
    TRAIN,
    assert_same,
    by_id,
    frames,
    local,
    write,
)


# -- exact sums ----------------------------------------------------------------------------------
def test_exact_means_depend_on_no_order_and_on_no_partition():
    rng = np.random.default_rng(0)
    table = rng.random((50, 3)) ** 8
    near = rng.integers(0, 50, 400)
    rows = sp.csr_array((np.ones(400), near, [0, 400]), shape=(1, 50))
    other = sp.csr_array((np.ones(400), near[::-1].copy(), [0, 400]), shape=(1, 50))
    mean = neighbour_mean(rows, table, table[:1], exact=True)
    assert np.array_equal(mean, neighbour_mean(other, table, table[:1], exact=True))
    assert np.allclose(mean, table[near].mean(axis=0), rtol=1e-14)
    parts = [exact_sums(np.array([0, len(part)]), part, table) for part in np.split(near, [7, 90])]
    assert np.array_equal(mean, mean_of_sums(sum(parts), np.array([400]), table[:1]))


# -- the same sets -------------------------------------------------------------------------------
def test_snaps_among_all_nodes(spark, folder):
    found = assert_same(spark, folder, snaps.SNAPS(0.1))
    assert set(found.weights) == {"own", "similar", "linked"}
    assert found.num_nodes == NUM_NODES


def test_snaps_among_candidates_with_names_classes_and_validation_nodes(spark, tmp_path):
    names = np.array([f"n{(11 * i) % NUM_NODES}é" for i in range(NUM_NODES)])
    roles = np.full(NUM_NODES, "", "U5")
    roles[TRAIN], roles[CALIB], roles[360:500], roles[550:] = "train", "calib", "valid", "test"
    write(tmp_path, names=names, roles=roles, dense=True, classes=["a", "b", "c", "d"])
    method = snaps.SNAPS(0.1, score=snaps.RAPS(), candidates=90, class_conditional=True, seed=5)
    assert_same(spark, tmp_path, method)


RATES = {"a": 0.05, "b": 0.1, "c": 0.2, "d": 0.3}


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": 0.1, "class_floor": 0.85},
        {"alpha": RATES, "class_conditional": True},
        {"alpha": 0.1, "confidence": 0.9},
    ],
    ids=["floor", "rates", "confidence"],
)
def test_promises_beyond_an_average(spark, tmp_path, options):
    write(tmp_path, classes=list(RATES))
    assert_same(spark, tmp_path, snaps.DAPS(**options))


@pytest.mark.parametrize(
    "method", [snaps.SNAPS(0.1), snaps.Pooled(0.1, parts=("own", "linked", "two_hop"))]
)
@pytest.mark.filterwarnings("ignore:the graph has no features")
def test_no_node_has_similar_ones_without_features(spark, tmp_path, method):
    write(tmp_path, bare=True)
    assert_same(spark, tmp_path, method)


def test_sessions_may_ask_for_large_types(spark, tmp_path):
    write(tmp_path, names=np.array([f"n{i}" for i in range(NUM_NODES)]))
    setting = "spark.sql.execution.arrow.useLargeVarTypes"
    spark.conf.set(setting, "true")
    try:
        assert_same(spark, tmp_path, snaps.SNAPS(0.1, candidates=90))
    finally:
        spark.conf.unset(setting)


def test_daps_with_a_hub_whose_edges_are_spread(spark, tmp_path, monkeypatch):
    from snaps.spark import _engine

    write(tmp_path, hub=200)
    monkeypatch.setattr(_engine, "BUCKET_BYTES", 6000)
    method = snaps.DAPS(0.1, score=snaps.THR())
    found = assert_same(spark, tmp_path, method)
    assert len(found.inputs.heavy_links()) >= 1


@pytest.mark.filterwarnings("ignore:class 5 is covered")
def test_snaps_on_a_real_graph(spark, data_dir, tmp_path):
    arrays = read_npz(data_dir / "cora_ml.npz")
    graph, labels = graph_from_arrays(arrays, "cora_ml"), arrays["y"]
    order = np.random.default_rng(0).permutation(len(labels))
    roles = np.full(len(labels), "test", "U5")
    roles[order[:140]], roles[order[140:1000]] = "train", "calib"
    probs = smoothed_regression(graph, labels, order[:140])
    write_folder(tmp_path, graph, probs, labels, roles)
    assert_same(spark, tmp_path, snaps.SNAPS(0.05))


def test_split_conformal_needs_no_links(spark, folder):
    assert_same(spark, folder, snaps.SplitConformal(0.1, score=snaps.SAPS()))


def test_pooled_with_the_parts_that_fit(spark, folder):
    found = snaps.spark.predict_sets(
        spark, *frames(spark, folder), snaps.Pooled(0.1, candidates=90)
    )
    parts = ("own", "linked", "two_hop", "similar")
    method = snaps.Pooled(0.1, candidates=90, parts=parts)
    sets = local(folder, method)
    assert found.weights == method.weights_
    assert found.threshold == method.threshold_
    want = dict(zip(sets.ids.tolist(), (one.tolist() for one in sets.labels()), strict=True))
    assert by_id(found.sets.toArrow()) == want


def test_an_executor_that_dies_changes_nothing(spark, folder, tmp_path):
    method = snaps.SNAPS(0.1, candidates=90)
    found = snaps.spark.predict_sets(spark, *frames(spark, folder), method)
    whole = by_id(found.sets.toArrow())
    tracker = spark.sparkContext.statusTracker()
    failed = []

    def write_sets():
        try:
            found.write(str(tmp_path / "sets.parquet"))
        except Exception as error:
            failed.append(error)

    work = threading.Thread(target=write_sets)
    work.start()
    killed = False
    while work.is_alive() and not killed:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        if any(stage and stage.numActiveTasks for stage in stages):
            os.kill(executors(spark)[0], signal.SIGKILL)
            killed = True
        time.sleep(0.02)
    work.join()
    assert killed and not failed
    assert by_id(pq.read_table(tmp_path / "sets.parquet")) == whole


def executors(spark):
    """The processes of this application's executors."""
    name = spark.sparkContext.applicationId
    found = []
    for place in Path("/proc").iterdir():
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        # The name of Java's main class distinguishes the executor from what started it.
        if name.encode() in words and b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in (
            words
        ):
            found.append(int(place.name))
    return sorted(found)


# -- the command ---------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [np.float16, np.uint8, ">f4", "?", np.int64])
@pytest.mark.parametrize("file", ["features.npy", "features.npz"])
def test_features_beside_the_nodes_are_the_floats_of_the_local_engine(spark, tmp_path, kind, file):
    """Spark has neither half precision nor unsigned integers, and one byte order."""
    write(tmp_path, bare=True)
    table = (np.random.default_rng(0).random((NUM_NODES, 5)) * 3).astype(kind)
    np.save(tmp_path / file, table) if file == "features.npy" else np.savez(
        tmp_path / file, x=table
    )
    found = frames(spark, tmp_path)[0].select("id", "features").orderBy("id").toArrow()
    want = read_folder(tmp_path).graph.features
    values = found.column("features").combine_chunks().flatten().to_numpy()
    assert values.dtype == want.dtype
    np.testing.assert_array_equal(values.reshape(want.shape), want)


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["0.5", "1.5", "2.5", "3.0"], "string"),
        (["0", "1", "01", "2"], "string"),
        (["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"], "string"),
        (["true", "false", "a%20b", "\u00e9"], "string"),
        (["7", "1", "0", "-2"], "bigint"),
    ],
)
def test_partitions_are_of_the_types_of_the_local_engine(spark, tmp_path, names, kind):
    """Spark takes 1.5 for a number and 2026-01-01 for a date, and 01 and 1 for one label."""
    write(tmp_path)
    nodes = pq.read_table(tmp_path / "nodes.parquet")
    (tmp_path / "nodes.parquet").unlink()
    labels = np.array(nodes.column("label").to_pylist())
    for y, name in enumerate(names):
        place = tmp_path / "nodes.parquet" / f"label={name}"
        place.mkdir(parents=True)
        pq.write_table(nodes.drop_columns(["label"]).filter(labels == y), place / "part.parquet")
    frame = frames(spark, tmp_path)[0]
    assert frame.schema["label"].dataType.simpleString() == kind
    found = frame.select("id", "label").toPandas()
    data = read_folder(tmp_path)
    want = dict(zip(data.graph.ids.tolist(), data.labels.tolist(), strict=True))
    assert dict(zip(found["id"].tolist(), found["label"].tolist(), strict=True)) == want


def test_part_files_in_folders_that_say_nothing(spark, tmp_path):
    write(tmp_path)
    nodes = pq.read_table(tmp_path / "nodes.parquet")
    (tmp_path / "nodes.parquet").unlink()
    for name, rows in (("a", nodes[:300]), ("b", nodes[300:])):
        (tmp_path / "nodes.parquet" / name).mkdir(parents=True)
        pq.write_table(rows, tmp_path / "nodes.parquet" / name / "part.parquet")
    assert frames(spark, tmp_path)[0].count() == NUM_NODES
