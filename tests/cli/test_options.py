"""Bad input: one line that names the option, before any work; notes and hints in its words."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from snaps._checks import shown
from tests.cli.common import EVALUATE, PREDICT, good, read_sets
from tests.helpers import small
from tests.helpers.small import NAMES, NUM_NODES, PROBS

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
def test_candidates_are_reported(here, run, method):
    names = {"snaps": ("similar",), "pooled": ("similar", "context")}[method]
    words = {"similar": "similar nodes", "context": "nodes in a similar context"}
    for command in ("predict", "calibrate"):
        asked = [command, "g", "--out", "x.csv", "--method", method, "--alpha", 0.2]
        for count, sampled in ((None, None), (25, 25), (10**9, NUM_NODES)):
            option = [] if count is None else ["--candidates", count]
            found = json.loads(good(run(*asked, *option, "--json")))["neighbours"]
            one = {"method": "exact", "recall": 1.0, "candidates": sampled}
            assert found == dict.fromkeys(names, one)
            text = good(run(*asked, *option))
            for name in names:
                line = f"\n{words[name]}: exact, among {sampled} random candidates\n"
                assert (line in text) == (sampled is not None)


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


@pytest.mark.parametrize("option", ["--group-by", "--chances"])
def test_an_empty_name_of_a_column_is_no_column(run, here, option):
    for command in (["check", "g"], ["predict", "g", "--out", "sets.csv"]):
        code, _, err = run(*command, option, "")
        assert code == 2 and "must have a column ''" in err


def test_an_empty_path_is_not_this_folder(run):
    code, _, err = run("evaluate", "")
    assert (code, err) == (2, "snaps: error: Invalid value for 'FOLDER': '' is not a path.\n")
