"""Evidence on graphs that nothing was chosen on, over time, and with another classifier."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import snaps
from snaps._checks import check_alpha
from snaps.conformal.rank import tuning_share
from snaps.datasets import make_graph
from snaps.models import smoothed_regression
from snaps.splits import Plan, take_tuning
from snaps_lab.reproduce import (
    ageing,
    arxiv_cs,
    budgets,
    catalogue,
    decisions,
    gpt,
    graphs,
    heldout,
    measure,
    pooled,
    protocol,
    render,
    rivals,
    runner,
)
from snaps_lab.reproduce.store import Store

ROOT = Path(__file__).resolve().parents[3]
RECORD = Path("docs/results/heldout-versions.json")
TABLE = Path("docs/results/heldout.json")


def track(label, total):
    return snaps._runtime.progress.track(False, label, total)


def run_here(work, pieces, setting, advance):
    for piece in pieces:
        work(*piece, setting)


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A synthetic graph under every name, a quick classifier, and a setting."""
    data = make_graph(1400, 3, seed=5)
    monkeypatch.setattr(runner, "_dataset", lambda name, folder: (data, "made"))
    monkeypatch.setattr(runner, "_summary", runner._summary.__wrapped__)
    monkeypatch.setattr(runner, "in_processes", run_here)

    def trained(name, model, draw, setting):
        nodes = runner.draw_nodes(data, setting.seed, draw)
        probs = smoothed_regression(data.graph, data.labels, nodes.train)
        return runner.Trained(np.log(probs), 0.5, 1.0, 1)

    def retrained(cell, name, model, draw, training, setting, validation):
        probs = smoothed_regression(data.graph, data.labels, training)
        setting.store.write_arrays("logits", cell, {"logits": np.log(probs)})

    monkeypatch.setattr(runner, "trained", trained)
    monkeypatch.setattr(runner, "keep_trained", retrained)
    return data, runner.Setting(Store(tmp_path / "runs"), draws=2, splits=10)


# ---- what is measured ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", ["APS", "SNAPS, minimum", "Pooled"])
def test_measures_agree_with_evaluate_splits(name, seed):
    data = make_graph(700, 4, seed=seed)
    known, pool = np.arange(80), np.arange(80, 700)
    probs = smoothed_regression(data.graph, data.labels, known)
    method = snaps.estimators.methods([name], 0.1, seed=seed)[name]
    expected = snaps.evaluate_splits(
        method, data.graph, probs, data.labels, pool, 200, 30, seed, known_nodes=known, n_tune=100
    )
    inputs = pooled.Inputs.read(data.graph, probs)
    roles = pooled.Roles.read(data.graph, 4, data.labels, pool, known_nodes=known)
    plan = Plan(200, 30, seed, 100)
    cell = measure.measure(method, inputs, roles, plan, [0.1], probs.max(axis=1))["0.1"]
    for key in ("coverage", "size", "size_nonempty", "singleton_hit", "empty"):
        assert cell[key] == pytest.approx(expected[key].mean(), abs=1e-12)
    assert cell["n_test"] == expected["n_test"][0]
    counts, hits = np.array(cell["sizes"])
    assert counts.sum() == 30 * cell["n_test"]
    assert counts[0] / counts.sum() == pytest.approx(cell["empty"])
    assert hits.sum() / counts.sum() == pytest.approx(cell["coverage"]) and hits[0] == 0
    assert counts @ np.arange(5) / counts.sum() == pytest.approx(cell["size"])
    assert min(cell["classes"]) <= cell["coverage"] <= max(cell["classes"])


