"""The report: its numbers are those of the other verbs, and its page holds nothing but them."""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

import snaps
from snaps.folder import write_folder
from snaps.models import smoothed_regression
from snaps.report import explorer
from snaps.report.charts import percent, size_bands
from snaps.report.facts import Weights, coverage_interval, gather
from snaps.report.notes import measured_recall
from snaps.report.summary import summarise
from tests.helpers import small
from tests.helpers.small import complaint, made, noted

CALIB, TEST = np.arange(40, 240), np.arange(240, 400)
METHODS = {
    "split": snaps.SplitConformal(0.1),
    "daps": snaps.DAPS(0.1),
    "snaps": snaps.SNAPS(0.1),
    "fixed": snaps.SNAPS(0.1, weights=(0.3, 0.0)),
    "raps": snaps.SNAPS(0.1, score=snaps.RAPS()),
    "pooled": snaps.Pooled(0.1),
    "classes": snaps.SNAPS(0.2, class_conditional=True),
    "images": snaps.images.EmbeddedSNAPS(0.1, eta="tune"),
}
HOSTILE = "</script><script>alert('\"&amp;\\')</script>" + "x" * 260


def calibrate(method, **options):
    case = made()
    where = case.graph.features if isinstance(method, snaps.images.EmbeddedSNAPS) else case.graph
    if isinstance(method, snaps.Pooled):
        options.setdefault("known_nodes", np.arange(40))
    return method.calibrate(where, case.probs, case.labels, CALIB, **options)


class Page(HTMLParser):
    """What a browser would make of a page: text, elements, exact numbers and the packed nodes."""

    def __init__(self, path):
        super().__init__()
        self.texts, self.tags, self.numbers, self.ids = [], [], {}, []
        self._open = []
        self.feed(path.read_text("utf-8"))
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append((tag, given))
        self._open.append((tag, given))
        if tag == "data":
            self.numbers.setdefault(given["class"], []).append(float(given["value"]))
        if "id" in given:
            self.ids.append(given["id"])

    def handle_endtag(self, tag):
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, text):
        tag, given = self._open[-1] if self._open else ("", {})
        if tag == "script" and given.get("id") == "data":
            self.packed = text
        elif tag not in ("script", "style"):
            self.texts.append(text)

    def nodes(self):
        """The explorer's data, taken apart as page.js does."""
        whole = gzip.decompress(base64.b64decode(self.packed))
        length = int.from_bytes(whole[:8], "little")
        told = json.loads(whole[8 : 8 + length])
        kinds = {"Uint8Array": "<u1", "Uint16Array": "<u2", "Uint32Array": "<u4"}
        for name, (kind, offset, count) in told["arrays"].items():
            dtype = kinds.get(kind, "<f8")
            told[name] = np.frombuffer(whole, dtype, count, 8 + length + offset)
        return told


def write(cp, tmp_path, labels=None, nodes=None, **options):
    cp.report(tmp_path / "r.html", labels, nodes, **options)
    return Page(tmp_path / "r.html")


def facts(cp, labels, nodes, monkeypatch, tmp_path):
    """The numbers behind a report."""
    seen = []
    monkeypatch.setattr(
        "snaps.report.gather", lambda subject: seen.append(gather(subject)) or seen[0]
    )
    cp.report(tmp_path / "r.html", labels, nodes)
    return seen[0]


def notes(cp, tmp_path, labels=None, nodes=TEST):
    """The notes on the page: title, text, and whether it is serious."""
    cp.report(tmp_path / "r.html", labels, nodes)
    pattern = r'<li class="(serious|mild)"><h3>(.*?)</h3>\s*<p>(.*?)</p>'
    found = re.findall(pattern, (tmp_path / "r.html").read_text("utf-8"), re.S)
    return {
        unescape(title): (" ".join(unescape(text).split()), kind == "serious")
        for kind, title, text in found
    }


