"""The first screens of the report: promises next to what was observed, and five answers."""

from __future__ import annotations

import re

import numpy as np
import pytest

import snaps
from snaps.report.facts import Weights
from tests.helpers.small import error_line, made
from tests.report.common import CALIB, TEST, Page, calibrate, summary, write

RATES = {0: 0.05, 1: 0.2, 2: 0.1}
PROMISES = {
    "floor": (snaps.SNAPS(0.2, class_floor=0.7), {}, ["all", *["class"] * 3]),
    "groups": (snaps.SNAPS(0.2), {"groups": True}, ["group"] * 3),
    "group floor": (snaps.SNAPS(0.2), {"groups": True, "group_floor": 0.7},
                    ["all", *["group"] * 3]),
    "classes": (snaps.SNAPS(0.2, class_conditional=True), {}, ["class"] * 3),
    "rates": (snaps.SNAPS(RATES, class_conditional=True), {}, ["class"] * 3),
    "confidence": (snaps.SNAPS(0.2, confidence=0.9), {}, ["all"]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROMISES)
def test_promises_beside_what_was_observed(name, tmp_path, monkeypatch):
    method, options, kinds = PROMISES[name]
    case = made()
    options = options | ({"groups": case.bands} if "groups" in options else {})
    cp = calibrate(method, **options)
    evaluation = cp.evaluate(case.labels, TEST)
    rows = summary(cp, case.labels, TEST, monkeypatch, tmp_path).promises
    assert [row.what for row in rows] == kinds
    for row in rows:
        if row.what == "all":
            assert (row.promised, row.observed) == (0.8, evaluation["coverage"])
        else:
            place = int(row.name)
            assert row.observed == evaluation[f"{row.what}_coverage"][place]
            assert row.promised == evaluation[f"{row.what}_promise"][place]
        kept = row.observed >= row.promised or (row.low is not None and row.observed >= row.low)
        assert (row.status in ("kept", "chance")) == kept
    page = Page(tmp_path / "r.html")
    assert page.numbers.get("promise", []) == [row.observed for row in rows] * (len(rows) > 1)
    broken = [row for row in rows if row.status == "broken"]
    assert ("Kept: " in page.text) == (not broken)


def test_a_promise_that_was_not_kept(tmp_path):
    case, cp = made(), calibrate(snaps.SplitConformal(0.1))
    labels = case.labels.copy()
    labels[TEST] = np.where(np.arange(len(TEST)) % 2, labels[TEST], (labels[TEST] + 1) % 3)
    page = write(cp, tmp_path, labels, TEST)
    assert "Not kept: 90 % promised" in page.text and "No: chance hardly explains it." in page.text
    assert "Do not rely on the guarantee here." in page.text


def test_no_verdict_where_no_distribution_is_known(tmp_path, monkeypatch):
    from snaps.predictor.evaluation import compare_with_truth

    def unknown(*given):
        evaluation = compare_with_truth(*given)
        return type(evaluation)(
            evaluation | {"coverage_interval": None, "inside": None, "coverage": 0.85}
        )

    monkeypatch.setattr("snaps.report.compare_with_truth", unknown)
    text = write(calibrate(snaps.SplitConformal(0.1)), tmp_path, made().labels, TEST).text
    assert "Not judged: 90 % promised, 85 % observed." in text and "Open: how far" in text


def test_a_class_that_was_not_kept_is_named(tmp_path):
    case = made()
    names = np.array(["art", "biology", "law"])
    cp = snaps.SNAPS(0.2, class_conditional=True).calibrate(
        case.graph, case.probs, names[case.labels], CALIB, classes=names.tolist()
    )
    truth = names[case.labels]
    truth[TEST[::2]] = "law"
    assert "Not kept for class law" in write(cp, tmp_path, truth, TEST).text


def test_the_five_answers(tmp_path, monkeypatch):
    case, cp = made(), calibrate(snaps.DAPS(0.1))
    assert (
        "accepted" not in write(cp, tmp_path, case.labels, TEST).numbers
    )  # 2 % is too much to ask
    monkeypatch.setattr("snaps.report.summary._ERROR", 0.1)
    evaluation, sets = cp.evaluate(case.labels, TEST), cp.predict_set(TEST)
    page = write(cp, tmp_path, case.labels, TEST)
    hits = sets.mask[np.arange(len(TEST)), case.labels[TEST]]
    assert page.numbers["single"] == [(sets.sizes == 1).mean()]
    listed = cp.accept(error=0.1, nodes=TEST)
    wrong = listed.label != case.labels[TEST]
    assert page.numbers["accepted"] == [len(listed) / len(TEST)] and len(listed)
    assert page.numbers["accepted_wrong"] == [wrong[listed.selected].mean()]
    assert set(page.numbers["right_when_single"]) == {hits[sets.sizes == 1].mean()}
    assert page.numbers["weakest"] == [evaluation["weakest_slice"]["coverage"]]
    assert page.numbers["slab"] == [evaluation["worst_slab"]["coverage"]]
    for question in ("What was promised?", "Was it kept?", "What needs no review?",
                     "Who is served worst?", "What to do next?"):  # fmt: skip
        assert question in page.text


@pytest.mark.parametrize(("alpha", "easy"), [(0.2, True), (0.05, False)])
def test_the_weakest_slice_has_a_remedy(tmp_path, monkeypatch, alpha, easy):
    """Which is a smaller alpha where the classifier alone is right more often than asked for."""
    case = made()
    cp = snaps.SplitConformal(alpha).calibrate(case.graph, case.probs, case.labels, CALIB)
    shown = summary(cp, case.labels, TEST, monkeypatch, tmp_path)
    listed, none = cp.accept(error=alpha, nodes=TEST), cp.predict_set(TEST).sizes == 0
    assert (len(listed) == len(TEST) and none.mean() >= 0.01) == easy
    assert shown.accepted_empty == (cp.accept(nodes=TEST).selected & none).sum()
    weakest = cp.evaluate(case.labels, TEST)["weakest_slice"]
    concern = weakest["chance"] <= 0.01 and weakest["coverage"] < 1 - alpha
    assert shown.concern == concern
    assert shown.remedy == ("alpha" if easy else weakest["by"] if concern else "use")


def test_three_real_nodes(tmp_path, monkeypatch):
    case, cp = made(), calibrate(snaps.SNAPS(0.1))
    examples = summary(cp, case.labels, TEST, monkeypatch, tmp_path).examples
    assert len(examples) == 3 == len({example.id for example in examples})
    for example in examples:
        node = int(case.graph.index(example.id)[0])
        assert node in TEST and example.truth == str(case.labels[node])
        assert example.labels == [str(label) for label in cp.predict_set([node])[0]]
        assert example.hit == (example.truth in example.labels)
    assert [len(example.labels) > 1 for example in examples][:2] == [False, True]
    assert [example.hit for example in examples] == [True, True, False]
    blind = summary(cp, None, TEST, monkeypatch, tmp_path).examples
    assert all(example.truth is None for example in blind)


def test_weights_add_up():
    weights = Weights({"own": 0.1849, "similar": 0.5849, "linked": 0.2302}, "given")
    assert weights.shown == {"own": 0.19, "similar": 0.58, "linked": 0.23}
    assert Weights({"own": 1.204, "linked": -0.3}, "fit").shown == {"own": 1.2, "linked": -0.3}


def test_known_nodes_by_what_the_method_does_with_them(tmp_path):
    known = np.arange(40)
    text = write(calibrate(snaps.SNAPS(0.1), known_nodes=known), tmp_path).text
    assert "this method does not use their labels" in text
    text = write(calibrate(snaps.Pooled(0.1), known_nodes=known), tmp_path).text
    assert "their labels are evidence for other nodes" in text


def test_date_source_and_version(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    page = write(calibrate(snaps.SNAPS(0.1)), tmp_path, source="the <b> archive")
    assert f"1970-01-02 · SNAPS · the <b> archive · snaps {snaps.__version__}" in page.text


def test_all_whiskers_have_one_scale(tmp_path):
    write(calibrate(snaps.SNAPS(0.1)), tmp_path, made().labels, TEST)
    axes = re.findall(r'<th scope="col"><span class="hidden">as a plot</span>(.*?)</th>',
                      (tmp_path / "r.html").read_text("utf-8"), re.S)  # fmt: skip
    assert len(axes) == 4 and len(set(axes)) == 1 and "100\u00a0%" in axes[0]


def test_evidence_over_time(tmp_path):
    case, cp = made(), calibrate(snaps.SNAPS(0.1))
    watch = cp.watch(case.labels, TEST[:80])
    page = write(cp, tmp_path, case.labels, TEST, watch=watch)
    assert "80 audited labels arrived" in page.text and "watch-title" in page.ids
    watch.save(tmp_path / "w.json")
    assert "watch-title" in write(cp, tmp_path, watch=tmp_path / "w.json").ids
    assert "watch" not in write(cp, tmp_path).ids
    other = calibrate(snaps.SNAPS(0.2))
    assert "'state' must be of this calibration" in error_line(
        other.report, tmp_path / "o.html", watch=watch
    )
    assert error_line(cp.report, tmp_path / "o.html", watch=3).startswith("'watch' must be a Watch")
