"""Graph folders: what is written is read back, and what others write is read too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from urllib.parse import quote

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import snaps
import snaps._runtime.memory as memory
from snaps import Graph
from snaps.folder import read_folder, write_folder
from snaps.io import features as _feature_files
from tests.helpers import small
from tests.helpers.small import LABELS, NAMES, NUM_NODES, PROBS, ROLES


def same_folder(found, graph, labels=LABELS, roles=ROLES):
    assert found.graph.ids.tolist() == graph.ids.tolist()
    assert (found.graph.adjacency != graph.adjacency).nnz == 0
    for mine, theirs in zip(
        (found.probs, found.labels, found.roles), (PROBS, labels, roles), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)
    if graph.features is None:
        assert found.graph.features is None
    else:
        assert type(found.graph.features) is type(graph.features)
        difference = found.graph.features - graph.features
        assert abs(difference).max() == 0


FEATURES = {
    "dense": small.FEATURES,
    "single precision": small.FEATURES.astype(np.float32),
    "sparse": sp.csr_array(small.FEATURES * (small.FEATURES > 0.7)),
    "none": None,
}
IDS = {"positions": None, "names": NAMES, "numbers": np.arange(NUM_NODES)[::-1] * 7 - 100}


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("features", FEATURES)
def test_round_trip(tmp_path, features, ids):
    graph = snaps.Graph(small.EDGES, FEATURES[features], NUM_NODES, ids=IDS[ids])
    write_folder(tmp_path / "a" / "b", graph, PROBS, LABELS, ROLES)
    found = read_folder(tmp_path / "a" / "b")
    same_folder(found, graph)
    assert (tmp_path / "a" / "b" / "features.npz").exists() == (features == "sparse")


@pytest.mark.parametrize("options", [{"directed": True}, {"self_loops": True}])
def test_round_trip_of_directions_and_loops(tmp_path, options):
    graph = small.graph(**options)
    write_folder(tmp_path, graph, PROBS, LABELS, ROLES)
    same_folder(read_folder(tmp_path, **options), graph)


def test_labels_and_roles_may_be_missing(tmp_path):
    unknown, none = np.full(NUM_NODES, -1), np.full(NUM_NODES, "")
    write_folder(tmp_path, small.graph(), PROBS)
    assert pq.read_schema(tmp_path / "nodes.parquet").names == ["id", "probs", "features"]
    same_folder(read_folder(tmp_path), small.graph(), unknown, none)
    for kind in (pa.null(), pa.int16(), pa.string()):
        empty = pa.array([None] * NUM_NODES, kind)
        changes = {"label": empty} if kind == pa.int16() else {"role": empty}
        changes = {"label": empty, "role": empty} if kind == pa.null() else changes
        small.change(tmp_path, "nodes", **changes)
        same_folder(read_folder(tmp_path), small.graph(), unknown, none)


def test_some_labels_and_roles_may_be_missing(tmp_path):
    labels, roles = LABELS.copy(), ROLES.copy()
    labels[[3, 50]], roles[[4, 51]] = -1, ""
    small.write(tmp_path, labels=labels, roles=roles)
    table = pq.read_table(tmp_path / "nodes.parquet")
    assert table["label"].null_count == table["role"].null_count == 2
    same_folder(read_folder(tmp_path), small.graph(ids=NAMES), labels, roles)


def test_what_a_folder_tells_of_roles(tmp_path):
    roles = np.repeat(["train", "valid", "tune", "calib", "test", ""], 10)
    found = read_folder(small.write(tmp_path, roles=roles))
    assert found.nodes("calib").tolist() == list(range(30, 40))
    assert found.nodes("train", "test").tolist() == [*range(10), *range(40, 50)]
    for evidence in (False, True):
        tune, known = found.tuning_and_known(evidence)
        assert tune.tolist() == list(range(20, 30))
        assert known.tolist() == list(range(20))
    roles[20:30] = "calib"
    found = read_folder(small.write(tmp_path, roles=roles))
    tune, known = found.tuning_and_known()
    assert (tune.tolist(), known.tolist()) == (list(range(10, 20)), list(range(10)))
    tune, known = found.tuning_and_known(evidence=True)
    assert tune is None and known.tolist() == list(range(20))


@pytest.mark.parametrize(
    "roles, unknown, expected",
    [
        (["tune", "valid", "calib"], [], [0]),
        (["tune", "valid", "calib"], [0], [1]),
        (["valid", "valid", "calib"], [0], [1]),
        (["valid", "tune", "calib"], [0, 1], None),
        (["test", "train", "calib"], [], None),
    ],
)
def test_tuning_nodes(tmp_path, roles, unknown, expected):
    roles, labels = np.array([*roles, *["test"] * (NUM_NODES - 3)]), LABELS.copy()
    labels[unknown] = -1
    found, _ = read_folder(small.write(tmp_path, roles=roles, labels=labels)).tuning_and_known()
    assert (None if found is None else found.tolist()) == expected


# ---- What others write ---------------------------------------------------------------------------


def listed(kind, table=PROBS, size=-1):
    return pa.array(table.tolist(), pa.list_(kind, size))


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
        pytest.skip("this version of pyarrow does not write such a column")
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


# ---- Names of classes ----------------------------------------------------------------------------

CLASSES = np.array(["theory", "genetics", "a;b, c"])
UNKNOWN = np.where(np.arange(NUM_NODES) % 7 == 0, -1, LABELS)
TEXT = np.where(UNKNOWN < 0, "", CLASSES[UNKNOWN])


def split_probs(folder, *names, probs=PROBS):
    """One column per class instead of lists."""
    columns = {f"p_{name}": probs[:, i] for i, name in enumerate(names)}
    small.change(folder, "nodes", probs=None, **columns)
    return folder


def test_labels_may_be_strings(tmp_path):
    small.change(small.write(tmp_path), "nodes", label=CLASSES[LABELS])
    found = read_folder(tmp_path)
    assert found.labels.tolist() == CLASSES[LABELS].tolist() and found.classes is None
    assert found.labelled.all()


MISSING = [None if label < 0 else label.item() for label in UNKNOWN]
NAMED = [None if label < 0 else CLASSES[label].item() for label in UNKNOWN]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(MISSING, pa.int16()),
        pa.array(MISSING, pa.float32()),
        pa.array(np.where(UNKNOWN < 0, np.nan, UNKNOWN)),
        pa.array(UNKNOWN),
        pa.array(MISSING).dictionary_encode(),
        pa.array(NAMED),
        pa.array(NAMED, pa.large_string()),
        pa.array(NAMED).dictionary_encode(),
        pa.array(TEXT),
        pa.array(TEXT).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_some_labels_are_unknown(tmp_path, column):
    small.change(small.write(tmp_path), "nodes", label=column)
    found = read_folder(tmp_path)
    text = found.labels.dtype.kind == "U"
    assert found.labels.tolist() == (TEXT if text else UNKNOWN).tolist()
    assert text or found.labels.dtype == np.int64
    np.testing.assert_array_equal(found.labelled, UNKNOWN >= 0)
    assert found.tuning_and_known()[0] is None


def test_labels_that_are_true_or_false(tmp_path):
    small.change(small.write(tmp_path), "nodes", label=[None, *(LABELS[1:] > 0)])
    assert read_folder(tmp_path).labels.tolist() == [-1, *(LABELS[1:] > 0).astype(int).tolist()]


def test_tuning_and_known_nodes_of_named_classes(tmp_path):
    roles = np.repeat(["train", "valid", "tune", "calib", "test", ""], 10)
    small.change(small.write(tmp_path, roles=roles), "nodes", label=pa.array(NAMED))
    found = read_folder(tmp_path)
    known = np.flatnonzero(UNKNOWN >= 0)
    tuning, evidence = found.tuning_and_known()
    assert tuning.tolist() == [i for i in range(20, 30) if i in known]
    assert evidence.tolist() == [i for i in range(20) if i in known]


def test_a_column_per_class(tmp_path):
    split_probs(small.write(tmp_path), *CLASSES)
    small.change(tmp_path, "nodes", label=pa.array(NAMED))
    found = read_folder(tmp_path)
    np.testing.assert_array_equal(found.probs, PROBS)
    assert found.classes.tolist() == CLASSES.tolist() and found.labels.tolist() == TEXT.tolist()


@pytest.mark.parametrize(
    "label, names, classes",
    [
        (LABELS, "012", [0, 1, 2]),
        (2 - LABELS, "210", [2, 1, 0]),
        (LABELS - 1.0, ["-1", "0", "1"], [-1, 0, 1]),
        (LABELS.astype(str), "012", ["0", "1", "2"]),
        (None, "012", [0, 1, 2]),
        (None, ["0", "1", "02"], ["0", "1", "02"]),
        (pa.nulls(NUM_NODES), ["7", "-5", "0"], [7, -5, 0]),
        (pa.nulls(NUM_NODES, pa.string()), "012", ["0", "1", "2"]),
    ],
    ids=str,
)
def test_classes_are_integers_when_labels_are(tmp_path, label, names, classes):
    split_probs(small.write(tmp_path), *names)
    small.change(tmp_path, "nodes", label=label)
    assert read_folder(tmp_path).classes.tolist() == classes


def test_minus_one_as_a_class(tmp_path):
    split_probs(small.write(tmp_path), "-1", "0", "1")
    small.change(tmp_path, "nodes", label=LABELS - 1)
    found = read_folder(tmp_path)
    assert found.labelled.all() and found.labels.tolist() == (LABELS - 1).tolist()
    small.change(tmp_path, "nodes", label=[None, *LABELS[1:]])
    with pytest.raises(snaps.SnapsError) as caught:
        read_folder(tmp_path)
    message = "nodes.parquet column 'label' must not be null where -1 is a class, got null in row 0"
    assert str(caught.value) == message


def test_lists_of_probabilities_win_over_other_columns_that_begin_alike(tmp_path):
    small.change(small.write(tmp_path), "nodes", p_value=np.zeros(NUM_NODES))
    same_folder(read_folder(tmp_path), small.graph(ids=NAMES))


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"label": CLASSES[LABELS]},
            "'label' must be among the classes ['a', 'b', 'c'], got 'a;b",
        ),
        ({"label": LABELS}, "'label' must be among the classes ['a', 'b', 'c'], got 2 at node 0"),
        ({"p_b": ["x"] * NUM_NODES}, "nodes.parquet column 'p_b' must be numbers, got string"),
        (
            {"p_b": [None, *PROBS[1:, 1]]},
            "nodes.parquet column 'p_b' must not be null, got null in row 0",
        ),
    ],
)
def test_columns_of_classes_that_are_wrong(tmp_path, change, message):
    split_probs(small.write(tmp_path), *"abc")
    small.change(tmp_path, "nodes", **change)
    with pytest.raises(snaps.SnapsError) as caught:
        read_folder(tmp_path)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "labels, classes, expected",
    [
        (TEXT, CLASSES, CLASSES),
        (NAMED, CLASSES[[2, 0, 1]], CLASSES[[2, 0, 1]]),
        (None, CLASSES, CLASSES),
        (None, ["0", "1", "2"], ["0", "1", "2"]),
        (UNKNOWN, [2, 0, 1], [2, 0, 1]),
        (UNKNOWN, [0, 1, 2], [0, 1, 2]),
        (np.where(UNKNOWN < 0, -1, UNKNOWN * 10 + 10), [10, 20, 30], [10, 20, 30]),
        (LABELS - 1, [1, 0, -1], [1, 0, -1]),
        (np.array(["", "0", "1"])[LABELS], ["", "0", "1"], ["", "0", "1"]),
        (UNKNOWN, None, None),
        (pd.Categorical(NAMED, CLASSES), None, CLASSES),
    ],
)
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_round_trip_of_classes(tmp_path, labels, classes, expected, kind):
    write_folder(tmp_path, small.graph(), PROBS.astype(kind), labels, ROLES, classes=classes)
    found = read_folder(tmp_path)
    np.testing.assert_array_equal(found.probs, PROBS.astype(kind))
    assert found.probs.dtype == kind
    if expected is None:
        assert found.classes is None
    else:
        assert found.classes.tolist() == list(expected)
        assert (found.classes.dtype.kind == "U") == isinstance(expected[0], str)
    if labels is None:
        assert not found.labelled.any()
    else:
        unknown = "" if found.labels.dtype.kind == "U" else -1
        given = [unknown if label is None or label != label else label for label in list(labels)]
        assert found.labels.tolist() == given


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


def test_weights_that_are_not_used_are_told(tmp_path):
    graph = snaps.Graph([[0], [1]], num_nodes=NUM_NODES, weighted=True, edge_weights=[0.5])
    write_folder(tmp_path, graph, PROBS)
    told = "edges.parquet column 'weight' is ignored; weighted=True (--weighted) uses it"
    for read in (read_folder, Graph.from_parquet):
        with pytest.warns(snaps.SnapsWarning, match=re.escape(told)):
            read(tmp_path)
    with pytest.warns(snaps.SnapsWarning, match=re.escape(told)):
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


# ---- Features ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [sp.csr_array, sp.csc_matrix, sp.coo_array, sp.bsr_array, sp.dia_array]
)
def test_features_that_scipy_wrote(tmp_path, make):
    small.change(small.write(tmp_path), "nodes", features=None)
    sp.save_npz(tmp_path / "features.npz", make(small.FEATURES))
    found = read_folder(tmp_path).graph.features
    assert isinstance(found, sp.csr_array)
    np.testing.assert_array_equal(found.toarray(), small.FEATURES)


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "bsr", "dia", "x_*"])
def test_sparse_features_in_half_precision(tmp_path, layout):
    small.change(small.write(tmp_path), "nodes", features=None)
    table = small.FEATURES.astype("f2")
    matrix = sp.csr_array(table.astype("f4")).asformat(layout if layout != "x_*" else "csr")
    matrix.data = matrix.data.astype("f2")
    if layout == "x_*":
        parts = {f"x_{name}": getattr(matrix, name) for name in ("data", "indices", "indptr")}
        np.savez(tmp_path / "features.npz", **parts, x_shape=matrix.shape)
    else:
        sp.save_npz(tmp_path / "features.npz", matrix)
    found = read_folder(tmp_path).graph.features
    assert isinstance(found, sp.csr_array) and found.dtype == np.float32
    np.testing.assert_array_equal(found.toarray(), table)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_features_as_npy(tmp_path, kind, order):
    small.change(small.write(tmp_path), "nodes", features=None)
    table = np.asarray(small.FEATURES * 10, kind, order=order)
    np.save(tmp_path / "features.npy", table)
    np.testing.assert_array_equal(read_folder(tmp_path).graph.features, table)


def refusal(folder, **options):
    with pytest.raises(snaps.SnapsError) as caught:
        read_folder(folder, **options)
    return str(caught.value).replace(f"{folder}", "g")


def test_lists_that_are_all_empty(tmp_path):
    empty = pa.array([[]] * NUM_NODES, pa.list_(pa.float64()))
    small.change(small.write(tmp_path), "nodes", probs=empty)
    assert read_folder(tmp_path).probs.shape == (NUM_NODES, 0)


def test_ids_that_numpy_would_cut_short(tmp_path):
    names = pa.array([*NAMES[:-1].tolist(), "a\0"])
    small.change(small.write(tmp_path), "nodes", id=names)
    told = f"must not hold the character NUL, got 'a\\x00' in row {NUM_NODES - 1}"
    assert told in refusal(tmp_path)


def test_features_as_npy_that_are_wrong(tmp_path):
    small.change(small.write(tmp_path), "nodes", features=None)
    path = tmp_path / "features.npy"
    damaged = "cannot read 'g/features.npy': damaged, or not an .npy of numbers"
    np.save(path, small.FEATURES)
    whole = path.read_bytes()
    for content in (b"", whole[:40], whole[:-8], b"\x80\x04N."):
        path.write_bytes(content)
        assert refusal(tmp_path) == damaged
    np.save(path, np.array([None] * NUM_NODES), allow_pickle=True)
    assert refusal(tmp_path) == damaged
    with open(path, "wb") as file:
        np.savez(file, x=small.FEATURES)
    assert refusal(tmp_path) == damaged
    for shape, told in (((), "()"), ((NUM_NODES,), "(60,)")):
        np.save(path, np.ones(shape))
        assert (
            refusal(tmp_path) == f"'g/features.npy' must have shape (nodes, features), got {told}"
        )
    np.save(path, small.FEATURES[1:])
    assert refusal(tmp_path) == "'g/features.npy' must have one row a node (60), got 59"


CHANGED = """
import sys, numpy as np, snaps
from snaps.folder import read_folder
data = read_folder("g")
if sys.argv[1] == "truncated":
    open("g/features.npy", "r+b").truncate(200)
