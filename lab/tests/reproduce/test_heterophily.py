"""FSGNN, features from structure, and the table on graphs whose links join unlike nodes."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import scipy.sparse as sp

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import snaps  # noqa: E402
from snaps.cli import main  # noqa: E402
from snaps.datasets import make_graph  # noqa: E402
from snaps_lab.models import gnn  # noqa: E402
from snaps_lab.models.fsgnn import FSGNN  # noqa: E402
from snaps_lab.models.training import fit, seeded  # noqa: E402
from snaps_lab.reproduce import heterophily  # noqa: E402

N = 40


def small_graph(dense: bool = False) -> snaps.Graph:
    """Directed, with self loops, nodes without links, rows of links that repeat, a zero row."""
    random = np.random.default_rng(0)
    edges = random.integers(0, N - 3, (2, 120))
    twin = edges[:, edges[0] == 0]
    edges = np.hstack([edges[:, edges[0] != 1], [np.ones_like(twin[0]), twin[1]], [[5, 6], [5, 6]]])
    features = random.random((N, 9)) * (random.random((N, 9)) < 0.3)
    features[7] = 0
    return snaps.Graph(
        edges, features if dense else sp.csr_array(features), directed=True, self_loops=True
    )


# ---- FSGNN ----------------------------------------------------------------------------------


def transcribed(network: FSGNN, graph: snaps.Graph) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden layer and logits as the model's paper writes them, all dense."""
    features = graph.features.toarray() if sp.issparse(graph.features) else graph.features
    x = torch.tensor(features, dtype=torch.float32)
    sums = x.sum(dim=1, keepdim=True)
    x = x / torch.where(sums == 0, 1, sums)
    plain = torch.tensor(graph.adjacency.toarray(), dtype=torch.float32)
    inputs = [x]
    for adjacency in (plain, plain + torch.eye(N)):
        degrees = adjacency.sum(dim=1)
        root = torch.where(degrees == 0, 1, degrees).rsqrt()
        step, reached = root[:, None] * adjacency * root, x
        for _ in range(network.hops):
            reached = step @ reached
            inputs.append(reached)
    attention = torch.softmax(network.attention, dim=0)
    hidden = [
        attention[i] * F.normalize(matrix @ network.first.weight[i] + network.first.bias[i], dim=1)
        for i, matrix in enumerate(inputs)
    ]
    embeddings = torch.cat(hidden, dim=1).relu()
    return embeddings, embeddings @ network.last.weight + network.last.bias


@pytest.mark.parametrize("dense", [False, True])
def test_fsgnn_equals_its_dense_transcription_with_gradients(dense):
    graph = small_graph(dense)
    with seeded(0):
        network = FSGNN(9, 3, hidden=5).eval()
        network.attention.data = torch.randn(7)
        weights = torch.randn(N, 3)
    embeddings, logits = transcribed(network, graph)
    torch.testing.assert_close(network(graph), logits, rtol=1e-4, atol=1e-5)
    assert np.allclose(gnn.embed(network, graph), embeddings.detach(), atol=1e-5)
    expected = torch.autograd.grad((logits * weights).sum(), list(network.parameters()))
    actual = torch.autograd.grad((network(graph) * weights).sum(), list(network.parameters()))
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_embeddings_are_what_the_last_layer_reads():
    graph = small_graph()
    network = gnn.build("fsgnn-squirrel", 9, 3)
    embeddings = gnn.embed(network, graph)
    assert embeddings.shape == (N, 7 * 64) and embeddings.min() >= 0
    last = network.last
    logits = embeddings @ last.weight.detach().numpy() + last.bias.detach().numpy()
    assert np.allclose(gnn.predict(network, graph), logits, atol=1e-5)


def test_nodes_are_read_in_any_order():
    graph, order = small_graph(), np.random.default_rng(1).permutation(N)
    moved = snaps.Graph(
        graph.adjacency[order][:, order], graph.features[order], directed=True, self_loops=True
    )
    network = gnn.build("fsgnn-chameleon", 9, 3)
    assert np.allclose(gnn.predict(network, graph)[order], gnn.predict(network, moved), atol=1e-5)


@pytest.fixture(scope="module")
def data():
    return make_graph(300, 3, degree=4, seed=0)


