"""`read`: from a file to a dataset, prepared as in the paper and held against its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from snaps._checks import check_labels, check_nodes
from snaps.datasets.dataset import Dataset
from snaps.datasets.files import cache_dir, check_sha256
from snaps.datasets.registry import Spec, Statistics
from snaps.errors import SnapsError
from snaps.graph import Graph, graph_from_arrays
from snaps.io.files import GRAPH_ARRAYS, open_npz

# The paper cuts percentages to two digits, and Chameleon's and Squirrel's to none.
_HOMOPHILY_TOLERANCE = 0.005
_ARRAYS = (
    *GRAPH_ARRAYS, "y", "x_is_surrogate", "train_idx", "valid_idx", "test_idx", "split_code",
    "geom_split_code", "edge_index_directed",
)  # fmt: skip


def read(spec: Spec, path: Path) -> Dataset:
    """Read a file, compare its checksum and build the dataset."""
    try:
        with open_npz(path) as arrays:
            check_sha256(spec, path)
            return build(spec, arrays, path)
    except SnapsError as error:
        if path.parent == cache_dir():
            remedy = f"get it anew: snaps datasets fetch {spec.name}"
        else:
            remedy = f"replace it, or remove it to have '{spec.name}' from the cache or upstream"
        raise SnapsError(f"{error}; {remedy}") from error


def build(spec: Spec, arrays: Mapping[str, np.ndarray], path: Any) -> Dataset:
    """Prepare a graph as the paper does, and hold its statistics against the paper's."""
    arrays = {name: arrays[name] for name in _ARRAYS if name in arrays}
    surrogate = bool(np.any(arrays.get("x_is_surrogate", False)))
    # A surrogate is a dense embedding: its positive values mean something.
    if spec.binary and not surrogate:
        for part in ("x", "x_data"):
            if part in arrays:
                arrays[part] = np.where(arrays[part] > 0, np.float32(1), arrays[part])
    graph = graph_from_arrays(arrays, path)
    labels = _labels(arrays, graph.num_nodes, path)
    splits: dict[str, np.ndarray] = {}
    directed = None
    if spec.smallest_class:
        graph, labels = _without_small_classes(graph, labels, spec.smallest_class)
    else:
        splits = _splits(arrays, graph.num_nodes, path)
        directed = _directed_edges(arrays, graph.num_nodes, path)
    if spec.directed and directed is None:
        raise SnapsError(f"'{path}' must hold the array 'edge_index_directed'")
    plain = Dataset(spec.name, graph, labels, splits, directed_edges=directed)
    notes = _deviations(spec, statistics(plain, directed=spec.directed), surrogate, path)
    return Dataset(spec.name, graph, labels, splits, notes, directed)


def _labels(arrays: Mapping[str, np.ndarray], num_nodes: int, path: Any) -> np.ndarray:
    if "y" not in arrays:
        raise SnapsError(f"'{path}' must hold the array 'y', got {sorted(arrays)[:8]}")
    labels = arrays["y"]
    top = int(labels.max()) if labels.size and labels.dtype.kind in "iu" else 0
    return check_labels(labels, f"y of {path}", num_nodes=num_nodes, num_classes=top + 1)


def _without_small_classes(
    graph: Graph, labels: np.ndarray, smallest: int
) -> tuple[Graph, np.ndarray]:
    """The subgraph of the classes that are large enough, relabelled 0, 1, ... in their order."""
    classes, where, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    large = (sizes >= smallest) & (classes >= 0)
    keep = np.flatnonzero(large[where])
    features = None if graph.features is None else graph.features[keep]
    renumbered = np.cumsum(large) - 1
    return Graph(graph.adjacency[keep][:, keep], features), renumbered[where[keep]]


def _splits(arrays: Mapping[str, np.ndarray], num_nodes: int, path: Any) -> dict[str, np.ndarray]:
    splits = {
        part: check_nodes(arrays[f"{part}_idx"], f"{part}_idx of {path}", num_nodes=num_nodes)
        for part in ("train", "valid", "test")
        if f"{part}_idx" in arrays
    }
    for name in ("split_code", "geom_split_code"):
        if name not in arrays:
            continue
        if arrays[name].ndim != 2 or arrays[name].shape[1] != num_nodes:
            raise SnapsError(
                f"'{name} of {path}' must have shape (splits, {num_nodes}), "
                f"got {arrays[name].shape}"
            )
        splits["geom_gcn"] = arrays[name]
    return splits


def _directed_edges(
    arrays: Mapping[str, np.ndarray], num_nodes: int, path: Any
) -> np.ndarray | None:
    edges = arrays.get("edge_index_directed")
    if edges is None:
        return None
    if edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
        raise SnapsError(
            f"'edge_index_directed of {path}' must be integers of shape (2, edges), "
            f"got {edges.dtype} {edges.shape}"
        )
    if edges.size and not (0 <= edges.min() and edges.max() < num_nodes):
        raise SnapsError(f"'edge_index_directed of {path}' must lie from 0 to {num_nodes - 1}")
    return edges


def statistics(dataset: Dataset, *, directed: bool = False) -> Statistics:
    """Count what the paper's table counts; the original directed edges if `directed`."""
    adjacency, labels = dataset.graph.adjacency, dataset.labels.astype(np.int32)
    if directed and dataset.directed_edges is not None:
        edges = dataset.directed_edges.shape[1]
    else:
        edges = int(adjacency.nnz)
    equal = np.repeat(labels, np.diff(adjacency.indptr)) == labels[adjacency.indices]
    features = dataset.graph.features
    return Statistics(
        nodes=dataset.graph.num_nodes,
        features=0 if features is None else features.shape[1],
        edges=edges,
        classes=len(np.unique(labels[labels >= 0])),
        homophily=float(equal.mean()) if equal.size else 0.0,
    )


def _deviations(spec: Spec, actual: Statistics, surrogate: bool, path: Any) -> tuple[str, ...]:
    """Notes on what is known to differ from the paper's table; anything else is an error."""
    table = "the paper's table" if spec.in_paper else "the data manifest"
    notes, errors = [], []
    expected = asdict(spec.statistics)
    for name, value in asdict(actual).items():
        due = expected[name]
        if name == "homophily":
            if abs(value - due) > _HOMOPHILY_TOLERANCE:
                errors.append(f"{name} {value:.4f} instead of {due:.4f}")
        elif name == "features" and surrogate:
            notes.append(f"features are a surrogate: {value} columns instead of {due}")
        elif value in spec.corrections.get(name, ()):
            notes.append(f"{value} {name}, where {table} says {due}")
        elif value != due:
            errors.append(f"{value} {name} instead of {due}")
    if errors:
        raise SnapsError(f"'{path}' is not the graph of {table}: {', '.join(errors)}")
    return tuple(notes)