# ---- Numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_the_numbers_are_those_of_evaluate(name, tmp_path):
    cp = calibrate(METHODS[name])
    told = cp.evaluate(made().labels, TEST)
    page = write(cp, tmp_path, made().labels, TEST, title="Made")
    numbers = {key: values[0] for key, values in page.numbers.items()}
    for key in ("coverage", "size", "empty", "singleton_hit", "n_calib", "n_tune"):
        assert numbers[key] == told[key], key
    assert numbers["n_nodes"] == told["n"] == len(TEST)
    assert f"{percent(told['coverage'])} observed".replace("\u00a0", " ") in page.text
    if told["coverage_interval"] is not None:
        assert (numbers["low"], numbers["high"]) == told["coverage_interval"]
        assert numbers["threshold"] == cp.threshold_
    for part, weight in cp.part_weights_.items():
        assert len(cp.part_weights_) == 1 or numbers[f"weight-{part}"] == weight
    assert len(page.ids) == len(set(page.ids))
    assert page.numbers.get("slice")


def test_the_basic_score_and_slices_by_plain_counts(tmp_path, monkeypatch):
    case, cp = made(), calibrate(snaps.SNAPS(0.1))
    told = facts(cp, case.labels, TEST, monkeypatch, tmp_path)
    plain = snaps.SplitConformal(0.1).calibrate(
        case.graph, case.probs, case.labels, cp.calib_nodes_
    )
    sizes = plain.predict_set(TEST).sizes
    assert told.basic.counts == np.bincount(sizes, minlength=4).tolist()
    assert told.basic.mean == pytest.approx(sizes.mean())
    assert told.basic.coverage == plain.evaluate(case.labels, TEST)["coverage"]
    sets = cp.predict_set(TEST)
    hits = sets.mask[np.arange(len(TEST)), case.labels[TEST]]
    for y, one in enumerate(told.by_class):
        own = case.labels[TEST] == y
        assert (one.n, one.coverage) == (own.sum(), pytest.approx(hits[own].mean()))
        assert one.size == pytest.approx(sets.sizes[own].mean())
        assert (one.low, one.high) == coverage_interval(told.n_calib, one.n, 0.1)
    degrees = np.diff(case.graph.adjacency.indptr)[TEST]
    bands = {"0": (0, 0), "1": (1, 1), "2\u00a0to\u00a03": (2, 3), "4\u00a0to\u00a07": (4, 7)}
    for one in told.by_degree[:4]:
        low, high = bands[one.name]
        assert one.n == ((degrees >= low) & (degrees <= high)).sum()
    assert sum(one.n for one in told.by_degree) == sum(one.n for one in told.by_size) == len(TEST)
    assert {one.name: one.n for one in told.by_size} == {
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
    told = [(weights.pairs[i], weights.sizes[i]) for i in (0, 100, 230)]
    for pair, size in (*told, (cp.weights_, weights.size)):
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
    told = facts(cp, made().labels, TEST, monkeypatch, tmp_path)
    assert told.weights.chosen == "grid" and told.alpha == 0.2
    assert told.evaluation["coverage"] == cp.evaluate(made().labels, TEST)["coverage"]


def test_kept_weights_and_thresholds_of_another_graph(tmp_path, monkeypatch):
    case, cp = made(), calibrate(snaps.SNAPS(0.1))
    other = snaps.Graph(case.graph.adjacency, case.graph.features)
    with pytest.warns(snaps.SnapsWarning, match="another graph"):
        cp.recalibrate(other, case.probs, threshold="keep")
    told = facts(cp, case.labels, TEST, monkeypatch, tmp_path)
    assert told.weights.chosen == "kept" and told.basic is None
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


# ---- Promises ------------------------------------------------------------------------------------


def summary(cp, labels, nodes, monkeypatch, tmp_path):
    """The first screen behind a report."""
    seen = []
    monkeypatch.setattr(
        "snaps.report.summarise", lambda subject: seen.append(summarise(subject)) or seen[0]
    )
    cp.report(tmp_path / "r.html", labels, nodes)
    return seen[0]


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
    told = cp.evaluate(case.labels, TEST)
    rows = summary(cp, case.labels, TEST, monkeypatch, tmp_path).promises
    assert [row.what for row in rows] == kinds
    for row in rows:
        if row.what == "all":
            assert (row.promised, row.observed) == (0.8, told["coverage"])
        else:
            place = int(row.name)
            assert row.observed == told[f"{row.what}_coverage"][place]
            assert row.promised == told[f"{row.what}_promise"][place]
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
        told = compare_with_truth(*given)
        return type(told)(told | {"coverage_interval": None, "inside": None, "coverage": 0.85})

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
    told, sets = cp.evaluate(case.labels, TEST), cp.predict_set(TEST)
    page = write(cp, tmp_path, case.labels, TEST)
    hits = sets.mask[np.arange(len(TEST)), case.labels[TEST]]
    assert page.numbers["single"] == [(sets.sizes == 1).mean()]
    listed = cp.accept(error=0.1, nodes=TEST)
    wrong = listed.label != case.labels[TEST]
    assert page.numbers["accepted"] == [len(listed) / len(TEST)] and len(listed)
    assert page.numbers["accepted_wrong"] == [wrong[listed.selected].mean()]
    assert set(page.numbers["right_when_single"]) == {hits[sets.sizes == 1].mean()}
    assert page.numbers["weakest"] == [told["weakest_slice"]["coverage"]]
    assert page.numbers["slab"] == [told["worst_slab"]["coverage"]]
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
    assert "'state' must be of this calibration" in complaint(
        other.report, tmp_path / "o.html", watch=watch
    )
    assert complaint(cp.report, tmp_path / "o.html", watch=3).startswith("'watch' must be a Watch")


# ---- Notes ---------------------------------------------------------------------------------------


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
    told = facts(cp, labels, TEST, monkeypatch, tmp_path)
    assert told.sizes.n == 160 and told.evaluation["n"] == 150


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


# ---- Nodes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_every_node_is_packed_with_its_scores_and_set(name, tmp_path):
    case, cp = made(), calibrate(METHODS[name])
    nodes = write(cp, tmp_path, case.labels, TEST).nodes()
    assert nodes["carried"] == nodes["total"] == 400
    ids = cp.calib_ids_.dtype.kind == "U"
    assert nodes["ids"] == (case.graph.ids.tolist() if ids else [str(i) for i in range(400)])
    low, high = nodes["ranges"]["mixed"]
    mixed = low + nodes["score mixed"].reshape(400, 3) / 65535 * (high - low)
    np.testing.assert_allclose(mixed, cp.scores_, atol=(high - low) / 65535)
    bits = np.unpackbits(nodes["sets"].reshape(400, -1), axis=1, bitorder="little")[:, :3]
    np.testing.assert_array_equal(bits[TEST].astype(bool), cp.predict_set(TEST).mask)
    roles = np.array(nodes["roles"])[nodes["role"]]
    assert (roles[TEST] == "predicted").all() and (roles[cp.calib_nodes_] == "calibration").all()
    assert (roles[cp.tune_nodes_] == "tuning").all() and (roles[cp.known_nodes_] == "known").all()
    told = cp.explain(int(TEST[7]))
    for part, _ in nodes["parts"]:
        low, high = nodes["ranges"][part]
        row = nodes[f"score {part}"].reshape(400, 3)[TEST[7]]
        expected = told.parts[part]
        if name == "pooled":
            expected = told.weights[part] * (expected - expected.mean())
        step = (high - low) / 65535
        np.testing.assert_allclose(low + row * step, expected, atol=step)
    for part in nodes["near"]:
        begin, end = nodes[f"start {part}"][TEST[7] : TEST[7] + 2]
        near = nodes[f"near {part}"][begin:end].tolist()
        weights = told.weights[part] * nodes[f"share {part}"][begin:end] / 65535
        expected = {one.node: one.weight for one in told.neighbours if one.part == part}
        assert nodes[f"count {part}"][TEST[7]] == len(expected)
        assert dict(zip(near, weights, strict=True)) == pytest.approx(expected, abs=2e-5)


def test_a_part_of_many_nodes_is_carried(tmp_path, monkeypatch):
    case, cp = made(), calibrate(snaps.SNAPS(0.1))
    monkeypatch.setattr(explorer, "MOST_NODES", 50)
    show = case.graph.ids[[3, 399]].tolist()
    page = write(cp, tmp_path, case.labels, TEST, show=show)
    nodes = page.nodes()
    carried = nodes["ids"][:50]
    assert nodes["carried"] == 50 and set(show) <= set(carried)
    assert "This file contains 50 of 400 nodes" in page.text
    # Who is carried depends on ids, not on order; neighbours come along by name.
    order = np.random.default_rng(0).permutation(400)
    back = np.argsort(order)
    again = snaps.SNAPS(0.1).calibrate(
        snaps.Graph(
            case.graph.adjacency[order][:, order], case.graph.features[order],
            ids=case.graph.ids[order],
        ),
        case.probs[order], case.labels[order], np.sort(back[CALIB]),
    )  # fmt: skip
    other = write(again, tmp_path, case.labels[order], np.sort(back[TEST]), show=show).nodes()
    assert set(other["ids"][:50]) == set(carried) and set(other["ids"]) == set(nodes["ids"])
    place = carried.index(show[0])
    begin, end = nodes["start linked"][place : place + 2]
    near = {nodes["ids"][i] for i in nodes["near linked"][begin:end]}
    links = case.graph.adjacency[[int(case.graph.index(show[0])[0])]].indices
    assert near == set(case.graph.ids[links].tolist())


def test_fewer_nodes_are_carried_where_each_is_long(tmp_path, monkeypatch):
    cp = calibrate(snaps.SNAPS(0.1))
    monkeypatch.setattr(explorer, "MOST_BYTES", 30_000)
    page = write(cp, tmp_path, made().labels, TEST)
    assert 50 < page.nodes()["carried"] < 250
    assert len(gzip.decompress(base64.b64decode(page.packed))) < 35_000


def test_only_the_heaviest_of_many_neighbours(tmp_path):
    """A hub has more neighbours than anybody reads."""
    n = 100
    hub = np.stack([np.zeros(n - 1, int), np.arange(1, n)])
    weights = np.arange(1, n).astype(float)
    graph = snaps.Graph(hub, num_nodes=n, weighted=True, edge_weights=weights)
    probs = np.random.default_rng(0).dirichlet(np.ones(3), n)
    cp = snaps.DAPS(0.2, weight=0.5).calibrate(graph, probs, np.arange(n) % 3, np.arange(40))
    nodes = write(cp, tmp_path).nodes()
    assert nodes["count linked"][0] == n - 1 and nodes["start linked"][1] == 24
    assert nodes["near linked"][:24].tolist() == list(range(n - 1, n - 25, -1))
    assert nodes["share linked"][0] / 65535 == pytest.approx((n - 1) / weights.sum(), abs=1e-5)


def test_a_large_real_graph_makes_a_small_file(tmp_path, data_dir):
    data = snaps.datasets.load("coauthor_physics", data_dir)
    graph, n = data.graph, data.graph.num_nodes
    order = np.random.default_rng(0).permutation(n)
    probs = smoothed_regression(graph, data.labels, order[:100])
    near = snaps.similarity_graph(graph.features, 20, ids=graph.keys, candidates=500)  # quicker
    cp = snaps.SNAPS(0.05, weights=(0.4, 0.4)).calibrate(
        graph, probs, data.labels, order[100:1100], similarity=near
    )
    page = write(cp, tmp_path, data.labels, order[1100:], show=order[:3])
    assert (tmp_path / "r.html").stat().st_size < 8e6
    assert page.nodes()["carried"] == 20_000
    assert {str(i) for i in order[:3]} <= set(page.nodes()["ids"][:20_000])


# ---- The page ------------------------------------------------------------------------------------


def hostile(tmp_path):
    """A folder and its report whose names try to be markup."""
    case = made()
    names = np.array([f"{HOSTILE}{i}" for i in range(400)])
    graph = snaps.Graph(case.graph.adjacency, case.graph.features, ids=names)
    classes = [HOSTILE, "<b>bold</b>", "{{x}} $title ${y} `'\""]
    labels = np.array(classes)[case.labels]
    groups = np.array(["<i>", "&lt;", "</style>"])[case.bands]
    cp = snaps.SNAPS(0.2).calibrate(
        graph, case.probs, labels, CALIB, classes=classes, groups=groups
    )
    return write(cp, tmp_path, labels, TEST, title=f"<title>{HOSTILE}"), classes


def test_names_are_text(tmp_path):
    page, classes = hostile(tmp_path)
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert not {"b", "i"} & {tag for tag, _ in page.tags}
    for text in (*classes, "<i>", "&lt;", "</style>"):
        assert " ".join(text.split()) in page.text
    nodes = page.nodes()
    assert nodes["classes"] == classes and nodes["ids"][7] == f"{HOSTILE}7"


class Markup(snaps.Score):
    """A score whose name tries to be markup; it stands in texts and in a plot's legend."""

    def compute(self, probs, draws):
        return 1 - probs

    def __repr__(self):
        return "<b>'\"&</svg></script>(1)"


def test_names_of_scores_are_text(tmp_path):
    page = write(calibrate(snaps.SNAPS(0.1, score=Markup())), tmp_path, made().labels, TEST)
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert "b" not in {tag for tag, _ in page.tags}
    assert "<b>'\"&</svg></script>(1)" in page.text
    assert "<b>'\"&</svg></script> alone, no neighbours" in page.text


def test_the_page_asks_for_nothing_and_is_the_same_each_time(tmp_path):
    cp = calibrate(snaps.SNAPS(0.1))
    page = write(cp, tmp_path, made().labels, TEST)
    first = (tmp_path / "r.html").read_bytes()
    (policy,) = [
        given["content"]
        for tag, given in page.tags
        if given.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    for tag, given in page.tags:
        assert not {"src", "style", "onclick", "onload"} & set(given), (tag, given)
        assert tag not in ("link", "img", "iframe")
        assert given.get("href", "#").startswith("#")
    assert "http" not in re.sub(r'http-equiv|"http://www.w3.org/2000/svg"', "", first.decode())
    write(cp, tmp_path, made().labels, TEST)
    assert (tmp_path / "r.html").read_bytes() == first


def test_every_plot_has_a_text_alternative(tmp_path):
    page = write(calibrate(snaps.SNAPS(0.1)), tmp_path, made().labels, TEST)
    plots = [given for tag, given in page.tags if tag == "svg"]
    assert sum(given.get("role") == "img" for given in plots) == 4
    for given in plots:
        named = given.get("aria-labelledby", "").split()
        assert given.get("aria-hidden") == "true" or set(named) <= set(page.ids)


def test_without_labels_and_without_nodes(tmp_path):
    cp = calibrate(snaps.SNAPS(0.1))
    page = write(cp, tmp_path)
    assert "promised; not yet checked." in page.text and "coverage" not in page.numbers
    assert "By most likely class" in page.text and "By labels in the set" not in page.text
    page = write(cp, tmp_path, None, [])
    assert "promised; no node to predict." in page.text and page.nodes()["carried"] == 400
    labels = np.full(400, -1)
    assert "not yet checked" in write(cp, tmp_path, labels, TEST).text


def test_a_class_that_nobody_has(tmp_path, monkeypatch):
    case = made()
    probs = np.hstack([case.probs * 0.9, np.full((400, 1), 0.1)])
    cp = snaps.SNAPS(0.1).calibrate(case.graph, probs, case.labels, CALIB, classes=[0, 1, 2, 3])
    told = facts(cp, case.labels, TEST, monkeypatch, tmp_path)
    assert (told.by_class[3].n, told.by_class[3].coverage) == (0, None)
    assert told.evaluation["class_coverage"][3] is None


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.95, "95 %"), (0.9531, "95.3 %"), (1, "100 %"), (0.9999, "> 99.9 %"), (0, "0 %"),
     (0.0001, "< 0.1 %")],
)  # fmt: skip
def test_shares_are_not_rounded_to_certainty(share, words):
    assert percent(share).replace("\u00a0", " ") == words


