"""`snaps predict`: the sets of the library, and a report of how they were made."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import snaps
from snaps.folder import write_folder
from tests.cli.common import (
    PREDICT,
    SNAPS,
    as_read,
    as_text,
    predict,
    read_csv,
    read_sets,
    roles_of,
    sha256,
    shell,
)
from tests.helpers import small
from tests.helpers.small import CALIB, LABELS, NAMES, NUM_NODES, PROBS, TEST

NODES_EDGES = "nodes", "edges"


def test_the_report_of_predict(here, run):
    cp = small.calibrated(snaps.SNAPS(0.2), named=True)
    truth = cp.evaluate(LABELS, TEST)
    sets = cp.predict_set(TEST)
    assert predict(run) == {
        "out": "sets.parquet",
        "method": "SNAPS",
        "score": "APS(randomized=True)",
        "alpha": 0.2,
        "seed": 0,
        "weights": cp.part_weights_,
        "threshold": cp.threshold_,
        "calibration_nodes": 19,
        "tuning_nodes": 11,
        "classes": [0, 1, 2],
        "neighbours": {"similar": {"method": "exact", "recall": 1.0, "candidates": None}},
        "sets": 30,
        "size": sets.sizes.mean(),
        "singletons": (sets.sizes == 1).mean(),
        "empty": (sets.sizes == 0).mean(),
        "labelled": 30,
        "coverage": truth["coverage"],
        "coverage_interval": list(truth["coverage_interval"]),
        "inside": truth["inside"],
        "tied": 0,
        "upper_binds": truth["upper_binds"],
        "singleton_hit": truth["singleton_hit"],
        "class_coverage": {str(y): hits for y, hits in truth["class_coverage"].items()},
        "group_coverage": None,
        "class_promise": None,
        "group_promise": None,
        "weakest_class": None,
        "exchangeability": json.loads(json.dumps(cp.exchangeability(TEST).to_dict())),
        "version": snaps.__version__,
        "inputs": sha256(here / "g", "nodes", "edges"),
    }


def imbalanced(folder, random, missed):
    """A folder without links in which the rarest of three classes is often taken for another."""
    names, n = np.array(["common", "usual", "rare"]), 1500
    labels = random.choice(3, n, p=[0.6, 0.35, 0.05])
    seen = np.where((labels == 2) & (random.random(n) < missed), 0, labels)
    probs = np.full((n, 3), 0.02) + 0.94 * np.eye(3)[seen] + 0.01 * random.random((n, 3))
    probs /= probs.sum(axis=1, keepdims=True)
    roles = np.where(np.arange(n) < 500, "calib", "test")
    write_folder(folder, snaps.Graph(None, num_nodes=n), probs, names[labels], roles, classes=names)


def test_a_class_that_is_covered_far_less_than_promised(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    imbalanced("g", np.random.default_rng(0), 0.8)
    command = ["predict", "g", "--out", "s.csv", "--method", "split", "--score", "thr"]
    code, out, err = run(*command)
    assert (code, err) == (0, "")
    report = json.loads(run(*command, "--json")[1])
    weakest = report["weakest_class"]
    assert weakest["class"] == "rare" and weakest["coverage"] < 0.5
    assert weakest["coverage"] == report["class_coverage"]["rare"]
    assert report["coverage"] > 0.93
    assert (
        f"\nclass rare is covered {weakest['coverage']:.4f} on {weakest['nodes']} nodes, far below "
        "0.95: --class-floor promises every class a least coverage, --class-conditional gives each "
        "a threshold of its own\n" in out
    )
    assert "far below" not in run(*command, "--class-conditional")[1]


def test_chance_is_not_reported_as_a_weak_class(tmp_path, monkeypatch, run):
    """No class is harder than the others: of 40 draws at most one may be reported."""
    monkeypatch.chdir(tmp_path)
    found = []
    for seed in range(40):
        random = np.random.default_rng(seed)
        labels = random.choice(5, 400, p=[0.5, 0.3, 0.1, 0.06, 0.04])
        probs = random.dirichlet(np.ones(5), 400)
        roles = np.where(np.arange(400) < 150, "calib", "test")
        write_folder("g", snaps.Graph(None, num_nodes=400), probs, labels, roles)
        options = ["--method", "split", "--score", "thr", "--alpha", 0.1, "--json"]
        found.append(json.loads(run("predict", "g", "--out", "s.csv", *options)[1]))
    assert sum(report["weakest_class"] is not None for report in found) <= 1


@pytest.mark.parametrize(
    "options, method",
    [
        (["--method", "snaps", "--k", 7], snaps.SNAPS(0.2, k=7)),
        (["--weights", "0.3,0.2"], snaps.SNAPS(0.2, weights=(0.3, 0.2))),
        (["--score", "thr"], snaps.SNAPS(0.2, score=snaps.THR())),
        (["--method", "daps", "--seed", 3], snaps.DAPS(0.2, seed=3)),
        (["--method", "daps", "--weights", "0.4"], snaps.DAPS(0.2, weight=0.4)),
        (["--method", "pooled"], snaps.Pooled(0.2)),
        (
            ["--method", "pooled", "--score", "aps", "--k", 4],
            snaps.Pooled(0.2, score=snaps.APS(), k=4),
        ),
        (["--method", "split"], snaps.SplitConformal(0.2)),
        (["--method", "split", "--score", "raps"], snaps.SplitConformal(0.2, score=snaps.RAPS())),
        (["--method", "split", "--score", "saps"], snaps.SplitConformal(0.2, score=snaps.SAPS())),
    ],
    ids=str,
)
def test_methods_and_scores(here, run, options, method):
    report = predict(run, *options)
    cp = small.calibrated(method, named=True)
    assert read_sets() == as_read(cp.predict_set(TEST))
    assert report["weights"] == cp.part_weights_ and report["score"] == repr(cp.score_)


def test_sets_are_for_role_test(here, run):
    roles = roles_of(calib=CALIB, test=[40, 50], train=range(51, 55))
    small.write(here / "g", roles=roles)
    predict(run)
    assert list(read_sets()) == NAMES[[40, 50]].tolist()


def test_sets_are_for_all_but_calib_and_tune_without_role_test(here, run):
    roles = roles_of(calib=CALIB, tune=range(30, 40), valid=[40], train=[41])
    small.write(here / "g", roles=roles)
    warning = "2 of the sets are for nodes with role train or valid"
    note = f"snaps: note: {warning}: the guarantee does not apply to them\n"
    report = predict(run, note=note)
    assert list(read_sets()) == NAMES[40:].tolist()
    assert report["labelled"] == 18  # a set for each, but no coverage from training nodes


@pytest.mark.parametrize(
    "given, tuned",
    [
        ({"tune": range(30, 38), "valid": range(38, 50)}, range(30, 38)),
        ({"valid": range(38, 50)}, range(38, 50)),
    ],
)
def test_roles_tune_and_valid_choose_the_weights(here, run, given, tuned):
    small.write(here / "g", roles=roles_of(calib=CALIB, test=range(50, 60), **given))
    report = predict(run)
    cp = small.calibrated(snaps.SNAPS(0.2), named=True, tune_nodes=list(tuned))
    assert (report["tuning_nodes"], report["calibration_nodes"]) == (len(tuned), 30)
    assert read_sets() == as_read(cp.predict_set(range(50, 60)))


def test_nodes_without_labels_are_predicted_but_not_judged(here, run):
    labels = np.where(np.arange(NUM_NODES) < 30, LABELS, -1)
    small.write(here / "g", labels=labels)
    report = predict(run)
    assert report["sets"] == 30 and "coverage" not in report


def test_class_conditional(here, run):
    options = ["--class-conditional", "--method", "split", "--alpha", 0.4]
    report = predict(run, *options)
    cp = snaps.SplitConformal(0.4, class_conditional=True)
    assert report["threshold"] == small.calibrated(cp, named=True).threshold_.tolist()
    assert report["coverage_interval"] is None


def test_too_few_calibration_nodes_are_noted(here, run):
    code, out, err = run(*PREDICT, "--method", "split", "--alpha", 0.01, "--json")
    assert code == 0
    assert err == (
        "snaps: note: 30 calibration nodes are too few for alpha=0.01 (at least 99): "
        "the threshold is infinite\n"
    )
    assert json.loads(out)["threshold"] is None
    assert set(map(tuple, read_sets().values())) == {(0, 1, 2)}


def test_save(here, run):
    predict(run, "--save", "cp.npz")
    assert read_sets() == as_read(snaps.load("cp.npz").predict_set(TEST))


def test_logits(here, run):
    predict(run, "--method", "split")
    expected = read_sets()
    small.change(here / "g", "nodes", probs=pa.array((np.log(PROBS) + 2).tolist()))
    predict(run, "--method", "split", "--logits")
    assert read_sets() == expected


def test_ids_that_are_numbers_and_part_files(here, run):
    ids = np.arange(NUM_NODES) * 10
    graph = small.graph(ids=ids)
    write_folder(here / "g", graph, PROBS, LABELS, small.ROLES)
    for name in ("nodes", "edges"):
        path = here / "g" / f"{name}.parquet"
        table = pq.read_table(path)
        path.unlink()
        path.mkdir()
        pq.write_table(table.slice(0, 20), path / "part-0.parquet")
        pq.write_table(table.slice(20), path / "part-1.parquet")
    predict(run)
    assert pq.read_schema("sets.parquet").field("id").type == pa.int64()
    cp = snaps.SNAPS(0.2).calibrate(graph, PROBS, LABELS, CALIB)
    assert read_sets() == as_read(cp.predict_set(TEST))


def test_an_old_file_is_replaced(here, run):
    Path("sets.parquet").write_text("old")
    predict(run)
    assert len(read_sets()) == 30
    assert sorted(os.listdir(here)) == ["g", "sets.parquet"]


def test_features_are_not_needed(here, run):
    small.change(here / "g", "nodes", features=None)
    code, _, err = run(*PREDICT, "--alpha", 0.2)
    assert code == 0
    assert err.startswith("snaps: note: the graph has no features") and err.count("\n") == 1


def test_a_folder_of_csv(here, run):
    """The same sets as from Parquet, and files that are read are not written over."""
    sets = read_sets() if predict(run) else None
    nodes, edges = (pq.read_table(here / "g" / f"{n}.parquet").to_pandas() for n in NODES_EDGES)
    for prefix, column in (("p_", "probs"), ("f_", "features")):
        table = np.stack(nodes.pop(column).to_list())
        for i in range(table.shape[1]):
            nodes[f"{prefix}{i}"] = table[:, i]
    (here / "c").mkdir()
    nodes.to_csv(here / "c" / "nodes.csv", index=False)
    edges.to_csv(here / "c" / "edges.csv", index=False)
    for options in ([], ["--memory", "8GB"]):
        command = ["predict", "c", "--alpha", 0.2, "--out", "sets.parquet", "--json", *options]
        code, out, _ = run(*command)
        assert code == 0 and read_sets() == sets
    inputs = {f"{n}.csv": (here / "c" / f"{n}.csv").read_bytes() for n in NODES_EDGES}
    expected = {name: hashlib.sha256(text).hexdigest() for name, text in inputs.items()}
    assert json.loads(out)["inputs"] == expected
    code, _, err = run("predict", "c", "--out", "c/edges.csv")
    assert (code, err) == (2, "snaps: error: '--out' must not be an input, got 'c/edges.csv'\n")
    code, _, err = run("predict", "c", "--out", "s.parquet", "--engine", "spark")
    assert code == 2 and "'--engine' must be local for a folder with nodes.csv, got spark" in err
    nodes["role"] = "test"
    nodes.to_csv(here / "c" / "nodes.csv", index=False)
    code, _, err = run("predict", "c", "--out", "s.parquet")
    assert code == 2 and "nodes.csv column 'role' must mark calibration nodes 'calib'" in err


def test_csv_and_jsonl(here, run):
    sets = small.calibrated(snaps.SNAPS(0.2), named=True).predict_set(TEST)
    for name in ("sets.csv", "SETS.JSONL"):
        code, out, err = run("predict", "g", "--alpha", 0.2, "--out", name)
        assert (code, err) == (0, "") and out.endswith(f"wrote {name}\n")
    assert read_csv(Path("sets.csv").read_text().splitlines()) == as_text(sets)
    rows = [json.loads(line) for line in Path("SETS.JSONL").read_text().splitlines()]
    assert {row["id"]: row["labels"] for row in rows} == as_read(sets)
    assert [row["size"] for row in rows] == sets.sizes.tolist()
    assert sorted(os.listdir(here)) == ["SETS.JSONL", "g", "sets.csv"]


def test_sets_on_stdout_leave_the_summary_to_stderr(here, run):
    sets = small.calibrated(snaps.SNAPS(0.2), named=True).predict_set(TEST)
    code, out, err = run("predict", "g", "--alpha", 0.2, "--out", "-")
    assert code == 0 and read_csv(out.splitlines()) == as_text(sets)
    assert err.startswith("SNAPS with APS(randomized=True), alpha 0.2\n") and "wrote" not in err
    code, out, err = run("predict", "g", "--alpha", 0.2, "--out", "-", "--json")
    assert code == 0 and read_csv(out.splitlines()) == as_text(sets)
    assert json.loads(err)["sets"] == 30
    assert os.listdir(here) == ["g"]


def test_sets_on_stdout_as_a_program(here):
    done = shell(SNAPS, "predict", "g", "--alpha", "0.2", "--out", "-")
    sets = small.calibrated(snaps.SNAPS(0.2), named=True).predict_set(TEST)
    assert done.returncode == 0 and read_csv(done.stdout.splitlines()) == as_text(sets)


def test_a_parquet_file_tells_where_it_comes_from(here, run):
    predict(run, "--seed", 3)
    metadata = {k.decode(): v.decode() for k, v in pq.read_schema("sets.parquet").metadata.items()}
    assert json.loads(metadata.pop("snaps.inputs")) == sha256(here / "g", "nodes", "edges")
    assert metadata == {
        "snaps.version": snaps.__version__,
        "snaps.method": "SNAPS",
        "snaps.score": "APS(randomized=True)",
        "snaps.alpha": "0.2",
        "snaps.seed": "3",
        "snaps.calibration_nodes": "19",
        "snaps.tuning_nodes": "11",
    }


def test_json_tells_where_it_comes_from(here, run):
    """The version, and digests of the files that went in: a predictor is one of them."""
    folder = sha256(here / "g", "nodes", "edges")
    known = {"version": snaps.__version__, "inputs": folder}
    model = json.loads(run("calibrate", "g", "--alpha", "0.2", "--out", "m.snaps", "--json")[1])
    plain, again = predict(run, "--seed", 3), predict(run, "--with", "m.snaps")
    judged = json.loads(run("evaluate", "g", "--splits", 2, "--alpha", 0.2, "--json")[1])
    for report in (model, plain, judged):
        assert known.items() <= report.items()
    assert {"alpha": 0.2, "seed": 3, "calibration_nodes": 19}.items() <= plain.items()
    assert judged["seed"] == 0 and judged["splits"] == 2
    read = hashlib.sha256((here / "m.snaps").read_bytes()).hexdigest()
    assert again["inputs"] == {**folder, "m.snaps": read}


def test_a_folder_of_parts_has_one_digest(here, run):
    """That of the lines which sha256sum prints of its files."""
    whole = here / "g" / "edges.parquet"
    parts = pq.read_table(whole)
    whole.unlink()
    whole.mkdir()
    for part in range(2):
        pq.write_table(parts.slice(45 * part, 45), whole / f"{part}.parquet")
    lines = [f"{hash}  {name}\n" for name, hash in sha256(whole, "0", "1").items()]
    found = predict(run)["inputs"]["edges.parquet"]
    assert found == hashlib.sha256("".join(lines).encode()).hexdigest()


def test_the_digest_of_a_folder_of_links(here, run):
    """Folders of parts that are links have the digest of what they lead to."""
    nodes = here / "g" / "nodes.parquet"
    table = pq.read_table(nodes)
    nodes.unlink()
    for role in ("calib", "test"):
        (nodes / f"role={role}").mkdir(parents=True)
        part = table.filter(pa.compute.equal(table["role"], role)).drop_columns("role")
        pq.write_table(part, nodes / f"role={role}" / "part-0.parquet")
    expected = predict(run)["inputs"]["nodes.parquet"]
    (nodes / "role=calib").rename(here / "elsewhere")
    (nodes / "role=calib").symlink_to(here / "elsewhere")
    assert predict(run)["inputs"]["nodes.parquet"] == expected
    nodes.rename(here / "other")
    nodes.symlink_to(here / "other")
    assert predict(run)["inputs"]["nodes.parquet"] == expected
