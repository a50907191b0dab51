"""Pooled evidence and advice on the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

import snaps
from snaps.datasets import make_graph
from snaps.folder import write_folder
from snaps.models import smoothed_regression


@pytest.fixture
def made(here):
    """A folder in which some nodes trained the classifier and some tune."""
    data = make_graph(900, 4, seed=3)
    probs = smoothed_regression(data.graph, data.labels, np.arange(80))
    roles = np.full(900, "test", "U5")
    for role, nodes in {"train": (0, 80), "tune": (80, 330), "calib": (330, 530)}.items():
        roles[slice(*nodes)] = role
    write_folder("made", data.graph, probs, data.labels, roles)
    return data, probs


def test_pooled_takes_training_labels_as_evidence(made, run):
    data, probs = made
    code, out, err = run("predict", "made", "--method", "pooled", "--out", "s.parquet", "--json")
    assert (code, err) == (0, "")
    cp = snaps.Pooled(0.05).calibrate(
        data.graph, probs, data.labels, np.arange(330, 530), np.arange(80, 330),
        known_nodes=np.arange(80),
    )  # fmt: skip
    assert json.loads(out)["weights"] == pytest.approx(cp.weights_, rel=1e-6)
    assert json.loads(out)["size"] == cp.predict_set(np.arange(530, 900)).sizes.mean()


def test_a_goal_is_answered_with_a_method_and_a_reason(made, run):
    code, out, err = run("evaluate", "made", "--goal", "smallest", "--splits", 5, "--calib", 150)
    assert (code, err) == (0, "")
    assert "Recommended: " in out
    assert "goal smallest, 250 tuning nodes, 5 folds, 150 nodes to calibrate" in out
    code, out, err = run("evaluate", "made", "--goal", "classes", "--splits", 5, "--json")
    printed = json.loads(out)
    advice = printed["advice"]
    assert advice["goal"] == "classes" and advice["method"] in advice["reason"]
    assert (advice["tuning_nodes"], advice["calibration_nodes"]) == (250, 200)
    assert advice["method"] in {row["method"] for row in printed["results"]}
    assert {"note", "cost"} <= set(advice) and advice["results"][0]["size_low"] > 0


def test_a_recommended_method_joins_the_table(made, run, monkeypatch):
    monkeypatch.setattr("snaps.advisor.DEFAULT", "Pooled on APS")
    monkeypatch.setattr("snaps.advisor.ERRORS", 1000.0)
    code, out, err = run("evaluate", "made", "--goal", "smallest", "--splits", 5, "--json")
    assert (code, err) == (0, "")
    printed = json.loads(out)
    sizes = {row["method"]: row["size"] for row in printed["results"]}
    assert printed["advice"]["method"] == "Pooled on APS" and "Pooled on APS" in sizes
    best = min(sizes, key=sizes.get)
    assert printed["advice"]["note"].startswith(f"Note: {best} is ahead in the table (")
    code, out, _ = run("evaluate", "made", "--goal", "smallest", "--splits", 5)
    assert printed["advice"]["note"] in out


def test_without_tuning_nodes_the_budget_of_a_split_pays_for_advice(here, run):
    data = make_graph(900, 4, seed=3)
    probs = smoothed_regression(data.graph, data.labels, np.arange(80))
    roles = np.full(900, "test", "U5")
    roles[:80], roles[80:380] = "train", "calib"
    write_folder("made", data.graph, probs, data.labels, roles)
    code, out, err = run("evaluate", "made", "--goal", "smallest", "--splits", 5, "--json")
    assert (code, err) == (0, "")
    printed = json.loads(out)
    assert (printed["advice"]["tuning_nodes"], printed["advice"]["calibration_nodes"]) == (141, 159)
    assert {row["n_calib"] for row in printed["results"] if row["method"] == "Pooled"} == {159}
    code, _, err = run("evaluate", "made", "--goal", "smallest", "--calib", 10)
    assert code == 2 and "'--goal' must have at least 19 calibration nodes, got 10" in err


def test_a_goal_that_does_not_exist(made, run):
    code, _, err = run("evaluate", "made", "--goal", "tiny")
    assert code == 2 and "'tiny' is not one of" in err
