"""The figures: closed forms against every pair one by one, the oracle's coverage, files, errors."""

from __future__ import annotations

import csv
import json
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp

import snaps
from lab.tests import small as small_reproduce
from snaps.cli import main
from snaps.datasets import make_graph
from snaps.datasets.registry import DATASETS
from snaps.models import smoothed_regression
from snaps_lab.reproduce import catalogue, common, protocol, render, runner
from snaps_lab.reproduce.figure1a import counts_of, evaluate_oracle, same_label_nodes
from snaps_lab.reproduce.figure1b import class_similarity
from snaps_lab.reproduce.figure1c import label_counts
from snaps_lab.reproduce.figure3 import evaluate_scores, mean_scores
from snaps_lab.reproduce.neighbours import nearest
from snaps_lab.reproduce.runner import Setting
from snaps_lab.reproduce.store import Store

FIGURES = ["figure1a", "figure1b", "figure1c", "figure3", "figure4"]
MOST_BYTES = 150_000


def cosine(a, b):
    norms = np.linalg.norm(a) * np.linalg.norm(b)
    return a @ b / norms if norms else 0.0


# ---- closed forms -------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_class_similarity_is_the_mean_over_pairs_of_different_nodes(form):
    random = np.random.default_rng(1)
    table = random.normal(size=(30, 5)) * (random.random((30, 5)) < 0.6)
    table[7] = 0
    labels = random.integers(0, 3, 30)
    labels[-1] = 3  # alone in its class
    means, pairs = class_similarity(form(table), labels, 4)
    for a, b in product(range(4), repeat=2):
        values = [
            cosine(table[i], table[j])
            for i in np.flatnonzero(labels == a)
            for j in np.flatnonzero(labels == b)
            if i != j
        ]
        assert pairs[a, b] == len(values)
        if values:
            assert means[a, b] == pytest.approx(np.mean(values), abs=1e-12)
        else:
            assert np.isnan(means[a, b])


def test_label_counts_are_those_of_each_nodes_nearest():
    random = np.random.default_rng(2)
    # Sparse rows, so that some nodes have fewer than 25 similar ones.
    table = random.random((40, 12)) * (random.random((40, 12)) < 0.15)
    labels = random.integers(0, 3, 40)
    ks = [1, 4, 10, 25]
    graph = snaps.similarity_graph(table, 25)
    assert np.diff(graph.indptr).min() < 25
    same, different = label_counts(graph, labels, ks)
    for place, k in enumerate(ks):
        counts = np.zeros(2)
        for i in range(40):
            sims = np.array([cosine(table[i], table[j]) if i != j else 0.0 for j in range(40)])
            near = [j for j in np.argsort(-sims, kind="stable")[:k] if sims[j] > 0]
            hits = sum(labels[j] == labels[i] for j in near)
            counts += hits, len(near) - hits
        assert (same[place], different[place]) == pytest.approx(counts / 40)


@pytest.mark.parametrize("k", [1, 7, 20])
def test_nearest_cuts_a_wide_graph_down_to_the_narrow_one(k):
    features = make_graph(300, 3, seed=4).graph.features
    cut, narrow = (
        nearest(snaps.similarity_graph(features, 60), k),
        snaps.similarity_graph(features, k),
    )
    for name in ("data", "indices", "indptr"):
        assert np.array_equal(getattr(cut, name), getattr(narrow, name))


def test_nearest_of_none_is_empty():
    assert nearest(snaps.similarity_graph(np.eye(4) + 1, 2), 0).nnz == 0


def test_mean_scores_by_true_and_scored_label():
    random = np.random.default_rng(3)
    scores, labels = random.random((50, 3)), random.integers(0, 3, 50)
    nodes = np.arange(10, 50)
    means = mean_scores(scores, labels, nodes, 3)
    for a, b in product(range(3), repeat=2):
        expected = np.mean([scores[i, b] for i in nodes if labels[i] == a])
        assert means[a, b] == pytest.approx(expected)


# ---- the oracle ---------------------------------------------------------------------------------


def test_oracle_picks_other_nodes_of_the_same_label_each_once():
    labels = np.random.default_rng(0).integers(0, 4, 200)
    chosen = same_label_nodes(labels, np.arange(200, dtype=np.uint64), 20, seed=5)
    assert np.array_equal(labels[chosen], np.tile(labels[:, None], 20))
    assert not (chosen == np.arange(200)[:, None]).any()
    assert all(len(set(row)) == 20 for row in chosen)


