"""`Graph`: who is linked to whom, and what each node looks like. No labels, no roles."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from snaps._checks import (
    as_array,
    calm,
    check_flag,
    check_integer,
    check_memory,
    has,
    is_tensor,
    plainly,
    shown,
    to_numpy,
)
from snaps._checks.features import check_features, from_torch_sparse, is_torch_sparse
from snaps._checks.ids import check_ids, locate
from snaps._checks.matrices import check_matrix, refuse_weights, scale_rows
from snaps._checks.named import EDGE_COLUMNS, align_features, column_of, names_of
from snaps._runtime.memory import filled
from snaps._runtime.randomness import node_keys
from snaps.errors import SnapsError
from snaps.io.files import csr_from_arrays, features_from_arrays, open_npz

if TYPE_CHECKING:
    from snaps.io.folders import GraphFiles

MOST_NODES = 2**31 - 1
# A graph whose edges alone tell the number of nodes may have so many, or so many an edge: one id
# that is no position must not take all memory.
MOST_UNTOLD, MOST_AN_EDGE = 10_000_000, 100


class Graph:
    """An adjacency, and features if there are any.

    Parameters
    ----------
    edges : sparse (n, n), integer array (2, E), table, or None
        Non-zero entries or columns are edges. None is a graph without edges. The rows of a table
        (a DataFrame) are edges between ids: columns src and dst, or source and target, or the only
        two; with a column weight for a weighted graph.
    features : array (n, d), sparse (n, d), table, or None
        The index of a DataFrame names the nodes and is matched to `ids`, or gives them. Features
        are copied, but for an `np.memmap`: its file must stay as it is while the graph is used, as
        the system ends a process that reads beyond the end of a truncated one (SIGBUS).
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
    weighted : bool
        Keep the edges' weights, which must be finite and not negative: the entries of a matrix,
        or `edge_weights`. Zero is no edge. An edge listed twice weighs the sum; where its two
        directions are listed and the graph is not directed, the larger counts. By default every
        edge weighs one.
    edge_weights : array (E,), optional
        The weights of edges (2, E) of a weighted graph.

    Attributes
    ----------
    adjacency : csr_array (n, n) of weights or ones, without duplicates
    features : ndarray (n, d), csr_array (n, d) or None
    ids : ndarray (n,)
    directed, weighted : bool
    named : bool
        Whether the nodes have ids of their own; else they are numbered.

    Examples
    --------
    >>> Graph([[0, 1, 1], [1, 2, 1]], num_nodes=4)
    Graph(4 nodes, 2 edges, no features)
    >>> weighted = Graph([[0, 1], [1, 2]], weighted=True, edge_weights=[0.5, 2.0])
    >>> weighted.adjacency.toarray()
    array([[0. , 0.5, 0. ],
           [0.5, 0. , 2. ],
           [0. , 2. , 0. ]])
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
        weighted: bool = False,
        edge_weights: Any = None,
    ):
        if num_nodes is not None:
            num_nodes = check_integer(num_nodes, "num_nodes", low=1)
        self.weighted = check_flag(weighted, "weighted")
        if ids is not None:
            ids = np.asarray(filled(check_ids(ids, "'ids'")))
        features, ids = align_features(features, ids, edges is None)
        self.features: Any = None if features is None else _own(check_features(features), features)
        edges, edge_weights = _by_id(edges, ids, self.weighted, edge_weights)
        source, target, weights, num_given = _edge_list(edges, self.weighted, edge_weights)
        counts = {
            "num_nodes": num_nodes,
            "features": None if self.features is None else self.features.shape[0],
            "edges": num_given,
            "ids": None if ids is None else len(ids),
        }
        known = {name: count for name, count in counts.items() if count is not None}
        listed = ", ".join(f"'{name}' {plainly(count)}" for name, count in known.items())
        if len(set(known.values())) > 1:
            raise SnapsError(f"the number of nodes must agree, got {listed}")
        if known and not 1 <= max(known.values()) <= MOST_NODES:
            raise SnapsError(f"the number of nodes must lie from 1 to {MOST_NODES}, got {listed}")
        if known:
            self.num_nodes = next(iter(known.values()))
        elif source.size:
            self.num_nodes = _told_by_edges(source, target)
        else:
            raise SnapsError("'num_nodes' must be given for a graph without edges and features")
        if source.size and (top := int(max(source.max(), target.max()))) >= self.num_nodes:
            raise SnapsError(f"'edges' must lie from 0 to {self.num_nodes - 1}, got {top}")
        check_memory(40 * self.num_nodes, "num_nodes", self.num_nodes)
        self.named = ids is not None
        self.ids = np.arange(self.num_nodes) if ids is None else ids
        self.directed = check_flag(directed, "directed")
        self.adjacency = self._build(source, target, weights, check_flag(self_loops, "self_loops"))

    @calm
    def _build(
        self, source: np.ndarray, target: np.ndarray, weights: np.ndarray | None, self_loops: bool
    ) -> sp.csr_array:
        if weights is None:
            from snaps._kernels.linking import link

            return link(source, target, _ranks(self.keys), not self.directed, self_loops)
        keep = weights > 0
        if not self_loops:
            keep &= source != target
        if not keep.all():
            source, target, weights = source[keep], target[keep], weights[keep]
        shape = (self.num_nodes, self.num_nodes)
        adjacency = sp.coo_array((weights, (source, target)), shape=shape).tocsr()
        adjacency.sum_duplicates()
        if not np.isfinite(adjacency.data).all():
            raise SnapsError("'edges' listed twice must have weights with a finite sum")
        if not self.directed:
            adjacency = sp.csr_array(adjacency.maximum(adjacency.T))
        adjacency = scale_rows(adjacency)
        adjacency.eliminate_zeros()  # weights that are nothing compared with others of their row
        return _in_order_of(self.keys, adjacency)

    @cached_property
    def keys(self) -> np.ndarray:
        """One 64-bit key a node, made from its id: what random draws and ties look at."""
        return node_keys(self.ids)

    def index(self, ids: Any) -> np.ndarray:
        """Positions of the nodes with these ids, one or many: what estimators take as nodes.

        Examples
        --------
        >>> Graph([[0], [1]], ids=["ann", "bob"]).index("bob")
        array([1])
        """
        wanted = [ids] if isinstance(ids, (str, int, np.integer)) else ids
        return locate(self.ids, check_ids(wanted, "'ids'", unique=False), "'ids'")

    @property
    def num_edges(self) -> int:
        """Edges, each counted once unless the graph is directed.

        Examples
        --------
        >>> Graph([[0, 1], [1, 0]]).num_edges
        1
        """
        if self.directed:
            return int(self.adjacency.nnz)
        loops = int(np.count_nonzero(self.adjacency.diagonal()))
        return (int(self.adjacency.nnz) + loops) // 2

    def __repr__(self) -> str:
        features = "no features" if self.features is None else f"{self.features.shape[1]} features"
        edges = "weighted edges" if self.weighted else "edges"
        return f"Graph({self.num_nodes} nodes, {self.num_edges} {edges}, {features})"

    @classmethod
    def from_pyg(cls, data: Any, *, weighted: bool = False, **options: Any) -> Graph:
        """Take `edge_index`, `x` and `num_nodes` of a torch_geometric `Data`.

        A weighted graph takes `edge_weight`, or an `edge_attr` with one number per edge.

        Examples
        --------
        >>> from types import SimpleNamespace
        >>> data = SimpleNamespace(edge_index=[[0, 1], [1, 2]], x=np.eye(3), num_nodes=3)
        >>> Graph.from_pyg(data)
        Graph(3 nodes, 2 edges, 3 features)
        """
        edges = data.edge_index if has(data, "edge_index") else None
        if edges is None:
            raise SnapsError(f"'data' must have an edge_index, got {type(data).__name__} without")
        if check_flag(weighted, "weighted"):
            options["edge_weights"] = _pyg_weights(data)
        num_nodes = getattr(data, "num_nodes", None)
        features = getattr(data, "x", None)
        return cls(edges, features, num_nodes, weighted=weighted, **options)

    @classmethod
    def from_networkx(
        cls, graph: Any, features: Any = None, *, weighted: bool = False, **options: Any
    ) -> Graph:
        """Take a NetworkX graph; position i is the i-th of `graph.nodes`, and its id is its name.

        Parameters
        ----------
        graph : networkx.Graph
        features : str, mapping, table or array, optional
            The node attribute that holds a feature vector; or a mapping from node to vector, or a
            DataFrame whose index are nodes; or rows in the order of `graph.nodes`.
        weighted : bool
            Take the edge attribute "weight"; an edge without one weighs 1.

        Examples
        --------
        >>> import networkx
        >>> graph = Graph.from_networkx(networkx.Graph([("ann", "bob"), ("bob", "cleo")]))
        >>> graph
        Graph(3 nodes, 2 edges, no features)
        >>> graph.ids
        array(['ann', 'bob', 'cleo'], dtype='<U4')
        """
        for name in ("ids", "num_nodes"):
            if name in options:
                raise SnapsError(f"'{name}' must be left out: the nodes of the graph tell it")
        if not has(graph, "nodes") or not has(graph, "edges"):
            raise SnapsError(f"'graph' must be a NetworkX graph, got {type(graph).__name__}")
        nodes = list(graph.nodes)
        if not nodes:
            raise SnapsError("'graph' must have at least one node, got none")
        position = {node: i for i, node in enumerate(nodes)}
        edges = np.array([(position[u], position[v]) for u, v in graph.edges()], np.int64)
        if check_flag(weighted, "weighted"):
            weights = [weight for *_, weight in graph.edges(data="weight", default=1)]
            options["edge_weights"] = weights
        if isinstance(features, str):
            features = {node: graph.nodes[node].get(features) for node in nodes}
        if isinstance(features, Mapping) and not sp.issparse(features):
            missing = next((node for node in nodes if features.get(node) is None), None)
            if missing is not None:
                raise SnapsError(
                    f"'features' must be given for every node, got none for {shown(missing)}"
                )
            features = [to_numpy(features[node], "features") for node in nodes]
        integers = all(isinstance(node, (int, np.integer)) for node in nodes)
        ids = np.array(nodes if integers else [str(node) for node in nodes])
        edges = edges.reshape(-1, 2).T
        return cls(edges, features, len(nodes), ids=ids, weighted=weighted, **options)

    @classmethod
    def from_npz(cls, path: str | os.PathLike[str], **options: Any) -> Graph:
        """Read an .npz with `adj_indptr`, `adj_indices` and `x`, or `x_data`, `x_indices`,
        `x_indptr` and `x_shape`, or no features; `adj_data` are the weights of a weighted graph.

        Examples
        --------
        >>> arrays = {"adj_indptr": [0, 1, 2], "adj_indices": [1, 0], "x": np.eye(2)}
        >>> np.savez("pair.npz", **arrays)
        >>> Graph.from_npz("pair.npz")
        Graph(2 nodes, 1 edges, 2 features)
        """
        with open_npz(path) as arrays:
            return graph_from_arrays(arrays, path, **options)

    @classmethod
    def from_parquet(
        cls, folder: str | os.PathLike[str], *, weighted: bool = False, **options: Any
    ) -> Graph:
        """Read the graph of a folder of nodes and edges, in Parquet or CSV (see `snaps.folder`).

        A weighted graph takes the column `weight` of its edges.

        Examples
        --------
        >>> from snaps.folder import write_folder
        >>> write_folder("pair", Graph([[0], [1]], ids=["ann", "bob"]), [[0.9, 0.1], [0.3, 0.7]])
        >>> Graph.from_parquet("pair").ids
        array(['ann', 'bob'], dtype='<U3')
        """
        from snaps.io.folders import open_folder  # which imports pyarrow

        with open_folder(folder) as files:
            return graph_from_files(files, weighted=weighted, **options)


