"""Graphs on which nothing was chosen: `Pooled`, SNAPS and strong rivals, all with the same labels.

The table is computed once per version of it. What a version held is recorded by digest, and a test
refuses a table that changed under the same version.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from snaps.estimators import DAPS, methods
from snaps_lab.reproduce import common, measure, rivals, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.graphs import HELD_OUT
from snaps_lab.reproduce.pooled import prepare, spending_plan
from snaps_lab.reproduce.runner import Setting

VERSION = 1  # of the table: raise it to compute the table again, and record the new digest
NAMES = HELD_OUT
ALPHAS = (0.05, 0.1)
# Fixed before any of the graphs was run. Tolokers has ten features, of which a dropout of 0.8 would
# leave two, and a million links, on which FSGNN and GAT take minutes an epoch or a draw: APPNP.
MODELS = {"tolokers": ("appnp", "mlp")}
USUAL_MODELS = ("gcn", "mlp")
METHODS = (
    "APS", "THR", "DAPS", "SNAPS, minimum", "SNAPS", "SNAPS on THR", "Pooled", "Pooled on APS",
)  # fmt: skip
BASE = "SNAPS, minimum"  # tuned as in the paper
POOLED = "Pooled"
WITHIN = 2  # standard errors that a difference must exceed to be called one


def models_of(dataset: str) -> tuple[str, str]:
    """The classifiers of a graph: one that reads links, and an MLP."""
    return MODELS.get(dataset, USUAL_MODELS)


def _confidence(dataset: str, model: str, draw: int, setting: Setting) -> np.ndarray:
    logits = runner.trained(dataset, model, draw, setting).logits.astype(np.float64)
    return 1 / np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)


def own_cell(dataset: str, model: str, draw: int, setting: Setting) -> dict[str, Any]:
    """What each method gives on one trained classifier, by level."""

    def make() -> dict[str, Any]:
        inputs, roles = prepare(dataset, model, draw, setting)
        plan = spending_plan(dataset, draw, len(roles.calib), setting)
        confidence = _confidence(dataset, model, draw, setting)
        tried = methods(METHODS, ALPHAS[0], seed=plan.seed)
        tried["DAPS"] = DAPS(ALPHAS[0], weight="minimum", seed=plan.seed)
        out = {
            name: measure.measure(method, inputs, roles, plan, ALPHAS, confidence)
            for name, method in tried.items()
        }
        accuracy = runner.trained(dataset, model, draw, setting).accuracy
        for cell in out["APS"].values():
            cell["accuracy"] = accuracy
        return out

    depends = (runner.mark(dataset, setting, model, draw), VERSION, METHODS, ALPHAS)
    name = f"{dataset}-{model}-heldout-{draw}"
    return runner.kept(name, (*depends, *runner.settled(setting)), setting, make)


def rival_cell(dataset: str, model: str, draw: int, setting: Setting) -> dict[str, Any]:
    """What a retrained classifier gives, by the way to sets and level."""

    def make() -> dict[str, Any]:
        confidence = _confidence(dataset, models_of(dataset)[0], draw, setting)
        return rivals.rival_cell(dataset, model, draw, ALPHAS, confidence, setting)

    depends = (runner.mark(dataset, setting, model, draw), VERSION, "retrained", ALPHAS)
    name = f"{dataset}-{model}-heldout-retrained-{draw}"
    return runner.kept(name, (*depends, *runner.settled(setting)), setting, make)


def _piece(dataset: str, model: str, draw: int, kind: str, setting: Setting) -> None:
    """A cell, with the training that it needs; runs in a process of its own."""
    if kind == "rival":
        rival_cell(dataset, model, draw, setting)
    else:
        own_cell(dataset, model, draw, setting)


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Compute the cells that are not on disk, then compare."""
    graphs, skipped = common.present(datasets, HELD_OUT, setting)
    pieces = [
        (graph, model, draw, kind)
        for draw in range(setting.draws)  # whole draws first, should the run be interrupted
        for graph in graphs
        for kind, models in (("own", models_of(graph)), ("rival", rivals.RETRAINED))
        for model in models
    ]
    for graph in graphs:  # once, and not by several processes
        runner.similarity(graph, setting), runner.context(graph, setting)
    with track(f"{name}: training and prediction sets", len(pieces)) as advance:
        runner.in_processes(_piece, pieces, setting, advance)
    rows: list[dict[str, Any]] = []
    pairs: list[dict[str, Any]] = []
    for graph in graphs:
        draws = range(setting.draws)
        retrained = [
            {k: v for m in rivals.RETRAINED for k, v in rival_cell(graph, m, d, setting).items()}
            for d in draws
        ]
        for model in models_of(graph):
            cells = [own_cell(graph, model, d, setting) | retrained[d] for d in draws]
            for alpha in ALPHAS:
                level = f"{alpha:g}"
                mine = {m: [cell[m][level] for cell in cells] for m in cells[0]}
                about = {"model": model, "dataset": graph, "alpha": alpha}
                for method, of_method in mine.items():
                    row = about | {"method": method} | measure.over_draws(of_method, alpha, setting)
                    rows.append(row)
                pairs += [about | pair for pair in _pairs(mine)]
    return {
        "table": name,
        "title": "Graphs on which nothing was chosen",
        "table_version": VERSION,
        "settings": common.settings(setting),
        "rows": rows,
        "pairs": pairs,
        "averages": _averages(pairs),
        "notes": common.notes(graphs, setting),
        "skipped": skipped,
    }