def test_promises_keep_their_digits(tmp_path):
    cp = calibrate(snaps.SplitConformal(0.0125))
    assert "98.75 % promised" in write(cp, tmp_path).text


def test_many_sizes_are_joined_in_bands():
    counts = [1] * 21
    bands = size_bands(counts, None)
    assert [name for name, _, _ in bands] == ["0", "1", "2-3", "4-7", "8-15", "16-20"]
    assert sum(ours for _, ours, _ in bands) == 21


# ---- Bad input -----------------------------------------------------------------------------------


def test_what_is_refused(tmp_path):
    cp, labels = calibrate(snaps.SNAPS(0.1)), made().labels
    path = tmp_path / "r.html"
    assert complaint(cp.report, tmp_path / "no" / "r.html").startswith("cannot write")
    assert "it is a folder" in complaint(cp.report, tmp_path)
    assert "'nodes' must" in complaint(cp.report, path, labels, cp.calib_nodes_[:3])
    assert "'labels'" in complaint(cp.report, path, labels[:10])
    assert "'show' must" in complaint(cp.report, path, labels, TEST, show=["nobody"])
    assert complaint(cp.report, path, title=3) == "'title' must be a string, got 3"
    assert complaint(cp.report, path, source=3) == "'source' must be a string, got 3"
    assert "must be calibrated first" in complaint(snaps.SNAPS(0.1).report, path)
    cp.save(tmp_path / "m.snaps", data=False)
    assert "saved without data" in complaint(snaps.load(tmp_path / "m.snaps").report, path)
    assert not path.exists()


