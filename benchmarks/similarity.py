"""The similarity graph against scikit-learn, sparse-dot-topn and the authors' dense way."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize
from sparse_dot_topn import sp_matmul_topn

import snaps
from benchmarks.data import load_graph

GRAPHS = (
    "cora_ml",
    "citeseer",
    "pubmed",
    "coauthor_cs",
    "coauthor_physics",
    "amazon_computers",
    "amazon_photo",
    "arxiv_cs",
)
DENSE_WAY = ("cora_ml", "coauthor_cs")  # n x n arrays with a row loop: slow and large
K, THREADS = 20, 2


def authors_way(features: sp.csr_array) -> sp.csr_array:
    """All n x n cosines at once, then row by row keep the k largest."""
    unit = normalize(features).toarray()
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, 0)
    for row in cosines:
        row[np.argsort(row)[:-K]] = 0
    return sp.csr_array(cosines)


def scikit_learn_sparse(features: sp.csr_array) -> Any:
    """Brute-force cosine neighbours of sparse rows."""
    search = NearestNeighbors(n_neighbors=K + 1, metric="cosine", algorithm="brute", n_jobs=THREADS)
    return search.fit(features).kneighbors(features)


def scikit_learn_dense(features: sp.csr_array) -> Any:
    """Unit rows, dense, by Euclidean distance: the same order, and scikit-learn's fastest path."""
    unit = normalize(features).toarray()
    search = NearestNeighbors(n_neighbors=K + 1, algorithm="brute", n_jobs=THREADS)
    return search.fit(unit).kneighbors(unit)


def sparse_dot_topn(features: sp.csr_array) -> Any:
    """The k + 1 largest products of unit rows."""
    unit = sp.csr_matrix(normalize(features))
    return sp_matmul_topn(unit, unit.T.tocsr(), top_n=K + 1, n_threads=THREADS, sort=True)


DENSE_BYTES = 300 * 2**20  # larger tables take scikit-learn minutes and gigabytes


def _bytes(features: sp.csr_array, way: str) -> int:
    """Of the dense copy; of sparse rows, a part of all pairs."""
    n, d = features.shape
    return 8 * n * d if way == "sklearn dense" else n * n // 20


RIVALS: dict[str, Callable[[sp.csr_array], Any]] = {
    "sklearn sparse": scikit_learn_sparse,
    "sklearn dense": scikit_learn_dense,
    "sparse-dot-topn": sparse_dot_topn,
}


def _best(function: Callable[[], Any], repeats: int) -> float:
    """Fewest seconds of so many runs: more of them if they are short, one if they are long."""
    best, began = float("inf"), time.perf_counter()
    while repeats > 0 or time.perf_counter() - began < 1:
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
        repeats -= 1
        if best > 5:
            break
    return best


def run(data_dir: Path) -> list[dict[str, float | str]]:
    """One row a graph: seconds (best of three), ratios to ours, and our memory in MB."""
    rows: list[dict[str, float | str]] = []
    for name in GRAPHS:
        features = load_graph(data_dir, name)[0].features
        snaps.similarity_graph(features, K)
        ours = _best(lambda x=features: snaps.similarity_graph(x, K), 3)
        times = {
            way: _best(lambda f=f, x=features: f(x), 3)
            for way, f in RIVALS.items()
            if way == "sparse-dot-topn" or _bytes(features, way) < DENSE_BYTES
        }
        row: dict[str, float | str] = {"graph": name, "snaps s": ours}
        row |= {f"{way} s": f"{times[way]:.3g}" if way in times else "" for way in RIVALS}
        row["best rival / snaps"] = min(times.values()) / ours
        dense = _best(lambda x=features: authors_way(x), 3) if name in DENSE_WAY else None
        row["authors' way s"] = "" if dense is None else f"{dense:.3g}"
        row["authors' way / snaps"] = "" if dense is None else f"{dense / ours:.3g}"
        row |= memory(data_dir, name)
        rows.append(row)
    return rows


def memory(data_dir: Path, name: str) -> dict[str, float]:
    """Peak memory beyond what was there before, in a fresh process; and input + output."""
    command = [sys.executable, "-m", "benchmarks.similarity", str(data_dir), name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def _measure(data_dir: Path, name: str) -> dict[str, float]:
    features = load_graph(data_dir, name)[0].features
    for small in (features[:300], features[:300].toarray()):
        snaps.similarity_graph(small, K)
    before = _peak(reset=True)
    graph = snaps.similarity_graph(features, K)
    extra = _peak() - before
    size = sum(a.nbytes for m in (features, graph) for a in (m.data, m.indices, m.indptr))
    return {"extra MB": extra, "input + output MB": size / 2**20}


def _peak(reset: bool = False) -> float:
    """Highest resident memory of this process in MB, since the last reset."""
    status = Path("/proc/self/status").read_text()
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


if __name__ == "__main__":
    print(json.dumps(_measure(Path(sys.argv[1]), sys.argv[2])))
