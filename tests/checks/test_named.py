"""Inputs that carry names are matched by them or refused, never taken by position."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import snaps
from snaps import metrics
from snaps.folder import read_folder, write_folder
from snaps.models import smoothed_regression
from tests.fuzz import names as fuzz_names
from tests.helpers import small
from tests.helpers.papers import CLASSES, POSITIONS, calibrated, same_sets
from tests.helpers.small import error_line, noted


@pytest.mark.parametrize("method", [snaps.SplitConformal, snaps.DAPS, snaps.SNAPS, snaps.Pooled])
def test_shuffled_columns_and_rows_give_the_sets_of_arrays_in_order(papers, method):
    graph, probs, labels, _, series, role = papers
    expected = method(0.1).calibrate(graph, probs, labels, np.arange(60, 260), classes=CLASSES)
    test = np.arange(260, 600)
    cp = calibrated(papers, method=method(0.1))
    assert cp.classes_.tolist() == CLASSES.tolist()
    same_sets(cp.predict_set(test), expected.predict_set(test))
    mask = role == "test"
    same_sets(cp.predict_set(mask), expected.predict_set(test))
    assert (cp.predict_p(mask) == expected.predict_p(test)).all()
    assert dict(cp.evaluate(series, mask)) == dict(expected.evaluate(labels, test))


def test_the_seed_of_all_this(papers):
    """Columns DB, DM, AI, IR that were read as AI, DB, DM, IR gave sets twice as large."""
    graph, _, labels, frame, _, _ = papers
    unnamed = frame.loc[graph.ids].to_numpy()
    message = error_line(snaps.SNAPS(0.1).calibrate, graph, unnamed, labels, np.arange(60, 260))
    assert message == (
        "'classes' must be given where 'labels' are strings, got None and "
        "['AI', 'DB', 'DM', 'IR']: pass classes=[...] (--classes) in the order of the columns of "
        "probs, or name the columns"
    )


SPELLINGS = {
    "prefixed": lambda frame: frame.add_prefix("p_"),
    "with a column of ids": lambda frame: frame.reset_index(names="id"),
    "polars": lambda frame: pl.from_pandas(frame.reset_index(names="id")),
    "Arrow": lambda frame: pa.table(frame.reset_index(names="id")),
    "Float64": lambda frame: frame.convert_dtypes(),
    "a dict of lists": lambda frame: dict(
        zip(frame.index, frame[CLASSES].to_numpy().tolist(), strict=False)
    ),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_of_probabilities(papers, name):
    spelled = SPELLINGS[name](papers[3])
    options = {"classes": CLASSES} if isinstance(spelled, dict) else {}
    cp = calibrated(papers, spelled, **options)
    same_sets(cp.predict_set(), calibrated(papers).predict_set())


def test_the_order_of_classes(papers):
    def chosen(*given, **options):
        return calibrated(*given, method=snaps.SplitConformal(0.1), **options)

    labels = papers[4]
    ordered = labels.astype(pd.CategoricalDtype(["IR", "DB", "AI", "DM", "XX"]))
    assert chosen(papers, labels=ordered).classes_.tolist() == ["IR", "DB", "AI", "DM"]
    assert chosen(papers, classes=CLASSES[::-1]).classes_.tolist() == ["IR", "DM", "DB", "AI"]
    codes = labels.map(dict(zip(CLASSES, [10, 2, 30, 1], strict=True)))
    frame = papers[3].rename(columns=dict(zip(CLASSES, ["10", "2", "30", "1"], strict=True)))
    assert chosen(papers, frame, codes).classes_.tolist() == [1, 2, 10, 30]
    assert chosen(papers, frame, codes.astype(str)).classes_.tolist() == ["1", "10", "2", "30"]
    truth = labels == "AI"
    pair = pd.DataFrame({True: papers[3]["AI"], False: 1 - papers[3]["AI"]})
    assert chosen(papers, pair, truth).classes_.tolist() == [0, 1]


REFUSED = {
    "another class": (
        lambda frame: {"probs": frame.rename(columns={"AI": "ML"})},
        "'labels' must be among the classes ['DB', 'DM', 'IR', 'ML'], got 'AI' at node",
    ),
    "other classes": (
        lambda frame: {"probs": frame, "classes": ["AI", "DB", "DM", "ML"]},
        "'probs' must have a column for each class, got none for 'ML' among",
    ),
    "a column twice": (
        lambda frame: {"probs": frame.set_axis(["DB", "DM", "AI", "AI"], axis=1)},
        "'classes' must be unique, got 'AI' twice or more",
    ),
    "an unknown node": (
        lambda frame: {"probs": frame.rename(index={"paper-00042": "paper-42"})},
        f"the index of 'probs' must be ids of the graph's nodes, got 'paper-42': {POSITIONS}",
    ),
    "a node less": (
        lambda frame: {"probs": frame.drop("paper-00042")},
        "the index of 'probs' must hold every node, got none for paper-00042",
    ),
    "a node twice": (
        lambda frame: {"probs": pd.concat([frame, frame.iloc[5:6]])},
        "the index of 'probs' must not repeat an id, got",
    ),
    "ids of another kind": (
        lambda frame: {"probs": frame.set_axis(np.arange(600)[::-1])},
        f"the index of 'probs' must be ids of the graph's nodes, got '599': {POSITIONS}",
    ),
    "an unknown key": (
        lambda frame: {"probs": frame, "labels": {f"paper-{y}": y for y in CLASSES}},
        "the keys of 'labels' must be ids of the graph's nodes, got 'paper-AI'",
    ),
    "groups of some": (
        lambda frame: {"probs": frame, "groups": pd.Series("x", index=frame.index[1:])},
        "the index of 'groups' must hold every node, got none for",
    ),
    "a mask of some": (
        lambda frame: {"probs": frame, "nodes": pd.Series(True, index=frame.index[1:])},
        "the index of 'nodes' must hold every node, got none for",
    ),
    "a table of nodes": (
        lambda frame: {"probs": frame, "nodes": frame},
        "'nodes' must be a list of nodes or a mask, got",
    ),
    "rows with names of their own": (
        lambda frame: {"probs": dict(frame.iterrows())},
        "'probs' must map nodes to lists of numbers, got a Series",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_names_that_do_not_match(papers, name):
    make, message = REFUSED[name]
    assert error_line(calibrated, papers, **make(papers[3])).startswith(message)


def test_labels_of_the_nodes_that_need_them(papers):
    role, series = papers[5], papers[4]
    some = series[role[series.index] == "calib"]
    same_sets(calibrated(papers, labels=some).predict_set(), calibrated(papers).predict_set())
    same_sets(calibrated(papers, labels=dict(some)).predict_set(), calibrated(papers).predict_set())


def test_groups_by_id(papers):
    graph, *_ = papers
    groups = pd.Series(np.where(np.arange(600) % 3, "north", "south"), index=graph.ids)
    expected = calibrated(papers, groups=groups.to_numpy())
    cp = calibrated(papers, groups=groups.sample(frac=1, random_state=9))
    same_sets(cp.predict_set(), expected.predict_set())
    same_sets(calibrated(papers, groups=dict(groups)).predict_set(), expected.predict_set())
    sets = cp.predict_set()
    shuffled = groups.sample(frac=1, random_state=4)
    assert metrics.coverage(sets, papers[4]) == metrics.coverage(sets, papers[2])
    found = metrics.group_coverage(sets, papers[4], shuffled)
    assert found == metrics.group_coverage(sets, papers[2], groups.to_numpy())
    message = error_line(metrics.coverage, sets, papers[4].drop(sets.ids[0]))
    assert message == f"the index of 'labels' must hold every node, got none for {sets.ids[0]}"


def test_a_default_index_names_nothing(papers):
    graph, probs, labels, *_ = papers
    expected = calibrated(papers).predict_set()
    frame = pd.DataFrame(probs, columns=CLASSES)
    same_sets(calibrated(papers, frame, pd.Series(labels)).predict_set(), expected)
    # ... unless the ids are the same numbers in another order: either may be meant.
    other = snaps.Graph(graph.adjacency, ids=np.random.default_rng(0).permutation(600))
    message = error_line(snaps.DAPS(0.1).calibrate, other, frame, labels, np.arange(60, 260))
    assert message == (
        "'probs' must have the graph's ids as its index, got the default one, and the ids are the "
        f"same numbers in another order: {POSITIONS}"
    )


def test_integers_of_pandas_may_be_positions_or_ids(papers):
    graph, probs, labels, *_ = papers
    other = snaps.Graph(graph.adjacency, ids=np.arange(600)[::-1])
    given = snaps.DAPS(0.1).calibrate, other, probs, labels
    message = error_line(*given, pd.Index(np.arange(200)), classes=CLASSES)
    assert message == (
        "'nodes' must be positions or ids, got integers of a Index, which may be either: "
        "pass graph.index(...) for ids, .to_numpy() for positions"
    )
    numbered = snaps.Graph(graph.adjacency)
    cp = snaps.DAPS(0.1).calibrate(
        numbered, probs, labels, pd.Index(np.arange(200)), classes=CLASSES
    )
    assert len(cp.calib_nodes_) == 109


def test_an_index_in_another_order_without_ids(papers):
    """The nodes of a graph without ids are numbered, and tables may be shuffled all the same."""
    graph, probs, labels, *_ = papers
    numbered = snaps.Graph(graph.adjacency, graph.features)
    given = numbered, probs, labels, np.arange(60, 260)
    expected = snaps.SNAPS(0.1).calibrate(*given, classes=CLASSES).predict_set()
    frame = pd.DataFrame(probs, columns=CLASSES).sample(frac=1, random_state=1)
    series = pd.Series(labels).sample(frac=1, random_state=2)
    cp = snaps.SNAPS(0.1).calibrate(numbered, frame, series, np.arange(60, 260))
    same_sets(cp.predict_set(), expected)


def test_without_a_graph_probabilities_name_the_nodes(papers):
    graph, probs, labels, frame, series, role = papers
    cp = snaps.SplitConformal(0.1).calibrate(None, frame, series, role == "calib")
    expected = snaps.SplitConformal(0.1).calibrate(
        graph, probs, labels, np.arange(60, 260), classes=CLASSES
    )
    test = graph.ids[260:]
    same = cp.predict_set(test)
    assert (same.mask == expected.predict_set(test).mask).all()
    assert cp.evaluate(series, test)["coverage"] == expected.evaluate(labels, test)["coverage"]
    # An array names no node, so that an index could only be taken by position.
    given = snaps.SplitConformal(0.1).calibrate, None, probs, series, np.arange(60, 260)
    message = error_line(*given, classes=CLASSES)
    assert message.startswith("'labels' must have the default index where neither graph nor probs")


@pytest.mark.parametrize("labels", [np.arange(60) % 3 + 1, np.arange(60) % 3 - 5])
def test_integers_that_are_no_columns(labels):
    message = error_line(
        snaps.SplitConformal(0.2).calibrate, None, small.PROBS, labels, small.CALIB
    )
    assert "must lie from 0 to 2" in message and "pass classes=[...] (--classes)" in message


# ---- Recalibrating -------------------------------------------------------------------------------


def test_recalibrating_matches_classes_by_name(papers):
    graph, probs, _, frame, *_ = papers
    expected = calibrated(papers).predict_set()
    order = [2, 0, 3, 1]
    for given, options in (
        (frame[["IR", "AI", "DB", "DM"]].sample(frac=1, random_state=5), {}),
        (frame.add_prefix("p_"), {}),
        (probs[:, order], {"classes": CLASSES[order]}),
    ):
        same_sets(calibrated(papers).recalibrate(graph, given, **options).predict_set(), expected)
    cp = calibrated(papers)
    message = error_line(cp.recalibrate, graph, frame.rename(columns={"AI": "ML"}))
    assert message.startswith("'probs' must have a column for each class, got none for 'AI' among")
    message = error_line(cp.recalibrate, graph, probs, classes=["AI", "DB", "DM", "ML"])
    assert message.startswith("'probs' must have a column for each class, got none for 'IR' among")
    message = error_line(cp.recalibrate, graph, frame.assign(ML=0.0))
    assert message.startswith("'probs' must have one column per class")
    same_sets(cp.predict_set(), expected)


def test_twelve_classes_sorted_as_text():
    """p_0, p_1, p_10, p_11, p_2, ...: as text is not as numbers."""
    random = np.random.default_rng(3)
    probs = random.dirichlet(np.ones(12), 200)
    labels = np.array([random.choice(12, p=row) for row in probs])
    cp = snaps.SplitConformal(0.1).calibrate(None, probs, labels, np.arange(100))
    expected = cp.predict_set()
    frame = pd.DataFrame(probs, columns=[f"p_{y}" for y in range(12)])
    frame = frame[sorted(frame.columns)]
    same_sets(cp.recalibrate(None, frame).predict_set(), expected)
    same_sets(
        cp.recalibrate(None, frame.rename(columns=lambda c: int(c[2:]))).predict_set(), expected
    )


def test_arrays_after_a_table_must_say_which_column_is_which(papers, tmp_path):
    """The classes of a table are sorted: an array in the table's order would be mixed up."""
    graph, _, _, frame, *_ = papers
    cp = calibrated(papers)
    cp.save(tmp_path / "x.snaps", data=False)
    for one in (cp, snaps.load(tmp_path / "x.snaps")):
        message = error_line(one.recalibrate, graph, frame.loc[graph.ids].to_numpy())
        assert message.startswith("'classes' must be given for probs whose columns have no names")
        one.recalibrate(graph, frame.loc[graph.ids].to_numpy(), classes=frame.columns)
        same_sets(one.predict_set(), calibrated(papers).predict_set())


