"""Large graphs: blocks and mapped files change no answer."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

import snaps
import snaps._runtime.memory as memory
from snaps._kernels.aggregation import neighbour_mean
from snaps._kernels.linking import link
from snaps._runtime.threads import limit_threads
from snaps.predictor.estimator import method_of
from snaps.scoring import context as _context
from snaps.scoring import regression as _regression
from snaps.scoring.evidence import Evidence
from tests.scale.common import N

METHODS = [
    snaps.SplitConformal(0.1),
    snaps.DAPS(0.1),
    snaps.SNAPS(0.1, k=8),
    snaps.SNAPS(0.1, k=8, score=snaps.RAPS()),
    snaps.SNAPS(0.1, k=8, candidates=300, class_conditional=True),
    snaps.Pooled(0.1, k=8),
]


def calibrated(method, data):
    made, probs, known, calib, _ = data
    evidence = {"known_nodes": known} if method_of(method).uses_evidence else {}
    cp = type(method)(**method.get_params())
    return cp.calibrate(made.graph, probs, made.labels, calib, **evidence)


# ---- The same answer -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("mapped", [False, True])
def test_blocks_and_mapped_files_change_no_bit(monkeypatch, tmp_path, data, method, mapped):
    test = data[-1]
    whole = calibrated(method, data)
    expected = whole.scores_, whole.predict_set(test).mask, whole.predict_set(test[:9]).mask
    monkeypatch.setattr(memory, "LARGE", 1)
    monkeypatch.setattr(memory, "BLOCK", 1 << 12)
    with memory.placed(tmp_path if mapped else None), limit_threads(1 + mapped):
        cp = calibrated(method, data)
        assert cp.part_weights_ == whole.part_weights_ and cp.neighbours_ == whole.neighbours_
        np.testing.assert_array_equal(cp.threshold_, whole.threshold_)
        for found, wanted in zip(
            (cp.scores_, cp.predict_set(test).mask, cp.predict_set(test[:9]).mask),
            expected,
            strict=True,
        ):
            np.testing.assert_array_equal(found, wanted)
        explanation, expected = cp.explain(test[3]), whole.explain(test[3])
        np.testing.assert_array_equal(explanation.mixed, whole.scores_[test[3]])
        assert str(explanation) == str(expected)
        if isinstance(method, snaps.Pooled):
            np.testing.assert_array_equal(cp.probs_, whole.probs_)
        assert os.listdir(tmp_path) == []


def test_splits_are_evaluated_alike(in_blocks, monkeypatch, data):
    made, probs, _, calib, test = data
    pool = np.concatenate([calib, test])
    asked = (made.graph, probs, made.labels, pool, 200)
    in_parts = snaps.evaluate_splits(snaps.SNAPS(0.1, k=8), *asked, n_splits=20)
    monkeypatch.undo()
    whole = snaps.evaluate_splits(snaps.SNAPS(0.1, k=8), *asked, n_splits=20)
    for name, values in whole.items():
        np.testing.assert_array_equal(in_parts[name], values)


def test_coverage_obeys_its_law_in_blocks(in_blocks, data):
    made, probs, _, calib, test = data
    pool = np.concatenate([calib, test])
    result = snaps.evaluate_splits(
        snaps.SNAPS(0.1, k=8, weights=(0.3, 0.3)), made.graph, probs, made.labels, pool, 300,
        n_splits=400,
    )  # fmt: skip
    law = snaps.conformal.coverage_law(300, len(pool) - 300, 0.1)
    spread = law.std() / (len(pool) - 300) / np.sqrt(400)
    # Splits of one pool are drawn again each time, the sets of a node are not: four deviations.
    assert abs(result["coverage"].mean() - law.mean() / (len(pool) - 300)) < 4 * spread


def test_means_over_some_rows(data):
    adjacency = data[0].graph.adjacency
    for width in (1, 4, 47):
        table = np.random.default_rng(width).random((N, width))
        whole = neighbour_mean(adjacency, table)
        dense = adjacency.toarray() @ table / np.maximum(adjacency.sum(axis=1), 1)[:, None]
        linked = np.diff(adjacency.indptr) > 0
        np.testing.assert_allclose(whole[linked], dense[linked], rtol=1e-12)
        np.testing.assert_array_equal(whole[~linked], table[~linked])
        for some in (slice(0, 10), slice(333, 700), slice(890, N)):
            np.testing.assert_array_equal(neighbour_mean(adjacency, table, rows=some), whole[some])


@dataclass
class Scaled(snaps.Score):
    """APS without its draws, in another unit; equal to others, and without a hash."""

    unit: float

    def compute(self, probs, draws):
        return self.unit * snaps.APS(randomized=False).compute(probs, draws)


@pytest.mark.parametrize("in_parts", [False, True])
def test_scores_of_any_size_are_averaged_alike(monkeypatch, data, in_parts):
    """Beyond single precision as well: a power of two changes no rounding."""
    if in_parts:
        monkeypatch.setattr(memory, "LARGE", 1)
        monkeypatch.setattr(memory, "BLOCK", 1 << 12)
    small, large = (
        calibrated(snaps.SNAPS(0.1, k=8, weights=(0.3, 0.3), score=Scaled(unit)), data)
        for unit in (1.0, 2.0**200)
    )
    np.testing.assert_array_equal(2.0**200 * small.scores_, large.scores_)
    heavy = calibrated(snaps.SNAPS(0.1, k=8, score=snaps.RAPS(k_reg=1, penalty=1e50)), data)
    assert np.isfinite(heavy.scores_).all()


def test_scores_are_averaged_in_single_precision(data):
    """Half the bytes that the means fetch; a node's own score keeps all of its digits."""
    from snaps.scoring.local import Inputs
    from snaps.scoring.parts import Averaged, Links, Mean, Own

    made, probs, *_ = data
    inputs, own = Inputs.read(made.graph, probs), Own(snaps.APS(), 0)
    table, single = inputs.get(own), inputs.get(Averaged(own))
    assert table.dtype == np.float64 and single.dtype == np.float32
    np.testing.assert_array_equal(table.astype(np.float32), single)
    mean = neighbour_mean(made.graph.adjacency, single, table, exact=True)
    np.testing.assert_array_equal(inputs.get(Mean(Links(), own)), mean)


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("loops", [True, False])
def test_edges_as_a_matrix(both, loops):
    rng = np.random.default_rng(0)
    for n, count in ((1, 0), (1, 3), (7, 40), (30_000, 50_000)):
        source, target = rng.integers(n, size=(2, count))
        rank = rng.permutation(n).astype(np.int32)
        keep = (source != target) | loops
        ends = np.stack([source, target])[:, keep]
        if both:
            ends = np.hstack([ends, ends[::-1]])
        expected = sp.coo_array((np.ones(ends.shape[1]), tuple(ends)), (n, n)).tocsr()
        found = link(source, target, rank, both, loops)
        assert (found.data == 1).all() and found.nnz == expected.nnz
        rows = np.repeat(np.arange(n), np.diff(found.indptr))
        same = rows[1:] == rows[:-1]
        assert (np.diff(rank[found.indices])[same] > 0).all()
        assert ((found != 0) != (expected != 0)).nnz == 0  # SciPy sorts to compare


