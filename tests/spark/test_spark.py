"""Sets made on a cluster of several processes are those of one machine, to the last label."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import snaps
from snaps._kernels.aggregation import exact_sums, mean_of_sums, neighbour_mean
from snaps.datasets import make_graph
from snaps.errors import SnapsError
from snaps.folder import read_folder, write_folder
from snaps.graph import graph_from_arrays
from snaps.io.files import read_npz
from snaps.models import smoothed_regression
from snaps.predictor.estimator import method_of

NUM_NODES = 700
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
TRAIN, CALIB = np.arange(60), np.arange(60, 360)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("graph"))


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
def test_nobody_has_similar_nodes_without_features(spark, tmp_path, method):
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
        # The word of Java's main class tells the executor from what started it.
        if name.encode() in words and b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in (
            words
        ):
            found.append(int(place.name))
    return sorted(found)


# -- complaints ----------------------------------------------------------------------------------


def broken(spark, folder, change):
    """Complaint about nodes and edges that were changed."""
    data = read_folder(folder)
    nodes = {
        "id": pa.array(data.graph.ids),
        "probs": pa.array(data.probs.tolist(), pa.list_(pa.float64())),
        "label": pa.array(data.labels),
        "role": pa.array(data.roles.astype(str)),
    }
    edges = {"src": pa.array([1, 2, 3]), "dst": pa.array([2, 3, 4])}
    change(nodes, edges)
    made = [spark.createDataFrame(pa.table(columns)) for columns in (nodes, edges)]
    with pytest.raises(SnapsError) as told:
        snaps.spark.predict_sets(spark, *made, snaps.DAPS(0.1)).write(folder / "none")
    assert "\n" not in str(told.value)
    return str(told.value)


def row(column, place, value):
    values = column.to_pylist()
    values[place] = value
    return pa.array(values, column.type)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda n, e: n.pop("probs"), "'nodes' must have a column 'probs', got id, label, role"),
        (lambda n, e: n.update(id=pa.array(np.arange(NUM_NODES) / 2)),
         "'nodes' column 'id' must be integers or strings, got double"),
        (lambda n, e: e.update(src=pa.array(["1", "2", "3"])),
         "'edges' column 'src' must be of the type of the nodes' ids (bigint), got string"),
        (lambda n, e: e.update(dst=pa.array([2, None, 4])),
         "'edges' column 'dst' must not be null, got null where src is 2"),
        (lambda n, e: e.update(src=pa.array([1, None, 3]), dst=pa.array([2, None, 4])),
         "'edges' column 'src' must not be null, got null where dst is null too"),
        (lambda n, e: e.update(dst=pa.array([2, 3, 9999])),
         "'edges' column 'dst' must name nodes of the graph, got 9999"),
        (lambda n, e: e.update(src=pa.array([1, 2, 9998]), dst=pa.array([2, 3, 9998])),
         "'edges' column 'src' must name nodes of the graph, got 9998"),
        (lambda n, e: n.update(probs=row(n["probs"], 77, [0.5, 0.5, 0.5, 0.5])),
         "'nodes' column 'probs' must sum to 1 in each row, got 2 for id 77"),
        (lambda n, e: n.update(probs=row(n["probs"], 78, None)),
         "'nodes' column 'probs' must not be null, got null for id 78"),
        (lambda n, e: n.update(probs=row(n["probs"], 79, [0.5, 0.5])),
         "'nodes' column 'probs' must have lists of equal length (4), got 2 for id 79"),
        (lambda n, e: n.update(role=row(n["role"], 80, "tester")),
         "'nodes' column 'role' must be one of train, valid, tune, calib, test or empty, "
         "got 'tester' for id 80"),
        (lambda n, e: n.update(label=row(n["label"], 81, 7)),
         "'nodes' column 'label' must lie from 0 to 3, or be -1 where unknown, got 7 for id 81"),
        (lambda n, e: n.update(label=row(n["label"].cast("double"), 81, 1.5)),
         "'nodes' column 'label' must be whole numbers, got 1.5 for id 81"),
        (lambda n, e: n.update(label=row(n["label"].cast("string"), 83, "2\0")),
         "'nodes' column 'label' must not hold the character NUL, got '2\\x00' for id 83"),
        (lambda n, e: n.update(label=n["label"].cast("string")),
         "'classes' must be given where 'nodes' column 'label' are strings, got None and "),
        (lambda n, e: n.update(label=row(n["label"], 82, None)),
         "'nodes' column 'label' must be given where the role is calib, got null for id 82"),
        (lambda n, e: n.update(id=row(n["id"], 83, 84)),
         "'nodes' column 'id' must be unique, got 84 twice or more"),
    ],
)  # fmt: skip
def test_a_bad_table_is_told_in_one_line(spark, folder, change, told):
    assert broken(spark, folder, change).startswith(told)


FEATURES = {"indices": [0, 4], "values": [1.0, 2.0]}
SPARSE = [("values", pa.list_(pa.float64())), ("indices", pa.list_(pa.int64()))]


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("features", {"indices": [4, 0]}, "must have ascending indices, got 0 after 4 for id 'n2'"),
        ("features", {"indices": [-1, 0]},
         "must have indices from 0 to 2147483646, got -1 for id 'n2'"),
        ("features", {"indices": [0, 3 * 10**9]},
         "must have indices from 0 to 2147483646, got 3000000000 for id 'n2'"),
        ("features", {"indices": [1]},
         "must have a value for each index, got 1 indices and 2 values for id 'n2'"),
        ("features", {"values": [None, 1.0]},
         "(values) must not hold nulls, got one for id 'n2'"),
        ("features", {"indices": None}, "(indices) must not be null, got null for id 'n2'"),
        ("features", {"values": [1.0, np.inf]}, "must be finite, got inf for id 'n2'"),
        ("features", None, "must not be null, got null for id 'n2'"),
        ("id", "n2\0", "must not hold the character NUL, got 'n2\\x00'"),
        ("probs", [0.5, 0.6], "must sum to 1 in each row, got 1.1 for id 'n2' (if these are"),
        ("probs", [None, 1.0], "must not hold nulls, got one for id 'n2'"),
    ],
)  # fmt: skip
def test_a_bad_row_is_told_by_its_id(column, value, told):
    from snaps.spark._columns import checker

    columns = {
        "id": pa.array(["n0", "n1", "n2", "n3"]),
        "probs": pa.array([[0.5, 0.5]] * 4),
        "role": pa.array([None, "calib", "test", ""], pa.string()),
        "features": pa.array([FEATURES] * 4, pa.struct(SPARSE)),
    }
    (fine,) = checker("'nodes'", False)([pa.RecordBatch.from_pydict(columns)])
    assert fine.to_pylist() == [{"problem": None, "classes": 2, "width": -1, "zeros": 0}]
    value = {**FEATURES, **value} if isinstance(value, dict) else value
    columns[column] = row(columns[column], 2, value)
    (found,) = checker("'nodes'", False)([pa.RecordBatch.from_pydict(columns)])
    assert found.to_pylist()[0]["problem"].startswith(f"'nodes' column '{column}' {told}")


def test_columns_go_by_their_exact_names(spark, folder):
    data = read_folder(folder)
    classes = ["a", "A", "b`c", ".d"]
    nodes = {"id": data.graph.ids, "ID": data.graph.ids[::-1], "role": data.roles.astype(str)}
    nodes["label"] = np.array(classes)[data.labels]
    nodes |= {f"p_{name}": data.probs[:, place] for place, name in enumerate(classes)}
    edges = spark.createDataFrame(pa.table({"src": [1, 2], "dst": [2, 2]}))
    table = spark.createDataFrame(pa.table(nodes))
    found = snaps.spark.predict_sets(spark, table, edges, snaps.SplitConformal(0.1))
    assert found.classes.tolist() == sorted(classes)
    for name, told in (("p_b`c", "column 'p_b`c' must not be null, got null for id 77"),):
        table = pa.table(nodes | {name: row(pa.array(nodes[name]), 77, None)})
        with pytest.raises(SnapsError, match=f"^'nodes' {re.escape(told)}$"):
            snaps.spark.predict_sets(spark, spark.createDataFrame(table), edges)


@pytest.mark.parametrize(
    ("kind", "good"),
    [
        ("struct<indices:array<int>,values:array<float>>", True),
        ("struct<values:array<double>,indices:array<bigint>>", True),
        ("struct<indices:array<string>,values:array<double>>", False),
        ("struct<indices:array<double>,values:array<double>>", False),
        ("struct<indices:array<int>,values:array<string>>", False),
        ("struct<indices:int,values:double>", False),
        ("struct<indices:array<int>,values:array<double>,size:int>", False),
    ],
)
def test_sparse_features_are_told_by_their_types(spark, kind, good):
    from snaps.spark._columns import read_tables

    nodes = spark.createDataFrame([], f"id int, probs array<double>, features {kind}")
    edges = spark.createDataFrame([], "src int, dst int")
    if good:
        assert read_tables(nodes, edges).has_features
        return
    with pytest.raises(SnapsError, match=r"^'nodes' column 'features' must be a list of numbers, "):
        read_tables(nodes, edges)


def test_tables_that_are_none_of_one_kind(spark):
    from snaps.spark._columns import read_tables

    edges = spark.createDataFrame([], "src int, dst int")
    nodes = spark.createDataFrame([], "id int, probs array<double>")
    one = spark.createDataFrame([], "id int, p_a double")
    stream = spark.readStream.format("rate").load().selectExpr("value src", "value dst")
    for tables, told in (
        ((nodes.select("*", "id"), edges), "'nodes' must have one column 'id', got 2"),
        ((one, edges), "'nodes' must have two columns 'p_<class>' or more, got p_a"),
        ((nodes, stream), "'edges' must be a table that is complete, got a stream"),
    ):
        with pytest.raises(SnapsError, match=f"^{re.escape(told)}$"):
            read_tables(*tables)


def test_rows_that_change_from_one_reading_to_the_next(spark, folder):
    def some(batches):
        for batch in batches:
            yield batch.filter(pa.array(np.random.default_rng().random(len(batch)) < 0.8))

    nodes, edges = frames(spark, folder)
    nodes = nodes.mapInArrow(some, nodes.schema)
    told = "^'nodes' must give the same rows whenever it is read, got others the second time"
    with pytest.raises(SnapsError, match=told):
        snaps.spark.predict_sets(spark, nodes, edges, snaps.SplitConformal(0.1))


def parts(path, change):
    """A Parquet file as a folder of two part files, the second of them changed."""
    table = pq.read_table(path)
    path.unlink()
    path.mkdir()
    half = len(table) // 2
    pq.write_table(table[:half], path / "part-0.parquet")
    pq.write_table(change(table[half:]), path / "part-1.parquet")
    return path / "part-1.parquet"


def cast(**kinds):
    def change(table):
        for name, kind in kinds.items():
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, table[name].cast(kind))
        return table

    return change


def test_part_files_of_unlike_width_are_read_by_the_command(spark, tmp_path):
    write(tmp_path, bare=True)
    nodes, edges = (tmp_path / f"{name}.parquet" for name in ("nodes", "edges"))
    narrow = cast(label=pa.int16(), probs=pa.list_(pa.float32()))
    pq.write_table(narrow(pq.read_table(nodes)), nodes)
    pq.write_table(cast(src=pa.int32(), dst=pa.int32())(pq.read_table(edges)), edges)
    parts(nodes, cast(label=pa.int64(), probs=pa.list_(pa.float64())))
    parts(edges, cast(src=pa.int64(), dst=pa.int64()))
    assert_same(spark, tmp_path, snaps.DAPS(0.1))
    # As Spark reads them by itself, they are refused.
    theirs = [spark.read.parquet(str(path)) for path in (nodes, edges)]
    told = r"^cannot read 'edges': /.*/part-1.parquet: \w+Exception: column: \[src\], .*INT64"
    with pytest.raises(SnapsError, match=told) as error:
        snaps.spark.predict_sets(spark, *theirs, snaps.DAPS(0.1))
    assert "\n" not in str(error.value)


def test_columns_that_the_first_part_file_lacks(spark, tmp_path):
    write(tmp_path, bare=True)
    path = tmp_path / "nodes.parquet"
    table = pq.read_table(path)
    last = parts(path, lambda some: some)
    pq.write_table(table[: len(table) // 2].drop_columns("role"), last.with_name("part-0.parquet"))
    found, _ = frames(spark, tmp_path)
    want = [None] * (NUM_NODES // 2) + table["role"].to_pylist()[NUM_NODES // 2 :]
    assert found.orderBy("id").toArrow()["role"].to_pylist() == want


def test_damaged_part_files_are_told_in_one_line(spark, tmp_path, monkeypatch):
    from snaps.spark import _engine

    def told_of(*tables):
        with pytest.raises(SnapsError) as error:
            snaps.spark.predict_sets(spark, *tables, snaps.DAPS(0.1))
        assert "\n" not in str(error.value)
        return str(error.value)

    write(tmp_path, bare=True)
    nodes, edges = (tmp_path / f"{name}.parquet" for name in ("nodes", "edges"))
    part = parts(nodes, lambda some: some)
    good = part.read_bytes()
    part.write_bytes(good[:4] + bytes(300) + good[304:])
    told = f"cannot read 'nodes': {part}: IOException: "
    assert told_of(*frames(spark, tmp_path)).startswith(told)
    # Where a later reading fails, as well.
    sizes = (NUM_NODES, 4, -1)
    with monkeypatch.context() as some:
        some.setattr(_engine, "check_nodes", lambda *_: sizes)
        assert told_of(*frames(spark, tmp_path)).startswith(told)
    part.write_bytes(good)
    part = parts(edges, lambda some: some)
    part.write_bytes(part.read_bytes()[:-200])
    theirs = [spark.read.parquet(str(path)) for path in (nodes, edges)]
    assert told_of(*theirs).startswith("cannot read 'edges': ")
    assert f"{part} is not a Parquet file" in told_of(*theirs)
    with pytest.raises(SnapsError, match=f"^cannot read '{part}': damaged or not a Parquet file$"):
        frames(spark, tmp_path)


def test_mistakes_of_a_program_stay_as_they_are(spark):
    from pyspark.errors import PythonException

    from snaps.spark._failures import explained

    def fail(batches):
        raise ValueError("of a program")

    with pytest.raises(PythonException, match="ValueError: of a program"):
        with explained("cannot read 'nodes'"):
            spark.range(1).mapInArrow(fail, "id long").toArrow()


def test_executors_without_the_package_are_told(spark, folder, tmp_path, monkeypatch):
    lacking = "raise ModuleNotFoundError(\"No module named 'snaps'\")"
    (tmp_path / "snaps.py").write_text(lacking)
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="{tmp_path}:$PYTHONPATH" exec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    with pytest.raises(SnapsError) as error:
        snaps.spark.predict_sets(spark, *frames(spark, folder), snaps.DAPS(0.1))
    assert str(error.value) == (
        "the package must be installed for the Python of the executors, which PYSPARK_PYTHON or "
        "spark.pyspark.python names, got No module named 'snaps'"
    )


def test_places_that_cannot_be_written(spark, folder, tmp_path):
    kept = spark.sparkContext._jsc.getPersistentRDDs
    before = set(kept())
    method = snaps.Pooled(0.1, parts=["own", "two_hop"])
    (tmp_path / "there").mkdir()
    with snaps.spark.predict_sets(spark, *frames(spark, folder), method) as found:
        for path, told in (
            (tmp_path / "there", "cannot write .*already exists"),
            ("/proc/none/sets", "cannot write '/proc/none/sets': "),
            ("nowhere://bucket/sets", "cannot write 'nowhere://bucket/sets': .*nowhere"),
            (3, "'path' must be a path, got 3"),
        ):
            with pytest.raises(SnapsError, match=f"^{told}") as error:
                found.write(path)
            assert "\n" not in str(error.value)
            assert set(kept()) <= before
        found.write(str(tmp_path / "sets"))
        assert len(found.sets.toArrow()) == NUM_NODES - len(CALIB) - len(TRAIN)
    assert set(kept()) <= before


def test_what_spark_does_not_do_is_told(spark, folder, monkeypatch):
    from snaps.spark import _engine

    class Own(snaps.THR):
        pass

    monkeypatch.setattr(_engine, "MOST_SENT", 100)
    for method, told in (
        (snaps.SNAPS(0.1), "'candidates' must be given on Spark for 700 nodes"),
        (snaps.SNAPS(0.1, neighbours="approximate"), "'neighbours' must be 'auto' or 'exact'"),
        (snaps.DAPS(0.1, score=Own()), "'score' must be APS, RAPS, SAPS or THR on Spark, got Own"),
        (
            snaps.DAPS(0.1, score=snaps.SAPS(weight=999)),
            "'score' must give scores of at most 1024 to be averaged on Spark, "
            "got SAPS(weight=999, randomized=True) and 4 classes",
        ),
        (snaps.Pooled(0.1, parts=["own", "context"]), "'parts' must be among own, linked"),
    ):
        with pytest.raises(SnapsError, match="^" + re.escape(told)):
            snaps.spark.predict_sets(spark, *frames(spark, folder), method)


def test_other_things_than_sessions_and_tables_are_told(spark):
    with pytest.raises(SnapsError, match=r"^'spark' must be a SparkSession of this process"):
        snaps.spark.predict_sets(None, None, None)
    with pytest.raises(SnapsError, match=r"^'nodes' must be a Spark DataFrame, got NoneType"):
        snaps.spark.predict_sets(spark, None, None)


def test_missing_java_pyspark_and_masters_are_told(monkeypatch):
    from snaps.spark import _session

    with pytest.raises(SnapsError, match=r"^'--master' must be the address of a Spark master, got"):
        with _session.session("spark://127.0.0.1:1"):
            pass
    with pytest.raises(SnapsError, match=r": it must end in a port, such as spark://host:7077$"):
        with _session.session("spark://host"):
            pass
    with pytest.raises(SnapsError, match=r"^'--master' must be yarn, or start with spark://"):
        with _session.session("somewhere"):
            pass
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_HOME", "/nowhere")
    with pytest.raises(SnapsError, match=r"^'--master' yarn needs HADOOP_CONF_DIR or YARN_CONF_"):
        with _session.session("yarn"):
            pass
    monkeypatch.setenv("YARN_CONF_DIR", "/nowhere")
    with pytest.raises(SnapsError, match=r"^YARN_CONF_DIR must be the folder of a configuration,"):
        with _session.session("yarn"):
            pass
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(SnapsError, match=r"^Spark needs Java 17 or newer, and there is none"):
        with _session.session():
            pass
    monkeypatch.setenv("JAVA_HOME", "")
    with pytest.raises(SnapsError, match=r"^Spark needs Java 17 or newer, and there is none"):
        with _session.session():
            pass
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SnapsError, match=r"package 'pyspark'.*pip install 'snaps-cp\[spark\]'"):
        with _session.session():
            pass


def test_a_java_that_cannot_start_spark_is_told(tmp_path):
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    start = "from snaps.spark._session import session\nwith session('local[1]'): pass"
    env = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", start], capture_output=True, text=True, env=env, check=False
    )
    told = "Java gateway process exited before sending its port number: Spark 4 needs Java 17"
    assert f"SnapsError: Spark must start with '--master' 'local[1]', got {told}" in done.stderr


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


def test_logits_that_no_mini_batch_filled_are_noticed(spark, folder):
    data = read_folder(folder)
    logits = np.log(np.maximum(data.probs, 1e-9))
    logits[[20, 500, 501]] = 0
    nodes = {"id": pa.array(data.graph.ids), "label": pa.array(data.labels)}
    nodes |= {"probs": pa.array(logits.tolist()), "role": pa.array(data.roles.astype(str))}
    edges = {"src": pa.array([1]), "dst": pa.array([2])}
    tables = [spark.createDataFrame(pa.table(columns)) for columns in (nodes, edges)]
    with pytest.warns(snaps.SnapsWarning) as caught:
        snaps.spark.predict_sets(spark, *tables, snaps.SplitConformal(0.1), logits=True)
    (told,) = [str(one.message) for one in caught if one.category is snaps.SnapsWarning]
    assert told.startswith("'probs' has rows of zeros, 3 of 700 (first: for id 20): if no mini-")


def test_the_command_writes_the_same_sets(spark, folder, tmp_path, monkeypatch, capsys):
    from snaps.cli import main

    common = [sys.executable, "-m", "snaps", "predict", str(folder), "--alpha", "0.1"]
    common += ["--candidates", "90", "--out"]
    one, other = tmp_path / "local.parquet", tmp_path / "a [1] of 100%" / "spark.parquet"
    other.parent.mkdir()
    other.write_text("an older file goes")
    subprocess.run([*common, str(one)], check=True, capture_output=True)
    spark_only = ["--engine", "spark", "--master", "local[1]"]
    quick = {"spark.driver.extraJavaOptions": QUICK, "spark.sql.codegen.wholeStage": "false"}
    quick["spark.hadoop.fs.defaultFS"] = "hdfs://127.0.0.1:1"  # paths are of this machine still
    settings = "".join(f"{name} {value}\n" for name, value in quick.items())
    (tmp_path / "spark-defaults.conf").write_text(f"{settings}spark.sql.shuffle.partitions 2\n")
    done = subprocess.run(
        [*common, str(other), *spark_only], capture_output=True, text=True,
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert by_id(pq.read_table(other)) == by_id(pq.read_table(one))
    assert re.search(rf"\ntook [0-9.]+ s\nwrote {re.escape(str(other))}\n$", done.stdout)
    assert os.listdir(other.parent) == [other.name]
    assert os.stat(other).st_mode == os.stat(other.parent).st_mode
    # Again, over what the first run wrote, by a link that leads there.
    link, before = tmp_path / "link.parquet", os.stat(other).st_ino
    link.symlink_to(other)
    monkeypatch.setattr("snaps.cli._spark.session", lambda master: nullcontext(spark))
    with pytest.raises(SystemExit) as left:
        main([*common[3:], str(link), "--engine", "spark", "--json"])
    assert left.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert told["engine"] == "spark" and told["sets"] == len(pq.read_table(one))
    assert link.is_symlink() and os.stat(other).st_ino != before
    assert by_id(pq.read_table(other)) == by_id(pq.read_table(one))


def in_session(leader):
    """What the processes of a session are run by, as far as they have not ended."""
    commands = []
    for place in Path("/proc").iterdir():
        try:
            if place.name.isdigit() and os.getsid(int(place.name)) == leader:
                commands.append((place / "cmdline").read_bytes())
        except OSError:
            continue
    return [command for command in commands if command]


@pytest.mark.skipif(not os.path.exists("/proc/self/cmdline"), reason="processes are not listed")
@pytest.mark.parametrize(
    ("while_there_is", "number", "code"),
    [
        (b"java", signal.SIGINT, 130),
        (b"pyspark.daemon", signal.SIGINT, 130),
        (b"pyspark.daemon", signal.SIGTERM, 143),
    ],
)
def test_a_command_that_is_interrupted_ends_quietly(folder, tmp_path, while_there_is, number, code):
    """It left a trace of py4j; and, while Java started, a Java that ran on."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    command = [sys.executable, "-m", "snaps", "predict", str(folder), "--alpha", "0.1"]
    command += ["--engine", "spark", "--master", "local[1]", "--out", str(tmp_path / "s.parquet")]
    (tmp_path / "s.parquet").write_text("an older file stays")
    with open(tmp_path / "told", "w") as told:
        run = subprocess.Popen(command, stdout=told, stderr=told, start_new_session=True)
    try:
        while not any(while_there_is in each for each in in_session(run.pid)):
            assert run.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)
        os.killpg(run.pid, number) if number == signal.SIGINT else os.kill(run.pid, number)
        assert run.wait(60) == code
        ended = time.monotonic()
        while in_session(run.pid) and time.monotonic() < ended + 30:
            time.sleep(0.1)
        assert in_session(run.pid) == []
    finally:
        if in_session(run.pid):
            os.killpg(run.pid, signal.SIGKILL)
    text = (tmp_path / "told").read_text()
    assert "Traceback" not in text and "rror" not in text, text
    assert (tmp_path / "s.parquet").read_text() == "an older file stays"
    assert sorted(os.listdir(tmp_path)) == ["s.parquet", "told"]


