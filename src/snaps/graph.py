"""`Graph`: who is linked to whom, and what each node looks like. No labels, no roles."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._checks import check_flag, check_integer, shown, to_numpy
from snaps._errors import SnapsError
from snaps._files import read_npz
from snaps._randomness import node_keys

MOST_NODES = 2**31 - 1


class Graph:
    """An adjacency, and features if there are any.

    Parameters
    ----------
    edges : sparse (n, n), integer array (2, E), or None
        Non-zero entries or columns are edges; weights are ignored. None is a graph without edges.
    features : array (n, d), sparse (n, d), or None
    num_nodes : int, optional
        Needed when neither a square matrix nor features tell.
    ids : array (n,), optional
        The nodes' own names, integers or strings; positions by default. Random draws and ties
        depend on a node's id, not on its position, so reordering the nodes changes no result.
    directed : bool
        Keep the edges' direction (row i then lists the targets of i). By default an edge links
        both ways.
    self_loops : bool
        Keep edges from a node to itself; dropped by default.

    Attributes
    ----------
    adjacency : csr_array (n, n) of ones, without duplicates
    features : ndarray (n, d), csr_array (n, d) or None
    ids : ndarray (n,)

    Examples
    --------
    >>> Graph([[0, 1, 1], [1, 2, 1]], num_nodes=4)
    Graph(4 nodes, 2 edges, no features)
    """

    def __init__(
        self,
        edges: Any,
        features: Any = None,
        num_nodes: int | None = None,
        *,
        ids: Any = None,
        directed: bool = False,
        self_loops: bool = False,
    ):
        if num_nodes is not None:
            num_nodes = check_integer(num_nodes, "num_nodes", low=1)
        self.features: Any = None if features is None else check_features(features)
        source, target, told = _edge_list(edges)
        if ids is not None:
            ids = check_ids(ids, "'ids'")
        counts = {
            "num_nodes": num_nodes,
            "features": None if self.features is None else self.features.shape[0],
            "edges": told,
            "ids": None if ids is None else len(ids),
        }
        known = {name: count for name, count in counts.items() if count is not None}
        listed = ", ".join(f"'{name}' {count}" for name, count in known.items())
        if len(set(known.values())) > 1:
            raise SnapsError(f"the number of nodes must agree, got {listed}")
        if known and not 1 <= max(known.values()) <= MOST_NODES:
            raise SnapsError(f"the number of nodes must lie from 1 to {MOST_NODES}, got {listed}")
        if known:
            self.num_nodes = next(iter(known.values()))
        elif source.size:
            self.num_nodes = min(int(max(source.max(), target.max())) + 1, MOST_NODES)
        else:
            raise SnapsError("'num_nodes' must be given for a graph without edges and features")
        if source.size and (top := int(max(source.max(), target.max()))) >= self.num_nodes:
            raise SnapsError(f"'edges' must lie from 0 to {self.num_nodes - 1}, got {top}")
        self.ids = np.arange(self.num_nodes) if ids is None else ids
        self.directed = check_flag(directed, "directed")
        self.adjacency = self._build(source, target, check_flag(self_loops, "self_loops"))

    def _build(self, source: np.ndarray, target: np.ndarray, self_loops: bool) -> sp.csr_array:
        if not self_loops:
            keep = source != target
            if not keep.all():
                source, target = source[keep], target[keep]
        if not self.directed:
            source, target = np.concatenate([source, target]), np.concatenate([target, source])
        shape = (self.num_nodes, self.num_nodes)
        ones = np.ones(len(source), np.float32)
        adjacency = sp.coo_array((ones, (source, target)), shape=shape).tocsr()
        adjacency.sum_duplicates()
        adjacency.data[:] = 1
        return _in_order_of(self.keys, adjacency)

    @cached_property
    def keys(self) -> np.ndarray:
        """One 64-bit key a node, made from its id: what random draws and ties look at."""
        return node_keys(self.ids)

    def positions(self, ids: Any) -> np.ndarray:
        """Where the nodes with these ids stand."""
        wanted = [ids] if isinstance(ids, (str, int, np.integer)) else ids
        return locate(self.ids, check_ids(wanted, "'ids'", unique=False), "'ids'")

    @property
    def num_edges(self) -> int:
        """Edges, each counted once unless the graph is directed."""
        if self.directed:
            return int(self.adjacency.nnz)
        loops = int(np.count_nonzero(self.adjacency.diagonal()))
        return (int(self.adjacency.nnz) + loops) // 2

    def __repr__(self) -> str:
        features = "no features" if self.features is None else f"{self.features.shape[1]} features"
        return f"Graph({self.num_nodes} nodes, {self.num_edges} edges, {features})"

    @classmethod
    def from_pyg(cls, data: Any, **options: Any) -> Graph:
        """Take `edge_index`, `x` and `num_nodes` of a torch_geometric `Data`."""
        edges = getattr(data, "edge_index", None)
        if edges is None:
            raise SnapsError(f"'data' must have an edge_index, got {type(data).__name__} without")
        num_nodes = getattr(data, "num_nodes", None)
        return cls(edges, features=getattr(data, "x", None), num_nodes=num_nodes, **options)

    @classmethod
    def from_networkx(cls, graph: Any, features: Any = None, **options: Any) -> Graph:
        """Take a NetworkX graph; position i is the i-th of `graph.nodes`, and its id is its name.

        Parameters
        ----------
        graph : networkx.Graph
        features : str, mapping or array, optional
            The node attribute that holds a feature vector; or a mapping from node to vector; or
            rows in the order of `graph.nodes`.
        """
        if not hasattr(graph, "nodes") or not hasattr(graph, "edges"):
            raise SnapsError(f"'graph' must be a NetworkX graph, got {type(graph).__name__}")
        nodes = list(graph.nodes)
        if not nodes:
            raise SnapsError("'graph' must have at least one node, got none")
        position = {node: i for i, node in enumerate(nodes)}
        edges = np.array([(position[u], position[v]) for u, v in graph.edges()], np.int64)
        if isinstance(features, str):
            features = {node: graph.nodes[node].get(features) for node in nodes}
        if isinstance(features, Mapping):
            missing = next((node for node in nodes if features.get(node) is None), None)
            if missing is not None:
                raise SnapsError(
                    f"'features' must be given for every node, got none for {shown(missing)}"
                )
            features = [to_numpy(features[node], "features") for node in nodes]
        integers = all(isinstance(node, (int, np.integer)) for node in nodes)
        ids = np.array(nodes if integers else [str(node) for node in nodes])
        return cls(edges.reshape(-1, 2).T, features, len(nodes), ids=ids, **options)

    @classmethod
    def from_npz(cls, path: str | os.PathLike[str], **options: Any) -> Graph:
        """Read an .npz with `adj_indptr`, `adj_indices` and `x`, or `x_data`, `x_indices`,
        `x_indptr` and `x_shape`, or no features."""
        return graph_from_arrays(read_npz(path), path, **options)

    @classmethod
    def from_parquet(cls, folder: str | os.PathLike[str], **options: Any) -> Graph:
        """Read the graph of a folder with nodes.parquet and edges.parquet (see `snaps.folder`)."""
        from snaps.folder import read_folder

        return read_folder(folder, graph_only=True, **options).graph


def graph_from_arrays(arrays: Mapping[str, np.ndarray], path: Any, **options: Any) -> Graph:
    """Build a graph from the arrays of an .npz; see `Graph.from_npz`."""
    for name in ("adj_indptr", "adj_indices"):
        if name not in arrays:
            raise SnapsError(f"'{path}' must hold the array '{name}', got {sorted(arrays)[:8]}")
    shape = (arrays["adj_indptr"].size - 1,) * 2
    adjacency = csr_from_arrays(arrays, "adj", f"'{path}'", shape)
    return Graph(adjacency, features_from_arrays(arrays, path), **options)


def features_from_arrays(arrays: Mapping[str, np.ndarray], path: Any) -> Any:
    """The features among the arrays of an .npz: `x`, or `x_data` and its kin, or None."""
    if "x" in arrays or "x_indptr" not in arrays:
        return arrays.get("x")
    missing = {"x_data", "x_indices", "x_shape"} - set(arrays)
    if missing:
        raise SnapsError(f"'{path}' must hold the array '{min(missing)}' beside 'x_indptr'")
    shape = tuple(arrays["x_shape"].reshape(-1).tolist())
    return csr_from_arrays(arrays, "x", f"'{path}'", shape)


def locate(ids: np.ndarray, wanted: np.ndarray, name: str) -> np.ndarray:
    """Positions of `wanted` among unique `ids`."""
    if wanted.size == 0:
        return np.empty(0, np.int64)
    if (ids.dtype.kind == "U") != (wanted.dtype.kind == "U"):
        raise SnapsError(f"{name} must be of the type of the nodes' ids, got {wanted.dtype}")
    n = len(ids)
    if ids.dtype.kind in "iu" and ids[0] == 0 and ids[-1] == n - 1 and (np.diff(ids) == 1).all():
        missing = (wanted < 0) | (wanted >= n)
        place = wanted.astype(np.int64, copy=False)
    else:
        order = np.argsort(ids, kind="stable")
        # Searched for in the ids' own type: between types NumPy would search among floats. What
        # the cast changes is no id, as the comparison then tells.
        found = np.searchsorted(ids[order], wanted.astype(ids.dtype))
        place = order[np.minimum(found, n - 1)]
        missing = ids[place] != wanted
    if missing.any():
        raise SnapsError(f"{name} must name nodes of the graph, got {wanted[missing][0]}")
    return place


def csr_from_arrays(
    arrays: Mapping[str, np.ndarray], name: str, file: str, shape: Any
) -> sp.csr_array:
    """The matrix that the arrays `name`_indptr, `name`_indices and `name`_data (or ones) make."""
    indptr, indices = arrays[f"{name}_indptr"], arrays[f"{name}_indices"]
    data = arrays.get(f"{name}_data")
    try:
        if indptr.dtype.kind not in "iu" or indices.dtype.kind not in "iu":
            raise TypeError("indptr and indices must be integers")  # SciPy would cut floats
        if data is None:
            data = np.ones(indices.shape, np.float32)
        matrix = sp.csr_array((data, indices, indptr), shape=shape)
        matrix.check_format(full_check=True)
    except Exception as error:  # SciPy has no one error for what may be wrong
        raise SnapsError(f"{file} must hold a valid sparse matrix '{name}_*': {error}") from error
    return matrix


def check_features(features: Any, name: str = "features") -> np.ndarray | sp.csr_array:
    """Features as a float array (n, d), dense or CSR, all finite."""
    if _is_torch_sparse(features):
        features = _from_torch_sparse(features, name)
    if sp.issparse(features):
        table = sp.csr_array(features)
        if not table.has_canonical_format:
            table = table.copy()  # or the user's own matrix would change
            table.sum_duplicates()
        values = table.data
    else:
        table = values = to_numpy(features, name)
    if table.ndim != 2 or 0 in table.shape:
        raise SnapsError(f"'{name}' must have shape (nodes, features), got {table.shape}")
    if values.dtype.kind not in "fiub":
        raise SnapsError(f"'{name}' must hold numbers, got {values.dtype}")
    if values.dtype not in (np.float32, np.float64):
        table = table.astype(np.float32 if values.dtype.itemsize < 4 else np.float64)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = int(np.flatnonzero(~np.isfinite(values).reshape(-1))[0])
        if sp.issparse(table):
            row = int(np.searchsorted(table.indptr, bad, side="right")) - 1
        else:
            row = bad // table.shape[1]
        raise SnapsError(f"'{name}' must be finite, got {values.reshape(-1)[bad]} in row {row}")
    return table


def _is_torch_sparse(value: Any) -> bool:
    return hasattr(value, "detach") and str(value.layout) != "torch.strided"


def _from_torch_sparse(tensor: Any, name: str) -> sp.coo_array:
    if tensor.dim() != 2:
        raise SnapsError(f"'{name}' must have two dimensions, got shape {tuple(tensor.shape)}")
    coo = tensor.detach().cpu().to_sparse_coo().coalesce()
    row, column = coo.indices().numpy()
    return sp.coo_array((to_numpy(coo.values(), name), (row, column)), shape=tuple(coo.shape))


def _edge_list(edges: Any) -> tuple[np.ndarray, np.ndarray, int | None]:
    """Sources, targets, and the number of nodes if `edges` tells."""
    if edges is None:
        return np.empty(0, np.int64), np.empty(0, np.int64), None
    if _is_torch_sparse(edges):
        edges = _from_torch_sparse(edges, "edges")
    if sp.issparse(edges):
        if edges.ndim != 2 or edges.shape[0] != edges.shape[1]:
            raise SnapsError(f"'edges' as a matrix must be square, got {edges.shape}")
        coo = sp.coo_array(edges)
        keep = coo.data != 0
        source, target = coo.coords
        if not keep.all():
            source, target = source[keep], target[keep]
        return source, target, edges.shape[0]
    array = to_numpy(edges, "edges")
    if array.ndim != 2 or array.shape[0] != 2:
        hint = "; transpose it" if array.ndim == 2 and array.shape[1] == 2 else ""
        raise SnapsError(f"'edges' must have shape (2, edges), got {array.shape}{hint}")
    if array.size == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64), None
    if array.dtype.kind not in "iu":
        raise SnapsError(f"'edges' must be integers, got {array.dtype}")
    if array.min() < 0:
        raise SnapsError(f"'edges' must not be negative, got {array.min()}")
    if array.max() > np.iinfo(np.int64).max:
        raise SnapsError(f"'edges' must fit 64-bit integers, got {array.max()}")
    array = array.astype(np.int64, copy=False)
    return array[0], array[1], None


def check_ids(ids: Any, name: str, *, unique: bool = True) -> np.ndarray:
    """The nodes' own names: a list of integers or of strings, none twice unless told otherwise."""
    try:
        array = np.asarray(ids)
    except (TypeError, ValueError):  # rows of unequal length, a tensor on another device
        array = np.empty((), object)
    if array.dtype == object and all(isinstance(item, str) for item in array.flat):
        array = array.astype(str)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuU"):
        raise SnapsError(f"{name} must be a list of integers or of strings, got {shown(ids)}")
    if unique:
        ordered = np.sort(array)
        repeated = ordered[1:][ordered[1:] == ordered[:-1]]
        if repeated.size:
            raise SnapsError(f"{name} must be unique, got {repeated[0]} twice or more")
    return array


def _in_order_of(keys: np.ndarray, matrix: sp.csr_array) -> sp.csr_array:
    """List each row by its nodes' keys, so that sums over neighbours don't depend on positions."""
    if (keys[1:] > keys[:-1]).all():
        return matrix
    rank = np.empty(len(keys), np.int64)
    rank[np.argsort(keys, kind="stable")] = np.arange(len(keys))
    rows = np.repeat(np.arange(len(keys)), np.diff(matrix.indptr))
    order = np.lexsort((rank[matrix.indices], rows))
    return sp.csr_array((matrix.data[order], matrix.indices[order], matrix.indptr), matrix.shape)
