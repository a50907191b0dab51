"""Exact neighbours against a plain transcription of the formula."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import snaps
import snaps.datasets
from tests.helpers import transcription as t
from tests.helpers.worlds import rows_of, same_rows, words, worlds


@given(worlds(), st.integers(1, 13), st.booleans(), st.booleans())
def test_similarity(world, k, sparse, with_ids):
    features = np.array(world.features, float)
    ids = world.ids if with_ids else None
    k = min(k, world.num_nodes - 1)
    found = snaps.similarity_graph(
        sp.csr_array(features) if sparse else features,
        k=k,
        ids=None if ids is None else np.array(ids),
    )
    assert found.shape == (world.num_nodes, world.num_nodes)
    same_rows(rows_of(found), t.similar(world.features, k, ids))


@given(
    st.integers(0, 2**32), st.integers(2, 40), st.integers(1, 6), st.integers(1, 8), st.booleans()
)
def test_similarity_of_many_exact_ties(seed, n, width, k, sparse):
    """Whole numbers in few columns: most cosines tie, many with different norms (1:1 and 2:2)."""
    random, k = np.random.default_rng(seed), min(k, n - 1)
    features = random.integers(0, 4, (n, width)).astype(float)
    ids = random.permutation(n)
    given_features = sp.csr_array(features) if sparse else features
    found = snaps.similarity_graph(given_features, k=k, ids=ids)
    same_rows(rows_of(found), t.similar(features.astype(int).tolist(), k, ids.tolist()))


@given(st.integers(0, 2**32), st.integers(2, 30), st.integers(1, 8), st.integers(1, 5))
def test_similarity_of_real_features(seed, n, width, k):
    """Features in general position, negative ones too."""
    k = min(k, n - 1)
    features = np.random.default_rng(seed).normal(size=(n, width))
    features[::7] = 0
    if width == 1:  # then every cosine is 1 and rounding, not the formula, would order them
        features = np.sign(features)
    found = snaps.similarity_graph(features, k=k)
    same_rows(rows_of(found), t.similar(features.tolist(), k))


def small_numbers(random, n):
    """Few columns of small whole numbers: nearly all cosines tie with others."""
    return random.integers(0, 4, (n, 4))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("make", [small_numbers, words])
@pytest.mark.parametrize("n, k", [(150, 20), (300, 3)])
def test_similarity_of_a_larger_table(n, k, make, sparse):
    """Rows beyond one block or thread, full of ties, with ids that run against positions."""
    random = np.random.default_rng(n)
    features = make(random, n)
    ids = random.permutation(10 * n)[:n]
    given_features = sp.csr_array(features.astype(float)) if sparse else features.astype(float)
    found = snaps.similarity_graph(given_features, k=k, ids=ids)
    products = features @ features.T
    squares = np.diag(products)
    for i, row in enumerate(rows_of(found)):
        others = [j for j in range(n) if j != i and products[i, j] > 0]
        keys = {j: Fraction(int(products[i, j]) ** 2, int(squares[j])) for j in others}
        best = sorted(others, key=lambda j: (-keys[j], ids[j]))[:k]
        assert set(row) == set(best)
        for j in best:
            assert row[j] == pytest.approx(products[i, j] / math.sqrt(squares[i] * squares[j]))
