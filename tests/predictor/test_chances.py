"""Labels that were drawn with unequal chances: through the calls users make, and what is refused.

The simulation on a linked graph draws nodes as users do, for three seeds. Broken weights must fail
it.
"""

from __future__ import annotations

import warnings
from functools import cache
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import stats

import snaps
from snaps.conformal import calibration as calibrations
from snaps.conformal.chances import draw_uneven, effective_labels, tail_sums, weighted_limits
from snaps.datasets import make_graph
from snaps.models import smoothed_regression
from tests.helpers import small
from tests.helpers.small import error_line

SEEDS = [1, 2, 3]
NAN = float("nan")


# ---- A linked graph ------------------------------------------------------------------------------


class World(NamedTuple):
    graph: snaps.Graph
    probs: np.ndarray
    labels: np.ndarray
    pool: np.ndarray
    hard: np.ndarray
    similarity: Any


@cache
def world(seed: int) -> World:
    """A graph where many labels of hard nodes, half of all, are drawn at random."""
    made = make_graph(1000, 3, homophily=0.8, degree=6, signal=0.9, seed=seed)
    random = np.random.default_rng(seed)
    hard, labels = random.random(1000) < 0.5, made.labels.copy()
    replaced = hard & (random.random(1000) < 0.8)
    labels[replaced] = random.integers(3, size=int(replaced.sum()))
    probs = smoothed_regression(made.graph, made.labels, np.arange(100))
    similarity = snaps.similarity_graph(made.graph.features, k=20)
    return World(made.graph, probs, labels, np.arange(100, 1000), hard, similarity)


def mutant(monkeypatch, kind):
    """Break the weights as someone might."""
    if kind == "inverted":
        monkeypatch.setattr(calibrations, "tail_sums", lambda odds: tail_sums(1 / odds))
        monkeypatch.setattr(
            calibrations, "weighted_limits", lambda s, t, own, a: weighted_limits(s, t, 1 / own, a)
        )
    if kind == "own weight dropped":
        monkeypatch.setattr(
            calibrations, "weighted_limits", lambda s, t, own, a: weighted_limits(s, t, 0 * own, a)
        )
    if kind == "plain":
        monkeypatch.setattr(calibrations, "tail_sums", lambda odds: tail_sums(odds**0))
        monkeypatch.setattr(
            calibrations, "weighted_limits", lambda s, t, own, a: weighted_limits(s, t, own**0, a)
        )


DESIGNS = {"easy": (0.5, 0.1), "hard": (0.1, 0.5)}  # chances of easy and hard nodes


def split_coverages(case: World, method: Any, design: str, budget: int = 300) -> np.ndarray:
    easy, hard = DESIGNS[design]
    result = snaps.evaluate_splits(
        method, case.graph, case.probs, case.labels, case.pool, budget, 200,
        similarity=case.similarity, chances=np.where(case.hard, hard, easy),
    )  # fmt: skip
    return result["coverage"]


def below(coverages: np.ndarray, alpha: float = 0.1) -> float:
    """How many standard errors the mean is below 1 - alpha."""
    return (1 - alpha - coverages.mean()) / coverages.std(ddof=1) * len(coverages) ** 0.5


@pytest.mark.parametrize("seed", SEEDS)
def test_coverage_on_a_linked_graph(seed, monkeypatch):
    """200 draws each; the chance that a mean is four errors below is 3 in 100,000."""
    case = world(seed)
    methods = {"APS": snaps.SplitConformal, "SNAPS": snaps.SNAPS, "Pooled": snaps.Pooled}
    for method in methods.values():
        for design in DESIGNS:
            found = split_coverages(case, method(0.1), design)
            assert below(found) < 4
            assert found.mean() < 0.93
    mutant(monkeypatch, "inverted")
    assert split_coverages(case, snaps.SNAPS(0.1), "easy").mean() < 0.8
    monkeypatch.undo()
    mutant(monkeypatch, "plain")
    assert split_coverages(case, snaps.SNAPS(0.1), "easy").mean() < 0.8
    assert split_coverages(case, snaps.SplitConformal(0.1), "hard").mean() > 0.94
    monkeypatch.undo()
    few = split_coverages(case, snaps.SplitConformal(0.1), "easy", budget=60)
    assert below(few) < 4
    mutant(monkeypatch, "own weight dropped")
    few = split_coverages(case, snaps.SplitConformal(0.1), "easy", budget=60)
    assert below(few) > 4


