"""Lists with a false discovery rate: the promise through the calls users make, and mutants.

The promise is an expectation over draws of the calibration nodes: the mean over many draws is
compared with the rate.
"""

from __future__ import annotations

import json
import warnings
from fractions import Fraction
from functools import cache

import numpy as np
import pandas as pd
import pytest

import snaps
from snaps import SnapsError
from snaps.conformal.selection import benjamini_hochberg, wrong_counts
from snaps.datasets import make_graph
from snaps.models import smoothed_regression
from snaps.predictor.selection import label_evidence
from tests.conformal.test_selection import SEEDS, brute_force, right, without_one
from tests.helpers import small

# ---- The promise on linked graphs, through the calls users make ----------------------------------


@cache
def linked(seed, num_classes=3, homophily=0.7, **options):
    """A graph, probabilities of a classifier, labels, its training nodes and all others."""
    made = make_graph(500, num_classes, homophily=homophily, seed=seed, **options)
    order = np.random.default_rng(seed).permutation(500)
    train, pool = order[:40], np.sort(order[40:])
    probs = smoothed_regression(made.graph, made.labels, train, hops=1)
    return made.graph, probs, made.labels, train, pool


METHODS = {
    "SplitConformal": lambda: snaps.SplitConformal(0.1),
    "SNAPS": lambda: snaps.SNAPS(0.1, k=5),
    "Pooled": lambda: snaps.Pooled(0.1, k=5, parts=("own", "linked", "propagated")),
}


