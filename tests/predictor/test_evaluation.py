"""What `evaluate` says: numbers, a table, JSON, and a word on ties."""

from __future__ import annotations

import json

import numpy as np
import pytest

import snaps
from tests.helpers import law, small
from tests.helpers.small import LABELS, NUM_NODES, TEST

REGIONS = np.array(["north", "south", "west"])[np.arange(NUM_NODES) % 3]


def test_what_evaluate_says():
    cp = small.calibrated(snaps.SNAPS(0.2, k=5))
    told = cp.evaluate(LABELS)
    mask = cp.predict_set().mask
    hits, sizes = mask[np.arange(30), LABELS[TEST]], mask.sum(axis=1)
    low, high = quantiles(law.hit_pmf(19, 30, 0.2))
    assert told == {
        "coverage": hits.mean(),
        "size": sizes.mean(),
        "size_nonempty": sizes[sizes > 0].mean(),
        "singleton_hit": (hits & (sizes == 1)).mean(),
        "empty": (sizes == 0).mean(),
        "n": 30,
        "threshold": cp.threshold_,
        "coverage_interval": (pytest.approx(low), pytest.approx(high)),
        "inside": bool(low <= hits.mean() <= high),
        "tied": 0,
        "upper_binds": True,
        "n_calib": 19,
        "n_tune": 11,
        "class_coverage": {y: pytest.approx(hits[LABELS[TEST] == y].mean()) for y in range(3)},
        "group_coverage": None,
        "class_promise": None,
        "group_promise": None,
        "confidence": None,
        "weakest_slice": told["weakest_slice"],
        "worst_slab": None,
    }
    assert list(told["weakest_slice"]) == [
        "by", "name", "coverage", "n", "slices", "chance_coverage", "chance",
    ]  # fmt: skip
    assert isinstance(told, dict) and dict(told) == told


def quantiles(pmf):
    """Shares of hits between which 99 % of the splits fall."""
    below = np.cumsum(pmf)
    return tuple(np.searchsorted(below, tail) / (len(pmf) - 1) for tail in (0.005, 0.995))


def test_evaluate_prints_as_a_table():
    groups = np.where(np.arange(NUM_NODES) % 2, "odd", "even")
    cp = small.calibrated(snaps.SNAPS(0.4, k=5), groups=groups)
    told = cp.evaluate(LABELS)
    lines = [line.split(maxsplit=2) for line in str(told).splitlines()]
    first = {line[0]: line[1] for line in lines}
    assert first["coverage"] == f"{told['coverage']:.4f}"
    assert first["size"] == f"{told['size']:.3f}"
    assert first["singleton_hit"] == f"{told['singleton_hit']:.1%}"
    assert first["empty"] == f"{told['empty']:.1%}"
    assert (first["n"], first["n_calib"], first["n_tune"]) == ("30", "19", "11")
    for kind, names in (("class", "012"), ("group", ("even", "odd"))):
        shown = {line[1]: line[2].split()[0] for line in lines if line[0] == kind}
        key = (lambda name: int(name)) if kind == "class" else str
        assert shown == {name: f"{told[f'{kind}_coverage'][key(name)]:.4f}" for name in names}
        assert list(shown.values()) == sorted(shown.values())
    widths = {len(line) - len(line.lstrip()) for line in str(told).splitlines()}
    assert widths == {0}


def test_many_classes_are_cut_to_the_worst():
    random = np.random.default_rng(2)
    probs, labels = random.dirichlet(np.ones(9), 600), random.integers(0, 9, 600)
    cp = snaps.SplitConformal(0.2).calibrate(None, probs, labels, np.arange(300))
    told = cp.evaluate(labels)
    shown = [line for line in str(told).splitlines() if line.startswith("class ")]
    worst = sorted(told["class_coverage"].values())[:5]
    assert [float(line.split()[2]) for line in shown] == [round(value, 4) for value in worst]
    assert "... 4 more" in str(told)


def infinite():
    with pytest.warns(snaps.SnapsWarning, match="too few"):
        return small.calibrated(snaps.SplitConformal(0.01))


def empty_sets():
    probs = np.repeat([[0.98, 0.01, 0.01], [1 / 3, 1 / 3, 1 / 3]], 20, axis=0)
    cp = snaps.SplitConformal(0.4, score=snaps.THR())
    return cp.calibrate(None, probs, np.zeros(40, int), np.arange(20))


def few_of_a_class():
    cp = snaps.SplitConformal(0.1, class_conditional=True)
    with pytest.warns(snaps.SnapsWarning, match="too few"):
        return small.calibrated(cp, groups=REGIONS)


@pytest.mark.parametrize("make", [small.calibrated, infinite, empty_sets, few_of_a_class])
def test_evaluate_is_fit_for_json(make):
    cp = make()
    labels = np.zeros(40, int) if make is empty_sets else np.where(LABELS == 2, 1, LABELS)
    labels[: len(cp.calib_nodes_)] = -1
    told = cp.evaluate(labels)
    back = json.loads(json.dumps(told, allow_nan=False))
    assert list(back) == list(told)
    assert isinstance(str(told), str) and "nan" not in str(told)
    if make is empty_sets:
        assert told["empty"] == 1 and told["size_nonempty"] is None
    if make is infinite:
        assert told["threshold"] is None and told["coverage_interval"] == (1, 1)
    if make is not empty_sets:
        assert told["class_coverage"][2] is None


# ---- Ties ----------------------------------------------------------------------------------------


def tied():
    """One row of probabilities for all: of ten nodes six have its first label, three its second."""
    labels = np.tile([0] * 6 + [1] * 3 + [2], 200)
    cp = snaps.SplitConformal(0.2, score=snaps.THR())
    return cp.calibrate(None, np.tile([0.6, 0.3, 0.1], (2000, 1)), labels, np.arange(1000)), labels


def test_ties_are_told_and_lift_the_upper_end():
    cp, labels = tied()
    told = cp.evaluate(labels)
    assert told["tied"] == 1 and told["coverage"] == 0.9
    assert told["coverage_interval"][1] < 0.9 and told["inside"] is True
    text = str(told)
    assert "inside [" in text and "scores tie, so the upper end does not bind" in text
    assert "predict_set(smoothed=True)" in text
    untied = small.calibrated().evaluate(LABELS)
    assert untied["tied"] == 0 and "tie" not in str(untied)


def test_ties_don_t_lift_the_lower_end():
    cp, labels = tied()
    labels[1000:1300] = 2
    told = cp.evaluate(labels)
    assert told["tied"] and told["inside"] is False and "OUTSIDE [" in str(told)


def test_the_upper_end_binds_without_ties():
    random = np.random.default_rng(1)
    probs = random.dirichlet(np.ones(3), 2000)
    labels = (random.random((2000, 1)) > probs.cumsum(axis=1)).sum(axis=1)
    labels[1000:] = probs[1000:].argmax(axis=1)
    cp = snaps.SplitConformal(0.2, score=snaps.THR())
    told = cp.calibrate(None, probs, labels, np.arange(1000)).evaluate(labels)
    assert told["tied"] == 0 and told["inside"] is False and "OUTSIDE [" in str(told)
