"""What a prediction takes in memory: measured, and within the bound that was computed."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import snaps
from snaps.folder import read_folder, write_folder
from tests.scale.common import MEASURED, N, listed, memory_of, needs, write_plainly


def test_features_beside_the_nodes_count_as_they_unfold(tmp_path):
    """An archive may be a thousandth of its table."""
    graph, n = snaps.Graph([[0], [1]], num_nodes=2000), 2000
    write_folder(tmp_path, graph, np.full((n, 4), 0.25), np.zeros(n), np.full(n, "calib"))
    bare = needs(tmp_path, snaps.SNAPS())
    np.savez_compressed(tmp_path / "features.npz", x=np.ones((n, 500), np.float32))
    assert (tmp_path / "features.npz").stat().st_size < 10**5
    whole, least = needs(tmp_path, snaps.SNAPS())
    assert whole - bare[0] >= 4 * 500 * n and least - bare[1] >= 4 * 500 * n
    assert needs(tmp_path, snaps.SNAPS(candidates=100))[1] < least  # the search copies nothing


def test_nodes_with_names_are_read_in_batches(tmp_path, data):
    made, probs, *_ = data
    adjacency, features = made.graph.adjacency, made.graph.features
    names = np.array([f"node {i} \u00e9" for i in np.random.default_rng(2).permutation(N)])
    graph = snaps.Graph(adjacency, features, ids=names)
    write_folder(tmp_path, graph, probs, made.labels, np.full(N, "calib"))
    path = tmp_path / "edges.parquet"
    edges = pq.read_table(path)
    pq.write_table(edges, path, row_group_size=100)
    assert (read_folder(tmp_path).graph.adjacency != adjacency).nnz == 0
    for wrong, rule in (
        ("stranger", "must name nodes of the graph, got stranger"),
        (names[0] + "\0", "must not hold the character NUL, got 'node .*' in row 150"),
    ):
        ends = edges["dst"].to_pylist()
        ends[150] = wrong
        pq.write_table(edges.set_column(1, "dst", [ends]), path, row_group_size=100)
        with pytest.raises(snaps.SnapsError, match=f"edges.parquet column 'dst' {rule}"):
            read_folder(tmp_path)


@MEASURED
@pytest.mark.parametrize("kind", ["columns", "lists", "narrow groups", "equal", "whole numbers"])
def test_mapped_tables_are_read_without_a_copy_in_memory(kind, tmp_path, monkeypatch):
    """Whatever the row groups are: it took four to seven times the table."""
    monkeypatch.chdir(tmp_path)
    n, width = 40_000, 1000
    rng = np.random.default_rng(0)
    if kind == "columns":
        n, width = 400_000, 50
        table = rng.dirichlet(np.ones(width), n)
        columns = {f"p_{i}": table[:, i] for i in range(width)}
    else:
        table = rng.random((n, width), np.float32)
        table = np.full_like(table, 7) if kind == "equal" else table
        table = (table * 100).astype(np.int32) if kind == "whole numbers" else table
        columns = {"features": listed(table), "probs": listed(np.full((n, 2), 0.5))}
    write_plainly(columns, n, row_group_size=2000 if kind == "narrow groups" else n)
    assert memory_of("read_folder('g')") < 1.5 * table.nbytes
    found = read_folder("g")
    np.testing.assert_array_equal(found.probs if kind == "columns" else found.graph.features, table)


@MEASURED
@pytest.mark.parametrize("lone", [False, True])
def test_sparse_features_are_mapped(tmp_path, monkeypatch, lone):
    """Also where a row has a single entry, and is scaled in a copy."""
    monkeypatch.chdir(tmp_path)
    n, width, each = 100_000, 5000, 100
    write_plainly({"probs": listed(np.full((n, 2), 0.5))}, n)
    rng = np.random.default_rng(0)
    columns = rng.integers(width // each, size=(n, each)) + np.arange(0, width, width // each)
    ends = columns.reshape(-1), np.arange(0, n * each + 1, each)
    table = sp.csr_array((rng.random(n * each), *ends), shape=(n, width))
    if lone:
        table.data[1:each] = 0
        table.eliminate_zeros()
    sp.save_npz("g/features.npz", table, compressed=False)
    search = "snaps.similarity.prepare(snaps._checks.features.check_features(read.graph.features))"
    assert memory_of(f"read = read_folder('g')\n{search}") < 12 * table.nnz  # and was three times
    assert (read_folder("g").graph.features != table).nnz == 0
    whole, least = needs(tmp_path / "g", snaps.SNAPS(candidates=10))
    assert whole - least > 2 * 12 * table.nnz
    sp.save_npz("g/features.npz", table.tocsc(), compressed=False)
    assert needs(tmp_path / "g", snaps.SNAPS(candidates=10))[1] - least > 12 * table.nnz


# Runs `snaps predict` and prints the most anonymous memory and the most memory of the process.
PREDICTING = """
import re, sys, threading, time
import snaps.cli._resources as resources
from snaps.cli import main
def held(name):
    with open("/proc/self/status") as file:
        return 1024 * int(re.search(name + r":\\s*(\\d+)", file.read())[1])
