"""Floors, error rates per class and confidence: kept, against their distributions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import snaps
from snaps.conformal.coverage import confident_rank, coverage_law, fewest_confident
from snaps.conformal.rank import conformal_rank
from tests.helpers.small import error_line, noted

SEEDS = [0, 1, 2]
ALPHA, FLOOR = 0.1, 0.8


class World:
    """A linked graph whose rare classes are harder, with scores that don't tie."""

    def __init__(self, seed, n=700, classes=4):
        random = np.random.default_rng(seed)
        self.labels = random.choice(classes, n, p=[0.5, 0.28, 0.14, 0.08])
        ends = random.integers(0, n, (2, 3 * n))
        self.graph = snaps.Graph(ends)
        logits = random.normal(size=(n, classes))
        logits[np.arange(n), self.labels] += np.array([3.0, 2.0, 1.0, 0.3])[self.labels]
        self.probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        self.groups = np.where(random.random(n) < 0.2, "b", "a")
        self.n, self.random, self.classes = n, random, classes

    def splits(self, n_calib, count):
        for _ in range(count):
            order = self.random.permutation(self.n)
            yield order[:n_calib], order[n_calib:]


def at_least(values, expected, what):
    """The mean of independent draws is not below what is promised, by more than 4 errors."""
    error = np.std(values) / math.sqrt(len(values))
    assert np.mean(values) > expected - 4 * error, (what, np.mean(values), expected, error)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_floor_holds_in_every_class_and_the_average_follows_its_distribution(seed):
    world, hits, by_class = World(seed), [], [[] for _ in range(4)]
    plain = [[] for _ in range(4)]
    for calib, test in world.splits(250, 60):
        given = (world.graph, world.probs, world.labels, calib)
        cp = snaps.DAPS(ALPHA, weight=0.3, class_floor=FLOOR).calibrate(*given)
        sets = cp.predict_set(test)
        covered = sets.mask[np.arange(len(test)), world.labels[test]]
        hits.append(covered.sum())
        before = snaps.DAPS(ALPHA, weight=0.3).calibrate(*given).predict_set(test)
        old = before.mask[np.arange(len(test)), world.labels[test]]
        for y in range(4):
            by_class[y].append(covered[world.labels[test] == y].mean())
            plain[y].append(old[world.labels[test] == y].mean())
    for y in range(4):
        at_least(by_class[y], FLOOR, f"class {y}")
    assert np.mean(plain[3]) < FLOOR - 0.05  # the world is one where a floor is needed
    law = coverage_law(250, 450, ALPHA)
    at_least(hits, law.mean(), "average")
    assert abs(np.mean(hits) - law.mean()) < 4 * law.std() / math.sqrt(60)
    assert 0.7 < np.std(hits) / law.std() < 1.4


@pytest.mark.parametrize("seed", SEEDS)
def test_a_floor_for_groups(seed):
    world = World(seed)
    world.probs[world.groups == "b"] **= 0.4  # the small group is harder
    world.probs /= world.probs.sum(axis=1, keepdims=True)
    flipped = (world.groups == "b") & (world.random.random(world.n) < 0.4)
    world.probs[flipped] = world.probs[flipped][:, ::-1]
    shares, hits, plain = [], [], []
    for calib, test in world.splits(250, 60):
        cp = snaps.SplitConformal(ALPHA, score=snaps.THR())
        cp.calibrate(
            world.graph, world.probs, world.labels, calib, groups=world.groups, group_floor=0.85
        )
        assert cp.threshold_.shape == (2,)
        sets = cp.predict_set(test)
        covered = sets.mask[np.arange(len(test)), world.labels[test]]
        shares.append(covered[world.groups[test] == "b"].mean())
        hits.append(covered.sum())
        cp = snaps.SplitConformal(ALPHA, score=snaps.THR())
        one = cp.calibrate(world.graph, world.probs, world.labels, calib).predict_set(test)
        covered = one.mask[np.arange(len(test)), world.labels[test]]
        plain.append(covered[world.groups[test] == "b"].mean())
    at_least(shares, 0.85, "the small group")
    assert np.mean(plain) < 0.835
    law = coverage_law(250, 450, ALPHA)
    assert abs(np.mean(hits) - law.mean()) < 4 * law.std() / math.sqrt(60)


