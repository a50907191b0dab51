"""Few labels: set sizes by the number of labels, divided by the library's rule or in halves."""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any

import numpy as np

from snaps._checks import check_alpha
from snaps.conformal.rank import enough, tuning_share
from snaps.errors import SnapsWarning
from snaps.estimators import methods
from snaps.predictor.estimator import method_of
from snaps.splits import Plan, split_method
from snaps_lab.reproduce import common, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.pooled import means, prepare
from snaps_lab.reproduce.protocol import AVERAGED
from snaps_lab.reproduce.runner import Setting

MODEL = "gcn"
GRAPHS = ("cora_ml", "pubmed", "amazon_photo")  # the rule's constants were chosen on them
ALPHAS = (0.05, 0.1)
BUDGETS = (30, 60, 100, 150, 300)
DIVISIONS = 2  # draws of the tuning nodes per trained model, among which the splits are divided
FIXED = "SNAPS, 1/3"
METHODS = {
    "APS": "APS",
    FIXED: "SNAPS, thirds",
    "SNAPS, halves": "SNAPS",
    "SNAPS": "SNAPS",
    "Pooled, halves": "Pooled",
    "Pooled": "Pooled",
}
MOST_EXCESS = 0.03  # over fixed weights that a default may have


def _halves(n: int, alpha: Fraction) -> int:
    """The rule without alignment: half of the labels for tuning if both halves are enough."""
    return n // 2 if enough(n // 2, alpha) and enough(n - n // 2, alpha) else 0


def shares(budget: int, alpha: float) -> dict[str, int]:
    """The number of tuning labels of each method."""
    level = check_alpha(alpha)
    both = {"halves": _halves(budget, level), "rule": tuning_share(budget, level)}
    return {
        name: 0 if name in ("APS", FIXED) else both["halves" if "halves" in name else "rule"]
        for name in METHODS
    }


