"""The torch models: equal to PyTorch Geometric's layers, repeatable, stopped where they should."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

from snaps.datasets import make_graph  # noqa: E402
from snaps.errors import SnapsError  # noqa: E402
from snaps.graph import Graph  # noqa: E402
from snaps_lab.models import gnn, networks  # noqa: E402
from snaps_lab.models.matrix import Matrix, Walk  # noqa: E402
from snaps_lab.models.training import fit, seeded  # noqa: E402

MODELS = ["gcn", "gat", "appnp", "mlp", "gcn-arxiv", "gcn-products"]


@pytest.fixture(scope="module")
def data():
    return make_graph(300, 3, degree=4, seed=0)


@pytest.fixture(scope="module")
def nodes():
    return np.random.default_rng(0).permutation(300)


def dense(graph: Graph) -> Graph:
    return Graph(graph.adjacency, features=graph.features.toarray())


def train(model, data, nodes, **options):
    options = {"max_epochs": 8} | options
    return gnn.train(model, data.graph, data.labels, nodes[:60], nodes[60:120], **options)


def assert_close(actual, expected, atol=1e-5):
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=atol)


# --- the parts


@pytest.mark.parametrize("density", [0.05, 0.6])
@pytest.mark.parametrize("stack", [(), (3,)])
def test_product_and_its_gradient(density, stack):
    values = sp.random_array((40, 30), density=density, rng=np.random.default_rng(0))
    ours = torch.randn(*stack, 30, 7, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    weights = torch.randn(*stack, 40, 7)
    (out := Matrix(values.tocsr()) @ ours).mul(weights).sum().backward()
    (expected := torch.tensor(values.toarray()).float() @ theirs).mul(weights).sum().backward()
    assert_close(out, expected)
    assert_close(ours.grad, theirs.grad)


def test_walk_and_its_gradient():
    # Not symmetric, so that a wrong transpose shows.
    step = sp.random_array((30, 30), density=0.1, rng=np.random.default_rng(0)).tocsr()
    matrix = torch.tensor(step.toarray()).float()
    whole = 0.1 * sum(torch.matrix_power(0.9 * matrix, hop) for hop in range(4))
    whole += torch.matrix_power(0.9 * matrix, 4)
    start, weights = torch.randn(30, 5, requires_grad=True), torch.randn(30, 5)
    (out := Walk(step, 4, 0.1) @ start).mul(weights).sum().backward()
    assert_close(out, whole @ start)
    assert_close(start.grad, whole.T @ weights)


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.8])
def test_dropout_keeps_the_mean(rate):
    with seeded(0):
        mask = networks.dropout_mask((1001, 999), rate)
    share = (mask == 0).double().mean().item()
    assert abs(share - rate) < 5 * math.sqrt(rate * (1 - rate) / mask.numel()) + 2**-16
    assert mask.unique().tolist() == pytest.approx([0, 1 / (1 - rate)], rel=1e-3)


def test_dropout_draws_are_independent_from_place_to_place():
    # Four draws come from one 64-bit word: no pair of them may move together.
    with seeded(0):
        lanes = (networks.dropout_mask((100_000, 4), 0.5) > 0).double()
    correlation = torch.corrcoef(lanes.T) - torch.eye(4)
    assert correlation.abs().max() < 5 / math.sqrt(100_000)


# --- equality with PyTorch Geometric


def compare(network, reference, graph, pairs):
    """Outputs and gradients of a network and of its counterpart with the same weights."""
    for ours, theirs, view in pairs:
        theirs.data = view(ours.data).contiguous()
    x = torch.tensor(graph.features.toarray())
    edges = torch.tensor(np.stack(graph.adjacency.nonzero()))
    weights = torch.randn(graph.num_nodes, 3)
    out, expected = network(graph), reference(x, edges)
    assert_close(out, expected)
    (out * weights).sum().backward()
    (expected * weights).sum().backward()
    for ours, theirs, view in pairs:
        assert_close(view(ours.grad), theirs.grad, atol=1e-4)


def as_is(tensor):
    return tensor


def turned(tensor):
    return tensor.T


def test_gcn_equals_pyg(data):
    pyg = pytest.importorskip("torch_geometric.nn")
    network = networks.GCN(1000, 3).eval()
    first, last = pyg.GCNConv(1000, 64), pyg.GCNConv(64, 3)
    pairs = []
    for ours, theirs in zip(network.convolutions, (first, last), strict=True):
        pairs += [(ours.weight, theirs.lin.weight, turned), (ours.bias, theirs.bias, as_is)]
    compare(network, lambda x, e: last(first(x, e).relu(), e), data.graph, pairs)


def test_gat_equals_pyg(data):
    pyg = pytest.importorskip("torch_geometric.nn")
    network = networks.GAT(1000, 3).eval()
    first, last = pyg.GATConv(1000, 64, heads=8), pyg.GATConv(512, 3, heads=1, concat=False)
    pairs = []
    for ours, theirs in ((network.first, first), (network.last, last)):
        pairs += [
            (ours.weight, theirs.lin.weight, lambda w: w.transpose(1, 2).flatten(0, 1)),
            (ours.source, theirs.att_src, lambda a: a[None]),
            (ours.target, theirs.att_dst, lambda a: a[None]),
            (ours.bias, theirs.bias, as_is),
        ]
    compare(network, lambda x, e: last(F.elu(first(x, e)), e), data.graph, pairs)


def test_appnp_equals_pyg(data):
    pyg = pytest.importorskip("torch_geometric.nn")
    network = networks.APPNP(1000, 3).eval()
    first, last = torch.nn.Linear(1000, 64, bias=False), torch.nn.Linear(64, 3, bias=False)
    walk = pyg.APPNP(K=10, alpha=0.1)
    pairs = [
        (network.first.weight, first.weight, turned),
        (network.last.weight, last.weight, turned),
    ]
    compare(network, lambda x, e: walk(last(first(x).relu()), e), data.graph, pairs)


def test_first_weights_are_drawn_as_in_pyg():
    pyg = pytest.importorskip("torch_geometric.nn")
    ours, theirs = networks.Attention(300, 64, 8, 0.0), pyg.GATConv(300, 64, heads=8)
    for mine, other in ((ours.weight, theirs.lin.weight), (ours.source, theirs.att_src)):
        assert mine.max().item() == pytest.approx(other.max().item(), rel=0.05)
    ours, theirs = networks.GCN(300, 64).convolutions[0], pyg.GCNConv(300, 64)
    assert ours.weight.std().item() == pytest.approx(theirs.lin.weight.std().item(), rel=0.05)


def test_directed_edges_lead_from_source_to_target():
    pyg = pytest.importorskip("torch_geometric.nn")
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 50, (2, 120))
    graph = Graph(edges, features=sp.eye_array(50, format="csr"), directed=True)
    network, layer = networks.GAT(50, 3).eval(), pyg.GATConv(50, 64, heads=8)
    theirs = networks.Wrapped(layer).eval()
    layer.lin.weight.data = network.first.weight.data.transpose(1, 2).flatten(0, 1).contiguous()
    layer.att_src.data, layer.att_dst.data = network.first.source[None], network.first.target[None]
    shared, views = network.prepare(graph, [np.arange(50)])
    assert_close(network.first(network.start(shared), views[0][0]), theirs(graph))


# --- a network that looks at a few nodes sees what it sees there when it looks at all


@pytest.mark.parametrize("kind", ["sparse", "dense"])
@pytest.mark.parametrize("model", MODELS)
def test_a_view_of_some_nodes_equals_their_rows(model, kind, data, nodes):
    graph = dense(data.graph) if kind == "dense" else data.graph
    network = gnn.build(model, 1000, 3).eval()
    everything = network(graph)
    # One node alone, a few in no order, and most of them: all roads through the products.
    node_sets = [nodes[:1], nodes[1:40], nodes[40:]]
    shared, views = network.prepare(graph, node_sets)
    for chosen, view in zip(node_sets, views, strict=True):
        assert_close(network.finish(network.start(shared), view), everything[chosen])


@pytest.mark.parametrize("model", MODELS)
def test_isolated_nodes_are_fine(model):
    rng = np.random.default_rng(0)
    features = sp.random_array((40, 30), density=0.2, format="csr", rng=rng, dtype=np.float32)
    graph = Graph([[0, 1], [1, 2]], features=features)
    labels = rng.integers(0, 3, 40)
    result = gnn.train(model, graph, labels, np.arange(15), np.arange(15, 30), max_epochs=5)
    assert np.isfinite(result.logits).all()
    assert result.logits.shape == (40, 3)


# --- training


@pytest.mark.parametrize("model", MODELS)
def test_training_learns(model):
    data = make_graph(600, 3, degree=8, seed=1)
    result = gnn.train(
        model, data.graph, data.labels, np.arange(90), np.arange(90, 180), max_epochs=60
    )
    accuracy = (result.logits.argmax(axis=1) == data.labels)[180:].mean()
    assert accuracy > (0.5 if model == "mlp" else 0.8)
    assert result.logits.dtype == np.float32
    assert 0 < result.best_epoch <= result.epochs <= 60
    assert result.seconds > 0


@pytest.mark.parametrize("model", MODELS)
def test_a_seed_gives_the_same_bits(model, data, nodes):
    first, again, other = (train(model, data, nodes, seed=s) for s in (3, 3, 4))
    assert (first.logits == again.logits).all()
    assert (first.logits != other.logits).any()
    for name, value in first.state_dict.items():
        assert torch.equal(value, again.state_dict[name])


def test_the_callers_random_state_and_threads_stay(data, nodes):
    import numba

    torch.manual_seed(5)
    expected = torch.rand(3)
    threads = torch.get_num_threads(), numba.get_num_threads()
    torch.manual_seed(5)
    train("gat", data, nodes, seed=1)
    assert torch.equal(torch.rand(3), expected)
    assert (torch.get_num_threads(), numba.get_num_threads()) == threads


@pytest.mark.parametrize("model", ["gcn", "gat", "appnp", "mlp"])
def test_sparse_and_dense_features_agree(model, data, nodes):
    sparse = train(model, data, nodes, max_epochs=3)
    same = dataclasses.replace(data, graph=dense(data.graph))
    np.testing.assert_allclose(
        sparse.logits, train(model, same, nodes, max_epochs=3).logits, rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("model", ["gcn", "gat", "appnp", "mlp"])
def test_logits_are_those_of_the_least_validation_loss(model, data, nodes):
    result = train(model, data, nodes, max_epochs=40)
    valid = nodes[60:120]
    loss = F.cross_entropy(torch.tensor(result.logits[valid]), torch.tensor(data.labels[valid]))
    assert loss.item() == pytest.approx(result.valid_loss, rel=1e-4)


def scripted(valid_losses):
    """A module that counts its steps, and validation losses that follow a script."""
    module = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(module.weight)
    optimizer = torch.optim.SGD(module.parameters(), lr=1)
    losses = iter(valid_losses)
    return module, optimizer, lambda: ([-module.weight.sum()], torch.tensor(next(losses)))


def test_the_best_weights_come_back():
    module, optimizer, losses = scripted([5.0, 3.0, 4.0, 2.0, 6.0, 7.0, 8.0])
    outcome = fit(module, optimizer, losses, max_epochs=6, patience=100)
    assert outcome == (6, 3, 2.0)
    assert module.weight.item() == 3


def test_patience_counts_every_epoch_without_improvement():
    # Each second epoch improves: a count that starts over would never reach three.
    module, optimizer, losses = scripted([9.0, 10.0, 8.0, 10.0, 7.0, 10.0, 6.0, 10.0])
    outcome = fit(module, optimizer, losses, max_epochs=100, patience=3)
    assert outcome == (5, 4, 7.0)


def test_a_loss_that_is_never_finite_is_an_error():
    module, optimizer, losses = scripted([math.nan] * 5)
    with pytest.raises(SnapsError, match="validation loss must be a finite number"):
        fit(module, optimizer, losses, max_epochs=100, patience=3)


def test_labels_elsewhere_do_not_matter(data, nodes):
    labels = np.full(300, -1)
    labels[nodes[:120]] = data.labels[nodes[:120]]
    known = train("gcn", data, nodes)
    blind = gnn.train("gcn", data.graph, labels, nodes[:60], nodes[60:120], max_epochs=8)
    assert (known.logits == blind.logits).all()


# --- models of one's own


class PyG(torch.nn.Module):
    def __init__(self, num_features, num_classes, hidden=16):
        super().__init__()
        pyg = pytest.importorskip("torch_geometric.nn")
        self.first = pyg.SAGEConv(num_features, hidden)
        self.last = pyg.SAGEConv(hidden, num_classes)

    def forward(self, x, edge_index):
        h = F.dropout(self.first(x, edge_index).relu(), 0.5, self.training)
        return self.last(h, edge_index)


def test_settings_of_a_pyg_model(data, nodes):
    settings = gnn.Settings(PyG, {"hidden": 32}, weight_decay=1e-3, max_epochs=60)
    first, again = (train(settings, data, nodes, max_epochs=None) for _ in range(2))
    assert (first.logits == again.logits).all()
    assert (first.logits.argmax(axis=1) == data.labels)[nodes[120:]].mean() > 0.6
    assert "first.lin_l.weight" in first.state_dict


def test_a_pyg_module_is_trained_in_place(data, nodes):
    module = PyG(1000, 3)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    result = train(module, data, nodes, optimizer=optimizer)
    assert (gnn.predict(module, data.graph) == result.logits).all()


def test_changed_settings(data, nodes):
    settings = dataclasses.replace(gnn.PAPER["gcn"], options={"hidden": 5})
    assert train(settings, data, nodes).state_dict["convolutions.0.weight"].shape == (1000, 5)


# --- weights on disk


@pytest.mark.parametrize("model", MODELS)
def test_weights_round_trip(model, data, nodes, tmp_path):
    result = train(model, data, nodes)
    path = tmp_path / "weights.safetensors"
    gnn.save_weights(path, result.state_dict)
    network = gnn.build(model, 1000, 3)
    network.load_state_dict(gnn.load_weights(path))
    assert (gnn.predict(network, data.graph) == result.logits).all()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_weights_that_cannot_be_read(tmp_path):
    with pytest.raises(SnapsError, match="no such file"):
        gnn.load_weights(tmp_path / "none.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"not weights")
    with pytest.raises(SnapsError, match="must be a file of weights"):
        gnn.load_weights(tmp_path / "bad.safetensors")


# --- errors


def test_errors(data, nodes):
    graph, labels = data.graph, data.labels
    with pytest.raises(SnapsError, match="'model' must be one of gcn, gat"):
        gnn.train("gnc", graph, labels, nodes[:9], nodes[9:18])
    with pytest.raises(SnapsError, match="'train_nodes' must not share nodes with 'valid_nodes'"):
        gnn.train("gcn", graph, labels, nodes[:9], nodes[8:18])
    with pytest.raises(SnapsError, match="'valid_nodes' must be labelled"):
        unknown = labels.copy()
        unknown[nodes[9]] = -1
        gnn.train("gcn", graph, unknown, nodes[:9], nodes[9:18])
    with pytest.raises(SnapsError, match="'graph' must have features"):
        gnn.train("gcn", Graph(graph.adjacency), labels, nodes[:9], nodes[9:18])
    with pytest.raises(SnapsError, match="'patience' must be an integer of at least 1"):
        gnn.train("gcn", graph, labels, nodes[:9], nodes[9:18], patience=0)
    with pytest.raises(SnapsError, match="'layers' must be an integer of at least 2"):
        networks.GCN(10, 3, layers=1)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_package_alone_imports_no_torch():
    assert run("import sys, snaps.models; print('torch' in sys.modules)") == "False"
