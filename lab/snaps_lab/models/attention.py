"""Graph attention (GAT) over the edges of a CSR block, without an array of edges times width.

A head scores the edge j -> i by leaky_relu(source[j] + target[i]), takes the softmax over the
edges into i, and averages the values of the j with these weights. One pass over the rows does all
of it; the gradient takes one pass over the rows and one over the columns. The largest arrays hold
a number per edge and head.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from snaps._kernels.compiling import numba
from snaps_lab.models.matrix import CSR

_SLOPE = np.float32(0.2)  # of the leaky ReLU


class Hop:
    """The edges into some target nodes: row i of `block` stores the sources of target i.

    Parameters
    ----------
    block : SciPy sparse matrix of shape (targets, sources)
        Only where it stores entries matters; each row must store one.
    positions : array (targets,)
        Where the targets stand among the sources.
    """

    def __init__(self, block: Any, positions: np.ndarray) -> None:
        self.shape: tuple[int, int] = block.shape
        self.positions = torch.from_numpy(positions)
        self.indptr, self.indices, _ = CSR.of(block)
        self.num_edges = len(self.indices)

    @cached_property
    def by_source(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same edges by source: the sources' pointers, then each edge's target and number."""
        edges = np.arange(self.num_edges)
        block = sp.csr_array((edges, self.indices, self.indptr), shape=self.shape).tocsc()
        return block.indptr.astype(np.int64), block.indices.astype(np.int32), block.data


def attend(
    hop: Hop, values: Tensor, source: Tensor, target: Tensor, keep: Tensor | None = None
) -> Tensor:
    """Average the values of each target's sources, weighted by attention.

    Parameters
    ----------
    hop : Hop
        The edges.
    values : Tensor of shape (heads, sources, width)
        What is averaged.
    source, target : Tensor of shape (heads, width)
        A node's part in the score of an edge is the product of its values with these.
    keep : Tensor of shape (heads, edges), optional
        A factor on each weight after the softmax: the scaled mask of attention dropout.

    Returns
    -------
    Tensor of shape (heads, targets, width)
    """
    if keep is None:
        keep = torch.ones(values.shape[0], hop.num_edges)
    out: Tensor = _Attend.apply(values.contiguous(), source, target, keep, hop)
    return out


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: Tensor, source: Tensor, target: Tensor, keep: Tensor, hop: Hop
    ) -> Tensor:
        of_source = _row_products(values, source).numpy()
        of_target = _row_products(values, target)[:, hop.positions].numpy()
        out, weights = _forward(
            hop.indptr, hop.indices, values.numpy(), of_source, of_target, keep.numpy()
        )
        ctx.hop, ctx.scores = hop, (of_source, of_target, weights)
        ctx.save_for_backward(values, source, target, keep)
        return torch.from_numpy(out)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        values, source, target, keep = ctx.saved_tensors
        of_source, of_target, weights = ctx.scores
        hop, grad = ctx.hop, grads[0].contiguous().numpy()
        edges, targets = _backward_rows(
            hop.indptr,
            hop.indices,
            values.numpy(),
            of_source,
            of_target,
            keep.numpy(),
            weights,
            grad,
        )
        to_target = torch.zeros(values.shape[:2])
        to_target[:, hop.positions] = torch.from_numpy(targets)
        # A node's values count on their own, and through its two parts in the scores.
        to_values = to_target[:, :, None] * target[:, None, :]
        indptr, indices, order = hop.by_source
        kept = weights * keep.numpy()
        sources = _backward_columns(
            indptr, indices, order, kept, edges, grad, source.numpy(), to_values.numpy()
        )
        to_source = torch.from_numpy(sources)
        vectors = _weighted_sums(to_source, values), _weighted_sums(to_target, values)
        return to_values, *vectors, None, None


def _row_products(values: Tensor, vectors: Tensor) -> Tensor:
    """(heads, nodes, width) times (heads, width), summed over the width."""
    return (values @ vectors[:, :, None]).squeeze(2)


def _weighted_sums(weights: Tensor, values: Tensor) -> Tensor:
    """(heads, nodes) times (heads, nodes, width), summed over the nodes."""
    return (weights[:, None, :] @ values).squeeze(1)


@numba.njit(parallel=True, fastmath=True, cache=True)
def _forward(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    source: np.ndarray,
    target: np.ndarray,
    keep: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Averages (heads, targets, width), and the softmax weights (heads, edges) before `keep`."""
    heads, _, width = values.shape
    rows = len(indptr) - 1
    out = np.zeros((heads, rows, width), np.float32)
    weights = np.empty((heads, len(indices)), np.float32)
    for task in numba.prange(heads * rows):
        h, i = task // rows, task % rows
        highest = np.float32(-np.inf)
        for e in range(indptr[i], indptr[i + 1]):
            score = source[h, indices[e]] + target[h, i]
            weights[h, e] = score if score > 0 else _SLOPE * score
            highest = max(highest, weights[h, e])
        total = np.float32(0)
        for e in range(indptr[i], indptr[i + 1]):
            weights[h, e] = np.exp(weights[h, e] - highest)
            total += weights[h, e]
        for e in range(indptr[i], indptr[i + 1]):
            weights[h, e] /= total
            weight, j = weights[h, e] * keep[h, e], indices[e]
            for c in range(width):
                out[h, i, c] += weight * values[h, j, c]
    return out, weights


@numba.njit(parallel=True, fastmath=True, cache=True)
def _backward_rows(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    source: np.ndarray,
    target: np.ndarray,
    keep: np.ndarray,
    weights: np.ndarray,
    grad: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of the edges' source[j] + target[i], and their sums over each row."""
    heads, _, width = values.shape
    rows = len(indptr) - 1
    scores = np.empty((heads, len(indices)), np.float32)
    to_target = np.empty((heads, rows), np.float32)
    for task in numba.prange(heads * rows):
        h, i = task // rows, task % rows
        mean = np.float32(0)
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            dot = np.float32(0)
            for c in range(width):
                dot += grad[h, i, c] * values[h, j, c]
            scores[h, e] = dot * keep[h, e]
            mean += weights[h, e] * scores[h, e]
        total = np.float32(0)
        for e in range(indptr[i], indptr[i + 1]):
            slope = np.float32(1) if source[h, indices[e]] + target[h, i] > 0 else _SLOPE
            scores[h, e] = slope * weights[h, e] * (scores[h, e] - mean)
            total += scores[h, e]
        to_target[h, i] = total
    return scores, to_target


@numba.njit(parallel=True, fastmath=True, cache=True)
def _backward_columns(
    indptr: np.ndarray,
    indices: np.ndarray,
    edges: np.ndarray,
    weights: np.ndarray,
    scores: np.ndarray,
    grad: np.ndarray,
    source: np.ndarray,
    to_values: np.ndarray,
) -> np.ndarray:
    """Sum the gradients of the edges' scores over each column, and add to those of the values."""
    heads, columns, width = to_values.shape
    to_source = np.empty((heads, columns), np.float32)
    for task in numba.prange(heads * columns):
        h, j = task // columns, task % columns
        total = np.float32(0)
        for p in range(indptr[j], indptr[j + 1]):
            e, i = edges[p], indices[p]
            total += scores[h, e]
            for c in range(width):
                to_values[h, j, c] += weights[h, e] * grad[h, i, c]
        for c in range(width):
            to_values[h, j, c] += total * source[h, c]
        to_source[h, j] = total
    return to_source
