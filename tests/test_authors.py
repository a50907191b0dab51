"""`--as-authors`: each habit of the paper's authors against its own words, and the page of both."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import snaps
from snaps._evidence import Evidence
from snaps._inputs import Inputs
from snaps.calibration import conformal_rank
from snaps.datasets import make_graph
from snaps.reproduce import render, tables
from snaps.reproduce.authors import as_authors
from snaps.scorers import DAPS_GRID, SNAPS_GRID
from snaps.scores import RAPS_PENALTIES, score_table

ALPHA = 0.2
PAGE = Path(__file__).resolve().parents[1] / "docs" / "results.md"


@pytest.fixture(scope="module")
def world():
    """A graph where some nodes lack links, and others similar nodes."""
    data = make_graph(400, 4, seed=3, signal=0.3)
    adjacency = data.graph.adjacency.tolil()
    adjacency[:30] = 0
    adjacency[:, :30] = 0
    features = data.graph.features.tolil()
    features[20:60] = 0
    graph = snaps.Graph(sp.csr_array(adjacency), sp.csr_array(features))
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(4), 400) * 0.6 + 0.4 * np.eye(4)[data.labels]
    return graph, probs, data.labels, snaps.similarity_graph(graph.features, 5)


def means(near, table):
    """Weighted means over neighbours; zeros where there are none."""
    out = np.zeros_like(table)
    for i in range(near.shape[0]):
        row = slice(near.indptr[i], near.indptr[i + 1])
        if near.indptr[i] < near.indptr[i + 1]:
            out[i] = np.average(table[near.indices[row]], axis=0, weights=near.data[row])
    return out


def three(world, score, seed=0):
    graph, probs, _, near = world
    own = score_table(score, probs, graph.keys, seed)
    return own, means(near, own), means(graph.adjacency, own)


def fitted(world, method, tuning):
    graph, probs, labels, near = world
    inputs = Inputs.read(graph, probs, near, logits=False)
    evidence = Evidence(graph.ids[tuning], graph.keys[tuning], labels[tuning])
    nobody = Evidence(graph.ids[:0], graph.keys[:0], labels[:0])
    scorer = as_authors(method, graph, near).scorer()
    (found,) = scorer.fit(inputs, evidence, nobody, [Fraction("0.2")])
    return found, inputs.score(found, np.arange(len(labels)))


def size(scores, labels):
    """The mean size of the sets that are not empty, at the nodes' own threshold."""
    true = np.sort(scores[np.arange(len(labels)), labels])
    inside = scores <= true[conformal_rank(len(labels), ALPHA) - 1]
    sizes = inside.sum(axis=1)
    return sizes[sizes > 0].mean()


def test_a_node_without_neighbours_has_a_mean_of_zero(world):
    graph, near = world[0], world[3]
    assert (np.diff(graph.adjacency.indptr) == 0).sum() >= 30
    assert (np.diff(near.indptr) == 0).sum() >= 40
    own, similar, linked = three(world, snaps.APS())
    _, scores = fitted(world, snaps.SNAPS(ALPHA, k=5, weights=(0.3, 0.45)), np.arange(300, 400))
    np.testing.assert_allclose(scores, 0.25 * own + 0.3 * similar + 0.45 * linked, atol=1e-12)
    plain = snaps.SNAPS(ALPHA, k=5, weights=(0.3, 0.45))
    plain.calibrate(graph, world[1], world[2], np.arange(100, 300), similarity=near)
    assert np.abs(plain.scores_ - scores)[:60].max() > 0.1  # the library gives the weight back


@pytest.mark.parametrize("kind, grid", [("snaps", SNAPS_GRID), ("daps", DAPS_GRID)])
def test_weights_have_the_smallest_sets_that_are_not_empty(world, kind, grid):
    tuning = np.arange(60, 130)
    labels = world[2][tuning]
    own, similar, linked = (table[tuning] for table in three(world, snaps.APS()))
    method = {
        "snaps": snaps.SNAPS(ALPHA, k=5, weights="minimum"),
        "daps": snaps.DAPS(ALPHA, weight="minimum"),
    }[kind]
    sizes = [size((1 - (lam + mu)) * own + lam * similar + mu * linked, labels) for lam, mu in grid]
    found, _ = fitted(world, method, tuning)
    assert (found.lam, found.mu) == grid[int(np.argmin(np.round(sizes, 12)))]


