"""Kill what writes at random moments: nothing half-written, nothing lost, the same digits after.

A program: `python -m tests.kill --times 50`, or `make kill`. Children are killed with SIGKILL
and SIGHUP anywhere in their work, while they write, and before each file gets its name. Where
files without a name can be written, nothing but whole files may be left, and under a hidden name
only between the two system calls of a replacement.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import snaps
from snaps.cli import main
from snaps.folder import read_folder, write_folder
from tests.helpers import small

COMMON = ["--alpha", "0.2", "--k", "5"]
KILLED = (-signal.SIGKILL, -signal.SIGHUP, 128 + signal.SIGHUP)
# Which link, rename or removal a child dies instead of: a file that replaces one takes four.
INSTEAD = (0, 4, 2, 1, 8, 5)
REFUSED = 4  # the exit code of a child whose folder has no nodes, or files of two graphs


def child(work: Callable[[], object], renames: int | None = None) -> int:
    """Begin some work in a child; it kills itself instead of the given link, rename or removal."""
    process = os.fork()
    if process:
        return process
    code = 3
    try:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        if renames is not None:
            _die_instead(renames)
        work()
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    except snaps.SnapsError as error:
        half = "nodes.parquet': no such file", "must hold files that were written together"
        code = REFUSED if any(reason in str(error) for reason in half) else 3
    finally:
        os._exit(code)


def _die_instead(renames: int) -> None:
    left = iter(range(renames))

    def counted(real: Callable[..., None], *arguments: Path, **options: object) -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        real(*arguments, **options)

    for name in ("link", "replace", "unlink"):
        setattr(os, name, partial(counted, getattr(os, name)))


def code_of(process: int) -> int:
    """How a child ended."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def finish(work: Callable[[], object]) -> float:
    """Do some work in a child, undisturbed; seconds. Nothing runs here: threads don't fork well."""
    began = time.monotonic()
    code = code_of(child(work))
    assert code == 0, f"exit code {code}"
    return time.monotonic() - began


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def take_hidden(folder: Path) -> list[bytes]:
    """What lies under hidden names, which are removed."""
    found = list(folder.rglob(".*"))
    held = [path.read_bytes() for path in found]
    for path in found:
        path.unlink()
    return held


