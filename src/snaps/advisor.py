"""`advise`: which method suits your data and goal, by cross-validation on tuning nodes alone.

No label of a calibration or predicted node is used, so the recommended method keeps its guarantee.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from snaps import metrics
from snaps._checks import calm, check_alpha, check_integer, check_seed, shown
from snaps._checks.named import class_order
from snaps._runtime.randomness import CANDIDATE_STREAM, FOLD_STREAM, hashes, smallest, uniforms
from snaps._tables import html_table
from snaps.conformal.rank import exact_rank, fewest_nodes
from snaps.errors import SnapsError, warn
from snaps.estimators import CANDIDATES
from snaps.estimators import methods as named_methods
from snaps.graph import Graph
from snaps.predictor.estimator import Estimator, method_of, remember_advice
from snaps.predictor.predictor import Method, most_demanding
from snaps.predictor.roles import Roles
from snaps.scores import LIBRARY, THR
from snaps.scoring.evidence import Evidence, Labelled
from snaps.scoring.local import Inputs
from snaps.scoring.pooling import FittedPooling, Pooling
from snaps.sets import PredictionSets
from snaps.splits import draw_splits

Methods = Mapping[str, Estimator]
Numbers = Mapping[str, np.ndarray]
Row = dict[str, Any]

NUMBERS = {
    "size": "mean size",
    "singleton_hit": "single true labels",
    "worst_class": "coverage of the worst class",
    "worst_size": "coverage of the worst set size",
}
GOALS = dict(zip(("smallest", "singletons", "classes", "sizes"), NUMBERS, strict=True))
BALANCE = ("worst_class", "worst_size")
DEFAULT = "Pooled"  # recommended unless another method is better beyond noise
ERRORS = 2.0  # standard errors on either side: a difference within is noise
MOST_TIMES = 2.0  # sets this many times larger than the smallest count as near full
CLOSE = 0.02  # the worst class or size may be so far below 1 - alpha, or below the best method's
FEWEST_OF_CLASS = 5  # tuning nodes of a class that is judged
LEAST_SHARE = 0.05  # of nodes with sets of a size that is judged
EXACT_SIZES = 10  # larger sets are judged together
FOLDS = 5  # ten are no better, at twice the cost
HALVES = 60  # random halves of the tuning nodes, for standard errors
QUANTILES = 20  # of a threshold, over draws of calibration nodes
MOST_REFERENCES = 10_000  # unlabelled nodes to rank scores among


@dataclass(frozen=True, eq=False)
class Advice:
    """A recommendation; `print` it for a table.

    Attributes
    ----------
    goal, name, runner_up : str
        The names are those of the recommended method and of the next best at the goal.
    method : Estimator
        The recommended one, to be calibrated on other nodes than the tuning nodes.
    reason, cost : str
        Why, and what the goal costs compared with the smallest sets (empty if nothing).
    rows : list of dict
        What to expect of each method, the recommended one first: its numbers, each with the ends of
        its interval (`size`, `size_low`, `size_high`), and whether its sets are near full.
    comparison : Comparison
    """

    goal: str
    name: str
    runner_up: str
    method: Estimator
    reason: str
    cost: str
    rows: list[Row]
    comparison: Comparison

    def for_goal(self, goal: str) -> Advice:
        """The advice for another goal, from the same comparison."""
        return self.comparison.advice(goal)

    def _rows(self) -> list[list[str]]:
        """The methods, each with its numbers and their intervals."""
        return [
            [row["method"]]
            + [f"{row[k]:.3f} ({row[k + '_low']:.2f}-{row[k + '_high']:.2f})" for k in NUMBERS]
            for row in self.rows
        ]

    def _reasons(self) -> str:
        return "\n".join(filter(None, [self.reason, self.cost]))

    def __str__(self) -> str:
        width = max(len(row["method"]) for row in self.rows)
        lines = [
            f"{name:<{width}}" + "".join(f"{cell:>22}" for cell in cells)
            for name, *cells in (["", *NUMBERS], *self._rows())
        ]
        return "\n".join([self._reasons(), *lines])

    def _repr_html_(self) -> str:
        return html_table(["method", *NUMBERS.values()], self._rows(), above=self._reasons())


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
    methods: Methods | None = None,
    k: int = 20,
    seed: int = 0,
    classes: Any = None,
) -> Advice:
    """Recommend a method for your number of calibration nodes, from the tuning nodes alone.

    By cross-validation: five fits of every method, seconds on ten thousand nodes. For the smallest
    sets and the most single labels the best is recommended, but `Pooled` if it is behind by no more
    than noise (two standard errors of the difference). For classes it is the smallest sets with a
    threshold per class, or else with a least coverage of every class: a promise, where a few
    hundred nodes can't tell how badly the worst class is covered. For sizes it is the smallest sets
    whose worst size reaches a coverage of 1 - alpha, or else that of the best method, less 0.02. A
    method with near-full sets, above half-way from one label to all of them or above twice the
    smallest method's, is not recommended for its balance.

    Parameters
    ----------
    graph, probs, labels, known_nodes, similarity, logits, classes : see `Pooled.calibrate`
    tune_nodes : array of positions, or mask (n,)
        The labelled nodes that the method will be tuned on, drawn like calibration and test nodes
        and none of them. A few hundred are needed to distinguish methods.
    goal : "smallest", "singletons", "classes" or "sizes"
        The smallest sets; the most sets that are exactly the true label; the worst class covered;
        sets of the worst size covered (an empty set never is).
    n_calib : int, optional
        How many calibration nodes you will have; by default as many as tuning nodes.
    alpha, k, seed : see `Pooled`
    methods : mapping of names to estimators, optional
        What to compare; by default all methods of this library, some with class thresholds, one
        with a least coverage of 1 - 2 alpha for every class. Copies with this `alpha` are compared,
        and one is returned; the estimators are left as they are.

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
    if methods is None:
        methods = named_methods(CANDIDATES, alpha, k=k, seed=seed)
    if not (isinstance(methods, Mapping) and methods) or not all(
        isinstance(name, str) and isinstance(method, Estimator) for name, method in methods.items()
    ):
        raise SnapsError(f"'methods' must map names to estimators, got {shown(methods)}")
    methods = {name: copy.copy(method).set_params(alpha=alpha) for name, method in methods.items()}
    checked = {name: method_of(method) for name, method in methods.items()}
    probs, classes = class_order(probs, labels, classes)
    inputs = most_demanding(checked.values()).read(graph, probs, similarity, logits, classes)
    roles = Roles.read(
        inputs.graph, inputs.num_classes, labels, tune_nodes, known_nodes=known_nodes,
        classes=classes, name="tune_nodes",
    )  # fmt: skip
    nodes, fewest = roles.calib, fewest_nodes(level)
    check_integer(len(nodes), "the number of tune_nodes", low=2 * fewest)
    budget = len(nodes) if n_calib is None else check_integer(n_calib, "n_calib", low=fewest)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        levels = held_out_levels(checked, inputs, nodes, roles.known, level, seed)
    for warning in {each.category: each for each in caught}.values():  # once for all folds
        warn(str(warning.message), warning.category)
    numbers = {
        name: judge(
            levels[name], nodes, budget, level, method.class_conditional, seed,
            method.promise.class_floor,
        )
        for name, method in checked.items()
    }  # fmt: skip
    comparison = Comparison(methods, numbers, nodes.keys, budget, inputs.num_classes, alpha)
    return comparison.advice(goal)


