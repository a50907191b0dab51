"""The report's plots as SVG. Colours and strokes are set in page.css, by class.

A plot is 440 units wide, which fits a desktop's column and a phone's screen, and has a text
alternative in `<title>` and `<desc>`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from markupsafe import Markup, escape

from snaps.conformal.watching import Watch
from snaps.predictor.slices import bands
from snaps.report.facts import CoverageCurve, Scores, Sizes, Slice, Weights

WIDTH = 440
# A colour for each part, the same in all methods and in page.js.
PARTS = (
    "own", "similar", "linked", "two_hop", "context", "propagated", "propagated_context",
    "regression",
)  # fmt: skip
_MOST_LINES = 200  # of thresholds in a plot


def percent(value: float, digits: int = 1) -> str:
    """A share as a reader writes it: 95 %, 95.3 %, never 100 % for what is less."""
    least = 10.0**-digits
    text = f"{100 * value:.{digits}f}"
    if float(text) == 100 and value < 1:
        text = f">\u00a0{100 - least:g}"
    elif float(text) == 0 and value > 0:
        text = f"<\u00a0{least:g}"
    return f"{text.removesuffix('.0')}\u00a0%"


def aligned_percent(value: float) -> str:
    """A share for a column of shares: always one decimal."""
    text = percent(value)
    return text if "." in text else text.replace("\u00a0%", ".0\u00a0%")


def exact_percent(value: float) -> str:
    """A share that the user chose, with all its digits."""
    return f"{100 * value:.10g}\u00a0%"


# -- elements ------------------------------------------------------------------------------------


def _element(tag: str, *content: str, **attributes: str | float) -> Markup:
    """An SVG element, with all text escaped; `text_anchor` becomes text-anchor, `class_` class."""
    pairs = ""
    for name, value in attributes.items():
        shown = escape(value) if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
        pairs += f' {name.rstrip("_").replace("_", "-")}="{shown}"'
    return Markup(f"<{tag}{pairs}>{Markup().join(content)}</{tag}>")


def _plot(name: str, height: float, title: str, text: str, marks: Iterable[Markup]) -> Markup:
    """A plot with its text alternative."""
    return _element(
        "svg",
        _element("title", title, id=f"{name}-title"),
        _element("desc", text, id=f"{name}-text"),
        *marks,
        class_=f"plot {name}",
        viewBox=f"0 0 {WIDTH} {height:.4g}",
        role="img",
        aria_labelledby=f"{name}-title {name}-text",
    )


def _cell_plot(name: str, width: float, marks: Iterable[Markup]) -> Markup:
    """A small plot for a cell of a table, next to its number."""
    return _element("svg", *marks, class_=name, viewBox=f"0 0 {width} 18", aria_hidden="true")


def _text(x: float, y: float, words: str, kind: str, anchor: str = "middle") -> Markup:
    return _element("text", words, x=x, y=y, class_=kind, text_anchor=anchor)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return _element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def _rect(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    return _element("rect", x=x, y=y, width=max(width, 0), height=max(height, 0), class_=kind)


def _circle(x: float, y: float, radius: float, kind: str) -> Markup:
    return _element("circle", cx=x, cy=y, r=radius, class_=kind)


def _path(points: Iterable[tuple[float, float]], kind: str, end: str = "") -> Markup:
    steps = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return _element("path", d=f"M{steps}{end}", class_=kind)


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Where a value is drawn: `low` at `start`, `high` at `end`."""
    return lambda value: start + (value - low) / ((high - low) or 1) * (end - start)


def _inside(x: float, half: float) -> float:
    """The middle of a text, moved so that it stays inside the plot."""
    return min(max(x, 4 + half), WIDTH - 4 - half)


# -- coverage ------------------------------------------------------------------------------------


