"""Graphs whose links join unlike nodes: FSGNN, and SNAPS with similar nodes alone.

The protocol is the paper's: ten public splits; the test part is the pool, and half of it
calibrates. Weights are fixed, so nothing is tuned: DAPS with 0.5 on links, SNAPS with 0.5 on
similar nodes and nothing on links. The paper's similar nodes are those with similar embeddings.
Beyond the paper stand similar nodes without a look into the model: by features, and by structure
and features; and two methods that do not know that links mislead, but may tune on the validation
part: SNAPS over all its weights, and pooled evidence (which also has the training labels).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps.datasets import Dataset
from snaps.estimators import DAPS, SNAPS, Pooled, SplitConformal
from snaps.graph import Graph
from snaps.predictor.estimator import Estimator
from snaps.scoring.pooling import WITHOUT_REGRESSION
from snaps.similarity import similarity_graph
from snaps.splits import evaluate_splits
from snaps.structure import structural_features
from snaps_lab.reproduce import common, distances, runner, tables
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.protocol import AVERAGED, Draw
from snaps_lab.reproduce.runner import VERSION, K, Setting
from snaps_lab.reproduce.store import fingerprint

ALPHAS = (0.1, 0.15)
# Actor is not in the paper: it takes the settings with the smaller validation loss.
MODELS = {
    "chameleon": "fsgnn-chameleon",
    "squirrel": "fsgnn-squirrel",
    "actor": "fsgnn-squirrel",
}
WEIGHTS = (0.5, 0.0)
# What the similarity graph of each other row is made from.
BY_GRAPH: dict[str, Callable[[Graph], Any]] = {
    "SNAPS, features": lambda graph: graph.features,
    "SNAPS, no embeddings": structural_features,
}
# These are tuned on the validation part.
TUNED: dict[str, Callable[..., Estimator]] = {
    "SNAPS, tuned": SNAPS,
    "Pooled without regression": partial(Pooled, parts=WITHOUT_REGRESSION, tuning_evidence=False),
    "Pooled": Pooled,
}


@dataclass(frozen=True)
class Trained:
    """A trained model's logits and embeddings, and what they cost."""

    logits: np.ndarray
    embeddings: np.ndarray
    accuracy: float
    cpu_seconds: float
    epochs: int


def split_nodes(data: Dataset, split: int) -> Draw:
    """One of the ten public splits; its test part is the pool."""
    codes = data.splits["geom_gcn"][split]
    return Draw(*(np.flatnonzero(codes == code) for code in (1, 2, 3)))


def directed_graph(data: Dataset) -> Graph:
    """The graph that FSGNN reads: the original directed edges with their loops, where known."""
    if data.directed_edges is None:
        return data.graph
    return Graph(data.directed_edges, data.graph.features, directed=True, self_loops=True)


def _model_cell(name: str, split: int, setting: Setting) -> str:
    mark = fingerprint(VERSION, runner.data_mark(name, setting), MODELS[name], setting.seed, split)
    return f"{name}-fsgnn-{split}-{mark}"


def _train_cell(name: str, split: int, setting: Setting) -> None:
    """Train one model and keep its logits and embeddings; runs in a process of its own."""
    from snaps_lab.models.gnn import build, embed, train

    data = runner.dataset(name, setting)
    graph, nodes = directed_graph(data), split_nodes(data, split)
    began = time.process_time()
    result = train(
        MODELS[name],
        graph,
        data.labels,
        nodes.train,
        nodes.valid,
        num_classes=data.num_classes,
        seed=1000 * setting.seed + split,
    )
    module = build(MODELS[name], graph.features.shape[1], data.num_classes)
    module.load_state_dict(result.state_dict)
    arrays = {
        "logits": result.logits,
        "embeddings": embed(module, graph),
        "cpu_seconds": time.process_time() - began,
        "epochs": result.epochs,
    }
    setting.store.write_arrays("embeddings", _model_cell(name, split, setting), arrays)


