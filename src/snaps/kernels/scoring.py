"""Draws, scores and ranks of every node and label."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from snaps.kernels import hashing

_GOLDEN = hashing.GOLDEN
_mix = njit(inline="always")(hashing.mix)


@njit(parallel=True, cache=True)
def uniforms(states, num_labels):
    """Draws of streams 0, 1, ... of each key, given where its hashes begin."""
    out = np.empty((len(states), num_labels))
    for i in prange(len(states)):
        for y in range(num_labels):
            out[i, y] = (_mix((states[i] ^ np.uint64(y)) + _GOLDEN) >> np.uint64(11)) * 2.0**-53
    return out


@njit(cache=True)
def descending(values):
    """Positions from the largest value to the smallest; insertion beats sorting on short rows."""
    if len(values) > 32:
        return np.argsort(-values)
    order = np.empty(len(values), np.int64)
    for i in range(len(values)):
        place = i
        while place > 0 and values[order[place - 1]] < values[i]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = i
    return order


@njit(parallel=True, cache=True)
def cumulative_scores(probs, draws, penalty, k_reg):
    """APS and RAPS: mass of the strictly likelier labels + draw * own mass + rank penalty."""
    n, num_classes = probs.shape
    out = np.empty((n, num_classes))
    for i in prange(n):
        order = descending(probs[i])
        mass = 0.0
        first = 0
        while first < num_classes:
            p = probs[i, order[first]]
            last = first
            group = 0.0
            while last < num_classes and probs[i, order[last]] == p:
                y = order[last]
                # Rounding may lift the mass of all labels above one by a bit or two.
                out[i, y] = min(mass + draws[i, y] * p, 1.0) + penalty * max(first + 1 - k_reg, 0)
                group += p
                last += 1
            mass += group
            first = last
    return out


@njit(parallel=True, cache=True)
def rank_table(probs):
    """Rank of every label: one more than the number of strictly likelier labels."""
    n, num_classes = probs.shape
    out = np.empty((n, num_classes), np.int64)
    for i in prange(n):
        order = descending(probs[i])
        rank = 1
        for position in range(num_classes):
            if position and probs[i, order[position]] < probs[i, order[position - 1]]:
                rank = position + 1
            out[i, order[position]] = rank
    return out
