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
    result = cp.evaluate(LABELS)
    mask = cp.predict_set().mask
    hits, sizes = mask[np.arange(30), LABELS[TEST]], mask.sum(axis=1)
    low, high = quantiles(law.hit_pmf(19, 30, 0.2))
    assert result == {
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
        "weakest_slice": result["weakest_slice"],
        "worst_slab": None,
    }
    assert list(result["weakest_slice"]) == [
        "by", "name", "coverage", "n", "slices", "chance_coverage", "chance",
    ]  # fmt: skip
    assert isinstance(result, dict) and dict(result) == result


def quantiles(pmf):
    """Shares of hits between which 99 % of the splits fall."""
    below = np.cumsum(pmf)
    return tuple(np.searchsorted(below, tail) / (len(pmf) - 1) for tail in (0.005, 0.995))


def test_evaluate_prints_as_a_table():
    groups = np.where(np.arange(NUM_NODES) % 2, "odd", "even")
    cp = small.calibrated(snaps.SNAPS(0.4, k=5), groups=groups)
    result = cp.evaluate(LABELS)
    lines = [line.split(maxsplit=2) for line in str(result).splitlines()]
    first = {line[0]: line[1] for line in lines}
    assert first["coverage"] == f"{result['coverage']:.4f}"
    assert first["size"] == f"{result['size']:.3f}"
    assert first["singleton_hit"] == f"{result['singleton_hit']:.1%}"
    assert first["empty"] == f"{result['empty']:.1%}"
    assert (first["n"], first["n_calib"], first["n_tune"]) == ("30", "19", "11")
    for kind, names in (("class", "012"), ("group", ("even", "odd"))):
        shown = {line[1]: line[2].split()[0] for line in lines if line[0] == kind}
        key = (lambda name: int(name)) if kind == "class" else str
        assert shown == {name: f"{result[f'{kind}_coverage'][key(name)]:.4f}" for name in names}
        assert list(shown.values()) == sorted(shown.values())
    widths = {len(line) - len(line.lstrip()) for line in str(result).splitlines()}
    assert widths == {0}


def test_many_classes_are_cut_to_the_worst():
    random = np.random.default_rng(2)
    probs, labels = random.dirichlet(np.ones(9), 600), random.integers(0, 9, 600)
    cp = snaps.SplitConformal(0.2).calibrate(None, probs, labels, np.arange(300))
    result = cp.evaluate(labels)
    shown = [line for line in str(result).splitlines() if line.startswith("class ")]
    worst = sorted(result["class_coverage"].values())[:5]
    assert [float(line.split()[2]) for line in shown] == [round(value, 4) for value in worst]
    assert "... 4 more" in str(result)


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
    result = cp.evaluate(labels)
    back = json.loads(json.dumps(result, allow_nan=False))
    assert list(back) == list(result)
    assert isinstance(str(result), str) and "nan" not in str(result)
    if make is empty_sets:
        assert result["empty"] == 1 and result["size_nonempty"] is None
    if make is infinite:
        assert result["threshold"] is None and result["coverage_interval"] == (1, 1)
    if make is not empty_sets:
        assert result["class_coverage"][2] is None


# ---- Ties ----------------------------------------------------------------------------------------


def tied():
    """One row of probabilities for all: of ten nodes six have its first label, three its second."""
    labels = np.tile([0] * 6 + [1] * 3 + [2], 200)
    cp = snaps.SplitConformal(0.2, score=snaps.THR())
    return cp.calibrate(None, np.tile([0.6, 0.3, 0.1], (2000, 1)), labels, np.arange(1000)), labels


def test_ties_are_reported_and_lift_the_upper_end():
    cp, labels = tied()
    result = cp.evaluate(labels)
    assert result["tied"] == 1 and result["coverage"] == 0.9
    assert result["coverage_interval"][1] < 0.9 and result["inside"] is True
    text = str(result)
    assert "inside [" in text and "scores tie, so the upper end does not bind" in text
    assert "predict_set(smoothed=True)" in text
    untied = small.calibrated().evaluate(LABELS)
    assert untied["tied"] == 0 and "tie" not in str(untied)


def test_ties_don_t_lift_the_lower_end():
    cp, labels = tied()
    labels[1000:1300] = 2
    result = cp.evaluate(labels)
    assert result["tied"] and result["inside"] is False and "OUTSIDE [" in str(result)


def test_the_upper_end_binds_without_ties():
    random = np.random.default_rng(1)
    probs = random.dirichlet(np.ones(3), 2000)
    labels = (random.random((2000, 1)) > probs.cumsum(axis=1)).sum(axis=1)
    labels[1000:] = probs[1000:].argmax(axis=1)
    cp = snaps.SplitConformal(0.2, score=snaps.THR())
    result = cp.calibrate(None, probs, labels, np.arange(1000)).evaluate(labels)
    assert result["tied"] == 0 and result["inside"] is False and "OUTSIDE [" in str(result)
