"""Folders of CSV."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from snaps.folder import read_folder, write_folder
from tests.helpers import small
from tests.helpers.folders import refusal
from tests.helpers.small import LABELS, NAMES, NUM_NODES, PROBS, ROLES


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
    message = "edges.csv column 'src' must name nodes of the graph, got 7"
    assert refusal(tmp_path, weighted=True) == message
    as_csv(tmp_path, np.arange(NUM_NODES))
    edges.to_csv(tmp_path / "edges.csv", index=False)
    message = "edges.csv column 'src' must be integers as the nodes' ids are, got strings"
    edges.loc[0, "src"] = "007"
    edges.to_csv(tmp_path / "edges.csv", index=False)
    assert refusal(tmp_path, weighted=True) == message


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
    "change, message",
    [
        ({"p_1": ["x", *PROBS[1:, 1]]}, "nodes.csv column 'p_1' must be numbers, got 'x' in row 0"),
        ({"p_1": [None, *PROBS[1:, 1]]}, "nodes.csv column 'p_1' must not be null, got null in"),
        ({"p_1": ["0,5", *PROBS[1:, 1]]}, "nodes.csv column 'p_1' must be numbers, got '0,5' in"),
        ({"label": ["7", *LABELS[1:]]}, "'label' must lie from 0 to 2"),
        ({"role": ["tset", *ROLES[1:]]}, "nodes.csv column 'role' must be one of "),
        ({"id": ["node-7", *NAMES[1:]]}, "nodes.csv column 'id' must be unique, got "),
    ],
)
def test_csv_that_is_wrong(tmp_path, change, message):
    assert message in refusal(as_csv(tmp_path, **change), weighted=True)


def test_files_of_csv_that_are_wrong(tmp_path):
    nodes = (as_csv(tmp_path) / "nodes.csv").read_text()
    for text, message in (
        ("", "nodes.csv"),
        (nodes.replace("p_2", "p_1", 1), "must have each column once, got 'p_1' twice"),
        (nodes + "1,2\n", "cannot read 'g/nodes.csv': not a CSV file: "),
        (nodes.replace(",", ";"), "nodes.csv must have a column 'id', got id;p_0"),
        (nodes.replace("p_", "q_"), "nodes.csv must have columns 'p_<class>', one per class, got"),
    ):
        (tmp_path / "nodes.csv").write_text(text)
        assert message in refusal(tmp_path, weighted=True)
    (tmp_path / "nodes.csv").write_bytes(nodes.replace("node-7", "n\xe9").encode("latin-1"))
    assert "cannot read 'g/nodes.csv': not a CSV file" in refusal(tmp_path, weighted=True)
    (tmp_path / "nodes.csv").write_text(nodes)
    np.save(tmp_path / "features.npy", small.FEATURES)
    message = "must have features in one place, got nodes.csv columns 'f_<name>' and features.npy"
    assert message in refusal(tmp_path, weighted=True)
    message = "'folder' must hold no nodes.csv, which is no part of what is written"
    assert small.error_line(write_folder, tmp_path, small.graph(), PROBS) == message
    (tmp_path / "features.npy").unlink()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "nodes.parquet")
    assert refusal(tmp_path) == "'g' must have one of nodes.parquet and nodes.csv, got both"
