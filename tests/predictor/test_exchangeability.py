"""The look at whether calibration nodes are like the others: honest on fair splits, and awake."""

from __future__ import annotations

import json
import warnings
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

import snaps
from snaps.datasets import make_graph
from snaps.models import smoothed_regression
from snaps.predictor import exchangeability as _exchangeability
from snaps.predictor.exchangeability import FALSE_ALARMS, Column, compare, node_columns
from snaps.scores import score_table


def keys_of(count):
    return np.arange(count, dtype=np.uint64)


def number(values):
    return Column(np.asarray(values), "are more", "are less")


def columns_of(graph, probs, score=None):
    degrees = np.diff(graph.adjacency.indptr)
    return node_columns(probs, score_table(score or snaps.THR(), probs), degrees)


def look(data, probs, calib, nodes=None):
    nodes = np.arange(data.graph.num_nodes) if nodes is None else nodes
    return compare(columns_of(data.graph, probs), calib, nodes, data.graph.keys)


# ---- fair splits ------------------------------------------------------------------------------


def pool(kind, size=1500):
    """Columns as bad as they come: heavy ties, few nodes that differ, long tails, rare classes."""
    random = np.random.default_rng(8)
    if kind == "smooth":
        top, score = random.beta(3, 1, size), random.random(size)
        classes, degrees = random.integers(0, 7, size), random.lognormal(1, 1.5, size).round()
    elif kind == "tied":
        top = np.where(random.random(size) < 0.97, 1, random.random(size))
        score = np.where(random.random(size) < 0.99, 0, random.random(size))
        classes = np.where(random.random(size) < 0.98, 0, random.integers(1, 60, size))
        degrees = np.minimum(random.zipf(2.0, size), 500)
    else:
        top, score = random.beta(5, 1, size).round(1), random.random(size) < 0.003
        classes = np.minimum(random.zipf(1.5, size), 100)
        degrees = random.random(size) < 0.01
    return {
        "top": number(top), "class": Column(classes), "score": number(score),
        "degree": number(degrees),
    }  # fmt: skip


def fair_splits(size, calib, count, seed):
    random = np.random.default_rng(seed)
    for _ in range(count):
        order = random.permutation(size)
        yield order[:calib], order[calib:]


@pytest.mark.parametrize("kind", ["smooth", "tied", "rare"])
def test_fair_splits_raise_an_alarm_in_one_of_a_thousand(kind):
    columns, alarms, smallest = pool(kind), 0, []
    for calib in (30, 400):
        for split in fair_splits(1500, calib, 400, calib):
            result = compare(columns, *split, keys_of(1500))
            alarms += not result.alike
            smallest.append(min(row.p for row in result.rows))
    # What draws of this chance exceed once in a thousand times.
    assert alarms <= stats.binom.isf(0.001, len(smallest), FALSE_ALARMS)
    for level in (0.01, 0.05, 0.2):
        assert (np.array(smallest) <= level).sum() <= stats.binom.isf(0.001, len(smallest), level)


def test_textbook_p_values_would_raise_false_alarms():
    """Why splits are drawn: with few odd nodes, Mann-Whitney's normal tail is far too thin."""
    chance, level = 0.0, FALSE_ALARMS / 4
    for seen in range(8):
        calib, rest = np.arange(30) < seen, np.arange(1470) < 15 - seen
        p = stats.mannwhitneyu(calib * 1.0, rest * 1.0, method="asymptotic").pvalue
        chance += stats.hypergeom.pmf(seen, 1500, 15, 30) * (p <= level)
    assert chance > 10 * level


@pytest.mark.parametrize("is_classes", [False, True])
def test_p_value_is_the_share_of_all_splits_that_are_as_uneven(is_classes):
    cells = np.array([0, 0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 3])
    uneven = _exchangeability._chi_square if is_classes else _exchangeability._anderson_darling
    total = np.bincount(cells)
    every = np.array([np.bincount(cells[list(c)], minlength=4) for c in combinations(range(12), 5)])
    unevenness = uneven(every, total)
    for side in ([4, 1, 0, 0], [2, 1, 1, 1], [3, 0, 2, 0]):
        expected = (unevenness >= uneven(np.array([side]), total)[0] - 1e-12).mean()
        p = _exchangeability._p_value(np.array([side, total - side]), is_classes, 0)
        assert p == pytest.approx(expected, rel=0.5, abs=0.05)


