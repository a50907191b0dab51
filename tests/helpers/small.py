"""A small graph with everything an estimator asks for, for tests that need just any."""

from __future__ import annotations

import os
import warnings
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import snaps
from snaps.datasets import make_graph
from snaps.folder import write_folder
from snaps.io.files import _open_nameless
from snaps.models import smoothed_regression

HERE = Path(__file__).parents[1]
NUM_NODES, NUM_CLASSES = 60, 3
CALIB, TEST = np.arange(30), np.arange(30, NUM_NODES)
ROLES = np.where(np.arange(NUM_NODES) < 30, "calib", "test").astype("U5")
NAMES = np.array([f"node-{(7 * i) % NUM_NODES}" for i in range(NUM_NODES)])

_RANDOM = np.random.default_rng(5)
EDGES = _RANDOM.integers(0, NUM_NODES, (2, 90))
FEATURES = _RANDOM.random((NUM_NODES, 4)).round(3)
PROBS = _RANDOM.dirichlet(np.ones(NUM_CLASSES), NUM_NODES)
LABELS = _RANDOM.integers(0, NUM_CLASSES, NUM_NODES)


def graph(**options):
    return snaps.Graph(EDGES, FEATURES, NUM_NODES, **options)


def calibrated(method=None, *, named=False, **options):
    """A calibrated estimator, by default SNAPS with fixed weights."""
    method = snaps.SNAPS(0.2, k=5, weights=(0.3, 0.2)) if method is None else method
    nodes = graph(ids=NAMES) if named else graph()
    return method.calibrate(nodes, PROBS, LABELS, CALIB, **options)


def write(folder, *, labels=LABELS, roles=ROLES, **options):
    """A graph folder with string ids."""
    write_folder(folder, graph(ids=NAMES, **options), PROBS, labels, roles)
    return folder


def change(folder, name, **columns):
    """Rewrite a file of a graph folder with other columns.

    A column is given by its values, or a function of the old ones, or None to leave it out.
    """
    path = folder / f"{name}.parquet"
    old = pq.read_table(path)
    new = dict(zip(old.column_names, old.columns, strict=True))
    for column, values in columns.items():
        new[column] = values(new[column].to_pylist()) if callable(values) else values
    pq.write_table(pa.table({k: v for k, v in new.items() if v is not None}), path)


def can_be_nameless(folder):
    """Whether the file system of a folder has files without a name."""
    handle = _open_nameless(folder)
    if handle is not None:
        os.close(handle)
    return handle is not None


def error_line(call, *arguments, **options) -> str:
    """The one line of the error that a call raises."""
    with pytest.raises(snaps.SnapsError) as caught:
        call(*arguments, **options)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def noted(call, *arguments, **options):
    """What a call returns, and the warnings it gives."""
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        result = call(*arguments, **options)
    ours = [warning for warning in recorded if issubclass(warning.category, snaps.SnapsWarning)]
    assert all(Path(warning.filename).is_relative_to(HERE) for warning in ours), [
        warning.filename for warning in ours
    ]
    return result, [str(warning.message) for warning in ours]


class Case(NamedTuple):
    """A synthetic graph with names, whose first nodes trained the classifier."""

    graph: snaps.Graph
    probs: np.ndarray
    labels: np.ndarray
    pool: np.ndarray
    similarity: sp.csr_array
    bands: np.ndarray


@cache
def made():
    """400 nodes in three classes, in bands by degree; 40 of them trained the classifier."""
    data = make_graph(400, 3, homophily=0.7, seed=3)
    names = np.array([f"v{(37 * i) % 400:03}" for i in range(400)])
    graph = snaps.Graph(data.graph.adjacency, data.graph.features, ids=names)
    probs = smoothed_regression(graph, data.labels, np.arange(40))
    degrees = np.diff(graph.adjacency.indptr)
    bands = np.digitize(degrees, np.quantile(degrees, [0.4, 0.7]))
    similar = snaps.similarity_graph(graph.features, k=20, ids=graph.keys)
    return Case(graph, probs, data.labels, np.arange(40, 400), similar, bands)
