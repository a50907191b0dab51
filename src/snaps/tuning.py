"""Choice of weights and score parameters: the smallest mean set size on the tuning nodes.

Tuning sees tuning labels alone. They never calibrate, which is why tuning costs no validity.
"""

from __future__ import annotations

import dataclasses
import warnings
from fractions import Fraction
from typing import Any

import numpy as np

from snaps._errors import SnapsWarning
from snaps._randomness import TUNE_STREAM, smallest
from snaps.aggregation import ScoreField
from snaps.conformal import conformal_rank
from snaps.scores import APS, RAPS, RAPS_PENALTIES, Score, score_table

MOST_TUNING_NODES = 500
_STEPS = 20  # weights move in steps of 1/20 = 0.05


def tuning_share(n: int, alpha: Fraction) -> int:
    """How many of n calibration nodes to spend on tuning; 0 when there are too few.

    Half of them, at most 500, if both halves still give a finite threshold.
    """
    share = min(MOST_TUNING_NODES, n // 2)
    return share if enough(share, alpha) and enough(n - share, alpha) else 0


def enough(n: int, alpha: Fraction) -> bool:
    """Whether n nodes give a finite threshold."""
    return n > 0 and conformal_rank(n, alpha) <= n


def split_budget(
    nodes: np.ndarray, keys: np.ndarray, alpha: Fraction, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Divide calibration nodes into tuning and calibrating ones, by a hash of their keys."""
    share = tuning_share(len(nodes), alpha)
    if share == 0:
        return nodes[:0], nodes
    chosen = np.zeros(len(nodes), bool)
    chosen[smallest(seed, keys[nodes], TUNE_STREAM, share)] = True
    return nodes[chosen], nodes[~chosen]


def warn_untuned(n: int, fallback: str) -> None:
    """Say that nothing was tuned, and what is used instead."""
    warnings.warn(f"{n} nodes are too few to tune on: using {fallback}", SnapsWarning, stacklevel=4)


def snaps_grid() -> list[tuple[float, float]]:
    """(lam, mu) with lam + mu <= 1, from the least aggregation to the most.

    Examples
    --------
    >>> len(snaps_grid()), snaps_grid()[:4]
    (231, [(0.0, 0.0), (0.0, 0.05), (0.05, 0.0), (0.0, 0.1)])
    """
    return [
        (lam / _STEPS, (total - lam) / _STEPS)
        for total in range(_STEPS + 1)
        for lam in range(total + 1)
    ]


def daps_grid() -> list[tuple[float, float]]:
    """(0, mu) with mu = 0, 0.05, ..., 0.95."""
    return [(0.0, mu / _STEPS) for mu in range(_STEPS)]


def eta_grid() -> list[tuple[float, float]]:
    """(eta, 0) with eta = 0, 0.05, ..., 1."""
    return [(eta / _STEPS, 0.0) for eta in range(_STEPS + 1)]


def mixing_weights(lam: Any, mu: Any) -> dict[str, Any]:
    """What each part weighs in s^ = (1 - lam - mu) S + lam As S + mu A S; numbers or arrays."""
    return {"own": 1.0 - (lam + mu), "similar": lam, "linked": mu}


def tune_weights(
    field: ScoreField,
    nodes: np.ndarray,
    labels: np.ndarray,
    grid: list[tuple[float, float]],
    alpha: Fraction,
) -> tuple[float, float]:
    """The first pair of the grid with the smallest sets on the tuning nodes.

    Parameters
    ----------
    field : ScoreField
    nodes : array (t,)
        Tuning nodes.
    labels : array (t,)
        Their labels.
    grid : list of (lam, mu)
        In order of preference among equals.
    alpha : Fraction
    """
    from snaps.kernels.splitting import mixed_sizes

    names = list(field.parts)
    parts = np.stack([field.parts[name][nodes] for name in names])
    weights = mixing_weights(*np.array(grid).T)
    table = np.stack([weights[name] for name in names], axis=1)
    sizes = mixed_sizes(parts, labels, table, conformal_rank(len(nodes), alpha))
    return grid[int(np.argmin(sizes))]


def tune_score(
    score: Score,
    probs: np.ndarray,
    keys: np.ndarray,
    labels: np.ndarray,
    alpha: Fraction,
    seed: int,
) -> Score:
    """Replace "tune" in RAPS by the values with the smallest sets; other scores stay as they are.

    `probs`, `keys` and `labels` are those of the tuning nodes. Among equals the smaller penalty
    wins, then the larger k_reg: the least regularised.
    """
    if not isinstance(score, RAPS) or not score.needs_tuning:
        return score
    from snaps.kernels.scoring import rank_table
    from snaps.kernels.splitting import mixed_sizes

    num_classes = probs.shape[1]
    k_regs = range(num_classes - 1, -1, -1) if score.k_reg == "tune" else [int(score.k_reg)]
    penalties = RAPS_PENALTIES if score.penalty == "tune" else (float(score.penalty),)
    if not enough(len(labels), alpha):
        fallback = RAPS(
            1 if score.k_reg == "tune" else score.k_reg,
            0.01 if score.penalty == "tune" else score.penalty,
            score.randomized,
        )
        warn_untuned(len(labels), f"k_reg={fallback.k_reg}, penalty={fallback.penalty}")
        return fallback
    base = score_table(APS(score.randomized), probs, keys, seed)
    ranks = rank_table(probs)
    grid = np.array([[1.0, penalty] for penalty in penalties])
    rank = conformal_rank(len(labels), alpha)
    sizes = np.array(
        [
            mixed_sizes(np.stack([base, np.maximum(ranks - k_reg, 0.0)]), labels, grid, rank)
            for k_reg in k_regs
        ]
    )
    best_penalty, best_k_reg = divmod(int(np.argmin(sizes.T)), len(k_regs))
    return dataclasses.replace(score, k_reg=k_regs[best_k_reg], penalty=penalties[best_penalty])
