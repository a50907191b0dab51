"""How often `watch` raises an alarm: python -m benchmarks.watch [--histories 2000].

False alarms, where nothing has changed: on a static graph, and on a graph that grows and is
recalibrated each month. Power, where scores of audited nodes have become larger."""

from __future__ import annotations

import argparse

import numpy as np

import snaps
from snaps.conformal.rank import conformal_rank
from snaps.conformal.watching import wealth
from snaps.datasets import make_graph
from snaps.models import smoothed_regression

ALARMS, ALPHA = (0.05, 0.01), 0.1


def shares(largest: list[float] | np.ndarray) -> str:
    """The share of histories with an alarm, for each level."""
    found = [np.mean(np.asarray(largest) >= 1 / alarm) for alarm in ALARMS]
    return " | ".join(f"{share:.4f}" for share in found)


def world(nodes: int) -> tuple[snaps.Graph, np.ndarray, np.ndarray, np.ndarray]:
    """A synthetic graph whose classifier looks at features alone; labels; the pool."""
    made = make_graph(nodes, 4, homophily=0.75, degree=6, signal=0.7, seed=1)
    bare = snaps.Graph(None, made.graph.features)
    probs = smoothed_regression(bare, made.labels, np.arange(200))
    return made.graph, probs, made.labels, np.arange(200, nodes)


def static(histories: int, n: int, audits: int) -> list[float]:
    """Largest wealths on one graph: calibration and audited nodes are drawn again each time."""
    graph, probs, labels, pool = world(1800)
    similarity = snaps.similarity_graph(graph.features, k=10)
    random, largest = np.random.default_rng(0), []
    for _ in range(histories):
        drawn = random.permutation(pool)[: n + audits]
        cp = snaps.SNAPS(ALPHA, weights=(0.3, 0.3), k=10)
        cp.calibrate(graph, probs, labels, drawn[:n], similarity=similarity)
        largest.append(float(cp.watch(labels, drawn[n:]).wealth.max()))
    return largest


def growing(histories: int, n: int, months: int, new: int, audits: int) -> list[float]:
    """Largest wealths where a third of the graph is there at first, and each month brings nodes.

    Nodes arrive in random order. Each month the graph of all that are there is scored again, the
    threshold is set again on the same calibration nodes, and a few of the new nodes are audited.
    """
    graph, probs, labels, pool = world(200 + 600 + months * new)
    names = np.array([f"v{i}" for i in range(graph.num_nodes)])
    random, largest = np.random.default_rng(1), []

    def present(nodes: np.ndarray) -> snaps.Graph:
        links = graph.adjacency[nodes][:, nodes]
        return snaps.Graph(links, graph.features[nodes], ids=names[nodes])

    for _ in range(histories):
        order = np.concatenate([np.arange(200), random.permutation(pool)])
        nodes, watch = order[:800], None
        cp = snaps.SNAPS(ALPHA, weights=(0.3, 0.3), k=10)
        cp.calibrate(present(nodes), probs[nodes], labels[nodes], names[order[200 : 200 + n]])
        for month in range(months):
            begin = 800 + month * new
            nodes = order[: begin + new]
            cp.recalibrate(present(nodes), probs[nodes])
            audited = names[order[begin : begin + audits]]
            watch = cp.watch(labels[nodes], audited, state=watch)
        largest.append(float(watch.wealth.max()))
    return largest


def larger_scores(histories: int, n: int, audits: int, times: float) -> np.ndarray:
    """Largest wealths where audited scores are so many times larger (exponential scores)."""
    random, rank = np.random.default_rng(2), conformal_rank(n, ALPHA)
    threshold = np.sort(random.exponential(size=(histories, n)), axis=1)[:, rank - 1]
    hits = times * random.exponential(size=(histories, audits)) <= threshold[:, None]
    return wealth(n, rank, np.arange(1, audits + 1), np.cumsum(hits, axis=1)).max(axis=1)


def main() -> None:
    """Print a table of each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=2000)
    parser.add_argument("--only", default="static,growing,larger")
    chosen = parser.parse_args()
    count = chosen.histories
    print(f"| {count} histories, alpha {ALPHA} | alarm 0.05 | alarm 0.01 |\n|---|---|---|")
    if "static" in chosen.only:
        for n in (100, 500):
            found = shares(static(count, n, 600))
            print(f"| static graph, {n} calibration nodes, 600 audits | {found} |", flush=True)
    if "growing" in chosen.only:
        for n in (100, 500):
            found = shares(growing(count, n, 6, 200, 100))
            words = f"graph that grows from 800 to 2,000 nodes, {n} calibration nodes, 600 audits"
            print(f"| {words} | {found} |", flush=True)
    if "larger" in chosen.only:
        for times in (1.25, 1.5, 2):
            for n in (100, 500, 1000):
                found = shares(larger_scores(count, n, 600, times))
                words = f"scores {times:g} times as large, {n} calibration nodes, 600 audits"
                print(f"| {words} | {found} |", flush=True)


if __name__ == "__main__":
    main()