@pytest.mark.parametrize("seed", SEEDS)
def test_nodes_drawn_by_themselves(seed):
    """As `snaps draw --chances` does: the number of labels is random, and a half of them tunes."""
    case, random = world(seed), np.random.default_rng(seed)
    for method, draws in ((snaps.SplitConformal(0.1), 80), (snaps.SNAPS(0.1), 30)):
        for easy, hard in DESIGNS.values():
            chances, found = np.where(case.hard, hard, easy), []
            chances[:100] = 0
            for _ in range(draws):
                drawn = random.random(900) < chances[case.pool]
                test = case.pool[~drawn]
                method.calibrate(
                    case.graph, case.probs, case.labels, case.pool[drawn],
                    similarity=case.similarity, chances=chances,
                )  # fmt: skip
                for smoothed in (False, True):
                    mask = method.predict_set(test, smoothed=smoothed).mask
                    found.append(mask[np.arange(len(test)), case.labels[test]].mean())
            assert below(np.array(found[::2])) < 4
            assert abs(below(np.array(found[1::2]))) < 4  # no rounding up: exactly 1 - alpha


# ---- The draw ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_splits_are_drawn_as_chances_say(seed):
    """Each set of three of six nodes with probability proportional to the product of 1 / odds."""
    odds, keys = np.array([0.2, 0.5, 1, 2, 4, 9.0]), np.arange(6, dtype=np.uint64)
    draws = draw_uneven(seed, keys, odds, 3, 4000)
    sets = list(combinations(range(6), 3))
    weights = np.array([1 / odds[list(each)].prod() for each in sets])
    counts = np.array([(draws == each).all(axis=1).sum() for each in sets])
    expected = 4000 * weights / weights.sum()
    assert stats.chisquare(counts, expected).pvalue > 1e-4
    assert np.array_equal(draws, draw_uneven(seed, keys, 1000 * odds, 3, 4000))  # scale is nothing


# ---- Equal chances are no chances ----------------------------------------------------------------


def test_equal_chances_change_nothing():
    for method in (snaps.SNAPS(0.1), snaps.Pooled(0.1), snaps.SplitConformal(0.1)):
        case, results = world(1), []
        for chances in (None, np.where(np.arange(1000) < 100, NAN, 0.3)):
            method.calibrate(
                case.graph, case.probs, case.labels, case.pool[:200], similarity=case.similarity,
                chances=chances,
            )  # fmt: skip
            test = case.pool[200:]
            results.append(
                (
                    method.threshold_,
                    method.predict_set(test).mask.tobytes(),
                    method.predict_p(test, smoothed=True).tobytes(),
                    method.evaluate(case.labels, test),
                )
            )
        assert results[0] == results[1]
        assert method.effective_labels_ == len(method.calib_nodes_)
    options = {"pool": case.pool, "n_calib": 100, "n_splits": 5, "similarity": case.similarity}
    plain, even = (
        snaps.evaluate_splits(
            snaps.SNAPS(0.1), case.graph, case.probs, case.labels, chances=chances, **options
        )
        for chances in (None, np.full(1000, 0.4))
    )
    assert plain.keys() == even.keys()
    assert all(np.array_equal(plain[key], even[key]) for key in plain)


# ---- Sets, p-values, names, files ----------------------------------------------------------------


@pytest.fixture(scope="module")
def case():
    """A small graph by name, calibration nodes drawn, and the nodes to predict."""
    random = np.random.default_rng(0)
    chances = random.choice([0.25, 0.5, 0.8], small.LABELS.shape)
    drawn = random.random(len(chances)) < chances
    return chances, np.flatnonzero(drawn), np.flatnonzero(~drawn)


def calibrated(case, method=None, chances=None, **options):
    method = snaps.SplitConformal(0.2) if method is None else method
    options.setdefault("nodes", case[1])
    graph = small.graph(ids=small.NAMES)
    given = case[0] if chances is None else chances
    return method.calibrate(graph, small.PROBS, small.LABELS, chances=given, **options)


