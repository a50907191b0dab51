"""Label propagation: one step for all nodes, and what a few labels add at a few nodes."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from snaps._kernels import aggregation
from snaps._kernels.aggregation import AHEAD, SHARE, neighbour_mean, sum_up
from snaps._kernels.compiling import helper, loop
from snaps._runtime.threads import in_shares

SIDE_BY_SIDE = 32  # rows: NumPy takes maxima of short ones slowly
LEAST = 1e-4  # of a walk's mass: places with less of it are left out


def propagation_step(
    matrix: sp.csr_array | None,
    mass: np.ndarray,
    known: np.ndarray,
    kept: float,
    out: np.ndarray,
    *,
    first: bool,
) -> np.ndarray:
    """One step of label propagation, ``kept * W mass + (1 - kept) * start``, into `out`.

    `mass` and `out` are float32 tables (n, starts * K), side by side for each start. `known`
    (starts, n) has the label codes of each start, -1 for none, and `mass` is the one-hot table of
    them in the `first` step. Gives the largest change of an entry, for each start.
    """
    gain = np.float64(np.float32(1 - kept))
    width = mass.shape[1] // len(known)
    if matrix is None or matrix.nnz == 0 or matrix.nnz * mass.shape[1] <= aggregation.SMALL:
        flown = neighbour_mean(matrix, mass)
        flown *= kept
        for start, codes in enumerate(known):
            nodes = np.flatnonzero(codes >= 0)
            flown[nodes, start * width + codes[nodes]] += gain
        out[:] = flown
        return _column_tops(np.abs(out - mass)).reshape(-1, width).max(axis=1)
    moves = np.empty((len(mass), len(known)), np.float32)
    share = SHARE * len(mass) // (matrix.nnz * mass.shape[1]) + 1
    in_shares(
        _propagation_step, len(mass), share, matrix.indptr, matrix.indices, matrix.data,
        mass.reshape(-1), known, kept, gain, first, out, moves,
    )  # fmt: skip
    return moves.max(axis=0)


def _column_tops(table: np.ndarray) -> np.ndarray:
    """The largest entry of each column, at least zero; many short rows are put side by side."""
    columns, many = table.shape[1], len(table) // SIDE_BY_SIDE * SIDE_BY_SIDE
    wide = table[:many].reshape(-1, SIDE_BY_SIDE * columns).max(axis=0, initial=0.0)
    tops = np.concatenate([wide.reshape(SIDE_BY_SIDE, columns), table[many:]])
    return tops.max(axis=0)


@loop
def _propagation_step(
    first_row, last, indptr, indices, weights, mass, known, kept, gain, first, out, moves
):
    num_starts, columns = len(known), out.shape[1]
    width = columns // num_starts
    sums = np.empty(columns)
    for i in range(first_row, last):
        ends = indptr[i], indptr[i + 1], indptr[last]
        if first:
            total = _sum_known(ends, indices, weights, known, sums)
        else:
            total = sum_up(ends, indices, weights, mass, sums, AHEAD)
        row = mass[i * columns : (i + 1) * columns]
        if total > 0.0:
            for y in range(columns):
                sums[y] = kept * (sums[y] / total)
        else:
            for y in range(columns):
                sums[y] = kept * np.float64(row[y])
        for start in range(num_starts):
            code, most = known[start, i], np.float32(0)
            if code >= 0:
                sums[start * width + code] += gain
            for y in range(start * width, (start + 1) * width):
                out[i, y] = sums[y]
                most = max(most, abs(out[i, y] - row[y]))
            moves[i, start] = most


@helper
def _sum_known(ends, indices, weights, known, sums):
    """The sums of one-hot rows, whose zeros need not be read."""
    width = len(sums) // len(known)
    total = 0.0
    sums[:] = 0.0
    for entry in range(ends[0], ends[1]):
        weight, node = np.float64(weights[entry]), indices[entry]
        total += weight
        for start in range(len(known)):
            if known[start, node] >= 0:
                sums[start * width + known[start, node]] += weight
    return total


def mass_from(
    matrix: sp.csr_array,
    nodes: np.ndarray,
    codes: np.ndarray,
    num_classes: int,
    kept: float,
    steps: int,
) -> np.ndarray:
    """The mass (m, K) that known labels send to some nodes in so many steps of propagation.

    `codes` are those labels, -1 for none. Walks begin at the nodes, so few of them cost little
    however large the graph is. Where a walk has spread so far that a place has less than `LEAST`
    of it, that place is left out: what is left out is spread thinly.
    """
    out = np.zeros((len(nodes), num_classes))
    in_shares(
        _walk, len(nodes), 1, matrix.indptr, matrix.indices, matrix.data, nodes, codes, kept,
        steps, out,
    )  # fmt: skip
    return out


@loop
def _walk(first, last, indptr, indices, weights, nodes, codes, kept, steps, out):
    """Step by step, the shares of a walk from each node: `reached` lists where `share` is not 0."""
    share, reached = np.zeros(len(codes)), np.empty(len(codes), np.int64)
    places, shares = np.empty(int(1 / LEAST) + 1, np.int64), np.empty(int(1 / LEAST) + 1)
    for r in range(first, last):
        places[0], shares[0], count = nodes[r], 1.0, 1
        for step in range(steps + 1):
            # As in propagation, all mass that is left is counted in the end.
            counted = kept**step * ((1.0 - kept) if step < steps else 1.0)
            for p in range(count):
                if codes[places[p]] >= 0:
                    out[r, codes[places[p]]] += counted * shares[p]
            if step == steps:
                break
            found = 0
            for p in range(count):
                i = places[p]
                total = 0.0
                for entry in range(indptr[i], indptr[i + 1]):
                    total += weights[entry]
                if not total > 0.0:  # a node without neighbours keeps what it has
                    if share[i] == 0.0:
                        reached[found] = i
                        found += 1
                    share[i] += shares[p]
                    continue
                for entry in range(indptr[i], indptr[i + 1]):
                    j, part = indices[entry], shares[p] * (weights[entry] / total)
                    if part > 0.0:
                        if share[j] == 0.0:
                            reached[found] = j
                            found += 1
                        share[j] += part
            count = 0
            for p in range(found):
                i = reached[p]
                if share[i] >= LEAST:
                    places[count], shares[count] = i, share[i]
                    count += 1
                share[i] = 0.0
