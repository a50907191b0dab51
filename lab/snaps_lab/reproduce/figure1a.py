"""Figure 1a: what an oracle would gain that knows which nodes share a label.

Every node's APS scores are averaged with those of `count` random nodes of its own label: the mean
of count + 1 nodes, so that none gives APS itself. No deployed method can do this. The choice looks
at labels but not at which nodes are calibration nodes, so coverage keeps its distribution.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._runtime.randomness import ORACLE_STREAM, hashes
from snaps.datasets import Dataset
from snaps.estimators import SNAPS
from snaps_lab.reproduce import common, drawing, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.protocol import budget, draw_nodes, evaluate_methods
from snaps_lab.reproduce.runner import Setting

AS_AUTHORS = True
ALPHA = 0.05
COUNTS = (0, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150)
NEARLY_ONE = 1.1
_COVERAGES = ("coverage", "coverage_low", "coverage_high")
_WORDS_AT_ONCE = 1 << 22
CAPTION = (
    "Averaging in a few nodes of the same label shrinks the sets at once, and many bring them "
    "near one label. Coverage keeps its distribution: the choice does not look at which nodes are "
    "calibration nodes."
)


def same_label_nodes(labels: np.ndarray, keys: np.ndarray, count: int, seed: int) -> np.ndarray:
    """For each node `count` others of its label in random order (n, count), by a hash of both."""
    chosen = np.empty((len(labels), count), np.int64)
    own = hashes(seed, keys, ORACLE_STREAM)
    for y in np.unique(labels):
        members = np.flatnonzero(labels == y)
        others = keys[members].view(np.int64)
        step = max(_WORDS_AT_ONCE // len(members), 1)
        for start in range(0, len(members), step):
            block = members[start : start + step]
            words = hashes(0, own[block, None], others)
            words[np.arange(len(block)), start + np.arange(len(block))] = np.iinfo(np.uint64).max
            chosen[block] = members[np.argsort(words, axis=1)[:, :count]]
    return chosen


def counts_of(data: Dataset) -> list[int]:
    """Numbers of nodes to average: with a whole class all of its nodes would tie."""
    smallest = int(np.bincount(data.labels, minlength=data.num_classes).min())
    return [count for count in COUNTS if count <= max(smallest - 2, 0)]


def evaluate_oracle(
    data: Dataset, logits: np.ndarray, draw: int, setting: Setting
) -> dict[str, dict[str, float]]:
    """Means over the splits of one draw, for every number of nodes."""
    nodes, seed = draw_nodes(data, setting.seed, draw), runner.draw_seed(setting, draw)
    counts, n = counts_of(data), data.graph.num_nodes
    chosen = same_label_nodes(data.labels, data.graph.keys, counts[-1], seed)
    out: dict[str, dict[str, float]] = {}
    for count in counts:
        # SNAPS on a graph of same-label nodes: 1 / (count + 1) for the node itself.
        oracle = sp.csr_array(
            (np.ones(n * count), chosen[:, :count].reshape(-1), np.arange(n + 1) * count),
            shape=(n, n),
        )
        method = SNAPS(ALPHA, weights=(count / (count + 1), 0.0), seed=seed)
        out |= evaluate_methods(
            {str(count): method}, data, logits, nodes, oracle,
            budget(data, "main", len(nodes.pool)),
            splits=setting.splits, seed=seed, as_authors=setting.as_authors,
        )  # fmt: skip
    return out


def _make(dataset: str, draw: int, setting: Setting) -> dict[str, dict[str, float]]:
    logits = runner.trained(dataset, "gcn", draw, setting).logits
    return evaluate_oracle(runner.dataset(dataset, setting), logits, draw, setting)


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Average over more and more nodes of the same label; the paper's dataset is CoraML."""
    names, skipped = common.present(datasets, ("cora_ml",), setting)
    with track(f"{name}: training gcn", len(names) * setting.draws) as advance:
        runner.train_missing(names, "gcn", setting, advance)
    rows = []
    with track(f"{name}: prediction sets", len(names) * setting.draws) as advance:
        for dataset in names:
            counts = counts_of(runner.dataset(dataset, setting))
            cells = []
            for draw in range(setting.draws):
                mark = runner.mark(dataset, setting, "gcn", draw)
                depends = (mark, name, ALPHA, counts, *runner.settled(setting))
                make = partial(_make, dataset, draw, setting)
                cells.append(runner.kept(f"{dataset}-{name}-{draw}", depends, setting, make))
                advance(1)
            rows += [
                {
                    "dataset": dataset,
                    "alpha": ALPHA,
                    "same_label_nodes": count,
                    **common.over_draws([cell[str(count)] for cell in cells], ALPHA, setting),
                }
                for count in counts
            ]
    return {
        "table": name,
        "title": f"An oracle averages the scores of same-label nodes, GCN at alpha = {ALPHA}",
        "settings": common.settings(setting),
        "rows": rows,
        "notes": common.notes(names, setting),
        "skipped": skipped,
    }