# ---- Elsewhere -----------------------------------------------------------------------------------


def test_splits_and_advice_by_name(papers):
    graph, probs, labels, frame, series, role = papers
    methods = {"SNAPS": snaps.SNAPS(0.1), "APS": snaps.SplitConformal(0.1)}
    pool = np.arange(60, 600)
    expected = snaps.evaluate_splits(methods, graph, probs, labels, pool, 200, 20, classes=CLASSES)
    found = snaps.evaluate_splits(methods, graph, frame, series, role != "train", 200, 20)
    for name in methods:
        assert (found[name]["coverage"] == expected[name]["coverage"]).all()
    given = 60 + np.arange(300)
    advice = snaps.advise(graph, frame, series, graph.ids[given], alpha=0.1, methods=methods)
    other = snaps.advise(graph, probs, labels, given, alpha=0.1, methods=methods, classes=CLASSES)
    assert advice.rows == other.rows


def test_writing_a_folder_by_name(papers, tmp_path):
    graph, probs, labels, frame, series, role = papers
    write_folder(tmp_path / "g", graph, frame, series, role)
    found = read_folder(tmp_path / "g")
    assert found.classes.tolist() == CLASSES.tolist()
    assert (found.probs == probs).all() and (found.labels == labels).all()
    assert (found.graph.ids[found.nodes("calib")] == graph.ids[60:260]).all()