def test_groups_are_counted_by_hand():
    """Six nodes, one split: who is covered can be seen."""
    scores = np.array([[0.1, 0.9], [0.2, 0.8], [0.3, 0.7], [0.4, 0.3], [0.9, 0.95], [0.1, 0.2]])
    nodes = measure.Labelled(
        np.arange(6), np.arange(6, dtype=np.uint64), np.array([0, 0, 0, 0, 1, 1])
    )
    groups = {"unsure": np.array([0, 0, 0, 1, 1, 0], bool), "isolated": np.zeros(6, bool)}
    # Calibrated on the first three at 0.5: the threshold is 0.2.
    cell = measure._over_splits(scores, nodes, np.array([[0, 1, 2]]), 0.5, groups)
    assert cell["classes"] == [0.0, 0.5] and cell["unsure"] == 0.0 and cell["isolated"] is None
    assert cell["sizes"] == [[2, 0, 1], [0, 0, 1]]


def test_unsure_nodes():
    assert measure._unsure(np.arange(10.0)).sum() == 2
    assert measure._unsure(np.array([0.6, 0.9, 0.9, 0.9, 0.9, 0.9])).tolist() == [True] + 5 * [
        False
    ]


# ---- rivals --------------------------------------------------------------------------------------


def test_rivals_see_the_labels_that_pooled_sees_and_no_other(small):
    data, setting = small
    training, stopping = rivals._labelled("cora_ml", 0, setting)
    nodes = protocol.draw_nodes(data, 0, 0)
    _, roles = pooled.prepare("cora_ml", "gcn", 0, setting)
    plan = pooled.spending_plan("cora_ml", 0, len(roles.calib), setting)
    tuning, rest = take_tuning(roles.calib, plan.n_tune, plan.seed)
    both = np.concatenate([training, stopping])
    assert len(set(both)) == len(both) and abs(len(stopping) / len(both) - 0.15) < 0.01
    seen = {*data.graph.keys[np.concatenate([nodes.train, nodes.valid])], *tuning.keys}
    assert set(data.graph.keys[both]) == seen
    assert not seen & set(rest.keys)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_correct_and_smooth_against_solved_equations(seed):
    """Spreading ends where (I - pull S) X = (1 - pull) start."""
    data = make_graph(120, 3, seed=seed)
    rng = np.random.default_rng(seed)
    probs, nodes = rng.dirichlet([1, 1, 1], 120), rng.permutation(120)[:30]
    degrees = np.maximum(np.diff(data.graph.adjacency.indptr), 1)
    scale = sp.diags_array(1 / np.sqrt(degrees))
    matrix = (scale @ data.graph.adjacency @ scale).toarray()

    def spread(start, pull):
        return np.linalg.solve(np.eye(120) - pull * matrix, (1 - pull) * start)

    truth = np.eye(3)[data.labels[nodes]]
    error = np.zeros((120, 3))
    error[nodes] = truth - probs[nodes]
    moved = spread(error, 0.5)
    length = np.abs(moved).sum(axis=1, keepdims=True)
    usual = np.abs(error[nodes]).sum(axis=1).mean()
    far = length > usual / 1000
    corrected = probs + np.where(far, usual / np.where(far, length, 1), 1) * moved
    corrected[nodes] = truth
    expected = np.clip(spread(corrected, 0.6), 1e-9, None)
    expected /= expected.sum(axis=1, keepdims=True)
    found = rivals.correct_and_smooth(data.graph, probs, data.labels, nodes, 0.5, 0.6)
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_correct_and_smooth_is_chosen_without_other_labels(small):
    data, setting = small
    training, stopping = rivals._labelled("cora_ml", 0, setting)
    probs = np.random.default_rng(0).dirichlet([1, 1, 1], 1400)
    hidden = np.full(1400, -1)
    both = np.concatenate([training, stopping])
    hidden[both] = data.labels[both]
    found = [
        rivals.choose_smoothing(data.graph, probs, labels, training, stopping)
        for labels in (data.labels, hidden)
    ]
    np.testing.assert_array_equal(*found)
    accuracy = [(table.argmax(1) == data.labels)[hidden < 0].mean() for table in (probs, found[0])]
    assert accuracy[1] > accuracy[0] + 0.2


# ---- few labels, and decisions -------------------------------------------------------------------


