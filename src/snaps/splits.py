"""Many random calibration/test splits of one table of scores at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from snaps._checks import (
    Rates,
    calm,
    check_alpha,
    check_integer,
    check_level,
    check_memory,
    check_seed,
    shown,
    warn_confidence,
)
from snaps._checks.classes import class_code
from snaps._checks.named import class_order
from snaps._runtime.randomness import SPLIT_STREAM, TUNE_STREAM, hashes, key_states, smallest
from snaps.conformal.calibration import Calibration, Promise, warn_few
from snaps.conformal.chances import draw_uneven, effective_labels
from snaps.conformal.rank import exact_rank, fewest_nodes, tuning_share
from snaps.conformal.selection import list_shares
from snaps.errors import SnapsError, warn
from snaps.graph import Graph
from snaps.predictor.chances import check_chances, check_promise, uneven
from snaps.predictor.estimator import Estimator, method_of
from snaps.predictor.predictor import Method, level_for, most_demanding
from snaps.predictor.roles import Roles, smoothing_draws
from snaps.predictor.selection import label_evidence
from snaps.scoring.evidence import Evidence, Labelled
from snaps.scoring.local import Inputs
from snaps.scoring.parts import FittedScorer


def draw_splits(seed: int, keys: np.ndarray, n_calib: int, n_splits: int) -> np.ndarray:
    """Calibration positions (n_splits, n_calib) within `keys`, each row a random subset.

    A split takes the nodes with the smallest hashes, so it depends on ids and not on order.
    """
    from snaps._kernels import splitting

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
    alphas: Sequence[Any] | None = None,
    logits: bool = False,
    classes: Any = None,
    groups: Any = None,
    group_floor: float | None = None,
    select: Any = None,
    fdr: float | None = None,
    accept: float | None = None,
    chances: Any = None,
    smoothed: bool = False,
) -> dict[str, Any]:
    """Evaluate a method on many random calibration/test splits of a pool of labelled nodes.

    The scores are computed and sorted once; a split then costs little more than sorting its
    calibration scores.

    Parameters
    ----------
    method : SNAPS, Pooled, DAPS or SplitConformal, or a mapping of names to them
        Several methods share what they have in common, such as a table of scores.
    graph, probs, labels, similarity, logits, classes, groups, group_floor : see `SNAPS.calibrate`
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
        Labels of the budget to tune on; by default as many as `calibrate` takes for it.
    known_nodes : array of positions, or mask (n,), optional
        Labelled nodes outside the pool, as evidence for the methods that use such (`Pooled`).
    alphas : sequence of float, or of mappings from class to float; optional
        Levels to evaluate, each tuned by itself; by default the method's own.
    select : int or str, optional
        A class, to evaluate ``cp.select(select, fdr)`` as well.
    fdr : float, optional
        With `select`: the false discovery rate, 0.1 by default.
    accept : float, optional
        An error rate, to evaluate ``cp.accept(accept)`` as well; not with `select`.
    chances : array (n,), Series, mapping from id, or "edges"; optional
        Calibration nodes, and tuning nodes of the budget, are drawn with these chances, each node
        by itself, given that there are `n_calib` of them; see `SNAPS.calibrate`.
    smoothed : bool, default False
        Evaluate ``cp.predict_set(smoothed=True)``, whose coverage is exactly 1 - alpha on average
        for any number of calibration nodes, whatever ties (with floors at least that). Not with
        `confidence`.

    Returns
    -------
    dict of arrays
        coverage, size, size_nonempty, singleton_hit, empty, threshold, n_calib, n_test: an entry a
        split, or (len(alphas), n_splits) when `alphas` are given. `n_calib` counts the calibration
        nodes after tuning took its part. `threshold` has one more axis with thresholds per class or
        group. class_coverage has one more axis, a class each; it is nan for a class that no test
        node has, and so has group_coverage where `groups` are given. With `select` or `accept` also
        selected, the share of the test nodes that are selected, and false_share, the share of those
        that is wrong (0 if none is selected). With unequal chances n_effective, the effective
        number of calibration nodes. With these, and with `smoothed`, no threshold, as it differs
        between nodes.
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
    checked = {}
    for name, estimator in methods.items() or [("", method)]:
        if not isinstance(estimator, Estimator):
            raise SnapsError(
                f"'method' must be an estimator such as snaps.SNAPS(), got {shown(estimator)}"
            )
        checked[name] = method_of(estimator).with_group_floor(group_floor, groups)
        smoothed = checked[name].check_smoothed(smoothed)
        if chances is not None:
            check_promise(checked[name].promise)
    if chances is not None and (select is not None or accept is not None):
        name = "select" if accept is None else "accept"
        raise SnapsError(
            f"'{name}' must be left out with chances, got {shown(select or accept)}: its lists "
            "need calibration nodes that were drawn evenly"
        )
    by_class = all(each.class_conditional for each in checked.values())
    levels = None if alphas is None else _read_levels(alphas, by_class)
    probs, classes = class_order(probs, labels, classes)
    for level in levels or [each.level for each in checked.values()]:
        warn_confidence(level.smallest if isinstance(level, Rates) else level)
    inputs = most_demanding(checked.values()).read(graph, probs, similarity, logits, classes)
    roles = Roles.read(
        inputs.graph, inputs.num_classes, labels, pool, tune_nodes=tune_nodes,
        known_nodes=known_nodes, classes=classes, groups=groups, name="pool",
        chances=chances,
    )  # fmt: skip
    if roles.odds is not None:
        check_chances(roles.odds, inputs.graph, inputs.positions(roles.calib.keys), "pool")
    listing = _read_listing(select, fdr, accept, roles.classes)
    if len(roles.calib) == 1:
        raise SnapsError("'pool' must hold at least two nodes, got 1")
    budget = check_integer(n_calib, "n_calib", low=1, high=len(roles.calib) - 1)
    if n_tune is not None:
        n_tune = check_integer(n_tune, "n_tune", low=0, high=budget - 1)
    plan = Plan(budget, check_integer(n_splits, "n_splits", low=1), check_seed(seed), n_tune)
    check_memory(8 * n_splits * (budget + 16), "n_splits", n_splits)
    out = {}
    for name, each in checked.items():
        rows = split_method(each, inputs, roles, plan, levels or [each.level], listing, smoothed)
        out[name] = rows[0] if levels is None else {
            key: np.stack([row[key] for row in rows]) for key in rows[0]
        }  # fmt: skip
    return out if isinstance(method, Mapping) else out[""]