def test_a_folder_without_labels_keeps_the_names_of_classes(papers, tmp_path):
    graph, probs, _, frame, *_ = papers
    write_folder(tmp_path / "g", graph, frame)
    found = read_folder(tmp_path / "g")
    assert found.classes.tolist() == CLASSES.tolist() and (found.probs == probs).all()


def test_training_by_name(papers):
    graph = papers[0]
    codes = pd.Series(papers[2], index=graph.ids).map({y: i for i, y in enumerate(CLASSES)})
    shuffled = codes.sample(frac=1, random_state=1)
    expected = smoothed_regression(graph, codes.to_numpy(), np.arange(60))
    assert (smoothed_regression(graph, shuffled, graph.ids[:60]) == expected).all()


def test_a_confidence_level_by_mistake(papers):
    cp, notes = noted(calibrated, papers, method=snaps.SNAPS(0.9))
    assert notes == [
        "alpha=0.9 asks for sets that contain the true label with probability 0.1; if you mean a "
        "probability of 0.9, pass alpha=0.1"
    ]
    assert noted(calibrated, papers, method=snaps.SNAPS(0.5))[1] == []
    assert noted(cp.predict_set, None, 0.95)[1][0].startswith("alpha=0.95 asks for sets")


@pytest.mark.parametrize("seed", [1, 2])
def test_the_attacker_of_names(seed, one_thread):
    findings = [found for number in range(150) if (found := fuzz_names.case(seed, number))[1]]
    assert not findings, findings[:5]


