"""The weakest slice and the worst slab: by brute force, and where coverage is alike everywhere."""

from __future__ import annotations

from itertools import pairwise
from math import comb

import numpy as np
import pytest
from scipy.stats import hypergeom

import snaps
from snaps.conformal.coverage import dealt_quantile, dealt_tail
from snaps.predictor import slices
from tests.helpers.small import made

CALIB, TEST = np.arange(40, 240), np.arange(240, 400)
SEEDS = (0, 1, 2)


def calibrated(method=None, **options):
    case = made()
    method = method or snaps.SplitConformal(0.1)
    return method.calibrate(case.graph, case.probs, case.labels, CALIB, **options)


def test_the_weakest_slice_by_plain_counts():
    case, names = made(), np.array(["few", "some", "many"])
    cp = calibrated(groups=names[made().bands])
    weakest, sets = cp.evaluate(case.labels, TEST)["weakest_slice"], cp.predict_set(TEST)
    hits = sets.mask[np.arange(len(TEST)), case.labels[TEST]]
    degrees, top = np.diff(case.graph.adjacency.indptr)[TEST], case.probs[TEST].max(axis=1)
    edges = np.quantile(top, [0, 0.2, 0.4, 0.6, 0.8, 1])
    looked_at = {("class", y): case.labels[TEST] == y for y in range(3)}
    looked_at |= {("group", name): names[case.bands[TEST]] == name for name in names}
    looked_at |= {("set size", size): sets.sizes == size for size in range(1, 4)}
    for low, high in ((0, 0), (1, 1), (2, 3), (4, 7), (8, 15), (16, 31), (32, 63)):
        looked_at["links", f"{low} to {high}"] = (degrees >= low) & (degrees <= high)
    for place, (low, high) in enumerate(pairwise(edges)):
        looked_at["confidence", place] = (top > low if place else top >= low) & (top <= high)
    looked_at = {key: own for key, own in looked_at.items() if own.any()}
    m, total = len(hits), int(hits.sum())

    def at_most(h, n):
        return sum(comb(total, i) * comb(m - total, n - i) for i in range(h + 1)) / comb(m, n)

    tails = {key: at_most(hits[own].sum(), own.sum()) for key, own in looked_at.items()}
    worst = min(tails, key=tails.get)
    own, count = looked_at[worst], len(looked_at)
    least = next(h for h in range(m) if at_most(h, own.sum()) >= 0.01 / count)
    assert (weakest["by"], weakest["slices"], weakest["n"]) == (worst[0], count, own.sum())
    assert weakest["coverage"] == hits[own].mean()
    assert weakest["chance"] == pytest.approx(min(1, count * tails[worst]))
    assert weakest["chance_coverage"] == pytest.approx(least / own.sum())


@pytest.mark.parametrize(
    ("by", "name", "words"),
    [("class", "law", "class law"), ("links", "0", "0 links"), ("links", "1", "1 link"),
     ("set size", "2", "2 labels in the set"), ("confidence", "up\u00a0to\u00a00.52",
      "confidence up to 0.52"), ("group", "north", "group north")],
)  # fmt: skip
def test_slices_in_words(by, name, words):
    assert snaps.predictor.evaluation.slice_name({"by": by, "name": name}) == words


def test_two_lines_of_the_table():
    lines = str(calibrated().evaluate(made().labels, TEST)).splitlines()[-2:]
    assert lines[0].startswith("weakest slice") and "the weakest of" in lines[0]
    assert lines[1].startswith("worst slab") and "searched on 80 nodes" in lines[1]


# ---- Where coverage is alike everywhere ----------------------------------------------------------


def evaluations(seed, count, n=99, m=300):
    """Evaluations of random tables, in which labels have nothing to do with probabilities."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        probs, labels = random.dirichlet(np.ones(4), n + m), random.integers(0, 4, n + m)
        cp = snaps.SplitConformal(0.1, score=Shuffled(), seed=int(random.integers(2**31)))
        yield cp.calibrate(None, probs, labels, np.arange(n)).evaluate(labels)


class Shuffled(snaps.Score):
    """A score that is random, so that every node is covered alike."""

    def compute(self, probs, draws):
        return np.broadcast_to(draws, probs.shape)

    randomized = True


def slab_errors(seed, count):
    """Mean of the slab's coverage minus the promised one, in standard errors; and the mean."""
    found = [result["worst_slab"]["coverage"] for result in evaluations(seed, count)]
    mean, error = np.mean(found), np.std(found) / np.sqrt(count)
    return (mean - 0.9) / error, mean


