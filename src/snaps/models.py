"""`smoothed_regression`: softmax regression on features averaged over neighbourhoods (an SGC)."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

from snaps._checks import (
    check_integer,
    check_known,
    check_labels,
    check_memory,
    check_number,
    to_numpy,
)
from snaps._checks.ids import node_positions
from snaps._checks.named import align, align_mask
from snaps._runtime.memory import softmax
from snaps.errors import SnapsError
from snaps.graph import Graph

# Entries of a temporary array, which bound the memory of the work that goes in parts.
_ENTRIES = 1 << 25
# Up to so many classes, and the number of nodes, labels alone may say how many there are.
_MOST_UNNAMED = 1000

Features: TypeAlias = Any  # ndarray or csr_array; the latter has no type stubs


def smoothed_regression(
    graph: Graph,
    labels: Any,
    train_nodes: Any,
    *,
    num_classes: int | None = None,
    hops: int = 2,
    weight_decay: float = 1e-5,
    max_iter: int = 200,
) -> np.ndarray:
    """Class probabilities of every node from a linear model of its smoothed features.

    A simple graph convolution (SGC, Wu et al. 2019): features averaged `hops` times with the
    symmetric normalised adjacency with self loops, then softmax regression. Needs no torch and
    takes a second on graphs of ten thousand nodes. The problem is strictly convex, so there is
    no seed: one answer, up to the solver's tolerance.

    Parameters
    ----------
    graph : Graph
        With features. Their overall scale does not matter.
    labels : array (n,)
        Only those of `train_nodes` are learnt from; -1 where unknown.
    train_nodes : array
        Positions or a boolean mask.
    num_classes : int, optional
        One more than the largest label of any node by default.
    hops : int
        How many times features are averaged; 0 is plain softmax regression.
    weight_decay : float
        Twice the factor of the squared weights and biases in the loss, for features scaled to
        unit root mean square length over the training nodes.
    max_iter : int
        Most iterations of L-BFGS; stopping early is harmless.

    Returns
    -------
    probs : ndarray (n, num_classes), float64

    Notes
    -----
    The probabilities of training nodes are overconfident. Calibrate on other nodes.

    Examples
    --------
    >>> from snaps.datasets import make_graph
    >>> data = make_graph(500, 3, seed=0)
    >>> probs = smoothed_regression(data.graph, data.labels, np.arange(60))
    >>> probs.shape
    (500, 3)
    >>> bool((probs.argmax(axis=1) == data.labels)[60:].mean() > 0.8)
    True
    """
    if not isinstance(graph, Graph):
        raise SnapsError(f"'graph' must be a snaps.Graph, got {type(graph).__name__}")
    if graph.features is None:
        raise SnapsError("'graph' must have features, got a graph without")
    hops = check_integer(hops, "hops", low=0)
    weight_decay = check_number(weight_decay, "weight_decay", low=0)
    max_iter = check_integer(max_iter, "max_iter", low=1)
    labels = align(labels, graph, "labels")
    train_nodes = node_positions(
        graph.ids, align_mask(train_nodes, graph, "train_nodes"), "train_nodes"
    )
    if num_classes is None:
        known = to_numpy(labels, "labels")
        num_classes = max(2, int(known.max(initial=0)) + 1) if known.dtype.kind in "iu" else 2
        if num_classes > max(_MOST_UNNAMED, graph.num_nodes):
            raise SnapsError(
                f"'labels' must be classes from 0 on, got {num_classes - 1}: pass num_classes= if "
                "there are so many"
            )
    num_classes = check_integer(num_classes, "num_classes", low=2)
    check_memory(16 * num_classes * sum(graph.features.shape), "num_classes", num_classes)
    labels = check_labels(labels, num_nodes=graph.num_nodes, num_classes=num_classes)
    check_known(labels, train_nodes, "train_nodes")

    operator = _normalised_adjacency(graph)
    inputs = _smoothed_rows(operator, graph.features, train_nodes, hops)
    weights, bias = _fit(inputs, labels[train_nodes], num_classes, weight_decay, max_iter)
    # Smoothing is linear: weigh first, and only n x K numbers travel along the edges.
    logits = _product(graph.features, weights)
    for _ in range(hops):
        logits = operator @ logits
    return softmax(logits + bias)


# --- Smoothing ---------------------------------------------------------------------------------


def _normalised_adjacency(graph: Graph) -> sp.csr_array:
    """D^-1/2 (A + I) D^-1/2; a node without neighbours keeps its features as they are."""
    loops = sp.eye_array(graph.num_nodes, dtype=graph.adjacency.dtype, format="csr")
    links = sp.csr_array(graph.adjacency + loops)
    degrees = np.diff(links.indptr)
    scale = 1 / np.sqrt(degrees)
    data = np.repeat(scale, degrees)
    data *= scale[links.indices]
    return sp.csr_array((data, links.indices, links.indptr), shape=links.shape)


def _smoothed_rows(
    operator: sp.csr_array, features: Features, nodes: np.ndarray, hops: int
) -> Features:
    """Rows `nodes` of operator^hops @ features, without a dense table of all nodes and features.

    A few nodes gather from their neighbourhoods; for many nodes, whose neighbourhoods overlap,
    it is cheaper to smooth everything, some columns at a time. The costs are multiplications.
    """
    if hops == 0:
        return features[nodes]
    walks = _count_walks(operator, hops)[nodes]
    width = features.nnz / features.shape[0] if sp.issparse(features) else features.shape[1]
    if walks.sum() * (1 + width) <= hops * operator.nnz * features.shape[1]:
        return _gathered(operator, features, nodes, hops, walks)
    return _spread(operator, features, nodes, hops)


def _count_walks(operator: sp.csr_array, hops: int) -> np.ndarray:
    """Walks of length `hops` from each node: what gathering its neighbourhood costs at most."""
    # Undoing the normalisation on either side spares a second matrix.
    root = np.sqrt(np.diff(operator.indptr))
    walks = np.ones(operator.shape[0])
    for _ in range(hops):
        walks = root * (operator @ (root * walks))
    return walks


def _gathered(
    operator: sp.csr_array, features: Features, nodes: np.ndarray, hops: int, walks: np.ndarray
) -> Features:
    part = np.cumsum(walks) // _ENTRIES
    rows = []
    for group in np.split(nodes, np.flatnonzero(np.diff(part)) + 1):
        paths = operator[group]
        for _ in range(hops - 1):
            paths = paths @ operator
        rows.append(paths @ features)
    return sp.vstack(rows, format="csr") if sp.issparse(features) else np.concatenate(rows)


def _spread(operator: sp.csr_array, features: Features, nodes: np.ndarray, hops: int) -> np.ndarray:
    last = operator[nodes]
    columns = features.tocsc() if sp.issparse(features) else features
    rows = np.empty((len(nodes), features.shape[1]))
    width = max(1, _ENTRIES // features.shape[0])
    for start in range(0, features.shape[1], width):
        block = columns[:, start : start + width]
        block = block.toarray() if sp.issparse(block) else block
        block = np.ascontiguousarray(block, np.float64)
        for _ in range(hops - 1):
            block = operator @ block
        rows[:, start : start + width] = last @ block
    return rows


def _product(features: Features, weights: np.ndarray) -> np.ndarray:
    """features @ weights in double precision, without a double copy of the features."""
    if sp.issparse(features):
        return features @ weights
    product = np.empty((len(features), weights.shape[1]))
    rows = max(1, _ENTRIES // features.shape[1])
    for start in range(0, len(features), rows):
        product[start : start + rows] = features[start : start + rows] @ weights
    return product


# --- Fitting -----------------------------------------------------------------------------------


def _fit(
    inputs: Features, targets: np.ndarray, num_classes: int, weight_decay: float, max_iter: int
) -> tuple[np.ndarray, np.ndarray]:
    """Weights (d, K) and bias (K,) of the softmax regression of `targets` on `inputs`."""
    size = math.prod(inputs.shape)
    # Neighbourhoods share most words: past a tenth, a sparse table is slower than a dense one.
    if sp.issparse(inputs) and (size <= _ENTRIES or inputs.nnz > 0.1 * size):
        inputs = inputs.toarray()
    values = inputs.data if sp.issparse(inputs) else inputs
    length = math.sqrt(np.square(values, dtype=np.float64).sum() / inputs.shape[0]) or 1.0
    # The same decay then means the same for features of any scale.
    inputs = inputs.astype(np.float64) / length
    basis = None
    if not sp.issparse(inputs) and inputs.shape[0] < inputs.shape[1]:
        # The best weights combine the training rows, so a basis of these rows is all it takes:
        # as many unknowns a class as there are training nodes, not features.
        basis, triangle = np.linalg.qr(inputs.T)
        inputs = triangle.T
    start = np.zeros((inputs.shape[1] + 1) * num_classes)
    arguments, options = (inputs, targets, weight_decay), {"maxiter": max_iter}
    best = minimize(_loss, start, arguments, method="L-BFGS-B", jac=True, options=options)
    solution = best.x.reshape(-1, num_classes)
    weights = solution[:-1] if basis is None else basis @ solution[:-1]
    return weights / length, solution[-1]


def _loss(
    flat: np.ndarray, inputs: Features, targets: np.ndarray, weight_decay: float
) -> tuple[float, np.ndarray]:
    """Mean cross-entropy plus weight decay, and the gradient; the last row of `flat` is the bias.

    The bias decays too: the minimum is then unique even if a class has no training node.
    """
    table = flat.reshape(inputs.shape[1] + 1, -1)
    count = len(targets)
    logits = inputs @ table[:-1] + table[-1]
    logits -= logits.max(axis=1, keepdims=True)
    own = logits[np.arange(count), targets]
    probs = np.exp(logits, out=logits)
    sums = probs.sum(axis=1)
    value = (np.log(sums) - own).mean() + weight_decay / 2 * (flat @ flat)

    probs /= sums[:, None]
    probs[np.arange(count), targets] -= 1
    gradient = weight_decay * table
    gradient[:-1] += inputs.T @ probs / count
    gradient[-1] += probs.mean(axis=0)
    return float(value), gradient.ravel()
