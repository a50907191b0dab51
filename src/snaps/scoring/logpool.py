"""The log-linear pool: one weight per part, one bias per class, fitted on tuning nodes.

Cross-entropy of softmax(sum of weight * part + bias) plus a pull of the weights to 1/m and of the
biases to zero: convex, smooth, one minimum. How hard the biases are pulled is cross-validated.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from snaps._checks import calm
from snaps._runtime.threads import single_products
from snaps.scoring.evidence import Evidence

PULL = 10.0  # on the weights, in units of tuning nodes
BIAS_PULLS = (125.0, 25.0, 5.0, 1.0)  # on the biases; the best of four folds is taken
FOLDS = 4
MOST_STEPS, SETTLED = 50, 1e-12  # of Newton's method; the gain at which it ends, relative


@calm
def fit_pool(
    rows: Mapping[str, np.ndarray], tuning: Evidence
) -> tuple[dict[str, float], np.ndarray]:
    """Weights of the parts, by name, and a bias per class.

    Parameters
    ----------
    rows : dict of arrays (t, K)
        The tuning nodes' rows of every part.
    tuning : Evidence
    """
    # Sums over labels go fastest where nodes come last.
    stack = np.stack([np.ascontiguousarray(table.T) for table in rows.values()])
    # The products are small: more threads would wait for one another, and round otherwise.
    with single_products():
        pull = _choose_bias_pull(stack, tuning.labels)
        solution = _minimise(stack, tuning.labels, pull)
    m = len(rows)
    return dict(zip(rows, solution[:m].tolist(), strict=True)), solution[m:]


def _choose_bias_pull(stack: np.ndarray, labels: np.ndarray) -> float:
    """The pull with the least cross-entropy on nodes left out; of equals the strongest."""
    t = len(labels)
    if t < 2 * FOLDS:
        return BIAS_PULLS[0]
    fold = np.arange(t) % FOLDS
    losses = np.zeros(len(BIAS_PULLS))
    for out in range(FOLDS):
        inside, outside = stack[..., fold != out], stack[..., fold == out]
        start = None
        for i, pull in enumerate(BIAS_PULLS):
            start = _minimise(inside, labels[fold != out], pull, start)
            losses[i] += _loss(start, outside, labels[fold == out])[0]
    return BIAS_PULLS[int(np.argmin(losses))]


def _minimise(
    stack: np.ndarray, labels: np.ndarray, bias_pull: float, start: np.ndarray | None = None
) -> np.ndarray:
    """Weights, then biases, by Newton's method: steps are halved until the loss falls."""
    m, num_classes, _ = stack.shape
    centre = np.concatenate([np.full(m, 1 / m), np.zeros(num_classes)])
    pull = np.concatenate([np.full(m, PULL), np.full(num_classes, bias_pull)])

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        loss, table = _loss(point, stack, labels)
        return loss + 0.5 * float(pull @ (point - centre) ** 2), table

    point = centre if start is None else start
    value, table = objective(point)
    for _ in range(MOST_STEPS):
        gradient, curvature = _derivatives(stack, table, labels)
        gradient += pull * (point - centre)
        step = np.linalg.solve(curvature + np.diag(pull), gradient)
        gain = float(gradient @ step)  # twice what a quadratic would gain
        if gain <= SETTLED * (1 + abs(value)):
            break
        for _ in range(MOST_STEPS):
            tried = objective(point - step)
            if tried[0] <= value - 1e-4 * gain:
                break
            step, gain = step / 2, gain / 2
        point, (value, table) = point - step, tried
    return point


def _loss(point: np.ndarray, stack: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """Cross-entropy, summed over nodes, and the pooled probabilities (K, t)."""
    m, num_classes, t = stack.shape
    logits = (point[:m] @ stack.reshape(m, -1)).reshape(num_classes, t) + point[m:, None]
    logits -= logits.max(axis=0)
    true = logits[labels, np.arange(t)]
    table = np.exp(logits, out=logits)
    sums = table.sum(axis=0)
    table /= sums
    return float(np.log(sums).sum() - true.sum()), table


def _derivatives(
    stack: np.ndarray, table: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and Hessian of the cross-entropy by weights and biases."""
    m, _, t = stack.shape
    off = table.copy()
    off[labels, np.arange(t)] -= 1
    gradient = np.concatenate([stack.reshape(m, -1) @ off.reshape(-1), off.sum(axis=1)])
    # Covariances over labels, as the mean product less the product of means.
    weighted = stack * table
    means = weighted.sum(axis=1)
    hessian = np.empty((len(gradient), len(gradient)))
    hessian[:m, :m] = weighted.reshape(m, -1) @ stack.reshape(m, -1).T - means @ means.T
    hessian[:m, m:] = weighted.sum(axis=2) - means @ table.T
    hessian[m:, :m] = hessian[:m, m:].T
    hessian[m:, m:] = np.diag(table.sum(axis=1)) - table @ table.T
    return gradient, hessian
