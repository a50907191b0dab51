"""A least coverage for every class or group next to one threshold for all, both exact.

For a candidate label of a node, take the bag of the n calibration scores and the candidate's own.
Every class k has its floor quantile there: the ceil(floor * N_k)-th smallest of its N_k scores.
Scores within the floor quantile of their own class count as minus infinity. The label is in the set
if its score, modified like this, is at most the r-th smallest of the bag, with
r = ceil((1 - alpha)(n + 1)). All of this is symmetric in the n + 1 members, so the marginal
guarantee is exact; a score within its class's floor is always in, so the floor is exact, too.

A class with so few scores that its floor quantile would be infinite has no floor. That rule must
be symmetric as well: it counts the candidate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np

from snaps.conformal.rank import exact_rank


@dataclass(frozen=True, eq=False)
class Floor:
    """One way to divide calibration scores into cells, and the floor quantiles of the cells.

    Attributes
    ----------
    codes : int array (n,)
        The cell of each score.
    joined, others : arrays (cells,)
        The quantile of a cell that the candidate is in, and of one that it is not in; minus
        infinity where a cell has no floor.
    """

    codes: np.ndarray
    joined: np.ndarray
    others: np.ndarray

    @classmethod
    def of(
        cls,
        scores: np.ndarray,
        codes: np.ndarray,
        cells: int,
        floor: Fraction,
        rank_of: Callable[[int, Fraction], int] = exact_rank,
    ) -> Floor:
        """The quantiles of all cells, by a rank that may ask for more than the exact one."""
        joined, others = np.full(cells, -math.inf), np.full(cells, -math.inf)
        for cell, own in enumerate(_cells(scores, codes, cells)):
            size = len(own)
            rank = rank_of(size, 1 - floor)
            if rank <= size:
                joined[cell] = own[rank - 1]
            if size * (1 - floor) >= 1:
                others[cell] = own[math.ceil(floor * size) - 1]
        return cls(codes, joined, others)


def _cells(scores: np.ndarray, codes: np.ndarray, cells: int) -> list[np.ndarray]:
    """The scores of each cell, sorted."""
    order = np.lexsort((scores, codes))
    ends = np.cumsum(np.bincount(codes, minlength=cells))[:-1]
    return np.split(scores[order], ends)


def beyond_floors(
    scores: np.ndarray, floors: Sequence[Floor], union: bool = False
) -> Iterator[tuple[tuple[int, ...], float, np.ndarray]]:
    """For each combination of cells that a candidate may be in, one per floor:

    the combination, the candidate's highest floor quantile, and the sorted calibration scores
    that lie beyond the floors of their own cells. With `union` these are all scores: sets then
    contain what one threshold lets in and what the floors let in, which covers more.
    """
    within = [scores <= floor.others[floor.codes] for floor in floors]
    members = [
        [np.flatnonzero(floor.codes == cell) for cell in range(len(floor.joined))]
        for floor in floors
    ]
    for cells in product(*(range(len(floor.joined)) for floor in floors)):
        protected = np.zeros(len(scores), bool)
        for floor, mask, cell, own in zip(floors, within, cells, members, strict=True):
            joined = mask.copy()
            joined[own[cell]] = scores[own[cell]] <= floor.joined[cell]
            protected |= joined & (not union)
        quantile = max(floor.joined[cell] for floor, cell in zip(floors, cells, strict=True))
        yield cells, float(quantile), np.sort(scores[~protected])


def floor_limits(
    scores: np.ndarray, floors: Sequence[Floor], rank: int, union: bool = False
) -> np.ndarray:
    """The threshold of each combination of cells."""
    n = len(scores)
    limits = np.full([len(floor.joined) for floor in floors], math.inf)
    if rank > n:
        return limits
    for cells, quantile, beyond in beyond_floors(scores, floors, union):
        place = rank - 1 - (n - len(beyond))
        limits[cells] = max(quantile, beyond[place] if place >= 0 else -math.inf)
    return limits


def floor_p_values(
    scores: np.ndarray,
    beyond: np.ndarray,
    n: int,
    quantile: float,
    draws: np.ndarray | None = None,
) -> np.ndarray:
    """p-values of candidates with these scores, whose combination of cells has this quantile.

    `beyond` are the calibration scores beyond the floors, sorted; n counts all of them. A candidate
    within its floor has p-value 1, smoothed or not: its label is in every set.
    """
    above = len(beyond) - np.searchsorted(beyond, scores, side="left")
    if draws is None:
        values = (1 + above) / (n + 1)
    else:
        higher = len(beyond) - np.searchsorted(beyond, scores, side="right")
        values = (higher + draws * (1 + above - higher)) / (n + 1)
    return np.where(scores <= quantile, 1.0, values)