def _own(table: Any, given: Any) -> Any:
    """Features that the caller cannot change; a file mapped into memory stays where it is."""
    shared = isinstance(table, np.ndarray) and (table is given or table.base is not None)
    return table.copy() if shared and not isinstance(given, np.memmap) else table


def graph_from_files(files: GraphFiles, *, weighted: bool = False, **options: Any) -> Graph:
    """Build a graph from an opened folder; see `Graph.from_parquet`."""
    from snaps.io.folders import read_graph

    parts, features = read_graph(files, weighted=check_flag(weighted, "weighted"))
    graph = Graph(**parts, weighted=weighted, **options)
    if features is not None:
        graph.features = check_features(features)  # not shared with the caller
    return graph


def graph_from_arrays(arrays: Mapping[str, np.ndarray], path: Any, **options: Any) -> Graph:
    """Build a graph from the arrays of an .npz; see `Graph.from_npz`."""
    for name in ("adj_indptr", "adj_indices"):
        if name not in arrays:
            raise SnapsError(f"'{path}' must hold the array '{name}', got {sorted(arrays)[:8]}")
    shape = (arrays["adj_indptr"].size - 1,) * 2
    adjacency = csr_from_arrays(arrays, "adj", f"'{path}'", shape)
    return Graph(adjacency, features_from_arrays(arrays, path), **options)


