"""Promises beyond an average: floors, class thresholds and accepted labels, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from snaps._checks import check_alpha
from snaps.conformal.calibration import Calibration, Promise
from snaps.conformal.rank import enough
from snaps.conformal.selection import list_shares
from snaps.estimators import methods
from snaps.predictor.estimator import method_of
from snaps.predictor.roles import Roles
from snaps.predictor.selection import label_evidence
from snaps.scoring.local import Inputs
from snaps.splits import Plan, draw_splits, fit_levels, take_tuning
from snaps_lab.reproduce import common, rivals, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.pooled import prepare, seen, spending_plan
from snaps_lab.reproduce.protocol import AVERAGED
from snaps_lab.reproduce.runner import Setting

MODEL = "gcn"
ALPHAS = (0.05, 0.1)
FLOOR = Fraction(4, 5)
ONE, FLOORED, BY_CLASS = "one threshold", "floor 0.8", "class thresholds"
KINDS: dict[str, dict[str, Any]] = {
    ONE: {},
    FLOORED: {"promise": Promise(class_floor=FLOOR)},
    BY_CLASS: {"by_class": True},
}
METHODS = ("APS", "SNAPS", "Pooled")
ERRORS = (0.01, 0.02, 0.05)
ACCEPT = "accept"
CLASSIFIER, RETRAINED, POOLED = "classifier", "classifier, retrained", "Pooled"
LISTS = (CLASSIFIER, RETRAINED, POOLED)
WITHIN = 4  # standard errors that a class may lie below its promise by chance

PROMISED_SPLITS = 0.2  # of all splits: a class that is promised anything in fewer is not judged

Cell = dict[str, Any]


# -- one draw -------------------------------------------------------------------------------------


def _sets_cell(
    scores: np.ndarray, labels: np.ndarray, splits: np.ndarray, level: Fraction, kind: str
) -> Cell:
    """Means over the splits of one fitted method with one kind of thresholds."""
    num_classes, trials = scores.shape[1], list[dict[str, float]]()
    promised = level if kind == BY_CLASS else 1 - FLOOR
    true = scores[np.arange(len(scores)), labels]
    by_class = np.full((len(splits), num_classes), np.nan)
    counts = np.zeros((len(splits), num_classes), bool)
    for row, calib in enumerate(splits):
        test = np.ones(len(scores), bool)
        test[calib] = False
        own, others = labels[calib], labels[test]
        calibration = Calibration(true[calib], own, num_classes, **KINDS[kind])
        mask = calibration.contains(scores[test], level)
        size, hit = mask.sum(axis=1), mask[np.arange(len(mask)), others]
        trials.append(
            {
                "coverage": hit.mean(),
                "size": size.mean(),
                "size_nonempty": size.sum() / max((size > 0).sum(), 1),
                "singleton_hit": (hit & (size == 1)).mean(),
                "empty": (size == 0).mean(),
            }
        )
        tested = np.bincount(others, minlength=num_classes)
        hits = np.bincount(others, hit, minlength=num_classes)
        np.divide(hits, tested, out=by_class[row], where=tested > 0)
        drawn = np.bincount(own, minlength=num_classes)
        counts[row] = [enough(int(count), promised) for count in drawn]
    out: Cell = {key: float(np.mean([trial[key] for trial in trials])) for key in AVERAGED}
    out |= {"n_calib": splits.shape[1], "n_test": len(scores) - splits.shape[1]}
    out["classes"] = [_mean_and_error(column) for column in by_class.T]
    # The guarantee holds given the number of calibration nodes of the class: of splits with enough.
    out["promised"] = [
        _mean_and_error(coverage[tested]) if tested.mean() >= PROMISED_SPLITS else None
        for coverage, tested in zip(by_class.T, counts.T, strict=True)
    ]
    return out


def _mean_and_error(values: np.ndarray) -> list[float] | None:
    """Of a class's coverage over splits; None with fewer than two."""
    values = values[~np.isnan(values)]
    if len(values) < 2:
        return None
    return [float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))]


def _lists_cell(
    method: str, inputs: Inputs, roles: Roles, plan: Plan, errors: Sequence[float]
) -> dict[str, dict[str, float]]:
    """The share of nodes accepted and the wrong share of these, by error rate."""
    made = methods([method], 0.1, seed=plan.seed)[method]
    level = [check_alpha(0.1)]
    ((fitted, rest, spend, _),) = fit_levels(method_of(made), inputs, roles, plan, level)
    positions = inputs.positions(rest.keys)
    evidence, guess = label_evidence(inputs, fitted, positions, None)
    splits, wrong = draw_splits(plan.seed, rest.keys, spend, plan.n_splits), guess != rest.labels
    out = {}
    for error in errors:
        selected, false = list_shares(evidence, wrong, splits, check_alpha(error))
        out[f"{error:g}"] = {
            "selected": float(selected.mean()),
            "wrong": float(false.mean()),
            "wrong_se": float(false.std(ddof=1) / math.sqrt(len(false))) if len(false) > 1 else 0.0,
            "n_calib": spend,
        }
    return out


