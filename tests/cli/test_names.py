"""Columns of a folder that carry names of classes, on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from snaps.cli import main
from snaps.folder import write_folder
from tests.helpers.papers import CLASSES


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command in a folder of its own: exit code and what it says."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        return ended.value.code, capsys.readouterr().err

    return call


def write_month(papers, name, columns, rename=str, label=True):
    """A graph folder whose columns of probabilities come in some order."""
    graph, probs, labels, *_ = papers
    role = np.array(["train"] * 60 + ["calib"] * 200 + ["test"] * 340)
    write_folder(name, graph, probs, labels, role, classes=CLASSES)
    path = Path(name) / "nodes.parquet"
    table = pq.read_table(path)
    others = [c for c in table.column_names if not c.startswith("p_")]
    others.remove("label") if not label else None
    table = table.select([*others, *(f"p_{y}" for y in columns)])
    table = table.rename_columns([*others, *(f"p_{rename(y)}" for y in columns)])
    pq.write_table(table, path)


def read_sets(path):
    table = pq.read_table(path)
    return dict(zip(table["id"].to_pylist(), table["labels"].to_pylist(), strict=True))


@pytest.mark.parametrize("label", [True, False])
def test_columns_of_next_month_in_another_order(papers, run, label):
    """The worst of all: it struck in production, without labels to notice."""
    write_month(papers, "march", CLASSES)
    assert run("calibrate", "march", "--alpha", 0.1, "--out", "m.snaps")[0] == 0
    assert run("predict", "march", "--with", "m.snaps", "--out", "march.parquet")[0] == 0
    write_month(papers, "april", ["IR", "DM", "AI", "DB"], label=label)
    assert run("predict", "april", "--with", "m.snaps", "--out", "april.parquet") == (0, "")
    assert read_sets("april.parquet") == read_sets("march.parquet")
    assert run("report", "april", "--with", "m.snaps", "--out", "april.html")[0] == 0
    write_month(papers, "may", CLASSES, lambda name: {"AI": "ML"}.get(name, name), label=False)
    for command in (("predict", "--out", "may.parquet"), ("report", "--out", "may.html")):
        code, err = run(command[0], "may", "--with", "m.snaps", *command[1:])
        assert code == 2 and not Path(command[-1]).exists()
        assert err.startswith("snaps: error: 'probs' must have a column for each class, got none ")


def test_a_list_of_next_month_must_say_which_is_which(papers, run):
    write_month(papers, "march", CLASSES)
    run("calibrate", "march", "--alpha", 0.1, "--out", "m.snaps")
    run("predict", "march", "--with", "m.snaps", "--out", "march.parquet")
    graph, probs, *_ = papers
    role = np.array(["train"] * 60 + ["calib"] * 200 + ["test"] * 340)
    write_folder("april", graph, probs[:, ::-1], roles=role)
    code, err = run("predict", "april", "--with", "m.snaps", "--out", "april.parquet")
    assert code == 2 and "must be given for probs whose columns have no names" in err
    asked = "--classes", "IR,DM,DB,AI", "--out", "april.parquet"
    code, err = run("predict", "april", "--with", "m.snaps", *asked)
    assert (code, err) == (0, "") and read_sets("april.parquet") == read_sets("march.parquet")


def test_the_order_of_the_columns_of_a_folder_changes_nothing(papers, run):
    for name, order in (("one", CLASSES), ("two", ["IR", "DM", "AI", "DB"])):
        write_month(papers, name, order)
        assert run("predict", name, "--alpha", 0.1, "--out", f"{name}.parquet")[0] == 0
    assert read_sets("one.parquet") == read_sets("two.parquet")
