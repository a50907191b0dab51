"""Files and folders that users get wrong."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest

import snaps
from snaps.folder import read_folder, write_folder
from tests.errors.common import Halves, MySNAPS, N, changed
from tests.helpers import small
from tests.helpers.small import LABELS, NAMES, PROBS, error_line


def save_npz(**arrays):
    np.savez("graph.npz", **arrays)


CSR = {"adj_indptr": np.array([0, 1, 1]), "adj_indices": np.array([1])}
X = "'graph.npz' must hold the array"

NPZ = {
    f"{X} 'adj_indptr', got ['y']": {"y": np.ones(3)},
    f"{X} 'adj_indices', got ['adj_indptr']": {"adj_indptr": np.array([0, 1])},
    f"{X} 'x_data' next to 'x_indptr'": {**CSR, "x_indptr": np.array([0, 1, 1])},
    "cannot read 'graph.npz': damaged, or not an .npz archive of plain arrays": {
        **CSR,
        "x": np.array([{"pickled": True}]),
    },
    "'features' must be finite, got nan in row 1": {**CSR, "x": np.array([[1.0], [np.nan]])},
    "the number of nodes must agree, got 'features' 3, 'edges' 2": {**CSR, "x": np.ones((3, 1))},
}


@pytest.mark.parametrize("message, arrays", NPZ.items(), ids=[m[:70] for m in NPZ])
def test_graph_from_npz(here, message, arrays):
    save_npz(**arrays)
    assert error_line(lambda: snaps.Graph.from_npz("graph.npz")) == message


@pytest.mark.parametrize(
    "name, value",
    [
        ("adj_indptr", np.array(3)),
        ("adj_indptr", np.array([0.0, 0.5, 1.0])),
        ("adj_indices", np.array([1.0])),
        ("adj_indices", np.array([5])),
        ("adj_indices", np.array([-1])),
        ("adj_indptr", np.array(["a", "b", "c"])),
        ("adj_indptr", np.array([0, 9, 1])),
        ("adj_indices", np.array(1)),
        ("x_shape", np.array(3)),
        ("x_shape", np.array(["a", "b"])),
        ("x_indptr", np.array([0, 1])),
        ("x_data", np.array([1.0, 2.0])),
    ],
    ids=str,
)
def test_graph_from_npz_with_arrays_that_make_no_matrix(here, name, value):
    x = {
        "x_indptr": np.array([0, 1, 1]),
        "x_indices": np.array([0]),
        "x_data": np.ones(1),
        "x_shape": np.array([2, 2]),
    }
    save_npz(**{**CSR, **x, name: value})
    message = error_line(lambda: snaps.Graph.from_npz("graph.npz"))
    assert message.startswith(
        f"'graph.npz' must hold a valid sparse matrix '{name.split('_')[0]}_*"
    )


READERS = {
    "load": snaps.load,
    "from_npz": snaps.Graph.from_npz,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_unreadable_archives(here, read):
    assert error_line(lambda: read(None)) == "'path' must be a path, got None"
    assert error_line(lambda: read("x.npz")) == "cannot read 'x.npz': No such file or directory"
    assert error_line(lambda: read("a\nb")) == "cannot read 'a b': No such file or directory"
    assert error_line(lambda: read(here)) == f"cannot read '{here}': Is a directory"
    for content in (b"", b"PK\x03\x04", b"hello world", b"\x80\x04\x95pickle"):
        (here / "x.npz").write_bytes(content)
        damaged = "cannot read 'x.npz': damaged, or not an .npz archive of plain arrays"
        assert error_line(lambda: read("x.npz")) == damaged


# ---- Graph folders -------------------------------------------------------------------------------


def lists(rows, kind=None):
    return pa.array([list(row) for row in rows], pa.list_(kind or pa.float64()))


IDS = NAMES.tolist()
NODE, EDGE = "nodes.parquet column", "edges.parquet column"
LENGTHS = "must have lists of equal length (3), got 2 in row 1"
ONE_SHORT = [PROBS[0], PROBS[1, :2], *PROBS[2:]]

FOLDERS = {
    "nodes.parquet must have a column 'id', got probs, label, role, features": (
        "nodes",
        "id",
        None,
    ),
    "nodes.parquet must have a column 'probs', or columns 'p_<class>', "
    "got id, label, role, features": (
        "nodes",
        "probs",
        None,
    ),
    "edges.parquet must have a column 'src', got dst": ("edges", "src", None),
    "edges.parquet must have a column 'dst', got src": ("edges", "dst", None),
    f"{NODE} 'id' must not be null, got null in row 59": ("nodes", "id", [*IDS[:-1], None]),
    f"{NODE} 'probs' must not be null, got null in row 0": (
        "nodes",
        "probs",
        pa.array([None, *PROBS[1:].tolist()]),
    ),
    f"{NODE} 'probs' must not hold nulls, got one in row 2": (
        "nodes",
        "probs",
        pa.array([*PROBS[:2].tolist(), [0.5, None, 0.5], *PROBS[3:].tolist()]),
    ),
    f"{NODE} 'features' must not be null, got null in row 5": (
        "nodes",
        "features",
        pa.array([[1.0]] * 5 + [None] + [[1.0]] * 54),
    ),
    f"{EDGE} 'src' must not be null, got null in row 0": (
        "edges",
        "src",
        lambda old: [None, *old[1:]],
    ),
    f"{EDGE} 'dst' must not be null, got null in row 1": (
        "edges",
        "dst",
        lambda old: [old[0], None, *old[2:]],
    ),
    f"{NODE} 'id' must be integers or strings, got double": ("nodes", "id", np.arange(N) + 0.5),
    f"{NODE} 'id' must be integers or strings, got bool": ("nodes", "id", [True] * N),
    f"{NODE} 'id' must be unique, got node-7 twice or more": ("nodes", "id", ["node-7", *IDS[1:]]),
    f"{NODE} 'probs' must be a list of numbers, got double": ("nodes", "probs", PROBS[:, 0]),
    f"{NODE} 'probs' must be a list of numbers, got list<": (
        "nodes",
        "probs",
        pa.array([["a", "b"]] * N),
    ),
    f"{NODE} 'probs' {LENGTHS}": ("nodes", "probs", lists(ONE_SHORT)),
    f"{NODE} 'features' {LENGTHS}": ("nodes", "features", lists(ONE_SHORT)),
    "'features' must be finite, got nan in row 4": (
        "nodes",
        "features",
        lists(changed(PROBS, (4, 0), np.nan)),
    ),
    "'label' must be whole numbers, got 1.5": ("nodes", "label", changed(LABELS + 0.0, 3, 1.5)),
    "'label' must fit 64-bit integers, got 18446744073709551615": (
        "nodes",
        "label",
        changed(LABELS.astype(np.uint64), 3, 2**64 - 1),
    ),
    f"{NODE} 'label' must be integers or strings, got timestamp[us]": (
        "nodes",
        "label",
        pa.array(LABELS, pa.timestamp("us")),
    ),
    f"{NODE} 'role' must be one of train, valid, tune, calib, test or empty, got 'dev' in row 2": (
        "nodes",
        "role",
        ["calib", None, "dev", *["test"] * 57],
    ),
    f"{NODE} 'role' must be strings, got int64": ("nodes", "role", np.arange(N)),
    f"{EDGE} 'src' must be strings as the nodes' ids are, got integers": (
        "edges",
        "src",
        lambda old: range(len(old)),
    ),
    f"{EDGE} 'dst' must name nodes of the graph, got stranger": (
        "edges",
        "dst",
        lambda old: [*old[:-1], "stranger"],
    ),
    f"{EDGE} 'src' must be integers or strings, got double": (
        "edges",
        "src",
        lambda old: [0.5] * len(old),
    ),
}


@pytest.mark.parametrize("message, what", FOLDERS.items(), ids=[m[:80] for m in FOLDERS])
def test_folder(here, message, what):
    name, column, values = what
    small.change(small.write(here / "g"), name, **{column: values})
    assert error_line(lambda: read_folder("g")).startswith(message)


def test_folder_files(here):
    assert error_line(lambda: read_folder(None)) == "'folder' must be a path, got None"
    assert error_line(lambda: snaps.Graph.from_parquet("g")) == "cannot read 'g': no such folder"
    small.write(here / "g")
    assert error_line(lambda: read_folder("g/nodes.parquet")) == (
        "cannot read 'g/nodes.parquet': no such folder"
    )
    for name in ("nodes.parquet", "edges.parquet"):
        path = here / "g" / name
        whole = path.read_bytes()
        for content in (b"", b"id,probs\n", whole[: len(whole) // 2], whole[:-3], whole[9:]):
            path.write_bytes(content)
            damaged = f"cannot read 'g/{name}': damaged or not a Parquet file"
            assert error_line(lambda: read_folder("g")) == damaged
        path.unlink()
        assert error_line(lambda: read_folder("g")) == f"cannot read 'g/{name}': no such file"
        path.write_bytes(whole)


def test_folder_with_text_that_is_none(here):
    small.write(here / "g")
    damaged = pa.array([b"\xff%d" % i for i in range(N)], pa.binary()).view(pa.string())
    small.change(here / "g", "nodes", id=damaged)
    message = "cannot read 'g/nodes.parquet': damaged or not a Parquet file"
    assert error_line(lambda: read_folder("g")) == message


def test_folder_of_part_files(here):
    small.write(here / "g")
    file = here / "g" / "nodes.parquet"
    whole = file.read_bytes()
    file.unlink()
    file.mkdir()
    assert error_line(lambda: read_folder("g")) == "nodes.parquet must have a column 'id', got none"
    (file / "part-0.parquet").write_bytes(whole)
    (file / "part-1.parquet").write_bytes(whole[:100])
    broken = "cannot read 'g/nodes.parquet/part-1.parquet': damaged or not a Parquet file"
    assert error_line(lambda: read_folder("g")) == broken
    (file / "part-1.parquet").write_bytes(whole)
    assert error_line(lambda: read_folder("g")).startswith(f"{NODE} 'id' must be unique, got node-")
    (file / "part-1.parquet").write_bytes(b"")
    small.change(file, "part-0", label=LABELS.astype(str))
    (file / "part-1.parquet").write_bytes(whole)
    broken = (
        "cannot read 'g/nodes.parquet': a file in it is damaged, not Parquet or unlike the others"
    )
    assert error_line(lambda: read_folder("g")) == broken


def test_folder_without_nodes(here):
    small.write(here / "g")
    none = {"id": [], "probs": None, "features": None, "label": None, "role": None}
    small.change(here / "g", "nodes", **none)
    message = "'g/nodes.parquet' must hold at least one node, got none"
    assert error_line(lambda: read_folder("g")) == message
    assert error_line(lambda: snaps.Graph.from_parquet("g")) == message


FEATURE_FILES = {
    "'g/features.npz' must hold 'x' or 'x_data', 'x_indices', 'x_indptr', 'x_shape'": {"y": PROBS},
    "'g/features.npz' must have one row a node (60), got 59": {"x": PROBS[1:]},
    "'g/features.npz' must hold the array 'x_indices' next to 'x_indptr'": {
        "x_indptr": [0],
        "x_data": [],
        "x_shape": [60, 2],
    },
    "'g/features.npz' must hold the array 'shape' next to 'format'": {"format": b"csr"},
    "'g/features.npz' must hold the array 'data' next to 'format'": {
        "format": b"csr",
        "shape": [60, 2],
    },
    "'g/features.npz' must hold the array 'col' next to 'format'": {
        "format": "coo",
        "shape": [60, 2],
        "data": [],
        "row": [],
    },
    "'g/features.npz' must have a format among csr, csc, bsr, coo, dia, got 'lil'": {
        "format": b"lil",
    },
}


@pytest.mark.parametrize("message, arrays", FEATURE_FILES.items(), ids=list(FEATURE_FILES))
def test_features_beside_a_folder(here, message, arrays):
    small.change(small.write(here / "g"), "nodes", features=None)
    np.savez(here / "g" / "features.npz", **arrays)
    assert error_line(lambda: read_folder("g")) == message


WRITING = {
    "'folder' must be a path, got 3": (3,),
    "'graph' must be a snaps.Graph, got ndarray": ("g", PROBS),
    "'probs' must have shape (60, classes), got (59, 3)": ("g", small.graph(), PROBS[1:]),
    "'labels' must lie from 0 to 2, or be -1 where unknown, got 3 at node 0; "
    "pass classes=[...] (--classes) in the order of the columns of probs, or name the columns": (
        "g",
        small.graph(),
        PROBS,
        changed(LABELS, 0, 3),
    ),
    "'probs' must hold numbers, got bool": ("g", small.graph(), PROBS > 0.5),
    "'roles' must have one entry a node (60), got 2": (
        "g",
        small.graph(),
        PROBS,
        LABELS,
        ["calib", "test"],
    ),
    "'roles' must be a list of integers or of strings, got ['calib', None]": (
        "g",
        small.graph(),
        PROBS,
        LABELS,
        ["calib", None],
    ),
    "'roles' must be one of train, valid, tune, calib, test or empty, got 'dev' in row 0": (
        "g",
        small.graph(),
        PROBS,
        LABELS,
        ["dev"] * N,
    ),
    "cannot write 'file/g': Not a directory": ("file/g", small.graph(), PROBS),
}


@pytest.mark.parametrize("message, arguments", WRITING.items(), ids=list(WRITING))
def test_writing_a_folder(here, message, arguments):
    (here / "file").touch()
    arguments = (*arguments, small.graph(), PROBS)[:3] + arguments[3:]
    assert error_line(lambda: write_folder(*arguments)) == message
    assert [path.name for path in here.iterdir()] == ["file"]


# ---- Saving --------------------------------------------------------------------------------------

PLACES = {
    "nowhere/x": "there is no folder '{here}/nowhere'",
    "file/x": "there is no folder '{here}/file'",
    "folder": "it is a folder",
    "pipe": "it is not a regular file",
}


@pytest.mark.parametrize("place, reason", PLACES.items(), ids=[p[:20] for p in PLACES])
@pytest.mark.parametrize("what", ["estimator", "sets"])
def test_places_that_cannot_be_written(here, what, place, reason):
    (here / "folder").mkdir()
    (here / "file").touch()
    os.mkfifo("pipe")
    cp = small.calibrated()
    write = cp.save if what == "estimator" else cp.predict_set().to_parquet
    assert error_line(lambda: write(place)) == f"cannot write '{place}': {reason.format(here=here)}"
    assert error_line(lambda: write(7)) == "'path' must be a path, got 7"


def test_names_of_files_may_have_255_bytes(here):
    cp = small.calibrated()
    cp.save("é" * 125 + ".suff")
    assert snaps.load("é" * 125 + ".suff").alpha == cp.alpha
    shown, rule = "x" * 27 + "..." + "x" * 28, "its name must have at most 255 bytes, got 256"
    assert error_line(lambda: cp.save("x" * 256)) == f"cannot write '{shown}': {rule}"
    assert error_line(lambda: read_folder("x" * 256)).endswith("': no such folder")
    message = error_line(lambda: write_folder("x" * 256, small.graph(), PROBS))
    assert message.startswith("cannot write 'xxx") and message.endswith(": File name too long")
    assert error_line(lambda: snaps.load("x" * 256)).endswith("': File name too long")


def test_a_folder_without_permission(here, monkeypatch):
    """Root may write anywhere, so the answer of the system is made up."""
    monkeypatch.setattr("os.access", lambda path, mode: False)
    message = error_line(lambda: small.calibrated().save("x.npz"))
    assert message == f"cannot write 'x.npz': no permission in '{here}'"


def test_what_cannot_be_saved(here):
    known = "must be one of"
    own_score = small.calibrated(snaps.SplitConformal(0.2, score=Halves()))
    message = f"'score' {known} APS, RAPS, SAPS, THR to be saved, got Halves"
    assert error_line(lambda: own_score.save("x.npz")) == message
    own_class = small.calibrated(MySNAPS(0.2, k=5, weights=(0.2, 0.2)))
    estimators = "SNAPS, Pooled, DAPS, SplitConformal, EmbeddedSNAPS"
    message = f"the estimator {known} {estimators} to be saved, got MySNAPS"
    assert error_line(lambda: own_class.save("x.npz")) == message
    assert list(here.iterdir()) == []
