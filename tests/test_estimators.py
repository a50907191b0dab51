"""The verbs above the two layers: groups, ties, names, and defects that were seen."""

from __future__ import annotations

import copy
import json
import math
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import snaps
from tests.helpers import law, small
from tests.helpers import transcription as t
from tests.helpers.small import (
    CALIB,
    LABELS,
    NAMES,
    NUM_NODES,
    PROBS,
    TEST,
    error_line,
    made,
    noted,
)

SEED = 20245
REGIONS = np.array(["north", "south", "west"])[np.arange(NUM_NODES) % 3]


def random_splits(pool, n_calib, n_splits):
    random = np.random.default_rng(SEED)
    for _ in range(n_splits):
        order = random.permutation(pool)
        yield order[:n_calib], order[n_calib:]


# ---- Groups --------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_class", [False, True])
def test_a_threshold_per_group(by_class):
    """Every node is held against the calibration nodes of its group (and class) alone."""
    case = made()
    cp = snaps.SNAPS(0.2, weights=(0.3, 0.3), class_conditional=by_class)
    calib, test = case.pool[:200], case.pool[200:]
    cp.calibrate(
        case.graph, case.probs, case.labels, calib, similarity=case.similarity, groups=case.bands
    )
    sets, p = cp.predict_set(test), cp.predict_p(test)
    assert cp.threshold_.shape == ((3, 3) if by_class else (3,))
    expected, p_values = np.zeros_like(sets.mask), np.zeros_like(p)
    for row, node in enumerate(test):
        for y in range(3):
            own = [
                cp.scores_[i, case.labels[i]]
                for i in calib
                if case.bands[i] == case.bands[node] and (not by_class or case.labels[i] == y)
            ]
            s = cp.scores_[node, y]
            expected[row, y] = s <= t.threshold(own, 0.2)
            p_values[row, y] = (1 + sum(c >= s for c in own)) / (len(own) + 1)
        threshold = cp.threshold_[case.bands[node]]
        explained = cp.explain(int(node))
        assert str(cp.explain(np.array(node))) == str(explained)
        assert (explained.threshold == threshold).all()
        assert (explained.inside == expected[row]).all()
    np.testing.assert_array_equal(sets.mask, expected)
    np.testing.assert_array_equal(p, p_values)
    np.testing.assert_array_equal(p > 0.2, expected)


@pytest.mark.parametrize("by_class", [False, True])
def test_coverage_follows_its_law_in_each_group(one_thread, by_class):
    """Given the number of calibration nodes of a degree band, its hits are as expected."""
    case, alpha = made(), 0.2
    random = np.random.default_rng(SEED)
    cp = snaps.SNAPS(alpha, weights=(0.3, 0.3), seed=SEED, class_conditional=by_class)
    cells = case.bands * 3 + case.labels if by_class else case.bands
    values = []
    for calib, test in random_splits(case.pool, 120, 500):
        with warnings.catch_warnings():  # of a cell that a draw left with too few
            warnings.simplefilter("ignore", snaps.SnapsWarning)
            cp.calibrate(
                case.graph, case.probs, case.labels, calib, similarity=case.similarity,
                groups=case.bands,
            )  # fmt: skip
        right = cp.predict_set(test).mask[np.arange(len(test)), case.labels[test]]
        for cell in np.unique(cells[case.pool]):
            n, m = int((cells[calib] == cell).sum()), int((cells[test] == cell).sum())
            hits = int(right[cells[test] == cell].sum())
            if t.rank(n, alpha) > n:
                assert hits == m
            elif m:
                values.append(law.to_uniform(hits, law.hit_pmf(n, m, alpha), random.random()))
    assert len(values) >= 1500
    law.assert_law(law.fit_uniforms(values), f"SNAPS by degree, by class: {by_class}")


