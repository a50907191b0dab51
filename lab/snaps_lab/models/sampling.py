"""Sampled neighbourhoods: training where the full batch does not fit into memory.

A batch is a graph of its own (GraphSAGE, Hamilton et al. 2017): seed nodes, some neighbours of
each, some neighbours of those. The weights of sampled edges make up for the edges left out, so a
sum over neighbours is right on average and a node's weighted degree is that in the whole graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from torch import nn

from snaps._checks import check_integer, machine_memory
from snaps.errors import SnapsError
from snaps.graph import Graph

FANOUTS = (15, 10, 5)
BATCH_SIZE = 1024
# Bytes of a full batch, fitted to the growth of processes that trained GCNs of three layers on
# 40,000 nodes, with hidden layers of 64 and 256 and degrees of 4 and 60: within a sixth of it.
_BYTES_PER_OUTPUT = 24
_BYTES_PER_EDGE = 100
# Share of the machine's memory that a full batch may take.
_SHARE = 0.7


class Neighbourhood(Graph):
    """A sampled part of a graph, whose outermost nodes lack their own neighbours."""


class Batch(NamedTuple):
    """A neighbourhood, its nodes' positions in the whole graph, and where its seeds stand in it."""

    graph: Neighbourhood
    nodes: np.ndarray
    seeds: np.ndarray


class Sampler:
    """Draws neighbourhoods from a graph.

    Parameters
    ----------
    graph : Graph
        The whole graph; edges are followed backwards, from target to source.
    fanouts : sequence of int
        Most neighbours to sample per node: of the seeds, of those sampled for them, and so on.

    Examples
    --------
    >>> star = Graph([[0, 0, 0, 0], [1, 2, 3, 4]], features=np.eye(5))
    >>> batch = Sampler(star, [2]).around(np.array([0]), np.random.default_rng(0))
    >>> batch.graph.num_nodes
    3
    """

    def __init__(self, graph: Graph, fanouts: Sequence[int] = FANOUTS) -> None:
        self._fanouts = [check_integer(fanout, "fanouts", low=1) for fanout in fanouts]
        if not self._fanouts:
            raise SnapsError("'fanouts' must hold at least one integer, got none")
        self._features = graph.features
        incoming = sp.csr_array(graph.adjacency.T) if graph.directed else graph.adjacency
        self._loops = incoming.diagonal()
        if self._loops.any():
            incoming = incoming - sp.diags_array(self._loops)
            incoming.eliminate_zeros()
        self._incoming = sp.csr_array(incoming)
        self._sums = self._incoming.sum(axis=1)

    def batches(self, nodes: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[Batch]:
        """The neighbourhoods of all these nodes, of about equally many seeds, `size` at most."""
        order = rng.permutation(nodes)
        for seeds in np.array_split(order, -(-len(order) // size)):
            yield self.around(seeds, rng)

    def around(self, seeds: np.ndarray, rng: np.random.Generator) -> Batch:
        """One neighbourhood of these nodes."""
        seen = np.zeros(len(self._sums), bool)
        frontier, edges = seeds, []
        for fanout in self._fanouts:
            seen[frontier] = True
            edges.append(self._sample(frontier, fanout, rng))
            sources = edges[-1][0]
            frontier = np.unique(sources[~seen[sources]])
        inner = np.flatnonzero(seen & (self._loops > 0))
        edges.append((inner, inner, self._loops[inner]))
        # What an outermost node would have read from others it reads from itself, so that its
        # degree is that of the whole graph.
        own = np.maximum(self._loops[frontier], 1) + self._sums[frontier]
        edges.append((frontier, frontier, own))
        seen[frontier] = True
        nodes = np.flatnonzero(seen)
        source, target, weights = (np.concatenate(parts) for parts in zip(*edges, strict=True))
        graph = Neighbourhood(
            np.searchsorted(nodes, np.stack([source, target])),
            self._features[nodes],
            directed=True,
            self_loops=True,
            weighted=True,
            edge_weights=weights,
        )
        return Batch(graph, nodes, np.searchsorted(nodes, seeds))

    def _sample(
        self, nodes: np.ndarray, fanout: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sources, targets and weights of at most `fanout` edges into each node."""
        begin = self._incoming.indptr[nodes].astype(np.int64)
        counts = self._incoming.indptr[nodes + 1] - begin
        taken = np.minimum(counts, fanout)
        row = np.repeat(np.arange(len(nodes)), taken)
        chosen = np.arange(len(row)) - (np.cumsum(taken) - taken)[row]
        many = counts > fanout
        if many.any():
            chosen[many[row]] = _distinct(counts[many], fanout, rng).ravel()
        picked = begin[row] + chosen
        weights = self._incoming.data[picked].astype(np.float64)
        sampled = np.bincount(row, weights, minlength=len(nodes))
        weights *= self._sums[nodes][row] / sampled[row]
        return self._incoming.indices[picked], nodes[row], weights


def _distinct(counts: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """For each count, `size` distinct integers below it, every choice as likely (Floyd 1987)."""
    out = np.empty((len(counts), size), np.int64)
    for k in range(size):
        top = counts - size + k
        drawn = rng.integers(0, top + 1)
        again = (out[:, :k] == drawn[:, None]).any(axis=1)
        out[:, k] = np.where(again, top, drawn)
    return out


def full_batch_bytes(module: nn.Module, graph: Graph) -> int:
    """About how many bytes the training of a network takes with the whole graph in one batch."""
    widths = sum(p.numel() // p.shape[-2] for p in module.parameters() if p.ndim > 1)
    edges = graph.adjacency.nnz + graph.num_nodes
    return graph.num_nodes * widths * _BYTES_PER_OUTPUT + edges * _BYTES_PER_EDGE


def fitting_batch_size(module: nn.Module, graph: Graph, memory: float | None = None) -> int | None:
    """None where the full batch fits into memory, this machine's by default; else a size."""
    available = machine_memory() if memory is None else memory
    return None if full_batch_bytes(module, graph) <= _SHARE * available else BATCH_SIZE
