"""Which method suits the data and the wish: compared on tuning nodes alone.

No label of a calibration or predicted node is looked at, so whatever is recommended keeps its
guarantee.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from snaps._checks import check_alpha, check_integer, check_seed, shown
from snaps._checks.named import class_order
from snaps._choice import DEFAULT, GOALS, Comparison
from snaps._heldout import FOLDS, held_out_levels
from snaps._judging import NUMBERS, judge
from snaps.conformal.rank import fewest_nodes
from snaps.errors import SnapsError, warn
from snaps.estimators import methods as named_methods
from snaps.graph import Graph
from snaps.predictor.estimator import Estimator, method_of, remember_advice
from snaps.predictor.predictor import most_demanding
from snaps.predictor.roles import Roles
from snaps.splits import draw_splits

CANDIDATES = (
    "APS", "RAPS", "THR", "DAPS", "SNAPS", "SNAPS on THR", "Pooled", "Pooled on APS",
    "APS, class thresholds", "Pooled, class thresholds",
)  # fmt: skip
"""The methods that compete."""

HALVES = 60
_WORDS = {
    "size": "mean size",
    "singleton_hit": "single true labels",
    "class_gap": "mean coverage gap of classes",
    "sscv": "worst coverage gap over set sizes",
}


@dataclass(frozen=True, eq=False)
class Advice:
    """A recommendation; `print` it for a table.

    Attributes
    ----------
    goal : str
    name, runner_up : str
        Names of the recommended method and of the next best at the goal.
    method : Estimator
        The recommended one, not yet calibrated.
    reason : str
        Why, in a sentence or two.
    cost : str
        What the goal costs against the smallest sets; empty if nothing.
    rows : list of dict
        What each method would give, the recommended one first: its numbers, each with the ends of
        its interval (`size`, `size_low`, `size_high`), and whether its sets are near full. The two
        gaps are those that half of the tuning nodes would show: where classes have few nodes,
        chance adds to them, to all methods' alike.
    comparison : Comparison
        What it rests on.
    """

    goal: str
    name: str
    runner_up: str
    method: Estimator
    reason: str
    cost: str
    rows: list[dict[str, Any]]
    comparison: Comparison

    def for_goal(self, goal: str) -> Advice:
        """The advice for another goal, from the same comparison."""
        return _recommend(self.comparison, goal)

    def __str__(self) -> str:
        width = max(len(row["method"]) for row in self.rows)
        head = " " * width + "".join(f"{key:>22}" for key in NUMBERS)
        lines = [f"{row['method']:<{width}}" + "".join(_cells(row)) for row in self.rows]
        return "\n".join([self.reason, *([self.cost] if self.cost else []), head, *lines])


def advise(
    graph: Graph,
    probs: Any,
    labels: Any,
    tune_nodes: Any,
    goal: str = "smallest",
    *,
    n_calib: int | None = None,
    alpha: float = 0.05,
    known_nodes: Any = None,
    similarity: Any = None,
    logits: bool = False,
    methods: Mapping[str, Estimator] | None = None,
    k: int = 20,
    seed: int = 0,
    classes: Any = None,
) -> Advice:
    """Recommend a method, from the tuning nodes alone, judged at your own budget.

    The tuning nodes are cut in five folds; each is scored by methods fitted on the four others, so
    that every fit has four fifths of the nodes that you will fit with. The threshold of `n_calib`
    nodes is then played through on the held-out scores. The best at the goal wins; but `Pooled`,
    the default, does if the best is ahead of it by no more than noise (two standard errors of the
    difference). A method with near-full sets, above half-way from one label to all of them or above
    twice the smallest method's, is not recommended for its balance.

    Costs five fits of every method: seconds on ten thousand nodes.

    Parameters
    ----------
    graph, probs, labels, similarity, logits, classes : see `SNAPS.calibrate`
    tune_nodes : array of positions, or mask (n,)
        Labelled nodes that neither calibrate nor are predicted, drawn like those; the ones that
        the method is going to be tuned on. A few hundred tell methods apart.
    goal : "smallest", "singletons", "classes" or "sizes"
        The smallest sets; the most sets that are exactly the true label; every class covered
        alike; small and large sets covered alike.
    n_calib : int, optional
        How many nodes are going to calibrate; by default as many as tune.
    alpha : float
    known_nodes : array of positions, or mask (n,), optional
        Evidence for `Pooled`.
    methods : mapping of names to estimators, optional
        Who competes; by default all of this library's, some with class thresholds. One with
        another alpha competes, and is recommended, as a copy with this one.
    k : int
        Number of similar nodes.
    seed : int

    Returns
    -------
    Advice

    Examples
    --------
    >>> import numpy as np
    >>> from snaps.datasets import make_graph
    >>> from snaps.models import smoothed_regression
    >>> data = make_graph(900, 4, seed=1)
    >>> probs = smoothed_regression(data.graph, data.labels, np.arange(60))
    >>> advice = advise(data.graph, probs, data.labels, np.arange(60, 360), alpha=0.1)
    >>> advice.name
    'Pooled'
    """
    _check_goal(goal)
    level, seed = check_alpha(alpha), check_seed(seed)
    competing = named_methods(CANDIDATES, alpha, k=k, seed=seed) if methods is None else methods
    mapped = isinstance(competing, Mapping) and all(
        isinstance(name, str) and isinstance(one, Estimator) for name, one in competing.items()
    )
    if not mapped or not competing:
        raise SnapsError(f"'methods' must map names to estimators, got {shown(methods)}")
    competing = {name: _at(one, alpha) for name, one in competing.items()}
    checked = {name: method_of(one) for name, one in competing.items()}
    probs, classes = class_order(probs, labels, classes)
    inputs = most_demanding(checked.values()).read(graph, probs, similarity, logits, classes)
    roles = Roles.read(
        inputs.graph, inputs.num_classes, labels, tune_nodes, known_nodes=known_nodes,
        classes=classes, name="tune_nodes",
    )  # fmt: skip
    nodes, fewest = roles.calib, fewest_nodes(level)
    check_integer(len(nodes), "the number of tune_nodes", low=2 * fewest)
    budget = len(nodes) if n_calib is None else check_integer(n_calib, "n_calib", low=fewest)
    splits = draw_splits(seed, nodes.keys, len(nodes) // 2, HALVES)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        levels = held_out_levels(checked, inputs, nodes, roles.known, level, seed)
    for said in {each.category: each for each in heard}.values():  # once for all folds
        warn(str(said.message), said.category)
    judged = {
        name: judge(levels[name], nodes, splits, budget, level, one.class_conditional, seed)
        for name, one in competing.items()
    }
    return _recommend(
        Comparison(dict(competing), judged, nodes.keys, budget, inputs.num_classes), goal
    )


def _at(method: Estimator, alpha: float) -> Estimator:
    """The method at the level that is asked for, itself if that is its own."""
    if check_alpha(method.alpha) == check_alpha(alpha):
        return method
    return copy.copy(method).set_params(alpha=alpha)


def _check_goal(goal: Any) -> None:
    if not isinstance(goal, str) or goal not in GOALS:
        raise SnapsError(f"'goal' must be one of {', '.join(GOALS)}, got {shown(goal)}")


def _recommend(found: Comparison, goal: str) -> Advice:
    """Pick a method and say why."""
    _check_goal(goal)
    order = found.ranked(goal)
    name, second = order[0], order[1] if len(order) > 1 else order[0]
    remember_advice(found.methods[name], found.keys)
    return Advice(
        goal, name, second, found.methods[name], _reason(found, order, goal),
        _cost(found, name, goal), [found.row(one) for one in order], found,
    )  # fmt: skip


# ---- words ---------------------------------------------------------------------------------------


def _cells(row: Mapping[str, Any]) -> list[str]:
    """A row's numbers with their intervals, in columns."""
    texts = [
        f"{row[key]:.3f} ({row[f'{key}_low']:.2f}-{row[f'{key}_high']:.2f})" for key in NUMBERS
    ]
    return [f"{text:>22}" for text in texts]