def _by_id(edges: Any, ids: np.ndarray | None, weighted: bool, weights: Any) -> tuple[Any, Any]:
    """Edges as positions, and their weights, where they come as a table or as text."""
    if edges is None or sp.issparse(edges) or is_tensor(edges):
        return edges, weights
    table = names_of(edges)
    if weights is not None:
        weights = _of_edges(weights, table)
    columns = list(edges) if isinstance(edges, Mapping) else getattr(table, "columns", None)
    if columns is None:
        ends = _unnamed_ends(edges, table is not None)
        if ends is None:
            return edges, weights
    else:
        called = {str(name).lower(): name for name in columns}
        pairs = [tuple(map(called.get, pair)) for pair in EDGE_COLUMNS if set(pair) <= set(called)]
        others = isinstance(edges, Mapping) or "weight" in called
        if not pairs and len(columns) == 2 and not others:
            pairs = [(columns[0], columns[1])]
        if len(pairs) != 1:
            raise SnapsError(
                "'edges' as a table must have columns src and dst, or source and target, or two "
                f"columns, got {shown(columns)}"
            )
        (pair,) = pairs
        if weighted and weights is None and "weight" in columns:
            weights = column_of(edges, "weight")
        ends = [column_of(edges, name) for name in pair]
    listed = [check_ids(end, "'edges'", unique=False) for end in ends]
    if len(listed[0]) != len(listed[1]):
        sizes = " and ".join(str(len(end)) for end in listed)
        raise SnapsError(f"'edges' must have as many sources as targets, got {sizes}")
    if ids is not None:
        return np.stack([locate(ids, end, "'edges'") for end in listed]), weights
    text = next((str(end[0]) for end in listed if end.dtype.kind == "U" and end.size), None)
    if text is not None:
        raise SnapsError(f"'ids' must be given for edges between ids, got None and {shown(text)}")
    return np.stack(listed), weights


