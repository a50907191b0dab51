"""Size and balance of a method's sets over many splits: which groups pay for small sets?

`snaps.evaluate_splits` counts sizes and hits; here every split's sets are made, so that classes,
unsure nodes, isolated nodes and single set sizes can be counted as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from snaps._checks import check_alpha
from snaps.conformal.calibration import Calibration
from snaps.estimators import Pooled
from snaps.predictor.estimator import Estimator, method_of
from snaps.predictor.roles import Roles
from snaps.scoring.evidence import Labelled
from snaps.scoring.local import Inputs
from snaps.splits import Plan, draw_splits, fit_levels
from snaps_lab.reproduce import common
from snaps_lab.reproduce.runner import Setting

MOST_SIZES = 10  # with more classes, coverage by exact set size says little
GROUPS = ("unsure", "isolated")  # the least confident fifth of the nodes; nodes without links

Cell = dict[str, Any]


def measure(
    method: Estimator,
    inputs: Inputs,
    roles: Roles,
    plan: Plan,
    alphas: Sequence[float],
    confidence: np.ndarray,
) -> dict[str, Cell]:
    """Means and counts over the splits, by level.

    Parameters
    ----------
    confidence : array (n,)
        Of the classifier in each node; its least fifth among the nodes to split is a group.
    """
    levels = [check_alpha(alpha) for alpha in alphas]
    out = {}
    for fitted, rest, spend, level in fit_levels(method_of(method), inputs, roles, plan, levels):
        positions = inputs.positions(rest.keys)
        scores = inputs.score(fitted, positions)
        groups = {
            "unsure": _unsure(confidence[positions]),
            "isolated": np.diff(inputs.graph.adjacency.indptr)[positions] == 0,
        }
        splits = draw_splits(plan.seed, rest.keys, spend, plan.n_splits)
        cell = _over_splits(scores, rest, splits, float(level), groups)
        if isinstance(method, Pooled):
            # The best label has the least score, with THR and APS alike.
            cell["accuracy"] = float((scores.argmin(axis=1) == rest.labels).mean())
        out[f"{float(level):g}"] = cell
    return out


def _unsure(confidence: np.ndarray) -> np.ndarray:
    """The least confident fifth; where more tie at the top, all nodes below it."""
    cut = np.quantile(confidence, 0.2)
    return confidence < cut if cut == confidence.max() else confidence <= cut


def _over_splits(
    scores: np.ndarray,
    pool: Labelled,
    splits: np.ndarray,
    alpha: float,
    groups: Mapping[str, np.ndarray],
) -> Cell:
    num_classes = scores.shape[1]
    trials: list[dict[str, float]] = []
    classes, sizes = np.zeros((2, num_classes)), np.zeros((2, num_classes + 1))
    members = {name: np.zeros(2) for name in groups}
    for calib in splits:
        test = np.ones(len(pool), bool)
        test[calib] = False
        labels, own = pool.labels[test], pool.labels[calib]
        calibration = Calibration(scores[calib, own], own, num_classes)
        mask = calibration.contains(scores[test], alpha)
        size, hit = mask.sum(axis=1), mask[np.arange(len(mask)), labels]
        filled = size > 0
        trials.append(
            {
                "coverage": hit.mean(),
                "size": size.mean(),
                "size_nonempty": size[filled].mean() if filled.any() else 0.0,
                "singleton_hit": (hit & (size == 1)).mean(),
                "empty": 1 - filled.mean(),
            }
        )
        classes += _counts(labels, hit, num_classes)
        sizes += _counts(size, hit, num_classes + 1)
        for name, inside in groups.items():
            members[name] += [inside[test].sum(), hit[inside[test]].sum()]
    out: Cell = {key: float(np.mean([trial[key] for trial in trials])) for key in trials[0]}
    out |= {"n_calib": splits.shape[1], "n_test": len(pool) - splits.shape[1]}
    out["classes"] = [_ratio(*pair) for pair in classes.T]
    out |= {name: _ratio(*pair) for name, pair in members.items()}
    if num_classes <= MOST_SIZES:
        out["sizes"] = sizes.tolist()
    return out


def _counts(values: np.ndarray, hit: np.ndarray, length: int) -> np.ndarray:
    return np.stack([np.bincount(values, w, length) for w in (np.ones(len(hit)), hit)])


def _ratio(count: float, hits: float) -> float | None:
    return float(hits / count) if count else None


def over_draws(cells: list[Cell], alpha: float, setting: Setting) -> dict[str, Any]:
    """Means over the draws of one method at one level, and the balance of its sets."""
    row = common.over_draws(cells, alpha, setting)
    row["draws"] = len(cells)
    classes = np.array([cell["classes"] for cell in cells], float)  # None becomes nan
    row["worst_class"] = float(np.nanmin(np.nanmean(classes, axis=0)))
    for name in GROUPS:
        known = [cell[name] for cell in cells if cell[name] is not None]
        row[name] = float(np.mean(known)) if known else None
    if "sizes" in cells[0]:
        counts, hits = np.sum([cell["sizes"] for cell in cells], axis=0)
        row["by_size"] = [
            {"size": size, "share": float(count / counts.sum()), "coverage": _ratio(count, hit)}
            for size, (count, hit) in enumerate(zip(counts, hits, strict=True))
        ]
    if "accuracy" in cells[0]:
        row["accuracy"] = float(np.mean([cell["accuracy"] for cell in cells]))
    return row


def by_size(row: Mapping[str, Any]) -> str:
    """Share and coverage of the sets of each exact size that at least 1 % of the sets have."""
    return "; ".join(
        f"{each['size']}: {each['share']:.0%}, {each['coverage']:.3f}"
        for each in row.get("by_size", ())
        if each["share"] >= 0.01
    )


def share(value: float | None) -> str:
    """A coverage, or nothing where no node is meant."""
    return "" if value is None else f"{value:.3f}"
