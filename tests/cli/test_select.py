"""`snaps select` and `snaps decide`: lists and decisions of the library, as files."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import snaps
from snaps.datasets import make_graph
from snaps.folder import write_folder
from snaps.models import smoothed_regression
from tests.helpers import small

ACTIONS = {"fraud": "block", "honest": "pass"}


@pytest.fixture
def fraud(tmp_path, monkeypatch):
    """A folder g of a graph with named classes, and an estimator calibrated as the commands do."""
    monkeypatch.chdir(tmp_path)
    made = make_graph(400, 2, homophily=0.8, imbalance=1.0, seed=2)
    roles = np.array([""] * 400, "U5")
    order = np.random.default_rng(0).permutation(400)
    roles[order[:30]], roles[order[30:180]] = "train", "calib"
    # The first class is the common one; folders sort the names.
    probs = smoothed_regression(made.graph, made.labels, order[:30])[:, ::-1]
    names = np.array(["fraud", "honest"])
    labels = names[1 - made.labels]
    write_folder(tmp_path / "g", made.graph, probs, labels, roles, classes=names)
    cp = snaps.SplitConformal(0.05)
    cp.calibrate(made.graph, probs, labels, np.sort(order[30:180]), classes=names)
    return cp, np.sort(order[180:])


SPLIT = ["--method", "split"]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_commands_write_what_the_library_gives(fraud, run, suffix, tmp_path):
    cp, test = fraud
    for command, expected in [
        (["select", "g", "--label", "fraud", "--fdr", 0.2], cp.select("fraud", 0.2, test)),
        (["accept", "g", "--error", 0.05], cp.accept(0.05, test)),
    ]:
        code, out, err = run(*command, "--out", f"list{suffix}", *SPLIT)
        assert code == 0 and err == "" and f"wrote list{suffix}" in out
        assert str(expected).splitlines()[0] in out and "are wrong among the" in out
        expected.write(f"expected{suffix}")
        assert open(f"list{suffix}", "rb").read() == open(f"expected{suffix}", "rb").read()
    assert len(cp.select("fraud", 0.2, test)) > 5


def test_json_stdout_and_saved_models(fraud, run):
    cp, test = fraud
    select = ["select", "g", "--label", "fraud", "--fdr", 0.2]
    code, out, _ = run(*select, "--out", "list.csv", "--json", *SPLIT)
    summary, expected = json.loads(out), cp.select("fraud", 0.2, test)
    assert code == 0 and summary["selected"] == len(expected) == summary["labelled"]
    assert (summary["label"], summary["fdr"], summary["nodes"]) == ("fraud", 0.2, 220)
    assert 0 <= summary["false_share"] < 0.5 and summary["certifiable"] == expected.certifiable
    code, out, err = run(*select, "--out", "-", *SPLIT)
    assert code == 0 and out == open("list.csv").read() and "220 nodes selected as fraud" in err
    assert run("calibrate", "g", "--out", "m.snaps", *SPLIT)[0] == 0
    assert run(*select, "--out", "again.csv", "--with", "m.snaps")[0] == 0
    assert open("again.csv").read() == out
    # A kept threshold is no part of a list; it is refused where the calibration nodes are not.
    assert run(*select, "--out", "same.csv", "--with", "m.snaps", "--threshold", "keep")[0] == 0
    assert open("same.csv").read() == out


def test_decide_adds_a_column(fraud, run):
    cp, _ = fraud
    decide = ["--decide", "fraud=block, honest=pass", *SPLIT]
    for suffix in (".parquet", ".csv"):
        code, out, _ = run("predict", "g", "--out", f"sets{suffix}", *decide)
        assert code == 0 and "decisions: " in out and "--class-conditional does that" in out
    table = pd.read_parquet("sets.parquet")
    sets = cp.predict_set(np.flatnonzero(np.isin(np.arange(400), table["id"])))
    assert list(table) == ["id", "labels", "size", "decision"]
    assert table["decision"].tolist() == sets.decide(ACTIONS).actions.tolist()
    assert pd.read_csv("sets.csv")["decision"].tolist() == table["decision"].tolist()
    code, out, _ = run(
        "predict", "g", "--out", "s.csv", *decide, "--otherwise", "ask", "--json",
        "--class-conditional",
    )  # fmt: skip
    summary = json.loads(out)
    assert code == 0 and sum(summary["decisions"].values()) == summary["sets"]
    assert set(summary["decisions"]) == {"block", "pass", "ask"}
    assert (
        summary["promises"][0]
        == "On average at most 5 % of the nodes of class fraud are given 'pass'."
    )


@pytest.mark.parametrize(
    "command, message",
    [
        (["select", "--label", "theft"], "'--label' must be one of ['fraud', 'honest'], got"),
        (["select", "--label", "fraud", "--fdr", "1.5"], "'--fdr' must lie strictly"),
        (["select", "--label", "fraud", "--fdr", "0"], "'--fdr' must lie strictly"),
        (["select", "--label", "fraud", "--fdr", "x"], "'--fdr'"),
        (["select"], "'--label'"),
        (["select", "--label", "fraud", "--engine", "spark"], "--engine"),
        (["accept", "--error", "-1"], "'--error' must lie strictly between 0 and 1"),
        (["accept", "--out", "list.txt"], "'--out' must end in .parquet, .csv, .jsonl"),
        (["accept", "--out", "no/list.csv"], "no"),
        (["accept", "--out", "g/nodes.parquet"], "--out"),
        (["accept", "--with", "none.snaps"], "none.snaps"),
        (["predict", "--decide", "fraud"], "'--decide' must be class=action"),
        (["predict", "--decide", "fraud=a,fraud=b"], "each class once"),
        (["predict", "--decide", "theft=a"], "'--decide' must be one of ['fraud', 'honest'], got"),
        (["predict", "--otherwise", "a"], "'--otherwise' must go with --decide"),
        (["predict", "--decide", "fraud=a", "--engine", "spark"], "'--decide' must be left out"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_writes_nothing(fraud, run, tmp_path, command, message):
    before = sorted(tmp_path.rglob("*"))
    name, *options = command
    out = [] if "--out" in options else ["--out", "list.parquet"]
    code, printed, err = run(name, "g", *out, *options)
    assert (code, printed) == (2, "") and err.count("\n") == 1 and message in err
    assert sorted(tmp_path.rglob("*")) == before


def test_numbers_as_classes(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    small.write(tmp_path / "g")
    for command in (["select", "--label", "1"], ["predict", "--decide", "1=go"]):
        assert run(command[0], "g", "--out", "a.csv", *command[1:], *SPLIT)[0] == 0
    assert run("select", "g", "--out", "a.csv", "--label", "01", *SPLIT)[0] == 2
