"""`snaps.advise`: held-out levels, the budget, the words, and what goes wrong."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import snaps
from snaps._runtime.randomness import FOLD_STREAM, hashes
from snaps.advisor import FOLDS, GOALS, held_out_levels, judge
from snaps.conformal.calibration import Calibration, Promise
from snaps.conformal.rank import conformal_rank
from snaps.datasets import make_graph
from snaps.estimators import CANDIDATES
from snaps.models import smoothed_regression
from snaps.predictor.estimator import method_of
from snaps.scoring.evidence import Evidence, Labelled
from snaps.scoring.local import Inputs
from snaps.scoring.pooling import Pooling

TRAIN, TUNE = np.arange(80), np.arange(80, 380)


@pytest.fixture(scope="module")
def case():
    data = make_graph(900, 4, seed=3)
    return data.graph, smoothed_regression(data.graph, data.labels, TRAIN), data.labels


@pytest.fixture(scope="module")
def advice(case):
    return snaps.advise(*case, TUNE, alpha=0.1, known_nodes=TRAIN)


# ---- held-out levels -----------------------------------------------------------------------------


def levels_of(case, methods, labels=None):
    graph, probs, truth = case
    labels = truth if labels is None else labels
    inputs = Inputs.read(graph, probs)
    nodes = Labelled(TUNE, graph.keys[TUNE], labels[TUNE])
    known = Evidence(TRAIN, graph.keys[TRAIN], labels[TRAIN])
    checked = {name: method_of(method) for name, method in methods.items()}
    return held_out_levels(checked, inputs, nodes, known, Fraction(1, 10), 0), nodes


def folds(nodes):
    """The fold of each node, by the rank of its hash."""
    return np.argsort(np.argsort(hashes(0, nodes.keys, FOLD_STREAM))) % FOLDS


@pytest.mark.parametrize("by_class", [False, True])
def test_a_level_is_the_share_of_scores_at_or_below(case, by_class):
    method = snaps.SplitConformal(0.1, score=snaps.THR(), class_conditional=by_class)
    (levels,), nodes = (lambda found: (found[0].values(), found[1]))(levels_of(case, {"": method}))
    fold = folds(nodes)
    assert np.ptp(np.bincount(fold, minlength=FOLDS)) <= 1
    scores = 1 - case[1]
    for node in (0, 7, 299):
        seen = np.concatenate([TUNE[fold == fold[node]], np.arange(380, 900)])
        for y in range(4):
            among = scores[seen, y] if by_class else scores[seen].ravel()
            assert levels[node, y] == (among <= scores[TUNE[node], y]).mean()


def test_no_fit_sees_the_labels_it_is_judged_by(case):
    """Other labels in one fold: its own levels stay to the bit, those of other folds move."""
    methods = {"Pooled": snaps.Pooled(0.1), "RAPS": snaps.SplitConformal(0.1, score=snaps.RAPS())}
    before, nodes = levels_of(case, methods)
    here = folds(nodes) == 0
    labels = case[2].copy()
    labels[TUNE[here]] = (labels[TUNE[here]] + 1) % 4
    labels[380:] = np.random.default_rng(0).permutation(labels[380:])
    after, _ = levels_of(case, methods, labels)
    for name in methods:
        np.testing.assert_array_equal(before[name][here], after[name][here])
    assert (before["Pooled"][~here] != after["Pooled"][~here]).any()


def test_methods_that_share_a_fit_are_judged_as_if_fitted_alone(case, monkeypatch):
    fits, fit = [], Pooling.fit
    monkeypatch.setattr(Pooling, "fit", lambda self, *rest: fits.append(self) or fit(self, *rest))
    names = ("Pooled", "Pooled on APS", "Pooled, class thresholds")
    methods = snaps.estimators.methods(names, 0.1)
    together, nodes = levels_of(case, methods)
    assert len(fits) == FOLDS
    graph, inputs = case[0], Inputs.read(*case[:2])
    fold = folds(nodes)
    away = nodes.subset(fold != 0)
    known = Evidence(TRAIN, graph.keys[TRAIN], case[2][TRAIN])
    fitting = Evidence.of(away)
    held = np.concatenate([TUNE[fold == 0], np.arange(380, 900)])
    for name, method in methods.items():
        (fitted,) = method_of(method).scorer.fit(inputs, fitting, known, [Fraction(1, 10)])
        scores = inputs.score(fitted, held)
        mine = scores[0]
        if method.class_conditional:
            levels = (scores <= mine).mean(axis=0)
        else:
            levels = [(scores <= score).mean() for score in mine]
        np.testing.assert_array_equal(together[name][fold == 0][0], levels)


# ---- the budget ----------------------------------------------------------------------------------


def judged(levels, labels, n_calib, alpha=Fraction(1, 10), by_class=False, floor=None):
    """The numbers (4,) of all nodes, and the same of random halves (HALVES, 4)."""
    keys = np.arange(len(labels), dtype=np.uint64)
    numbers = judge(levels, Labelled(keys, keys, labels), n_calib, alpha, by_class, 0, floor)
    return numbers[0], numbers[1:]


def size_of(*arguments, **options):
    return judged(*arguments, **options)[0][0]


def errors_of(halves):
    return halves.std(axis=0, ddof=1)


@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("n_calib", [30, 500])
def test_the_size_is_that_of_so_many_calibration_nodes(n_calib, by_class):
    """Against draws of so many nodes from those given, each with its own threshold."""
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1], [320, 480])
    levels = random.beta(1 + labels, 3)[:, None] * [1, 0.9]
    own, sizes = levels[np.arange(800), labels], []
    counts = {0: 320, 1: 480} if by_class else {None: 800}
    for _ in range(2000):
        limits = []
        for y, count in counts.items():
            mine = own if y is None else own[labels == y]
            n = round(n_calib * count / 800)
            rank = conformal_rank(n, 0.1)
            limits.append(np.sort(random.choice(mine, n))[rank - 1] if rank <= n else 1.0)
        sizes.append(2 * np.mean(limits))
    size = size_of(levels, labels, n_calib, by_class=by_class)
    assert size == pytest.approx(np.mean(sizes), rel=0.01)


def test_too_few_nodes_of_a_class_fill_its_part_of_every_set():
    labels = np.repeat([0, 1], [5, 395])
    levels = np.full((400, 2), 0.25)
    # With 100 calibration nodes, one or two are of the first class.
    assert size_of(levels, labels, 100, by_class=True) == pytest.approx(1.25)
    assert size_of(levels, labels, 100_000, by_class=True) == pytest.approx(0.5)


@pytest.mark.parametrize("promise", ["one threshold", "class thresholds", "class floor"])
def test_the_worst_class_and_size_are_those_that_calibration_gives(promise):
    """Against calibrations with other nodes of the same kind, each judged on many."""
    random = np.random.default_rng(4)

    def draw(count):
        labels = random.choice(3, count, p=[0.6, 0.3, 0.1])
        levels = random.beta(1, 6, size=(count, 3)) + 0.3 * (labels == 2)[:, None] * random.random(
            (count, 3)
        )
        return np.minimum(levels, 1), labels

    floor = Fraction(8, 10) if promise == "class floor" else None
    by_class = promise == "class thresholds"
    coverage, by_size = [], np.zeros((2, 4))
    for _ in range(60):
        levels, labels = draw(400)
        own = levels[np.arange(400), labels]
        calibration = Calibration(own, labels, 3, by_class=by_class, promise=Promise(floor))
        levels, labels = draw(4000)
        inside = calibration.contains(levels, Fraction(1, 10))
        hits = inside[np.arange(4000), labels]
        coverage.append([hits[labels == y].mean() for y in range(3)])
        for row, weights in zip(by_size, (None, hits), strict=True):
            row += np.bincount(inside.sum(axis=1), weights, 4)
    judged_on = [judged(*draw(600), 400, by_class=by_class, floor=floor)[0] for _ in range(6)]
    found = np.mean(judged_on, axis=0)
    assert found[2] == pytest.approx(np.mean(coverage, axis=0).min(), abs=0.025)
    common = by_size[0] >= 0.05 * by_size[0].sum()
    assert found[3] == pytest.approx((by_size[1] / by_size[0])[common].min(), abs=0.04)


def test_errors_are_what_other_draws_of_nodes_give():
    random = np.random.default_rng(1)
    means, errors, differences, noises = [], [], [], []
    for _ in range(60):
        labels = random.integers(2, size=200)
        easy = random.beta(1, 4, size=(200, 2))
        first, halves = judged(easy, labels, 200)
        second, others = judged(np.minimum(easy + 0.1 * random.random((200, 2)), 1), labels, 200)
        means.append(first)
        errors.append(errors_of(halves))
        differences.append(second[0] - first[0])
        noises.append(errors_of(others - halves)[0])
    ratio = np.mean(errors, axis=0)[:2] / np.std(means, axis=0)[:2]
    assert ((0.8 < ratio) & (ratio < 1.5)).all(), ratio
    assert 0.7 < np.mean(noises) / np.std(differences) < 1.4
    assert np.mean(noises) < 0.7 * np.mean(errors, axis=0)[0]  # same halves: most of it cancels


def test_fewer_nodes_to_calibrate_mean_larger_sets(case, advice):
    few = snaps.advise(*case, TUNE, alpha=0.1, known_nodes=TRAIN, n_calib=20)
    assert (few.comparison.n_calib, advice.comparison.n_calib) == (20, 300)
    sizes = ({row["method"]: row["size"] for row in one.rows} for one in (few, advice))
    small, large = sizes
    assert all(small[name] > large[name] for name in ("APS", "SNAPS", "Pooled"))


def test_what_is_expected_is_what_comes(case, advice):
    """Tuned on the tuning nodes, calibrated with as many others, on splits of the rest."""
    graph, probs, labels = case
    inside = []
    for row in advice.rows:
        method = snaps.estimators.all_methods(0.1)[row["method"]]
        found = snaps.evaluate_splits(
            method, graph, probs, labels, np.arange(380, 900), 300, 40, tune_nodes=TUNE,
            known_nodes=TRAIN,
        )  # fmt: skip
        for key in ("size", "singleton_hit"):
            inside.append(row[f"{key}_low"] <= found[key].mean() <= row[f"{key}_high"])
    assert np.mean(inside) >= 0.9


# ---- advise --------------------------------------------------------------------------------------


@pytest.mark.parametrize("goal", GOALS)
def test_advice(advice, goal):
    choice = advice.for_goal(goal)
    assert choice.goal == goal and choice.comparison is advice.comparison
    assert (choice.name, choice.runner_up) == tuple(row["method"] for row in choice.rows[:2])
    assert choice.reason.startswith(f"{choice.name}: ") and choice.runner_up in choice.reason
    assert f"goal {goal}, 300 tuning nodes, {FOLDS} folds, 300 nodes" in choice.reason
    assert choice.method.alpha == 0.1 and not hasattr(choice.method, "threshold_")
    lines = str(choice).splitlines()
    assert len(lines) == 2 + bool(choice.cost) + len(CANDIDATES)
    assert [line.split("  ")[0] for line in lines[-len(choice.rows) :]] == [
        row["method"] for row in choice.rows
    ]


def test_advice_on_size_beats_the_plain_method(advice):
    by_name = {row["method"]: row["size"] for row in advice.rows}
    assert by_name[advice.name] < by_name["APS"]


def test_no_label_but_those_of_tuning_and_known_nodes_is_read(case, advice):
    graph, probs, labels = case
    visible = np.full_like(labels, -1)
    visible[:380] = labels[:380]
    shuffled = np.random.default_rng(0).permutation(TUNE)
    again = snaps.advise(graph, probs, visible, shuffled, alpha=0.1, known_nodes=TRAIN)
    assert again.rows == advice.rows


class Mine(snaps.Score):
    """Equal to every other of its kind, whatever it holds."""

    def __init__(self, power):
        self.power = power

    def __eq__(self, other):
        return isinstance(other, Mine)

    def __hash__(self):
        return 0

    def compute(self, probs, draws):
        return (1 - probs) ** self.power


def test_methods_of_your_own(case):
    methods = {
        "mine": snaps.SNAPS(0.1, weights=(0.2, 0.2)),
        "yours": snaps.SplitConformal(0.1, score=Mine(1.0)),
        "theirs": snaps.SplitConformal(0.1, score=Mine(0.0)),
    }
    advice = snaps.advise(*case, TUNE, alpha=0.1, methods=methods)
    assert {row["method"] for row in advice.rows} == set(methods)
    assert advice.method == methods[advice.name]
    sizes = {row["method"]: row["size"] for row in advice.rows}
    assert sizes["theirs"] == pytest.approx(4) and sizes["yours"] < 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"goal": "tiny"},
            "'goal' must be one of smallest, singletons, classes, sizes, got 'tiny'",
        ),
        ({"goal": 3}, "'goal' must be one of smallest, singletons, classes, sizes, got 3"),
        ({"methods": {}}, "'methods' must map names to estimators, got {}"),
        ({"methods": {"a": 1}}, "'methods' must map names to estimators, got {'a': 1}"),
        (
            {"tune_nodes": TUNE[:17]},
            "'the number of tune_nodes' must be an integer of at least 18, got 17",
        ),
        ({"n_calib": 8}, "'n_calib' must be an integer of at least 9, got 8"),
        ({"n_calib": 50.5}, "'n_calib' must be an integer of at least 9, got 50.5"),
        ({"alpha": 1}, "'alpha' must lie strictly between 0 and 1, got 1"),
        (
            {"known_nodes": TUNE[:2]},
            "'known_nodes' must not share nodes with 'tune_nodes', got 2 in both (first: 80)",
        ),
    ],
)
def test_errors(case, options, message):
    arguments = {"tune_nodes": TUNE, "alpha": 0.1, **options}
    with pytest.raises(snaps.SnapsError) as caught:
        snaps.advise(*case, **arguments)
    assert str(caught.value) == message


def test_tuning_nodes_unlike_the_others_are_reported_once(case):
    graph, probs, labels = case
    one_kind = TUNE[labels[TUNE] < 2]
    with pytest.warns(snaps.SnapsWarning) as heard:
        snaps.advise(
            graph, probs, labels, one_kind, alpha=0.1, known_nodes=TRAIN,
            methods={"Pooled": snaps.Pooled(0.1)},
        )  # fmt: skip
    (caught,) = heard
    assert str(caught.message).startswith("the tuning nodes are not like the others")
    assert caught.filename == __file__


def test_another_goal_must_exist_too(advice):
    with pytest.raises(snaps.SnapsError, match="'goal' must be one of"):
        advice.for_goal("tiny")


def test_the_fewest_nodes_are_enough(case):
    advice = snaps.advise(*case, TUNE[:18], alpha=0.1, known_nodes=TRAIN, n_calib=9)
    assert len(advice.comparison.keys) == 18


def test_nodes_that_chose_a_method_should_not_calibrate_it(case, advice):
    graph, probs, labels = case
    with pytest.warns(snaps.SnapsWarning, match="calibration nodes are among those that advise"):
        advice.method.calibrate(graph, probs, labels, TUNE)
    advice.method.calibrate(graph, probs, labels, np.arange(380, 700), TUNE)


def test_your_estimators_stay_as_they_are(case, recwarn):
    graph, probs, labels = case
    mine = snaps.SplitConformal(Fraction(1, 5), score=snaps.THR())
    before = dict(vars(mine))
    advice = snaps.advise(*case, TUNE, alpha=0.1, methods={"mine": mine})
    again = advice.for_goal("classes")
    assert vars(mine) == before and mine.alpha == Fraction(1, 5)
    assert len({id(mine), id(advice.method), id(again.method)}) == 3
    advice.method.calibrate(graph, probs, labels, np.arange(380, 700))
    assert not hasattr(mine, "threshold_") and not hasattr(again.method, "threshold_")
    mine.calibrate(graph, probs, labels, TUNE)  # the user's own was not chosen by anybody
    assert not recwarn.list
    with pytest.warns(snaps.SnapsWarning, match="300 calibration nodes are among those that"):
        again.method.calibrate(graph, probs, labels, TUNE)
    again.rows[0]["size"] = -1
    assert advice.rows[0]["size"] > 0


def test_methods_of_another_level_compete_at_the_one_asked_for():
    data = make_graph(400, 3, seed=0)
    probs = smoothed_regression(data.graph, data.labels, np.arange(40))
    mine = {"mine": snaps.SNAPS(0.3, k=5)}
    advice = snaps.advise(
        data.graph, probs, data.labels, np.arange(40, 240), alpha=0.1, methods=mine
    )
    assert advice.method == snaps.SNAPS(0.1, k=5)
    assert mine["mine"].alpha == 0.3