def test_the_table_of_budgets(small):
    _, setting = small
    result = budgets.build("budgets", ["cora_ml"], setting, track)
    assert len(result["rows"]) == 2 * 5 * len(budgets.METHODS)
    for row in result["rows"]:
        assert row["n_tune"] + row["n_calib"] == row["budget"] and row["inside_law"]
        if row["method"] in ("SNAPS", "Pooled"):
            level = check_alpha(row["alpha"])
            assert row["n_tune"] == tuning_share(row["budget"], level)
        if row["method"] in ("APS", budgets.FIXED):
            assert row["n_tune"] == 0
    of_thirty = {
        row["method"]: row["size"]
        for row in result["rows"]
        if (row["budget"], row["alpha"]) == (30, 0.05)
    }
    assert of_thirty["SNAPS"] == of_thirty[budgets.FIXED]  # nothing is tuned on so few
    header, rows = budgets.layout(result)
    assert {len(row) for row in rows} == {len(header)}
    assert any("within four standard errors" in line for line in budgets.remarks(result))


@pytest.mark.parametrize("method", ["SNAPS", "Pooled"])
def test_decisions_are_measured_as_evaluate_splits_does(small, method):
    data, setting = small
    cell = decisions._cell("cora_ml", 0, setting)
    nodes = protocol.draw_nodes(data, 0, 0)
    logits = runner.trained("cora_ml", "gcn", 0, setting).logits
    spend = protocol.budget(data, "main", len(nodes.pool))
    common = {
        "known_nodes": np.concatenate([nodes.train, nodes.valid]),
        "n_tune": spend // 2,
        "logits": True,
    }
    options = {
        decisions.ONE: {},
        decisions.FLOORED: {"class_floor": 0.8},
        decisions.BY_CLASS: {"class_conditional": True},
    }
    for kind, option in options.items():
        made = getattr(snaps, method)(0.1, **option)
        about = made, data.graph, logits, data.labels, nodes.pool, spend, setting.splits, 0
        expected = snaps.evaluate_splits(*about, **common, accept=0.05)
        found = cell["sets"][method]["0.1"][kind]
        for key in ("coverage", "size", "size_nonempty", "singleton_hit", "empty"):
            assert found[key] == pytest.approx(expected[key].mean(), abs=1e-12), (kind, key)
        classes = [mean for mean, _ in found["classes"]]
        np.testing.assert_allclose(classes, expected["class_coverage"].mean(axis=0))
        assert found["promised"] == found["classes"]  # three classes, all with enough nodes
    if method == "Pooled":
        found = cell["lists"]["Pooled"]["0.05"]
        assert found["selected"] == pytest.approx(expected["selected"].mean())
        assert found["wrong"] == pytest.approx(expected["false_share"].mean())


def test_the_table_of_decisions(small):
    _, setting = small
    result = decisions.build("decisions", ["cora_ml"], setting, track)
    assert not sum(row.get("broken", 0) for row in result["rows"])
    assert all(row["inside_law"] for row in result["rows"] if row["promise"] != "accept"
               and row["promise"] != decisions.BY_CLASS)  # fmt: skip
    lists = [row for row in result["rows"] if row["promise"] == decisions.ACCEPT]
    assert {(row["method"], row["level"]) for row in lists} == {
        (who, error) for who in decisions.LISTS for error in decisions.ERRORS
    }
    header, rows = decisions.layout(result)
    assert {len(row) for row in rows} == {len(header)}
    assert any("times as many" in line for line in decisions.remarks(result))


def test_a_class_below_its_promise_is_counted():
    """Coverage of a class over draws, its error, and who is called broken."""
    cells = [
        {"promised": [[0.7, 0.01], [0.81, 0.02], None]},
        {"promised": [[0.72, 0.01], None, None]},
    ]
    pairs = decisions._over_draws(cells, "promised")
    assert pairs[0] == pytest.approx((0.71, 0.01 / np.sqrt(2)))
    assert pairs[1] == (0.81, 0.02) and pairs[2][0] is None


