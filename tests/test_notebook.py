"""The last expression of a notebook's cell shows what `print` shows, as a table; and pictures."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

import snaps
from tests.helpers import small
from tests.helpers.small import LABELS, NAMES, PROBS, TEST

CLASSES = ["<b>cat</b>", "dog & co", 'fox"']
TEXTS = np.array(CLASSES)[LABELS]


class Balanced(HTMLParser):
    """Which tags are open; every end must close the last of them."""

    def __init__(self):
        super().__init__()
        self.open, self.cells = [], 0

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.cells += tag == "td"

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def calibrated():
    graph = small.graph(ids=NAMES)
    method = snaps.Pooled(0.2, k=5)
    return method.calibrate(graph, PROBS, TEXTS, np.arange(30), classes=CLASSES, known_nodes=[40])


@pytest.fixture(scope="module")
def things(calibrated):
    cp, test = calibrated, TEST[TEST != 40]
    snaps_ = snaps.SNAPS(0.2, k=5, weights=(0.3, 0.2))
    snaps_.calibrate(small.graph(ids=NAMES), PROBS, TEXTS, np.arange(30), classes=CLASSES)
    sets, look = cp.predict_set(test), cp.exchangeability(test)
    advice = snaps.advise(
        small.graph(), PROBS, TEXTS, np.arange(40), n_calib=20, alpha=0.2, classes=CLASSES
    )
    return {
        "estimator": cp, "new estimator": snaps.SNAPS(), "sets": sets,
        "no sets": sets[:0], "evaluation": cp.evaluate(TEXTS, test),
        "explanation": cp.explain(NAMES[50]), "explanation of SNAPS": snaps_.explain(NAMES[50]),
        "advice": advice, "exchangeability": look, "selection": cp.select(CLASSES[0], 0.3, test),
        "decisions": sets.decide({CLASSES[0]: "<keep>"}), "plan": snaps.plan(0.1, within=0.05),
        "watch": snaps_.watch(TEXTS, test[:5]),
    }  # fmt: skip


NAMED = [
    "estimator", "new estimator", "sets", "no sets", "evaluation", "explanation",
    "explanation of SNAPS", "advice", "exchangeability", "selection", "decisions", "plan", "watch",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::snaps.SnapsWarning")
@pytest.mark.parametrize("name", NAMED)
def test_a_cell_shows_what_print_shows(things, name):
    thing = things[name]
    page = thing._repr_html_()
    text = page.partition("<svg")[0]
    parser = Balanced()
    parser.feed(text)
    assert parser.open == [] and (parser.cells or name in ("watch", "no sets"))
    assert "<b>" not in text and "<keep>" not in text  # names are escaped
    if name not in ("estimator", "new estimator", "advice", "exchangeability"):
        plain = unescape(re.sub("<[^>]*>", " ", text)).split()
        printed = [word for word in str(thing).replace(",", " ").split() if word[0].isdigit()]
        for word in printed:
            assert any(word in each for each in plain), word


@pytest.mark.parametrize("name", ["sets", "evaluation", "no sets"])
def test_pictures(things, name, tmp_path):
    if name == "no sets":
        things[name].plot()
        return
    things[name].plot(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(snaps.SnapsError, match="'path' must end in"):
        things[name].plot(tmp_path / "picture.exe")


def test_the_picture_of_sets_shows_their_sizes(things):
    sets = things["sets"]
    (axis,) = sets.plot().axes
    heights = [bar.get_height() for bar in axis.patches]
    np.testing.assert_allclose(heights, np.bincount(sets.sizes, minlength=2) / len(sets))


def test_the_picture_of_an_evaluation_shows_every_coverage(things):
    evaluation = things["evaluation"]
    (axis,) = evaluation.plot().axes
    found = dict(
        zip([t.get_text() for t in axis.get_yticklabels()], axis.lines[0].get_xdata(), strict=True)
    )
    wanted = {f"class {name}": value for name, value in evaluation["class_coverage"].items()}
    assert found == {"all nodes": evaluation["coverage"], **wanted}


def test_a_wide_table(calibrated):
    sets = calibrated.predict_set(TEST[:3])
    p = calibrated.predict_p(TEST[:3])
    table = sets.to_pandas(wide=True, p=p)
    names = [f"{prefix}_{name}" for prefix in ("in", "p") for name in CLASSES]
    assert table.columns.tolist() == ["id", "size", *names]
    np.testing.assert_array_equal(table[names[:3]], sets.mask)
    np.testing.assert_array_equal(table[names[3:]], p)
    assert sets.to_pandas(wide=True).columns.tolist() == ["id", "size", *names[:3]]
    assert sets.to_pandas().columns.tolist() == ["id", "labels", "size"]
    with pytest.raises(snaps.SnapsError, match="'p' must have shape"):
        sets.to_pandas(wide=True, p=p[:2])
    with pytest.raises(snaps.SnapsError, match="'p' must go with wide=True"):
        sets.to_pandas(p=p)
    with pytest.raises(snaps.SnapsError, match="'wide' must be"):
        sets.to_pandas(wide="yes")


def test_nothing_is_drawn_before_it_is_asked_for():
    import subprocess
    import sys

    code = "import snaps, sys; snaps.PredictionSets; print('matplotlib' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
