"""The paper's tables: which cells each is made of, and our numbers next to the published ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from snaps_lab.reproduce import common, distances, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.protocol import AVERAGED, NODES_A_CLASS, SUITES
from snaps_lab.reproduce.runner import Setting

AS_AUTHORS = True
TEN = (*common.EIGHT, "ogbn_arxiv", "ogbn_products")


@dataclass(frozen=True)
class Table:
    """A table of results: one model, some levels, one suite of methods."""

    title: str
    model: str
    alphas: tuple[float, ...]
    suite: str = "main"
    datasets: tuple[str, ...] = common.EIGHT


TABLES = {
    "table1": Table("GCN at alpha = 0.05", "gcn", (0.05,), datasets=TEN),
    "gcn-0.1": Table("GCN at alpha = 0.1", "gcn", (0.1,), datasets=TEN),
    "gat": Table("GAT", "gat", (0.05, 0.1)),
    "appnp": Table("APPNP", "appnp", (0.05, 0.1)),
    "mlp": Table("MLP", "mlp", (0.05, 0.1)),
    "raps": Table("SNAPS on RAPS, GCN", "gcn", (0.05, 0.1), "raps", TEN),
    "ablation": Table("Parts of SNAPS, GCN at alpha = 0.05", "gcn", (0.05,), "ablation", TEN),
    "thirds": Table("lam = mu = 1/3, GCN at alpha = 0.05", "gcn", (0.05,), "thirds", common.SEVEN),
}


COSTS = ("training", "similarity", "conformal")


def _published_row(table: str, dataset: str, alpha: float, method: str) -> dict[str, float]:
    if table == "ablation":
        parts = set(method.split("+"))
        for row in common.published()["ablation"]:
            if row["dataset"] == dataset and parts == {
                part for part in ("own", "linked", "similar") if row[part]
            }:
                return {"size": row["size"]}
        return {}
    for row in common.published()["results"]:
        if (row["table"], row["dataset"], row["alpha"], row["method"]) == (
            table, dataset, alpha, method,
        ):  # fmt: skip
            return row
    return {}


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Run what a table needs and lay it out; `track(label, total)` gives a progress bar."""
    table = TABLES[name]
    names, skipped = common.present(datasets, table.datasets, setting)
    with track(f"{name}: training {table.model}", len(names) * setting.draws) as advance:
        runner.train_missing(names, table.model, setting, advance)
    rows = []
    timing = dict.fromkeys(COSTS, 0.0)
    total = len(names) * setting.draws * len(table.alphas)
    with track(f"{name}: prediction sets", total) as advance:
        for dataset in names:
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
        "settings": common.settings(setting),
        "rows": rows,
        "averages": _averages(rows, common.notes(names, setting)),
        "cpu_seconds": {key: round(value, 2) for key, value in timing.items()},
        "notes": common.notes(names, setting),
        "skipped": skipped,
        **_sampled(names, table.model, setting),
    }


def _sampled(names: list[str], model: str, setting: Setting) -> dict[str, dict[str, int]]:
    """Which graphs were too large for a full batch, and the batches they were trained on."""
    sizes = {name: runner.batch_size(name, model, setting) for name in names}
    sampled = {name: size for name, size in sizes.items() if size is not None}
    return {"sampled": sampled} if sampled else {}


def _row(
    table: str,
    dataset: str,
    alpha: float,
    method: str,
    cells: list[dict[str, Any]],
    setting: Setting,
) -> dict[str, Any]:
    """One dataset and method: means over the draws, standard errors, and the paper's numbers."""
    row: dict[str, Any] = {"dataset": dataset, "alpha": alpha, "method": method}
    row |= common.over_draws(cells, alpha, setting)
    for key in ("coverage", "size", "singleton_hit"):
        if key in (paper := _published_row(table, dataset, alpha, method)):
            row[f"paper_{key}"] = paper[key]
    return row


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