def layout(result: Result) -> tuple[list[str], Cells]:
    """A row for each number of nodes."""
    header = ["dataset", "same-label nodes", "coverage", "size", "size, non-empty", "SH %"]
    rows = [
        [
            common.display(row["dataset"]),
            str(row["same_label_nodes"]),
            common.with_mark(row),
            common.with_error(row["size"], row["size_se"]),
            common.with_error(row["size_nonempty"], row["size_nonempty_se"]),
            f"{100 * row['singleton_hit']:.2f}",
        ]
        for row in result["rows"]
    ]
    return header, rows


def remarks(result: Result) -> list[str]:
    """How far size falls and whether coverage stays; the paper claims both."""
    out = []
    for dataset, rows in common.by_dataset(result["rows"]).items():
        first, last = rows[0], rows[-1]
        singleton = next((row for row in rows if row["size_nonempty"] < NEARLY_ONE), None)
        coverages = [row["coverage"] for row in rows]
        text = (
            f"{common.display(dataset)}: non-empty sets shrink from {first['size_nonempty']:.2f} "
            f"labels (APS) to {last['size_nonempty']:.2f} with {last['same_label_nodes']} nodes"
        )
        if singleton is not None:
            text += f", below {NEARLY_ONE} with {singleton['same_label_nodes']}"
        out.append(
            f"{text}; coverage stays between {min(coverages):.4f} and {max(coverages):.4f} "
            "(the paper: size drops sharply, coverage stays valid)"
        )
    return [*out, common.consistent(result["rows"])]


def draw(result: Result) -> Any:
    """Size on the left; coverage, and the band to expect it in, on the right."""
    figure, axes = drawing.panels(1, 2, 4.6, 3.4)
    left, right = axes[0]
    groups = common.by_dataset(result["rows"])
    alone = len(groups) == 1
    for place, (dataset, rows) in enumerate(groups.items()):
        look, title = drawing.style(place), common.display(dataset)
        values = {key: [row[key] for row in rows] for key in rows[0]}
        counts = values["same_label_nodes"]
        left.plot(counts, values["size"], label="all sets" if alone else title, **look)
        left.plot(
            counts, values["size_nonempty"], label="non-empty sets" if alone else None,
            **{**look, "linestyle": ":", "markerfacecolor": "white"},
        )  # fmt: skip
        right.plot(counts, values["coverage"], label="measured" if alone else title, **look)
        right.fill_between(
            counts, values["coverage_low"], values["coverage_high"], color=look["color"],
            alpha=0.18, linewidth=0, label="expected, 4 standard errors" if alone else None,
        )  # fmt: skip
    left.axhline(1, color=drawing.GREY, linewidth=0.8, linestyle="--")
    left.set_ylim(bottom=0)
    middle = 1 - ALPHA
    right.axhline(middle, color=drawing.GREY, linewidth=0.8, linestyle="--")
    reach = max(abs(row[key] - middle) for row in result["rows"] for key in _COVERAGES)
    right.set_ylim(middle - max(0.01, 2 * reach), middle + max(0.01, 2 * reach))
    right.locator_params(axis="y", nbins=5)
    head = f"{common.display(next(iter(groups)))}: " if alone else ""
    across = "same-label nodes averaged into each node"
    drawing.label(left, f"{head}size of the sets", across, "mean size (labels)")
    drawing.label(right, f"{head}coverage; {middle:g} promised", across, "share of nodes covered")
    for axis in (left, right):
        drawing.counts_axis(axis, [row["same_label_nodes"] for row in result["rows"]])
        axis.legend(frameon=False, fontsize=drawing.SMALL)
    return figure
