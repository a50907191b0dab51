"""`snaps evaluate`: the table of the library, and the splits that it draws."""

from __future__ import annotations

import json

import numpy as np

import snaps
from tests.cli.common import COLOURS, roles_of
from tests.helpers import small
from tests.helpers.small import LABELS, NAMES, NUM_NODES, PROBS


def test_evaluate(here, run):
    options = ["--splits", 5, "--alpha", 0.2, "--alpha", 0.3, "--seed", 1]
    code, out, err = run("evaluate", "g", *options, "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["splits"] == 5
    rows = report["results"]
    assert [row["alpha"] for row in rows] == [0.2] * 7 + [0.3] * 7
    names = ["APS", "RAPS", "THR", "DAPS", "SNAPS", "SNAPS on THR", "Pooled"]
    assert [row["method"] for row in rows] == names * 2
    expected = snaps.evaluate_splits(
        snaps.SplitConformal(seed=1),
        small.graph(ids=NAMES),
        PROBS,
        LABELS,
        np.arange(NUM_NODES),
        30,
        5,
        seed=1,
        alphas=[0.2, 0.3],
    )
    assert expected.pop("class_coverage").shape[:2] == (2, 5)
    for key, values in expected.items():
        assert rows[0][key] == values[0].mean() and rows[7][key] == values[1].mean()


def test_the_same_note_is_shown_once(here, run):
    small.change(here / "g", "nodes", features=None)
    code, _, err = run("evaluate", "g", "--splits", 2, "--alpha", 0.2)
    assert code == 0
    assert err.count("the graph has no features") == err.count("\n") == 1


def test_the_words_of_python_are_options_too(here, run):
    common = ["evaluate", "g", "--alpha", 0.2, "--json"]
    expected = run(*common, "--splits", 3, "--calib", 20)
    assert run(*common, "--n-splits", 3, "--n-calib", 20) == expected and expected[0] == 0


def test_evaluate_prints_a_table(here, run):
    code, out, err = run("evaluate", "g", "--splits", 3, "--alpha", 0.2, "--calib", 25)
    assert (code, err) == (0, "")
    assert "Means over 3 random splits" in out and "SNAPS on THR" in out


def test_evaluate_smooths_sets(here, run):
    common = ["evaluate", "g", "--splits", 4, "--alpha", 0.2, "--smoothed"]
    code, out, err = run(*common, "--json")
    assert (code, err) == (0, "") and json.loads(out)["smoothed"] is True
    row = next(row for row in json.loads(out)["results"] if row["method"] == "THR")
    about = small.graph(ids=NAMES), PROBS, LABELS, np.arange(NUM_NODES), 30, 4
    thr = snaps.SplitConformal(0.2, score=snaps.THR())
    expected = snaps.evaluate_splits(thr, *about, smoothed=True)
    assert row["size"] == expected["size"].mean() and "threshold" not in row
    assert row["size"] < snaps.evaluate_splits(thr, *about)["size"].mean()
    assert "Means over 4 random splits, smoothed" in run(*common)[1]
    code, _, err = run(*common, "--goal", "smallest")
    assert code == 2 and "'--goal' must be left out with --smoothed, got smallest" in err


def test_the_pool_of_evaluate(here, run):
    """Labelled nodes of role calib, test or none; tuning nodes cost no calibration nodes."""
    roles = roles_of(calib=range(20), test=range(20, 40), train=range(40, 45), tune=range(45, 55))
    labels = LABELS.copy()
    labels[[0, 39, 59]] = -1
    small.write(here / "g", roles=roles, labels=labels)
    _, out, _ = run("evaluate", "g", "--splits", 2, "--alpha", 0.3, "--json")
    rows = json.loads(out)["results"]
    assert {(row["n_calib"], row["n_test"]) for row in rows} == {(19, 23)}


def test_classes_are_given_to_evaluate(here, run):
    def rows(*options):
        code, out, err = run("evaluate", "g", "--splits", 2, "--alpha", 0.2, "--json", *options)
        assert (code, err) == (0, "")
        return json.loads(out)["results"]

    expected = rows()
    small.change(here / "g", "nodes", label=COLOURS[LABELS])
    assert rows("--classes", "red,green,blue") == expected
