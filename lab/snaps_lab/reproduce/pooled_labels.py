"""How many labels pooled evidence needs: size against tuning and calibration nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from snaps._checks import check_alpha
from snaps.estimators import all_methods
from snaps.predictor.estimator import method_of
from snaps.splits import Plan, split_method
from snaps_lab.reproduce import common, drawing, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.pooled import means, prepare
from snaps_lab.reproduce.runner import Setting

MODEL, ALPHA = "gcn", 0.05
TUNING, CALIBRATION = (25, 50, 100, 250, 500), (50, 100, 250, 500)
MOST = 500  # of the one while the other varies
DIVIDED = ((300, 700), (400, 600), (600, 400), (700, 300))  # of 1,000 labels; also 500 and 500
METHODS = {
    "SNAPS, 1/3": "SNAPS, thirds",
    "SNAPS, minimum": "SNAPS, minimum",
    "SNAPS": "SNAPS",
    "Pooled": "Pooled",
}
CAPTION = (
    "Sizes are relative to SNAPS with 1/3 on as many calibration nodes: pooled evidence is ahead "
    "with few tuning nodes, and gains with each more. "
    "The picture does not show that all sizes themselves fall with more calibration nodes: "
    "see the line on them above, and the table."
)


def _cell(dataset: str, draw: int, n_tune: int, n_calib: int, setting: Setting) -> dict[str, Any]:
    def make() -> dict[str, Any]:
        inputs, roles = prepare(dataset, MODEL, draw, setting)
        seed = runner.draw_seed(setting, draw)
        out = {}
        for name, known in METHODS.items():
            method = all_methods(ALPHA, seed=seed)[known]
            # Fixed weights leave the tuning nodes unused; calibration nodes are the same for all.
            share = n_tune if method_of(method).scorer.needs_tuning else 0
            plan = Plan(share + n_calib, setting.splits, seed, share)
            (result,) = split_method(method_of(method), inputs, roles, plan, [check_alpha(ALPHA)])
            out[name] = means(result)
        return out

    mark = runner.mark(dataset, setting, MODEL, draw)
    depends = (mark, "labels", *METHODS, n_tune, n_calib, *runner.settled(setting))
    name = f"{dataset}-{MODEL}-pooled-labels-{n_tune}-{n_calib}-{draw}"
    return runner.kept(name, depends, setting, make)


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Vary one number of labels at a time."""
    names, skipped = common.present(datasets, common.SEVEN, setting)
    with track(f"{name}: training {MODEL}", len(names) * setting.draws) as advance:
        runner.train_missing(names, MODEL, setting, advance)
    wanted = [("tuning", t, MOST) for t in TUNING] + [("calibration", MOST, c) for c in CALIBRATION]
    wanted += [("both", t, c) for t, c in DIVIDED]
    rows = []
    with track(f"{name}: prediction sets", len(names) * len(wanted) * setting.draws) as advance:
        for dataset in names:
            for varied, n_tune, n_calib in wanted:
                cells = []
                for draw in range(setting.draws):
                    cells.append(_cell(dataset, draw, n_tune, n_calib, setting))
                    advance(1)
                for method in METHODS:
                    row = {"dataset": dataset, "alpha": ALPHA, "method": method, "varied": varied}
                    row |= common.over_draws([cell[method] for cell in cells], ALPHA, setting)
                    rows.append(row | {"n_tune": n_tune, "n_calib": n_calib})
    return {
        "table": name,
        "title": f"Size against labels spent, {MODEL.upper()} at alpha = {ALPHA:g}",
        "settings": common.settings(setting),
        "rows": rows,
        "averages": _averages(rows),
        "notes": common.notes(names, setting),
        "skipped": skipped,
    }


