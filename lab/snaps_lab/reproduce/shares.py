"""Tuning nodes with as many of each class: is it worth putting the shares of the classes right?

`Pooled` does so where `tune_nodes` are given that a test finds unlike the other nodes. Here the
validation nodes of each draw, 20 per class, are tuning nodes; and the same without that correction,
and the recommended way: validation nodes are known nodes, a part of the calibration nodes is for
tuning.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from snaps._checks import check_alpha
from snaps.errors import SnapsWarning
from snaps.estimators import Pooled
from snaps.predictor.estimator import method_of
from snaps.predictor.roles import Roles
from snaps.splits import Plan, split_method
from snaps_lab.reproduce import common, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.pooled import DESIGNED_ON, means, prepare
from snaps_lab.reproduce.protocol import budget, draw_nodes
from snaps_lab.reproduce.runner import Setting

MODEL = "gcn"
ALPHAS = (0.05, 0.1)
PLAIN, CORRECTED, KNOWN = "no correction", "corrected", "as known nodes"


def _cell(dataset: str, draw: int, setting: Setting) -> dict[str, Any]:
    """Means over the splits of one trained model, by variant and level."""

    def make() -> dict[str, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SnapsWarning)  # of nodes that are unlike the others
            return _draw(dataset, draw, setting)

    depends = (runner.mark(dataset, setting, MODEL, draw), "shares", *runner.settled(setting))
    return runner.kept(f"{dataset}-{MODEL}-shares-{draw}", depends, setting, make)


def _draw(dataset: str, draw: int, setting: Setting) -> dict[str, Any]:
    inputs, known = prepare(dataset, MODEL, draw, setting)
    data, seed = runner.dataset(dataset, setting), runner.draw_seed(setting, draw)
    nodes = draw_nodes(data, setting.seed, draw)
    roles = Roles.read(
        data.graph, data.num_classes, data.labels, nodes.pool, name="pool",
        tune_nodes=nodes.valid, known_nodes=nodes.train,
    )  # fmt: skip
    # Nodes that are said to be drawn like the others are not corrected.
    drawn = replace(roles, tuning=replace(roles.tuning, drawn=True))
    plan = Plan(budget(data, "main", len(nodes.pool)), setting.splits, seed)
    levels = [check_alpha(alpha) for alpha in ALPHAS]
    out = {}
    for name, given in {PLAIN: drawn, CORRECTED: roles, KNOWN: known}.items():
        method = method_of(Pooled(ALPHAS[0], seed=seed))
        results = split_method(method, inputs, given, plan, levels)
        out[name] = {f"{alpha:g}": means(each) for alpha, each in zip(ALPHAS, results, strict=True)}
    return out


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Compute the cells that are not on disk, then compare."""
    graphs, skipped = common.present(datasets, DESIGNED_ON, setting)
    for graph in graphs:  # once, and not by several processes
        runner.similarity(graph, setting), runner.context(graph, setting)
    rows = []
    for graph, cells in common.in_draws(name, _cell, graphs, setting, track).items():
        for alpha in ALPHAS:
            base = np.array([cell[PLAIN][f"{alpha:g}"]["size"] for cell in cells])
            for variant in (PLAIN, CORRECTED, KNOWN):
                mine = [cell[variant][f"{alpha:g}"] for cell in cells]
                ratios = np.array([each["size"] for each in mine]) / base
                row = {"dataset": graph, "alpha": alpha, "method": variant}
                row |= common.over_draws(mine, alpha, setting)
                row |= {"ratio": float(ratios.mean()), "ratio_se": common.standard_error(ratios)}
                rows.append(row)
    return {
        "table": name,
        "title": f"Pooled tuned on balanced validation nodes, {MODEL.upper()}",
        "settings": common.settings(setting),
        "rows": rows,
        "notes": common.notes(graphs, setting),
        "skipped": skipped,
    }


def layout(result: Result) -> tuple[list[str], Cells]:
    """A row a graph, level and variant."""
    header = ["dataset", "alpha", "validation nodes", "coverage", "size", f"to {PLAIN}"]
    rows = []
    for row in result["rows"]:
        ratio = "" if row["method"] == PLAIN else common.with_error(row["ratio"], row["ratio_se"])
        size = common.with_error(row["size"], row["size_se"])
        start = [common.display(row["dataset"]), f"{row['alpha']:g}", row["method"]]
        rows.append([*start, common.with_mark(row), size, ratio])
    return header, rows


def remarks(result: Result) -> list[str]:
    """What is compared, and what the correction is worth."""
    return [
        f"'{PLAIN}' and '{CORRECTED}': the validation nodes of each draw, 20 per class, are tuning "
        "nodes, and all labels of the budget are for calibration; "
        f"'{KNOWN}': they are evidence, and half of the budget is for tuning",
        *(_compared(result, variant) for variant in (CORRECTED, KNOWN)),
        common.consistent(result["rows"]),
    ]


def _compared(result: Result, variant: str) -> str:
    ratios = {
        alpha: [
            row["ratio"]
            for row in result["rows"]
            if (row["alpha"], row["method"]) == (alpha, variant)
        ]
        for alpha in ALPHAS
    }
    spans = [
        f"{np.mean(by_graph):.3f} at {alpha:g} ({min(by_graph):.3f} to {max(by_graph):.3f})"
        for alpha, by_graph in ratios.items()
    ]
    return f"'{variant}' to '{PLAIN}', mean of ratios over the graphs: {', '.join(spans)}"