def _reason(found: Comparison, order: list[str], goal: str) -> str:
    """Why the first was picked."""
    key = GOALS[goal] if found.usable else "size"
    row, out = found.row(order[0]), []
    out.append(
        f"{order[0]}: {_WORDS[key]} {row[key]:.3f} ({row[f'{key}_low']:.3f} to "
        f"{row[f'{key}_high']:.3f}; goal {goal}, {len(found.keys)} tuning nodes, {FOLDS} folds, "
        f"{found.n_calib} nodes to calibrate)."
    )
    if len(order) > 1:
        out.append(_against(found, order[0], order[1], key))
    if not found.usable:
        least = found.number(found.smallest, "size")
        out.append(
            f"All methods have near-full sets, the smallest {least:.2f} of {found.num_classes} "
            "labels: size alone counts."
        )
    elif goal != "smallest":
        left = [name for name in found.methods if name not in found.usable]
        listed = ", ".join(f"{name} ({found.number(name, 'size'):.2f})" for name in left)
        if left:
            out.append(
                f"Left out for near-full sets, more than {found.most:.2f} of {found.num_classes} "
                f"labels: {listed}."
            )
    return " ".join(out)


def _against(found: Comparison, pick: str, other: str, key: str) -> str:
    """The pick beside the best of the others."""
    by, noise = found.difference(other, pick, key)
    ahead = by > 0 if key == "singleton_hit" else by < 0
    text = (
        f"{other} has {found.number(other, key):.3f}, a difference of {by:+.3f} "
        f"({by - noise:+.3f} to {by + noise:+.3f})"
    )
    if ahead and pick == DEFAULT:
        return f"{text}: within noise, so the default is preferred."
    if ahead:
        return f"{text}: within noise, so the smaller sets are preferred."
    return f"{text}: within noise." if abs(by) <= noise else f"{text}."


def _cost(found: Comparison, pick: str, goal: str) -> str:
    """What a goal takes from the smallest sets."""
    least = found.smallest
    if pick == least:
        return (
            "" if goal == "smallest" else f"The goal costs nothing: {pick} has the smallest sets."
        )
    by, noise = found.difference(pick, least, "size")
    instead = ", ".join(
        f"{_WORDS[key]} {found.number(pick, key):.3f} instead of {found.number(least, key):.3f}"
        for key in NUMBERS[1:]
    )
    return (
        f"Against {least}, which has the smallest sets ({found.number(least, 'size'):.3f}), it "
        f"costs {by:.3f} labels per node ({by - noise:+.3f} to {by + noise:+.3f}); {instead}."
    )
