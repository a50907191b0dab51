"""What the report warns of."""

from __future__ import annotations

import numpy as np
import pytest

import snaps
from snaps.report.notes import measured_recall
from tests.helpers.small import made, noted
from tests.report.common import CALIB, TEST, Page, calibrate, facts, notes


def test_too_few_calibration_nodes(tmp_path, monkeypatch):
    case = made()
    cp, _ = noted(
        lambda: snaps.SplitConformal(0.1).calibrate(case.graph, case.probs, case.labels, CALIB[:5])
    )
    assert facts(cp, case.labels, TEST, monkeypatch, tmp_path).sizes.full == 1
    assert next(iter(notes(cp, tmp_path, case.labels))) == "Too few calibration nodes"
    text = Page(tmp_path / "r.html").text
    assert "90 % promised, at the price of full sets." in text
    assert "The threshold is infinite" in text


def test_few_calibration_nodes(tmp_path):
    case = made()
    cp = snaps.SplitConformal(0.1).calibrate(case.graph, case.probs, case.labels, CALIB[:30])
    assert "Few calibration nodes" in notes(cp, tmp_path)
    many = calibrate(snaps.SplitConformal(0.1))
    assert "Few calibration nodes" not in notes(many, tmp_path)


def test_classes_without_calibration_nodes(tmp_path):
    case = made()
    some = CALIB[case.labels[CALIB] != 2]
    cp = snaps.SplitConformal(0.1).calibrate(case.graph, case.probs, case.labels, some)
    shown = notes(cp, tmp_path, case.labels)
    assert "of class 2." in shown["Classes without calibration nodes"][0]
    title, (_, serious) = next(iter(shown.items()))
    assert title == "The calibration nodes look different" and serious
    cp, _ = noted(
        lambda: snaps.SplitConformal(0.1, class_conditional=True).calibrate(
            case.graph, case.probs, case.labels, some
        )
    )
    assert "Too few calibration nodes in some classes" in notes(cp, tmp_path)


def test_lonely_nodes_and_unknown_labels(tmp_path, monkeypatch):
    case = made()
    alone = (np.diff(case.graph.adjacency.indptr)[TEST] == 0).sum()
    labels = case.labels.copy()
    labels[TEST[:10]] = -1
    cp = calibrate(snaps.DAPS(0.1, weight=0.5))
    shown = notes(cp, tmp_path, labels)
    assert shown["Nodes without links"][0].startswith(f"{alone} of 160 ")
    assert shown["Some labels are unknown"][0].startswith("Coverage was observed on the 150 of 160")
    page_facts = facts(cp, labels, TEST, monkeypatch, tmp_path)
    assert page_facts.sizes.n == 160 and page_facts.evaluation["n"] == 150


def test_weights_that_could_not_be_tuned(tmp_path):
    case = made()
    with pytest.warns(snaps.SnapsWarning, match="too few to tune on"):
        cp = snaps.SNAPS(0.1).calibrate(
            case.graph, case.probs, case.labels, CALIB[5:], tune_nodes=CALIB[:5]
        )
    assert "The weights were not tuned" in notes(cp, tmp_path)


def test_neighbours_that_were_found_in_part(tmp_path):
    case = made()
    assert measured_recall(case.graph.features, case.similarity, case.graph.keys) == (1.0, 100)
    part = snaps.similarity_graph(case.graph.features, 20, ids=case.graph.keys, candidates=200)
    recall, _ = measured_recall(case.graph.features, part, case.graph.keys)
    assert 0.35 < recall < 0.65
    shown = notes(calibrate(snaps.SNAPS(0.1), similarity=part), tmp_path)
    assert f"{100 * recall:.1f} %" in shown["Approximate neighbours"][0]
    whole = calibrate(snaps.SNAPS(0.1), similarity=case.similarity)
    assert "Approximate neighbours" not in notes(whole, tmp_path)


def test_ties_at_the_threshold(tmp_path):
    case = made()
    probs = np.where(np.arange(400)[:, None] % 3 == np.arange(3), 0.6, 0.2)
    cp = snaps.SplitConformal(0.1, score=snaps.THR()).calibrate(
        case.graph, probs, case.labels, CALIB
    )
    assert "Scores tie at the threshold" in notes(cp, tmp_path, case.labels)
