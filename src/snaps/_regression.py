"""Ridge regression of one-hot labels on features in context, with its leave-one-out guesses.

Left of the wall: labels come as evidence, and nothing here knows a role.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from snaps._evidence import Evidence

RIDGES = 10.0 ** np.arange(-2, 3.5, 0.5)  # tried; the least leave-one-out error is taken


@dataclass(frozen=True)
class Solution:
    """A fitted model: coefficients (columns, K), and its guesses of each node without its label."""

    coefficients: np.ndarray
    left_out: np.ndarray


def solve(rows: np.ndarray, evidence: Evidence, num_classes: int) -> Solution:
    """Fit rows (m, columns) to one-hot labels; the ridge is chosen by its leave-one-out error."""
    from threadpoolctl import threadpool_limits

    if not len(rows):
        return Solution(np.zeros((rows.shape[1], num_classes)), np.zeros((0, num_classes)))
    target = np.eye(num_classes)[evidence.labels]
    with threadpool_limits(1, user_api="blas"):
        values, vectors = np.linalg.eigh(rows.T @ rows)
        turned = rows @ vectors
        seen = turned.T @ target
        best, chosen = np.inf, RIDGES[0]
        guesses = target
        for ridge in RIDGES:
            shrunk = 1 / (np.maximum(values, 0) + ridge)
            leverage = turned**2 @ shrunk
            residual = target - turned @ (shrunk[:, None] * seen)
            residual /= np.maximum(1 - leverage, 1e-9)[:, None]
            error = float((residual**2).sum())
            if error < best:
                best, chosen, guesses = error, ridge, target - residual
        coefficients = vectors @ (seen / (np.maximum(values, 0) + chosen)[:, None])
    return Solution(coefficients, guesses)
