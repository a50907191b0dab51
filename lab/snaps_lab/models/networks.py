"""The paper's node classifiers: MLP, GCN, GAT, APPNP.

A loss on a few nodes reads their neighbourhood and nothing else. So a network first prepares the
constant matrices for the nodes it will be asked about, at the size of that neighbourhood, and then
runs in two steps: `start`, up to the first dropout, is the costly one and the same for training
and validation, which share it; `finish` is done for each.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from snaps.errors import SnapsError
from snaps.graph import Graph
from snaps_lab.models.attention import Hop, attend
from snaps_lab.models.matrix import Matrix, Walk, dense_cost, product_cost
from snaps_lab.models.sampling import Neighbourhood

# Most entries of the matrix that stands for a whole walk: half a gigabyte.
_WALK_ENTRIES = 1 << 27
# Nodes whose rows are made at a time where memory counts.
_BLOCK = 1 << 16
# The least probability whose logarithm is taken.
_TINY = 1e-7


class Prepared(NamedTuple):
    """A graph as a network wants it: what `start` reads, and what `finish` reads per node set."""

    shared: Any
    views: list[Any]


class Network(nn.Module):
    """A node classifier that runs in two steps.

    `network.finish(network.start(prepared.shared), prepared.views[k])` are the logits of the k-th
    node set. `start` must not depend on whether the network is in training mode.
    """

    @abstractmethod
    def prepare(self, graph: Graph, node_sets: Sequence[np.ndarray]) -> Prepared:
        """Build the constant inputs for the logits of these node sets."""

    @abstractmethod
    def start(self, shared: Any) -> Any:
        """Compute what comes before the first dropout."""

    @abstractmethod
    def finish(self, hidden: Any, view: Any) -> Tensor:
        """Compute the logits of one node set."""

    def forward(self, graph: Graph) -> Tensor:
        """Logits of all nodes, (n, K)."""
        prepared = self.prepare(graph, [np.arange(graph.num_nodes)])
        return self.finish(self.start(prepared.shared), prepared.views[0])

    def infer(self, graph: Graph) -> Tensor:
        """The same without gradients, with as little memory as the network allows."""
        with torch.no_grad():
            logits: Tensor = self(graph)
        return logits


class Wrapped(Network):
    """Any module that maps `(x, edge_index)` to the logits of all nodes, as in PyTorch Geometric.

    The features are passed as a dense tensor.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def prepare(self, graph: Graph, node_sets: Sequence[np.ndarray]) -> Prepared:
        features = features_of(graph)
        features = features.toarray() if sp.issparse(features) else features
        # A row of the adjacency lists where its node's edges lead: the row is the source.
        edges = torch.from_numpy(np.stack(graph.adjacency.nonzero()).astype(np.int64))
        shared = torch.from_numpy(np.asarray(features, np.float32)), edges
        return Prepared(shared, [torch.from_numpy(nodes) for nodes in node_sets])

    def start(self, shared: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return shared

    def finish(self, hidden: tuple[Tensor, Tensor], view: Tensor) -> Tensor:
        logits: Tensor = self.module(*hidden)
        return logits[view]


class MLP(Network):
    """Two linear layers on a node's own features; reads no edge."""

    def __init__(
        self, num_features: int, num_classes: int, *, hidden: int = 64, dropout: float = 0.8
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.first = Linear(num_features, hidden)
        self.last = Linear(hidden, num_classes)

    def prepare(self, graph: Graph, node_sets: Sequence[np.ndarray]) -> Prepared:
        union = _union(node_sets)
        return Prepared(Matrix(features_of(graph)[union]), [_places(s, union) for s in node_sets])

    def start(self, shared: Matrix) -> Tensor:
        return self.first(shared)

    def finish(self, hidden: Tensor, view: Tensor) -> Tensor:
        return self.last(dropout(F.relu(hidden[view]), self.dropout, self.training))


class GCN(Network):
    """Graph convolutions (Kipf and Welling 2017) with self loops and symmetric normalisation."""

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.8,
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        if layers < 2:
            raise SnapsError(f"'layers' must be an integer of at least 2, got {layers}")
        self.dropout = dropout
        widths = [num_features, *[hidden] * (layers - 1), num_classes]
        self.convolutions = nn.ModuleList(Linear(i, o, glorot=True) for i, o in pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(layers - 1) if batch_norm)

    def prepare(self, graph: Graph, node_sets: Sequence[np.ndarray]) -> Prepared:
        adjacency = _normalised(graph)
        hops = len(self.convolutions) - 1
        # The statistics of a batch norm are taken over all nodes that have their neighbours.
        whole = not isinstance(graph, Neighbourhood)
        everything = np.arange(graph.num_nodes) if self.norms and whole else None
        hidden = _fields(adjacency, _union(node_sets), hops, everything)[-1]
        views = []
        for nodes in node_sets:
            fields = _fields(adjacency, nodes, hops - 1, everything)
            inwards = [hidden, *fields[::-1]]
            views.append([Matrix(adjacency[to][:, of]) for of, to in pairwise(inwards)])
        return Prepared(_aggregation(adjacency[hidden], features_of(graph)), views)

    def start(self, shared: list[Matrix]) -> Tensor:
        *aggregate, features = shared
        return self.convolutions[0](features, *aggregate)

    def finish(self, hidden: Tensor, view: list[Matrix]) -> Tensor:
        for layer, block in enumerate(view):
            if self.norms:
                hidden = self.norms[layer](hidden)
            hidden = dropout(F.relu(hidden), self.dropout, self.training)
            hidden = self.convolutions[layer + 1](hidden, block)
        return hidden

    def infer(self, graph: Graph) -> Tensor:
        """Layer by layer, in blocks of nodes: a few tables of the widest layer's size."""
        adjacency, hidden = _normalised(graph), features_of(graph)
        with torch.no_grad():
            for layer in range(len(self.convolutions)):
                hidden = self._layer_of_all(layer, adjacency, hidden)
        logits: Tensor = hidden
        return logits

    def _layer_of_all(self, layer: int, adjacency: sp.csr_array, inputs: Any) -> Tensor:
        convolution: Any = self.convolutions[layer]
        shape = adjacency.shape[0], convolution.weight.shape[1]

        def linear(block: slice) -> Tensor:
            if layer == 0:
                return Matrix(inputs[block]) @ convolution.weight
            rows = self.norms[layer - 1](inputs[block]) if self.norms else inputs[block]
            return F.relu(rows) @ convolution.weight

        values = _in_blocks(shape, linear)
        return _in_blocks(shape, lambda block: Matrix(adjacency[block]) @ values + convolution.bias)


class Corrector(Network):
    """Layers of graph convolution or one-headed attention, with dropout before each of them.

    The network of CF-GNN (Huang et al. 2023), whose features are another model's probabilities.
    With `residual` it adds to their logarithms, so that it starts near that model.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        attention: bool,
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.5,
        residual: bool = True,
    ) -> None:
        super().__init__()
        self.attention, self.dropout, self.residual = attention, dropout, residual
        widths = [num_features, *[hidden] * (layers - 1), num_classes]
        self.layers = nn.ModuleList(
            Attention(i, o, 1, 0.0) if attention else Linear(i, o, glorot=True)
            for i, o in pairwise(widths)
        )

    def prepare(self, graph: Graph, node_sets: Sequence[np.ndarray]) -> Prepared:
        adjacency = _with_loops(graph) if self.attention else _normalised(graph)
        views = []
        for nodes in node_sets:
            inwards = _fields(adjacency, nodes, len(self.layers))[::-1]
            blocks = [
                _hop(adjacency, to, of) if self.attention else Matrix(adjacency[to][:, of])
                for of, to in pairwise(inwards)
            ]
            views.append((torch.from_numpy(inwards[0]), blocks, torch.from_numpy(nodes)))
        return Prepared(torch.from_numpy(np.asarray(features_of(graph), np.float32)), views)

    def start(self, shared: Tensor) -> Tensor:
        return shared

    def finish(self, hidden: Tensor, view: tuple[Tensor, list[Any], Tensor]) -> Tensor:
        sources, blocks, targets = view
        probs, hidden = hidden[targets], hidden[sources]
        for number, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            hidden = dropout(F.relu(hidden) if number else hidden, self.dropout, self.training)
            # An attention layer takes the values that its sources send.
            values = hidden @ layer.weight if isinstance(layer, Attention) else hidden
            hidden = layer(values, block)
        return hidden + torch.log(probs.clamp_min(_TINY)) if self.residual else hidden


class APPNP(Network):
    """A linear network whose outputs walk over the graph (Gasteiger et al. 2019).

    `hops` steps of the normalised adjacency with self loops, each returning to the start with
    probability `teleport`.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        hidden: int = 64,
        dropout: float = 0.5,
        hops: int = 10,
        teleport: float = 0.1,
    ) -> None:
        super().__init__()
        self.dropout, self.hops, self.teleport = dropout, hops, teleport
        self.first = Linear(num_features, hidden, bias=False)
        self.last = Linear(hidden, num_classes, bias=False)

    def prepare(self, graph: Graph, node_sets: Sequence[np.ndarray]) -> Prepared:
        adjacency = _normalised(graph)
        views = [self._view(adjacency, nodes) for nodes in node_sets]
        return Prepared(Matrix(features_of(graph)), views)

    def _view(self, adjacency: sp.csr_array, nodes: np.ndarray) -> tuple[Matrix | Walk, Tensor]:
        """The walk, and where to read its end."""
        targets, sources = len(nodes), adjacency.shape[0]
        steps = self.hops * adjacency.nnz
        if dense_cost(targets, sources) > steps or targets * sources > _WALK_ENTRIES:
            return Walk(adjacency, self.hops, self.teleport), torch.from_numpy(nodes)
        # Few nodes: their rows of the walk's matrix, found by a walk backwards, replace its steps.
        chosen = torch.zeros(sources, targets)
        chosen[torch.from_numpy(nodes), torch.arange(targets)] = 1
        rows = (Walk(adjacency.T, self.hops, self.teleport) @ chosen).T
        return Matrix(rows.numpy()), torch.arange(targets)

    def start(self, shared: Matrix) -> Tensor:
        return F.relu(self.first(shared))

    def finish(self, hidden: Tensor, view: tuple[Matrix | Walk, Tensor]) -> Tensor:
        walk, rows = view
        return (walk @ self.last(dropout(hidden, self.dropout, self.training)))[rows]


class GAT(Network):
    """Graph attention (Velickovic et al. 2018): several heads side by side, then a single one.

    `attention_dropout` acts on the first layer.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        hidden: int = 64,
        heads: int = 8,
        dropout: float = 0.6,
        attention_dropout: float = 0.3,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.first = Attention(num_features, hidden, heads, attention_dropout)
        self.last = Attention(heads * hidden, num_classes, 1, 0.0)

    def prepare(self, graph: Graph, node_sets: Sequence[np.ndarray]) -> Prepared:
        adjacency = _with_loops(graph)
        sources = _fields(adjacency, _union(node_sets), 2)[-1]
        views = []
        for nodes in node_sets:
            targets, middle = _fields(adjacency, nodes, 1)
            views.append([_hop(adjacency, middle, sources), _hop(adjacency, targets, middle)])
        return Prepared(Matrix(features_of(graph)[sources]), views)

    def start(self, shared: Matrix) -> Tensor:
        return shared @ self.first.weight

    def finish(self, hidden: Tensor, view: list[Hop]) -> Tensor:
        out = F.elu(self.first(hidden, view[0]))
        out = dropout(out, self.dropout, self.training)
        return self.last(out @ self.last.weight, view[1])


class Linear(nn.Module):
    """A linear layer whose input may be a constant matrix, and whose output may be aggregated."""

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool = True, glorot: bool = False
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        # The habits of torch's Linear and of PyTorch Geometric's convolutions.
        if glorot:
            nn.init.xavier_uniform_(self.weight)
        else:
            bound = 1 / math.sqrt(inputs)
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -bound, bound)

    def forward(self, inputs: Matrix | Tensor, *aggregate: Matrix) -> Tensor:
        out = inputs @ self.weight
        for matrix in aggregate:
            out = matrix @ out
        return out if self.bias is None else out + self.bias


class Attention(nn.Module):
    """One attention layer; its heads' outputs stand side by side."""

    def __init__(self, inputs: int, outputs: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.weight = nn.Parameter(torch.empty(heads, inputs, outputs))
        self.source = nn.Parameter(torch.empty(heads, outputs))
        self.target = nn.Parameter(torch.empty(heads, outputs))
        self.bias = nn.Parameter(torch.zeros(heads * outputs))
        # Glorot over all heads together, as PyTorch Geometric does.
        _glorot(self.weight, inputs + heads * outputs)
        _glorot(self.source, heads + outputs)
        _glorot(self.target, heads + outputs)

    def forward(self, values: Tensor, hop: Hop) -> Tensor:
        """Attend over the values that the sources send, which are `inputs @ self.weight`."""
        keep = None
        if self.training and self.dropout:
            keep = dropout_mask((len(values), hop.num_edges), self.dropout)
        out = attend(hop, values, self.source, self.target, keep)
        return out.transpose(0, 1).flatten(1) + self.bias


def _glorot(parameter: Tensor, fans: int) -> None:
    bound = math.sqrt(6 / fans)
    nn.init.uniform_(parameter, -bound, bound)


# --- dropout


def dropout(inputs: Tensor, rate: float, training: bool) -> Tensor:
    """Dropout; torch's own draws take longer than the products around them."""
    if not training or rate == 0:
        return inputs
    return inputs * dropout_mask(inputs.shape, rate)


def dropout_mask(shape: Sequence[int], rate: float) -> Tensor:
    """Zeros with probability `rate` (to 16 bits), and else the factor that keeps the mean."""
    size = math.prod(shape)
    words = torch.empty(-(-size // 4), dtype=torch.int64).random_(-(2**63), None)
    kept = round((1 - rate) * 2**16)
    draws = words.view(torch.int16)[:size].view(*shape)
    return (draws < kept - 2**15) * (2**16 / kept)


# --- the part of a graph that a network reads


def features_of(graph: Graph) -> Any:
    """The graph's features, which must be there."""
    if graph.features is None:
        raise SnapsError("'graph' must have features, got a graph without")
    return graph.features


def _with_loops(graph: Graph) -> sp.csr_array:
    """Row i: the nodes whose edges lead to i, and i itself."""
    incoming = graph.adjacency.T if graph.directed else graph.adjacency
    loops = sp.eye_array(graph.num_nodes, dtype=np.float32, format="csr")
    return sp.csr_array(incoming).maximum(loops)


def _normalised(graph: Graph) -> sp.csr_array:
    """D^-1/2 (A + I) D^-1/2."""
    adjacency = _with_loops(graph)
    scale = sp.diags_array(1 / np.sqrt(adjacency.sum(axis=1)))
    return sp.csr_array(scale @ adjacency @ scale, dtype=np.float32)


def _fields(
    adjacency: sp.csr_array, nodes: np.ndarray, hops: int, everything: np.ndarray | None = None
) -> list[np.ndarray]:
    """The nodes, then the nodes within one hop of them, and so on (or all of them at once)."""
    fields = [nodes]
    for _ in range(hops):
        reached = np.unique(adjacency[fields[-1]].indices) if everything is None else everything
        fields.append(reached)
    return fields


def _in_blocks(shape: tuple[int, int], rows: Callable[[slice], Tensor]) -> Tensor:
    """A table whose rows are made block by block."""
    out = torch.empty(shape)
    for start in range(0, shape[0], _BLOCK):
        block = slice(start, start + _BLOCK)
        out[block] = rows(block)
    return out


def _union(node_sets: Sequence[np.ndarray]) -> np.ndarray:
    return np.unique(np.concatenate(node_sets))


def _places(nodes: np.ndarray, among: np.ndarray) -> Tensor:
    """Where nodes stand in a sorted array that holds them."""
    return torch.from_numpy(np.searchsorted(among, nodes))


def _hop(adjacency: sp.csr_array, targets: np.ndarray, sources: np.ndarray) -> Hop:
    return Hop(adjacency[targets][:, sources], np.searchsorted(sources, targets))


def _aggregation(rows: sp.csr_array, features: Any) -> list[Matrix]:
    """Factors of rows @ features: their product where it is sure to be cheaper, else the two."""
    reached = np.unique(rows.indices)
    rows, features = rows[:, reached], features[reached]
    bound = dense_cost(rows.shape[0], features.shape[1])
    if sp.issparse(features):
        # The product stores at most an entry for each edge and each feature of its source.
        bound = min(bound, float(np.diff(features.indptr)[rows.indices].sum()))
    if bound <= product_cost(rows) + product_cost(features):
        return [Matrix(rows @ features)]
    return [Matrix(rows), Matrix(features)]
