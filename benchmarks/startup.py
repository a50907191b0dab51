"""How long it takes to import snaps and to see its help, in fresh processes."""

from __future__ import annotations

import subprocess
import sys
import time

COMMANDS = {
    "python -c 'pass'": ["-c", "pass"],
    "import snaps": ["-c", "import snaps"],
    "snaps --help": ["-m", "snaps.cli", "--help"],
}


def run() -> list[dict[str, float | str]]:
    """Best of seven, in seconds."""
    rows = []
    for name, arguments in COMMANDS.items():
        best = float("inf")
        for _ in range(7):
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
            best = min(best, time.perf_counter() - start)
        rows.append({"what": name, "seconds": best})
    return rows
