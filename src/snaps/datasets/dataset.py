"""`Dataset`: a graph with labels, prepared as in the paper and compared with its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from snaps._checks import check_labels, check_nodes
from snaps.datasets.registry import Spec, Statistics
from snaps.errors import SnapsError
from snaps.graph import Graph, graph_from_arrays
from snaps.io.files import GRAPH_ARRAYS

Arrays = Mapping[str, np.ndarray]

# The paper cuts percentages to two digits, and Chameleon's and Squirrel's to none.
_HOMOPHILY_TOLERANCE = 0.005
_ARRAYS = (
    *GRAPH_ARRAYS, "y", "x_is_surrogate", "train_idx", "valid_idx", "test_idx", "split_code",
    "geom_split_code", "edge_index_directed",
)  # fmt: skip


# Without eq=False two data sets would be compared array by array, which raises.
@dataclass(frozen=True, eq=False)
class Dataset:
    """A named graph with one label a node, -1 where unknown.

    Attributes
    ----------
    name : str
    graph : Graph
    labels : ndarray (n,)
    splits : mapping of str to ndarray
        Public splits, if there are any: "train", "valid" and "test" hold node positions;
        "geom_gcn" (10, n) holds ten splits as codes: 1 train, 2 valid, 3 test, 0 unused.
    notes : tuple of str
        What a table of results on this data must say, such as features that are a surrogate.
    directed_edges : ndarray (2, E) or None
        The original directed edges with their self loops, where these are known; `graph` links
        both ways.

    Examples
    --------
    >>> data = Dataset("pair", Graph([[0], [1]]), np.array([0, 1]))
    >>> data
    Dataset(name='pair', graph=Graph(2 nodes, 1 edges, no features))
    >>> data.num_classes
    2
    """

    name: str
    graph: Graph
    labels: np.ndarray = field(repr=False)
    splits: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = field(default=(), repr=False)
    directed_edges: np.ndarray | None = field(default=None, repr=False)

    @property
    def num_classes(self) -> int:
        """One more than the largest label."""
        return int(self.labels.max()) + 1


def build(spec: Spec, arrays: Arrays, path: Any) -> Dataset:
    """Prepare a graph as the paper does, and compare its statistics with the paper's."""
    arrays = {name: arrays[name] for name in _ARRAYS if name in arrays}
    surrogate = bool(np.any(arrays.get("x_is_surrogate", False)))
    # A surrogate is a dense embedding: its positive values mean something.
    if spec.binary and not surrogate:
        for part in arrays.keys() & {"x", "x_data"}:
            arrays[part] = np.where(arrays[part] > 0, np.float32(1), arrays[part])
    graph = graph_from_arrays(arrays, path)
    labels = _labels(arrays, graph.num_nodes, path)
    splits, directed = {}, None
    if spec.smallest_class:
        graph, labels = _without_small_classes(graph, labels, spec.smallest_class)
    else:
        splits = _splits(arrays, graph.num_nodes, path)
        directed = _directed_edges(arrays, graph.num_nodes, path)
    if spec.directed and directed is None:
        raise SnapsError(f"'{path}' must hold the array 'edge_index_directed'")
    dataset = Dataset(spec.name, graph, labels, splits, directed_edges=directed)
    actual = statistics(dataset, directed=spec.directed)
    return replace(dataset, notes=_deviations(spec, actual, surrogate, path))


def _labels(arrays: Arrays, num_nodes: int, path: Any) -> np.ndarray:
    if "y" not in arrays:
        raise SnapsError(f"'{path}' must hold the array 'y', got {sorted(arrays)[:8]}")
    labels = arrays["y"]
    top = int(labels.max()) if labels.size and labels.dtype.kind in "iu" else 0
    return check_labels(labels, f"y of {path}", num_nodes=num_nodes, num_classes=top + 1)


def _without_small_classes(
    graph: Graph, labels: np.ndarray, smallest: int
) -> tuple[Graph, np.ndarray]:
    """The subgraph of the classes that are large enough, relabelled 0, 1, ... in their order."""
    classes, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    large = (sizes >= smallest) & (classes >= 0)
    keep = np.flatnonzero(large[codes])
    features = None if graph.features is None else graph.features[keep]
    renumbered = np.cumsum(large) - 1
    return Graph(graph.adjacency[keep][:, keep], features), renumbered[codes[keep]]


def _splits(arrays: Arrays, num_nodes: int, path: Any) -> dict[str, np.ndarray]:
    splits = {
        part: check_nodes(arrays[f"{part}_idx"], f"{part}_idx of {path}", num_nodes=num_nodes)
        for part in ("train", "valid", "test")
        if f"{part}_idx" in arrays
    }
    for name in ("split_code", "geom_split_code"):
        if name in arrays:
            splits["geom_gcn"] = codes = arrays[name]
            if codes.ndim != 2 or codes.shape[1] != num_nodes:
                raise SnapsError(
                    f"'{name} of {path}' must have shape (splits, {num_nodes}), got {codes.shape}"
                )
    return splits


def _directed_edges(arrays: Arrays, num_nodes: int, path: Any) -> np.ndarray | None:
    edges, name = arrays.get("edge_index_directed"), f"'edge_index_directed of {path}'"
    if edges is None:
        return None
    if edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
        raise SnapsError(
            f"{name} must be integers of shape (2, edges), got {edges.dtype} {edges.shape}"
        )
    if edges.size and not (0 <= edges.min() and edges.max() < num_nodes):
        raise SnapsError(f"{name} must lie from 0 to {num_nodes - 1}")
    return edges


def statistics(dataset: Dataset, *, directed: bool = False) -> Statistics:
    """Count what the paper's table counts; the original directed edges if `directed`."""
    adjacency, labels = dataset.graph.adjacency, dataset.labels.astype(np.int32)
    features, edges = dataset.graph.features, int(adjacency.nnz)
    if directed and dataset.directed_edges is not None:
        edges = dataset.directed_edges.shape[1]
    equal = np.repeat(labels, np.diff(adjacency.indptr)) == labels[adjacency.indices]
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
