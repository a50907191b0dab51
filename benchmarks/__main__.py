"""Benchmarks, a table each: python -m benchmarks [data] [spark] [neighbours] [scale] [--full].

Each table takes its place in docs/benchmarks.md as soon as it is measured."""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Written by `make bench`. The rows of a table were measured in one run on one machine ({cores} cores,
{machine}), different tables not always on the same day, so read the ratios; seconds will differ on
yours. Compile time is not counted.
"""

Rows = list[dict[str, float | str]]
Tables = Iterator[tuple[str, Callable[[], Rows]]]


def show(title: str, rows: Rows) -> str:
    """Print rows as a table, and give them as Markdown."""
    table = Table(title=title, title_justify="left")
    lines = ["| " + " | ".join(rows[0]) + " |", "|---" * len(rows[0]) + "|"]
    for name in rows[0]:
        table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        cells = [v if isinstance(v, str) else f"{v:.3g}" for v in row.values()]
        table.add_row(*cells)
        lines.append("| " + " | ".join(cells) + " |")
    Console(width=200).print(table)
    return "\n".join([*lines, ""])


def put(title: str, text: str) -> None:
    """Replace a section of the page, or add it at the end."""
    head = HEAD.format(cores=os.cpu_count(), machine=platform.machine())
    sections = {"": head}
    if PAGE.exists():
        head, *old = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
        sections[""] = head.rstrip() + "\n"  # with a sentence about each group of tables
        sections |= {part.partition("\n")[0]: f"## {part}".rstrip() + "\n" for part in old}
    sections[title] = f"## {title}\n\n{text}"
    PAGE.write_text("\n".join(sections.values()))


def _on_data(data_dir: Path) -> Tables:
    from benchmarks import pooled, recalibration, report, similarity, startup, training, tuning

    yield "Start-up", startup.run
    yield "Tuning and 100 splits of SNAPS", lambda: tuning.run(data_dir)
    yield "Similarity graph, k = 20", lambda: similarity.run(data_dir)
    yield "Pooled evidence compared with SNAPS", lambda: pooled.run(data_dir)
    yield "Recalibration after 1 % new nodes", lambda: recalibration.run(data_dir)
    yield "From a folder to a report", lambda: report.run(data_dir)
    yield "Training compared with PyTorch Geometric's layers", lambda: training.run(data_dir)


def _on_spark(data_dir: Path) -> Tables:
    from benchmarks import spark

    yield "Spark and the local engine", lambda: spark.agree(data_dir)
    yield "Spark on one machine, executors of 1 GiB", lambda: spark.run(data_dir)
    yield "A graph larger than an executor", lambda: spark.larger(data_dir)
    yield "Spark and a hub", lambda: spark.skew(data_dir)


def _neighbours(full: bool) -> Tables:
    from benchmarks import neighbours

    for n, d in neighbours.FULL if full else neighbours.SMALL:
        title = f"Approximate neighbours, k = 20, {n:,} x {d}"
        yield title, lambda n=n, d=d: neighbours.run(n, d)
    yield "Approximate neighbours of awkward data", lambda: neighbours.awkward(full)
    yield "Approximate neighbours of sparse rows", lambda: neighbours.sparse(full)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", nargs="*", metavar="data|spark|neighbours|scale")
    parser.add_argument("--data-dir", default=os.environ.get("SNAPS_DATA") or None)
    parser.add_argument("--full", action="store_true", help="large sizes: hours, and 16 GB of disk")
    parser.add_argument("--folder", type=Path, help="where large graphs are kept for another run")
    parser.add_argument(
        "--only", default="", help="only tables whose title matches: 'growth|splits'"
    )
    chosen = parser.parse_args()
    which = chosen.which or ["data", "spark", "neighbours", "scale"]
    data_dir = chosen.data_dir
    if {"data", "spark"} & set(which) and (data_dir is None or not Path(data_dir).is_dir()):
        sys.exit("the benchmarks need the real graphs: set SNAPS_DATA to their folder")
    for name in which:
        for title, measure in _tables(name, chosen):
            if re.search(chosen.only, title, re.IGNORECASE):
                table = show(title, measure())
                full = " --full" if chosen.full and name in ("neighbours", "scale") else ""
                said = f"`python -m benchmarks {name}{full}`, {time.strftime('%Y-%m-%d')}"
                put(title, f"{table}\n{said}\n")


def _tables(name: str, chosen: argparse.Namespace) -> Tables:
    if name == "data":
        return _on_data(Path(chosen.data_dir))
    if name == "spark":
        return _on_spark(Path(chosen.data_dir))
    if name == "neighbours":
        return _neighbours(chosen.full)
    if name == "scale":
        from benchmarks import scale

        return scale.tables(chosen.full, chosen.folder)
    return sys.exit(f"no benchmarks are called {name!r}: data, spark, neighbours or scale")


if __name__ == "__main__":
    main()
