"""Graph folders: what is written is read back, with roles, labels and names of classes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import snaps
from snaps.folder import read_folder, write_folder
from tests.helpers import small
from tests.helpers.folders import CLASSES, FEATURES, IDS, TEXT, UNKNOWN, same_folder
from tests.helpers.small import LABELS, NAMES, NUM_NODES, PROBS, ROLES


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