def test_one_threshold_for_all_misses_the_law_of_the_groups(one_thread):
    """Teeth: the groups differ, and only thresholds of their own give each its coverage."""
    case, alpha = made(), 0.2
    random = np.random.default_rng(SEED)
    cp = snaps.SplitConformal(alpha, score=snaps.THR())
    sure = case.probs.max(axis=1) > np.median(case.probs.max(axis=1))
    values = []
    for calib, test in random_splits(case.pool, 120, 500):
        cp.calibrate(None, case.probs, case.labels, calib)
        right = cp.predict_set(test).mask[np.arange(len(test)), case.labels[test]]
        n, m = int(sure[calib].sum()), int(sure[test].sum())
        pmf = law.hit_pmf(n, m, alpha)
        values.append(law.to_uniform(int(right[sure[test]].sum()), pmf, random.random()))
    assert not law.fit_uniforms(values).accepted


GROUPS = {
    "strings": REGIONS,
    "a list": REGIONS.tolist(),
    "integers": np.arange(NUM_NODES) % 3 - 7,
    "booleans": np.arange(NUM_NODES) % 2 == 0,
    "a series": pd.Series(REGIONS),
    "a categorical": pd.Categorical(REGIONS),
    "a tensor": torch.arange(NUM_NODES) % 3,
    "tuples": [(int(i) % 2, "x") for i in range(NUM_NODES)],
    "with None": [None if i % 3 else "north" for i in range(NUM_NODES)],
    "with NaN": np.where(np.arange(NUM_NODES) % 3, np.nan, 1.0),
    "with NA": pd.Series(np.arange(NUM_NODES) % 3).replace(2, pd.NA).astype("Int64"),
    "of mixed kinds": [i % 2 or "even" for i in range(NUM_NODES)],
    "dates": pd.to_datetime(["2024-05-01", "2025-05-01"] * 30),
}


@pytest.mark.parametrize("groups", GROUPS.values(), ids=list(GROUPS))
def test_groups_of_every_kind(groups):
    listed = groups.tolist() if hasattr(groups, "tolist") else groups
    listed = [None if pd.isna(one) is True else one for one in listed]
    cp = small.calibrated(groups=groups)
    thresholds = {
        name: t.threshold([cp.scores_[i, LABELS[i]] for i in CALIB if listed[i] == name], 0.2)
        for name in set(listed)
    }
    assert sorted(cp.threshold_) == sorted(thresholds.values())
    mask = [[cp.scores_[i, y] <= thresholds[listed[i]] for y in range(3)] for i in TEST]
    np.testing.assert_array_equal(cp.predict_set(TEST).mask, mask)
    by_group = cp.evaluate(LABELS, TEST)["group_coverage"]
    plain = (str, int, float, bool, type(None))
    assert by_group == {
        (name if isinstance(name, plain) else str(name)): pytest.approx(
            np.mean([mask[i - 30][LABELS[i]] for i in TEST if listed[i] == name])
        )
        for name in thresholds
    }
    json.dumps(by_group)


def test_a_group_with_too_few_nodes_gets_full_sets_and_one_warning():
    groups = np.where(np.arange(NUM_NODES) < 27, "many", "few")
    groups[45:50] = "none"
    cp, said = noted(small.calibrated, groups=groups)
    assert said == [
        "2 of 3 groups have too few calibration nodes for alpha=0.2 (at least 4 each) and get full "
        "sets: group (nodes) few (3), none (0)"
    ]
    sets = cp.predict_set(TEST)  # without another warning
    assert (sets.sizes == 3).all()
    assert cp.evaluate(LABELS)["group_coverage"] == {"few": 1, "many": None, "none": 1}
    _, said = noted(cp.predict_set, TEST, 0.3)
    assert said == [
        "1 of 3 groups have too few calibration nodes for alpha=0.3 (at least 3 each) and get full "
        "sets: group (nodes) none (0)"
    ]


@pytest.mark.parametrize(
    "groups, message",
    [
        (REGIONS[:-1], "'groups' must have shape (60,), got (59,)"),
        (np.zeros((NUM_NODES, 2)), "'groups' must have shape (60,), got (60, 2)"),
        ("north", "'groups' must be an array, got str"),
        ({"north": 1}, "the keys of 'groups' must be ids of the graph's nodes, got 'north'"),
        ([[1]] * NUM_NODES, "'groups' must be hashable, got [1] at node 0"),
    ],
)
def test_groups_that_are_none(groups, message):
    assert error_line(small.calibrated, groups=groups).startswith(message)