def test_import_leaves_the_report_alone():
    code = (
        "import sys, snaps; "
        "sys.exit(any(name.startswith(('snaps.report', 'jinja2')) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# ---- snaps report --------------------------------------------------------------------------------


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    from snaps.cli import main

    monkeypatch.chdir(tmp_path)
    small.write(tmp_path / "g")

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    return call


REPORT = ("report", "g", "--alpha", 0.2, "--out", "r.html")


def test_the_command_reports_on_what_predict_writes(run, tmp_path):
    code, out, err = run(*REPORT, "--show", "node-7")
    assert (code, err) == (0, "") and out.endswith("wrote r.html\n")
    page = Page(tmp_path / "r.html")
    cp = small.calibrated(snaps.SNAPS(0.2), named=True)
    assert page.numbers["coverage"] == [cp.evaluate(small.LABELS, small.TEST)["coverage"]]
    assert page.numbers["size"] == [cp.predict_set(small.TEST).sizes.mean()]
    assert "Prediction sets · g" in page.text
    assert "g (SHA-256: nodes.parquet " in page.text
    code, out, _ = run(*REPORT, "--json")
    assert code == 0 and json.loads(out)["nodes"] == len(small.TEST)


def test_the_command_with_a_kept_predictor(run, tmp_path):
    assert run("calibrate", "g", "--alpha", 0.2, "--out", "m.snaps")[0] == 0
    assert run(*REPORT)[0] == 0
    whole = (tmp_path / "r.html").read_bytes()
    assert run("report", "g", "--with", "m.snaps", "--out", "r.html")[0] == 0
    assert (tmp_path / "r.html").read_bytes() == whole


def test_the_command_shows_what_watch_has_counted(run, tmp_path):
    assert run("calibrate", "g", "--alpha", 0.2, "--out", "m.snaps")[0] == 0
    audited = "".join(f"{small.NAMES[i]},{small.LABELS[i]}\n" for i in small.TEST[:12])
    (tmp_path / "audit.csv").write_text(f"id,label\n{audited}")
    assert run("watch", "m.snaps", "g", "--labels", "audit.csv")[0] == 0
    code, _, err = run("report", "g", "--with", "m.snaps", "--out", "r.html")
    assert (code, err) == (0, "") and "12 audited labels" in Page(tmp_path / "r.html").text
    code, _, err = run("report", "g", "--with", "m.snaps", "--alpha", 0.3, "--out", "r.html")
    assert code == 0 and "m.snaps.watch.json' is left out of the report" in err
    assert "audited labels" not in Page(tmp_path / "r.html").text


def test_nodes_that_trained_are_not_reported_on(run, tmp_path):
    roles = small.ROLES.copy()
    roles[small.TEST] = ""
    roles[small.TEST[:10]] = "train"
    small.write(tmp_path / "g", roles=roles)
    assert run(*REPORT)[0] == 0
    assert Page(tmp_path / "r.html").numbers["n_nodes"] == [20]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("report", "nowhere", "--out", "r.html"), "cannot read 'nowhere': no such folder"),
        (("report", "g", "--out", "no/r.html"), "cannot write 'no/r.html': there is no folder"),
        (("report", "g", "--out", "-"), "'--out' must name a file, got '-'"),
        (("calibrate", "g", "--out", "-"), "'--out' must name a file, got '-'"),
        (("report", "g", "--out", "g"), "cannot write 'g': it is a folder"),
        (("report", "g", "--out", "g/nodes.parquet"), "'--out' must not be an input"),
        (("report", "g", "--out", "r.pdf"), "'--out' must end in .html or .htm, got 'r.pdf'"),
        ((*REPORT, "--show", "ann"), "'--show' must name nodes of the folder, got 'ann'"),
        (("report", "g", "--with", "g/nodes.parquet", "--out", "r.html"), "cannot"),
        ((*REPORT, "--threshold", "keep"), "'--threshold' must go with --with"),
        ((*REPORT, "--alpha", 2), "'--alpha' must"),
    ],
)
def test_bad_input_of_the_command(run, arguments, words):
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("snaps: error: ") and words in err


