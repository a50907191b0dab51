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


def run(cache):
    env = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    env["PYTHONPATH"] = str(Path(snaps.__file__).parents[1])
    command = [sys.executable, "-c", JOB]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_damaged_files_are_compiled_anew(tmp_path):
    assert run(tmp_path) == ("[[1, 2, 3]]", "")
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    for path in kept:
        path.write_bytes(b"\x80\x04garbage")
    out, err = run(tmp_path)
    assert out == "[[1, 2, 3]]"
    assert err.count("compiled code cannot be kept") == 1


def test_a_folder_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    out, _ = run(tmp_path / "file" / "below")
    assert out == "[[1, 2, 3]]"


def test_a_terminal_is_told_once_that_the_first_use_compiles(tmp_path):
    import pty

    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    env["PYTHONPATH"] = str(Path(snaps.__file__).parents[1])
    said = []
    for _ in range(2):  # the second time, compiled code is at hand
        ours, theirs = pty.openpty()
        done = subprocess.run(
            [sys.executable, "-c", JOB], stdout=subprocess.PIPE, stderr=theirs, timeout=300, env=env
        )
        os.close(theirs)
        try:
            text = os.read(ours, 1000).decode()
        except OSError:  # nothing was said
            text = ""
        os.close(ours)
        assert done.returncode == 0
        said.append(text.strip())
    assert said == ["snaps: compiling on first use, a few seconds ...", ""]


@pytest.mark.parametrize(
    "name, value, told",
    [
        ("NUMBA_DISABLE_JIT", "1", "NUMBA_DISABLE_JIT must be 0 or unset, got 1"),
        ("NUMBA_NUM_THREADS", "0", "NUMBA_NUM_THREADS=0: Number of threads specified must be > 0."),
    ],
)
def test_settings_that_do_not_work_are_named(tmp_path, name, value, told):
    small.write(tmp_path / "g")
    env = {**os.environ, name: value, "PYTHONPATH": str(Path(snaps.__file__).parents[1])}
    command = [sys.executable, "-m", "snaps.cli", "predict", "g", "--out", "sets.csv"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=env, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("snaps: error: ") and done.stderr.count("\n") == 1
    assert told in done.stderr
    code = "import snaps._kernels.scoring"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert "SnapsError: " in done.stderr.splitlines()[-1] and told in done.stderr.splitlines()[-1]
