"""Sparse products by all threads, and means of rows that are made on demand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from snaps._kernels.aggregation import neighbour_mean, neighbour_mean_at, sparse_product


def sparse(random, rows, columns):
    """A matrix with few entries."""
    values = random.random((rows, columns))
    return sp.csr_array(np.where(values < 0.04, values, 0))


@pytest.mark.parametrize("rows", [1, 40, 3000])
def test_a_sparse_product_has_the_bits_of_scipy(rows):
    random = np.random.default_rng(rows)
    matrix = sparse(random, rows, 50)
    table, back = random.normal(size=(50, 70)), random.normal(size=(rows, 70))
    np.testing.assert_array_equal(sparse_product(matrix, table), matrix @ table)
    np.testing.assert_array_equal(sparse_product(matrix.T.tocsr(), back), matrix.T @ back)


def test_rows_without_entries_are_zero():
    matrix = sp.csr_array((3, 4))
    np.testing.assert_array_equal(sparse_product(matrix, np.ones((4, 2))), np.zeros((3, 2)))


def test_own_rows_are_made_only_for_nodes_without_neighbours():
    random = np.random.default_rng(7)
    matrix = sparse(random, 60, 60)
    matrix.data[matrix.indptr[5] : matrix.indptr[6]] = 0  # no weight is no neighbour
    table, asked = random.random((60, 4)), []

    def rows(places):
        asked.append(places)
        return table[places]

    places = np.arange(0, 60, 5)
    out = neighbour_mean_at(matrix, rows, places)
    np.testing.assert_array_equal(out, neighbour_mean(matrix, table)[places])
    alone = places[matrix.sum(axis=1)[places] == 0]
    assert len(asked) == 2 and (asked[1] == alone).all() and 5 in alone
