"""FSGNN (Maurya, Liu and Murata 2022): a node's own features next to those some hops away.

Made for graphs where linked nodes need not be alike: every hop keeps its place in the hidden
layer, and an attention weighs the hops for all nodes together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from snaps._kernels.compiling import numba
from snaps.errors import SnapsError
from snaps.graph import Graph
from snaps_lab.models.matrix import CSR, Matrix, product, times
from snaps_lab.models.networks import Linear, Network, Prepared, dropout, features_of

_SHORTEST = np.float32(1e-12)  # length that a row is divided by, as torch's normalize


class Inputs(NamedTuple):
    """What the hidden layer reads: the features, and one hop without and with self loops."""

    features: Matrix
    plain: Hop
    looped: Hop


class FSGNN(Network):
    """Own features and `hops` hops without and with self loops, each through its own linear layer.

    Every layer's rows are scaled to unit length and weighed by a softmax over the layers. They
    stand side by side, and after ReLU and dropout a last layer makes the logits.

    A hop is D^-1/2 A D^-1/2, or the same with A + I, where row i of A lists the nodes that i links
    to and D holds the row sums. So on a directed graph a node reads its targets; self loops in the
    graph count, as `Graph(..., directed=True, self_loops=True)` keeps them. Features are divided
    by their row's sum of sizes.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        hidden: int = 64,
        hops: int = 3,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        if hops < 1:
            raise SnapsError(f"'hops' must be an integer of at least 1, got {hops}")
        self.dropout, self.hops = dropout, hops
        self.first = Layers(num_features, hidden, 2 * hops + 1)
        self.attention = nn.Parameter(torch.ones(2 * hops + 1))
        self.last = Linear(hidden * (2 * hops + 1), num_classes)

    def prepare(self, graph: Graph, node_sets: Sequence[np.ndarray]) -> Prepared:
        features = features_of(graph)
        scale = sp.diags_array(_inverse(abs(features).sum(axis=1)))
        shared = Inputs(
            Matrix(scale @ features), Hop(graph.adjacency), Hop(graph.adjacency, loops=True)
        )
        return Prepared(shared, [torch.from_numpy(nodes) for nodes in node_sets])

    def start(self, shared: Inputs) -> Tensor:
        """The hidden layer of all nodes, (n, layers x hidden)."""
        # A^h (X W) is as good as (A^h X) W, and keeps sparse features sparse.
        own, plain, looped = (shared.features @ self.first.weight).split([1, self.hops, self.hops])
        tables = torch.cat([own, shared.plain.powers(plain), shared.looped.powers(looped)])
        hidden: Tensor = _Hidden.apply(tables, self.first.bias, self.attention.softmax(dim=0))
        return hidden

    def finish(self, hidden: Tensor, view: Tensor) -> Tensor:
        return self.last(dropout(hidden[view], self.dropout, self.training))

    def embed(self, graph: Graph) -> Tensor:
        """The hidden layer of all nodes: what the last layer reads when there is no dropout."""
        return self.start(self.prepare(graph, []).shared)


class Layers(nn.Module):
    """Weights and biases of several linear layers of one shape."""

    def __init__(self, inputs: int, outputs: int, count: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(count, outputs))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(inputs), 1 / math.sqrt(inputs))


