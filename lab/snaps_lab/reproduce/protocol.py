"""The paper's protocol: draws of training nodes, label budgets, and what each suite compares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from snaps.datasets import Dataset
from snaps.estimators import DAPS, SNAPS, all_methods
from snaps.predictor.estimator import Estimator
from snaps.scoring.mixing import SNAPS_GRID, Mixing
from snaps.splits import evaluate_splits
from snaps_lab.reproduce import authors

NODES_A_CLASS = 20
MOST_LABELS = 1000
MOST_AUTHORS_TUNING_NODES = 500
AVERAGED = ("coverage", "size", "size_nonempty", "singleton_hit", "empty")

# Labels spent on the OGBN graphs, half of them on tuning.
_OGBN_BUDGETS = {"ogbn_arxiv": 1000, "ogbn_products": 2000}

Factory = Callable[[float, int], Estimator]


@dataclass(eq=False, repr=False, kw_only=True)
class Ablated(SNAPS):
    """SNAPS with some of its parts, tuned over what is left of the grid."""

    own: bool = True
    similar: bool = True
    linked: bool = True

    def _scorer(self) -> Mixing:
        """The grid, less the pairs that need what is left out."""
        allowed = tuple(
            (lam, mu)
            for lam, mu in SNAPS_GRID
            if (self.own or lam + mu == 1)
            and (self.similar or lam == 0)
            and (self.linked or mu == 0)
        )
        return replace(super()._scorer(), grid=allowed, averaged=False)


def _ablation(own: bool, linked: bool, similar: bool) -> Factory:
    return lambda alpha, seed: Ablated(alpha, own=own, similar=similar, linked=linked, seed=seed)


def _named(name: str) -> Factory:
    return lambda alpha, seed: all_methods(alpha, seed=seed)[name]


SUITES: dict[str, dict[str, Factory]] = {
    "main": {name: _named(name) for name in ("APS", "RAPS", "DAPS", "SNAPS")},
    "raps": {"RAPS": _named("RAPS"), "SNAPS-RAPS": _named("SNAPS on RAPS")},
    "thirds": {
        **{name: _named(name) for name in ("APS", "RAPS", "DAPS")},
        "SNAPS": _named("SNAPS, thirds"),
    },
    "ablation": {
        "own": _ablation(True, False, False),
        "linked": _ablation(False, True, False),
        "similar": _ablation(False, False, True),
        "own+linked": _ablation(True, True, False),
        "own+similar": _ablation(True, False, True),
        "linked+similar": _ablation(False, True, True),
        "own+linked+similar": _ablation(True, True, True),
    },
}


@dataclass(frozen=True)
class Draw:
    """One choice of training and validation nodes; the rest is the pool."""

    train: np.ndarray
    valid: np.ndarray
    pool: np.ndarray


def draw_nodes(dataset: Dataset, seed: int, draw: int) -> Draw:
    """Twenty training and twenty validation nodes a class, or the official split of OGBN."""
    n = len(dataset.labels)
    if {"train", "valid", "test"} <= set(dataset.splits) and dataset.name in _OGBN_BUDGETS:
        return Draw(*(dataset.splits[name] for name in ("train", "valid", "test")))
    order = np.random.default_rng([seed, draw]).permutation(n)
    order = order[dataset.labels[order] >= 0]
    by_class = [order[dataset.labels[order] == y] for y in range(dataset.num_classes)]
    train = np.concatenate([nodes[:NODES_A_CLASS] for nodes in by_class])
    valid = np.concatenate([nodes[NODES_A_CLASS : 2 * NODES_A_CLASS] for nodes in by_class])
    return Draw(train, valid, np.setdiff1d(order, np.concatenate([train, valid])))


def budget(dataset: Dataset, suite: str, pool_size: int) -> int:
    """Labels to spend on tuning and calibration together."""
    if suite == "thirds":
        return min(NODES_A_CLASS * dataset.num_classes, pool_size // 2)
    return min(_OGBN_BUDGETS.get(dataset.name, MOST_LABELS), pool_size // 2)


def evaluate_draw(
    dataset: Dataset,
    logits: np.ndarray,
    nodes: Draw,
    similarity: sp.csr_array,
    *,
    suite: str,
    alpha: float,
    splits: int,
    seed: int,
    as_authors: bool,
) -> dict[str, dict[str, float]]:
    """Means over the splits, for each method of a suite.

    Parameters
    ----------
    as_authors : bool
        Tune on as many nodes as there are training nodes, at most 500, instead of on half of the
        budget, and follow the authors in all that `authors` describes.
    """
    methods = {name: factory(alpha, seed) for name, factory in SUITES[suite].items()}
    return evaluate_methods(
        methods, dataset, logits, nodes, similarity, budget(dataset, suite, len(nodes.pool)),
        splits=splits, seed=seed, as_authors=as_authors,
    )  # fmt: skip


def _plainly_tuned(method: Estimator) -> Estimator:
    """A method whose weights, if they are tuned, are those of the smallest sets."""
    if isinstance(method, SNAPS) and method.weights == "tune":
        return replace(method, weights="minimum")
    if isinstance(method, DAPS) and method.weight == "tune":
        return replace(method, weight="minimum")
    return method


def evaluate_methods(
    methods: Mapping[str, Estimator],
    dataset: Dataset,
    logits: np.ndarray,
    nodes: Draw,
    similarity: sp.csr_array,
    spend: int,
    *,
    splits: int,
    seed: int,
    as_authors: bool,
) -> dict[str, dict[str, float]]:
    """Means over the splits, for each method; `spend` labels are for tuning and calibration.

    Weights are tuned as in the paper: those with the smallest sets.
    """
    plain = {name: _plainly_tuned(method) for name, method in methods.items()}
    if as_authors:
        theirs = authors.as_authors
        plain = {name: theirs(each, dataset.graph, similarity) for name, each in plain.items()}
    results = evaluate_splits(
        plain, dataset.graph, logits, dataset.labels, nodes.pool, spend, splits, seed, similarity,
        n_tune=tuning_part(nodes, spend, as_authors), logits=True,
    )  # fmt: skip
    out = {}
    for name, result in results.items():
        out[name] = {key: float(np.mean(result[key])) for key in AVERAGED}
        out[name] |= {key: int(result[key][0]) for key in ("n_calib", "n_test")}
    return out


def tuning_part(nodes: Draw, spend: int, as_authors: bool) -> int:
    """How many labels are for tuning: half of them, too, where theirs would take them all."""
    theirs = min(len(nodes.train), MOST_AUTHORS_TUNING_NODES)
    return theirs if as_authors and theirs < spend else spend // 2
