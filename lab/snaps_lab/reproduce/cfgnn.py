"""CF-GNN, APS, SNAPS and Pooled: sizes, coverage, what each costs, and how the correction trains.

Half of the label budget trains one correction for each draw and level; those nodes leave the pool,
and the rest is split as for every other method. They are the tuning nodes of SNAPS and Pooled,
so that all three are calibrated and tested on the same splits with the same quantile. Scores are
APS, as in the paper; the corrected logits are scored by THR as well, as Pooled's probabilities are.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from snaps._checks import check_alpha
from snaps._runtime.randomness import TUNE_STREAM, smallest
from snaps.datasets import Dataset, make_graph
from snaps.errors import SnapsWarning
from snaps.estimators import Pooled, SplitConformal
from snaps.predictor.estimator import method_of
from snaps.scores import APS, THR
from snaps.splits import evaluate_splits, split_method
from snaps_lab.reproduce import common, distances, drawing, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.pooled import means, prepare, spending_plan
from snaps_lab.reproduce.protocol import AVERAGED, SUITES, Draw, budget, draw_nodes
from snaps_lab.reproduce.runner import Setting
from snaps_lab.reproduce.store import fingerprint

if TYPE_CHECKING:
    from snaps_lab.models.cfgnn import Settings

# Part of every fingerprint: raise it when a change of code changes what a cell holds.
VERSION = 2
MODEL = "gcn"
ALPHAS = (0.05, 0.1)
ON_THR = "CF-GNN on THR"
METHODS = ("APS", "CF-GNN", ON_THR, "SNAPS", "Pooled")
DATASETS = ("cora_ml", "pubmed", "citeseer")
# Where we leave the settings of CF-GNN's authors. They train for 5,000 epochs, 1,000 of them
# warm-up, without a residual, and take the cross-entropy on the classifier's training nodes. On
# CiteSeer we only stop earlier. On CoraML and PubMed that gave larger sets than APS in the first
# draw (2,500 and 200 epochs); a residual, and the cross-entropy on correction nodes, give smaller
# sets on the correction nodes there, and larger ones on CiteSeer.
CHANGES: dict[str, dict[str, Any]] = {
    "cora_ml": {"residual": True, "learning_rate": 1e-3, "warm_up": 200, "max_epochs": 600},
    "pubmed": {"residual": True, "learning_rate": 1e-2, "warm_up": 20, "max_epochs": 60},
    "citeseer": {"warm_up": 100, "max_epochs": 400},
}
OTHERS = {"warm_up": 100, "max_epochs": 300}
# The settings were chosen while looking at the first draws, which are therefore not reported.
CHOSEN_ON = 3
CAPTION = (
    "Above, the smooth stand-in that the correction is trained on; below, the size of real sets. "
    "Most of the gain comes before the warm-up ends, with cross-entropy alone."
)


def correction_settings(name: str) -> Settings:
    """The authors' settings with our changes; a graph they did not tune for has the defaults."""
    from snaps_lab.models.cfgnn import AUTHORS, Settings

    return dataclasses.replace(AUTHORS.get(name, Settings()), **CHANGES.get(name, OTHERS))


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Train the corrections that are not on disk, and evaluate them."""
    names, skipped = common.present(datasets, DATASETS, setting)
    with track(f"{name}: training {MODEL}", len(names) * setting.draws) as advance:
        runner.train_missing(names, MODEL, setting, advance)
    rows, curves = [], []
    draws = range(CHOSEN_ON if setting.draws > CHOSEN_ON else 0, setting.draws)
    total = len(names) * len(ALPHAS) * len(draws)
    with track(f"{name}: training corrections", total) as advance:
        for dataset in names:
            search = _search_time(dataset, setting)
            for alpha in ALPHAS:
                cells = []
                for draw in draws:
                    cell = _cell(dataset, draw, alpha, setting)
                    plain = runner.evaluated(dataset, MODEL, draw, "main", alpha, setting)
                    others = plain["methods"] | {"Pooled": _pooled(dataset, draw, alpha, setting)}
                    cells.append(cell | {"methods": others | cell["methods"]})
                    advance(1)
                rows += _rows(dataset, alpha, cells, search, setting)
                curves.append(_mean_curve(dataset, alpha, cells))
    rows.sort(key=lambda row: ALPHAS.index(row["alpha"]))
    return {
        "table": name,
        "title": "CF-GNN, GCN",
        "settings": common.settings(setting) | {"draws": len(draws)},
        "first_draw": draws[0],
        "rows": rows,
        "curves": curves,
        "corrections": {
            dataset: dataclasses.asdict(correction_settings(dataset)) for dataset in names
        },
        "notes": common.notes(names, setting),
        "skipped": skipped,
    }


# --- one draw and level


def _cell(name: str, draw: int, alpha: float, setting: Setting) -> dict[str, Any]:
    """What a correction gave in one draw, its curve, and what it and SNAPS cost."""
    logits = runner.trained(name, MODEL, draw, setting).logits
    wanted = correction_settings(name)
    mark = fingerprint(
        VERSION, logits, dataclasses.asdict(wanted), alpha, setting.splits, setting.seed
    )
    cell = f"{name}-cfgnn-{alpha:g}-{draw}-{mark}"
    known = setting.store.read_json("cells", cell)
    if known is None:
        data = runner.dataset(name, setting)
        nodes = draw_nodes(data, setting.seed, draw)
        seed = 1000 * setting.seed + draw
        _warm_up()
        known = _corrected(data, logits, nodes, alpha, wanted, setting.splits, seed)
        similar, _ = runner.similarity(name, setting)
        known["time"]["SNAPS"] = _snaps_time(data, logits, nodes, similar, alpha, seed)
        setting.store.write_json("cells", cell, known)
    return known


def _pooled(name: str, draw: int, alpha: float, setting: Setting) -> dict[str, Any]:
    """What Pooled gave in the same splits."""

    def make() -> dict[str, Any]:
        inputs, roles = prepare(name, MODEL, draw, setting)
        plan = spending_plan(name, draw, len(roles.calib), setting)
        method = method_of(Pooled(alpha, seed=plan.seed))
        (result,) = split_method(method, inputs, roles, plan, [check_alpha(alpha)])
        return means(result)

    depends = (runner.mark(name, setting, MODEL, draw), alpha, *runner.settled(setting))
    cell = f"{name}-{MODEL}-cfgnn-pooled-{alpha:g}-{draw}"
    out: dict[str, Any] = runner.kept(cell, depends, setting, make)
    return out


def _shares(data: Dataset, nodes: Draw, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """The nodes that train the correction, the rest of the pool, and labels left to calibrate."""
    spend = budget(data, "main", len(nodes.pool))
    chosen = smallest(seed, data.graph.keys[nodes.pool], TUNE_STREAM, spend // 2)
    return nodes.pool[chosen], np.delete(nodes.pool, chosen), spend - spend // 2


def _corrected(
    data: Dataset,
    logits: np.ndarray,
    nodes: Draw,
    alpha: float,
    settings: Settings,
    splits: int,
    seed: int,
) -> dict[str, Any]:
    from snaps_lab.models.cfgnn import correct

    spent, pool, left = _shares(data, nodes, seed)
    corrected = correct(
        data.graph, logits, data.labels, spent, alpha, settings,
        train_nodes=None if settings.residual else nodes.train, seed=seed, logits=True,
    )  # fmt: skip
    scored = {"CF-GNN": APS(), ON_THR: THR()}
    out = evaluate_splits(
        {name: SplitConformal(alpha, score=score, seed=seed) for name, score in scored.items()},
        data.graph, corrected.logits, data.labels, pool, left, splits, seed, logits=True,
    )  # fmt: skip
    return {
        "methods": {name: means(each) for name, each in out.items()},
        "time": {"CF-GNN": {"cpu_seconds": corrected.cpu_seconds, "seconds": corrected.seconds}},
        "best_epoch": corrected.best_epoch,
        "curve": {name: values.tolist() for name, values in corrected.curve.items()},
    }


# --- time


@lru_cache(maxsize=1)
def _warm_up() -> None:
    """Compile or load the loops, so that this does not count as time of the first cell."""
    from snaps.similarity import similarity_graph
    from snaps_lab.models.cfgnn import Settings

    data = make_graph(600, 2, seed=0)
    features, nodes = data.graph.features, np.arange(600)
    similarity_graph(features.toarray(), 5)
    similar = similarity_graph(features, 5)
    draw = Draw(nodes[:20], nodes[20:40], nodes[40:])
    logits = np.zeros((600, 2), np.float32)
    for layer in ("gcn", "gat"):
        _corrected(data, logits, draw, 0.1, Settings(layer, max_epochs=1), 2, 0)
    _snaps_time(data, logits, draw, similar, 0.1, 0)


def _clock() -> np.ndarray:
    return np.array([time.process_time(), time.perf_counter()])


def _spent(began: np.ndarray) -> dict[str, float]:
    cpu, wall = _clock() - began
    return {"cpu_seconds": float(cpu), "seconds": float(wall)}


def _snaps_time(
    data: Dataset, logits: np.ndarray, nodes: Draw, similar: Any, alpha: float, seed: int
) -> dict[str, float]:
    """Of tuning, calibrating and predicting with SNAPS once, given the similarity graph."""
    tune, pool, left = _shares(data, nodes, seed)
    began = _clock()
    method = SUITES["main"]["SNAPS"](alpha, seed)
    with warnings.catch_warnings():
        # Coverage per class is in the table; here it is time that counts.
        warnings.simplefilter("ignore", SnapsWarning)
        method.calibrate(
            data.graph, logits, data.labels, pool[:left], tune, similarity=similar, logits=True
        )
    method.predict_set(pool[left:])
    return _spent(began)


def _search_time(name: str, setting: Setting) -> dict[str, float]:
    """Of making a dataset's similarity graph, measured once."""
    from snaps.similarity import similarity_graph

    graph = runner.dataset(name, setting).graph
    cell = f"{name}-cfgnn-search-{fingerprint(VERSION, graph.num_nodes, runner.K)}"
    known = setting.store.read_json("cells", cell)
    if known is None:
        _warm_up()
        began = _clock()
        similarity_graph(graph.features, runner.K, ids=graph.keys)
        known = _spent(began)
        setting.store.write_json("cells", cell, known)
    return known


