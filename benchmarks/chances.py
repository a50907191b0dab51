"""Coverage of labels drawn with unequal chances: python -m benchmarks.chances [--draws 2000].

On a linked synthetic graph half of the nodes are hard: most of their labels are drawn at random,
which the classifier does not know. Each draw labels every node of the pool by itself, easy nodes
with another chance than hard ones; a method tunes and calibrates on the labelled nodes, and covers
the others. By edges: an end of a random edge is labelled, again and again, until there are enough
nodes. Tuning is slow, so that 50 draws of calibration nodes share tuning nodes."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import snaps
from snaps.conformal.calibration import Calibration
from snaps.conformal.chances import effective_labels
from snaps.conformal.rank import conformal_rank
from snaps.datasets import make_graph
from snaps.models import smoothed_regression
from snaps.predictor.chances import read_odds

ALPHA, NODES, TRAIN, SHARED = 0.1, 2300, 200, 50
DESIGNS: dict[str, Any] = {  # chances of easy and of hard nodes, or how many nodes by edges
    "easy nodes more often": (0.5, 0.1),
    "hard nodes more often": (0.08, 0.7),
    "100 nodes by edges": 100,
    "600 nodes by edges": 600,
}
METHODS = {"APS": snaps.SplitConformal, "SNAPS": snaps.SNAPS, "Pooled": snaps.Pooled}


class World:
    """A graph with hard nodes, and a classifier that was trained on others."""

    def __init__(self, seed: int = 1, replaced: float = 0.75):
        made = make_graph(NODES, 4, homophily=0.8, degree=6, signal=0.9, seed=seed)
        random = np.random.default_rng(seed)
        self.graph, self.labels, self.pool = made.graph, made.labels.copy(), np.arange(TRAIN, NODES)
        self.probs = smoothed_regression(made.graph, made.labels, np.arange(TRAIN))
        self.hard = random.random(NODES) < 0.5
        at_random = self.hard & (random.random(NODES) < replaced)
        self.labels[at_random] = random.integers(4, size=int(at_random.sum()))
        self.similarity = snaps.similarity_graph(made.graph.features, k=20)

    def draw(self, design: Any, pool: np.ndarray, random: Any) -> np.ndarray:
        """Which nodes of a pool are labelled."""
        if isinstance(design, tuple):
            return pool[random.random(len(pool)) < np.where(self.hard[pool], *design[::-1])]
        ends = self.graph.adjacency.indices
        ends = random.permutation(ends[np.isin(ends, pool)])
        return ends[np.sort(np.unique(ends, return_index=True)[1])[:design]]

    def coverage(self, method: Any, design: Any, random: Any) -> Iterator[tuple[float, ...]]:
        """The coverage of draws with chances and without, and the effective number of labels."""
        pool, chances = self.pool, "edges"
        if isinstance(design, tuple):
            chances = np.where(self.hard, *design[::-1])
        else:
            pool = pool[np.diff(self.graph.adjacency.indptr)[pool] > 0]
        labelled = self.draw(design, pool, random)
        method.calibrate(
            self.graph, self.probs, self.labels, labelled, similarity=self.similarity,
            chances=chances,
        )  # fmt: skip
        calib, count, scores = method.calib_nodes_, len(method.calib_nodes_), method.scores_
        true, odds = scores[np.arange(NODES), self.labels], read_odds(chances, self.graph, calib)
        pool = np.setdiff1d(pool, method.tune_nodes_)
        for draw in range(SHARED):
            if draw:
                calib = self.draw(design if isinstance(design, tuple) else count, pool, random)
            test = np.setdiff1d(pool, calib)
            own = Calibration(true[calib], self.labels[calib], 4, odds=odds[calib])
            hits = true[test] <= own.limits_of(ALPHA, odds=odds[test])[:, 0]
            if not draw:  # the library's own sets
                mask = method.predict_set(test).mask
                assert np.array_equal(mask[np.arange(len(test)), self.labels[test]], hits)
            plain = np.sort(true[calib])[conformal_rank(len(calib), ALPHA) - 1]
            yield hits.mean(), (true[test] <= plain).mean(), effective_labels(odds[calib])


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--designs", default=",".join(DESIGNS))
    chosen, world = parser.parse_args(), World()
    warnings.simplefilter("ignore", snaps.SnapsWarning)
    print(
        f"| {chosen.draws} draws, alpha {ALPHA} | plain | with chances | error | effective labels |"
    )
    print("|---|---|---|---|---|")
    for design in chosen.designs.split(","):
        for name in chosen.methods.split(","):
            method, random = METHODS[name](ALPHA), np.random.default_rng(0)
            blocks = [
                list(world.coverage(method, DESIGNS[design], random))
                for _ in range(chosen.draws // SHARED)
            ]
            rows = np.array(blocks).mean(axis=1)
            error = rows[:, 0].std() / len(rows) ** 0.5
            weighted, plain, labels = rows.mean(axis=0)
            figures = f"{plain:.4f} | {weighted:.4f} | {error:.4f} | {labels:.0f}"
            print(f"| {design}, {name} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