# ---- Error rates per class -----------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_each_class_has_its_own_error_rate(seed):
    world, names = World(seed), ["w", "x", "y", "z"]
    rates = {"z": 0.3, "x": 0.1, "y": 0.2, "w": 0.05}
    missed = {name: [] for name in names}
    for calib, test in world.splits(350, 60):
        cp = snaps.SplitConformal(rates, score=snaps.THR(), class_conditional=True)
        labels = np.array(names)[world.labels]
        cp.calibrate(None, world.probs, labels, calib, classes=names)
        mask = cp.predict_set(test).mask
        for y, name in enumerate(names):
            own = world.labels[test] == y
            missed[name].append(1 - mask[own, y].mean())
    for name, values in missed.items():
        at_least(-np.array(values), -rates[name], name)
        assert np.mean(values) > rates[name] - 0.05  # 350 nodes, of which 28 are of the last class


@pytest.mark.filterwarnings("ignore")
def test_equal_rates_are_one_rate():
    world = World(3)
    given = (world.graph, world.probs, world.labels, np.arange(300))
    plain = snaps.DAPS(0.1, class_conditional=True).calibrate(*given)
    rates = dict.fromkeys(range(4), 0.1)
    same = snaps.DAPS(rates, class_conditional=True).calibrate(*given)
    np.testing.assert_array_equal(plain.threshold_, same.threshold_)
    np.testing.assert_array_equal(plain.predict_set().mask, same.predict_set().mask)
    other = plain.predict_set(alpha={0: 0.1, 1: 0.1, 2: 0.1, 3: 0.4})
    assert (other.mask[:, :3] == plain.predict_set().mask[:, :3]).all()
    assert other.mask[:, 3].sum() < plain.predict_set().mask[:, 3].sum()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"alpha": {0: 0.1}}, "'alpha' must be one number unless class_conditional=True"),
        ({"alpha": {0: 0.1}, "class_conditional": True}, "'alpha' must have a rate for every"),
        (
            {"alpha": dict.fromkeys("0123x", 0.1), "class_conditional": True},
            "'alpha' must name classes (0, 1, 2, 3), got 'x'",
        ),
        ({"alpha": {}, "class_conditional": True}, "'alpha' must name each class once, got {}"),
        ({"alpha": {0: 2.0}, "class_conditional": True}, "'alpha[0]' must lie strictly between"),
        ({"class_floor": 1.5}, "'class_floor' must lie strictly between 0 and 1, got 1.5"),
        ({"class_floor": "high"}, "'class_floor' must be a number between 0 and 1, got 'high'"),
        ({"class_floor": 0.8, "class_conditional": True}, "'class_floor' must be left out with"),
        ({"confidence": 1}, "'confidence' must lie strictly between 0 and 1, got 1"),
    ],
)
def test_wrong_promises_are_refused(options, text):
    world = World(0)
    cp = snaps.SplitConformal(**options)
    assert text in error_line(cp.calibrate, None, world.probs, world.labels, np.arange(300))


def test_a_floor_for_groups_needs_groups():
    world = World(0)
    given = (None, world.probs, world.labels, np.arange(300))
    message = error_line(snaps.SplitConformal().calibrate, *given, group_floor=0.8)
    assert message == "'groups' must be given with group_floor, got None"
    cp = snaps.SplitConformal(class_conditional=True)
    message = error_line(cp.calibrate, *given, groups=world.groups, group_floor=0.8)
    assert message.startswith("'group_floor' must be left out with class_conditional=True")


def test_classes_without_a_floor_are_named():
    world = World(0)
    labels = np.where(world.labels == 3, 2, world.labels)
    labels[:3] = 3
    cp = snaps.SplitConformal(0.1, class_floor=0.9)
    _, warnings = noted(cp.calibrate, None, world.probs, labels, np.arange(300))
    assert (
        "1 of 4 classes have too few calibration nodes for class_floor=0.9 (at least 9 each) and "
        "get no floor: class (nodes) 3 (3)" in str(warnings)
    )
    result = cp.evaluate(labels)
    assert result["class_promise"] == {0: 0.9, 1: 0.9, 2: 0.9, 3: None}
    assert "at least 0.9 promised" in str(result)


# ---- Nothing asked for, nothing changed ----------------------------------------------------------


@pytest.mark.parametrize("method", [snaps.SplitConformal, snaps.DAPS])
def test_a_floor_of_zero_is_no_floor(method):
    world = World(4)
    given = (world.graph, world.probs, world.labels, np.arange(300))
    plain, none = method(0.1).calibrate(*given), method(0.1, class_floor=0).calibrate(*given)
    assert plain.threshold_ == none.threshold_ and none.promises_ == {}
    np.testing.assert_array_equal(plain.predict_set().mask, none.predict_set().mask)


# ---- Confidence ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [5, 60, 200, 501])
@pytest.mark.parametrize("m", [1, 40, 1000])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_the_rank_is_the_smallest_that_will_do(n, m, confidence):
    alpha = Fraction(1, 10)
    least = math.ceil((1 - alpha) * m)
    expected = n + 1
    for rank in range(n, conformal_rank(n, alpha) - 1, -1):
        sure = stats.betabinom(m, rank, n + 1 - rank).sf(least - 1)
        sure = min(sure, stats.beta(rank, n + 1 - rank).sf(0.9))
        if sure < confidence:
            break
        expected = rank
    assert confident_rank(n, alpha, Fraction(str(confidence)), m) == expected


