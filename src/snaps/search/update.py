"""The similarity graph of a graph that grew or changed, from the one it had before.

Left of the wall, like `similarity.py`: nothing here knows a label or a role.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._checks import calm
from snaps._runtime.progress import quietly
from snaps._runtime.randomness import locate_keys, ranks
from snaps.similarity import assemble, check_k, prepare

Table = Any  # ndarray or csr_array


@calm
def extend(
    old: sp.csr_array, old_features: Table, old_keys: np.ndarray, features: Table,
    keys: np.ndarray, k: int,
) -> sp.csr_array:  # fmt: skip
    """Update a similarity graph: the bits of `similarity_graph(features, k, ids=keys)`, sooner.

    Nodes may have come, gone, moved, or changed their features. Those that came or changed are
    compared with all; so is a node that lost one of k neighbours, for who comes next was not kept.
    All others are compared with those that came or changed. The more nodes are compared with
    all, the closer the time comes to that of `similarity_graph`, without exceeding it by much.

    `old` is what `similarity_graph(old_features, k, ids=old_keys)` returned, with the same `k`;
    features are as `check_features` returns them, and keys are unique.

    >>> from snaps.similarity import similarity_graph
    >>> x, keys = np.array([[1.0, 0], [3, 4], [0, 2]]), np.array([7, 8, 9], np.uint64)
    >>> before = similarity_graph(x[:2], k=1, ids=keys[:2])
    >>> print(extend(before, x[:2], keys[:2], x, keys, k=1).toarray())
    [[0.  0.6 0. ]
     [0.  0.  0.8]
     [0.  0.8 0. ]]
    """
    from snaps.search.sparse import carry_over, no_neighbours

    n = len(keys)
    found = no_neighbours(n, check_k(k, n))
    source = _unchanged(old_features, old_keys, features, keys)
    stayed = source >= 0
    place = np.full(len(old_keys), -1)
    place[source[stayed]] = np.flatnonzero(stayed)
    whole = carry_over(place, old.indptr, old.indices, old.data, *found)

    table, squares, search = prepare(features)
    rank = ranks(keys)
    came, lost = np.flatnonzero(~stayed), np.flatnonzero(stayed & ~whole)
    for rows, waiting in ((came, whole), (lost, np.zeros(n, bool))):
        if len(rows):
            search(table, rows, np.arange(n), waiting, squares, rank, found, quietly)
    return assemble(found)


def _unchanged(
    old_features: Table, old_keys: np.ndarray, features: Table, keys: np.ndarray
) -> np.ndarray:
    """Where each node stood before; -1 if it is new or its features are."""
    from snaps._kernels.matrices import csr_parts
    from snaps.search.sparse import same_rows

    same_kind = sp.issparse(old_features) == sp.issparse(features)
    if not same_kind or old_features.shape[1] != features.shape[1]:
        return np.full(len(keys), -1)
    source = np.full(len(keys), -1)
    positions, stayed = locate_keys(old_keys, keys)
    source[stayed] = positions
    source[~same_rows(csr_parts(old_features), csr_parts(features), source)] = -1
    return source
