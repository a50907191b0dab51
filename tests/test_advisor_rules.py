"""`snaps.advise`: which method a goal picks, and what is said next to the table of splits."""

from __future__ import annotations

import numpy as np
import pytest

import snaps
from snaps.advisor import DEFAULT, ERRORS, NUMBERS, Comparison
from snaps.cli.evaluate import _note
from tests.test_advisor import errors_of

# ---- the rules -----------------------------------------------------------------------------------


def compared(numbers, errors=0.01, num_classes=7):
    """A comparison of methods with these (size, singles, worst class, worst size), and noise."""
    random, methods, tables = np.random.default_rng(0), {}, {}
    for name, means in numbers.items():
        noise = random.standard_normal((60, 4))
        noise = errors * (noise - noise.mean(axis=0)) / errors_of(noise)
        methods[name] = snaps.SplitConformal(0.1)
        tables[name] = np.vstack([means, np.array(means) + noise])
    return Comparison(methods, tables, np.arange(200, dtype=np.uint64), 300, num_classes, 0.1)


def picked(numbers, goal="smallest", **options):
    return compared(numbers, **options).advice(goal)


def test_the_best_wins_when_it_is_ahead_beyond_noise():
    numbers = {DEFAULT: (1.5, 0.5, 0.06, 0.1), "other": (1.4, 0.5, 0.06, 0.1)}
    assert picked(numbers).name == "other"
    kept = picked(numbers, errors=0.1)
    assert kept.name == DEFAULT and kept.runner_up == "other"
    assert "other has 1.400, a difference of -0.100" in kept.reason
    assert kept.reason.endswith("within noise, so the default is preferred.")


def test_noise_is_two_standard_errors_of_the_difference():
    numbers = {DEFAULT: (2, 0, 0, 0), "other": (1, 0, 0, 0)}
    tables = compared(numbers, errors=0.1).numbers
    noise = ERRORS * errors_of(tables[DEFAULT][1:] - tables["other"][1:])[0]
    for by, name in ((0.9, DEFAULT), (1.1, "other")):
        numbers[DEFAULT] = (1 + by * noise, 0, 0, 0)
        assert picked(numbers, errors=0.1).name == name


@pytest.mark.parametrize(
    ("goal", "place", "values"),
    [("singletons", 1, (0.5, 0.7)), ("classes", 2, (0.7, 0.8)), ("sizes", 3, (0.7, 0.8))],
)
def test_every_goal_has_its_number(goal, place, values):
    numbers = {DEFAULT: [1.5, 0.5, 0.7, 0.7], "other": [1.8, 0.5, 0.7, 0.7]}
    numbers["other"][place] = values[1]
    assert picked(numbers, goal, errors=0.001).name == "other"
    assert picked(numbers, errors=0.001).name == DEFAULT
    numbers["other"][place] = 2 * values[0] - values[1]  # as far on the wrong side
    assert picked(numbers, goal, errors=0.001).name == DEFAULT


@pytest.mark.parametrize(
    ("sizes", "num_classes", "limit"),
    [((2.5, 3.9), 7, 4.0), ((2.5, 4.1), 7, 4.0), ((1.2, 2.3), 7, 2.4), ((1.2, 2.5), 7, 2.4)],
)
def test_near_full_sets_are_not_recommended_however_balanced(sizes, num_classes, limit):
    numbers = {DEFAULT: (sizes[0], 0.5, 0.7, 0.7), "balanced": (sizes[1], 0.1, 0.9, 0.9)}
    for goal in ("classes", "sizes"):
        found = picked(numbers, goal, errors=0.001, num_classes=num_classes)
        assert found.comparison.most == pytest.approx(limit)
        assert found.name == ("balanced" if sizes[1] <= limit else DEFAULT)
        left = f"more than {limit:.2f} of 7 labels: balanced ({sizes[1]:.2f})"
        assert (left in found.reason) == (sizes[1] > limit)
        assert {row["method"]: row["near_full"] for row in found.rows}["balanced"] == (
            sizes[1] > limit
        )


def test_where_all_sets_are_near_full_size_alone_counts():
    numbers = {DEFAULT: (6.0, 0.1, 0.8, 0.8), "full": (6.8, 0.0, 1.0, 1.0)}
    found = picked(numbers, "classes", errors=0.001)
    assert found.name == DEFAULT and "mean size 6.000" in found.reason
    assert "All methods have near-full sets, the smallest 6.00 of 7 labels" in found.reason


def test_without_the_default_the_smallest_of_those_within_noise_wins():
    numbers = {
        "best": (2.0, 0.50, 0.9, 0.9), "close": (1.5, 0.49, 0.9, 0.9), "far": (1.4, 0.4, 0.9, 0.9),
    }  # fmt: skip
    found = picked(numbers, "singletons")
    assert (found.name, found.runner_up) == ("close", "best")
    assert "within noise, so the smaller sets are preferred" in found.reason