@pytest.mark.parametrize("seed", SEEDS)
def test_the_slab_is_measured_without_bias(seed):
    errors, _ = slab_errors(seed, 100)
    assert abs(errors) < 3.5


@pytest.mark.parametrize("seed", SEEDS)
def test_a_slab_measured_where_it_was_searched_is_rejected(seed, monkeypatch):
    both = np.arange(0, 300, 2)
    monkeypatch.setattr(slices, "_halves", lambda n: (both, both))
    errors, mean = slab_errors(seed, 20)
    assert errors < -10 and mean < 0.82


def chances(seed, count=400, m=300):
    """How probable the weakest slice is by chance, for hits of random thresholds."""
    random = np.random.default_rng(seed)
    of_three, of_fifty, half = (random.integers(0, k, m) for k in (3, 50, 2))
    nested = np.where(half, of_three, -1)
    looked_at = [
        slices.Slices(str(place), range(50), codes)
        for place, codes in enumerate((of_three, of_fifty, half, nested))
    ]
    shares = random.beta(90, 10, count)
    found = [slices.weakest_slice(looked_at, random.random(m) < share) for share in shares]
    return (
        np.array([one["chance"] for one in found]),
        np.mean([one["coverage"] < one["chance_coverage"] for one in found]),
        found[0]["slices"],
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_chance_alone_rarely_gives_so_weak_a_slice(seed):
    chance, below, count = chances(seed)
    for level in (0.05, 0.2):
        share = np.mean(chance <= level)
        assert share <= level + 3.5 * np.sqrt(level * (1 - level) / len(chance))
    assert below <= 0.01 + 3.5 * np.sqrt(0.01 * 0.99 / len(chance))
    assert np.mean(chance <= 0.5) > 0.1  # the bound is not idle
    assert np.mean(chance / count <= 0.05) > 0.3  # that of a slice by itself would be wrong


# ---- Where it is not -----------------------------------------------------------------------------


def test_a_weak_corner_is_found():
    random = np.random.default_rng(0)
    columns = random.normal(size=(4000, 3))
    corner = columns @ [1, -1, 0.5] > 1.2
    hits = random.random(4000) < np.where(corner, 0.6, 0.98)
    coverage, n = slices.worst_slab(columns, hits, seed=0)
    assert coverage < hits.mean() - 0.15 and n >= 300


def test_the_slab_depends_on_ids_and_seed_alone():
    case, order = made(), np.random.default_rng(0).permutation(400)
    back = np.argsort(order)

    def slab(seed=0, shuffled=False):
        method = snaps.SplitConformal(0.1, score=snaps.THR(), seed=seed)
        if not shuffled:
            return calibrated(method).evaluate(case.labels, TEST)["worst_slab"]
        graph = snaps.Graph(
            case.graph.adjacency[order][:, order], case.graph.features[order],
            ids=case.graph.ids[order],
        )  # fmt: skip
        method.calibrate(graph, case.probs[order], case.labels[order], back[CALIB])
        return method.evaluate(case.labels[order], back[TEST])["worst_slab"]

    assert slab() == slab(shuffled=True) and slab() == slab()
    assert slab() != slab(seed=1)


def test_many_nodes_are_sampled(monkeypatch):
    monkeypatch.setattr(slices, "_MOST", 120)
    slab = calibrated().evaluate(made().labels, TEST)["worst_slab"]
    assert slab["searched"] == 60 and slab["n"] <= 60
    assert calibrated().evaluate(made().labels, TEST[:99])["worst_slab"] is None


def test_probabilities_that_are_all_alike():
    labels = np.arange(400) % 2
    cp = snaps.SplitConformal(0.1, score=snaps.THR())
    cp.calibrate(None, np.full((400, 2), 0.5), labels, np.arange(100))
    result = cp.evaluate(labels)
    assert result["worst_slab"] is None and result["weakest_slice"]["coverage"] == 1


@pytest.mark.parametrize("total", (1, 2, 40, 1000, 300_000))
def test_hits_dealt_at_random_are_hypergeometric(total):
    rng = np.random.default_rng(total)
    for _ in range(20):
        good, n = int(rng.integers(total + 1)), int(rng.integers(1, total + 1))
        law = hypergeom(total, good, n)
        for h in law.ppf([1e-9, 1e-3, 0.3, 0.99]):
            assert dealt_tail(total, good, n, h) == pytest.approx(law.cdf(h), rel=1e-7)
        for level in (1e-6, 1e-3, 0.4):
            assert dealt_quantile(total, good, n, level) * n == pytest.approx(law.ppf(level))
