"""Actions from sets, and what they promise."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import snaps
from snaps import SnapsError
from snaps.datasets import make_graph
from snaps.models import smoothed_regression
from tests.helpers import small

ACTIONS = {"fraud": "block", "honest": "pass"}


def every_set(classes=("fraud", "honest", "new")):
    """All sets of three labels."""
    mask = np.array([[i >> y & 1 for y in range(3)] for i in range(8)], bool)
    return snaps.PredictionSets(mask, ids=[f"n{i}" for i in range(8)], classes=classes)


def test_single_labels_get_their_action_and_all_else_the_other():
    sets = every_set()
    decisions = sets.decide(ACTIONS, otherwise="look")
    for labels, action in zip(sets, decisions, strict=True):
        known = len(labels) == 1 and labels[0] in ACTIONS
        assert action == (ACTIONS[labels[0]] if known else "look")
    assert decisions.counts == {"block": 1, "pass": 1, "look": 6}
    assert sets.decide(ACTIONS).counts == {"block": 1, "pass": 1, "review": 6}
    assert "Nothing is promised" in str(decisions) and "<p>" in decisions._repr_html_()


def test_decisions_are_a_column():
    sets = every_set()
    decisions = sets.decide(ACTIONS)
    table = sets.to_pandas()
    table["decision"] = decisions
    pd.testing.assert_frame_equal(table, decisions.to_pandas(), check_dtype=False)
    assert np.asarray(decisions).tolist() == list(decisions) == decisions.actions.tolist()
    assert decisions[1] == "block" and len(decisions) == 8
    assert sets[:2].decide(ACTIONS).actions.tolist() == ["review", "block"]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_decisions_as_files(suffix, tmp_path):
    decisions, path = every_set().decide({"fraud": 'a "b", c'}), tmp_path / f"d{suffix}"
    decisions.write(path, metadata={"a": "b"} if suffix == ".parquet" else None)
    read = {
        ".parquet": pd.read_parquet,
        ".csv": pd.read_csv,
        ".jsonl": lambda path: pd.DataFrame(map(json.loads, open(path))),
    }[suffix](path)
    assert list(read) == ["id", "labels", "size", "decision"]
    assert read["decision"].tolist() == list(decisions)
    if suffix == ".parquet":
        assert pq.read_schema(path).metadata[b"a"] == b"b"


def test_bad_actions():
    sets = every_set()
    for actions, options, message in [
        (
            {"theft": "block"},
            {},
            r"'actions' must be one of \['fraud', 'honest', 'new'\], got 'the",
        ),
        ({0: "block"}, {}, "'actions' must be one of"),
        ({}, {}, "'actions' must map classes to actions"),
        ("fraud=block", {}, "'actions' must map classes to actions"),
        ({"fraud": None}, {}, "'actions' must be text on one line, got None"),
        ({"fraud": ""}, {}, "'actions' must be text"),
        ({"fraud": "block"}, {"otherwise": None}, "'otherwise' must be text on one line, got None"),
        ({"fraud": "block"}, {"otherwise": "a\nb"}, "'otherwise' must be text"),
    ]:
        with pytest.raises(SnapsError, match=message):
            sets.decide(actions, **options)
    assert every_set([3, 5, 7]).decide({np.int64(5): "go"}).counts == {"go": 1, "review": 7}


def calibrated(groups=None, **options):
    """The sets of 30 nodes of classes 0, 1 and 2."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # groups are small
        return small.calibrated(
            snaps.SplitConformal(**{"alpha": 0.2, **options}), groups=groups
        ).predict_set()


def test_what_is_promised_in_words():
    one = calibrated().decide({0: "block", 1: "pass"}).promises
    assert one[0].startswith(
        "On average at most 20 % of all nodes are given the action of a class that is not"
    )
    assert one[1].startswith("Nothing is promised per class: class_conditional=True")
    assert one[-1].startswith("Not promised: the share of the nodes with an action that is right")
    each = calibrated(class_conditional=True)
    assert each.decide({0: "block", 1: "pass"}).promises[:3] == [
        "On average at most 20 % of the nodes of class 0 are given 'pass'.",
        "On average at most 20 % of the nodes of class 1 are given 'block'.",
        "On average at most 20 % of the nodes of class 2 are given 'block' or 'pass'.",
    ]
    # Classes with the same action don't harm each other; what all else gets is not bounded.
    same = each[:5].decide({0: "block", 1: "pass", 2: "block"}, otherwise="pass").promises
    assert same[:2] == [
        "On average at most 20 % of the nodes of class 1 are given 'block'.",
        "Nothing is promised of 'pass', which all other sets are given too.",
    ]
    shared = calibrated().decide({0: "block", 1: "pass"}, otherwise="pass").promises
    assert "a class that is not theirs (other than 'pass')." in shared[0]
    assert shared[2].startswith("Nothing is promised of 'pass'")
    floors = calibrated(class_floor=0.7).decide({0: "block", 1: "pass"}).promises
    assert floors[0].startswith("On average at most 20 % of all nodes are given the action")
    assert floors[1] == "On average at most 30 % of the nodes of class 0 are given 'pass'."
    assert len(floors) == 5 and floors[-1].startswith("Not promised")
    few = calibrated(class_floor=0.95).decide({0: "block", 1: "pass"}).promises
    assert few[1].startswith("Nothing is promised per class") and len(few) == 3
    sure = calibrated(confidence=0.9).decide({0: "block"}).promises
    assert sure[0].startswith("With 90 % confidence at most 20 % of all nodes")
    rates = calibrated(alpha={0: 0.1, 1: 0.3, 2: 0.2}, class_conditional=True)
    assert rates.decide({0: "block", 1: "pass"}).promises[:2] == [
        "On average at most 10 % of the nodes of class 0 are given 'pass'.",
        "On average at most 30 % of the nodes of class 1 are given 'block'.",
    ]
    groups = calibrated(groups=np.arange(60) % 12).decide({0: "block"}).promises
    assert groups[0].startswith("On average at most 20 % of all nodes within each group are")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_class_thresholds_keep_the_promise_per_class_and_one_threshold_does_not(seed):
    """Over many draws: wrong actions per class, for a graph with a rare class."""
    made = make_graph(600, 2, homophily=0.7, imbalance=1.5, seed=seed)
    order = np.random.default_rng(seed).permutation(600)
    probs = smoothed_regression(made.graph, made.labels, order[:40], hops=0)
    pool, names = np.sort(order[40:]), np.array(["honest", "fraud"])
    wrong = {False: [], True: []}
    random = np.random.default_rng(seed)
    for _ in range(100):
        calib = random.choice(pool, 200, replace=False)
        test = np.setdiff1d(pool, calib)
        fraud = test[made.labels[test] == 1]
        for by_class, shares in wrong.items():
            cp = snaps.SplitConformal(0.1, score=snaps.THR(), class_conditional=by_class)
            cp.calibrate(made.graph, probs, names[made.labels], calib, classes=names)
            decisions = cp.predict_set(fraud).decide(ACTIONS)
            shares.append(decisions.counts["pass"] / len(fraud))
    error = 3 * np.std(wrong[True]) / np.sqrt(100)
    assert np.mean(wrong[True]) <= 0.1 + error
    assert np.mean(wrong[False]) > 0.1 + error