def drawn(seed, method, n, splits):
    """Calibrated on random draws from the pool; and the test nodes."""
    graph, probs, labels, train, pool = linked(seed)
    random, known = np.random.default_rng(seed), train if method == "Pooled" else None
    for _ in range(splits):
        calib = random.choice(pool, n, replace=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cp = METHODS[method]().calibrate(
                graph, probs, labels, calib, known_nodes=known, similarity=_near(seed)
            )
        yield cp, np.setdiff1d(pool, calib), labels


@cache
def _near(seed):
    return snaps.similarity_graph(linked(seed)[0].features, k=5)


def kept(shares, rate):
    """Whether a mean false share is at most the rate, three standard errors allowed for."""
    return np.mean(shares) <= rate + 3 * np.std(shares) / np.sqrt(len(shares))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("method", METHODS)
def test_select_and_accept_keep_their_rates(method, seed):
    splits = 30 if method == "Pooled" else 60
    select, accept = [], []
    for cp, test, labels in drawn(seed, method, 160, splits):
        found = cp.select(1, fdr=0.2, nodes=test)
        select.append((labels[found.nodes[found.selected]] != 1).mean() if len(found) else 0.0)
        sure = cp.accept(error=0.1, nodes=test)
        chosen = sure.selected
        wrong = labels[sure.nodes[chosen]] != sure.label[chosen]
        accept.append(wrong.mean() if len(sure) else 0.0)
    assert kept(select, 0.2) and kept(accept, 0.1)
    assert np.mean(select) > 0.1 and np.mean(accept) > 0.03


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("list_of", [{"select": 0, "fdr": 0.1}, {"accept": 0.1}])
def test_evaluate_splits_measures_the_rate(seed, ties, list_of):
    graph, probs, labels, _, pool = linked(seed)
    if ties:
        probs = (probs * 6).round() + 0.01
        probs /= probs.sum(axis=1, keepdims=True)
    cp = snaps.SplitConformal(0.1)
    out = snaps.evaluate_splits(cp, graph, probs, labels, pool, 150, 600, seed, **list_of)
    assert out["selected"].shape == out["false_share"].shape == (600,)
    assert kept(out["false_share"], 0.1)
    assert np.mean(out["false_share"]) > (0.03 if ties else 0.07)
    assert 0.03 < out["selected"].mean() < 0.99


@pytest.mark.parametrize("n, rate", [(25, 0.2), (100, 0.1)])
@pytest.mark.parametrize("seed", SEEDS)
def test_few_calibration_nodes_keep_the_rate_and_mutants_do_not(seed, n, rate):
    """Of 25 nodes the + 1 is worth the most; of 100, prediction sets are at their best."""
    graph, probs, labels, train, pool = linked(seed)
    random, wrong = np.random.default_rng(seed), labels != 0
    mutants = ("without one", "with known") if n == 25 else ("with known", "by sets")
    shares = {name: [] for name in ("select", *mutants)}
    for _ in range(200):
        calib = random.choice(pool, n, replace=False)
        test = np.setdiff1d(pool, calib)
        cp = snaps.SplitConformal(rate, score=snaps.THR()).calibrate(graph, probs, labels, calib)
        given = probs[:, 0], wrong, test
        chosen = {
            "select": cp.select(0, fdr=rate, nodes=test).selected,
            "without one": without_one(*given, calib, rate),
            "with known": right(*given, np.concatenate([calib, train]), Fraction(str(rate))),
            "by sets": cp.predict_set(test).mask[:, 0],
        }
        for name, each in shares.items():
            mask = chosen[name]
            each.append(wrong[test][mask].mean() if mask.any() else 0.0)
    assert kept(shares.pop("select"), rate)
    assert not any(kept(each, rate) for each in shares.values())


# ---- The same list, wherever it is asked for -----------------------------------------------------


def same(one, two):
    for name in ("nodes", "ids", "label", "p", "selected", "evidence", "rank"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert str(one) == str(two)


@pytest.fixture(params=["SplitConformal", "SNAPS", "Pooled"])
def cp(request):
    graph, probs, labels, train, pool = linked(1)
    calib = np.random.default_rng(0).choice(pool, 200, replace=False)
    known = train if request.param == "Pooled" else None
    cp = METHODS[request.param]()
    return cp.calibrate(graph, probs, labels, calib, known_nodes=known, similarity=_near(1))


def test_saved_loaded_and_recalibrated(cp, tmp_path):
    graph, probs, _, _, _ = linked(1)
    before = cp.select(2, fdr=0.2), cp.accept(error=0.2)
    assert len(before[0]) > 5 and len(before[1]) > 50
    cp.save(tmp_path / "model.snaps")
    loaded = snaps.load(tmp_path / "model.snaps")
    cp.save(tmp_path / "small.snaps", data=False)
    bare = snaps.load(tmp_path / "small.snaps")
    with pytest.raises(SnapsError, match="saved without data"):
        bare.select(2)
    bare.recalibrate(graph, probs, similarity=_near(1))
    cp.recalibrate(graph, probs, similarity=_near(1))
    for each in (loaded, bare, cp):
        same(each.select(2, fdr=0.2), before[0])
        same(each.accept(error=0.2), before[1])


def test_evidence_is_the_methods_probability(cp):
    found = cp.select(0)
    if isinstance(cp, snaps.Pooled):
        np.testing.assert_allclose(found.evidence, cp.probs_[found.nodes, 0], atol=1e-12)
    if isinstance(cp, snaps.SplitConformal):
        probs = linked(1)[1]
        np.testing.assert_allclose(found.evidence, probs[found.nodes, 0], atol=1e-12)
        sure = cp.accept()
        np.testing.assert_array_equal(sure.label, probs[sure.nodes].argmax(axis=1))


def test_evidence_does_not_depend_on_blocks_or_on_other_nodes(cp, monkeypatch):
    found, some = cp.accept(error=0.2), cp.accept(error=0.2).nodes[3:40]
    alone = cp.accept(error=0.2, nodes=some)
    np.testing.assert_array_equal(alone.p, found.p[3:40])
    monkeypatch.setattr("snaps._runtime.memory.BLOCK", 500)
    same(cp.accept(error=0.2), found)


def test_labels_of_calibration_and_test_nodes_do_not_move_evidence():
    """As for scores: the evidence of a node does not depend on the calibration nodes."""
    graph, probs, labels, _, pool = linked(2)
    first = snaps.SplitConformal().calibrate(graph, probs, labels, pool[:100])
    other = (labels + 1) % 3
    second = snaps.SplitConformal().calibrate(graph, probs, other, pool[50:150])
    evidence = [
        label_evidence(each._predictor().inputs, each._predictor().scorer, pool, 1)
        for each in (first, second)
    ]
    np.testing.assert_array_equal(evidence[0], evidence[1])


def test_thresholds_groups_and_alpha_play_no_part():
    graph, probs, labels, _, pool = linked(1)
    lists = [
        cp.calibrate(graph, probs, labels, pool[:150], groups=groups).select(0, nodes=pool[150:])
        for cp, groups in [
            (snaps.SplitConformal(0.1), None),
            (snaps.SplitConformal(0.3, class_conditional=True, score=snaps.THR()), None),
            (snaps.SplitConformal(0.1), np.arange(500) % 2),
        ]
    ]
    for each in lists[1:]:
        same(each, lists[0])


def test_labels_that_never_came_count_against_a_list():
    graph, probs, labels, _, pool = linked(1)
    plain, lacking = (
        snaps.SplitConformal().calibrate(
            graph, probs, labels, pool[:150], missing_labels=missing
        ).select(0, fdr=0.2, nodes=pool[150:])
        for missing in (0, 6)
    )  # fmt: skip
    np.testing.assert_allclose(lacking.p, (plain.p * 151 + 6) / 157)
    assert len(lacking) < len(plain) and lacking.n_calib == 156
    worst = brute_force(
        plain.evidence,
        np.concatenate([probs[pool[:150], 0], np.full(6, np.inf)]),
        np.concatenate([labels[pool[:150]] != 0, np.ones(6, bool)]),
        Fraction(1, 5),
    )
    np.testing.assert_array_equal(lacking.selected, worst[1])


def test_logits_names_and_ids():
    graph, probs, labels, _, pool = linked(1)
    names = np.array(["ant", "bee", "cat"])
    ids = np.array([f"n{i}" for i in range(500)])
    named = snaps.Graph(graph.adjacency, graph.features, ids=ids)
    plain = snaps.SplitConformal().calibrate(graph, probs, labels, pool[:150])
    cp = snaps.SplitConformal().calibrate(
        named, np.log(probs), names[labels], ids[pool[:150]], logits=True, classes=names
    )
    one, two = plain.select(1, nodes=pool[200:]), cp.select("bee", nodes=ids[pool[200:]])
    np.testing.assert_array_equal(one.selected, two.selected)
    np.testing.assert_array_equal(ids[one.nodes], two.ids)
    assert set(two.label) == {"bee"} and set(cp.accept().label) <= set(names)


# ---- The result, and bad input -------------------------------------------------------------------


@pytest.fixture
def flagged():
    """A list with a string id, a class name and a rank for every node."""
    evidence = np.array([0.9, 0.2, 0.8, 0.95])
    counts = wrong_counts(evidence, np.linspace(0, 0.5, 40), np.arange(40) % 2 == 0)
    return snaps.Selection(
        nodes=np.arange(4), ids=np.array(["a", "b,c", 'd"', "=e"]), label=np.full(4, "<fraud>"),
        p=counts / 41, selected=benjamini_hochberg(counts, 40, Fraction(1, 10)),
        evidence=evidence, fdr=Fraction(1, 10), n_calib=40,
    )  # fmt: skip


def test_what_a_list_is(flagged):
    assert len(flagged) == 3 and list(flagged) == ["=e", "a", 'd"']
    assert flagged.rank.tolist() == [2, 4, 3, 1]
    assert flagged.certifiable == pytest.approx(4 / (3 * 41))
    assert repr(flagged) == "Selection(3 of 4 nodes, label <fraud>, fdr=0.1)"
    text = " ".join(str(flagged).split())
    assert "at most 10 % of such a list are of another label" in text
    assert "40 calibration nodes" in text and "is 3.3 %" in text
    page = flagged._repr_html_()
    assert "&lt;fraud&gt;" in page and "<fraud>" not in page and page.count("<tr>") == 5


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_lists_as_files(flagged, suffix, tmp_path):
    path = tmp_path / f"flagged{suffix}"
    flagged.write(path)
    read = {
        ".parquet": pd.read_parquet,
        ".csv": pd.read_csv,
        ".jsonl": lambda path: pd.DataFrame(map(json.loads, open(path))),
    }[suffix](path)
    expected = flagged.to_pandas()
    assert list(read) == ["id", "label", "p", "selected", "rank"]
    assert [read[name].tolist() for name in read] == [expected[name].tolist() for name in expected]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_no_nodes_asked_for(suffix, tmp_path):
    none = small.calibrated(snaps.SplitConformal(0.2)).accept(nodes=[])
    assert len(none) == 0 and list(none) == [] and "no nodes were asked for" in str(none)
    none.write(tmp_path / f"none{suffix}")
    assert (tmp_path / f"none{suffix}").exists() and "<table>" in none._repr_html_()


def test_why_a_list_is_empty():
    cp = small.calibrated(snaps.SplitConformal(0.2))  # 30 calibration nodes, 30 others
    none = cp.select(0, fdr=0.02)
    assert len(none) == 0 and none.certifiable == float("inf")
    assert "30 calibration nodes are too few for any list (at least 49)" in str(none)
    assert "a list has at least 10 nodes" in str(cp.select(0, fdr=0.1))


def test_bad_input(tmp_path):
    cp = small.calibrated(snaps.SplitConformal(0.2))
    for call, message in {
        lambda: cp.select(3): r"'label' must be one of \[0, 1, 2\], got 3",
        lambda: cp.select("0"): "'label' must be one of",
        lambda: cp.select(True): "'label' must be one of",
        lambda: cp.select(0, fdr=1): "'fdr' must lie strictly between 0 and 1, got 1",
        lambda: cp.select(0, fdr=0.0): "'fdr' must lie strictly",
        lambda: cp.select(0, fdr="a"): "'fdr' must be a number",
        lambda: cp.accept(error=-0.1): "'error' must lie strictly",
        lambda: cp.accept(nodes=[3]): "'nodes' must not share nodes with the calibration nodes",
        lambda: cp.accept(nodes=[30, 30]): "'nodes'",
        lambda: cp.accept().write(tmp_path / "a.txt"): "'path' must end in",
        lambda: snaps.SNAPS().select(0): "must be calibrated first",
    }.items():
        with pytest.raises(SnapsError, match=message):
            call()
    with pytest.warns(snaps.SnapsWarning, match="another graph"):
        kept = cp.recalibrate(None, small.PROBS, threshold="keep")
    with pytest.raises(SnapsError, match="'threshold' must be 'set' for select and accept"):
        kept.select(0)


def test_tuning_and_known_nodes_cannot_be_selected(cp):
    for whose, nodes in (("tuning", cp.tune_nodes_), ("known", cp.known_nodes_)):
        if len(nodes):
            with pytest.raises(SnapsError, match=f"the {whose} nodes"):
                cp.accept(nodes=nodes[:2])
    used = np.concatenate([cp.calib_nodes_, cp.tune_nodes_, cp.known_nodes_])
    assert not np.isin(cp.accept().nodes, used).any()


def test_bad_input_of_evaluate_splits():
    about = None, small.PROBS, small.LABELS, np.arange(60), 20, 3
    cp = snaps.SplitConformal(0.2)
    for options, message in [
        ({"fdr": 0.1}, "'fdr' must be given with 'select'"),
        ({"select": 0, "accept": 0.1}, "'accept' must not be given with 'select'"),
        ({"select": 7}, r"'select' must be one of \[0, 1, 2\], got 7"),
        ({"select": 0, "fdr": 2}, "'fdr' must"),
        ({"accept": 0}, "'accept' must lie strictly"),
    ]:
        with pytest.raises(SnapsError, match=message):
            snaps.evaluate_splits(cp, *about, **options)
    out = snaps.evaluate_splits({"a": cp}, *about, alphas=[0.2, 0.3], select=1, fdr=0.5)
    assert out["a"]["selected"].shape == (2, 3)


def test_evaluate_splits_gives_what_select_gives():
    graph, probs, labels, _, pool = linked(3)
    out = snaps.evaluate_splits(
        snaps.SplitConformal(0.1), graph, probs, labels, pool, 150, 5, select=0, fdr=0.2
    )
    from snaps.splits import draw_splits

    for i, places in enumerate(draw_splits(0, graph.keys[pool], 150, 5)):
        cp = snaps.SplitConformal(0.1).calibrate(graph, probs, labels, pool[places])
        found = cp.select(0, fdr=0.2, nodes=np.delete(pool, places))
        assert found.selected.mean() == out["selected"][i]
        assert (labels[found.nodes[found.selected]] != 0).mean() == out["false_share"][i]
