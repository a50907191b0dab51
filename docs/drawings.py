"""Draw the ideas and the main chart as SVG: python docs/drawings.py

The drawings are computed: a synthetic graph, its classifier and its sets give the numbers of the
idea, and the files in docs/results those of the charts. An SVG follows the reader's colour scheme.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import snaps
from snaps.conformal.rank import conformal_rank
from snaps.datasets import make_graph
from snaps.models import smoothed_regression

DOCS = Path(__file__).parent
AREAS = ("biology", "history", "law", "physics")
GRAPHS = {
    "cora_ml": "CoraML",
    "pubmed": "PubMed",
    "citeseer": "CiteSeer",
    "coauthor_cs": "Coauthor CS",
    "coauthor_physics": "Coauthor Physics",
    "amazon_computers": "Amazon Computers",
    "amazon_photo": "Amazon Photo",
}
STYLE = """
  text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
  .paper { fill: #ffffff } .ink { fill: #1d2125 } .dim { fill: #5c636b }
  .line { stroke: #1d2125 } .faint { stroke: #d4d7da } .soft { fill: #eef0f2 }
  .a { fill: #0072b2 } .b { fill: #d55e00 } .c { fill: #009e73 } .d { fill: #b0628f }
  .grey { fill: #9aa1a8 } .none { fill: none } .edge { stroke: #9aa1a8 } .cut { stroke: #c0392b }
  .cuttext { fill: #c0392b }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #16191d } .ink { fill: #eceae6 } .dim { fill: #a9b0b7 }
    .line { stroke: #eceae6 } .faint { stroke: #3a4047 } .soft { fill: #23282e }
    .a { fill: #4fa8dc } .b { fill: #f08b3c } .c { fill: #35c39a } .d { fill: #dc94bd }
    .cut { stroke: #ff7b6b } .cuttext { fill: #ff7b6b }
  }
"""
COLOURS = "abcd"


class Drawing:
    """Shapes, in the order in which they are drawn."""

    def __init__(self, name: str, width: int, height: int, says: str) -> None:
        self.name, self.width, self.height, self.says = name, width, height, says
        self.shapes: list[str] = []

    def add(self, tag: str, kind: str, text: str = "", **values: Any) -> None:
        """One element; underscores in names stand for hyphens."""
        pairs = [f'class="{kind}"']
        for key, value in values.items():
            shown = f"{value:.5g}" if isinstance(value, float) else value
            pairs.append(f'{key.replace("_", "-")}="{shown}"')
        end = f">{text}</{tag}>" if text else "/>"
        self.shapes.append(f"  <{tag} {' '.join(pairs)}{end}")

    def text(
        self, x: float, y: float, text: str, kind: str = "ink", size: int = 15, **more: Any
    ) -> None:
        self.add("text", kind, text, x=float(x), y=float(y), font_size=size, **more)

    def line(
        self, x1: float, y1: float, x2: float, y2: float, kind: str = "line", width: float = 1.5,
        **more: Any,
    ) -> None:  # fmt: skip
        ends = {"x1": float(x1), "y1": float(y1), "x2": float(x2), "y2": float(y2)}
        self.add("line", kind, stroke_width=width, **ends, **more)

    def box(
        self, x: float, y: float, width: float, height: float, kind: str, round: float = 3
    ) -> None:
        size = {"width": float(width), "height": float(height)}
        self.add("rect", kind, x=float(x), y=float(y), rx=round, **size)

    def dot(self, x: float, y: float, radius: float, kind: str, **more: Any) -> None:
        self.add("circle", kind, cx=float(x), cy=float(y), r=float(radius), **more)

    def chips(self, x: float, y: float, names: Iterable[str], kinds: Iterable[str]) -> None:
        """A prediction set: names in boxes, between braces."""
        self.text(x, y, "{", size=22)
        x += 13
        for name, kind in zip(names, kinds, strict=True):
            width = 8.3 * len(name) + 16
            self.box(x, y - 18, width, 25, "soft", 12)
            self.dot(x + 12, y - 5.5, 4.5, kind)
            self.text(x + 20, y - 0.5, name, size=14)
            x += width + 12
        self.text(x - 4, y, "}", size=22)

    def stack(self, panels: Iterable[tuple[int, int]], height: int, notes: Sequence[str]) -> None:
        """Write it for a phone: its panels, (left, width), below one another, and notes."""
        narrow, down = Drawing(self.name, max(w for _, w in panels) + 20, 0, self.says), 0
        narrow.shapes = [f'  <symbol id="all" overflow="visible">{"".join(self.shapes)}</symbol>']
        for left, width in panels:
            size = f'width="{width}" height="{height}" viewBox="{left} 0 {width} {height}"'
            narrow.shapes.append(f'  <svg y="{down}" {size}><use href="#all"/></svg>')
            down += height
        for note in notes:
            narrow.text(24, down + 16, note, "dim", 14)
            down += 20
        narrow.height = down + 10
        narrow.write(phone=True)

    def write(self, phone: bool = False) -> None:
        """Write the file; the one for phones lies with the style sheet that shows it."""
        path = DOCS / ("static" if phone else "pictures") / f"{self.name}.svg"
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img">'
        )
        paper = '  <rect class="paper" width="100%" height="100%" rx="8"/>'
        lines = [head, f"  <title>{self.says}</title>", f"  <style>{STYLE}  </style>", paper]
        path.write_text("\n".join([*lines, *self.shapes, "</svg>"]) + "\n")
        print(f"wrote {path.name}: {self.says}")


class Example:
    """A synthetic citation graph, its classifier, and one node that the classifier gets wrong."""

    ALPHA, NODE = 0.1, 1618

    def __init__(self) -> None:
        data = make_graph(3000, 4, homophily=0.7, degree=3, signal=1.2, seed=3)
        order = np.random.default_rng(0).permutation(3000)
        train, calib, self.test = np.split(order, [100, 1100])
        self.graph, self.labels = data.graph, data.labels
        self.probs = smoothed_regression(data.graph, data.labels, train)
        self.alone = snaps.SplitConformal(self.ALPHA, score=snaps.THR())
        self.alone.calibrate(None, self.probs, data.labels, calib)
        self.pooled = snaps.Pooled(self.ALPHA)
        self.pooled.calibrate(data.graph, self.probs, data.labels, calib, known_nodes=train)

    def neighbours(self) -> np.ndarray:
        adjacency = self.graph.adjacency
        return adjacency.indices[adjacency.indptr[self.NODE] : adjacency.indptr[self.NODE + 1]]


def draw_idea(example: Example) -> None:
    """A node, its neighbours, and its set without and with them."""
    truth = AREAS[example.labels[example.NODE]]
    picture = Drawing(
        "idea", 900, 350,
        "An ambiguous node: the classifier alone needs three labels, with its neighbours one",
    )  # fmt: skip
    picture.text(24, 36, "A node and its links", size=17, font_weight=600)
    near, x, y = example.neighbours(), 138, 160
    for place, node in enumerate(near):
        angle = 2 * math.pi * (place + 0.25) / len(near)
        there = x + 92 * math.cos(angle), y + 78 * math.sin(angle)
        picture.line(x, y, *there, kind="edge", width=2)
        picture.dot(*there, 15, COLOURS[int(example.probs[node].argmax())])
    picture.dot(x, y, 25, "paper line", stroke_width=2.5)
    picture.text(x, y + 9, "?", size=26, text_anchor="middle", font_weight=600)
    for place, name in enumerate(AREAS):
        across, down = 36 + 104 * (place % 2), 286 + 24 * (place // 2)
        picture.dot(across, down - 5, 6, COLOURS[place])
        picture.text(across + 12, down, name, "dim", 14)

    panels = (
        (296, "The classifier alone", example.alone, example.probs),
        (632, "With its neighbours", example.pooled, example.pooled.probs_),
    )
    for left, title, method, probs in panels:
        cut, row = 1 - float(method.threshold_), probs[example.NODE]
        inside = [place for place in range(4) if row[place] >= cut]
        assert list(method.predict_set([example.NODE])[0]) == inside
        picture.text(left, 36, title, size=17, font_weight=600)
        start, width = left + 66, 145
        at = start + width * cut
        for place, name in enumerate(AREAS):
            down, kept = 62 + 38 * place, place in inside
            bar = width * float(row[place])
            picture.text(start - 8, down + 19, name, size=14, text_anchor="end")
            picture.box(start, down, max(bar, 2), 26, COLOURS[place] if kept else "grey")
            shown = f"{row[place]:.0%}".replace("%", " %")
            ends = start + bar + 7
            ends = at + 7 if ends - 4 < at < ends + 36 else ends  # not across the line
            picture.text(ends, down + 19, shown, "dim", 14)
        picture.line(at, 52, at, 216, "cut", 2, stroke_dasharray="5 4")
        anchor = {} if at < start + 60 else {"text_anchor": "middle"}
        words = f"cut-off {cut:.0%}".replace("%", " %")
        picture.text(at if anchor else at - 4, 234, words, "cuttext", 14, **anchor)
        picture.text(left, 268, "prediction set", "dim", 14)
        picture.chips(
            left, 300, [AREAS[place] for place in inside], [COLOURS[place] for place in inside]
        )
    notes = (
        f"True label: {truth}. The cut-offs were set on",
        "labelled calibration nodes, for 90 % coverage.",
    )
    picture.stack([(0, 272), (272, 336), (608, 292)], 318, notes)
    picture.line(272, 24, 272, 308, "faint")
    picture.line(608, 24, 608, 308, "faint")
    picture.text(24, 338, " ".join(notes), "dim", 14)
    picture.write()


def draw_sizes(phone: bool = False) -> dict[str, float]:
    """Labels per set of four methods on the seven graphs with their own features."""
    methods = {"APS": "grey", "DAPS": "b", "SNAPS": "c", "Pooled": "a"}
    sizes: dict[str, dict[str, float]] = {name: {} for name in methods}
    for table, renamed in (("table1", {}), ("pooled", {"SNAPS": "", "SNAPS, minimum": ""})):
        result = json.loads((DOCS / "results" / f"{table}.json").read_text())
        for row in result["rows"]:
            name = renamed.get(row["method"], row["method"])
            if row["alpha"] == 0.05 and name in sizes and row["dataset"] in GRAPHS:
                sizes[name][row["dataset"]] = row["size"]
    means = {name: float(np.mean([found[g] for g in GRAPHS])) for name, found in sizes.items()}
    says = ", ".join(f"{name} {value:.2f}" for name, value in means.items())
    left, width, top = (165, 280, 116) if phone else (190, 620, 92)
    step, low, high = 33, 0.9, 3.0
    picture = Drawing(
        "sizes", left + width + 50 - 20 * phone, top + 308,
        f"Labels per set at 95 % coverage, mean of seven: {says}",
    )  # fmt: skip
    better = "" if phone else " (fewer is better)"
    picture.text(24, 34, f"Labels per set at 95 % coverage{better}", size=17, font_weight=600)

    def across(value: float) -> float:
        return left + width * (value - low) / (high - low)

    for place, (name, colour) in enumerate(methods.items()):
        at, down = (left + 140 * (place % 2), 58 + 24 * (place // 2)) if phone else (
            left + 150 * place, 58,
        )  # fmt: skip
        picture.dot(at, down, 7, colour)
        note = " (paper)" if name == "SNAPS" else ""
        picture.text(at + 13, down + 5, name + note, "ink" if name == "Pooled" else "dim", 15)
    for tick in (1.0, 1.5, 2.0, 2.5, 3.0):
        picture.line(across(tick), top - 14, across(tick), top + 8 * step - 8, "faint", 1)
        picture.text(across(tick), top + 8 * step + 12, f"{tick:g}", "dim", 14,
                     text_anchor="middle")  # fmt: skip
    rows = [*GRAPHS.items(), ("", "Mean of seven")]
    for place, (key, shown) in enumerate(rows):
        y = top + step * place
        values = {name: found[key] if key else means[name] for name, found in sizes.items()}
        picture.text(
            left - 16, y + 5, shown, size=15, text_anchor="end",
            font_weight=400 if key else 600,
        )  # fmt: skip
        picture.line(across(min(values.values())), y, across(max(values.values())), y, "faint", 3)
        for name, value in values.items():
            picture.dot(across(value), y, 7, methods[name])
        if not key:
            for name in ("APS", "Pooled") if phone else methods:
                picture.text(across(values[name]), y - 11, f"{values[name]:.2f}", size=13,
                             text_anchor="middle")  # fmt: skip
    picture.write(phone)
    return means


def _histogram(
    picture: Drawing, values: np.ndarray, box: Sequence[float], kind: str, edges: np.ndarray
) -> None:
    """Bars of the shares of values between edges, in a box (x, y, width, height)."""
    x, y, width, height = box
    shares = np.histogram(values, edges)[0] / len(values)
    step = width / len(shares)
    for place, share in enumerate(shares):
        tall = height * float(share) / float(shares.max())
        if tall > 0.3:
            picture.box(x + place * step + 0.5, y + height - tall, step - 1, tall, kind, 0)


def draw_threshold(example: Example, phone: bool = False) -> None:
    """Scores of true labels of calibration nodes, and where the threshold lies among them."""
    left, width = (24, 330) if phone else (60, 740)
    cp = example.alone
    scores, n = np.sort(cp.calib_scores_), len(cp.calib_nodes_)
    rank, cut = conformal_rank(n, 0.1), float(cp.threshold_)
    picture = Drawing(
        "threshold", left + width + 66, 300,
        f"The threshold is the {rank}st smallest of {n} scores of true labels: {cut:.2f}",
    )  # fmt: skip
    edges = np.linspace(0, 1, 51)
    title = (
        f"True labels of {n:,} calibration nodes"
        if phone
        else (f"Scores of the true labels of {n:,} calibration nodes")
    )
    picture.text(24, 34, title, size=17, font_weight=600)
    _histogram(picture, scores, (left, 50, width, 170), "a", edges)
    picture.line(left, 220, left + width, 220)
    at = left + width * cut
    picture.line(at, 50, at, 232, "cut", 2, stroke_dasharray="5 4")
    picture.text(at - 10, 72, f"threshold {cut:.2f}", "cuttext", 15, text_anchor="end")
    picture.text(at - 10, 94, f"rank {rank} of {n:,}", "cuttext", 14, text_anchor="end")
    middle = left + width / 2
    below = "90 % of the true labels: in their sets"
    picture.text(left + width / 2 * cut, 140, below, "dim", 14, text_anchor="middle")
    picture.text(left + width + 6, 140, "10 %", "dim", 14)
    picture.text(left + width + 6, 158, "missed", "dim", 14)
    for tick in (0, 0.2, 0.4, 0.6, 0.8, 1.0):
        picture.text(left + width * tick, 244, f"{tick:g}", "dim", 14, text_anchor="middle")
    picture.text(middle, 276, "score: how strange the label looks (1 - probability)", "dim", 14,
                 text_anchor="middle")  # fmt: skip
    picture.write(phone)


def draw_draw() -> None:
    """Scores are fixed for all nodes before a coin decides which of them are calibration nodes."""
    picture = Drawing(
        "exchangeable", 860, 330,
        "Scores are computed for all nodes alike; only then does chance decide which calibrate",
    )  # fmt: skip
    rng = np.random.default_rng(4)
    steps = (
        (24, "1  All nodes in one graph"),
        (310, "2  A score for every node"),
        (596, "3  Chance picks the roles"),
    )
    places = [(50 + 190 * float(a), 80 + 150 * float(b)) for a, b in _spread(rng, 16)]
    links = _links(places)
    chosen = set(rng.permutation(16)[:6].tolist())
    scores = np.round(rng.uniform(0.05, 0.95, 16), 2)
    for step, (left, title) in enumerate(steps):
        picture.text(left, 36, title, size=17, font_weight=600)
        for one, two in links:
            a, b = places[one], places[two]
            picture.line(left - 24 + a[0], a[1], left - 24 + b[0], b[1], "edge", 1.5)
        for node, (x, y) in enumerate(places):
            kind = "grey" if step < 2 else "b" if node in chosen else "a"
            radius = 10 if step != 1 else 5 + 9 * float(scores[node])
            picture.dot(left - 24 + x, y, radius, kind)
        if step < 2:
            picture.text(left + 258, 160, "→", "dim", 26)
    notes = (
        ("Links and features of", "every node are used."),
        ("Nothing here knows the roles", "or their labels."),
        ("Orange sets the threshold;", "blue gets sets."),
    )
    for (left, _), lines in zip(steps, notes, strict=True):
        for place, line in enumerate(lines):
            picture.text(left, 276 + 22 * place, line, "dim", 14)
    picture.stack([(18, 262), (304, 262), (590, 262)], 320, ())  # without the arrows
    picture.write()


def _spread(rng: np.random.Generator, count: int) -> list[tuple[float, float]]:
    """Points of the unit square that keep their distance."""
    found: list[tuple[float, float]] = []
    while len(found) < count:
        point = (float(rng.random()), float(rng.random()))
        if all(math.dist(point, other) > 0.19 for other in found):
            found.append(point)
    return found


def _links(places: list[tuple[float, float]]) -> list[tuple[int, int]]:
    """Each point and its two nearest ones."""
    pairs = set()
    for node, place in enumerate(places):
        order = sorted(range(len(places)), key=lambda other: math.dist(place, places[other]))
        pairs |= {tuple(sorted((node, other))) for other in order[1:3]}
    return sorted(pairs)  # type: ignore[arg-type]


def main() -> None:
    example = Example()
    draw_idea(example)
    draw_draw()
    for phone in (False, True):
        draw_threshold(example, phone)
        draw_sizes(phone)


if __name__ == "__main__":
    main()
