"""Parts of `Pooled` as the library makes them."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

import snaps
from snaps._runtime.randomness import node_keys
from snaps.scoring import context as _context
from snaps.scoring import pooling
from snaps.scoring.evidence import Evidence
from snaps.scoring.local import Inputs
from snaps.scoring.parts import Context

SEED = 20251
TRAIN = np.arange(80)


def evidence_of(nodes, labels):
    nodes = nodes[np.argsort(node_keys(nodes))]
    return Evidence(nodes, node_keys(nodes), labels[nodes])


def context_graph(graph, k):
    table = _context.context_features(graph.adjacency, _context.summary(graph))
    return snaps.similarity_graph(table, k, ids=graph.keys)


def tables(graph, probs, similar, context, known, names=pooling.PARTS):
    """The parts as the library makes them, in logarithms."""
    inputs = Inputs(graph, probs, similar).holding({Context(4): context})
    weights = dict.fromkeys(pooling.PARTS, 1 / 8)
    scorer = pooling.FittedPooling(snaps.THR(), 0, 4, known, weights, np.zeros(probs.shape[1]))
    parts = scorer.parts
    return {name: scorer.shown(name, inputs.get(parts[name])) for name in names}


def labellings(nodes, num_classes):
    """Label codes of all nodes, of which none, few, some or most are known."""
    random = np.random.default_rng(3)
    codes = random.integers(0, num_classes, nodes)
    return [np.where(random.random(nodes) < share, codes, -1) for share in (0.0, 0.02, 0.1, 0.9)]


def without_links(matrix, node):
    """A node without neighbours keeps what it has."""
    kept = np.ones(matrix.shape[0])
    kept[node] = 0
    return sp.csr_array(sp.diags_array(kept) @ matrix)
