"""The examples and the tutorial run as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_example_runs(path, tmp_path):
    if "torch" in path.read_text().replace("no torch", ""):
        pytest.importorskip("torch_geometric")
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}  # threads that wait for each other take longer
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=600, cwd=tmp_path, env=alone
    )
    assert done.returncode == 0, done.stderr
    assert "PredictionSets" in done.stdout


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.name)
def test_notebook_runs(path, tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    stored = [cell.get("outputs") for cell in notebook.cells]
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=place).execute()
    assert {file.name for file in tmp_path.iterdir()} >= {"sets.csv", "report.html", "papers.snaps"}
    # What the file shows is what a run shows; numbers are the machine's own.
    shown = [cell.get("outputs") for cell in notebook.cells]
    assert [o and len(o) for o in shown] == [o and len(o) for o in stored]
