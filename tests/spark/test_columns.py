"""Bad tables and rows are reported in one line, by their column or id."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest

import snaps
from snaps.errors import SnapsError
from snaps.folder import read_folder
from tests.spark.common import NUM_NODES


# -- errors --------------------------------------------------------------------------------------
def broken(spark, folder, change):
    """The error about nodes and edges that were changed."""
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
    with pytest.raises(SnapsError) as raised:
        snaps.spark.predict_sets(spark, *made, snaps.DAPS(0.1)).write(folder / "none")
    assert "\n" not in str(raised.value)
    return str(raised.value)


def row(column, place, value):
    values = column.to_pylist()
    values[place] = value
    return pa.array(values, column.type)


@pytest.mark.parametrize(
    ("change", "message"),
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
def test_a_bad_table_is_reported_in_one_line(spark, folder, change, message):
    assert broken(spark, folder, change).startswith(message)


FEATURES = {"indices": [0, 4], "values": [1.0, 2.0]}
SPARSE = [("values", pa.list_(pa.float64())), ("indices", pa.list_(pa.int64()))]


@pytest.mark.parametrize(
    ("column", "value", "message"),
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
def test_a_bad_row_is_named_by_its_id(column, value, message):
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
    assert found.to_pylist()[0]["problem"].startswith(f"'nodes' column '{column}' {message}")


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
    for name, message in (("p_b`c", "column 'p_b`c' must not be null, got null for id 77"),):
        table = pa.table(nodes | {name: row(pa.array(nodes[name]), 77, None)})
        with pytest.raises(SnapsError, match=f"^'nodes' {re.escape(message)}$"):
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
def test_sparse_features_are_recognised_by_their_types(spark, kind, good):
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
    for tables, message in (
        ((nodes.select("*", "id"), edges), "'nodes' must have one column 'id', got 2"),
        ((one, edges), "'nodes' must have two columns 'p_<class>' or more, got p_a"),
        ((nodes, stream), "'edges' must be a table that is complete, got a stream"),
    ):
        with pytest.raises(SnapsError, match=f"^{re.escape(message)}$"):
            read_tables(*tables)
