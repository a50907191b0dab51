"""Figure 1b: are nodes of one label more similar than nodes of two? Mean cosines class by class."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps_lab.reproduce import common, drawing, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.runner import Setting

SCALE = 1000  # the paper shows thousandths
MOST_NUMBERED = 10  # classes of a heat map that has room for numbers
CAPTION = (
    "Nodes are most similar to nodes of their own label: the diagonal stands out. "
    "That makes similar nodes worth asking where there is no link."
)


def class_similarity(
    features: Any, labels: np.ndarray, num_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean cosine between the nodes of every two classes, a node never with itself, and the pairs.

    The sum over all pairs of two classes is the product of their sums of unit rows, so no pair is
    ever looked at. NaN where there is no pair.
    """
    if not sp.issparse(features):
        features = np.asarray(features, np.float64)
    squares = np.asarray((features * features).sum(axis=1), np.float64).reshape(-1)
    filled = squares > 0
    scales = 1 / np.sqrt(np.where(filled, squares, np.inf))
    nodes = np.arange(len(labels))
    member = sp.csr_array((scales, (labels, nodes)), shape=(num_classes, len(labels)))
    sums = member @ features
    if sp.issparse(sums):
        sums = sums.toarray()
    totals = sums @ sums.T - np.diag(np.bincount(labels[filled], minlength=num_classes))
    sizes = np.bincount(labels, minlength=num_classes)
    pairs = np.outer(sizes, sizes) - np.diag(sizes)
    return np.where(pairs > 0, totals / np.maximum(pairs, 1), np.nan), pairs


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Mean similarity of every two classes; the paper's dataset is CoraML."""
    names, skipped = common.present(datasets, ("cora_ml",), setting)
    rows = []
    with track(name, len(names)) as advance:
        for dataset in names:
            data = runner.dataset(dataset, setting)
            means, pairs = class_similarity(data.graph.features, data.labels, data.num_classes)
            rows += [
                {
                    "dataset": dataset,
                    "label": a,
                    "other_label": b,
                    "similarity": None if np.isnan(means[a, b]) else float(means[a, b]),
                    "pairs": int(pairs[a, b]),
                }
                for a in range(data.num_classes)
                for b in range(data.num_classes)
            ]
            advance(1)
    return {
        "table": name,
        "title": f"Mean cosine of features between classes, times {SCALE}",
        "settings": {},
        "rows": rows,
        "notes": common.notes(names, setting),
        "skipped": skipped,
    }


def _tables(result: Result) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Means and pairs of each dataset as square arrays."""
    out = {}
    for dataset, rows in common.by_dataset(result["rows"]).items():
        count = max(row["label"] for row in rows) + 1
        means = [np.nan if row["similarity"] is None else row["similarity"] for row in rows]
        pairs = [row["pairs"] for row in rows]
        shape = (count, count)
        out[dataset] = np.array(means).reshape(shape), np.array(pairs).reshape(shape)
    return out


def _mean(means: np.ndarray, pairs: np.ndarray, where: np.ndarray) -> float:
    """Over the pairs of nodes, not of classes."""
    where = where & (pairs > 0)
    return float(np.average(means[where], weights=pairs[where])) if where.any() else np.nan


def layout(result: Result) -> tuple[list[str], Cells]:
    """Each label against itself, all others, and the most similar other."""
    header = ["dataset", "label", "same label", "other labels", "most similar other", "which"]
    out = []
    for dataset, (means, pairs) in _tables(result).items():
        for y in range(len(means)):
            others = np.arange(len(means)) != y
            row = [common.display(dataset), str(y), _thousandths(means[y, y])]
            row.append(_thousandths(_mean(means[y], pairs[y], others)))
            ranked = np.where(others & (pairs[y] > 0), means[y], -np.inf)
            best = int(np.argmax(ranked))
            has_others = bool(np.isfinite(ranked[best]))
            out.append(
                [
                    *row,
                    _thousandths(means[y, best] if has_others else np.nan),
                    str(best) * has_others,
                ]
            )
    return header, out


def _thousandths(value: float) -> str:
    return "" if np.isnan(value) else f"{SCALE * value:.1f}"


def remarks(result: Result) -> list[str]:
    """Whether same-label nodes are more similar, as the paper claims."""
    out = []
    for dataset, (means, pairs) in _tables(result).items():
        own = np.eye(len(means), dtype=bool)
        same, different = _mean(means, pairs, own), _mean(means, pairs, ~own)
        inside = np.where(own, -np.inf, np.nan_to_num(means, nan=-np.inf)).max(axis=1)
        first = int((np.diag(means) > inside).sum())
        out.append(
            f"{common.display(dataset)}: {SCALE * same:.1f} between nodes of one label and "
            f"{SCALE * different:.1f} between labels, {same / different:.2f} times as much; "
            f"{first} of {len(means)} labels are most similar to themselves (the paper: the same "
            "label is higher)"
        )
    return out


def draw(result: Result) -> Any:
    """A heat map for each dataset."""
    tables = _tables(result)
    rows, columns = drawing.grid(len(tables))
    figure, axes = drawing.panels(rows, columns, 4.9, 4.0)
    for axis in axes.flat[len(tables) :]:
        axis.set_visible(False)
    for axis, (dataset, (means, _)) in zip(axes.flat, tables.items(), strict=False):
        image = axis.imshow(SCALE * means, cmap=drawing.COLOURS)
        drawing.label(
            axis,
            f"{common.display(dataset)}: similarity of features by label",
            "label of the other node",
            "label of a node",
        )
        if len(means) <= MOST_NUMBERED:
            axis.set_xticks(range(len(means)))
            axis.set_yticks(range(len(means)))
            _number(axis, means)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        drawing.colour_bar(figure, image, axis, f"mean cosine x {SCALE}")
    return figure


def _number(axis: Any, means: np.ndarray) -> None:
    """Write each value into its cell, dark on light and light on dark."""
    middle = (np.nanmin(means) + np.nanmax(means)) / 2
    for (a, b), value in np.ndenumerate(means):
        if not np.isnan(value):
            axis.text(
                b, a, f"{SCALE * value:.0f}", ha="center", va="center", fontsize=drawing.SMALL,
                color="black" if value > middle else "white",
                fontweight="bold" if a == b else "normal",
            )  # fmt: skip
