"""What NumPy does for small inputs, with little to compile, has the bits of the compiled loops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from snaps._kernels import aggregation, linking, matrices
from snaps.search import small
from snaps.similarity import similarity_graph

SEEDS = pytest.mark.parametrize("seed", [0, 1, 2])


def both(monkeypatch, module, name, call):
    """What a call returns as a small one and as a large one."""
    as_small = call()
    monkeypatch.setattr(module, name, -1)
    return as_small, call()


def assert_same(one, other):
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@SEEDS
@pytest.mark.parametrize("kind", ["signed", "positive", "whole", "repeated", "tight", "zeros"])
def test_dense_neighbours(kind, seed, monkeypatch):
    random = np.random.default_rng(seed)
    table = random.standard_normal((700, 12)).astype(np.float32)
    if kind == "positive":
        table = abs(table)
    elif kind == "whole":
        table = np.round(table)
    elif kind == "repeated":
        table = table[random.integers(0, 60, len(table))]
    elif kind == "tight":  # the cosines are equal in float32
        table = 1 + 1e-6 * table
    elif kind == "zeros":
        table[random.random(len(table)) < 0.4] = 0
    options = {"ids": random.permutation(len(table)), "candidates": np.arange(50, 650)}
    call = lambda: similarity_graph(table, 20, **options)  # noqa: E731
    assert_same(*both(monkeypatch, small, "MOST_NODES", call))


def test_the_tight_are_left_to_the_loops(monkeypatch):
    """Else every pair would be compared exactly, one after the other."""
    search, done = small.search_small, []
    monkeypatch.setattr(
        small, "search_small", lambda *given: done.append(search(*given)) or done[-1]
    )
    random = np.random.default_rng(0)
    similarity_graph(random.standard_normal((700, 12)), 20)
    assert set(done) == {True}
    done.clear()
    similarity_graph(1 + 1e-6 * random.standard_normal((700, 12)), 20)
    assert set(done) == {False}


@SEEDS
@pytest.mark.parametrize("exact", [True, False])
def test_means(exact, seed, monkeypatch):
    random = np.random.default_rng(seed)
    links = sp.random_array((300, 300), density=0.02, rng=random, format="csr", dtype=np.float32)
    if exact:
        links.data[:] = 1
    table, own = random.random((300, 5)).astype(np.float32), random.random((40, 5))
    rows = slice(30, 70)
    call = lambda: aggregation.neighbour_mean(links, table, own, rows, exact=exact)  # noqa: E731
    np.testing.assert_array_equal(*both(monkeypatch, aggregation, "SMALL", call))


@SEEDS
@pytest.mark.parametrize("both_ways", [True, False])
@pytest.mark.parametrize("self_loops", [True, False])
def test_links(both_ways, self_loops, seed, monkeypatch):
    random = np.random.default_rng(seed)
    source, target = random.integers(0, 80, (2, 900)).astype(np.int32)
    rank = random.permutation(80)
    call = lambda: linking.link(source, target, rank, both_ways, self_loops)  # noqa: E731
    one, other = both(monkeypatch, linking, "_SMALL", call)
    assert_same(one, other)
    assert one.indices.dtype == other.indices.dtype and one.indptr.dtype == other.indptr.dtype


INDICES = {
    "fine": ([0, 2, 3], [0, 2, 0], 3),
    "unordered": ([0, 2, 3], [2, 0, 1], 3),
    "repeats": ([0, 2, 3], [2, 2, 0], 3),
    "repeats later": ([0, 3, 3], [2, 0, 2], 3),
    "diagonal": ([0, 1, 2], [2, 1], 3),
    "too high": ([0, 1, 2], [3, 0], 3),
    "negative": ([0, 1, 2], [-1, 0], 3),
    "begins late": ([1, 1, 2], [0, 0], 3),
    "ends late": ([0, 1, 3], [0, 1], 3),
    "goes back": ([0, 2, 1], [0, 1, 2], 3),
    "no rows": ([0], [], 3),
    "unused": ([0, 1, 1], [0, 7], 3),
}


@pytest.mark.parametrize("indptr, indices, columns", INDICES.values(), ids=INDICES)
def test_looks(indptr, indices, columns, monkeypatch):
    given = np.array(indptr, np.int32), np.array(indices, np.int32), columns
    one, other = both(monkeypatch, matrices, "_SMALL", lambda: matrices.look(*given))
    assert one == other if one[0] else not other[0]
