"""The similarity graph against a plain loop, what must not change it, and its update."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import snaps
from snaps import similarity
from snaps._runtime.threads import limit_threads
from snaps.graph import check_features
from snaps.search import small
from snaps.search.update import extend
from snaps.similarity import similarity_graph


def brute(features, k, ids=None, near=None):
    """Row by row: (neighbour, cosine), most similar first, ties to the smaller id."""
    x = np.asarray(features, np.float64)
    ids = np.arange(len(x)) if ids is None else ids
    near = range(len(x)) if near is None else near
    rows = []
    for i in range(len(x)):
        found = []
        for j in near:
            dot = float(x[i] @ x[j])
            if j != i and dot > 0:
                found.append((-dot * dot / float(x[j] @ x[j]), ids[j], j, dot))
        found.sort()
        rows.append([(j, dot / np.sqrt((x[i] @ x[i]) * (x[j] @ x[j]))) for *_, j, dot in found[:k]])
    return rows


def rows_of(graph):
    """The same from a matrix, in stored order."""
    return [
        list(
            zip(
                graph.indices[graph.indptr[i] : graph.indptr[i + 1]].tolist(),
                graph.data[graph.indptr[i] : graph.indptr[i + 1]].tolist(),
                strict=True,
            )
        )
        for i in range(graph.shape[0])
    ]


def equal(one, other):
    return all(
        np.array_equal(getattr(one, part), getattr(other, part))
        for part in ("indptr", "indices", "data")
    )


@pytest.fixture
def both_paths(monkeypatch):
    """Run a function on the sparse path and on the dense one, both compiled."""
    monkeypatch.setattr(small, "MOST_NODES", -1)

    def run(function):
        out = []
        for cost in (0.0, 1e300):
            monkeypatch.setattr(similarity, "STEP_COST", cost)
            out.append(function())
        return out

    return run


counts = st.integers(2, 12).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), min_size=n, max_size=n)
)


@given(counts, st.integers(1, 5), st.randoms())
@settings(max_examples=60, deadline=None)
def test_equals_a_plain_loop_with_many_ties(table, k, random):
    table = np.array(table)
    k = min(k, len(table) - 1)
    ids = np.array(random.sample(range(1000), len(table)))
    expected = brute(table, k, ids)
    for cost in (0.0, 1e300):
        saved, similarity.STEP_COST = similarity.STEP_COST, cost
        try:
            found = rows_of(similarity_graph(table, k, ids=ids))
        finally:
            similarity.STEP_COST = saved
        assert [[j for j, _ in row] for row in found] == [[j for j, _ in row] for row in expected]
        for row, other in zip(found, expected, strict=True):
            np.testing.assert_allclose([c for _, c in row], [c for _, c in other], rtol=1e-14)


@given(counts, st.randoms())
@settings(max_examples=40, deadline=None)
def test_relabelling_permutes_the_result(table, random):
    table = np.array(table)
    order = np.array(random.sample(range(len(table)), len(table)))
    ids = np.arange(len(table)) * 7 + 3
    before = rows_of(similarity_graph(table, 1, ids=ids))
    after = rows_of(similarity_graph(table[order], 1, ids=ids[order]))
    for new, old in enumerate(order):
        assert [(order[j], c) for j, c in after[new]] == before[old]


@pytest.fixture(scope="module")
def words():
    return (sp.random_array((700, 300), density=0.05, rng=np.random.default_rng(0)) > 0).astype(
        float
    )


def test_both_paths_give_the_same_bits(words, both_paths):
    real = np.random.default_rng(1).normal(size=(500, 30))
    for table in (words, real, real.astype(np.float32), sp.csr_array(np.maximum(real, 0))):
        sparse, dense = both_paths(lambda table=table: similarity_graph(table, 10))
        assert equal(sparse, dense)


@pytest.mark.parametrize("signed", [False, True])
def test_rows_that_share_little_equal_a_plain_loop(signed, both_paths):
    """Few rows overlap: the sparse path walks its index twice instead of looking at every node."""
    rng = np.random.default_rng(4)
    table = sp.random_array((400, 500), density=0.006, rng=rng).toarray()
    table = np.ceil(9 * table)
    if signed:
        table *= rng.choice([-1, 1], size=table.shape)
    expected = brute(table, 6)
    assert min(map(len, expected)) == 0
    for features in (table, sp.csr_array(table), np.asfortranarray(table)):
        sparse, dense = both_paths(lambda features=features: similarity_graph(features, 6))
        assert equal(sparse, dense)
        assert [[j for j, _ in row] for row in rows_of(sparse)] == [
            [j for j, _ in row] for row in expected
        ]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("vocabulary, power", [(40, 1), (400, 1), (400, 0)])
def test_short_rows_equal_a_plain_loop_in_blocks_of_any_width(seed, vocabulary, power, monkeypatch):
    """About six words per row, as in titles: most cosines tie; without common words few meet."""
    rng, n = np.random.default_rng(seed), 300
    chances = np.arange(1.0, vocabulary + 1) ** -power
    table = np.zeros((n, vocabulary), np.float32)
    for row in table:
        row[rng.choice(vocabulary, 1 + rng.poisson(5), p=chances / chances.sum())] = 1
    ids = rng.permutation(n)
    expected = [[j for j, _ in row] for row in brute(table, 20, ids)]
    for width in (16384, 16):
        monkeypatch.setattr(similarity, "SPARSE_ROWS", width)
        graph = similarity_graph(sp.csr_array(table), 20, ids=ids)
        assert [[j for j, _ in row] for row in rows_of(graph)] == expected


@pytest.mark.parametrize("kind", ["close together", "half of them", "scaled copies"])
def test_rows_that_float32_does_not_tell_apart(kind, both_paths):
    """More of them than a list takes: the rest is compared in double precision."""
    rng = np.random.default_rng(4)
    table = rng.normal(size=(400, 8))
    if kind == "scaled copies":
        table = np.outer(2.0 ** rng.integers(-3, 4, size=400), [3.0, 4.0])
    else:
        some = slice(None, None, 2 if kind == "half of them" else 1)
        table[some] = 5 + 1e-3 * table[some]
    for graph in both_paths(lambda: similarity_graph(table, 5)):
        for mine, true in zip(rows_of(graph), brute(table, 5), strict=True):
            assert [j for j, _ in mine] == [j for j, _ in true]
            assert np.allclose([c for _, c in mine], [c for _, c in true], atol=1e-15, rtol=0)


def test_the_order_is_that_of_the_values_and_the_input_stays(words):
    rng = np.random.default_rng(5)
    table = rng.normal(size=(300, 40))
    table[1::3] = table[::3] * 2.0**-3
    before = table.copy()
    table.flags.writeable = False
    graph = similarity_graph(table, 8)
    for row in rows_of(graph):
        assert row == sorted(row, key=lambda entry: (-entry[1], entry[0]))
        assert all(0 < cosine <= 1 for _, cosine in row)
    assert (graph.data[graph.indptr[1::3][:-1]] == 1).all()
    assert np.array_equal(table, before)


def test_a_table_of_zeros_has_no_neighbours(both_paths):
    for table in (np.zeros((4, 3)), sp.csr_array((4, 3))):
        assert all(g.nnz == 0 for g in both_paths(lambda table=table: similarity_graph(table, 2)))


def test_progress_goes_to_stderr(words, both_paths, capsys):
    both_paths(lambda: similarity_graph(words, 3, progress=True))
    assert capsys.readouterr().out == ""


def test_threads_and_blocks_change_nothing(words, both_paths, monkeypatch):
    before = both_paths(lambda: similarity_graph(words, 7))
    blocks = {"SPARSE_ROWS": 64, "SHARE": 37, "BLOCK_BYTES": 1 << 14}
    for name, value in blocks.items():
        monkeypatch.setattr(similarity, name, value)
    with limit_threads(1):
        after = both_paths(lambda: similarity_graph(words, 7))
    assert all(equal(one, other) for one, other in zip(before, after, strict=True))


def test_every_kind_of_input_agrees(words):
    torch = pytest.importorskip("torch")
    expected = similarity_graph(words, 5)
    dense = words.toarray()
    for table in (
        sp.csc_array(words), sp.coo_array(words), dense, dense.astype(np.float32),
        dense.astype(np.int64), dense.astype(bool), torch.tensor(dense), dense.tolist(),
    ):  # fmt: skip
        assert equal(similarity_graph(table, 5), expected)


def test_only_candidates_are_neighbours(words, both_paths):
    for graph in both_paths(lambda: similarity_graph(words, 5, candidates=50, seed=3)):
        near = np.unique(graph.indices)
        assert len(near) <= 50
        chosen = snaps._runtime.randomness.smallest(
            3, np.arange(700, dtype=np.uint64), snaps._runtime.randomness.CANDIDATE_STREAM, 50
        )
        assert set(near) <= set(chosen)
        expected = brute(words.toarray(), 5, near=chosen)
        assert [[j for j, _ in row] for row in rows_of(graph)] == [
            [j for j, _ in row] for row in expected
        ]
    assert equal(similarity_graph(words, 5, candidates=700), similarity_graph(words, 5))


def test_all_rows_alike_take_the_smallest_ids(both_paths):
    for graph in both_paths(lambda: similarity_graph(np.ones((900, 3)), 2)):
        assert [j for j, _ in rows_of(graph)[0]] == [1, 2]
        assert [j for j, _ in rows_of(graph)[500]] == [0, 1]
        np.testing.assert_allclose(graph.data, 1.0)


def test_multiples_of_one_row_take_the_smallest_ids(both_paths):
    """More of them than a list holds: neither float32 nor float64 tells them apart, the ids do."""
    rng = np.random.default_rng(0)
    table, ids = (
        rng.permutation(np.arange(1, 1501))[:, None] * np.array([[1, 2, 3]]),
        rng.permutation(1500),
    )
    first = np.argsort(ids)
    for method in ("exact", "approximate"):
        for graph in both_paths(lambda m=method: similarity_graph(table, 5, ids=ids, method=m)):
            assert (graph.data == 1).all()
            for i, row in enumerate(rows_of(graph)):
                assert [j for j, _ in row] == first[first != i][:5].tolist()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("wide", [1, 3])
def test_rows_with_one_entry_have_its_direction(wide, kind, both_paths):
    """Whatever its size: cosines are one to the last bit, and ties go to the smaller id."""
    rng = np.random.default_rng(0)
    table = np.zeros((400, wide), kind)
    column = rng.integers(wide, size=400)
    table[np.arange(400), column] = rng.lognormal(0, 3, 400) * rng.choice([-1, 1], 400)
    ids = rng.permutation(400)
    direction = list(zip(column.tolist(), np.sign(table.sum(axis=1)).tolist(), strict=True))
    for features in (table, sp.csr_array(table)):
        for graph in both_paths(lambda features=features: similarity_graph(features, 5, ids=ids)):
            assert (graph.data == 1).all()
            for i, row in enumerate(rows_of(graph)):
                alike = [j for j in range(400) if direction[j] == direction[i] and j != i]
                assert [j for j, _ in row] == sorted(alike, key=lambda j: ids[j])[:5]


def test_rows_with_one_entry_are_compared_once(monkeypatch):
    """Not each with all others, which float32 and float64 cannot tell apart either."""
    seen = []
    search = similarity._search_dense

    def watched(table, rows, near, *rest):
        seen.append(len(near))
        search(table, rows, near, *rest)

    monkeypatch.setattr(similarity, "_search_dense", watched)
    monkeypatch.setattr(similarity, "STEP_COST", 1e300)
    similarity_graph(np.random.default_rng(0).random((5000, 1)), 20)
    assert seen == [21]


def test_zero_rows_and_negative_cosines_have_no_neighbours(both_paths):
    table = np.array([[1.0, 0], [-1, 0], [0, 0], [2, 1]])
    for graph in both_paths(lambda: similarity_graph(table, 3)):
        assert [[j for j, _ in row] for row in rows_of(graph)] == [[3], [], [], [0]]


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
def test_scale_does_not_matter(scale, both_paths):
    table = np.random.default_rng(2).normal(size=(60, 8))
    expected = [[j for j, _ in row] for row in brute(table, 5)]
    for graph in both_paths(lambda: similarity_graph(table * scale, 5)):
        assert [[j for j, _ in row] for row in rows_of(graph)] == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "'k' must be an integer of at least 1, got 0"),
        ({"k": 5}, "'k' must be smaller than the number of nodes 5, got 5"),
        ({"k": 2.5}, "'k' must be an integer of at least 1, got 2.5"),
        ({"candidates": 0}, "'candidates' must be an integer of at least 1, got 0"),
        ({"ids": [1, 2, 3, 4, 4]}, "'ids' must be unique, got 4 twice or more"),
        ({"ids": [1, 2, 3]}, r"'ids' must have shape \(5,\), got \(3,\)"),
        ({"progress": 1}, "'progress' must be True or False, got 1"),
    ],
)
def test_complaints(arguments, message):
    with pytest.raises(snaps.SnapsError, match=message):
        similarity_graph(np.eye(5), **{"k": 1, **arguments})


def test_features_that_are_not_finite_are_named():
    table = np.eye(5)
    table[3, 2] = np.inf
    with pytest.raises(snaps.SnapsError, match="'features' must be finite, got inf in row 3"):
        similarity_graph(table, 1)


# ---- the update of an older graph: the same bits as a search from scratch


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


def test_update_starts_anew_when_the_features_are_of_another_kind(words):
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
    """The law would hold without an update: so count the rows that are compared with all."""
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


def test_update_complains_about_k():
    table, keys = np.eye(5), np.arange(5, dtype=np.uint64)
    old = similarity_graph(table, 3, ids=keys)
    message = "'k' must be smaller than the number of nodes 3, got 3"
    with pytest.raises(snaps.SnapsError, match=message):
        extend(old, table, keys, table[:3], keys[:3], 3)


def test_update_takes_cosines_that_float32_cannot_tell_from_zero(both_paths):
    table, keys = np.array([[1.0, 1], [-1, -1], [1, -1 + 1e-10]]), np.arange(3, dtype=np.uint64)
    assert similarity_graph(table, 1).indices[0] == 2
    both_paths(lambda: check_update(table[:2], keys[:2], table, keys, 1))