def _averages(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean over the datasets of the size relative to that of fixed SNAPS with the same labels."""
    out = []
    groups = dict.fromkeys((r["varied"], r["n_tune"], r["n_calib"], r["method"]) for r in rows)
    for varied, n_tune, n_calib, method in groups:
        mine, base = (
            [
                row["size"]
                for row in rows
                if (row["varied"], row["n_tune"], row["n_calib"]) == (varied, n_tune, n_calib)
                and row["method"] == name
            ]
            for name in (method, "SNAPS, 1/3")
        )
        ratio = float(np.mean(np.array(mine) / np.array(base)))
        out.append(
            {
                "varied": varied,
                "n_tune": n_tune,
                "n_calib": n_calib,
                "method": method,
                "size": float(np.mean(mine)),
                "to_fixed": ratio - 1,
            }
        )
    return out


def layout(result: Result) -> tuple[list[str], Cells]:
    """A row a number of labels and method, a column a dataset."""
    names = list(common.by_dataset(result["rows"]))
    header = ["varied", "tuning", "calibration", "method", *map(common.display, names), "to 1/3"]
    rows = []
    for mean in result["averages"]:
        mine = {
            row["dataset"]: row
            for row in result["rows"]
            if all(row[key] == mean[key] for key in ("varied", "n_tune", "n_calib", "method"))
        }
        sizes = [common.with_error(mine[name]["size"], mine[name]["size_se"]) for name in names]
        counts = [mean["varied"], str(mean["n_tune"]), str(mean["n_calib"]), mean["method"]]
        rows.append([*counts, *sizes, f"{mean['to_fixed']:+.1%}"])
    return header, rows


def remarks(result: Result) -> list[str]:
    """What the last column says, and whether coverage is as expected."""
    return [
        "'SNAPS, minimum' takes the weights with the smallest sets on the tuning nodes, as in the "
        "paper; 'SNAPS' is the default, the mean of the minima of resamples, leaning to 1/3",
        "'to 1/3': size against SNAPS with lam = mu = 1/3 on the same calibration nodes, averaged "
        "over the graphs",
        *_over_calibration(result["averages"]),
        common.consistent(result["rows"]),
    ]


def _over_calibration(averages: list[dict[str, Any]]) -> list[str]:
    """What more calibration nodes bring each method."""
    changes = []
    for method in METHODS:
        few, *_, many = _panel(averages, "calibration", method)
        change = many["size"] / few["size"] - 1
        changes.append(f"{method} {few['size']:.3f} to {many['size']:.3f} ({change:+.0%})")
    spent = f"{CALIBRATION[0]} to {CALIBRATION[-1]} calibration nodes"
    return [f"Mean size over the graphs from {spent}: {'; '.join(changes)}"]


def draw(result: Result) -> Any:
    """Mean size relative to fixed SNAPS, over tuning nodes, calibration nodes, and their share."""
    figure, axes = drawing.panels(1, 3, 4.2, 3.4)
    keys = {"tuning": "n_tune", "calibration": "n_calib", "both": "n_tune"}
    across = {
        "tuning": f"tuning nodes, with {MOST} calibration nodes",
        "calibration": f"calibration nodes, with {MOST} tuning nodes",
        "both": f"tuning nodes of {2 * MOST} labels, the others for calibration",
    }
    for panel in axes[0][1:]:
        panel.sharey(axes[0][0])
    for panel, (varied, key) in zip(axes[0], keys.items(), strict=True):
        counts: list[int] = []
        for place, method in enumerate(METHODS):
            mine = _panel(result["averages"], varied, method)
            counts = [row[key] for row in mine]
            sizes = [100 * row["to_fixed"] for row in mine]
            panel.plot(counts, sizes, label=method, **drawing.style(place))
        if varied != "both":
            panel.set_xscale("log")
        panel.set_xticks(counts, [str(count) for count in counts])
        panel.minorticks_off()
        up = "size against SNAPS with 1/3 (%)" if panel is axes[0][0] else ""
        title = "Size by share of labels" if varied == "both" else f"Size by {varied} nodes"
        drawing.label(panel, title, across[varied], up)
    axes[0][0].legend(frameon=False, fontsize=drawing.SMALL)
    return figure


def _panel(averages: list[dict[str, Any]], varied: str, method: str) -> list[dict[str, Any]]:
    """The averages of one curve, in order; halves belong to the shares of all labels, too."""
    mine = [row for row in averages if row["method"] == method]
    halves = [row for row in mine if row["n_tune"] == row["n_calib"] == MOST][:1]
    curve = [row for row in mine if row["varied"] == varied]
    if varied == "both":
        curve = sorted([*curve, *halves], key=lambda row: row["n_tune"])
    return curve