@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("by_group", [False, True])
def test_labels_are_in_if_their_p_value_is_above_alpha(case, by_class, by_group):
    groups = np.arange(60) % 2 if by_group else None
    for score in (snaps.APS(), snaps.THR()):
        cp = snaps.SplitConformal(0.2, score=score, class_conditional=by_class)
        calibrated(case, cp, groups=groups)
        for alpha in (0.05, 0.2, 0.25, 1 / 3, 0.6):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", snaps.SnapsWarning)
                sets = cp.predict_set(case[2], alpha=alpha)
            assert np.array_equal(sets.mask, cp.predict_p(case[2]) > alpha)
            cp.alpha = alpha
            limits = cp.threshold_[case[2]].reshape(len(case[2]), -1)
            assert np.array_equal(sets.mask, cp.scores_[case[2]] <= limits)
        node = int(case[2][0])
        assert np.array_equal(cp.explain(node).inside, sets.mask[0])


def test_the_formula_word_by_word(case):
    """The smallest q with the odds of scores <= q at least (1 - alpha)(all odds + the own)."""
    cp = calibrated(case)
    odds = (1 - case[0]) / case[0]
    own = dict(zip(cp.calib_nodes_.tolist(), cp.calib_scores_.tolist(), strict=True))
    total = sum(odds[node] for node in own)
    for node in case[2]:
        needed = 0.8 * (total + odds[node]) - 1e-12
        sums = [
            (q, sum(odds[i] for i, score in own.items() if score <= q))
            for q in sorted(own.values())
        ]
        expected = next((q for q, weight in sums if weight >= needed), np.inf)
        assert cp.threshold_[node] == expected
    assert cp.effective_labels_ == pytest.approx(total**2 / sum(odds[node] ** 2 for node in own))
    assert effective_labels(np.zeros(3)) == 0


def test_by_name_by_edges_and_again(case, tmp_path):
    pandas = pytest.importorskip("pandas")
    expected = calibrated(case).predict_set(case[2]).mask
    shuffled = np.random.default_rng(1).permutation(60)
    for chances in (
        pandas.Series(case[0][shuffled], index=small.NAMES[shuffled]),
        dict(zip(small.NAMES[shuffled].tolist(), case[0][shuffled].tolist(), strict=True)),
    ):
        assert np.array_equal(calibrated(case, chances=chances).predict_set(case[2]).mask, expected)
    cp = calibrated(case)
    for data in (True, False):
        cp.save(tmp_path / "m.snaps", data=data)
        again = snaps.load(tmp_path / "m.snaps")
        assert again.effective_labels_ == cp.effective_labels_
        if not data:
            graph = small.graph(ids=small.NAMES)
            assert "'chances' must be given" in error_line(again.recalibrate, graph, small.PROBS)
            again.recalibrate(graph, small.PROBS, chances=case[0])
        assert np.array_equal(again.predict_set(case[2]).mask, expected)
    degrees = np.diff(small.graph().adjacency.indptr)
    linked = case[1][degrees[case[1]] > 0]
    test = case[2][degrees[case[2]] > 0]
    by_degree = 1 / (1 + 1 / np.maximum(degrees, 1))  # odds of 1 / degree
    found = [
        calibrated(case, chances=chances, nodes=linked).predict_set(test).mask
        for chances in ("edges", by_degree)
    ]
    assert np.array_equal(*found)


def test_without_chances_files_say_nothing_of_them(tmp_path):
    cp = small.calibrated()
    cp.save(tmp_path / "m.snaps")
    with np.load(tmp_path / "m.snaps") as arrays:
        assert not {"odds", "calib_odds"} & set(arrays)
        assert b"chances" not in arrays["header"].tobytes()
    assert snaps.load(tmp_path / "m.snaps").effective_labels_ is None


# ---- What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("value, rule", [
    (0, "must be above 0 for nodes that were drawn, got 0"),
    (NAN, "must be above 0 for nodes that were drawn, got nan"),
    (1.5, "must lie from 0 to 1, got 1.5"),
    (-0.1, "must lie from 0 to 1, got -0.1"),
    (float("inf"), "must lie from 0 to 1, got inf"),
])  # fmt: skip
def test_chances_of_calibration_nodes(case, value, rule):
    chances = case[0].copy()
    chances[case[1][3]] = value
    assert error_line(calibrated, case, chances=chances) == (
        f"'chances' {rule} for node {small.NAMES[case[1][3]]}"
    )