def test_the_command_refuses_what_only_one_machine_does(folder, tmp_path, capsys):
    from snaps.cli import main

    theirs = tmp_path / "theirs.parquet"
    theirs.mkdir()
    (theirs / "_SUCCESS").touch()
    pq.write_table(pa.table({"id": [1], "money": [2]}), theirs / "part-0.parquet")
    for options, told in (
        (["--engine", "spark", "--weighted"], "'--weighted' must be left out with --engine spark"),
        (["--engine", "spark", "--recall", "0.9"], "'--recall' must be left out with --engine"),
        (["--engine", "spark", "--neighbours", "approximate"],
         "'--neighbours' must be auto or exact with --engine spark, got approximate"),
        (["--engine", "spark", "--out", "x.csv"], "'--out' must end in .parquet"),
        (["--engine", "spark", "--out", str(theirs)], "it is a folder"),
        (["--engine", "spark", "--out", "s3://b/s.parquet"], "call snaps.spark.predict_sets"),
        (["--master", "local[1]"], "--master"),
    ):  # fmt: skip
        with pytest.raises(SystemExit) as left:
            main(["predict", str(folder), "--out", str(tmp_path / "s.parquet"), *options])
        assert left.value.code == 2
        assert told in capsys.readouterr().err
    for place, told in (("s3://bucket/g", "'FOLDER' must be a path"), ("none", "no such folder")):
        with pytest.raises(SystemExit):
            main(["predict", place, "--out", str(tmp_path / "s.parquet"), "--engine", "spark"])
        assert told in capsys.readouterr().err


def test_partitions_and_classes_that_contradict_the_files(folder, tmp_path, capsys):
    """Before Spark starts, as the local engine would."""
    from snaps.cli import main

    place = tmp_path / "g"
    shutil.copytree(folder, place)
    table = pq.read_table(place / "nodes.parquet")
    (place / "nodes.parquet").unlink()
    (place / "nodes.parquet" / "role=train").mkdir(parents=True)
    pq.write_table(table, place / "nodes.parquet" / "role=train" / "part-0.parquet")
    with pytest.raises(SystemExit) as left:
        main(["predict", str(place), "--out", str(tmp_path / "s.parquet"), "--engine", "spark"])
    assert left.value.code == 2
    told = "nodes.parquet column 'role' must be as the folder of a part file says, train, got "
    assert told in capsys.readouterr().err
