"""CF-GNN: the inefficiency against plain NumPy, what the correction reads, and its experiment."""

from __future__ import annotations

import dataclasses
import json
from contextlib import contextmanager

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import snaps  # noqa: E402
from snaps.conformal.calibration import Calibration  # noqa: E402
from snaps.datasets import make_graph  # noqa: E402
from snaps.models import smoothed_regression  # noqa: E402
from snaps.splits import take_tuning  # noqa: E402
from snaps_lab.models import cfgnn  # noqa: E402
from snaps_lab.models.cfgnn import Settings, correct, inefficiency, soft_quantile  # noqa: E402
from snaps_lab.models.networks import Corrector  # noqa: E402
from snaps_lab.reproduce import cfgnn as experiment  # noqa: E402
from snaps_lab.reproduce import common, pooled, render, runner  # noqa: E402
from snaps_lab.reproduce.protocol import draw_nodes  # noqa: E402
from snaps_lab.reproduce.runner import Setting  # noqa: E402
from snaps_lab.reproduce.store import Store  # noqa: E402

N, K = 600, 4
SHORT = Settings(hidden=16, learning_rate=0.01, warm_up=10, max_epochs=30)
TRAIN, CORRECTION, POOL = np.split(np.random.default_rng(0).permutation(N), [80, 240])


@pytest.fixture(scope="module")
def data():
    return make_graph(N, K, degree=5, seed=1)


@pytest.fixture(scope="module")
def probs(data):
    return smoothed_regression(data.graph, data.labels, TRAIN, num_classes=K)


# --- the inefficiency


def transcribed(true, probs, alpha, temperature, target):
    """The inefficiency in plain NumPy, a node and a label at a time."""
    ordered = np.sort(1 - true)
    rank = (1 - alpha) * (len(true) + 1)
    low = int(np.floor(rank))
    limit = ordered[low - 1]
    if rank > low:
        limit += (rank - low) * (ordered[low] - ordered[low - 1])
    sizes = []
    for row in probs:
        soft = [1 / (1 + np.exp(-(limit - (1 - p)) / temperature)) for p in row]
        sizes.append(max(sum(soft) - target, 0))
    return np.mean(sizes)


def tables(seed, n=57, m=40):
    random = np.random.default_rng(seed)
    table = random.dirichlet(np.ones(K), n + m)
    true = table[np.arange(n), random.integers(0, K, n)]
    return torch.tensor(true, requires_grad=True), torch.tensor(table[n:], requires_grad=True)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.33])
@pytest.mark.parametrize(("temperature", "target"), [(1.0, 1), (0.1, 0), (0.02, 1)])
def test_inefficiency_is_the_formula(alpha, temperature, target):
    true, table = tables(0)
    ours = inefficiency(true, table, alpha, temperature, target)
    theirs = transcribed(true.detach().numpy(), table.detach().numpy(), alpha, temperature, target)
    assert ours.item() == pytest.approx(theirs, rel=1e-9)


def test_quantile_lies_between_the_ranks_next_to_it():
    scores = torch.arange(1.0, 100.0, dtype=torch.float64)
    assert soft_quantile(scores, 0.1).item() == pytest.approx(90)
    assert soft_quantile(scores, 0.105).item() == pytest.approx(89.5)
    assert soft_quantile(scores, 0.999).item() == 1
    conformal = Calibration(scores.numpy(), np.zeros(len(scores), int), 1).threshold(0.105)
    assert conformal == 90


def test_gradient_reaches_the_quantile_and_the_sizes():
    true, table = tables(1)
    inefficiency(true, table, 0.12, 0.1).backward()
    order = torch.argsort(true, descending=True)
    rank = int(0.88 * (len(true) + 1))
    touched = set(torch.nonzero(true.grad)[:, 0].tolist())
    assert touched == set(order[rank - 1 : rank + 1].tolist())
    # A likelier true label lowers the threshold, and with it the sizes.
    assert (true.grad[list(touched)] < 0).all()
    assert (table.grad > 0).any()


