"""Which method suits the data and the wish: compared on tuning nodes alone.

No label of a calibration or predicted node is looked at, so whatever is recommended keeps its
guarantee.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from snaps import metrics
from snaps._checks import check_alpha, check_integer, check_known, check_labels, check_nodes, shown
from snaps._errors import SnapsError, SnapsWarning
from snaps._randomness import SPLIT_STREAM, TUNE_STREAM, hashes, smallest
from snaps.conformal import class_thresholds, fewest_nodes, threshold
from snaps.estimator import Estimator, with_known
from snaps.graph import Graph
from snaps.pooled import Pooled
from snaps.predictor import DAPS, SNAPS, SplitConformal
from snaps.scores import APS, RAPS, THR
from snaps.sets import PredictionSets

GOALS = {
    "smallest": "size",
    "singletons": "singleton_hit",
    "classes": "class_gap",
    "sizes": "sscv",
}
"""What a user may want, and the number that tells: the smallest sets, the most sets that are
exactly the true label, every class covered alike, or small and large sets covered alike."""

_WORDS = {
    "size": "mean size",
    "singleton_hit": "single true labels",
    "class_gap": "mean coverage gap of classes",
    "sscv": "worst coverage gap over set sizes",
}
_SPLITS = 40


@dataclass(frozen=True)
class Advice:
    """A recommendation; `print` it for a table.

    Attributes
    ----------
    goal : str
    name, runner_up : str
        Names of the best and the second best method.
    method : Estimator
        The best one, not yet calibrated.
    reason : str
        One sentence.
    rows : list of dict
        What each method gave on the tuning nodes, best first.
    """

    goal: str
    name: str
    runner_up: str
    method: Estimator
    reason: str
    rows: list[dict[str, Any]]

    def __str__(self) -> str:
        keys = list(_WORDS)
        width = max(len(row["method"]) for row in self.rows)
        head = " " * width + "".join(f"{key:>16}" for key in keys)
        lines = [
            f"{row['method']:<{width}}" + "".join(f"{row[key]:>16.3f}" for key in keys)
            for row in self.rows
        ]
        return "\n".join([self.reason, head, *lines])


def candidates(alpha: float, seed: int, k: int) -> dict[str, Estimator]:
    """The methods that compete."""
    common: dict[str, Any] = {"seed": seed}
    return {
        "APS": SplitConformal(alpha, score=APS(), **common),
        "RAPS": SplitConformal(alpha, score=RAPS(), **common),
        "THR": SplitConformal(alpha, score=THR(), **common),
        "DAPS": DAPS(alpha, **common),
        "SNAPS": SNAPS(alpha, k=k, **common),
        "SNAPS on THR": SNAPS(alpha, score=THR(), k=k, **common),
        "Pooled": Pooled(alpha, k=k, **common),
        "Pooled on APS": Pooled(alpha, score=APS(), k=k, **common),
        "APS, class thresholds": SplitConformal(alpha, class_conditional=True, **common),
        "Pooled, class thresholds": Pooled(alpha, k=k, class_conditional=True, **common),
    }


def advise(
    graph: Graph,
    probs: Any,
    labels: Any,
    tune_nodes: Any,
    goal: str = "smallest",
    *,
    alpha: float = 0.05,
    known_nodes: Any = None,
    similarity: Any = None,
    logits: bool = False,
    methods: Mapping[str, Estimator] | None = None,
    k: int = 20,
    seed: int = 0,
) -> Advice:
    """Recommend a method, from the tuning nodes alone.

    Half of the tuning nodes fit each method's parameters; the other half is split again and again
    into nodes that calibrate and nodes that are predicted. The best at the goal wins; of those
    within one standard error of it, the one with the smallest sets.

    Parameters
    ----------
    graph, probs, labels, similarity, logits : see `SNAPS.calibrate`
    tune_nodes : array of positions, or mask (n,)
        Labelled nodes that neither calibrate nor are predicted; a few hundred are enough.
    goal : "smallest", "singletons", "classes" or "sizes"
        The smallest sets; the most sets that are exactly the true label; every class covered
        alike; small and large sets covered alike.
    alpha : float
    known_nodes : array of positions, or mask (n,), optional
        Evidence for `Pooled`.
    methods : mapping of names to estimators, optional
        Who competes; by default all of this library's, some with class thresholds.
    k : int
        Number of similar nodes.
    seed : int

    Returns
    -------
    Advice

    Examples
    --------
    >>> from snaps.datasets import make_graph
    >>> from snaps.models import smoothed_regression
    >>> data = make_graph(900, 4, seed=1)
    >>> probs = smoothed_regression(data.graph, data.labels, np.arange(60))
    >>> advice = advise(data.graph, probs, data.labels, np.arange(60, 360), alpha=0.1)
    >>> advice.name in candidates(0.1, 0, 20)
    True
    """
    if not isinstance(goal, str) or goal not in GOALS:
        raise SnapsError(f"'goal' must be one of {', '.join(GOALS)}, got {shown(goal)}")
    competing = candidates(alpha, seed, k) if methods is None else dict(methods)
    if not competing or not all(isinstance(one, Estimator) for one in competing.values()):
        raise SnapsError(f"'methods' must map names to estimators, got {shown(methods)}")
    for one in competing.values():
        one._check_parameters()
    level = check_alpha(alpha)
    greediest = max(competing.values(), key=lambda one: len(one._parts))
    inputs = greediest._prepare(graph, probs, similarity, logits)
    n, num_classes = inputs.probs.shape
    known = check_labels(labels, num_nodes=n, num_classes=num_classes)
    tune = check_nodes(tune_nodes, "tune_nodes", num_nodes=n)
    check_known(known, tune, "tune_nodes")
    least = 4 * fewest_nodes(level)
    check_integer(len(tune), "the number of tune_nodes", low=least)
    inputs = with_known(inputs, known_nodes, known, {"'tune_nodes'": tune})
    fit_part = smallest(seed, inputs.keys[tune], TUNE_STREAM, len(tune) // 2)
    fit_nodes, rest = tune[fit_part], np.delete(tune, fit_part)
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SnapsWarning)  # of classes with few nodes in a small half
        for name, one in competing.items():
            scores = one._fit(inputs, fit_nodes, known, level).scores
            trials = _trials(one, scores, known, rest, inputs.keys, level, seed)
            mean, error = trials.mean(axis=0), trials.std(axis=0, ddof=1) / np.sqrt(_SPLITS)
            row: dict[str, Any] = {"method": name, **dict(zip(_WORDS, mean.tolist(), strict=True))}
            row["error"] = float(error[list(_WORDS).index(GOALS[goal])])
            rows.append(row)
    rows = _ranked(rows, goal)
    best, second = rows[0], rows[1] if len(rows) > 1 else rows[0]
    return Advice(
        goal, best["method"], second["method"], competing[best["method"]],
        _reason(best, second, goal, len(rest)), rows,
    )  # fmt: skip


def _trials(
    method: Estimator,
    scores: np.ndarray,
    labels: np.ndarray,
    nodes: np.ndarray,
    keys: np.ndarray,
    alpha: Any,
    seed: int,
) -> np.ndarray:
    """The four numbers (splits, 4) on random halves of some nodes."""
    out = []
    for split in range(_SPLITS):
        order = np.argsort(hashes(seed + split, keys[nodes], SPLIT_STREAM), kind="stable")
        calib, test = nodes[order[: len(nodes) // 2]], nodes[order[len(nodes) // 2 :]]
        own = scores[calib, labels[calib]]
        if method.class_conditional:
            limit: Any = class_thresholds(own, labels[calib], scores.shape[1], alpha)
        else:
            limit = threshold(own, alpha)
        sets = PredictionSets(scores[test] <= limit, test, num_nodes=len(labels))
        out.append(
            [
                metrics.size(sets),
                metrics.singleton_hit(sets, labels),
                metrics.class_gap(sets, labels, alpha),
                metrics.sscv(sets, labels, alpha),
            ]
        )
    return np.array(out)


def _ranked(rows: list[dict[str, Any]], goal: str) -> list[dict[str, Any]]:
    """Best first: by the goal, but by size among those within a standard error of the best."""
    key = GOALS[goal]
    sign = -1.0 if key == "singleton_hit" else 1.0
    ordered = sorted(rows, key=lambda row: sign * row[key])
    limit = sign * ordered[0][key] + ordered[0]["error"]
    close = [row for row in ordered if sign * row[key] <= limit]
    close.sort(key=lambda row: row["size"])
    return close + [row for row in ordered if row not in close]


def _reason(best: dict[str, Any], second: dict[str, Any], goal: str, count: int) -> str:
    key = GOALS[goal]
    return (
        f"{best['method']}: {_WORDS[key]} {best[key]:.3f} against {second[key]:.3f} of "
        f"{second['method']}, the runner-up (goal {goal}, {count} tuning nodes, {_SPLITS} splits; "
        f"mean size {best['size']:.2f})"
    )
