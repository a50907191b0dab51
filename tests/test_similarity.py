"""The similarity graph against a plain loop, and what must not change it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import snaps
from snaps import similarity
from snaps._runtime.threads import limit_threads
from snaps.similarity import similarity_graph


def brute(features, k, ids=None, near=None):
    """Row by row: (neighbour, cosine), most similar first, ties to the smaller id."""
    x = np.asarray(features, np.float64)
    ids = np.arange(len(x)) if ids is None else ids
    near = range(len(x)) if near is None else near
    squares, rows = [float(row @ row) for row in x], []
    for i in range(len(x)):
        found = []
        for j in near:
            dot = float(x[i] @ x[j])
            if j != i and dot > 0:
                found.append((-dot * dot / squares[j], ids[j], j, dot))
        found.sort()
        rows.append([(j, dot / np.sqrt(squares[i] * squares[j])) for *_, j, dot in found[:k]])
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
    """More of them than a list holds: they tie in float32 and in float64, ids decide."""
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
    """Not each with all others, which tie in float32 and float64 too."""
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
def test_errors(arguments, message):
    with pytest.raises(snaps.SnapsError, match=message):
        similarity_graph(np.eye(5), **{"k": 1, **arguments})


def test_features_that_are_not_finite_are_named():
    table = np.eye(5)
    table[3, 2] = np.inf
    with pytest.raises(snaps.SnapsError, match="'features' must be finite, got inf in row 3"):
        similarity_graph(table, 1)


def test_features_that_were_changed_in_place_are_looked_at_again():
    features = np.random.default_rng(0).random((30, 4))
    for table in (features, sp.csr_array(features)):
        graph = snaps.Graph([[0], [1]], table)
        (graph.features.data if sp.issparse(table) else graph.features)[3:4] = np.nan
        cp = snaps.SNAPS(0.2, k=3, weights=(0.3, 0.3))
        with pytest.raises(snaps.SnapsError, match="'features' must be finite, got nan in row"):
            cp.calibrate(graph, np.tile([0.6, 0.4], (30, 1)), [0, 1] * 15, np.arange(20))
