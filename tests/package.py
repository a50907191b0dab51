"""Install each of some built distributions in a clean environment, and use it there.

python tests/package.py dist/*.whl dist/*.tar.gz
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

# What a distribution could leave behind: data files, types, the version, a dependency.
LOOK = """
import importlib.metadata, importlib.resources
import numpy as np
import snaps
assert importlib.metadata.version("snaps-cp") == snaps.__version__
for name in ("py.typed",):
    assert importlib.resources.files("snaps").joinpath(name).is_file(), name
probs = np.random.default_rng(0).dirichlet([1, 1, 1], 200)
cp = snaps.SplitConformal(0.1, score=snaps.THR())
cp.calibrate(None, probs, probs.argmax(axis=1), np.arange(100))
cp.report("report.html")
cp.predict_set().write("sets.parquet")
"""


def check(distribution: Path, python: Path) -> None:
    """Install, and use it far from the sources."""
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--force-reinstall", "--no-deps", distribution], check=True)
    subprocess.run([*pip, distribution], check=True)
    with tempfile.TemporaryDirectory() as elsewhere:
        subprocess.run([python, "-c", LOOK], check=True, cwd=elsewhere)
        subprocess.run([python.parent / "snaps", "--version"], check=True, cwd=elsewhere)
    print(f"{distribution.name} installs and runs")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        venv.create(place, with_pip=True)
        for given in sys.argv[1:]:
            check(Path(given).resolve(), Path(place) / "bin" / "python")