def _read_levels(alphas: Any, by_class: bool) -> list[Fraction | Rates]:
    try:
        given = list(alphas)
    except Exception:  # whatever iterating raises
        given = []
    if not given:
        raise SnapsError(f"'alphas' must be a list of at least one level, got {shown(alphas)}")
    return [
        check_level(each, by_class) if isinstance(each, Mapping) else check_alpha(each, "alphas")
        for each in given
    ]


@dataclass(frozen=True)
class Listing:
    """A list to make in each split: of nodes with a label, or with the right one if it is None."""

    label: int | None
    rate: Fraction


def _read_listing(select: Any, fdr: Any, accept: Any, classes: np.ndarray) -> Listing | None:
    if select is None and fdr is not None:
        raise SnapsError(f"'fdr' must be given with 'select', got {shown(fdr)} alone")
    if select is not None and accept is not None:
        raise SnapsError("'accept' must not be given with 'select', got both")
    if accept is not None:
        return Listing(None, check_alpha(accept, "accept"))
    if select is None:
        return None
    rate = check_alpha(0.1 if fdr is None else fdr, "fdr")
    return Listing(class_code(select, classes, "select"), rate)


@dataclass(frozen=True)
class Plan:
    """How many labels to spend in a split, how many splits, their seed, and the tuning part."""

    budget: int
    n_splits: int
    seed: int
    n_tune: int | None = None

    def share(self, alpha: Fraction) -> int:
        """How many labels of the budget tune."""
        return tuning_share(self.budget, alpha) if self.n_tune is None else self.n_tune


def split_method(
    method: Method,
    inputs: Inputs,
    roles: Roles,
    plan: Plan,
    levels: Sequence[Fraction | Rates],
    listing: Listing | None = None,
    smoothed: bool = False,
) -> list[dict[str, np.ndarray]]:
    """What each level gives; `roles.calib` is the pool, and tuning nodes come first from `roles`.

    Levels that tune on the same nodes are fitted together.
    """
    tuned = [replace(method, level=level).alpha for level in levels]
    out = list[dict[str, np.ndarray]]()
    fitted_levels = {
        alpha: (fitted, pool, budget)
        for fitted, pool, budget, alpha in fit_levels(method, inputs, roles, plan, tuned)
    }
    for alpha, level in zip(tuned, levels, strict=True):
        fitted, pool, budget = fitted_levels[alpha]
        positions = inputs.positions(pool.keys)
        scores = inputs.score(fitted, positions)
        odds = _odds(inputs, roles, pool)
        splits = (
            draw_splits(plan.seed, pool.keys, budget, plan.n_splits)
            if odds is None
            else draw_uneven(plan.seed, pool.keys, odds, budget, plan.n_splits)
        )
        codes = roles.groups.codes[positions] if roles.groups.given else None
        if (
            codes is None
            and odds is None
            and not smoothed
            and method.promise == Promise()
            and isinstance(level, Fraction)
        ):
            out.append(_results(scores, pool.labels, splits, level, method.class_conditional))
            if method.class_conditional:
                _warn_few(out[-1]["threshold"], roles.classes, alpha)
        else:
            keys = pool.keys if smoothed else None
            out.append(
                _promised_results(
                    method, level, roles, scores, pool.labels, codes, splits, odds, keys
                )
            )
        if listing is not None:
            evidence, guess = label_evidence(inputs, fitted, positions, listing.label)
            shares = list_shares(evidence, guess != pool.labels, splits, listing.rate)
            out[-1] |= dict(zip(("selected", "false_share"), shares, strict=True))
    return out


