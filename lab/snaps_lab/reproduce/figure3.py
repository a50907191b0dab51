"""Figure 3: which labels' scores stay below the threshold, before and after aggregation.

For the nodes of each true label, the mean score of every label: the true one should lie below the
threshold and all others above.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from snaps._runtime.randomness import TUNE_STREAM, smallest
from snaps.datasets import Dataset
from snaps.estimators import SNAPS, SplitConformal
from snaps.splits import evaluate_splits
from snaps_lab.reproduce import common, drawing, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.protocol import budget, draw_nodes, tuning_part
from snaps_lab.reproduce.runner import Setting

ALPHA = 0.05
DATASETS = ("cora_ml", "citeseer", "amazon_computers")
METHODS = ("APS", "SNAPS")

# In the captions of the paper's figures.
PAPER_SIZES = {
    ("cora_ml", "APS"): 3.29,
    ("cora_ml", "SNAPS"): 1.29,
    ("citeseer", "APS"): 4.0,
    ("citeseer", "SNAPS"): 1.33,
    ("amazon_computers", "APS"): 4.7,
    ("amazon_computers", "SNAPS"): 1.7,
}
CAPTION = (
    "With APS many wrong labels have a mean score below the threshold, and enter the sets. "
    "After averaging over neighbours nearly all of them lie above it."
)


def mean_scores(
    scores: np.ndarray, labels: np.ndarray, nodes: np.ndarray, num_classes: int
) -> np.ndarray:
    """Mean scores (K, K) over `nodes`: row by true label, column by the label scored."""
    sums = np.zeros((num_classes, num_classes))
    np.add.at(sums, labels[nodes], scores[nodes])
    sizes = np.bincount(labels[nodes], minlength=num_classes)
    return sums / np.where(sizes > 0, sizes, np.nan)[:, None]


def evaluate_scores(
    data: Dataset, logits: np.ndarray, similar: Any, draw: int, setting: Setting
) -> dict[str, dict[str, Any]]:
    """Mean scores, and threshold and size over the splits of one draw: tuned as in the tables."""
    nodes, seed = draw_nodes(data, setting.seed, draw), runner.draw_seed(setting, draw)
    pool, spend = nodes.pool, budget(data, "main", len(nodes.pool))
    share = tuning_part(nodes, spend, setting.as_authors)
    tune = pool[smallest(seed, data.graph.keys[pool], TUNE_STREAM, share)]
    rest = np.setdiff1d(pool, tune)
    tuned = SNAPS(ALPHA, weights="minimum", seed=seed).calibrate(
        data.graph, logits, data.labels, rest, tune, similar, logits=True
    )
    plain = SplitConformal(ALPHA, seed=seed).calibrate(
        data.graph, logits, data.labels, pool, logits=True
    )
    fixed = SNAPS(ALPHA, weights=tuned.weights_, seed=seed)
    out = {}
    for name, fit, method, own, n_calib in (
        ("APS", plain, plain, pool, spend),
        ("SNAPS", tuned, fixed, rest, spend - share),
    ):
        result = evaluate_splits(
            method, data.graph, logits, data.labels, own, n_calib, setting.splits, seed,
            similar if name == "SNAPS" else None, logits=True,
        )  # fmt: skip
        out[name] = {
            "scores": mean_scores(fit.scores_, data.labels, own, data.num_classes).tolist(),
            **{key: float(result[key].mean()) for key in ("coverage", "size", "threshold")},
            **{key: int(result[key][0]) for key in ("n_calib", "n_test")},
        }
    return out


def _make(dataset: str, draw: int, setting: Setting) -> dict[str, dict[str, Any]]:
    logits = runner.trained(dataset, "gcn", draw, setting).logits
    similar, _ = runner.similarity(dataset, setting)
    return evaluate_scores(runner.dataset(dataset, setting), logits, similar, draw, setting)


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Mean scores over all draws."""
    names, skipped = common.present(datasets, DATASETS, setting)
    with track(f"{name}: training gcn", len(names) * setting.draws) as advance:
        runner.train_missing(names, "gcn", setting, advance)
    rows, summary = [], []
    with track(f"{name}: scores", len(names) * setting.draws) as advance:
        for dataset in names:
            cells = []
            for draw in range(setting.draws):
                mark = runner.mark(dataset, setting, "gcn", draw)
                depends = (mark, name, ALPHA, *runner.settled(setting))
                make = partial(_make, dataset, draw, setting)
                cells.append(runner.kept(f"{dataset}-{name}-{draw}", depends, setting, make))
                advance(1)
            for method in METHODS:
                own = [cell[method] for cell in cells]
                rows += _rows(dataset, method, own)
                summary.append(_summary(dataset, method, own, rows, setting))
    return {
        "table": name,
        "title": f"Mean scores by label before and after aggregation, GCN at alpha = {ALPHA}",
        "settings": common.settings(setting),
        "rows": rows,
        "summary": summary,
        "notes": common.notes(names, setting),
        "skipped": skipped,
    }


