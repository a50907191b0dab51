"""Sampled neighbourhoods: right on average, exact where all is sampled, and good to train on."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp

torch = pytest.importorskip("torch")

from snaps.datasets import make_graph  # noqa: E402
from snaps.errors import SnapsError  # noqa: E402
from snaps.graph import Graph  # noqa: E402
from snaps_lab.models import gnn, networks, sampling  # noqa: E402
from snaps_lab.models.sampling import Sampler  # noqa: E402
from snaps_lab.models.training import seeded  # noqa: E402

MODELS = ["gcn", "gat", "appnp", "mlp", "gcn-arxiv", "gcn-products"]
ALL = 10**6  # a fanout that leaves no neighbour out


@pytest.fixture(scope="module")
def data():
    return make_graph(300, 3, degree=8, features="dense", num_features=20, signal=2, seed=0)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def train(model, data, **options):
    options = {"max_epochs": 6, "batch_size": 25, "fanouts": (5, 3, 2)} | options
    nodes = np.random.default_rng(0).permutation(data.graph.num_nodes)
    return gnn.train(model, data.graph, data.labels, nodes[:90], nodes[90:150], **options)


def directed() -> Graph:
    """A directed weighted graph with some self loops, and three nodes without edges."""
    draw = rng(1)
    edges = draw.integers(0, 60, (2, 400))
    edges[1, :10] = edges[0, :10]
    return Graph(
        edges, draw.normal(size=(63, 5)), directed=True, self_loops=True, weighted=True,
        edge_weights=draw.uniform(0.2, 3, 400),
    )  # fmt: skip


def with_loops(graph: Graph) -> np.ndarray:
    """Row i: the weights of the edges into i, and of i itself, which is at least one."""
    incoming = graph.adjacency.toarray().T if graph.directed else graph.adjacency.toarray()
    return np.maximum(incoming, np.eye(graph.num_nodes))


# --- what is drawn


def test_every_choice_of_neighbours_is_as_likely():
    drawn = sampling._distinct(np.full(20_000, 5), 2, rng())
    assert (drawn[:, 0] != drawn[:, 1]).all() and drawn.min() == 0 and drawn.max() == 4
    seen = Counter(map(tuple, np.sort(drawn, axis=1).tolist()))
    assert len(seen) == 10
    error = math.sqrt(20_000 * 0.1 * 0.9)
    assert all(abs(count - 2000) < 5 * error for count in seen.values())


@pytest.mark.parametrize("kind", ["undirected", "directed"])
def test_a_neighbourhood_holds_true_edges_and_the_degrees_of_the_whole_graph(kind, data):
    graph = data.graph if kind == "undirected" else directed()
    whole = with_loops(graph)
    seeds = np.array([61, 5, 17, 2])
    batch = Sampler(graph, [3, 2]).around(seeds, rng())
    assert (batch.nodes[batch.seeds] == seeds).all()
    np.testing.assert_array_equal(batch.graph.features, graph.features[batch.nodes])
    part = with_loops(batch.graph)
    np.testing.assert_allclose(part.sum(axis=1), whole.sum(axis=1)[batch.nodes])
    links = part * (1 - np.eye(len(part)))
    assert (whole[np.ix_(batch.nodes, batch.nodes)][links > 0] > 0).all()
    others = whole * (1 - np.eye(len(whole)))
    counts = (links > 0).sum(axis=1)
    np.testing.assert_array_equal(
        counts[batch.seeds], np.minimum((others[seeds] > 0).sum(axis=1), 3)
    )
    assert counts.max() <= 3


@pytest.mark.parametrize("kind", ["undirected", "directed"])
def test_sums_over_sampled_neighbours_are_right_on_average(kind, data):
    if (
        kind == "directed"
    ):  # with equal weights: else the sum of weights is met, not each on average
        graph = Graph(rng(2).integers(0, 60, (2, 600)), rng(2).normal(size=(60, 5)), directed=True)
    else:
        graph = data.graph
    node = int(np.diff(networks._with_loops(graph).indptr).argmax())
    exact = networks._normalised(graph)[[node]] @ graph.features
    sampler, draw = Sampler(graph, [3]), rng()
    found = []
    for _ in range(500):
        batch = sampler.around(np.array([node]), draw)
        found.append(networks._normalised(batch.graph)[batch.seeds] @ batch.graph.features)
    found = np.concatenate(found)
    error = found.std(axis=0) / math.sqrt(len(found))
    assert (abs(found.mean(axis=0) - exact) < 5 * error + 1e-6).all()


def test_batches_hold_every_node_once(data):
    nodes = np.arange(7, 110)
    batches = list(Sampler(data.graph, [2]).batches(nodes, 25, rng()))
    assert [len(batch.seeds) for batch in batches] == [21, 21, 21, 20, 20]
    seeds = np.concatenate([batch.nodes[batch.seeds] for batch in batches])
    assert (seeds != nodes).any() and (np.sort(seeds) == nodes).all()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", ["undirected", "directed", "sparse"])
def test_all_neighbours_sampled_give_the_logits_of_the_whole_graph(model, kind, data):
    graph = directed() if kind == "directed" else data.graph
    if kind == "sparse":
        graph = Graph(graph.adjacency, sp.csr_array(np.maximum(graph.features, 0)))
    network = gnn.build(model, graph.features.shape[1], 3).eval()
    hops = network.hops if model == "appnp" else 3
    batch = Sampler(graph, [ALL] * hops).around(np.array([61, 5, 17]), rng())
    shared, (view,) = network.prepare(batch.graph, [batch.seeds])
    expected = network(graph)[[61, 5, 17]]
    torch.testing.assert_close(
        network.finish(network.start(shared), view), expected, rtol=1e-4, atol=1e-5
    )


# --- training


@pytest.mark.parametrize("model", MODELS)
def test_training_on_batches_learns(model, data):
    result = train(model, data, max_epochs=25)
    nodes = np.random.default_rng(0).permutation(300)
    accuracy = (result.logits.argmax(axis=1) == data.labels)[nodes[150:]].mean()
    assert accuracy > (0.6 if model == "mlp" else 0.85)
    assert 0 < result.best_epoch <= result.epochs <= 25


@pytest.mark.parametrize("model", ["gcn-arxiv", "gat"])
def test_a_seed_gives_the_same_bits(model, data):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, again, other = (train(model, data, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(torch.rand(3), expected)
    assert (first.logits == again.logits).all() and first.valid_loss == again.valid_loss
    assert (first.logits != other.logits).any()


def test_validation_reads_the_same_neighbourhoods_in_each_epoch(data):
    settings = dataclasses.replace(gnn.PAPER["gcn-products"], learning_rate=0.0)
    sampler, nodes = Sampler(data.graph, [2, 2, 2]), np.arange(100)
    with seeded(0):
        network = gnn.build(settings, 20, 3)
        parts = data.labels, nodes[:50], nodes[50:]
        losses = gnn._sampled_losses(network, sampler, *parts, False, 20, 0)
        first, second = losses(), losses()
        assert first[1] == second[1]
        assert [len(list(steps)) for steps, _ in (first, second)] == [3, 3]
        noisy = gnn._sampled_losses(network, sampler, *parts, True, 20, 0)
        assert noisy()[1] != noisy()[1]


def test_labels_elsewhere_do_not_matter(data):
    nodes = np.random.default_rng(0).permutation(300)
    blind = np.full(300, -1)
    blind[nodes[:150]] = data.labels[nodes[:150]]
    known, unknown = (
        train("gcn", dataclasses.replace(data, labels=y)) for y in (data.labels, blind)
    )
    assert (known.logits == unknown.logits).all()


def test_a_pyg_module_trains_on_batches(data):
    pyg = pytest.importorskip("torch_geometric.nn")
    module = pyg.GraphSAGE(20, 16, 2, 3)
    result = train(module, data, max_epochs=15, fanouts=(5, 3))
    assert (gnn.predict(module, data.graph) == result.logits).all()
    assert (result.logits.argmax(axis=1) == data.labels).mean() > 0.85


@pytest.mark.parametrize("model", MODELS)
def test_inference_layer_by_layer_is_exact(model, data, monkeypatch):
    monkeypatch.setattr(networks, "_BLOCK", 37)
    network = gnn.build(model, 20, 3)
    for name, value in network.named_buffers():
        if "running" in name:
            value.uniform_(0.5, 2)
    expected = gnn.predict(network, data.graph)
    found = gnn.predict(network, data.graph, by_layer=True)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


# --- full batch or not


def test_the_batch_follows_memory(data):
    network = gnn.build("gcn-products", 20, 3)
    need = sampling.full_batch_bytes(network, data.graph)
    assert sampling.fitting_batch_size(network, data.graph, 10 * need) is None
    assert sampling.fitting_batch_size(network, data.graph, need) == sampling.BATCH_SIZE
    assert sampling.fitting_batch_size(network, data.graph) is None


@pytest.mark.parametrize(
    ("model", "features", "classes", "nodes", "edges", "gigabytes"),
    [
        ("gcn-arxiv", 128, 40, 169_343, 2_315_598, (2, 4)),
        ("gcn-products", 100, 47, 2_449_029, 123_718_024, (30, 60)),
    ],
)
def test_what_the_ogbn_graphs_need(model, features, classes, nodes, edges, gigabytes):
    class Counts:
        num_nodes, adjacency = nodes, type("Counted", (), {"nnz": edges})

    need = sampling.full_batch_bytes(gnn.build(model, features, classes), Counts)
    assert gigabytes[0] < need / 1e9 < gigabytes[1]


# --- errors


def test_errors(data):
    with pytest.raises(SnapsError, match="'batch_size' must be an integer of at least 1, got 0"):
        train("gcn", data, batch_size=0)
    with pytest.raises(SnapsError, match="'fanouts' must be an integer of at least 1, got 0"):
        train("gcn", data, fanouts=(5, 0))
    with pytest.raises(SnapsError, match="'fanouts' must hold at least one integer, got none"):
        train("gcn", data, fanouts=())
    with pytest.raises(SnapsError, match="'batch_size' must be None for an FSGNN"):
        train("fsgnn-chameleon", data)
