"""What each part of pooled evidence is worth: all, all but one, and fewer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from snaps._checks import check_alpha
from snaps.estimators import Pooled
from snaps.predictor.estimator import method_of
from snaps.scoring.evidence import Evidence
from snaps.scoring.pooling import PARTS
from snaps.splits import Plan, split_method
from snaps_lab.reproduce import common, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.pooled import means, prepare
from snaps_lab.reproduce.protocol import budget
from snaps_lab.reproduce.runner import Setting

MODEL, ALPHA = "gcn", 0.05
UNKNOWN = "no known labels"
VARIANTS: dict[str, tuple[str, ...]] = {
    "all": PARTS,
    **{f"all but {part}": tuple(p for p in PARTS if p != part) for part in PARTS},
    "own, linked, similar": ("own", "linked", "similar"),
    "own": ("own",),
    UNKNOWN: PARTS[:5],
}


def _cell(dataset: str, draw: int, setting: Setting) -> dict[str, Any]:
    def make() -> dict[str, Any]:
        inputs, roles = prepare(dataset, MODEL, draw, setting)
        seed = runner.draw_seed(setting, draw)
        spend = budget(runner.dataset(dataset, setting), "main", len(roles.calib))
        plan = Plan(spend, setting.splits, seed, spend // 2)
        blind = replace(roles, known=Evidence.none())
        out = {}
        for name, parts in VARIANTS.items():
            method = Pooled(ALPHA, parts=parts, seed=seed)
            seen = blind if name == UNKNOWN else roles
            (result,) = split_method(method_of(method), inputs, seen, plan, [check_alpha(ALPHA)])
            out[name] = means(result)
        return out

    depends = (runner.mark(dataset, setting, MODEL, draw), "parts", *runner.settled(setting))
    return runner.kept(f"{dataset}-{MODEL}-pooled-parts-{draw}", depends, setting, make)


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Leave parts out and look at the size."""
    names, skipped = common.present(datasets, common.EIGHT, setting)
    with track(f"{name}: training {MODEL}", len(names) * setting.draws) as advance:
        runner.train_missing(names, MODEL, setting, advance)
    rows: list[dict[str, Any]] = []
    with track(f"{name}: prediction sets", len(names) * setting.draws) as advance:
        for dataset in names:
            cells = []
            for draw in range(setting.draws):
                cells.append(_cell(dataset, draw, setting))
                advance(1)
            for variant in VARIANTS:
                row = {"dataset": dataset, "alpha": ALPHA, "method": variant}
                row |= common.over_draws([cell[variant] for cell in cells], ALPHA, setting)
                row["against_all"] = row["size"] / rows[-1]["all"] - 1 if variant != "all" else 0.0
                row["all"] = row["size"] if variant == "all" else rows[-1]["all"]
                rows.append(row)
    return {
        "table": name,
        "title": f"Parts of pooled evidence, {MODEL.upper()} at alpha = {ALPHA:g}",
        "settings": common.settings(setting),
        "rows": rows,
        "notes": common.notes(names, setting),
        "skipped": skipped,
    }


def layout(result: Result) -> tuple[list[str], Cells]:
    """A row a variant, a column a dataset, and the mean change."""
    groups = common.by_dataset(result["rows"])
    header = ["parts", *(common.display(name) for name in groups), "mean change"]
    rows = []
    for variant in dict.fromkeys(row["method"] for row in result["rows"]):
        mine = [next(r for r in group if r["method"] == variant) for group in groups.values()]
        change = float(np.mean([row["against_all"] for row in mine]))
        sizes = [common.with_error(row["size"], row["size_se"]) for row in mine]
        rows.append([variant, *sizes, f"{change:+.1%}"])
    return header, rows


def remarks(result: Result) -> list[str]:
    """Whether coverage is as expected."""
    return [
        "Sizes over all sets; change against all parts, averaged over the graphs",
        common.consistent(result["rows"]),
    ]