def test_oracle_depends_on_ids_and_seed_but_not_on_order():
    random = np.random.default_rng(0)
    labels, keys = random.integers(0, 3, 120), random.permutation(1000)[:120].astype(np.uint64)
    chosen = same_label_nodes(labels, keys, 9, seed=1)
    order = random.permutation(120)
    moved = same_label_nodes(labels[order], keys[order], 9, seed=1)
    assert np.array_equal(keys[order][moved], keys[chosen][order])
    assert np.array_equal(same_label_nodes(labels, keys, 4, seed=1), chosen[:, :4])
    assert not np.array_equal(same_label_nodes(labels, keys, 9, seed=2), chosen)


@pytest.fixture(scope="module")
def made():
    data = make_graph(1500, 4, homophily=0.7, signal=1.0, seed=3)
    train = protocol.draw_nodes(data, 0, 0).train
    return data, np.log(smoothed_regression(data.graph, data.labels, train) + 1e-9)


def test_oracle_keeps_the_law_and_shrinks_sets_to_one_label(made, tmp_path):
    data, logits = made
    setting = Setting(Store(tmp_path), draws=1, splits=400)
    found = evaluate_oracle(data, logits, 0, setting)
    assert list(found) == [str(count) for count in counts_of(data)]
    for cell in found.values():
        expected = common.against_law(
            cell["coverage"], cell["n_calib"], cell["n_test"], 0.05, setting.splits
        )
        assert expected["inside_law"]
    last = found[str(counts_of(data)[-1])]
    assert found["0"]["size"] > 1.2 > 1.01 > last["size_nonempty"]


def test_oracle_without_nodes_is_aps_and_with_some_is_their_mean(made, tmp_path):
    data, logits = made
    setting = Setting(Store(tmp_path), draws=1, splits=20)
    found = evaluate_oracle(data, logits, 0, setting)
    nodes = protocol.draw_nodes(data, 0, 0)
    spend = protocol.budget(data, "main", len(nodes.pool))
    aps = snaps.SplitConformal(0.05).calibrate(
        data.graph, logits, data.labels, nodes.pool[:spend], logits=True
    )
    chosen = same_label_nodes(data.labels, data.graph.keys, 3, seed=0)
    for count in (0, 3):
        mixed = np.array(
            [aps.scores_[[i, *chosen[i, :count]]].mean(axis=0) for i in range(len(logits))]
        )
        calib = snaps.splits.draw_splits(0, data.graph.keys[nodes.pool], spend, 20)
        sizes = []
        for places in calib:
            own = nodes.pool[places]
            rank = snaps.conformal.conformal_rank(spend, 0.05)
            threshold = np.sort(mixed[own, data.labels[own]])[rank - 1]
            test = np.setdiff1d(nodes.pool, own)
            sizes.append((mixed[test] <= threshold).sum(axis=1).mean())
        # Sums in another order round otherwise, which may move a score across its own threshold.
        assert found[str(count)]["size"] == pytest.approx(np.mean(sizes), abs=1e-3)


def test_a_class_of_two_leaves_the_oracle_nothing_to_average():
    data = make_graph(60, 2, seed=0)
    labels = np.where(np.arange(60) < 2, 1, 0)
    assert counts_of(snaps.datasets.dataset.Dataset("tiny", data.graph, labels)) == [0]


# ---- figure 3 -----------------------------------------------------------------------------------


def test_sizes_of_figure3_are_those_of_the_tables(made, tmp_path):
    data, logits = made
    setting = Setting(Store(tmp_path), draws=1, splits=20)
    near = snaps.similarity_graph(data.graph.features, ids=data.graph.keys)
    found = evaluate_scores(data, logits, near, 0, setting)
    table = protocol.evaluate_draw(
        data, logits, protocol.draw_nodes(data, 0, 0), near, suite="main", alpha=0.05, splits=20,
        seed=0, as_authors=False,
    )  # fmt: skip
    for method in ("APS", "SNAPS"):
        for key in ("size", "coverage", "n_calib", "n_test"):
            assert found[method][key] == pytest.approx(table[method][key], rel=1e-12)


