"""Run every benchmark, print a table each and write docs/benchmarks.md: python -m benchmarks."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import (
    pooled,
    recalibration,
    report,
    similarity,
    spark,
    startup,
    training,
    tuning,
)

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Written by `make bench`. All of this was measured in one run on one machine ({cores} cores,
{machine}), so read the ratios; seconds will differ on yours. Compile time is not counted.
"""

Rows = list[dict[str, float | str]]


def show(title: str, rows: Rows) -> str:
    """Print rows as a table, and give them as Markdown."""
    table = Table(title=title, title_justify="left")
    lines = [f"## {title}", "", "| " + " | ".join(rows[0]) + " |", "|---" * len(rows[0]) + "|"]
    for name in rows[0]:
        table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        cells = [v if isinstance(v, str) else f"{v:.3g}" for v in row.values()]
        table.add_row(*cells)
        lines.append("| " + " | ".join(cells) + " |")
    Console(width=200).print(table)
    return "\n".join([*lines, ""])


def main() -> None:
    """Read the data folder from --data-dir or SNAPS_DATA, then run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default=os.environ.get("SNAPS_DATA") or None)
    data_dir = parser.parse_args().data_dir
    if data_dir is None or not Path(data_dir).is_dir():
        sys.exit("the benchmarks need the real graphs: set SNAPS_DATA to their folder")
    parts = [HEAD.format(cores=os.cpu_count(), machine=platform.machine())]
    parts.append(show("Start-up", startup.run()))
    parts.append(show("Tuning and 100 splits of SNAPS", tuning.run(Path(data_dir))))
    parts.append(show("Similarity graph, k = 20", similarity.run(Path(data_dir))))
    parts.append(show("Pooled evidence beside SNAPS", pooled.run(Path(data_dir))))
    parts.append(show("Recalibration after 1 % new nodes", recalibration.run(Path(data_dir))))
    parts.append(show("From a folder to a report", report.run(Path(data_dir))))
    if rows := training.run(Path(data_dir)):
        parts.append(show("Training beside PyTorch Geometric's layers", rows))
    parts.append(show("Spark and the local engine", spark.agree(Path(data_dir))))
    parts.append(show("Spark on one machine, executors of 1 GiB", spark.run(Path(data_dir))))
    parts.append(show("Spark and a hub", spark.skew(Path(data_dir))))
    PAGE.write_text("\n".join(parts))
    print(f"wrote {PAGE.relative_to(Path.cwd())}" if PAGE.is_relative_to(Path.cwd()) else PAGE)


if __name__ == "__main__":
    main()
