"""Floors per class or group: exact, against brute force, and mutants that are not."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from snaps.conformal.calibration import Calibration, Promise
from snaps.conformal.rank import conformal_rank

SEEDS = [0, 1, 2]


def bag_says(scores, cells_of, candidate, cells, alpha, floors):
    """Whether a candidate is in, by the definition over the bag of n + 1 scores."""
    values = [*scores, candidate]
    n, low = len(scores), [False] * len(values)
    for floor, codes, own in zip(floors, cells_of, cells, strict=True):
        members = [*codes, own]
        for cell in set(members):
            mine = sorted(v for v, c in zip(values, members, strict=True) if c == cell)
            if len(mine) * (1 - floor) < 1:
                continue
            quantile = mine[math.ceil(floor * len(mine)) - 1]
            for i, (v, c) in enumerate(zip(values, members, strict=True)):
                low[i] |= c == cell and v <= quantile
    modified = [-math.inf if is_low else v for v, is_low in zip(values, low, strict=True)]
    rank = conformal_rank(n, alpha)
    return rank > n or modified[-1] <= sorted(modified)[rank - 1]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["class", "group", "both", "class in groups"])
def test_sets_and_p_values_are_those_of_the_bag(seed, kind):
    """On tiny pools with ties, for every candidate and every level."""
    random = np.random.default_rng(seed)
    for n in (1, 3, 7, 12):
        scores = random.integers(0, 9, n).astype(float)
        labels, groups = random.integers(0, 3, n), random.integers(0, 2, n)
        floors = {"class": [Fraction(2, 3)], "group": [Fraction(3, 4)]}
        floors |= {"both": floors["group"] + floors["class"], "class in groups": floors["class"]}
        promise = Promise(
            class_floor=None if kind == "group" else Fraction(2, 3),
            group_floor=Fraction(3, 4) if kind in ("group", "both") else None,
        )
        grouped = kind != "class"
        calibration = Calibration(
            scores, labels, 3, groups if grouped else 0, 2 if grouped else 1, promise=promise
        )
        for alpha, y, group in itertools.product((0.1, 0.25, 0.5), range(3), range(2)):
            values = np.arange(-0.5, 9.5, 0.5)
            rows = np.zeros((len(values), 3))
            rows[:, y] = values
            codes = np.full(len(values), group if grouped else 0)
            inside = calibration.contains(rows, alpha, codes)[:, y]
            p = calibration.p_values(rows, codes)[:, y]
            here = groups == group if kind == "class in groups" else np.ones(n, bool)
            cells_of = {"class": [labels], "group": [groups], "both": [groups, labels]}
            own = {"class": (y,), "group": (group,), "both": (group, y)}
            for value, is_in, p_value in zip(values, inside, p, strict=True):
                expected = bag_says(
                    scores[here],
                    [codes[here] for codes in cells_of.get(kind, [labels])],
                    value,
                    own.get(kind, (y,)),
                    alpha,
                    floors[kind],
                )
                assert is_in == expected == (p_value > alpha)


N, LEVEL, LEAST = 20, 0.25, Fraction(2, 3)


def exact_shares(limits_of, seed, trials=3000):
    """Coverage of the true label: of all, and of the hard class where it is promised a floor."""
    random, hits, hard = np.random.default_rng(seed), [], []
    for _ in range(trials):
        labels = random.choice(3, N + 1, p=[0.45, 0.3, 0.25])
        scores = random.normal(size=N + 1) + np.array([0.0, 0.5, 6.0])[labels]
        limits = limits_of(scores[:-1], labels[:-1], 3, LEVEL, LEAST)
        hits.append(scores[-1] <= limits[labels[-1]])
        if labels[-1] == 2 and (labels == 2).sum() * (1 - LEAST) >= 1:
            hard.append(hits[-1])
    return hits, hard


def kept(hits, hard):
    """Whether coverage is what is promised: exactly on average, and at least the floor."""

    def error(values):
        return 3 * np.std(values) / math.sqrt(len(values))

    exact = conformal_rank(N, LEVEL) / (N + 1)
    return abs(np.mean(hits) - exact) < error(hits) and np.mean(hard) > LEAST - error(hard)


def ours(scores, labels, classes, alpha, floor):
    calibration = Calibration(scores, labels, classes, promise=Promise(class_floor=floor))
    return calibration.limits(alpha)[0]


def by_hand(scores, labels, classes, alpha, floor, *, joined=1, rare=1, own=True):
    """The same with parts that can be left out: the candidate in the floors, its class's own."""
    n, limits = len(scores), np.empty(classes)
    rank = conformal_rank(n, alpha)
    for y in range(classes):
        low, q_own = np.zeros(n, bool), -math.inf
        for k in range(classes):
            mine = np.sort(scores[labels == k] if own else scores)
            extra, extra_rare = (joined, rare) if k == y else (0, 0)
            if (len(mine) + extra_rare) * (1 - floor) < 1 or not len(mine):
                continue
            place = min(math.ceil(floor * (len(mine) + extra)), len(mine))
            quantile = mine[place - 1]
            low |= (labels == k) & (scores <= quantile)
            q_own = quantile if k == y else q_own
        beyond = np.sort(np.where(low, -math.inf, scores))
        limits[y] = max(q_own, beyond[rank - 1])
    return limits


def test_floors_by_hand_are_ours():
    random = np.random.default_rng(5)
    for _ in range(50):
        labels = random.integers(0, 3, 40)
        scores = random.normal(size=40)
        expected = by_hand(scores, labels, 3, 0.25, Fraction(3, 4))
        np.testing.assert_array_equal(ours(scores, labels, 3, 0.25, Fraction(3, 4)), expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_both_promises_are_kept(seed):
    hits, hard = exact_shares(ours, seed)
    assert kept(hits, hard)
    assert np.mean(hard) < LEAST + 0.15  # the floor is what lets them in


@pytest.mark.parametrize(
    "mutant", [{"joined": 0}, {"own": False}], ids=["without the candidate", "from all classes"]
)
def test_a_floor_that_is_not_exact_is_noticed(mutant):
    def limits(*given):
        return by_hand(*given, **mutant)

    assert not any(kept(*exact_shares(limits, seed)) for seed in SEEDS)


def test_a_rule_for_rare_classes_without_the_candidate_is_noticed():
    """A class of two scores has no floor of 2/3 unless the candidate is the third."""
    scores, labels = np.array([1.0, 2.0, 0.0, 0.1, 0.2]), np.array([1, 1, 0, 0, 0])
    floor = Fraction(2, 3)
    inside = [bag_says(scores, [labels], v, (1,), 0.5, [floor]) for v in (1.0, 2.0, 2.5)]
    limit = ours(scores, labels, 2, 0.5, floor)[1]
    assert inside == [v <= limit for v in (1.0, 2.0, 2.5)]
    mutant = by_hand(scores, labels, 2, 0.5, floor, rare=0)[1]
    assert inside != [v <= mutant for v in (1.0, 2.0, 2.5)]
