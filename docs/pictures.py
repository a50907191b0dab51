"""Draw the pictures of the pages, and print their numbers: python docs/pictures.py

The graph is CoraML, from the folder in SNAPS_DATA, the cache or its public home; the classifier is
a GCN with the paper's settings. `--shots` also takes pictures of a report, in Chromium.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import snaps
from snaps_lab.models import gnn
from snaps_lab.reproduce.drawing import label, panels, style

HERE = Path(__file__).parent / "pictures"
ALPHA, BUDGET, DRAWS = 0.1, 1000, 50
SCORES = {"THR": snaps.THR(), "APS": snaps.APS(), "RAPS": snaps.RAPS(), "SAPS": snaps.SAPS()}
METHODS = {
    "score alone": lambda score: snaps.SplitConformal(ALPHA, score=score),
    "SNAPS": lambda score: snaps.SNAPS(ALPHA, score=score),
    "Pooled": lambda score: snaps.Pooled(ALPHA, score=score),
}


class Subject:
    """CoraML with a GCN: what every picture is drawn from."""

    def __init__(self) -> None:
        data = snaps.datasets.load("cora_ml")
        self.graph, self.labels = data.graph, data.labels
        order = np.random.default_rng(0).permutation(self.graph.num_nodes)
        classes = range(data.num_classes)
        first = [order[self.labels[order] == y] for y in classes]
        self.train = np.concatenate([nodes[:20] for nodes in first])
        self.valid = np.concatenate([nodes[20:40] for nodes in first])
        self.pool = np.setdiff1d(order, np.concatenate([self.train, self.valid]))
        result = gnn.train("gcn", self.graph, self.labels, self.train, self.valid)
        shifted = np.exp(result.logits - result.logits.max(axis=1, keepdims=True), dtype=np.float64)
        self.probs = shifted / shifted.sum(axis=1, keepdims=True)
        self.similarity = snaps.similarity_graph(self.graph.features)


def draw_scores(subject: Subject) -> None:
    """Size, single labels and evenness of every score: alone, with SNAPS and with Pooled."""
    found: dict[tuple[str, str], np.ndarray] = {}
    for method, make in METHODS.items():
        for name, score in SCORES.items():
            rows = []
            for draw in range(DRAWS):
                mixed = np.random.default_rng(draw).permutation(subject.pool)
                calib, test = mixed[:BUDGET], mixed[BUDGET:]
                cp = make(score).calibrate(
                    subject.graph, subject.probs, subject.labels, calib,
                    similarity=subject.similarity,
                    known_nodes=np.concatenate([subject.train, subject.valid]),
                )  # fmt: skip
                sets = cp.predict_set(test)
                values = (
                    snaps.metrics.size(sets),
                    100 * snaps.metrics.singleton_hit(sets, subject.labels),
                    100 * snaps.metrics.empty(sets),
                    100 * snaps.metrics.sscv(sets, subject.labels, ALPHA),
                )
                rows.append(values)
            found[method, name] = np.mean(rows, axis=0)
            print(f"{method:12} {name:5}", *(f"{value:6.2f}" for value in found[method, name]))
    _plot_scores(found)


def _plot_scores(found: dict[tuple[str, str], np.ndarray]) -> None:
    figure, axes = panels(1, 4, 2.9, 3.0)
    titles = ("labels per set", "exactly the truth, %", "empty sets, %", "worst gap by set size, %")
    for place, (axis, title) in enumerate(zip(axes[0], titles, strict=True)):
        for line, method in enumerate(METHODS):
            values = [found[method, name][place] for name in SCORES]
            across = np.arange(len(SCORES)) + 0.27 * (line - 1)
            axis.bar(across, values, 0.25, label=method, color=style(line)["color"])
        axis.set_xticks(range(len(SCORES)), list(SCORES))
        label(axis, title, "", "")
        axis.set_ylim(bottom=0)
    axes[0][0].set_ylim(top=1.35 * max(values[0] for values in found.values()))
    axes[0][0].legend(frameon=False, fontsize=8.5, loc="upper left")
    _save(figure, "scores")


def draw_coverage(subject: Subject) -> None:
    """Coverage over splits and its exact distribution, for three numbers of calibration nodes."""
    figure, axes = panels(1, 3, 3.8, 2.9)
    method = snaps.SplitConformal(ALPHA, score=snaps.APS())
    for axis, calib in zip(axes[0], (50, 200, 1000), strict=True):
        splits = snaps.evaluate_splits(
            method, subject.graph, subject.probs, subject.labels, subject.pool, calib, 5000
        )
        test, rank = len(subject.pool) - calib, int(np.ceil((1 - ALPHA) * (calib + 1)))
        exact = stats.betabinom(test, rank, calib + 1 - rank)
        low, high = exact.ppf([0.005, 0.995]) / test
        inside = np.mean((splits["coverage"] >= low) & (splits["coverage"] <= high))
        print(
            f"n = {calib}: mean {splits['coverage'].mean():.4f},",
            f"expected {exact.mean() / test:.4f},",
            end=" ",
        )
        print(f"99 % expected from {low:.3f} to {high:.3f}, {inside:.3f} of 5,000 splits inside")
        width = max(1, round((high - low) * test / 40))
        edges = (
            np.arange(int(exact.ppf(1e-5)), int(exact.ppf(1 - 1e-5)) + width, width) - 0.5
        ) / test
        axis.hist(splits["coverage"], edges, density=True, color="#56B4E9", label="5,000 splits")
        middle = (edges[1:] + edges[:-1]) / 2
        mass = np.diff(exact.cdf(edges * test)) / np.diff(edges)
        axis.plot(middle, mass, color="#000000", linewidth=1.3, label="Beta-binomial")
        axis.axvline(1 - ALPHA, color="#D55E00", linewidth=1, linestyle="--", label="0.9 asked for")
        label(axis, f"{calib} calibration nodes", "coverage of one split", "share of splits")
        axis.set_xlim(0.76, 1.0)
        axis.set_yticks([])
    axes[0][0].legend(frameon=False, fontsize=8.5, loc="upper left")
    _save(figure, "coverage")


def draw_labels() -> None:
    """How many labels, and a watch in which misses become more frequent after 150 labels."""
    _save(snaps.plan(ALPHA, within=0.03, nodes=2600).plot(), "plan")
    random = np.random.default_rng(1).random(400)
    hits = random > np.where(np.arange(400) < 150, ALPHA, 2.5 * ALPHA)
    watch = snaps.Watch.start(n=300, rank=271, alarm=0.01)
    for begin in range(0, 400, 50):
        watch = watch.count(range(begin, begin + 50), hits[begin : begin + 50])
    _save(watch.plot(), "watch")


def take_shots() -> None:
    """A report of the demo's graph: the first screen, and a node with links in the explorer."""
    import pyarrow.parquet as pq
    from selenium import webdriver

    from snaps.cli import main

    options = webdriver.ChromeOptions()
    for option in ("--headless=new", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(option)
    driver = webdriver.Chrome(options=options)
    with tempfile.TemporaryDirectory() as folder:
        page, sets = f"{folder}/report.html", f"{folder}/sets.parquet"
        given = [f"{folder}/demo/graph", "--method", "pooled", "--out"]
        for command in (["demo", "--out", f"{folder}/demo"], ["report", *given, page],
                        ["predict", *given, sets]):  # fmt: skip
            try:
                main(command)
            except SystemExit as ended:
                assert not ended.code
        links = np.bincount(pq.read_table(f"{folder}/demo/graph/edges.parquet")["src"].to_numpy())
        rows = pq.read_table(sets).to_pylist()
        node = next(row["id"] for row in rows if row["size"] == 2 and links[int(row["id"])] >= 4)
        address = Path(page).as_uri()
        for name, place, height in (("report", "", 1000), ("explorer", f"#node={node}", 1100)):
            driver.set_window_size(1200, height)
            driver.get("about:blank")
            driver.get(address + place)
            time.sleep(2)
            driver.save_screenshot(str(HERE / f"{name}.png"))
            print(f"wrote {name}.png")
    driver.quit()


def _save(figure: Any, name: str) -> None:
    HERE.mkdir(exist_ok=True)
    figure.savefig(HERE / f"{name}.png", dpi=120)
    print(f"wrote {name}.png")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shots", action="store_true", help="Only the pictures of a report.")
    if parser.parse_args().shots:
        take_shots()
    else:
        given = Subject()
        draw_coverage(given)
        draw_scores(given)
        draw_labels()
