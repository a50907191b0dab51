"""The page: names are text, it asks for nothing, and bad input is refused."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

import snaps
from snaps.report.charts import percent, size_bands
from tests.helpers.small import error_line, made
from tests.report.common import CALIB, HOSTILE, TEST, calibrate, facts, hostile, write


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


def test_a_class_without_nodes(tmp_path, monkeypatch):
    case = made()
    probs = np.hstack([case.probs * 0.9, np.full((400, 1), 0.1)])
    cp = snaps.SNAPS(0.1).calibrate(case.graph, probs, case.labels, CALIB, classes=[0, 1, 2, 3])
    shown = facts(cp, case.labels, TEST, monkeypatch, tmp_path)
    assert (shown.by_class[3].n, shown.by_class[3].coverage) == (0, None)
    assert shown.evaluation["class_coverage"][3] is None


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


def test_what_is_refused(tmp_path):
    cp, labels = calibrate(snaps.SNAPS(0.1)), made().labels
    path = tmp_path / "r.html"
    assert error_line(cp.report, tmp_path / "no" / "r.html").startswith("cannot write")
    assert "it is a folder" in error_line(cp.report, tmp_path)
    assert "'nodes' must" in error_line(cp.report, path, labels, cp.calib_nodes_[:3])
    assert "'labels'" in error_line(cp.report, path, labels[:10])
    assert "'show' must" in error_line(cp.report, path, labels, TEST, show=["stranger"])
    assert error_line(cp.report, path, title=3) == "'title' must be a string, got 3"
    assert error_line(cp.report, path, source=3) == "'source' must be a string, got 3"
    assert "must be calibrated first" in error_line(snaps.SNAPS(0.1).report, path)
    cp.save(tmp_path / "m.snaps", data=False)
    assert "saved without data" in error_line(snaps.load(tmp_path / "m.snaps").report, path)
    assert not path.exists()


def test_import_leaves_the_report_alone():
    code = (
        "import sys, snaps; "
        "sys.exit(any(name.startswith(('snaps.report', 'jinja2')) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
