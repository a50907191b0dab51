"""`snaps check` says what `snaps predict` then does, and stops where that stops."""

from __future__ import annotations

import json

import numpy as np
import pytest

import snaps
from tests.helpers import small
from tests.helpers.small import NUM_NODES, PROBS


def roles_of(**counts):
    roles = np.concatenate([np.full(count, role) for role, count in counts.items()])
    return np.where(roles == "none", "", roles)


FOLDERS = {
    "calib and test": roles_of(calib=40, test=20),
    "all roles": roles_of(train=8, valid=6, tune=5, calib=30, test=11),
    "valid tunes": roles_of(train=8, valid=10, calib=30, none=12),
    "nothing but calib": roles_of(calib=35, none=25),
    "few": roles_of(train=10, calib=8, none=42),
}


@pytest.mark.parametrize("method", ["snaps", "pooled", "daps", "split"])
@pytest.mark.parametrize("roles", FOLDERS.values(), ids=FOLDERS)
def test_what_is_planned_is_what_predict_does(run, roles, method):
    small.write("g", roles=roles)
    options = ["--method", method, "--alpha", 0.1, "--json"]
    code, out, _ = run("check", "g", *options)
    assert code == 0
    checked = json.loads(out)
    code, out, _ = run("predict", "g", *options, "--out", "sets.parquet")
    assert code == 0
    done, plan = json.loads(out), checked["plan"]
    assert plan["method"] == done["method"]
    assert plan["calibration_nodes"] == done["calibration_nodes"]
    assert plan["tuning_nodes"] == done["tuning_nodes"]
    assert plan["predicted"] == done["sets"]
    assert plan["reachable"] == (done["threshold"] is not None)
    if done["labelled"] == done["sets"]:
        assert plan["coverage_interval"] == pytest.approx(done["coverage_interval"])
    assert checked["ready"] and checked["missing"] == []


def test_what_was_found(run):
    small.write("g", roles=FOLDERS["all roles"])
    found = json.loads(run("check", "g", "--json")[1])["found"]
    graph = small.graph()
    assert found["nodes"] == NUM_NODES and found["ids"] == "strings"
    assert found["edges"] == graph.num_edges
    linked = np.asarray(graph.adjacency.sum(axis=1)).ravel() > 0
    assert found["isolated"] == NUM_NODES - linked.sum() > 0
    assert found["features"] == [NUM_NODES, 4] and found["classes"] == [0, 1, 2]
    assert found["sums"] == pytest.approx([1, 1])
    assert sum(found["labels"].values()) == NUM_NODES
    assert found["roles"] == {
        "train": [8, 8], "valid": [6, 6], "tune": [5, 5], "calib": [30, 30], "test": [11, 11],
    }  # fmt: skip
    code, out, notes = run("check", "g", "--method", "pooled", "--alpha", 0.1)
    assert (code, notes) == (0, "")
    assert "60, ids are strings" in out and "take 14 known labels as evidence" in out


def test_few_nodes_are_noted(run):
    small.write("g", roles=FOLDERS["few"])
    code, out, notes = run("check", "g", "--alpha", 0.1, "--method", "split")
    assert (code, notes) == (0, "")
    assert "Note: 8 calibration nodes are too few for alpha=0.1 (at least 9)" in out
    code, out, _ = run("check", "g", "--alpha", 0.3, "--method", "split", "--class-conditional")
    assert code == 0 and "classes have too few calibration nodes" in out


def test_what_is_missing_is_shown_and_ends_with_2(run):
    small.write("g", roles=roles_of(train=10, none=50))
    code, out, notes = run("check", "g")
    assert code == 2 and notes.startswith("snaps: error: 'g' is not ready: nodes.parquet column")
    assert notes.count("\n") == 1 and "at least 19 labelled nodes" in notes
    assert out.startswith("Found in g\n") and "column 'role'" not in out
    checked = json.loads(run("check", "g", "--json")[1])
    assert not checked["ready"] and len(checked["missing"]) == 1


def test_probabilities_that_are_none(run, tmp_path):
    small.write("g")
    small.change(tmp_path / "g", "nodes", probs=(3 * PROBS).tolist())
    code, out, notes = run("check", "g")
    assert code == 2 and "rows sum to 3 ... 3" in out
    assert "must sum to 1" in notes and "--logits" in notes and notes.count("\n") == 1
    assert run("check", "g", "--logits")[0] == 0


def test_labels_that_calibration_nodes_lack(run):
    labels = small.LABELS.copy()
    labels[3] = -1
    small.write("g", labels=labels)
    code, _, notes = run("check", "g")
    assert code == 2 and "must be given where the role is calib" in notes


def test_going_on_with_a_saved_predictor(run, tmp_path):
    small.write("g", roles=FOLDERS["calib and test"])
    assert run("calibrate", "g", "--alpha", 0.1, "--out", "m.snaps")[0] == 0
    roles = roles_of(calib=45, test=15)
    small.write("h", roles=roles)
    code, out, _ = run("check", "h", "--with", "m.snaps", "--json")
    plan = json.loads(out)["plan"]
    code, out, _ = run("predict", "h", "--with", "m.snaps", "--out", "sets.csv", "--json")
    done = json.loads(out)
    assert code == 0 and plan["new_calibration_nodes"] == 5
    assert plan["calibration_nodes"] == done["calibration_nodes"]
    assert plan["tuning_nodes"] == done["tuning_nodes"] and plan["predicted"] == done["sets"]
    kept = np.arange(1, NUM_NODES)
    graph = snaps.Graph(small.graph().adjacency[kept][:, kept], ids=small.NAMES[kept])
    snaps.folder.write_folder("i", graph, PROBS[kept], small.LABELS[kept], roles[kept])
    code, _, notes = run("check", "i", "--with", "m.snaps")
    assert code == 2 and "1 missing" in notes and "--missing drop" in notes
    assert run("check", "i", "--with", "m.snaps", "--missing", "drop")[0] == 0


def test_summaries_of_commands_are_not_cut(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = run("--help")[1]
    commands = text.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert len(commands) >= 13 and not [line for line in commands if "..." in line]
    assert commands[0].split()[0] == "demo"  # where to start


@pytest.mark.parametrize("command", ["predict", "check", "calibrate", "report", "select", "accept"])
def test_options_come_in_groups(run, command):
    text = run(command, "--help")[1]
    titles = [line for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    assert titles[:5] == ["Arguments:", "Options:", "Method:", "Coverage:", "Similar nodes:"]
    assert "Default" not in text and "{FOLDER}" not in text
