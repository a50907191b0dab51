"""Random small graphs with everything that goes wrong in practice.

Nodes without edges, zero feature rows, tied probabilities, tied similarities, repeated edges, self
loops, ids in any order.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import strategies as st

import snaps
import snaps.datasets
from snaps._runtime import randomness as _randomness
from tests.helpers import transcription as t

ALPHAS = [0.05, 0.1, 0.18, 0.25, 0.3, 0.4, 0.5, 0.7]
CLOSE = {"rtol": 1e-9, "atol": 1e-12}


@dataclass
class World:
    """A small graph with everything an estimator asks for, as plain lists."""

    edges: list
    features: list
    probs: list
    labels: list
    ids: list
    seed: int

    @property
    def num_nodes(self):
        return len(self.probs)

    @property
    def num_labels(self):
        return len(self.probs[0])

    def graph(self, **options):
        edges = np.array(self.edges, np.int64).reshape(-1, 2).T
        features = np.array(self.features, float)
        options.setdefault("ids", np.array(self.ids))
        return snaps.Graph(edges, features, num_nodes=self.num_nodes, **options)

    def arrays(self):
        return self.graph(), np.array(self.probs), np.array(self.labels)

    def draws(self):
        keys = np.array(self.ids, np.uint64)
        return _randomness.uniforms(self.seed, keys, self.num_labels).tolist()

    def relabelled(self, order):
        """The same world with node order[i] at place i."""
        place = {old: new for new, old in enumerate(order)}
        return World(
            [(place[a], place[b]) for a, b in self.edges],
            [self.features[i] for i in order],
            [self.probs[i] for i in order],
            [self.labels[i] for i in order],
            [self.ids[i] for i in order],
            self.seed,
        )


@st.composite
def probability_rows(draw, num_labels):
    """Rows of small whole numbers, hence full of ties and zeros, or rows in general position."""
    if draw(st.booleans()):
        counts = st.lists(st.integers(0, 4), min_size=num_labels, max_size=num_labels)
        row = draw(counts.filter(any))
    else:
        row = np.random.default_rng(draw(st.integers(0, 2**32))).exponential(size=num_labels)
    return [float(value) / float(sum(row)) for value in row]


@st.composite
def worlds(draw, min_nodes=2, general=False):
    """A world; a general one has probabilities in general position, so that no scores tie."""
    n = draw(st.integers(min_nodes, 12))
    num_labels = draw(st.integers(2, 5))
    node = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=3 * n))
    width = draw(st.integers(1, 4))
    row = st.lists(st.integers(-1, 3), min_size=width, max_size=width)
    features = draw(st.lists(row | st.just([0] * width), min_size=n, max_size=n))
    if general:
        random = np.random.default_rng(draw(st.integers(0, 2**32)))
        probs = random.dirichlet(np.ones(num_labels), n).tolist()
    else:
        probs = [draw(probability_rows(num_labels)) for _ in range(n)]
    labels = draw(st.lists(st.integers(0, num_labels - 1), min_size=n, max_size=n))
    ids = draw(st.permutations(range(n)))
    if draw(st.booleans()):
        ids = [1000 + 7 * i for i in ids]
    return World(edges, features, probs, labels, list(ids), draw(st.integers(0, 2**63 - 1)))


@st.composite
def split_worlds(draw, general=False, parts=2):
    """A world and disjoint node lists: (calibration, test) or (tuning, calibration, test)."""
    world = draw(worlds(min_nodes=2 * parts, general=general))
    order = draw(st.permutations(range(world.num_nodes)))
    cuts = sorted(
        draw(
            st.lists(
                st.integers(1, world.num_nodes - 1),
                min_size=parts - 1,
                max_size=parts - 1,
                unique=True,
            )
        )
    )
    bounds = [0, *cuts, world.num_nodes]
    return world, *(list(order[a:b]) for a, b in pairwise(bounds))


weights = st.sampled_from(t.SNAPS_GRID).map(lambda ij: (ij[0] / 20, ij[1] / 20))


def quietly(call, *args, **options):
    """Call without the warnings about infinite thresholds; those have their own test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", snaps.SnapsWarning)
        return call(*args, **options)


