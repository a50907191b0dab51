"""How good prediction sets are. `labels` is always (n,), one entry a node of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snaps._checks import check_alpha, check_known, check_labels, shown
from snaps._errors import SnapsError
from snaps.sets import PredictionSets

# Size strata of Angelopoulos et al. (2021), which the paper uses for images.
STRATA = ((0, 1), (2, 3), (4, 10), (11, 100), (101, 1000))


def _sizes(sets: PredictionSets) -> np.ndarray:
    """Sizes of at least one set."""
    if not isinstance(sets, PredictionSets):
        raise SnapsError(f"'sets' must be PredictionSets, got {type(sets).__name__}")
    if len(sets) == 0:
        raise SnapsError("'sets' must hold at least one set, got none")
    return sets.sizes


def _hits(sets: PredictionSets, labels: Any) -> np.ndarray:
    """Whether each set holds its node's label."""
    _sizes(sets)
    checked = check_labels(labels, num_nodes=sets.num_nodes, num_classes=sets.mask.shape[1])
    check_known(checked, sets.nodes, "labels")
    return sets.mask[np.arange(len(sets)), checked[sets.nodes]]


def coverage(sets: PredictionSets, labels: Any) -> float:
    """Share of sets that hold the true label."""
    return float(_hits(sets, labels).mean())


def size(sets: PredictionSets, labels: Any = None) -> float:
    """Mean number of labels, over all sets; no labels are needed."""
    return float(_sizes(sets).mean())


def size_nonempty(sets: PredictionSets, labels: Any = None) -> float:
    """Mean number of labels over the sets that are not empty; nan when all are."""
    sizes = _sizes(sets)
    return float(sizes[sizes > 0].mean()) if sizes.any() else float("nan")


def empty(sets: PredictionSets, labels: Any = None) -> float:
    """Share of sets without any label."""
    return float((_sizes(sets) == 0).mean())


def singleton_hit(sets: PredictionSets, labels: Any) -> float:
    """Share of sets that are exactly the true label."""
    return float((_hits(sets, labels) & (sets.sizes == 1)).mean())


def sscv(
    sets: PredictionSets,
    labels: Any,
    alpha: float,
    strata: Sequence[tuple[int, int]] = STRATA,
) -> float:
    """Size-stratified coverage violation: the worst |coverage - (1 - alpha)| over set sizes.

    Parameters
    ----------
    sets, labels
    alpha : float
        The level the sets were made for.
    strata : pairs of int
        Smallest and largest size of each stratum; strata without sets don't count.
    """
    hits, sizes = _hits(sets, labels), sets.sizes
    target = 1 - float(check_alpha(alpha))
    try:
        within = [(sizes >= low) & (sizes <= high) for low, high in strata]
    except (TypeError, ValueError):
        raise SnapsError(f"'strata' must be pairs of sizes, got {shown(strata)}") from None
    gaps = [abs(hits[inside].mean() - target) for inside in within if inside.any()]
    if not gaps:
        raise SnapsError(f"'strata' must cover the sizes that occur, got {shown(strata)}")
    return float(max(gaps))


def class_coverage(sets: PredictionSets, labels: Any) -> np.ndarray:
    """Coverage of each class (K,); nan for a class without nodes."""
    hits = _hits(sets, labels)
    own = np.asarray(check_labels(labels, num_nodes=sets.num_nodes, num_classes=sets.mask.shape[1]))
    own = own[sets.nodes]
    count = np.bincount(own, minlength=sets.mask.shape[1])
    hit = np.bincount(own, weights=hits, minlength=sets.mask.shape[1])
    return np.divide(hit, count, out=np.full(len(count), np.nan), where=count > 0)


def class_gap(sets: PredictionSets, labels: Any, alpha: float) -> float:
    """Mean over classes of |coverage - (1 - alpha)|."""
    target = 1 - float(check_alpha(alpha))
    return float(np.nanmean(np.abs(class_coverage(sets, labels) - target)))
