"""Ridge regression of one-hot labels on features in context, with its leave-one-out guesses.

Left of the wall: labels come as evidence, and nothing here knows a role.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from snaps._evidence import Evidence
from snaps.kernels.memory import room
from snaps.kernels.threads import single_products

RIDGES = 10.0 ** np.arange(-2, 3.5, 0.5)  # tried; the least leave-one-out error is taken
ROWS = 8192  # of a block; whatever the memory, so that sums have the same bits


@dataclass(frozen=True)
class Solution:
    """A fitted model: coefficients (columns, K), and its guesses of each node without its label."""

    coefficients: np.ndarray
    left_out: np.ndarray


def solve(
    rows: Callable[[slice], np.ndarray], columns: int, evidence: Evidence, num_classes: int
) -> Solution:
    """Fit rows (m, columns) to one-hot labels; the ridge is chosen by its leave-one-out error.

    `rows` gives a block of them. What is summed over blocks has the size of the columns.
    """
    m = len(evidence)
    if not m:
        return Solution(np.zeros((columns, num_classes)), np.zeros((0, num_classes)))
    one_hot = np.eye(num_classes)
    with single_products():
        table, gram = room((m, columns)), np.zeros((columns, columns))
        for some in blocks(m):
            table[some] = block = rows(some)
            gram += block.T @ block
        (values, vectors), seen = np.linalg.eigh(gram), np.zeros((columns, num_classes))
        for some in blocks(m):
            table[some] = turned = table[some] @ vectors
            seen += turned.T @ one_hot[evidence.labels[some]]
        shrunk = 1 / (np.maximum(values, 0) + RIDGES[:, None])
        errors = np.zeros(len(RIDGES))
        for some in blocks(m):
            for r, each in enumerate(shrunk):
                target = one_hot[evidence.labels[some]]
                errors[r] += (_left_out(table[some], each, seen, target)[1] ** 2).sum()
        best = shrunk[np.argmin(errors)]
        guesses = room((m, num_classes))
        for some in blocks(m):
            target = one_hot[evidence.labels[some]]
            guesses[some] = _left_out(table[some], best, seen, target)[0]
    return Solution(vectors @ (best[:, None] * seen), guesses)


def _left_out(
    turned: np.ndarray, shrunk: np.ndarray, seen: np.ndarray, target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Guesses of some nodes without their labels, and how far they are off."""
    leverage = turned**2 @ shrunk
    residual = target - turned @ (shrunk[:, None] * seen)
    residual /= np.maximum(1 - leverage, 1e-9)[:, None]
    return target - residual, residual


def blocks(count: int) -> Iterator[slice]:
    """Rows, some at a time."""
    for first in range(0, count, ROWS):
        yield slice(first, min(first + ROWS, count))


def guessed(table: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """Rows times coefficients, block by block."""
    out = room((len(table), coefficients.shape[1]))
    with single_products():
        for some in blocks(len(table)):
            out[some] = table[some] @ coefficients
    return out
