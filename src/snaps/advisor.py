"""Which method suits the data and the wish: compared on tuning nodes alone.

No label of a calibration or predicted node is looked at, so whatever is recommended keeps its
guarantee.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from snaps import metrics
from snaps._checks import check_alpha, check_integer, check_seed, shown
from snaps._errors import SnapsError, SnapsWarning
from snaps._estimators import Estimator, most_demanding
from snaps._evidence import Labelled
from snaps._methods import methods as named_methods
from snaps._roles import Roles
from snaps.calibration import Calibration, fewest_nodes
from snaps.graph import Graph
from snaps.sets import PredictionSets
from snaps.splits import draw_splits, take_tuning

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


CANDIDATES = (
    "APS", "RAPS", "THR", "DAPS", "SNAPS", "SNAPS on THR", "Pooled", "Pooled on APS",
    "APS, class thresholds", "Pooled, class thresholds",
)  # fmt: skip
"""The methods that compete."""


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
    classes: Any = None,
) -> Advice:
    """Recommend a method, from the tuning nodes alone.

    Half of the tuning nodes fit each method's parameters; the other half is split again and again
    into nodes that calibrate and nodes that are predicted. The best at the goal wins; of those
    within one standard error of it, the one with the smallest sets.

    Parameters
    ----------
    graph, probs, labels, similarity, logits, classes : see `SNAPS.calibrate`
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
    >>> advice.name in CANDIDATES
    True
    """
    if not isinstance(goal, str) or goal not in GOALS:
        raise SnapsError(f"'goal' must be one of {', '.join(GOALS)}, got {shown(goal)}")
    level, seed = check_alpha(alpha), check_seed(seed)
    competing = named_methods(CANDIDATES, alpha, k=k, seed=seed) if methods is None else methods
    mapped = isinstance(competing, Mapping) and all(
        isinstance(name, str) and isinstance(one, Estimator) for name, one in competing.items()
    )
    if not mapped or not competing:
        raise SnapsError(f"'methods' must map names to estimators, got {shown(methods)}")
    for one in competing.values():
        one.scorer()
    inputs = most_demanding(competing.values()).read_inputs(graph, probs, similarity, logits)
    roles = Roles.read(
        inputs.graph, inputs.num_classes, labels, tune_nodes, known_nodes=known_nodes,
        classes=classes, name="tune_nodes",
    )  # fmt: skip
    nodes = roles.calib
    check_integer(len(nodes), "the number of tune_nodes", low=4 * fewest_nodes(level))
    fitting, rest = take_tuning(nodes, len(nodes) // 2, seed)
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SnapsWarning)  # of classes with few nodes in a small half
        for name, one in competing.items():
            (fitted,) = one.scorer().fit(inputs, fitting, roles.known, [level])
            scores = inputs.score(fitted, inputs.positions(rest.keys))
            trials = _trials(scores, rest, level, seed, one.class_conditional)
            mean, error = trials.mean(axis=0), trials.std(axis=0, ddof=1) / np.sqrt(_SPLITS)
            row: dict[str, Any] = {"method": name, **dict(zip(_WORDS, mean.tolist(), strict=True))}
            row["error"] = float(error[list(_WORDS).index(GOALS[goal])])
            rows.append(row)
    rows = _ranked(rows, goal)
    best, second = rows[0], rows[1] if len(rows) > 1 else rows[0]
    competing[best["method"]].advised_on(nodes.keys)
    return Advice(
        goal, best["method"], second["method"], competing[best["method"]],
        _reason(best, second, goal, len(rest)), rows,
    )  # fmt: skip


def _trials(
    scores: np.ndarray, nodes: Labelled, alpha: Fraction, seed: int, by_class: bool
) -> np.ndarray:
    """The four numbers (splits, 4) on random halves of some nodes, given their scores."""
    out = []
    for calib in draw_splits(seed, nodes.keys, len(nodes) // 2, _SPLITS):
        test = np.delete(np.arange(len(nodes)), calib)
        calibration = Calibration(
            scores[calib, nodes.labels[calib]], nodes.labels[calib], scores.shape[1],
            by_class=by_class,
        )  # fmt: skip
        mask = calibration.contains(scores[test], alpha)
        sets = PredictionSets(mask, test, num_nodes=len(scores))
        out.append(
            [
                metrics.size(sets),
                metrics.singleton_hit(sets, nodes.labels),
                metrics.class_gap(sets, nodes.labels, float(alpha)),
                metrics.sscv(sets, nodes.labels, float(alpha)),
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