def coverage_plot(curve: CoverageCurve, promised: float, observed: float) -> Markup:
    """The coverage distribution, its interval, and the promised and observed coverage."""
    left, right, base, top = 16.0, WIDTH - 16.0, 128.0, 34.0
    low, high = min(curve.coverages[0], observed), max(curve.coverages[-1], observed)
    pad = 0.06 * (high - low) or 0.01
    x = _scale(max(low - pad, 0), min(high + pad, 1), left, right)
    y = _scale(0, 1, base, top)
    points = list(zip(curve.coverages, curve.density, strict=True))
    within = [(x(at), y(height)) for at, height in points if curve.low <= at <= curve.high]
    marks = []
    if len(within) > 1:
        marks.append(_path([*within, (within[-1][0], base), (within[0][0], base)], "likely", "Z"))
    marks.append(_path([(x(at), y(height)) for at, height in points], "curve"))
    marks.append(_line(left, base, right, base, "axis"))
    apart = max(0.0, 58 - (x(curve.high) - x(curve.low))) / 2  # or the two texts overlap
    ends = ((curve.low, x(curve.low) - apart), (curve.high, x(curve.high) + apart))
    for end, middle in ends:
        marks.append(_line(x(end), base, x(end), base + 5, "axis"))
        marks.append(_text(_inside(middle, 28), base + 19, percent(end), "tick"))
    marks.append(_text((ends[0][1] + ends[1][1]) / 2, base + 36, "99 % of random splits", "tick"))
    marks.append(_line(x(promised), top - 6, x(promised), base, "promised"))
    marks.append(_line(x(observed), top - 18, x(observed), base, "observed"))
    marks.append(_circle(x(observed), base, 6, "observed"))
    side = 1 if observed >= promised else -1
    words = f"promised {exact_percent(promised)}", f"observed {percent(observed)}"
    anchor = "end" if side > 0 else "start"
    marks.append(_text(x(promised) - 6 * side, top - 8, words[0], "promised", anchor))
    if not 130 < x(observed) < WIDTH - 130:  # little room on the outer side
        side = -side
    anchor = "start" if side > 0 else "end"
    marks.append(_text(x(observed) + 6 * side, top - 22, words[1], "observed", anchor))
    text = (
        f"In 99 % of random splits the coverage is between {percent(curve.low)} and "
        f"{percent(curve.high)}; {words[0]}, {words[1]}."
    )
    return _plot("coverage", base + 46, "Promised and observed coverage", text, marks)


# -- sizes ---------------------------------------------------------------------------------------


def size_bands(counts: Sequence[int], basic: Sequence[int] | None) -> list[tuple[str, int, int]]:
    """The name of each band of sizes, and how many sets of both methods it has."""
    other = basic or [0] * len(counts)
    largest = max(size for size, pair in enumerate(zip(counts, other, strict=True)) if any(pair))
    rows = []
    for low, high in bands(largest):
        high = min(high, len(counts) - 1)
        name = str(low) if low == high else f"{low}-{high}"
        rows.append((name, sum(counts[low : high + 1]), sum(other[low : high + 1])))
    return rows


def size_plot(sizes: Sizes, basic: Sizes | None, method: str, score: str) -> Markup:
    """Share of sets by their number of labels, next to those of the basic score."""
    rows = size_bands(sizes.counts, basic.counts if basic else None)
    total, base, top, left = sizes.n, 158.0, 38.0, 10.0
    peak = max(max(ours, theirs) for _, ours, theirs in rows) / total
    slot = (WIDTH - 2 * left) / len(rows)
    bar = min(slot * (0.38 if basic else 0.7), 46)
    height = _scale(0, peak, 0, base - top)
    marks = [_line(left, base, WIDTH - left, base, "axis")]
    texts = []
    for place, (name, ours, theirs) in enumerate(rows):
        middle = left + (place + 0.5) * slot
        x, share = middle - (bar if basic else bar / 2), ours / total
        marks.append(_rect(x, base - height(share), bar, height(share), "bar ours"))
        if share >= 0.005 and slot > 34:
            marks.append(_text(x + bar / 2, base - height(share) - 5, percent(share, 0), "value"))
        text = f"{name} labels: {percent(share)}"
        if basic:
            share = theirs / total
            marks.append(_rect(middle, base - height(share), bar, height(share), "bar theirs"))
            text += f" ({percent(share)} with the basic score)"
        marks.append(_text(middle, base + 16, name, "tick"))
        texts.append(text)
    marks.append(_text(WIDTH / 2, base + 34, "labels in a set", "tick"))
    marks.append(_rect(left, 2, 10, 10, "bar ours"))
    marks.append(_text(left + 16, 11, method, "legend", "start"))
    if basic:
        marks.append(_rect(WIDTH / 2 - 30, 2, 10, 10, "bar theirs"))
        marks.append(_text(WIDTH / 2 - 14, 11, f"{score} alone, no neighbours", "legend", "start"))
    return _plot("sizes", base + 42, "Number of labels per set", "; ".join(texts) + ".", marks)