def _pairs(cells: Mapping[str, Sequence[measure.Cell]]) -> list[dict[str, Any]]:
    """Pooled against each other method: differences and ratios of sizes, draw by draw."""
    mine = np.array([cell["size"] for cell in cells[POOLED]])
    out = []
    for method, of_method in cells.items():
        if method != POOLED:
            other = np.array([cell["size"] for cell in of_method])
            out.append(
                {
                    "method": method,
                    "difference": float((mine - other).mean()),
                    "difference_se": common.standard_error(mine - other),
                    "mean_of_ratios": float((mine / other).mean()),
                    "mean_of_ratios_se": common.standard_error(mine / other),
                    "ratio_of_means": float(mine.mean() / other.mean()),
                    "sizes": [float(mine.mean()), float(other.mean())],
                }
            )
    return out


def _averages(pairs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same over the graphs; the best rival is the best one of each graph, seen afterwards."""
    out = []
    kinds = dict.fromkeys((_kind(pair["model"]), pair["alpha"]) for pair in pairs)
    for kind, alpha in kinds:
        same = [p for p in pairs if (_kind(p["model"]), p["alpha"]) == (kind, alpha)]
        chosen = {
            method: [pair for pair in same if pair["method"] == method]
            for method in dict.fromkeys(pair["method"] for pair in same)
        }
        chosen["best rival per graph"] = [
            max(
                (p for p in same if p["dataset"] == graph and p["method"] in rivals.names()),
                key=lambda pair: pair["ratio_of_means"],
            )
            for graph in dict.fromkeys(pair["dataset"] for pair in same)
        ]
        for method, of_method in chosen.items():
            errors = [pair["mean_of_ratios_se"] for pair in of_method]
            sizes = np.array([pair["sizes"] for pair in of_method]).mean(axis=0)
            error = None
            if None not in errors:
                error = math.sqrt(sum(each**2 for each in errors)) / len(errors)
            out.append(
                {
                    "model": kind,
                    "alpha": alpha,
                    "method": method,
                    "datasets": len(of_method),
                    "mean_of_ratios": float(
                        np.mean([pair["mean_of_ratios"] for pair in of_method])
                    ),
                    "mean_of_ratios_se": error,
                    "ratio_of_means": float(sizes[0] / sizes[1]),
                }
            )
    return out


def _kind(model: str) -> str:
    return "mlp" if model == "mlp" else "gnn"


def digest(result: Mapping[str, Any]) -> str:
    """Of all numbers of the table, and of how they came about."""
    keys = ("table", "table_version", "settings", "rows", "pairs", "averages")
    text = json.dumps({key: result[key] for key in keys}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def layout(result: Result) -> tuple[list[str], Cells]:
    """A row per model, level, graph and method: size first, then balance."""
    header = [
        "model", "alpha", "dataset", "method", "coverage", "size", "Pooled / this", "difference",
        "worst class", "least confident fifth", "isolated", "empty %",
        "set size: share, coverage", "accuracy %",
    ]  # fmt: skip
    keys = ("model", "dataset", "alpha", "method")
    pairs = {tuple(pair[key] for key in keys): pair for pair in result["pairs"]}
    rows = []
    for row in result["rows"]:
        pair = pairs.get(tuple(row[key] for key in keys))
        accuracy = row.get("accuracy")
        rows.append(
            [
                row["model"].upper(),
                f"{row['alpha']:g}",
                common.display(row["dataset"]),
                row["method"],
                common.with_mark(row),
                common.with_error(row["size"], row.get("size_se")),
                "" if pair is None else _ratio(pair),
                "" if pair is None else _difference(pair),
                f"{row['worst_class']:.3f}",
                measure.share(row["unsure"]),
                measure.share(row["isolated"]),
                f"{100 * row['empty']:.1f}",
                measure.by_size(row),
                "" if accuracy is None else f"{100 * accuracy:.1f}",
            ]
        )
    return header, rows


def _ratio(pair: Mapping[str, Any]) -> str:
    return common.with_error(pair["mean_of_ratios"], pair["mean_of_ratios_se"])


def _difference(pair: Mapping[str, Any]) -> str:
    error = pair["difference_se"]
    return f"{pair['difference']:+.3f}" + ("" if error is None else f" ± {error:.3f}")


def remarks(result: Result) -> list[str]:
    """What the table shows, in the words that its numbers allow."""
    lines = [
        f"Version {result['table_version']} of this table. Nothing was chosen on these graphs: no "
        "setting, no default, no threshold",
        "Retrained: GCN or APPNP with the paper's settings, trained on every label that Pooled "
        "sees (training, validation and tuning nodes; 15 % of them decide when to stop); SNAPS "
        "with fixed weights on THR, as no label is left to tune them; C&S: correct and smooth, "
        "with the pulls that are most accurate on the 15 %; all have the same calibration nodes",
        "Tolokers: APPNP in the place of GCN, as was fixed beforehand",
        "Worst class: the least coverage of a class over all splits and draws; least confident "
        "fifth: by the classifier's top probability",
    ]
    for row in result["averages"]:
        if row["method"] in (BASE, "SNAPS", "SNAPS on THR", *rivals.names()):
            lines.append(_sentence(row))
        elif row["method"] == "best rival per graph":
            about = f"At {row['alpha']:g}, {row['model'].upper()}: {verdict(row)}"
            lines += [_sentence(row), f"{about}; graph by graph {_best(result, row)}"]
    lines += [_balance(result, alpha) for alpha in ALPHAS]
    above = [row for row in result["rows"] if row["coverage"] > row["coverage_high"]]
    cells_above = ", ".join(f"{common.display(row['dataset'])} {row['method']}" for row in above)
    if above:
        lines.append(
            f"Above its distribution lies the coverage of {cells_above}: nodes with equal features "
            "have equal scores there, and ties at the threshold cover more"
        )
    return [*lines, common.consistent(result["rows"])]


def _best(result: Result, average: Mapping[str, Any]) -> str:
    """Pooled against the best rival of each graph, by name."""
    best: dict[str, Mapping[str, Any]] = {}
    for pair in result["pairs"]:
        alike = (_kind(pair["model"]), pair["alpha"]) == (average["model"], average["alpha"])
        if alike and pair["method"] in rivals.names():
            graph = pair["dataset"]
            best[graph] = max(best.get(graph, pair), pair, key=lambda each: each["ratio_of_means"])
    return "; ".join(
        f"{common.display(graph)} {_ratio(pair)} of {pair['method']}"
        for graph, pair in best.items()
    )


def _balance(result: Result, alpha: float) -> str:
    """Coverage of the worst groups: means over the graphs, with the classifiers that read links."""
    parts = []
    for method in ("APS", BASE, POOLED, "Pooled on APS", "retrained APPNP, SNAPS"):
        mine = [
            row
            for row in result["rows"]
            if (row["alpha"], row["method"], _kind(row["model"])) == (alpha, method, "gnn")
        ]
        worst = [row["worst_class"] for row in mine]
        unsure = np.mean([row["unsure"] for row in mine])
        parts.append(f"{method} {np.mean(worst):.3f} (least {min(worst):.3f}) and {unsure:.3f}")
    return (
        f"Balance at {alpha:g}, GNN, means over the graphs: coverage of the worst class and of the "
        "least confident fifth: " + "; ".join(parts)
    )


def _sentence(row: Mapping[str, Any]) -> str:
    return (
        f"{row['model'].upper()} at {row['alpha']:g}, {row['datasets']} graphs: Pooled / "
        f"{row['method']}: mean of ratios {_ratio(row)}, ratio of means {row['ratio_of_means']:.3f}"
    )


def verdict(row: Mapping[str, Any]) -> str:
    """What may be said of Pooled against retraining."""
    excess, error = row["mean_of_ratios"] - 1, row["mean_of_ratios_se"] or 0.0
    if excess < -WITHIN * error:
        return "Pooled has smaller sets than the best retrained rival"
    if excess <= WITHIN * error:
        return "Pooled has sets as small as retraining, without retraining"
    return f"Pooled has sets {excess:.1%} larger than the best retrained rival, without retraining"
