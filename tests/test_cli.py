"""The commands: results on stdout or --out, one line for what went wrong, no traceback."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import snaps
from snaps._checks import shown
from snaps.cli import main
from snaps.datasets import make_graph
from snaps.folder import write_folder
from snaps.models import smoothed_regression
from tests.helpers import small
from tests.helpers.small import CALIB, LABELS, NAMES, NUM_NODES, PROBS, TEST

SNAPS = str(Path(sys.executable).with_name("snaps"))
NODES_EDGES = "nodes", "edges"
PREDICT, EVALUATE = ["predict", "g", "--out", "sets.parquet"], ["evaluate", "g"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder to work in, with the graph folder g."""
    monkeypatch.chdir(tmp_path)
    small.write(tmp_path / "g")
    return tmp_path


@pytest.fixture
def run(capsys):
    """Run a command in this process: exit code, stdout, stderr."""

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        return ended.value.code, *capsys.readouterr()

    return call


def shell(*command, **options):
    """Run a command in a process of its own."""
    environment = {**os.environ, "COLUMNS": "120", **options.pop("env", {})}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment, **options
    )


def read_sets(path="sets.parquet"):
    table = pq.read_table(path)
    return dict(zip(table["id"].to_pylist(), table["labels"].to_pylist(), strict=True))


def as_read(sets):
    return {
        id: labels.tolist() for id, labels in zip(sets.ids.tolist(), sets.labels(), strict=True)
    }


# ---- As a program --------------------------------------------------------------------------------


