"""The commands as programs: exit codes, interrupts, streams that are closed, help."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import snaps
from tests.cli.common import EVALUATE, PREDICT, SNAPS, as_read, read_sets, shell
from tests.helpers import small
from tests.helpers.small import LABELS, NUM_NODES, TEST

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
    kept = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.{signal}))
    del thing
    return original(folder)

original, snaps.io.folders.check_folder = snaps.io.folders.check_folder, check_folder
snaps.cli.main(["predict", "g", "--out", "sets.parquet"])
"""


@pytest.mark.parametrize("name, code", [("SIGINT", 130), ("SIGTERM", 143)])
def test_an_interrupt_in_a_callback_is_not_lost(here, name, code):
    """Python prints an error in a callback and goes on: so imports dropped Ctrl-C, LLVM an exit."""
    done = shell(sys.executable, "-c", DROPPED.replace("{signal}", name))
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
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
        expected = f"snaps: error: cannot write to standard output: {why}\n"
        assert (done.returncode, done.stdout) == (2, "")
        assert [line for line in done.stderr.splitlines() if "note" not in line] == [expected[:-1]]


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