def _cell(dataset: str, draw: int, alpha: float, budget: int, setting: Setting) -> dict[str, Any]:
    """Means over the splits of one trained model, by method."""
    tuned, splits = shares(budget, alpha), max(setting.splits // DIVISIONS, 1)

    def make() -> dict[str, Any]:
        inputs, roles = prepare(dataset, MODEL, draw, setting)
        out: dict[str, list[dict[str, float]]] = {name: [] for name in METHODS}
        for division in range(DIVISIONS):
            seed = DIVISIONS * runner.draw_seed(setting, draw) + division
            made = methods(METHODS.values(), alpha, seed=seed)
            results: dict[tuple[str, int], dict[str, float]] = {}
            for name, method in METHODS.items():
                key = method, tuned[name]
                if key not in results:
                    plan = Plan(budget, splits, seed, tuned[name])
                    level = [check_alpha(alpha)]
                    (result,) = split_method(method_of(made[method]), inputs, roles, plan, level)
                    results[key] = means(result)
                out[name].append(results[key])
        return {
            name: {key: float(np.mean([each[key] for each in cells])) for key in AVERAGED}
            | {key: cells[0][key] for key in ("n_calib", "n_test")}
            for name, cells in out.items()
        }

    mark = runner.mark(dataset, setting, MODEL, draw)
    depends = (mark, "budgets", tuned, DIVISIONS, *runner.settled(setting))
    return runner.kept(
        f"{dataset}-{MODEL}-budgets-{budget}-{alpha:g}-{draw}", depends, setting, make
    )


def _piece(dataset: str, draw: int, setting: Setting) -> None:
    """All cells of one trained model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SnapsWarning)  # few labels are the point
        for alpha in ALPHAS:
            for budget in BUDGETS:
                _cell(dataset, draw, alpha, budget, setting)


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Compute the cells that are not on disk, then compare."""
    graphs, skipped = common.present(datasets, GRAPHS, setting)
    pieces = [(graph, draw) for draw in range(setting.draws) for graph in graphs]
    for graph in graphs:  # once, and not by several processes
        runner.similarity(graph, setting), runner.context(graph, setting)
    with track(f"{name}: training and prediction sets", len(pieces)) as advance:
        runner.in_processes(_piece, pieces, setting, advance)
    rows = [
        row
        for alpha in ALPHAS
        for budget in BUDGETS
        for graph in graphs
        for row in _rows(graph, alpha, budget, setting)
    ]
    return {
        "table": name,
        "title": f"Few labels, {MODEL.upper()}: sizes by label budget",
        "settings": common.settings(setting),
        "rows": rows,
        "averages": _averages(rows),
        "notes": common.notes(graphs, setting),
        "skipped": skipped,
    }


def _rows(dataset: str, alpha: float, budget: int, setting: Setting) -> list[dict[str, Any]]:
    """What each method gives on one graph, next to fixed weights in the same draws."""
    cells = [_cell(dataset, draw, alpha, budget, setting) for draw in range(setting.draws)]
    fixed, out = np.array([cell[FIXED]["size"] for cell in cells]), []
    for method, share in shares(budget, alpha).items():
        mine = [cell[method] for cell in cells]
        sizes = np.array([each["size"] for each in mine])
        row = {"dataset": dataset, "alpha": alpha, "budget": budget, "method": method}
        row |= common.over_draws(mine, alpha, setting) | {"n_tune": share}
        row["to_fixed"] = float(sizes.mean() / fixed.mean() - 1)
        # Of the ratio of two means, by its linear part.
        error = common.standard_error(sizes - sizes.mean() / fixed.mean() * fixed)
        row["to_fixed_se"] = None if error is None else error / float(fixed.mean())
        out.append(row)
    return out


def _averages(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Over the graphs: the mean size, and the mean and the largest excess over fixed weights."""
    out = []
    for alpha, budget, method in dict.fromkeys(
        (row["alpha"], row["budget"], row["method"]) for row in rows
    ):
        mine = [
            row
            for row in rows
            if (row["alpha"], row["budget"], row["method"]) == (alpha, budget, method)
        ]
        excess = [row["to_fixed"] for row in mine]
        out.append(
            {
                "alpha": alpha,
                "budget": budget,
                "method": method,
                "n_tune": mine[0]["n_tune"],
                "n_calib": mine[0]["n_calib"],
                "size": float(np.mean([row["size"] for row in mine])),
                "coverage": float(np.mean([row["coverage"] for row in mine])),
                "to_fixed": float(np.mean(excess)),
                "largest": max(excess),
            }
        )
    return out


def layout(result: Result) -> tuple[list[str], Cells]:
    """A row a level, budget and method; a column a graph."""
    graphs = list(common.by_dataset(result["rows"]))
    header = ["alpha", "labels", "method", "tune", "calibrate", "coverage"]
    header += [*map(common.display, graphs), "mean size", "to 1/3", "largest"]
    keys = ("alpha", "budget", "method")
    cells = {(row["dataset"], *(row[key] for key in keys)): row for row in result["rows"]}
    rows = []
    for mean in result["averages"]:
        mine = [cells[graph, *(mean[key] for key in keys)] for graph in graphs]
        counts = [str(mean[key]) for key in ("n_tune", "n_calib")]
        sizes = [common.with_error(row["size"], row["size_se"], 2) for row in mine]
        start = [f"{mean['alpha']:g}", str(mean["budget"]), mean["method"]]
        excess = [f"{mean[key]:+.1%}" for key in ("to_fixed", "largest")]
        average = f"{mean['coverage']:.3f}", f"{mean['size']:.2f}"
        rows.append([*start, *counts, average[0], *sizes, average[1], *excess])
    return header, rows


def remarks(result: Result) -> list[str]:
    """How labels are divided, and how the defaults compare with fixed weights."""
    return [
        "Labels are divided by the library's rule, or in 'halves' for tuning and calibration; "
        f"'{FIXED}' has lam = mu = 1/3, and all labels are for calibration, as with APS",
        "The rule's constants (at least 4 / alpha - 1 calibration nodes or no tuning; halves from "
        "25 / alpha labels on) were chosen on the three graphs of this table",
        f"{DIVISIONS} draws of the tuning nodes per trained model, among which its splits are "
        "divided; standard errors over trained models",
        "'to 1/3': size against fixed weights, mean over the graphs and largest of them",
        *(_excess(result, method) for method in ("SNAPS", "Pooled")),
        common.consistent(result["rows"]),
    ]


def _excess(result: Result, method: str) -> str:
    """At which budget a default has the largest sets compared with fixed weights."""
    mine = [row for row in result["rows"] if row["method"] == method]
    worst = max(mine, key=lambda row: row["to_fixed"])
    above = sum(row["to_fixed"] > MOST_EXCESS for row in mine)
    means = [row["to_fixed"] for row in result["averages"] if row["method"] == method]
    error = worst["to_fixed_se"]
    return (
        f"{method} against fixed weights: at most {max(means):+.1%} in the mean over the graphs; "
        f"on one graph at most {worst['to_fixed']:+.1%}"
        + ("" if error is None else f" ± {error:.1%}")
        + f" ({common.display(worst['dataset'])}, {worst['budget']} labels, alpha "
        f"{worst['alpha']:g}); above {MOST_EXCESS:.0%} in {above} of {len(mine)} cells"
    )