def rows_of(matrix):
    """A sparse matrix as the transcription writes neighbours."""
    matrix = sp.csr_array(matrix)
    parts = zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)
    return [
        dict(zip(matrix.indices[a:b].tolist(), matrix.data[a:b].tolist(), strict=True))
        for a, b in parts
    ]


def as_sets(mask):
    return [set(np.flatnonzero(row).tolist()) for row in np.asarray(mask)]


def same_rows(rows, expected):
    """Neighbours must be the same nodes, weights the same up to rounding."""
    assert [set(row) for row in rows] == [set(row) for row in expected]
    for a, b in zip(rows, expected, strict=True):
        for j in b:
            assert a[j] == pytest.approx(b[j], rel=1e-9)


def words(random, n):
    """Bags of words: mostly rare words, some common ones, rows without any."""
    share = np.r_[np.full(5, 0.25), np.full(595, 0.005)]
    return (random.random((n, 600)) < share) * random.integers(1, 3, (n, 600))


SCORES = {
    "aps": (lambda r: snaps.APS(randomized=r), t.aps),
    "raps": (
        lambda r: snaps.RAPS(k_reg=2, penalty=0.2, randomized=r),
        t.raps_formula(2, 0.2),
    ),
    "raps-0": (
        lambda r: snaps.RAPS(k_reg=0, penalty=0.01, randomized=r),
        t.raps_formula(0, 0.01),
    ),
    "saps": (lambda r: snaps.SAPS(weight=0.15, randomized=r), t.saps_formula(0.15)),
}


def basic_scores(world, name, randomized=True):
    """The library's score object and the transcription's table for it."""
    if name == "thr":
        return snaps.THR(), t.table(t.thr, world.probs)
    make, formula = SCORES[name]
    return make(randomized), t.table(formula, world.probs, world.draws() if randomized else None)


def fixed_method(world, alpha, name, **options):
    """An estimator without anything to tune."""
    if name == "split":
        return snaps.SplitConformal(alpha=alpha, seed=world.seed, **options)
    if name == "plain":  # not randomised: scores tie
        score = snaps.APS(randomized=False)
        return snaps.SplitConformal(alpha=alpha, score=score, seed=world.seed, **options)
    if name == "daps":
        return snaps.DAPS(alpha=alpha, weight=0.5, seed=world.seed, **options)
    return snaps.SNAPS(alpha=alpha, k=3, weights=(0.35, 0.25), seed=world.seed, **options)


METHODS = st.sampled_from(["split", "plain", "daps", "snaps"])


def tuning_worlds(general):
    """Tuning, calibration and test nodes, and an alpha whose rank the tuning nodes can reach."""
    return st.tuples(split_worlds(general=general, parts=3), st.sampled_from(ALPHAS)).filter(
        lambda drawn: t.rank(len(drawn[0][1]), drawn[1]) <= len(drawn[0][1])
    )


def larger_world(n, seed, num_labels=4):
    """A world in general position, large enough for tuning to have something to choose from."""
    random = np.random.default_rng(seed)
    labels = random.integers(num_labels, size=n)
    probs = random.dirichlet(np.ones(num_labels), n) + 0.5 * np.eye(num_labels)[labels]
    features = np.eye(num_labels, dtype=int)[labels] * 2 + random.integers(0, 3, (n, num_labels))
    ends = random.integers(n, size=(3 * n, 2))
    kept = (labels[ends[:, 0]] == labels[ends[:, 1]]) | (random.random(3 * n) < 0.1)
    return World(
        ends[kept].tolist(),
        features.tolist(),
        (probs / probs.sum(1, keepdims=True)).tolist(),
        labels.tolist(),
        random.permutation(n).tolist(),
        seed,
    )


def numbers_of(sets, labels):
    """The transcription's numbers for sets and labels of the same nodes."""
    return {
        "coverage": t.coverage(sets, labels),
        "size": t.size(sets),
        "size_nonempty": t.size_nonempty(sets),
        "singleton_hit": t.singleton_hit(sets, labels),
        "empty": t.empty(sets),
    }