class Hop:
    """D^-1/2 A D^-1/2, or the same with A + I, as a product of two constant matrices.

    Nodes that link to the same others have the same row of A: the right factor holds it once, the
    left one maps each node to its row. Self loops are rows of their own.
    """

    def __init__(self, adjacency: sp.csr_array, *, loops: bool = False) -> None:
        weights = _inverse(adjacency.sum(axis=1) + loops)
        scale = sp.diags_array(np.sqrt(weights))
        first, which = _distinct_rows(adjacency)
        left = sp.csr_array(
            (np.ones(len(which)), which, np.arange(len(which) + 1)), (len(which), len(first))
        )
        right = sp.csr_array(scale @ adjacency @ scale)[first]
        if loops:
            left = sp.hstack([left, sp.eye_array(len(which))], format="csr")
            right = sp.vstack([right, sp.diags_array(weights)], format="csr")
        self._left, self._right = left, right

    @cached_property
    def rows(self) -> list[CSR]:
        """The factors in the order in which they multiply."""
        return [CSR.of(self._right), CSR.of(self._left)]

    @cached_property
    def columns(self) -> list[CSR]:
        """Those of the transpose."""
        return [CSR.of(self._left.T), CSR.of(self._right.T)]

    def powers(self, stack: Tensor) -> Tensor:
        """The first table of a stack (b, n, width) after one hop, the second after two, ..."""
        return product(self, _powers, stack)


def _powers(factors: list[CSR], stack: np.ndarray) -> np.ndarray:
    out = np.empty_like(stack)
    for hop in range(len(out)):
        for factor in factors:
            stack = times(factor, stack)
        out[hop], stack = stack[0], stack[1:]
    return out


def _distinct_rows(adjacency: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Where each distinct row first stands, and which of them each row is."""
    rows = np.split(adjacency.indices, adjacency.indptr[1:-1])
    numbers: dict[bytes, int] = {}
    which = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in rows])
    return np.unique(which, return_index=True)[1], which


def _inverse(sums: np.ndarray) -> np.ndarray:
    """One over each sum; one for a sum of zero."""
    return 1 / np.where(sums == 0, 1, sums)


# --- from the tables to the hidden layer, in one pass instead of one a step


class _Hidden(torch.autograd.Function):
    """Add the bias, scale to unit length, weigh, cut at zero, and put side by side."""

    @staticmethod
    def forward(ctx: Any, tables: Tensor, bias: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(tables, bias, weights)
        return torch.from_numpy(_forward(tables.numpy(), bias.numpy(), weights.numpy()))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        tables, bias, weights = (tensor.numpy() for tensor in ctx.saved_tensors)
        gradients = _backward(tables, bias, weights, grads[0].contiguous().numpy())
        to_tables, to_weights = map(torch.from_numpy, gradients)
        return to_tables, to_tables.sum(dim=1), to_weights.sum(dim=1)


@numba.njit(parallel=True, fastmath=True, cache=True)
def _forward(tables: np.ndarray, bias: np.ndarray, weights: np.ndarray) -> np.ndarray:
    count, n, width = tables.shape
    out = np.empty((n, count * width), np.float32)
    for i in numba.prange(n):
        for t in range(count):
            square = np.float32(0)
            for c in range(width):
                square += (tables[t, i, c] + bias[t, c]) ** 2
            scale = weights[t] / max(np.sqrt(square), _SHORTEST)
            for c in range(width):
                out[i, t * width + c] = max(scale * (tables[t, i, c] + bias[t, c]), np.float32(0))
    return out


@numba.njit(parallel=True, fastmath=True, cache=True)
def _backward(
    tables: np.ndarray, bias: np.ndarray, weights: np.ndarray, grad: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of the tables, and of the weights from each node (layers, n)."""
    count, n, width = tables.shape
    to_tables = np.empty_like(tables)
    to_weights = np.empty((count, n), np.float32)
    for i in numba.prange(n):
        for t in range(count):
            square = along = np.float32(0)
            for c in range(width):
                value = tables[t, i, c] + bias[t, c]
                square += value * value
                along += max(value, np.float32(0)) * grad[i, t * width + c]
            length = max(np.sqrt(square), _SHORTEST)
            to_weights[t, i] = along / length
            # A row grows no longer by moving along itself.
            scale, back = weights[t] / length, along / (length * length)
            for c in range(width):
                value = tables[t, i, c] + bias[t, c]
                kept = grad[i, t * width + c] if value > 0 else np.float32(0)
                to_tables[t, i, c] = scale * (kept - back * value)
    return to_tables, to_weights