@pytest.mark.parametrize("by_class", [False, True])
def test_groups_are_saved(tmp_path, by_class):
    cp = snaps.SNAPS(0.5, k=5, weights=(0.3, 0.2), class_conditional=by_class)
    groups = [None if region == "west" else region for region in REGIONS]
    small.calibrated(cp, groups=groups)
    cp.save(tmp_path / "cp")
    again = snaps.load(tmp_path / "cp")
    np.testing.assert_array_equal(again.threshold_, cp.threshold_)
    np.testing.assert_array_equal(again.predict_set().mask, cp.predict_set().mask)
    np.testing.assert_array_equal(again.predict_p(), cp.predict_p())
    assert again.evaluate(LABELS) == cp.evaluate(LABELS)
    small.calibrated(cp, groups=[(region,) for region in REGIONS.tolist()])
    assert error_line(cp.save, tmp_path / "cp") == (
        "'groups' must be strings or numbers to be saved, got ('north',)"
    )


# ---- Ties ----------------------------------------------------------------------------------------


def tied_data(n, random):
    """Three distinct rows of probabilities, so that scores take nine values."""
    rows = np.array([[0.7, 0.2, 0.1], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6]])
    kind = random.integers(3, size=n)
    labels = (random.random((n, 1)) > rows[kind].cumsum(axis=1)).sum(axis=1)
    return rows[kind], labels


def test_smoothed_sets_meet_the_law_under_ties_and_plain_ones_exceed_it(one_thread):
    """One test node a split: its hits are draws of a coin that falls 1 - alpha often, exactly."""
    random = np.random.default_rng(SEED)
    probs, labels = tied_data(80, random)
    alpha, splits, n = 0.2, 2000, 30
    smoothed = plain = 0
    values = []
    for split in range(splits):
        order = random.permutation(80)
        calib, node = order[:n], order[n : n + 1]
        cp = snaps.SplitConformal(alpha, score=snaps.THR(), seed=split)
        cp.calibrate(None, probs, labels, calib)
        truth = labels[node[0]]
        chosen = cp.predict_set(node, smoothed=True)
        p = cp.predict_p(node, smoothed=True)
        np.testing.assert_array_equal(chosen.mask, p > alpha)
        everything = cp.predict_set(node).mask
        assert (chosen.mask <= everything).all()
        smoothed += chosen.mask[0, truth]
        plain += everything[0, truth]
        values.append(p[0, truth])
    error = math.sqrt(alpha * (1 - alpha) / splits)
    assert abs(smoothed / splits - (1 - alpha)) < 4 * error
    assert plain / splits > 1 - alpha + 5 * error
    law.assert_law(law.fit_uniforms(values), "smoothed p-values under ties")


def test_chance_is_the_node_s_own_however_it_is_asked_for():
    cp = small.calibrated(snaps.SplitConformal(0.2, score=snaps.THR()), named=True)
    whole, p = cp.predict_set(smoothed=True).mask, cp.predict_p(smoothed=True)
    np.testing.assert_array_equal(p > 0.2, whole)
    np.testing.assert_array_equal(p > 0.4, cp.predict_set(alpha=0.4, smoothed=True).mask)
    for some in (TEST[::-1], TEST[5:9], NAMES[TEST[[20, 3]]]):
        places = [TEST.tolist().index(cp.predict_set([node]).nodes[0]) for node in some]
        np.testing.assert_array_equal(cp.predict_p(some, smoothed=True), p[places])
        np.testing.assert_array_equal(cp.predict_set(some, smoothed=True).mask, whole[places])
    assert len(np.unique(p)) == p.size  # each node and label has a draw of its own
    assert error_line(cp.predict_set, smoothed="yes") == (
        "'smoothed' must be True or False, got 'yes'"
    )


# ---- Names ---------------------------------------------------------------------------------------

COLOURS = np.array(["red", "green", "blue"])
SPELLINGS = {
    "strings": (COLOURS[LABELS], COLOURS),
    "a categorical": (pd.Categorical(COLOURS[LABELS], COLOURS), None),
    "integers": (np.array([70, -3, 10**12])[LABELS], [70, -3, 10**12]),
}


