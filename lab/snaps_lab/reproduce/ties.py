"""Ties at the k-th similar node: which of equally similar nodes is a neighbour, does it matter?

On binary features many cosines are equal. The library takes the nodes with the smallest ids; here
the same sets are made with ties broken by a hash of the id, and with all tied nodes as neighbours
that share the places left.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from snaps._checks import check_alpha
from snaps._runtime.randomness import CELL_STREAM, hashes
from snaps.conformal.calibration import Calibration
from snaps.estimators import methods
from snaps.predictor.estimator import Estimator, method_of
from snaps.predictor.roles import Roles
from snaps.scoring.local import Inputs
from snaps.splits import Plan, draw_splits, fit_levels
from snaps_lab.reproduce import common, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.pooled import seen, spending_plan
from snaps_lab.reproduce.runner import Setting

MODEL = "gcn"
GRAPHS = ("cora_ml", "citeseer", "amazon_photo", "coauthor_cs")
ALPHAS = (0.05, 0.1)
METHODS = ("SNAPS", "SNAPS, thirds", "Pooled")
BASE, HASHED, SHARED = "smaller id", "hash", "shared"
HASHES = 3  # seeds of the hash, whose results are averaged
BLOCK = 500  # rows whose cosines with all nodes are in memory at once


class Tied(NamedTuple):
    """Every node's most similar nodes, with all that tie at the k-th place."""

    graph: sp.csr_array  # cosines
    at_edge: np.ndarray  # entries that tie at the k-th place, where not all of them have room
    room: np.ndarray  # places left for those of each row


def find_ties(features: Any, k: int) -> Tied:
    """Compare all pairs, a block of rows at a time.

    Examples
    --------
    >>> found = find_ties([[1, 0], [1, 1], [1, 1], [0, 1]], 1)
    >>> found.graph.toarray().round(2)
    array([[0.  , 0.71, 0.71, 0.  ],
           [0.  , 0.  , 1.  , 0.  ],
           [0.  , 1.  , 0.  , 0.  ],
           [0.  , 0.71, 0.71, 0.  ]])
    >>> shared(found).toarray().round(2)[0]
    array([0.  , 0.35, 0.35, 0.  ])
    """
    table = sp.csr_array(features).astype(np.float64)
    n, squares = table.shape[0], np.asarray(table.multiply(table).sum(axis=1)).ravel()
    lengths = np.sqrt(np.where(squares > 0, squares, 1))
    parts, edges, rooms = [], [], []
    for start in range(0, n, BLOCK):
        rows = np.arange(start, min(start + BLOCK, n))
        products = (table[rows] @ table.T).toarray()
        products[np.arange(len(rows)), rows] = 0
        # Squared, of integers: exact up to one rounding, so that what ties is equal.
        order = np.where(products > 0, products, 0) ** 2 / np.where(squares > 0, squares, 1)
        kth = -np.partition(-order, k - 1, axis=1)[:, k - 1 : k]
        above, tied = order > kth, (order == kth) & (order > 0)
        room = k - above.sum(axis=1)
        tied_here = tied & (tied.sum(axis=1) > room)[:, None]
        cosines = products / lengths[rows, None] / lengths
        part = sp.csr_array(np.where(above | tied, cosines, 0))
        part.sort_indices()
        parts.append(part)
        edges.append(tied_here[above | tied])
        rooms.append(room)
    graph = sp.csr_array(sp.vstack(parts, format="csr"))
    return Tied(graph, np.concatenate(edges), np.concatenate(rooms))


def broken(ties: Tied, order: np.ndarray) -> sp.csr_array:
    """The k most similar nodes, of tied ones those that come first in an order (n,)."""
    graph, rows = ties.graph, _rows_of(ties.graph)
    edge = np.flatnonzero(ties.at_edge)
    edge = edge[np.lexsort((order[graph.indices[edge]], rows[edge]))]
    counts = np.bincount(rows[edge], minlength=graph.shape[0])
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    late = edge[np.arange(len(edge)) - starts >= ties.room[rows[edge]]]
    kept = np.ones(graph.nnz, bool)
    kept[late] = False
    return _entries(graph, kept, graph.data)


def shared(ties: Tied) -> sp.csr_array:
    """All tied nodes are neighbours, with equal shares of the places left for them."""
    rows = _rows_of(ties.graph)
    counts = np.bincount(rows[ties.at_edge], minlength=ties.graph.shape[0])
    share = np.where(ties.at_edge, (ties.room / np.maximum(counts, 1))[rows], 1.0)
    return _entries(ties.graph, np.ones(ties.graph.nnz, bool), ties.graph.data * share)


