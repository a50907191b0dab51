"""Edges, features and weights that carry names: matched by them or refused."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from torch_geometric.data import Data

import snaps
from tests.helpers import small
from tests.helpers.papers import POSITIONS
from tests.helpers.small import error_line, noted

# ---- Graphs --------------------------------------------------------------------------------------

LINKS = pd.DataFrame({"source": ["ann", "bob"], "target": ["bob", "cleo"], "weight": [1.0, 2.0]})
EDGES = {
    "source and target": LINKS,
    "src and dst": LINKS.set_axis(["src", "dst", "weight"], axis=1),
    "two columns": LINKS[["source", "target"]].set_axis(["a", "b"], axis=1),
    "columns in another order": LINKS[["weight", "target", "source"]],
    "polars": pl.from_pandas(LINKS),
    "Arrow": pa.table(LINKS),
    "a dict": LINKS.to_dict("list"),
    "an array": LINKS[["source", "target"]].to_numpy().T,
    "lists": [["ann", "bob"], ["bob", "cleo"]],
}


@pytest.mark.parametrize("edges", EDGES.values(), ids=list(EDGES))
def test_edges_between_names(edges):
    graph = snaps.Graph(edges, ids=["cleo", "ann", "bob"])
    assert graph.adjacency.toarray().tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]
    message = error_line(snaps.Graph, edges, ids=["cleo", "ann", "dora"])
    assert message == "'edges' must name nodes of the graph, got bob"
    message = error_line(snaps.Graph, edges)
    assert message == "'ids' must be given for edges between ids, got None and 'ann'"


def test_edges_with_weights_and_integer_ids():
    graph = snaps.Graph(LINKS, ids=["cleo", "ann", "bob"], weighted=True)
    assert graph.adjacency.toarray().tolist() == [[0, 0, 2], [0, 0, 1], [2, 1, 0]]
    numbers = pd.DataFrame([[10, 20], [20, 30], [20, 10]])
    graph = snaps.Graph(numbers, ids=[30, 10, 20])
    assert graph.adjacency.toarray().tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]
    assert snaps.Graph(pd.DataFrame([[0, 1], [1, 2], [1, 3]])).num_nodes == 4
    message = error_line(snaps.Graph, pd.DataFrame([[0, 1], [1, 2]]))
    assert message.startswith("'edges' as a table must have columns src and dst, got two rows")
    message = error_line(snaps.Graph, LINKS.rename(columns={"source": "who"}), ids=["ann"])
    assert message.endswith("or two columns, got ['who', 'target', 'weight']")


def test_features_by_id():
    table = pd.DataFrame([[0.0], [1.0], [2.0]], index=["ann", "bob", "cleo"])
    ids = ["cleo", "ann", "bob"]
    assert snaps.Graph(LINKS, table, ids=ids).features.ravel().tolist() == [2, 0, 1]
    assert snaps.Graph(LINKS, dict(table[0].map(lambda x: [x])), ids=ids).features[0, 0] == 2
    assert snaps.Graph(LINKS, table).ids.tolist() == ["ann", "bob", "cleo"]
    links = [[0, 1], [1, 2]]
    numbered = pd.DataFrame([[2.0], [0.0], [1.0]], index=[2, 0, 1])
    assert snaps.Graph(links, numbered).features.ravel().tolist() == [0, 1, 2]
    message = error_line(snaps.Graph, links, numbered.set_axis([2, 0, 7]))
    assert (
        message == f"the index of 'features' must be ids of the graph's nodes, got 7: {POSITIONS}"
    )
    message = error_line(snaps.Graph, LINKS, table.drop("bob"), ids=ids)
    assert message == "the index of 'features' must hold every node, got none for bob"


def test_networkx():
    graph = nx.Graph([("cleo", "ann"), ("ann", "bob")])
    table = pd.DataFrame([[0.0], [1.0], [2.0]], index=["ann", "bob", "cleo"])
    made = snaps.Graph.from_networkx(graph, table)
    assert made.ids.tolist() == ["cleo", "ann", "bob"] and made.features.ravel().tolist() == [
        2,
        0,
        1,
    ]
    graph = nx.Graph([((0, 1), (1, 1)), ((1, 1), (2, 0))])
    made = snaps.Graph.from_networkx(graph)
    probs = {(2, 0): [0.9, 0.1], (0, 1): [0.2, 0.8], (1, 1): [0.5, 0.5]}
    cp, _ = noted(
        snaps.DAPS(0.4, weight=0.0, score=snaps.THR()).calibrate, made, probs, {(2, 0): 0}, [2]
    )
    assert cp.scores_[0].round(6).tolist() == [0.8, 0.2]  # of (0, 1), the first


def test_pyg():
    data = Data(edge_index=[[0], [1]])
    message = error_line(snaps.SNAPS().calibrate, data, small.PROBS, small.LABELS, small.CALIB)
    assert message.endswith("got Data: snaps.Graph.from_pyg(data) makes one")


def test_a_column_of_ids_after_a_shuffle():
    ids = np.random.default_rng(7).permutation(60)
    table = pd.DataFrame(small.FEATURES, columns=list("abcd"))
    table.insert(0, "id", ids)
    expected = snaps.Graph(None, table, ids=ids).features
    assert expected.shape == (60, 4)
    shuffled = snaps.Graph(None, table.sample(frac=1, random_state=3), ids=ids).features
    assert (shuffled == expected).all()
    # An index with a name is no default one, whatever it holds.
    named = table.set_index("id").sort_index()
    assert (snaps.Graph(None, named, ids=ids).features == expected).all()


def test_names_that_are_no_edges():
    ids = ["ann", "bob", "cleo"]
    assert error_line(snaps.Graph, {0: [1, 2], 1: [2, 0]}).endswith("two columns, got [0, 1]")
    table = pd.DataFrame({"src": ["ann"], "weight": [1]})
    assert error_line(snaps.Graph, table, ids=ids).endswith("got ['src', 'weight']")
    table = pd.DataFrame({"Target": ["bob"], "Source": ["ann"]})
    assert snaps.Graph(table, ids=ids, directed=True).adjacency.toarray()[0].tolist() == [0, 1, 0]
    both = pd.DataFrame({"src": ["ann"], "dst": ["bob"], "source": ["bob"], "target": ["cleo"]})
    assert "got ['src', 'dst', 'source', 'target']" in error_line(snaps.Graph, both, ids=ids)
    unlike = {"src": ["ann"], "dst": ["bob", "ann"]}
    message = "'edges' must have as many sources as targets, got 1 and 2"
    assert error_line(snaps.Graph, unlike, ids=ids) == message
    weights = pd.Series([1.0, 2.0], index=[1, 0])
    message = error_line(snaps.Graph, LINKS, ids=ids, weighted=True, edge_weights=weights)
    assert message.startswith("'edge_weights' must be in the order of the edges")
    message = error_line(snaps.Graph.from_networkx, nx.Graph([(0, 1)]), ids=[0, 1])
    assert message == "'ids' must be left out: the nodes of the graph tell it"


# ---- edges, weights and categories ----


@pytest.mark.parametrize(
    "form", [lambda e: e.T, lambda e: [e.src, e.dst], lambda e: pl.DataFrame(e).transpose()]
)
def test_edges_in_tables_and_series_are_ids_however_they_lie(form):
    random = np.random.default_rng(0)
    ids, ends = random.permutation(50), random.integers(0, 50, (2, 120))
    table = pd.DataFrame({"src": ids[ends[0]], "dst": ids[ends[1]]})
    table = table[table.src != table.dst].reset_index(drop=True)
    plain = snaps.Graph(table, ids=ids).adjacency
    assert (snaps.Graph(form(table), ids=ids).adjacency != plain).nnz == 0


def test_weights_follow_the_index_of_the_edges_or_are_refused():
    table = pd.DataFrame({"src": ["a", "b", "c"], "dst": ["b", "c", "a"]})
    weights = pd.Series([1.0, 2.0, 3.0])
    options = {"ids": ["a", "b", "c"], "weighted": True}
    moved = table.loc[[2, 0, 1]]
    plain = snaps.Graph(table, edge_weights=weights, **options).adjacency
    same = snaps.Graph(moved, edge_weights=weights.loc[[2, 0, 1]], **options).adjacency
    assert (plain != same).nnz == 0
    for edges, other in ((moved, weights), (table, weights.loc[[2, 0, 1]])):
        with pytest.raises(snaps.SnapsError, match="in the order of the edges, got another index"):
            snaps.Graph(edges, edge_weights=other, **options)


@pytest.mark.parametrize("name", ["id", "ID", "node", "node_id"])
def test_a_column_of_ids_is_no_feature(name):
    ids = ["a", "b", "c"]
    table = pd.DataFrame({"x": [0.1, 0.2, 0.3], name: [7, 8, 9]}, index=ids)
    with pytest.raises(snaps.SnapsError, match=f"must not have a column of ids, got '{name}'"):
        snaps.Graph(None, table, ids=ids)


def test_a_directed_edge_says_where_it_begins():
    table = pd.DataFrame({"to": ["a", "b"], "from": ["b", "c"]})
    with pytest.raises(snaps.SnapsError, match="which do not say where an edge begins"):
        snaps.Graph(table, ids=["a", "b", "c"], directed=True)
    known = table.rename(columns={"to": "target", "from": "source"})
    adjacency = snaps.Graph(known, ids=["a", "b", "c"], directed=True).adjacency
    assert adjacency.toarray().sum() == 2
    snaps.Graph(table, ids=["a", "b", "c"])