def _rows(dataset: str, method: str, cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One true label and one label scored: the mean over the draws and the mean threshold."""
    means = np.mean([np.array(cell["scores"]) for cell in cells], axis=0)
    threshold = float(np.mean([cell["threshold"] for cell in cells]))
    return [
        {
            "dataset": dataset,
            "method": method,
            "label": a,
            "scored_label": b,
            "mean_score": float(value),
            "threshold": threshold,
            "below": bool(value <= threshold),
        }
        for (a, b), value in np.ndenumerate(means)
    ]


def _summary(
    dataset: str,
    method: str,
    cells: list[dict[str, Any]],
    rows: list[dict[str, Any]],
    setting: Setting,
) -> dict[str, Any]:
    mine = [row for row in rows if (row["dataset"], row["method"]) == (dataset, method)]
    own = [row for row in mine if row["label"] == row["scored_label"]]
    wrong = [row for row in mine if row["label"] != row["scored_label"]]
    sizes = np.array([cell["size"] for cell in cells])
    out = {
        "dataset": dataset,
        "method": method,
        "size": float(sizes.mean()),
        "size_se": common.standard_error(sizes),
        "coverage": float(np.mean([cell["coverage"] for cell in cells])),
        "threshold": mine[0]["threshold"],
        "own_score": float(np.mean([row["mean_score"] for row in own])),
        "wrong_score": float(np.mean([row["mean_score"] for row in wrong])),
        "own_below": sum(row["below"] for row in own),
        "wrong_below": sum(row["below"] for row in wrong),
        "labels": len(own),
        "caption_size": PAPER_SIZES.get((dataset, method)),
    }
    n, m = cells[0]["n_calib"], cells[0]["n_test"]
    count = setting.splits * len(cells)
    return out | common.against_law(out["coverage"], n, m, ALPHA, count)


def layout(result: Result) -> tuple[list[str], Cells]:
    """How many labels lie below the threshold; every mean score is in the .csv."""
    header = [
        "dataset", "method", "coverage", "size", "paper's caption", "threshold", "true score",
        "wrong score", "true below", "wrong below",
    ]  # fmt: skip
    rows = []
    for row in result["summary"]:
        labels, caption = row["labels"], row["caption_size"]
        rows.append(
            [
                common.display(row["dataset"]),
                row["method"],
                common.with_mark(row),
                common.with_error(row["size"], row["size_se"]),
                "" if caption is None else f"{caption:.2f}",
                f"{row['threshold']:.3f}",
                f"{row['own_score']:.3f}",
                f"{row['wrong_score']:.3f}",
                f"{row['own_below']} of {labels}",
                f"{row['wrong_below']} of {labels * (labels - 1)}",
            ]
        )
    return header, rows


def remarks(result: Result) -> list[str]:
    """How many wrong labels aggregation lifts above the threshold."""
    out = []
    for dataset, (before, after) in common.by_dataset(result["summary"]).items():
        labels = before["labels"]
        out.append(
            f"{common.display(dataset)}: {before['wrong_below']} of {labels * (labels - 1)} wrong "
            f"labels lie below the threshold with APS and {after['wrong_below']} with SNAPS; the "
            f"true label does for {after['own_below']} of {labels}; size {before['size']:.2f} to "
            f"{after['size']:.2f} (the paper: only a few wrong ones are left)"
        )
    return [*out, common.consistent(result["summary"])]


def draw(result: Result) -> Any:
    """APS above, SNAPS below; a column for each dataset."""
    groups = common.by_dataset(result["rows"])
    figure, axes = drawing.panels(len(METHODS), len(groups), 4.2, 2.7)
    about = {(row["dataset"], row["method"]): row for row in result["summary"]}
    floor = min(row["mean_score"] for row in result["rows"]) - 0.05
    for column, (dataset, rows) in enumerate(groups.items()):
        for line, method in enumerate(METHODS):
            axis, facts = axes[line, column], about[dataset, method]
            _panel(axis, [row for row in rows if row["method"] == method], facts["labels"])
            axis.set_ylim(floor, 1.02)
            drawing.label(
                axis,
                f"{common.display(dataset)}, {method}: size {facts['size']:.2f}",
                "true label; in each band all labels in order" if line else "",
                "mean score" if column == 0 else "",
            )
            if column:
                axis.set_yticklabels([])
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=4, frameon=False,
        fontsize=drawing.MEDIUM - 1,
    )  # fmt: skip
    return figure


def _panel(axis: Any, rows: list[dict[str, Any]], labels: int) -> None:
    """A band for each true label, and in it the mean score of every label from left to right."""
    blue, orange = (drawing.STYLES[place]["color"] for place in (0, 1))
    kinds: dict[str, tuple[bool, bool | None, dict[str, Any]]] = {
        "true label": (True, None, {"marker": "D", "color": blue, "markersize": 5.5}),
        "another label": (False, False, {"marker": "o", "color": orange, "markerfacecolor": "w"}),
        "another label below the threshold": (False, True, {"marker": "s", "color": orange}),
    }
    for text, (own, below, look) in kinds.items():
        mine = [
            row
            for row in rows
            if (row["label"] == row["scored_label"]) == own and below in (None, row["below"])
        ]
        across = [row["label"] + 0.8 * ((row["scored_label"] + 0.5) / labels - 0.5) for row in mine]
        up = [row["mean_score"] for row in mine]
        axis.plot(across, up, linestyle="", label=text, **{"markersize": 4, **look})
    for y in range(0, labels, 2):
        axis.axvspan(y - 0.5, y + 0.5, color="#EEEEEE", linewidth=0, zorder=0)
    axis.axhline(
        rows[0]["threshold"], color="black", linewidth=1, linestyle="--", label="threshold"
    )
    axis.set_xlim(-0.5, labels - 0.5)
    if labels <= 20:
        axis.set_xticks(range(labels))