def trained(name: str, split: int, setting: Setting) -> Trained:
    """A trained model, trained now if it is not on disk."""
    cell = _model_cell(name, split, setting)
    arrays = setting.store.read_arrays("embeddings", cell)
    if arrays is None:
        _train_cell(name, split, setting)
        arrays = setting.store.read_arrays("embeddings", cell)
        assert arrays is not None
    data = runner.dataset(name, setting)
    pool = split_nodes(data, split).pool
    hit = arrays["logits"].argmax(axis=1)[pool] == data.labels[pool]
    return Trained(
        arrays["logits"],
        arrays["embeddings"],
        float(hit.mean()),
        float(arrays["cpu_seconds"]),
        int(arrays["epochs"]),
    )


@lru_cache(maxsize=4)
def _similar(name: str, method: str, setting: Setting) -> sp.csr_array:
    """The similarity graph of a row that looks at the graph alone."""
    graph = directed_graph(runner.dataset(name, setting))
    return similarity_graph(BY_GRAPH[method](graph), K, ids=graph.keys)


def evaluated(name: str, split: int, setting: Setting) -> dict[str, dict[str, Any]]:
    """What each method gave in one split of the nodes: a list a number, an entry a level."""
    known = _model_cell(name, split, setting)
    mark = fingerprint(VERSION, known, ALPHAS, [*BY_GRAPH, *TUNED], setting.splits)
    cell = f"{name}-fsgnn-heterophily-{split}-{mark}"
    results = setting.store.read_json("cells", cell)
    if results is not None:
        return results
    data, model = runner.dataset(name, setting), trained(name, split, setting)
    nodes, seed = split_nodes(data, split), 1000 * setting.seed + split
    snaps = SNAPS(weights=WEIGHTS, seed=seed)
    paper: dict[str, Estimator] = {
        "APS": SplitConformal(seed=seed),
        "DAPS": DAPS(weight=0.5, seed=seed),
        "SNAPS": snaps,
    }
    by_embedding = similarity_graph(model.embeddings, K, ids=data.graph.keys)
    tuned = {method: kind(seed=seed) for method, kind in TUNED.items()}
    compared: list[tuple[dict[str, Estimator], sp.csr_array]] = [(paper, by_embedding)]
    compared += [({method: snaps}, _similar(name, method, setting)) for method in BY_GRAPH]
    compared.append((tuned, by_embedding))
    results = {}
    for methods, similar in compared:
        out = evaluate_splits(
            methods, data.graph, model.logits, data.labels, nodes.pool, len(nodes.pool) // 2,
            setting.splits, seed, similar, alphas=ALPHAS, logits=True, tune_nodes=nodes.valid,
            known_nodes=nodes.train,
        )  # fmt: skip
        for method, numbers in out.items():
            results[method] = {key: numbers[key].mean(axis=1).tolist() for key in AVERAGED}
            results[method] |= {key: int(numbers[key][0, 0]) for key in ("n_calib", "n_test")}
    setting.store.write_json("cells", cell, results)
    return results


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Train what is missing, and compare the methods."""
    names, skipped = common.present(datasets, tuple(MODELS), setting)
    others = [dataset for dataset in names if dataset not in MODELS]
    skipped |= {dataset: f"this table has {', '.join(MODELS)}" for dataset in others}
    names = [dataset for dataset in names if dataset in MODELS]
    # There are no more public splits than these.
    setting = replace(setting, draws=min(setting.draws, 10), as_authors=False)
    wanted = [(dataset, split) for dataset in names for split in range(setting.draws)]
    missing = [
        (dataset, split)
        for dataset, split in wanted
        if not setting.store.has_arrays("embeddings", _model_cell(dataset, split, setting))
    ]
    with track(f"{name}: training FSGNN", len(wanted)) as advance:
        advance(len(wanted) - len(missing))
        runner.in_processes(_train_cell, missing, setting, advance)
    rows, accuracy = [], []
    with track(f"{name}: prediction sets", len(wanted)) as advance:
        for dataset in names:
            cells = []
            for split in range(setting.draws):
                cells.append(evaluated(dataset, split, setting))
                advance(1)
            rows += [
                _row(dataset, level, method, [cell[method] for cell in cells], setting)
                for level in range(len(ALPHAS))
                for method in cells[0]
            ]
            accuracy.append(_accuracy(dataset, setting))
    rows.sort(key=lambda row: row["alpha"])
    return {
        "table": name,
        "title": "Links between unlike nodes: FSGNN",
        "settings": common.settings(setting),
        "rows": rows,
        "accuracy": accuracy,
        "notes": common.notes(names, setting),
        "skipped": skipped,
    }


def _row(
    dataset: str, level: int, method: str, cells: list[dict[str, Any]], setting: Setting
) -> dict[str, Any]:
    """Means over the splits of the nodes, their standard errors, and the paper's numbers."""
    alpha = ALPHAS[level]
    row: dict[str, Any] = {"dataset": dataset, "alpha": alpha, "method": method}
    for key in AVERAGED:
        values = np.array([cell[key][level] for cell in cells])
        row[key] = float(values.mean())
        if key in ("size", "size_nonempty", "singleton_hit"):
            row[f"{key}_se"] = common.standard_error(values)
    n, m = cells[0]["n_calib"], cells[0]["n_test"]
    row |= common.against_law(row["coverage"], n, m, alpha, setting.splits * len(cells))
    for paper in common.published()["heterophily"]:
        if (paper["dataset"], paper["alpha"], paper["method"]) == (dataset, alpha, method):
            row |= {f"paper_{key}": paper[key] for key in ("coverage", "size")}
    return row


