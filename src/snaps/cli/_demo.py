"""The demo: a made graph, a classifier without torch, five methods side by side, a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from snaps._checks import check_alpha, check_integer, check_seed
from snaps.datasets import make_graph
from snaps.errors import SnapsError
from snaps.estimators import methods
from snaps.folder import write_folder
from snaps.io.files import atomic_path
from snaps.models import smoothed_regression
from snaps.similarity import similarity_graph
from snaps.splits import evaluate_splits

TRAINING_NODES_A_CLASS = 20
SPLITS = 100
_COLOURS = ("#999999", "#56B4E9", "#E69F00", "#0072B2", "#D55E00")


@dataclass(frozen=True)
class DemoResult:
    """What the demo shows."""

    rows: list[dict[str, Any]]
    splits: int
    accuracy: float
    description: str
    files: list[Path]


def run(
    out: Path, *, num_nodes: int, alpha: float, seed: int, advance: Callable[[int], None]
) -> DemoResult:
    """Make, train, compare, draw and write; `advance` is told of each of the five."""
    check_alpha(alpha)
    check_seed(seed)
    check_integer(num_nodes, "nodes", low=200)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SnapsError(f"cannot write '{out}': {error.strerror}") from error
    data = make_graph(num_nodes, num_classes=6, homophily=0.7, degree=3.0, signal=1.5, seed=seed)
    graph, labels = data.graph, data.labels
    advance(1)

    order = np.random.default_rng(seed).permutation(num_nodes)
    train = np.concatenate(
        [order[labels[order] == y][:TRAINING_NODES_A_CLASS] for y in range(data.num_classes)]
    )
    pool = np.setdiff1d(np.arange(num_nodes), train)
    probs = smoothed_regression(graph, labels, train)
    accuracy = float((probs.argmax(axis=1) == labels)[pool].mean())
    advance(1)

    similarity = similarity_graph(graph.features, ids=graph.keys)
    advance(1)

    budget = min(1000, len(pool) // 2)
    compared = methods(("APS", "RAPS", "DAPS", "SNAPS", "Pooled"), alpha, seed=seed)
    results = evaluate_splits(
        compared, graph, probs, labels, pool, budget, SPLITS, seed, similarity, known_nodes=train
    )
    rows = [
        {"alpha": alpha, "method": name, **{k: float(v.mean()) for k, v in result.items()}}
        for name, result in results.items()
    ]
    advance(1)

    shuffled = np.random.default_rng(seed).permutation(pool)
    calib, test = shuffled[:budget], shuffled[budget:]
    roles = np.full(num_nodes, "", "U5")
    roles[train], roles[calib], roles[test] = "train", "calib", "test"
    write_folder(out / "graph", graph, probs, labels, roles)
    sets = {
        name: compared[name]
        .calibrate(graph, probs, labels, calib, similarity=similarity, known_nodes=train)
        .predict_set(test)
        for name in ("APS", "SNAPS", "Pooled")
    }
    sets["SNAPS"].to_parquet(out / "sets.parquet")
    sizes = {name: s.sizes for name, s in sets.items()}
    draw(out / "demo.png", results, sizes, alpha)
    compared["SNAPS"].report(out / "report.html", labels, test, title="a made graph")
    advance(1)
    files = [out / name for name in ("report.html", "demo.png", "sets.parquet", "graph")]
    return DemoResult(rows, SPLITS, accuracy, repr(graph), files)


def draw(
    path: Path,
    results: dict[str, dict[str, np.ndarray]],
    sizes: dict[str, np.ndarray],
    alpha: float,
) -> None:
    """Coverage and size of each method over the splits, and how large the sets are."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    colours = dict(zip(results, _COLOURS, strict=True))
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3)
    names = list(results)
    for place, name in enumerate(names):
        for axis, key in ((left, "coverage"), (middle, "size")):
            box = axis.boxplot(
                results[name][key],
                positions=[place],
                widths=0.6,
                patch_artist=True,
                showfliers=False,
            )
            box["boxes"][0].set_facecolor(colours[name])
            box["medians"][0].set_color("black")
    left.axhline(1 - alpha, color="black", linewidth=1, linestyle="--")
    left.set_title(f"Coverage: {1 - alpha:g} is promised", fontsize=11)
    middle.set_title("Mean size of the sets: small is good", fontsize=11)
    middle.set_ylim(bottom=0)
    for axis in (left, middle):
        axis.set_xticks(range(len(names)), names)
    top = max(int(s.max()) for s in sizes.values())
    for shift, (name, counts) in enumerate(sizes.items()):
        share = np.bincount(counts, minlength=top + 1) / len(counts)
        right.bar(
            np.arange(top + 1) + 0.28 * (shift - 1),
            share,
            width=0.28,
            label=name,
            color=colours[name],
        )
    right.set_title("Share of sets by number of labels", fontsize=11)
    right.set_xticks(range(top + 1))
    right.legend(frameon=False)
    for axis in (left, middle, right):
        axis.spines[["top", "right"]].set_visible(False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150, format="png")
