"""Ridge regression of one-hot labels on features in context, with its leave-one-out guesses.

Left of the wall: labels come as evidence, and nothing here knows a role.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from snaps._runtime.memory import pieces, room
from snaps._runtime.progress import stage
from snaps._runtime.randomness import locate_keys
from snaps._runtime.threads import single_products
from snaps.scoring.evidence import Evidence, Keys
from snaps.scoring.parts import Context, Links, Over, Summary

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
            table[some] = block = np.asarray(rows(some), np.float64)
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
    out = room((len(table), coefficients.shape[1]), table.dtype)
    with single_products():
        for some in blocks(len(table)):
            out[some] = table[some] @ coefficients
    return out


# -- features in context ---------------------------------------------------------------------------


class Surroundings(Protocol):
    """Who can average a table over a node's neighbours."""

    keys: Keys
    has: frozenset[str]
    num_nodes: int
    num_classes: int
    large: bool

    def get(self, recipe: Any) -> Any:
        """What a recipe makes."""

    def mean_of(self, table: np.ndarray, over: Over) -> np.ndarray:
        """The mean of a table over neighbours, for all nodes."""

    def mean_at(self, table: np.ndarray, over: Over, places: np.ndarray) -> np.ndarray:
        """The mean of a table over neighbours, at some places."""

    def mean_rows(
        self, over: Over, rows: Callable[[np.ndarray], np.ndarray], places: np.ndarray
    ) -> np.ndarray:
        """The mean at some places, of a table that is made where it is needed."""


def fit_in_context(inputs: Surroundings, context: Context, evidence: Evidence) -> Solution:
    """The linear model from features in context, fitted at the nodes of the evidence."""
    places, found = locate_keys(inputs.keys, evidence.keys)
    table, hops = inputs.get(Summary()), _hops(inputs, context)
    if len(hops) > 1:
        inputs.get(context)
    with stage("regression"):
        linked = None
        if inputs.large and len(hops) > 1:  # two steps from many nodes are everywhere
            linked = inputs.mean_of(table, Links())

        def rows(some: slice) -> np.ndarray:
            near = places[some]
            return np.hstack([_reached(inputs, way, table, near, linked) for way in hops])

        columns = len(hops) * table.shape[1]
        return solve(rows, columns, evidence.subset(found), inputs.num_classes)


def guess_everywhere(
    inputs: Surroundings, context: Context, coefficients: np.ndarray
) -> np.ndarray:
    """The model's guesses for all nodes; classes are averaged over hops, not features."""
    table, hops = inputs.get(Summary()), _hops(inputs, context)
    out = room((inputs.num_nodes, inputs.num_classes), table.dtype)
    out[:] = 0
    with stage("regression"):
        for way, block in zip(hops, np.split(coefficients, len(hops)), strict=True):
            guess = guessed(table, block)
            for over in reversed(way):
                guess = inputs.mean_of(guess, over)
            for some in pieces(inputs.num_nodes, 8 * inputs.num_classes):
                out[some] += guess[some]
    return out


def _hops(inputs: Surroundings, context: Context) -> list[list[Over]]:
    """The ways to a node's surroundings: itself, links, their links, the context graph."""
    if "links" not in inputs.has:
        return [[]]
    return [[], [Links()], [Links(), Links()], [context]]


def _reached(
    inputs: Surroundings,
    way: Sequence[Over],
    table: np.ndarray,
    places: np.ndarray,
    linked: np.ndarray | None,
) -> np.ndarray:
    """Rows of a table averaged along a way, at some places; `linked` is its mean over links."""
    if not way:
        return table[places]
    if linked is not None and way[0] == Links():
        return linked[places] if len(way) == 1 else inputs.mean_at(linked, way[0], places)
    if len(way) == 1:
        return inputs.mean_at(table, way[0], places)
    return inputs.mean_rows(
        way[0], lambda some: _reached(inputs, way[1:], table, some, linked), places
    )
