"""Files of a folder that belong together, and those that do not."""

from __future__ import annotations

import os
import shutil
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import snaps
from snaps.folder import read_folder, write_folder
from tests.helpers import small
from tests.helpers.small import LABELS, NAMES, PROBS, ROLES


def two_folders(tmp_path, features=None):
    """Folders of unlike graphs, whose files have the same rows and columns."""
    random = np.random.default_rng(9)
    for name in ("one", "two"):
        graph = snaps.Graph(random.integers(0, 60, (2, 90)), features, 60, ids=NAMES)
        write_folder(tmp_path / name, graph, PROBS, random.integers(0, 3, 60), ROLES)
    return tmp_path / "one", tmp_path / "two"


def refused_as_mixed(folder, name):
    message = (
        f"'{folder}' must hold files that were written together, got '{name}' of another graph"
    )
    for read in (read_folder, snaps.Graph.from_parquet):
        assert small.error_line(read, folder) == f"{message} than 'nodes.parquet'"


@pytest.mark.parametrize("name", ["nodes.parquet", "edges.parquet", "features.npz"])
def test_a_folder_replaced_half_way_is_refused(tmp_path, name):
    """Stopping between two files leaves the edges of one graph and the labels of another."""
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
        message = f"cannot read '{tmp_path}/nodes.parquet': no such file"
        assert small.error_line(read_folder, tmp_path) == message


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
    message = f"'{one}' must hold the features.npz that belongs to 'nodes.parquet'"
    assert small.error_line(read_folder, one) == message
    (one / "features.npz").write_bytes(whole)
    np.save(one / "features.npy", small.FEATURES)
    message = f"'{one}' must have features in one place, got features.npz and features.npy"
    assert small.error_line(read_folder, one) == message
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
    message = f"'{one}' must not change while it is read: read it again"
    assert small.error_line(read_folder, one) == message
    monkeypatch.undo()
    read_folder(one)
