"""Approximate neighbours against faiss, pynndescent and scikit-learn at the same recall."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
import scipy.sparse as sp
from pynndescent import NNDescent
from sklearn.neighbors import NearestNeighbors

import snaps
from snaps._runtime.threads import num_threads

K = 20
RECALLS = (0.95, 0.99)
SMALL, FULL = ((30_000, 64),), ((169_343, 128), (400_000, 64))
SAMPLE = 1000  # rows whose true neighbours are known
MOST_EFFORT = 600  # of a search in a navigable graph; beyond, others are faster by far
PART = 50  # scikit-learn's exact search is timed on one of so many rows
Row = dict[str, float | str]


def clusters(n: int, d: int) -> np.ndarray:
    """Sixty Gaussian clusters."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((60, d), dtype=np.float32)
    return centres[rng.integers(60, size=n)] + rng.standard_normal((n, d), dtype=np.float32)


def spectrum(n: int, d: int) -> np.ndarray:
    """No clusters; the j-th column has variance 1 / j."""
    rng = np.random.default_rng(0)
    decay = 1 / np.sqrt(np.arange(1, d + 1, dtype=np.float32))
    return rng.standard_normal((n, d), dtype=np.float32) * decay


DATA: dict[str, Callable[[int, int], np.ndarray]] = {"clusters": clusters, "spectrum": spectrum}


@dataclass
class Task:
    """Unit rows, and the true neighbours of a sample of them."""

    unit: np.ndarray
    sample: np.ndarray
    truth: np.ndarray

    @classmethod
    def of(cls, features: np.ndarray) -> Task:
        unit = features / np.linalg.norm(features, axis=1, keepdims=True)
        sample = np.sort(np.random.default_rng(1).choice(len(unit), SAMPLE, replace=False))
        exact = snaps.similarity_graph(features, K, method="exact", rows=sample)
        return cls(unit, sample, exact.indices.reshape(SAMPLE, K))

    def recall(self, found: np.ndarray) -> float:
        """Which share of the sample's true neighbours is among those found; -1: none found."""
        return float((found[:, :, None] == self.truth[:, None, :]).any(axis=1).mean())


def _timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def ours(task: Task, features: np.ndarray, goal: float) -> tuple[float, float, float]:
    """Recall on the sample, seconds, processor seconds."""
    graph, wall, cpu = _timed(
        lambda: snaps.similarity_graph(features, K, method="approximate", recall=goal)
    )
    found = np.full((SAMPLE, K), -1)
    for r, i in enumerate(task.sample):
        row = graph.indices[graph.indptr[i] : graph.indptr[i + 1]]
        found[r, : len(row)] = row
    return task.recall(found), wall, cpu


