"""Runs that are killed, interrupted or fail: the next one carries on, and no process stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import snaps
from lab.tests import small as small_reproduce
from lab.tests.reproduce.test_reproduce import rows, table1


def start(folder: Path, out: str = "out", models: int = 2) -> subprocess.Popen:
    """Begin to make a table of the small graph, in a process of its own."""
    if not (folder / "data").exists():
        (folder / "data").mkdir()
        small_reproduce.write_data(folder / "data")
    arguments = table1(folder, folder / "data", models, out)
    command = [sys.executable, small_reproduce.__file__, *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def finish(process: subprocess.Popen) -> str:
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    return out


# ---- killed, resumed, at once ------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Where two runs at once ended: one store, and the tables `out` and `other`."""
    folder = tmp_path_factory.mktemp("whole")
    for process in [start(folder), start(folder, out="other")]:
        finish(process)
    return folder


def test_two_runs_at_once_agree(whole):
    assert rows(whole) == rows(whole, "other")
    assert all(row["size_se"] > 0 for row in rows(whole))


def test_killed_at_any_moment_the_next_run_ends_with_the_same_table(whole, tmp_path):
    logits = tmp_path / "runs" / "logits"
    for cells in (0, 1):  # while models are trained, and while sets are made
        process = start(tmp_path)
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline and process.poll() is None:
            if logits.exists() and len(list(logits.glob("*.npz"))) > cells:
                break
            time.sleep(0.01)
        assert process.poll() is None, "the run ended before it could be killed"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert not (tmp_path / "out").exists()
    kept = {path: path.stat().st_mtime_ns for path in logits.glob("[!.]*.npz")}
    assert kept
    finish(start(tmp_path))
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert rows(tmp_path) == rows(whole)


@pytest.mark.parametrize("cells", [0, 2])
@pytest.mark.parametrize(
    ("send", "times"), [(os.killpg, 1), (os.killpg, 2), (os.kill, 1), (os.kill, 2)]
)
def test_an_interrupt_ends_a_run_at_once_and_quietly(send, times, cells, tmp_path):
    """To all its processes, as Ctrl-C, or to the first alone; while workers start, and later."""
    process = start(tmp_path, models=300)  # more than a minute of training
    logits, until = tmp_path / "runs" / "logits", time.monotonic() + 60
    while len(workers_of(process.pid)) < 1 or len(list(logits.glob("[!.]*.npz"))) < cells:
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.01)
    kept = set(logits.glob("[!.]*.npz"))
    for again in range(times):
        time.sleep(0.3 * again)
        if process.poll() is None:
            send(process.pid, signal.SIGINT)
    try:
        output = process.communicate(timeout=10)
    finally:
        if is_running(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode, *output) == (130, "", "")
    until = time.monotonic() + 5
    while left := [pid for pid in in_group(process.pid) if is_running(pid)]:
        assert time.monotonic() < until, left
        time.sleep(0.05)
    assert kept <= set(logits.glob("[!.]*.npz"))


def test_cells_that_were_changed_are_made_again(whole):
    """A cell that was cut, one without an array, and one with another digit are not believed."""
    before, runs = rows(whole), whole / "runs"
    first, second = sorted((runs / "logits").glob("*.npz"))
    first.write_bytes(first.read_bytes()[:1000])
    np.savez(second, **{k: v for k, v in np.load(second).items() if k != "epochs"})
    cell = next((runs / "cells").glob("*.json"))
    text = cell.read_text()
    cell.write_text(text.replace('"size": ', '"size": 1', 1))
    assert cell.read_text() != text
    process = start(whole)
    _, notes = process.communicate(timeout=300)
    assert process.returncode == 0 and rows(whole) == before
    notes = [line for line in notes.splitlines() if line.startswith("snaps: note: ")]
    why = "is not as it was written: what it held is computed again"
    assert sorted(notes) == sorted(f"snaps: note: '{path}' {why}" for path in (first, second, cell))
    again, once = (json.loads(each)["value"]["methods"] for each in (cell.read_text(), text))
    assert again == once


# ---- workers -------------------------------------------------------------------------------------

WORKERS = """
import os, sys, time
from pathlib import Path
from snaps_lab.reproduce.runner import Setting, in_processes
from snaps_lab.reproduce.store import Store

if __name__ == "__main__":
    import orphans
    pieces = [(sys.argv[1], i) for i in range(2)]
    in_processes(orphans.wait, pieces, Setting(Store("x"), jobs=2), print)
"""
ORPHANS = """
import os, time
from pathlib import Path

def wait(folder, i, setting):
    Path(folder, f"{i}.pid").write_text(str(os.getpid()))
    time.sleep(120)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent(tmp_path, how):
    (tmp_path / "orphans.py").write_text(ORPHANS)
    (tmp_path / "main.py").write_text(WORKERS)
    path = os.pathsep.join([str(tmp_path), str(Path(snaps.__file__).parents[1])])
    parent = subprocess.Popen(
        [sys.executable, "main.py", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    files = [tmp_path / f"{i}.pid" for i in range(2)]
    until = time.monotonic() + 60
    while not all(file.exists() and file.read_text() for file in files):
        assert time.monotonic() < until and parent.poll() is None
        time.sleep(0.1)
    workers = [int(file.read_text()) for file in files]
    parent.send_signal(how)
    parent.wait()
    until = time.monotonic() + 20
    while any(is_running(pid) for pid in workers):
        assert time.monotonic() < until, "a worker outlived its parent"
        time.sleep(0.1)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def in_group(group):
    """The processes of a group."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(place.name)) == group:
                found.append(int(place.name))
        except OSError:
            pass
    return found


def workers_of(group):
    """Those of them that are there to train models."""
    found = []
    for pid in in_group(group):
        try:
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            pass
    return found


FAILING = """
import sys
from snaps_lab.reproduce.runner import Setting, in_processes
from snaps_lab.reproduce.store import Store

if __name__ == "__main__":
    import failing
    pieces = [(sys.argv[1], i) for i in range(20)]
    in_processes(failing.work, pieces, Setting(Store("x"), jobs=2), lambda count: None)
"""
WORK = """
import time
from pathlib import Path

def work(folder, i, setting):
    if i == 1:
        raise ValueError("the second fails")
    time.sleep(5 * (i > 1))
    Path(folder, f"{i}.done").touch()
"""


def test_an_error_of_one_piece_ends_the_others(tmp_path):
    (tmp_path / "failing.py").write_text(WORK)
    (tmp_path / "main.py").write_text(FAILING)
    path = os.pathsep.join([str(tmp_path), str(Path(snaps.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "main.py", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
        timeout=40,
    )
    assert done.stderr.endswith("ValueError: the second fails\n")
    assert len(list(tmp_path.glob("*.done"))) <= 2