def test_predict_as_a_program(here):
    done = shell(SNAPS, *PREDICT, "--alpha", "0.2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("SNAPS with APS(randomized=True), alpha 0.2\n")
    assert "calibrated on 19 nodes, tuned on 11\n" in done.stdout
    assert done.stdout.endswith("\nwrote sets.parquet\n")
    table = pq.read_table("sets.parquet")
    kinds = [str(kind).replace("element", "item") for kind in table.schema.types]
    assert table.column_names == ["id", "labels", "size"]
    assert kinds == ["string", "list<item: int32>", "int32"]
    expected = small.calibrated(snaps.SNAPS(0.2), named=True).predict_set(TEST)
    assert read_sets() == as_read(expected)
    assert table["size"].to_pylist() == expected.sizes.tolist()


def test_predict_does_without_slow_imports(here):
    """Half a second each: pandas, which pyarrow looks for and others still find; `scipy.stats`."""
    code = f"""
import sys
from snaps.cli import main
try:
    main({[*PREDICT, "--alpha", "0.2"]})
except SystemExit as end:
    slow = "scipy.stats" in sys.modules
    print(end.code, "pandas" in sys.modules, len(sys.meta_path) - before, slow)
import pandas, pyarrow
print(len(pyarrow.table({{"a": [1, 2]}}).to_pandas()))
"""
    done = shell(sys.executable, "-c", "import sys; before = len(sys.meta_path)" + code)
    assert (done.returncode, done.stderr) == (0, "")
    old = int(pa.__version__.split(".")[0]) < 20  # looks for pandas in to_numpy, too
    assert done.stdout.endswith(f"wrote sets.parquet\n0 {old} 0 False\n2\n")


def test_demo_as_a_program(tmp_path):
    done = shell(SNAPS, "demo", "--nodes", "400", "--out", "d", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(name in done.stdout for name in ("APS", "RAPS", "DAPS", "SNAPS", "coverage"))
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    graph = ("nodes.parquet", "edges.parquet", "features.npz")
    assert written == {
        "d/demo.png",
        "d/report.html",
        "d/sets.parquet",
        *(f"d/graph/{name}" for name in graph),
    }
    assert (tmp_path / "d" / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert (
        "Next: snaps predict d/graph --method pooled --alpha 0.05 --out sets.parquet" in done.stdout
    )


def test_bad_input_as_a_program(here):
    for command in ([SNAPS], [sys.executable, "-m", "snaps"]):
        done = shell(*command, "predict", "nowhere", "--out", "sets.parquet")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "snaps: error: cannot read 'nowhere': no such folder\n"


@pytest.mark.parametrize("place", [1, 4])
def test_debug_shows_the_traceback_wherever_it_stands(here, place):
    command = [SNAPS, "predict", "nowhere", "--out", "sets.parquet"]
    done = shell(*command[:place], "--debug", *command[place:])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert done.stderr.endswith("\nsnaps: error: cannot read 'nowhere': no such folder\n")


INTERRUPTED = """
import os, signal, time
import snaps.cli, snaps.folder

def read_files(*arguments, **options):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)

snaps.folder.read_files = read_files
snaps.cli.main(["predict", "g", "--out", "sets.parquet"])
"""


def test_an_interrupted_command_ends_quietly(here):
    done = shell(sys.executable, "-c", INTERRUPTED)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    assert not Path("sets.parquet").exists()


IMPORTING = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
from snaps.cli import main
main(["predict", "g", "--out", "sets.parquet"])
"""


@pytest.mark.parametrize("name", ["click", "numpy", "scipy.sparse", "pyarrow.dataset", "numba"])
def test_an_interrupt_during_imports_ends_quietly(here, name):
    done = shell(sys.executable, "-c", IMPORTING.format(name=name))
    # By the signal itself, where Python notes that it interrupted code that was compiled.
    assert done.returncode in (130, -signal.SIGINT)
    assert (done.stdout, done.stderr) == ("", "")
    assert os.listdir(here) == ["g"]


DROPPED = """
import os, signal, weakref
import snaps.cli, snaps.folder, snaps.io.folders

class Thing:
    pass

def check_folder(folder):
    thing = Thing()
    kept = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT))
    del thing
    return original(folder)

original, snaps.io.folders.check_folder = snaps.io.folders.check_folder, check_folder
snaps.cli.main(["predict", "g", "--out", "sets.parquet"])
"""


def test_an_interrupt_in_a_callback_is_not_lost(here):
    """Python prints an error in a callback and goes on; so it did on Ctrl-C during imports."""
    done = shell(sys.executable, "-c", DROPPED)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    assert os.listdir(here) == ["g"]


@pytest.mark.parametrize("command", [["--help"], [*PREDICT, "--alpha", "0.2"]])
def test_a_reader_of_stdout_that_has_gone(here, command):
    read, write = os.pipe()
    os.close(read)
    # Buffered, as a pipe is by default: the loss is noticed at the very end.
    process = subprocess.Popen(
        [SNAPS, *command],
        stdout=write,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    os.close(write)
    _, stderr = process.communicate(timeout=300)
    assert (process.returncode, stderr) == (1, b"")


@pytest.mark.parametrize(
    "command", [PREDICT, EVALUATE, ["--version"], ["datasets", "list"]], ids=str
)
def test_standard_output_that_is_closed_or_full(here, command):
    for redirect, why in ((">&-", "it is closed"), (">/dev/full", "No space left on device")):
        buffered = {"PYTHONUNBUFFERED": ""}
        done = shell("sh", "-c", f'"$@" {redirect}', "sh", SNAPS, *command, env=buffered)
        told = f"snaps: error: cannot write to standard output: {why}\n"
        assert (done.returncode, done.stdout) == (2, "")
        assert [line for line in done.stderr.splitlines() if "note" not in line] == [told[:-1]]


def test_standard_error_that_is_closed(here):
    done = shell("sh", "-c", '"$@" 2>&-', "sh", SNAPS, *PREDICT)
    assert done.returncode == 0 and done.stdout.endswith("wrote sets.parquet\n")
    done = shell("sh", "-c", '"$@" 2>&-', "sh", SNAPS, "predict", "nowhere", "--out", "x.csv")
    assert (done.returncode, done.stdout) == (2, "")


def test_standard_output_that_knows_ascii_alone(here):
    labels = np.array(["rôt", "grün", "blå"])[LABELS]
    groups = np.array(["größer", "kleiner"])[np.arange(NUM_NODES) % 2]
    small.change(here / "g", "nodes", label=labels, region=groups)
    options = ["--alpha", "0.2", "--classes", "rôt,grün,blå", "--group-by", "region"]
    done = shell(SNAPS, *PREDICT, *options, env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "gr\\xf6\\xdfer" in done.stdout


def test_a_working_directory_that_is_gone(here):
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    gone = "snaps: error: the working directory must exist, got one that was deleted\n"
    for command in (PREDICT, ["calibrate", "g", "--out", "m.snaps"]):
        done = shell("sh", "-c", script, "sh", SNAPS, *command)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", gone)
    absolute = ["predict", here / "g", "--out", here / "sets.parquet"]
    assert shell("sh", "-c", script, "sh", SNAPS, *absolute).returncode == 0


def test_completion_for_bash(here):
    script = shell(SNAPS, "--show-completion", "bash")
    assert "complete -o nosort -F _snaps_completion snaps" in script.stdout
    asked = {"_SNAPS_COMPLETE": "bash_complete", "COMP_WORDS": "snaps pre", "COMP_CWORD": "1"}
    assert shell(SNAPS, env=asked).stdout.split() == ["plain,predict"]


# ---- Help and version ----------------------------------------------------------------------------


def test_version(run):
    assert run("--version") == (0, f"snaps {snaps.__version__}\n", "")


def test_help(run):
    for arguments in ([], ["--help"], ["-h"]):
        code, out, err = run(*arguments)
        assert (code, err) == (0, "")
        assert "Start with: snaps demo" in out
        assert all(
            name in out
            for name in (
                "predict",
                "calibrate",
                "report",
                "evaluate",
                "demo",
                "--debug",
                "--version",
            )
        )


@pytest.mark.parametrize("command", ["predict", "calibrate", "report", "evaluate", "demo"])
def test_help_of_commands_has_an_example(run, command):
    code, out, err = run(command, "--help")
    assert (code, err) == (0, "")
    assert f"Example: snaps {command} " in out


# ---- predict -------------------------------------------------------------------------------------


def predict(run, *options, note=""):
    """What `snaps predict g --json` reports."""
    code, out, err = run(*PREDICT, "--alpha", 0.2, "--json", *options)
    assert (code, err) == (0, note)
    return same_each_time(json.loads(out))


def same_each_time(report):
    """A report without what it took."""
    assert report.pop("peak_memory") > 0 and report.pop("seconds")["total"] > 0
    return report


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


def roles_of(**nodes):
    roles = np.full(NUM_NODES, "", "U5")
    for role, places in nodes.items():
        roles[places] = role
    return roles


def test_sets_are_for_role_test(here, run):
    roles = roles_of(calib=CALIB, test=[40, 50], train=range(51, 55))
    small.write(here / "g", roles=roles)
    predict(run)
    assert list(read_sets()) == NAMES[[40, 50]].tolist()


def test_sets_are_for_all_but_calib_and_tune_without_role_test(here, run):
    roles = roles_of(calib=CALIB, tune=range(30, 40), valid=[40], train=[41])
    small.write(here / "g", roles=roles)
    told = "2 of the sets are for nodes with role train or valid"
    note = f"snaps: note: {told}: the guarantee does not apply to them\n"
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


# ---- evaluate and demo ---------------------------------------------------------------------------


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


def test_sets_of_the_demo_say_how_they_were_made(here, run):
    run("demo", "--nodes", 200, "--out", "d", "--seed", 3)
    made = pq.read_schema(here / "d" / "sets.parquet").metadata
    assert made[b"snaps.method"] == b"Pooled" and made[b"snaps.seed"] == b"3"
    assert made[b"snaps.version"] == snaps.__version__.encode()


def test_demo(here, run):
    code, out, err = run("demo", "--nodes", 300, "--alpha", 0.1, "--out", "d", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    methods = ["APS", "RAPS", "DAPS", "SNAPS", "Pooled"]
    assert [row["method"] for row in report["results"]] == methods
    assert all(abs(row["coverage"] - 0.9) < 0.05 for row in report["results"])
    again = ["--method", "pooled", "--alpha", 0.1, "--out", "again.parquet"]
    assert run("predict", "d/graph", *again)[0] == 0
    assert read_sets("again.parquet") == read_sets("d/sets.parquet")


# ---- Bad input -----------------------------------------------------------------------------------

HINT = "(if these are logits, say so: --logits)"


def without_calib(folder):
    small.change(folder, "nodes", role=["test"] * NUM_NODES)


def without_a_label(folder):
    small.change(folder, "nodes", label=lambda old: [None, *old[1:]])


def with_one_label(folder):
    small.change(folder, "nodes", label=[0] + [None] * (NUM_NODES - 1))


def with_numbers_as_text(folder):
    small.change(folder, "nodes", label=[("0", "2", "10")[i % 3] for i in range(NUM_NODES)])


def with_logits(folder):
    small.change(folder, "nodes", probs=pa.array((PROBS * 2).tolist()))


def with_a_weight_that_is_none(folder):
    weights = np.ones(pq.read_metadata(folder / "edges.parquet").num_rows)
    weights[7] = np.nan
    small.change(folder, "edges", weight=weights)


def truncated(folder):
    path = folder / "edges.parquet"
    path.write_bytes(path.read_bytes()[:-50])


def untouched(folder):
    pass


BAD = {
    "No such command 'frobnicate'.": ["frobnicate"],
    "Missing argument 'FOLDER'.": ["predict"],
    "Missing option '--out'.": ["predict", "g"],
    "'--alpha' must lie strictly between 0 and 1, got 0.0": [*PREDICT, "--alpha", "0"],
    "'--alpha' must lie strictly between 0 and 1, got 1.0": [*EVALUATE, "--alpha", "1"],
    "'--alpha' must lie strictly between 0 and 1, got nan": [*PREDICT, "--alpha", "nan"],
    "'--alpha' must lie strictly between 0 and 1, got -0.5": ["demo", "--alpha", "-0.5"],
    "'--k' must be an integer of at least 1, got 0": [*PREDICT, "--k", "0"],
    "'--k' must be an integer of at least 1, got -2": [*EVALUATE, "--k", "-2"],
    "'--k' must be smaller than the number of nodes 60, got 60": [*PREDICT, "--k", "60"],
    "'--seed' must be an integer of at least 0, got -1": [*PREDICT, "--seed", "-1"],
    "'--seed' must be an integer of at least 0, got -2": [*EVALUATE, "--seed", "-2"],
    "'--seed' must be an integer of at least 0, got -3": ["demo", "--seed", "-3"],
    "'--nodes' must be an integer of at least 200, got 5": ["demo", "--nodes", "5"],
    "'--candidates' must be an integer of at least 1, got 0": [*PREDICT, "--candidates=0"],
    "'--recall' must be a number from 0.5 to 1, got 2.0": [*PREDICT, "--recall", "2"],
    "'--data-dir' must be a folder with .npz files, got 'no'": [
        "datasets",
        "list",
        "--data-dir=no",
    ],
    "'--out' must be a path, got ''": ["predict", "g", "--out", ""],
    "'--splits' must be an integer of at least 1, got 0": [*EVALUATE, "--splits", "0"],
    "'--calib' must be an integer from 1 to 59, got 0": [*EVALUATE, "--calib", "0"],
    "'--calib' must be an integer from 1 to 59, got 60": [*EVALUATE, "--calib", "60"],
    "'--weights' must be two numbers 'lam,mu', 'tune' or 'minimum' for method snaps, got '0.5'": [
        *PREDICT,
        "--weights",
        "0.5",
    ],
    "'--weights' must be two numbers 'lam,mu', 'tune' or 'minimum' for method snaps, got 'a,b'": [
        *PREDICT,
        "--weights",
        "a,b",
    ],
    "'--weights' must be one number 'mu', 'tune' or 'minimum' for method daps, got '0.1,0.2'": [
        *PREDICT,
        *("--method", "daps", "--weights", "0.1,0.2"),
    ],
    "'--weights' must be left out for method split, got '0.1'": [
        *PREDICT,
        *("--method", "split", "--weights", "0.1"),
    ],
    "'--weights' must sum to at most 1, got 0.9 + 0.2": [*PREDICT, "--weights", "0.9,0.2"],
    "'--weights' must lie from 0 to 1, got 'nan,0'": [*PREDICT, "--weights", "nan,0"],
    "'--weights' must lie from 0 to 1, got '0.5,-1'": [*PREDICT, "--weights", "0.5,-1"],
    "'--weights' must lie from 0 to 1, got 'inf'": [
        *(*PREDICT, "--method", "daps", "--weights", "inf"),
    ],
    **{
        f"'{option[0]}' must be left out for method {method}, which looks for no similar nodes, "
        f"got {option[1]}": [
            *(command, "g", "--out", "x.html" if command == "report" else "x.csv"),
            *("--method", method, *option),
        ]
        for command, method, option in (
            ("predict", "daps", ("--k", "3")),
            ("predict", "split", ("--k", "20")),
            ("calibrate", "daps", ("--k", "20")),
            ("report", "split", ("--k", "4")),
            ("predict", "daps", ("--candidates", "5")),
            ("calibrate", "split", ("--neighbours", "exact")),
        )
    },
    f"'--memory' must be less than 1,000,000 TB, got {shown('9' * 400 + 'GB')}": [
        *(*PREDICT, "--memory", "9" * 400 + "GB"),
    ],
    "'--memory' must be less than 1,000,000 TB, got '1000000TB'": [*PREDICT, "--memory=1000000TB"],
    "cannot read 'nowhere': no such folder": ["evaluate", "nowhere"],
    "cannot read 'a b': no such folder": ["evaluate", "a\nb"],
    "cannot write 'd.csv': it is a folder": ["predict", "g", "--out", "d.csv"],
    "cannot write 'g': it is a folder": ["calibrate", "g", "--out", "g"],
    "cannot write 'pipe.csv': it is not a regular file": ["predict", "g", "--out", "pipe.csv"],
    "cannot write 'no/x.csv': there is no folder '{here}/no'": [
        "predict",
        "g",
        "--out",
        "no/x.csv",
    ],
    "cannot write 'no/cp.snaps': there is no folder '{here}/no'": [
        *("calibrate", "g", "--out", "no/cp.snaps"),
    ],
    "'--out' must end in .parquet, .csv, .jsonl, or be - for standard output, got 'sets'": [
        *("predict", "g", "--out", "sets"),
    ],
    "'--out' must end in .parquet, .csv, .jsonl, or be - for standard output, got 'x.xlsx'": [
        *("predict", "g", "--out", "x.xlsx"),
    ],
    "cannot read 'nothing.snaps': No such file or directory": [*PREDICT, "--with", "nothing.snaps"],
    "'--missing' must go with --with, got it alone": [*PREDICT, "--missing", "drop"],
    **{
        f"'{option[0]}' must be left out with --with: the file has it": [
            *(*PREDICT, "--with", "nothing.snaps", *option)
        ]
        for option in (
            ("--method", "snaps"),
            ("--score", "aps"),
            ("--k", "20"),
            ("--weights", "0.1,0.1"),
            ("--seed", "0"),
            ("--class-conditional",),
        )
    },
    "nodes.parquet must have a column 'region', got id, probs, label, role, features": [
        *PREDICT,
        "--group-by",
        "region",
    ],
    "'--classes' must have one entry per column of probs (3), got 2": [
        *PREDICT,
        "--classes",
        "a,b",
    ],
    "cannot write 'no/cp': there is no folder '{here}/no'": [*PREDICT, "--save", "no/cp"],
    "cannot write 'file': File exists": ["demo", "--out", "file"],
}
BAD_FOLDERS = {
    "'--classes' must be given where labels are strings, got None and ['0', '10', '2']: "
    "pass --classes in the order of the columns of probs, or name the columns": (
        with_numbers_as_text,
        EVALUATE,
    ),
    "nodes.parquet column 'role' must mark calibration nodes 'calib', got none": (
        without_calib,
        PREDICT,
    ),
    "nodes.parquet column 'label' must be given where the role is calib, "
    "got null for id 'node-0'": (
        without_a_label,
        PREDICT,
    ),
    "'g' must have two labelled nodes to split, got 1": (with_one_label, EVALUATE),
    f"'probs' must sum to 1 in each row, got 2 in row 0 {HINT}": (with_logits, PREDICT),
    "cannot read 'g/edges.parquet': damaged or not a Parquet file": (truncated, EVALUATE),
    "edges.parquet column 'weight' must be finite weights of at least 0, got nan in row 7": (
        with_a_weight_that_is_none,
        [*PREDICT, "--weighted"],
    ),
}
ALL_BAD = {**{message: (untouched, command) for message, command in BAD.items()}, **BAD_FOLDERS}


@pytest.mark.parametrize("message", ALL_BAD, ids=[message[:70] for message in ALL_BAD])
def test_bad_input(here, run, message):
    spoil, command = ALL_BAD[message]
    spoil(here / "g")
    (here / "file").touch()
    (here / "d.csv").mkdir()
    os.mkfifo("pipe.csv")
    code, out, err = run(*command)
    assert (code, out, err) == (2, "", f"snaps: error: {message.format(here=here)}\n")
    assert sorted(os.listdir(here)) == ["d.csv", "file", "g", "pipe.csv"]


@pytest.mark.parametrize(
    "option, value",
    [
        *[("--k", "many"), ("--alpha", "a tenth"), ("--method", "magic"), ("--score", "abacus")],
        *[("--candidates", "2.5"), ("--seed", "")],
    ],
)
def test_options_of_the_wrong_type(here, run, option, value):
    code, out, err = run(*PREDICT, option, value)
    assert (code, out) == (2, "")
    assert err.startswith(f"snaps: error: Invalid value for '{option}': ") and err.count("\n") == 1
    assert err.count(repr(value)) == 1


def test_levels_of_the_wrong_type(here, run):
    code, out, err = run(*EVALUATE, "--alpha", "0.1", "--alpha", "a tenth")
    assert (code, out) == (2, "")
    assert err.startswith("snaps: error: Invalid value for '--alpha': ")
    assert err.count("'a tenth'") == 1 and err.count("\n") == 1


@pytest.mark.parametrize("method", ["snaps", "pooled"])
def test_candidates_are_told(here, run, method):
    names = {"snaps": ("similar",), "pooled": ("similar", "context")}[method]
    words = {"similar": "similar nodes", "context": "nodes in a similar context"}
    for command in ("predict", "calibrate"):
        asked = [command, "g", "--out", "x.csv", "--method", method, "--alpha", 0.2]
        for count, told in ((None, None), (25, 25), (10**9, NUM_NODES)):
            option = [] if count is None else ["--candidates", count]
            found = json.loads(good(run(*asked, *option, "--json")))["neighbours"]
            one = {"method": "exact", "recall": 1.0, "candidates": told}
            assert found == dict.fromkeys(names, one)
            text = good(run(*asked, *option))
            for name in names:
                line = f"\n{words[name]}: exact, among {told} random candidates\n"
                assert (line in text) == (told is not None)


def test_notes_speak_of_options(here, run):
    """What the library calls its arguments is not what users of a command write."""
    small.change(here / "g", "edges", weight=1.0 + np.arange(85))
    err = run(*PREDICT, "--alpha", 0.2)[2]
    assert err == "snaps: note: edges.parquet column 'weight' is ignored; --weighted uses it\n"
    small.change(here / "g", "edges", weight=None)
    err = run(*PREDICT, "--logits", "--alpha", 0.2)[2]
    assert err == (
        "snaps: note: 'probs' already sum to 1 in each row: --logits softens them once more\n"
    )
    err = run(*PREDICT, "--alpha", 0.95)[2]
    assert "if you mean a probability of 0.95, pass --alpha 0.05\n" in err
    small.change(here / "g", "nodes", probs=pa.array((PROBS * 2).tolist()))
    err = run(*PREDICT)[2]
    assert "--logits" in err and "logits=True" not in err
    small.write(here / "g")
    run("calibrate", "g", "--alpha", 0.2, "--out", "m.snaps")
    small.change(here / "g", "nodes", id=np.char.add("new-", NAMES))
    small.change(here / "g", "edges", src=lambda ids: [f"new-{each}" for each in ids])
    small.change(here / "g", "edges", dst=lambda ids: [f"new-{each}" for each in ids])
    small.change(here / "g", "nodes", role=["test"] * NUM_NODES)
    code, _, err = run(*PREDICT, "--with", "m.snaps")
    assert code == 2 and "calibrate()" not in err and "='" not in err
    assert "--threshold keep" in err


def test_notes_name_classes(capsys):
    """Scorers count classes; commands know what these are called."""
    from snaps.cli._help import in_options, name_classes

    text = "10% of them are of the class in column 1 of probs as the classifier sees it"
    name_classes(["red", "blue"])
    assert in_options(text) == "10% of them are of class blue as the classifier sees it"
    name_classes([])
    assert in_options(text) == text


def test_an_unknown_option_is_met_with_the_nearest(here, run):
    code, out, err = run(*PREDICT, "--alhpa", "0.1")
    assert (code, out) == (2, "")
    assert err.startswith("snaps: error: No such option") and "--alpha" in err


@pytest.mark.parametrize("debug", [False, True])
def test_our_own_mistakes(here, run, monkeypatch, debug):
    def read_files(*arguments, **options):
        raise RuntimeError("an error\nof two lines")

    monkeypatch.setattr("snaps.cli._calibration.read_files", read_files)
    code, out, err = run(*PREDICT, *["--debug"] * debug)
    last = "snaps: unexpected RuntimeError: an error of two lines (--debug shows details)\n"
    assert (code, out) == (1, "")
    assert err.endswith(last) and ("Traceback" in err) == debug and (err == last) != debug


def test_a_stop_between_the_files_leaves_whole_files(here, run, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("snaps.predictor.persistence.save", interrupt)
    code, out, err = run(*PREDICT, "--alpha", 0.2, "--save", "cp.npz")
    assert (code, out, err) == (128 + signal.SIGINT, "", "")
    assert len(read_sets()) == 30 and sorted(os.listdir(here)) == ["g", "sets.parquet"]


# ---- pooled evidence and advice ------------------------------------------------------------------


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
    told = json.loads(out)
    advice = told["advice"]
    assert advice["goal"] == "classes" and advice["method"] in advice["reason"]
    assert (advice["tuning_nodes"], advice["calibration_nodes"]) == (250, 200)
    assert advice["method"] in {row["method"] for row in told["results"]}
    assert {"note", "cost"} <= set(advice) and advice["results"][0]["size_low"] > 0


def test_a_recommended_method_joins_the_table(made, run, monkeypatch):
    monkeypatch.setattr("snaps.advisor.DEFAULT", "Pooled on APS")
    monkeypatch.setattr("snaps.advisor.ERRORS", 1000.0)
    code, out, err = run("evaluate", "made", "--goal", "smallest", "--splits", 5, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    sizes = {row["method"]: row["size"] for row in told["results"]}
    assert told["advice"]["method"] == "Pooled on APS" and "Pooled on APS" in sizes
    best = min(sizes, key=sizes.get)
    assert told["advice"]["note"].startswith(f"Note: {best} is ahead in the table (")
    code, out, _ = run("evaluate", "made", "--goal", "smallest", "--splits", 5)
    assert told["advice"]["note"] in out


def test_without_tuning_nodes_the_budget_of_a_split_pays_for_advice(here, run):
    data = make_graph(900, 4, seed=3)
    probs = smoothed_regression(data.graph, data.labels, np.arange(80))
    roles = np.full(900, "test", "U5")
    roles[:80], roles[80:380] = "train", "calib"
    write_folder("made", data.graph, probs, data.labels, roles)
    code, out, err = run("evaluate", "made", "--goal", "smallest", "--splits", 5, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["advice"]["tuning_nodes"], told["advice"]["calibration_nodes"]) == (141, 159)
    assert {row["n_calib"] for row in told["results"] if row["method"] == "Pooled"} == {159}
    code, _, err = run("evaluate", "made", "--goal", "smallest", "--calib", 10)
    assert code == 2 and "'--goal' must have at least 19 nodes that calibrate, got 10" in err


def test_a_goal_that_does_not_exist(made, run):
    code, _, err = run("evaluate", "made", "--goal", "tiny")
    assert code == 2 and "'tiny' is not one of" in err


# ---- Outputs of every kind -----------------------------------------------------------------------


def read_csv(lines):
    """Sets by id, as `PredictionSets.write` says that they are read."""
    return {
        row["id"]: next(csv.reader([row["labels"]], delimiter=";"), [])
        for row in csv.DictReader(lines)
    }


def as_text(sets):
    return {id: [str(y) for y in labels] for id, labels in as_read(sets).items()}


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


def sha256(folder, *names):
    files = [folder / f"{name}.parquet" for name in names]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_a_parquet_file_tells_where_it_comes_from(here, run):
    predict(run, "--seed", 3)
    told = {k.decode(): v.decode() for k, v in pq.read_schema("sets.parquet").metadata.items()}
    assert json.loads(told.pop("snaps.inputs")) == sha256(here / "g", "nodes", "edges")
    assert told == {
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


# ---- Names, weights and groups -------------------------------------------------------------------

COLOURS = np.array(["red", "green", "blue"])
REGIONS = np.array(["north", "south"])[np.arange(NUM_NODES) % 2]


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


def test_classes_are_told_to_evaluate(here, run):
    def rows(*options):
        code, out, err = run("evaluate", "g", "--splits", 2, "--alpha", 0.2, "--json", *options)
        assert (code, err) == (0, "")
        return json.loads(out)["results"]

    expected = rows()
    small.change(here / "g", "nodes", label=COLOURS[LABELS])
    assert rows("--classes", "red,green,blue") == expected


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


def by_region(**options):
    return small.calibrated(snaps.SNAPS(0.2, **options), named=True, groups=REGIONS)


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


# ---- calibrate, and predict --with ---------------------------------------------------------------

CALIBRATE = ["calibrate", "g", "--out", "cp.snaps", "--alpha", "0.2"]
WITH = ["--with", "cp.snaps", "--out", "sets.parquet"]


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


def good(result):
    code, out, err = result
    assert (code, err) == (0, ""), err
    return out


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
    told = json.loads(good(run(*CALIBRATE, *options, *["--data"] * data, "--json")))
    assert told == {"out": "cp.snaps", **{key: report[key] for key in told if key != "out"}}
    os.remove("sets.parquet")
    again = same_each_time(json.loads(good(run("predict", "g", *WITH, "--json"))))
    assert again["inputs"].pop("cp.snaps")
    assert again == report and read_sets() == expected
    assert sorted(os.listdir(here)) == ["cp.snaps", "g", "sets.parquet"]
    assert (snaps.load("cp.snaps")._fitted[1].data is not None) == data


def test_predict_with_a_folder_that_has_grown(here, run):
    """New nodes, another order: as calibrated anew with the old tuning and calibration nodes."""
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
    told = "snaps: error: cannot write 'm.snaps': No space left on device; the sets are "
    for out, where in (("x.csv", "in 'x.csv'"), ("-", "on standard output")):
        code, _, err = run("predict", "g", "--out", out, "--save", "m.snaps")
        assert code == 2 and err.endswith(f"{told}{where}\n")
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
