"""Every way in gives the same graph."""

from __future__ import annotations

import re
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

import snaps
from snaps._checks.ids import node_positions
from snaps.folder import write_folder
from tests.helpers import small

EDGES = np.array([[0, 1, 1, 3, 2], [1, 0, 2, 3, 1]])  # twice 0-1, twice 1-2, a loop; 4 is alone
FEATURES = np.array([[1, 0], [0, 2], [3, 0], [0, 0], [0, 5]], np.float64)
N = 5
LINKS = {(0, 1), (1, 0), (1, 2), (2, 1)}


def links(graph):
    """The adjacency as pairs of positions; all of them weigh one, none twice."""
    coo = graph.adjacency.tocoo()
    pairs = list(zip(coo.row.tolist(), coo.col.tolist(), strict=True))
    assert len(pairs) == len(set(pairs)) and (coo.data == 1).all()
    return set(pairs)


def dense(features):
    return features.toarray() if sp.issparse(features) else features


def same_graph(graph, features=FEATURES):
    assert graph.num_nodes == N
    assert links(graph) == LINKS
    if features is None:
        assert graph.features is None
    else:
        np.testing.assert_array_equal(dense(graph.features), features)


# ---- Edges ---------------------------------------------------------------------------------------

MATRIX = sp.coo_array(([2.0, 1, 1, 7, -1], EDGES), (N, N))


@pytest.mark.parametrize(
    "edges",
    [
        EDGES,
        EDGES.tolist(),
        EDGES.astype(np.int32),
        EDGES.astype(np.uint64),
        torch.tensor(EDGES),
        pd.DataFrame(EDGES),
        MATRIX,
        MATRIX.tocsr(),
        sp.csc_matrix(MATRIX),
        sp.csr_array(MATRIX, dtype=bool),
        torch.sparse_coo_tensor(torch.tensor(EDGES), torch.ones(5), (N, N)),
        torch.tensor(MATRIX.toarray()).to_sparse_csr(),
    ],
    ids=lambda edges: f"{type(edges).__name__} {getattr(edges, 'dtype', '')}",
)
def test_edges(edges):
    same_graph(snaps.Graph(edges, FEATURES))


def test_zeros_in_a_matrix_are_no_edges():
    matrix = sp.csr_array(([1.0, 0.0], ([0, 2], [1, 3])), (N, N))
    assert links(snaps.Graph(matrix)) == {(0, 1), (1, 0)}


def test_a_graph_without_edges():
    for edges in (None, np.empty((2, 0)), [[], []], sp.csr_array((N, N))):
        graph = snaps.Graph(edges, FEATURES)
        assert graph.adjacency.shape == (N, N) and graph.num_edges == 0


def test_the_number_of_nodes():
    assert snaps.Graph(EDGES).num_nodes == 4
    assert snaps.Graph(EDGES, num_nodes=np.int64(9)).num_nodes == 9
    assert snaps.Graph(EDGES, FEATURES).num_nodes == N
    assert snaps.Graph(sp.csr_array((7, 7))).num_nodes == 7
    assert snaps.Graph(EDGES, ids=list("abcdef")).num_nodes == 6


@pytest.mark.parametrize(
    "options, expected, count",
    [
        ({}, LINKS, 2),
        ({"self_loops": True}, LINKS | {(3, 3)}, 3),
        ({"directed": True}, {(0, 1), (1, 0), (1, 2), (2, 1)}, 4),
        ({"directed": True, "self_loops": True}, {*LINKS, (3, 3)}, 5),
    ],
)
def test_directions_and_loops(options, expected, count):
    graph = snaps.Graph(EDGES, num_nodes=N, **options)
    assert links(graph) == expected and graph.num_edges == count


def test_direction_goes_from_source_to_target():
    graph = snaps.Graph([[0, 2], [1, 1]], directed=True)
    assert links(graph) == {(0, 1), (2, 1)}


def test_repr():
    assert repr(snaps.Graph(EDGES, FEATURES)) == "Graph(5 nodes, 2 edges, 2 features)"
    assert repr(snaps.Graph(EDGES)) == "Graph(4 nodes, 2 edges, no features)"


