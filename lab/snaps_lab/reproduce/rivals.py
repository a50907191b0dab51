"""Strong rivals with the same labels: a classifier trained again on all labels given to `Pooled`.

Training, validation and tuning nodes train it, but for a seventh that decides when to stop; its
sets then come from THR, from SNAPS on THR, or from THR after correct and smooth (Huang et al.,
*Combining label propagation and simple models out-performs graph neural networks*, ICLR 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps.estimators import methods
from snaps.graph import Graph
from snaps.predictor.roles import Roles
from snaps.splits import Plan, take_tuning
from snaps_lab.reproduce import runner
from snaps_lab.reproduce.measure import Cell, measure
from snaps_lab.reproduce.pooled import seen, spending_plan
from snaps_lab.reproduce.protocol import draw_nodes
from snaps_lab.reproduce.runner import Setting

RETRAINED = ("gcn", "appnp")
STOPPING = 0.15  # of the labels decide when training stops
VARIANTS = {"THR": "THR", "SNAPS": "SNAPS on THR, thirds", "C&S": "THR"}
"""Ways to sets, and the library's names for them. No label is left to tune the weights of SNAPS."""

STEPS = 50
PULLS = (0.0, 0.5, 0.8, 0.95)  # of correct and smooth: how far errors and labels spread


def names() -> list[str]:
    """What the rivals are called."""
    return [f"retrained {model.upper()}, {variant}" for model in RETRAINED for variant in VARIANTS]


def _cell_name(dataset: str, model: str, draw: int, setting: Setting) -> str:
    return f"{runner.mark(dataset, setting, model, draw)}-all-labels"


def _labelled(dataset: str, draw: int, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Every node whose label `Pooled` gets: training nodes, and those that decide when to stop."""
    data = runner.dataset(dataset, setting)
    nodes = draw_nodes(data, setting.seed, draw)
    pool = Roles.read(data.graph, data.num_classes, data.labels, nodes.pool, name="pool").calib
    plan = spending_plan(dataset, draw, len(pool), setting)
    assert plan.n_tune is not None
    tuning, _ = take_tuning(pool, plan.n_tune, plan.seed)
    tuned = np.flatnonzero(np.isin(data.graph.keys, tuning.keys))
    known = np.concatenate([nodes.train, nodes.valid, tuned])
    known = np.random.default_rng([setting.seed, draw, 15]).permutation(known)
    stops = round(STOPPING * len(known))
    return known[stops:], known[:stops]


def retrain(dataset: str, model: str, draw: int, setting: Setting) -> None:
    """Train a classifier on all labels, unless that is on disk."""
    training, stopping = _labelled(dataset, draw, setting)
    cell = _cell_name(dataset, model, draw, setting)
    runner.keep_trained(cell, dataset, model, draw, training, setting, stopping)


def retrained(dataset: str, model: str, draw: int, setting: Setting) -> np.ndarray:
    """The logits of the classifier that was trained on all labels, trained now if not on disk."""
    cell = _cell_name(dataset, model, draw, setting)
    retrain(dataset, model, draw, setting)
    arrays = setting.store.read_arrays("logits", cell)
    assert arrays is not None
    logits: np.ndarray = arrays["logits"]
    return logits


def rival_cell(
    dataset: str,
    model: str,
    draw: int,
    alphas: Sequence[float],
    confidence: np.ndarray,
    setting: Setting,
) -> dict[str, Any]:
    """What a retrained classifier gives in one draw, by the way to sets and level."""
    logits = retrained(dataset, model, draw, setting)
    data = runner.dataset(dataset, setting)
    corrected = choose_smoothing(
        data.graph, _softmax(logits), data.labels, *_labelled(dataset, draw, setting)
    )
    out: dict[str, Any] = {}
    for variant, known in VARIANTS.items():
        table = np.log(corrected + 1e-12) if variant == "C&S" else logits
        inputs, roles = seen(dataset, draw, table, setting)
        plan = spending_plan(dataset, draw, len(roles.calib), setting)
        assert plan.n_tune is not None
        rest = replace(roles, calib=take_tuning(roles.calib, plan.n_tune, plan.seed)[1])
        shorter = Plan(plan.budget - plan.n_tune, plan.n_splits, plan.seed)
        method = methods([known], alphas[0], seed=plan.seed)[known]
        cells: dict[str, Cell] = measure(method, inputs, rest, shorter, alphas, confidence)
        positions = inputs.positions(rest.calib.keys)
        accuracy = float((inputs.probs[positions].argmax(axis=1) == rest.calib.labels).mean())
        for cell in cells.values():
            cell["accuracy"] = accuracy
        out[f"retrained {model.upper()}, {variant}"] = cells
    return out


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True), dtype=np.float64)
    return powers / powers.sum(axis=1, keepdims=True)


def correct_and_smooth(
    graph: Graph,
    probs: np.ndarray,
    labels: np.ndarray,
    nodes: np.ndarray,
    correct: float,
    smooth: float,
) -> np.ndarray:
    """Probabilities after the errors at labelled nodes, then the labels, were spread over links.

    Examples
    --------
    >>> chain, probs = Graph([[0, 1], [1, 2]]), np.full((3, 2), 0.5)
    >>> labels, labelled = np.array([1, -1, -1]), np.array([0])
    >>> correct_and_smooth(chain, probs, labels, labelled, correct=0, smooth=0.5).round(2)
    array([[0.18, 0.82],
           [0.4 , 0.6 ],
           [0.45, 0.55]])
    """
    scale = sp.diags_array(1 / np.sqrt(np.maximum(np.diff(graph.adjacency.indptr), 1)))
    matrix = sp.csr_array(scale @ graph.adjacency @ scale)
    truth = np.eye(probs.shape[1])[labels[nodes]]
    error = np.zeros_like(probs)
    error[nodes] = truth - probs[nodes]
    spread = _spread(matrix, error, correct)
    lengths = np.abs(spread).sum(axis=1, keepdims=True)
    usual = np.abs(error[nodes]).sum(axis=1).mean()
    # Errors fade with distance: each node's is made as long as the mean error at labelled nodes.
    ratio = np.divide(usual, lengths, out=np.ones_like(lengths), where=lengths > usual / 1000)
    corrected = probs + ratio * spread
    corrected[nodes] = truth
    smoothed = np.clip(_spread(matrix, corrected, smooth), 1e-9, None)
    return smoothed / smoothed.sum(axis=1, keepdims=True)


def _spread(matrix: sp.csr_array, start: np.ndarray, pull: float) -> np.ndarray:
    table = start
    for _ in range(STEPS if pull else 0):
        table = (1 - pull) * start + pull * (matrix @ table)
    return table


def choose_smoothing(
    graph: Graph, probs: np.ndarray, labels: np.ndarray, training: np.ndarray, stopping: np.ndarray
) -> np.ndarray:
    """Correct and smooth with the pulls of most accuracy at the nodes left out of training.

    As its authors do; of equally accurate ones, those of least cross-entropy.
    """

    def merit(pulls: tuple[float, float]) -> tuple[float, float]:
        table = correct_and_smooth(graph, probs, labels, training, *pulls)[stopping]
        own = table[np.arange(len(stopping)), labels[stopping]]
        return float((table.argmax(axis=1) == labels[stopping]).mean()), float(np.log(own).mean())

    choices = ((c, s) for c in PULLS for s in PULLS if c or s)  # to correct, and to smooth
    best = max(choices, key=merit)
    return correct_and_smooth(graph, probs, labels, np.concatenate([training, stopping]), *best)
