"""`snaps.advise`: the goals, who is looked at, and what goes wrong."""

from __future__ import annotations

import numpy as np
import pytest

import snaps
from snaps import advisor
from snaps.datasets import make_graph
from snaps.models import smoothed_regression

TRAIN, TUNE = np.arange(80), np.arange(80, 380)


@pytest.fixture(scope="module")
def case():
    data = make_graph(900, 4, seed=3)
    return data.graph, smoothed_regression(data.graph, data.labels, TRAIN), data.labels


@pytest.mark.parametrize("goal", advisor.GOALS)
def test_the_best_at_a_goal_comes_first(case, goal):
    advice = snaps.advise(*case, TUNE, goal, alpha=0.1, known_nodes=TRAIN)
    key = advisor.GOALS[goal]
    sign = -1 if goal == "singletons" else 1
    values = [sign * row[key] for row in advice.rows]
    errors = [row["error"] for row in advice.rows]
    best = int(np.argmin(values))
    assert values[0] <= values[best] + errors[best]
    assert (advice.name, advice.runner_up) == tuple(row["method"] for row in advice.rows[:2])
    assert advice.reason.startswith(f"{advice.name}: ") and advice.runner_up in advice.reason
    assert advice.method.alpha == 0.1 and not hasattr(advice.method, "threshold_")
    assert len(str(advice).splitlines()) == 2 + len(advice.rows)


def test_advice_on_size_beats_the_plain_method(case):
    advice = snaps.advise(*case, TUNE, alpha=0.1, known_nodes=TRAIN)
    by_name = {row["method"]: row["size"] for row in advice.rows}
    assert by_name[advice.name] < by_name["APS"]


def test_no_label_but_those_of_tuning_and_known_nodes_is_read(case):
    graph, probs, labels = case
    told = np.full_like(labels, -1)
    told[:380] = labels[:380]
    assert (
        snaps.advise(graph, probs, told, TUNE, alpha=0.1, known_nodes=TRAIN).rows
        == snaps.advise(graph, probs, labels, TUNE, alpha=0.1, known_nodes=TRAIN).rows
    )


def test_methods_of_your_own(case):
    methods = {"mine": snaps.SNAPS(0.1, weights=(0.2, 0.2)), "yours": snaps.SplitConformal(0.1)}
    advice = snaps.advise(*case, TUNE, alpha=0.1, methods=methods)
    assert {advice.name, advice.runner_up} == {"mine", "yours"}
    assert advice.method is methods[advice.name]


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
            {"tune_nodes": TUNE[:20]},
            "'the number of tune_nodes' must be an integer of at least 36, got 20",
        ),
        ({"alpha": 1}, "'alpha' must lie strictly between 0 and 1, got 1"),
        (
            {"known_nodes": TUNE[:2]},
            "'known_nodes' must not share nodes with 'tune_nodes', got 2 in both (first: 80)",
        ),
    ],
)
def test_complaints(case, options, message):
    arguments = {"tune_nodes": TUNE, "alpha": 0.1, **options}
    with pytest.raises(snaps.SnapsError) as caught:
        snaps.advise(*case, **arguments)
    assert str(caught.value) == message


def test_nodes_that_chose_a_method_should_not_calibrate_it(case):
    graph, probs, labels = case
    advice = snaps.advise(graph, probs, labels, TUNE, alpha=0.1, known_nodes=TRAIN)
    with pytest.warns(snaps.SnapsWarning, match="calibration nodes are among those that advise"):
        advice.method.calibrate(graph, probs, labels, TUNE)
    advice.method.calibrate(graph, probs, labels, np.arange(380, 700), TUNE)
