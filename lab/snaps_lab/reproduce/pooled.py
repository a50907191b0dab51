"""Pooled evidence compared with SNAPS and a retrained classifier, all with the same labels."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from snaps import metrics
from snaps._checks import check_alpha
from snaps.conformal.calibration import Calibration
from snaps.estimators import Pooled, methods
from snaps.predictor.estimator import Estimator, method_of
from snaps.predictor.roles import Roles
from snaps.scoring.evidence import Labelled
from snaps.scoring.local import Inputs, Made
from snaps.scoring.parts import Context, Summary
from snaps.sets import PredictionSets
from snaps.splits import Plan, draw_splits, fit_levels, split_method, take_tuning
from snaps_lab.reproduce import common, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.protocol import AVERAGED, budget, draw_nodes
from snaps_lab.reproduce.runner import Setting

ALPHAS = (0.05, 0.1)
MODELS = {"pooled": ("gcn",), "pooled-models": ("gat", "appnp", "mlp")}
SPLITS_OF_BALANCE = 20  # sets are made one by one for these, so that classes can be looked at
BALANCE = ("class_gap", "worst_class", "sscv")
WITHOUT_REGRESSION = "Pooled without regression"
METHODS = (
    "SNAPS, minimum", "SNAPS", "SNAPS, thirds", "SNAPS on THR", WITHOUT_REGRESSION, "Pooled",
)  # fmt: skip
BASE = METHODS[0]  # what sizes are compared with: tuned as in the paper
RIVALS = {"retrained, THR": "THR", "retrained, SNAPS thirds on THR": "SNAPS on THR, thirds"}
"""The same classifier, trained with the tuning labels too and calibrated on the other labels."""

DESIGNED_ON = (
    "cora_ml", "citeseer", "amazon_photo", "pubmed", "coauthor_cs", "amazon_computers",
)  # fmt: skip
SURROGATE = "cora_full"  # its features are made up: averages leave it out first


def prepare(dataset: str, model: str, draw: int, setting: Setting) -> tuple[Inputs, Roles]:
    """A trained model's inputs with both neighbour graphs already made, and the pool."""
    return seen(dataset, draw, runner.trained(dataset, model, draw, setting).logits, setting)


def seen(
    dataset: str, draw: int, logits: np.ndarray, setting: Setting, similar: Any = None
) -> tuple[Inputs, Roles]:
    """The same with the logits of any classifier, and any similarity graph."""
    data = runner.dataset(dataset, setting)
    nodes = draw_nodes(data, setting.seed, draw)
    similar = runner.similarity(dataset, setting)[0] if similar is None else similar
    context = runner.context(dataset, setting)[0]
    made: Made = {Context(runner.K): context, Summary(): runner.summary(dataset, setting)}
    inputs = Inputs.read(data.graph, logits, similar, logits=True).holding(made)
    known = np.concatenate([nodes.train, nodes.valid])
    roles = Roles.read(
        data.graph, data.num_classes, data.labels, nodes.pool, known_nodes=known, name="pool"
    )
    return inputs, roles