@pytest.mark.parametrize("method", [
    snaps.SplitConformal(0.2), snaps.DAPS(0.2, weight=0.4),
    snaps.SNAPS(0.2, k=5, weights=(0.3, 0.2)), snaps.Pooled(0.2, k=5),
], ids=lambda method: type(method).__name__)  # fmt: skip
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_names_through_every_verb(tmp_path, method, spelling):
    """All answers are those of plain labels and positions, by other names."""
    labels, classes = SPELLINGS[spelling]
    graph = small.graph(ids=NAMES)
    plain = copy.copy(method).calibrate(graph, PROBS, LABELS, CALIB)
    cp = copy.copy(method).calibrate(graph, PROBS, labels, NAMES[CALIB].tolist(), classes=classes)
    names = np.asarray(COLOURS if classes is None else classes)
    np.testing.assert_array_equal(cp.classes_, names)
    np.testing.assert_array_equal(cp.scores_, plain.scores_)
    np.testing.assert_array_equal(cp.calib_ids_, NAMES[cp.calib_nodes_])
    np.testing.assert_array_equal(cp.tune_ids_, NAMES[cp.tune_nodes_])

    asked = NAMES[TEST]
    sets = cp.predict_set(asked)
    np.testing.assert_array_equal(sets.mask, plain.predict_set(TEST).mask)
    np.testing.assert_array_equal(cp.predict_p(asked), plain.predict_p(TEST))
    assert sets.ids.tolist() == asked.tolist()
    assert [one.tolist() for one in sets] == [names[row].tolist() for row in sets.mask]
    sets.write(tmp_path / "sets.parquet")
    table = pd.read_parquet(tmp_path / "sets.parquet")
    assert [list(one) for one in table["labels"]] == [one.tolist() for one in sets]
    sets.write(tmp_path / "sets.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "sets.jsonl").read_text().splitlines()]
    assert [line["labels"] for line in lines] == [one.tolist() for one in sets]

    result, before = cp.evaluate(labels, asked), plain.evaluate(LABELS, TEST)
    assert result["class_coverage"] == {
        name.item(): before["class_coverage"][y] for y, name in enumerate(names)
    }
    weakest = before["weakest_slice"]
    if weakest["by"] == "class":
        weakest["name"] = names[weakest["name"]].item()
    assert {**result, "class_coverage": 0} == {**before, "class_coverage": 0}
    assert str(names[0]) in str(result)

    explained = cp.explain(NAMES[40])
    assert (explained.node, explained.id) == (40, NAMES[40])
    np.testing.assert_array_equal(explained.inside, sets.mask[10])
    assert all(str(name) in str(explained) for name in names)
    assert explained.to_pandas().index.tolist() == names.tolist()

    cp.save(tmp_path / "cp")
    again = snaps.load(tmp_path / "cp")
    assert [one.tolist() for one in again.predict_set(asked)] == [one.tolist() for one in sets]
    assert again.recalibrate(graph, PROBS, labels).evaluate(labels, asked) == result


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda cp: cp.predict_set(["node-3", "node-99"]),
         "'nodes' must name nodes of the graph, got node-99"),
        (lambda cp: cp.explain("stranger"), "'node' must name nodes of the graph, got stranger"),
        (lambda cp: cp.evaluate(np.where(LABELS > 1, "violet", COLOURS[LABELS])), "violet"),
        (lambda cp: cp.evaluate(LABELS), "'labels' must"),
    ],
)  # fmt: skip
def test_names_of_no_node(call, message):
    cp = snaps.SplitConformal(0.2)
    cp.calibrate(small.graph(ids=NAMES), PROBS, COLOURS[LABELS], CALIB, classes=COLOURS)
    assert message in error_line(call, cp)


# ---- Defects that were seen ----------------------------------------------------------------------


def test_datasets_and_models_as_the_readme_writes_them():
    code = "import snaps; print(snaps.datasets.make_graph, snaps.models.smoothed_regression)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(AttributeError, match="module 'snaps' has no attribute 'nothing'"):
        _ = snaps.nothing


@pytest.mark.parametrize("used", ["calib_nodes_", "tune_nodes_"])
def test_predicting_nodes_that_were_used_is_noted(used):
    cp = small.calibrated(snaps.SNAPS(0.2, k=5))
    nodes = np.concatenate([getattr(cp, used)[:2], TEST])
    sets, said = noted(cp.predict_set, nodes)
    assert len(sets) == 32
    assert said == ["2 of the nodes were used to calibrate or tune: the guarantee does not apply"]
    assert noted(cp.predict_set)[1] == noted(cp.predict_set, TEST)[1] == []


