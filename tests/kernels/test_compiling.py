"""Compiled code on disk is a convenience: without it, or damaged, results are the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import snaps
from tests.helpers import small

JOB = """
import numpy as np
from snaps._kernels.scoring import rank_table
print(rank_table(np.array([[0.5, 0.3, 0.2]])).tolist())
"""


NOTE = "snaps: compiling on first use, about ten seconds; later uses start at once\n"


def run(cache, **settings):
    env = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "SNAPS_QUIET": "", **settings}
    env["PYTHONPATH"] = str(Path(snaps.__file__).parents[1])
    command = [sys.executable, "-c", JOB]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_damaged_files_are_compiled_again(tmp_path):
    assert run(tmp_path) == ("[[1, 2, 3]]", NOTE)
    assert run(tmp_path) == ("[[1, 2, 3]]", "")
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    for path in kept:
        path.write_bytes(b"\x80\x04garbage")
    out, err = run(tmp_path)
    assert out == "[[1, 2, 3]]"
    assert err.count("compiled code cannot be kept") == 1


def test_the_first_use_can_be_quiet(tmp_path):
    assert run(tmp_path, SNAPS_QUIET="1") == ("[[1, 2, 3]]", "")


def test_a_folder_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    out, _ = run(tmp_path / "file" / "below")
    assert out == "[[1, 2, 3]]"


FIRST_USE = """
import contextlib, io, time
import numpy as np
import snaps
from snaps.datasets import make_graph
from snaps.models import smoothed_regression

data = make_graph(600, 4, seed=1)
probs = smoothed_regression(data.graph, data.labels, np.arange(60))
notes = io.StringIO()
with contextlib.redirect_stderr(notes):  # as a notebook does
    for method in (snaps.SNAPS(0.1), snaps.Pooled(0.1)):
        method.calibrate(data.graph, probs, data.labels, np.arange(60, 260)).predict_set()
from snaps._kernels import compiling
print(repr(notes.getvalue()))
print(len(compiling._announced))
"""


def test_little_is_compiled_on_first_use_and_it_is_said_once(tmp_path):
    """Each loop or helper costs a fifth of a second to a second: 19 now, 70 once."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "SNAPS_QUIET": ""}
    env["PYTHONPATH"] = str(Path(snaps.__file__).parents[1])
    command = [sys.executable, "-c", FIRST_USE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    said, compiled = done.stdout.splitlines()
    assert said == repr(NOTE) and done.stderr == ""
    assert int(compiled) <= 24


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("NUMBA_DISABLE_JIT", "1", "NUMBA_DISABLE_JIT must be 0 or unset, got 1"),
        ("NUMBA_NUM_THREADS", "0", "NUMBA_NUM_THREADS=0: Number of threads specified must be > 0."),
    ],
)
def test_settings_that_do_not_work_are_named(tmp_path, name, value, message):
    small.write(tmp_path / "g")
    env = {**os.environ, name: value, "PYTHONPATH": str(Path(snaps.__file__).parents[1])}
    command = [sys.executable, "-m", "snaps", "predict", "g", "--out", "sets.csv"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=env, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("snaps: error: ") and done.stderr.count("\n") == 1
    assert message in done.stderr
    code = "import snaps._kernels.scoring"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert (
        "SnapsError: " in done.stderr.splitlines()[-1] and message in done.stderr.splitlines()[-1]
    )
