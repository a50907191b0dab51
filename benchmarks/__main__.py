"""Run every benchmark and print a table each: python -m benchmarks [--data-dir DIR]."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import similarity, startup, tuning


def show(title: str, rows: list[dict]) -> None:
    """Print rows as a table."""
    table = Table(title=title, title_justify="left")
    for name in rows[0]:
        table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        table.add_row(*(v if isinstance(v, str) else f"{v:.3g}" for v in row.values()))
    Console(width=160).print(table)


def main() -> None:
    """Read the data folder from --data-dir or SNAPS_DATA, then run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default=os.environ.get("SNAPS_DATA") or None)
    data_dir = parser.parse_args().data_dir
    if data_dir is None or not Path(data_dir).is_dir():
        sys.exit("the benchmarks need the real graphs: set SNAPS_DATA to their folder")
    show("Start-up", startup.run())
    show("Tuning and 100 splits (SNAPS)", tuning.run(Path(data_dir)))
    show("Similarity graph, k = 20", similarity.run(Path(data_dir)))


if __name__ == "__main__":
    main()
