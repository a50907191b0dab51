"""Draws, scores and ranks of every node and label."""

from __future__ import annotations

import numpy as np

from snaps._kernels.compiling import loop, njit
from snaps._kernels.sorting import descending
from snaps._runtime.randomness import GOLDEN as _GOLDEN
from snaps._runtime.randomness import mix
from snaps._runtime.threads import in_shares

_mix = njit(inline="always")(mix)
_SHARE = 30_000  # numbers that are worth a thread


def uniforms(states: np.ndarray, num_labels: int) -> np.ndarray:
    """Draws of streams 0, 1, ... of each key, given where its hashes begin."""
    out = np.empty((len(states), num_labels))
    in_shares(_uniforms, len(states), _SHARE // num_labels, states, out)
    return out


@loop
def _uniforms(first, last, states, out):
    for i in range(first, last):
        for y in range(out.shape[1]):
            out[i, y] = (_mix((states[i] ^ np.uint64(y)) + _GOLDEN) >> np.uint64(11)) * 2.0**-53


def cumulative_scores(
    probs: np.ndarray, draws: np.ndarray, penalty: float, k_reg: int
) -> np.ndarray:
    """APS and RAPS: mass of the strictly likelier labels + draw * own mass + rank penalty."""
    out = np.empty(probs.shape)
    share = _SHARE // probs.shape[1]
    in_shares(_cumulative_scores, len(probs), share, probs, draws, penalty, k_reg, out)
    return out


@loop
def _cumulative_scores(start, stop, probs, draws, penalty, k_reg, out):
    num_classes = probs.shape[1]
    order, ordered = np.empty(num_classes, np.int64), np.empty(num_classes)
    for i in range(start, stop):
        descending(probs[i], order, ordered)
        mass = 0.0
        first = 0
        while first < num_classes:
            p = ordered[first]
            last = first
            group = 0.0
            while last < num_classes and ordered[last] == p:
                y = order[last]
                # Rounding may lift the mass of all labels above one by a bit or two.
                out[i, y] = min(mass + draws[i, y] * p, 1.0) + penalty * max(first + 1 - k_reg, 0)
                group += p
                last += 1
            mass += group
            first = last


def rank_table(probs: np.ndarray) -> np.ndarray:
    """Rank of every label: one more than the number of strictly likelier labels."""
    out = np.empty(probs.shape, np.int64)
    in_shares(_rank_table, len(probs), _SHARE // probs.shape[1], probs, out)
    return out


@loop
def _rank_table(start, stop, probs, out):
    order, ordered = np.empty(probs.shape[1], np.int64), np.empty(probs.shape[1])
    for i in range(start, stop):
        descending(probs[i], order, ordered)
        rank = 1
        for position in range(probs.shape[1]):
            if position and ordered[position] < ordered[position - 1]:
                rank = position + 1
            out[i, order[position]] = rank
