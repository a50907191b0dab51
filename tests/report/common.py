"""What the tests of the report share: estimators, the page taken apart, its numbers."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html import unescape
from html.parser import HTMLParser

import numpy as np

import snaps
from snaps.report.facts import gather
from snaps.report.summary import summarise
from tests.helpers.small import made

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
        header = json.loads(whole[8 : 8 + length])
        kinds = {"Uint8Array": "<u1", "Uint16Array": "<u2", "Uint32Array": "<u4"}
        for name, (kind, offset, count) in header["arrays"].items():
            dtype = kinds.get(kind, "<f8")
            header[name] = np.frombuffer(whole, dtype, count, 8 + length + offset)
        return header


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


def summary(cp, labels, nodes, monkeypatch, tmp_path):
    """The first screen behind a report."""
    seen = []
    monkeypatch.setattr(
        "snaps.report.summarise", lambda subject: seen.append(summarise(subject)) or seen[0]
    )
    cp.report(tmp_path / "r.html", labels, nodes)
    return seen[0]


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
