"""Figure 4: how SNAPS depends on its parameters: the number k of similar nodes, and lam and mu."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps.datasets import Dataset
from snaps.estimators import SNAPS
from snaps.scoring.mixing import SNAPS_GRID
from snaps_lab.reproduce import common, drawing, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.neighbours import counts_of, nearest, widest_graph
from snaps_lab.reproduce.protocol import budget, draw_nodes, evaluate_methods
from snaps_lab.reproduce.runner import Setting

AS_AUTHORS = True
ALPHA = 0.05
TUNED, FIXED = "tuned", "lam = mu = 1/3"
FLAT = 0.1  # a pair of weights is about as good as the best if its sets are at most so much larger
CORNERS = {(0.0, 0.0): "APS", (1.0, 0.0): "similar alone", (0.0, 1.0): "linked alone"}

DIGITS = {"size": 2, "singleton_hit": 1}

Cell = dict[str, dict[str, float]]
CAPTION = (
    "Sizes fall steeply until k is about ten, and much less after it: with tuned weights down to "
    "k in the hundreds, with 1/3 to a few dozen. "
    f"Within the dashed line sets are at most {FLAT:.0%} larger than with the best weights."
)


def _evaluate(
    methods: dict[str, SNAPS],
    data: Dataset,
    logits: np.ndarray,
    similar: sp.csr_array,
    draw: int,
    setting: Setting,
) -> Cell:
    nodes = draw_nodes(data, setting.seed, draw)
    return evaluate_methods(
        methods, data, logits, nodes, similar, budget(data, "main", len(nodes.pool)),
        splits=setting.splits, seed=runner.draw_seed(setting, draw), as_authors=setting.as_authors,
    )  # fmt: skip


def evaluate_ks(dataset: str, draw: int, setting: Setting) -> dict[str, Cell]:
    """Means over the splits of one draw for every k, with weights tuned and fixed."""
    data = runner.dataset(dataset, setting)
    logits = runner.trained(dataset, "gcn", draw, setting).logits
    seed = runner.draw_seed(setting, draw)
    methods = {
        TUNED: SNAPS(ALPHA, seed=seed),
        FIXED: SNAPS(ALPHA, weights=(1 / 3, 1 / 3), seed=seed),
    }
    widest = widest_graph(dataset, setting)
    return {
        str(k): _evaluate(methods, data, logits, nearest(widest, k), draw, setting)
        for k in [0, *counts_of(data)]
    }


def evaluate_weights(dataset: str, draw: int, setting: Setting) -> Cell:
    """Means over the splits of one draw for every pair of weights."""
    data = runner.dataset(dataset, setting)
    logits = runner.trained(dataset, "gcn", draw, setting).logits
    seed = runner.draw_seed(setting, draw)
    methods = {_pair(*w): SNAPS(ALPHA, weights=w, seed=seed) for w in SNAPS_GRID}
    similar, _ = runner.similarity(dataset, setting)
    return _evaluate(methods, data, logits, similar, draw, setting)


def _pair(lam: float, mu: float) -> str:
    return f"{lam:g},{mu:g}"


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Evaluate every k and every pair of weights; the paper's dataset is CoraML."""
    names, skipped = common.present(datasets, ("cora_ml",), setting)
    with track(f"{name}: training gcn", len(names) * setting.draws) as advance:
        runner.train_missing(names, "gcn", setting, advance)
    rows = []
    with track(f"{name}: prediction sets", 2 * len(names) * setting.draws) as advance:
        for dataset in names:
            ks = [0, *counts_of(runner.dataset(dataset, setting))]
            by_k: list[dict[str, Cell]] = []
            by_weights: list[Cell] = []
            for cells, what, evaluate in (
                (by_k, f"{name}-k", evaluate_ks),
                (by_weights, f"{name}-weights", evaluate_weights),
            ):
                for draw in range(setting.draws):
                    mark = runner.mark(dataset, setting, "gcn", draw)
                    depends = (mark, what, ALPHA, ks, *runner.settled(setting))
                    make = partial(evaluate, dataset, draw, setting)
                    cells.append(runner.kept(f"{dataset}-{what}-{draw}", depends, setting, make))
                    advance(1)
            for method in (TUNED, FIXED):
                for k in ks:
                    about = {"dataset": dataset, "varied": "k", "method": method, "k": k}
                    results = [cell[str(k)][method] for cell in by_k]
                    rows.append({**about, **common.over_draws(results, ALPHA, setting)})
            for lam, mu in SNAPS_GRID:
                about = {"dataset": dataset, "varied": "weights", "method": "fixed"}
                about |= {"k": runner.K, "lam": lam, "mu": mu}
                results = [cell[_pair(lam, mu)] for cell in by_weights]
                rows.append({**about, **common.over_draws(results, ALPHA, setting)})
    return {
        "table": name,
        "title": f"SNAPS over its parameters, GCN at alpha = {ALPHA}",
        "settings": common.settings(setting),
        "rows": rows,
        "notes": common.notes(names, setting),
        "skipped": skipped,
    }


def _split(
    rows: list[dict[str, Any]],
) -> tuple[dict[str, list[dict[str, Any]]], list[dict[str, Any]]]:
    """The rows over k, by method, and the rows over weights."""
    by_k: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["varied"] == "k":
            by_k.setdefault(row["method"], []).append(row)
    return by_k, [row for row in rows if row["varied"] == "weights"]


