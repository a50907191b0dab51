"""Spark on one machine compared with the local engine: time, memory, bytes shuffled, workers, skew.

One measurement by itself, in a process of its own: python -m benchmarks.spark FOLDER --workers 2
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import snaps
from benchmarks.data import load_graph
from snaps.cli._resources import peak_memory
from snaps.folder import read_folder, write_folder
from snaps.models import smoothed_regression
from snaps.predictor.estimator import method_of

NUM_CLASSES, NUM_FEATURES, LINKS, CANDIDATES = 10, 16, 5, 2000
GRAPHS = ("cora_ml", "coauthor_cs", "amazon_computers")
METHODS = ("SNAPS", "DAPS", "Pooled")
FITTING = ("own", "linked", "two_hop", "similar")
SIZES = (100_000, 500_000, 2_000_000)
SKEWED, SMALL = 100_000, 20_000
# Small graphs are over before optimised code has paid for itself.
SHORT = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
PART = 250_000  # nodes or edges a file
WIDE = 47, 100  # classes and features of a graph that no executor holds


def make_folder(
    root: Path,
    num_nodes: int,
    *,
    classes: int = NUM_CLASSES,
    dim: int = NUM_FEATURES,
    hub: float = 0.0,
) -> Path:
    """A synthetic graph as a folder of part files; a hub takes edges from others, and adds none."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, num_nodes)
    centres = rng.normal(size=(classes, dim))
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(classes + 1))
    for name in ("nodes", "edges"):
        (root / f"{name}.parquet").mkdir(parents=True)
    for part, start in enumerate(range(0, num_nodes, PART)):
        ids = np.arange(start, min(start + PART, num_nodes))
        own = labels[ids]
        logits = rng.normal(size=(len(ids), classes))
        logits[np.arange(len(ids)), own] += 2
        probs = np.exp(logits)
        probs /= probs.sum(axis=1, keepdims=True)
        features = centres[own] + 2 * rng.normal(size=(len(ids), dim))
        roles = np.where(ids < 2000, "calib", "test")
        columns = {
            "id": pa.array(ids),
            "probs": _lists(probs.astype(np.float32)),
            "features": _lists(features.astype(np.float32)),
            "label": pa.array(own),
            "role": pa.array(roles),
        }
        pq.write_table(pa.table(columns), root / "nodes.parquet" / f"{part}.parquet")
    total, spokes = LINKS * num_nodes, int(hub * num_nodes)
    for part, start in enumerate(range(0, total, PART)):
        place = np.arange(start, min(start + PART, total))
        src = rng.integers(0, num_nodes, len(place))
        # Seven of ten edges stay within a class.
        within = order[
            (starts[labels[src]] + rng.random(len(src)) * np.diff(starts)[labels[src]]).astype(int)
        ]
        dst = np.where(rng.random(len(src)) < 0.7, within, rng.integers(0, num_nodes, len(src)))
        spoke = place < spokes
        src[spoke], dst[spoke] = 0, 1 + place[spoke] % (num_nodes - 1)
        table = pa.table({"src": src, "dst": dst})
        pq.write_table(table, root / "edges.parquet" / f"{part}.parquet")
    return root


def _lists(table: np.ndarray) -> pa.Array:
    offsets = np.arange(len(table) + 1, dtype=np.int32) * table.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(table.reshape(-1)))


def run(data_dir: Path, sizes: tuple[int, ...] = SIZES) -> list[dict[str, float | str]]:
    """Time and memory of both engines, each measurement in a process of its own."""
    rows = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as room:
            folder = make_folder(Path(room) / "graph", size)
            small = make_folder(Path(room) / "small", SMALL)
            local, one, two = (measure(folder, w, f"{room}/{w}", first=small)[0] for w in (0, 1, 2))
            sets = [_sets(f"{room}/{w}-SNAPS") for w in (0, 1, 2)]
            same = sets[0] == sets[1] == sets[2]
            rows.append({
                "graph": f"{size:,} nodes, {LINKS * size:,} edges",
                "local s": local["seconds"], "local GB": local["gigabytes"],
                "1 worker s": one["seconds"], "2 workers s": two["seconds"],
                "processor s": two["processor"],
                "shuffled bytes an edge": two["shuffled"] / (LINKS * size),
                "same sets": "yes" if same else "NO",
            })  # fmt: skip
    return rows