def test_gradient_is_the_difference_quotient():
    true, table = tables(2, n=21, m=6)
    assert torch.autograd.gradcheck(lambda a, b: inefficiency(a, b, 0.13, 0.3, 1), (true, table))


def test_soft_size_goes_to_the_size_of_real_sets():
    true, table = tables(3)
    limit = soft_quantile(1 - true, 0.1)
    real = (1 - table <= limit).sum(dim=1).double().mean().item()
    gaps = [
        abs(inefficiency(true, table, 0.1, temperature).item() - real)
        for temperature in (1, 1e-1, 1e-2, 1e-6)
    ]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-9


# --- the network


@pytest.mark.parametrize("attention", [False, True])
def test_network_on_some_nodes_is_the_network_on_all(data, probs, attention):
    graph = snaps.Graph(data.graph.adjacency, probs)
    network = Corrector(K, K, attention=attention, hidden=8, layers=3).eval()
    some = POOL[:50]
    prepared = network.prepare(graph, [some])
    with torch.no_grad():
        part = network.finish(network.start(prepared.shared), prepared.views[0])
        whole = network(graph)
    torch.testing.assert_close(part, whole[some])


@pytest.mark.parametrize(("attention", "layer"), [(False, "GCNConv"), (True, "GATConv")])
def test_layers_are_those_of_pytorch_geometric(data, probs, attention, layer):
    geometric = pytest.importorskip("torch_geometric.nn")
    graph = snaps.Graph(data.graph.adjacency, probs)
    network = Corrector(K, K, attention=attention, hidden=8, layers=2, residual=False).eval()
    edges = torch.from_numpy(np.stack(graph.adjacency.nonzero()).astype(np.int64))
    hidden = torch.from_numpy(probs).float()
    for number, ours in enumerate(network.layers):
        theirs = getattr(geometric, layer)(ours.weight.shape[-2], ours.weight.shape[-1])
        with torch.no_grad():
            theirs.lin.weight.copy_(ours.weight.reshape(ours.weight.shape[-2:]).T)
            theirs.bias.copy_(ours.bias)
            if attention:
                theirs.att_src.copy_(ours.source[None])
                theirs.att_dst.copy_(ours.target[None])
            hidden = theirs(hidden.relu() if number else hidden, edges)
    with torch.no_grad():
        torch.testing.assert_close(network(graph), hidden, rtol=1e-4, atol=1e-5)


def test_residual_starts_from_the_classifier(data, probs):
    graph = snaps.Graph(data.graph.adjacency, probs)
    network = Corrector(K, K, attention=False).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        ours = torch.softmax(network(graph), dim=1)
    np.testing.assert_allclose(ours.numpy(), probs, atol=1e-5)


# --- the correction


@pytest.mark.parametrize("layer", ["gcn", "gat"])
def test_same_seed_gives_the_same_bits_and_torch_keeps_its_state(data, probs, layer):
    settings = dataclasses.replace(SHORT, layer=layer)
    state = torch.random.get_rng_state()
    first, again, other = (
        correct(data.graph, probs, data.labels, CORRECTION, 0.1, settings, seed=seed)
        for seed in (3, 3, 4)
    )
    assert np.array_equal(first.logits, again.logits)
    assert first.curve["size"].tolist() == again.curve["size"].tolist()
    assert not np.array_equal(first.logits, other.logits)
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("train", [None, TRAIN])
def test_other_labels_are_not_read(data, probs, train):
    read = CORRECTION if train is None else np.concatenate([CORRECTION, train])
    hidden = np.setdiff1d(np.arange(N), read)
    wrong, unknown = data.labels.copy(), data.labels.copy()
    wrong[hidden] = (wrong[hidden] + 1) % K
    unknown[hidden] = -1
    first, *others = (
        correct(data.graph, probs, labels, CORRECTION, 0.1, SHORT, train_nodes=train)
        for labels in (data.labels, wrong, unknown)
    )
    for other in others:
        assert np.array_equal(first.logits, other.logits)
        assert first.best_epoch == other.best_epoch