# ---- files --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A small graph under the name of CoraML, and logits of a quick classifier for the GCN's."""
    folder = tmp_path_factory.mktemp("figures")
    small_reproduce.write_data(folder)
    setting = Setting(Store(folder / "runs"), folder, draws=1, splits=10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DATASETS, "cora_ml", small_reproduce.SPEC)
        data = runner.dataset("cora_ml", setting)
        train = protocol.draw_nodes(data, 0, 0).train
        probs = smoothed_regression(data.graph, data.labels, train)
        arrays = {"logits": np.log(probs + 1e-9), "cpu_seconds": 0.0, "epochs": 1}
        setting.store.write_arrays("logits", runner.mark("cora_ml", setting, "gcn", 0), arrays)
        yield setting


def reproduce(name, runs, out):
    places = {"--data-dir": runs.data_dir, "--runs": runs.store.folder, "--out": out}
    options = {"--datasets": "cora_ml", "--models": runs.draws, "--splits": runs.splits, **places}
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", name, *(str(part) for pair in options.items() for part in pair)])
    assert stopped.value.code == 0


@pytest.fixture(scope="module")
def figures(runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("figures")
    for name in FIGURES:
        reproduce(name, runs, out)
    return out


def result_of(figures, name):
    return json.loads((figures / f"{name}.json").read_text())


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_small_files_of_picture_and_numbers(figures, name):
    for suffix in (".png", ".svg", ".csv", ".json", ".md"):
        assert (figures / f"{name}{suffix}").stat().st_size > 0
    for suffix in (".png", ".svg"):
        assert (figures / f"{name}{suffix}").stat().st_size < MOST_BYTES
    assert f"(./{name}.png)" in (figures / f"{name}.md").read_text()
    with open(figures / f"{name}.csv") as file:
        assert len(list(csv.DictReader(file))) == len(result_of(figures, name)["rows"])


def test_rows_of_the_figures(figures):
    rows = {name: result_of(figures, name)["rows"] for name in FIGURES}
    assert len(rows["figure1b"]) == 3 * 3
    assert len(rows["figure3"]) == 2 * 3 * 3
    assert sum(row["varied"] == "weights" for row in rows["figure4"]) == 231
    assert all(row["inside_law"] for name in ("figure1a", "figure4") for row in rows[name])
    for row in rows["figure1c"]:
        assert row["same"] + row["different"] <= row["k"] + 1e-6


def test_k_of_20_in_figure4_is_the_snaps_of_the_tables(figures, runs):
    cell = runner.evaluated("cora_ml", "gcn", 0, "main", 0.05, runs)
    expected = cell["methods"]["SNAPS"]["size"]
    for row in result_of(figures, "figure4")["rows"]:
        if (row["varied"], row["method"], row["k"]) == ("k", "tuned", 20):
            assert row["size"] == pytest.approx(expected, rel=1e-9)


def test_the_same_numbers_give_the_same_files_and_no_cell_is_made_twice(figures, runs, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in runs.store.folder.rglob("*.json")}
    reproduce("figure4", runs, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    for suffix in (".png", ".svg", ".csv", ".json", ".md"):
        file = f"figure4{suffix}"
        assert (tmp_path / file).read_bytes() == (figures / file).read_bytes()


def test_a_lost_cell_is_made_again_alike(figures, runs, tmp_path):
    next((runs.store.folder / "cells").glob("cora_ml-figure1a-0-*.json")).unlink()
    reproduce("figure1a", runs, tmp_path)
    assert (tmp_path / "figure1a.csv").read_text() == (figures / "figure1a.csv").read_text()


@pytest.mark.parametrize("name", FIGURES)
def test_figures_have_room_for_several_datasets(figures, name):
    result = result_of(figures, name)
    module = catalogue.find(name)
    alone = len(module.draw(result).axes)
    for key in ("rows", "summary"):
        if key in result:
            result[key] += [{**row, "dataset": "citeseer"} for row in result[key]]
    text = render.markdown(result)
    assert "CoraML" in text and "CiteSeer" in text
    assert len(module.draw(result).axes) > alone or name == "figure1a"


# ---- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["figure2"],
            "'TABLE' must be a known table such as figure4, figure3, figure1c, got 'figure2'",
        ),
        (
            ["figure1"],
            "'TABLE' must be a known table such as figure1c, figure1b, figure1a, got 'figure1'",
        ),
        (["figure4", "--models", "0"], "'--models' must be an integer of at least 1, got 0"),
        (
            ["figure1c", "--datasets", "cora_mll"],
            "there is no dataset 'cora_mll'; did you mean 'cora_ml' or 'cora_full'?",
        ),
    ],
)
def test_errors_are_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", *arguments])
    assert stopped.value.code == 2
    assert capsys.readouterr().err == f"snaps: error: {message}\n"
