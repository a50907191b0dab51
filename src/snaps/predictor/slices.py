"""Which nodes are covered least? The weakest slice, and the worst slab, honestly searched.

A slice is a set of nodes that share a property: a class, a group, a number of links, a range of the
classifier's confidence, a set size. If coverage is alike everywhere, hits are dealt out to nodes at
random: given the threshold, and with it the overall number of hits, those of a slice are
hypergeometric. The weakest slice is the one whose coverage is the least likely then. It was
searched for, so it is compared with what chance gives for the worst of all slices: by the union
bound, which holds however slices overlap.

A slab is all nodes between two parallel hyperplanes. The worst of many random ones is searched for
on one half of the nodes and measured on the other (Cauchois, Gupta and Duchi 2021): an estimate
without the bias of the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from snaps._runtime.memory import pieces
from snaps._runtime.randomness import SLAB_STREAM, hashes, uniforms
from snaps.conformal.coverage import dealt_quantile, dealt_tail
from snaps.predictor.predictor import Predictor
from snaps.sets import PredictionSets

CHANCE = 0.01  # how often chance alone gives a weaker slice, at most
SLAB_SHARE = 0.2  # of the nodes in a slab, at least
_BANDS = 40  # of equally many nodes, that slabs are made of
_DIRECTIONS = 200
_FEWEST, _MOST, _MOST_NUMBERS = 100, 40_000, 4_000_000  # nodes for slabs, and their coordinates


class Slices(NamedTuple):
    """Slices by one property: their names, and the slice (m,) of each node, -1 for none."""

    by: str
    names: Sequence[Any]
    codes: np.ndarray


def find_slices(predictor: Predictor, sets: PredictionSets, truth: np.ndarray) -> list[Slices]:
    """All slices that are looked at; empty sets, which cover nothing, are in none by set size."""
    inputs, roles = predictor.inputs, predictor.roles
    slices = [Slices("class", list(roles.classes), truth)]
    if roles.groups.given:
        slices.append(Slices("group", roles.groups.names, roles.groups.codes[sets.nodes]))
    adjacency = inputs.graph.adjacency
    if adjacency.nnz:
        degrees = np.diff(adjacency.indptr)[sets.nodes]
        slices.append(Slices("links", *in_bands(degrees, single=1)))
    slices.append(Slices("confidence", *in_fifths(confidence(inputs.probs, sets.nodes))))
    names, codes = in_bands(sets.sizes)
    slices.append(Slices("set size", names, np.where(sets.sizes > 0, codes, -1)))
    return slices


def weakest_slice(slices: Sequence[Slices], hits: np.ndarray) -> dict[str, Any]:
    """The slice that is least likely to be covered so little by chance; see `evaluate`."""
    rows: list[tuple[str, Any]] = []
    nodes, covered = [], []
    for by, names, codes in slices:
        inside = codes >= 0
        counts = np.bincount(codes[inside], minlength=len(names))
        present = np.flatnonzero(counts)
        rows += [(by, names[code]) for code in present.tolist()]
        nodes.append(counts[present])
        covered.append(np.bincount(codes[inside], hits[inside], len(names))[present])
    n, h = np.concatenate(nodes), np.concatenate(covered)
    dealt = len(hits), int(hits.sum())
    tails = np.array(
        [dealt_tail(*dealt, *pair) for pair in zip(n.tolist(), h.tolist(), strict=True)]
    )
    worst = int(np.lexsort((-n, h / n, tails))[0])
    by, name = rows[worst]
    return {
        "by": by,
        "name": name,
        "coverage": float(h[worst] / n[worst]),
        "n": int(n[worst]),
        "slices": len(rows),
        "chance_coverage": dealt_quantile(*dealt, int(n[worst]), CHANCE / len(rows)),
        "chance": float(min(1, len(rows) * tails[worst])),
    }


def worst_slab(columns: np.ndarray, hits: np.ndarray, seed: int) -> tuple[float, int] | None:
    """Coverage of the worst slab, and the nodes it was measured on; None for too few nodes.

    The rows of `columns` and `hits` must be in random order: the slab is searched for in the first
    half, among such that are bounded by quantiles, and measured on the second.
    """
    searched, measured = _halves(len(hits))
    scale = columns.std(axis=0)
    columns = (columns - columns.mean(axis=0))[:, scale > 0] / scale[scale > 0]
    if not columns.shape[1] or len(hits) < _FEWEST:
        return None
    uniform = uniforms(seed, np.arange(_DIRECTIONS, dtype=np.uint64), columns.shape[1])
    normal = NormalDist().inv_cdf
    directions = np.array([[normal(max(each, 1e-12)) for each in row] for row in uniform.tolist()])
    directions = np.concatenate([np.eye(columns.shape[1]), directions])
    cuts = np.linspace(0, len(searched), _BANDS + 1).round().astype(np.int64)
    first, last = np.triu_indices(_BANDS + 1, round(SLAB_SHARE * _BANDS))
    least, slab = np.inf, (directions[0], -np.inf, np.inf)
    given, covered = columns[searched], hits[searched]
    for block in pieces(len(directions), 8 * len(searched)):
        heights = directions[block] @ given.T
        order = np.argsort(heights, axis=1, kind="stable")
        upto = np.pad(np.cumsum(covered[order], axis=1), ((0, 0), (1, 0)))[:, cuts]
        means = (upto[:, last] - upto[:, first]) / (cuts[last] - cuts[first])
        row, pair = np.unravel_index(means.argmin(), means.shape)
        if means[row, pair] < least:
            start, stop = cuts[first[pair]], cuts[last[pair]]
            low = heights[row, order[row, start]] if start else -np.inf
            high = heights[row, order[row, stop - 1]] if stop < len(searched) else np.inf
            least, slab = means[row, pair], (directions[block][row], low, high)
    direction, low, high = slab
    height = columns[measured] @ direction
    members = hits[measured][(low <= height) & (height <= high)]
    return (float(members.mean()), len(members)) if len(members) else None


def _halves(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The nodes to search a slab on, and the others, to measure it on."""
    return np.arange(n // 2), np.arange(n // 2, n)


def slab_summary(
    predictor: Predictor, nodes: np.ndarray, hits: np.ndarray
) -> dict[str, Any] | None:
    """The worst slab by probabilities and degree; see `evaluate`."""
    inputs, seed = predictor.inputs, predictor.method.seed
    most = min(_MOST, max(_MOST_NUMBERS // (inputs.num_classes + 1), 2 * _FEWEST))
    order = np.argsort(hashes(seed, inputs.keys[nodes], SLAB_STREAM))[:most]
    sample, adjacency = nodes[order], inputs.graph.adjacency
    degrees = np.diff(adjacency.indptr)[sample]
    columns = np.column_stack([np.asarray(inputs.probs[sample], np.float64), np.log1p(degrees)])
    slab = worst_slab(columns, hits[order], seed)
    if slab is None:
        return None
    coverage, n = slab
    dealt, levels = (len(hits), int(hits.sum())), (CHANCE / 2, 1 - CHANCE / 2)
    interval = tuple(dealt_quantile(*dealt, n, level) for level in levels)
    searched = len(_halves(len(sample))[0])
    return {"coverage": coverage, "n": n, "searched": searched, "chance_interval": interval}


# -- properties of nodes -----------------------------------------------------------------------


def confidence(probs: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """The classifier's largest probability for each node."""
    out = np.empty(len(nodes))
    for block in pieces(len(nodes), probs[:1].nbytes):
        out[block] = probs[nodes[block]].max(axis=1)
    return out


def in_fifths(values: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Names and codes of fifths of the values, the smallest first; equal values stay together."""
    edges = np.unique(np.quantile(values, [0.2, 0.4, 0.6, 0.8])) if len(values) else np.empty(0)
    codes = np.searchsorted(edges, values, side="left")
    texts: list[str] = []
    for edge in edges.tolist():  # with as many decimals as tell it from 1 and from the one before
        rounded = (f"{edge:.{digits}f}" for digits in range(2, 7))
        distinct = (text for text in rounded if float(text) < 1 and text not in texts[-1:])
        texts.append(next(distinct, f"{edge:.6f}"))
    if not texts:
        return ["any"], codes
    between = [f"{a}\u00a0to\u00a0{b}" for a, b in pairwise(texts)]
    return [f"up\u00a0to\u00a0{texts[0]}", *between, f"above\u00a0{texts[-1]}"], codes


def in_bands(values: np.ndarray, single: int = 12) -> tuple[list[str], np.ndarray]:
    """Names and codes of bands of whole numbers."""
    pairs = bands(int(values.max(initial=0)), single)
    names = [f"{a:,}" if a == b else f"{a:,}\u00a0to\u00a0{b:,}" for a, b in pairs]
    return names, np.searchsorted([low for low, _ in pairs], values, side="right") - 1


def bands(largest: int, single: int = 12) -> list[tuple[int, int]]:
    """First and last number of each band: every number by itself, or bands that double.

    They double where `largest` is above `single`: 0, 1, 2 to 3, 4 to 7, ...
    """
    if largest <= single:
        return [(value, value) for value in range(largest + 1)]
    return [(0, 0), *((2**i, 2 ** (i + 1) - 1) for i in range(largest.bit_length()))]
