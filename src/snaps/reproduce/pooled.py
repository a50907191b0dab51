"""Pooled evidence beside SNAPS: every graph and model of the main tables, same budgets."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from snaps import metrics
from snaps._checks import check_alpha
from snaps._estimators import Estimator
from snaps._evidence import Labelled
from snaps._inputs import Inputs
from snaps._methods import methods
from snaps._parts import Context
from snaps._pooled import Pooled
from snaps._roles import Roles
from snaps.calibration import Calibration
from snaps.reproduce import common, runner
from snaps.reproduce.common import Cells, Result, Track
from snaps.reproduce.protocol import AVERAGED, budget, draw_nodes
from snaps.reproduce.runner import Setting
from snaps.sets import PredictionSets
from snaps.splits import Plan, draw_splits, fit_levels, split_method

ALPHAS = (0.05, 0.1)
SPLITS_OF_BALANCE = 20  # sets are made one by one for these, so that classes can be looked at
BALANCE = ("class_gap", "worst_class", "sscv")
METHODS = ("SNAPS", "SNAPS on THR", "Pooled")


def prepare(dataset: str, model: str, draw: int, setting: Setting) -> tuple[Inputs, Roles]:
    """What methods see of a trained model's graph, both neighbour graphs at hand; and the pool."""
    data = runner.dataset(dataset, setting)
    nodes = draw_nodes(data, setting.seed, draw)
    logits = runner.trained(dataset, model, draw, setting).logits
    near, around = runner.similarity(dataset, setting)[0], runner.context(dataset, setting)[0]
    inputs = Inputs.read(data.graph, logits, near, logits=True).holding({Context(runner.K): around})
    known = np.concatenate([nodes.train, nodes.valid])
    roles = Roles.read(
        data.graph, data.num_classes, data.labels, nodes.pool, known_nodes=known, name="pool"
    )
    return inputs, roles


