"""What the experiments share: the published numbers, which datasets are available, and text."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from snaps.conformal.coverage import coverage_law
from snaps.conformal.rank import conformal_rank
from snaps.datasets.load import found_files
from snaps.datasets.registry import DATASETS
from snaps_lab.reproduce import runner
from snaps_lab.reproduce.graphs import title
from snaps_lab.reproduce.protocol import AVERAGED
from snaps_lab.reproduce.runner import Setting

EIGHT = (
    "cora_ml",
    "pubmed",
    "citeseer",
    "cora_full",
    "coauthor_cs",
    "coauthor_physics",
    "amazon_computers",
    "amazon_photo",
)

SEVEN = tuple(name for name in EIGHT if name != "cora_full")  # those with the paper's features
MODELS = ("gcn", "gat", "appnp", "mlp")
GAT_DRAWS = 5  # where all models are compared: without an accelerator a GAT trains for minutes

Track = Callable[[str, int], Any]
Result = dict[str, Any]
Cells = list[list[str]]


@lru_cache(maxsize=1)
def published() -> dict[str, Any]:
    """The paper's numbers."""
    return json.loads(files("snaps_lab.reproduce").joinpath("paper.json").read_text())


def present(
    asked: list[str] | None, usual: tuple[str, ...], setting: Setting
) -> tuple[list[str], dict[str, str]]:
    """The datasets asked for; else the usual ones, and why some of them are left out.

    The OGBN graphs are large: they are downloaded only when asked for by name.
    """
    if asked is not None:
        return asked, {}
    here, skipped = [], {}
    for name in usual:
        if name.startswith("ogbn") and not found_files(DATASETS[name], setting.data_dir):
            skipped[name] = (
                f"'{name}.npz' is neither in SNAPS_DATA nor in the cache: "
                f"run 'snaps datasets fetch {name}'"
            )
        else:
            here.append(name)
    return here, skipped


def draws_of(model: str, setting: Setting) -> int:
    """How many draws of a model a table of all models holds."""
    return min(setting.draws, GAT_DRAWS) if model == "gat" else setting.draws


def settings(setting: Setting) -> dict[str, Any]:
    """What a reader must know of a run."""
    return {
        "draws": setting.draws,
        "splits": setting.splits,
        "seed": setting.seed,
        "as_authors": setting.as_authors,
    }


def made_with(settings: Mapping[str, Any]) -> str:
    """The same in words."""
    draws, splits, seed = (settings[key] for key in ("draws", "splits", "seed"))
    return f"{draws} draws of training nodes x {splits} splits, seed {seed}"


def notes(datasets: list[str], setting: Setting) -> dict[str, list[str]]:
    """What is odd about the datasets."""
    by_name = {name: list(runner.dataset(name, setting).notes) for name in datasets}
    return {name: items for name, items in by_name.items() if items}


def standard_error(values: np.ndarray) -> float | None:
    """Of a mean over draws; None for a single one."""
    if len(values) < 2:
        return None
    return float(values.std(ddof=1) / math.sqrt(len(values)))


@lru_cache
def _spread(n: int, m: int, alpha: float) -> float:
    """Standard deviation of the number of hits, which scipy takes milliseconds to find."""
    return float(coverage_law(n, m, alpha).std())


def against_law(coverage: float, n: int, m: int, alpha: float, count: int) -> dict[str, Any]:
    """Whether a mean coverage of `count` splits is within four standard errors of its expectation.

    That of the coverage distribution, which is Beta-binomial.
    """
    expected = min(conformal_rank(n, alpha) / (n + 1), 1.0)
    error = _spread(n, m, alpha) / m / math.sqrt(count)
    return {
        "n_calib": n,
        "n_test": m,
        "coverage_low": expected - 4 * error,
        "coverage_high": expected + 4 * error,
        "inside_law": bool(abs(coverage - expected) <= 4 * error),
    }


def over_draws(cells: list[dict[str, Any]], alpha: float, setting: Setting) -> dict[str, Any]:
    """Means of one method over the draws, standard errors, and what coverage to expect."""
    row: dict[str, Any] = {}
    for key in AVERAGED:
        values = np.array([cell[key] for cell in cells])
        row[key] = float(values.mean())
        if key in ("size", "size_nonempty", "singleton_hit"):
            row[f"{key}_se"] = standard_error(values)
    n, m = cells[0]["n_calib"], cells[0]["n_test"]
    return row | against_law(row["coverage"], n, m, alpha, setting.splits * len(cells))


def in_draws(
    name: str, cell: Callable[[str, int, Setting], Any], graphs: list[str], setting: Setting,
    track: Track,
) -> dict[str, list[Any]]:  # fmt: skip
    """The cell of each draw of each graph; what is not on disk is computed by several processes."""
    pieces = [(graph, draw) for graph in graphs for draw in range(setting.draws)]
    with track(f"{name}: training and prediction sets", len(pieces)) as advance:
        runner.in_processes(cell, pieces, setting, advance)
    return {g: [cell(g, draw, setting) for draw in range(setting.draws)] for g in graphs}


def by_dataset(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each dataset, in order."""
    out: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        out.setdefault(row["dataset"], []).append(row)
    return out


def consistent(rows: list[dict[str, Any]]) -> str:
    """A remark on the coverage of all rows."""
    inside = sum(row["inside_law"] for row in rows)
    return (
        "Mean coverage within four standard errors of its expected value: "
        f"{inside} of {len(rows)} cells"
    )


def display(name: str) -> str:
    """A dataset's name as people write it."""
    return title(name)


def with_error(value: float, error: float | None, digits: int = 3) -> str:
    """A number and its error."""
    return f"{value:.{digits}f}" if error is None else f"{value:.{digits}f} ± {error:.{digits}f}"


def with_mark(row: Mapping[str, Any]) -> str:
    """A row's coverage, marked where it is not as expected."""
    outside = "" if row.get("inside_law", True) else " (not as expected)"
    return f"{row['coverage']:.4f}{outside}"
