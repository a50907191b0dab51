"""The similarity graph after 1 % new nodes: updated against searched for from scratch."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import snaps
from benchmarks.data import load_graph
from snaps._similarity_update import extend

GRAPHS = ("cora_ml", "coauthor_cs", "amazon_computers")
K, NEW, REPEATS = 20, 0.01, 5


def _seconds(*ways: Callable[[], Any]) -> list[float]:
    """Fewest of five runs each, after one that compiles; in turns, so that noise hits all alike."""
    best = [float("inf")] * len(ways)
    for repeat in range(REPEATS + 1):
        for i, way in enumerate(ways):
            began = time.perf_counter()
            way()
            if repeat:
                best[i] = min(best[i], time.perf_counter() - began)
    return best


def run(data_dir: Path) -> list[dict[str, float | str]]:
    """One row a graph: seconds from scratch, seconds of the update, and their ratio."""
    rows: list[dict[str, float | str]] = []
    for name in GRAPHS:
        graph, _ = load_graph(data_dir, name)
        features, keys = graph.features, graph.keys
        order = np.random.default_rng(0).permutation(len(keys))
        stay = np.sort(order[int(NEW * len(keys)) :])
        before = features[stay], keys[stay]
        old = snaps.similarity_graph(before[0], K, ids=before[1])
        scratch, update = _seconds(
            lambda x=features, ids=keys: snaps.similarity_graph(x, K, ids=ids),
            lambda case=(old, *before, features, keys): extend(*case, K),
        )
        rows.append(
            {
                "graph": name,
                "scratch s": scratch,
                "update s": update,
                "scratch / update": scratch / update,
            }
        )
    return rows
