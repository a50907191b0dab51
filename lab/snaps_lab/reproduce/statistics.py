"""The graphs in numbers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from snaps.datasets.dataset import statistics
from snaps.datasets.registry import DATASETS
from snaps_lab.reproduce import common, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.runner import Setting


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Count nodes, edges, classes and links within a class."""
    names, skipped = common.present(datasets, tuple(DATASETS), setting)
    paper = {row["dataset"]: row for row in common.published()["datasets"]}
    rows = []
    for dataset in names:
        data = runner.dataset(dataset, setting)
        counted = statistics(data, directed=DATASETS[dataset].directed)
        row: dict[str, Any] = {"dataset": dataset, **asdict(counted)}
        for key in ("nodes", "features", "edges", "classes", "homophily"):
            if dataset in paper:
                row[f"paper_{key}"] = paper[dataset][key]
        rows.append(row)
    return {
        "table": name,
        "title": "Statistics of the graphs",
        "settings": {},
        "rows": rows,
        "notes": common.notes(names, setting),
        "skipped": skipped,
    }


def layout(result: Result) -> tuple[list[str], Cells]:
    """Ours, and where the paper's table says something else."""
    header = ["dataset", "nodes", "features", "edges", "classes", "homophily %", "as in the paper"]
    rows = []
    for row in result["rows"]:
        keys = ("nodes", "features", "edges", "classes")
        differ = [key for key in keys if row.get(f"paper_{key}", row[key]) != row[key]]
        comparison = "" if "paper_nodes" not in row else ", ".join(
            f"{key}: {row[f'paper_{key}']}" for key in differ
        ) or "yes"  # fmt: skip
        rows.append(
            [
                common.display(row["dataset"]),
                *(str(row[key]) for key in keys),
                f"{100 * row['homophily']:.2f}",
                comparison,
            ]
        )
    return header, rows
