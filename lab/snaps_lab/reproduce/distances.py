"""How far mean sizes are from the paper's, which cells are far, and what is known of these."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import stdtr

from snaps_lab.reproduce import catalogue, common
from snaps_lab.reproduce.common import Result

ERRORS = 2  # of our mean, that a size may be away from the paper's
ROUNDING = 0.005  # more, because the paper prints two digits
NEAR = f"two errors + {ROUNDING}"
LARGE = 0.08  # a difference beyond which a far cell should have a cause

Cell = tuple[str, str, float, str]
_OTHER_TABLE = (
    "the paper itself prints 3.01 for the same model and score in its table of lam = mu = 1/3"
)
# Why a cell is far from the paper's, where that is known.
CAUSES: dict[Cell, str] = {
    ("table1", "amazon_computers", 0.05, "APS"): _OTHER_TABLE,
    ("ablation", "amazon_computers", 0.05, "own"): _OTHER_TABLE,
    ("cfgnn", "citeseer", 0.05, "SNAPS"): "near in table1 as the authors did it",
    **{
        ("cfgnn", dataset, alpha, "CF-GNN"): "trained otherwise"
        for alpha in (0.05, 0.1)
        for dataset in ("cora_ml", "pubmed", "citeseer")
    },
}
# What goes with a far cell, where that is no cause.
SEEN: dict[Cell, str] = {
    ("gat", "amazon_computers", alpha, method): "our GAT is more accurate there"
    for alpha in (0.05, 0.1)
    for method in ("APS", "RAPS", "DAPS", "SNAPS")
}


def published(result: Result, odd: Collection[str] = ()) -> list[dict[str, Any]]:
    """The rows with a published size, without the datasets `odd`."""
    rows = (row for row in result["rows"] if "paper_size" in row)
    return [row for row in rows if row["dataset"] not in odd]


def judged(result: Result, odd: Collection[str]) -> list[dict[str, Any]]:
    """Those of them that have a standard error: a single draw has none."""
    return [row for row in published(result, odd) if row.get("size_nonempty_se") is not None]


def near_paper(row: Mapping[str, Any]) -> bool:
    """Whether a size is within two standard errors of the paper's, and what rounding adds."""
    return _gap(row) <= _allowed(row)


def difference(row: Mapping[str, Any]) -> float:
    """Of a size from the paper's, relative to it."""
    return float(row["size_nonempty"] / row["paper_size"] - 1)


def lines(result: Result, odd: Collection[str] = (), theirs: Result | None = None) -> list[str]:
    """Mean absolute differences from the paper, and the far cells.

    Without the datasets that are not the paper's own (`odd`). `theirs` is the same table as the
    authors did it.
    """
    rows = published(result, odd)
    if not rows:
        return []
    left_out = "".join(f", {common.display(name)} left out" for name in odd)
    methods = dict.fromkeys(row["method"] for row in rows)
    means = ", ".join(_mean(result["table"], method, rows) for method in methods)
    out = [f"Mean absolute difference from the paper{left_out}: {means}"]
    fair = judged(result, odd)
    far = [row for row in fair if not near_paper(row)]
    if far:
        draws = result["settings"]["draws"]
        chance = sum(_odds(row, _allowed(row), draws) for row in fair)
        cells = "; ".join(_far_cell(result, row, theirs) for row in far)
        out.append(
            f"More than {NEAR} from the paper{left_out}: {len(far)} of {len(fair)} cells, where "
            f"chance alone would put about {chance:.0f}: {cells}"
        )
    return out


def _gap(row: Mapping[str, Any]) -> float:
    return float(abs(row["size_nonempty"] - row["paper_size"]))


def _allowed(row: Mapping[str, Any]) -> float:
    return float(ERRORS * row["size_nonempty_se"] + ROUNDING)


def _odds(row: Mapping[str, Any], gap: float, draws: int) -> float:
    """How often two means over as many draws of the same thing are so far apart, or farther."""
    error = math.sqrt(2) * row["size_nonempty_se"]
    return float(2 * stdtr(draws - 1, -gap / error)) if error else 0.0


def _mean(table: str, method: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """A method's mean difference; also without cells that are far for a named cause."""
    away = {_cell(table, row): abs(difference(row)) for row in rows if row["method"] == method}
    text = f"{method} {np.mean(list(away.values())):.1%}"
    others = [value for cell, value in away.items() if cell not in CAUSES]
    if len(others) in (0, len(away)):
        return text
    return f"{text} ({np.mean(others):.1%} without cells that have a named cause)"


def _cell(table: str, row: Mapping[str, Any]) -> Cell:
    return table, row["dataset"], row["alpha"], row["method"]


def _far_cell(result: Result, row: Mapping[str, Any], theirs: Result | None) -> str:
    name = f"{common.display(row['dataset'])} {row['method']} at {row['alpha']:g}"
    text = f"{name} {difference(row):+.1%}"
    return text if abs(difference(row)) < LARGE else f"{text} ({_why(result, row, theirs)})"


def _why(result: Result, row: Mapping[str, Any], theirs: Result | None) -> str:
    """What is known of a far cell; if nothing, how rare it is."""
    cell = _cell(result["table"], row)
    if cell in CAUSES:
        return CAUSES[cell]
    unknown = "no known cause; "
    seen = f"{unknown}{SEEN[cell]}; " if cell in SEEN else ""
    for other in theirs["rows"] if theirs else ():
        if _cell(result["table"], other) == cell:
            return f"{seen}as the authors {difference(other):+.1%}"
    if catalogue.as_authors(result["table"]) and not result["settings"]["as_authors"]:
        return f"{seen}not made as the authors did"
    odds = _odds(row, _gap(row), result["settings"]["draws"])
    rare = float(f"{1 / max(odds, 1e-9):.2g}")
    return f"{seen or unknown}chance puts 1 cell in {rare:,.0f} as far"
