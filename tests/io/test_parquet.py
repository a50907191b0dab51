"""What others write: columns of every type, weights, and other columns."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import snaps
from snaps import Graph
from snaps.folder import read_folder, write_folder
from tests.helpers import small
from tests.helpers.folders import IDS, listed, refusal, same_folder
from tests.helpers.small import LABELS, NAMES, NUM_NODES, PROBS, ROLES


@pytest.mark.parametrize(
    "columns",
    [
        {"probs": listed(pa.float64(), size=3)},
        {"probs": pa.array(PROBS.tolist(), pa.large_list(pa.float64()))},
        {"features": listed(pa.float64(), small.FEATURES, 4)},
        {"label": pa.array(LABELS, pa.int8())},
        {"label": pa.array(LABELS, pa.uint64())},
        {"role": pa.array(ROLES).dictionary_encode()},
        {"role": pa.array(ROLES.tolist(), pa.large_string())},
        {"id": pa.array(NAMES.tolist(), pa.large_string())},
        {"id": pa.array(NAMES).dictionary_encode()},
        {"id": pa.array(NAMES.tolist(), pa.string_view())},
    ],
    ids=lambda columns: " ".join(f"{name} {array.type}" for name, array in columns.items()),
)
def test_column_types(tmp_path, columns):
    try:
        small.change(small.write(tmp_path), "nodes", **columns)
    except pa.ArrowNotImplementedError:
        pytest.skip("this version of pyarrow does not write that column")
    same_folder(read_folder(tmp_path), small.graph(ids=NAMES))


def decimals(table, digits):
    from decimal import Decimal

    kind = pa.decimal128(18, digits)
    return [[Decimal(f"{value:.{digits}f}") for value in row] for row in table], kind


def test_decimals_are_numbers(tmp_path):
    small.change(small.write(tmp_path), "edges", weight=np.arange(1.0, 86.0) / 4)
    expected = read_folder(tmp_path, weighted=True)
    probs, kind = decimals(PROBS, 8)
    features, _ = decimals(small.FEATURES, 8)
    labels, whole = decimals(LABELS[:, None], 0)
    weights, _ = decimals(np.arange(1.0, 86.0)[:, None] / 4, 8)
    small.change(tmp_path, "edges", weight=pa.array([each for (each,) in weights], kind))
    small.change(
        tmp_path,
        "nodes",
        probs=pa.array(probs, pa.list_(kind)),
        features=pa.array(features, pa.list_(kind, 4)),
        label=pa.array([each for (each,) in labels], whole),
    )
    found = read_folder(tmp_path, weighted=True)
    assert (found.graph.adjacency != expected.graph.adjacency).nnz == 0
    np.testing.assert_allclose(found.probs, PROBS.round(8), rtol=1e-15)
    np.testing.assert_allclose(found.graph.features, small.FEATURES, rtol=1e-15)
    np.testing.assert_array_equal(found.labels, LABELS)
    columns = {f"p_{i}": pa.array([row[i] for row in probs], kind) for i in range(3)}
    small.change(tmp_path, "nodes", probs=None, **columns)
    found = read_folder(tmp_path, weighted=True)
    np.testing.assert_allclose(found.probs, PROBS.round(8), rtol=1e-15)


def test_single_precision_probabilities(tmp_path):
    small.change(small.write(tmp_path), "nodes", probs=listed(pa.float32()))
    found = read_folder(tmp_path).probs
    np.testing.assert_array_equal(found, PROBS.astype(np.float32))
    cp = snaps.SplitConformal(0.2).calibrate(None, found, LABELS, small.CALIB)
    assert len(cp.predict_set()) == 30


@pytest.mark.parametrize("node_type", [pa.int32(), pa.uint64()], ids=str)
@pytest.mark.parametrize("edge_type", [pa.int64(), pa.uint32()], ids=str)
def test_integer_ids_of_unlike_types(tmp_path, node_type, edge_type):
    ids = np.arange(NUM_NODES)[::-1] + 1000
    graph = small.graph(ids=ids)
    write_folder(tmp_path, graph, PROBS, LABELS, ROLES)
    small.change(tmp_path, "nodes", id=pa.array(ids, node_type))
    ends = {name: lambda old: pa.array(old, edge_type) for name in ("src", "dst")}
    small.change(tmp_path, "edges", **ends)
    same_folder(read_folder(tmp_path), graph)


@pytest.mark.parametrize("kind", [pa.null(), pa.int64(), pa.string()], ids=str)
def test_a_folder_without_edges(tmp_path, kind):
    small.write(tmp_path)
    none = pa.array([], kind)
    pq.write_table(pa.table({"src": none, "dst": none}), tmp_path / "edges.parquet")
    assert read_folder(tmp_path).graph.num_edges == 0


def test_features_beside_the_nodes(tmp_path):
    small.change(small.write(tmp_path), "nodes", features=None)
    np.savez(tmp_path / "features.npz", x=small.FEATURES)
    same_folder(read_folder(tmp_path), small.graph(ids=NAMES))


def test_flipped_bits_are_noticed_or_harmless(tmp_path):
    """Whatever pyarrow makes of a damaged file, no other error than ours comes out."""
    small.write(tmp_path)
    refused = 0
    for name in ("nodes.parquet", "edges.parquet"):
        path = tmp_path / name
        whole = path.read_bytes()
        for place in np.linspace(0, len(whole) - 1, 150).astype(int):
            broken = bytearray(whole)
            broken[place] ^= 1 << (place % 8)
            path.write_bytes(broken)
            try:
                assert read_folder(tmp_path).graph.num_nodes == NUM_NODES
            except snaps.SnapsError:
                refused += 1
        path.write_bytes(whole)
    assert refused > 50


# ---- Weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("ids", IDS)
def test_round_trip_of_weights(tmp_path, directed, ids):
    given = np.random.default_rng(3).exponential(size=small.EDGES.shape[1])
    options = {"weighted": True, "directed": directed, "self_loops": True}
    graph = snaps.Graph(small.EDGES, None, NUM_NODES, edge_weights=given, ids=IDS[ids], **options)
    write_folder(tmp_path, graph, PROBS)
    for found in (read_folder(tmp_path, **options).graph, Graph.from_parquet(tmp_path, **options)):
        assert found.weighted
        np.testing.assert_array_equal(found.adjacency.toarray(), graph.adjacency.toarray())


def test_weights_that_are_not_used_are_reported(tmp_path):
    graph = snaps.Graph([[0], [1]], num_nodes=NUM_NODES, weighted=True, edge_weights=[0.5])
    write_folder(tmp_path, graph, PROBS)
    message = "edges.parquet column 'weight' is ignored; weighted=True (--weighted) uses it"
    for read in (read_folder, Graph.from_parquet):
        with pytest.warns(snaps.SnapsWarning, match=re.escape(message)):
            read(tmp_path)
    with pytest.warns(snaps.SnapsWarning, match=re.escape(message)):
        assert not read_folder(tmp_path).graph.weighted


@pytest.mark.parametrize(
    "weight, message",
    [
        (None, "edges.parquet must have a column 'weight', got src, dst"),
        (["x", "y"], "edges.parquet column 'weight' must be numbers, got string"),
        ([1.0, None], "edges.parquet column 'weight' must not be null, got null in row 1"),
        *[
            (
                [1.0, bad],
                f"edges.parquet column 'weight' must be finite weights of at least 0, "
                f"got {bad} in row 1",
            )
            for bad in (-2.0, np.nan, np.inf)
        ],
    ],
)
def test_weights_that_are_wrong(tmp_path, weight, message):
    small.write(tmp_path)
    columns = {"src": NAMES[:2], "dst": NAMES[2:4]} | ({} if weight is None else {"weight": weight})
    pq.write_table(pa.table(columns), tmp_path / "edges.parquet")
    with pytest.raises(snaps.SnapsError) as caught:
        read_folder(tmp_path, weighted=True)
    assert str(caught.value) == message


def test_lists_that_are_all_empty(tmp_path):
    empty = pa.array([[]] * NUM_NODES, pa.list_(pa.float64()))
    small.change(small.write(tmp_path), "nodes", probs=empty)
    assert read_folder(tmp_path).probs.shape == (NUM_NODES, 0)


def test_ids_that_numpy_would_cut_short(tmp_path):
    names = pa.array([*NAMES[:-1].tolist(), "a\0"])
    small.change(small.write(tmp_path), "nodes", id=names)
    message = f"must not hold the character NUL, got 'a\\x00' in row {NUM_NODES - 1}"
    assert message in refusal(tmp_path)


# ---- Other columns -------------------------------------------------------------------------------

REGION = np.array(["north", "south", "east"])[np.arange(NUM_NODES) % 3]
OTHERS = {
    "strings": (pa.array(REGION), REGION),
    "categories": (pa.array(REGION).dictionary_encode(), REGION),
    "strings or null": (pa.array([None, *REGION[1:]]), [None, *REGION[1:]]),
    "integers": (pa.array(np.arange(NUM_NODES, dtype=np.int32)), range(NUM_NODES)),
    "integers or null": (pa.array([None, 2**60 + 1] * 30), [None, 2**60 + 1] * 30),
    "booleans": (pa.array([True, False] * 30), [True, False] * 30),
    "booleans or null": (pa.array([True, None] * 30), [True, None] * 30),
    "floats": (pa.array([0.5] * NUM_NODES), [0.5] * NUM_NODES),
    "null": (pa.nulls(NUM_NODES), [None] * NUM_NODES),
}


@pytest.mark.parametrize("column, expected", OTHERS.values(), ids=list(OTHERS))
def test_other_columns(tmp_path, column, expected):
    small.change(small.write(tmp_path), "nodes", region=column)
    assert read_folder(tmp_path).columns == {}
    found = read_folder(tmp_path, columns=["region", "role"]).columns
    assert list(found) == ["region", "role"]
    assert found["region"].shape == (NUM_NODES,)
    assert found["region"].tolist() == list(expected)
    assert found["role"].tolist() == ROLES.tolist()


def test_floats_or_null(tmp_path):
    small.change(small.write(tmp_path), "nodes", age=[None, *range(1, NUM_NODES - 1), 0.5])
    found = read_folder(tmp_path, columns=("age",)).columns["age"]
    assert np.isnan(found[0]) and found[1:].tolist() == [*range(1, NUM_NODES - 1), 0.5]


def test_other_columns_that_are_wrong(tmp_path):
    small.write(tmp_path)
    there = "id, probs, label, role, features"
    assert refusal(tmp_path, columns=["regoin"]) == (
        f"nodes.parquet must have a column 'regoin', got {there}"
    )
    assert refusal(tmp_path, columns="role") == (
        "'columns' must be a list of column names, got 'role'"
    )
    assert refusal(tmp_path, columns=[3]) == "'columns' must be a list of column names, got [3]"
    for wrong in (None, {"role"}, iter(["role"])):
        assert refusal(tmp_path, columns=wrong).startswith("'columns' must be a list of column")
    assert refusal(tmp_path, columns=3) == "'columns' must be a list of column names, got 3"
    assert refusal(tmp_path, columns=["probs"]).startswith(
        "nodes.parquet column 'probs' must be strings, numbers or booleans, got "
    )