def _without_self(found: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The first K that are not the row itself."""
    order = np.argsort(found == rows[:, None], axis=1, kind="stable")
    return np.take_along_axis(found, order, axis=1)[:, :K]


def _steps(first: float, factor: float, last: float) -> Iterator[int]:
    value = first
    while value <= last:
        yield int(value)
        value = max(value * factor, value + 1)


def faiss_ivf(task: Task, goals: tuple[float, ...]) -> dict[float, tuple[float, float, float]]:
    """Build once; for each goal the fewest probes that reach it, then all rows."""
    n, d = task.unit.shape
    cells = int(np.sqrt(n))

    def build() -> Any:
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(d), d, cells, faiss.METRIC_INNER_PRODUCT)
        index.train(task.unit[:: max(1, n // (40 * cells))])
        index.add(task.unit)
        return index

    index, *built = _timed(build)

    def set_effort(value: int) -> None:
        index.nprobe = value

    return _search_all(task, goals, index, built, set_effort, _steps(1, 1.15, cells))


def faiss_hnsw(task: Task, goals: tuple[float, ...]) -> dict[float, tuple[float, float, float]]:
    """The same with the effort of a search in a navigable graph."""

    def build() -> Any:
        index = faiss.IndexHNSWFlat(task.unit.shape[1], 16, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = 60
        index.add(task.unit)
        return index

    index, *built = _timed(build)

    def set_effort(value: int) -> None:
        index.hnsw.efSearch = value

    return _search_all(task, goals, index, built, set_effort, _steps(K + 1, 1.15, MOST_EFFORT))


def _search_all(
    task: Task,
    goals: tuple[float, ...],
    index: Any,
    built: list[float],
    set_effort: Callable[[int], None],
    efforts: Iterator[int],
) -> dict[float, tuple[float, float, float]]:
    results: dict[float, tuple[float, float, float]] = {}
    effort: int | None = next(efforts)
    for goal in goals:
        while effort is not None:
            set_effort(effort)
            found = index.search(task.unit[task.sample], K + 1)[1]
            reached = task.recall(_without_self(found, task.sample))
            if reached >= goal:
                break
            effort = next(efforts, None)
        if effort is None:
            break
        _, wall, cpu = _timed(lambda: index.search(task.unit, K + 1))
        results[goal] = reached, built[0] + wall, built[1] + cpu
    return results


def pynndescent(task: Task, goals: tuple[float, ...]) -> dict[float, tuple[float, float, float]]:
    """Longer lists until the first K of them reach the goal."""
    results: dict[float, tuple[float, float, float]] = {}
    for length in (K + 1, 26, 32, 40, 50, 60, 75, 90):
        index, wall, cpu = _timed(
            lambda length=length: NNDescent(
                task.unit, metric="cosine", n_neighbors=length, random_state=0, n_jobs=num_threads()
            )
        )
        found = index.neighbor_graph[0][task.sample]
        reached = task.recall(_without_self(found, task.sample))
        for goal in goals:
            if goal not in results and reached >= goal:
                results[goal] = reached, wall, cpu
        if len(results) == len(goals):
            break
    return results


def scikit_learn(task: Task) -> float:
    """Seconds of the exact search, from those of some of the rows."""
    search = NearestNeighbors(n_neighbors=K + 1, algorithm="brute", n_jobs=num_threads())
    search.fit(task.unit)
    _, wall, _ = _timed(lambda: search.kneighbors(task.unit[::PART]))
    return wall * PART


RIVALS = {"faiss IVF": faiss_ivf, "faiss HNSW": faiss_hnsw, "pynndescent": pynndescent}


def run(n: int, d: int) -> list[Row]:
    """One row per kind of data and wanted recall."""
    faiss.omp_set_num_threads(num_threads())
    small = clusters(6000, 16)
    snaps.similarity_graph(small, K, method="approximate")  # compiles
    NNDescent(small, metric="cosine", n_neighbors=K, n_jobs=num_threads())
    rows: list[Row] = []
    for kind, make in DATA.items():
        features = make(n, d)
        task = Task.of(features)
        us = {goal: ours(task, features, goal) for goal in RECALLS}
        them = {name: rival(task, RECALLS) for name, rival in RIVALS.items()}
        exact = scikit_learn(task)
        for goal in RECALLS:
            best = min(us[goal], ours(task, features, goal), key=lambda result: result[1])
            rows.append(_row(kind, goal, best, them, exact))
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def awkward(full: bool) -> list[Row]:
    """What zero rows, duplicates and one huge cluster cost compared with even clusters."""
    n, d = (FULL if full else SMALL)[-1]
    rng = np.random.default_rng(0)
    plain = clusters(n, d)
    zeros, twice = plain.copy(), plain.copy()
    zeros[rng.random(n) < 0.3] = 0
    again = np.flatnonzero(rng.random(n) < 0.3)
    twice[again] = twice[rng.integers(n, size=len(again))]

    def tight(share: float) -> np.ndarray:
        one, table = np.flatnonzero(rng.random(n) < share), plain.copy()
        table[one] = plain[0] + 0.3 * rng.standard_normal((len(one), d), dtype=np.float32)
        return table

    rows: list[Row] = []
    kinds = {
        "clusters": plain,
        "30 % zero rows": zeros,
        "30 % duplicates": twice,
        "30 % in one tight cluster": tight(0.3),
        "half in one tight cluster": tight(0.5),
    }
    _timed(lambda: snaps.similarity_graph(plain[:20_000], K, method="approximate"))
    for kind, features in kinds.items():
        graph, wall, cpu = min(
            (
                _timed(lambda f=features: snaps.similarity_graph(f, K, method="approximate"))
                for _ in range(2)
            ),
            key=lambda each: each[1],
        )
        row: Row = {"nodes x features": f"{n:,} x {d}", "data": kind, "method": graph.method}
        rows.append(row | {"recall": f"{graph.recall:.4f}", "snaps s": wall, "snaps cpu s": cpu})
        rows[-1]["times clusters"] = wall / float(rows[0]["snaps s"])
    return rows


def bags(n: int, d: int, power: int, filled: int = 30) -> sp.csr_array:
    """Sparse rows: most words from a topic of 300, common words by chance.

    With a higher power a topic has favourite words, and neighbours more in common.
    """
    rng = np.random.default_rng(0)
    topic = rng.integers(max(n // 2000, 20), size=n)
    own = np.random.default_rng(1).integers(d, size=(topic.max() + 1, 300))[topic]
    picked = np.take_along_axis(own, (300 * rng.random((n, filled)) ** power).astype(np.int64), 1)
    common = (d * rng.random((n, filled)) ** 3).astype(np.int64)
    words = np.sort(np.where(rng.random((n, filled)) < 0.6, picked, common), axis=1)
    rows = np.repeat(np.arange(n), filled)
    table = sp.coo_array((np.ones(n * filled, np.float32), (rows, words.ravel())), (n, d)).tocsr()
    table.data[:] = 1
    return table


BAGS = {"favourite words": 2, "words by chance": 1}


def sparse(full: bool) -> list[Row]:
    """Many sparse columns: approximate compared with exact, which is timed on some of the rows."""
    rows: list[Row] = []
    cases = [(20_000, 2000, kind) for kind in BAGS]
    if full:
        # With words by chance a million rows would be searched exactly, for a quarter of an hour.
        cases = [(100_000, 10_000, kind) for kind in BAGS] + [(1_000_000, 10_000, next(iter(BAGS)))]
    for n, d, kind in cases:
        table = bags(n, d, BAGS[kind])
        snaps.similarity_graph(table[:8000], K, method="approximate")
        cosine, exact = _exact_seconds(table)
        graph, wall, cpu = _timed(
            lambda t=table: snaps.similarity_graph(t, K, method="approximate")
        )
        rows.append(
            {
                "nodes x features": f"{n:,} x {d:,}",
                "topics with": kind,
                "entries": f"{table.nnz:,}",
                "cosine of a neighbour": cosine,
                "method": graph.method,
                "recall": f"{graph.recall:.4f}",
                "snaps s": wall,
                "snaps cpu s": cpu,
                "exact s (from 3 %)" if full else "exact s": exact,
                "exact / approximate": exact / wall,
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def _exact_seconds(table: sp.csr_array) -> tuple[float, float]:
    """The mean cosine of a neighbour, and seconds of the exact search of all rows.

    Of many rows from those of one and of two of a hundred: what does not grow with the rows counts
    once.
    """
    n = table.shape[0]
    if n < 100_000:
        graph, wall, _ = _timed(lambda: snaps.similarity_graph(table, K, method="exact"))
        return float(graph.data.mean()), wall
    order = np.random.default_rng(1).permutation(n)
    seconds, counts = [], (n // 100, n // 50)
    for count in counts:
        few = np.sort(order[:count])
        graph, wall, _ = _timed(
            lambda few=few: snaps.similarity_graph(table, K, method="exact", rows=few)
        )
        seconds.append(wall)
    slope = (seconds[1] - seconds[0]) / (counts[1] - counts[0])
    return float(graph.data.mean()), seconds[0] + slope * (n - counts[0])


def _row(kind: str, goal: float, us: tuple, them: dict, exact: float) -> Row:
    recall, wall, cpu = us
    row: Row = {"data": kind, "wanted": goal}
    row |= {"recall": f"{recall:.4f}", "snaps s": wall, "snaps cpu s": cpu}
    best_wall, best_cpu = [], []
    for name, results in them.items():
        if goal in results:
            reached, their_wall, their_cpu = results[goal]
            row[f"{name} s"] = f"{their_wall:.3g} ({reached:.3f})"
            row[f"{name} cpu s"] = f"{their_cpu:.3g}"
            best_wall.append(their_wall)
            best_cpu.append(their_cpu)
        else:
            row |= {f"{name} s": "not reached", f"{name} cpu s": ""}
    row["best / snaps"] = min(best_wall) / wall
    row["best / snaps, cpu"] = min(best_cpu) / cpu
    row["sklearn exact s"] = exact
    return row