def means(result: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Of one method, over the splits."""
    out: dict[str, float] = {key: float(np.mean(result[key])) for key in AVERAGED}
    return out | {key: int(result[key][0]) for key in ("n_calib", "n_test")}


def spending_plan(dataset: str, draw: int, pool: int, setting: Setting) -> Plan:
    """The labels to spend, half of them on tuning."""
    spend = budget(runner.dataset(dataset, setting), "main", pool)
    return Plan(spend, setting.splits, runner.draw_seed(setting, draw), spend // 2)


def _cell(dataset: str, model: str, draw: int, alpha: float, setting: Setting) -> dict[str, Any]:
    """All that the table reports of one draw at one level."""

    def make() -> dict[str, Any]:
        inputs, roles = prepare(dataset, model, draw, setting)
        plan = spending_plan(dataset, draw, len(roles.calib), setting)
        out = _tried(methods(METHODS, alpha, seed=plan.seed), inputs, roles, plan, alpha)
        positions = inputs.positions(roles.calib.keys)
        out[BASE]["accuracy"] = _accuracy(inputs.probs[positions], roles.calib)
        return out | _rivals(dataset, model, draw, alpha, roles, plan, setting)

    depends = (runner.mark(dataset, setting, model, draw), alpha, *runner.settled(setting), METHODS)
    return runner.kept(f"{dataset}-{model}-pooled-{alpha:g}-{draw}", depends, setting, make)


def _tried(
    tried: Mapping[str, Estimator], inputs: Inputs, roles: Roles, plan: Plan, alpha: float
) -> dict[str, Any]:
    out = {}
    for name, method in tried.items():
        began = time.process_time()
        (result,) = split_method(method_of(method), inputs, roles, plan, [check_alpha(alpha)])
        cost = time.process_time() - began
        out[name] = means(result) | {"cpu_seconds": cost}
        out[name] |= _balance(method, inputs, roles, plan, alpha)
    return out


def _rivals(
    dataset: str, model: str, draw: int, alpha: float, roles: Roles, plan: Plan, setting: Setting
) -> dict[str, Any]:
    """What the same labels give when the tuning labels are spent on training instead."""
    cell = _retrained_name(dataset, model, draw, setting)
    if not setting.store.has_arrays("logits", cell):
        _retrain(dataset, model, draw, setting)
    arrays = setting.store.read_arrays("logits", cell)
    assert arrays is not None and plan.n_tune is not None
    inputs, _ = seen(dataset, draw, arrays["logits"], setting)
    rest = replace(roles, calib=take_tuning(roles.calib, plan.n_tune, plan.seed)[1])
    shorter = replace(plan, budget=plan.budget - plan.n_tune, n_tune=None)
    tried = methods(RIVALS.values(), alpha, seed=plan.seed)
    out = _tried(
        {name: tried[known] for name, known in RIVALS.items()}, inputs, rest, shorter, alpha
    )
    positions = inputs.positions(rest.calib.keys)
    out[next(iter(RIVALS))]["accuracy"] = _accuracy(inputs.probs[positions], rest.calib)
    return out


def _retrained_name(dataset: str, model: str, draw: int, setting: Setting) -> str:
    return f"{runner.mark(dataset, setting, model, draw)}-retrained"


def _retrain(dataset: str, model: str, draw: int, setting: Setting) -> None:
    """Train with the tuning labels too."""
    data = runner.dataset(dataset, setting)
    nodes = draw_nodes(data, setting.seed, draw)
    roles = Roles.read(data.graph, data.num_classes, data.labels, nodes.pool, name="pool")
    plan = spending_plan(dataset, draw, len(roles.calib), setting)
    assert plan.n_tune is not None
    tuning, _ = take_tuning(roles.calib, plan.n_tune, plan.seed)
    training = np.concatenate([nodes.train, np.flatnonzero(np.isin(data.graph.keys, tuning.keys))])
    cell = _retrained_name(dataset, model, draw, setting)
    runner.keep_trained(cell, dataset, model, draw, training, setting)


def _train(names: Sequence[str], model: str, draws: int, setting: Setting, track: Track) -> None:
    """Train what is missing, twice for every draw."""
    with track(f"pooled: training {model}", 2 * len(names) * draws) as advance:
        runner.train_missing(names, model, runner.with_draws(setting, draws), advance)
        pieces = [
            (name, model, draw)
            for name in names
            for draw in range(draws)
            if not setting.store.has_arrays("logits", _retrained_name(name, model, draw, setting))
        ]
        advance(len(names) * draws - len(pieces))
        runner.in_processes(_retrain, pieces, setting, advance)


def _accuracy(table: np.ndarray, nodes: Labelled) -> float:
    return float((table.argmax(axis=1) == nodes.labels).mean())


def _balance(
    method: Estimator, inputs: Inputs, roles: Roles, plan: Plan, alpha: float
) -> dict[str, float]:
    """How evenly classes and set sizes are covered, and how often the top label is right."""
    ((fitted, rest, spend, _),) = fit_levels(
        method_of(method), inputs, roles, plan, [check_alpha(alpha)]
    )
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
    cost = dict.fromkeys(("similarity", "context", "SNAPS", WITHOUT_REGRESSION, "Pooled"), 0.0)
    for model in MODELS[name]:
        draws = common.draws_of(model, setting)
        _train(names, model, draws, setting, track)
        with track(f"{name}: prediction sets, {model}", len(names) * draws * 2) as advance:
            for alpha in ALPHAS:
                for dataset in names:
                    cells = []
                    for draw in range(draws):
                        cells.append(_cell(dataset, model, draw, alpha, setting))
                        advance(1)
                    rows += _rows(model, dataset, alpha, cells, setting)
                    if model == MODELS[name][0] and alpha == ALPHAS[0]:
                        for method in ("SNAPS", WITHOUT_REGRESSION, "Pooled"):
                            cost[method] += np.mean([c[method]["cpu_seconds"] for c in cells])
                        cost["similarity"] += runner.similarity(dataset, setting)[1]
                        cost["context"] += runner.context(dataset, setting)[1]
    return {
        "table": name,
        "title": "Pooled evidence compared with SNAPS and a retrained classifier, "
        + ", ".join(model.upper() for model in MODELS[name]),
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
    for method in (*METHODS, *RIVALS):
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
    """Mean sizes over the datasets, for each model, level and method; real features first."""
    out = _averages([row for row in rows if row["dataset"] != SURROGATE])
    return out + (_averages(rows) if any(row["dataset"] == SURROGATE for row in rows) else [])


def _averages(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    groups = dict.fromkeys((row["model"], row["alpha"], row["method"]) for row in rows)
    for model, alpha, method in groups:
        same = [
            row
            for row in rows
            if (row["model"], row["alpha"], row["method"]) == (model, alpha, method)
        ]
        keys = ("coverage", "size", "size_nonempty", "singleton_hit", *BALANCE)
        mean = {key: float(np.mean([row[key] for row in same])) for key in keys}
        out.append(
            {"model": model, "alpha": alpha, "method": method, "datasets": len(same), **mean}
        )
    for row in out:
        row["against_snaps"] = row["size"] / _size(out, row, [BASE]) - 1
    return out


def _size(
    rows: Iterable[Mapping[str, Any]], like: Mapping[str, Any], names: Iterable[str]
) -> float:
    """The smallest size of some methods at the same model, level and datasets."""
    keys = ("model", "alpha", "dataset", "datasets")
    wanted = set(names)
    return min(
        row["size"]
        for row in rows
        if row["method"] in wanted and all(row.get(key) == like.get(key) for key in keys)
    )


def layout(result: Result) -> tuple[list[str], Cells]:
    """Averages first, then a row a model, level, dataset and method."""
    header = [
        "model", "alpha", "dataset", "method", "coverage", "size", "size, non-empty",
        "to SNAPS, minimum", "SH %", "class gap", "worst class", "SSCV", "accuracy %",
    ]  # fmt: skip
    rows = []
    for row in [*result["averages"], *result["rows"]]:
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
    """Which sets are smaller, at what cost, and what was designed on what."""
    spent, models = result["cpu_seconds"], MODELS[result["table"]]
    draws = min(result["settings"]["draws"], common.GAT_DRAWS)
    gats = f"; GAT has {draws} draws" if "gat" in models else ""
    first_model = models[0].upper()
    similarity, context = spent["similarity"], spent["context"]
    snaps = similarity + spent["SNAPS"]
    without = similarity + context + spent[WITHOUT_REGRESSION]
    pooled = similarity + context + spent["Pooled"]
    return [
        *_compared(result),
        f"Designed while looking at {', '.join(map(common.display, DESIGNED_ON))}; the scale of "
        "the regression, of six that differ by 1 % at most, also at two draws of Coauthor Physics. "
        "Nothing else was chosen on Physics, CoraFull, Chameleon, Squirrel (heterophily), "
        "Tiny-ImageNet (images) and synthetic graphs. "
        f"Averages leave out {common.display(SURROGATE)}, whose features are a surrogate, first",
        f"Retrained: the same classifier with the tuning labels among its training labels; all "
        f"methods spend the same labels{gats}; class gap, worst class and SSCV over "
        f"{SPLITS_OF_BALANCE} splits; accuracy of the classifier, and in rows of Pooled that of "
        "its most plausible label",
        f"{WITHOUT_REGRESSION}: the other seven parts, and tuning labels choose the weights only "
        "(`tuning_evidence=False`)",
        f"Processor time per draw, {first_model} at {ALPHAS[0]:g}, all graphs: SNAPS {snaps:.1f} "
        f"s, {WITHOUT_REGRESSION} {without:.1f} s, Pooled {pooled:.1f} s "
        f"({pooled / max(without, 1e-9):.1f} times as much), with similarity graphs, without "
        "retraining",
        common.consistent(result["rows"]),
    ]


def _compared(result: Result) -> list[str]:
    """Ratios of the averages without the surrogate, and where single graphs go the other way."""
    out = []
    most = max((row["datasets"] for row in result["averages"]), default=0)
    surrogate = any(row["dataset"] == SURROGATE for row in result["rows"])
    for row in result["averages"]:
        if row["method"] != "Pooled" or (surrogate and row["datasets"] == most):
            continue
        averages = result["averages"]
        base = _size(averages, row, [BASE])
        without = _size(averages, row, [WITHOUT_REGRESSION])
        rival, floor = _size(averages, row, RIVALS), 1 - row["alpha"]
        larger = [
            common.display(graph["dataset"])
            for graph in result["rows"]
            if all(graph[key] == row[key] for key in ("model", "alpha", "method"))
            and graph["size"] > 1.01 * _size(result["rows"], graph, [WITHOUT_REGRESSION])
        ]
        out.append(
            f"{row['model'].upper()} at {row['alpha']:g}, average of {row['datasets']}: Pooled "
            f"{row['size']:.3f}, {row['size'] / base:.3f} of SNAPS tuned as in the paper (excess "
            f"over {floor:g}: {(row['size'] - floor) / (base - floor):.2f} of its), "
            f"{row['size'] / without:.3f} of {WITHOUT_REGRESSION}, {row['size'] / rival:.3f} of "
            f"the best retrained rival; more than 1 % above {WITHOUT_REGRESSION} on "
            + (", ".join(larger) or "no graph")
        )
        out.append(_by_graph(result, row))
    return out


def _by_graph(result: Result, average: Mapping[str, Any]) -> str:
    """Means over the graphs of Pooled's size relative to others, and the span of those ratios."""
    keys = ("model", "alpha", "method")
    mine = [
        row
        for row in result["rows"]
        if all(row[key] == average[key] for key in keys) and row["dataset"] != SURROGATE
    ]
    others = {BASE: [BASE], "SNAPS on THR": ["SNAPS on THR"], "the best retrained rival": RIVALS}
    ratios = {
        what: [row["size"] / _size(result["rows"], row, names) for row in mine]
        for what, names in others.items()
    }
    spans = [
        f"{np.mean(by_graph):.3f} of {what} ({min(by_graph):.3f} to {max(by_graph):.3f})"
        for what, by_graph in ratios.items()
    ]
    return (
        f"{average['model'].upper()} at {average['alpha']:g}, graph by graph (mean of ratios, and "
        f"their span): Pooled {', '.join(spans)}; the retrained rival trains on fewer labels than "
        "Pooled sees: *heldout* has rivals with the same labels, on graphs not designed on"
    )