@pytest.mark.parametrize("model", ["fsgnn-chameleon", "fsgnn-squirrel"])
def test_training_repeats_and_learns(model, data):
    nodes = np.random.default_rng(0).permutation(300)
    parts = data.graph, data.labels, nodes[:100], nodes[100:160]
    first, again, other = (gnn.train(model, *parts, seed=s, max_epochs=30) for s in (1, 1, 2))
    assert np.array_equal(first.logits, again.logits)
    assert not np.array_equal(first.logits, other.logits)
    hits = first.logits.argmax(axis=1)[nodes[160:]] == data.labels[nodes[160:]]
    assert hits.mean() > 0.7


def test_parts_of_a_network_have_their_own_options(data):
    nodes = np.arange(300)
    settings = dataclasses.replace(
        gnn.PAPER["fsgnn-squirrel"], parts={"attention": {"lr": 0.0}, "last": {"lr": 0.0}}
    )
    trained = gnn.train(settings, data.graph, data.labels, nodes[:60], nodes[60:120], max_epochs=3)
    with seeded(0):
        fresh = gnn.build(settings, data.graph.features.shape[1], 3).state_dict()
    assert trained.best_epoch > 0
    same = {name for name in fresh if torch.equal(fresh[name], trained.state_dict[name])}
    assert same == {"attention", "last.weight", "last.bias"}


@pytest.mark.parametrize(("resets", "epochs"), [(False, 5), (True, 7)])
def test_patience_counts_in_all_or_in_a_row(resets, epochs):
    module = torch.nn.Linear(1, 1)
    values = iter([5.0, 6, 6, 4, 6, 6, 6, 6, 6, 6, 6, 6])
    outcome = fit(
        module,
        torch.optim.SGD(module.parameters(), lr=0.0),
        lambda: ([module.weight.sum()], torch.tensor(next(values))),
        max_epochs=100,
        patience=4,
        resets=resets,
    )
    assert (outcome.epochs, outcome.best_epoch) == (epochs, 3)


# ---- features from structure ----------------------------------------------------------------


def unit(row: np.ndarray) -> np.ndarray:
    length = np.sqrt((row**2).sum())
    return row / length if length > 0 else row


def brute_force(graph: snaps.Graph, hops: int) -> np.ndarray:
    """Node by node, from the words of the docstring."""
    linked = [np.flatnonzero(row) for row in graph.adjacency.toarray()]
    counts = graph.adjacency.toarray().sum(axis=0)
    degrees = np.array([len(near) for near in linked])
    features = graph.features
    tables = [features]
    for _ in range(hops):
        last = tables[-1]
        tables.append(
            np.array([last[near].mean(axis=0) if len(near) else 0 * last[0] for near in linked])
        )
    width = int(np.log2(degrees.max())) + 1
    rows = []
    for i, near in enumerate(linked):
        links, own, spread = np.zeros(N), np.zeros(width), np.zeros(width)
        for j in near:
            links[j] = counts[j] ** -0.5
            if degrees[j]:
                spread[int(np.log2(degrees[j]))] += 1
        if degrees[i]:
            own[int(np.log2(degrees[i]))] = 1
        profile = unit(np.concatenate([own, unit(spread)]))
        rows.append(np.concatenate([*(unit(table[i]) for table in tables), unit(links), profile]))
    return np.array(rows)


@pytest.mark.parametrize("hops", [0, 1, 2])
@pytest.mark.parametrize("directed", [True, False])
def test_structural_features_equal_a_brute_force(hops, directed):
    graph = small_graph(dense=True)
    if not directed:
        graph = snaps.Graph(graph.adjacency, graph.features)
    assert (np.diff(graph.adjacency.indptr) == 0).any()
    found = snaps.structural_features(graph, hops=hops)
    assert np.allclose(found.toarray(), brute_force(graph, hops))
    sparse = snaps.Graph(
        graph.adjacency, sp.csr_array(graph.features), directed=True, self_loops=True
    )
    assert np.allclose(snaps.structural_features(sparse, hops).toarray(), found.toarray())


def test_node_without_links_is_known_by_its_features_alone():
    graph = snaps.Graph([[0], [1]], features=np.eye(4)[[0, 1, 2, 2]])
    found = snaps.structural_features(graph).toarray()
    assert found[2].tolist() == [0, 0, 1, 0] + [0] * (found.shape[1] - 4)
    assert snaps.similarity_graph(found, k=1).indices[-2:].tolist() == [3, 2]


