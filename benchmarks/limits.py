"""How far TorchCP's SNAPS goes on one machine: seconds and memory by the number of nodes.

One measurement, in a process of its own: python -m benchmarks.limits torchcp 10000
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import snaps
from snaps.cli._resources import peak_memory
from snaps.datasets import make_graph

SMALL, FULL = (5_000, 10_000), (5_000, 10_000, 20_000, 40_000, 80_000)
NUM_CLASSES, NUM_FEATURES = 47, 100
Row = dict[str, float | str]


def run(full: bool) -> list[Row]:
    """Until it fails: from probabilities to sets, similar nodes included, both with weights 1/3."""
    rows: list[Row] = []
    for nodes in FULL if full else SMALL:
        ours, theirs = _measured("snaps", nodes), _measured("torchcp", nodes)
        row: Row = {"nodes": f"{nodes:,}", "snaps s": ours["seconds"], "snaps GB": ours["GB"]}
        if "seconds" in theirs:
            row |= {"TorchCP s": f"{theirs['seconds']:.3g}", "TorchCP GB": f"{theirs['GB']:.3g}"}
            row["TorchCP / snaps"] = f"{theirs['seconds'] / ours['seconds']:.3g}"
        else:
            row |= {"TorchCP s": str(theirs["failed"]), "TorchCP GB": "", "TorchCP / snaps": ""}
        rows.append(row)
    return rows


def _measured(tool: str, nodes: int) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.limits", tool, str(nodes)]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root)
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines:
        return json.loads(lines[-1])
    if tool == "snaps":
        raise RuntimeError(done.stderr)
    short = "memory" in done.stderr or done.returncode < 0
    return {"failed": "out of memory" if short else done.stderr.strip().rpartition("\n")[2][:60]}


def main(tool: str, nodes: int) -> None:
    """Once on a small graph, then on the one that counts."""
    from benchmarks import peers

    peers.stand_in()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if tool == "torchcp":
        import torch
        from torchcp.graph.score import SNAPS  # noqa: F401 - so that importing it is not counted

        torch.set_num_threads(os.cpu_count() or 1)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    for size in (2000, nodes):
        subject = _subject(size)
        began = time.perf_counter()
        if tool == "torchcp":
            peers.torchcp_snaps(subject)
        else:
            peers.ours(subject, snaps.SNAPS(peers.ALPHA, weights=(1 / 3, 1 / 3)))
        seconds = time.perf_counter() - began
    peak = (peak_memory() or 0) / 1e9
    print(json.dumps({"seconds": seconds, "GB": peak}))


def _subject(nodes: int) -> SimpleNamespace:
    data = make_graph(nodes, NUM_CLASSES, degree=10, features="dense", num_features=NUM_FEATURES)
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(nodes, NUM_CLASSES))
    logits[np.arange(nodes), data.labels] += 2
    probs = np.exp(logits)
    probs /= probs.sum(axis=1, keepdims=True)
    train, calib, test = np.split(rng.permutation(nodes), [300, 1300])
    return SimpleNamespace(
        graph=data.graph, labels=data.labels, probs=probs, train=train, calib=calib, test=test
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