def _odds(inputs: Inputs, roles: Roles, pool: Labelled) -> np.ndarray | None:
    """The odds against being drawn of the nodes of a pool, where they differ."""
    positions = inputs.positions(pool.keys)
    if roles.odds is None or not uneven(roles.odds[positions], np.empty(0, np.int64)):
        return None
    return roles.odds[positions]


def fit_levels(
    method: Method, inputs: Inputs, roles: Roles, plan: Plan, alphas: Sequence[Fraction]
) -> Iterator[tuple[FittedScorer, Labelled, int, Fraction]]:
    """For each level: a fitted scorer, what is left of the pool, and of the budget."""
    scorer = method.scorer
    method.warn_missing(inputs.has)
    paid = scorer.needs_tuning and not len(roles.tuning)
    shares = {alpha: plan.share(alpha) if paid else 0 for alpha in alphas}
    for share in dict.fromkeys(shares.values()):
        same = [alpha for alpha in shares if shares[alpha] == share]
        tuning, pool = roles.tuning, roles.calib
        if share:
            odds = _odds(inputs, roles, pool)
            tuning, pool = take_tuning(pool, share, plan.seed, plan.budget, odds)
        for alpha, fitted in zip(same, scorer.fit(inputs, tuning, roles.known, same), strict=True):
            yield fitted, pool, plan.budget - share, alpha


def take_tuning(
    pool: Labelled, share: int, seed: int, budget: int = 0, odds: np.ndarray | None = None
) -> tuple[Evidence, Labelled]:
    """Take tuning nodes from the pool, once: calibration and test nodes are drawn from the rest.

    With unequal odds, from as many nodes as a budget labels, drawn with them.
    """
    if odds is None:
        chosen = smallest(seed, pool.keys, TUNE_STREAM, share)
    else:
        (drawn,) = draw_uneven(seed, pool.keys, odds, budget, 1, TUNE_STREAM)
        chosen = drawn[smallest(seed, pool.keys[drawn], TUNE_STREAM, share)]
    rest = np.delete(np.arange(len(pool)), chosen)
    return Evidence.of(pool.subset(chosen), drawn=True), pool.subset(rest)


@calm
def _results(
    scores: np.ndarray, labels: np.ndarray, splits: np.ndarray, alpha: Fraction, by_class: bool
) -> dict[str, np.ndarray]:
    """Coverage, sizes and thresholds of many splits of a pool with these scores and labels."""
    from snaps._kernels.splitting import count_splits_by_class

    n_splits, n_calib = splits.shape
    scores = np.ascontiguousarray(scores)
    if by_class:
        ranks = np.array([exact_rank(n, alpha) for n in range(n_calib + 1)])
        thresholds, counts = count_splits_by_class(scores, labels, splits, ranks)
    else:
        thresholds, counts = _count(scores, labels, splits, alpha)
    n_test = len(scores) - n_calib
    covered, total, filled, hit = counts.T
    true = scores[np.arange(len(scores)), labels]
    limits = thresholds.reshape(n_splits, -1) + np.zeros(scores.shape[1])
    return {
        "coverage": covered / n_test,
        "size": total / n_test,
        "size_nonempty": total / filled,
        "singleton_hit": hit / n_test,
        "empty": 1 - filled / n_test,
        "threshold": thresholds,
        "n_calib": np.full(n_splits, n_calib),
        "n_test": np.full(n_splits, n_test),
        "class_coverage": _class_coverage(true, labels, splits, limits),
    }