# -- slices --------------------------------------------------------------------------------------


def lowest_coverage(slices: Iterable[Slice], alpha: float) -> float:
    """Where the axis of all whiskers begins: a multiple of 10 %.

    Small slices may be anywhere: they are cut off there, rather than all others squeezed.
    """
    shares = [
        slice.coverage
        for slice in slices
        if slice.coverage is not None and slice.n >= 30 and slice.size  # empty sets aside
    ]
    least = max(min([*shares, 1 - 2 * alpha]) - alpha / 2, 0.0)
    return min(int(least * 10 + 1e-9) / 10, 0.9)


_CELL, _EDGE = 150, 9  # units of a whisker, and of the space at its ends


def _ticks(lowest: float) -> tuple[float, ...]:
    return lowest, (lowest + 1) / 2, 1.0


def whisker_axis(lowest: float) -> Markup:
    """The axis of all whiskers, for the head of a table."""
    x = _scale(lowest, 1, _EDGE, _CELL - _EDGE)
    marks = [_line(x(lowest), 16, x(1), 16, "axis")]
    for tick, anchor in zip(_ticks(lowest), ("start", "middle", "end"), strict=True):
        marks.append(_line(x(tick), 12, x(tick), 16, "axis"))
        at = {"start": 0.0, "middle": x(tick), "end": float(_CELL)}[anchor]
        marks.append(_text(at, 9, f"{100 * tick:.3g}\u00a0%", "tick", anchor))
    return _cell_plot("whisker", _CELL, marks)


def whisker(slice: Slice, lowest: float) -> Markup:
    """A slice's interval, coverage and promise, on an axis from `lowest` to 1."""
    middle, marks = 9, list[Markup]()
    x = _scale(lowest, 1, _EDGE, _CELL - _EDGE)
    if slice.coverage is not None:
        marks += [_line(x(tick), 0, x(tick), 18, "grid") for tick in _ticks(lowest)]
        if slice.low is not None and slice.high is not None:
            left, right = x(max(slice.low, lowest)), x(max(slice.high, lowest))
            marks.append(_rect(left, 3, right - left, 12, "range"))
        if slice.promised is not None and slice.promised >= lowest:
            marks.append(_line(x(slice.promised), 0, x(slice.promised), 18, "promised"))
        kind = "dot below" if slice.below else "dot fine"
        if slice.coverage < lowest:  # further left than the cell reaches: an arrow
            marks.append(_path([(0, middle), (9, middle - 5), (9, middle + 5)], kind, "Z"))
        else:
            marks.append(_circle(x(slice.coverage), middle, 4.5, kind))
    return _cell_plot("whisker", _CELL, marks)


# -- weights -------------------------------------------------------------------------------------


def weights_plot(weights: Weights) -> Markup:
    """The grid that weights were tuned on, or else the weights as bars."""
    if weights.chosen != "grid":
        return _bars_plot(weights.shown)
    return _triangle_plot(weights) if len(weights.tuned) == 2 else _line_plot(weights)


