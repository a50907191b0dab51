"""Many random calibration/test splits of one score field at once."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from snaps._checks import (
    check_alpha,
    check_disjoint,
    check_integer,
    check_known,
    check_labels,
    check_nodes,
    check_seed,
    shown,
)
from snaps._errors import SnapsError, SnapsWarning
from snaps._randomness import SPLIT_STREAM, TUNE_STREAM, hashes, key_states, smallest
from snaps.conformal import checked_rank, conformal_rank, fewest_nodes
from snaps.estimator import Estimator, Inputs, with_known
from snaps.graph import Graph
from snaps.tuning import tuning_share


def draw_splits(seed: int, keys: np.ndarray, n_calib: int, n_splits: int) -> np.ndarray:
    """Calibration positions (n_splits, n_calib) within `keys`, each row a random subset.

    A split takes the nodes with the smallest hashes, so it depends on ids and not on order.
    """
    from snaps.kernels import splitting

    states = key_states(0, hashes(seed, keys, SPLIT_STREAM))
    return splitting.draw_splits(states, n_calib, n_splits)


def evaluate_splits(
    method: Estimator | Mapping[str, Estimator],
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
    n_tune: int | None = None,
    known_nodes: Any = None,
    alphas: Sequence[float] | None = None,
    logits: bool = False,
) -> dict[str, Any]:
    """Evaluate a method on many random calibration/test splits of a pool of labelled nodes.

    The scores are computed and sorted once; a split then costs little more than sorting its
    calibration scores.

    Parameters
    ----------
    method : SNAPS, Pooled, DAPS or SplitConformal, or a mapping of names to them
        Several methods share what they have in common, such as a table of scores.
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
    n_tune : int, optional
        Labels of the budget to tune on; by default half of them, at most 500.
    known_nodes : array of positions, or mask (n,), optional
        Labelled nodes outside the pool, as evidence for the methods that use such (`Pooled`).
    alphas : sequence of float, optional
        Levels to evaluate, each tuned by itself; by default the method's own.

    Returns
    -------
    dict of arrays
        coverage, size, size_nonempty, singleton_hit, empty, threshold, n_calib, n_test: an entry a
        split, or (len(alphas), n_splits) when `alphas` are given. `n_calib` counts the nodes that
        calibrate after tuning took its part. `threshold` has one more axis with class thresholds.
        Given a mapping of methods, a mapping of such dicts.

    Examples
    --------
    >>> import snaps
    >>> probs, labels = np.full((300, 3), 1 / 3), np.arange(300) % 3
    >>> out = evaluate_splits(snaps.SplitConformal(0.1), None, probs, labels, np.arange(300), 99)
    >>> out["coverage"].shape, bool(abs(out["coverage"].mean() - 0.9) < 0.02)
    ((100,), True)
    """
    methods = dict(method) if isinstance(method, Mapping) else {"": method}
    for one in methods.values() or [method]:
        if not isinstance(one, Estimator):
            raise SnapsError(
                f"'method' must be an estimator such as snaps.SNAPS(), got {shown(one)}"
            )
        one._check_parameters()
    try:
        levels = None if alphas is None else [check_alpha(a, "alphas") for a in alphas]
    except TypeError:
        levels = []
    if levels == []:
        raise SnapsError(f"'alphas' must be a list of at least one level, got {shown(alphas)}")
    greediest = max(methods.values(), key=lambda one: len(one._parts))
    inputs = greediest._prepare(graph, probs, similarity, logits)
    n, num_classes = inputs.probs.shape
    known = check_labels(labels, num_nodes=n, num_classes=num_classes)
    nodes = check_nodes(pool, "pool", num_nodes=n)
    check_known(known, nodes, "pool")
    if len(nodes) == 1:
        raise SnapsError("'pool' must hold at least two nodes, got 1")
    budget = check_integer(n_calib, "n_calib", low=1, high=len(nodes) - 1)
    if n_tune is not None:
        n_tune = check_integer(n_tune, "n_tune", low=0, high=budget - 1)
    n_splits = check_integer(n_splits, "n_splits", low=1)
    seed = check_seed(seed)
    tune = None
    if tune_nodes is not None:
        tune = check_nodes(tune_nodes, "tune_nodes", num_nodes=n)
        check_known(known, tune, "tune_nodes")
        check_disjoint(tune, "tune_nodes", nodes, "'pool'")
    others = {"'pool'": nodes} if tune is None else {"'pool'": nodes, "'tune_nodes'": tune}
    inputs = with_known(inputs, known_nodes, known, others)
    out = evaluate_inputs(
        methods, inputs, known, nodes, budget, n_splits, seed, tune=tune, n_tune=n_tune,
        levels=levels,
    )  # fmt: skip
    return out if isinstance(method, Mapping) else out[""]


def evaluate_inputs(
    methods: Mapping[str, Estimator],
    inputs: Inputs,
    labels: np.ndarray,
    pool: np.ndarray,
    budget: int,
    n_splits: int,
    seed: int,
    *,
    tune: np.ndarray | None = None,
    n_tune: int | None = None,
    levels: list[Fraction] | None = None,
) -> dict[str, dict[str, np.ndarray]]:
    """`evaluate_splits` after all checks; `levels` None means each method's own."""
    out = {}
    for name, one in methods.items():
        rows = [
            _at_level(one, inputs, labels, pool, budget, n_splits, seed, tune, n_tune, alpha)
            for alpha in levels or [check_alpha(one.alpha)]
        ]
        out[name] = rows[0] if levels is None else {
            key: np.stack([row[key] for row in rows]) for key in rows[0]
        }  # fmt: skip
    return out


def _at_level(
    method: Estimator,
    inputs: Inputs,
    labels: np.ndarray,
    pool: np.ndarray,
    budget: int,
    n_splits: int,
    seed: int,
    tune: np.ndarray | None,
    n_tune: int | None,
    alpha: Fraction,
) -> dict[str, np.ndarray]:
    if tune is None:
        share = tuning_share(budget, alpha) if n_tune is None else n_tune
        share *= method.needs_tuning
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
    from snaps.kernels.splitting import count_splits

    rank = checked_rank(splits.shape[1], alpha, stacklevel=4)
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
    from snaps.kernels.splitting import count_splits_by_class

    ranks = np.array([conformal_rank(c, alpha) for c in range(splits.shape[1] + 1)])
    thresholds, counts = count_splits_by_class(scores, labels, splits, ranks)
    poor = np.flatnonzero(np.isinf(thresholds).any(axis=0))
    if poor.size:
        warnings.warn(
            f"{len(poor)} of {scores.shape[1]} classes have too few calibration nodes in some "
            f"splits for alpha={float(alpha):g} (at least {fewest_nodes(alpha)} each) and join "
            f"every set there: class {', '.join(map(str, poor[:5]))}{', ...' * (len(poor) > 5)}",
            SnapsWarning,
            stacklevel=4,
        )
    return thresholds, counts