# ---- held-out graphs -----------------------------------------------------------------------------


def test_the_table_of_held_out_graphs(small, tmp_path):
    _, setting = small
    result = heldout.build("heldout", ["dblp", "tolokers"], setting, track)
    assert all(row["inside_law"] for row in result["rows"])
    assert {row["model"] for row in result["rows"] if row["dataset"] == "tolokers"} == {
        "appnp", "mlp",
    }  # fmt: skip
    assert {row["method"] for row in result["rows"]} == {*heldout.METHODS, *rivals.names()}
    pair = next(pair for pair in result["pairs"] if pair["method"] == "APS")
    mine, other = pair["sizes"]
    assert pair["ratio_of_means"] == mine / other < 1
    assert pair["difference"] == pytest.approx(mine - other)
    best = [row for row in result["averages"] if row["method"] == "best rival per graph"]
    assert len(best) == 4
    for row in best:
        same = [
            each["ratio_of_means"]
            for each in result["averages"]
            if (each["model"], each["alpha"]) == (row["model"], row["alpha"])
            and each["method"] in rivals.names()
        ]
        assert row["ratio_of_means"] >= max(same) - 1e-12
    text = " ".join(render.remarks(result))
    assert "Nothing was chosen on these graphs" in text and "Pooled has" in text
    render.write(result, tmp_path / "out")
    assert "least confident fifth" in (tmp_path / "out" / "heldout.md").read_text()
    assert heldout.build("heldout", ["dblp", "tolokers"], setting, track) == result


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(0.9, "smaller sets than"), (1.01, "as small as retraining"), (1.2, "20.0% larger")],
)
def test_words_follow_the_numbers(ratio, words):
    assert words in heldout.verdict({"mean_of_ratios": ratio, "mean_of_ratios_se": 0.02})


def check_record(folder: Path) -> None:
    """Refuse a table that is not the one recorded, and a record that was rewritten."""
    record = json.loads((folder / RECORD).read_text())
    result = json.loads((folder / TABLE).read_text())
    version, digest = str(result["table_version"]), heldout.digest(result)
    assert record.get(version) == digest, (
        f"the table of held-out graphs changed: raise heldout.VERSION, compute it once, and "
        f"record {version!r}: {digest!r} in {RECORD}"
    )

    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True)

    commits = git("log", "--format=%H", "--", str(RECORD))
    for commit in commits.stdout.split() if commits.returncode == 0 else ():
        before = git("show", f"{commit}:{RECORD}")
        if before.returncode == 0:
            for known, value in json.loads(before.stdout).items():
                assert record.get(known) == value, f"version {known} was recorded otherwise before"


def test_the_published_table_is_the_recorded_one():
    if not (ROOT / TABLE).exists():
        assert not (ROOT / RECORD).exists()
        return
    check_record(ROOT)
    assert json.loads((ROOT / TABLE).read_text())["table_version"] == heldout.VERSION


@pytest.mark.skipif(shutil.which("git") is None, reason="git")
def test_a_changed_table_needs_a_new_version(tmp_path):
    def commit():
        name = ["-c", "user.name=a", "-c", "user.email=a@b"]
        for words in (["add", "-A"], [*name, "commit", "-q", "-m", "x"]):
            subprocess.run(["git", *words], cwd=tmp_path, check=True)

    def write(version, size, record):
        table = {"table": "heldout", "table_version": version, "rows": [{"size": size}]}
        table |= {"settings": {}, "pairs": [], "averages": []}
        (tmp_path / TABLE).write_text(json.dumps(table))
        if record is not None:
            (tmp_path / RECORD).write_text(json.dumps(record | {version: heldout.digest(table)}))
        return json.loads((tmp_path / RECORD).read_text())

    (tmp_path / TABLE).parent.mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    first = write("1", 1.5, {})
    commit()
    check_record(tmp_path)
    second = write("2", 1.4, first)  # a new version
    commit()
    check_record(tmp_path)
    write("2", 1.3, None)  # the table alone
    with pytest.raises(AssertionError, match=r"raise heldout\.VERSION"):
        check_record(tmp_path)
    write("2", 1.3, second)  # the table and its record
    with pytest.raises(AssertionError, match="recorded otherwise before"):
        check_record(tmp_path)
    commit()
    with pytest.raises(AssertionError, match="recorded otherwise before"):
        check_record(tmp_path)