def _triangle_plot(weights: Weights) -> Markup:
    """Labels per set for every pair (lam, mu): corners are own, similar and linked alone."""
    side, top = 330.0, 34.0
    bottom = top + side * 3**0.5 / 2
    corners = {  # x and y, and the pair
        "own": (WIDTH / 2 - side / 2, bottom, (0.0, 0.0)),
        "similar": (WIDTH / 2, top, (1.0, 0.0)),
        "linked": (WIDTH / 2 + side / 2, bottom, (0.0, 1.0)),
    }

    def position(lam: float, mu: float) -> tuple[float, float]:
        x = corners["own"][0] + side * (lam / 2 + mu)
        return x, bottom - lam * (bottom - top)

    low, high = min(weights.sizes), max(weights.sizes)
    marks = []
    for pair, size in zip(weights.pairs, weights.sizes, strict=True):
        above = (size - low) / ((high - low) or 1)
        shade = 9 - min(9, int(10 * above**0.5))  # finer for small sets, where the choice is made
        marks.append(_circle(*position(*pair), 7.2, f"shade s{shade}"))
    x, y = position(*weights.pair)
    marks.append(_circle(x, y, 10, "chosen"))
    marks.append(_line(x + 9, y - 5, WIDTH - 70, top + 42, "leader"))
    marks.append(_text(WIDTH - 4, top + 34, f"chosen: {weights.size:.2f}", "chosen", "end"))
    texts = []
    for name, (x, y, pair) in corners.items():
        size = weights.sizes[weights.pairs.index(pair)]
        below = -18 if name == "similar" else 24
        marks.append(_text(_inside(x, 70), y + below, f"{name} only: {size:.2f}", "legend"))
        texts.append(f"{name} only {size:.2f}")
    marks += [_rect(8, 10 + 9 * (9 - i), 10, 9, f"shade s{i}") for i in range(10)]
    for y, words in ((19, f"{low:.2f}"), (60, "labels per set"), (100, f"{high:.2f}")):
        marks.append(_text(23, y, words, "tick", "start"))
    lam, mu = weights.pair
    text = (
        f"{len(weights.pairs)} mixtures were tried. Labels per set: {', '.join(texts)}; smallest "
        f"{low:.2f}; largest {high:.2f}; chosen {weights.size:.2f} with similar {lam:.2f} and "
        f"linked {mu:.2f}."
    )
    return _plot("triangle", bottom + 34, "Set size by weights", text, marks)


def _line_plot(weights: Weights) -> Markup:
    """Labels per set over the only weight that was tuned."""
    (name,) = weights.tuned
    grid, chosen = [max(pair) for pair in weights.pairs], weights.parts[name]
    low, high = min(*weights.sizes, weights.size), max(*weights.sizes, weights.size)
    left, right, base, top = 44.0, WIDTH - 16.0, 150.0, 24.0
    x, y = _scale(0, 1, left, right), _scale(low, high, base, top)
    points = [(x(weight), y(size)) for weight, size in zip(grid, weights.sizes, strict=True)]
    words = f"chosen: {weights.size:.2f}"
    marks = [
        _line(left, base + 8, right, base + 8, "axis"),
        _path(points, "curve"),
        *(_circle(*point, 3, "point") for point in points),
        _circle(x(chosen), y(weights.size), 8, "chosen"),
        _text(_inside(x(chosen), 45), y(weights.size) - 14, words, "chosen"),
        *(_text(x(weight), base + 24, f"{weight:g}", "tick") for weight in (0.0, 0.5, 1.0)),
        _text((left + right) / 2, base + 42, f"weight of {name} nodes", "tick"),
        _text(left - 8, base + 4, f"{low:.2f}", "tick", "end"),
        _text(left - 8, top + 4, f"{high:.2f}", "tick", "end"),
        _text(4, 10, "labels per set", "tick", "start"),
    ]
    text = (
        f"Labels per set of the tuning nodes: {weights.sizes[0]:.2f} at weight {grid[0]:g}, "
        f"{weights.sizes[-1]:.2f} at weight {grid[-1]:g}, the smallest {low:.2f}; chosen "
        f"{weights.size:.2f} at weight {chosen:.2f}."
    )
    return _plot("tuning", base + 50, "Set size by weight", text, marks)


def _bars_plot(parts: Mapping[str, float]) -> Markup:
    """The weight of each part; those below zero point to the left."""
    row = 26.0
    low, high = min(0.0, *parts.values()), max(0.0, *parts.values())
    x = _scale(low, high, 150.0 if low == 0 else 195.0, WIDTH - 50.0)
    marks = [_line(x(0), 4, x(0), 8 + row * len(parts), "axis")]
    text = ", ".join(f"{name.replace('_', ' ')} {weight:.2f}" for name, weight in parts.items())
    for place, (part, weight) in enumerate(parts.items()):
        name, colour = part.replace("_", " "), PARTS.index(part) if part in PARTS else 7
        y, start, end = 8 + place * row, min(x(0), x(weight)), max(x(0), x(weight))
        marks.append(_text(140, y + 13, name, "legend", "end"))
        marks.append(_rect(start, y, end - start, 18, f"bar part{colour}"))
        marks.append(_text(end + 8, y + 13, f"{weight:.2f}", "value", "start"))
    return _plot("weights", 12 + row * len(parts), "Weight of each part", f"{text}.", marks)


# -- threshold -----------------------------------------------------------------------------------