def test_the_fewest_nodes_with_confidence():
    for alpha, confidence in ((0.1, 0.9), (0.05, 0.95), (0.2, 0.5)):
        least = fewest_confident(Fraction(str(alpha)), Fraction(str(confidence)))
        brute = next(n for n in range(1, 999) if 1 - (1 - alpha) ** n >= confidence - 1e-12)
        assert least == max(brute, math.ceil(1 / alpha) - 1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["plain", "floor", "class", "group"])
def test_coverage_is_kept_with_confidence(seed, kind):
    world, kept, draws = World(seed), [], 120
    options = {
        "class_conditional": kind == "class",
        "class_floor": 0.7 if kind == "floor" else None,
    }
    groups = world.groups if kind == "group" else None
    for calib, test in world.splits(300, draws):
        cp = snaps.SplitConformal(0.1, score=snaps.THR(), confidence=0.9, **options)
        cp.calibrate(None, world.probs, world.labels, calib, groups=groups)
        mask = cp.predict_set(test).mask
        hits = mask[np.arange(len(test)), world.labels[test]]
        cells = {"class": world.labels[test] == 0, "group": world.groups[test] == "a"}
        own = hits[cells.get(kind, np.ones(len(test), bool))]
        kept.append(own.mean() >= 0.9 - (0.02 if kind == "class" else 1e-12))
    # By class the promise is about the coverage probability, of which the share is an estimate.
    assert np.sum(kept) >= stats.binom(draws, 0.9).ppf(0.002)


def test_too_few_nodes_for_a_confidence_are_named():
    world = World(0)
    cp = snaps.SplitConformal(0.05, confidence=0.95)
    _, warnings = noted(cp.calibrate, None, world.probs, world.labels, np.arange(50))
    assert (
        "50 calibration nodes are too few for alpha=0.05 with confidence=0.95 (at least 59): "
        "the threshold is infinite" in str(warnings)
    )
    assert "'smoothed' must be False with confidence" in error_line(cp.predict_set, smoothed=True)


# ---- Saved, loaded, recalibrated, split ----------------------------------------------------------

PROMISES = {
    "floor": ({"class_floor": 0.8}, {}),
    "groups": ({}, {"group_floor": 0.7}),
    "both": ({"class_floor": 0.8}, {"group_floor": 0.7}),
    "in groups": ({"class_floor": 0.6}, {}),
    "confidence": ({"confidence": 0.9, "class_floor": 0.7}, {}),
    "rates": ({"alpha": {"0": 0.2, "1": 0.1, "2": 0.1, "3": 0.3}, "class_conditional": True}, {}),
}


def promising(name, world, calib):
    options, floors = PROMISES[name]
    grouped = name in ("groups", "both", "in groups")
    cp = snaps.DAPS(**{"alpha": 0.1, "weight": 0.3} | options)
    groups = {"groups": world.groups} if grouped else {}
    with_groups = groups | floors
    return cp.calibrate(world.graph, world.probs, world.labels, calib, **with_groups), groups


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROMISES)
def test_promises_are_saved_and_kept_by_recalibration(name, tmp_path):
    world = World(1)
    cp, groups = promising(name, world, np.arange(300))
    mask, p = cp.predict_set().mask, cp.predict_p()
    cp.save(tmp_path / "model.snaps")
    again = snaps.load(tmp_path / "model.snaps")
    assert again.promises_ == cp.promises_
    np.testing.assert_array_equal(again.threshold_, cp.threshold_)
    np.testing.assert_array_equal(again.predict_set().mask, mask)
    np.testing.assert_array_equal(again.predict_p(), p)
    again.recalibrate(world.graph, world.probs, **groups)
    np.testing.assert_array_equal(again.predict_set().mask, mask)
    assert again.promises_ == cp.promises_
    if name != "confidence":
        limits = np.array(list(cp.alpha.values())) if name == "rates" else 0.1
        np.testing.assert_array_equal(mask, p > limits)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROMISES)
