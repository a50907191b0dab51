"""How good prediction sets are.

`labels` is always (n,), one entry per node of the graph, by name if the sets' classes have names;
a Series or mapping is matched by the sets' ids.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from snaps._checks import check_alpha, check_known, shown
from snaps._checks.classes import check_groups, encode_labels
from snaps._checks.named import of_sets
from snaps.errors import SnapsError
from snaps.sets import PredictionSets

# Size strata of Angelopoulos et al. (2021), which the paper uses for images.
STRATA = ((0, 1), (2, 3), (4, 10), (11, 100), (101, math.inf))


def _sizes(sets: PredictionSets) -> np.ndarray:
    """Sizes of at least one set."""
    if not isinstance(sets, PredictionSets):
        raise SnapsError(f"'sets' must be PredictionSets, got {type(sets).__name__}")
    if len(sets) == 0:
        raise SnapsError("'sets' must hold at least one set, got none")
    return sets.sizes


def _hits(sets: PredictionSets, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Whether each set holds its node's label; and the labels, as columns of the sets' mask."""
    _sizes(sets)
    values, rows = of_sets(labels, sets.ids, sets.nodes, "labels")
    codes, _ = encode_labels(
        values,
        num_nodes=sets.num_nodes if rows is sets.nodes else len(rows),
        num_classes=sets.mask.shape[1],
        classes=sets.classes,
    )
    check_known(codes, rows, "labels")
    return sets.mask[np.arange(len(sets)), codes[rows]], codes[rows]


def coverage(sets: PredictionSets, labels: Any) -> float:
    """Share of sets that contain the true label.

    Examples
    --------
    >>> sets = PredictionSets(np.array([[1, 0], [0, 0], [1, 1], [0, 1]], bool))
    >>> labels = [0, 0, 1, 1]
    >>> coverage(sets, labels)
    0.75
    """
    return float(_hits(sets, labels)[0].mean())


def size(sets: PredictionSets, labels: Any = None) -> float:
    """Mean number of labels, over all sets; no labels are needed.

    Examples
    --------
    >>> sets = PredictionSets(np.array([[1, 0], [0, 0], [1, 1], [0, 1]], bool))
    >>> size(sets)
    1.0
    """
    return float(_sizes(sets).mean())


def size_nonempty(sets: PredictionSets, labels: Any = None) -> float:
    """Mean number of labels over the sets that are not empty; nan when all are.

    Examples
    --------
    >>> sets = PredictionSets(np.array([[1, 0], [0, 0], [1, 1], [0, 1]], bool))
    >>> round(size_nonempty(sets), 2)
    1.33
    """
    sizes = _sizes(sets)
    return float(sizes[sizes > 0].mean()) if sizes.any() else float("nan")


def empty(sets: PredictionSets, labels: Any = None) -> float:
    """Share of sets without any label.

    Examples
    --------
    >>> sets = PredictionSets(np.array([[1, 0], [0, 0], [1, 1], [0, 1]], bool))
    >>> empty(sets)
    0.25
    """
    return float((_sizes(sets) == 0).mean())


def singleton_hit(sets: PredictionSets, labels: Any) -> float:
    """Share of sets that are exactly the true label.

    Examples
    --------
    >>> sets = PredictionSets(np.array([[1, 0], [0, 0], [1, 1], [0, 1]], bool))
    >>> labels = [0, 0, 1, 1]
    >>> singleton_hit(sets, labels)
    0.5
    """
    return float((_hits(sets, labels)[0] & (sets.sizes == 1)).mean())


def sscv(
    sets: PredictionSets, labels: Any, alpha: float, strata: Sequence[tuple[float, float]] = STRATA
) -> float:
    """Size-stratified coverage violation: the worst gap to 1 - alpha over set sizes.

    Parameters
    ----------
    sets, labels
    alpha : float
        The level the sets were made for.
    strata : pairs of sizes
        Smallest and largest size of each stratum; strata without sets don't count. The paper's,
        which are the default, join empty sets and single labels. With few classes look at each
        size by itself: ``[(size, size) for size in range(num_classes + 1)]``.

    Examples
    --------
    >>> sets = PredictionSets(np.array([[1, 0], [0, 0], [1, 1], [0, 1]], bool))
    >>> labels = [0, 0, 1, 1]
    >>> round(sscv(sets, labels, alpha=0.1), 2)
    0.23
    """
    hits, sizes = _hits(sets, labels)[0], sets.sizes
    target = 1 - float(check_alpha(alpha))
    try:
        within = [(sizes >= low) & (sizes <= high) for low, high in strata]
    except Exception:  # whatever iterating and comparing raises
        raise SnapsError(f"'strata' must be pairs of sizes, got {shown(strata)}") from None
    gaps = [abs(hits[inside].mean() - target) for inside in within if inside.any()]
    if not gaps:
        raise SnapsError(f"'strata' must cover the sizes that occur, got {shown(strata)}")
    return float(max(gaps))


def class_coverage(sets: PredictionSets, labels: Any) -> np.ndarray:
    """Coverage of each class (K,), in the order of `sets.classes`; nan for one without nodes.

    Examples
    --------
    >>> sets = PredictionSets(np.array([[1, 0], [0, 0], [1, 1], [0, 1]], bool))
    >>> labels = [0, 0, 1, 1]
    >>> class_coverage(sets, labels)
    array([0.5, 1. ])
    """
    hits, own = _hits(sets, labels)
    count = np.bincount(own, minlength=sets.mask.shape[1])
    hit = np.bincount(own, weights=hits, minlength=sets.mask.shape[1])
    return np.divide(hit, count, out=np.full(len(count), np.nan), where=count > 0)


def class_gap(sets: PredictionSets, labels: Any, alpha: float) -> float:
    """Mean over classes of the gap between coverage and 1 - alpha.

    Examples
    --------
    >>> sets = PredictionSets(np.array([[1, 0], [0, 0], [1, 1], [0, 1]], bool))
    >>> labels = [0, 0, 1, 1]
    >>> round(class_gap(sets, labels, alpha=0.1), 2)
    0.25
    """
    target = 1 - float(check_alpha(alpha))
    return float(np.nanmean(np.abs(class_coverage(sets, labels) - target)))


def group_coverage(sets: PredictionSets, labels: Any, groups: Any) -> dict[Hashable, float]:
    """Coverage of each group of nodes, such as regions; no guarantee is made for any of them.

    Parameters
    ----------
    sets, labels
    groups : array (n,)
        The group of each node of the graph: anything hashable. Nodes without one (None, NaN)
        make a group None.

    Returns
    -------
    dict
        Groups that have a set, in the order in which they first occur among the sets.

    Examples
    --------
    >>> sets = PredictionSets(np.array([[True, False], [False, True], [True, True]]))
    >>> group_coverage(sets, [0, 0, 1], ["north", "south", "north"])
    {'north': 1.0, 'south': 0.0}
    """
    hits, _ = _hits(sets, labels)
    values, rows = of_sets(groups, sets.ids, sets.nodes, "groups")
    listed = check_groups(values, sets.num_nodes if rows is sets.nodes else len(rows))
    of_group: dict[Hashable, list[int]] = {}
    for row, node in enumerate(rows.tolist()):
        of_group.setdefault(listed[node], []).append(row)
    return {group: float(hits[rows].mean()) for group, rows in of_group.items()}
