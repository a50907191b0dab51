"""Graphs and similarity graphs that users get wrong."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

import snaps
from tests.errors.common import PAIR, N, changed, messages, with_similarity
from tests.helpers import small
from tests.helpers.small import CALIB, LABELS, NAMES, PROBS, error_line

# ---- Graph: edges, ids and the number of nodes ---------------------------------------------------

GRAPH = {
    "'edges' must have shape (2, edges), got (3, 2); transpose it": lambda: snaps.Graph(
        [[0, 1], [1, 2], [2, 0]]
    ),
    "'edges' must have shape (2, edges), got (4, 4)": lambda: snaps.Graph(np.eye(4, dtype=int)),
    "'edges' must have shape (2, edges), got ()": lambda: snaps.Graph(5),
    "'edges' must be integers, got float64": lambda: snaps.Graph([[0.0, 1.5], [1.0, 2.0]]),
    "'ids' must be given for edges between ids, got None and 'a'": lambda: snaps.Graph(
        [["a"], ["b"]]
    ),
    "'edges' must not be negative, got -3": lambda: snaps.Graph([[0, -3], [1, 2]]),
    "'edges' must lie from 0 to 2, got 3": lambda: snaps.Graph([[0, 3], [1, 2]], num_nodes=3),
    "'edges' must be positions from 0 to 9999999, got 4611686018427387904: pass num_nodes= if "
    "there are so many nodes, else number them from 0": lambda: snaps.Graph([[0], [2**62]]),
    "'edges' must fit 64-bit integers, got 9223372036854775808": lambda: snaps.Graph(
        np.array([[0], [2**63]], np.uint64)
    ),
    "'edges' must hold numbers of at most 64 bits, got 1180591620717411303424": lambda: snaps.Graph(
        [[0], [2**70]]
    ),
    "'edges' must have rows of equal length, got [1, 2]": lambda: snaps.Graph([[0, 1], [2]]),
    "'edges' must be an array, got str": lambda: snaps.Graph("edges.txt"),
    "'edges' must be an array of numbers, got {0, 1}": lambda: snaps.Graph({0, 1}),
    "'edges' as a matrix must be square, got (3, 4)": lambda: snaps.Graph(sp.eye(3, 4)),
    "'edges' must have two dimensions, got shape (2, 2, 2)": lambda: snaps.Graph(
        torch.ones(2, 2, 2).to_sparse()
    ),
    "'num_nodes' must be given for a graph without edges and features": lambda: snaps.Graph(None),
    "'num_nodes' must be an integer of at least 1, got 0": lambda: snaps.Graph(PAIR, num_nodes=0),
    "'num_nodes' must be an integer of at least 1, got 3.0": lambda: snaps.Graph(
        PAIR, num_nodes=3.0
    ),
    "'num_nodes' must be an integer of at least 1, got True": lambda: snaps.Graph(
        PAIR, num_nodes=True
    ),
    "the number of nodes must agree, got 'num_nodes' 5, 'features' 4, 'edges' 3": lambda: (
        snaps.Graph(sp.eye(3), np.ones((4, 2)), 5)
    ),
    "the number of nodes must agree, got 'num_nodes' 3, 'ids' 2": lambda: snaps.Graph(
        PAIR, num_nodes=3, ids=[5, 6]
    ),
    "the number of nodes must lie from 1 to 2147483647, got 'edges' 0": lambda: snaps.Graph(
        sp.csr_array((0, 0))
    ),
    "'ids' must be unique, got 7 twice or more": lambda: snaps.Graph(PAIR, ids=[7, 8, 7]),
    "'ids' must be unique, got b twice or more": lambda: snaps.Graph(PAIR, ids=["a", "b", "b"]),
    "'ids' must be a list of integers or of strings, got [0.5, 1.5, 2.5]": lambda: snaps.Graph(
        PAIR, ids=[0.5, 1.5, 2.5]
    ),
    "'ids' must be a list of integers or of strings, got ['a', None, 'c']": lambda: snaps.Graph(
        PAIR, ids=["a", None, "c"]
    ),
    "'ids' must be a list of integers or of strings, got [[1], [2], [3]]": lambda: snaps.Graph(
        PAIR, ids=[[1], [2], [3]]
    ),
    "'ids' must be a list of integers or of strings, got 'abc'": lambda: snaps.Graph(
        PAIR, ids="abc"
    ),
    "'ids' must name nodes of the graph, got 60": lambda: small.graph().index([3, 60]),
    "'ids' must name nodes of the graph, got node-60": lambda: small.graph(ids=NAMES).index(
        "node-60"
    ),
    "'ids' must name nodes of the graph, got -1": lambda: snaps.Graph(
        PAIR, ids=np.array([2**64 - 1, 5, 6], np.uint64)
    ).index(-1),
    "'ids' must be strings as the nodes' ids are, got integers": lambda: small.graph(
        ids=NAMES
    ).index([3]),
    "'directed' must be True or False, got 'yes'": lambda: snaps.Graph(PAIR, directed="yes"),
    "'self_loops' must be True or False, got 1": lambda: snaps.Graph(PAIR, self_loops=1),
}


# ---- Graph: features -----------------------------------------------------------------------------

FEATURES = {
    "'features' must be finite, got nan in row 2": lambda: snaps.Graph(
        None, changed(np.ones((4, 2)), (2, 1), np.nan)
    ),
    "'features' must be finite, got inf in row 3": lambda: snaps.Graph(
        None, sp.csr_array(changed(np.eye(4), (3, 3), np.inf))
    ),
    "'features' must be finite, got -inf in row 0": lambda: snaps.Graph(
        None, torch.full((4, 2), -torch.inf, dtype=torch.bfloat16)
    ),
    "'features' must have shape (nodes, features), got (4,)": lambda: snaps.Graph(None, np.ones(4)),
    "'features' must have shape (nodes, features), got (4, 0)": lambda: snaps.Graph(
        None, np.ones((4, 0))
    ),
    "'features' must have shape (nodes, features), got (2, 2, 2)": lambda: snaps.Graph(
        None, np.ones((2, 2, 2))
    ),
    "'features' must have two dimensions, got shape (4,)": lambda: snaps.Graph(
        None, torch.ones(4).to_sparse()
    ),
    "'features' must hold numbers, got <U1": lambda: snaps.Graph(None, [["a"], ["b"]]),
    "'features' must hold numbers, got complex128": lambda: snaps.Graph(None, [[1j], [2]]),
    "'features' must be an array of numbers, got None": lambda: snaps.Graph(None, [[1], [None]]),
    "'features' must be an array of numbers, got <NA>": lambda: snaps.Graph(
        None, pd.DataFrame({"x": pd.array([1, None], "Int64")}, dtype=object)
    ),
    "'features' must have rows of equal length, got [1, 3]": lambda: snaps.Graph(
        None, [[1, 2, 3], [4]]
    ),
}


# ---- Graph: PyTorch Geometric and NetworkX -------------------------------------------------------


def named_path(**features):
    path = nx.path_graph(["a", "b", "c"])
    nx.set_node_attributes(path, features, "x")
    return path


OTHERS = (
    ": of other kinds pass one type of edges, or a sparse matrix, to snaps.Graph(edges, features)"
)
FOREIGN = {
    f"'data' must have an edge_index, got Data without{OTHERS}": lambda: snaps.Graph.from_pyg(
        Data(x=torch.ones(3, 2))
    ),
    f"'data' must have an edge_index, got dict without{OTHERS}": lambda: snaps.Graph.from_pyg({}),
    "'edges' must be integers, got float32": lambda: snaps.Graph.from_pyg(
        Data(edge_index=torch.rand(2, 3), num_nodes=4)
    ),
    "'edges' must lie from 0 to 2, got 9": lambda: snaps.Graph.from_pyg(
        Data(edge_index=torch.tensor([[0], [9]]), x=torch.ones(3, 2))
    ),
    "'features' must be finite, got nan in row 1": lambda: snaps.Graph.from_pyg(
        Data(edge_index=torch.tensor([[0], [1]]), x=torch.tensor([[1.0], [torch.nan]]))
    ),
    "'graph' must be a NetworkX graph, got ndarray": lambda: snaps.Graph.from_networkx(np.eye(3)),
    "'graph' must have at least one node, got none": lambda: snaps.Graph.from_networkx(nx.Graph()),
    "'features' must be given for every node, got none for 'c'": lambda: snaps.Graph.from_networkx(
        named_path(a=[1.0], b=[2.0]), "x"
    ),
    "'features' must be given for every node, got none for 'b'": lambda: snaps.Graph.from_networkx(
        named_path(), {"a": [1.0], "c": [1.0]}
    ),
    "'features' must have rows of equal length, got [1, 2]": lambda: snaps.Graph.from_networkx(
        named_path(a=[1.0], b=[2.0, 3.0], c=[1.0]), "x"
    ),
    "'features' must be an array, got str": lambda: snaps.Graph.from_networkx(
        named_path(a="red", b="red", c="blue"), "x"
    ),
    "the number of nodes must agree, got 'num_nodes' 3, 'features' 2, 'ids' 3": lambda: (
        snaps.Graph.from_networkx(named_path(), np.ones((2, 2)))
    ),
    "'ids' must be unique, got 1 twice or more": lambda: snaps.Graph.from_networkx(
        nx.path_graph([1, "1"])
    ),
}

SIMILARITY = {
    "'similarity' must be a sparse matrix, got ndarray": lambda: with_similarity(np.ones((N, N))),
    "'similarity' must be a sparse matrix, got str": lambda: with_similarity("similar.npz"),
    "'similarity' must have shape (60, 60), got (59, 59)": lambda: with_similarity(sp.eye(59)),
    "'similarity' must have shape (60, 60), got (60, 20)": lambda: with_similarity(sp.eye(N, 20)),
    "'similarity' must be finite, got nan in row 7": lambda: with_similarity(
        sp.csr_array(([0.5, np.nan], ([2, 7], [3, 9])), (N, N))
    ),
    "'similarity' must be finite, got inf in row 0": lambda: with_similarity(
        sp.coo_array(([np.inf], ([0], [1])), (N, N))
    ),
    "'similarity' must hold numbers, got complex128": lambda: with_similarity(
        sp.eye(N, dtype=complex)
    ),
    "'graph' must be a snaps.Graph for SNAPS, got None": lambda: snaps.SNAPS().calibrate(
        None, PROBS, LABELS, CALIB
    ),
    "'graph' must be a snaps.Graph for DAPS, got None": lambda: snaps.DAPS().calibrate(
        None, PROBS, LABELS, CALIB
    ),
    "'graph' must be a snaps.Graph, got ndarray": lambda: snaps.SNAPS().calibrate(
        PROBS, small.graph(), LABELS, CALIB
    ),
    "'graph' must be a snaps.Graph, got Data: snaps.Graph.from_pyg(data) makes one": lambda: (
        snaps.SNAPS().calibrate(Data(edge_index=torch.tensor(PAIR)), PROBS, LABELS, CALIB)
    ),
}


@messages(graph=GRAPH, features=FEATURES, foreign=FOREIGN, similarity=SIMILARITY)
def test_message(message, call):
    assert error_line(call) == message.rstrip()