def test_splits_are_those_of_calibrate(name):
    world = World(2)
    pool = np.arange(100, 500)
    options, floors = PROMISES[name]
    grouped = name in ("groups", "both", "in groups")
    cp = snaps.DAPS(**{"alpha": 0.1, "weight": 0.3} | options)
    groups = {"groups": world.groups} if grouped else {}
    out = snaps.evaluate_splits(
        cp, world.graph, world.probs, world.labels, pool, 200, 3, **groups, **floors
    )
    from snaps.splits import draw_splits

    drawn = draw_splits(0, world.graph.keys[pool], 200, 3)
    order = np.argsort(world.graph.keys[pool], kind="stable")
    for split, places in enumerate(drawn):
        calib = pool[order][places]
        test = np.setdiff1d(pool, calib)
        made, _ = promising(name, world, calib)
        result = made.evaluate(world.labels, test)
        assert out["coverage"][split] == pytest.approx(result["coverage"])
        assert out["size"][split] == pytest.approx(result["size"])
        np.testing.assert_allclose(
            out["class_coverage"][split], list(result["class_coverage"].values())
        )


@pytest.mark.filterwarnings("ignore")
def test_class_coverage_of_splits():
    world = World(2)
    for by_class in (False, True):
        cp = snaps.SplitConformal(0.1, class_conditional=by_class)
        out = snaps.evaluate_splits(cp, None, world.probs, world.labels, np.arange(500), 200, 5)
        counts = np.bincount(world.labels[:500], minlength=4)
        assert out["class_coverage"].shape == (5, 4)
        assert (out["class_coverage"] <= 1).all() and counts.min() > 10
        low, high = out["class_coverage"].min(axis=1), out["class_coverage"].max(axis=1)
        assert ((low <= out["coverage"]) & (out["coverage"] <= high)).all()


# ---- Sets that are never empty -------------------------------------------------------------------


def test_empty_sets_get_the_most_probable_label():
    world = World(0)
    cp = snaps.SplitConformal(0.6, score=snaps.APS(randomized=False))
    with pytest.warns(snaps.SnapsWarning):
        cp.calibrate(None, world.probs, world.labels, np.arange(300))
    plain, topped = cp.predict_set(), cp.predict_set(empty="top")
    bare = plain.sizes == 0
    assert bare.any() and (topped.sizes[bare] == 1).all()
    np.testing.assert_array_equal(topped.mask[~bare], plain.mask[~bare])
    tops = world.probs[topped.nodes].argmax(axis=1)
    assert topped.mask[bare, tops[bare]].all()
    before, after = cp.evaluate(world.labels), cp.evaluate(world.labels, empty="top")
    assert after["coverage"] >= before["coverage"] and after["empty"] == 0
    assert after["upper_binds"] is False
    assert error_line(cp.predict_set, empty="all") == "'empty' must be 'keep' or 'top', got all"


def test_coverage_that_floors_lift_is_not_called_outside():
    """A floor above 1 - alpha decides alone: coverage may lie above the range of one threshold."""
    data = snaps.datasets.make_graph(500, 3, seed=3)
    probs = snaps.models.smoothed_regression(data.graph, data.labels, np.arange(60))
    inside = []
    for draw in range(20):
        nodes = np.random.default_rng(draw).permutation(np.arange(60, 500))
        cp = snaps.SplitConformal(0.4, score=snaps.THR(), class_floor=0.9)
        found = cp.calibrate(None, probs, data.labels, nodes[:150]).evaluate(
            data.labels, nodes[150:]
        )
        assert found["upper_binds"] is False and "upper end does not bind" in str(found)
        inside.append(found["inside"])
    assert all(inside)
    cp = snaps.SplitConformal(0.1, score=snaps.THR(), class_floor=0.5)
    assert cp.calibrate(None, probs, data.labels, nodes[:150]).evaluate(data.labels, nodes[150:])[
        "upper_binds"
    ]


def test_too_many_missing_labels_are_the_reason_that_is_given():
    probs, labels = np.tile([0.6, 0.3, 0.1], (300, 1)), np.array([0, 0, 0, 1] * 75)
    cp = snaps.SplitConformal(0.1, score=snaps.THR())
    text = noted(lambda: cp.calibrate(None, probs, labels, np.arange(200), missing_labels=500))
    assert "500 calibration nodes without labels" in str(text) and "too few" not in str(text)


def test_a_report_names_the_classes_without_a_floor(tmp_path):
    data = snaps.datasets.make_graph(400, 3, seed=3)
    probs = snaps.models.smoothed_regression(data.graph, data.labels, np.arange(60))
    rare = np.flatnonzero(data.labels == 2)[2:]
    nodes = np.setdiff1d(np.arange(60, 260), rare)
    cp = snaps.SplitConformal(0.1, class_floor=0.8)
    noted(lambda: cp.calibrate(None, probs, data.labels, nodes))
    cp.report(tmp_path / "page.html", data.labels)
    page = (tmp_path / "page.html").read_text()
    assert "Some classes have no floor" in page and "Nothing more" not in page
    assert "Each calibration has its own" not in page