def means(result: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Of one method, over the splits."""
    out: dict[str, float] = {key: float(np.mean(result[key])) for key in AVERAGED}
    return out | {key: int(result[key][0]) for key in ("n_calib", "n_test")}


def _cell(dataset: str, model: str, draw: int, alpha: float, setting: Setting) -> dict[str, Any]:
    """All that is told of one draw at one level."""

    def make() -> dict[str, Any]:
        inputs, roles = prepare(dataset, model, draw, setting)
        seed = runner.draw_seed(setting, draw)
        spend = budget(runner.dataset(dataset, setting), "main", len(roles.calib))
        plan = Plan(spend, setting.splits, seed, spend // 2)
        out = {}
        for name, method in methods(METHODS, alpha, seed=seed).items():
            began = time.process_time()
            (found,) = split_method(method, inputs, roles, plan, [check_alpha(alpha)])
            cost = time.process_time() - began
            out[name] = means(found) | {"cpu_seconds": cost}
            out[name] |= _balance(method, inputs, roles, plan, alpha)
        places = inputs.positions(roles.calib.keys)
        out["SNAPS"]["accuracy"] = _accuracy(inputs.probs[places], roles.calib)
        return out

    depends = (runner.mark(dataset, setting, model, draw), alpha, *runner.settled(setting))
    return runner.kept(f"{dataset}-{model}-pooled-{alpha:g}-{draw}", depends, setting, make)


def _accuracy(table: np.ndarray, nodes: Labelled) -> float:
    return float((table.argmax(axis=1) == nodes.labels).mean())


def _balance(
    method: Estimator, inputs: Inputs, roles: Roles, plan: Plan, alpha: float
) -> dict[str, float]:
    """How evenly classes and set sizes are covered, and how often the top label is right."""
    ((fitted, rest, spend, _),) = fit_levels(method, inputs, roles, plan, [check_alpha(alpha)])
    scores = inputs.score(fitted, inputs.positions(rest.keys))
    trials = []
    for calib in draw_splits(plan.seed, rest.keys, spend, SPLITS_OF_BALANCE):
        test = np.delete(np.arange(len(rest)), calib)
        own = scores[calib, rest.labels[calib]]
        calibration = Calibration(own, rest.labels[calib], inputs.num_classes)
        mask = calibration.contains(scores[test], alpha)
        sets = PredictionSets(mask, test, num_nodes=len(rest))
        trials.append(
            [
                metrics.class_gap(sets, rest.labels, alpha),
                np.nanmin(metrics.class_coverage(sets, rest.labels)),
                metrics.sscv(sets, rest.labels, alpha),
            ]
        )
    out = dict(zip(BALANCE, np.mean(trials, axis=0).tolist(), strict=True))
    if isinstance(method, Pooled):
        # The best label has the least THR score.
        out["accuracy"] = _accuracy(-scores, rest)
    return out


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Train what is missing, then compare."""
    names, skipped = common.present(datasets, common.EIGHT, setting)
    rows = []
    cost = {"similarity": 0.0, "context": 0.0, "SNAPS": 0.0, "Pooled": 0.0}
    for model in common.MODELS:
        draws = common.draws_of(model, setting)
        with track(f"{name}: training {model}", len(names) * draws) as advance:
            runner.train_missing(names, model, runner.with_draws(setting, draws), advance)
        with track(f"{name}: prediction sets, {model}", len(names) * draws * 2) as advance:
            for alpha in ALPHAS:
                for dataset in names:
                    cells = []
                    for draw in range(draws):
                        cells.append(_cell(dataset, model, draw, alpha, setting))
                        advance(1)
                    rows += _rows(model, dataset, alpha, cells, setting)
                    if model == "gcn" and alpha == ALPHAS[0]:
                        for method in ("SNAPS", "Pooled"):
                            cost[method] += np.mean([c[method]["cpu_seconds"] for c in cells])
                        cost["similarity"] += runner.similarity(dataset, setting)[1]
                        cost["context"] += runner.context(dataset, setting)[1]
    return {
        "table": name,
        "title": "Pooled evidence beside SNAPS, all models",
        "settings": common.settings(setting),
        "rows": rows,
        "averages": averages(rows),
        "cpu_seconds": {key: round(float(value), 2) for key, value in cost.items()},
        "notes": common.notes(names, setting),
        "skipped": skipped,
    }


def _rows(
    model: str, dataset: str, alpha: float, cells: list[dict[str, Any]], setting: Setting
) -> list[dict[str, Any]]:
    out = []
    for method in METHODS:
        mine = [cell[method] for cell in cells]
        row: dict[str, Any] = {"model": model, "dataset": dataset, "alpha": alpha, "method": method}
        row |= common.over_draws(mine, alpha, setting)
        row |= {key: float(np.mean([cell[key] for cell in mine])) for key in BALANCE}
        row["draws"] = len(cells)
        if "accuracy" in mine[0]:
            row["accuracy"] = float(np.mean([cell["accuracy"] for cell in mine]))
        out.append(row)
    for row in out:
        row["against_snaps"] = row["size"] / out[0]["size"] - 1
    return out


def averages(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean sizes over the datasets, for each model, level and method."""
    out = []
    groups = dict.fromkeys((row["model"], row["alpha"], row["method"]) for row in rows)
    for model, alpha, method in groups:
        same = [
            row
            for row in rows
            if (row["model"], row["alpha"], row["method"]) == (model, alpha, method)
        ]
        keys = ("coverage", "size", "size_nonempty", "singleton_hit", *BALANCE)
        means = {key: float(np.mean([row[key] for row in same])) for key in keys}
        out.append(
            {"model": model, "alpha": alpha, "method": method, "datasets": len(same), **means}
        )
    for row in out:
        base = next(
            other["size"]
            for other in out
            if (other["model"], other["alpha"], other["method"])
            == (row["model"], row["alpha"], "SNAPS")
        )
        row["against_snaps"] = row["size"] / base - 1
    return out


def layout(result: Result) -> tuple[list[str], Cells]:
    """A row a model, level, dataset and method; averages last."""
    header = [
        "model", "alpha", "dataset", "method", "coverage", "size", "size, non-empty", "to SNAPS",
        "SH %", "class gap", "worst class", "SSCV", "accuracy %",
    ]  # fmt: skip
    rows = []
    for row in [*result["rows"], *result["averages"]]:
        label = (
            common.display(row["dataset"]) if "dataset" in row else f"Average of {row['datasets']}"
        )
        accuracy = row.get("accuracy")
        rows.append(
            [
                row["model"].upper(),
                f"{row['alpha']:g}",
                label,
                row["method"],
                common.with_mark(row),
                common.with_error(row["size"], row.get("size_se")),
                common.with_error(row["size_nonempty"], row.get("size_nonempty_se")),
                f"{row['against_snaps']:+.1%}",
                f"{100 * row['singleton_hit']:.2f}",
                f"{row['class_gap']:.3f}",
                f"{row['worst_class']:.3f}",
                f"{row['sscv']:.3f}",
                "" if accuracy is None else f"{100 * accuracy:.2f}",
            ]
        )
    return header, rows


def remarks(result: Result) -> list[str]:
    """Coverage, cost, and on how many graphs pooled sets are not smaller."""
    pooled = [row for row in result["rows"] if row["method"] == "Pooled"]
    larger = [row for row in pooled if row["against_snaps"] > 0]
    told = [
        f"{row['model'].upper()} {common.display(row['dataset'])} {row['alpha']:g}"
        for row in larger
    ]
    spent = result["cpu_seconds"]
    snaps = spent["similarity"] + spent["SNAPS"]
    mine = spent["similarity"] + spent["context"] + spent["Pooled"]
    gats = min(result["settings"]["draws"], common.GAT_DRAWS)
    return [
        f"GAT: {gats} draws; class gap, worst class and SSCV over {SPLITS_OF_BALANCE} "
        "splits; accuracy of the classifier beside SNAPS, of the pool beside Pooled",
        f"Pooled larger than SNAPS in {len(larger)} of {len(pooled)} cells"
        + (f": {', '.join(told)}" if told else ""),
        f"Processor time a draw, GCN at {ALPHAS[0]:g}, all graphs: SNAPS {snaps:.1f} s, pooled "
        f"{mine:.1f} s ({mine / max(snaps, 1e-9):.1f} times), similarity graphs included",
        common.lawful(result["rows"]),
    ]
