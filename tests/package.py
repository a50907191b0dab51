"""Install each of some built distributions in a clean environment, and use it there.

python tests/package.py dist/*.whl dist/*.tar.gz
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

# What a wheel could leave behind: data files, the command, the types.
LOOK = """
import importlib.metadata, importlib.resources, snaps
assert importlib.metadata.version("snaps-cp") == snaps.__version__
root = importlib.resources.files("snaps")
pages = ("report/page.html", "report/page.css", "report/page.js")
for name in ("py.typed", "reproduce/paper.json", *pages):
    assert root.joinpath(name).is_file(), name
"""


def check(distribution: Path, python: Path) -> None:
    """Install, look, and run the demo far from the sources."""
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--force-reinstall", "--no-deps", distribution], check=True)
    subprocess.run([*pip, distribution], check=True)
    with tempfile.TemporaryDirectory() as elsewhere:
        subprocess.run([python, "-c", LOOK], check=True, cwd=elsewhere)
        # Loops are compiled once per installation, so one of them runs the demo.
        what = ["demo", "--nodes", "300"] if distribution.suffix == ".whl" else ["--version"]
        command = [python.parent / "snaps", *what]
        subprocess.run(command, check=True, cwd=elsewhere, stdout=subprocess.DEVNULL)
        made = (Path(elsewhere) / "demo" / "report.html").is_file()
        assert made == (what[0] == "demo")
    print(f"{distribution.name} installs and runs")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        venv.create(place, with_pip=True)
        for given in sys.argv[1:]:
            check(Path(given).resolve(), Path(place) / "bin" / "python")
