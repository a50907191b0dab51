"""Sizes over a grid of weights, and counts over many splits."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from snaps.kernels import hashing

_GOLDEN = hashing.GOLDEN
_mix = njit(inline="always")(hashing.mix)


@njit(cache=True)
def order_statistic(values, rank):
    """The rank-th smallest value; a threshold's rank is high, so few values lie above it."""
    above = len(values) - rank + 1
    if above > 32:
        return np.partition(values, rank - 1)[rank - 1]
    top = np.full(above, -np.inf)
    for value in values:
        if value > top[0]:
            place = 1
            while place < above and top[place] < value:
                top[place - 1] = top[place]
                place += 1
            top[place - 1] = value
    return top[0]


@njit(parallel=True, cache=True)
def mixed_sizes(parts, labels, grid, rank):
    """Number of labels below the own threshold, for every row of weights in the grid."""
    num_parts, n, num_classes = parts.shape
    flat = parts.reshape(num_parts, n * num_classes)
    sizes = np.empty(len(grid), np.int64)
    for g in prange(len(grid)):
        scores = grid[g, 0] * flat[0]
        for part in range(1, num_parts):
            weight = grid[g, part]
            if weight != 0.0:
                for entry in range(n * num_classes):
                    scores[entry] += weight * flat[part, entry]
        own = np.empty(n)
        for i in range(n):
            own[i] = scores[i * num_classes + labels[i]]
        threshold = order_statistic(own, rank)
        count = 0
        for entry in range(n * num_classes):
            count += scores[entry] <= threshold
        sizes[g] = count
    return sizes


@njit(parallel=True, cache=True)
def draw_splits(states, n_calib, n_splits):
    """For each split the positions with the smallest hashes (state, split), in order."""
    n = len(states)
    out = np.empty((n_splits, n_calib), np.int64)
    # Hashes are uniform, so the n_calib smallest lie below a limit known beforehand, but for a
    # chance of one in a billion: then all are looked at.
    share = (n_calib + 6 * np.sqrt(n_calib) + 6) / n
    limit = np.uint64(share * 2.0**64) if share < 1 else np.uint64(2**64 - 1)
    for b in prange(n_splits):
        words, places = np.empty(n + 1, np.uint64), np.empty(n + 1, np.int64)
        count = 0
        for bound in (limit, np.uint64(2**64 - 1)):
            count = 0
            for i in range(n):
                word = _mix((states[i] ^ np.uint64(b)) + _GOLDEN)
                words[count], places[count] = word, i
                count += word <= bound
            if count >= n_calib:
                break
        last = np.partition(words[:count], n_calib - 1)[n_calib - 1]
        found = 0
        for i in range(count):
            if words[i] <= last and found < n_calib:
                out[b, found] = places[i]
                found += 1
    return out


@njit(parallel=True, cache=True)
def count_splits(scores, true, first, second, single, splits, rank, ordered):
    """Threshold and counts of each split, from counts over the pool less the calibration nodes'.

    `first` and `second` are a node's two smallest scores, `single` says that the smallest is the
    true label's. `ordered` holds, each sorted: true, all scores, first, and first and second of
    the `single` nodes.
    """
    ordered_true, ordered_all, ordered_first, single_first, single_second = ordered
    num_splits, n = splits.shape
    num_classes = scores.shape[1]
    thresholds = np.empty(num_splits)
    counts = np.empty((num_splits, 4), np.int64)
    for b in prange(num_splits):
        own = np.empty(n)
        for i in range(n):
            own[i] = true[splits[b, i]]
        threshold = np.inf
        if rank <= n:
            threshold = order_statistic(own, rank)
        covered = np.searchsorted(ordered_true, threshold, side="right")
        size = np.searchsorted(ordered_all, threshold, side="right")
        filled = np.searchsorted(ordered_first, threshold, side="right")
        hit = np.searchsorted(single_first, threshold, side="right")
        hit -= np.searchsorted(single_second, threshold, side="right")
        for i in range(n):
            node = splits[b, i]
            covered -= true[node] <= threshold
            filled -= first[node] <= threshold
            hit -= single[node] and first[node] <= threshold and second[node] > threshold
            for y in range(num_classes):
                size -= scores[node, y] <= threshold
        thresholds[b] = threshold
        counts[b, 0] = covered
        counts[b, 1] = size
        counts[b, 2] = filled
        counts[b, 3] = hit
    return thresholds, counts


@njit(parallel=True, cache=True)
def count_splits_by_class(scores, labels, splits, ranks):
    """The same with a threshold a class: every pool node is looked at in every split.

    `ranks[c]` is the rank for c calibration nodes, beyond c when they are too few.
    """
    num_splits, n = splits.shape
    num_nodes, num_classes = scores.shape
    thresholds = np.full((num_splits, num_classes), np.inf)
    counts = np.zeros((num_splits, 4), np.int64)
    for b in prange(num_splits):
        calibrates = np.zeros(num_nodes, np.bool_)
        for i in range(n):
            calibrates[splits[b, i]] = True
        for y in range(num_classes):
            own = np.empty(n)
            found = 0
            for i in range(n):
                if labels[splits[b, i]] == y:
                    own[found] = scores[splits[b, i], y]
                    found += 1
            if ranks[found] <= found:
                thresholds[b, y] = np.sort(own[:found])[ranks[found] - 1]
        for node in range(num_nodes):
            if not calibrates[node]:
                size = 0
                for y in range(num_classes):
                    size += scores[node, y] <= thresholds[b, y]
                inside = scores[node, labels[node]] <= thresholds[b, labels[node]]
                counts[b, 0] += inside
                counts[b, 1] += size
                counts[b, 2] += size > 0
                counts[b, 3] += inside and size == 1
    return thresholds, counts