# ---- Features ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "features",
    [
        FEATURES,
        FEATURES.tolist(),
        FEATURES.astype(np.float32),
        FEATURES.astype(np.float16),
        FEATURES.astype(np.longdouble),
        FEATURES.astype(np.int64),
        FEATURES.astype(np.uint8),
        pd.DataFrame(FEATURES, columns=["a", "b"]),
        torch.tensor(FEATURES),
        torch.tensor(FEATURES, dtype=torch.bfloat16),
        torch.tensor(FEATURES, requires_grad=True),
        sp.csr_array(FEATURES),
        sp.csc_matrix(FEATURES, dtype=np.int32),
        sp.coo_array(FEATURES),
        torch.tensor(FEATURES).to_sparse(),
        torch.tensor(FEATURES).to_sparse_csr(),
        torch.tensor(FEATURES, dtype=torch.bfloat16).to_sparse(),
    ],
    ids=lambda features: f"{type(features).__name__} {getattr(features, 'dtype', '')}",
)
def test_features(features):
    graph = snaps.Graph(EDGES, features)
    same_graph(graph)
    assert graph.features.dtype in (np.float32, np.float64)
    sparse = sp.issparse(features) or "sparse" in str(getattr(features, "layout", ""))
    assert sp.issparse(graph.features) == sparse


@pytest.mark.parametrize("make", [np.array, sp.csr_array])
def test_features_that_are_true_or_false(make):
    graph = snaps.Graph(EDGES, make(FEATURES > 0))
    same_graph(graph, FEATURES > 0)
    assert graph.features.dtype == np.float32


def test_repeated_entries_add_up_and_the_given_matrix_stays_as_it_was():
    given = sp.csr_array(([1.0, 2.0, 4.0], [1, 0, 1], [0, 3, 3]), (2, 2))
    before = [array.copy() for array in (given.data, given.indices, given.indptr)]
    graph = snaps.Graph([[0], [1]], given)
    np.testing.assert_array_equal(graph.features.toarray(), [[2, 5], [0, 0]])
    for array, old in zip((given.data, given.indices, given.indptr), before, strict=True):
        np.testing.assert_array_equal(array, old)


# ---- Ids -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ids",
    [
        [30, 10, 20, -5, 2**62],
        np.array([3, 1, 2, 9, 2**64 - 1], np.uint64),
        ["c", "a", "b", "", "longer"],
        np.array(["c", "a", "b", "d", "e"], object),
        pd.Series(["c", "a", "b", "d", "e"]),
        pd.Series([3, 1, 2, 5, 4], index=list("vwxyz")),
        torch.tensor([3, 1, 2, 5, 4]),
        range(10, 15),
    ],
    ids=lambda ids: type(ids).__name__,
)
def test_ids(ids):
    graph = snaps.Graph(EDGES, FEATURES, ids=ids)
    assert graph.ids.tolist() == list(np.asarray(ids).tolist())
    assert graph.index(graph.ids[[4, 0, 1]]).tolist() == [4, 0, 1]
    assert graph.index(graph.ids[2]).tolist() == [2]
    assert graph.index([]).tolist() == []
    same_graph(graph)


def test_ids_of_other_integer_types_are_found_exactly():
    """As floats, which NumPy would compare them as, these would be one and the same."""
    large = np.array([2**53 + 1, 2**53, 7])
    graph = snaps.Graph(None, ids=large)
    assert graph.index(large.astype(np.uint64)).tolist() == [0, 1, 2]
    graph = snaps.Graph(None, ids=large.astype(np.uint64))
    assert graph.index(large).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "ids", [["a", 1, "c"], ["a", np.nan, "c"], [1, None, 2], [b"a", b"b", b"c"]]
)
def test_ids_of_mixed_types_are_refused(ids):
    """NumPy would turn 1 into '1' and nan into 'nan'."""
    with pytest.raises(snaps.SnapsError, match="'ids' must be a list of integers or of strings"):
        snaps.Graph(None, ids=ids)


# ---- Nodes as users name them --------------------------------------------------------------------

TEXT = np.array(["ann", "bob", "cat", "7"])