def _rows_of(graph: sp.csr_array) -> np.ndarray:
    return np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))


def _entries(graph: sp.csr_array, kept: np.ndarray, data: np.ndarray) -> sp.csr_array:
    pairs = _rows_of(graph)[kept], graph.indices[kept]
    return sp.csr_array((data[kept], pairs), shape=graph.shape)


@lru_cache(maxsize=1)
def _ties(dataset: str, setting: Setting) -> Tied:
    return find_ties(runner.dataset(dataset, setting).graph.features, runner.K)


@lru_cache(maxsize=1)
def _graphs(dataset: str, setting: Setting) -> dict[str, sp.csr_array]:
    """The similarity graph by each rule; a hash has several seeds."""
    graph, ties = runner.dataset(dataset, setting).graph, _ties(dataset, setting)
    out = {BASE: broken(ties, graph.keys)}
    for seed in range(HASHES):
        out[f"{HASHED} {seed}"] = broken(ties, hashes(seed, graph.keys, CELL_STREAM))
    return out | {SHARED: shared(ties)}


def tied_share(dataset: str, setting: Setting) -> float:
    """The share of the nodes where not all that tie at the k-th place have room."""

    def make() -> float:
        ties = _ties(dataset, setting)
        return len(np.unique(_rows_of(ties.graph)[ties.at_edge])) / ties.graph.shape[0]

    depends = (runner.data_mark(dataset, setting), runner.K, "ties")
    share: float = runner.kept(f"{dataset}-tied", depends, setting, make)
    return share


def _cell(dataset: str, draw: int, setting: Setting) -> dict[str, Any]:
    """Sizes and coverage of one trained model, by method, level and rule."""

    def make() -> dict[str, Any]:
        logits = runner.trained(dataset, MODEL, draw, setting).logits
        views = {
            rule: seen(dataset, draw, logits, setting, similar)
            for rule, similar in _graphs(dataset, setting).items()
        }
        plan = spending_plan(dataset, draw, len(views[BASE][1].calib), setting)
        tried = methods(METHODS, ALPHAS[0], seed=plan.seed)
        return {name: _by_level(method, views, plan) for name, method in tried.items()}

    depends = (runner.mark(dataset, setting, MODEL, draw), "ties", HASHES)
    name = f"{dataset}-{MODEL}-ties-{draw}"
    return runner.kept(name, (*depends, *runner.settled(setting)), setting, make)


def _by_level(
    method: Estimator, views: dict[str, tuple[Inputs, Roles]], plan: Plan
) -> dict[str, dict[str, Any]]:
    """By level and rule, how large sets are and how many are others than by the first rule."""
    out: dict[str, dict[str, Any]] = {}
    first: dict[str, list[np.ndarray]] = {}
    levels = [check_alpha(alpha) for alpha in ALPHAS]
    for rule, (inputs, roles) in views.items():
        for fitted, pool, spend, level in fit_levels(
            method_of(method), inputs, roles, plan, levels
        ):
            name = f"{float(level):g}"
            scores = inputs.score(fitted, inputs.positions(pool.keys))
            splits = draw_splits(plan.seed, pool.keys, spend, plan.n_splits)
            trials = []
            for split, (mask, hits) in enumerate(_sets(scores, pool.labels, splits, float(level))):
                if rule == BASE:
                    first.setdefault(name, []).append(np.packbits(mask, axis=1))
                other = (np.packbits(mask, axis=1) != first[name][split]).any(axis=1)
                size = mask.sum(axis=1)
                trials.append([hits.mean(), size.mean(), (size == 0).mean(), other.mean()])
            means = np.mean(trials, axis=0).tolist()
            measured = dict(zip(("coverage", "size", "empty", "changed"), means, strict=True))
            measured |= {"n_calib": spend, "n_test": len(pool) - spend}
            out.setdefault(name, {})[rule] = measured
    return out


