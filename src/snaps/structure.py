"""Features that tell what surrounds a node, for a similarity graph that needs no model.

Left of the wall: nothing here knows a label or a role.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._checks import calm, check_integer, check_memory
from snaps._checks.matrices import scale_rows
from snaps.errors import SnapsError
from snaps.graph import Graph


@calm
def structural_features(graph: Graph, hops: int = 2) -> sp.csr_array:
    """Describe each node by its features, its surroundings' features, its links and its degree.

    Where linked nodes need not be alike, nodes with alike surroundings often are. These blocks
    stand side by side, every row of each scaled to unit length, so that the cosine of two nodes is
    the mean over the blocks: `similarity_graph(structural_features(graph))`.

    - the features;
    - their mean over the linked nodes, then over two hops, and so on;
    - the linked nodes themselves, the rarer the more they count;
    - the degree, and how the linked nodes' degrees are spread, by powers of two.

    A node without links has the first block alone; a graph without features has the last two.
    The means fill up: at worst they store a number for each node and feature, a hop.

    Parameters
    ----------
    graph : Graph
        Of a directed one, the links are those that leave a node.
    hops : int, default 2
        How far the means reach.

    Returns
    -------
    csr_array (n, d)

    Examples
    --------
    The hubs of two stars have no link and no linked node in common, and are alike:

    >>> from snaps import similarity_graph
    >>> stars = Graph([[0, 0, 0, 4, 4, 4], [1, 2, 3, 5, 6, 7]], features=np.ones((8, 1)))
    >>> similarity_graph(structural_features(stars), k=1).indices[[0, 4]]
    array([4, 0], dtype=int32)
    """
    if not isinstance(graph, Graph):
        raise SnapsError(f"'graph' must be a snaps.Graph, got {type(graph).__name__}")
    hops = check_integer(hops, "hops", low=0)
    check_memory(16 * hops * graph.num_nodes, "hops", hops)
    blocks = []
    if graph.features is not None:
        step = _scaled(graph.adjacency, 1)
        # Means of the largest numbers there are could overflow; of their halves they cannot.
        features = sp.csr_array(graph.features, dtype=np.float64)
        blocks.append(features if abs(features).max() < 2.0**1000 else features * 0.5)
        for _ in range(hops):
            blocks.append(step @ blocks[-1])
    degrees = np.diff(graph.adjacency.indptr)
    reached = np.bincount(graph.adjacency.indices, minlength=graph.num_nodes)
    rarity = sp.diags_array(1 / np.sqrt(np.maximum(reached, 1)))
    bins = _degree_bins(degrees)
    blocks += [graph.adjacency @ rarity, bins, graph.adjacency @ bins]
    *rest, own_degree, near_degrees = [_scaled(block, 2) for block in blocks]
    profile = sp.hstack([own_degree, near_degrees])
    return sp.csr_array(sp.hstack([*rest, _scaled(profile, 2)]))


def _scaled(matrix: Any, power: int) -> sp.csr_array:
    """Rows divided by their sum of sizes (power 1) or by their length (power 2)."""
    table = scale_rows(sp.csr_array(matrix, copy=True))  # SciPy sorts columns in place
    sizes = (abs(table) ** power).sum(axis=1) ** (1 / power)
    return sp.csr_array(sp.diags_array(1 / np.where(sizes > 0, sizes, 1)) @ table)


def _degree_bins(degrees: np.ndarray) -> sp.csr_array:
    """A one for each node with links, in the column of the power of two its degree reaches."""
    nodes = np.flatnonzero(degrees)
    columns = np.log2(degrees[nodes]).astype(np.int64)
    shape = (len(degrees), max(int(columns.max(initial=0)) + 1, 1))
    return sp.csr_array((np.ones(len(nodes)), (nodes, columns)), shape=shape)
