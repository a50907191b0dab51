"""How accurate the models are."""

from __future__ import annotations

import numpy as np

from snaps_lab.reproduce import common, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.runner import Setting

AS_AUTHORS = True


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Train every model that is not on disk."""
    names, skipped = common.present(datasets, common.EIGHT, setting)
    paper = {(row["dataset"], row["model"]): row for row in common.published()["accuracy"]}
    rows = []
    for model in common.MODELS:
        draws = setting.draws
        with track(f"accuracy: training {model}", len(names) * draws) as advance:
            runner.train_missing(names, model, setting, advance)
        for dataset in names:
            runs = [runner.trained(dataset, model, d, setting) for d in range(draws)]
            values = np.array([run.accuracy for run in runs])
            known = paper.get((dataset, model), {})
            row = {
                "dataset": dataset,
                "model": model,
                "accuracy": float(values.mean()),
                "sd": float(values.std(ddof=1)) if len(values) > 1 else None,
                "epochs": float(np.mean([run.epochs for run in runs])),
                "cpu_seconds": float(np.mean([run.cpu_seconds for run in runs])),
                "paper_accuracy": known.get("mean"),
                "paper_sd": known.get("sd"),
            }
            if known.get("sd"):
                gap = abs(row["accuracy"] - known["mean"])
                row["within_two_sd"] = bool(gap <= 2 * known["sd"])
            rows.append(row)
    return {
        "table": name,
        "title": "Accuracy of the models on the pool",
        "settings": common.settings(setting),
        "rows": rows,
        "notes": common.notes(names, setting),
        "skipped": skipped,
    }


def layout(result: Result) -> tuple[list[str], Cells]:
    """Ours next to the paper's."""
    header = ["model", "dataset", "accuracy %", "paper %", "within two sd", "epochs", "CPU s"]
    rows = [
        [
            row["model"].upper(),
            common.display(row["dataset"]),
            common.with_error(
                100 * row["accuracy"], None if row["sd"] is None else 100 * row["sd"], 2
            ),
            ""
            if row["paper_accuracy"] is None
            else common.with_error(100 * row["paper_accuracy"], 100 * (row["paper_sd"] or 0), 2),
            {True: "yes", False: "no", None: ""}[row.get("within_two_sd")],
            f"{row['epochs']:.0f}",
            f"{row['cpu_seconds']:.1f}",
        ]
        for row in result["rows"]
    ]
    return header, rows


def remarks(result: Result) -> list[str]:
    """Which accuracies are not the paper's."""
    off = [
        f"{row['model'].upper()} on {common.display(row['dataset'])}"
        for row in result["rows"]
        if row.get("within_two_sd") is False
    ]
    judged = sum("within_two_sd" in row for row in result["rows"])
    return [
        f"Within two of the paper's standard deviations: {judged - len(off)} of {judged}"
        + (f"; not {', '.join(off)}" if off else ""),
    ]