def _check_goal(goal: Any) -> None:
    if not isinstance(goal, str) or goal not in GOALS:
        raise SnapsError(f"'goal' must be one of {', '.join(GOALS)}, got {shown(goal)}")


def held_out_levels(
    methods: Mapping[str, Method], inputs: Inputs, nodes: Labelled, known: Evidence,
    alpha: Fraction, seed: int,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Levels (m, K) of the nodes' labels for each method, by fits that never saw these labels.

    Scores of two fits don't compare. A level is a score's rank among all scores that its fit gives
    to nodes it never saw: 0.2 admits a fifth of all pairs of node and label, whatever the fit.
    """
    levels = {name: np.empty((len(nodes), inputs.num_classes)) for name in methods}
    labelled = inputs.positions(np.concatenate([nodes.keys, known.keys]))
    others = np.delete(np.arange(inputs.num_nodes), labelled)
    others = others[smallest(seed, inputs.keys[others], CANDIDATE_STREAM, MOST_REFERENCES)]
    fold = np.argsort(np.argsort(hashes(seed, nodes.keys, FOLD_STREAM))) % FOLDS
    engine = inputs
    for number in range(FOLDS):
        held_out = np.flatnonzero(fold == number)
        positions = np.concatenate([inputs.positions(nodes.keys[held_out]), others])
        fitting = Evidence.of(nodes.subset(fold != number))
        scores: dict[Any, np.ndarray] = {}
        pooled: dict[Pooling, FittedPooling] = {}
        for name, method in methods.items():
            scorer: Any = method.scorer
            # A user's score may equal another that scores differently: it shares nothing.
            key = scorer if type(scorer.score) in LIBRARY else name
            if key not in scores:
                if isinstance(scorer, Pooling) and not scorer.score.needs_tuning:
                    plain = replace(scorer, score=THR())  # the weights don't depend on the score
                    if plain not in pooled:
                        (pooled[plain],) = plain.fit(engine, fitting, known, [alpha])
                    fitted = replace(pooled[plain], score=scorer.score)
                else:
                    (fitted,) = scorer.fit(engine, fitting, known, [alpha])
                scores[key] = engine.score(fitted, positions)
            levels[name][held_out] = _levels(scores[key], len(held_out), method.class_conditional)
        # Tables without labels are made by now and shared by later folds; a fold's own are dropped.
        engine = inputs.holding({})
    return levels


def _levels(scores: np.ndarray, count: int, by_class: bool) -> np.ndarray:
    """The share of all scores, or of a class's, at or below each of the first `count` rows."""
    if by_class:
        return np.hstack([_levels(column[:, None], count, False) for column in scores.T])
    ordered = np.sort(scores, axis=None)
    return np.searchsorted(ordered, scores[:count], side="right") / len(ordered)


@calm
def judge(
    levels: np.ndarray, nodes: Labelled, n_calib: int, alpha: Fraction, by_class: bool, seed: int,
    floor: Fraction | None = None,
) -> np.ndarray:  # fmt: skip
    """Simulate calibration with `n_calib` nodes, given held-out levels (m, K).

    Returns (1 + HALVES, 4): numbers of all nodes, then of random halves. These vary about the first
    row as that would among other draws of nodes.
    """
    (m, num_classes), labels = levels.shape, nodes.labels
    own = levels[np.arange(m), labels]
    none = np.zeros(m, np.int64)
    counts = np.bincount(labels, minlength=num_classes)

    def thresholds(calib: np.ndarray, quantiles: np.ndarray) -> np.ndarray:
        """Quantiles (q, 1 or K) of the thresholds, if all nodes are like those of `calib`."""
        mine, classes = own[calib], labels[calib]
        budgets = np.round(n_calib * counts / m).astype(int)
        if by_class:
            return _limits(mine, classes, budgets, alpha, quantiles)
        if floor is None:
            return _limits(mine, none[calib], np.array([n_calib]), alpha, quantiles)
        floors = _limits(mine, classes, budgets, 1 - floor, quantiles[:, 1:], without=0.0)
        # What is within the floor of its class is in any set, as if its score were the lowest.
        beyond = np.where(mine <= np.median(floors, axis=0)[classes], 0.0, mine)
        limit = _limits(beyond, none[calib], np.array([n_calib]), alpha, quantiles[:, :1])
        return np.maximum(limit, floors)

    def size(calib: np.ndarray) -> float:
        limits = thresholds(calib, evenly)
        if floor is None:  # a threshold is the share of labels that it admits
            return float(limits.mean() * num_classes)
        least = limits.min(axis=1)
        more = [(levels <= high) & (levels > low) for high, low in zip(limits, least, strict=True)]
        return float(least.mean() * num_classes + np.sum(more) / (QUANTILES * m))

    width = num_classes if by_class else 1 if floor is None else 1 + num_classes
    evenly = np.repeat((np.arange(QUANTILES)[:, None] + 0.5) / QUANTILES, width, axis=1)
    draws = uniforms(seed, np.arange(HALVES, dtype=np.uint64), width)
    halves = np.empty((HALVES, len(NUMBERS)))
    # Nodes and covered nodes of each class and of each set size, half by half.
    seen = {key: np.zeros((2, HALVES, num_classes + 1)) for key in BALANCE}
    for half, calib in enumerate(draw_splits(seed, nodes.keys, m // 2, HALVES)):
        test = np.delete(np.arange(m), calib)
        sets = PredictionSets(levels[test] <= thresholds(calib, draws[[half]]), test, num_nodes=m)
        hits = sets.mask[np.arange(len(test)), labels[test]]
        sizes = np.minimum(sets.mask.sum(axis=1), EXACT_SIZES + 1)
        for key, codes in zip(BALANCE, (labels[test], sizes), strict=True):
            for which, weights in enumerate((None, hits)):
                seen[key][which, half] = np.bincount(codes, weights, num_classes + 1)
        halves[half, :2] = size(calib), metrics.singleton_hit(sets, labels)
    means = halves.mean(axis=0)
    means[0] = size(np.arange(m))
    enough = {
        "worst_class": np.append(counts, 0) >= FEWEST_OF_CLASS,
        "worst_size": seen["worst_size"][0].sum(axis=0) >= LEAST_SHARE * HALVES * (m - m // 2),
    }
    for place, key in enumerate(BALANCE, 2):
        counted, covered = seen[key]
        means[place], halves[:, place] = _worst(counted, covered, enough[key])
    return np.vstack([means, halves])


def _limits(
    own: np.ndarray, cells: np.ndarray, budgets: np.ndarray, alpha: Fraction,
    quantiles: np.ndarray, without: float = 1.0,
) -> np.ndarray:  # fmt: skip
    """Quantiles (q, cells) of the threshold of each cell, with these numbers of calibration nodes.

    `own` are levels of nodes like those; a cell with too few has the level `without`: by default
    the one that admits every label.
    """
    from scipy.special import betaincinv

    limits = np.full(quantiles.shape, without)
    for cell, n in enumerate(budgets):
        rank, sample = exact_rank(n, alpha), np.sort(own[cells == cell])
        if rank <= n and len(sample):
            # The share of nodes that a threshold covers has a beta distribution.
            covered = betaincinv(rank, n + 1 - rank, quantiles[:, cell]) * (len(sample) + 1)
            limits[:, cell] = np.interp(covered, np.arange(1, len(sample) + 1), sample)
    return limits


def _worst(counts: np.ndarray, hits: np.ndarray, judged: np.ndarray) -> tuple[float, np.ndarray]:
    """The least coverage of those judged, over all halves together, and its coverage half by half.

    The least of each half would be low by chance, the more so the more there are.
    """
    totals = counts.sum(axis=0)
    judged = np.flatnonzero(judged & (totals > 0))
    if not judged.size:
        return 1.0, np.ones(len(counts))
    means = hits.sum(axis=0)[judged] / totals[judged]
    worst, least = judged[np.argmin(means)], float(means.min())
    each = np.full(len(counts), least)
    np.divide(hits[:, worst], counts[:, worst], out=each, where=counts[:, worst] > 0)
    return least, each


class Comparison:
    """Methods, their numbers as `judge` returns them, and the keys of the tuning nodes."""

    def __init__(
        self, methods: Methods, numbers: Numbers, keys: np.ndarray, n_calib: int, num_classes: int,
        alpha: float,
    ):  # fmt: skip
        self.methods, self.numbers, self.keys = methods, numbers, keys
        self.n_calib, self.num_classes, self.alpha = n_calib, num_classes, float(alpha)
        sizes = {name: float(table[0, 0]) for name, table in numbers.items()}
        self.smallest = min(sizes, key=sizes.__getitem__)
        self.most = min((1 + num_classes) / 2, MOST_TIMES * sizes[self.smallest])
        self.usable = [name for name, size in sizes.items() if size <= self.most]
        self.rows: dict[str, Row] = {}
        for name, table in numbers.items():
            row = self.rows[name] = {"method": name}
            errors = table[1:].std(axis=0, ddof=1)
            for key, mean, error in zip(NUMBERS, table[0], errors, strict=True):
                row[key] = float(mean)
                row[f"{key}_low"] = max(float(mean - ERRORS * error), 0.0)
                high = float(mean + ERRORS * error)
                row[f"{key}_high"] = high if key == "size" else min(high, 1.0)
            row["near_full"] = name not in self.usable

    def difference(self, name: str, other: str, key: str) -> tuple[float, float]:
        """By how much a method's number is above another's, and the noise of that."""
        by, column = self.numbers[name] - self.numbers[other], list(NUMBERS).index(key)
        return float(by[0, column]), ERRORS * float(by[1:].std(axis=0, ddof=1)[column])

    def ranked(self, key: str) -> list[Row]:
        """The pick, then the others by a number, those with near-full sets last.

        The pick is the default, or else has the smallest sets, of those within noise of the best.
        For classes it has the smallest sets of those that promise something for every class: a few
        hundred nodes can't tell how badly the worst one is covered. Else, and for sizes, it has the
        smallest of those that reach 1 - alpha, or the best, nearly.
        """
        usable, sign = self.usable or list(self.methods), 1 if key == "size" else -1
        order = {name: (name not in usable, sign * row[key]) for name, row in self.rows.items()}
        best = min(order, key=order.__getitem__)
        promised = self._promised(usable) if key == "worst_class" else []
        if promised:
            pick = min(promised, key=lambda name: self.rows[name]["size"])
        elif key in BALANCE:
            least = min(1 - self.alpha, self.rows[best][key]) - CLOSE
            close = [name for name in usable if self.rows[name][key] >= least]
            pick = min(close, key=lambda name: self.rows[name]["size"])
        else:
            gaps = {name: self.difference(name, best, key) for name in usable}
            close = [name for name, (by, noise) in gaps.items() if abs(by) <= noise]
            pick = min(close, key=lambda name: (name != DEFAULT, self.rows[name]["size"]))
        names = sorted(order, key=lambda name: (name != pick, order[name]))
        return [dict(self.rows[name]) for name in names]

    def _promised(self, usable: list[str]) -> list[str]:
        """Methods with class thresholds, else those with a least coverage of every class."""
        by_class = [name for name in usable if self.methods[name].class_conditional]
        return by_class or [name for name in usable if self.methods[name].class_floor is not None]

    def advice(self, goal: str) -> Advice:
        """Recommend a method; where all sets are near full, size alone counts."""
        _check_goal(goal)
        key = GOALS[goal] if self.usable else "size"
        rows = self.ranked(key)
        name, runner_up = rows[0]["method"], rows[:2][-1]["method"]
        method = copy.copy(self.methods[name])
        remember_advice(method, self.keys)
        texts = " ".join(self._reasons(rows, key, goal)), self._cost(name, goal)
        return Advice(goal, name, runner_up, method, *texts, rows, self)

    def _reasons(self, rows: list[Row], key: str, goal: str) -> Iterator[str]:
        """Why the first was picked, in sentences."""
        pick = rows[0]
        yield (
            f"{pick['method']}: {NUMBERS[key]} {pick[key]:.3f} ({pick[key + '_low']:.3f} to "
            f"{pick[key + '_high']:.3f}; goal {goal}, {len(self.keys)} tuning nodes, {FOLDS} folds,"
            f" {self.n_calib} nodes to calibrate)."
        )
        for other in rows[1:2]:
            by, noise = self.difference(other["method"], pick["method"], key)
            ahead = by < 0 if key == "size" else by > 0
            default = pick["method"] == DEFAULT and key not in BALANCE
            preferred = "default is" if default else "smaller sets are"
            reason = "near enough" if key in BALANCE else "within noise"
            why = f": {reason}" if ahead or (abs(by) <= noise and key not in BALANCE) else ""
            why += f", so the {preferred} preferred." if ahead else "."
            if ahead and key == "worst_class" and self._promised([pick["method"]]):
                both = self._promised([other["method"]])
                why = ", at larger sets." if both else ": an estimate, not a promise."
            yield (
                f"{other['method']} has {other[key]:.3f}, a difference of {by:+.3f} "
                f"({by - noise:+.3f} to {by + noise:+.3f}){why}"
            )
        full = [row for row in self.rows.values() if row["near_full"]]
        labels = f"of {self.num_classes} labels"
        if not self.usable:
            least = f"the smallest {self.rows[self.smallest]['size']:.2f} {labels}"
            yield f"All methods have near-full sets, {least}: size alone counts."
        elif full and goal != "smallest":
            listed = ", ".join(f"{row['method']} ({row['size']:.2f})" for row in full)
            yield f"Left out for near-full sets, more than {self.most:.2f} {labels}: {listed}."

    def _cost(self, pick: str, goal: str) -> str:
        """What a goal costs compared with the smallest sets."""
        if pick == self.smallest:
            nothing = f"The goal costs nothing: {pick} has the smallest sets."
            return "" if goal == "smallest" else nothing
        row, least = self.rows[pick], self.rows[self.smallest]
        by, noise = self.difference(pick, self.smallest, "size")
        instead = ", ".join(
            f"{words} {row[key]:.3f} instead of {least[key]:.3f}"
            for key, words in list(NUMBERS.items())[1:]
        )
        return (
            f"Against {self.smallest}, which has the smallest sets ({least['size']:.3f}), it costs "
            f"{by:.3f} labels per node ({by - noise:+.3f} to {by + noise:+.3f}); {instead}."
        )