# --- the result


def _rows(
    dataset: str,
    alpha: float,
    cells: list[dict[str, Any]],
    search: dict[str, float],
    setting: Setting,
) -> list[dict[str, Any]]:
    """A row a method: means over the draws, the paper's numbers, and time."""
    paper = _published()
    rows = []
    for method in METHODS:
        row: dict[str, Any] = {"dataset": dataset, "alpha": alpha, "method": method}
        of_method = [cell["methods"][method] for cell in cells]
        for key in AVERAGED:
            values = np.array([each[key] for each in of_method])
            row[key] = float(values.mean())
            if key in ("size", "size_nonempty"):
                row[f"{key}_se"] = common.standard_error(values)
        n, m = of_method[0]["n_calib"], of_method[0]["n_test"]
        row |= common.against_law(row["coverage"], n, m, alpha, setting.splits * len(cells))
        row |= paper.get((dataset, alpha, method), {})
        for key in ("cpu_seconds", "seconds") if method in cells[0]["time"] else ():
            row[key] = float(np.mean([cell["time"][method][key] for cell in cells]))
            row[key] += search[key] if method == "SNAPS" else 0.0
        rows.append(row)
    by_method = {row["method"]: row for row in rows}
    for key in ("cpu_seconds", "seconds", "paper_seconds"):
        ours, theirs = (by_method[method].get(key) for method in ("SNAPS", "CF-GNN"))
        if ours and theirs:
            by_method["CF-GNN"][f"{key}_ratio"] = theirs / ours
    return rows