def _class_coverage(
    true: np.ndarray, labels: np.ndarray, splits: np.ndarray, thresholds: np.ndarray
) -> np.ndarray:
    """The coverage (n_splits, K) of test nodes by class; nan where there are none.

    From counts over the pool less those over the calibration nodes. `thresholds` has a column per
    class.
    """
    n_splits, num_classes = thresholds.shape
    order = np.lexsort((true, labels))
    sizes = np.bincount(labels, minlength=num_classes)
    within = [
        np.searchsorted(own, thresholds[:, y], side="right")
        for y, own in enumerate(np.split(true[order], np.cumsum(sizes)[:-1]))
    ]
    classes = labels[splits]
    cells = classes + num_classes * np.arange(n_splits)[:, None]
    hits = true[splits] <= np.take_along_axis(thresholds, classes, axis=1)

    def counted(weights: np.ndarray | None = None) -> np.ndarray:
        flat = None if weights is None else weights.ravel()
        counts = np.bincount(cells.ravel(), flat, minlength=n_splits * num_classes)
        return counts.reshape(n_splits, num_classes)

    with np.errstate(invalid="ignore"):
        return (np.stack(within, axis=1) - counted(hits)) / (sizes - counted())


@calm
def _promised_results(
    method: Method,
    level: Fraction | Rates,
    roles: Roles,
    scores: np.ndarray,
    labels: np.ndarray,
    codes: np.ndarray | None,
    splits: np.ndarray,
    odds: np.ndarray | None = None,
    pool_keys: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """The same where there is more than one threshold for an average: one calibration per split.

    With the keys of the nodes, sets are smoothed.
    """
    levels, num_classes = level_for(level, roles.classes), scores.shape[1]
    true = scores[np.arange(len(scores)), labels]
    num_groups = len(roles.groups)
    groups = np.zeros(len(scores), np.int64) if codes is None else codes
    rows = list[dict[str, Any]]()
    for calib in splits:
        calibration = Calibration(
            true[calib], labels[calib], num_classes, 0 if codes is None else codes[calib],
            num_groups, method.class_conditional, method.promise,
            odds=None if odds is None else odds[calib],
        )  # fmt: skip
        test = np.delete(np.arange(len(scores)), calib)
        counts = None
        if method.promise.confidence is not None:
            counts = np.bincount(groups[test], minlength=num_groups)
        if not rows:  # one warning for all
            calibration.warn_few(levels, roles.classes, roles.groups.names, counts)
        own, draws = None if odds is None else odds[test], None
        if pool_keys is not None:
            draws = smoothing_draws(method.seed, pool_keys[calib], pool_keys[test], num_classes)
        inside = calibration.contains(scores[test], levels, groups[test], counts, own, draws)
        sizes = inside.sum(axis=1)
        hits = inside[np.arange(len(test)), labels[test]]
        row = {
            "coverage": hits.mean(),
            "size": sizes.mean(),
            "size_nonempty": sizes.sum() / (sizes > 0).sum(),
            "singleton_hit": (hits & (sizes == 1)).mean(),
            "empty": (sizes == 0).mean(),
        }
        if odds is not None:
            row["n_effective"] = effective_labels(odds[calib])
        elif draws is None:
            row["threshold"] = calibration.threshold(levels, counts)
        row |= {"n_calib": len(calib), "n_test": len(test)}
        row["class_coverage"] = _shares(hits, labels[test], num_classes)
        if codes is not None:
            row["group_coverage"] = _shares(hits, codes[test], num_groups)
        rows.append(row)
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}


def _shares(hits: np.ndarray, codes: np.ndarray, count: int) -> np.ndarray:
    """The share of hits by code; nan where there are none."""
    with np.errstate(invalid="ignore"):
        return np.bincount(codes, hits, count) / np.bincount(codes, minlength=count)


def _count(
    scores: np.ndarray, labels: np.ndarray, splits: np.ndarray, alpha: Fraction
) -> tuple[np.ndarray, np.ndarray]:
    from snaps._kernels.splitting import count_splits

    n = splits.shape[1]
    rank = exact_rank(n, alpha)
    warn_few({"": n} if rank > n else {}, 1, "calibration", alpha)
    true = scores[np.arange(len(scores)), labels]
    smallest_two = np.partition(scores, 1, axis=1)[:, :2]
    first, second = smallest_two[:, 0].copy(), smallest_two[:, 1].copy()
    single = true == first
    ordered = tuple(
        np.sort(values)
        for values in (true, scores.reshape(-1), first, first[single], second[single])
    )
    return count_splits(scores, true, first, second, single, splits, rank, ordered)


def _warn_few(thresholds: np.ndarray, classes: np.ndarray, alpha: Fraction) -> None:
    """Name the classes that have too few nodes for a finite threshold in some splits."""
    poor = classes[np.isinf(thresholds).any(axis=0)]
    if poor.size:
        warn(
            f"{len(poor)} of {len(classes)} classes have too few calibration nodes in some "
            f"splits for alpha={float(alpha):g} (at least {fewest_nodes(alpha)} each) and join "
            f"every set there: class {', '.join(map(str, poor[:5]))}{', ...' * (len(poor) > 5)}"
        )
