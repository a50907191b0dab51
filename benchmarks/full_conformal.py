"""Calibration labels as evidence, by full conformal prediction: what it gains and what it costs.

`Pooled` scores every node from the labels of known and tuning nodes. Here those of calibration
nodes count as well: each calibration node is scored from all labels but its own and from the test
node's supposed one, the test node from all of them, so that a supposed label that is true leaves
nothing that distinguishes the n + 1 nodes. Weights and biases stay those of `Pooled`.

    python -m benchmarks.full_conformal --data-dir DATA --runs RUNS

RUNS is the folder in which `snaps reproduce` keeps trained models; missing ones are trained.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import scipy.sparse as sp

import snaps
from benchmarks.__main__ import Rows, show
from snaps._checks import check_alpha
from snaps.predictor.estimator import method_of
from snaps.scoring.local import Inputs
from snaps.scoring.parts import Context, Links, Similar, Summary
from snaps.scoring.pooling import FLOOR, GUESS_SCALE, SMOOTHING, FittedPooling
from snaps.scoring.regression import RIDGES
from snaps.splits import Plan, draw_splits, fit_levels
from snaps_lab.reproduce import common, pooled, runner
from snaps_lab.reproduce.protocol import budget
from snaps_lab.reproduce.store import Store

ALPHA = 0.05
GRAPHS = tuple(name for name in common.EIGHT if name != "cora_full")
MEANS = ("linked", "two_hop", "similar", "context")
FLOWS = ("propagated", "propagated_context")
STEPS = 12  # of the propagation of calibration labels

Array = np.ndarray


@dataclass(frozen=True)
class Ways:
    """How labels reach nodes: rows of these matrices sum to one, and hold no labels."""

    linked: sp.csr_array
    similar: sp.csr_array
    context: sp.csr_array
    design: Array  # features in context, the regression's rows

    @classmethod
    def of(cls, inputs: Inputs, k: int) -> Ways:
        linked, similar, context = (
            _normalised(inputs.get(over)) for over in (Links(), Similar(k), Context(k))
        )
        table = inputs.get(Summary())
        near = linked @ table
        design = np.hstack([table, near, linked @ near, context @ table])
        return cls(linked, similar, context, design)


def _normalised(matrix: sp.csr_array) -> sp.csr_array:
    """Rows that sum to one; a node without neighbours is its own."""
    sums = matrix.sum(axis=1)
    alone = sums <= 0
    scaled = sp.diags_array(1 / np.where(alone, 1, sums)) @ matrix
    return sp.csr_array(scaled + sp.diags_array(alone.astype(float)))


def _flow(matrix: sp.csr_array, nodes: Array) -> Array:
    """How much of the mass of each of these nodes reaches every node (n, len(nodes))."""
    start = np.zeros((matrix.shape[0], len(nodes)), np.float32)
    start[nodes, np.arange(len(nodes))] = 1
    matrix, out = matrix.astype(np.float32), start
    for _ in range(STEPS):
        out = np.float32(0.9) * (matrix @ out)
        out[nodes, np.arange(len(nodes))] += np.float32(0.1)
    return out


@dataclass(frozen=True)
class Influence:
    """What one label moves in a part: calibration on calibration nodes, on and by test nodes."""

    within: Array  # (n, n), no diagonal: a node's own label is out of its own row
    on_test: Array  # (v, n)
    by_test: Array  # (v, n): what a test node's label moves at a calibration node


def _influences(ways: Ways, calib: Array, test: Array) -> dict[str, Influence]:
    linked = ways.linked
    on: dict[str, Any] = {"two_hop": linked[test] @ linked[:, calib]}
    by: dict[str, Any] = {"two_hop": (linked[calib] @ linked).T}
    for name in ("linked", "similar", "context"):
        matrix = getattr(ways, name)
        on[name], by[name] = matrix[test][:, calib], matrix[calib].T
    for name, matrix in zip(FLOWS, (linked, ways.context), strict=True):
        on[name], by[name] = _flow(matrix, calib)[test], _flow(matrix.T.tocsr(), calib)
    out = {}
    for name in (*MEANS, *FLOWS):
        rows = sp.csr_array(by[name]) if sp.issparse(by[name]) else by[name]
        within = _dense(rows[calib]).T.copy()
        np.fill_diagonal(within, 0)
        out[name] = Influence(within, _dense(on[name]), _dense(rows[test]))
    return out


def _dense(table: Any) -> Array:
    return np.asarray(table.toarray() if sp.issparse(table) else table, np.float64)


@dataclass(frozen=True)
class Regression:
    """The linear model with calibration labels in it."""

    fitted: Array  # (n, K) at calibration nodes, their own labels included
    leverage: Array  # (n,)
    guesses: Array  # (v, K) at test nodes
    between: Array  # (v, n): what a test node's residual moves at a calibration node
    own: Array  # (v,)

    @classmethod
    def fit(
        cls, design: Array, seen: Array, labels: Array, calib: Array, test: Array, ridge: float
    ) -> Regression:
        rows = design[seen]
        inverse = np.linalg.inv(rows.T @ rows + ridge * np.eye(rows.shape[1]))
        coefficients = inverse @ (rows.T @ np.eye(labels.max() + 1)[labels])
        near, far = design[calib], design[test]
        turned = near @ inverse
        return cls(
            near @ coefficients,
            (turned * near).sum(axis=1),
            far @ coefficients,
            far @ turned.T,
            ((far @ inverse) * far).sum(axis=1),
        )


def _choose_ridge(rows: Array, labels: Array) -> float:
    """The ridge with the least leave-one-out error, as the library chooses it."""
    target = np.eye(labels.max() + 1)[labels]
    values, vectors = np.linalg.eigh(rows.T @ rows)
    turned = rows @ vectors
    errors = []
    for ridge in RIDGES:
        shrunk = 1 / (np.maximum(values, 0) + ridge)
        residual = target - turned @ (shrunk[:, None] * (turned.T @ target))
        errors.append(((residual / (1 - turned**2 @ shrunk)[:, None]) ** 2).sum())
    return float(RIDGES[int(np.argmin(errors))])


def count_worse(
    inputs: Inputs,
    ways: Ways,
    fitted: FittedPooling,
    ridge: float,
    calib: Array,
    labels: Array,
    test: Array,
) -> Array:
    """For each test node and label: calibration nodes whose own labels fit no better (v, K).

    A p-value is one more than this, of n + 1.
    """
    places = inputs.positions(fitted.evidence.keys)
    certain = np.eye(inputs.num_classes)[labels]
    moved = certain - inputs.probs[calib]
    influences = _influences(ways, calib, test)
    at_calib, at_test = {}, {}
    for name, part in fitted.parts.items():
        if name == "regression":
            continue
        table = inputs.get(part)
        at_calib[name], at_test[name] = table[calib].copy(), table[test].copy()
        if name in influences:
            change = certain if name in FLOWS else moved
            at_calib[name] += influences[name].within @ change
            at_test[name] += influences[name].on_test @ change
    model = Regression.fit(
        ways.design,
        np.concatenate([places, calib]),
        np.concatenate([fitted.evidence.labels, labels]),
        calib,
        test,
        ridge,
    )
    at_test["regression"] = model.guesses
    probs = fitted.probabilities(at_test)
    fixed = fitted.bias + sum(
        fitted.weights[name] * fitted.shown(name, rows) for name, rows in at_calib.items()
    )
    weigh = fitted.weights
    return _count(
        fixed,
        labels,
        np.stack([at_calib[name] for name in MEANS]),
        np.array([weigh[name] for name in MEANS]),
        np.stack([influences[name].by_test for name in MEANS]),
        np.stack([at_calib[name] + SMOOTHING for name in FLOWS]),
        np.array([weigh[name] for name in FLOWS]),
        np.stack([influences[name].by_test for name in FLOWS]),
        inputs.probs[test],
        *(model.fitted, model.leverage, model.guesses, model.between, model.own),
        GUESS_SCALE * weigh["regression"],
        probs,
    )


@numba.njit(cache=True, parallel=True)
def _count(
    fixed, labels, means, mean_weights, mean_by, flows, flow_weights, flow_by, guesses,
    model, leverage, test_model, between, own, model_weight, probs,
):  # fmt: skip
    """Compare each calibration node's probability of its label with the test node's.

    Of a supposed label only its own column depends on which one it is: what the others share is
    made once a pair of nodes.
    """
    n, num_classes = fixed.shape
    out = np.zeros(probs.shape, np.int64)
    for v in numba.prange(len(probs)):
        logits, powers = np.empty(num_classes), np.empty(num_classes)
        for i in range(n):
            true = labels[i]
            gain = between[v, i] / (1 + own[v])
            stretch = 1 / max(1 - leverage[i] + between[v, i] * gain, 1e-9)
            for y in range(num_classes):
                hit = 1.0 if y == true else 0.0
                residual = hit - model[i, y] + gain * test_model[v, y]
                logits[y] = fixed[i, y] + model_weight * (hit - residual * stretch)
            for p in range(len(mean_weights)):
                share = mean_by[p, v, i]
                if share:
                    for y in range(num_classes):
                        was, now = means[p, i, y], means[p, i, y] - share * guesses[v, y]
                        logits[y] += mean_weights[p] * np.log(max(now, FLOOR) / max(was, FLOOR))
            top = logits.max()
            total = 0.0
            for y in range(num_classes):
                powers[y] = np.exp(logits[y] - top)
                total += powers[y]
            for y in range(num_classes):
                logit = logits[y] + model_weight * gain * stretch
                for p in range(len(mean_weights)):
                    share = mean_by[p, v, i]
                    if share:
                        was = means[p, i, y] - share * guesses[v, y]
                        logit += mean_weights[p] * np.log(max(was + share, FLOOR) / max(was, FLOOR))
                for p in range(len(flow_weights)):
                    logit += flow_weights[p] * np.log(1 + flow_by[p, v, i] / flows[p, i, y])
                power = np.exp(logit - top)
                mine = power if y == true else powers[true]
                if mine <= probs[v, y] * (total - powers[y] + power):
                    out[v, y] += 1
    return out


def _one_graph(name: str, setting: runner.Setting, most: int) -> dict[str, float | str]:
    """Size and coverage of `Pooled` with and without, the mean over draws and splits."""
    found: dict[str, list[float]] = {}

    def note(kind: str, inside: Array, true: Array) -> None:
        found.setdefault(f"{kind} size", []).append(inside.sum(axis=1).mean())
        found.setdefault(f"{kind} coverage", []).append(inside[np.arange(len(true)), true].mean())

    for draw in range(setting.draws):
        inputs, roles = pooled.prepare(name, "gcn", draw, setting)
        method = snaps.Pooled(ALPHA, seed=draw)
        spend = budget(runner.dataset(name, setting), "main", len(roles.calib))
        plan = Plan(spend, setting.splits, draw, spend // 2)
        levels = [check_alpha(ALPHA)]
        ((fitted, pool, n, _),) = fit_levels(method_of(method), inputs, roles, plan, levels)
        ways = Ways.of(inputs, method.k)
        places = inputs.positions(pool.keys)
        evidence = inputs.positions(fitted.evidence.keys)
        ridge = _choose_ridge(ways.design[evidence], fitted.evidence.labels)
        scores = inputs.score(fitted, places)
        rank = int(np.floor(ALPHA * (n + 1)))
        for chosen in draw_splits(plan.seed, pool.keys, n, plan.n_splits):
            rest = np.setdiff1d(np.arange(len(pool)), chosen)
            rest = np.random.default_rng(draw).permutation(rest)[:most]
            true = pool.labels[rest]
            threshold = np.sort(scores[chosen, pool.labels[chosen]])[-rank]
            note("split", scores[rest] <= threshold, true)
            began = time.process_time(), time.perf_counter()
            counts = count_worse(
                inputs, ways, fitted, ridge, places[chosen], pool.labels[chosen], places[rest]
            )
            found.setdefault("CPU s", []).append(time.process_time() - began[0])
            found.setdefault("s", []).append(time.perf_counter() - began[1])
            note("full", counts + 1 > ALPHA * (n + 1), true)
            found.setdefault("nodes", []).append(len(rest))
    row: dict[str, float | str] = {"graph": name}
    row |= {key: f"{np.mean(values):.4f}" for key, values in found.items()}
    ratios = np.array(found["full size"]) - np.array(found["split size"])
    base = float(np.mean(found["split size"]))
    row["full / split"] = f"{np.mean(found['full size']) / base:.4f}"
    row["error"] = f"{ratios.std(ddof=1) / np.sqrt(len(ratios)) / base:.4f}"
    print(row, flush=True)
    return row


def main() -> None:
    """Read the arguments, then one row a graph and the mean."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--datasets", default=",".join(GRAPHS))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--splits", type=int, default=6)
    parser.add_argument("--most", type=int, default=10**9, help="test nodes in a split")
    args = parser.parse_args()
    setting = runner.Setting(Store(args.runs), args.data_dir, draws=args.draws, splits=args.splits)
    rows: Rows = [_one_graph(name, setting, args.most) for name in args.datasets.split(",")]
    show("Full conformal", rows)
    ratios = [float(row["full / split"]) for row in rows]
    print(f"mean of full / split over {len(rows)} graphs: {np.mean(ratios):.4f}")


if __name__ == "__main__":
    main()
