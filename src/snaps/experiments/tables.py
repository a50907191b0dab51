"""The paper's tables: which cells each is made of, and our numbers beside the published ones."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from snaps.conformal import conformal_rank, coverage_law
from snaps.datasets.load import found_files, statistics
from snaps.datasets.registry import DATASETS
from snaps.experiments import runner
from snaps.experiments.protocol import AVERAGED, SUITES
from snaps.experiments.runner import Setting

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
TEN = (*EIGHT, "ogbn_arxiv", "ogbn_products")
SEVEN = tuple(name for name in EIGHT if name != "cora_full")
MODELS = ("gcn", "gat", "appnp", "mlp")

Track = Callable[[str, int], Any]


@dataclass(frozen=True)
class Table:
    """A table of results: one model, some levels, one suite of methods."""

    title: str
    model: str
    alphas: tuple[float, ...]
    suite: str = "main"
    datasets: tuple[str, ...] = EIGHT


TABLES = {
    "table1": Table("GCN at alpha = 0.05", "gcn", (0.05,), datasets=TEN),
    "gcn-0.1": Table("GCN at alpha = 0.1", "gcn", (0.1,), datasets=TEN),
    "gat": Table("GAT", "gat", (0.05, 0.1)),
    "appnp": Table("APPNP", "appnp", (0.05, 0.1)),
    "mlp": Table("MLP", "mlp", (0.05, 0.1)),
    "raps": Table("SNAPS on RAPS, GCN", "gcn", (0.05, 0.1), "raps", TEN),
    "ablation": Table("Parts of SNAPS, GCN at alpha = 0.05", "gcn", (0.05,), "ablation", TEN),
    "thirds": Table("lam = mu = 1/3, GCN at alpha = 0.05", "gcn", (0.05,), "thirds", SEVEN),
}
OTHERS = ("accuracy", "datasets")
NAMES = (*TABLES, *OTHERS)


@lru_cache(maxsize=1)
def published() -> dict[str, Any]:
    """The paper's numbers."""
    return json.loads(files("snaps.experiments").joinpath("paper.json").read_text())


def _published_row(table: str, dataset: str, alpha: float, method: str) -> dict[str, float]:
    if table == "ablation":
        parts = set(method.split("+"))
        for row in published()["ablation"]:
            if row["dataset"] == dataset and parts == {
                part for part in ("own", "linked", "similar") if row[part]
            }:
                return {"size": row["size"]}
        return {}
    for row in published()["results"]:
        if (row["table"], row["dataset"], row["alpha"], row["method"]) == (
            table, dataset, alpha, method,
        ):  # fmt: skip
            return row
    return {}


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> dict[str, Any]:
    """Run what a table needs and lay it out; `track(label, total)` gives a progress bar."""
    if name == "datasets":
        return _dataset_table(datasets, setting)
    if name == "accuracy":
        return _accuracy_table(datasets, setting, track)
    table = TABLES[name]
    present, skipped = _present(datasets, table.datasets, setting)
    with track(f"{name}: training {table.model}", len(present) * setting.draws) as advance:
        runner.train_missing(present, table.model, setting, advance)
    rows = []
    timing = {"training": 0.0, "similarity": 0.0, "conformal": 0.0}
    total = len(present) * setting.draws * len(table.alphas)
    with track(f"{name}: prediction sets", total) as advance:
        for dataset in present:
            timing["similarity"] += runner.similarity(dataset, setting)[1]
            for draw in range(setting.draws):
                timing["training"] += runner.trained(
                    dataset, table.model, draw, setting
                ).cpu_seconds
            for alpha in table.alphas:
                cells = []
                for draw in range(setting.draws):
                    cell = runner.evaluated(dataset, table.model, draw, table.suite, alpha, setting)
                    timing["conformal"] += cell["cpu_seconds"]
                    cells.append(cell["methods"])
                    advance(1)
                rows += [
                    _row(name, dataset, alpha, method, [cell[method] for cell in cells], setting)
                    for method in SUITES[table.suite]
                ]
    rows.sort(key=lambda row: table.alphas.index(row["alpha"]))
    return {
        "table": name,
        "title": table.title,
        "settings": _settings(setting),
        "rows": rows,
        "averages": _averages(rows, _notes(present, setting)),
        "cpu_seconds": {key: round(value, 2) for key, value in timing.items()},
        "notes": _notes(present, setting),
        "skipped": skipped,
    }