def _of_edges(weights: Any, edges: Any) -> Any:
    """Weights in the order of the edges; an index is that of the edges, or names nothing."""
    named = names_of(weights)
    if named is None or named.rows is None or list(named.rows) == list(range(len(named.rows))):
        return weights
    if edges is not None and edges.rows is not None and list(named.rows) == list(edges.rows):
        return named.value
    raise SnapsError(
        "'edge_weights' must be in the order of the edges, got another index: pass .to_numpy()"
    )


def _unnamed_ends(edges: Any, table: bool) -> list[np.ndarray] | None:
    """The two ends of edges that are ids; None for an array (2, E) of positions."""
    array = as_array(edges, "edges")
    if array.ndim != 2:
        return None
    if table and array.shape == (2, 2):
        raise SnapsError(
            "'edges' as a table must have columns src and dst, got two rows and two columns "
            "without names"
        )
    if table and len(array) != 2 and array.shape[1] == 2:
        return list(array.T)
    text = array.dtype.kind in "UTO" and array.size and isinstance(array.flat[0], str)
    return list(array) if text and len(array) == 2 else None


def _edge_list(
    edges: Any, weighted: bool, edge_weights: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, int | None]:
    """Sources, targets, weights if there are any, and the number of nodes if `edges` has it."""
    if edge_weights is not None and not weighted:
        raise SnapsError("'weighted' must be True to use 'edge_weights', got False")
    if is_torch_sparse(edges):
        edges = from_torch_sparse(edges, "edges")
    if sp.issparse(edges):
        if edge_weights is not None:
            raise SnapsError("'edge_weights' must be left out when 'edges' is a matrix of weights")
        return _matrix_edges(edges, weighted)
    array = np.empty((2, 0), np.int64) if edges is None else to_numpy(edges, "edges")
    if array.ndim != 2 or array.shape[0] != 2:
        hint = "; transpose it" if array.ndim == 2 and array.shape[1] == 2 else ""
        raise SnapsError(f"'edges' must have shape (2, edges), got {array.shape}{hint}")
    if array.size == 0:
        array = np.empty((2, 0), np.int64)
    if array.dtype.kind not in "iu":
        raise SnapsError(f"'edges' must be integers, got {array.dtype}")
    if array.min(initial=0) < 0:
        raise SnapsError(f"'edges' must not be negative, got {array.min()}")
    if array.max(initial=0) > np.iinfo(np.int64).max:
        raise SnapsError(f"'edges' must fit 64-bit integers, got {array.max()}")
    source, target = array if array.dtype == np.int32 else array.astype(np.int64, copy=False)
    if not weighted:
        return source, target, None, None
    if edge_weights is None and source.size:
        raise SnapsError("'edge_weights' must be given for weighted edges (2, E), got None")
    weights = to_numpy([] if edge_weights is None else edge_weights, "edge_weights")
    if weights.shape not in (source.shape, (source.size, 1)):
        raise SnapsError(f"'edge_weights' must have shape {source.shape}, got {weights.shape}")
    return source, target, _check_weights(weights.reshape(-1), "edge_weights"), None


