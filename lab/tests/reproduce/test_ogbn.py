"""The OGBN graphs from OGB's files to the rows of a table, on small files in OGB's own format."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest

import snaps.cli
from snaps import datasets
from snaps.datasets import make_graph
from snaps.datasets.dataset import statistics
from snaps.datasets.registry import DATASETS
from snaps_lab.reproduce import protocol, runner
from snaps_lab.reproduce.store import Store

pytest.importorskip("torch")

from snaps_lab.models import gnn, sampling

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ogb") is None, reason="needs ogb")

FOLDER = "snap.stanford.edu/ogb/data/nodeproppred"
SPLITS = {"ogbn_arxiv": "time", "ogbn_products": "sales_ranking"}
MODELS = {"ogbn_arxiv": "gcn-arxiv", "ogbn_products": "gcn-products"}
N, CANDIDATES = 500, 80
DATA = make_graph(N, 4, degree=6, features="dense", num_features=16, signal=2, seed=3)
ORDER = np.random.default_rng(3).permutation(N)
PARTS = {"train": ORDER[:120], "valid": ORDER[120:180], "test": ORDER[180:]}


def csv(array: np.ndarray) -> bytes:
    text = io.StringIO()
    np.savetxt(text, array, fmt="%s", delimiter=",")
    return gzip.compress(text.getvalue().encode())


def archive(name: str) -> bytes:
    """What OGB serves: a zip of gzipped CSV files; each link of the graph is listed once."""
    source, target = DATA.graph.adjacency.nonzero()
    links = np.stack([source, target], axis=1)[source < target]
    short = name.removeprefix("ogbn_")
    files = {
        "RELEASE_v1.txt": b"",
        "processed/": b"",
        "raw/edge.csv.gz": csv(links),
        "raw/num-node-list.csv.gz": csv(np.array([[N]])),
        "raw/num-edge-list.csv.gz": csv(np.array([[len(links)]])),
        "raw/node-feat.csv.gz": csv(DATA.graph.features),
        "raw/node-label.csv.gz": csv(DATA.labels[:, None]),
        "raw/node_year.csv.gz": csv(np.full((N, 1), 2015)),
    }
    for part, nodes in PARTS.items():
        files[f"split/{SPLITS[name]}/{part}.csv.gz"] = csv(nodes[:, None])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as folder:
        for path, content in files.items():
            folder.writestr(f"{short}/{path}", content)
    return buffer.getvalue()


@pytest.fixture(params=SPLITS)
def name(request, tmp_path, monkeypatch):
    """A small graph under OGB's name, its files in a mirror on this machine, and quick models."""
    name = request.param
    mirror = tmp_path / "mirror" / FOLDER
    mirror.mkdir(parents=True)
    (mirror / f"{name.removeprefix('ogbn_')}.zip").write_bytes(archive(name))
    monkeypatch.setenv("SNAPS_MIRROR", (tmp_path / "mirror").as_uri())
    monkeypatch.setenv("SNAPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SNAPS_DATA", raising=False)
    found = statistics(DATA)
    if name == "ogbn_arxiv":  # whose links are counted once
        found = replace(found, edges=found.edges // 2)
    monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], statistics=found, corrections={}))
    monkeypatch.setitem(runner.CANDIDATES, "ogbn_products", CANDIDATES)
    quick = gnn.PAPER[MODELS[name]]
    quick = replace(quick, options={**quick.options, "hidden": 32}, max_epochs=15)
    monkeypatch.setitem(gnn.PAPER, MODELS[name], quick)
    monkeypatch.setattr(runner, "SAMPLED_EPOCHS", 8)
    runner._dataset.cache_clear()
    runner._fitting_batch_size.cache_clear()
    yield name
    runner._dataset.cache_clear()
    runner._fitting_batch_size.cache_clear()


@pytest.fixture
def trainings(monkeypatch):
    """What `train` is given, call by call."""
    seen = []

    def train(model, graph, labels, training, validation, **options):
        seen.append((model, training, validation, options))
        return real(model, graph, labels, training, validation, **options)

    real = gnn.train
    monkeypatch.setattr(gnn, "train", train)
    return seen


def command(capsys, *arguments) -> str:
    with pytest.raises(SystemExit) as left:
        snaps.cli.main([str(argument) for argument in arguments])
    text = capsys.readouterr()
    assert left.value.code == 0, text.err
    return text.out


