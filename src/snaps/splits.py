"""Many random calibration/test splits of one score field at once."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from snaps.checks import (
    check_alpha,
    check_disjoint,
    check_integer,
    check_known,
    check_labels,
    check_nodes,
    check_seed,
    shown,
)
from snaps.conformal import conformal_rank, fewest_nodes
from snaps.errors import SnapsError, SnapsWarning
from snaps.estimator import Estimator, Inputs
from snaps.graph import Graph
from snaps.randomness import SPLIT_STREAM, TUNE_STREAM, hashes, key_states, smallest
from snaps.tuning import tuning_share


def draw_splits(seed: int, keys: np.ndarray, n_calib: int, n_splits: int) -> np.ndarray:
    """Calibration positions (n_splits, n_calib) within `keys`, each row a random subset.

    A split takes the nodes with the smallest hashes, so it depends on ids and not on order.
    """
    from snaps import kernels

    states = key_states(0, hashes(seed, keys, SPLIT_STREAM))
    return kernels.draw_splits(states, n_calib, n_splits)


def evaluate_splits(
    method: Estimator,
    graph: Graph | None,
    probs: Any,
    labels: Any,
    pool: Any,
    n_calib: int,
    n_splits: int = 100,
    seed: int = 0,
    similarity: Any = None,
    *,
    tune_nodes: Any = None,
    alphas: Sequence[float] | None = None,
    logits: bool = False,
) -> dict[str, np.ndarray]:
    """Evaluate a method on many random calibration/test splits of a pool of labelled nodes.

    The scores are computed and sorted once; a split then costs little more than sorting its
    calibration scores.

    Parameters
    ----------
    method : SNAPS, DAPS or SplitConformal
    graph, probs, labels, similarity, logits : see `SNAPS.calibrate`
    pool : array of positions, or mask (n,)
        Labelled nodes to split; nodes that trained the classifier don't belong here.
    n_calib : int
        Labels to spend in each split. A method with something to tune takes its tuning nodes from
        this budget, once for all splits, unless `tune_nodes` are given.
    n_splits : int
    seed : int
        Of the splits and of the choice of tuning nodes; the method has its own for its draws.
    tune_nodes : array of positions, or mask (n,), optional
        Labelled nodes outside the pool to tune on.
    alphas : sequence of float, optional
        Levels to evaluate, each tuned by itself; by default the method's own.

    Returns
    -------
    dict of arrays
        coverage, size, size_nonempty, singleton_hit, empty, threshold, n_calib, n_test: an entry a
        split, or (len(alphas), n_splits) when `alphas` are given. `n_calib` counts the nodes that
        calibrate after tuning took its part. `threshold` has one more axis with class thresholds.

    Examples
    --------
    >>> import snaps
    >>> probs, labels = np.full((300, 3), 1 / 3), np.arange(300) % 3
    >>> out = evaluate_splits(snaps.SplitConformal(0.1), None, probs, labels, np.arange(300), 99)
    >>> out["coverage"].shape, bool(abs(out["coverage"].mean() - 0.9) < 0.02)
    ((100,), True)
    """
    if not isinstance(method, Estimator):
        raise SnapsError(
            f"'method' must be an estimator such as snaps.SNAPS(), got {shown(method)}"
        )
    method._check_parameters()
    try:
        given = [method.alpha] if alphas is None else list(alphas)
    except TypeError:
        given = []
    if not given:
        raise SnapsError(f"'alphas' must be a list of at least one level, got {shown(alphas)}")
    levels = [check_alpha(level, "alphas") for level in given]
    inputs = method._prepare(graph, probs, similarity, logits)
    n, num_classes = inputs.probs.shape
    known = check_labels(labels, num_nodes=n, num_classes=num_classes)
    nodes = check_nodes(pool, "pool", num_nodes=n)
    check_known(known, nodes, "pool")
    if len(nodes) == 1:
        raise SnapsError("'pool' must hold at least two nodes, got 1")
    budget = check_integer(n_calib, "n_calib", low=1, high=len(nodes) - 1)
    n_splits = check_integer(n_splits, "n_splits", low=1)
    seed = check_seed(seed)
    tune = None
    if tune_nodes is not None:
        tune = check_nodes(tune_nodes, "tune_nodes", num_nodes=n)
        check_known(known, tune, "tune_nodes")
        check_disjoint(tune, "tune_nodes", nodes, "'pool'")
    rows = [
        _at_level(method, inputs, known, nodes, budget, n_splits, seed, tune, alpha)
        for alpha in levels
    ]
    if alphas is None:
        return rows[0]
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _at_level(
    method: Estimator,
    inputs: Inputs,
    labels: np.ndarray,
    pool: np.ndarray,
    budget: int,
    n_splits: int,
    seed: int,
    tune: np.ndarray | None,
    alpha: Fraction,
) -> dict[str, np.ndarray]:
    if tune is None:
        share = tuning_share(budget, alpha) if method.needs_tuning else 0
        chosen = smallest(seed, inputs.keys[pool], TUNE_STREAM, share)
        tune, pool, budget = pool[chosen], np.delete(pool, chosen), budget - share
    scores = np.ascontiguousarray(method._fit(inputs, tune, labels, alpha).scores[pool])
    splits = draw_splits(seed, inputs.keys[pool], budget, n_splits)
    own = labels[pool]
    if method.class_conditional:
        thresholds, counts = _count_by_class(scores, own, splits, alpha)
    else:
        thresholds, counts = _count(scores, own, splits, alpha)
    n_test = len(pool) - budget
    covered, total, filled, hit = counts.T
    with np.errstate(invalid="ignore"):
        size_nonempty = total / filled
    return {
        "coverage": covered / n_test,
        "size": total / n_test,
        "size_nonempty": size_nonempty,
        "singleton_hit": hit / n_test,
        "empty": 1 - filled / n_test,
        "threshold": thresholds,
        "n_calib": np.full(n_splits, budget),
        "n_test": np.full(n_splits, n_test),
    }


def _count(
    scores: np.ndarray, labels: np.ndarray, splits: np.ndarray, alpha: Fraction
) -> tuple[np.ndarray, np.ndarray]:
    from snaps.kernels import count_splits

    n = splits.shape[1]
    rank = conformal_rank(n, alpha)
    if rank > n:
        warnings.warn(
            f"{n} calibration nodes are too few for alpha={float(alpha):g} "
            f"(at least {fewest_nodes(alpha)}): the threshold is infinite",
            SnapsWarning,
            stacklevel=4,
        )
    true = scores[np.arange(len(scores)), labels]
    smallest_two = np.partition(scores, 1, axis=1)[:, :2]
    first, second = smallest_two[:, 0].copy(), smallest_two[:, 1].copy()
    single = true == first
    ordered = tuple(
        np.sort(values)
        for values in (true, scores.reshape(-1), first, first[single], second[single])
    )
    return count_splits(scores, true, first, second, single, splits, rank, ordered)


def _count_by_class(
    scores: np.ndarray, labels: np.ndarray, splits: np.ndarray, alpha: Fraction
) -> tuple[np.ndarray, np.ndarray]:
    from snaps.kernels import count_splits_by_class

    ranks = np.array([conformal_rank(c, alpha) for c in range(splits.shape[1] + 1)])
    return count_splits_by_class(scores, labels, splits, ranks)
