"""Large graphs: the whole command, aggregation and growth. python -m benchmarks.scale [--full]"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from benchmarks import made
from benchmarks.made import PRODUCTS, Shape
from snaps.kernels.aggregation import neighbour_mean
from snaps.kernels.threads import num_threads

Row = dict[str, float | str]
ROWS, COLUMNS = 512, 640  # of a tile that stays in the cache
PART = 10  # the bare product is timed on one of so many rows
SMALL, FULL = (25_000, 50_000, 100_000), (100_000, 250_000, 2_449_029)
M = 80_000


def bare_product(shape: Shape, candidates: int) -> float:
    """Seconds of nodes x features x candidates in float32, tile by tile in all threads."""
    rng = np.random.default_rng(0)
    right = rng.standard_normal((candidates, shape.features), dtype=np.float32)
    left = rng.standard_normal((shape.nodes // PART, shape.features), dtype=np.float32)

    def work(first: int) -> None:
        rows = left[first : first + ROWS]
        for column in range(0, candidates, COLUMNS):
            rows @ right[column : column + COLUMNS].T

    began = time.perf_counter()
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(num_threads()) as pool:
        list(pool.map(work, range(0, len(left), ROWS)))
    return (time.perf_counter() - began) * shape.nodes / len(left)


def predict(folder: Path, *options: str) -> dict[str, Any]:
    """What `snaps predict` reports of a folder."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "snaps.cli", "predict", str(folder), "--json"]
        done = subprocess.run(
            [*command, "--out", f"{out}/sets.parquet", *options],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    return json.loads(done.stdout)


def pipeline(shape: Shape, folder: Path, ways: dict[str, Sequence[str]]) -> list[Row]:
    """One row per way to find neighbours: the command beside the bare product with M candidates."""
    if not folder.exists():
        made.write(folder, shape)
    candidates = min(M, shape.nodes // 5)
    rows: list[Row] = []
    for name, options in ways.items():
        before = bare_product(shape, candidates)
        told = predict(folder, *(each.format(M=candidates) for each in options))
        bare = min(before, bare_product(shape, candidates))
        seconds = told["seconds"]
        recall = told["neighbours"].get("similar", {}).get("recall", 1.0)
        rows.append(
            {
                "nodes": f"{shape.nodes:,}",
                "edges": f"{shape.edges:,}",
                "way": name.format(M=candidates),
                "recall": recall,
                **{stage: seconds.get(stage, 0.0) for stage in STAGES},
                "total s": seconds["total"],
                "bare product s": bare,
                "ratio": seconds["total"] / bare,
                "GB": (told["peak_memory"] or 0) / 1e9,
                "coverage": told["coverage"],
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


STAGES = ("reading", "similarity", "propagation", "tuning", "scores", "writing", "summary")
WAYS = {
    "SNAPS, {M} candidates": ("--candidates", "{M}"),
    "SNAPS, all nodes": ("--neighbours", "approximate"),
}
POOLED = {"Pooled, all nodes": ("--method", "pooled", "--neighbours", "approximate")}


def _best(work: Callable[[], Any], repeats: int = 3) -> float:
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def aggregation(nodes: int, entries: int, classes: int = 47) -> Row:
    """Means over neighbours beside SciPy, torch, DuckDB and the bandwidth of a copy."""
    import duckdb
    import torch

    torch.set_num_threads(num_threads())
    rng = np.random.default_rng(0)
    indptr = np.concatenate([[0], np.cumsum(rng.poisson(entries / nodes, nodes))])
    indices = rng.integers(nodes, size=indptr[-1], dtype=np.int32)
    ones = np.ones(len(indices), np.float32)
    matrix = sp.csr_array((ones, indices, indptr.astype(np.int32)), shape=(nodes, nodes))
    table = rng.random((nodes, classes))
    neighbour_mean(matrix[:10], table, table[:10])
    ours = _best(lambda: neighbour_mean(matrix, table))
    double = matrix.astype(np.float64)
    scipy = _best(lambda: double @ table, 2)
    parts = (torch.from_numpy(part) for part in (double.indptr, double.indices, double.data))
    weights, features = torch.sparse_csr_tensor(*parts, size=matrix.shape), torch.from_numpy(table)
    theirs = _best(lambda: weights @ features)
    copy = np.empty_like(table)
    bandwidth = 2 * table.nbytes / _best(lambda: np.copyto(copy, table)) / 1e9
    few = min(4, classes)  # SQL writes a sum a class: some of them, scaled up
    edges = {"src": np.repeat(np.arange(nodes, dtype=np.int32), np.diff(indptr)), "dst": indices}
    nodes_ = {"id": np.arange(nodes, dtype=np.int32)} | {f"c{y}": table[:, y] for y in range(few)}
    import pyarrow as pa

    database = duckdb.connect(config={"threads": num_threads()})
    database.register("edges", pa.table(edges))
    database.register("nodes", pa.table(nodes_))
    sums = ", ".join(f"avg(c{y})" for y in range(few))
    query = f"select src, {sums} from edges join nodes on dst = id group by src"
    sql = _best(lambda: database.sql(query).fetchnumpy(), 1) * classes / few
    gathered = len(indices) * (classes * 8 + 8) + table.nbytes
    return {
        "nodes": f"{nodes:,}",
        "entries": f"{len(indices):,}",
        "snaps s": ours,
        "SciPy s": scipy,
        "torch s": theirs,
        "DuckDB s": sql,
        "SciPy / snaps": scipy / ours,
        "torch / snaps": theirs / ours,
        "snaps GB/s": gathered / ours / 1e9,
        "copy GB/s": bandwidth,
    }


def growth(sizes: Sequence[int], root: Path) -> list[Row]:
    """The command from small to large graphs of the same shape; time per node and per edge."""
    rows = []
    for nodes in sizes:
        shape = PRODUCTS.scaled(nodes)
        (row,) = pipeline(shape, root / str(nodes), {"SNAPS, all nodes": WAYS["SNAPS, all nodes"]})
        edge = (row["reading"] + row["scores"]) / shape.edges * 1e9
        rest = row["total s"] - row["reading"] - row["scores"] - row["tuning"]
        row |= {"ns per edge": edge, "us per node": rest / nodes * 1e6}
        rows.append(row)
    return rows


def run(full: bool, folder: Path | None = None) -> dict[str, list[Row]]:
    """All tables by title."""
    os.environ.setdefault("OMP_NUM_THREADS", str(num_threads()))
    with tempfile.TemporaryDirectory() as temporary:
        root = folder or Path(temporary)
        sizes = FULL if full else SMALL
        shape = PRODUCTS.scaled(sizes[-1])
        big = root / str(sizes[-1])
        made.write(root / "warm", PRODUCTS.scaled(3000))
        predict(root / "warm", "--method", "pooled", "--neighbours", "approximate")
        entries = 25_000_000 if full else 2_000_000
        tables = {
            "Means over neighbours": [aggregation(entries // 50, entries)],
            "From a folder to sets": pipeline(shape, big, {**WAYS, **POOLED}),
            "Growth": growth(sizes, root),
        }
        if full:
            tables["Means over neighbours"].append(aggregation(PRODUCTS.nodes, 2 * PRODUCTS.edges))
        return tables


if __name__ == "__main__":
    from benchmarks.__main__ import show

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="OGBN-Products' shape; takes an hour")
    parser.add_argument("--folder", type=Path, help="Keep the graphs here, or take those here.")
    chosen = parser.parse_args()
    for title, rows in run(chosen.full, chosen.folder).items():
        show(title, rows)
