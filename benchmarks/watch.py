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

ALARMS, ALPHA, WEIGHT = (0.05, 0.01), 0.1, 0.4


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
    The scores of DAPS are computed here, for speed; the first history is also run by the library.
    """
    graph, probs, labels, pool = world(200 + 600 + months * new)
    own = snaps.SplitConformal(ALPHA).calibrate(graph, probs, labels, pool[:50]).scores_
    random, largest, rank = np.random.default_rng(1), [], conformal_rank(n, ALPHA)
    links = graph.adjacency.astype(float)

    def scores(nodes: np.ndarray, present: np.ndarray) -> np.ndarray:
        """Scores of true labels: the node's own, and the mean over the links that are there."""
        rows = links[nodes].multiply(present).tocsr()
        count = np.asarray(rows.sum(axis=1)).ravel()
        sums = (rows @ own)[np.arange(len(nodes)), labels[nodes]]
        mine = own[nodes, labels[nodes]]
        mean = np.where(count > 0, sums / np.maximum(count, 1), mine)
        return (1 - WEIGHT) * mine + WEIGHT * mean

    for history in range(histories):
        order = np.concatenate([np.arange(200), random.permutation(pool)])
        calib, present, hits = order[200 : 200 + n], np.zeros(len(labels)), []
        for month in range(months):
            begin = 800 + month * new
            present[order[: begin + new]] = 1
            calibration = scores(calib, present)
            audited = order[begin : begin + audits]
            hits.append(scores(audited, present) <= np.sort(calibration)[rank - 1])
            if history == 0:
                _compare(graph, probs, labels, order[: begin + new], calib, calibration)
        path = np.cumsum(np.concatenate(hits))
        largest.append(float(wealth(n, rank, np.arange(1, len(path) + 1), path).max()))
    return largest


def _compare(
    graph: snaps.Graph,
    probs: np.ndarray,
    labels: np.ndarray,
    nodes: np.ndarray,
    calib: np.ndarray,
    scores: np.ndarray,
) -> None:
    """The scores must be those of the library."""
    part = snaps.Graph(graph.adjacency[nodes][:, nodes], ids=nodes)
    cp = snaps.DAPS(ALPHA, weight=WEIGHT)
    cp.calibrate(part, probs[nodes], labels[nodes], part.index(calib))
    by_id = dict(zip(cp.calib_ids_.tolist(), cp.calib_scores_.tolist(), strict=True))
    np.testing.assert_allclose([by_id[id_] for id_ in calib.tolist()], scores, atol=1e-5)


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