def test_anderson_darling_is_scipys_up_to_a_factor():
    random = np.random.default_rng(0)
    ratios = []
    for shift in (0.2, 1, 2):
        values = np.concatenate([random.normal(shift, 1, 12), random.normal(0, 1, 20)])
        table = _exchangeability._table(number(values), np.arange(12), np.arange(12, 32))
        ours = _exchangeability._anderson_darling(table[:1], table.sum(axis=0))[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of p-values beyond scipy's table
            theirs = stats.anderson_ksamp([values[:12], values[12:]]).statistic
        ratios.append((ours, theirs))
    # Standardising is affine, so three points lie on a line.
    ours, theirs = np.array(ratios).T
    assert np.corrcoef(ours, theirs)[0, 1] > 0.9999


# ---- what must be noticed -----------------------------------------------------------------------


@pytest.fixture(scope="module", params=["cora_ml", "citeseer", "pubmed"])
def real(request, data_dir):
    data = snaps.datasets.load(request.param, data_dir)
    train = np.concatenate([np.flatnonzero(data.labels == c)[:20] for c in np.unique(data.labels)])
    probs = smoothed_regression(data.graph, data.labels, train)
    return data, probs, np.setdiff1d(np.arange(data.graph.num_nodes), train)


def test_calibration_on_the_most_confident_is_noticed(real):
    data, probs, others = real
    calib = others[np.argsort(-probs.max(axis=1)[others])[:500]]
    result = look(data, probs, calib, others)
    assert not result.alike
    assert "calibration nodes are more confident than the nodes predicted (top" in str(result)
    assert look(data, probs, np.random.default_rng(0).permutation(others)[:500], others).alike


def test_nodes_that_came_first_are_noticed_by_their_links():
    random = np.random.default_rng(0)
    # Preferential attachment: an end of a random earlier edge, so old nodes gather links.
    ends = [0, 1]
    for node in range(2, 1500):
        for _ in range(2):
            ends += [node, ends[random.integers(len(ends))]]
    labels = random.integers(0, 3, 1500)
    features = np.eye(3)[labels] + random.normal(size=(1500, 3))
    graph = snaps.Graph(np.array(ends).reshape(-1, 2).T, features, 1500)
    probs = smoothed_regression(graph, labels, np.arange(60))
    result = compare(columns_of(graph, probs), np.arange(60, 360), np.arange(360, 1500), graph.keys)
    assert not result.alike
    assert "have more links" in {row.words for row in result.rows if row.differs}


def test_features_that_drift_are_noticed():
    random = np.random.default_rng(1)
    data = make_graph(2000, 3, seed=1)
    noise = random.normal(size=(2000, 3)) * np.linspace(0.3, 1.5, 2000)[:, None]
    drifting = snaps.Graph(data.graph.adjacency, np.eye(3)[data.labels] + noise)
    probs = smoothed_regression(drifting, data.labels, np.arange(0, 2000, 20), hops=0)
    later = np.arange(500, 2000)
    result = compare(columns_of(drifting, probs), np.arange(500), later, drifting.keys)
    assert not result.alike
    assert next(row.what for row in result.rows if row.differs) == "top probability"


def test_calibration_with_as_many_nodes_of_every_class_is_noticed():
    data = make_graph(3000, 5, imbalance=1.0, seed=2)
    probs = smoothed_regression(data.graph, data.labels, np.arange(100))
    others = np.arange(100, 3000)
    calib = np.concatenate([others[data.labels[others] == c][:40] for c in range(5)])
    result = look(data, probs, calib, others)
    assert not result.alike
    assert str(result).startswith("calibration nodes are of other classes than the nodes predicted")
    row = next(row for row in result.rows if row.label is not None)
    predicted = probs.argmax(axis=1)
    rest = np.setdiff1d(others, calib)
    assert (row.calib, row.nodes) == pytest.approx(
        ((predicted[calib] == row.label).mean(), (predicted[rest] == row.label).mean())
    )


def test_a_difference_of_spread_alone_is_noticed_and_not_called_more():
    random = np.random.default_rng(3)
    values = np.concatenate([random.normal(0, 2, 400), random.normal(0, 1, 1600)])
    result = compare({"x": number(values)}, np.arange(400), np.arange(400, 2000), keys_of(2000))
    assert not result.alike
    assert "calibration nodes are spread otherwise than the nodes predicted" in str(result)


# ---- the result -----------------------------------------------------------------------------


def differing():
    random = np.random.default_rng(0)
    probs = random.dirichlet([3, 1, 1], 800)
    probs[:200] = random.dirichlet([60, 1, 1], 200)
    degrees = random.poisson(4, 800)
    degrees[:200] = random.poisson(9, 200)
    return node_columns(probs, 1 - probs, degrees)


def test_the_sentence_names_the_clearest_difference_and_the_others():
    columns = differing()
    text = str(compare(columns, np.arange(200), np.arange(200, 800), keys_of(800)))
    top = columns["top probability"].values
    assert text == (
        "calibration nodes are more confident than the nodes predicted (top probability "
        f"{top[:200].mean():.2f} against {top[200:].mean():.2f}, p < 0.0001; predicted class, "
        "score of the top label and degree too): the guarantee does not apply to them"
    )


def test_the_other_way_round_less_is_said():
    result = compare(differing(), np.arange(200, 800), np.arange(200), keys_of(800))
    words = {row.what: row.words for row in result.rows}
    assert words["top probability"] == "are less confident"
    assert words["degree"] == "have fewer links"
    assert words["score of the top label"] == "score higher"


def test_alike_says_so_with_numbers():
    result = compare(pool("smooth"), np.arange(500), np.arange(500, 1500), keys_of(1500))
    assert result.alike
    assert str(result).startswith(
        "calibration nodes (500) look like the nodes predicted (1,000): no difference in top, "
        "class, score or degree (smallest p "
    )


def test_to_dict_is_json_without_nan():
    result = compare(differing(), np.arange(200), np.arange(200, 800), keys_of(800))
    record = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert record["alike"] is False
    assert record["message"] == str(result)
    assert [row["what"] for row in record["rows"]] == list(differing())
    assert all(0 < row["p"] <= 1 and 0 <= row["distance"] <= 1 for row in record["rows"])
    assert all(row["differs"] for row in record["rows"])


def test_without_links_degrees_are_left_out():
    probs = np.full((5, 2), 0.5)
    assert "degree" not in node_columns(probs, probs)


def test_numbers_close_together_are_shown_with_more_digits():
    values = np.concatenate([np.full(300, 0.99941), np.full(900, 0.99902)])
    text = str(compare({"x": number(values)}, np.arange(300), np.arange(1200), keys_of(1200)))
    assert "x 0.9994 against 0.9990" in text


# ---- order, samples, odd input ------------------------------------------------------------------


def test_large_sides_are_sampled_by_key_whatever_the_order(monkeypatch):
    monkeypatch.setattr(_exchangeability, "MOST_NODES", 100)
    columns, keys = differing(), keys_of(800)
    result = compare(columns, np.arange(200), np.arange(200, 800), keys)
    assert (result.num_calib, result.num_nodes) == (200, 600)
    order = np.random.default_rng(1).permutation(800)
    moved = {
        name: Column(column.values[order], column.more, column.less)
        for name, column in columns.items()
    }
    place = np.argsort(order)
    again = compare(moved, place[:200], place[200:], keys[order])
    for row, other in zip(result.rows, again.rows, strict=True):
        assert (row.p, row.calib_median, row.label) == (other.p, other.calib_median, other.label)
        assert row.calib == pytest.approx(other.calib, rel=1e-12)
    monkeypatch.undo()
    assert compare(columns, np.arange(200), np.arange(200, 800), keys).rows != result.rows


def test_calibration_nodes_among_the_nodes_predicted_are_left_out():
    columns = differing()
    apart = compare(columns, np.arange(200), np.arange(200, 800), keys_of(800))
    assert compare(columns, np.arange(200), np.arange(800), keys_of(800)) == apart


@pytest.mark.parametrize(("calib", "count"), [(1, 2), (1, 500), (499, 500), (3, 6)])
@pytest.mark.parametrize("equal", [True, False])
def test_degenerate_sides_neither_crash_nor_warn(calib, count, equal):
    random = np.random.default_rng(0)
    values = np.zeros(count) if equal else random.normal(size=count)
    columns = {"x": number(values), "class": Column(np.arange(count) if not equal else values)}
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        result = compare(columns, np.arange(calib), np.arange(calib, count), keys_of(count))
        assert result.alike
        json.dumps(result.to_dict(), allow_nan=False)
        assert "look like" in str(result)


@pytest.mark.parametrize(
    ("calib", "nodes", "message"),
    [([], [1], "'calib' must hold"), ([1], [], "'nodes' must hold"), ([1], [1], "'nodes' must")],
)
def test_an_empty_side_is_an_error(calib, nodes, message):
    with pytest.raises(snaps.SnapsError, match=message):
        compare({"x": number(np.zeros(3))}, np.array(calib, int), np.array(nodes, int), keys_of(3))


def test_tuning_nodes_that_are_evidence_are_not_compared():
    """Their scores know their labels: on a fair split they must not raise an alarm."""
    data = make_graph(1500, 6, homophily=0.7, degree=3.0, signal=1.5, seed=0)
    train, calib = np.arange(120), np.arange(120, 800)
    probs = smoothed_regression(data.graph, data.labels, train)
    cp = snaps.Pooled(0.1).calibrate(data.graph, probs, data.labels, calib, known_nodes=train)
    result = cp.exchangeability()
    assert result.alike and result.num_calib == len(cp.calib_nodes_)
    cp = snaps.SNAPS(0.1).calibrate(data.graph, probs, data.labels, calib)
    assert cp.exchangeability(np.arange(800, 1500)).num_calib == len(calib)
