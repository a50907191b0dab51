"""Sparse matrices from users: malformed ones are refused, odd but valid ones understood."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import snaps
from snaps._checks.matrices import check_matrix, scale_rows
from tests.helpers import small
from tests.helpers.small import CALIB, FEATURES, LABELS, NUM_NODES, PROBS


def malformed():
    """Matrices that SciPy lets anybody build, by setting their arrays afterwards."""

    def broken(change, kind=sp.csr_array):
        matrix = kind(snaps.similarity_graph(FEATURES, 5))
        change(matrix)
        return matrix

    def beyond(matrix):
        matrix.indices[3] = 10**6

    def negative(matrix):
        matrix.indices[3] = -5

    def steps_back(matrix):
        matrix.indptr[5] = 0

    def too_long(matrix):
        matrix.indptr[-1] = 10**7

    def short_data(matrix):
        matrix.data = matrix.data[:10]

    def float_indices(matrix):
        matrix.indices = matrix.indices.astype(float)

    for change in (beyond, negative, steps_back, too_long, short_data, float_indices):
        yield f"csr, {change.__name__}", broken(change)
        yield f"csc, {change.__name__}", broken(change, sp.csc_array)
    # SciPy's own check passes over the row pointers of a matrix that ends at 0 or below.
    for name, inner, last in (("ends at 0", 2**29, 0), ("ends below 0", 1, -(2**31))):
        for kind in (sp.csr_array, sp.csc_array):
            matrix = broken(lambda matrix: None, kind)
            matrix.indptr = np.full_like(matrix.indptr, inner)
            matrix.indptr[0], matrix.indptr[-1] = 0, last
            yield f"{matrix.format}, {name}", matrix
    coo = sp.coo_array(snaps.similarity_graph(FEATURES, 5))
    coo.coords[0][0] = 10**6
    yield "coo, beyond", coo
    coo = sp.coo_array(snaps.similarity_graph(FEATURES, 5))
    coo.coords[1][0] = -1
    yield "coo, negative", coo


CASES = dict(malformed())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("where", ["similarity", "edges", "features"])
def test_malformed_matrices_are_refused(name, where):
    matrix = CASES[name]
    with pytest.raises(
        snaps.SnapsError, match=f"'{where}' must be a valid sparse matrix"
    ) as caught:
        if where == "similarity":
            small.calibrated(snaps.SNAPS(0.2, k=5), similarity=matrix)
        elif where == "edges":
            snaps.Graph(matrix)
        else:
            snaps.similarity_graph(matrix, 3)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["f2", ">f2", ">f4", ">i2"])
@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "coo", "dia"])
def test_types_that_scipy_has_no_loops_for(kind, layout):
    table = (FEATURES * 10).astype(kind)
    matrix = sp.csr_array(table.astype("f4")).asformat(layout)
    matrix.data = matrix.data.astype(kind)
    given = matrix.data
    found = snaps.Graph(None, matrix).features
    assert found.dtype == np.float32 and matrix.data is given and given.dtype == kind
    np.testing.assert_array_equal(found.toarray(), table)
    expected = snaps.similarity_graph(sp.csr_array(table.astype("f4")), 5)
    near = snaps.similarity_graph(matrix, 5)
    np.testing.assert_array_equal(near.toarray(), expected.toarray())


def test_weights_in_half_precision():
    matrix = sp.csr_array(np.array([[0, 0.5], [0.5, 0]], "f4"))
    matrix.data = matrix.data.astype("f2")
    graph = snaps.Graph(matrix, weighted=True)
    assert graph.adjacency.dtype == np.float64 and graph.adjacency.data.tolist() == [0.5, 0.5]


def scores(method, **options):
    return method.calibrate(small.graph(), PROBS, LABELS, CALIB, **options).scores_


@pytest.mark.parametrize("make", [lambda: snaps.SNAPS(0.2, k=5), lambda: snaps.Pooled(0.2, k=5)])
def test_odd_spellings_of_a_similarity_graph_change_nothing(make):
    near = snaps.similarity_graph(FEATURES, 5)
    plain = scores(make(), similarity=near)
    rows = np.repeat(np.arange(NUM_NODES), np.diff(near.indptr))
    twice = sp.coo_array(
        (np.concatenate([near.data, near.data]) / 2, (np.tile(rows, 2), np.tile(near.indices, 2))),
        shape=near.shape,
    )
    zeros = sp.coo_array(
        (np.append(near.data, 0.0), (np.append(rows, 0), np.append(near.indices, 59))),
        shape=near.shape,
    )
    huge, tiny = near * 1e308, near * 1e-308
    for odd in (twice, zeros, huge, tiny, near.tocsc(), near.tolil(), near.todok()):
        np.testing.assert_allclose(scores(make(), similarity=odd), plain, rtol=1e-12)


def test_entries_listed_twice_are_summed_and_the_diagonal_counts_nothing():
    near = snaps.similarity_graph(FEATURES, 5)
    plain = scores(snaps.SNAPS(0.2, k=5), similarity=near)
    # Too much, and what is too much once more: by itself a negative entry would count as zero.
    signs = sp.csr_array(
        (np.outer(near.data, [1.5, -0.5]).ravel(), np.repeat(near.indices, 2), 2 * near.indptr),
        near.shape,
    )
    loops = sp.csr_array(sp.coo_array(near) + sp.eye_array(NUM_NODES))
    for odd in (signs, loops):
        np.testing.assert_allclose(scores(snaps.SNAPS(0.2, k=5), similarity=odd), plain, rtol=1e-12)
    table = sp.csr_array(FEATURES)
    twice = sp.csr_array(
        (np.repeat(table.data, 2) / 2, np.repeat(table.indices, 2), 2 * table.indptr), table.shape
    )
    found = snaps.similarity_graph(twice, 5)
    np.testing.assert_array_equal(found.data, snaps.similarity_graph(table, 5).data)


def test_extreme_weights_of_edges():
    edges = np.array([[0, 1, 2], [1, 2, 3]])
    for scale in (1.0, 1e308, 1e-308):
        graph = snaps.Graph(edges, weighted=True, edge_weights=scale * np.array([1, 0.5, 0.25]))
        row = graph.adjacency[[1]].toarray().ravel()
        np.testing.assert_allclose(row / row.sum(), [2 / 3, 0, 1 / 3, 0])
        assert np.isfinite(graph.adjacency.sum(axis=1)).all()


def test_the_users_own_arrays_are_left_alone_and_not_kept():
    features, near = FEATURES.copy(), snaps.similarity_graph(FEATURES, 5)
    probs, labels, before = PROBS.copy(), LABELS.copy(), near.copy()
    graph = snaps.Graph(small.EDGES, features, NUM_NODES)
    cp = snaps.SNAPS(0.2, k=5).calibrate(graph, probs, labels, CALIB, similarity=near)
    sets, bits = cp.predict_set().mask, cp.scores_
    assert (near != before).nnz == 0
    features[:], near.data[:], probs[:], labels[:] = 0, 7, 1 / 3, 0
    assert (cp.predict_set().mask == sets).all() and (cp.scores_ == bits).all()
    assert (graph.features == FEATURES).all()


def test_nothing_is_scaled_without_need():
    near = snaps.similarity_graph(FEATURES, 5)
    assert scale_rows(near) is near
    checked = check_matrix(near, "near")
    np.testing.assert_array_equal(checked.indices, near.indices)  # the order stays
    np.testing.assert_array_equal(checked.data, near.data)
