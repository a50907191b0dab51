"""A graph that has grown, probabilities made again: `recalibrate`, and files without data."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import snaps
from snaps.images import EmbeddedSNAPS, join
from tests.helpers import small
from tests.helpers import transcription as t
from tests.helpers.small import CALIB, LABELS, PROBS, error_line, made, noted
from tests.predictor.common import (
    GROWN,
    KNOWN,
    METHODS,
    NEW,
    OLD,
    SMALL,
    TUNE,
    assert_same,
    before,
    each_method,
    grown,
    roles,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@each_method
def test_the_same_graph_again_gives_the_same_answer(tmp_path, name):
    graph, probs, labels = before()
    first = METHODS[name]().calibrate(graph, probs, labels, **roles())
    again = METHODS[name]().calibrate(graph, probs, labels, **roles())
    assert again.recalibrate(graph, probs) is again
    assert_same(first, again)
    assert_same(first, again.recalibrate(graph, probs, labels))
    first.save(tmp_path / "cp", data=False)
    assert_same(first, snaps.load(tmp_path / "cp").recalibrate(graph, probs))


@each_method
def test_tuning_nodes_that_were_taken_from_the_calibration_nodes_are_found_again(name):
    graph, probs, labels = before()
    first = METHODS[name]().calibrate(graph, probs, labels, np.arange(60, 260))
    again = METHODS[name]().calibrate(graph, probs, labels, np.arange(60, 260))
    assert len(first.tune_ids_) == (100 if first.alpha == 0.3 else 91)
    assert_same(first, again.recalibrate(graph, probs))


@each_method
@pytest.mark.parametrize("order", ["as it was", "reordered"])
def test_a_grown_graph_equals_a_fresh_calibration(tmp_path, name, order):
    graph, probs, labels, where = grown(order)
    fresh = METHODS[name]().calibrate(graph, probs, labels, **roles(where))
    cp = METHODS[name]().calibrate(*before(), **roles())
    cp.save(tmp_path / "cp", data=False)
    old = cp.threshold_
    assert_same(fresh, cp.recalibrate(graph, probs))
    assert not np.array_equal(old, cp.threshold_)
    assert_same(fresh, snaps.load(tmp_path / "cp").recalibrate(graph, probs, labels))
    assert len(cp.predict_set()) == GROWN - len(KNOWN) - len(TUNE) - len(OLD)


@each_method
@pytest.mark.parametrize("order", ["as it was", "reordered"])
def test_new_labelled_nodes_calibrate_too(name, order):
    graph, probs, labels, where = grown(order)
    both = np.concatenate([OLD, NEW])
    fresh = METHODS[name]().calibrate(graph, probs, labels, **roles(where, both))
    # The old labels are remembered, so only the new ones need be given.
    only_new = np.full(GROWN, -1)
    only_new[where[NEW]] = labels[where[NEW]]
    for given, nodes in (
        (labels, where[NEW]),
        (only_new, graph.ids[where[NEW]]),
        (labels, where[both]),
        (only_new, only_new >= 0),
    ):
        cp = METHODS[name]().calibrate(*before(), **roles())
        assert_same(fresh, cp.recalibrate(graph, probs, given, nodes))


def test_a_graph_that_numbers_its_nodes_grows_at_its_end():
    case = made()
    plain = snaps.Graph(case.graph.adjacency, case.graph.features)
    part = snaps.Graph(case.graph.adjacency[:SMALL, :SMALL], case.graph.features[:SMALL])
    cp = snaps.SNAPS(0.1).calibrate(part, *before()[1:], **roles())
    fresh = snaps.SNAPS(0.1).calibrate(plain, case.probs, case.labels, **roles())
    assert_same(fresh, cp.recalibrate(plain, case.probs))


def test_logits_and_a_similarity_graph_may_be_given():
    graph, probs, labels, _ = grown()
    near = snaps.similarity_graph(graph.features, 3, ids=graph.keys)
    fresh = snaps.SNAPS(0.1).calibrate(
        graph, np.log(probs), labels, similarity=near, logits=True, **roles()
    )
    cp = snaps.SNAPS(0.1).calibrate(*before(), **roles())
    assert_same(fresh, cp.recalibrate(graph, np.log(probs), similarity=near, logits=True))


def test_a_split_without_a_graph_is_recalibrated_without_one():
    cp = snaps.SplitConformal(0.2).calibrate(None, PROBS[:50], LABELS[:50], CALIB)
    fresh = snaps.SplitConformal(0.2).calibrate(None, PROBS, LABELS, CALIB)
    assert_same(fresh, cp.recalibrate(None, PROBS))


def test_a_reference_is_found_again(tmp_path):
    """Neighbours are still sought among the reference alone."""
    case = made()
    features = case.graph.features
    features = features.toarray() if sp.issparse(features) else features

    def calibrated(n):
        cp = EmbeddedSNAPS(0.1, k=4)
        calib = np.arange(100, 200)
        return cp.calibrate(
            features[:n], case.probs[:n], case.labels[:n], calib, reference=np.arange(100)
        )

    cp, fresh = calibrated(SMALL), calibrated(GROWN)
    cp.save(tmp_path / "cp", data=False)
    assert_same(fresh, cp.recalibrate(features, case.probs))
    assert_same(fresh, snaps.load(tmp_path / "cp").recalibrate(features, case.probs))
    assert error_line(cp.recalibrate, features, case.probs, case.labels, [3]).startswith(
        "'nodes' must not share nodes with the reference"
    )


def without(nodes):
    """The grown graph without some nodes."""
    graph, probs, labels, _ = grown()
    rest = np.setdiff1d(np.arange(GROWN), nodes)
    part = snaps.Graph(
        graph.adjacency[rest][:, rest], graph.features[rest], ids=graph.ids[rest]
    )  # fmt: skip
    return part, probs[rest], labels[rest], rest


@pytest.mark.parametrize(
    "gone, what", [(OLD[3], "100 calibration"), (TUNE[3], "80 tuning"), (KNOWN[3], "40 known")]
)
def test_a_node_that_is_gone(gone, what):
    """An error names it and the choice there is; dropped, it is as if it had never been asked."""
    graph, probs, labels, rest = without([gone])
    cp = snaps.Pooled(0.1).calibrate(*before(), **roles())
    sets = cp.predict_set().mask
    assert error_line(cp.recalibrate, graph, probs) == (
        f"'graph' must have all {what} nodes, got 1 missing (first: '{made().graph.ids[gone]}'): "
        "missing='drop' (--missing drop) goes on without them"
    )
    np.testing.assert_array_equal(cp.predict_set().mask, sets)
    left = {key: np.flatnonzero(np.isin(rest, nodes)) for key, nodes in roles().items()}
    fresh = snaps.Pooled(0.1).calibrate(graph, probs, labels, **left)
    assert_same(fresh, cp.recalibrate(graph, probs, missing="drop"))


def test_without_any_calibration_node_only_the_threshold_can_be_kept():
    graph, probs, labels, rest = without(OLD)
    cp = snaps.SNAPS(0.1).calibrate(*before(), **roles())
    message = (
        "'graph' must have calibration nodes, got none of 100: for another graph call "
        "calibrate(), or threshold='keep' if the graphs are alike"
    )
    assert error_line(cp.recalibrate, graph, probs) == message
    assert error_line(cp.recalibrate, graph, probs, missing="drop") == message
    # New nodes to calibrate on are a way on, too.
    new = np.flatnonzero(np.isin(rest, NEW))
    left = {"nodes": new, "tune_nodes": np.flatnonzero(np.isin(rest, TUNE)),
            "known_nodes": np.flatnonzero(np.isin(rest, KNOWN))}  # fmt: skip
    fresh = snaps.SNAPS(0.1).calibrate(graph, probs, labels, **left)
    assert_same(fresh, cp.recalibrate(graph, probs, labels, new, missing="drop"))


@each_method
def test_a_threshold_that_is_kept(tmp_path, name):
    """Parameters and threshold of before, on a graph without a single node of before."""
    graph, probs, labels, _ = grown()
    other = snaps.Graph(
        graph.adjacency, graph.features, ids=np.array([f"other-{i}" for i in range(GROWN)])
    )
    cp = METHODS[name]().calibrate(*before(), **roles())
    threshold, weights = cp.threshold_, cp.part_weights_
    kept, said = noted(cp.recalibrate, other, probs, threshold="keep")
    assert kept is cp and said == [
        "threshold and parameters are those of another graph: the promise rests on the two graphs "
        "being alike"
    ]
    np.testing.assert_array_equal(cp.threshold_, threshold)
    assert cp.part_weights_ == weights
    sets = cp.predict_set()
    assert len(sets) == GROWN and f"calibrated on {len(OLD)} nodes" in repr(cp)
    np.testing.assert_array_equal(sets.mask, cp.scores_ <= threshold)
    assert cp.evaluate(labels)["n_calib"] == len(OLD)
    # It can be saved and loaded like any other, and finds its own nodes again where they are.
    cp.save(tmp_path / "cp")
    again = snaps.load(tmp_path / "cp")
    np.testing.assert_array_equal(again.predict_set().mask, sets.mask)
    fresh = METHODS[name]().calibrate(graph, probs, labels, **roles())
    assert_same(fresh, again.recalibrate(graph, probs))
    assert_same(fresh, cp.recalibrate(graph, probs))


def test_a_kept_threshold_leaves_out_nodes_that_were_used():
    graph, probs, _, _ = grown()
    cp = snaps.SNAPS(0.1).calibrate(*before(), **roles())
    with pytest.warns(snaps.SnapsWarning, match="those of another graph"):
        cp.recalibrate(graph, probs, threshold="keep")
    assert len(cp.predict_set()) == GROWN - len(KNOWN) - len(TUNE) - len(OLD)
    with pytest.warns(snaps.SnapsWarning, match="used to calibrate or tune"):
        cp.predict_set(OLD[:1])


def test_parameters_that_are_not_fitted_again():
    graph, probs, _, _ = grown()
    cp = snaps.Pooled(0.1).calibrate(*before(), **roles())
    weights, threshold = cp.weights_, cp.threshold_
    _, said = noted(cp.recalibrate, graph, probs, refit=False)
    assert said == [
        "parameters were fitted on a graph without the new nodes: coverage may leave its exact law "
        "(refit=True fits them again)"
    ]
    assert cp.weights_ == weights
    own = cp.scores_[OLD, made().labels[OLD]]
    assert cp.threshold_ == t.threshold(own.tolist(), 0.1) != threshold


def test_groups_are_given_again():
    case = made()
    graph, probs, labels, where = grown("reordered")
    bands = case.bands[np.argsort(where)]
    cp = snaps.SNAPS(0.3).calibrate(*before(), groups=case.bands[:SMALL], **roles())
    assert error_line(cp.recalibrate, graph, probs) == (
        "'groups' must be given for the new graph, as they were to calibrate"
    )
    fresh = snaps.SNAPS(0.3).calibrate(graph, probs, labels, groups=bands, **roles(where))
    assert_same(fresh, cp.recalibrate(graph, probs, groups=bands))
    # Groups may also come with the new graph alone.
    cp = snaps.SNAPS(0.3).calibrate(*before(), **roles())
    assert_same(fresh, cp.recalibrate(graph, probs, groups=bands))


def test_groups_that_only_the_new_graph_has():
    """Names of before keep their place, so a kept threshold stays theirs."""
    case = made()
    old = np.array(["m", "z", "q"])[case.bands]
    cp = snaps.SNAPS(0.3).calibrate(*before(), groups=old[:SMALL], **roles())
    before_them = dict(zip(("m", "q", "z"), cp.threshold_, strict=True))
    new = old.copy()
    new[350:] = "a"
    graph, probs, labels, _ = grown()
    _, said = noted(cp.recalibrate, graph, probs, groups=new, threshold="keep")
    assert len(said) == 2 and said[1].startswith("1 of 4 groups") and said[1].endswith(" a (0)")
    for node in range(220, GROWN):
        limit = before_them.get(new[node], math.inf)
        np.testing.assert_array_equal(cp.explain(node).threshold, np.full(3, limit))
    _, said = noted(cp.recalibrate, graph, probs, groups=new)
    assert len(said) == 1 and said[0].endswith("group (nodes) a (0)")
    assert cp.evaluate(labels)["group_coverage"]["a"] == 1
    cp = snaps.SNAPS(0.3).calibrate(*before(), **roles())
    assert error_line(cp.recalibrate, graph, probs, groups=new, threshold="keep") == (
        "'groups' must be left out with threshold='keep': there is one threshold for all"
    )


def test_groups_without_data(tmp_path):
    case = made()
    graph, probs, labels, _ = grown()
    cp = snaps.SNAPS(0.3).calibrate(*before(), groups=case.bands[:SMALL], **roles())
    cp.save(tmp_path / "cp", data=False)
    again = snaps.load(tmp_path / "cp")
    np.testing.assert_array_equal(again.threshold_, cp.threshold_)
    fresh = snaps.SNAPS(0.3).calibrate(graph, probs, labels, groups=case.bands, **roles())
    assert_same(fresh, again.recalibrate(graph, probs, groups=case.bands))


def test_labels_that_disagree():
    graph, probs, labels, _ = grown()
    for node in (OLD[5], TUNE[5], KNOWN[5]):
        cp = snaps.SNAPS(0.1).calibrate(*before(), **roles())
        other = labels.copy()
        other[node] = (labels[node] + 1) % 3
        for nodes in (None, NEW):
            assert error_line(cp.recalibrate, graph, probs, other, nodes) == (
                "'labels' must agree with those calibrated with, got 1 that differ (first: "
                f"'{graph.ids[node]}'): call calibrate() again"
            )
        other[node] = -1  # not known any more: what was remembered counts
        fresh = snaps.SNAPS(0.1).calibrate(graph, probs, labels, **roles())
        assert_same(fresh, cp.recalibrate(graph, probs, other))


def test_saved_without_data(tmp_path):
    graph, probs, labels = before()
    cp = snaps.Pooled(0.1).calibrate(graph, probs, labels, **roles())
    cp.save(tmp_path / "with")
    cp.save(tmp_path / "cp", data=False)
    assert (tmp_path / "cp").stat().st_size < (tmp_path / "with").stat().st_size / 3
    with np.load(tmp_path / "cp") as file:
        assert not {"ids", "probs", "x", "adj_data", "groups"} & set(file.files)
        largest = max(file[name].shape[0] for name in file.files if name != "header")
    assert largest == len(OLD) + len(TUNE) + len(KNOWN)
    again = snaps.load(tmp_path / "cp")
    assert again == cp and again.threshold_ == cp.threshold_ and again.weights_ == cp.weights_
    np.testing.assert_array_equal(again.calib_ids_, cp.calib_ids_)
    np.testing.assert_array_equal(again.known_ids_, cp.known_ids_)
    message = (
        "this Pooled was saved without data: call recalibrate() with a graph and probabilities "
        "first"
    )
    for verb in (again.predict_set, again.predict_p, lambda: again.evaluate(labels),
                 lambda: again.explain(3), lambda: again.scores_, lambda: again.calib_nodes_,
                 again.exchangeability, lambda: again.save(tmp_path / "x")):  # fmt: skip
        assert error_line(verb) == message
    again.save(tmp_path / "twice", data=False)
    assert_same(cp, snaps.load(tmp_path / "twice").recalibrate(graph, probs))
    assert_same(cp, again.recalibrate(graph, probs))


@pytest.mark.parametrize(
    "message, options",
    [
        ("'missing' must be 'error' or 'drop', got 'ignore'", {"missing": "ignore"}),
        ("'threshold' must be 'set' or 'keep', got None", {"threshold": None}),
        ("'refit' must be True or False, got 1", {"refit": 1}),
        ("'labels' must be given with 'nodes', got None", {"nodes": [3]}),
        ("'probs' must have 3 columns as calibrated with, got 2", {"probs": PROBS[:, :2] * 0 + .5}),
        ("'graph' must be a snaps.Graph for SNAPS, got None", {"graph": None}),
        ("'nodes' must be left out with threshold='keep', got both",
         {"nodes": [50], "labels": LABELS, "threshold": "keep"}),
        ("'nodes' must not share nodes with the tuning nodes, got 1 in both (first: {tune})",
         {"nodes": "tune", "labels": LABELS}),
        ("'nodes' must be labelled, got 1 without a label (first: 50)",
         {"nodes": [50], "labels": np.where(np.arange(60) == 50, -1, LABELS)}),
    ],
)  # fmt: skip
def test_recalibrate_refuses(message, options):
    cp = small.calibrated(snaps.SNAPS(0.2, k=5))
    tune = int(cp.tune_nodes_.min())
    if isinstance(options.get("nodes"), str):
        options = {**options, "nodes": [tune]}
    given = {"graph": small.graph(), "probs": PROBS, **options}
    assert error_line(cp.recalibrate, **given) == message.format(tune=tune)


def test_recalibrate_comes_after_calibrate():
    assert error_line(snaps.SNAPS().recalibrate, small.graph(), PROBS) == (
        "this SNAPS must be calibrated first: call calibrate()"
    )


@each_method
@pytest.mark.parametrize("labelled", [False, True])
def test_a_report_of_a_kept_threshold(tmp_path, name, labelled):
    """Of the calibration nodes the new graph has some, or none."""
    for gone in (OLD[:50], OLD):
        graph, probs, labels, _ = without(gone)
        cp = METHODS[name]().calibrate(*before(), **roles())
        noted(cp.recalibrate, graph, probs, threshold="keep")
        cp.report(tmp_path / "page.html", labels if labelled else None)
        assert (tmp_path / "page.html").stat().st_size > 10_000


@pytest.mark.parametrize("option", ["refit=False", "threshold='keep'"])
@pytest.mark.parametrize("name", ["SNAPS", "Pooled", "EmbeddedSNAPS"])
def test_parameters_that_use_features_need_them(name, option):
    case = made()
    graph = snaps.Graph(case.graph.adjacency, ids=case.graph.ids)
    cp = METHODS[name]().calibrate(*before(), **roles())
    kept = {"refit": False} if option == "refit=False" else {"threshold": "keep"}
    said = error_line(cp.recalibrate, graph, case.probs, **kept)
    if name == "EmbeddedSNAPS":
        assert said == "'features' must have a row for each item, got none"
    else:
        assert said == (
            f"'graph' must have features, as it had to calibrate: {option} keeps parameters that "
            "use them"
        )


@pytest.mark.parametrize("tuning_evidence", [False, True])
def test_kept_parameters_go_on_without_evidence_that_is_gone(tmp_path, tuning_evidence):
    """Saved and loaded, they know the labels that are left."""
    graph, probs, _, _ = without(np.concatenate([KNOWN[:10], TUNE[:10]]))
    cp = snaps.Pooled(0.1, tuning_evidence=tuning_evidence)
    cp.calibrate(*before(), **roles())
    noted(cp.recalibrate, graph, probs, refit=False, missing="drop")
    cp.save(tmp_path / "cp")
    assert_same(cp, snaps.load(tmp_path / "cp"))


def test_evidence_comes_back_with_its_graph():
    """A threshold kept on a graph of other nodes leaves out labels there, and there alone."""
    graph, probs, labels = before()
    cp = snaps.Pooled(0.1).calibrate(graph, probs, labels, **roles())
    first = cp.scores_
    plain = snaps.Graph(graph.adjacency, graph.features)
    noted(cp.recalibrate, plain, probs, threshold="keep")
    assert not np.array_equal(cp.scores_, first)
    noted(cp.recalibrate, graph, probs, refit=False)
    np.testing.assert_array_equal(cp.scores_, first)


def test_a_kept_threshold_that_cannot_score_is_not_swapped_in():
    graph, probs, _, _ = without(np.arange(10, GROWN))
    cp = snaps.SNAPS(0.1).calibrate(*before(), **roles())
    sets = cp.predict_set().mask
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said = error_line(cp.recalibrate, graph, probs, threshold="keep")
    assert said == "'k' must be smaller than the number of nodes 10, got 20"
    np.testing.assert_array_equal(cp.predict_set().mask, sets)


def test_a_joined_reference_is_given_again_when_there_are_more_items(tmp_path):
    case = made()
    table = case.graph.features
    table = table.toarray() if sp.issparse(table) else table
    others = table[340:], case.probs[340:]

    def joined(n):
        return join(table[:n], case.probs[:n], case.labels[:n], *others)

    def calibrated(n):
        *tables, reference = joined(n)
        calib, tune = np.arange(100, 200), np.arange(40)
        cp = EmbeddedSNAPS(0.1, k=4, eta="tune")
        return cp.calibrate(*tables, calib, tune, reference=reference)

    cp, fresh = calibrated(250), calibrated(340)
    cp.save(tmp_path / "cp", data=False)
    features, probs, _, reference = joined(340)
    for each in (cp, snaps.load(tmp_path / "cp")):
        assert "'reference' must be given again" in error_line(each.recalibrate, features, probs)
        assert "'reference' must be given again" in error_line(
            each.recalibrate, features, probs, threshold="keep"
        )
        assert_same(fresh, each.recalibrate(features, probs, reference=reference))
        assert len(each.predict_set()) == 200
    assert "share nodes with the calibration nodes" in error_line(
        cp.recalibrate, features, probs, reference=[150]
    )
    plain = EmbeddedSNAPS(0.1).calibrate(table, case.probs, case.labels, OLD)
    assert error_line(plain.recalibrate, table, case.probs, reference=[3]) == (
        "'reference' must be left out, as it was to calibrate"
    )