@pytest.mark.parametrize("value", [0, 1, NAN])
def test_chances_of_nodes_to_predict(case, value):
    chances = case[0].copy()
    chances[case[2][[1, 2]]] = value
    cp = calibrated(case, chances=chances)
    rule = f"both excluded, for each of 'nodes', got {value:g} for node {small.NAMES[case[2][1]]}"
    calls = [
        (cp.predict_set, case[2]),
        (cp.predict_p, case[2]),
        (cp.report, "r.html", None, case[2]),
    ]
    for call, *arguments in calls:
        assert error_line(call, *arguments).endswith(f"{rule} and 1 more")
    assert len(cp.predict_set(np.delete(case[2], [1, 2])))


@pytest.mark.parametrize("chances, rule", [
    ("edge", "must be one number per node or 'edges', got 'edge'"),
    (0.5, "must be 60 numbers, one per node, got float64 of shape ()"),
    ([0.5] * 59, "must be 60 numbers, one per node, got float64 of shape (59,)"),
    ([True] * 60, "must be 60 numbers, one per node, got bool of shape (60,)"),
    ({"stranger": 0.5}, "must be ids of the graph's nodes, got 'stranger'"),
])  # fmt: skip
def test_chances_that_are_none(case, chances, rule):
    assert rule in error_line(calibrated, case, chances=chances)


def test_what_goes_without_chances(case):
    groups = np.arange(60) % 2
    for method, options, name in (
        (snaps.SplitConformal(0.2, class_floor=0.7), {}, "class_floor"),
        (snaps.SplitConformal(0.2, confidence=0.9), {}, "confidence"),
        (snaps.SplitConformal(0.2), {"groups": groups, "group_floor": 0.7}, "group_floor"),
        (snaps.SplitConformal(0.2), {"missing_labels": 2}, "missing_labels"),
    ):
        found = error_line(calibrated, case, method, **options)
        assert found.startswith(f"'{name}' must be left out with chances, got ")
    cp = calibrated(case)
    graph, labels = small.graph(ids=small.NAMES), small.LABELS
    for call, *arguments in (
        (cp.select, 0), (cp.accept,), (cp.watch, labels, case[2]), (cp.exchangeability, case[2])
    ):  # fmt: skip
        assert "chances" in error_line(call, *arguments)
    keep = {"chances": case[0], "threshold": "keep"}
    assert "'threshold' must be 'set'" in error_line(cp.recalibrate, graph, small.PROBS, **keep)
    for options in ({"accept": 0.1}, {"select": 0}):
        splits = (snaps.SplitConformal(), graph, small.PROBS, labels, np.arange(60), 20)
        found = error_line(snaps.evaluate_splits, *splits, chances=case[0], **options)
        assert "must be left out with chances" in found


def test_small_chances_get_full_sets_and_a_warning(case):
    chances = case[0].copy()
    chances[case[2][:2]] = 1e-6
    cp = calibrated(case, chances=chances)
    with pytest.warns(snaps.SnapsWarning, match="^2 of .* nodes get full sets"):
        sets = cp.predict_set(case[2])
    assert (sets.sizes[:2] == 3).all()
    assert (sets.sizes[2:] < 3).any()


# ---- What is shown -------------------------------------------------------------------------------


def test_effective_labels_and_no_interval(case, tmp_path):
    cp = calibrated(case)
    result = cp.evaluate(small.LABELS, case[2])
    assert result["coverage_interval"] is result["inside"] is result["threshold"] is None
    assert result["n_effective"] == cp.effective_labels_
    assert "no interval: labels drawn with unequal chances" in str(result)
    cp.report(tmp_path / "r.html", small.LABELS, case[2])
    page = " ".join((tmp_path / "r.html").read_text().split())
    assert f'"n_effective" value="{cp.effective_labels_}"' in page
    assert "No interval is shown: calibration nodes were drawn with unequal chances" in page
    assert "Bar: the interval" not in page
    assert 'class="range"' not in page
    assert 'value="low"' not in page