def disturb(
    work: Callable[[], object],
    look: Callable[[], str],
    seconds: float,
    times: int,
    moments: random.Random,
    folder: Path,
    wholes: Collection[bytes],
) -> Counter[str]:
    """Kill work that takes so many seconds so many times; what is found after each.

    `wholes` are the files that may lie in the folder.
    """
    seen: Counter[str] = Counter()
    for turn in count():
        if seen["killed"] == times:
            break
        renames = INSTEAD[turn // 3 % len(INSTEAD)] if turn % 3 == 2 else None
        if renames is not None:
            code = code_of(child(work, renames))
        else:
            process = child(work)
            time.sleep(moments.uniform(0, seconds))
            os.kill(process, moments.choice([signal.SIGKILL, signal.SIGHUP]))
            code = code_of(process)
        seen["killed" if code in KILLED else "ended before"] += 1
        hidden = take_hidden(folder)
        if small.can_be_nameless(folder):
            assert renames or not hidden, "a hidden file was left"
            assert all(each in wholes for each in hidden), "half a hidden file was left"
        seen["hidden, but whole"] += len(hidden)
        seen[look()] += 1
    return seen


# ---- What is disturbed ---------------------------------------------------------------------------


def one_file(folder: Path, command: list[str], times: int, moments: random.Random) -> Counter[str]:
    """A command that writes one file over an old one, or where there is none."""
    inputs, out = folder / "g", folder / command[-1]
    finish(lambda: small.write(inputs))
    before = contents(inputs)

    def work() -> None:
        main([command[0], str(inputs), *COMMON, "--out", str(out)])

    finish(work)
    new, seconds = out.read_bytes(), finish(work)
    out.unlink()

    def look() -> str:
        assert contents(inputs) == before, "an input was changed"
        found = out.read_bytes() if out.exists() else None
        assert found in (None, b"old", new), "half a file"
        out.unlink(missing_ok=True)
        if moments.random() < 0.5:
            out.write_bytes(b"old")
        return {None: "no file", b"old": "old file", new: "new file"}[found]

    seen = disturb(work, look, seconds, times, moments, folder, [new])
    finish(work)
    assert out.read_bytes() == new, "other digits"
    return seen


def predict(folder: Path, times: int, moments: random.Random) -> Counter[str]:
    return one_file(folder, ["predict", "sets.parquet"], times, moments)


def calibrate(folder: Path, times: int, moments: random.Random) -> Counter[str]:
    return one_file(folder, ["calibrate", "model.snaps"], times, moments)


def write(folder: Path, times: int, moments: random.Random) -> Counter[str]:
    """One graph folder over another: the old one, the new one, or one that is refused."""
    draw = np.random.default_rng(0)
    place, probs = folder / "g", draw.dirichlet(np.ones(3), 500)
    tables = [np.eye(500), sp.eye_array(500, format="csr")]  # in nodes.parquet, and next to it
    graphs = [snaps.Graph(draw.integers(0, 500, (2, 900)), table) for table in tables]
    labels = draw.integers(0, 3, (2, 500))
    wholes, target = [{}, {}], 0

    def put() -> None:
        write_folder(place, graphs[target], probs, labels[target])

    for target in (1, 0):
        finish(put)
        wholes[target] = contents(place)
    target, seconds = 1, finish(put)
    target = 0

    def look() -> str:
        nonlocal target
        found = contents(place)
        code = code_of(child(lambda: read_folder(place)))
        if found in wholes:
            assert code == 0, "a whole folder was refused"
            state = "new folder" if found == wholes[target] else "old folder"
        else:
            assert code == REFUSED, "a folder of two graphs was read"
            state = "refused"
        finish(put)  # the remedy: it is written again
        assert contents(place) == wholes[target], "other digits"
        target = 1 - target
        return state

    files = [file for whole in wholes for file in whole.values()]
    return disturb(put, look, seconds, times, moments, folder, files)


def reproduce(folder: Path, times: int, moments: random.Random) -> Counter[str]:
    """A table of the paper, of a small graph: cells that are there are whole, and are kept."""
    from lab.tests import small as small_reproduce
    from snaps_lab.reproduce.store import Store

    (folder / "data").mkdir()
    small_reproduce.write_data(folder / "data")

    def start(runs: str) -> subprocess.Popen:
        places = [
            "--data-dir",
            folder / "data",
            "--runs",
            folder / runs,
            "--out",
            folder / f"o{runs}",
        ]
        command = [
            "reproduce",
            "table1",
            "--datasets",
            "cora_ml",
            "--splits",
            "20",
            "--models",
            "2",
        ]
        options = [*command, "--jobs", "1", *map(str, places)]
        return subprocess.Popen(
            [sys.executable, small_reproduce.__file__, *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def table(runs: str) -> list | None:
        path = folder / f"o{runs}" / "table1.json"
        return json.loads(path.read_text())["rows"] if path.exists() else None

    for runs in ("first", "whole"):  # the first one compiles
        began = time.monotonic()
        assert start(runs).wait() == 0
    seconds, expected = time.monotonic() - began, table("whole")
    seen: Counter[str] = Counter()
    runs, cells = "0", set[Path]()
    for turn in count():
        if seen["killed"] == times:
            break
        process = start(runs)
        time.sleep(moments.uniform(0.2 * seconds, seconds))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        seen["killed" if process.wait() == -signal.SIGKILL else "ended before"] += 1
        assert table(runs) in (None, expected), "another table"
        store, here = Store(folder / runs), set()
        hidden = list(folder.rglob(".*"))
        assert not (small.can_be_nameless(folder) and hidden), f"a hidden file was left: {hidden}"
        for path in (folder / runs).rglob("[!.]*.*"):
            read = store.read_json if path.suffix == ".json" else store.read_arrays
            assert read(path.parent.name, path.stem) is not None, f"half a cell: {path}"
            here.add(path)
        assert cells <= here, "a cell was lost"
        seen[f"{len(here)} cells"] += 1
        cells = here
        if table(runs) is not None:
            runs, cells = str(turn + 1), set()
    assert start(runs).wait() == 0 and table(runs) == expected, "other digits"
    return seen


SCENES = {"predict": predict, "calibrate": calibrate, "folder": write, "reproduce": reproduce}

if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--times", type=int, default=50)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", default=",".join(SCENES))
    given = options.parse_args()
    for name in given.only.split(","):
        with tempfile.TemporaryDirectory() as place:
            began = time.monotonic()
            seen = SCENES[name](Path(place), given.times, random.Random(given.seed))
            counts = ", ".join(f"{state} {number}" for state, number in sorted(seen.items()))
            print(f"{name}: {counts} ({time.monotonic() - began:.0f} s)", flush=True)
