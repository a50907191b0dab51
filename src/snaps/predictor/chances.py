"""Chances with which nodes were drawn to be labelled, as users give them, become odds.

The odds (1 - chance) / chance are what thresholds are weighted by: see `conformal.chances`.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from snaps._checks import plainly, to_numpy
from snaps._checks.named import align
from snaps.conformal.calibration import Promise
from snaps.errors import SnapsError, warn
from snaps.graph import Graph


def check_promise(promise: Promise, missing: Any = 0) -> None:
    """Where chances are given, refuse what holds only for nodes drawn with equal ones."""
    for name, value in (asdict(promise) | {"missing_labels": missing or None}).items():
        if value is not None:
            raise SnapsError(f"'{name}' must be left out with chances, got {float(value):g}")


def read_odds(chances: Any, graph: Graph, drawn: np.ndarray) -> np.ndarray:
    """The odds (1 - chance) / chance of every node; those `drawn` must have had a chance.

    Nodes that are neither drawn nor predicted need none: nan, or infinite for a chance of 0. Drawn
    by edges, a node has odds of 1 / degree, up to a factor.
    """
    if isinstance(chances, str):
        if chances != "edges":
            raise SnapsError(f"'chances' must be one number per node or 'edges', got {chances!r}")
        degrees = np.diff(graph.adjacency.indptr).astype(np.float64)
        with np.errstate(divide="ignore"):
            odds = 1 / degrees
        rule = "'nodes' must have links with chances='edges'"
    else:
        values = align(chances, graph, "chances", partial=True)
        if isinstance(values, list):
            values = [math.nan if value is None else value for value in values]
        numbers = to_numpy(values, "chances")
        if numbers.shape != (graph.num_nodes,) or numbers.dtype.kind not in "fiu":
            raise SnapsError(
                f"'chances' must be {graph.num_nodes} numbers, one per node, got "
                f"{numbers.dtype} of shape {numbers.shape}"
            )
        numbers = numbers.astype(np.float64)
        bad = np.flatnonzero((numbers < 0) | (numbers > 1))
        if bad.size:
            raise _no_chance("'chances' must lie from 0 to 1", numbers, bad, graph)
        with np.errstate(divide="ignore"):
            odds = (1 - numbers) / numbers
        rule = "'chances' must be above 0 for nodes that were drawn"
    bad = drawn[~np.isfinite(odds[drawn])]
    if bad.size:
        raise _no_chance(rule, 1 / (1 + odds), bad, graph)
    odds.flags.writeable = False
    return odds


def _no_chance(rule: str, chances: np.ndarray, bad: np.ndarray, graph: Graph) -> SnapsError:
    first, more = bad[0], f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    node = plainly(graph.ids[first])
    return SnapsError(f"{rule}, got {chances[first]:g} for node {node}{more}")


def check_chances(odds: np.ndarray, graph: Graph, positions: np.ndarray, name: str) -> None:
    """Nodes to predict could be drawn, and could be left out."""
    own = odds[positions]
    bad = positions[~((own > 0) & (own < math.inf))]
    if bad.size:
        rule = f"'chances' must lie between 0 and 1, both excluded, for each of '{name}'"
        raise _no_chance(rule, 1 / (1 + odds), bad, graph)


def uneven(odds: np.ndarray, drawn: np.ndarray) -> bool:
    """Whether the chances of nodes that were drawn, or could be, differ at all."""
    possible = odds[(odds > 0) & (odds < math.inf)]
    return len(np.unique(np.concatenate([odds[drawn], possible]))) > 1


def warn_full(limits: np.ndarray, n: int, alpha: float) -> None:
    """Say how many nodes weigh so much themselves that their thresholds (m, ...) are infinite."""
    full = int(np.isposinf(limits).all(axis=1).sum())
    if full:
        warn(
            f"{full} of {len(limits)} nodes get full sets: their chances of being drawn are so "
            f"small that {n} calibration nodes are too few for alpha={alpha:g}"
        )