@pytest.mark.parametrize("goal", ["classes", "sizes"])
@pytest.mark.parametrize(
    ("worst", "pick"),
    [
        ((0.70, 0.80, 0.90), "third"),  # the default is smallest, and no answer to the goal
        ((0.70, 0.885, 0.95), "second"),  # reaches 1 - alpha less 0.02
        ((0.70, 0.79, 0.80), "second"),  # nothing reaches it: nearly the best
        ((0.89, 0.89, 0.90), DEFAULT),
    ],
)
@pytest.mark.parametrize("errors", [0.001, 0.1])  # noise excuses no method here
def test_for_balance_the_smallest_sets_that_reach_the_level_win(goal, worst, pick, errors):
    sizes = {DEFAULT: 1.2, "second": 1.3, "third": 1.4}
    numbers = {
        name: (size, 0.5, least, least)
        for (name, size), least in zip(sizes.items(), worst, strict=True)
    }
    assert picked(numbers, goal, errors=errors).name == pick


def test_for_classes_a_promise_comes_before_an_estimate():
    numbers = {
        DEFAULT: (1.2, 0.5, 0.91, 0.9), "floor": (1.25, 0.5, 0.85, 0.9),
        "thresholds": (1.4, 0.5, 0.88, 0.9),
    }  # fmt: skip
    found = compared(numbers)
    found.methods["floor"] = snaps.SplitConformal(0.1, class_floor=0.8)
    assert found.advice("classes").name == "floor"
    found.methods["thresholds"] = snaps.SplitConformal(0.1, class_conditional=True)
    advice = found.advice("classes")
    assert advice.name == "thresholds" and "an estimate, not a promise" in advice.reason
    assert found.advice("sizes").name == DEFAULT
    numbers["thresholds"] = (2.6, 0.5, 0.88, 0.9)  # near full
    found = compared(numbers)
    found.methods["floor"] = snaps.SplitConformal(0.1, class_floor=0.8)
    found.methods["thresholds"] = snaps.SplitConformal(0.1, class_conditional=True)
    assert found.advice("classes").name == "floor"


def test_what_a_goal_costs_is_said():
    numbers = {DEFAULT: (1.3, 0.7, 0.75, 0.8), "even": (1.8, 0.4, 0.9, 0.8)}
    found = picked(numbers, "classes", errors=0.001)
    assert found.cost.startswith(
        "Against Pooled, which has the smallest sets (1.300), it costs 0.500 labels per node ("
    )
    assert "single true labels 0.400 instead of 0.700" in found.cost
    assert "coverage of the worst class 0.900 instead of 0.750" in found.cost
    assert picked(numbers, "singletons").cost == (
        "The goal costs nothing: Pooled has the smallest sets."
    )
    assert picked(numbers).cost == "" and found.cost in str(found)


def test_every_number_has_an_interval():
    found = picked({"one": (1.5, 0.5, 0.99, 0.2)}, errors=0.02)
    (row,) = found.rows
    for key, low, high in zip(
        NUMBERS, (1.46, 0.46, 0.95, 0.16), (1.54, 0.54, 1.0, 0.24), strict=True
    ):
        assert (row[f"{key}_low"], row[f"{key}_high"]) == pytest.approx((low, high))
    assert found.name == found.runner_up == "one"


# ---- next to the table of splits -----------------------------------------------------------------


def note(rows, goal="smallest"):
    numbers = {DEFAULT: (1.5, 0.5, 0.9, 0.9), "other": (1.6, 0.4, 0.9, 0.9)}
    keys = ("method", "size", "singleton_hit")
    return _note(
        [dict(zip(keys, row, strict=True)) for row in rows], picked(numbers, goal, errors=0.1)
    )


def test_a_table_that_agrees_needs_no_note():
    rows = [(DEFAULT, 1.5, 0.5), ("other", 1.5, 0.4)]
    assert note(rows) == note(rows, "singletons") == note(rows, "classes") == ""


def test_a_table_that_says_otherwise_is_explained():
    rows = [(DEFAULT, 1.5, 0.5), ("other", 1.4, 0.6)]
    assert note(rows).startswith(
        "Note: other is ahead in the table (1.400 against 1.500), which looks at labels of "
        "calibration and test nodes. The recommendation must not; on 200 tuning nodes the two "
        "differ by +0.100 ("
    )
    assert "(0.600 against 0.500)" in note(rows, "singletons")
    assert "differ by -0.100 (" in note(rows, "singletons")
    assert note(rows, "classes") == (
        "Note: other has the smallest sets in the table (1.400 against 1.500); the goal classes is "
        "about something that the table does not show."
    )


def test_a_table_outside_of_what_is_expected_is_explained():
    rows = [(DEFAULT, 1.2, 0.5), ("other", 1.6, 0.4)]
    assert note(rows).startswith("Note: the table has 1.200 for Pooled, outside of what")
    assert note(rows, "classes") == note(rows)
    assert note(rows, "singletons") == ""
