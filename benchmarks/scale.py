"""Large graphs: the whole command, means over neighbours, growth, and where TorchCP stops."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

import snaps
from benchmarks import limits, made
from benchmarks.made import PRODUCTS, Shape
from snaps._kernels.aggregation import neighbour_mean
from snaps._runtime.threads import num_threads
from snaps.cli import _resources
from snaps.cli._resources import peak_memory
from snaps.folder import read_folder

Row = dict[str, float | str]
ROWS, COLUMNS = 512, 640  # of a tile that stays in the cache
PART = 10  # the bare product is timed on one of so many rows
SMALL, FULL = (10_000, 20_000, 40_000), (250_000, 750_000, 2_449_029)
M = 80_000
SAMPLED = snaps.SNAPS(candidates=M)
PAPERS = Shape(111_059_956, 1_615_685_872, 128, 172)


def bare_product(shape: Shape, candidates: int) -> tuple[float, float]:
    """Seconds, and those of all processors, of nodes x features x candidates in float32.

    Tile by tile in all threads, the fastest way we know; from one of `PART` of the rows.
    """
    rng = np.random.default_rng(0)
    right = rng.standard_normal((candidates, shape.features), dtype=np.float32)
    left = rng.standard_normal((shape.nodes // PART, shape.features), dtype=np.float32)

    def work(first: int) -> None:
        rows = left[first : first + ROWS]
        for column in range(0, candidates, COLUMNS):
            rows @ right[column : column + COLUMNS].T

    began, used = time.perf_counter(), time.process_time()
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(num_threads()) as pool:
        list(pool.map(work, range(0, len(left), ROWS)))
    more = shape.nodes / len(left)
    return (time.perf_counter() - began) * more, (time.process_time() - used) * more


def predict(folder: Path, *options: str) -> dict[str, Any]:
    """What `snaps predict` reports of a folder, and the seconds of all processors it took."""
    used = _of_children()
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "snaps", "predict", str(folder), "--json"]
        done = subprocess.run(
            [*command, "--out", f"{out}/sets.parquet", *options],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    return {**json.loads(done.stdout), "cpu": _of_children() - used}


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def pipeline(shape: Shape, folder: Path, ways: dict[str, Sequence[str]]) -> list[Row]:
    """A row per way to find neighbours: the command, and the bare product with M candidates."""
    if not folder.exists():
        made.write(folder, shape)
    rows: list[Row] = []
    for name, options in ways.items():
        rows.append(_measured(shape, folder, name, min(M, shape.nodes // 5), *options).copy())
    return rows


@cache
def _measured(shape: Shape, folder: Path, name: str, candidates: int, *options: str) -> Row:
    before = bare_product(shape, candidates)
    printed = predict(folder, *(each.format(M=candidates) for each in options))
    bare, bare_cpu = map(min, before, bare_product(shape, candidates))
    seconds = printed["seconds"]
    row: Row = {
        "nodes": f"{shape.nodes:,}",
        "edges": f"{shape.edges:,}",
        "way": name.format(M=f"{candidates:,}"),
        "recall": printed["neighbours"].get("similar", {}).get("recall", 1.0),
        **{stage: seconds.get(stage, 0.0) for stage in STAGES},
        "total s": seconds["total"],
        "bare product s": bare,
        "ratio": seconds["total"] / bare,
        "cpu s": printed["cpu"],
        "ratio, cpu": printed["cpu"] / bare_cpu,
        "GB": (printed["peak_memory"] or 0) / 1e9,
        "coverage": printed["coverage"],
    }
    print(row, file=sys.stderr, flush=True)
    return row


STAGES = (
    "reading", "similarity", "propagation", "regression", "tuning", "scores", "calibration", "sets",
    "writing", "summary",
)  # fmt: skip
WAYS = {
    "SNAPS, {M} candidates": ("--candidates", "{M}"),
    "SNAPS, all nodes": ("--neighbours", "approximate"),
    "Pooled, all nodes": ("--neighbours", "approximate", "--method", "pooled"),
}


def _timed(work: Callable[[], Any], repeats: int = 3) -> tuple[float, float]:
    """The fewest seconds, and of all processors."""
    seconds = []
    for _ in range(repeats):
        began, used = time.perf_counter(), time.process_time()
        work()
        seconds.append((time.perf_counter() - began, time.process_time() - used))
    return min(wall for wall, _ in seconds), min(cpu for _, cpu in seconds)


def _best(work: Callable[[], Any], repeats: int = 3) -> float:
    return _timed(work, repeats)[0]


def aggregation(nodes: int, entries: int, classes: int = 47) -> list[Row]:
    """Means over neighbours compared with SciPy, torch, DuckDB and the bandwidth of a copy.

    All of them on tables in double precision, and in single precision, as `snaps` averages scores;
    its sums are double in both.
    """
    import torch

    torch.set_num_threads(num_threads())
    rng = np.random.default_rng(0)
    indptr = np.concatenate([[0], np.cumsum(rng.poisson(entries / nodes, nodes))])
    indices = rng.integers(nodes, size=indptr[-1], dtype=np.int32)
    ones = np.ones(len(indices), np.float32)
    matrix = sp.csr_array((ones, indices, indptr.astype(np.int32)), shape=(nodes, nodes))
    own = rng.random((nodes, classes))
    rows: list[Row] = []
    for numbers, kind in (("double", np.float64), ("single", np.float32)):
        table, peer = own.astype(kind), matrix.astype(kind)
        neighbour_mean(matrix[:10], table, own[:10])
        ours, ours_cpu = _timed(lambda table=table: neighbour_mean(matrix, table, own))
        neighbour_mean(matrix[:10], table, own[:10], exact=True)
        exact, exact_cpu = _timed(
            lambda table=table: neighbour_mean(matrix, table, own, exact=True)
        )
        scipy, scipy_cpu = _timed(lambda peer=peer, table=table: peer @ table, 2)
        parts = (torch.from_numpy(part) for part in (peer.indptr, peer.indices, peer.data))
        weights = torch.sparse_csr_tensor(*parts, size=matrix.shape)
        features = torch.from_numpy(table)
        theirs, theirs_cpu = _timed(lambda one=weights, other=features: one @ other)
        copy = np.empty_like(table)
        bandwidth = 2 * table.nbytes / _best(lambda to=copy, of=table: np.copyto(to, of)) / 1e9
        fetched = len(indices) * (classes * table.itemsize + 8) + own.nbytes
        sql = f"{_by_sql(matrix, own):.3g}" if kind is np.float64 else ""
        rows.append(
            {
                "nodes": f"{nodes:,}",
                "entries": f"{len(indices):,}",
                "numbers": numbers,
                "snaps s": ours,
                "exact sums s": exact,
                "SciPy s": scipy,
                "torch s": theirs,
                "DuckDB s": sql,
                "SciPy / snaps": scipy / ours,
                "torch / snaps": theirs / ours,
                "torch / exact": theirs / exact,
                "exact / snaps, cpu": exact_cpu / ours_cpu,
                "SciPy / snaps, cpu": scipy_cpu / ours_cpu,
                "torch / snaps, cpu": theirs_cpu / ours_cpu,
                "snaps GB/s": fetched / ours / 1e9,
                "copy GB/s": bandwidth,
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def _by_sql(matrix: sp.csr_array, table: np.ndarray) -> float:
    """Seconds of DuckDB. SQL writes a sum a class: some of them, scaled up."""
    import duckdb
    import pyarrow as pa

    nodes, classes = table.shape
    few = min(4, classes)
    sources = np.repeat(np.arange(nodes, dtype=np.int32), np.diff(matrix.indptr))
    rows = {"id": np.arange(nodes, dtype=np.int32)} | {f"c{y}": table[:, y] for y in range(few)}
    database = duckdb.connect(config={"threads": num_threads()})
    database.register("edges", pa.table({"src": sources, "dst": matrix.indices}))
    database.register("nodes", pa.table(rows))
    sums = ", ".join(f"avg(c{y})" for y in range(few))
    query = f"select src, {sums} from edges join nodes on dst = id group by src"
    return _best(lambda: database.sql(query).fetchnumpy(), 1) * classes / few


def growth(sizes: Sequence[int], root: Path) -> list[Row]:
    """The command from small to large graphs of the same shape, with the same number of candidates.

    Time per edge is that of reading and of means over neighbours, time per node all of it but
    tuning.
    """
    candidates, rows = min(M, sizes[0] // 3), []
    (name,) = (name for name in WAYS if "{M}" in name)
    for nodes in sizes:
        shape, folder = PRODUCTS.scaled(nodes), root / str(nodes)
        if not folder.exists():
            made.write(folder, shape)
        row = _measured(shape, folder, name, candidates, *WAYS[name])
        edge = (row["reading"] + row["scores"]) / shape.edges * 1e9
        node = (row["total s"] - row["tuning"]) / nodes * 1e6
        rows.append({"nodes": row["nodes"], "edges": row["edges"], "way": row["way"]})
        kept = ("reading", "similarity", "tuning", "scores", "writing", "total s", "GB")
        rows[-1] |= {each: row[each] for each in kept}
        rows[-1] |= {"ns per edge": edge, "us per node": node}
    return rows


def splits(sizes: Sequence[int], root: Path) -> list[Row]:
    """Tuning and 100 splits of all nodes, each size in a process of its own."""
    rows = []
    for nodes in sizes:
        folder = root / str(nodes)
        if not folder.exists():
            made.write(folder, PRODUCTS.scaled(nodes))
        command = [sys.executable, "-m", "benchmarks.scale", str(folder)]
        root_ = Path(__file__).parents[1]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root_)
        rows.append({"nodes": f"{nodes:,}", **json.loads(done.stdout)})
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def _splits(folder: Path) -> Row:
    """SNAPS with few candidates, so that it is the splits that take time."""
    data = read_folder(folder)
    nodes = np.arange(data.graph.num_nodes)
    method = snaps.SNAPS(0.05, candidates=2000)
    seconds = []
    for count in (1, 1, 101):  # compiles, then counts
        began = time.perf_counter()
        result = snaps.evaluate_splits(
            method, data.graph, data.probs, data.labels, nodes, len(nodes) // 2, n_splits=count
        )
        seconds.append(time.perf_counter() - began)
    return {
        "calibration nodes": f"{len(nodes) // 2:,}",
        "first split s": seconds[1],
        "a further split s": (seconds[2] - seconds[1]) / 100,
        "ns per node and split": (seconds[2] - seconds[1]) / 100 / len(nodes) * 1e9,
        "GB": (peak_memory() or 0) / 1e9,
        "coverage": float(result["coverage"].mean()),
        "size": float(result["size"].mean()),
    }


def capacity() -> list[Row]:
    """How many nodes of Products' shape a machine takes, by the formula of `snaps predict`."""

    def most(limit: float, mapped: bool, method: Any) -> float:
        low, high = 0, 10**10
        while high - low > 1000:
            middle = (low + high) // 2
            fits = _memory(PRODUCTS.scaled(middle), method)[mapped] <= limit
            low, high = (middle, high) if fits else (low, middle)
        return low / 1e6

    rows: list[Row] = []
    for size in (16, 64, 256):
        limit = 0.9 * size * 1e9
        rows.append(
            {
                "machine": f"{size} GB",
                "SNAPS, M nodes": most(limit, False, SAMPLED),
                "SNAPS, mapped": most(limit, True, SAMPLED),
                "all nodes, M": most(limit, False, snaps.SNAPS()),
                "all nodes, mapped": most(limit, True, snaps.SNAPS()),
                "Pooled, mapped": most(limit, True, snaps.Pooled()),
            }
        )
    return rows