# ---- What fresh eyes found -----------------------------------------------------------------------


def test_numbers_as_text_are_ids_too():
    """NetworkX reads edge lists with strings as nodes, in the order of the edges."""
    graph = nx.parse_edgelist(["2 0", "0 1", "1 3"])
    made = snaps.Graph.from_networkx(graph)
    assert made.ids.tolist() == ["2", "0", "1", "3"]
    table = pd.DataFrame(np.eye(4))
    message = error_line(snaps.Graph.from_networkx, graph, table)
    assert message.startswith("'features' must have the graph's ids as its index, got the default")
    assert snaps.Graph.from_networkx(graph, table.iloc[[1, 0, 2, 3]]).features[0, 2] == 1
    message = error_line(snaps.DAPS(0.4).calibrate, made, table, [0, 1, 2, 3], [0, 1])
    assert message.startswith("'probs' must have the graph's ids as its index, got the default")


@pytest.mark.parametrize("kind", [bool, object, "category", "boolean", "bool[pyarrow]"])
def test_masks_of_any_kind_are_aligned(papers, kind):
    expected = calibrated(papers)
    mask = (papers[5] == "test").astype(kind)
    same_sets(expected.predict_set(mask), expected.predict_set(np.arange(260, 600)))
    nodes = (papers[5] == "calib").astype(kind)
    same_sets(calibrated(papers, nodes=nodes).predict_set(), expected.predict_set())
    sets = expected.predict_set()
    single = pd.Series(sets.sizes == 1, index=sets.ids).astype(kind)
    same_sets(sets[single.sample(frac=1, random_state=1)], sets[sets.sizes == 1])


