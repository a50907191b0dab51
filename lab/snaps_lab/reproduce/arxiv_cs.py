"""A larger graph: 116,715 papers of arXiv CS in 40 classes, linked by authors.

It stands where the paper has OGBN-Arxiv, which was not available, and is another graph: other
papers, links by co-authorship instead of citation, words instead of embeddings. The shares of
training, validation and pool are those of OGBN-Arxiv, drawn at random.
"""

from __future__ import annotations

import resource
import time
from dataclasses import replace
from typing import Any

import numpy as np

from snaps.estimators import DAPS, methods
from snaps.graph import Graph
from snaps.models import smoothed_regression
from snaps.predictor.roles import Roles
from snaps.scoring.local import Inputs
from snaps.scoring.parts import Context, Summary
from snaps.splits import Plan
from snaps_lab.reproduce import common, measure, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.runner import Setting
from snaps_lab.reproduce.store import fingerprint

DATASET, PUBLISHED = "arxiv_cs", "ogbn_arxiv"
NAMES = (DATASET,)
MOST_DRAWS = 5
SHARES = (0.54, 0.18)  # train and validate; the rest is the pool, as for OGBN-Arxiv
SPENT = 1000  # labels, half of them to tune, as the paper spends on OGBN-Arxiv
ALPHAS = (0.05, 0.1)
MODELS = ("linear", "mlp", "gcn")
METHODS = ("APS", "RAPS", "DAPS", "SNAPS, minimum", "SNAPS", "Pooled")
# Epochs are few, as each takes seconds on one processor; the best by validation loss is kept.
EPOCHS = {"gcn": ("gcn-arxiv", 100), "mlp": ("mlp", 200)}


def _draw(num_nodes: int, seed: int, draw: int) -> list[np.ndarray]:
    """Training and validation nodes, and the pool."""
    order = np.random.default_rng([seed, draw]).permutation(num_nodes)
    return np.split(order, np.cumsum([round(share * num_nodes) for share in SHARES]))


def _classify(
    model: str, graph: Graph, labels: np.ndarray, parts: list[np.ndarray], seed: int
) -> np.ndarray:
    if model == "linear":
        train, valid, _ = parts
        known = np.concatenate([train, valid])
        probs = smoothed_regression(graph, labels, known, hops=0)  # of the words alone
        return np.log(np.maximum(probs, 1e-12))
    from snaps_lab.models import gnn

    key, epochs = EPOCHS[model]
    settings = replace(gnn.PAPER[key], max_epochs=epochs, patience=epochs)
    return gnn.train(settings, graph, labels, *parts[:2], seed=seed).logits


def _logits(model: str, draw: int, setting: Setting) -> dict[str, np.ndarray]:
    """Of one model, kept on disk with its cost."""
    data = runner.dataset(DATASET, setting)
    depends = (runner.TRAINED, runner.mark(DATASET, setting), model, EPOCHS.get(model), SHARES)
    cell = f"{DATASET}-{model}-{draw}-{fingerprint(*depends, setting.seed, draw)}"
    arrays = setting.store.read_arrays("logits", cell)
    if arrays is None:
        parts = _draw(len(data.labels), setting.seed, draw)
        began = time.process_time()
        seed = runner.draw_seed(setting, draw)
        logits = _classify(model, data.graph, data.labels, parts, seed)
        seconds = time.process_time() - began
        arrays = {"logits": logits.astype(np.float32), "cpu_seconds": np.array(seconds)}
        setting.store.write_arrays("logits", cell, arrays)
    return arrays