def _cell(dataset: str, draw: int, setting: Setting) -> dict[str, Any]:
    """All that is measured with one trained classifier."""

    def make() -> dict[str, Any]:
        inputs, roles = prepare(dataset, MODEL, draw, setting)
        plan = spending_plan(dataset, draw, len(roles.calib), setting)
        levels = [check_alpha(alpha) for alpha in ALPHAS]
        sets: dict[str, Any] = {}
        for name, method in methods(METHODS, ALPHAS[0], seed=plan.seed).items():
            made = fit_levels(method_of(method), inputs, roles, plan, levels)
            for fitted, rest, spend, level in made:
                scores = inputs.score(fitted, inputs.positions(rest.keys))
                splits = draw_splits(plan.seed, rest.keys, spend, plan.n_splits)
                sets.setdefault(name, {})[f"{float(level):g}"] = {
                    kind: _sets_cell(scores, rest.labels, splits, level, kind) for kind in KINDS
                }
        lists = {
            CLASSIFIER: _lists_cell("THR", inputs, roles, plan, ERRORS),
            POOLED: _lists_cell("Pooled", inputs, roles, plan, ERRORS),
        }
        again, _ = seen(dataset, draw, rivals.retrained(dataset, MODEL, draw, setting), setting)
        assert plan.n_tune is not None
        later = replace(roles, calib=take_tuning(roles.calib, plan.n_tune, plan.seed)[1])
        shorter = Plan(plan.budget - plan.n_tune, plan.n_splits, plan.seed)
        lists[RETRAINED] = _lists_cell("THR", again, later, shorter, ERRORS)
        return {"sets": sets, "lists": lists}

    mark = runner.mark(dataset, setting, MODEL, draw)
    depends = (mark, METHODS, ALPHAS, tuple(KINDS), ERRORS, *runner.settled(setting))
    return runner.kept(f"{dataset}-{MODEL}-decisions-{draw}", depends, setting, make)


# -- all draws ------------------------------------------------------------------------------------


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Compute the cells that are not on disk, then compare."""
    graphs, skipped = common.present(datasets, common.SEVEN, setting)
    for graph in graphs:  # once, and not by several processes
        runner.similarity(graph, setting), runner.context(graph, setting)
    cells = common.in_draws(name, _cell, graphs, setting, track)
    rows = [
        row
        for alpha in ALPHAS
        for graph in graphs
        for method in METHODS
        for row in _set_rows(graph, cells[graph], method, alpha, setting)
    ]
    for error in ERRORS:
        for graph in graphs:
            rows += [_list_row(graph, cells[graph], who, error) for who in LISTS]
    return {
        "table": name,
        "title": f"Promises beyond an average, {MODEL.upper()}",
        "settings": common.settings(setting),
        "rows": rows,
        "averages": _averages(rows),
        "notes": common.notes(graphs, setting),
        "skipped": skipped,
    }


def _set_rows(
    dataset: str, cells: list[Cell], method: str, alpha: float, setting: Setting
) -> list[dict[str, Any]]:
    """Each kind of thresholds next to one threshold, on one graph."""
    out: list[dict[str, Any]] = []
    for kind in KINDS:
        mine = [cell["sets"][method][f"{alpha:g}"][kind] for cell in cells]
        row = {"dataset": dataset, "promise": kind, "level": alpha, "method": method}
        row |= common.over_draws(mine, alpha, setting)
        if kind == BY_CLASS:  # together the classes have another distribution
            for key in ("inside_law", "coverage_low", "coverage_high"):
                del row[key]
        row["worst_class"] = min(
            mean for mean, _ in _over_draws(mine, "classes") if mean is not None
        )
        least = 1 - alpha if kind == BY_CLASS else float(FLOOR)
        promised = [pair for pair in _over_draws(mine, "promised") if pair[0] is not None]
        if kind != ONE:
            row["promised"], row["classes"] = len(promised), len(mine[0]["classes"])
            row["worst_promised"] = min(mean for mean, _ in promised)
            row["broken"] = sum(mean < least - WITHIN * error for mean, error in promised)
            row["to_one"] = row["size"] / out[0]["size"] - 1
        out.append(row)
    return out


def _over_draws(cells: list[Cell], key: str) -> list[tuple[Any, float]]:
    """Coverage of each class, mean over the draws that have it, and its standard error."""
    out = list[tuple[Any, float]]()
    for each in zip(*(cell[key] for cell in cells), strict=True):
        pairs = np.array([pair for pair in each if pair is not None])
        if len(pairs):
            mean, errors = pairs.mean(axis=0)[0], pairs[:, 1]
            out.append((float(mean), float(math.sqrt((errors**2).sum()) / len(errors))))
        else:
            out.append((None, 0.0))
    return out


def _list_row(dataset: str, cells: list[Cell], who: str, error: float) -> dict[str, Any]:
    mine = [cell["lists"][who][f"{error:g}"] for cell in cells]
    selected = np.array([each["selected"] for each in mine])
    errors = np.array([each["wrong_se"] for each in mine])
    wrong, wrong_se = np.mean([each["wrong"] for each in mine]), np.sqrt((errors**2).sum())
    return {
        "dataset": dataset,
        "promise": ACCEPT,
        "level": error,
        "method": who,
        "n_calib": mine[0]["n_calib"],
        "selected": float(selected.mean()),
        "selected_se": common.standard_error(selected),
        "wrong": float(wrong),
        "broken": int(wrong > error + WITHIN * wrong_se / len(errors)),
    }


def _averages(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Over the graphs."""
    out = []
    keys = ("promise", "level", "method")
    for about in dict.fromkeys(tuple(row[key] for key in keys) for row in rows):
        mine = [row for row in rows if tuple(row[key] for key in keys) == about]
        mean = dict(zip(keys, about, strict=True)) | {"datasets": len(mine)}
        for key in (
            "coverage",
            "size",
            "to_one",
            "worst_class",
            "worst_promised",
            "selected",
            "wrong",
        ):
            if key in mine[0]:
                mean[key] = float(np.mean([row[key] for row in mine]))
        if "to_one" in mine[0]:
            mean["largest"] = max(row["to_one"] for row in mine)
        for key in ("promised", "classes", "broken"):
            if key in mine[0]:
                mean[key] = sum(row[key] for row in mine)
        out.append(mean)
    return out