elif sys.argv[1] == "overwritten":
    np.lib.format.open_memmap("g/features.npy", "r+")[:] = 0
cp = snaps.SNAPS(0.2, k=5, weights=(0.3, 0.2))
cp.calibrate(data.graph, data.probs, data.labels, data.nodes("calib"))
print(cp.threshold_, cp.predict_set(data.nodes("test")).mask.tolist())
"""


@pytest.mark.parametrize("way", ["truncated", "overwritten"])
def test_a_feature_file_that_changes_once_it_is_read(tmp_path, monkeypatch, way):
    """It was mapped: the process ended with SIGBUS, or had other sets."""
    monkeypatch.chdir(tmp_path)
    small.change(small.write(tmp_path / "g"), "nodes", features=None)
    table = np.zeros((NUM_NODES, 5000))
    table[:, :4] = small.FEATURES
    np.save("g/features.npy", table)
    told = []
    for what in ("left alone", way):
        command = [sys.executable, "-c", CHANGED, what]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        told.append(done.stdout)
    assert told[0] == told[1]


def test_a_feature_file_that_is_truncated_while_it_is_read(tmp_path, monkeypatch):
    small.change(small.write(tmp_path), "nodes", features=None)
    path, real = tmp_path / "features.npy", _feature_files.read_npy

    def truncated(path):
        mapped = real(path)
        with open(path, "r+b") as file:
            file.truncate(path.stat().st_size - 8)
        return mapped

    np.save(path, small.FEATURES)
    monkeypatch.setattr(_feature_files, "read_npy", truncated)
    assert refusal(tmp_path) == "'g' must not change while it is read: read it again"


@pytest.mark.parametrize("order", ["C", "F"])
def test_features_that_memory_has_no_room_for_are_copied_to_a_file(tmp_path, monkeypatch, order):
    small.change(small.write(tmp_path), "nodes", features=None)
    np.save(tmp_path / "features.npy", np.asarray(small.FEATURES, order=order))
    monkeypatch.setattr(memory, "BLOCK", 64)
    monkeypatch.setattr(_feature_files, "machine_memory", lambda: 4.0 * small.FEATURES.nbytes - 1)
    here = sorted(os.listdir(tmp_path))
    features = read_folder(tmp_path).graph.features
    np.testing.assert_array_equal(features, small.FEATURES)
    assert features.flags[f"{order}_CONTIGUOUS"] and sorted(os.listdir(tmp_path)) == here
    while type(features) is np.ndarray and isinstance(features.base, np.ndarray):
        features = features.base
    assert isinstance(features, np.memmap)
    monkeypatch.setattr(_feature_files, "machine_memory", lambda: 4.0 * small.FEATURES.nbytes)
    assert not isinstance(read_folder(tmp_path).graph.features.base, np.memmap)


def test_features_in_two_places(tmp_path):
    small.write(tmp_path)
    np.save(tmp_path / "features.npy", small.FEATURES)
    column = "nodes.parquet column 'features'"
    assert (
        refusal(tmp_path) == f"'g' must have features in one place, got {column} and features.npy"
    )
    small.change(tmp_path, "nodes", features=None)
    np.savez(tmp_path / "features.npz", x=small.FEATURES)
    told = "'g' must have features in one place, got features.npz and features.npy"
    assert refusal(tmp_path) == told


@pytest.mark.parametrize("features", FEATURES)
def test_writing_over_a_folder_leaves_no_features_of_the_old_one(tmp_path, features):
    (tmp_path / "features.npy").write_bytes(b"old")
    (tmp_path / "features.npz").write_bytes(b"old")
    graph = snaps.Graph(small.EDGES, FEATURES[features], NUM_NODES)
    write_folder(tmp_path, graph, PROBS, LABELS, ROLES)
    same_folder(read_folder(tmp_path), graph)


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


# ---- Part files ----------------------------------------------------------------------------------


def into_parts(path, changes=({}, {}, {})):
    """Turn a Parquet file into a folder of three part files, each changed in its own way."""
    table = pq.read_table(path)
    path.unlink()
    path.mkdir()
    (path / "_SUCCESS").touch()
    (path / ".part-0.crc").write_bytes(b"\0")
    bounds = np.linspace(0, table.num_rows, 4).astype(int)
    for i, change in enumerate(changes):
        part = table.slice(bounds[i], bounds[i + 1] - bounds[i])
        for name, kind in change.items():
            place = part.column_names.index(name)
            if kind is None:
                part = part.remove_column(place)
            elif kind == pa.null():
                part = part.set_column(place, name, pa.nulls(part.num_rows))
            else:
                part = part.set_column(place, name, part.column(name).cast(kind))
        pq.write_table(part, path / f"part-{i}.snappy.parquet")


def test_folders_of_part_files(tmp_path):
    small.write(tmp_path)
    into_parts(tmp_path / "nodes.parquet")
    into_parts(tmp_path / "edges.parquet")
    same_folder(read_folder(tmp_path), small.graph(ids=NAMES))


def test_part_files_may_differ_in_number_types(tmp_path):
    small.write(tmp_path)
    types = [{"label": pa.int16()}, {"label": pa.int64()}, {"label": pa.int8()}]
    into_parts(tmp_path / "nodes.parquet", types)
    same_folder(read_folder(tmp_path), small.graph(ids=NAMES))


@pytest.mark.parametrize("bare", [0, 2])
def test_part_files_may_lack_labels(tmp_path, bare):
    """A part whose nodes have no labels may have no such column, or one of nulls; any part."""
    labels = LABELS.copy()
    labels[20 * bare : 20 * bare + 20] = -1
    small.write(tmp_path, labels=labels)
    for missing in (None, pa.null()):
        changes = [{}, {}, {}]
        changes[bare] = {"label": missing}
        path = tmp_path / "nodes.parquet"
        whole = path.read_bytes()
        into_parts(path, changes)
        same_folder(read_folder(tmp_path), small.graph(ids=NAMES), labels)
        for part in path.iterdir():
            part.unlink()
        path.rmdir()
        path.write_bytes(whole)


def test_part_files_may_differ_in_dictionaries(tmp_path):
    small.write(tmp_path)
    kinds = [pa.dictionary(pa.int8(), pa.string()), pa.string(), pa.large_string()]
    into_parts(tmp_path / "nodes.parquet", [{"role": kind} for kind in kinds])
    same_folder(read_folder(tmp_path), small.graph(ids=NAMES))


@pytest.mark.parametrize("parts", [False, True], ids=["a file", "part files"])
@pytest.mark.parametrize(
    "parent", ["role=calib", "label=2", "id=x", "src=a", "features=1", "p_a=1"]
)
@pytest.mark.parametrize("relative", [False, True])
def test_folders_above_tell_nothing(tmp_path, monkeypatch, parent, parts, relative):
    """pyarrow takes the folders above a file for columns, which then replace its own."""
    roles = np.repeat(["train", "valid", "tune", "calib", "test", ""], 10)
    folder = tmp_path / parent / "g"
    small.write(folder, roles=roles)
    if parts:
        into_parts(folder / "nodes.parquet")
        into_parts(folder / "edges.parquet")
    if relative:
        (tmp_path / "away").mkdir()
        monkeypatch.chdir(tmp_path / "away")
        folder = f"../{parent}/g"
    found = read_folder(folder)
    same_folder(found, small.graph(ids=NAMES), roles=roles)
    assert found.classes is None


def test_folders_partitioned_by_label(tmp_path):
    small.write(tmp_path)
    path = tmp_path / "nodes.parquet"
    table = pq.read_table(path)
    path.unlink()
    names = CLASSES[LABELS]
    for name in np.unique(names):
        (path / f"label={quote(name)}").mkdir(parents=True)
        part = table.filter(pa.array(names == name)).drop_columns("label")
        pq.write_table(part, path / f"label={quote(name)}" / "part-0.parquet")
    found = read_folder(tmp_path)
    place = found.graph.index(NAMES)
    assert found.labels[place].tolist() == names.tolist()
    np.testing.assert_array_equal(found.probs[place], PROBS)


def test_folders_partitioned_by_role(tmp_path):
    small.write(tmp_path)
    path = tmp_path / "nodes.parquet"
    table = pq.read_table(path)
    path.unlink()
    for role in ("calib", "test"):
        (path / f"role={role}").mkdir(parents=True)
        part = table.filter(pa.compute.equal(table["role"], role)).drop_columns("role")
        pq.write_table(part, path / f"role={role}" / "part-0.parquet")
    same_folder(read_folder(tmp_path), small.graph(ids=NAMES))


def partitioned(path, column, values, *, keep=None):
    """Turn a Parquet file into a folder partitioned by a column; `keep` stays in the files."""
    table = pq.read_table(path)
    path.unlink()
    names = [name for name in table.column_names if name != column]
    for value in dict.fromkeys(values):
        (path / f"{column}={value}").mkdir(parents=True)
        rows = pa.array([each == value for each in values])
        part = table.select(names).filter(rows)
        if keep is not None:
            part = part.append_column(column, pa.array(keep).filter(rows))
        pq.write_table(part, path / f"{column}={value}" / "part-0.parquet")


@pytest.mark.parametrize("column", ["role", "label", "region", "src"])
def test_a_partition_that_contradicts_a_column_is_refused(tmp_path, column):
    file = "edges" if column == "src" else "nodes"
    path = small.write(tmp_path) / f"{file}.parquet"
    inside = {
        "role": ROLES.tolist(),
        "label": LABELS.tolist(),
        "region": ["north", "south"] * (NUM_NODES // 2),
    }.get(column) or pq.read_table(path)["src"].to_pylist()
    outside = inside.copy()
    outside[7] = next(value for value in inside if value != inside[7])
    whole = path.read_bytes()
    partitioned(path, column, inside, keep=inside)
    assert read_folder(tmp_path, columns=[column] if column == "region" else [])
    shutil.rmtree(path)
    path.write_bytes(whole)
    partitioned(path, column, outside, keep=inside)
    row = [i for i, value in enumerate(outside) if value == outside[7]].index(7)
    assert refusal(tmp_path) == (
        f"{file}.parquet column '{column}' must be as the folder of a part file says, "
        f"{outside[7]}, got {inside[7]} in row {row} of '{column}={outside[7]}/part-0.parquet'"
    )


@pytest.mark.parametrize(
    "values, expected",
    [
        (["01", "1"], ["01", "1"]),
        (["1", "-0"], ["1", "-0"]),
        (["1", "-20"], [1, -20]),
        (["1", "__HIVE_DEFAULT_PARTITION__"], [1, None]),
        (["a%2Fb", "07"], ["a/b", "07"]),
    ],
)
def test_partitions_are_integers_only_if_written_so(tmp_path, values, expected):
    path = small.write(tmp_path) / "nodes.parquet"
    places = np.arange(NUM_NODES) % 2
    partitioned(path, "g", [values[place] for place in places])
    found = read_folder(tmp_path, columns=["g"])
    order = found.graph.index(NAMES)
    assert found.columns["g"][order].tolist() == [expected[place] for place in places]


@pytest.mark.parametrize("column", ["role", "label", "region", "id"])
def test_characters_that_numpy_would_drop(tmp_path, column):
    values = {
        "role": ROLES.tolist(),
        "label": np.array(["a", "b", "c"])[LABELS].tolist(),
        "region": ["a"] * NUM_NODES,
        "id": NAMES.tolist(),
    }[column]
    values[5] += "\0"
    for gap in (False, True):
        if gap:
            values[9] = None
        small.change(small.write(tmp_path), "nodes", **{column: values})
        if not (gap and column == "id"):
            assert refusal(tmp_path, columns=["region"] if column == "region" else []) == (
                f"nodes.parquet column '{column}' must not hold the character NUL, "
                f"got {values[5]!r} in row 5"
            )


def test_links_that_lead_nowhere(tmp_path):
    small.write(tmp_path)
    into_parts(tmp_path / "edges.parquet")
    whole = read_folder(tmp_path).graph
    link = tmp_path / "edges.parquet" / "part-2.snappy.parquet"
    target = link.rename(tmp_path / "elsewhere")
    link.symlink_to(target)
    hidden = tmp_path / "edges.parquet" / ".part-2.snappy.parquet.crc"
    hidden.symlink_to(tmp_path / "nothing")
    assert (read_folder(tmp_path).graph.adjacency != whole.adjacency).nnz == 0
    target.unlink()
    told = "cannot read 'g/edges.parquet/part-2.snappy.parquet': the link leads to no file"
    assert refusal(tmp_path) == told
    assert "the link leads to no file" in small.complaint(Graph.from_parquet, tmp_path)
    link.unlink()
    link.symlink_to(tmp_path / "edges.parquet", target_is_directory=True)
    assert "part-2.snappy.parquet': the link leads to a folder that it is in" in refusal(tmp_path)
    link.unlink()
    (tmp_path / "features.npy").symlink_to(tmp_path / "nothing")
    assert refusal(tmp_path) == "cannot read 'g/features.npy': the link leads to no file"


@pytest.mark.parametrize("names", [("source", "target"), ("src", "dst")])
def test_names_of_the_ends_of_edges(tmp_path, names):
    path = small.write(tmp_path) / "edges.parquet"
    table = pq.read_table(path).select(["src", "dst"])
    if names[0] == "src":  # then a column 'source' is any other
        table = table.append_column("source", pa.array(["crawl"] * len(table)))
        table = table.append_column("target", pa.array(["x"] * len(table)))
    else:
        table = table.rename_columns(list(names))
    pq.write_table(table, path)
    same_folder(read_folder(tmp_path), small.graph(ids=NAMES))


# ---- CSV -----------------------------------------------------------------------------------------


def as_csv(folder, ids=NAMES, labels=LABELS, *, ends=("src", "dst"), **columns):
    """The small graph as files that pandas writes."""
    source, target = small.graph().adjacency.nonzero()
    nodes = pd.DataFrame({"id": ids})
    for y in range(3):
        nodes[f"p_{y}"] = PROBS[:, y]
    for i in range(4):
        nodes[f"f_{i}"] = small.FEATURES[:, i]
    nodes["label"], nodes["role"] = labels, ROLES
    for name, values in columns.items():
        nodes[name] = values
    nodes.to_csv(folder / "nodes.csv", index=False)
    edges = pd.DataFrame({ends[0]: ids[source], ends[1]: ids[target], "weight": 1.0})
    edges.to_csv(folder / "edges.csv", index=False)
    return folder


def read_weighted(folder, **options):
    return read_folder(folder, weighted=True, **options)


@pytest.mark.parametrize("ends", [("src", "dst"), ("source", "target")])
@pytest.mark.parametrize(
    "ids", [NAMES, np.arange(NUM_NODES) * 3, np.array([f"{i:03}" for i in range(NUM_NODES)])]
)
def test_folders_of_csv(tmp_path, ids, ends):
    found = read_weighted(as_csv(tmp_path, ids, ends=ends))
    assert found.graph.ids.tolist() == ids.tolist()
    assert (found.graph.adjacency != small.graph().adjacency).nnz == 0
    np.testing.assert_array_equal(found.probs, PROBS)
    np.testing.assert_array_equal(found.graph.features, small.FEATURES)
    assert found.labels.tolist() == LABELS.tolist() and found.classes.tolist() == [0, 1, 2]
    assert found.roles.tolist() == ROLES.tolist()


def test_ids_in_csv_are_strings_or_integers_together(tmp_path):
    """One name with a zero in front makes all ids strings, those of the edges too."""
    ids = np.array([str(i) for i in range(NUM_NODES)])
    ids[7] = "007"
    as_csv(tmp_path, ids)
    edges = pd.read_csv(tmp_path / "edges.csv", dtype=str)
    keep = (edges["src"] != "007") & (edges["dst"] != "007")
    edges[keep].to_csv(tmp_path / "edges.csv", index=False)
    found = read_weighted(tmp_path)
    assert found.graph.ids.tolist() == ids.tolist()
    edges.loc[0, "src"] = "7"
    edges.to_csv(tmp_path / "edges.csv", index=False)
    told = "edges.csv column 'src' must name nodes of the graph, got 7"
    assert refusal(tmp_path, weighted=True) == told
    as_csv(tmp_path, np.arange(NUM_NODES))
    edges.to_csv(tmp_path / "edges.csv", index=False)
    told = "edges.csv column 'src' must be integers as the nodes' ids are, got strings"
    edges.loc[0, "src"] = "007"
    edges.to_csv(tmp_path / "edges.csv", index=False)
    assert refusal(tmp_path, weighted=True) == told


def test_what_csv_leaves_out(tmp_path):
    labels = pd.Series(LABELS.astype(float))
    labels[3] = None  # pandas then writes 1.0
    roles = [None, *ROLES[1:]]
    found = read_weighted(as_csv(tmp_path, labels=labels, role=roles))
    assert found.labels.tolist() == [*LABELS[:3], -1, *LABELS[4:]]
    assert found.roles.tolist() == ["", *ROLES[1:]]
    found = read_weighted(as_csv(tmp_path, labels=[None] * NUM_NODES, role=[None] * NUM_NODES))
    assert not found.labelled.any() and set(found.roles) == {""}
    names = np.array(["a, b", 'c "d"', "e\nf"])
    labels = [None, *names[LABELS[1:]]]
    columns = {f"p_{name}": PROBS[:, y] for y, name in enumerate(names)}
    as_csv(tmp_path, labels=labels, **columns)
    table = pd.read_csv(tmp_path / "nodes.csv").drop(columns=["p_0", "p_1", "p_2"])
    table.to_csv(tmp_path / "nodes.csv", index=False, encoding="utf-8-sig")
    found = read_weighted(tmp_path)
    assert found.classes.tolist() == names.tolist()
    assert found.labels.tolist() == ["", *names[LABELS[1:]]]


@pytest.mark.parametrize(
    "values, expected",
    [
        (["1", "01"], ["1", "01"]),
        (["1", "2"], [1, 2]),
        (["1.5", "1.50"], ["1.5", "1.50"]),
        (["1", None], [1, None]),
        (["9223372036854775808", "1"], ["9223372036854775808", "1"]),
    ],
)
def test_other_columns_of_csv(tmp_path, values, expected):
    as_csv(tmp_path, region=values * (NUM_NODES // 2))
    found = read_weighted(tmp_path, columns=["region"])
    assert found.columns["region"].tolist() == expected * (NUM_NODES // 2)


@pytest.mark.parametrize(
    "change, told",
    [
        ({"p_1": ["x", *PROBS[1:, 1]]}, "nodes.csv column 'p_1' must be numbers, got 'x' in row 0"),
        ({"p_1": [None, *PROBS[1:, 1]]}, "nodes.csv column 'p_1' must not be null, got null in"),
        ({"p_1": ["0,5", *PROBS[1:, 1]]}, "nodes.csv column 'p_1' must be numbers, got '0,5' in"),
        ({"label": ["7", *LABELS[1:]]}, "'label' must lie from 0 to 2"),
        ({"role": ["tset", *ROLES[1:]]}, "nodes.csv column 'role' must be one of "),
        ({"id": ["node-7", *NAMES[1:]]}, "nodes.csv column 'id' must be unique, got "),
    ],
)
def test_csv_that_is_wrong(tmp_path, change, told):
    assert told in refusal(as_csv(tmp_path, **change), weighted=True)


def test_files_of_csv_that_are_wrong(tmp_path):
    nodes = (as_csv(tmp_path) / "nodes.csv").read_text()
    for text, told in (
        ("", "nodes.csv"),
        (nodes.replace("p_2", "p_1", 1), "must have each column once, got 'p_1' twice"),
        (nodes + "1,2\n", "cannot read 'g/nodes.csv': not a CSV file: "),
        (nodes.replace(",", ";"), "nodes.csv must have a column 'id', got id;p_0"),
        (nodes.replace("p_", "q_"), "nodes.csv must have columns 'p_<class>', one per class, got"),
    ):
        (tmp_path / "nodes.csv").write_text(text)
        assert told in refusal(tmp_path, weighted=True)
    (tmp_path / "nodes.csv").write_bytes(nodes.replace("node-7", "n\xe9").encode("latin-1"))
    assert "cannot read 'g/nodes.csv': not a CSV file" in refusal(tmp_path, weighted=True)
    (tmp_path / "nodes.csv").write_text(nodes)
    np.save(tmp_path / "features.npy", small.FEATURES)
    told = "must have features in one place, got nodes.csv columns 'f_<name>' and features.npy"
    assert told in refusal(tmp_path, weighted=True)
    told = "'folder' must hold no nodes.csv, which is no part of what is written"
    assert small.complaint(write_folder, tmp_path, small.graph(), PROBS) == told
    (tmp_path / "features.npy").unlink()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "nodes.parquet")
    assert refusal(tmp_path) == "'g' must have one of nodes.parquet and nodes.csv, got both"


# ---- Files that belong together ------------------------------------------------------------------


def two_folders(tmp_path, features=None):
    """Folders of unlike graphs, whose files have the same rows and columns."""
    random = np.random.default_rng(9)
    for name in ("one", "two"):
        graph = snaps.Graph(random.integers(0, 60, (2, 90)), features, 60, ids=NAMES)
        write_folder(tmp_path / name, graph, PROBS, random.integers(0, 3, 60), ROLES)
    return tmp_path / "one", tmp_path / "two"


def refused_as_mixed(folder, name):
    told = f"'{folder}' must hold files that were written together, got '{name}' of another graph"
    for read in (read_folder, snaps.Graph.from_parquet):
        assert small.complaint(read, folder) == f"{told} than 'nodes.parquet'"


@pytest.mark.parametrize("name", ["nodes.parquet", "edges.parquet", "features.npz"])
def test_a_folder_replaced_half_way_is_refused(tmp_path, name):
    """Whoever stops between two files leaves the edges of one graph and the labels of another."""
    one, two = two_folders(tmp_path, sp.csr_array(small.FEATURES))
    if name == "features.npz":
        write_folder(two, snaps.Graph(None, sp.eye_array(60, format="csr"), ids=NAMES), PROBS)
    read_folder(one)
    shutil.copy(two / name, one / name)
    refused_as_mixed(one, "features.npz" if name == "features.npz" else "edges.parquet")


@pytest.mark.parametrize("old", ["none", "ours", "from elsewhere"])
@pytest.mark.parametrize("steps", range(6))
def test_a_folder_written_half_way_is_refused(tmp_path, monkeypatch, steps, old):
    """Whatever has its name already, an old folder is whole or cannot be read."""
    graph = snaps.Graph(small.EDGES, sp.csr_array(small.FEATURES), 60)
    if old != "none":
        small.write(tmp_path)
    if old == "from elsewhere":  # pandas knows nothing of what snaps writes in its files
        for name in ("nodes", "edges"):
            path = tmp_path / f"{name}.parquet"
            pd.read_parquet(path).to_parquet(path)
    left = iter(range(steps))

    def counted(real, *arguments, **options):
        if next(left, None) is None:
            raise KeyboardInterrupt
        real(*arguments, **options)

    # A new file gets its name by one of the first two; what is old goes by the last.
    for name in ("link", "replace", "unlink"):
        monkeypatch.setattr(os, name, partial(counted, getattr(os, name)))
    try:
        write_folder(tmp_path, graph, PROBS)
        interrupted = False
    except KeyboardInterrupt:
        interrupted = True
    monkeypatch.undo()
    assert interrupted or steps >= 3
    if not interrupted:
        assert read_folder(tmp_path).graph.features.nnz == graph.features.nnz
    elif old != "none" and steps == 0:
        assert read_folder(tmp_path).labels.tolist() == LABELS.tolist()
    else:
        told = f"cannot read '{tmp_path}/nodes.parquet': no such file"
        assert small.complaint(read_folder, tmp_path) == told


def test_nodes_that_are_a_link_or_private_stay_so(tmp_path):
    folder, far = small.write(tmp_path / "g"), tmp_path / "far.parquet"
    (folder / "nodes.parquet").rename(far)
    far.chmod(0o600)
    (folder / "nodes.parquet").symlink_to(far)
    small.write(folder, labels=2 - LABELS)
    assert (folder / "nodes.parquet").is_symlink() and far.stat().st_mode & 0o777 == 0o600
    assert read_folder(folder).labels.tolist() == (2 - LABELS).tolist()


def test_labels_of_the_same_size_are_other_labels(tmp_path):
    """Where each file has as many bytes as before, and columns the same extremes."""
    graph = small.graph(ids=NAMES)
    for name, labels in (("one", LABELS), ("two", LABELS[::-1])):
        write_folder(tmp_path / name, graph, PROBS, labels, ROLES)
    one, two = (tmp_path / name / "nodes.parquet" for name in ("one", "two"))
    assert one.stat().st_size == two.stat().st_size
    shutil.copy(two, one)
    refused_as_mixed(tmp_path / "one", "edges.parquet")


def test_features_of_the_same_size_are_other_features(tmp_path):
    def features(name, table):
        write_folder(tmp_path / name, snaps.Graph(None, sp.csr_array(table), 60), PROBS)
        return tmp_path / name / "features.npz"

    one, random = features("one", small.FEATURES), np.random.default_rng(0)
    for _ in range(200):
        two = features("two", random.permutation(small.FEATURES))
        if one.stat().st_size == two.stat().st_size:
            break
    shutil.copy(two, one)
    refused_as_mixed(tmp_path / "one", "features.npz")


def test_files_that_come_and_go(tmp_path):
    one, _ = two_folders(tmp_path, sp.csr_array(small.FEATURES))
    whole = (one / "features.npz").read_bytes()
    (one / "features.npz").unlink()
    told = f"'{one}' must hold the features.npz that belongs to 'nodes.parquet'"
    assert small.complaint(read_folder, one) == told
    (one / "features.npz").write_bytes(whole)
    np.save(one / "features.npy", small.FEATURES)
    told = f"'{one}' must have features in one place, got features.npz and features.npy"
    assert small.complaint(read_folder, one) == told
    (one / "features.npz").unlink()
    assert (read_folder(one).graph.features == small.FEATURES).all()
    (one / "notes.txt").write_text("what is not listed is left alone")
    (one / "manifest.json").write_text("what older folders have is left alone, too")
    read_folder(one)


@pytest.mark.parametrize("name", ["nodes", "edges"])
def test_a_file_that_pandas_wrote_again(tmp_path, name):
    """Who changes a file means it: what others write carries no mark."""
    one, _ = two_folders(tmp_path)
    table = pd.read_parquet(one / f"{name}.parquet")
    if name == "nodes":
        table.loc[3, "label"] = 2 - table.loc[3, "label"]
        table.to_parquet(one / "nodes.parquet")
        assert (read_folder(one).labels == table["label"]).all()
    else:
        table[1:].to_parquet(one / "edges.parquet")
        assert read_folder(one).graph.num_edges == len(table) - 1


def test_the_same_folder_has_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        write_folder(tmp_path / name, small.graph(ids=NAMES), PROBS, LABELS, ROLES)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_a_folder_that_changes_while_it_is_read(tmp_path, monkeypatch):
    one, two = two_folders(tmp_path)
    read = snaps.folder.graph_from_files

    def replaced(*arguments, **options):
        graph = read(*arguments, **options)
        for path in two.iterdir():
            shutil.copy(path, one / path.name)
        return graph

    monkeypatch.setattr(snaps.folder, "graph_from_files", replaced)
    told = f"'{one}' must not change while it is read: read it again"
    assert small.complaint(read_folder, one) == told
    monkeypatch.undo()
    read_folder(one)