def test_held_out_graphs_have_the_statistics_of_the_manifest(data_dir):
    for name in (*graphs.HELD_OUT, "arxiv_cs"):
        data = graphs.load_graph(name, data_dir)
        assert data.name == name
        if name == "planetoid_citeseer":
            assert (data.labels < 0).sum() == 15
            nodes = protocol.draw_nodes(data, 0, 0)
            assert (data.labels[np.concatenate([nodes.train, nodes.valid, nodes.pool])] >= 0).all()
        else:
            assert data.labels.min() == 0
    with pytest.raises(snaps.SnapsError, match=r"'dblp.npz' is not in"):
        graphs.load_graph("dblp", Path(__file__).parent)


# ---- time ----------------------------------------------------------------------------------------


def test_graphs_of_the_past_hold_nothing_of_the_future(small, monkeypatch):
    data, setting = small
    dates = np.random.default_rng(0).integers(0, 10, 1400)
    graph = ageing._grown("pubmed", dates, 4, setting)
    assert set(graph.ids) == set(np.flatnonzero(dates <= 4))
    rows, columns = graph.adjacency.nonzero()
    assert (dates[graph.ids[rows]] <= 4).all() and (dates[graph.ids[columns]] <= 4).all()
    past = ageing._draw_past(dates, data.labels, 4, 0, 0)
    nodes = np.concatenate([past.train, past.valid, past.tuning, past.pool])
    assert len(set(nodes)) == len(nodes) and set(nodes) == set(graph.ids)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_time(small, monkeypatch, tmp_path, seed):
    """Classes change with the date: what is kept loses coverage, fresh labels do not."""
    data, setting = small
    setting = runner.replace(setting, seed=seed, draws=1, splits=30)
    monkeypatch.setattr(ageing, "CHECKS", 5)
    rng = np.random.default_rng(seed)
    # The first class is of the past, the last of the future.
    chances = np.array([[0.9, 0.1, 0.0], [0.6, 0.2, 0.2], [0.1, 0.2, 0.7]])[data.labels]
    dates = np.array([rng.choice(3, p=p / p.sum()) for p in chances])
    monkeypatch.setattr(ageing, "_dates", lambda name, folder: dates)
    monkeypatch.setitem(ageing.TIMELINES, "pubmed", ageing.Timeline("linear", (0, 1, 2)))
    monkeypatch.setattr(ageing, "TUNING", 100)
    monkeypatch.setattr(ageing, "CALIBRATION", 100)
    result = ageing.build("time", ["pubmed"], setting, track)
    rows = result["rows"]
    assert len(rows) == 2 * 2 * 3 * 3 * 3  # orders, levels, methods, periods, ways
    fresh = [row for row in rows if row["way"] == "fresh labels"]
    assert all(abs(row["coverage"] - (1 - row["alpha"])) < 0.03 for row in fresh)
    first = [row for row in rows if not row["stage"]]
    assert all(abs(row["coverage"] - (1 - row["alpha"])) < 0.03 for row in first)
    later = [row for row in rows if row["stage"] == 2 and row["order"] == "as it was"]
    kept = [row["coverage"] for row in later if row["way"] == "kept" and row["alpha"] == 0.1]
    assert min(kept) < 0.86
    assert any(row["noticed"] == row["checks"] for row in later)
    shuffled = [row for row in rows if row["order"] == "shuffled"]
    assert sum(row["noticed"] for row in shuffled) <= 0.02 * sum(row["checks"] for row in shuffled)
    assert any("false alarms" in line for line in render.remarks(result))
    suffixes = {path.suffix for path in render.write(result, tmp_path / "out")}
    assert {".json", ".png", ".svg"} <= suffixes


