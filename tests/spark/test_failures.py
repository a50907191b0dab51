"""Part files, places, packages and masters that are missing or damaged: one line each."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import snaps
from snaps.errors import SnapsError
from snaps.folder import read_folder
from tests.spark.common import CALIB, NUM_NODES, TRAIN, assert_same, frames, parts, write


def test_rows_that_change_from_one_reading_to_the_next(spark, folder):
    def some(batches):
        for batch in batches:
            yield batch.filter(pa.array(np.random.default_rng().random(len(batch)) < 0.8))

    nodes, edges = frames(spark, folder)
    nodes = nodes.mapInArrow(some, nodes.schema)
    message = "^'nodes' must give the same rows whenever it is read, got others the second time"
    with pytest.raises(SnapsError, match=message):
        snaps.spark.predict_sets(spark, nodes, edges, snaps.SplitConformal(0.1))


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
    message = r"^cannot read 'edges': /.*/part-1.parquet: \w+Exception: column: \[src\], .*INT64"
    with pytest.raises(SnapsError, match=message) as error:
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


def test_damaged_part_files_are_reported_in_one_line(spark, tmp_path, monkeypatch):
    from snaps.spark import _engine

    def message_of(*tables):
        with pytest.raises(SnapsError) as error:
            snaps.spark.predict_sets(spark, *tables, snaps.DAPS(0.1))
        assert "\n" not in str(error.value)
        return str(error.value)

    write(tmp_path, bare=True)
    nodes, edges = (tmp_path / f"{name}.parquet" for name in ("nodes", "edges"))
    part = parts(nodes, lambda some: some)
    good = part.read_bytes()
    part.write_bytes(good[:4] + bytes(300) + good[304:])
    message = f"cannot read 'nodes': {part}: IOException: "
    assert message_of(*frames(spark, tmp_path)).startswith(message)
    # Where a later reading fails, as well.
    sizes = (NUM_NODES, 4, -1)
    with monkeypatch.context() as some:
        some.setattr(_engine, "check_nodes", lambda *_: sizes)
        assert message_of(*frames(spark, tmp_path)).startswith(message)
    part.write_bytes(good)
    part = parts(edges, lambda some: some)
    part.write_bytes(part.read_bytes()[:-200])
    theirs = [spark.read.parquet(str(path)) for path in (nodes, edges)]
    assert message_of(*theirs).startswith("cannot read 'edges': ")
    assert f"{part} is not a Parquet file" in message_of(*theirs)
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


def test_executors_without_the_package_are_reported(spark, folder, tmp_path, monkeypatch):
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
        for path, message in (
            (tmp_path / "there", "cannot write .*already exists"),
            ("/proc/none/sets", "cannot write '/proc/none/sets': "),
            ("nowhere://bucket/sets", "cannot write 'nowhere://bucket/sets': .*nowhere"),
            (3, "'path' must be a path, got 3"),
        ):
            with pytest.raises(SnapsError, match=f"^{message}") as error:
                found.write(path)
            assert "\n" not in str(error.value)
            assert set(kept()) <= before
        found.write(str(tmp_path / "sets"))
        assert len(found.sets.toArrow()) == NUM_NODES - len(CALIB) - len(TRAIN)
    assert set(kept()) <= before


def test_what_spark_does_not_do_is_refused(spark, folder, monkeypatch):
    from snaps.spark import _engine

    class Own(snaps.THR):
        pass

    monkeypatch.setattr(_engine, "MOST_SENT", 100)
    for method, message in (
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
        with pytest.raises(SnapsError, match="^" + re.escape(message)):
            snaps.spark.predict_sets(spark, *frames(spark, folder), method)


def test_other_things_than_sessions_and_tables_are_refused(spark):
    with pytest.raises(SnapsError, match=r"^'spark' must be a SparkSession of this process"):
        snaps.spark.predict_sets(None, None, None)
    with pytest.raises(SnapsError, match=r"^'nodes' must be a Spark DataFrame, got NoneType"):
        snaps.spark.predict_sets(spark, None, None)


def test_missing_java_pyspark_and_masters_are_reported(monkeypatch):
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


def test_a_java_that_cannot_start_spark_is_reported(tmp_path):
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
    message = "Java gateway process exited before sending its port number: Spark 4 needs Java 17"
    assert f"SnapsError: Spark must start with '--master' 'local[1]', got {message}" in done.stderr


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
    (message,) = [str(one.message) for one in caught if one.category is snaps.SnapsWarning]
    assert message.startswith("'probs' has rows of zeros, 3 of 700 (first: for id 20): if no mini-")
