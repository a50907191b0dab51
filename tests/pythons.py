"""Run the core tests on every supported Python that is installed, and print which those were.

python tests/pythons.py 3.12 3.13
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Names, thresholds, and recorded results of every method on one graph.
CORE = ["tests/contract", "tests/conformal", "-k", "names or conformal or dense"]
SETTINGS = {"OPENBLAS_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Haswell"}


def interpreter(version: str) -> str | None:
    """An interpreter of this version: on the path, or among those of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))]
    for place in filter(None, places):
        command = [place, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip() == version:
            return str(place)
    return None


def main(versions: list[str]) -> None:
    ran = []
    for version in versions:
        found = interpreter(version)
        if found is None:
            continue
        folder = ROOT / f".venv-{version}"
        python = folder / "bin" / "python"
        if not (folder / ".test").exists():
            subprocess.run([found, "-m", "venv", folder], check=True)
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, "-e", ".[test]"], cwd=ROOT, check=True)
            (folder / ".test").touch()
        command = [python, "-m", "pytest", "-n", "auto", "--maxprocesses", "4", *CORE]
        subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, **SETTINGS})
        ran.append(version)
    absent = [version for version in versions if version not in ran]
    print(f"core tests passed on Python {', '.join(ran) or 'none of these'}", end="")
    print(f"; not installed: {', '.join(absent)}" if absent else "")


if __name__ == "__main__":
    main(sys.argv[1:])