def test_labels_of_the_correction_nodes_are_read(data, probs):
    wrong = data.labels.copy()
    wrong[CORRECTION] = (wrong[CORRECTION] + 1) % K
    first, other = (
        correct(data.graph, probs, labels, CORRECTION, 0.1, SHORT)
        for labels in (data.labels, wrong)
    )
    assert not np.array_equal(first.logits, other.logits)


def test_inefficiency_takes_part_after_the_warm_up(data, probs):
    heavy, none = (
        correct(
            data.graph, probs, data.labels, CORRECTION, 0.1,
            dataclasses.replace(SHORT, weight=weight, max_epochs=120),
        ).curve
        for weight in (5.0, 0.0)
    )  # fmt: skip
    until = SHORT.warm_up + 1
    for key in heavy:
        assert heavy[key][:until].tolist() == none[key][:until].tolist()
    assert heavy["inefficiency"][-20:].mean() < none["inefficiency"][-20:].mean()
    assert heavy["inefficiency"][-20:].mean() < heavy["inefficiency"][0]


def test_best_checkpoint_is_kept_and_logits_are_taken_as_such(data, probs):
    found = correct(data.graph, np.log(probs), data.labels, CORRECTION, 0.1, SHORT, logits=True)
    same = correct(data.graph, probs, data.labels, CORRECTION, 0.1, SHORT)
    np.testing.assert_allclose(found.logits, same.logits, atol=1e-3)
    assert found.best_epoch == int(np.argmin(found.curve["size"]))
    assert found.epochs == 30
    assert {len(values) for values in found.curve.values()} == {31}
    np.testing.assert_allclose(found.probs.sum(axis=1), 1)
    assert found.seconds > 0 and found.cpu_seconds > 0
    short = dataclasses.replace(SHORT, patience=3)
    assert correct(data.graph, probs, data.labels, CORRECTION, 0.1, short).epochs < 30


def test_corrected_probabilities_go_into_any_method(data, probs):
    found = correct(data.graph, probs, data.labels, CORRECTION, 0.1, SHORT)
    for method in (snaps.SplitConformal(0.1, score=snaps.APS()), snaps.SNAPS(0.1)):
        out = snaps.evaluate_splits(method, data.graph, found.probs, data.labels, POOL, 160, 200)
        coverage, n, m = (float(out[key].mean()) for key in ("coverage", "n_calib", "n_test"))
        assert common.against_law(coverage, int(n), int(m), 0.1, 200)["inside_law"]


# --- errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"labels": np.full(N, -1)},
            "'correction_nodes' must be labelled, got 160 without a label (first: {first})",
        ),
        (
            {"correction_nodes": CORRECTION[:17]},
            "'correction_nodes' must hold at least 18 nodes for alpha=0.1, got 17",
        ),
        (
            {"alpha": 0.01},
            "'correction_nodes' must hold at least 198 nodes for alpha=0.01, got 160",
        ),
        (
            {"correction_nodes": []},
            "'correction_nodes' must hold at least one node, got none",
        ),
        (
            {"train_nodes": CORRECTION[:2]},
            "'train_nodes' must not share nodes with 'correction_nodes', "
            "got 2 in both (first: {lower})",
        ),
        ({"probs": np.full((5, K), 0.25)}, "'probs' must have one row a node (600), got 5 rows"),
        ({"labels": np.zeros(7, int)}, "'labels' must have shape (600,), got (7,)"),
        ({"alpha": 1.5}, "'alpha' must lie strictly between 0 and 1, got 1.5"),
        ({"graph": None}, "'graph' must be a snaps.Graph, got NoneType"),
        ({"seed": -1}, "'seed' must be an integer of at least 0, got -1"),
        ({"settings": "cora_ml"}, "'settings' must be cfgnn.Settings, got 'cora_ml'"),
    ],
)
def test_bad_input_gets_one_line(data, probs, change, message):
    given = {
        "graph": data.graph, "probs": probs, "labels": data.labels,
        "correction_nodes": CORRECTION, "alpha": 0.1, "settings": SHORT,
    }  # fmt: skip
    with pytest.raises(snaps.SnapsError) as caught:
        correct(**{**given, **change})
    shown = message.format(first=CORRECTION[0], lower=min(CORRECTION[:2]))
    assert str(caught.value) == shown


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer": "mlp"}, "'layer' must be 'gcn' or 'gat', got 'mlp'"),
        ({"layers": 0}, "'layers' must be an integer of at least 1, got 0"),
        ({"temperature": 0}, "'temperature' must be above 0, got 0"),
        ({"learning_rate": -1}, "'learning_rate' must be a number of at least 0, got -1"),
        ({"dropout": 1}, "'dropout' must be a number from 0 to 0.99, got 1"),
        ({"weight": float("nan")}, "'weight' must be a number of at least 0, got nan"),
        ({"residual": 1}, "'residual' must be True or False, got 1"),
    ],
)
def test_bad_settings_get_one_line(data, probs, change, message):
    with pytest.raises(snaps.SnapsError) as caught:
        settings = dataclasses.replace(SHORT, **change)
        correct(data.graph, probs, data.labels, CORRECTION, 0.1, settings)
    assert str(caught.value) == message


