"""Sizes over a grid of weights, and counts over many splits."""

from __future__ import annotations

import numpy as np

from snaps._kernels.compiling import helper, loop, njit
from snaps._kernels.sorting import select
from snaps._runtime.randomness import GOLDEN as _GOLDEN
from snaps._runtime.randomness import mix
from snaps._runtime.threads import in_shares

_mix = njit(inline="always")(mix)
_SHARE = 100_000  # numbers looked at that are worth a thread


@helper
def order_statistic(values, rank):
    """The rank-th smallest value; a threshold's rank is high, so few values lie above it."""
    above = len(values) - rank + 1
    if above > 32:
        return select(values.copy(), rank)
    top = np.empty(above)
    top[:] = -np.inf
    for value in values:
        if value > top[0]:
            place = 1
            while place < above and top[place] < value:
                top[place - 1] = top[place]
                place += 1
            top[place - 1] = value
    return top[0]


def mixed_sizes(parts, labels, grid, rank, samples=None):
    """Number of labels below the own threshold (weights, samples), for each row of the grid.

    A sample is a list of n nodes, with repetitions, in place of the nodes themselves.
    """
    num_parts, n, num_classes = parts.shape
    flat = np.ascontiguousarray(parts).reshape(num_parts, n * num_classes)
    samples = np.arange(n)[None] if samples is None else samples
    sizes = np.empty((len(grid), len(samples)), np.int64)
    share = _SHARE // max(flat.size * sizes.shape[1], 1) + 1
    in_shares(_mixed_sizes, len(grid), share, flat, num_classes, labels, grid, rank, samples, sizes)
    return sizes


@loop
def _mixed_sizes(first, last, flat, num_classes, labels, grid, rank, samples, sizes):
    num_parts, n = len(flat), len(labels)
    own, drawn, scores = np.empty(n), np.empty(n), np.empty(n * num_classes)
    for g in range(first, last):
        for entry in range(n * num_classes):
            scores[entry] = grid[g, 0] * flat[0, entry]
        for part in range(1, num_parts):
            weight = grid[g, part]
            if weight != 0.0:
                for entry in range(n * num_classes):
                    scores[entry] += weight * flat[part, entry]
        for i in range(n):
            own[i] = scores[i * num_classes + labels[i]]
        for b in range(len(samples)):
            for i in range(n):
                drawn[i] = own[samples[b, i]]
            threshold = order_statistic(drawn, rank)
            count = 0
            for i in range(n):
                row = samples[b, i] * num_classes
                for y in range(num_classes):
                    count += scores[row + y] <= threshold
            sizes[g, b] = count


def draw_splits(states, n_calib, n_splits):
    """For each split the positions with the smallest hashes (state, split), in order."""
    out = np.empty((n_splits, n_calib), np.int64)
    in_shares(_draw_splits, n_splits, _SHARE // max(len(states), 1) + 1, states, out)
    return out


@loop
def _draw_splits(start, stop, states, out):
    n, n_calib = len(states), out.shape[1]
    # Hashes are uniform, so the n_calib smallest lie below a limit known beforehand, but for a
    # chance of one in a billion: then all are looked at.
    share = (n_calib + 6 * np.sqrt(n_calib) + 6) / n
    limit = np.uint64(share * 2.0**64) if share < 1 else np.uint64(2**64 - 1)
    for b in range(start, stop):
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
        last = select(words[:count].copy(), n_calib)
        found = 0
        for i in range(count):
            if words[i] <= last and found < n_calib:
                out[b, found] = places[i]
                found += 1


def count_splits(scores, true, first, second, single, splits, rank, ordered):
    """Threshold and counts of each split, from counts over the pool less the calibration nodes'.

    `first` and `second` are a node's two smallest scores, `single` says that the smallest is the
    true label's. `ordered` holds, each sorted: true, all scores, first, and first and second of
    the `single` nodes.
    """
    num_splits, n = splits.shape
    thresholds, counts = np.empty(num_splits), np.empty((num_splits, 4), np.int64)
    share = _SHARE // (n * scores.shape[1]) + 1
    in_shares(
        _count_splits, num_splits, share, scores, true, first, second, single, splits, rank,
        ordered, thresholds, counts,
    )  # fmt: skip
    return thresholds, counts


@loop
def _count_splits(
    start, stop, scores, true, first, second, single, splits, rank, ordered, thresholds, counts
):
    ordered_true, ordered_all, ordered_first, single_first, single_second = ordered
    n, num_classes = splits.shape[1], scores.shape[1]
    for b in range(start, stop):
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


def count_splits_by_class(scores, labels, splits, ranks):
    """The same with a threshold a class: every pool node is looked at in every split.

    `ranks[c]` is the rank for c calibration nodes, beyond c when they are too few.
    """
    num_splits, num_classes = len(splits), scores.shape[1]
    thresholds = np.full((num_splits, num_classes), np.inf)
    counts = np.zeros((num_splits, 4), np.int64)
    share = _SHARE // scores.size + 1
    in_shares(_count_by_class, num_splits, share, scores, labels, splits, ranks, thresholds, counts)
    return thresholds, counts


@loop
def _count_by_class(start, stop, scores, labels, splits, ranks, thresholds, counts):
    n = splits.shape[1]
    num_nodes, num_classes = scores.shape
    for b in range(start, stop):
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
                thresholds[b, y] = select(own[:found], ranks[found])
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
