"""Is the advice right? What was recommended from tuning nodes, and what every method gives.

The settings were written down before any of them was run. In each, a part of the pool is for
tuning; `snaps.advise` gets these labels and those of training and validation nodes. Every method is
then tuned on the same nodes and evaluated on random splits of the rest of the pool.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from snaps import metrics
from snaps._checks import check_alpha
from snaps.advisor import (
    BALANCE,
    EXACT_SIZES,
    FEWEST_OF_CLASS,
    GOALS,
    LEAST_SHARE,
    NUMBERS,
    Advice,
    advise,
)
from snaps.conformal.calibration import Calibration
from snaps.errors import SnapsWarning
from snaps.estimators import CANDIDATES, methods
from snaps.predictor.estimator import Estimator, method_of
from snaps.predictor.roles import Roles
from snaps.scoring.local import Inputs
from snaps.sets import PredictionSets
from snaps.splits import Plan, draw_splits, fit_levels, take_tuning
from snaps_lab.reproduce import common, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.protocol import draw_nodes
from snaps_lab.reproduce.runner import Setting

PLAIN = tuple(name for name in CANDIDATES if not name.startswith("Pooled"))
NEAR, FAR = 0.03, 0.10  # what a pick may be above the smallest sets


@dataclass(frozen=True)
class Trial:
    """A user: a graph and a model, labels to tune and to calibrate with, a level."""

    dataset: str
    model: str
    n_tune: int
    n_calib: int
    alpha: float
    draw: int


TRIALS = (
    Trial("cora_ml", "gcn", 60, 200, 0.05, 5),
    Trial("cora_ml", "gcn", 150, 150, 0.1, 6),
    Trial("cora_ml", "gcn", 500, 500, 0.05, 7),
    Trial("citeseer", "gcn", 100, 300, 0.05, 8),
    Trial("citeseer", "gcn", 250, 500, 0.1, 9),
    Trial("citeseer", "gcn", 60, 200, 0.1, 5),
    Trial("pubmed", "gcn", 100, 300, 0.1, 6),
    Trial("pubmed", "gcn", 150, 150, 0.05, 7),
    Trial("pubmed", "gcn", 500, 500, 0.05, 8),
    Trial("amazon_photo", "gcn", 60, 200, 0.05, 9),
    Trial("amazon_photo", "gcn", 100, 300, 0.1, 5),
    Trial("amazon_photo", "gcn", 250, 500, 0.05, 6),
    Trial("amazon_computers", "gcn", 100, 300, 0.05, 7),
    Trial("amazon_computers", "gcn", 250, 500, 0.1, 8),
    Trial("coauthor_cs", "gcn", 60, 200, 0.1, 9),
    Trial("coauthor_cs", "gcn", 250, 500, 0.05, 5),
    Trial("coauthor_physics", "gcn", 60, 200, 0.05, 6),
    Trial("coauthor_physics", "gcn", 150, 150, 0.05, 7),
    Trial("cora_full", "gcn", 100, 300, 0.1, 8),
    Trial("cora_full", "gcn", 250, 500, 0.05, 9),
    Trial("cora_ml", "appnp", 100, 300, 0.05, 5),
    Trial("cora_ml", "appnp", 250, 500, 0.1, 6),
    Trial("citeseer", "appnp", 60, 200, 0.05, 7),
    Trial("citeseer", "appnp", 500, 500, 0.05, 8),
    Trial("pubmed", "appnp", 60, 200, 0.05, 9),
    Trial("pubmed", "appnp", 250, 500, 0.1, 5),
    Trial("coauthor_cs", "appnp", 150, 150, 0.05, 6),
    Trial("cora_ml", "mlp", 60, 200, 0.1, 7),
    Trial("cora_ml", "mlp", 250, 500, 0.05, 8),
    Trial("citeseer", "mlp", 100, 300, 0.1, 9),
    Trial("citeseer", "mlp", 150, 150, 0.05, 5),
    Trial("pubmed", "mlp", 100, 300, 0.05, 6),
    Trial("pubmed", "mlp", 500, 500, 0.1, 7),
    Trial("amazon_photo", "mlp", 150, 150, 0.05, 8),
    Trial("chameleon", "gcn", 100, 300, 0.05, 9),
    Trial("chameleon", "gcn", 250, 500, 0.1, 5),
    Trial("chameleon", "mlp", 150, 150, 0.05, 6),
    Trial("squirrel", "gcn", 150, 150, 0.1, 7),
    Trial("actor", "gcn", 100, 300, 0.05, 8),
    Trial("actor", "mlp", 250, 500, 0.1, 9),
)


def _cell(trial: Trial, setting: Setting) -> dict[str, Any]:
    """What was advised, and what is true."""

    def make() -> dict[str, Any]:
        data = runner.dataset(trial.dataset, setting)
        nodes = draw_nodes(data, setting.seed, trial.draw)
        logits = runner.trained(trial.dataset, trial.model, trial.draw, setting).logits
        similar, _ = runner.similarity(trial.dataset, setting)
        seed = runner.draw_seed(setting, trial.draw)
        known = np.concatenate([nodes.train, nodes.valid])
        inputs = Inputs.read(data.graph, logits, similar, logits=True)
        pool = Roles.read(data.graph, data.num_classes, data.labels, nodes.pool, name="pool").calib
        tuning, rest = take_tuning(pool, trial.n_tune, seed)
        tune_nodes = inputs.positions(tuning.keys)
        roles = Roles.read(
            data.graph, data.num_classes, data.labels, inputs.positions(rest.keys),
            tune_nodes=tune_nodes, known_nodes=known, name="pool",
        )  # fmt: skip
        with warnings.catch_warnings():
            # Of classes with few nodes, and of tuning nodes that chance made unlike the others.
            warnings.simplefilter("ignore", SnapsWarning)
            advised = {}
            for who, names in (("all", CANDIDATES), ("plain", PLAIN)):
                advice = advise(
                    data.graph, logits, data.labels, tune_nodes, n_calib=trial.n_calib,
                    alpha=trial.alpha, known_nodes=known, similarity=similar, logits=True,
                    seed=seed, methods=methods(names, trial.alpha, seed=seed),
                )  # fmt: skip
                advised[who] = {goal: _recommended(advice.for_goal(goal)) for goal in GOALS}
            plan = Plan(trial.n_calib, setting.splits, seed)
            truth = {
                name: _truth(method, inputs, roles, plan)
                for name, method in methods(CANDIDATES, trial.alpha, seed=seed).items()
            }
        return {"advised": advised, "truth": truth}

    mark = runner.mark(trial.dataset, setting, trial.model, trial.draw)
    depends = (mark, asdict(trial), *runner.settled(setting))
    name = f"{trial.dataset}-{trial.model}-advice-{trial.n_tune}-{trial.draw}"
    return runner.kept(name, depends, setting, make)


def _recommended(advice: Advice) -> dict[str, Any]:
    """What is kept of an advice."""
    return {"pick": advice.name, "near_full": not advice.comparison.usable, "row": advice.rows[0]}


def _truth(method: Estimator, inputs: Inputs, roles: Roles, plan: Plan) -> dict[str, float]:
    """The four numbers, averaged over splits of what is left of the pool."""
    alpha = check_alpha(method.alpha)
    ((fitted, pool, n_calib, _),) = fit_levels(method_of(method), inputs, roles, plan, [alpha])
    scores = inputs.score(fitted, inputs.positions(pool.keys))
    promise = method_of(method).promise
    seen = {key: np.zeros((2, inputs.num_classes + 1)) for key in BALANCE}
    trials = []
    for calib in draw_splits(plan.seed, pool.keys, n_calib, plan.n_splits):
        test = np.delete(np.arange(len(pool)), calib)
        own, labels = scores[calib, pool.labels[calib]], pool.labels[calib]
        by_class = method.class_conditional
        calibration = Calibration(
            own, labels, inputs.num_classes, by_class=by_class, promise=promise
        )
        sets = PredictionSets(calibration.contains(scores[test], alpha), test, num_nodes=len(pool))
        trials.append((metrics.size(sets), metrics.singleton_hit(sets, pool.labels)))
        truth = pool.labels[test]
        hits = sets.mask[np.arange(len(test)), truth]
        sizes = np.minimum(sets.mask.sum(axis=1), EXACT_SIZES + 1)
        for key, codes in zip(BALANCE, (truth, sizes), strict=True):
            seen[key][0] += np.bincount(codes, minlength=inputs.num_classes + 1)
            seen[key][1] += np.bincount(codes, hits, inputs.num_classes + 1)
    size, single = np.mean(trials, axis=0).tolist()
    counts = np.bincount(pool.labels, minlength=inputs.num_classes + 1)
    judged = {
        "worst_class": counts >= FEWEST_OF_CLASS,
        "worst_size": seen["worst_size"][0] >= LEAST_SHARE * seen["worst_size"][0].sum(),
    }
    least = {
        key: float((hits[judged[key]] / totals[judged[key]]).min())
        for key, (totals, hits) in seen.items()
    }
    return {"size": size, "singleton_hit": single} | least


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """All trials, or those on the graphs asked for."""
    usual = tuple(dict.fromkeys(trial.dataset for trial in TRIALS))
    names, skipped = common.present(datasets, usual, setting)
    chosen = [trial for trial in TRIALS if trial.dataset in names]
    rows = []
    with track(f"{name}: advice and truth", len(chosen)) as advance:
        for trial in chosen:
            rows.append(asdict(trial) | _row(_cell(trial, setting)))
            advance(1)
    return {
        "table": name,
        "title": "What is recommended, and what is best",
        "settings": {},
        "rows": rows,
        "summary": _summary(rows) | {"splits": setting.splits, "seed": setting.seed},
        "notes": common.notes(names, setting),
        "skipped": skipped,
    }


def _row(cell: Mapping[str, Any]) -> dict[str, Any]:
    """One trial in numbers: `off` is how much larger the pick's sets are than the best's."""
    truth, advised = cell["truth"], cell["advised"]
    sizes = {name: numbers["size"] for name, numbers in truth.items()}
    best = min(sizes, key=sizes.__getitem__)
    advice = advised["all"]["smallest"]
    pick, expected = advice["pick"], advice["row"]
    plain = advised["plain"]["smallest"]["pick"]
    row = {
        "pick": pick,
        "size": sizes[pick],
        "expected": expected["size"],
        "low": expected["size_low"],
        "high": expected["size_high"],
        "best": best,
        "best_size": sizes[best],
        "off": sizes[pick] / sizes[best] - 1,
        "default_off": sizes["Pooled"] / sizes[best] - 1,
        "plain_pick": plain,
        "plain_off": sizes[plain] / min(sizes[name] for name in PLAIN) - 1,
    }
    for goal, key in GOALS.items():
        chosen = advised["all"][goal]["pick"]
        row |= {
            f"{goal}_pick": chosen,
            f"{goal}_number": truth[chosen][key],
            f"{goal}_of_smallest": truth[best][key],
            f"{goal}_size_off": sizes[chosen] / sizes[best] - 1,
        }
    return row


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts over the trials."""
    out: dict[str, Any] = {"trials": len(rows)}
    for who, key in (("advice", "off"), ("default", "default_off"), ("plain", "plain_off")):
        off = np.array([row[key] for row in rows])
        out[who] = {
            "near": int((off <= NEAR).sum()),
            "far": int((off > FAR).sum()),
            "mean": float(off.mean()),
            "worst": float(off.max()),
        }
    out["inside"] = sum(row["low"] <= row["size"] <= row["high"] for row in rows)
    return out