@pytest.mark.parametrize(
    "nodes, expected",
    [
        (["bob", "7"], [1, 3]),
        (("7", "ann"), [3, 0]),
        (np.array(["cat"]), [2]),
        (np.array(["cat", "ann"], object), [2, 0]),
        (np.array(["cat"], np.dtypes.StringDType()), [2]),
        (pd.Series(["bob", "cat"], index=[9, 8]), [1, 2]),
        (pd.Index(["bob", "cat"]), [1, 2]),
        (pd.Series(["bob"], dtype="string[pyarrow]"), [1]),
        (pd.Series(["bob", "ann"], dtype="category"), [1, 0]),
        ([3, 0], [3, 0]),
        (np.array([False, True, True, False]), [1, 2]),
        ([False, True, True, False], [1, 2]),
        (torch.tensor([2]), [2]),
        (range(2), [0, 1]),
    ],
)
def test_node_positions(nodes, expected):
    found = node_positions(TEXT, nodes, "nodes")
    assert found.tolist() == expected and found.dtype == np.int64


def test_integers_are_positions_even_if_ids_are_integers():
    assert node_positions(np.array([2, 1, 0]), [0, 1], "nodes").tolist() == [0, 1]
    assert snaps.Graph(None, ids=[2, 1, 0]).index([0, 1]).tolist() == [2, 1]


def test_no_nodes():
    for none in ([], np.array([], str), np.zeros(4, bool), np.array([], object)):
        assert node_positions(TEXT, none, "nodes", empty=True).tolist() == []
        with pytest.raises(snaps.SnapsError, match="'nodes' must hold at least one node, got none"):
            node_positions(TEXT, none, "nodes")


BAD_NODES = {
    "'x' must name nodes of the graph, got dan": (TEXT, ["ann", "dan"]),
    "'x' must not repeat a node, got bob twice or more": (TEXT, ["bob", "ann", "bob"]),
    "'x' must be all positions or all ids, got ['ann', 1]": (TEXT, ["ann", 1]),
    "'x' must be all positions or all ids, got ['ann', None]": (TEXT, ["ann", None]),
    "'x' must be an array, got str": (TEXT, "ann"),
    "'x' must lie from 0 to 3, got 4": (TEXT, [4]),
    "'x' must not repeat a node, got 2 twice or more": (TEXT, [2, 2]),
    "'x' as a mask must have shape (4,), got (3,)": (TEXT, [True, False, True]),
    "'x' must be integer positions or a boolean mask, got <U1": (np.arange(3), ["0", "1"]),
    "'x' must be one-dimensional, got shape (1, 2)": (TEXT, [["ann", "bob"]]),
}


@pytest.mark.parametrize("message, given", BAD_NODES.items(), ids=list(BAD_NODES))
def test_bad_nodes(message, given):
    with pytest.raises(snaps.SnapsError) as caught:
        node_positions(*given, "x")
    assert str(caught.value) == message


def test_neighbours_are_listed_by_id_and_not_by_position():
    ids = np.array([4, 3, 2, 1, 0])
    graph = snaps.Graph([[0, 0, 0, 0], [1, 2, 3, 4]], ids=ids)
    assert ids[graph.adjacency[[0]].indices].tolist() == [0, 1, 2, 3]


# ---- PyTorch Geometric, NetworkX, files ----------------------------------------------------------


def test_from_pyg():
    x = torch.tensor(FEATURES, dtype=torch.float32)
    data = Data(edge_index=torch.tensor(EDGES), x=x)
    same_graph(snaps.Graph.from_pyg(data))
    same_graph(snaps.Graph.from_pyg(Data(edge_index=torch.tensor(EDGES), num_nodes=N)), None)
    assert snaps.Graph.from_pyg(data, self_loops=True).num_edges == 3


def networkx_graph(names, order):
    """The graph of this file with these names, its nodes added in this order."""
    graph = nx.MultiDiGraph()
    for i in order:
        graph.add_node(names[i], x=FEATURES[i].tolist())
    graph.add_edges_from((names[a], names[b]) for a, b in EDGES.T)
    return graph