@pytest.mark.parametrize(
    ("column", "words"),
    [("probs", "must have a column 'probs'"), ("label", "column 'label' must be given"),
     ("role", "must mark calibration nodes 'calib'")],
)  # fmt: skip
def test_a_folder_that_lacks_something(run, tmp_path, column, words):
    small.change(tmp_path / "g", "nodes", **{column: None})
    code, out, err = run(*REPORT)
    assert (code, out, err.count("\n")) == (2, "", 1) and words in err


def test_a_predictor_of_another_version(run, tmp_path):
    assert run("calibrate", "g", "--alpha", 0.2, "--out", "m.snaps")[0] == 0
    with np.load(tmp_path / "m.snaps") as archive:
        arrays = dict(archive)
    header = json.loads(arrays["header"].tobytes()) | {"version": 99}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with open(tmp_path / "m.snaps", "wb") as file:
        np.savez(file, **arrays)
    code, _, err = run("report", "g", "--with", "m.snaps", "--out", "r.html")
    assert code == 2 and "version" in err and err.count("\n") == 1


@pytest.mark.parametrize("method", ["snaps", "daps", "pooled"])
def test_the_command_with_a_kept_threshold_on_another_graph(run, tmp_path, method):
    """Of the calibration nodes the other folder has a third."""
    assert run("calibrate", "g", "--alpha", 0.2, "--method", method, "--out", "m.snaps")[0] == 0
    kept = np.arange(20, small.NUM_NODES)
    places = np.full(small.NUM_NODES, -1)
    places[kept] = np.arange(len(kept))
    edges = places[small.EDGES]
    edges = edges[:, (edges >= 0).all(axis=0)]
    graph = snaps.Graph(edges, small.FEATURES[kept], ids=small.NAMES[kept])
    given = small.PROBS[kept], small.LABELS[kept], small.ROLES[kept]
    write_folder(tmp_path / "other", graph, *given)
    kept = ("--with", "m.snaps", "--threshold", "keep", "--out", "r.html")
    code, _, err = run("report", "other", *kept)
    assert code == 0 and "Traceback" not in err
    assert Page(tmp_path / "r.html").numbers["n_nodes"] == [30]