def _cell(model: str, draw: int, setting: Setting) -> dict[str, Any]:
    def make() -> dict[str, Any]:
        data = runner.dataset(DATASET, setting)
        arrays = _logits(model, draw, setting)
        similar, spent = runner.similarity(DATASET, setting)
        around, more = runner.context(DATASET, setting)
        train, valid, pool = _draw(len(data.labels), setting.seed, draw)
        inputs = Inputs.read(data.graph, arrays["logits"], similar, logits=True)
        inputs = inputs.holding(
            {Context(runner.K): around, Summary(): runner.summary(DATASET, setting)}
        )
        roles = Roles.read(
            data.graph, data.num_classes, data.labels, pool,
            known_nodes=np.concatenate([train, valid]), name="pool",
        )  # fmt: skip
        seed = runner.draw_seed(setting, draw)
        spend = min(SPENT, len(pool) // 2)
        plan = Plan(spend, setting.splits, seed, spend // 2)
        tried = methods(METHODS, ALPHAS[0], seed=seed)
        tried["DAPS"] = DAPS(ALPHAS[0], weight="minimum", seed=seed)
        top, out = inputs.probs.max(axis=1), {}
        for name, method in tried.items():
            began = time.process_time()
            out[name] = measure.measure(method, inputs, roles, plan, ALPHAS, top)
            for cell in out[name].values():
                cell["cpu_seconds"] = time.process_time() - began
        hit = inputs.probs[pool].argmax(axis=1) == data.labels[pool]
        for cell in out["APS"].values():
            cell["accuracy"] = float(hit.mean())
        return {
            "methods": out,
            "training_seconds": float(arrays["cpu_seconds"]),
            "neighbours_seconds": {"similarity": spent, "context": more},
            "most_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }

    depends = (runner.mark(DATASET, setting), EPOCHS.get(model), SHARES, METHODS, ALPHAS)
    name = f"{DATASET}-{model}-table-{draw}"
    return runner.kept(name, (*depends, *runner.settled(setting)), setting, make)


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """The quick models first: an interrupted run has finished theirs."""
    draws = range(min(setting.draws, MOST_DRAWS))
    pieces = [(model, draw) for model in MODELS for draw in draws]
    runner.similarity(DATASET, setting), runner.context(DATASET, setting)
    with track(f"{name}: training and prediction sets", len(pieces)) as advance:
        runner.in_processes(_cell, pieces, setting, advance)
    rows, costs = [], []
    for model in MODELS:
        cells = [_cell(model, draw, setting) for draw in draws]
        for alpha in ALPHAS:
            for method in METHODS:
                mine = [cell["methods"][method][f"{alpha:g}"] for cell in cells]
                about = {"model": model, "dataset": DATASET, "alpha": alpha, "method": method}
                row = about | measure.over_draws(mine, alpha, setting)
                row["cpu_seconds"] = float(np.mean([cell["cpu_seconds"] for cell in mine]))
                row["ogbn_arxiv_in_paper"] = _paper(model, alpha, method)
                rows.append(row)
        costs.append(
            {
                "model": model,
                "training_seconds": float(np.mean([c["training_seconds"] for c in cells])),
                "most_memory": max(c["most_memory"] for c in cells),
                **cells[0]["neighbours_seconds"],
            }
        )
    return {
        "table": name,
        "title": "A larger graph, arXiv CS",
        "settings": common.settings(setting) | {"draws": len(draws)},
        "rows": rows,
        "costs": costs,
        "notes": common.notes([DATASET], setting),
        "skipped": {},
    }


def _paper(model: str, alpha: float, method: str) -> float | None:
    """What the paper prints for OGBN-Arxiv, for its own methods and its GCN alone."""
    name = "SNAPS" if method == "SNAPS, minimum" else method
    if model != "gcn" or method == "SNAPS":
        return None
    wanted = {"model": model, "dataset": PUBLISHED, "alpha": alpha, "method": name}
    for row in common.published()["results"]:
        if row["table"] in ("table1", "gcn-0.1") and wanted.items() <= row.items():
            return float(row["size"])
    return None


def layout(result: Result) -> tuple[list[str], Cells]:
    """A row a model, level and method."""
    header = [
        "model", "alpha", "method", "coverage", "size", "worst class", "least confident fifth",
        "isolated", "empty %", "processor s", "accuracy %", "paper, OGBN-Arxiv (another graph)",
    ]  # fmt: skip
    rows = []
    for row in result["rows"]:
        accuracy, paper = row.get("accuracy"), row["ogbn_arxiv_in_paper"]
        rows.append(
            [
                row["model"].upper(),
                f"{row['alpha']:g}",
                row["method"],
                common.with_mark(row),
                common.with_error(row["size"], row.get("size_se"), 2),
                f"{row['worst_class']:.3f}",
                measure.share(row["unsure"]),
                measure.share(row["isolated"]),
                f"{100 * row['empty']:.1f}",
                f"{row['cpu_seconds']:.0f}",
                "" if accuracy is None else f"{100 * accuracy:.1f}",
                "" if paper is None else f"{paper:.2f}",
            ]
        )
    return header, rows


def remarks(result: Result) -> list[str]:
    """What graph this is, how it differs from the paper's, and what it costs."""
    lines = [
        "**Another graph than the paper's OGBN-Arxiv**, which was not available: arXiv papers of "
        "1998 to 2018 with a primary class cs.*, 8,000 words of title and abstract, links by "
        "common authors; several large classes are in the source only where cross-listed. Its "
        "numbers do not repeat the paper's; the last column is there for orientation",
        f"{SHARES[0]:.0%} of the nodes train and {SHARES[1]:.0%} validate, at random; {SPENT} "
        "labels of the rest are spent per split; the linear model (softmax regression on words, "
        "no links) trains on both parts; GCN: three layers, full batch, "
        f"{EPOCHS['gcn'][1]} epochs; MLP: {EPOCHS['mlp'][1]} epochs",
    ]
    for cost in result["costs"]:
        lines.append(
            f"{cost['model'].upper()}: training {cost['training_seconds']:.0f} s of processor time "
            f"per draw, most memory of the process {cost['most_memory'] / 1e9:.1f} GB; similarity "
            f"graph {cost['similarity']:.0f} s, context graph {cost['context']:.0f} s, once"
        )
    return [*lines, common.consistent(result["rows"])]