def test_too_few_scores_for_a_quantile():
    with pytest.raises(snaps.SnapsError) as caught:
        soft_quantile(torch.ones(18), 0.05)
    assert str(caught.value) == "'scores' must hold at least 19 numbers for alpha=0.05, got 18"


# --- the experiment


@contextmanager
def _silent(label, total):
    yield lambda count: None


def test_experiment_end_to_end(data_dir, tmp_path, monkeypatch):
    monkeypatch.setitem(
        experiment.CHANGES, "cora_ml", {"residual": True, "warm_up": 10, "max_epochs": 40}
    )
    setting = Setting(Store(tmp_path / "runs"), data_dir, draws=1, splits=20, jobs=1)
    runner.trained("cora_ml", experiment.MODEL, 0, setting)  # here, without a process of its own
    result = experiment.build("cfgnn", ["cora_ml"], setting, _silent)
    assert [(row["alpha"], row["method"]) for row in result["rows"]] == [
        (alpha, method) for alpha in (0.05, 0.1) for method in experiment.METHODS
    ]
    by_method = {row["method"]: row for row in result["rows"][: len(experiment.METHODS)]}
    papers = [by_method[m]["paper_size"] for m in ("APS", "CF-GNN", "SNAPS")]
    assert papers == [2.42, 2.6, 1.68]
    # All spend half of the budget before they calibrate, and see the same test nodes.
    for key in ("n_calib", "n_test"):
        tuned = [by_method[m][key] for m in experiment.METHODS[1:]]
        assert len(set(tuned)) == 1
    assert by_method["Pooled"]["size"] < by_method[experiment.ON_THR]["size"]
    graph = runner.dataset("cora_ml", setting)
    spent, *_ = experiment._shares(graph, draw_nodes(graph, 0, 0), 0)
    _, roles = pooled.prepare("cora_ml", "gcn", 0, setting)
    plan = pooled.spending_plan("cora_ml", 0, len(roles.calib), setting)
    tuning, _ = take_tuning(roles.calib, plan.n_tune, plan.seed)
    assert set(spent) == set(tuning.ids)  # one draw of nodes for corrections and for tuning
    assert "of CF-GNN's on THR" in experiment.remarks(result)[0]
    assert all(row["inside_law"] for row in result["rows"])
    ratio = by_method["CF-GNN"]["cpu_seconds"] / by_method["SNAPS"]["cpu_seconds"]
    assert by_method["CF-GNN"]["cpu_seconds_ratio"] == pytest.approx(ratio)
    assert by_method["CF-GNN"]["paper_seconds_ratio"] == pytest.approx(142 / 0.73)
    curve = result["curves"][0]
    assert len(curve["inefficiency"]) == 41
    paths = {path.name for path in render.write(result, tmp_path / "out")}
    assert paths == {f"cfgnn{end}" for end in (".json", ".csv", ".md", ".png", ".svg")}
    assert json.loads((tmp_path / "out" / "cfgnn.json").read_text())["corrections"]["cora_ml"]

    # Finished cells are read, not made again.
    monkeypatch.setattr(cfgnn, "correct", None)
    assert experiment.build("cfgnn", ["cora_ml"], setting, _silent) == result