def _told_by_edges(source: np.ndarray, target: np.ndarray) -> int:
    """One more than the largest position, if that is a number of nodes that edges can tell."""
    top = int(max(source.max(), target.max()))
    most = min(max(MOST_UNTOLD, MOST_AN_EDGE * len(source)), MOST_NODES)
    if top >= most:
        raise SnapsError(
            f"'edges' must be positions from 0 to {most - 1}, got {top}: pass num_nodes= if there "
            "are so many nodes, else number them from 0"
        )
    return top + 1


def _matrix_edges(
    matrix: Any, weighted: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, int]:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise SnapsError(f"'edges' as a matrix must be square, got {matrix.shape}")
    coo = check_matrix(matrix, "edges").tocoo()
    source, target = coo.coords
    weights = _check_weights(coo.data, "edges") if weighted else None
    return source, target, weights, matrix.shape[0]


@calm
def _check_weights(weights: np.ndarray, name: str) -> np.ndarray:
    if weights.size and weights.dtype.kind not in "fiub":
        raise SnapsError(f"'{name}' must hold numbers as weights, got {weights.dtype}")
    weights = weights.astype(np.float64)
    refuse_weights(weights, f"'{name}'", lambda edge: f"for edge {edge}")
    return weights


def _pyg_weights(data: Any) -> Any:
    weights = getattr(data, "edge_weight", None)
    if weights is None:
        weights = getattr(data, "edge_attr", None)
    shape = None if weights is None else tuple(weights.shape)
    if shape is None or not (len(shape) == 1 or shape[1:] == (1,)):
        found = "neither" if shape is None else f"an edge_attr of shape {shape}"
        raise SnapsError(
            "'data' must have an edge_weight, or an edge_attr of one number per edge, "
            f"for a weighted graph, got {found}"
        )
    return weights


def _ranks(keys: np.ndarray) -> np.ndarray:
    """Each node's place in the order of the keys."""
    if (keys[1:] > keys[:-1]).all():
        return np.arange(len(keys), dtype=np.int32)
    rank = np.empty(len(keys), np.int32)
    rank[np.argsort(keys, kind="stable")] = np.arange(len(keys), dtype=np.int32)
    return rank


def _in_order_of(keys: np.ndarray, matrix: sp.csr_array) -> sp.csr_array:
    """List each row by its nodes' keys, so that sums over neighbours don't depend on positions."""
    if (keys[1:] > keys[:-1]).all():
        return matrix
    rank = _ranks(keys)
    rows = np.repeat(np.arange(len(keys)), np.diff(matrix.indptr))
    order = np.lexsort((rank[matrix.indices], rows))
    return sp.csr_array((matrix.data[order], matrix.indices[order], matrix.indptr), matrix.shape)
