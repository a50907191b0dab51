"""Tuning and 100 splits of SNAPS, against a plain transcription of the authors' way.

Theirs builds the sparse matrix and makes both products again for each of the 231 grid points, in
torch, and loops over the splits. "CSR" is the same with the two products by SciPy's CSR matrices.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

import snaps
from benchmarks.data import load_graph
from snaps.models import smoothed_regression

GRAPHS = ("cora_ml", "coauthor_cs")
ALPHA, SPLITS, BUDGET, TUNE = 0.05, 100, 1000, 500

Mix = Callable[[float, float], torch.Tensor]


def torch_mix(scores: torch.Tensor, similar: sp.csr_array, linked: sp.csr_array) -> Mix:
    """Mixed scores as the authors compute them: everything again at each call."""
    n = len(scores)
    edge_index = torch.from_numpy(np.stack(linked.tocoo().coords).astype(np.int64))
    near = _row_normalised(similar).tocoo()
    neighbours = torch.sparse_coo_tensor(
        np.stack(near.coords).astype(np.int64),
        near.data.astype(np.float32),
        near.shape,
        check_invariants=False,
    )

    def mix(lam: float, mu: float) -> torch.Tensor:
        links = torch.sparse_coo_tensor(
            edge_index, torch.ones(edge_index.shape[1]), (n, n), check_invariants=False
        )
        degree = links @ torch.ones(n)
        by_link = (links @ scores) / (degree + 1e-10)[:, None]
        return (1 - lam - mu) * scores + lam * (neighbours @ scores) + mu * by_link

    return mix


def csr_mix(scores: torch.Tensor, similar: sp.csr_array, linked: sp.csr_array) -> Mix:
    """The same with the matrices built once, as SciPy CSR."""
    table = scores.numpy()
    similar, linked = _row_normalised(similar), _row_normalised(linked)

    def mix(lam: float, mu: float) -> torch.Tensor:
        mixed = (1 - lam - mu) * table + lam * (similar @ table) + mu * (linked @ table)
        return torch.from_numpy(mixed)

    return mix


def _row_normalised(matrix: sp.csr_array) -> sp.csr_array:
    total = np.asarray(matrix.sum(axis=1)).reshape(-1)
    return (sp.diags_array(1 / np.maximum(total, 1e-10)) @ matrix).tocsr()


def plain_way(mix: Mix, labels: torch.Tensor, pool: torch.Tensor) -> np.ndarray:
    """Try every pair of weights on 500 nodes, then evaluate splits of the rest one by one."""
    pool = pool[torch.randperm(len(pool))]
    tune, rest = pool[:TUNE], pool[TUNE:]
    best = (math.inf, 0.0, 0.0)
    for lam in np.arange(0, 1.01, 0.05):
        for mu in np.arange(0, 1.01 - lam, 0.05):
            scores = mix(lam, mu)
            threshold = _quantile(scores[tune], labels[tune])
            best = min(best, (_sizes(scores[tune], threshold).float().mean().item(), lam, mu))
    scores = mix(*best[1:])
    results = []
    for _ in range(SPLITS):
        order = rest[torch.randperm(len(rest))]
        calib, test = order[: BUDGET - TUNE], order[BUDGET - TUNE :]
        threshold = _quantile(scores[calib], labels[calib])
        sizes = _sizes(scores[test], threshold)
        hit = scores[test, labels[test]] <= threshold
        results.append(
            (
                hit.float().mean().item(),
                sizes.float().mean().item(),
                (hit & (sizes == 1)).float().mean().item(),
            )
        )
    return np.array(results)


def _quantile(scores: torch.Tensor, labels: torch.Tensor) -> float:
    own = scores[torch.arange(len(labels)), labels]
    return torch.sort(own)[0][math.ceil((1 - ALPHA) * (len(own) + 1)) - 1].item()


def _sizes(scores: torch.Tensor, threshold: float) -> torch.Tensor:
    return (scores <= threshold).sum(dim=1)


def run(data_dir: Path) -> list[dict[str, float | str]]:
    """One row a graph: seconds of each way, and ratios."""
    rows: list[dict[str, float | str]] = []
    for name in GRAPHS:
        graph, labels = load_graph(data_dir, name)
        order = np.random.default_rng(0).permutation(graph.num_nodes)
        train, pool = order[:300], order[300:]
        probs = smoothed_regression(graph, labels, train)
        similar = snaps.similarity_graph(graph.features)
        cp = snaps.SplitConformal(ALPHA).calibrate(None, probs, labels, pool[:BUDGET])
        scores = torch.from_numpy(cp.scores_.astype(np.float32))
        method = snaps.SNAPS(ALPHA)
        arguments = (method, graph, probs, labels, pool, BUDGET, SPLITS, 0, similar)
        result = snaps.evaluate_splits(*arguments)
        ours = _best(lambda a=arguments: snaps.evaluate_splits(*a))
        row: dict[str, float | str] = {"graph": name, "snaps s": ours}
        row["size"] = float(result["size"].mean())
        for way, build in (("authors' way", torch_mix), ("CSR", csr_mix)):
            mix = build(scores, similar, graph.adjacency)

            def plain(m: Any = mix, y: Any = labels, p: Any = pool) -> np.ndarray:
                return plain_way(m, torch.from_numpy(y), torch.from_numpy(p))

            size, seconds = plain()[:, 1].mean(), _best(plain)
            row |= {f"{way} s": seconds, f"{way} size": size}
            row[f"{way} / snaps"] = seconds / ours
        rows.append(row)
    return rows


def _best(function: Callable[[], Any]) -> float:
    """Fewest seconds of the runs that two seconds allow, at least of one."""
    best, began = float("inf"), time.perf_counter()
    while time.perf_counter() - began < 2:
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best
