"""Benchmarks, a table each: python -m benchmarks [data] [neighbours] [scale] [--full].

All of them write docs/benchmarks.md."""

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


def _on_data(data_dir: Path) -> dict[str, Rows]:
    return {
        "Start-up": startup.run(),
        "Tuning and 100 splits of SNAPS": tuning.run(data_dir),
        "Similarity graph, k = 20": similarity.run(data_dir),
        "Pooled evidence beside SNAPS": pooled.run(data_dir),
        "Recalibration after 1 % new nodes": recalibration.run(data_dir),
        "From a folder to a report": report.run(data_dir),
        "Training beside PyTorch Geometric's layers": training.run(data_dir),
        "Spark and the local engine": spark.agree(data_dir),
        "Spark on one machine, executors of 1 GiB": spark.run(data_dir),
        "Spark and a hub": spark.skew(data_dir),
    }


def main() -> None:
    """Run what is asked for; all of it writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", nargs="*", metavar="data|neighbours|scale")
    parser.add_argument("--data-dir", default=os.environ.get("SNAPS_DATA") or None)
    parser.add_argument("--full", action="store_true", help="large sizes: hours, and 16 GB of disk")
    parser.add_argument("--folder", type=Path, help="where large graphs are kept for another run")
    chosen = parser.parse_args()
    which = chosen.which or ["data", "neighbours", "scale"]
    data_dir = chosen.data_dir
    if "data" in which and (data_dir is None or not Path(data_dir).is_dir()):
        sys.exit("the benchmarks need the real graphs: set SNAPS_DATA to their folder")
    parts = [HEAD.format(cores=os.cpu_count(), machine=platform.machine())]
    if "data" in which:
        parts += [show(title, rows) for title, rows in _on_data(Path(data_dir)).items() if rows]
    if "neighbours" in which:
        from benchmarks import neighbours

        rows = neighbours.run("full" if chosen.full else "small")
        parts.append(show("Approximate neighbours, k = 20", rows))
    if "scale" in which:
        from benchmarks import scale

        tables = scale.run(chosen.full, chosen.folder)
        parts += [show(title, rows) for title, rows in tables.items()]
    if not chosen.which:
        PAGE.write_text("\n".join(parts))
        print(f"wrote {PAGE.relative_to(Path.cwd())}" if PAGE.is_relative_to(Path.cwd()) else PAGE)


if __name__ == "__main__":
    main()