def larger(data_dir: Path, size: int = SIZES[-1], workers: int = 2) -> list[dict[str, float | str]]:
    """A graph that is larger than the memory of an executor."""
    with tempfile.TemporaryDirectory() as room:
        folder = make_folder(Path(room) / "graph", size, classes=WIDE[0], dim=WIDE[1])
        small = make_folder(Path(room) / "small", SMALL, classes=WIDE[0], dim=WIDE[1])
        local, spark = (measure(folder, w, f"{room}/{w}", first=small)[0] for w in (0, workers))
        same = _sets(f"{room}/0-SNAPS") == _sets(f"{room}/{workers}-SNAPS")
        held = size * (4 * sum(WIDE) + 16 * LINKS)
        return [{
            "graph": f"{size:,} nodes, {LINKS * size:,} edges, {WIDE[0]} classes",
            "graph GB": held / 1e9, "an executor GB": 2**30 / 1e9,
            "local s": local["seconds"], "local GB": local["gigabytes"],
            f"{workers} workers s": spark["seconds"],
            "shuffled bytes an edge": spark["shuffled"] / (LINKS * size),
            "same sets": "yes" if same else "NO",
        }]  # fmt: skip


def skew(data_dir: Path, size: int = SKEWED) -> list[dict[str, float | str]]:
    """The same number of edges without and with one node that is linked to 30 % of all others."""
    rows = []
    for hub in (0.0, 0.3):
        with tempfile.TemporaryDirectory() as room:
            folder = make_folder(Path(room) / "graph", size, hub=hub)
            (found,) = measure(folder, 2, f"{room}/sets", first=folder)
            name = f"a hub with {hub:.0%} of the nodes" if hub else "no hub"
            rows.append({"graph": f"{size:,} nodes, {name}", "2 workers s": found["seconds"]})
    return rows


def agree(data_dir: Path) -> list[dict[str, float | str]]:
    """Whether both engines say the same of real graphs; similar nodes are searched among all."""
    rows = []
    for name in GRAPHS:
        graph, labels = load_graph(data_dir, name)
        order = np.random.default_rng(0).permutation(len(labels))
        by_class = [order[labels[order] == y] for y in range(labels.max() + 1)]
        train = np.concatenate([nodes[:20] for nodes in by_class])
        rest = np.setdiff1d(order, train, assume_unique=True)
        roles = np.full(len(labels), "test", "U5")
        roles[train], roles[rest[:1000]] = "train", "calib"
        probs = smoothed_regression(graph, labels, train)
        with tempfile.TemporaryDirectory() as room:
            write_folder(f"{room}/graph", graph, probs, labels, roles)
            both = (
                measure(Path(room) / "graph", workers, f"{room}/{workers}", METHODS, 0)
                for workers in (0, 2)
            )
            for method, local, spark in zip(METHODS, *both, strict=True):
                row: dict[str, float | str] = {"graph": name, "method": method}
                for what in ("weights", "threshold", "scores"):
                    row[f"same {what}"] = "yes" if local[what] == spark[what] else "NO"
                ours, theirs = (_sets(f"{room}/{workers}-{method}") for workers in (0, 2))
                row |= {
                    "sets": str(len(ours)),
                    "same sets": "yes" if ours == theirs else "NO",
                }
                rows.append(row)
    return rows


def measure(
    folder: Path,
    workers: int,
    out: str,
    methods: Sequence[str] = ("SNAPS",),
    candidates: int = CANDIDATES,
    first: Path | None = None,
) -> list[dict[str, Any]]:
    """One process that runs some methods; no workers is the local engine.

    What is compiled while a `first` graph is scored is not counted.
    """
    command = [sys.executable, "-m", "benchmarks.spark", str(folder), *methods, "--out", out]
    command += ["--workers", str(workers), "--candidates", str(candidates)]
    command += ["--first", str(first)] if first else []
    root = Path(__file__).parents[1]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, cwd=root)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _sets(path: str) -> pa.Table:
    table = pq.read_table(path).sort_by("id")
    return table.combine_chunks()