def layout(result: Result) -> tuple[list[str], Cells]:
    """Header and rows of a table, as text, with those made as the authors did, if there are any."""
    theirs = result.get("theirs")
    header = [
        "alpha", "dataset", "method", "coverage", "size", "size, non-empty",
        *["as the authors"] * bool(theirs), "paper", "difference",
        *["as the authors, difference"] * bool(theirs), "SH %", "paper SH %",
    ]  # fmt: skip
    rows = []
    for kind, name in (("rows", _dataset_label), ("averages", _average_label)):
        by_key = {_about(row, theirs): row for row in theirs[kind]} if theirs else None
        for row in result[kind]:
            also = None if by_key is None else by_key.get(_about(row, result), {})
            rows.append(_result_row(row, name(row), also))
    return header, rows


def _about(row: Mapping[str, Any], result: Result) -> tuple[Any, ...]:
    """What identifies a row of results, or of averages: level, method and datasets."""
    datasets = {row["dataset"]} if "dataset" in row else {
        each["dataset"]
        for each in result["rows"]
        if "paper_size" in each and each["dataset"] not in row["without"]
    }  # fmt: skip
    return row["alpha"], row["method"], frozenset(datasets)


def _dataset_label(row: Mapping[str, Any]) -> str:
    return common.display(row["dataset"])


def _average_label(row: dict[str, Any]) -> str:
    left_out = ", ".join(common.display(name) for name in row["without"])
    return f"Average of {row['datasets']}" + (f" without {left_out}" if left_out else "")


def _result_row(
    row: Mapping[str, Any], label: str, theirs: Mapping[str, Any] | None = None
) -> list[str]:
    paper = row.get("paper_size")
    hit, paper_hit = row["singleton_hit"], row.get("paper_singleton_hit")
    both = theirs is not None
    return [
        f"{row['alpha']:g}",
        label,
        row["method"],
        common.with_mark(row),
        common.with_error(row["size"], row.get("size_se")),
        _size(row),
        *[_size(theirs or {})] * both,
        "" if paper is None else f"{paper:.2f}",
        _difference(row),
        *[_difference(theirs or {})] * both,
        f"{100 * hit:.2f}",
        "" if paper_hit is None else f"{100 * paper_hit:.2f}",
    ]


def _size(row: Mapping[str, Any]) -> str:
    if not row:
        return ""
    return common.with_error(row["size_nonempty"], row.get("size_nonempty_se"))


def _difference(row: Mapping[str, Any]) -> str:
    return f"{distances.difference(row):+.1%}" if "paper_size" in row else ""


def remarks(result: Result) -> list[str]:
    """Its cost, whether coverage is as expected, and which cells are far from the paper."""
    spent, odd, theirs = result["cpu_seconds"], result["notes"], result.get("theirs")
    conformal = spent["similarity"] + spent["conformal"]
    made = common.made_with(result["settings"])
    out = [
        f"Processor time: training {spent['training']:.0f} s, conformal {conformal:.0f} s "
        f"(similarity graphs {spent['similarity']:.0f} s, methods and splits "
        f"{spent['conformal']:.0f} s): {conformal / max(spent['training'], 1e-9):.1%} of it",
        common.consistent(result["rows"]),
    ]
    if TABLES[result["table"]].suite == "thirds":
        out.append(
            f"Labels spent: {NODES_A_CLASS} nodes a class, by RAPS and DAPS half of them on "
            "tuning; the paper does not say how many, but its coverages are those of this"
        )
    out += distances.lines(result, odd, theirs)
    out += [
        f"{common.display(name)}: the full batch does not fit into this machine's memory; trained "
        f"for {runner.SAMPLED_EPOCHS} epochs on batches of {size:,} nodes with sampled "
        "neighbourhoods, logits exact"
        for name, size in result.get("sampled", {}).items()
    ]
    if theirs:
        if (other := common.made_with(theirs["settings"])) != made:
            out.append(f"The columns *as the authors* were made with {other}")
        missing = common.by_dataset(result["rows"]).keys() - common.by_dataset(theirs["rows"])
        out += [f"As the authors: {common.display(name)} was not made" for name in sorted(missing)]
        out += [f"As the authors: {line}" for line in distances.lines(theirs, odd)]
    return out