def examples() -> list[Row]:
    """What known graphs take, by the same formula."""
    rows: list[Row] = []
    for name, shape in {"Arxiv": made.ARXIV, "Products": PRODUCTS, "papers100M": PAPERS}.items():
        whole, least = _memory(shape, SAMPLED)
        all_whole, all_least = _memory(shape, snaps.SNAPS())
        rows.append(
            {
                "graph": name,
                "candidates, GB": whole / 1e9,
                "mapped": least / 1e9,
                "all nodes, GB": all_whole / 1e9,
                "mapped ": all_least / 1e9,
                "disk, GB": (shape.nodes * (32 * shape.classes + 8 * shape.features)) / 1e9,
            }
        )
    return rows


def _memory(shape: Shape, method: Any) -> tuple[int, int]:
    features = 4 * shape.nodes * shape.features
    needs = _resources.Shape(shape.nodes, shape.edges, shape.classes, features, shape.features)
    return _resources.needed(needs, method)


def tables(full: bool, folder: Path | None = None) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    """Titles, and who makes the rows."""
    os.environ.setdefault("OMP_NUM_THREADS", str(num_threads()))
    with tempfile.TemporaryDirectory() as temporary:
        root = folder or Path(temporary)
        sizes = FULL if full else SMALL
        shape = PRODUCTS.scaled(sizes[-1])
        entries = 25_000_000 if full else 2_000_000
        links = [(entries // 50, entries)] + ([(shape.nodes, 2 * shape.edges)] if full else [])
        yield "Means over neighbours", lambda: [row for each in links for row in aggregation(*each)]
        warm(root)
        big = root / str(sizes[-1])
        yield "From a folder to sets", lambda: pipeline(shape, big, WAYS)
        yield "Growth", lambda: growth(sizes, root)
        yield "100 splits of large graphs", lambda: splits(sizes, root)
        yield "Nodes that a machine takes, in millions", capacity
        yield "Memory of known graphs", examples
        yield "Where TorchCP stops", lambda: limits.run(full)


def warm(root: Path) -> None:
    """Compile what the commands need."""
    if not (root / "warm").exists():
        made.write(root / "warm", PRODUCTS.scaled(20_000))
    predict(root / "warm", "--method", "pooled", "--neighbours", "approximate")


if __name__ == "__main__":
    print(json.dumps(_splits(Path(sys.argv[1]))))