def _published() -> dict[tuple[str, float, str], dict[str, float]]:
    """The paper's sizes and seconds; those of APS are from its other tables."""
    numbers_of = {
        (row["dataset"], row["alpha"], "APS"): {"paper_size": row["size"]}
        for row in common.published()["results"]
        if row["table"] in ("table1", "gcn-0.1") and row["method"] == "APS"
    }
    for row in common.published()["cfgnn"]:
        numbers = {"paper_size": row["size"], "paper_seconds": row["seconds"]}
        numbers_of[row["dataset"], row["alpha"], row["method"]] = numbers
    return numbers_of


def _mean_curve(dataset: str, alpha: float, cells: list[dict[str, Any]]) -> dict[str, Any]:
    """The correction's curve, averaged over the draws as far as all of them went."""
    length = min(len(cell["curve"]["size"]) for cell in cells)
    means = {
        key: np.mean([cell["curve"][key][:length] for cell in cells], axis=0).tolist()
        for key in cells[0]["curve"]
    }
    best = float(np.mean([cell["best_epoch"] for cell in cells]))
    return {"dataset": dataset, "alpha": alpha, "best_epoch": best, **means}


def layout(result: Result) -> tuple[list[str], Cells]:
    """Ours next to the paper's."""
    header = [
        "alpha", "dataset", "method", "coverage", "size", "size, non-empty", "paper", "CPU s",
        "paper s",
    ]  # fmt: skip
    rows = [
        [
            f"{row['alpha']:g}",
            common.display(row["dataset"]),
            row["method"],
            common.with_mark(row),
            common.with_error(row["size"], row["size_se"]),
            common.with_error(row["size_nonempty"], row["size_nonempty_se"]),
            _number(row, "paper_size"),
            _number(row, "cpu_seconds"),
            _number(row, "paper_seconds"),
        ]
        for row in result["rows"]
    ]
    return header, rows


