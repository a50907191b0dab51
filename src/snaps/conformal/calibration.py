"""Calibration scores in, thresholds, sets and p-values out; no graph, no features.

The guarantee is marginal: over the draw of calibration and test nodes from one pool, a set
contains the true label with probability at least 1 - alpha. It does not apply to each class, group
or node by itself unless thresholds are set for each, nor where calibration and test nodes come from
different pools.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from snaps._checks import check_alpha
from snaps.conformal.rank import exact_rank, fewest_nodes
from snaps.errors import warn


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores of calibration nodes' true labels, in cells that have a threshold each.

    One cell for all, or one per class, per group, or per group and class.

    Parameters
    ----------
    scores : array (n,)
    labels : int array (n,)
        Their classes; used with `by_class` alone.
    num_classes : int
    groups : int array (n,), or 0
        Their groups, 0 to num_groups - 1; 0 is one group for all.
    num_groups : int
    by_class : bool
    missing : int
        Calibration nodes whose labels are missing: each counts as not covered, in every cell.

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
    missing: int = 0

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def by_group(self) -> bool:
        """Whether groups have thresholds of their own."""
        return not isinstance(self.groups, int)

    @property
    def kind(self) -> str:
        """What a cell is."""
        if self.by_group:
            return "group and class" if self.by_class else "group"
        return "class" if self.by_class else "calibration"

    @property
    def _width(self) -> int:
        return self.num_classes if self.by_class else 1

    @cached_property
    def _cells(self) -> tuple[np.ndarray, np.ndarray]:
        """All scores, sorted within their cell, and where each cell begins."""
        cell = np.broadcast_to(self.groups, self.scores.shape)
        if self.by_class:
            cell = cell * self.num_classes + self.labels
        order = np.lexsort((self.scores, cell))
        counts = np.bincount(cell, minlength=self.num_groups * self._width)
        return self.scores[order], np.concatenate([[0], np.cumsum(counts)])

    def limits(self, alpha: float | Fraction) -> np.ndarray:
        """The threshold of each cell, (groups, classes or 1); infinite for one with too few."""
        level = alpha if isinstance(alpha, Fraction) else check_alpha(alpha)
        ordered, starts = self._cells
        sizes = np.diff(starts)
        out = np.full(len(sizes), math.inf)
        for size in np.unique(sizes):
            rank = exact_rank(int(size) + self.missing, level)
            if rank <= size:
                same = sizes == size
                out[same] = ordered[starts[:-1][same] + rank - 1]
        return out.reshape(self.num_groups, self._width)

    def threshold(self, alpha: float | Fraction) -> Any:
        """A number; or an array (classes,), (groups,) or (groups, classes)."""
        limits = self.limits(alpha)
        if self.by_group:
            return limits if self.by_class else limits[:, 0]
        return limits[0] if self.by_class else float(limits[0, 0])

    def warn_few(self, alpha: Fraction, classes: np.ndarray, groups: Sequence[Any]) -> None:
        """Say which cells, by their names, have too few nodes for a finite threshold."""
        few = np.argwhere(np.isinf(self.limits(alpha)))
        if not len(few):
            return
        counts = np.diff(self._cells[1]).reshape(self.num_groups, self._width)
        named = {}
        for group, y in few:
            names = [str(groups[group])] if self.by_group else []
            names += [str(classes[y])] if self.by_class else []
            named[" ".join(names)] = int(counts[group, y])
        warn_few(named, counts.size, self.kind, alpha)

    def contains(
        self, scores: np.ndarray, alpha: float | Fraction, groups: np.ndarray | int = 0
    ) -> np.ndarray:
        """Which labels (m, K) are in the sets of nodes with these scores; ties are in."""
        return scores <= self.limits(alpha)[groups if self.by_group else 0]

    def p_values(
        self,
        scores: np.ndarray,
        groups: np.ndarray | int = 0,
        draws: np.ndarray | None = None,
    ) -> np.ndarray:
        """Conformal p-values (m, K), each against its own cell.

        Plain: (1 + #{calibration >= s}) / (n + 1), which is above alpha exactly for the labels of
        the prediction set. With `draws`, uniform and of the shape of `scores`, they are smoothed:
        ties count by chance and the p-value of a true label is exactly uniform.
        """
        ordered, starts = self._cells
        out = np.empty(scores.shape)
        for cell in range(len(starts) - 1):
            group, y = divmod(cell, self._width)
            rows = np.flatnonzero(groups == group) if self.by_group else slice(None)
            columns = slice(y, y + 1) if self.by_class else slice(None)
            values = scores[rows, columns]
            own = ordered[starts[cell] : starts[cell + 1]]
            n = len(own) + self.missing
            below = np.searchsorted(own, values, side="left")
            if draws is None:
                out[rows, columns] = (1 + n - below) / (n + 1)
            else:
                upto = np.searchsorted(own, values, side="right")
                chance = draws[rows, columns]
                out[rows, columns] = ((n - upto) + chance * (1 + upto - below)) / (n + 1)
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


def warn_few(cells: dict[str, int], total: int, kind: str, alpha: Fraction) -> None:
    """Say which cells have too few calibration nodes for a finite threshold.

    `cells` maps the names of such cells to their number of nodes; there are `total` of their
    `kind`: calibration (one cell for all), class, group, or group and class.
    """
    if not cells:
        return
    needed = f"(at least {fewest_nodes(alpha)}"
    if kind == "calibration":
        (count,) = cells.values()
        text = (
            f"{count} calibration nodes are too few for alpha={float(alpha):g} {needed}): "
            "the threshold is infinite"
        )
    else:
        shown = ", ".join(f"{name} ({count})" for name, count in list(cells.items())[:5])
        what = {"class": "classes have", "group": "groups have"}.get(kind, f"cells ({kind}) have")
        text = (
            f"{len(cells)} of {total} {what} too few calibration nodes for alpha={float(alpha):g} "
            f"{needed} each) and {'join every set' if kind == 'class' else 'get full sets'}: "
            f"{kind} (nodes) {shown}{', ...' * (len(cells) > 5)}"
        )
    warn(text)
