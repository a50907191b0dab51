"""`Graph`: who is linked to whom, and what each node looks like. No labels, no roles."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from snaps._checks import (
    calm,
    check_flag,
    check_integer,
    check_memory,
    has,
    plainly,
    shown,
    to_numpy,
)
from snaps._checks.edges import MOST_NODES as MOST_NODES
from snaps._checks.edges import Edges, pyg_weights, read_edges
from snaps._checks.features import check_features
from snaps._checks.ids import check_ids, locate
from snaps._checks.matrices import scale_rows
from snaps._checks.named import align_features
from snaps._runtime.memory import filled
from snaps._runtime.randomness import Keys, Positions, node_keys, ranks
from snaps.errors import SnapsError, warn
from snaps.io.files import csr_from_arrays, features_from_arrays, open_npz

if TYPE_CHECKING:
    from snaps.io.folders import GraphFiles


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
        self.directed = check_flag(directed, "directed")
        links = read_edges(edges, ids, self.weighted, edge_weights, self.directed)
        counts = {
            "num_nodes": num_nodes,
            "features": None if self.features is None else self.features.shape[0],
            "edges": links.num_nodes,
            "ids": None if ids is None else len(ids),
        }
        given = {name: count for name, count in counts.items() if count is not None}
        listed = ", ".join(f"'{name}' {plainly(count)}" for name, count in given.items())
        if len(set(given.values())) > 1:
            raise SnapsError(f"the number of nodes must agree, got {listed}")
        if given and not 1 <= max(given.values()) <= MOST_NODES:
            raise SnapsError(f"the number of nodes must lie from 1 to {MOST_NODES}, got {listed}")
        if not given and not links.source.size:
            raise SnapsError("'num_nodes' must be given for a graph without edges and features")
        self.num_nodes = max(given.values()) if given else links.count_nodes()
        top = int(max(links.source.max(initial=-1), links.target.max(initial=-1)))
        if top >= self.num_nodes:
            raise SnapsError(f"'edges' must lie from 0 to {self.num_nodes - 1}, got {top}")
        check_memory(40 * self.num_nodes, "num_nodes", self.num_nodes)
        self.named = ids is not None
        self.ids = np.arange(self.num_nodes) if ids is None else ids
        self.adjacency = self._build(links, check_flag(self_loops, "self_loops"))

    @calm
    def _build(self, links: Edges, self_loops: bool) -> sp.csr_array:
        source, target, weights, _ = links
        if weights is None:
            if not source.size:
                return sp.csr_array((self.num_nodes, self.num_nodes), dtype=np.float32)
            from snaps._kernels.linking import link

            rank = ranks(self.keys, np.int32)
            return link(source, target, rank, not self.directed, self_loops)
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
    def keys(self) -> Keys:
        """One 64-bit key a node, made from its id: what random draws and ties look at."""
        return node_keys(self.ids)

    def index(self, ids: Any) -> Positions:
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

        A weighted graph takes `edge_weight`, or an `edge_attr` with one number per edge. Other
        arguments are those of `Graph`, such as `ids`.

        Examples
        --------
        >>> from types import SimpleNamespace
        >>> data = SimpleNamespace(edge_index=[[0, 1], [1, 2]], x=np.eye(3), num_nodes=3)
        >>> Graph.from_pyg(data)
        Graph(3 nodes, 2 edges, 3 features)
        """
        edges = data.edge_index if has(data, "edge_index") else None
        if edges is None:
            raise SnapsError(
                f"'data' must have an edge_index, got {type(data).__name__} without: of other "
                "kinds pass one type of edges, or a sparse matrix, to snaps.Graph(edges, features)"
            )
        if check_flag(weighted, "weighted"):
            options["edge_weights"] = pyg_weights(data)
        elif getattr(data, "edge_weight", None) is not None:
            warn("edge_weight of 'data' is ignored; weighted=True (--weighted) uses it")
        features, num_nodes = (getattr(data, name, None) for name in ("x", "num_nodes"))
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
            listed = graph.edges(data="weight", default=1)
            options["edge_weights"] = [weight for *_, weight in listed]
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


def _in_order_of(keys: np.ndarray, matrix: sp.csr_array) -> sp.csr_array:
    """List each row by its nodes' keys, so that sums over neighbours don't depend on positions."""
    if (keys[1:] > keys[:-1]).all():
        return matrix
    rows = np.repeat(np.arange(len(keys)), np.diff(matrix.indptr))
    order = np.lexsort((keys[matrix.indices], rows))
    return sp.csr_array((matrix.data[order], matrix.indices[order], matrix.indptr), matrix.shape)
