"""Weights of edges, from everything that has them."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

import snaps
from tests.test_graph import EDGES, FEATURES, LINKS, MATRIX, N, links

WEIGHTS = [1.5, 0.5, 2.0, 9.0, 2.5]  # of EDGES: 0-1 and 1-0, 1-2 and 2-1, a loop
WEIGHED = {(0, 1): 1.5, (1, 0): 1.5, (1, 2): 2.5, (2, 1): 2.5}


def weights(graph):
    coo = graph.adjacency.tocoo()
    pairs = list(zip(coo.row.tolist(), coo.col.tolist(), strict=True))
    assert len(pairs) == len(set(pairs)) and graph.adjacency.dtype == np.float64
    return dict(zip(pairs, coo.data.tolist(), strict=True))


def weighted_matrix(kind=sp.coo_array):
    return kind(sp.coo_array((WEIGHTS, EDGES), (N, N)))


def weighted_networkx():
    graph = nx.DiGraph()
    graph.add_nodes_from(range(N))
    for (a, b), weight in zip(EDGES.T.tolist(), WEIGHTS, strict=True):
        graph.add_edge(a, b, weight=weight)
    return graph


def weighted_pyg(**attributes):
    values = {name: torch.tensor(WEIGHTS)[index] for name, index in attributes.items()}
    return Data(edge_index=torch.tensor(EDGES), num_nodes=N, **values)


def as_npz(path):
    csr = weighted_matrix(sp.csr_array)
    arrays = {"adj_indptr": csr.indptr, "adj_indices": csr.indices, "adj_data": csr.data}
    np.savez(path / "g.npz", **arrays)
    return path / "g.npz"


WEIGHTED = {
    "edges": lambda _, **o: snaps.Graph(EDGES, num_nodes=N, edge_weights=WEIGHTS, **o),
    "column": lambda _, **o: snaps.Graph(
        torch.tensor(EDGES), num_nodes=N, edge_weights=torch.tensor(WEIGHTS)[:, None], **o
    ),
    "coo": lambda _, **o: snaps.Graph(weighted_matrix(), **o),
    "csc matrix": lambda _, **o: snaps.Graph(weighted_matrix(sp.csc_matrix), **o),
    "torch": lambda _, **o: snaps.Graph(
        torch.sparse_coo_tensor(torch.tensor(EDGES), torch.tensor(WEIGHTS), (N, N)), **o
    ),
    "edge_weight": lambda _, **o: snaps.Graph.from_pyg(weighted_pyg(edge_weight=slice(5)), **o),
    "edge_attr": lambda _, **o: snaps.Graph.from_pyg(weighted_pyg(edge_attr=slice(5)), **o),
    "edge_attr column": lambda _, **o: snaps.Graph.from_pyg(
        weighted_pyg(edge_attr=np.s_[:, None]), **o
    ),
    "networkx": lambda _, **o: snaps.Graph.from_networkx(weighted_networkx(), **o),
    "npz": lambda path, **o: snaps.Graph.from_npz(as_npz(path), **o),
}


@pytest.mark.parametrize("way", WEIGHTED)
def test_weights(tmp_path, way):
    graph = WEIGHTED[way](tmp_path, weighted=True)
    assert graph.weighted and weights(graph) == WEIGHED and graph.num_edges == 2
    assert repr(graph) == "Graph(5 nodes, 2 weighted edges, no features)"
    directed = WEIGHTED[way](tmp_path, weighted=True, directed=True, self_loops=True)
    assert weights(directed) == dict(zip(map(tuple, EDGES.T.tolist()), WEIGHTS, strict=True))


def test_without_being_asked_for_weights_are_one():
    with pytest.warns(snaps.SnapsWarning, match="edge_weight of 'data' is ignored"):
        from_pyg = snaps.Graph.from_pyg(weighted_pyg(edge_weight=slice(5)))
    for graph in (
        snaps.Graph(weighted_matrix()),
        from_pyg,
        snaps.Graph.from_networkx(weighted_networkx()),
    ):
        assert not graph.weighted and links(graph) == LINKS and graph.adjacency.dtype == np.float32


def test_edges_listed_twice_add_up_and_both_directions_change_nothing():
    edges, given = np.array([[0, 0, 1], [1, 1, 2]]), np.array([1.0, 2.0, 4.0])
    once = snaps.Graph(edges, weighted=True, edge_weights=given)
    assert weights(once) == {(0, 1): 3.0, (1, 0): 3.0, (1, 2): 4.0, (2, 1): 4.0}
    both = np.hstack([edges, edges[::-1]])
    twice = snaps.Graph(both, weighted=True, edge_weights=np.tile(given, 2))
    assert weights(twice) == weights(once)
    one_way = snaps.Graph(edges, weighted=True, edge_weights=given, directed=True)
    assert weights(one_way) == {(0, 1): 3.0, (1, 2): 4.0}


def test_zero_is_no_edge():
    graph = snaps.Graph(EDGES, num_nodes=N, weighted=True, edge_weights=[0, 0, 1, 1, 0])
    assert weights(graph) == {(1, 2): 1.0, (2, 1): 1.0}
    assert snaps.Graph([[0, 5], [1, 2]], weighted=True, edge_weights=[1, 0]).num_nodes == 6
    matrix = sp.csr_array(([0.0, 2.0], ([0, 2], [1, 3])), (N, N))
    assert weights(snaps.Graph(matrix, weighted=True)) == {(2, 3): 2.0, (3, 2): 2.0}


def test_a_weighted_graph_without_edges():
    for edges in (None, [[], []], sp.csr_array((N, N))):
        assert snaps.Graph(edges, FEATURES, weighted=True).num_edges == 0
    assert snaps.Graph([[], []], FEATURES, weighted=True, edge_weights=[]).num_edges == 0
    assert snaps.Graph.from_networkx(nx.empty_graph(3), weighted=True).num_edges == 0


def test_networkx_edges_without_a_weight_weigh_one():
    graph = nx.MultiGraph([("a", "b", {"weight": 3}), ("b", "a", {"weight": 4}), ("b", "c")])
    found = snaps.Graph.from_networkx(graph, weighted=True)
    assert weights(found) == {(0, 1): 7.0, (1, 0): 7.0, (1, 2): 1.0, (2, 1): 1.0}


def test_weights_are_used():
    """The mean over neighbours of a node counts the heavier one more."""
    probs = np.array([[0.6, 0.4], [0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    graph = snaps.Graph([[0, 0], [1, 2]], num_nodes=4, weighted=True, edge_weights=[3, 1])
    cp = snaps.DAPS(0.5, weight=1.0, score=snaps.THR())
    cp.calibrate(graph, probs, [0, 0, 1, 1], [1, 2, 3])
    assert cp.scores_[0] == pytest.approx([(3 * 0.1 + 0.8) / 4, (3 * 0.9 + 0.2) / 4])


def test_weights_do_not_depend_on_the_order_of_nodes():
    order = np.random.default_rng(0).permutation(N)
    place = np.argsort(order)
    mine = snaps.Graph(EDGES, num_nodes=N, weighted=True, edge_weights=WEIGHTS)
    theirs = snaps.Graph(place[EDGES], ids=order, weighted=True, edge_weights=WEIGHTS)
    np.testing.assert_array_equal(
        theirs.adjacency.toarray(), mine.adjacency.toarray()[order][:, order]
    )


WEIGHT = "'edge_weights' must be finite weights of at least 0, got"
BAD_WEIGHTS = {
    f"{WEIGHT} -1.0 for edge 2": lambda: with_weights([1, 2, -1, 4, 5]),
    f"{WEIGHT} nan for edge 1": lambda: with_weights([1, np.nan, 3, 4, 5]),
    f"{WEIGHT} inf for edge 0": lambda: with_weights([np.inf, 2, 3, 4, 5]),
    "'edge_weights' must have shape (5,), got (4,)": lambda: with_weights([1, 2, 3, 4]),
    "'edge_weights' must have shape (5,), got (5, 2)": lambda: with_weights(np.ones((5, 2))),
    "'edge_weights' must hold numbers as weights, got <U1": lambda: with_weights(list("abcde")),
    "'edge_weights' must be an array of numbers, got None": lambda: with_weights([None] * 5),
    "'edge_weights' must be given for weighted edges (2, E), got None": lambda: with_weights(None),
    "'edge_weights' must be left out when 'edges' is a matrix of weights": lambda: snaps.Graph(
        MATRIX, weighted=True, edge_weights=WEIGHTS
    ),
    "'weighted' must be True to use 'edge_weights', got False": lambda: snaps.Graph(
        EDGES, edge_weights=WEIGHTS
    ),
    "'weighted' must be True or False, got 1": lambda: snaps.Graph(EDGES, weighted=1),
    "'edges' must be finite weights of at least 0, got -1.0 for edge 3": lambda: snaps.Graph(
        MATRIX, weighted=True
    ),
    "'edges' must hold numbers, got complex128": lambda: snaps.Graph(
        MATRIX.astype(complex), weighted=True
    ),
    "'edges' listed twice must have weights with a finite sum": lambda: snaps.Graph(
        [[0, 0], [1, 1]], weighted=True, edge_weights=[1e308, 1e308]
    ),
    "'data' must have an edge_weight, or an edge_attr of one number per edge, for a weighted "
    "graph, got neither": lambda: snaps.Graph.from_pyg(weighted_pyg(), weighted=True),
    "'data' must have an edge_weight, or an edge_attr of one number per edge, for a weighted "
    "graph, got an edge_attr of shape (5, 3)": lambda: snaps.Graph.from_pyg(
        Data(edge_index=torch.tensor(EDGES), edge_attr=torch.ones(5, 3)), weighted=True
    ),
}


def with_weights(given):
    return snaps.Graph(EDGES, num_nodes=N, weighted=True, edge_weights=given)


@pytest.mark.parametrize("message, call", BAD_WEIGHTS.items(), ids=list(BAD_WEIGHTS))
def test_bad_weights(message, call):
    with pytest.raises(snaps.SnapsError) as caught:
        call()
    assert str(caught.value) == message
