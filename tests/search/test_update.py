"""Neighbours after a change of the features: the bits of a search from scratch."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import snaps
from snaps import similarity
from snaps.graph import check_features
from snaps.search.update import extend
from snaps.similarity import similarity_graph


@pytest.fixture(scope="module")
def words():
    return (sp.random_array((700, 300), density=0.05, rng=np.random.default_rng(0)) > 0).astype(
        float
    )


def same_bits(one, other):
    return one.shape == other.shape and all(
        np.array_equal(a, b) and a.dtype == b.dtype
        for a, b in ((getattr(one, p), getattr(other, p)) for p in ("indptr", "indices", "data"))
    )


def check_update(old_table, old_keys, table, keys, k):
    before = similarity_graph(old_table, k, ids=old_keys)
    expected = similarity_graph(table, k, ids=keys)
    copies = [part.copy() for part in (before.data, before.indices, before.indptr)]
    got = extend(before, check_features(old_table), old_keys, check_features(table), keys, k)
    assert same_bits(got, expected)
    after = (before.data, before.indices, before.indptr)
    assert all(np.array_equal(a, b) for a, b in zip(copies, after, strict=True))


def changed(table, keys, rng, *, remove=0, add=0, change=0, where="end", shuffle=False):
    """The table and keys after so many nodes left, came and changed; new keys lie between old."""
    n = len(keys)
    stay = np.sort(rng.permutation(n)[: n - remove])
    table, keys = table[stay].copy(), keys[stay]
    edited = rng.permutation(len(keys))[:change]
    table[edited] = rng.permuted(table[edited], axis=1)
    # Half of the new rows are twins of old ones: ties.
    fresh = table[rng.integers(len(keys), size=add)]
    fresh[::2] = rng.permuted(fresh[::2], axis=1)
    spare = np.setdiff1d(np.arange(3 * n + add, dtype=np.uint64), keys)
    at = len(keys) if where == "end" else rng.integers(len(keys) + 1, size=add)
    fresh_keys = rng.permutation(spare)[:add]
    if where == "end":
        table, keys = np.concatenate([table, fresh]), np.concatenate([keys, fresh_keys])
    else:
        table, keys = np.insert(table, at, fresh, axis=0), np.insert(keys, at, fresh_keys)
    if shuffle:
        order = rng.permutation(len(keys))
        table, keys = table[order], keys[order]
    return table, keys


KINDS = {
    "counts": lambda rng: rng.integers(0, 3, size=(150, 12)),
    "signed": lambda rng: rng.normal(size=(150, 12)),
    "float32": lambda rng: rng.normal(size=(150, 12)).astype(np.float32),
    "few overlap": lambda rng: np.ceil(
        9 * sp.random_array((150, 90), density=0.012, rng=rng).toarray()
    ),
    "one column": lambda rng: rng.integers(-1, 2, size=(150, 1)),
    "extreme": lambda rng: (
        rng.normal(size=(150, 8)) * 10.0 ** rng.choice([-200, 0, 200], size=(150, 1))
    ),
}
CHANGES = {
    "nothing": {},
    "order": {"shuffle": True},
    "appended": {"add": 7},
    "inserted": {"add": 7, "where": "middle"},
    "removed": {"remove": 3},
    "changed": {"change": 2},
    "all at once": {"remove": 3, "add": 5, "change": 2, "where": "middle", "shuffle": True},
    "most of it": {"remove": 60, "add": 70, "change": 50, "where": "middle"},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_update_gives_the_bits_of_a_search_from_scratch(kind, change, both_paths, monkeypatch):
    rng = np.random.default_rng(7)
    table = KINDS[kind](rng)
    table[[3, 50, 149]] = 0
    table[100:110] = table[90:100]
    old_keys = rng.permutation(400).astype(np.uint64)[:150]
    new, keys = changed(table, old_keys, rng, **CHANGES[change])
    few = min(len(old_keys), len(keys)) - 1
    for k in (1, 6, few):
        both_paths(lambda k=k: check_update(table, old_keys, new, keys, k))
        as_sparse = sp.csr_array(table), old_keys, sp.csr_array(new), keys, k
        both_paths(lambda case=as_sparse: check_update(*case))
    for name, value in {"SPARSE_ROWS": 16, "SHARE": 5}.items():
        monkeypatch.setattr(similarity, name, value)
    monkeypatch.setattr(similarity, "BLOCK_BYTES", 1 << 11)
    both_paths(lambda: check_update(table, old_keys, new, keys, 6))


@st.composite
def updates(draw):
    """Two small tables with keys, many ties and zeros; some nodes are in both, some changed."""
    row = st.lists(st.integers(-1, 2), min_size=3, max_size=3)
    tables = []
    for _ in range(2):
        keys = draw(st.lists(st.integers(0, 14), min_size=2, max_size=12, unique=True))
        tables.append((np.array(keys, np.uint64), [draw(row) for _ in keys]))
    (old_keys, old_rows), (keys, rows) = tables
    rows_before = dict(zip(old_keys.tolist(), old_rows, strict=True))
    for i, key in enumerate(keys.tolist()):
        if key in rows_before and draw(st.integers(0, 4)):
            rows[i] = rows_before[key]
    k = draw(st.integers(1, min(len(keys), len(old_keys)) - 1))
    dtypes = st.sampled_from([np.int64, np.float32, np.float64])
    old_table, table = np.array(old_rows, draw(dtypes)), np.array(rows, draw(dtypes))
    as_kind = draw(st.sampled_from([np.asarray, np.asfortranarray, sp.csr_array]))
    return as_kind(old_table), old_keys, as_kind(table), keys, k


@given(updates(), st.sampled_from([0.0, 1e300]))
@settings(max_examples=200, deadline=None)
def test_update_of_small_tables_with_many_ties(case, cost):
    saved, similarity.STEP_COST = similarity.STEP_COST, cost
    try:
        check_update(*case)
    finally:
        similarity.STEP_COST = saved


def test_update_compares_rows_that_changed_only_in_columns_or_only_in_values(both_paths):
    table = np.array([[1.0, 2, 0], [0, 1, 2], [3, 0, 1], [1, 1, 1], [0, 0, 2]])
    keys = np.arange(5, dtype=np.uint64)
    for row, values in ((0, [1, 0, 2]), (1, [0, 2, 1]), (3, [1, 1, 0]), (4, [0, 0, 0])):
        new = table.copy()
        new[row] = values
        for kind in (np.asarray, sp.csr_array):
            case = kind(table), keys, kind(new), keys, 2
            both_paths(lambda case=case: check_update(*case))


def test_update_starts_again_when_the_features_are_of_another_kind(words):
    keys = np.arange(700, dtype=np.uint64)
    dense = words.toarray()
    wider = np.concatenate([dense, np.ones((700, 1))], axis=1)
    for one, other in (
        (words, dense),
        (dense, words),
        (dense, wider),
        (sp.csr_array(wider), words),
    ):
        check_update(one, keys, other, keys, 5)


def test_update_searches_only_what_it_must(words, monkeypatch):
    """Results would be right without an update: so count the rows that are compared with all."""
    searched = []

    def counting(table, rows, *rest):
        searched.append(len(rows))
        return search_sparse(table, rows, *rest)

    search_sparse = similarity._search_sparse
    monkeypatch.setattr(similarity, "_search_sparse", counting)
    monkeypatch.setattr(similarity, "STEP_COST", 0.0)
    keys = np.arange(700, dtype=np.uint64)
    old, features = similarity_graph(words[:690], 5, ids=keys[:690]), check_features(words)
    searched.clear()
    extend(old, features[:690], keys[:690], features, keys, 5)
    assert searched == [10]
    full = similarity_graph(words, 5, ids=keys)
    searched.clear()
    extend(full, features, keys, features, keys, 5)
    assert searched == []
    extend(full, features, keys, features[1:], keys[1:], 5)
    assert searched == [np.count_nonzero(full.indices == 0)]


def test_update_of_a_real_graph(data_dir):
    graph = snaps.Graph.from_npz(data_dir / "citeseer.npz")
    features, keys = graph.features, graph.keys
    rng = np.random.default_rng(0)
    one, other = (np.sort(rng.permutation(len(keys))[len(keys) // 100 :]) for _ in range(2))
    check_update(features[one], keys[one], features[other], keys[other], 20)
    check_update(features[one], keys[one], features, keys, 20)


def test_update_refuses_a_wrong_k():
    table, keys = np.eye(5), np.arange(5, dtype=np.uint64)
    old = similarity_graph(table, 3, ids=keys)
    message = "'k' must be smaller than the number of nodes 3, got 3"
    with pytest.raises(snaps.SnapsError, match=message):
        extend(old, table, keys, table[:3], keys[:3], 3)


def test_update_takes_cosines_that_float32_cannot_tell_from_zero(both_paths):
    table, keys = np.array([[1.0, 1], [-1, -1], [1, -1 + 1e-10]]), np.arange(3, dtype=np.uint64)
    assert similarity_graph(table, 1).indices[0] == 2
    both_paths(lambda: check_update(table[:2], keys[:2], table, keys, 1))
