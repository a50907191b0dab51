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
    stack = np.stack(list(rows.values()))
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
        inside, outside = stack[:, fold != out], stack[:, fold == out]
        start = None
        for i, pull in enumerate(BIAS_PULLS):
            start = _minimise(inside, labels[fold != out], pull, start, exact=False)
            losses[i] += _loss(start, outside, labels[fold == out])[0]
    return BIAS_PULLS[int(np.argmin(losses))]


def _minimise(
    stack: np.ndarray,
    labels: np.ndarray,
    bias_pull: float,
    start: np.ndarray | None = None,
    *,
    exact: bool = True,
) -> np.ndarray:
    """Weights, then biases, by L-BFGS with the analytic gradient; roughly unless `exact`."""
    from scipy.optimize import minimize

    m, _, num_classes = stack.shape
    centre = np.concatenate([np.full(m, 1 / m), np.zeros(num_classes)])
    pull = np.concatenate([np.full(m, PULL), np.full(num_classes, bias_pull)])

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradient = _loss(point, stack, labels)
        away = point - centre
        return loss + 0.5 * float(pull @ away**2), gradient + pull * away

    begin = centre if start is None else start
    options = {"maxiter": 500, "ftol": 1e-10 if exact else 1e-5, "gtol": 1e-6}
    return minimize(objective, begin, jac=True, method="L-BFGS-B", options=options).x


def _loss(point: np.ndarray, stack: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """Cross-entropy, summed over nodes, and its gradient by weights and biases."""
    m, t, num_classes = stack.shape
    flat = stack.reshape(m, -1)
    logits = (point[:m] @ flat).reshape(t, num_classes) + point[m:]
    logits -= logits.max(axis=1, keepdims=True)
    rows = np.arange(t)
    true = logits[rows, labels]
    table = np.exp(logits, out=logits)
    sums = table.sum(axis=1)
    loss = float(np.log(sums).sum() - true.sum())
    table /= sums[:, None]
    table[rows, labels] -= 1
    return loss, np.concatenate([flat @ table.reshape(-1), table.sum(axis=0)])
