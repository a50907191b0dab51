"""What `evaluate` says: a dict that prints as a small table and is fit for JSON."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from snaps import metrics
from snaps.conformal.calibration import coverage_interval
from snaps.predictor.state import State
from snaps.sets import PredictionSets


class Evaluation(dict[str, Any]):
    """How sets of labelled nodes compare with the truth; `print` it for a table.

    A plain dict of numbers, lists and None; see `SNAPS.evaluate` for its keys.
    """

    def __str__(self) -> str:
        rows = [("coverage", f"{self['coverage']:.4f}", _verdict(self))]
        for key, words in (
            ("size", "labels per set"),
            ("size_nonempty", "labels per set that is not empty"),
        ):
            rows.append((key, _number(self[key], 3), words))
        rows.append(("singleton_hit", _percent(self["singleton_hit"]), "exactly the true label"))
        rows.append(("empty", _percent(self["empty"]), "sets without a label"))
        rows.append(("n", str(self["n"]), "nodes evaluated"))
        rows.append(("n_calib", str(self["n_calib"]), "nodes calibrated"))
        rows.append(("n_tune", str(self["n_tune"]), "nodes tuned"))
        if self["tied"]:
            words = "calibration scores that tie: predict_set(smoothed=True) leaves them to chance"
            rows.append(("tied", _percent(self["tied"]), words))
        for what in ("class", "group"):
            told = self.get(f"{what}_coverage") or {}
            found = {name: value for name, value in told.items() if value is not None}
            for name, value in sorted(found.items(), key=lambda item: item[1])[:5]:
                rows.append((f"{what} {name}", f"{value:.4f}", "coverage"))
            if len(found) > 5:
                rows.append((f"... {len(found) - 5} more", "", f"{what} coverages, all higher"))
        wide, middle = (max(len(row[i]) for row in rows) for i in (0, 1))
        return "\n".join(
            f"{name:<{wide}}  {value:>{middle}}  {words}".rstrip() for name, value, words in rows
        )


def _verdict(told: Evaluation) -> str:
    if told["coverage_interval"] is None:
        return ""
    low, high = told["coverage_interval"]
    place = "inside" if told["inside"] else "OUTSIDE"
    tie = "" if told["upper_binds"] else "; scores tie, so the upper end does not bind"
    return f"{place} [{low:.4f}, {high:.4f}], where 99 % of fair splits fall{tie}"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _plain(value: Any) -> Any:
    """Numbers as JSON has them: what is infinite or not a number is None."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value]
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _name(value: Any) -> Any:
    """A key that JSON takes."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


def _ties_at_threshold(
    sets: PredictionSets, truth: np.ndarray, state: State, alpha: Fraction
) -> bool:
    """Whether scores tie where it matters: several at the threshold let in more than the law."""
    assert state.inputs is not None
    limit = state.calibration.threshold(alpha)
    scores = state.inputs.score(state.scorer, sets.nodes)[np.arange(len(sets)), truth]
    return bool((state.calibration.scores == limit).sum() > 1 or (scores == limit).any())


def evaluate_sets(
    sets: PredictionSets, codes: np.ndarray, state: State, alpha: Fraction
) -> Evaluation:
    """Compare sets with the true classes, given as columns of the probabilities."""
    calibration, roles = state.calibration, state.roles
    tied, interval, inside = calibration.tied_share(), None, None
    truth = codes[sets.nodes]
    hits = sets.mask[np.arange(len(sets)), truth]
    coverage = float(hits.mean())
    binds = None
    if calibration.kind == "calibration":
        interval = coverage_interval(len(calibration), len(sets), alpha)
        binds = not _ties_at_threshold(sets, truth, state, alpha)
        inside = interval[0] <= coverage and (coverage <= interval[1] or not binds)

    def by(values: np.ndarray, names: Any) -> dict[Any, float | None]:
        count = np.bincount(values, minlength=len(names))
        hit = np.bincount(values, weights=hits, minlength=len(names))
        return {
            _name(name): float(hit[i] / count[i]) if count[i] else None
            for i, name in enumerate(names)
        }

    return Evaluation(
        coverage=coverage,
        size=metrics.size(sets),
        size_nonempty=_plain(metrics.size_nonempty(sets)),
        singleton_hit=float((hits & (sets.sizes == 1)).mean()),
        empty=metrics.empty(sets),
        n=len(sets),
        threshold=_plain(calibration.threshold(alpha)),
        coverage_interval=interval,
        inside=inside,
        tied=tied,
        upper_binds=binds,
        n_calib=len(calibration),
        n_tune=len(roles.tuning) if state.tuned else 0,
        class_coverage=by(truth, roles.classes),
        group_coverage=(
            None if roles.groups is None else by(roles.groups.codes[sets.nodes], roles.groups.names)
        ),
    )