# -- what is shown --------------------------------------------------------------------------------


def layout(result: Result) -> tuple[list[str], Cells]:
    """A row a promise, level, graph and method: what was observed, and what it costs."""
    header = ["promise", "level", "dataset", "method", "coverage, or right", "labels, or accepted"]
    header += ["to one threshold", "worst class", "worst promised", "classes promised", "broken"]
    rows = [_line(row, common.display(row["dataset"])) for row in result["rows"]]
    rows += [_line(row, f"Average of {row['datasets']}") for row in result["averages"]]
    return header, rows


def _line(row: dict[str, Any], name: str) -> list[str]:
    start = [row["promise"], f"{row['level']:g}", name, row["method"]]
    if row["promise"] == ACCEPT:
        share = 100 * row["selected"]
        error = row.get("selected_se")
        shown = common.with_error(share, None if error is None else 100 * error, 1)
        return [*start, f"{1 - row['wrong']:.4f}", f"{shown} %", "", "", "", "", str(row["broken"])]
    cells = [common.with_mark(row), common.with_error(row["size"], row.get("size_se"))]
    cells += [f"{row['to_one']:+.1%}" if "to_one" in row else "", f"{row['worst_class']:.3f}"]
    if "promised" not in row:
        return [*start, *cells, "", "", ""]
    promised = [f"{row['worst_promised']:.3f}", f"{row['promised']} of {row['classes']}"]
    return [*start, *cells, *promised, str(row["broken"])]


def remarks(result: Result) -> list[str]:
    """What the promises cost, and whether they held."""
    lines = [
        "Level: alpha of sets, or the error rate of 'accept'. SNAPS and Pooled are tuned on half "
        "of the labels, on which the retrained classifier is trained; APS and the classifier are "
        "calibrated on all",
        "Worst class: the least coverage of a class, mean over splits and draws; worst promised: "
        "of the classes with enough calibration nodes for a promise in a fifth of the splits or "
        "more, in these splits",
        f"Broken: classes covered more than {WITHIN} standard errors less than promised, and lists "
        "with a wrong share that far above their rate",
    ]
    for mean in result["averages"]:
        if mean["promise"] == FLOORED:
            lines.append(
                f"{mean['method']} at {mean['level']:g}, floor 0.8: {mean['to_one']:+.1%} labels "
                f"per set (largest {mean['largest']:+.1%}), worst promised class on average "
                f"{mean['worst_promised']:.3f}; broken in {mean['broken']} of {mean['promised']} "
                "classes"
            )
    lines += [_accepted(result, error) for error in ERRORS]
    judged = [row for row in result["rows"] if "inside_law" in row]
    return [*lines, common.consistent(judged)]


def _accepted(result: Result, error: float) -> str:
    """Shares accepted, and the ratio to the retrained classifier: of means, and its mean."""
    mean, graphs = (
        [row for row in result[kind] if row["promise"] == ACCEPT and row["level"] == error]
        for kind in ("averages", "rows")
    )
    means = {row["method"]: row for row in mean}
    shares = ", ".join(
        f"{who} {means[who]['selected']:.1%} ({means[who]['wrong']:.2%} wrong)" for who in LISTS
    )
    share = {(row["dataset"], row["method"]): row["selected"] for row in graphs}
    ratios = [
        share[graph, POOLED] / max(share[graph, RETRAINED], 1e-12)
        for graph in dict.fromkeys(row["dataset"] for row in graphs)
    ]
    ratio = means[POOLED]["selected"] / max(means[RETRAINED]["selected"], 1e-12)
    return (
        f"Accepted at error {error:g}, mean over the graphs: {shares}; Pooled accepts {ratio:.2f} "
        "times as many as the retrained classifier (mean of the graphs' ratios: "
        f"{sum(ratios) / len(ratios):.2f})"
    )