def layout(result: Result) -> tuple[list[str], Cells]:
    """Every k, and of the weights the best and the corners; all of them are in the .csv."""
    header = ["dataset", "method", "k", "coverage", "size", "size, non-empty", "SH %"]
    out = []
    for dataset, rows in common.by_dataset(result["rows"]).items():
        by_k, by_weights = _split(rows)
        for group in by_k.values():
            out += [_line(dataset, row, row["method"]) for row in group]
        best = min(by_weights, key=lambda row: row["size"])
        for row in (best, *(r for r in by_weights if (r["lam"], r["mu"]) in CORNERS)):
            corner = "best" if row is best else CORNERS[row["lam"], row["mu"]]
            out.append(_line(dataset, row, f"lam = {row['lam']:g}, mu = {row['mu']:g}: {corner}"))
    return header, out


def _line(dataset: str, row: dict[str, Any], method: str) -> list[str]:
    return [
        common.display(dataset),
        method,
        str(row["k"]),
        common.with_mark(row),
        common.with_error(row["size"], row["size_se"]),
        common.with_error(row["size_nonempty"], row["size_nonempty_se"]),
        f"{100 * row['singleton_hit']:.2f}",
    ]


def remarks(result: Result) -> list[str]:
    """What k brings and when it stops to, and how flat the triangle of weights is."""
    out = []
    for dataset, rows in common.by_dataset(result["rows"]).items():
        by_k, by_weights = _split(rows)
        for method, group in by_k.items():
            out.append(
                f"{common.display(dataset)}, {method}: size {_over_k(group, 'size')}; "
                f"SH % {_over_k(group, 'singleton_hit')} "
                "(the paper: better as k grows from 0, then stable, slightly worse at the end)"
            )
        least = min(row["size"] for row in by_weights)
        most = max(row["size"] for row in by_weights)
        flat = sum(row["size"] <= (1 + FLAT) * least for row in by_weights)
        out.append(
            f"{common.display(dataset)}, weights: size from {least:.2f} to {most:.2f}; "
            f"{flat} of {len(by_weights)} pairs (lam, mu) within {FLAT:.0%} of the least "
            "(the paper: similar colours in most of the triangle)"
        )
    return [*out, common.consistent(result["rows"])]


def _over_k(rows: list[dict[str, Any]], key: str) -> str:
    """A few points of a curve over k: both ends, the usual k, the least and the most."""
    values = {row["k"]: _scale(key) * row[key] for row in rows}
    least, most = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    wanted = sorted({0, min(runner.K, max(values)), least, most, max(values)})
    return ", ".join(f"{values[k]:.{DIGITS[key]}f} at k = {k}" for k in wanted)


def draw(result: Result) -> Any:
    """Size and singleton hits of each dataset: over k above, over the weights below."""
    groups = common.by_dataset(result["rows"])
    figure, axes = drawing.panels(2 * len(groups), 2, 4.3, 3.1)
    for place, (dataset, rows) in enumerate(groups.items()):
        above, below = axes[2 * place : 2 * place + 2]
        by_k, by_weights = _split(rows)
        title = common.display(dataset)
        for axis, key, up in (
            (above[0], "size", "mean size (labels)"),
            (above[1], "singleton_hit", "SH (% of nodes)"),
        ):
            _curves(axis, by_k, key)
            name = "size" if key == "size" else "singleton hits (SH)"
            drawing.label(axis, f"{title}: {name} over k", "k (similar nodes)", up)
        above[0].legend(frameon=False, fontsize=drawing.SMALL)
        _triangle(figure, below[0], by_weights, "size", f"{title}: size over the weights")
        _triangle(figure, below[1], by_weights, "singleton_hit", f"{title}: SH over the weights")
    return figure


def _scale(key: str) -> int:
    return 1 if key == "size" else 100


def _curves(axis: Any, by_k: dict[str, list[dict[str, Any]]], key: str) -> None:
    """A curve for each way to weigh, and its standard error."""
    for place, (method, group) in enumerate(by_k.items()):
        look, ks = drawing.style(place), [row["k"] for row in group]
        values = _scale(key) * np.array([row[key] for row in group])
        error = _scale(key) * np.array([row[f"{key}_se"] or 0.0 for row in group])
        axis.plot(ks, values, label=method, **look)
        axis.fill_between(
            ks, values - error, values + error, color=look["color"], alpha=0.15, linewidth=0,
            label=None if place else "± standard error",
        )  # fmt: skip
        drawing.counts_axis(axis, ks)
    drawing.mark_k(axis, runner.K)


def _triangle(figure: Any, axis: Any, rows: list[dict[str, Any]], key: str, title: str) -> None:
    """A heat map over lam and mu; a line around what is about as good as the best, a star on it."""
    steps = sorted({row["lam"] for row in rows})
    table = np.full((len(steps), len(steps)), np.nan)
    small = key == "size"
    for row in rows:
        table[steps.index(row["mu"]), steps.index(row["lam"])] = _scale(key) * row[key]
    half = (steps[1] - steps[0]) / 2
    image = axis.imshow(
        table, origin="lower", extent=(-half, 1 + half, -half, 1 + half), aspect="equal",
        cmap=drawing.COLOURS + "_r" * small,
    )  # fmt: skip
    best = np.nanmin(table) if small else np.nanmax(table)
    edge = best * (1 + FLAT if small else 1 - FLAT)
    axis.contour(steps, steps, table, [edge], colors="black", linewidths=1.1, linestyles="--")
    mu, lam = np.argwhere(table == best)[0]
    axis.plot(steps[lam], steps[mu], marker="*", color="black", markersize=9)
    axis.text(
        1, 1, f"star: best ({best:.{DIGITS[key]}f})\ndashed: {FLAT:.0%} worse",
        ha="right", va="top", fontsize=drawing.SMALL, transform=axis.transAxes,
    )  # fmt: skip
    drawing.label(axis, title, "lam (similar nodes)", "mu (linked nodes)")
    drawing.colour_bar(figure, image, axis, "mean size (labels)" if small else "SH (% of nodes)")
