"""Edges as users pass them: matrices, tables, pairs of ids, arrays (2, E); parsed once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from snaps._checks import as_array, calm, is_tensor, shown, to_numpy
from snaps._checks.features import from_torch_sparse, is_torch_sparse
from snaps._checks.ids import check_ids, locate
from snaps._checks.matrices import check_matrix, refuse_weights
from snaps._checks.named import EDGE_COLUMNS, column_of, names_of
from snaps.errors import SnapsError

MOST_NODES = 2**31 - 1
# A graph whose edges alone give the number of nodes may have so many, or so many per edge: one id
# that is no position must not take all memory.
_MOST_UNNAMED, _MOST_PER_EDGE = 10_000_000, 100


class Edges(NamedTuple):
    """Positions of both ends, weights if the graph is weighted, and the nodes of a matrix."""

    source: np.ndarray
    target: np.ndarray
    weights: np.ndarray | None = None
    num_nodes: int | None = None

    def count_nodes(self) -> int:
        """One more than the largest position, if so many nodes are plausible."""
        top = int(max(self.source.max(), self.target.max()))
        most = min(max(_MOST_UNNAMED, _MOST_PER_EDGE * len(self.source)), MOST_NODES)
        if top >= most:
            raise SnapsError(
                f"'edges' must be positions from 0 to {most - 1}, got {top}: pass num_nodes= if "
                "there are so many nodes, else number them from 0"
            )
        return top + 1


def read_edges(
    edges: Any, ids: np.ndarray | None, weighted: bool, weights: Any, directed: bool = False
) -> Edges:
    """Edges between positions, whatever they are given as; `ids` are the nodes' own names."""
    edges, weights = _by_id(edges, ids, weighted, weights, directed)
    if weights is not None and not weighted:
        raise SnapsError("'weighted' must be True to use 'edge_weights', got False")
    if is_torch_sparse(edges):
        edges = from_torch_sparse(edges, "edges")
    if sp.issparse(edges):
        if weights is not None:
            raise SnapsError("'edge_weights' must be left out when 'edges' is a matrix of weights")
        return _from_matrix(edges, weighted)
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
        return Edges(source, target)
    if weights is None and source.size:
        raise SnapsError("'edge_weights' must be given for weighted edges (2, E), got None")
    numbers = to_numpy([] if weights is None else weights, "edge_weights")
    if numbers.shape not in (source.shape, (source.size, 1)):
        raise SnapsError(f"'edge_weights' must have shape {source.shape}, got {numbers.shape}")
    return Edges(source, target, _check_weights(numbers.reshape(-1), "edge_weights"))


def _from_matrix(matrix: Any, weighted: bool) -> Edges:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise SnapsError(f"'edges' as a matrix must be square, got {matrix.shape}")
    coo = check_matrix(matrix, "edges").tocoo()
    source, target = coo.coords
    weights = _check_weights(coo.data, "edges") if weighted else None
    return Edges(source, target, weights, coo.shape[0])


@calm
def _check_weights(weights: np.ndarray, name: str) -> np.ndarray:
    if weights.size and weights.dtype.kind not in "fiub":
        raise SnapsError(f"'{name}' must hold numbers as weights, got {weights.dtype}")
    weights = weights.astype(np.float64)
    refuse_weights(weights, f"'{name}'", lambda edge: f"for edge {edge}")
    return weights


def _by_id(
    edges: Any, ids: np.ndarray | None, weighted: bool, weights: Any, directed: bool
) -> tuple[Any, Any]:
    """Edges as positions, and their weights, where they come as a table or as text."""
    if edges is None or sp.issparse(edges) or is_tensor(edges):
        return edges, weights
    table = names_of(edges)
    if weights is not None:
        weights = _in_order_of_edges(weights, table)
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
            if directed and isinstance(columns[0], str):
                raise SnapsError(
                    "'edges' of a directed graph must have columns src and dst, or source and "
                    f"target, got {shown(columns)}, which do not say where an edge begins"
                )
        if len(pairs) != 1:
            raise SnapsError(
                "'edges' as a table must have columns src and dst, or source and target, or two "
                f"columns, got {shown(columns)}"
            )
        if weighted and weights is None and "weight" in columns:
            weights = column_of(edges, "weight")
        ends = [column_of(edges, name) for name in pairs[0]]
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


def _in_order_of_edges(weights: Any, edges: Any) -> Any:
    """Weights whose index is that of the edges, or names nothing."""
    named = names_of(weights)
    if named is None or named.rows is None:
        return weights
    plain, theirs = range(len(named.rows)), getattr(edges, "rows", None)
    if list(named.rows) == list(plain if theirs is None else theirs):
        return named.value if theirs is not None else weights
    raise SnapsError(
        "'edge_weights' must be in the order of the edges, got another index: pass .to_numpy()"
    )


def _unnamed_ends(edges: Any, table: bool) -> list[np.ndarray] | None:
    """The two ends of edges that are ids; None for an array (2, E) of positions."""
    if isinstance(edges, (list, tuple)) and len(edges) == 2:
        if all(names_of(end) is not None for end in edges):  # two Series
            return [as_array(end, "edges") for end in edges]
    array = as_array(edges, "edges")
    if array.ndim != 2:
        return None
    if table and array.shape == (2, 2):
        raise SnapsError(
            "'edges' as a table must have columns src and dst, got two rows and two columns "
            "without names"
        )
    if table and 2 in array.shape:  # of ids, a column or a row each
        return list(array if len(array) == 2 else array.T)
    text = array.dtype.kind in "UTO" and array.size and isinstance(array.flat[0], str)
    return list(array) if text and len(array) == 2 else None


def pyg_weights(data: Any) -> Any:
    """The weights that a torch_geometric `Data` has for its edges."""
    weights = getattr(data, "edge_weight", None)
    if weights is None:
        weights = getattr(data, "edge_attr", None)
    shape = None if weights is None else tuple(weights.shape)
    if shape is None or not (len(shape) == 1 or shape[1:] == (1,)):
        got = "neither" if shape is None else f"an edge_attr of shape {shape}"
        raise SnapsError(
            "'data' must have an edge_weight, or an edge_attr of one number per edge, "
            f"for a weighted graph, got {got}"
        )
    return weights
