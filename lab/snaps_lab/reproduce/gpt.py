"""A classifier that is no GNN and was not trained here: GPT-3.5's answers on PubMed.

It was asked for the class of each paper, and named up to three in order. The answers become
probabilities by a rule that was fixed before any result: the r-th class named weighs 2^-r, a class
not named 2^-6. So a single answer is surer than several. No answer is looked at by label.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snaps.estimators import DAPS, methods
from snaps_lab.reproduce import common, measure, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.graphs import YEARS, side_table
from snaps_lab.reproduce.pooled import seen, spending_plan
from snaps_lab.reproduce.runner import Setting

DATASET, MODEL = "pubmed", "GPT-3.5"
NAMES = (DATASET,)
ALPHAS = (0.05, 0.1)
METHODS = ("APS", "DAPS", "SNAPS, minimum", "SNAPS", "Pooled", "Pooled on APS")
NOT_NAMED = 2.0**-6


def probabilities(ranked: np.ndarray, num_classes: int) -> np.ndarray:
    """From classes in order, -1 where no more was named.

    Examples
    --------
    >>> probabilities(np.array([[2, -1, -1], [0, 1, -1]]), 3).round(3)
    array([[0.029, 0.029, 0.941],
           [0.653, 0.327, 0.02 ]])
    """
    out = np.full((len(ranked), num_classes), NOT_NAMED)
    for rank, classes in enumerate(ranked.T, 1):
        named = np.flatnonzero(classes >= 0)
        out[named, classes[named]] = 2.0**-rank
    return out / out.sum(axis=1, keepdims=True)


def _cell(draw: int, setting: Setting) -> dict[str, Any]:
    def make() -> dict[str, Any]:
        ranked = side_table(YEARS, setting.data_dir, "gpt_ranked")["gpt_ranked"].astype(int)
        data = runner.dataset(DATASET, setting)
        probs = probabilities(ranked, data.num_classes)
        inputs, roles = seen(DATASET, draw, np.log(probs), setting)
        plan = spending_plan(DATASET, draw, len(roles.calib), setting)
        tried = methods(METHODS, ALPHAS[0], seed=plan.seed)
        tried["DAPS"] = DAPS(ALPHAS[0], weight="minimum", seed=plan.seed)
        top = probs.max(axis=1)
        out = {
            name: measure.measure(method, inputs, roles, plan, ALPHAS, top)
            for name, method in tried.items()
        }
        positions = inputs.positions(roles.calib.keys)
        for cell in out["APS"].values():
            hit = probs[positions].argmax(axis=1) == roles.calib.labels
            cell["accuracy"] = float(hit.mean())
        return out

    depends = (runner.mark(DATASET, setting), NOT_NAMED, METHODS, ALPHAS, "several answers")
    name = f"{DATASET}-gpt-{draw}"
    return runner.kept(name, (*depends, *runner.settled(setting)), setting, make)


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Each draw of known nodes and of the pool."""
    cells = []
    with track(f"{name}: prediction sets", setting.draws) as advance:
        for draw in range(setting.draws):
            cells.append(_cell(draw, setting))
            advance(1)
    rows = []
    for alpha in ALPHAS:
        for method in METHODS:
            mine = [cell[method][f"{alpha:g}"] for cell in cells]
            row = {"dataset": DATASET, "alpha": alpha, "method": method}
            rows.append(row | measure.over_draws(mine, alpha, setting))
    return {
        "table": name,
        "title": f"Answers of {MODEL} on PubMed, no classifier trained",
        "settings": common.settings(setting),
        "rows": rows,
        "notes": {},
        "skipped": {},
    }


def layout(result: Result) -> tuple[list[str], Cells]:
    """A row a level and method."""
    header = [
        "alpha", "method", "coverage", "size", "worst class", "several answers",
        "empty %", "set size: share, coverage", "accuracy %",
    ]  # fmt: skip
    rows = []
    for row in result["rows"]:
        accuracy = row.get("accuracy")
        rows.append(
            [
                f"{row['alpha']:g}",
                row["method"],
                common.with_mark(row),
                common.with_error(row["size"], row.get("size_se")),
                f"{row['worst_class']:.3f}",
                measure.share(row["unsure"]),
                f"{100 * row['empty']:.1f}",
                measure.by_size(row),
                "" if accuracy is None else f"{100 * accuracy:.1f}",
            ]
        )
    return header, rows


def remarks(result: Result) -> list[str]:
    """What the answers are, and what is not known of them."""
    return [
        "The answers are ranked classes without numbers: the r-th class named weighs 2^-r, one not "
        "named 2^-6, fixed beforehand; 90 % of the answers name one class, so that most nodes have "
        "one of three vectors of probabilities",
        "Several answers: coverage of the nodes for which more than one class was named",
        "Whether the model read these papers and their classes in training is not known; "
        "coverage does not depend on it",
        "Pooled also sees the labels of 20 + 20 known nodes per class; draws differ in these and "
        "in the pool",
        common.consistent(result["rows"]),
    ]