@pytest.mark.parametrize(
    "names", [[10, 11, 12, 13, 14], list("abcde"), [(i, "x") for i in "abcde"]]
)
@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [3, 1, 4, 0, 2]])
@pytest.mark.parametrize("given", ["attribute", "mapping", "array", None])
def test_from_networkx(names, order, given):
    graph = networkx_graph(names, order)
    features = {
        "attribute": "x",
        "mapping": {name: torch.tensor(row) for name, row in zip(names, FEATURES, strict=True)},
        "array": FEATURES[order],
        None: None,
    }[given]
    found = snaps.Graph.from_networkx(graph, features)
    shown = names if isinstance(names[0], int) else [str(name) for name in names]
    assert found.ids.tolist() == [shown[i] for i in order]
    place = found.index(shown)
    assert links(found) == {(place[a], place[b]) for a, b in LINKS}
    if given is None:
        assert found.features is None
    else:
        np.testing.assert_array_equal(found.features[place], FEATURES)


def test_from_networkx_options():
    graph = nx.DiGraph([("a", "b"), ("c", "c")])
    assert links(snaps.Graph.from_networkx(graph, directed=True, self_loops=True)) == {
        (0, 1),
        (2, 2),
    }
    lonely = nx.empty_graph(3)
    assert snaps.Graph.from_networkx(lonely).num_edges == 0


@pytest.mark.parametrize("kind", ["dense", "sparse", "none"])
def test_from_npz(tmp_path, kind):
    csr, x = MATRIX.tocsr(), sp.csr_array(FEATURES)
    arrays = {"adj_indptr": csr.indptr, "adj_indices": csr.indices}
    if kind == "dense":
        arrays["x"] = FEATURES
    if kind == "sparse":
        arrays |= {"x_data": x.data, "x_indices": x.indices, "x_indptr": x.indptr}
        arrays["x_shape"] = np.array(x.shape)
    np.savez(tmp_path / "g.npz", **arrays)
    same_graph(snaps.Graph.from_npz(tmp_path / "g.npz"), None if kind == "none" else FEATURES)
    assert snaps.Graph.from_npz(str(tmp_path / "g.npz"), self_loops=True).num_edges == 3


@pytest.mark.parametrize("features", [FEATURES, sp.csr_array(FEATURES), None])
def test_from_parquet(tmp_path, features):
    write_folder(tmp_path, snaps.Graph(EDGES, features, N), np.full((N, 2), 0.5))
    found = snaps.Graph.from_parquet(tmp_path)
    same_graph(found, None if features is None else FEATURES)
    assert sp.issparse(found.features) == sp.issparse(features)


def test_the_graph_knows_nothing_of_folders():
    """`snaps.folder` knows `Graph`: imports go one way."""
    for module in (snaps.graph, snaps.io.parquet, snaps._checks.ids):
        # At the start of a line or indented: an example in a docstring has its prompt before.
        text = Path(module.__file__).read_text()
        imports = re.findall(r"^ *(?:from|import) (snaps\S*)", text, re.MULTILINE)
        assert imports and "snaps.folder" not in imports
        assert module is snaps.graph or "snaps.graph" not in imports


# ---- What a graph does not change ----------------------------------------------------------------


def test_the_way_in_does_not_change_the_sets():
    """Names given by NetworkX in another order, or by hand: the same node gets the same set."""
    order = np.random.default_rng(0).permutation(small.NUM_NODES)
    theirs = nx.Graph()
    theirs.add_nodes_from(small.NAMES[order].tolist())
    theirs.add_edges_from(small.NAMES[small.EDGES].T.tolist())
    features = dict(zip(small.NAMES.tolist(), small.FEATURES, strict=True))
    graph = snaps.Graph.from_networkx(theirs, features)
    calib = graph.index(small.NAMES[small.CALIB])
    cp = snaps.SNAPS(0.2, k=5, weights=(0.3, 0.2))
    cp.calibrate(graph, small.PROBS[order], small.LABELS[order], calib)
    mine = small.calibrated(named=True)
    nodes = small.TEST
    np.testing.assert_array_equal(
        cp.predict_set(graph.index(small.NAMES[nodes])).mask, mine.predict_set(nodes).mask
    )
    assert cp.threshold_ == mine.threshold_
