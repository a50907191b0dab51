"""A graph, a folder of it, and memory that is short."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

import snaps._runtime.memory as memory
from snaps.datasets import make_graph
from snaps.folder import write_folder
from snaps.models import smoothed_regression
from tests.scale.common import N


@pytest.fixture(scope="session")
def data():
    made = make_graph(N, 5, seed=3)
    order = np.random.default_rng(0).permutation(N)
    probs = smoothed_regression(made.graph, made.labels, order[:100])
    return made, probs, order[:100], order[100:500], order[500:]


@pytest.fixture
def in_blocks(monkeypatch):
    """All tables are large, and blocks hold few rows."""
    monkeypatch.setattr(memory, "LARGE", 1)
    monkeypatch.setattr(memory, "BLOCK", 1 << 12)


@pytest.fixture
def folder(tmp_path, monkeypatch, data):
    """A graph folder whose files have many row groups."""
    made, probs, known, calib, _ = data
    roles = np.full(N, "test", "U5")
    roles[known], roles[calib] = "valid", "calib"
    write_folder(tmp_path / "g", made.graph, probs, made.labels, roles)
    for name in ("nodes", "edges"):
        path = tmp_path / "g" / f"{name}.parquet"
        pq.write_table(pq.read_table(path), path, row_group_size=100)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "g"
