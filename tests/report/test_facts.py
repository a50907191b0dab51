"""The numbers of the report are those of the other verbs."""

from __future__ import annotations

import numpy as np
import pytest

import snaps
from snaps.report.charts import percent
from snaps.report.facts import coverage_interval
from tests.helpers.small import made
from tests.report.common import CALIB, METHODS, TEST, Page, calibrate, facts, notes, write


@pytest.mark.parametrize("name", METHODS)
def test_the_numbers_are_those_of_evaluate(name, tmp_path):
    cp = calibrate(METHODS[name])
    evaluation = cp.evaluate(made().labels, TEST)
    page = write(cp, tmp_path, made().labels, TEST, title="Made")
    numbers = {key: values[0] for key, values in page.numbers.items()}
    for key in ("coverage", "size", "empty", "singleton_hit", "n_calib", "n_tune"):
        assert numbers[key] == evaluation[key], key
    assert numbers["n_nodes"] == evaluation["n"] == len(TEST)
    assert f"{percent(evaluation['coverage'])} observed".replace("\u00a0", " ") in page.text
    if evaluation["coverage_interval"] is not None:
        assert (numbers["low"], numbers["high"]) == evaluation["coverage_interval"]
        assert numbers["threshold"] == cp.threshold_
    for part, weight in cp.part_weights_.items():
        assert len(cp.part_weights_) == 1 or numbers[f"weight-{part}"] == weight
    assert len(page.ids) == len(set(page.ids))
    assert page.numbers.get("slice")


def test_the_basic_score_and_slices_by_plain_counts(tmp_path, monkeypatch):
    case, cp = made(), calibrate(snaps.SNAPS(0.1))
    shown = facts(cp, case.labels, TEST, monkeypatch, tmp_path)
    plain = snaps.SplitConformal(0.1).calibrate(
        case.graph, case.probs, case.labels, cp.calib_nodes_
    )
    sizes = plain.predict_set(TEST).sizes
    assert shown.basic.counts == np.bincount(sizes, minlength=4).tolist()
    assert shown.basic.mean == pytest.approx(sizes.mean())
    assert shown.basic.coverage == plain.evaluate(case.labels, TEST)["coverage"]
    sets = cp.predict_set(TEST)
    hits = sets.mask[np.arange(len(TEST)), case.labels[TEST]]
    for y, one in enumerate(shown.by_class):
        own = case.labels[TEST] == y
        assert (one.n, one.coverage) == (own.sum(), pytest.approx(hits[own].mean()))
        assert one.size == pytest.approx(sets.sizes[own].mean())
        assert (one.low, one.high) == coverage_interval(shown.n_calib, one.n, 0.1)
    degrees = np.diff(case.graph.adjacency.indptr)[TEST]
    bands = {"0": (0, 0), "1": (1, 1), "2\u00a0to\u00a03": (2, 3), "4\u00a0to\u00a07": (4, 7)}
    for one in shown.by_degree[:4]:
        low, high = bands[one.name]
        assert one.n == ((degrees >= low) & (degrees <= high)).sum()
    assert sum(one.n for one in shown.by_degree) == sum(one.n for one in shown.by_size) == len(TEST)
    assert {one.name: one.n for one in shown.by_size} == {
        str(size): count for size, count in enumerate(np.bincount(sets.sizes)) if count
    }


def test_the_weights_were_chosen_where_sets_are_small(tmp_path, monkeypatch):
    case, cp = made(), calibrate(snaps.SNAPS(0.1))
    weights = facts(cp, case.labels, TEST, monkeypatch, tmp_path).weights
    assert weights.chosen == "grid" and len(weights.pairs) == len(weights.sizes) == 231
    assert weights.pair == cp.weights_
    assert min(weights.sizes) <= weights.size < weights.sizes[0]
    # Tuning nodes are held against the threshold that they set themselves.
    tune = cp.tune_nodes_
    measured = [(weights.pairs[i], weights.sizes[i]) for i in (0, 100, 230)]
    for pair, size in (*measured, (cp.weights_, weights.size)):
        fixed = snaps.SNAPS(0.1, weights=pair)
        scores = fixed.calibrate(case.graph, case.probs, case.labels, CALIB).scores_[tune]
        own = np.sort(scores[np.arange(len(tune)), case.labels[tune]])
        limit = own[int(np.ceil(0.9 * (len(tune) + 1))) - 1]
        assert size == pytest.approx((scores <= limit).sum() / len(tune))


@pytest.mark.parametrize(
    ("name", "chosen", "words"),
    [
        ("split", "none", "scores each node alone"),
        ("fixed", "given", "given by the user"),
        ("pooled", "fit", "fitted on 91 tuning nodes"),
        ("daps", "grid", "mean of the best mixtures of many resamples"),
        ("images", "grid", "mean of the best mixtures of many resamples"),
    ],
)
def test_how_weights_came_about(name, chosen, words, tmp_path, monkeypatch):
    cp = calibrate(METHODS[name])
    assert facts(cp, None, TEST, monkeypatch, tmp_path).weights.chosen == chosen
    assert words in Page(tmp_path / "r.html").text


def test_another_level_after_calibration(tmp_path, monkeypatch):
    """Weights were tuned for the first level; the promise is the second."""
    cp = calibrate(snaps.SNAPS(0.1)).set_params(alpha=0.2)
    shown = facts(cp, made().labels, TEST, monkeypatch, tmp_path)
    assert shown.weights.chosen == "grid" and shown.alpha == 0.2
    assert shown.evaluation["coverage"] == cp.evaluate(made().labels, TEST)["coverage"]


def test_kept_weights_and_thresholds_of_another_graph(tmp_path, monkeypatch):
    case, cp = made(), calibrate(snaps.SNAPS(0.1))
    other = snaps.Graph(case.graph.adjacency, case.graph.features)
    with pytest.warns(snaps.SnapsWarning, match="another graph"):
        cp.recalibrate(other, case.probs, threshold="keep")
    shown = facts(cp, case.labels, TEST, monkeypatch, tmp_path)
    assert shown.weights.chosen == "kept" and shown.basic is None
    serious = [title for title, (_, yes) in notes(cp, tmp_path, case.labels).items() if yes]
    assert serious == ["The threshold comes from another graph"]


def test_scores_and_thresholds(tmp_path, monkeypatch):
    case, cp = made(), calibrate(snaps.SNAPS(0.2, class_conditional=True), groups=made().bands)
    scores = facts(cp, case.labels, TEST, monkeypatch, tmp_path).scores
    n = len(cp.calib_nodes_)
    assert sum(scores.true) == n and sum(scores.other) == 2 * n
    limits = [limit for _, limit in scores.limits]
    assert limits == [value if np.isfinite(value) else None for value in cp.threshold_.reshape(-1)]
    assert [name for name, _ in scores.limits][:4] == ["0, 0", "0, 1", "0, 2", "1, 0"]
    own = cp.threshold_[case.bands[cp.calib_nodes_], cp.calib_labels_]
    assert scores.at_most == (cp.calib_scores_ <= own).sum()
    assert scores.true_in == pytest.approx(scores.at_most / n)
