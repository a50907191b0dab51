"""How long it takes to import snaps, to see its help, to compile, and to predict a small folder."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from snaps.datasets import make_graph
from snaps.folder import write_folder
from snaps.models import smoothed_regression

NODES = 3000
FIRST_USE = """
import numpy as np
import snaps
data = snaps.datasets.make_graph(3000, 6, seed=1)
probs = snaps.models.smoothed_regression(data.graph, data.labels, np.arange(300))
for method in ({methods}):
    method.calibrate(data.graph, probs, data.labels, np.arange(300, 1300)).predict_set()
"""
FIRST = {
    "first use of SNAPS, nothing compiled": "snaps.SNAPS(0.1),",
    "first use of SNAPS and Pooled, nothing compiled": "snaps.SNAPS(0.1), snaps.Pooled(0.1)",
}
COMMANDS = {
    "python -c 'pass'": ["-c", "pass"],
    "import snaps": ["-c", "import snaps"],
    "snaps --help": ["-m", "snaps", "--help"],
    f"snaps predict, SNAPS, {NODES:,} nodes": ["-m", "snaps", "predict", "--method", "snaps"],
    f"snaps predict, Pooled, {NODES:,} nodes": ["-m", "snaps", "predict", "--method", "pooled"],
}


def run() -> list[dict[str, float | str]]:
    """Fewest seconds of processor time in fresh processes: of seven runs, of two that compile."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "g")
        _write(folder)
        _keep_bytecode(Path(name, "bytecode"))
        for what, arguments in COMMANDS.items():
            if "predict" in arguments:
                arguments = [*arguments, str(folder), "--out", str(Path(name, "sets.parquet"))]
            _seconds(arguments)  # compiles what is not compiled yet
            rows.append({"what": what, "seconds": min(_seconds(arguments) for _ in range(7))})
        for what, methods in FIRST.items():
            code = ["-c", FIRST_USE.format(methods=methods)]
            rows.append({"what": what, "seconds": min(_compiling(code) for _ in range(2))})
    return rows


def _keep_bytecode(folder: Path) -> None:
    """Let Python keep the bytecode of modules, as an installation does, whatever is set here."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder)


def _write(folder: Path) -> None:
    """A synthetic graph folder."""
    data = make_graph(NODES, 6, seed=1)
    roles = np.repeat(["train", "calib", "test"], [300, 1000, NODES - 1300])
    probs = smoothed_regression(data.graph, data.labels, np.arange(300))
    write_folder(folder, data.graph, probs, np.where(roles == "test", -1, data.labels), roles)


def _compiling(arguments: list[str]) -> float:
    """The seconds of a process that finds no compiled code."""
    with tempfile.TemporaryDirectory() as cache:
        return _seconds(arguments, NUMBA_CACHE_DIR=cache)


def _seconds(arguments: list[str], **settings: str) -> float:
    """The processor time of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = {**os.environ, **settings}
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