def score_plot(scores: Scores) -> Markup:
    """Scores of true labels upwards, of other labels downwards, and the thresholds."""
    left, right, axis, reach = 10.0, WIDTH - 10.0, 104.0, 72.0
    low, high = scores.edges[0], scores.edges[-1]
    x = _scale(low, high, left, right)
    marks = []
    for counts, kind, up in ((scores.true, "bar ours", 1), (scores.other, "bar theirs", 0)):
        peak = max(counts) or 1
        for count, start, end in zip(counts, scores.edges, scores.edges[1:], strict=False):
            if count:
                height = reach * count / peak
                width = x(end) - x(start) - 1
                marks.append(_rect(x(start) + 0.5, axis - up * height, width, height, kind))
    marks.append(_line(left, axis, right, axis, "axis"))
    finite = scores.finite
    for limit in finite[:_MOST_LINES]:
        marks.append(_line(x(limit), axis - reach - 10, x(limit), axis + reach, "observed"))
    text = f"Scores of the calibration nodes: {low:.3f} to {high:.3f}; "
    if finite:
        words = f"{len(finite)} thresholds" if len(finite) > 1 else f"threshold {finite[0]:.3f}"
        middle = x(sum(finite) / len(finite))
        marks.append(_text(_inside(middle, 62), axis - reach - 16, words, "observed"))
        text += f"{words}, {min(finite):.3f} to {max(finite):.3f}" if len(finite) > 1 else words
    else:
        text += "the threshold is infinite"
    crowded = max(scores.true[: len(scores.true) // 4]) > 0.7 * max(scores.true)
    corner = (right, "end") if crowded else (left, "start")
    marks.append(_text(corner[0], axis - reach + 8, "true labels", "legend ours", corner[1]))
    marks.append(_text(left, axis + reach, "other labels", "legend theirs", "start"))
    base = axis + reach + 16
    marks.append(_text(left, base, f"{low:.2f}", "tick", "start"))
    marks.append(_text(right, base, f"{high:.2f}", "tick", "end"))
    marks.append(_text(WIDTH / 2, base, "low: fits · score · high: does not fit", "tick"))
    if scores.true_in is not None and scores.other_out is not None:
        text += (
            f"; {percent(scores.true_in)} of the true labels are in the sets, "
            f"{percent(scores.other_out)} of the others are not"
        )
    return _plot("scores", base + 8, "Scores and threshold", text + ".", marks)


# -- watch ---------------------------------------------------------------------------------------


def watch_plot(watch: Watch) -> Markup:
    """The wealth after each audited label, on a logarithmic axis, and where it is an alarm."""
    left, right, base, top = 44.0, WIDTH - 12.0, 160.0, 20.0
    wealth = [1.0, *(max(float(value), 1e-6) for value in watch.wealth)]
    limit = 1 / watch.alarm
    low, high = math.log10(min(*wealth, 0.1)), math.log10(max(*wealth, 2 * limit))
    x, y = _scale(0, len(watch), left, right), _scale(low, high, base, top)
    steps = sorted({round(i * len(watch) / 400) for i in range(401)})
    marks = [_line(left, base, right, base, "axis")]
    for value, words in ((1.0, "1"), (limit, f"{limit:.3g}")):
        kind = "axis" if value == 1 else "observed"
        marks.append(_line(left, y(math.log10(value)), right, y(math.log10(value)), kind))
        marks.append(_text(left - 6, y(math.log10(value)) + 4, words, "tick", "end"))
    marks.append(_text(right, y(math.log10(limit)) - 6, "alarm", "observed", "end"))
    marks.append(_path([(x(step), y(math.log10(wealth[step]))) for step in steps], "curve"))
    if watch.first_alarm is not None:
        at = wealth[watch.first_alarm]
        marks.append(_circle(x(watch.first_alarm), y(math.log10(at)), 6, "observed"))
    marks.append(_text(left, base + 16, "0", "tick", "start"))
    marks.append(_text(right, base + 16, f"{len(watch):,}", "tick", "end"))
    marks.append(_text((left + right) / 2, base + 16, "audited labels", "tick"))
    marks.append(_text(4, 10, "wealth", "tick", "start"))
    text = (
        f"Wealth after {len(watch)} labels: {wealth[-1]:.3g}; the largest {max(wealth):.3g}; an "
        f"alarm from {limit:.3g} on."
    )
    return _plot("watch", base + 24, "Evidence against the promise over time", text, marks)