def table1(capsys, name, folder, *more) -> tuple[dict, str]:
    text = command(
        capsys, "reproduce", "table1", "--datasets", name, "--models", 2, "--splits", 30,
        "--jobs", 1, "--runs", folder / "runs", "--out", folder / "out", *more,
    )  # fmt: skip
    [path] = (folder / "out").glob("table1*.json")
    return json.loads(path.read_text()), text


def test_the_papers_settings():
    """Three layers of 256, the one with batch norm for 500 epochs, the other without for 300."""
    assert runner.CANDIDATES == {"ogbn_products": 80_000}
    for key, norms, epochs in (("gcn-arxiv", 2, 500), ("gcn-products", 0, 300)):
        network, settings = gnn.build(key, 16, 4), gnn.PAPER[key]
        shapes = [tuple(layer.weight.shape) for layer in network.convolutions]
        assert shapes == [(16, 256), (256, 256), (256, 4)]
        assert [norm.num_features for norm in network.norms] == [256] * norms
        assert network.dropout == 0.5
        assert (settings.learning_rate, settings.weight_decay) == (0.01, 0.0)
        assert settings.max_epochs == settings.patience == epochs


def test_from_ogbs_files_to_the_rows_of_a_table(name, tmp_path, monkeypatch, capsys, trainings):
    command(capsys, "datasets", "fetch", name)
    data = datasets.load(name, download=False)
    np.testing.assert_array_equal(data.graph.adjacency.toarray(), DATA.graph.adjacency.toarray())
    np.testing.assert_allclose(data.graph.features, DATA.graph.features, rtol=1e-6)

    result, text = table1(capsys, name, tmp_path)
    assert [row["method"] for row in result["rows"]] == ["APS", "RAPS", "DAPS", "SNAPS"]
    assert all(row["inside_law"] and "paper_size" in row for row in result["rows"])
    budget = len(PARTS["test"]) // 2  # of which APS needs none for tuning, and the others half
    for row in result["rows"]:
        assert row["n_calib"] == (budget if row["method"] == "APS" else budget - budget // 2)
        assert row["n_test"] == len(PARTS["test"]) - budget
    assert "sampled" not in result and "sampled" not in text
    for model, training, validation, _ in trainings:
        assert model == MODELS[name]
        np.testing.assert_array_equal(training, PARTS["train"])
        np.testing.assert_array_equal(validation, PARTS["valid"])
    assert [options["seed"] for *_, options in trainings] == [0, 1]

    # Where the full batch does not fit: the same command, other models, and it says so.
    monkeypatch.setattr(sampling, "machine_memory", lambda: 1e6)
    monkeypatch.setattr(sampling, "BATCH_SIZE", 50)
    runner._fitting_batch_size.cache_clear()
    sampled, text = table1(capsys, name, tmp_path)
    assert sampled["sampled"] == {name: 50} and "8 epochs on batches of 50 nodes" in " ".join(
        text.split()
    )
    assert all(row["inside_law"] for row in sampled["rows"])
    assert [row["size"] for row in sampled["rows"]] != [row["size"] for row in result["rows"]]
    setting = runner.Setting(Store(tmp_path / "runs"), draws=2, splits=30)
    assert runner.trained(name, "gcn", 1, setting).accuracy > 0.8


def test_the_official_split_the_models_and_the_candidates(name, tmp_path, capsys):
    command(capsys, "datasets", "fetch", name)
    setting = runner.Setting(Store(tmp_path / "runs"))
    data = runner.dataset(name, setting)
    for draw in range(2):
        nodes = protocol.draw_nodes(data, 0, draw)
        for part, found in zip(PARTS, (nodes.train, nodes.valid, nodes.pool), strict=True):
            np.testing.assert_array_equal(found, PARTS[part])
    assert protocol.budget(data, "main", 10**6) == {"ogbn_arxiv": 1000}.get(name, 2000)
    assert runner._model_key("gcn", name) == MODELS[name]
    near, _ = runner.similarity(name, setting)
    reached = len(np.unique(near.indices))
    assert reached <= CANDIDATES if name == "ogbn_products" else reached > CANDIDATES


def test_as_the_authors(name, tmp_path, monkeypatch, capsys, trainings):
    command(capsys, "datasets", "fetch", name)
    monkeypatch.setattr(sampling, "machine_memory", lambda: 1e6)
    monkeypatch.setattr(sampling, "BATCH_SIZE", 50)
    result, _ = table1(capsys, name, tmp_path, "--as-authors")
    assert result["settings"]["as_authors"] and result["sampled"] == {name: 50}
    assert len(result["rows"]) == 4
    theirs = replace(gnn.PAPER[MODELS[name]], noisy_validation=True)
    assert [model for model, *_ in trainings] == [theirs, theirs]