most, done = [], threading.Event()
def watch():
    while not done.is_set():
        most.append(held("RssAnon"))
        time.sleep(0.002)
threading.Thread(target=watch, daemon=True).start()
if sys.argv[1] == "mapped":
    resources.needed = lambda *_: (2**60, 0)
try:
    main(["predict", "g", "--out", "x.csv", "--memory", "900GB", *sys.argv[2:]])
except SystemExit as end:
    done.set()
    assert not end.code
print(max(most), held("VmHWM"))
"""


def predicted_within(how, *options):
    """The memory that predicting takes, with large tables mapped or not."""
    command = [sys.executable, "-c", PREDICTING, how, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    anonymous, whole = map(int, done.stdout.split()[-2:])
    return anonymous if how == "mapped" else whole


# Folders of (nodes, edges, classes, columns of features), each heavy in a line of docs/scale.md.
HEAVY = {
    "graph": (200_000, 3_000_000, 2, 2, snaps.SplitConformal(), ["--method", "split"]),
    "classes": (50_000, 100, 200, 2, snaps.SplitConformal(), ["--method", "split"]),
    "features": (40_000, 100, 2, 500, snaps.SNAPS(candidates=50), ["--candidates", "50"]),
    "neighbours": (60_000, 100, 2, 4, snaps.SNAPS(k=100, candidates=200),
                   ["--k", "100", "--candidates", "200"]),
    "approximate": (80_000, 100, 2, 8, snaps.SNAPS(neighbours="approximate"),
                    ["--neighbours", "approximate"]),
    "pooled": (30_000, 30_000, 20, 16, snaps.Pooled(candidates=50),
               ["--method", "pooled", "--candidates", "50"]),
}  # fmt: skip


@MEASURED
@pytest.mark.parametrize("kind", HEAVY)
def test_a_prediction_stays_within_its_bound(tmp_path, monkeypatch, kind):
    """The bound of `--memory`, in memory and with large tables mapped."""
    monkeypatch.chdir(tmp_path)
    n, num_edges, num_classes, width, estimator, options = HEAVY[kind]
    rng = np.random.default_rng(0)
    roles = np.full(n, "test", object)
    roles[:1000], roles[1000:2000] = "calib", "train"
    columns = {
        "probs": listed(rng.dirichlet(np.ones(num_classes), n)),
        "features": listed(rng.random((n, width), np.float32)),
        "label": rng.integers(num_classes, size=n),
        "role": pa.array(roles),
    }
    write_plainly(columns, n, num_edges)
    whole, least = needs(tmp_path / "g", estimator)
    assert predicted_within("mapped", *options) < least
    assert predicted_within("whole", *options) < whole
    assert whole < 2 * 10**9  # which is not what would do for any graph


@MEASURED
def test_one_long_id_does_not_fill_the_memory(tmp_path, monkeypatch):
    """In an array of strings each takes the bytes of the longest."""
    monkeypatch.chdir(tmp_path)
    n, longest = 20_000, 4000
    ids = [f"n{i}" for i in range(n - 1)] + ["x" * longest]
    probs = listed(np.full((n, 2), 0.5))
    columns = {"id": pa.array(ids), "probs": probs, "label": np.arange(n) % 2}
    write_plainly({**columns, "role": ["calib", "test"] * (n // 2)}, n)
    taken = memory_of(
        "data = read_folder('g')\n"
        "cp = snaps.SplitConformal(0.1)\n"
        "cp.calibrate(data.graph, data.probs, data.labels, data.nodes('calib'))\n"
        "cp.predict_set(data.nodes('test')).write('sets.csv')"
    )
    assert taken < 4 * longest * n  # and was three times as much
    table = np.genfromtxt("sets.csv", str, delimiter=",", skip_header=1)
    assert [name.strip('"') for name in table[:, 0]] == ids[1::2]
    least, whole = sorted(needs(tmp_path / "g", snaps.SplitConformal()))
    assert whole > 3 * 4 * longest * n > least - 700 * 10**6


def test_numbers_of_several_types_have_a_common_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    columns = {"p_0": pa.array([1, 0], pa.int8()), "p_1": pa.array([0, 1], pa.float32())}
    write_plainly(columns, 2, 1)
    found = read_folder("g").probs
    assert found.dtype == np.float32 and found.tolist() == [[1, 0], [0, 1]]


def test_columns_that_part_files_leave_out_or_keep_otherwise(tmp_path, monkeypatch):
    """A batch has the type that all parts have in common."""
    monkeypatch.chdir(tmp_path)
    parts = {"p_0": pa.array([1, 0], pa.int32())}, {"p_0": pa.array([0.25, 0.5])}
    write_plainly({"p_0": [1.0, 0.0], "p_1": [0.0, 1.0]}, 2, 1)
    os.remove("g/nodes.parquet")
    for i, part in enumerate(parts):
        os.makedirs(f"g/nodes.parquet/p_1={i}")
        table = pa.table({"id": [2 * i, 2 * i + 1], **part})
        pq.write_table(table, f"g/nodes.parquet/p_1={i}/part.parquet")
    assert read_folder("g").probs.tolist() == [[1, 0], [0, 0], [0.25, 1], [0.5, 1]]
    pq.write_table(pa.table({"id": [4]}), "g/nodes.parquet/p_1=0/other.parquet")
    with pytest.raises(snaps.SnapsError, match="column 'p_0' must not be null, got null in row 0"):
        read_folder("g")


@pytest.mark.parametrize("first", [{"id": pa.array([], pa.int64())}, {}, {"id": [7, 8]}])
def test_lists_that_the_first_part_file_leaves_out(tmp_path, monkeypatch, first):
    monkeypatch.chdir(tmp_path)
    probs = listed(np.full((3, 2), 0.5))
    write_plainly({"probs": probs}, 3, 1)
    os.rename("g/nodes.parquet", "part")
    os.mkdir("g/nodes.parquet")
    os.rename("part", "g/nodes.parquet/b.parquet")
    pq.write_table(pa.table(first), "g/nodes.parquet/a.parquet")
    if first.get("id"):
        with pytest.raises(
            snaps.SnapsError, match="column 'probs' must not be null, got null in row 0"
        ):
            read_folder("g")
    else:
        assert read_folder("g").probs.tolist() == [[0.5, 0.5]] * 3
        needs(tmp_path / "g", snaps.SNAPS())


@pytest.mark.parametrize("kind", [np.int8, np.float16, np.int32, np.float32])
@pytest.mark.parametrize("file", ["features.npy", "features.npz"])
def test_features_count_as_the_floats_that_they_become(tmp_path, monkeypatch, kind, file):
    monkeypatch.chdir(tmp_path)
    n, width = 1000, 600
    write_plainly({"probs": listed(np.full((n, 2), 0.5))}, n)
    least = needs(tmp_path / "g", snaps.SNAPS())[0]
    table = np.ones((n, width), kind)
    np.save(f"g/{file}", table) if file.endswith("npy") else np.savez(f"g/{file}", x=table)
    floats = read_folder("g").graph.features.astype(np.promote_types(kind, np.float32))
    own = table.nbytes if kind == np.float32 else table.nbytes + floats.nbytes
    # As read, in a copy with lone entries scaled, and as the search among all nodes has them.
    assert needs(tmp_path / "g", snaps.SNAPS())[0] - least >= 2 * own + 4 * n * width - n * 500


def test_names_of_groups_count(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    n, longest = 1000, 5000
    names = pa.array(["a" * longest] * n)
    write_plainly({"probs": listed(np.full((n, 2), 0.5)), "group": names}, n)
    without, least = needs(tmp_path / "g", snaps.SplitConformal())
    assert needs(tmp_path / "g", snaps.SplitConformal(), group_by="group") == (
        without + 12 * n * longest,
        least,
    )


@MEASURED
def test_features_are_summed_up_in_blocks(tmp_path, monkeypatch):
    """It took the table in double precision, and four of 136 columns."""
    monkeypatch.chdir(tmp_path)
    n, width = 60_000, 400
    write_plainly({"probs": listed(np.full((n, 2), 0.5))}, n)
    table = np.random.default_rng(0).random((n, width), np.float32)
    np.save("g/features.npy", table)
    code = "read = read_folder('g')\nsnaps.scoring.context.summary(read.graph)"
    assert memory_of(f"import snaps.scoring.context\n{code}") < 1.5 * table.nbytes


def test_names_are_looked_up_many_at_a_time(tmp_path, monkeypatch):
    """Each look hashes all of the names: reading would grow with nodes times edges."""
    import pyarrow.compute as pc

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("snaps.io.parquet._MOST_ROWS", 100)
    n, num_edges, looks = 1000, 30_000, []
    probs = listed(np.full((n, 2), 0.5))
    write_plainly({"id": pa.array([f"n{i}" for i in range(n)]), "probs": probs}, n, num_edges)
    real = pc.index_in
    monkeypatch.setattr(pc, "index_in", lambda *names: looks.append(1) or real(*names))
    graph = read_folder("g").graph
    assert 2 < len(looks) < 40
    ends = np.random.default_rng(0).integers(n - 1, size=(2, num_edges))
    assert (graph.adjacency != snaps.Graph(ends, num_nodes=n).adjacency).nnz == 0
    edges = pq.read_table("g/edges.parquet")
    wrong = pa.array([*edges["dst"].to_pylist()[:-1], "stranger"])
    pq.write_table(edges.set_column(1, "dst", wrong), "g/edges.parquet")
    with pytest.raises(snaps.SnapsError, match="'dst' must name nodes of the graph, got stranger"):
        read_folder("g")


def test_a_column_twice_is_reported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_plainly({"probs": listed(np.full((3, 2), 0.5))}, 3, 1)
    nodes = pq.read_table("g/nodes.parquet")
    pq.write_table(nodes.append_column("id", nodes["id"]), "g/nodes.parquet")
    with pytest.raises(snaps.SnapsError, match="must have each column once, got one twice"):
        read_folder("g")


@MEASURED
def test_known_labels_are_propagated_a_few_folds_at_a_time(tmp_path, monkeypatch):
    """All folds at once took 36 tables of scores, which are not mapped if they are small."""
    monkeypatch.chdir(tmp_path)
    n, num_classes = 30_000, 60
    labels, roles = np.arange(n) % num_classes, np.full(n, "test", object)
    roles[:2000], roles[2000:12_000] = "calib", "train"
    probs = listed(np.full((n, num_classes), 1 / num_classes))
    write_plainly({"probs": probs, "label": labels, "role": pa.array(roles)}, n)
    taken = memory_of(
        "data = read_folder('g')\n"
        "cp = snaps.Pooled(0.1, parts=('own', 'propagated'))\n"
        "cp.calibrate(data.graph, data.probs, data.labels, data.nodes('calib'),\n"
        "             known_nodes=data.nodes('train'))"
    )
    assert taken < 28 * 8 * n * num_classes


@MEASURED
@pytest.mark.parametrize(
    ("method", "code"),
    [
        (snaps.Pooled(candidates=10), "import snaps.scoring.context as c\nc.summary(read.graph)"),
        (
            snaps.SNAPS(),
            "import snaps.search.approximate as c\nc._singular_vectors(read.graph.features)",
        ),
    ],
)
def test_singular_vectors_of_wide_features_count(tmp_path, monkeypatch, method, code):
    """They have a row for each column, which no file helps with: it took six such tables."""
    monkeypatch.chdir(tmp_path)
    n, width, each = 1000, 50_000, 20
    write_plainly({"probs": listed(np.full((n, 2), 0.5))}, n)
    columns = np.random.default_rng(0).integers(width, size=(n, each))
    ends = np.repeat(np.arange(n), each), columns.reshape(-1)
    table = sp.coo_array((np.ones(n * each), ends), shape=(n, width)).tocsr()
    sp.save_npz("g/features.npz", table)
    _, least = needs(tmp_path / "g", method)
    taken = memory_of(f"read = read_folder('g')\n{code}")
    assert 8 * 136 * width < taken < least - 600 * 10**6


@MEASURED
def test_means_at_some_nodes_of_a_dense_graph_are_made_in_blocks(tmp_path, monkeypatch):
    """Two steps from a few thousand nodes are all edges, which took seven times the graph."""
    monkeypatch.chdir(tmp_path)
    n, num_edges = 20_000, 4_000_000
    roles = np.full(n, "test", object)
    roles[:1000], roles[1000:6000] = "calib", "train"
    columns = {"probs": listed(np.full((n, 2), 0.5)), "label": np.arange(n) % 2}
    write_plainly({**columns, "role": pa.array(roles)}, n, num_edges)
    np.save("g/features.npy", np.random.default_rng(0).random((n, 4), np.float32))
    read = "data = read_folder('g')\n"
    work = (
        "cp = snaps.Pooled(0.1, k=2, parts=('own', 'regression'), candidates=50)\n"
        "cp.calibrate(data.graph, data.probs, data.labels, data.nodes('calib'),\n"
        "             known_nodes=data.nodes('train'))"
    )
    taken = min(memory_of(read + work) for _ in range(2))  # the first may compile
    assert taken - memory_of(read) < 16 * num_edges