def _sets(
    scores: np.ndarray, labels: np.ndarray, splits: np.ndarray, alpha: float
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The sets of the test nodes of each split, and which hold the true label."""
    for calib in splits:
        test = np.delete(np.arange(len(scores)), calib)
        own = labels[calib]
        calibration = Calibration(scores[calib, own], own, scores.shape[1])
        mask = calibration.contains(scores[test], alpha)
        yield mask, mask[np.arange(len(test)), labels[test]]


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Compute the cells that are not on disk, then compare the rules."""
    graphs, skipped = common.present(datasets, GRAPHS, setting)
    for graph in graphs:  # once, and not by several processes
        runner.context(graph, setting)
    rows = []
    for graph, cells in common.in_draws(name, _cell, graphs, setting, track).items():
        for method in METHODS:
            for alpha in ALPHAS:
                mine = [_averaged(cell[method][f"{alpha:g}"]) for cell in cells]
                for row in _rows(mine, alpha, setting):
                    rows.append({"dataset": graph, "method": method, "alpha": alpha, **row})
    return {
        "table": name,
        "title": f"Ties at the k-th similar node, {MODEL.upper()}",
        "settings": common.settings(setting),
        "rows": rows,
        "tied": {graph: tied_share(graph, setting) for graph in graphs},
        "notes": common.notes(graphs, setting),
        "skipped": skipped,
    }


def _averaged(rules: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of one draw: the hash as the mean over its seeds."""
    seeds = [rules[f"{HASHED} {seed}"] for seed in range(HASHES)]
    hashed = {key: float(np.mean([each[key] for each in seeds])) for key in seeds[0]}
    hashed |= {key: seeds[0][key] for key in ("n_calib", "n_test")}
    return {BASE: rules[BASE], HASHED: hashed, SHARED: rules[SHARED]}


def _rows(
    cells: list[dict[str, dict[str, Any]]], alpha: float, setting: Setting
) -> list[dict[str, Any]]:
    """A row per rule, compared with the first in the same draws."""
    rows = []
    for rule in (BASE, HASHED, SHARED):
        mine = [cell[rule] for cell in cells]
        sizes, base = (np.array([cell[each]["size"] for cell in cells]) for each in (rule, BASE))
        coverage = float(np.mean([each["coverage"] for each in mine]))
        n, m = mine[0]["n_calib"], mine[0]["n_test"]
        rows.append(
            {
                "rule": rule,
                "size": float(sizes.mean()),
                "size_se": common.standard_error(sizes),
                "to_base": float((sizes / base).mean() - 1),
                "to_base_se": common.standard_error(sizes / base),
                "changed": float(np.mean([each["changed"] for each in mine])),
                "coverage": coverage,
                **common.against_law(coverage, n, m, alpha, setting.splits * len(cells)),
            }
        )
    return rows


def layout(result: Result) -> tuple[list[str], Cells]:
    """A row a graph, method, level and rule."""
    header = ["dataset", "method", "alpha", "ties", "coverage", "size", "to smaller id", "changed"]
    rows = []
    for row in result["rows"]:
        change = "" if row["rule"] == BASE else _percent(row["to_base"], row["to_base_se"])
        changed = "" if row["rule"] == BASE else f"{row['changed']:.1%}"
        start = [common.display(row["dataset"]), row["method"], f"{row['alpha']:g}", row["rule"]]
        size = common.with_error(row["size"], row["size_se"])
        rows.append([*start, common.with_mark(row), size, change, changed])
    return header, rows


def _percent(value: float, error: float | None) -> str:
    return f"{value:+.2%}" + ("" if error is None else f" ± {error:.2%}")


def remarks(result: Result) -> list[str]:
    """What ties, what the rules are, and whether one of them has smaller sets."""
    tied = ", ".join(f"{common.display(graph)} {x:.0%}" for graph, x in result["tied"].items())
    return [
        f"Nodes where not all that tie at the {runner.K}th place have room: {tied}",
        f"'{BASE}' is the library's rule; '{HASHED}' takes the smallest hashes of ids (mean of "
        f"{HASHES} seeds); '{SHARED}' takes all tied nodes, which share the places left",
        f"'to {BASE}': the mean over draws of the ratio of sizes, with its standard error; "
        "'changed': sets with other labels",
        *(_compared(result, rule) for rule in (HASHED, SHARED)),
        common.consistent(result["rows"]),
    ]


def _compared(result: Result, rule: str) -> str:
    """The change of size by one rule over all cells, and where it is beyond two errors."""
    mine = [row for row in result["rows"] if row["rule"] == rule]
    means = [
        f"{method} {np.mean([row['to_base'] for row in mine if row['method'] == method]):+.2%}"
        for method in METHODS
    ]
    apart = [row for row in mine if abs(row["to_base"]) > 2 * (row["to_base_se"] or np.inf)]
    smaller = sum(row["to_base"] < 0 for row in apart)
    return (
        f"'{rule}', mean change of the size over graphs and levels: {', '.join(means)}; beyond two "
        f"standard errors in {len(apart)} of {len(mine)} cells, smaller in {smaller} of these"
    )