# ---- Linear models of many labels ----------------------------------------------------------------


def test_a_regression_is_accumulated_in_blocks(monkeypatch, data):
    """The same model whatever the blocks, and guesses that never saw the node's own label."""
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(300, 12)), rng.integers(3, size=300)
    evidence = Evidence(np.arange(300), np.arange(300, dtype=np.uint64), labels)
    whole = _regression.solve(lambda some: rows[some], 12, evidence, 3)
    monkeypatch.setattr(_regression, "ROWS", 64)
    parts = _regression.solve(lambda some: rows[some], 12, evidence, 3)
    np.testing.assert_allclose(parts.coefficients, whole.coefficients, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(parts.left_out, whole.left_out, rtol=1e-10, atol=1e-12)
    # Which ridge was chosen follows from the coefficients; then by brute force.
    target = np.eye(3)[labels]

    def fitted(rows, target, ridge):
        return np.linalg.solve(rows.T @ rows + ridge * np.eye(12), rows.T @ target)

    ridge = next(
        r for r in _regression.RIDGES if np.allclose(fitted(rows, target, r), whole.coefficients)
    )
    for i in (0, 70, 299):
        others = np.arange(300) != i
        guess = rows[i] @ fitted(rows[others], target[others], ridge)
        np.testing.assert_allclose(parts.left_out[i], guess, rtol=1e-8)


@pytest.mark.parametrize("width", [300, 5000])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_features_are_summed_up_in_few_blocks(monkeypatch, make, width):
    """Each adds a table of all columns: wide rows must not come a few at a time."""
    counts = []
    real = _context.blocks
    monkeypatch.setattr(_context, "blocks", lambda *all: counts.append(real(*all)) or counts[-1])
    table = np.random.default_rng(0).random((1000, width)) * (np.arange(width) % 7 == 0)
    summed = _context.summary(snaps.Graph(None, make(table)))
    assert [len(parts) for parts in counts] == [3 if make is np.asarray and width == 5000 else 1]
    monkeypatch.undo()
    monkeypatch.setattr(_context, "_block_rows", lambda features: 100)
    again = _context.summary(snaps.Graph(None, make(table)))
    np.testing.assert_allclose(summed @ summed.T, again @ again.T, atol=1e-9)
