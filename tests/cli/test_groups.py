"""Names of classes, weights and groups on the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import snaps
from snaps.folder import write_folder
from tests.cli.common import (
    COLOURS,
    PREDICT,
    REGIONS,
    as_read,
    by_region,
    predict,
    read_csv,
    read_sets,
    roles_of,
)
from tests.helpers import small
from tests.helpers.small import CALIB, LABELS, NAMES, NUM_NODES, PROBS, TEST


def test_classes(here, run):
    small.change(here / "g", "nodes", label=COLOURS[LABELS])
    report = predict(run, "--classes", "red, green,blue")
    sets = small.calibrated(snaps.SNAPS(0.2), named=True).predict_set(TEST)
    assert read_sets() == {
        id: COLOURS[labels].tolist() for id, labels in as_read(sets).items()
    }  # fmt: skip
    assert report["classes"] == COLOURS.tolist()
    assert set(report["class_coverage"]) == set(COLOURS)
    for name in ("sets.csv", "sets.jsonl"):
        run("predict", "g", "--alpha", 0.2, "--classes", "red,green,blue", "--out", name)
    assert read_csv(Path("sets.csv").read_text().splitlines()) == read_sets()
    lines = Path("sets.jsonl").read_text().splitlines()
    assert {row["id"]: row["labels"] for row in map(json.loads, lines)} == read_sets()


def test_classes_that_are_numbers(here, run):
    small.change(here / "g", "nodes", label=np.array([-5, 70, 3])[LABELS])
    assert predict(run, "--classes", "-5,70,3")["classes"] == [-5, 70, 3]
    sets = small.calibrated(snaps.SNAPS(0.2), named=True).predict_set(TEST)
    assert list(map(len, read_sets().values())) == sets.sizes.tolist()
    assert {label for labels in read_sets().values() for label in labels} == {-5, 70, 3}


def test_classes_named_by_the_columns(here, run):
    columns = {f"p_{name}": PROBS[:, y] for y, name in enumerate(COLOURS)}
    small.change(here / "g", "nodes", label=COLOURS[LABELS], probs=None, **columns)
    assert predict(run)["classes"] == sorted(COLOURS)  # whatever the order of the file
    frame = pd.DataFrame(PROBS, columns=COLOURS)
    cp = snaps.SNAPS(0.2).calibrate(small.graph(ids=NAMES), frame, COLOURS[LABELS], CALIB)
    assert read_sets() == as_read(cp.predict_set(TEST))


def test_classes_that_contradict_the_columns(here, run):
    """Columns name themselves, and so does their order."""
    columns = {f"p_{name}": PROBS[:, y] for y, name in enumerate(COLOURS)}
    small.change(here / "g", "nodes", label=COLOURS[LABELS], probs=None, **columns)
    expected = predict(run)
    assert predict(run, "--classes", "red, green,blue") == expected
    (here / "sets.parquet").unlink()
    for command in (
        ["predict", "g", "--out", "sets.parquet"],
        ["calibrate", "g", "--out", "m.snaps"],
        ["report", "g", "--out", "r.html"],
        ["evaluate", "g", "--splits", 2],
    ):
        for names in ("blue,red,green", "red,green,violet"):
            code, out, err = run(*command, "--classes", names)
            assert (code, out) == (2, "")
            assert err == (
                "snaps: error: '--classes' must be left out where columns p_<class> name the "
                f"classes (['red', 'green', 'blue']), got {names.split(',')}\n"
            )
    assert os.listdir(here) == ["g"]


@pytest.mark.parametrize("names", ["²,1,0", "٣,1,0", f"{'9' * 5000},1,0", "--1,1,0"])
def test_names_that_are_almost_numbers(here, run, names):
    code, _, err = run(*PREDICT, "--classes", names)
    assert code == 2
    assert err.startswith("snaps: error: column 'label' must be among the classes ")


@pytest.mark.parametrize("command", ["predict", "calibrate"])
def test_weighted(here, run, command):
    weights = 1 + np.arange(small.EDGES.shape[1]) % 7
    graph = snaps.Graph(
        small.EDGES, small.FEATURES, NUM_NODES, ids=NAMES, edge_weights=weights, weighted=True
    )
    write_folder(here / "g", graph, PROBS, LABELS, small.ROLES)
    found = {}
    for options in ([], ["--weighted"]):
        given = ["--alpha", 0.2, "--method", "daps", "--weights", 0.5, "--json", *options]
        code, out, err = run(command, "g", "--out", "sets.parquet", *given)
        note = "snaps: note: edges.parquet column 'weight' is ignored; --weighted "
        assert (code, err) == (0, "" if options else f"{note}uses it\n")
        found[bool(options)] = json.loads(out)["threshold"]
    for weighted in (True, False):
        one = graph if weighted else small.graph(ids=NAMES)
        cp = snaps.DAPS(0.2, weight=0.5).calibrate(one, PROBS, LABELS, CALIB)
        assert found[weighted] == cp.threshold_
    assert found[True] != found[False]


def test_group_by(here, run):
    small.change(here / "g", "nodes", region=REGIONS)
    report = predict(run, "--group-by", "region")
    cp = by_region()
    assert read_sets() == as_read(cp.predict_set(TEST))
    assert report["threshold"] == cp.threshold_.tolist()
    assert report["group_coverage"] == cp.evaluate(LABELS, TEST)["group_coverage"]
    assert report["coverage_interval"] is None and report["inside"] is None
    code, out, err = run(*PREDICT, "--alpha", 0.2, "--group-by", "region")
    assert (code, err) == (0, "")
    lowest_first = sorted(report["group_coverage"].items(), key=lambda item: item[1])
    listed = ", ".join(f"{name} {hit:.4f}" for name, hit in lowest_first)
    assert f"coverage by group, lowest first: {listed}\n" in out


def test_group_by_numbers_with_gaps(here, run):
    """Nodes without a number are a group, too."""
    numbers = [None if i % 2 else 7 for i in range(NUM_NODES)]
    small.change(here / "g", "nodes", zone=pa.array(numbers))
    report = predict(run, "--group-by", "zone")
    assert set(report["group_coverage"]) == {"7", "null"}
    cp = small.calibrated(snaps.SNAPS(0.2), named=True, groups=numbers)
    assert read_sets() == as_read(cp.predict_set(TEST))


def test_group_by_with_class_thresholds(here, run):
    small.change(here / "g", "nodes", region=REGIONS)
    options = ["--class-conditional", "--group-by", "region", "--method", "split", "--alpha", 0.5]
    cp = snaps.SplitConformal(0.5, class_conditional=True)
    small.calibrated(cp, named=True, groups=REGIONS)
    assert predict(run, *options)["threshold"] == cp.threshold_.tolist()


def test_a_group_with_too_few_nodes_is_noted_once(here, run):
    regions = REGIONS.copy()
    regions[50:] = "west"
    small.change(here / "g", "nodes", region=regions)
    code, _, err = run(*PREDICT, "--method", "split", "--alpha", 0.2, "--group-by", "region")
    assert code == 0 and err == (
        "snaps: note: 1 of 3 groups have too few calibration nodes for alpha=0.2 (at least 4 each) "
        "and get full sets: group (nodes) west (0)\n"
    )
    assert all(read_sets()[id] == [0, 1, 2] for id in NAMES[50:])


def test_split_does_not_claim_to_have_tuned(here, run):
    """Role tune is there, but nothing is tuned on it; nor are these nodes predicted."""
    roles = roles_of(calib=CALIB, tune=range(30, 40))
    small.write(here / "g", roles=roles)
    code, out, err = run(*PREDICT, "--method", "split", "--alpha", 0.2)
    assert (code, err) == (0, "")
    assert "calibrated on 30 nodes\n" in out and "tuned" not in out
    assert predict(run, "--method", "split")["tuning_nodes"] == 0
    assert list(read_sets()) == NAMES[40:].tolist()
