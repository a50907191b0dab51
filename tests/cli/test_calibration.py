"""`snaps calibrate`, then `snaps predict --with`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import snaps
from snaps.folder import write_folder
from tests.cli.common import (
    CALIBRATE,
    COLOURS,
    REGIONS,
    WITH,
    as_read,
    by_region,
    good,
    predict,
    read_sets,
    roles_of,
    same_each_time,
)
from tests.helpers import small
from tests.helpers.small import CALIB, LABELS, NAMES, NUM_NODES, PROBS, TEST


def write_part(folder, nodes, *, labels=LABELS, roles=small.ROLES, **columns):
    """A graph folder with some nodes of the small graph, in this order."""
    nodes = np.asarray(nodes)
    whole = small.graph(ids=NAMES)
    graph = snaps.Graph(
        whole.adjacency[nodes][:, nodes], small.FEATURES[nodes], ids=NAMES[nodes]
    )  # fmt: skip
    write_folder(folder, graph, PROBS[nodes], np.asarray(labels)[nodes], np.asarray(roles)[nodes])
    if columns:
        small.change(folder, "nodes", **{k: np.asarray(v)[nodes] for k, v in columns.items()})
    return graph


@pytest.mark.parametrize("data", [False, True])
@pytest.mark.parametrize("options", [
    [], ["--method", "split"], ["--method", "split", "--score", "raps"], ["--method", "pooled"],
    ["--method", "daps", "--seed", 3], ["--weights", "0.3,0.2", "--k", 5],
], ids=str)  # fmt: skip
def test_calibrate_then_predict_is_predict(here, run, options, data):
    """On the same folder the two steps give what the one step gives."""
    report = predict(run, *options)
    expected = read_sets()
    out = good(run(*CALIBRATE, *options, *["--data"] * data))
    assert out.endswith("\nwrote cp.snaps\n") and "calibrated on " in out
    printed = json.loads(good(run(*CALIBRATE, *options, *["--data"] * data, "--json")))
    assert printed == {"out": "cp.snaps", **{key: report[key] for key in printed if key != "out"}}
    os.remove("sets.parquet")
    again = same_each_time(json.loads(good(run("predict", "g", *WITH, "--json"))))
    assert again["inputs"].pop("cp.snaps")
    assert again == report and read_sets() == expected
    assert sorted(os.listdir(here)) == ["cp.snaps", "g", "sets.parquet"]
    assert (snaps.load("cp.snaps")._fitted[1].data is not None) == data


def test_predict_with_a_folder_that_has_grown(here, run):
    """New nodes, another order: as calibrated again with the old tuning and calibration nodes."""
    write_part(here / "g", range(50))
    good(run(*CALIBRATE))
    first = snaps.load("cp.snaps")
    graph = write_part(here / "g", range(NUM_NODES)[::-1])
    report = json.loads(good(run("predict", "g", *WITH, "--json")))
    fresh = snaps.SNAPS(0.2).calibrate(
        graph, PROBS[::-1], LABELS[::-1], first.calib_ids_, first.tune_ids_
    )
    assert read_sets() == as_read(fresh.predict_set(NAMES[TEST][::-1]))
    assert report["threshold"] == fresh.threshold_ != first.threshold_
    assert (report["calibration_nodes"], report["tuning_nodes"]) == (19, 11)


def test_new_nodes_with_role_calib_calibrate_too(here, run):
    write_part(here / "g", range(50))
    good(run(*CALIBRATE))
    first = snaps.load("cp.snaps")
    graph = write_part(here / "g", range(NUM_NODES), roles=roles_of(calib=[*CALIB, 55, 58]))
    report = json.loads(good(run("predict", "g", *WITH, "--json", "--save", "new.snaps")))
    calib = [*first.calib_ids_, NAMES[55], NAMES[58]]
    fresh = snaps.SNAPS(0.2).calibrate(graph, PROBS, LABELS, calib, first.tune_ids_)
    assert report["calibration_nodes"] == 21 and report["threshold"] == fresh.threshold_
    rest = np.setdiff1d(TEST, [55, 58])
    assert read_sets() == as_read(fresh.predict_set(rest))
    assert read_sets() == as_read(snaps.load("new.snaps").predict_set(rest))


def test_predict_with_another_alpha(here, run):
    good(run(*CALIBRATE, "--weights", "0.3,0.2", "--k", 5))
    report = json.loads(good(run("predict", "g", *WITH, "--alpha", 0.4, "--json")))
    cp = small.calibrated(snaps.SNAPS(0.4, k=5, weights=(0.3, 0.2)), named=True)
    assert report["alpha"] == 0.4 and report["threshold"] == cp.threshold_
    assert read_sets() == as_read(cp.predict_set(TEST))


def test_predict_with_groups(here, run):
    small.change(here / "g", "nodes", region=REGIONS)
    good(run(*CALIBRATE, "--group-by", "region"))
    code, out, err = run("predict", "g", *WITH)
    assert (code, out) == (2, "") and err == (
        "snaps: error: 'groups' must be given for the new graph, as they were to calibrate\n"
    )
    good(run("predict", "g", *WITH, "--group-by", "region"))
    assert read_sets() == as_read(by_region().predict_set(TEST))


def test_predict_with_names(here, run):
    small.change(here / "g", "nodes", label=COLOURS[LABELS])
    good(run(*CALIBRATE, "--classes", "red,green,blue"))
    good(run("predict", "g", *WITH))
    sets = small.calibrated(snaps.SNAPS(0.2), named=True).predict_set(TEST)
    assert read_sets() == {id: COLOURS[labels].tolist() for id, labels in as_read(sets).items()}


def test_a_calibration_node_that_is_gone(here, run):
    """An error that names it and the choice there is."""
    good(run(*CALIBRATE, "--weights", "0.3,0.2"))
    kept = np.delete(np.arange(NUM_NODES), 3)
    graph = write_part(here / "g", kept)
    code, out, err = run("predict", "g", *WITH)
    assert (code, out) == (2, "") and not Path("sets.parquet").exists()
    assert err == (
        "snaps: error: 'graph' must have all 30 calibration nodes, got 1 missing (first: "
        f"'{NAMES[3]}'): --missing drop goes on without them\n"
    )
    good(run("predict", "g", *WITH, "--missing", "drop"))
    fresh = snaps.SNAPS(0.2, weights=(0.3, 0.2)).calibrate(
        graph, PROBS[kept], LABELS[kept], NAMES[np.delete(CALIB, 3)]
    )
    assert read_sets() == as_read(fresh.predict_set(NAMES[TEST]))


def test_a_folder_without_any_calibration_node(here, run):
    good(run(*CALIBRATE))
    write_part(here / "g", TEST, roles=roles_of(test=TEST))
    code, out, err = run("predict", "g", *WITH)
    assert (code, out) == (2, "")
    assert err.startswith("snaps: error: 'graph' must have calibration nodes, got none of 19: ")


def test_a_predictor_that_cannot_be_saved_when_the_sets_are_written(here, run, monkeypatch):
    def full(*_):
        raise snaps.SnapsError("cannot write 'm.snaps': No space left on device")

    monkeypatch.setattr("snaps.predictor.persistence.save", full)
    error = "snaps: error: cannot write 'm.snaps': No space left on device; the sets are "
    for out, where in (("x.csv", "in 'x.csv'"), ("-", "on standard output")):
        code, _, err = run("predict", "g", "--out", out, "--save", "m.snaps")
        assert code == 2 and err.endswith(f"{error}{where}\n")
    assert Path("x.csv").exists()


def test_predict_with_what_does_not_fit(here, run):
    good(run(*CALIBRATE))
    expected = {
        "'--missing' must be 'error' or 'drop', got 'maybe'": ["--missing", "maybe"],
        "'--alpha' must lie strictly between 0 and 1, got 3.0": ["--alpha", 3],
    }
    for message, options in expected.items():
        assert run("predict", "g", *WITH, *options) == (2, "", f"snaps: error: {message}\n")
    other = LABELS.copy()
    node = int(np.flatnonzero(NAMES == snaps.load("cp.snaps").calib_ids_[0])[0])
    other[node] = (LABELS[node] + 1) % 3
    small.write(here / "g", labels=other)
    code, _, err = run("predict", "g", *WITH)
    assert code == 2 and err.startswith(
        "snaps: error: column 'label' must agree with those calibrated"
    )
    assert repr(str(NAMES[node])) in err
    Path("cp.snaps").write_text("something else")
    code, _, err = run("predict", "g", *WITH)
    assert code == 2 and err.startswith("snaps: error: cannot ") and err.count("\n") == 1


def test_a_node_with_role_test_that_calibrated_is_noted(here, run):
    good(run(*CALIBRATE))
    calib = snaps.load("cp.snaps").calib_ids_[:2]
    roles = np.where(np.isin(NAMES, calib), "test", small.ROLES)
    small.write(here / "g", roles=roles)
    code, out, err = run("predict", "g", *WITH, "--json")
    assert code == 0 and json.loads(out)["sets"] == 32 and json.loads(out)["labelled"] == 30
    assert err == (
        "snaps: note: 2 of the nodes were used to calibrate or tune: the guarantee does not apply\n"
    )


@pytest.mark.parametrize("column", ["null", "left out"])
def test_labels_that_the_file_remembers_need_not_be_given_again(here, run, column):
    small.change(here / "g", "nodes", label=COLOURS[LABELS])
    good(run(*CALIBRATE, "--classes", "red,green,blue"))
    good(run("predict", "g", *WITH))
    expected = read_sets()
    label = None if column == "left out" else pa.nulls(NUM_NODES, pa.string())
    small.change(here / "g", "nodes", label=label)
    report = json.loads(good(run("predict", "g", *WITH, "--json")))
    assert read_sets() == expected and "coverage" not in report