def layout(result: Result) -> tuple[list[str], Cells]:
    """A row a trial."""
    header = [
        "model", "alpha", "dataset", "tuning", "calibration", "recommended", "expected",
        "true size", "best", "its size", "off", "off without Pooled",
        "for classes: worst class, with the smallest sets",
        "for sizes: worst size, with the smallest sets",
    ]  # fmt: skip
    rows = [
        [
            row["model"].upper(),
            f"{row['alpha']:g}",
            common.display(row["dataset"]),
            str(row["n_tune"]),
            str(row["n_calib"]),
            row["pick"],
            f"{row['expected']:.2f} ({row['low']:.2f} to {row['high']:.2f})",
            f"{row['size']:.3f}",
            row["best"],
            f"{row['best_size']:.3f}",
            f"{row['off']:+.1%}",
            f"{row['plain_off']:+.1%}",
            *(
                f"{row[f'{goal}_pick']} ({row[f'{goal}_size_off']:+.0%}): "
                f"{row[f'{goal}_number']:.3f}, {row[f'{goal}_of_smallest']:.3f}"
                for goal in ("classes", "sizes")
            ),
        ]
        for row in result["rows"]
    ]
    return header, rows


def remarks(result: Result) -> list[str]:
    """How often the advice was right, also where the best method was kept from it."""
    summary, rows = result["summary"], result["rows"]
    total = summary["trials"]

    def counted(who: str) -> str:
        counts = summary[who]
        return (
            f"within {NEAR:.0%} of the smallest sets in {counts['near']} of {total}, more than "
            f"{FAR:.0%} off in {counts['far']}; on average {counts['mean']:.1%} off, at worst "
            f"{counts['worst']:.1%}"
        )

    lines = [
        f"{total} settings, chosen before any was run; true sizes are means over "
        f"{summary['splits']} splits, seed {summary['seed']}",
        f"Goal smallest: {counted('advice')}",
        f"Always Pooled, without asking: {counted('default')}",
        f"Pooled kept from competing, goal smallest: {counted('plain')}, of the methods left",
        f"The interval of the expected size holds the true size in {summary['inside']} of {total}",
    ]
    for goal, key in GOALS.items():
        if goal == "smallest":
            continue
        off = np.array([row[f"{goal}_size_off"] for row in rows])
        mine, least = (
            np.mean([row[f"{goal}_{which}"] for row in rows]) for which in ("number", "of_smallest")
        )
        lines.append(
            f"Goal {goal}: sets {off.mean():.1%} larger than the smallest on average, at worst "
            f"{off.max():.0%}; {NUMBERS[key]} {mine:.3f}, with the smallest sets {least:.3f}"
        )
    return lines