def test_graph_without_features_or_links():
    path = snaps.Graph([[0, 1, 2, 3], [1, 2, 3, 4]])
    assert snaps.structural_features(path).shape == (5, 5 + 2 * 2)
    assert snaps.structural_features(snaps.Graph(None, num_nodes=3)).nnz == 0


def test_structural_features_leave_the_graph_as_it_was():
    graph = small_graph()
    before = graph.features.copy(), graph.adjacency.copy()
    snaps.structural_features(graph)
    assert (graph.features != before[0]).nnz == 0
    assert (graph.adjacency != before[1]).nnz == 0


def run(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 0


# ---- errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: snaps.structural_features(np.eye(3)),
            "'graph' must be a snaps.Graph, got ndarray",
        ),
        (
            lambda: snaps.structural_features(small_graph(), hops=-1),
            "'hops' must be an integer of at least 0, got -1",
        ),
        (
            lambda: snaps.structural_features(small_graph(), hops=1.5),
            "'hops' must be an integer of at least 0, got 1.5",
        ),
        (lambda: FSGNN(9, 3, hops=0), "'hops' must be an integer of at least 1, got 0"),
        (
            lambda: gnn.embed(gnn.build("mlp", 9, 3), small_graph()),
            "'module' must be an FSGNN, got MLP",
        ),
        (
            lambda: gnn.train(
                gnn.Settings(FSGNN, parts={"atention": {"lr": 1.0}}),
                small_graph(),
                np.arange(N) % 3,
                np.arange(10),
                np.arange(10, 20),
            ),
            "'parts' must be among the network's attention, first, last, got 'atention'",
        ),
    ],
)
def test_errors_name_argument_rule_and_value(call, message):
    with pytest.raises(snaps.SnapsError) as caught:
        call()
    assert str(caught.value) == message


def test_other_datasets_are_skipped(tmp_path, capsys):
    run(["reproduce", "heterophily", "--datasets", "cora_ml", "--out", str(tmp_path / "out")])
    text = capsys.readouterr().out
    assert text == "skipped cora_ml: this table has chameleon, squirrel, actor\n"
    assert not (tmp_path / "out").exists()


# ---- the table ------------------------------------------------------------------------------


def test_table_of_one_model(tmp_path, data_dir, monkeypatch, capsys):
    monkeypatch.setenv("SNAPS_DATA", str(data_dir))
    # A few epochs will do here.
    short = dataclasses.replace(gnn.PAPER["fsgnn-chameleon"], learning_rate=0.05, max_epochs=20)
    monkeypatch.setitem(gnn.PAPER, "fsgnn-chameleon", short)
    folders = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    command = ["reproduce", "heterophily", "--datasets", "chameleon", "--models", "1"]
    run([*command, "--splits", "20", *folders])
    result = json.loads((tmp_path / "out" / "heterophily.json").read_text())
    rows = {(row["alpha"], row["method"]): row for row in result["rows"]}
    assert len(rows) == 16
    assert all(
        row["inside_law"] and row["n_calib"] == row["n_test"] == 228 for row in rows.values()
    )
    assert rows[0.1, "SNAPS"]["paper_size"] == 1.7
    assert "paper_size" not in rows[0.1, "SNAPS, no embeddings"]
    for alpha in heterophily.ALPHAS:
        assert rows[alpha, "SNAPS"]["size"] < rows[alpha, "DAPS"]["size"]
        assert rows[alpha, "SNAPS, no embeddings"]["size"] < rows[alpha, "SNAPS, features"]["size"]
    assert "Chameleon: accuracy" in capsys.readouterr().out
    kept = next((tmp_path / "runs" / "embeddings").glob("*.npz"))
    before = kept.stat().st_mtime_ns
    run([*command, "--splits", "20", *folders])
    assert kept.stat().st_mtime_ns == before
    assert json.loads((tmp_path / "out" / "heterophily.json").read_text()) == result


def test_public_splits_part_the_nodes(data_dir):
    data = snaps.datasets.load("chameleon", data_dir=data_dir)
    nodes = heterophily.split_nodes(data, 3)
    assert [len(part) for part in (nodes.train, nodes.valid, nodes.pool)] == [1092, 729, 456]
    everything = np.concatenate([nodes.train, nodes.valid, nodes.pool])
    assert np.array_equal(np.sort(everything), np.arange(2277))
    graph = heterophily.directed_graph(data)
    assert graph.num_edges == 36101 and graph.directed