def test_raps_too(world):
    graph, probs, labels, _ = world
    tuning = np.arange(60, 130)
    sizes = {
        (penalty, k_reg): size(
            score_table(snaps.RAPS(k_reg=k_reg, penalty=penalty), probs, graph.keys, 0)[tuning],
            labels[tuning],
        )
        for penalty in RAPS_PENALTIES
        for k_reg in (3, 2, 1, 0)
    }
    found, _ = fitted(world, snaps.SplitConformal(ALPHA, score=snaps.RAPS()), tuning)
    assert (found.score.penalty, found.score.k_reg) == min(sizes, key=sizes.get)


def test_their_validation_loss_has_dropout():
    gnn = pytest.importorskip("snaps.models.gnn")
    data = make_graph(300, 3, seed=0)
    nodes = np.arange(300)
    given = data.graph, data.labels, nodes[:60], nodes[60:120]
    ours = gnn.train("gcn", *given, max_epochs=30)
    theirs = gnn.train(replace(gnn.PAPER["gcn"], noisy_validation=True), *given, max_epochs=30)
    assert theirs.valid_loss != ours.valid_loss


# ---- the page -------------------------------------------------------------------------------


def result(as_authors, size):
    row = {
        "dataset": "amazon_computers", "alpha": 0.05, "method": "APS", "coverage": 0.95,
        "size": size, "size_nonempty": size, "size_se": 0.01, "size_nonempty_se": 0.01,
        "singleton_hit": 0.5, "empty": 0.0, "inside_law": True, "paper_size": 3.95,
        "paper_singleton_hit": 0.4,
    }  # fmt: skip
    return {
        "table": "table1", "title": "GCN", "rows": [row, row | {"method": "SNAPS"}], "notes": {},
        "averages": [], "skipped": {}, "cpu_seconds": dict.fromkeys(tables.COSTS, 1.0),
        "settings": {"draws": 10, "splits": 100, "seed": 0, "as_authors": as_authors},
    }  # fmt: skip


def test_a_page_shows_both_ways_and_lists_what_is_far(tmp_path):
    for theirs, mean in ((False, 2.9), (True, 3.94)):
        render.write(result(theirs, mean), tmp_path)
    assert {path.name for path in tmp_path.glob("*.json")} == {
        "table1.json", "table1-as-authors.json",
    }  # fmt: skip
    render.page(tmp_path, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "| 2.900 ± 0.010 | 3.940 ± 0.010 | 3.95 | -26.6% | -0.3% |" in text
    far = next(line for line in text.splitlines() if line.startswith("- Beyond two standard"))
    assert "Amazon Computers APS at 0.05 -26.6% (the paper itself" in far
    assert "Amazon Computers SNAPS at 0.05 -26.6%" in far
    assert "- As the authors: Beyond" not in text
    assert "- As the authors: Mean absolute difference from the paper: APS 0.3%, SNAPS" in text
    assert "| [table1: GCN](#table1-gcn) | 2 | 2 of 2 | 0 of 2 | 2 of 2 |" in text


def test_numbers_of_the_page_are_those_of_the_files():
    """Every cell of every table on the page, made anew from the committed JSON."""
    page = PAGE.read_text()
    folder, seen = PAGE.parent / "results", 0
    for source in sorted(folder.glob("*.json")):
        found = json.loads(source.read_text())
        if found["settings"].get("as_authors"):
            continue
        theirs = folder / f"{source.stem}-as-authors.json"
        if theirs.exists():
            found["theirs"] = json.loads(theirs.read_text())
        text = render.markdown(found, "results")
        start = page.index(text.splitlines()[0])
        stop = page.find("\n## ", start + 1)
        assert page[start : None if stop < 0 else stop].strip() == text.strip(), source.name
        seen += len(found["rows"])
    assert seen > 1000


def test_links_of_the_summary_lead_to_headings():
    page = PAGE.read_text()
    headings = {render.anchor(line[3:]) for line in page.splitlines() if line.startswith("## ")}
    links = re.findall(r"\]\(#([^)]+)\)", page)
    assert len(links) > 20 and set(links) <= headings
