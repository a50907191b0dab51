"""Calibration scores in, thresholds, sets and p-values out; no graph, no features.

The guarantee is marginal: over the draw of calibration and test nodes from one pool, a set
contains the true label with probability at least 1 - alpha. It does not apply to each class, group
or node by itself unless thresholds are set for each, nor where calibration and test nodes come from
different pools.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from snaps._checks import check_alpha, plainly
from snaps.conformal.chances import tail_sums, weighted_limits, weighted_p_values
from snaps.conformal.coverage import confident_rank, far_below, fewest_confident
from snaps.conformal.floors import Floor, beyond_floors, floor_limits, floor_p_values
from snaps.conformal.rank import exact_rank, fewest_nodes
from snaps.errors import warn

# A class is reported as weak if so many tuning nodes show a coverage that far below 1 - alpha,
# which chance alone gives with at most this probability.
WEAK_NODES, WEAK_GAP, WEAK_CHANCE = 20, 0.2, 1e-4

# A miscoverage level, or one per class.
Level = float | Fraction | tuple[Fraction, ...]


@dataclass(frozen=True)
class Promise:
    """What is promised beyond an average coverage of 1 - alpha.

    Attributes
    ----------
    class_floor, group_floor : Fraction or None
        The least coverage of every class, or group, that has enough calibration nodes.
    confidence : Fraction or None
        The probability, over the draw of the calibration nodes, that the coverage is kept.
    """

    class_floor: Fraction | None = None
    group_floor: Fraction | None = None
    confidence: Fraction | None = None


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores of calibration nodes' true labels, in cells that have a threshold each.

    One cell for all, or one per class, per group, or per group and class.

    Parameters
    ----------
    scores : array (n,)
    labels : int array (n,)
        Their classes; used with `by_class` and with floors for classes.
    num_classes : int
    groups : int array (n,), or 0
        Their groups, 0 to num_groups - 1; 0 is one group for all.
    num_groups : int
    by_class : bool
    promise : Promise
    missing : int
        Calibration nodes whose labels are missing: each counts as not covered, in every cell.
    odds : array (n,), optional
        Their odds against having been drawn, where chances were unequal: each node to predict then
        has a threshold of its own. Not with `promise` and `missing`.

    Examples
    --------
    >>> calibration = Calibration(np.arange(9.0), np.zeros(9, int), 2)
    >>> float(calibration.threshold(0.2))
    7.0
    >>> calibration.contains(np.array([[3.0, 8.5]]), 0.2)
    array([[ True, False]])
    """

    scores: np.ndarray
    labels: np.ndarray
    num_classes: int
    groups: np.ndarray | int = 0
    num_groups: int = 1
    by_class: bool = False
    promise: Promise = field(default_factory=Promise)
    missing: int = 0
    odds: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def by_group(self) -> bool:
        """Whether thresholds differ between groups."""
        return not isinstance(self.groups, int)

    @property
    def per_class(self) -> bool:
        """Whether thresholds differ between classes."""
        return self.by_class or self.promise.class_floor is not None

    @property
    def kind(self) -> str:
        """What has a coverage guarantee of its own; floors come on top."""
        if self.by_group and self.promise.group_floor is None:
            return "group and class" if self.by_class else "group"
        return "class" if self.by_class else "calibration"

    @property
    def _width(self) -> int:
        return self.num_classes if self.per_class else 1

    @cached_property
    def _order(self) -> tuple[np.ndarray, np.ndarray]:
        """The order that sorts scores within their cell, and where each cell begins."""
        cell = np.broadcast_to(self.groups, self.scores.shape)
        if self.by_class:
            cell = cell * self.num_classes + self.labels
        order = np.lexsort((self.scores, cell))
        counts = np.bincount(
            cell, minlength=self.num_groups * (self.num_classes if self.by_class else 1)
        )
        return order, np.concatenate([[0], np.cumsum(counts)])

    @cached_property
    def _cells(self) -> tuple[np.ndarray, np.ndarray]:
        """All scores, sorted within their cell, and where each cell begins."""
        if not (self.by_group or self.by_class):
            return np.sort(self.scores), np.array([0, len(self)])
        order, starts = self._order
        return self.scores[order], starts

    @cached_property
    def _limits(self) -> dict[Any, np.ndarray]:
        """Thresholds that were asked for, by level and counts."""
        return {}

    @cached_property
    def _tails(self) -> list[np.ndarray]:
        """With odds: their tail sums in each cell."""
        assert self.odds is not None
        order, starts = self._order
        return [tail_sums(self.odds[order[start:end]]) for start, end in pairwise(starts)]

    @cached_property
    def _bags(self) -> list[tuple[slice | np.ndarray, np.ndarray, list[Floor]]]:
        """With floors: rows of the thresholds, and the scores and floors that they come from.

        One bag of all scores; or one per group, where each group has a guarantee of its own.
        """
        promise, bags = self.promise, list[tuple[slice | np.ndarray, np.ndarray, list[Floor]]]()
        if promise.class_floor is None and promise.group_floor is None:
            return bags
        for group in range(self.num_groups if self.kind == "group" else 1):
            members = np.flatnonzero(self.groups == group) if self.kind == "group" else slice(None)
            scores, floors = self.scores[members], []
            for floor, codes, cells in (
                (promise.group_floor, self.groups, self.num_groups),
                (promise.class_floor, self.labels, self.num_classes),
            ):
                if floor is not None:
                    own = np.asarray(codes)[members]
                    floors.append(Floor.of(scores, own, cells, floor, self._rank))
            rows = np.array([group]) if self.kind == "group" else slice(None)
            bags.append((rows, scores, floors))
        return bags

    @property
    def _union(self) -> bool:
        """Whether floors take the simpler form: the exact one is about averages over draws."""
        return self.promise.confidence is not None

    def rank(self, alpha: Fraction, count: int | None = None) -> int:
        """The rank of the threshold for all nodes, where there is one; floors come on top."""
        return self._rank(len(self), alpha, count)

    def _rank(self, n: int, alpha: Fraction, count: int | None = None) -> int:
        n, confidence = n + self.missing, self.promise.confidence
        if confidence is None:
            return exact_rank(n, alpha)
        return confident_rank(n, alpha, confidence, count)

    def lifted(self, alpha: Level) -> bool:
        """Whether floors let in so much that coverage may lie above its exact distribution."""
        level = _levels(alpha)[0]
        return any(
            self._union
            or any(
                len(scores) - len(beyond) >= self._rank(len(scores), level)
                for _, _, beyond in beyond_floors(scores, floors)
            )
            for _, scores, floors in self._bags
        )

    def limits(self, alpha: Level, counts: np.ndarray | None = None) -> np.ndarray:
        """The threshold of each cell, (groups or 1, classes or 1); infinite for one with too few.

        With odds there is none: see `limits_of`.
        `counts` are the numbers of nodes to predict in each group, which a promise with confidence
        depends on; without them it is about the coverage probability of further nodes.
        """
        assert self.odds is None
        key = _levels(alpha), None if counts is None else tuple(counts.tolist())
        if key not in self._limits:
            self._limits[key] = self._made_limits(alpha, counts)
            self._limits[key].flags.writeable = False
        return self._limits[key]

    def _made_limits(self, alpha: Level, counts: np.ndarray | None) -> np.ndarray:
        levels = _levels(alpha)
        out = np.full((self.num_groups, self._width), math.inf)
        if self._bags:
            for rows, scores, floors in self._bags:
                count = None if counts is None else int(counts[rows].sum())
                rank = self._rank(len(scores), levels[0], count)
                limits = floor_limits(scores, floors, rank, self._union)
                out[rows] = limits.reshape(-1, self._width)
            return out
        ordered, starts = self._cells
        ranks: dict[Any, int] = {}
        for cell, size in enumerate(np.diff(starts).tolist()):
            group, y = divmod(cell, self._width)
            count = None if counts is None or self.by_class else int(counts[group])
            key = size, levels[y % len(levels)], count
            if key not in ranks:
                ranks[key] = self._rank(*key)
            if ranks[key] <= size:
                out[group, y] = ordered[starts[cell] + ranks[key] - 1]
        return out

    def limits_of(
        self,
        alpha: Level,
        groups: np.ndarray | int = 0,
        counts: np.ndarray | None = None,
        odds: np.ndarray | None = None,
    ) -> np.ndarray:
        """The thresholds of nodes in these groups and with these odds: a row of `limits` for each.

        (m, classes or 1); one row for all where neither groups nor odds make a difference.
        """
        if odds is None or self.odds is None:
            return self.limits(alpha, counts)[groups if self.by_group else 0]
        levels, (ordered, starts) = _levels(alpha), self._cells
        out = np.empty((len(odds), self._width))
        for cell, tails in enumerate(self._tails):
            group, y = divmod(cell, self._width)
            rows = np.flatnonzero(groups == group) if self.by_group else slice(None)
            own, level = ordered[starts[cell] : starts[cell + 1]], levels[y % len(levels)]
            out[rows, y] = weighted_limits(own, tails, odds[rows], float(level))
        return out

    def threshold(self, alpha: Level, counts: np.ndarray | None = None) -> Any:
        """A number; or an array (classes,), (groups,) or (groups, classes)."""
        limits = self.limits(alpha, counts).copy()
        if self.by_group:
            return limits if self.per_class else limits[:, 0]
        return limits[0] if self.per_class else float(limits[0, 0])

    def warn_few(
        self,
        alpha: Level,
        classes: np.ndarray,
        groups: Sequence[Any],
        counts: np.ndarray | None = None,
    ) -> None:
        """Say which cells have too few nodes for a finite threshold, or for a floor."""
        if self.odds is not None:  # which nodes get full sets depends on their own odds
            return
        infinite = np.isposinf(self.limits(alpha, counts))
        if infinite.any():
            self._warn_infinite(alpha, classes, groups, infinite)
        self._warn_no_floor("class", classes, self.labels)
        self._warn_no_floor("group", groups, np.asarray(self.groups))

    def _warn_infinite(
        self, alpha: Level, classes: np.ndarray, groups: Sequence[Any], infinite: np.ndarray
    ) -> None:
        """Say which cells have too few nodes for a finite threshold."""
        levels, promise = _levels(alpha), self.promise
        if not self.by_class:  # alike for all classes; and where one threshold is, for all groups
            infinite = infinite[:, :1] if self.kind == "group" else infinite[:1, :1]
        few = np.argwhere(infinite)
        sizes = np.diff(self._cells[1]).reshape(self.num_groups, -1)
        if self.kind == "calibration":
            sizes = sizes.sum(keepdims=True)
        # Each level by itself: with error rates per class, classes need different numbers.
        for level in dict.fromkeys(levels):
            least = fewest_nodes(level)
            if promise.confidence is not None:
                least = fewest_confident(level, promise.confidence)
            own = {}
            for group, y in few:
                if levels[y % len(levels)] == level:
                    names = [str(groups[group])] if "group" in self.kind else []
                    names += [str(classes[y])] if self.by_class else []
                    own[" ".join(names)] = int(sizes[group, y])
            warn_few(own, sizes.size, self.kind, level, least, promise.confidence, self.missing)

    def warn_weak(
        self, alpha: Fraction, scores: np.ndarray, labels: np.ndarray, classes: np.ndarray
    ) -> None:
        """Say which class is covered worst, if one threshold covers it far below the others.

        `scores` and `labels` are those of tuning nodes.
        """
        if self.per_class or self.by_group or self.odds is not None:
            return
        counts = np.bincount(labels, minlength=len(classes))
        hits = np.bincount(labels, weights=scores <= self.threshold(alpha), minlength=len(classes))
        coverage = hits / np.maximum(counts, 1)
        judged = np.where(counts >= WEAK_NODES, counts, 0)
        weakest = far_below(coverage, judged, len(self), alpha, chance=WEAK_CHANCE, gap=WEAK_GAP)
        if weakest is not None:
            warn(
                f"class {plainly(classes[weakest])} is covered {coverage[weakest]:.2f} on "
                f"{counts[weakest]} tuning nodes, far below {float(1 - alpha):g}: "
                "class_conditional=True (--class-conditional) gives each class its own threshold"
            )

    def floor_of(self, kind: str) -> tuple[Fraction | None, np.ndarray]:
        """The floor for each "class" or "group", and which of them have too few nodes for it."""
        floor = self.promise.class_floor if kind == "class" else self.promise.group_floor
        poor = np.zeros(self.num_classes if kind == "class" else self.num_groups, bool)
        for _, _, floors in self._bags if floor is not None else ():
            poor |= np.isneginf(floors[-1 if kind == "class" else 0].joined)
        return floor, poor

    def _warn_no_floor(
        self, kind: str, names: Sequence[Any] | np.ndarray, codes: np.ndarray
    ) -> None:
        """Say which classes or groups have too few nodes for a floor."""
        floor, poor = self.floor_of(kind)
        if floor is None or not poor.any():
            return
        sizes = np.bincount(codes, minlength=len(names))
        shown = [f"{names[cell]} ({sizes[cell]})" for cell in np.flatnonzero(poor).tolist()]
        least, confidence = fewest_nodes(1 - floor), self.promise.confidence
        if confidence is not None:
            least = fewest_confident(1 - floor, confidence)
        within = " in some groups" if len(self._bags) > 1 else ""
        what = "classes have" if kind == "class" else "groups have"
        warn(
            f"{len(shown)} of {len(names)} {what} too few calibration nodes{within} for "
            f"{kind}_floor={float(floor):g} (at least {least} each) and get no floor: "
            f"{kind} (nodes) {', '.join(shown[:5])}{', ...' * (len(shown) > 5)}"
        )

    def contains(
        self,
        scores: np.ndarray,
        alpha: Level,
        groups: np.ndarray | int = 0,
        counts: np.ndarray | None = None,
        odds: np.ndarray | None = None,
        draws: np.ndarray | None = None,
    ) -> np.ndarray:
        """Which labels (m, K) are in the sets of nodes with these scores; ties are in.

        With `draws` chance decides on ties: the smoothed p-value of a label must be above alpha.
        """
        if draws is not None:
            return self.p_values(scores, groups, draws, odds) > np.array(_levels(alpha), np.float64)
        return scores <= self.limits_of(alpha, groups, counts, odds)

    def p_values(
        self,
        scores: np.ndarray,
        groups: np.ndarray | int = 0,
        draws: np.ndarray | None = None,
        odds: np.ndarray | None = None,
    ) -> np.ndarray:
        """Conformal p-values (m, K), each against its own cell.

        Plain: (1 + #{calibration >= s}) / (n + 1), which is above alpha exactly for the labels of
        the prediction set. With `draws`, uniform and of the shape of `scores`, they are smoothed:
        ties count by chance and the p-value of a true label is exactly uniform. With floors, the
        scores within the floor of their class or group are not counted, and labels within theirs
        have p-value 1. With `odds` of the nodes, each calibration score counts by its own.
        """
        if self._bags:
            return self._floor_p_values(scores, groups, draws)
        ordered, starts = self._cells
        out = np.empty(scores.shape)
        for cell in range(len(starts) - 1):
            group, y = divmod(cell, self._width)
            rows = np.flatnonzero(groups == group) if self.by_group else slice(None)
            columns = slice(y, y + 1) if self.by_class else slice(None)
            values = scores[rows, columns]
            own = ordered[starts[cell] : starts[cell + 1]]
            if odds is not None and self.odds is not None:
                chance = None if draws is None else draws[rows, columns]
                out[rows, columns] = weighted_p_values(
                    values, own, self._tails[cell], odds[rows], chance
                )
                continue
            n = len(own) + self.missing
            below = np.searchsorted(own, values, side="left")
            if draws is None:
                out[rows, columns] = (1 + n - below) / (n + 1)
            else:
                upto = np.searchsorted(own, values, side="right")
                chance = draws[rows, columns]
                out[rows, columns] = ((n - upto) + chance * (1 + upto - below)) / (n + 1)
        return out

    def _floor_p_values(
        self, scores: np.ndarray, groups: np.ndarray | int, draws: np.ndarray | None
    ) -> np.ndarray:
        out, groups = np.empty(scores.shape), np.broadcast_to(groups, len(scores))
        for bag, (_, own, floors) in enumerate(self._bags):
            for cells, quantile, beyond in beyond_floors(own, floors):
                rows = np.arange(len(scores))
                if self.by_group:
                    group = bag if self.kind == "group" else cells[0]
                    rows = np.flatnonzero(groups == group)
                y = cells[-1] if self.promise.class_floor is not None else slice(None)
                chance = None if draws is None else draws[rows, y]
                out[rows, y] = floor_p_values(scores[rows, y], beyond, len(own), quantile, chance)
        return out

    def tied_share(self) -> float:
        """Share of the calibration scores that another score of their cell equals."""
        ordered, starts = self._cells
        if len(ordered) == 0:
            return 0.0
        same = ordered[1:] == ordered[:-1]
        same[starts[1:-1][(starts[1:-1] > 0) & (starts[1:-1] < len(ordered))] - 1] = False
        tied = np.zeros(len(ordered), bool)
        tied[1:] |= same
        tied[:-1] |= same
        return float(tied.mean())


