"""Features of a folder: in every form, in two places, and while they change."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import snaps
import snaps._runtime.memory as memory
from snaps.folder import read_folder, write_folder
from snaps.io import features as _feature_files
from tests.helpers import small
from tests.helpers.folders import FEATURES, refusal, same_folder
from tests.helpers.small import LABELS, NUM_NODES, PROBS, ROLES


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
    for shape, shown_shape in (((), "()"), ((NUM_NODES,), "(60,)")):
        np.save(path, np.ones(shape))
        assert (
            refusal(tmp_path)
            == f"'g/features.npy' must have shape (nodes, features), got {shown_shape}"
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
    outputs = []
    for what in ("left alone", way):
        command = [sys.executable, "-c", CHANGED, what]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]


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
    message = "'g' must have features in one place, got features.npz and features.npy"
    assert refusal(tmp_path) == message


@pytest.mark.parametrize("features", FEATURES)
def test_writing_over_a_folder_leaves_no_features_of_the_old_one(tmp_path, features):
    (tmp_path / "features.npy").write_bytes(b"old")
    (tmp_path / "features.npz").write_bytes(b"old")
    graph = snaps.Graph(small.EDGES, FEATURES[features], NUM_NODES)
    write_folder(tmp_path, graph, PROBS, LABELS, ROLES)
    same_folder(read_folder(tmp_path), graph)
