"""The site: built without warnings, searched and looked at in a real browser, opened from disk."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.report.test_browser import AXE, DESKTOP, PHONE, driver

REPOSITORY = Path(__file__).parents[2]
DOCS = sorted((REPOSITORY / "docs").glob("*.md"))

__all__ = ["driver"]


def build(source, target):
    for module in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(module)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", source, target]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages, built once."""
    folder = tmp_path_factory.mktemp("site")
    done = build(REPOSITORY / "docs", folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_is_built_without_warnings_and_opens_from_disk(site):
    pages = list(site.rglob("*.html"))
    assert {page.stem for page in pages} >= {page.stem for page in DOCS} | {"sample-report"}
    loaded = re.compile(r"<(?:script|img|source)[^>]* src=\"([^\"]+)|<link[^>]* href=\"([^\"]+)")
    for page in pages:
        for found in loaded.findall(page.read_text()):
            assert "://" not in "".join(found), f"{page.name} loads {found}"


def test_the_reference_lists_attributes_links_names_and_sources(site):
    text = (site / "reference" / "SNAPS.html").read_text()
    shown = re.sub(r"<[^>]+>", "", text)
    assert "weights_: (lam, mu)" in shown
    for name in ("threshold_", "scores_", "score_", "calib_nodes_", "tune_nodes_", "classes_"):
        assert f'<span class="pre">{name}</span>' in text, name
    assert "[source]" in shown and "../_modules/snaps/estimators.html" in text
    assert "numpy.org/doc/stable" in (site / "api.html").read_text()
    assert 'href="reference/Pooled.html#snaps.Pooled"' in (site / "start.html").read_text()


def test_the_tutorial_shows_the_notebook_with_its_outputs(site):
    text = (site / "tutorial.html").read_text()
    assert text.count("data:image/png;base64") == 3
    assert "labels per set" in text and "minutes per paper" in text


class Search:
    """The site's own search: pages that have all words of a query."""

    def __init__(self, folder):
        text = (folder / "searchindex.js").read_text()
        index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
        self.names, self.tables = index["docnames"], (index["terms"], index["titleterms"])

    def __call__(self, query):
        from snowballstemmer import stemmer

        stem = stemmer("english").stemWord
        found = set(range(len(self.names)))
        for word in re.findall(r"\w+", query.lower()):
            places = [table.get(stem(word), []) for table in self.tables]
            found &= {n for each in places for n in ([each] if isinstance(each, int) else each)}
        return {self.names[n] for n in found}


FOUND = {  # what newcomers search for, and a page that must answer
    "drift": "production",
    "uncertainty": "index",
    "transductive": "concepts",
    "imbalanced": "imbalanced",
    "mini batch": "minibatch",
    "heterophily": "heterophily",
    "GPU": "install",
    "multi label": "faq",
    "Windows": "install",
    "imbalanced classes": "faq",
    "many calibration nodes": "faq",
    "graph larger memory": "scale",
    "tuned calibration nodes valid": "faq",
    "cite": "references",
    "CUDA tensors": "own_model",
    "time stamps": "faq",
    "edges whole graphs regression": "faq",
    "good alpha": "faq",
    "calibration set": "glossary",
    "isolated node": "groups",
    "synthetic graph": "start",
    "bibtex": "references",
}


@pytest.mark.parametrize("query", FOUND)
def test_search_finds_what_newcomers_ask_for(site, query):
    assert FOUND[query] in Search(site)(query)


def test_search_does_not_find_what_is_not_there(site):
    assert not Search(site)("calibration flugelhorn")


def test_broken_links_break_the_build(tmp_path):
    (tmp_path / "conf.py").write_text((REPOSITORY / "docs" / "conf.py").read_text())
    (tmp_path / "static").mkdir()
    for name in ("pages.css", "pages.js", "scorer.js"):
        (tmp_path / "static" / name).touch()
    links = ["[gone](page.md)", "![gone](picture.png)", "[gone](#place)"]
    (tmp_path / "index.md").write_text("\n\n".join(["# A page", *links]))
    done = build(tmp_path, tmp_path / "out")
    assert done.returncode != 0
    assert all(name in done.stderr for name in ("page.md", "picture.png", "place")), done.stderr


# ---- In a browser --------------------------------------------------------------------------------


def open_page(driver, path, size=DESKTOP, query="", dark=False):
    wish = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wish})
    width, height = size
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    driver.get(f"{path.as_uri()}{query}")


def hits(driver, site, query):
    """The pages that the search page lists, best first, each once."""
    from selenium.webdriver.support.ui import WebDriverWait

    open_page(driver, site / "search.html", query=f"?q={quote(query)}")
    done = "return !!document.querySelector('#search-results p.search-summary')"
    WebDriverWait(driver, 20, 0.05).until(lambda _: driver.execute_script(done))
    WebDriverWait(driver, 20, 0.05).until(
        lambda _: "Searching" not in driver.find_element("id", "search-results").text
    )
    links = driver.find_elements("css selector", "#search-results ul.search > li > a")
    pages = [re.search(r"/([^/]+)\.html", link.get_attribute("href"))[1] for link in links]
    return list(dict.fromkeys(pages))


QUESTIONS = {  # the questions of a newcomer, and the pages that answer
    "imbalanced classes": {"faq", "imbalanced"},
    "how many calibration nodes": {"faq"},
    "graph larger than memory": {"faq", "scale"},
    "tuned on calibration nodes valid": {"faq", "guarantee"},
    "cite": {"references", "faq"},
    "GPU": {"faq", "install"},
    "time stamps": {"faq", "production", "labels-over-time"},
    "multi-label": {"faq"},
    "edges or graphs": {"faq"},
    "good alpha": {"faq", "choosing"},
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_at_the_first_or_second_hit(driver, site, question):
    found = hits(driver, site, question)
    assert QUESTIONS[question] & set(found[:2]), found[:6]


@pytest.mark.parametrize(
    "page, size, dark",
    [
        ("index", DESKTOP, False),
        ("index", PHONE, True),
        ("reference/SNAPS", DESKTOP, True),
        ("results", PHONE, False),
        ("concepts", DESKTOP, False),
    ],
)
def test_pages_are_accessible(driver, site, page, size, dark):
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm ci")
    open_page(driver, site / f"{page}.html", size, dark=dark)
    driver.execute_script(AXE.read_text())
    found = driver.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    assert found["passes"]
    bad = [
        (one["id"], one["nodes"][0]["html"][:200], one["nodes"][0]["failureSummary"])
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]
    assert not bad
    assert driver.execute_script("return document.documentElement.scrollWidth") <= size[0]
