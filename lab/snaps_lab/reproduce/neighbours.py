"""One similarity graph with many neighbours a node serves every smaller number of them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import scipy.sparse as sp

from snaps.datasets import Dataset
from snaps.similarity import similarity_graph
from snaps_lab.reproduce import runner
from snaps_lab.reproduce.runner import Setting

KS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000)
MOST_ENTRIES = 50_000_000  # of a similarity graph that is made for these figures


def counts_of(data: Dataset) -> list[int]:
    """The numbers of neighbours to look at: all of KS that the graph and the memory allow."""
    n = data.graph.num_nodes
    largest = min(n - 1, max(runner.K, MOST_ENTRIES // n))
    return [k for k in KS if k <= largest]


@lru_cache(maxsize=1)
def widest_graph(name: str, setting: Setting) -> sp.csr_array:
    """The similarity graph with the most neighbours looked at, most similar first."""
    data = runner.dataset(name, setting)
    return similarity_graph(
        data.graph.features,
        counts_of(data)[-1],
        ids=data.graph.keys,
        candidates=runner.CANDIDATES.get(name),
    )


def ranks_in_rows(graph: sp.csr_array) -> np.ndarray:
    """The rank of every entry in its row, from 0."""
    return np.arange(graph.nnz) - np.repeat(graph.indptr[:-1], np.diff(graph.indptr))


def nearest(graph: sp.csr_array, k: int) -> sp.csr_array:
    """The graph of the first k neighbours of every row."""
    keep = ranks_in_rows(graph) < k
    indptr = np.concatenate([[0], np.cumsum(np.minimum(np.diff(graph.indptr), k))])
    return sp.csr_array((graph.data[keep], graph.indices[keep], indptr), shape=graph.shape)
