"""Graph folders: what is written is read back, and what others write is read too."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import small
import snaps
from small import LABELS, NAMES, NUM_NODES, PROBS, ROLES
from snaps.folder import read_folder, write_folder


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
    assert found.tune_nodes.tolist() == list(range(20, 30))


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
    found = read_folder(small.write(tmp_path, roles=roles, labels=labels)).tune_nodes
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
        {"role": pa.array(ROLES, pa.large_string())},
        {"id": pa.array(NAMES, pa.large_string())},
        {"id": pa.array(NAMES).dictionary_encode()},
    ],
    ids=lambda columns: " ".join(f"{name} {array.type}" for name, array in columns.items()),
)
def test_column_types(tmp_path, columns):
    small.change(small.write(tmp_path), "nodes", **columns)
    same_folder(read_folder(tmp_path), small.graph(ids=NAMES))


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