def _number(row: dict[str, Any], key: str) -> str:
    return f"{row[key]:.2f}" if key in row else ""


def remarks(result: Result) -> list[str]:
    """Which sets are smaller, what they cost, and where we left the authors' settings."""
    rows = {(row["alpha"], row["dataset"], row["method"]): row for row in result["rows"]}
    corrected = [row for row in result["rows"] if row["method"] == "CF-GNN"]
    lines = []
    for row in corrected:
        plain = rows[row["alpha"], row["dataset"], "APS"]["size"]
        line = f"{common.display(row['dataset'])} at alpha = {row['alpha']:g}: CF-GNN's sets are "
        line += f"{row['size'] / plain - 1:+.1%} compared with those of APS, and it takes "
        line += f"{row['cpu_seconds_ratio']:.1f} times SNAPS's processor time"
        if "paper_seconds_ratio" in row:
            line += f" (paper: {row['paper_seconds_ratio']:.0f} times its time)"
        pooled = rows.get((row["alpha"], row["dataset"], "Pooled"))
        if pooled:
            other = rows[row["alpha"], row["dataset"], ON_THR]["size"]
            line += f"; Pooled's are {pooled['size'] / row['size']:.3f} of CF-GNN's, and "
            line += f"{pooled['size'] / other:.3f} of CF-GNN's on THR"
        lines.append(line)
    inside = sum(row["inside_law"] for row in result["rows"])
    first = result.get("first_draw", 0)
    reported = (
        f"Draws {first} to {first + result['settings']['draws'] - 1}: the settings were chosen "
        "while looking at the draws before these"
        if first
        else f"The settings were chosen while looking at draws 0 to {CHOSEN_ON - 1}, these here"
    )
    return [
        *lines,
        reported,
        "Time: training one correction; one similarity graph, tuning, calibration and prediction "
        "with SNAPS. Neither counts the classifier. Ours is processor time",
        *_changes(result),
        f"Mean coverage within four standard errors of its expected value: {inside} of "
        f"{len(result['rows'])} cells",
        *distances.lines(result),
    ]


def _changes(result: Result) -> list[str]:
    """How each correction was trained."""
    lines = []
    for dataset, used in result["corrections"].items():
        form = (
            "adds to the classifier's log-probabilities, cross-entropy on correction nodes"
            if used["residual"]
            else "makes new logits, cross-entropy on training nodes, as its authors do"
        )
        lines.append(
            f"CF-GNN on {common.display(dataset)}: {used['layer'].upper()} {used['layers']} x "
            f"{used['hidden']}, {form}; learning rate {used['learning_rate']:g}, temperature "
            f"{used['temperature']:g}, target {used['target']}, weight {used['weight']:g}, "
            f"{used['max_epochs']} epochs"
        )
    return lines


def draw(result: Result) -> Any:
    """The inefficiency that is trained and the size of real sets, epoch by epoch."""
    datasets = list(dict.fromkeys(curve["dataset"] for curve in result["curves"]))
    figure, axes = drawing.panels(2, len(datasets), 4.2, 2.7)
    names = {"inefficiency": "inefficiency (soft)", "size": "mean size (labels)"}
    for column, dataset in enumerate(datasets):
        curves = [curve for curve in result["curves"] if curve["dataset"] == dataset]
        warm_up = result["corrections"][dataset]["warm_up"]
        for line, (key, up) in enumerate(names.items()):
            axis = axes[line, column]
            for curve in curves:
                look = drawing.style(ALPHAS.index(curve["alpha"])) | {"marker": None}
                axis.plot(curve[key], label=f"alpha = {curve['alpha']:g}", **look)
            axis.axvline(
                warm_up, color=drawing.GREY, linewidth=0.9, linestyle=(0, (1, 2)),
                label="end of warm-up",
            )  # fmt: skip
            title = (
                f"{common.display(dataset)}: {'size of the sets' if line else 'what is trained'}"
            )
            drawing.label(axis, title, "epoch" * line, "" if column else up)
    axes[0, -1].legend(frameon=False, fontsize=drawing.SMALL)
    return figure