def _method(name: str, candidates: int) -> Any:
    if name == "DAPS":
        return snaps.DAPS(0.1)
    if name == "Pooled":
        return snaps.Pooled(0.1, parts=FITTING, candidates=candidates or None)
    return snaps.SNAPS(0.1, candidates=candidates or None)


def _local(folder: Path, out: str, method: Any) -> dict[str, Any]:
    start = time.perf_counter()
    data = read_folder(folder)
    tune, known = data.tuning_and_known(method_of(method).uses_evidence)
    method.calibrate(
        data.graph, data.probs, data.labels, data.nodes("calib"), tune,
        known_nodes=known if method_of(method).uses_evidence else None,
    )  # fmt: skip
    method.predict_set(data.nodes("test")).to_parquet(out)
    seconds = time.perf_counter() - start
    peak = (peak_memory() or 0) / 1e9
    said = _said(method.part_weights_, method.threshold_, method.calib_scores_)
    return {"seconds": seconds, "gigabytes": peak, **said}


def _said(weights: dict[str, float], threshold: float, scores: np.ndarray) -> dict[str, Any]:
    return {"weights": weights, "threshold": threshold, "scores": scores.tobytes().hex()}


def _session(workers: int, short: bool) -> Any:
    import pyspark
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_HOME", pyspark.__path__[0])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local-cluster[{workers},1,1024]")
    for name, value in {
        "spark.executor.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "8",
        **(SHORT if short else {}),
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _on_spark(spark: Any, folder: Path, out: str, method: Any) -> dict[str, Any]:
    from snaps.spark import predict_sets
    from snaps.spark._session import read_frames

    start, before, spent = time.perf_counter(), _shuffled(spark), _processor_seconds()
    found = predict_sets(spark, *read_frames(spark, folder), method)
    fitted = time.perf_counter() - start
    found.write(out)
    seconds, shuffled = time.perf_counter() - start, _shuffled(spark) - before
    said = _said(found.weights, found.threshold, found.calib_scores)
    used = {"fitted": fitted, "shuffled": shuffled, "processor": _processor_seconds() - spent}
    return {"seconds": seconds, **used, **said}


def _shuffled(spark: Any) -> float:
    """Bytes that all executors have written for shuffles so far."""
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(False)  # noqa: SLF001
    return float(sum(executors.apply(i).totalShuffleWrite() for i in range(executors.size())))


def _processor_seconds() -> float:
    """What this process and all below it have used of processors so far."""
    parents, used = {}, {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(place.name)] = int(fields[1])
        used[int(place.name)] = sum(map(int, fields[11:15]))
    total = 0
    for process in used:
        above = process
        while above != os.getpid() and above in parents:
            above = parents[above]
        total += used[process] if above == os.getpid() else 0
    return total / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("methods", nargs="*", default=["SNAPS"], help=", ".join(METHODS))
    parser.add_argument("--workers", type=int, default=2, help="0 is the local engine")
    parser.add_argument("--candidates", type=int, default=CANDIDATES, help="0 is all nodes")
    parser.add_argument("--out", default="sets", help="where sets go, with the method's name")
    parser.add_argument("--first", type=Path, help="a graph to get warm with")
    given = parser.parse_args()
    folder = given.folder.absolute()
    spark = _session(given.workers, not given.candidates) if given.workers else None
    if given.first:
        with tempfile.TemporaryDirectory() as room:
            small = given.first.absolute(), f"{room}/sets", _method("SNAPS", CANDIDATES)
            _ = _on_spark(spark, *small) if spark else _local(*small)
    for name in given.methods:
        method, out = _method(name, given.candidates), f"{os.path.abspath(given.out)}-{name}"
        found = _on_spark(spark, folder, out, method) if spark else _local(folder, out, method)
        print(json.dumps(found), flush=True)
    if spark:
        spark.stop()


if __name__ == "__main__":
    main()
