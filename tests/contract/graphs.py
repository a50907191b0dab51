"""The graphs that results are recorded on: three synthetic ones and real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import snaps
from snaps.datasets import load, make_graph
from snaps.models import smoothed_regression


class Setting(NamedTuple):
    """A graph with probabilities, and who trains, calibrates and is predicted."""

    graph: snaps.Graph
    codes: np.ndarray
    """The labels as columns of `probs`."""
    probs: np.ndarray
    train: np.ndarray
    calib: np.ndarray
    classes: list[str] | None = None

    @property
    def labels(self) -> np.ndarray:
        """The labels by name, where classes have names."""
        return self.codes if self.classes is None else np.array(self.classes)[self.codes]

    @property
    def bands(self) -> np.ndarray:
        """Two groups: nodes with few and with many links."""
        degrees = np.diff(self.graph.adjacency.indptr)
        return np.where(degrees > np.median(degrees), "many", "few")

    def calibrate(self, cp: Any, **options: Any) -> Any:
        options = {"known_nodes": self.train, "classes": self.classes, **options}
        return cp.calibrate(self.graph, self.probs, self.labels, self.calib, **options)

    def first(self, count: int) -> Setting:
        """The same before the nodes from `count` on arrived."""
        graph = self.graph
        early = snaps.Graph(
            graph.adjacency[:count, :count], graph.features[:count],
            ids=graph.ids[:count] if graph.named else None,
            directed=graph.directed, weighted=graph.weighted,
        )  # fmt: skip
        return self._replace(graph=early, codes=self.codes[:count], probs=self.probs[:count])


def on_a_grid(table: np.ndarray) -> np.ndarray:
    """Class probabilities with few digits: the last ones of a solver depend on the processor."""
    steps = np.round(4096 * table) + 1
    return steps / steps.sum(axis=1, keepdims=True)


def noisy(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Class probabilities of a mediocre classifier, the same on every processor."""
    random = np.random.default_rng(9)
    table = random.random((len(labels), num_classes))
    table[np.arange(len(labels)), labels] += random.random(len(labels))
    return on_a_grid(table * table * table)


def setting(name: str, data_dir: Path | None = None) -> Setting:
    """A synthetic graph, or a real one; made again for each case, so that none changes another."""
    if name == "words":  # sparse features, numbered nodes
        data = make_graph(500, 4, homophily=0.7, degree=4.0, num_features=300, seed=3)
        graph, train, calib = data.graph, np.arange(50), np.arange(50, 200)
    elif name == "dense":  # string ids and class names, unequal classes
        data = make_graph(
            360, 6, homophily=0.6, degree=5.0, imbalance=0.5, features="dense",
            num_features=16, signal=1.5, seed=4,
        )  # fmt: skip
        ids = np.array([f"v{(37 * i) % 360:03}" for i in range(360)])
        graph = snaps.Graph(data.graph.adjacency, data.graph.features, ids=ids)
        train, calib = np.arange(60), np.arange(60, 200)
    elif name == "weighted":  # weighted and directed, numbered by ids of their own
        data = make_graph(300, 3, homophily=0.7, degree=6.0, num_features=200, seed=5)
        links = data.graph.adjacency.tocoo()
        row, column = links.coords
        kept = (row + 2 * column) % 5 > 0
        edges = np.stack([row, column])[:, kept]
        weights = (1 + (7 * row + 3 * column)[kept] % 8) / 4
        graph = snaps.Graph(
            edges, data.graph.features, ids=1000 - np.arange(300), directed=True, weighted=True,
            edge_weights=weights,
        )  # fmt: skip
        train, calib = np.arange(40), np.arange(40, 160)
    else:
        data = load(name, data_dir, download=False)
        order = np.random.default_rng(6).permutation(len(data.labels))
        train, calib = order[:140], order[140:540]
        probs = on_a_grid(smoothed_regression(data.graph, data.labels, train))
        return Setting(data.graph, data.labels, probs, train, calib)
    probs = noisy(data.labels, data.num_classes)
    classes = [f"class {letter}" for letter in "zbyaxc"] if name == "dense" else None
    return Setting(graph, data.labels, probs, train, calib, classes)