def test_metrics_refuse_what_evaluate_refuses(papers):
    graph, probs, labels, *_ = papers
    ids = np.random.default_rng(5).permutation(600)
    other = snaps.Graph(graph.adjacency, ids=ids)
    cp = snaps.DAPS(0.1).calibrate(other, probs, labels, np.arange(60, 260), classes=CLASSES)
    sets, series = cp.predict_set(np.arange(260, 600)), pd.Series(labels, index=ids)
    expected = metrics.coverage(sets, labels)
    assert metrics.coverage(sets, series) == expected
    for call in (
        lambda: metrics.coverage(sets, series.sort_index()),
        lambda: metrics.group_coverage(sets, labels, series.sort_index()),
        lambda: cp.evaluate(series.sort_index()),
    ):
        assert "must have the" in (message := error_line(call)) and "as its index" in message


@pytest.mark.parametrize(
    "spell",
    [
        lambda nodes: pd.Series(nodes, dtype=object),
        lambda nodes: pd.Index(nodes, dtype=object),
        lambda nodes: pd.Series(nodes).astype("category"),
        lambda nodes: pd.Series(nodes, dtype="Int64"),
        pl.Series,
        pa.array,
    ],
)
def test_columns_of_integers_may_be_positions_or_ids(papers, spell):
    graph, probs, labels, *_ = papers
    for ids in (np.arange(600)[::-1], np.arange(600)[::-1].astype(str)):
        other = snaps.Graph(graph.adjacency, ids=ids)
        given = snaps.DAPS(0.1).calibrate, other, probs, labels, spell(np.arange(200))
        assert "which may be either" in error_line(*given, classes=CLASSES)


def test_a_table_is_no_mask_of_sets():
    table = pd.DataFrame(np.eye(2, dtype=bool), index=["a", "b"], columns=["x", "y"])
    assert error_line(snaps.PredictionSets, table).startswith("'mask' must be an array")
    assert len(snaps.PredictionSets(table.reset_index(drop=True).set_axis([0, 1], axis=1))) == 2


def test_probabilities_in_two_places(tmp_path):
    small.write(tmp_path / "g")
    columns = {f"p_{y}": small.PROBS[:, y] for y in range(3)}
    small.change(tmp_path / "g", "nodes", **columns)
    message = "nodes.parquet must have a column 'probs' or one 'p_<class>' per class, got both"
    assert error_line(read_folder, tmp_path / "g") == message
    small.change(tmp_path / "g", "nodes", p_2=None)  # p_0 and p_1 may be anything else
    assert read_folder(tmp_path / "g").probs.shape == (60, 3)


def test_an_order_by_default_is_reported(papers):
    _, probs, names, *_ = papers
    cp, nodes = snaps.SplitConformal(0.1), np.arange(60, 260)
    text = noted(lambda: cp.calibrate(None, probs, pd.Series(names).astype("category"), nodes))
    assert "in alphabetical order, as pandas makes them: ['AI', 'DB', 'DM', 'IR']" in str(text)
    chosen = ["IR", "DM", "DB", "AI"]
    for labels in (pd.Categorical(names, chosen), pl.Series(names, dtype=pl.Enum(chosen))):
        assert cp.calibrate(None, probs, labels, nodes).classes_.tolist() == chosen


def test_a_column_of_no_label_is_named(papers):
    graph, _, names, frame, *_ = papers
    logits = np.log(frame).assign(confidence=frame.max(axis=1))
    nodes, cp = np.arange(60, 260), snaps.SplitConformal(0.1)
    text = noted(lambda: cp.calibrate(graph, logits, names, nodes, logits=True))
    assert "no label is of class 'confidence', which is a column of probs" in str(text)
