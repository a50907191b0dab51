"""The report in a real browser: opened from disk, clicked through, held against the numbers.

Needs Chromium and its driver, and axe-core from package.json (`npm ci`); without them the tests
that need them are skipped.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

import snaps
from snaps.datasets import load, make_graph
from snaps.models import smoothed_regression
from snaps.report.charts import percent
from tests.helpers.small import made
from tests.report.common import CALIB, HOSTILE, METHODS, TEST, calibrate, hostile

AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
PHONE, DESKTOP = (390, 844), (1200, 900)


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """A headless Chromium that keeps a record of its console and its requests."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    binary, service = shutil.which("chromium"), shutil.which("chromedriver")
    if not binary or not service:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(service))
    yield browser
    browser.quit()


class Visit:
    """A page in the browser, and what a reader does with it."""

    def __init__(self, driver, path, address="", size=DESKTOP, dark=False):
        self.driver = driver
        driver.get("about:blank")
        self.console(), self.requests()
        wishes = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wishes})
        width, height = size
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        driver.get(f"{Path(path).as_uri()}{address}")
        self.until("document.documentElement.dataset.ready === 'yes'")

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def until(self, condition):
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 20, 0.05).until(lambda _: self.run(f"return {condition}"))

    def find(self, css):
        return self.driver.find_element("css selector", css)

    def all(self, css):
        return self.driver.find_elements("css selector", css)

    def text(self, css):
        return " ".join(self.find(css).text.split())

    def choose(self, css, label):
        from selenium.webdriver.support.ui import Select

        Select(self.find(css)).select_by_visible_text(label)

    def node(self):
        """The id of the node shown."""
        return self.run("return document.querySelector('#node-heading bdi')?.textContent")

    def until_node(self, name):
        self.until(f"document.querySelector('#node-heading')?.textContent === {f'Node {name}'!r}")

    def until_found(self, count):
        self.until(f"document.querySelector('#found').textContent.startsWith('{count} of')")

    def console(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self):
        entries = [json.loads(e["message"])["message"] for e in self.driver.get_log("performance")]
        sent = [e["params"] for e in entries if e["method"] == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in sent]

    def press(self, *keys):
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report on the synthetic graph, whose sets are known."""
    path = tmp_path_factory.mktemp("made") / "report.html"
    cp = calibrate(snaps.SNAPS(0.1))
    cp.report(path, made().labels, TEST, title="made")
    return cp, path


# ---- Opening -------------------------------------------------------------------------------------


def check_opens(driver, path, evaluation):
    """No request but for the file, no word on the console, the numbers of `evaluate`."""
    visit = Visit(driver, path)
    assert visit.requests() == [Path(path).as_uri()]
    assert visit.console() == []
    promised, observed = percent(1 - 0.05), percent(evaluation["coverage"])
    below = ", within chance" if evaluation["coverage"] < 0.95 else ""
    headline = f"Kept: {promised} promised, {observed} observed{below}."
    assert visit.text("h1") == " ".join(headline.split())
    for name in ("coverage", "size", "empty", "singleton_hit", "n_calib", "n_tune"):
        shown = visit.run(f"return document.querySelector('data.{name}').value")
        assert float(shown) == evaluation[name], name
    return visit


def test_the_demo(driver, tmp_path):
    from snaps.cli import main

    with pytest.raises(SystemExit):
        main(["demo", "--nodes", "600", "--out", str(tmp_path / "demo"), "--json"])
    data = snaps.folder.read_folder(tmp_path / "demo" / "graph")
    cp = snaps.Pooled(0.05).calibrate(
        data.graph,
        data.probs,
        data.labels,
        data.nodes("calib"),
        known_nodes=data.nodes("train"),
        classes=data.classes,
    )
    evaluation = cp.evaluate(data.labels, data.nodes("test"))
    check_opens(driver, tmp_path / "demo" / "report.html", evaluation)


@pytest.mark.filterwarnings("ignore:class 5 is covered")
def test_a_real_graph(driver, tmp_path, data_dir):
    data = load("cora_ml", data_dir)
    order = np.random.default_rng(0).permutation(data.graph.num_nodes)
    probs = smoothed_regression(data.graph, data.labels, order[:140])
    cp = snaps.SNAPS(0.05).calibrate(data.graph, probs, data.labels, order[140:1140])
    cp.report(tmp_path / "r.html", data.labels, order[1140:])
    visit = check_opens(driver, tmp_path / "r.html", cp.evaluate(data.labels, order[1140:]))
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    ready = "performance.getEntriesByName('nodes-ready')[0].startTime"
    assert visit.run(f"return {paint} < {ready}")
    node = int(order[1500])
    visit.run(f"location.hash = '#node={node}'")
    visit.until_node(node)
    shown = {one.text for one in visit.all("#node .chips li")}
    assert shown == {str(label) for label in cp.predict_set([node])[0]}
    visit = Visit(driver, tmp_path / "r.html", "", PHONE)
    assert visit.run("return document.documentElement.scrollWidth") <= PHONE[0]


@pytest.mark.parametrize("name", METHODS)
def test_every_method(driver, tmp_path, name):
    cp = calibrate(METHODS[name])
    cp.report(tmp_path / "r.html", made().labels, TEST)
    ids = made().graph.ids if cp.calib_ids_.dtype.kind == "U" else np.arange(400)
    visit = Visit(driver, tmp_path / "r.html", f"#node={ids[300]}")
    assert visit.console() == [] and visit.node() == str(ids[300])
    shown = [one.text for one in visit.all("#node .chips li")]
    assert shown == [str(label) for label in cp.predict_set([300])[0]]
    explanation = cp.explain(300)
    mixed = {
        one.find_element("css selector", "strong").text: one.find_element(
            "css selector", ".bars > div:last-child .number"
        ).text
        for one in visit.all(".labels li")
    }
    assert mixed == {
        str(y): f"{score:.3f} {'≤' if inside else '>'} {limit:.3f}"
        for y, score, limit, inside in zip(
            explanation.classes,
            explanation.mixed,
            explanation.threshold,
            explanation.inside,
            strict=True,
        )
    }


def test_without_labels_nodes_or_threshold(driver, tmp_path):
    cp = calibrate(snaps.SNAPS(0.1))
    cp.report(tmp_path / "r.html")
    visit = Visit(driver, tmp_path / "r.html")
    assert visit.text("h1") == "90 % promised; not yet checked." and visit.console() == []
    cp.report(tmp_path / "r.html", None, [])
    visit = Visit(driver, tmp_path / "r.html")
    assert visit.console() == [] and "400 of 400 nodes" in visit.text("#found")
    case = made()
    with pytest.warns(snaps.SnapsWarning, match="infinite"):
        cp = snaps.SplitConformal(0.1).calibrate(None, case.probs, case.labels, CALIB[:5])
    cp.report(tmp_path / "r.html", case.labels)
    visit = Visit(driver, tmp_path / "r.html", "#node=300")
    assert visit.console() == [] and len(visit.all("#node .chips li")) == 3
    assert "≤ ∞" in visit.text(".labels li")


# ---- Exploring -----------------------------------------------------------------------------------


def test_find_filter_follow_and_go_back(driver, page):
    cp, path = page
    case, visit = made(), Visit(driver, path)
    sets = cp.predict_set(TEST)
    hits = sets.mask[np.arange(len(TEST)), case.labels[TEST]]
    assert visit.text("#found") == f"{len(TEST)} of 400 nodes found."
    visit.choose("#by-size", "1")
    visit.until_found((sets.sizes == 1).sum())
    visit.choose("#by-hit", "missed")
    visit.until_found(((sets.sizes == 1) & ~hits).sum())
    visit.find("#filters button[type=reset]").click()
    visit.until_found(400)
    visit.choose("#by-role", "calibration")
    visit.until_found(len(cp.calib_nodes_))
    visit.choose("#by-role", "predicted")
    visit.choose("#by-truth", "2")
    visit.until_found((case.labels[TEST] == 2).sum())
    visit.choose("#order", "largest sets first")
    first = visit.all("#rows tr")[0].find_elements("css selector", "td")
    largest = sets.sizes[case.labels[TEST] == 2].max()
    assert len(first[1].text.split(", ")) == largest
    visit.find("#filters button[type=reset]").click()

    linked = next(i for i in TEST if case.graph.adjacency[[i]].nnz > 2)
    name = str(case.graph.ids[linked])
    visit.find("#find").send_keys(name)
    visit.find("#filters button[type=submit]").click()
    visit.until_node(name)
    assert visit.driver.current_url.endswith(f"#node={name}")
    assert visit.run("return document.activeElement.id") == "node-heading"
    neighbour = visit.all(".near[open] a, .near a")[0]
    visit.run("document.querySelectorAll('.near').forEach((one) => { one.open = true; })")
    other = neighbour.text
    neighbour.click()
    visit.until_node(other)
    visit.driver.back()
    visit.until_node(name)
    visit.driver.forward()
    visit.until_node(other)
    visit.find(".picture .open").click()
    visit.until(f"!location.hash.endsWith('={other}')")
    assert visit.console() == []


def test_neighbours_weigh_what_explain_says(driver, page):
    cp, path = page
    case = made()
    node = next(i for i in TEST if case.graph.adjacency[[i]].nnz > 2)
    visit = Visit(driver, path, f"#node={case.graph.ids[node]}")
    visit.run("document.querySelectorAll('.near').forEach((one) => { one.open = true; })")
    explanation = cp.explain(int(node))
    for box, part in zip(visit.all(".near"), ("similar", "linked"), strict=True):
        rows = [row.text.split() for row in box.find_elements("css selector", "tbody tr")]
        expected = {str(one.id): one.weight for one in explanation.neighbours if one.part == part}
        assert {row[0]: row[1] for row in rows} == {
            name: f"{100 * weight:.1f}" for name, weight in expected.items()
        }


def test_a_deep_link_and_one_that_leads_nowhere(driver, page):
    _, path = page
    name = str(made().graph.ids[321])
    visit = Visit(driver, path, f"#node={name}", PHONE)
    assert visit.node() == name
    top = visit.run("return document.querySelector('#node').getBoundingClientRect().top")
    assert 0 <= top < PHONE[1] / 2
    visit = Visit(driver, path, "#node=stranger%20%3Cb%3E")
    assert visit.text("#node") == "No such node There is no node stranger <b> in this graph."
    visit = Visit(driver, path, "#node=%E0%A4%A")
    assert visit.text("#node-heading") == "No such node" and visit.console() == []


def test_pages_of_the_list(driver, page):
    visit = Visit(driver, page[1])
    first = visit.text("#rows tr a")
    assert visit.find("#before").get_attribute("disabled") and len(visit.all("#rows tr")) == 20
    visit.find("#after").click()
    assert visit.text("#page") == "page 2 of 8" and visit.text("#rows tr a") != first
    visit.find("#before").click()
    assert visit.text("#rows tr a") == first


def test_rows_open_their_node_and_a_phone_finds_the_way_back(driver, page):
    visit = Visit(driver, page[1], "", PHONE)
    row = visit.all("#rows tr")[3]
    name = row.find_element("css selector", "a").text
    row.find_elements("css selector", "td")[1].click()
    visit.until_node(name)
    back = visit.find(".back a")
    assert back.is_displayed() and back.size["height"] >= 24
    assert min(one.size["height"] for one in visit.all("#rows a")) >= 24
    visit.run("document.querySelector('.back a').click()")
    visit.until("Math.abs(document.querySelector('#results').getBoundingClientRect().top) < 40")
    assert visit.node() == name and visit.console() == []
    assert not Visit(driver, page[1]).find(".back a").is_displayed()


def test_contents_and_examples_lead_where_they_say(driver, page):
    visit = Visit(driver, page[1])
    for link in visit.all("#contents a"):
        assert visit.find(
            link.get_attribute("href").rpartition("#")[2].join(("#", ""))
        ).is_displayed()
    example = visit.find(".examples a")
    name = example.find_element("css selector", "bdi").text
    example.click()
    visit.until_node(name)


def test_the_five_answers_are_on_the_first_two_screens_of_a_phone(driver, page):
    visit = Visit(driver, page[1], "", PHONE)
    ends = visit.run(
        "return [...document.querySelectorAll('.answers > div')].map((one) => "
        "one.getBoundingClientRect().bottom + scrollY)"
    )
    assert len(ends) == 5 and max(ends) < 2 * PHONE[1]
    widths = [one.size["width"] for one in visit.all(".slices tbody .whisker")]
    assert min(widths) >= 110


def test_each_kind_of_neighbour_looks_alike_in_all_methods(driver, tmp_path):
    looks = []
    for name in ("snaps", "pooled"):
        calibrate(METHODS[name]).report(tmp_path / "r.html", made().labels, TEST)
        node = next(i for i in TEST if made().graph.adjacency[[i]].nnz > 2)
        visit = Visit(driver, tmp_path / "r.html", f"#node={made().graph.ids[node]}")
        entries = [one.get_attribute("textContent") for one in visit.all(".kinds li")]
        colours = [one.value_of_css_property("color") for one in visit.all(".kinds li span")]
        looks.append(
            {
                entry.partition(" ")[2].partition(" ")[2]: (entry[0], colour)
                for entry, colour in zip(entries, colours, strict=True)
            }
        )
    assert {"similar nodes", "linked nodes"} <= set(looks[0]) & set(looks[1])
    assert all(looks[0][kind] == looks[1][kind] for kind in set(looks[0]) & set(looks[1]))


def test_the_keyboard_is_enough(driver, page):
    from selenium.webdriver.common.keys import Keys

    visit = Visit(driver, page[1])
    visit.press(Keys.TAB)
    assert visit.run("return document.activeElement.textContent") == "Skip to single nodes"
    visit.press(Keys.ENTER)
    while visit.run("return document.activeElement.id") != "find":
        visit.press(Keys.TAB)
    name = str(made().graph.ids[350])
    visit.press(name, Keys.ENTER)
    visit.until_node(name)
    assert visit.run("return document.activeElement.id") == "node-heading"
    for _ in range(30):
        visit.press(Keys.TAB)
        if visit.run("return document.activeElement.tagName") == "SUMMARY":
            break
    visit.press(Keys.ENTER)
    for _ in range(3):
        visit.press(Keys.TAB)
        if visit.run("return document.activeElement.tagName") == "A":
            break
    other = visit.run("return document.activeElement.title")
    visit.press(Keys.ENTER)
    visit.until_node(other)
    assert other != name


def test_names_that_try_to_be_markup_are_shown_as_text(driver, tmp_path):
    _, classes = hostile(tmp_path)
    name = f"{HOSTILE}300"
    for size in (DESKTOP, PHONE):
        visit = Visit(driver, tmp_path / "r.html", f"#node={quote(name)}", size)
        assert visit.console() == [] and visit.node() == name
        shown = visit.run(
            "return [...document.querySelectorAll('#node .chips li')].map(x => x.textContent)"
        )
        assert set(shown) <= set(classes) and shown
        assert visit.run("return document.scripts.length") == 2
        assert visit.run("return document.querySelectorAll('main b, main i').length") == 0
        assert visit.run("return document.documentElement.scrollWidth") <= size[0]


def test_names_written_from_right_to_left_do_not_turn_the_words_beside_them(driver, tmp_path):
    case = made()
    names = ["\u202eone", "\u202etwo", "\u05d0\u05d1"]
    truth = np.array(names)[case.labels]
    cp = snaps.SNAPS(0.1).calibrate(case.graph, case.probs, truth, CALIB, classes=names)
    cp.report(tmp_path / "r.html", truth, TEST)
    visit = Visit(driver, tmp_path / "r.html")
    gaps = visit.run("""
        const range = document.createRange();
        return [...document.querySelectorAll('.about bdi')].map((name) => {
          range.selectNodeContents(name.nextSibling);
          return range.getBoundingClientRect().left - name.getBoundingClientRect().right;
        });
    """)
    assert len(gaps) == 2 and min(gaps) > -1  # the words that follow a name stand right of it


@pytest.mark.parametrize("width", [360, 320])
def test_narrow_phones_need_no_sideways_scrolling(driver, tmp_path, width):
    data = make_graph(3000, 6, homophily=0.7, degree=3, signal=1.5, seed=0)
    training, calib, test = np.split(np.random.default_rng(0).permutation(3000), [120, 1120])
    probs = smoothed_regression(data.graph, data.labels, training)
    cp = snaps.SNAPS(0.05).calibrate(data.graph, probs, data.labels, calib)
    cp.report(tmp_path / "r.html", data.labels, test)
    visit = Visit(driver, tmp_path / "r.html", size=(width, 800))
    assert "▼" in visit.text(".tables")
    assert visit.run("return document.documentElement.scrollWidth") <= width


# ---- Looking -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size", "dark"),
    [
        ("snaps", DESKTOP, False),
        ("snaps", PHONE, True),
        ("pooled", DESKTOP, True),
        ("classes", PHONE, False),
    ],
)
def test_accessibility(driver, tmp_path, name, size, dark):
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm ci")
    calibrate(METHODS[name]).report(tmp_path / "r.html", made().labels, TEST)
    visit = Visit(driver, tmp_path / "r.html", "", size, dark)
    visit.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    visit.run(AXE.read_text())
    found = visit.driver.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    assert found["passes"]
    bad = [
        (one["id"], one["nodes"][0]["html"][:200], one["nodes"][0]["failureSummary"])
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]
    assert not bad
    assert visit.run("return document.documentElement.scrollWidth") <= size[0]


def test_it_prints_dark_on_white(driver, page):
    visit = Visit(driver, page[1], dark=True)
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    ink = "return getComputedStyle(document.querySelector('h1')).color"
    assert max(map(int, re.findall(r"\d+", visit.run(ink)))) < 80
    assert not visit.find("#explorer").is_displayed() and visit.find("#coverage-title")
    wide = "return document.documentElement.scrollWidth <= innerWidth"
    assert visit.run(wide)
    assert (
        len(driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"]) > 10_000
    )
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