def test_periods_of_a_timeline():
    months = ageing.TIMELINES["arxiv_cs"]
    assert ageing._shown("arxiv_cs", *months.periods(0)[0]) == "1998-2016"
    shown = [ageing._shown("arxiv_cs", *period) for period in months.periods(1)]
    assert shown == ["2017-01", "2017-02", "2017-03", "2017-04", "2017-05", "2017-06"]
    years = ageing.TIMELINES["pubmed"]
    shown = [ageing._shown("pubmed", *years.periods(stage)[0]) for stage in range(5)]
    assert shown == ["1964-94", "1995-99", "2000-03", "2004-06", "2007-10"]


# ---- another classifier, a larger graph ----------------------------------------------------------


def test_answers_of_a_language_model(small, monkeypatch, tmp_path):
    data, setting = small
    rng = np.random.default_rng(0)
    top = np.where(rng.random(1400) < 0.8, data.labels, rng.integers(0, 3, 1400))
    ranked = np.stack([top, np.where(rng.random(1400) < 0.2, (top + 1) % 3, -1)], axis=1)
    monkeypatch.setattr(gpt, "side_table", lambda *_: {"gpt_ranked": ranked})
    result = gpt.build("gpt", None, setting, track)
    assert all(row["inside_law"] for row in result["rows"])
    sizes = {row["method"]: row["size"] for row in result["rows"] if row["alpha"] == 0.1}
    assert sizes["Pooled"] < sizes["APS"]
    render.write(result, tmp_path / "out")
    with pytest.raises(snaps.SnapsError, match="must be among pubmed"):
        snaps_lab_choices("gpt", "cora_ml")


def snaps_lab_choices(table, datasets):
    from snaps_lab.command import _choices

    return _choices([table], datasets, ())


def test_the_larger_graph(small, monkeypatch, tmp_path):
    _, setting = small
    monkeypatch.setattr(arxiv_cs, "MODELS", ("linear",))
    result = arxiv_cs.build("arxiv-cs", None, setting, track)
    assert all(row["inside_law"] for row in result["rows"])
    assert result["costs"][0]["most_memory"] > 1e8
    assert any("Another graph" in line for line in render.remarks(result))
    assert "another graph" in arxiv_cs.layout(result)[0][-1]
    assert arxiv_cs._paper("gcn", 0.05, "SNAPS, minimum") == 3.62
    assert arxiv_cs._paper("mlp", 0.05, "APS") is None
    parts = arxiv_cs._draw(1000, 0, 0)
    assert [len(part) for part in parts] == [540, 180, 280]
    assert sorted(np.concatenate(parts)) == list(range(1000))


def test_every_new_table_is_in_the_catalogue():
    new = {"heldout", "time", "gpt", "arxiv-cs", "budgets", "decisions"}
    assert new <= set(catalogue.EXPERIMENTS)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_fresh_labels_are_split_conformal_prediction(seed):
    data = make_graph(600, 4, seed=seed)
    probs = smoothed_regression(data.graph, data.labels, np.arange(60))
    setting = runner.Setting(Store("unused"), splits=25)
    expected = snaps.evaluate_splits(
        snaps.SplitConformal(0.1, score=snaps.THR()), data.graph, probs, data.labels,
        np.arange(600), 300, 25, seed,
    )  # fmt: skip
    level = snaps._checks.check_alpha(0.1)
    found = ageing._fresh(1 - probs, data.labels, data.graph.keys, level, seed, setting)
    assert found["coverage"] == pytest.approx(expected["coverage"].mean(), abs=1e-12)
    assert found["size"] == pytest.approx(expected["size"].mean(), abs=1e-12)
