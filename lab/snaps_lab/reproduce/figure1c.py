"""Figure 1c: do the most similar nodes have the same label? Counts among the k nearest, by k."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps_lab.reproduce import common, drawing, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.neighbours import counts_of, ranks_in_rows, widest_graph
from snaps_lab.reproduce.runner import Setting

CAPTION = (
    "The nearest nodes share the label far more often than two random nodes do. "
    "The share falls with each doubling of k, so that a large k dilutes their evidence."
)


def label_counts(
    graph: sp.csr_array, labels: np.ndarray, ks: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean numbers of same-label and of other nodes among each node's k nearest, for every k."""
    n, ranks = graph.shape[0], ranks_in_rows(graph)
    same = labels[np.repeat(np.arange(n), np.diff(graph.indptr))] == labels[graph.indices]
    upto = np.array(ks) - 1
    same_label, neighbours = (
        np.cumsum(np.bincount(ranks, weights, minlength=max(ks)))[upto] / n
        for weights in (same.astype(np.float64), None)
    )
    return same_label, neighbours - same_label


def _make(dataset: str, setting: Setting) -> dict[str, list[float]]:
    data = runner.dataset(dataset, setting)
    widest = widest_graph(dataset, setting)
    same, different = label_counts(widest, data.labels, counts_of(data))
    return {"same": same.tolist(), "different": different.tolist()}


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Count by k; the paper's dataset is CoraML."""
    names, skipped = common.present(datasets, ("cora_ml",), setting)
    rows = []
    with track(name, len(names)) as advance:
        for dataset in names:
            data = runner.dataset(dataset, setting)
            ks = counts_of(data)
            depends = (runner.mark(dataset, setting), name, ks)
            make = partial(_make, dataset, setting)
            cell = runner.kept(f"{dataset}-{name}", depends, setting, make)
            sizes = np.bincount(data.labels).astype(np.float64)
            chance = float((sizes * (sizes - 1)).sum() / (sizes.sum() * (sizes.sum() - 1)))
            for k, same, different in zip(ks, cell["same"], cell["different"], strict=True):
                row = {"dataset": dataset, "k": k, "same": same, "different": different}
                share = same / (same + different) if same + different else None
                rows.append({**row, "share": share, "chance": chance})
            advance(1)
    return {
        "table": name,
        "title": "Nodes of the same label among the k most similar ones",
        "settings": {},
        "rows": rows,
        "notes": common.notes(names, setting),
        "skipped": skipped,
    }


def layout(result: Result) -> tuple[list[str], Cells]:
    """A row for each k."""
    header = ["dataset", "k", "same label", "different label", "same %", "by chance %"]
    rows = [
        [
            common.display(row["dataset"]),
            str(row["k"]),
            f"{row['same']:.2f}",
            f"{row['different']:.2f}",
            "" if row["share"] is None else f"{100 * row['share']:.1f}",
            f"{100 * row['chance']:.1f}",
        ]
        for row in result["rows"]
    ]
    return header, rows


def remarks(result: Result) -> list[str]:
    """How many of the nearest share the label, and from which k most do not."""
    out = []
    for dataset, rows in common.by_dataset(result["rows"]).items():
        known = [row for row in rows if row["share"] is not None]
        if not known:
            continue
        nearest, usual = known[0], min(known, key=lambda row: abs(row["k"] - runner.K))
        fewer = next((row["k"] for row in known if row["share"] < 0.5), None)
        turn = "in the majority at every k shown" if fewer is None else (
            f"in the minority from k = {fewer} on"
        )  # fmt: skip
        out.append(
            f"{common.display(dataset)}: {usual['share']:.1%} of the {usual['k']} most similar "
            f"nodes have the same label, {nearest['share']:.1%} at k = {nearest['k']} "
            f"({usual['chance']:.1%} by chance); they are {turn} (the paper: many of them do when "
            "k is not very large)"
        )
    return out


def draw(result: Result) -> Any:
    """Counts, one panel a dataset, and the shares of all."""
    groups = common.by_dataset(result["rows"])
    rows, columns = drawing.grid(len(groups) + 1)
    figure, axes = drawing.panels(rows, columns, 4.4, 3.4)
    for axis in axes.flat[len(groups) + 1 :]:
        axis.set_visible(False)
    last = axes.flat[len(groups)]
    for place, (axis, (dataset, group)) in enumerate(zip(axes.flat, groups.items(), strict=False)):
        ks, title = [row["k"] for row in group], common.display(dataset)
        for line, key in enumerate(("same", "different")):
            axis.plot(ks, [row[key] for row in group], label=f"{key} label", **drawing.style(line))
        drawing.mark_k(axis, runner.K)
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:g}")
        up = "nodes among the k (mean of all nodes)"
        drawing.label(axis, f"{title}: labels of the k most similar nodes", "k", up)
        axis.legend(frameon=False, fontsize=drawing.SMALL)
        look = drawing.style(place)
        share = [np.nan if row["share"] is None else 100 * row["share"] for row in group]
        last.plot(ks, share, label=title, **look)
        last.axhline(
            100 * group[0]["chance"], color=look["color"], linewidth=1, linestyle=":",
            label="two random nodes" if len(groups) == 1 else None,
        )  # fmt: skip
    drawing.mark_k(last, runner.K)
    last.set_ylim(0, 100)
    drawing.label(last, "How many of them share the label", "k", "same label (% of the k)")
    last.legend(frameon=False, fontsize=drawing.SMALL)
    for axis in axes.flat[: len(groups) + 1]:
        drawing.counts_axis(axis, [row["k"] for row in result["rows"]])
    return figure
