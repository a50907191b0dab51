"""`make_graph`: random graphs with labels and features, from a handful of nodes to millions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._checks import check_integer, check_number, check_seed
from snaps.datasets.dataset import Dataset
from snaps.errors import SnapsError
from snaps.graph import Graph

# Rows worked on at a time: bounds the temporary arrays, whatever the size of the graph.
_CHUNK = 1 << 21
# Average entries a node has in the hat that edges are drawn from; enough to tell degrees apart.
_TICKETS = 16
# A bag of words: how many words a node draws on average, and the share of them a topic prefers.
_WORDS = 30
_TOPIC = 0.1


def make_graph(
    num_nodes: int = 2000,
    num_classes: int = 5,
    *,
    homophily: float = 0.8,
    degree: float = 8.0,
    tail: float | None = 2.5,
    imbalance: float = 0.0,
    features: str = "words",
    num_features: int | None = None,
    signal: float = 1.0,
    seed: int = 0,
) -> Dataset:
    """Make a random graph whose links and features both tell something of the label.

    A degree-corrected planted partition. Two million nodes of degree 50 with 100 dense features
    take about half a minute and 4 GB, most of both for the edges.

    Parameters
    ----------
    num_nodes, num_classes : int
        At least two classes, and a node for each.
    homophily : float
        Share of the edges that join equal labels, from 0 to 1; met exactly, up to rounding. Low
        homophily gives the nodes of small classes more neighbours than others, as it must.
    degree : float
        Mean number of neighbours; met exactly, up to rounding. Single nodes may have none.
    tail : float or None
        Exponent (above 2) of the power law that nodes' expected degrees follow up to
        sqrt(num_nodes * degree), about where hubs would have to repeat edges; None: all equal.
    imbalance : float
        Class c holds a share of nodes proportional to (c + 1) ** -imbalance; 0: equal classes.
    features : "words" or "dense"
        Binary bags of words (CSR, float32): a Zipf-like background in which each class prefers a
        tenth of the words, and these topics overlap. Or Gaussian clouds (float32), one a class.
    num_features : int, optional
        1000 words or 64 dense features by default.
    signal : float
        How much the features tell of the label, from 0 (nothing) to 100. For words, a class
        prefers the words of its topic by a factor of exp(signal). For dense features, the root
        mean square distance between class centres, in standard deviations of the noise.
    seed : int
        The labels, edges and features have a stream each: asking for other features leaves the
        edges as they were.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> data = make_graph(300, 3, degree=4, seed=1)
    >>> data
    Dataset(name='synthetic', graph=Graph(300 nodes, 600 edges, 1000 features))
    >>> np.bincount(data.labels).tolist()
    [100, 100, 100]
    >>> edges = data.graph.adjacency.tocoo()
    >>> round(float((data.labels[edges.row] == data.labels[edges.col]).mean()), 3)
    0.8
    """
    num_classes = check_integer(num_classes, "num_classes", low=2)
    num_nodes = check_integer(num_nodes, "num_nodes", low=num_classes)
    homophily = check_number(homophily, "homophily", low=0, high=1)
    degree = check_number(degree, "degree", low=0)
    imbalance = check_number(imbalance, "imbalance", low=0)
    signal = check_number(signal, "signal", low=0, high=100)
    if tail is not None and check_number(tail, "tail", low=2) == 2:
        raise SnapsError("'tail' must be None or a number above 2, got 2")
    if features not in ("words", "dense"):
        raise SnapsError(f"'features' must be 'words' or 'dense', got {features!r}")
    if num_features is None:
        num_features = 1000 if features == "words" else 64
    num_features = check_integer(num_features, "num_features", low=1)

    streams = np.random.default_rng(check_seed(seed)).spawn(3)
    labels = _labels(streams[0], num_nodes, num_classes, imbalance)
    edges = _edges(streams[1], labels, homophily, degree, tail)
    make_features: Any = _words if features == "words" else _dense
    table = make_features(streams[2], labels, num_classes, num_features, signal)
    return Dataset("synthetic", Graph(edges, features=table), labels)


def _labels(
    rng: np.random.Generator, num_nodes: int, num_classes: int, imbalance: float
) -> np.ndarray:
    """Labels in random order, the class sizes as near to their shares as whole nodes allow."""
    shares = np.arange(1, num_classes + 1) ** -imbalance
    # Every class gets a node first, so that none is empty however steep the shares are.
    wanted = shares / shares.sum() * (num_nodes - num_classes)
    sizes = wanted.astype(np.int64)
    most_cut = np.argsort(sizes - wanted, kind="stable")
    sizes[most_cut[: num_nodes - num_classes - sizes.sum()]] += 1
    return rng.permutation(np.repeat(np.arange(num_classes), sizes + 1))


# --- Edges -------------------------------------------------------------------------------------


def _edges(
    rng: np.random.Generator,
    labels: np.ndarray,
    homophily: float,
    degree: float,
    tail: float | None,
) -> sp.coo_array:
    """Distinct edges between equal and between unequal labels, the numbers asked for of each."""
    num_nodes = len(labels)
    sizes = np.bincount(labels).astype(np.float64)
    total = round(num_nodes * degree / 2)
    same = round(total * homophily)
    _check_room("equal", same, (sizes * (sizes - 1)).sum() / 2, homophily, degree)
    _check_room("unequal", total - same, (num_nodes**2 - (sizes**2).sum()) / 2, homophily, degree)
    hat = _Hat(rng, labels, _propensities(rng, num_nodes, degree, tail))
    keys = np.concatenate([hat.edges(rng, same, True), hat.edges(rng, total - same, False)])
    # As 32-bit pairs half a billion entries fit where 64-bit ones would not.
    dtype = np.int32 if num_nodes < 2**31 else np.int64
    ends = np.empty((2, len(keys)), dtype)
    for start in range(0, len(keys), _CHUNK):
        part = slice(start, start + _CHUNK)
        ends[0, part], ends[1, part] = np.divmod(keys[part], num_nodes)
    ones = np.ones(len(keys), np.int8)
    return sp.coo_array((ones, (ends[0], ends[1])), shape=(num_nodes, num_nodes))


def _check_room(kind: str, wanted: int, pairs: float, homophily: float, degree: float) -> None:
    # Past half of all pairs, drawing at random until enough are distinct stops being sensible.
    if wanted > pairs / 2:
        raise SnapsError(
            f"'degree' must ask for at most half of the {pairs:.0f} pairs with {kind} labels, "
            f"got {degree:g} with homophily {homophily:g}: {wanted} edges"
        )


def _propensities(
    rng: np.random.Generator, num_nodes: int, degree: float, tail: float | None
) -> np.ndarray:
    """Expected degrees, in proportion: a power law, cut where hubs would repeat their edges."""
    if tail is None or degree == 0:
        return np.ones(num_nodes)
    draws = (1 - rng.random(num_nodes)) ** (-1 / (tail - 1))
    return np.minimum(draws, draws.mean() * max(1.0, math.sqrt(num_nodes / degree)))


class _Hat:
    """Nodes, each as often as its propensity says, ordered by class: to draw is to look up.

    A random look-up costs a tenth of a binary search among millions of cumulated propensities.
    """

    def __init__(self, rng: np.random.Generator, labels: np.ndarray, propensities: np.ndarray):
        copies = propensities * (_TICKETS / propensities.mean())
        # Rounding up or down at random keeps the average; at least one, or a node is never drawn.
        counts = np.maximum((copies + rng.random(len(labels))).astype(np.int64), 1)
        order = np.argsort(labels, kind="stable")
        self.labels = labels
        self.tickets = np.repeat(order, counts[order])
        self.sizes = np.bincount(labels, weights=counts).astype(np.int64)
        self.starts = np.cumsum(self.sizes) - self.sizes

    def edges(self, rng: np.random.Generator, wanted: int, same: bool) -> np.ndarray:
        """Distinct edges, as sorted keys: smaller end * number of nodes + larger end."""
        keys = np.empty(0, np.int64)
        # Some draws repeat. A few more than are missing usually make one more round enough.
        yield_share = 0.98
        while len(keys) < wanted:
            draws = int((wanted - len(keys)) / yield_share) + 16
            before = len(keys)
            keys = _distinct(np.concatenate([keys, self._draw(rng, draws, same)]))
            yield_share = max(0.9 * (len(keys) - before) / draws, 0.01)
        surplus = rng.choice(len(keys), len(keys) - wanted, replace=False, shuffle=False)
        return np.delete(keys, surplus)

    def _draw(self, rng: np.random.Generator, draws: int, same: bool) -> np.ndarray:
        """Keys of random edges with self loops left out; they may repeat."""
        num_nodes = len(self.labels)
        keys = np.empty(draws, np.int64)
        filled = 0
        for start in range(0, draws, _CHUNK):
            count = min(_CHUNK, draws - start)
            first = self.tickets[rng.integers(len(self.tickets), size=count)]
            classes = self.labels[first]
            sizes, starts = self.sizes[classes], self.starts[classes]
            if same:
                place = starts + (rng.random(count) * sizes).astype(np.int64)
            else:
                # Draw among the tickets left without this class, then step over the gap.
                place = (rng.random(count) * (len(self.tickets) - sizes)).astype(np.int64)
                place += np.where(place >= starts, sizes, 0)
            second = self.tickets[place]
            part = np.minimum(first, second) * num_nodes + np.maximum(first, second)
            part = part[first != second]
            keys[filled : filled + len(part)] = part
            filled += len(part)
        return keys[:filled]


def _distinct(keys: np.ndarray) -> np.ndarray:
    # np.unique copies more often than this; at a hundred million keys that matters.
    keys.sort()
    keep = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=keep[1:])
    return keys[keep]


# --- Features ----------------------------------------------------------------------------------


def _dense(
    rng: np.random.Generator, labels: np.ndarray, num_classes: int, num_features: int, signal: float
) -> np.ndarray:
    """Unit noise around class centres that lie `signal` apart, whatever the dimension."""
    centres = rng.standard_normal((num_classes, num_features))
    centres *= signal / math.sqrt(2 * num_features)
    table = rng.standard_normal((len(labels), num_features), dtype=np.float32)
    centres = centres.astype(np.float32)
    rows = max(1, _CHUNK // num_features)
    for start in range(0, len(labels), rows):
        table[start : start + rows] += centres[labels[start : start + rows]]
    return table


def _words(
    rng: np.random.Generator, labels: np.ndarray, num_classes: int, num_features: int, signal: float
) -> sp.csr_array:
    """Bags of words: which words a node uses, not how often."""
    cumulated = _word_distributions(rng, num_classes, num_features, signal)
    lengths = 1 + rng.poisson(_WORDS - 1, len(labels))
    rows = _CHUNK // _WORDS
    parts = [
        _distinct_words(rng, labels[start : start + rows], lengths[start : start + rows], cumulated)
        for start in range(0, len(labels), rows)
    ]
    indices = np.concatenate([words for words, _ in parts])
    indptr = np.zeros(len(labels) + 1, np.int64)
    np.cumsum(np.concatenate([counts for _, counts in parts]), out=indptr[1:])
    ones = np.ones(len(indices), np.float32)
    return sp.csr_array((ones, indices, indptr), shape=(len(labels), num_features))


def _word_distributions(
    rng: np.random.Generator, num_classes: int, num_features: int, signal: float
) -> np.ndarray:
    """Cumulated word probabilities of all classes in one ascending row: class c from c to c + 1."""
    # The shift by ten stands for the stop words that such data sets leave out.
    weights = np.tile(1 / (np.arange(num_features) + 10), (num_classes, 1))
    topics = np.argsort(rng.random((num_classes, num_features)), axis=1)
    topics = topics[:, : math.ceil(_TOPIC * num_features)]
    rows = np.arange(num_classes)[:, None]
    weights[rows, topics] *= math.exp(signal)
    cumulated = np.cumsum(weights, axis=1)
    return cumulated / cumulated[:, -1:] + rows


def _distinct_words(
    rng: np.random.Generator, labels: np.ndarray, lengths: np.ndarray, cumulated: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The distinct words of some nodes, node by node in ascending order, and how many each has."""
    num_features = cumulated.shape[1]
    node = np.repeat(np.arange(len(labels)), lengths)
    classes = labels[node]
    place = np.searchsorted(cumulated.ravel(), classes + rng.random(len(node)), side="right")
    # Rounding in the sum above may step over the last word of a class.
    words = np.minimum(place - classes * num_features, num_features - 1)
    keys = _distinct(node * num_features + words)
    counts = np.bincount(keys // num_features, minlength=len(labels))
    return (keys % num_features).astype(np.int32), counts