def _accuracy(dataset: str, setting: Setting) -> dict[str, Any]:
    """How accurate the models are on the test part, and what they cost."""
    runs = [trained(dataset, split, setting) for split in range(setting.draws)]
    values = np.array([run.accuracy for run in runs])
    out: dict[str, Any] = {
        "dataset": dataset,
        "accuracy": float(values.mean()),
        "sd": float(values.std(ddof=1)) if len(values) > 1 else None,
        "epochs": float(np.mean([run.epochs for run in runs])),
        "cpu_seconds": float(np.mean([run.cpu_seconds for run in runs])),
    }
    for paper in common.published()["accuracy"]:
        if (paper["dataset"], paper["model"]) == (dataset, "fsgnn"):
            gap = abs(out["accuracy"] - paper["mean"])
            out |= {"paper_accuracy": paper["mean"], "paper_sd": paper["sd"]}
            out["within_two_sd"] = bool(gap <= 2 * paper["sd"])
    return out


def layout(result: Result) -> tuple[list[str], Cells]:
    """As the other tables of results; the paper has no singleton hits here."""
    header, rows = tables.layout({**result, "averages": []})
    return header[:-1], [row[:-1] for row in rows]


def remarks(result: Result) -> list[str]:
    """How accurate the models are, what is smallest, and whether coverage is as expected."""
    out = []
    for row in result["accuracy"]:
        sd = None if row["sd"] is None else 100 * row["sd"]
        line = f"{common.display(row['dataset'])}: accuracy % with its standard deviation "
        line += common.with_error(100 * row["accuracy"], sd, 2)
        if "paper_accuracy" in row:
            paper = common.with_error(100 * row["paper_accuracy"], 100 * row["paper_sd"], 2)
            inside = "within" if row["within_two_sd"] else "outside"
            line += f" (the paper's {paper}: {inside} two of its standard deviations)"
        out.append(f"{line}; {row['epochs']:.0f} epochs, {row['cpu_seconds']:.0f} s a model")
    sizes = {(row["dataset"], row["alpha"], row["method"]): row["size"] for row in result["rows"]}
    cells = sorted({(row["dataset"], row["alpha"]) for row in result["rows"]})
    for method, others in (
        ("SNAPS", ("APS", "DAPS")),
        ("SNAPS, no embeddings", ("APS", "DAPS")),
        ("Pooled", ("SNAPS", "SNAPS, tuned")),
        ("Pooled", ("Pooled without regression",)),
    ):
        below = sum(
            sizes[*cell, method] < min(sizes[*cell, other] for other in others) for cell in cells
        )
        text = f"{method}: smaller sets than {' and '.join(others)}"
        out.append(f"{text} in {below} of {len(cells)} cells")
    out.append(
        "'SNAPS, no embeddings': what its structural features are made of was chosen while looking "
        "at Chameleon and Actor; Squirrel is clean"
    )
    out.append(
        "Pooled without regression: nor are tuning labels evidence in it (`tuning_evidence=False`)"
    )
    out.append(common.consistent(result["rows"]))
    return [*out, *distances.lines(result)]