def warn_few(
    cells: dict[str, int],
    total: int,
    kind: str,
    alpha: Fraction,
    least: int | None = None,
    confidence: Fraction | None = None,
    missing: int = 0,
) -> None:
    """Say which cells have too few calibration nodes for a finite threshold.

    `cells` maps the names of these cells to their number of nodes; there are `total` of their
    `kind`: calibration (one cell for all), class, group, or group and class. `least` is the
    number that is enough, `missing` that of calibration nodes whose labels are missing.
    """
    if not cells:
        return
    level = f"alpha={float(alpha):g}"
    if missing and min(cells.values()) >= (fewest_nodes(alpha) if least is None else least):
        warn(
            f"{missing} calibration nodes without labels, which count as not covered, are too many "
            f"for {level}: thresholds are infinite and sets contain every label"
        )
        return
    if confidence is not None:
        level += f" with confidence={float(confidence):g}"
    needed = f"(at least {fewest_nodes(alpha) if least is None else least}"
    if kind == "calibration":
        (count,) = cells.values()
        text = (
            f"{count} calibration nodes are too few for {level} {needed}): "
            "the threshold is infinite"
        )
    else:
        shown = ", ".join(f"{name} ({count})" for name, count in list(cells.items())[:5])
        what = {"class": "classes have", "group": "groups have"}.get(kind, f"cells ({kind}) have")
        text = (
            f"{len(cells)} of {total} {what} too few calibration nodes for {level} "
            f"{needed} each) and {'join every set' if kind == 'class' else 'get full sets'}: "
            f"{kind} (nodes) {shown}{', ...' * (len(cells) > 5)}"
        )
    warn(text)


def _levels(alpha: Level) -> tuple[Fraction, ...]:
    """One level for all, or one per class."""
    if isinstance(alpha, tuple):
        return alpha
    return (alpha if isinstance(alpha, Fraction) else check_alpha(alpha),)