def _row(
    table: str, dataset: str, alpha: float, method: str, cells: list[dict], setting: Setting
) -> dict[str, Any]:
    """One dataset and method: means over the draws, standard errors, and the paper's numbers."""
    row: dict[str, Any] = {"dataset": dataset, "alpha": alpha, "method": method}
    for key in AVERAGED:
        values = np.array([cell[key] for cell in cells])
        row[key] = float(values.mean())
        if key in ("size", "size_nonempty", "singleton_hit"):
            row[f"{key}_se"] = _standard_error(values)
    n, m = cells[0]["n_calib"], cells[0]["n_test"]
    expected = min(conformal_rank(n, alpha) / (n + 1), 1.0)
    error = float(coverage_law(n, m, alpha).std()) / m / math.sqrt(setting.splits * len(cells))
    row |= {
        "n_calib": n,
        "n_test": m,
        "coverage_low": expected - 4 * error,
        "coverage_high": expected + 4 * error,
        "inside_law": bool(abs(row["coverage"] - expected) <= 4 * error),
    }
    for key in ("coverage", "size", "singleton_hit"):
        if key in (paper := _published_row(table, dataset, alpha, method)):
            row[f"paper_{key}"] = paper[key]
    return row


def _standard_error(values: np.ndarray) -> float | None:
    if len(values) < 2:
        return None
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def _averages(rows: list[dict[str, Any]], odd: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Means over the datasets with a published number, ours and the paper's alike.

    Twice where some datasets are not the paper's own (`odd`): with them and without.
    """
    out = []
    for without in (frozenset(), frozenset(odd)) if odd else (frozenset(),):
        for alpha, method in dict.fromkeys((row["alpha"], row["method"]) for row in rows):
            same = [
                row
                for row in rows
                if (row["alpha"], row["method"]) == (alpha, method)
                and "paper_size" in row
                and row["dataset"] not in without
            ]
            if same:
                keys = [*AVERAGED, *(key for key in same[0] if key.startswith("paper_"))]
                means = {key: float(np.mean([row[key] for row in same])) for key in keys}
                about = {"alpha": alpha, "method": method, "datasets": len(same)}
                out.append({**about, "without": sorted(without), **means})
    return out


def _accuracy_table(datasets: list[str] | None, setting: Setting, track: Track) -> dict[str, Any]:
    present, skipped = _present(datasets, EIGHT, setting)
    paper = {(row["dataset"], row["model"]): row for row in published()["accuracy"]}
    rows = []
    for model in MODELS:
        with track(f"accuracy: training {model}", len(present) * setting.draws) as advance:
            runner.train_missing(present, model, setting, advance)
        for dataset in present:
            runs = [runner.trained(dataset, model, d, setting) for d in range(setting.draws)]
            values = np.array([run.accuracy for run in runs])
            known = paper.get((dataset, model), {})
            row = {
                "dataset": dataset,
                "model": model,
                "accuracy": float(values.mean()),
                "sd": float(values.std(ddof=1)) if len(values) > 1 else None,
                "epochs": float(np.mean([run.epochs for run in runs])),
                "cpu_seconds": float(np.mean([run.cpu_seconds for run in runs])),
                "paper_accuracy": known.get("mean"),
                "paper_sd": known.get("sd"),
            }
            if known.get("sd"):
                gap = abs(row["accuracy"] - known["mean"])
                row["within_two_sd"] = bool(gap <= 2 * known["sd"])
            rows.append(row)
    return {
        "table": "accuracy",
        "title": "Accuracy of the models on the pool",
        "settings": _settings(setting),
        "rows": rows,
        "notes": _notes(present, setting),
        "skipped": skipped,
    }


def _dataset_table(datasets: list[str] | None, setting: Setting) -> dict[str, Any]:
    present, skipped = _present(datasets, tuple(DATASETS), setting)
    paper = {row["dataset"]: row for row in published()["datasets"]}
    rows = []
    for name in present:
        data = runner.dataset(name, setting)
        counted = statistics(data, directed=DATASETS[name].directed)
        row: dict[str, Any] = {"dataset": name, **asdict(counted)}
        for key in ("nodes", "features", "edges", "classes", "homophily"):
            if name in paper:
                row[f"paper_{key}"] = paper[name][key]
        rows.append(row)
    return {
        "table": "datasets",
        "title": "Statistics of the graphs",
        "settings": {},
        "rows": rows,
        "notes": _notes(present, setting),
        "skipped": skipped,
    }


def _present(
    asked: list[str] | None, usual: tuple[str, ...], setting: Setting
) -> tuple[list[str], dict[str, str]]:
    """The datasets asked for; else the usual ones, and why some of them are left out.

    The OGBN graphs are large: they are downloaded only for who asks for them by name.
    """
    if asked is not None:
        return asked, {}
    present, skipped = [], {}
    for name in usual:
        if name.startswith("ogbn") and not found_files(DATASETS[name], setting.data_dir):
            skipped[name] = (
                f"'{name}.npz' is neither in SNAPS_DATA nor in the cache: "
                f"run 'snaps datasets fetch {name}'"
            )
        else:
            present.append(name)
    return present, skipped


def _settings(setting: Setting) -> dict[str, Any]:
    return {
        "draws": setting.draws,
        "splits": setting.splits,
        "seed": setting.seed,
        "as_authors": setting.as_authors,
    }


def _notes(datasets: list[str], setting: Setting) -> dict[str, list[str]]:
    notes = {name: list(runner.dataset(name, setting).notes) for name in datasets}
    return {name: items for name, items in notes.items() if items}
