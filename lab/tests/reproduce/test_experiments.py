"""Experiments of our own: tables of `Pooled`, and the trial of `advise`."""

from __future__ import annotations

import numpy as np
import pytest

import snaps
from snaps.datasets import make_graph
from snaps.models import smoothed_regression


@pytest.mark.parametrize("table", ["pooled", "pooled-models", "pooled-parts", "pooled-labels"])
def test_tables_of_pooled_evidence(table, tmp_path, monkeypatch):
    """On a synthetic graph with a quick classifier in place of the trained models."""
    from snaps_lab.reproduce import catalogue, render, runner
    from snaps_lab.reproduce.store import Store

    data = make_graph(1400, 3, seed=5)
    monkeypatch.setattr(runner, "_dataset", lambda name, folder: (data, "made"))
    monkeypatch.setattr(runner, "train_missing", lambda *_: None)

    def trained(name, model, draw, setting):
        nodes = runner.draw_nodes(data, setting.seed, draw)
        probs = smoothed_regression(data.graph, data.labels, nodes.train)
        return runner.Trained(np.log(probs), 0.5, 1.0, 1)

    def retrained(cell, name, model, draw, training, setting):
        assert len(training) > 60
        probs = smoothed_regression(data.graph, data.labels, training)
        setting.store.write_arrays("logits", cell, {"logits": np.log(probs)})

    monkeypatch.setattr(runner, "trained", trained)
    monkeypatch.setattr(runner, "keep_trained", retrained)
    monkeypatch.setattr(runner, "in_processes", lambda work, pieces, setting, advance: None)
    setting = runner.Setting(Store(tmp_path / "runs"), draws=2, splits=10)
    track = lambda label, total: snaps._runtime.progress.track(False, label, total)  # noqa: E731
    result = catalogue.find(table).build(table, ["cora_ml"], setting, track)
    assert all(row["inside_law"] for row in result["rows"])
    sizes = {row["method"]: row["size"] for row in result["rows"]}
    if table != "pooled-parts":
        assert sizes["Pooled"] < sizes["SNAPS"]
    if table in ("pooled", "pooled-models"):
        assert len(sizes) == 8 and "retrained, THR" in sizes
        remarks = " ".join(catalogue.find(table).remarks(result))
        assert (
            "of the best retrained rival" in remarks and "of Pooled without regression" in remarks
        )
    names = {path.suffix for path in render.write(result, tmp_path / "out")}
    assert {".json", ".csv", ".md"} <= names
    assert "CoraML" in (tmp_path / "out" / f"{table}.md").read_text()
    again = catalogue.find(table).build(table, ["cora_ml"], setting, track)
    assert again["rows"] == result["rows"]


def test_the_trial_of_the_advice(tmp_path, monkeypatch):
    """On a synthetic graph with a quick classifier in place of the trained models."""
    from snaps_lab.reproduce import advice as trial
    from snaps_lab.reproduce import render, runner
    from snaps_lab.reproduce.store import Store

    assert len(trial.TRIALS) == len(set(trial.TRIALS)) == 40
    data = make_graph(1000, 3, seed=5)
    monkeypatch.setattr(runner, "_dataset", lambda name, folder: (data, "made"))

    def trained(name, model, draw, setting):
        nodes = runner.draw_nodes(data, setting.seed, draw)
        probs = smoothed_regression(data.graph, data.labels, nodes.train)
        return runner.Trained(np.log(probs), 0.5, 1.0, 1)

    monkeypatch.setattr(runner, "trained", trained)
    chosen = (trial.Trial("cora_ml", "gcn", 60, 60, 0.1, 0),)
    monkeypatch.setattr(trial, "TRIALS", chosen)
    setting = runner.Setting(Store(tmp_path / "runs"), splits=5)
    track = lambda label, total: snaps._runtime.progress.track(False, label, total)  # noqa: E731
    result = trial.build("advice", None, setting, track)
    (row,) = result["rows"]
    assert row["off"] == pytest.approx(row["size"] / row["best_size"] - 1) and row["off"] >= 0
    assert row["plain_pick"] in trial.PLAIN and row["plain_off"] >= 0
    assert row["low"] < row["expected"] < row["high"]
    advice = result["summary"]["advice"]
    assert advice["near"] == (row["off"] <= 0.03) and advice["far"] == (row["off"] > 0.1)
    assert any(
        "Goal smallest: within 3% of the smallest" in line for line in render.remarks(result)
    )
    assert {path.suffix for path in render.write(result, tmp_path)} == {".json", ".csv", ".md"}
    assert trial.build("advice", None, setting, track)["rows"] == result["rows"]