def test_the_headings_of_pooled_stand_apart():
    text = str(small.calibrated(snaps.Pooled(0.2, k=5), known_nodes=[40, 41]).explain(50))
    _, head, *rows = text.splitlines()
    names = head.split()
    assert names[0] == "label" and names[-4:] == ["probability", "score", "threshold", "in"]
    assert set(names[1:-4]) <= {*snaps.scoring.pooling.PARTS, "classes", "others"}
    ends = [head.index(f" {name} ") + len(name) + 1 for name in names[1:-1]]
    for row in rows[:3]:  # numbers end where their heading ends
        assert all(row[end - 1].isdigit() and row[end] == " " for end in ends)


NO_FEATURES = "the graph has no features, so no node has similar ones: SNAPS is DAPS here"


@pytest.mark.parametrize("names", [["SNAPS", "Pooled"], ["Pooled", "SNAPS"], ["Pooled", "DAPS"]])
def test_the_note_on_features_survives_shared_inputs(names):
    methods = {
        "SNAPS": snaps.SNAPS(0.2), "Pooled": snaps.Pooled(0.2), "DAPS": snaps.DAPS(0.2)
    }  # fmt: skip
    graph = snaps.Graph(small.EDGES, num_nodes=NUM_NODES)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        snaps.evaluate_splits(
            {name: methods[name] for name in names}, graph, PROBS, LABELS, np.arange(60), 30, 2
        )
    said = [str(one.message) for one in found if issubclass(one.category, snaps.SnapsWarning)]
    assert said.count(NO_FEATURES) == ("SNAPS" in names)


@pytest.mark.parametrize("order", [1, -1])
def test_methods_that_are_compared_keep_the_similarity_graph(order):
    case = made()
    near = snaps.similarity_graph(case.graph.features, 3)
    bare = snaps.Graph(case.graph.adjacency)
    methods = {"split": snaps.SplitConformal(0.1), "SNAPS": snaps.SNAPS(0.1, weights=(0.6, 0.2))}
    given = bare, case.probs, case.labels, case.pool, 100, 5
    both = snaps.evaluate_splits(dict(list(methods.items())[::order]), *given, similarity=near)
    for name, method in methods.items():
        alone = snaps.evaluate_splits(method, *given, similarity=near)
        for key, values in alone.items():
            np.testing.assert_array_equal(both[name][key], values)


# ---- A class that is served far worse ------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("method", [snaps.SNAPS, snaps.Pooled])
def test_a_rare_class_that_is_covered_far_less_is_named(seed, method):
    """A fifth of the nodes are positive, and half of these are missed; tuning nodes show it."""
    random = np.random.default_rng(seed)
    labels = (random.random(3000) < 0.22).astype(int)
    signal = random.normal(size=3000) + 0.9 * labels
    chance = 1 / (1 + np.exp(1.6 - signal))
    graph = snaps.Graph(random.integers(0, 3000, (2, 6000)), signal[:, None] - [0, 1], 3000)
    given = graph, np.c_[1 - chance, chance], labels, np.arange(1000)
    cp, notes = small.noted(method(0.1).calibrate, *given)
    covered = cp.evaluate(labels, np.arange(1000, 3000))["class_coverage"]
    assert covered[1] < 0.7 < 0.99 < covered[0]
    assert len(notes) == 1 and notes[0].startswith("class 1 is covered 0.")
    assert notes[0].endswith("(--class-conditional) gives each class its own threshold")
    assert small.noted(method(0.1, class_conditional=True).calibrate, *given)[1] == []
    # Where the classes are alike, chance alone is not warned of.
    labels = random.integers(0, 2, 3000)
    signal = random.normal(size=3000) + labels - 0.5
    chance = 1 / (1 + np.exp(-signal))
    graph = snaps.Graph(random.integers(0, 3000, (2, 6000)), signal[:, None] - [0, 1], 3000)
    given = graph, np.c_[1 - chance, chance], labels, np.arange(1000)
    assert small.noted(method(0.1).calibrate, *given)[1] == []
