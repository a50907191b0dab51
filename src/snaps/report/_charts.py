"""The report's plots as SVG text. Colours and strokes live in page.css, by class.

Every plot takes a width of 440 units, wide enough for a desktop's column and a phone's screen, and
says in `<title>` and `<desc>` what it shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from snaps.report._facts import Law, Scores, Sizes, Slice, Weights

WIDTH = 440


def plot(name: str, height: float, title: str, text: str, marks: Iterable[str]) -> str:
    """A plot with its text alternative."""
    return (
        f'<svg class="plot {name}" viewBox="0 0 {WIDTH} {_n(height)}" role="img" '
        f'aria-labelledby="{name}-title {name}-text"><title id="{name}-title">{escape(title)}'
        f'</title><desc id="{name}-text">{escape(text)}</desc>{"".join(marks)}</svg>'
    )


def _n(value: float) -> str:
    """A coordinate, no longer than needed."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    return (
        f'<text x="{_n(x)}" y="{_n(y)}" class="{kind}" text-anchor="{anchor}">{escape(words)}'
        "</text>"
    )


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}" class="{kind}"/>'


def _rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    return (
        f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(max(width, 0))}" height="{_n(max(height, 0))}" '
        f'class="{kind}"/>'
    )


def _path(points: Iterable[tuple[float, float]], kind: str, end: str = "") -> str:
    steps = " L".join(f"{_n(x)} {_n(y)}" for x, y in points)
    return f'<path d="M{steps}{end}" class="{kind}"/>'


def percent(value: float, digits: int = 1) -> str:
    """A share as a reader writes it: 95 %, 95.3 %, never 100 % for what is less."""
    least = 10.0**-digits
    text = f"{100 * value:.{digits}f}"
    if float(text) == 100 and value < 1:
        text = f">\u00a0{100 - least:g}"
    elif float(text) == 0 and value > 0:
        text = f"<\u00a0{least:g}"
    return f"{text.removesuffix('.0')}\u00a0%"


def exactly(value: float) -> str:
    """A share that was asked for, with all its digits."""
    return f"{100 * value:.10g}\u00a0%"


def _keep(x: float, half: float, left: float = 4, right: float = WIDTH - 4) -> float:
    """A label's middle, moved so that it stays inside."""
    return min(max(x, left + half), right - half)


# -- promised and observed -----------------------------------------------------------------------


def law_plot(law: Law, promised: float, observed: float) -> str:
    """How coverage spreads by chance, the range it falls in, and where it fell."""
    left, right, base, top = 16.0, WIDTH - 16.0, 128.0, 34.0
    low, high = min(law.at[0], observed), max(law.at[-1], observed)
    pad = 0.06 * (high - low) or 0.01
    low, high = max(low - pad, 0), min(high + pad, 1)

    def x(value: float) -> float:
        return left + (value - low) / (high - low) * (right - left)

    def y(value: float) -> float:
        return base - value * (base - top)

    curve = [(x(at), y(likely)) for at, likely in zip(law.at, law.likely, strict=True)]
    within = [
        (x(at), y(likely))
        for at, likely in zip(law.at, law.likely, strict=True)
        if law.low <= at <= law.high
    ]
    marks = []
    if len(within) > 1:
        ends = [(within[-1][0], base), (within[0][0], base)]
        marks.append(_path([*within, *ends], "likely", "Z"))
    marks.append(_path(curve, "curve"))
    marks.append(_line(left, base, right, base, "axis"))
    spots = _spread([(x(law.low), percent(law.low)), (x(law.high), percent(law.high))], 58)
    for at, (place, words) in zip((law.low, law.high), spots, strict=True):
        marks.append(_line(x(at), base, x(at), base + 5, "axis"))
        marks.append(_text(_keep(place, 28), base + 19, words, "tick"))
    marks.append(_text((spots[0][0] + spots[1][0]) / 2, base + 36, "99 % of fair runs", "tick"))
    at = x(promised)
    marks.append(_line(at, top - 6, at, base, "promised"))
    marks.append(_line(x(observed), top - 18, x(observed), base, "observed"))
    marks.append(f'<circle cx="{_n(x(observed))}" cy="{_n(base)}" r="6" class="observed"/>')
    side = 1 if observed >= promised else -1
    anchors = ("end", "start") if side > 0 else ("start", "end")
    words = f"promised {exactly(promised)}"
    marks.append(_text(at - 6 * side, top - 8, words, "promised", anchors[0]))
    words = f"observed {percent(observed)}"
    shift = 6 * side
    if not 130 < x(observed) < WIDTH - 130:  # little room on the outer side
        shift, anchors = -shift, anchors[::-1]
    marks.append(_text(x(observed) + shift, top - 22, words, "observed", anchors[1]))
    text = (
        f"By chance the coverage of one run varies; 99 % of fair runs fall between "
        f"{percent(law.low)} and {percent(law.high)}. Promised: {exactly(promised)}. "
        f"Observed: {percent(observed)}."
    )
    return plot("law", base + 46, "Coverage promised and observed", text, marks)


def _spread(spots: list[tuple[float, str]], gap: float) -> list[tuple[float, str]]:
    """Two labels, pushed apart if they would overlap."""
    (one, first), (two, second) = spots
    push = max(0.0, gap - (two - one)) / 2
    return [(one - push, first), (two + push, second)]


# -- sizes ---------------------------------------------------------------------------------------


def size_bands(counts: Sequence[int], other: Sequence[int] | None) -> list[tuple[str, int, int]]:
    """Sets by size, of both methods: one size each, or bands that double where sizes are many."""
    both = [counts] if other is None else [counts, other]
    top = max(size for each in both for size, number in enumerate(each) if number)
    second = [0] * len(counts) if other is None else other
    if top <= 12:
        return [(str(size), counts[size], second[size]) for size in range(top + 1)]
    bands = [("0", 0, 0), ("1", 1, 1)]
    while bands[-1][2] < top:
        low = bands[-1][2] + 1
        high = min(2 * low - 1, len(counts) - 1)
        bands.append((f"{low}-{high}" if high > low else str(low), low, high))
    return [
        (name, sum(counts[low : high + 1]), sum(second[low : high + 1]))
        for name, low, high in bands
    ]


def size_plot(sizes: Sizes, basic: Sizes | None, method: str, score: str) -> str:
    """Share of sets by their number of labels, beside the basic score's."""
    bands = size_bands(sizes.counts, None if basic is None else basic.counts)
    total, base, top, left = sizes.n, 158.0, 38.0, 10.0
    peak = max(max(ours, theirs) for _, ours, theirs in bands) / total
    slot = (WIDTH - 2 * left) / len(bands)
    bar = min(slot * (0.38 if basic else 0.7), 46)
    marks = [_line(left, base, WIDTH - left, base, "axis")]
    rows = []
    for place, (name, ours, theirs) in enumerate(bands):
        middle = left + (place + 0.5) * slot
        pairs = [(ours, "ours", middle - bar if basic else middle - bar / 2)]
        if basic:
            pairs.append((theirs, "theirs", middle))
        for number, kind, x in pairs:
            height = (base - top) * (number / total) / peak
            marks.append(_rect(x, base - height, bar, height, f"bar {kind}"))
            if kind == "ours" and number >= 0.005 * total and slot > 34:
                shown = percent(number / total, 0)
                marks.append(_text(x + bar / 2, base - height - 5, shown, "value"))
        marks.append(_text(middle, base + 16, name, "tick"))
        beside = f" ({percent(theirs / total)} with the basic score)" if basic else ""
        rows.append(f"{name} labels: {percent(ours / total)}{beside}")
    marks.append(_text(WIDTH / 2, base + 34, "labels in a set", "tick"))
    marks.append(_rect(left, 2, 10, 10, "bar ours"))
    marks.append(_text(left + 16, 11, method, "legend", "start"))
    if basic:
        marks.append(_rect(WIDTH / 2 - 30, 2, 10, 10, "bar theirs"))
        marks.append(_text(WIDTH / 2 - 14, 11, f"{score} alone, no neighbours", "legend", "start"))
    return plot("sizes", base + 42, "How many labels sets have", "; ".join(rows) + ".", marks)


# -- slices --------------------------------------------------------------------------------------


def whisker(one: Slice, lowest: float, promised: float) -> str:
    """Where a slice's coverage should fall, where it fell, and the promise, for a table's cell."""
    width, height = 150, 18

    def x(value: float) -> float:
        return 6 + (max(value, lowest) - lowest) / (1 - lowest) * (width - 12)

    marks = []
    if one.coverage is not None and one.low is not None and one.high is not None:
        kind = "below" if one.below else "fine"
        marks.append(_rect(x(one.low), 3, x(one.high) - x(one.low), height - 6, "range"))
        marks.append(_line(x(promised), 0, x(promised), height, "promised"))
        if one.coverage < lowest:  # further left than the cell reaches
            marks.append(f'<path d="M0 {_n(height / 2)} l9 -5 v10 z" class="dot {kind}"/>')
        else:
            cx, cy = _n(x(one.coverage)), _n(height / 2)
            marks.append(f'<circle cx="{cx}" cy="{cy}" r="4.5" class="dot {kind}"/>')
    return (
        f'<svg class="whisker" viewBox="0 0 {width} {height}" aria-hidden="true">'
        f"{''.join(marks)}</svg>"
    )


def size_bar(size: float | None, largest: float) -> str:
    """A mean size, for a cell of a table."""
    marks = [] if size is None else [_rect(0, 5, 70 * size / (largest or 1), 8, "bar ours")]
    return f'<svg class="length" viewBox="0 0 72 18" aria-hidden="true">{"".join(marks)}</svg>'


# -- weights -------------------------------------------------------------------------------------


def triangle_plot(weights: Weights, pair: tuple[float, float]) -> str:
    """Labels per set for every pair (lam, mu): corners are own, similar and linked alone."""
    side, top = 330.0, 34.0
    height = side * 3**0.5 / 2
    corners = {
        "own": (WIDTH / 2 - side / 2, top + height),
        "linked": (WIDTH / 2 + side / 2, top + height),
        "similar": (WIDTH / 2, top),
    }

    def spot(lam: float, mu: float) -> tuple[float, float]:
        shares = {"own": 1 - lam - mu, "similar": lam, "linked": mu}
        return (
            sum(shares[name] * x for name, (x, _) in corners.items()),
            sum(shares[name] * y for name, (_, y) in corners.items()),
        )

    low, high = min(weights.sizes), max(weights.sizes)
    marks = []
    for (lam, mu), size in zip(weights.pairs, weights.sizes, strict=True):
        x, y = spot(lam, mu)
        marks.append(
            f'<circle cx="{_n(x)}" cy="{_n(y)}" r="7.2" class="shade s{_shade(size, low, high)}"/>'
        )
    x, y = spot(*pair)
    marks.append(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="10" class="chosen"/>')
    marks.append(_line(x + 9, y - 5, WIDTH - 70, top + 42, "leader"))
    marks.append(_text(WIDTH - 4, top + 34, f"chosen: {weights.size:.2f}", "chosen", "end"))
    alone = {
        "own": _size_at(weights, (0.0, 0.0)),
        "similar": _size_at(weights, (1.0, 0.0)),
        "linked": _size_at(weights, (0.0, 1.0)),
    }
    for name, (x, y) in corners.items():
        shift = -18 if name == "similar" else 24
        marks.append(_text(_keep(x, 70), y + shift, f"{name} only: {alone[name]:.2f}", "legend"))
    marks += _scale(low, high, 8, 10)
    text = (
        f"{len(weights.pairs)} mixtures were tried. Labels per set: "
        + ", ".join(f"{name} only {size:.2f}" for name, size in alone.items())
        + f"; smallest {low:.2f}; largest {high:.2f}; chosen {weights.size:.2f} with similar "
        f"{pair[0]:.2f} and linked {pair[1]:.2f}."
    )
    return plot("triangle", top + height + 34, "How the weights were chosen", text, marks)


def _shade(size: float, low: float, high: float) -> int:
    """One of ten, 9 for the smallest sets; finer near the smallest, where the choice is made."""
    far = (size - low) / (high - low) if high > low else 0.0
    return 9 - min(9, int(10 * far**0.5))


def _scale(low: float, high: float, x: float, y: float) -> list[str]:
    marks = [_rect(x, y + 9 * (9 - i), 10, 9, f"shade s{i}") for i in range(10)]
    marks.append(_text(x + 15, y + 9, f"{low:.2f}", "tick", "start"))
    marks.append(_text(x + 15, y + 90, f"{high:.2f}", "tick", "start"))
    marks.append(_text(x + 15, y + 50, "labels per set", "tick", "start"))
    return marks


def _size_at(weights: Weights, pair: tuple[float, float]) -> float:
    return weights.sizes[weights.pairs.index(pair)]


def line_plot(weights: Weights, name: str, chosen: float) -> str:
    """Labels per set over the one weight that was tuned."""
    at = [max(pair) for pair in weights.pairs]
    size = weights.size or 0.0
    low, high = min(*weights.sizes, size), max(*weights.sizes, size)
    left, right, base, top = 44.0, WIDTH - 16.0, 150.0, 24.0

    def spot(weight: float, size: float) -> tuple[float, float]:
        down = (size - low) / (high - low) if high > low else 0.0
        return left + weight * (right - left), base - down * (base - top)

    points = [spot(w, size) for w, size in zip(at, weights.sizes, strict=True)]
    marks = [_line(left, base + 8, right, base + 8, "axis"), _path(points, "curve")]
    marks += [f'<circle cx="{_n(x)}" cy="{_n(y)}" r="3" class="point"/>' for x, y in points]
    x, y = spot(chosen, size)
    marks.append(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="8" class="chosen"/>')
    marks.append(_text(_keep(x, 45), y - 14, f"chosen: {size:.2f}", "chosen"))
    for weight in (0.0, 0.5, 1.0):
        marks.append(_text(left + weight * (right - left), base + 24, f"{weight:g}", "tick"))
    marks.append(_text((left + right) / 2, base + 42, f"weight of {name} nodes", "tick"))
    marks.append(_text(left - 8, base + 4, f"{low:.2f}", "tick", "end"))
    marks.append(_text(left - 8, top + 4, f"{high:.2f}", "tick", "end"))
    marks.append(_text(4, 10, "labels per set", "tick", "start"))
    text = (
        f"Labels per set of the tuning nodes: {weights.sizes[0]:.2f} at weight {at[0]:g}, "
        f"{weights.sizes[-1]:.2f} at weight {at[-1]:g}, the smallest {low:.2f}; chosen {size:.2f} "
        f"at weight {chosen:.2f}."
    )
    return plot("tuning", base + 50, "How the weight was chosen", text, marks)


# -- threshold -----------------------------------------------------------------------------------


def score_plot(scores: Scores) -> str:
    """Scores of true labels upwards, of other labels downwards, and the threshold."""
    left, right, axis, reach = 10.0, WIDTH - 10.0, 104.0, 72.0
    low, high = scores.edges[0], scores.edges[-1]

    def x(value: float) -> float:
        return left + (value - low) / (high - low) * (right - left)

    marks = []
    for counts, kind, way in ((scores.true, "ours", -1), (scores.other, "theirs", 1)):
        peak = max(counts) or 1
        for place, number in enumerate(counts):
            if number:
                size = reach * number / peak
                x1, x2 = x(scores.edges[place]), x(scores.edges[place + 1])
                y = axis - size if way < 0 else axis
                marks.append(_rect(x1 + 0.5, y, x2 - x1 - 1, size, f"bar {kind}"))
    marks.append(_line(left, axis, right, axis, "axis"))
    finite = [limit for _, limit in scores.limits if limit is not None]
    for limit in finite[:200]:
        marks.append(_line(x(limit), axis - reach - 10, x(limit), axis + reach, "observed"))
    if finite:
        middle, many = sum(finite) / len(finite), len(scores.limits) > 1
        words = f"{len(finite)} thresholds" if many else f"threshold {finite[0]:.3f}"
        marks.append(_text(_keep(x(middle), 62), axis - reach - 16, words, "observed"))
    crowded = max(scores.true[: len(scores.true) // 4]) > 0.7 * max(scores.true)
    side = (right, "end") if crowded else (left, "start")
    marks.append(_text(side[0], axis - reach + 8, "true labels", "legend ours", side[1]))
    marks.append(_text(left, axis + reach, "other labels", "legend theirs", "start"))
    base = axis + reach + 16
    marks.append(_text(left, base, f"{low:.2f}", "tick", "start"))
    marks.append(_text(right, base, f"{high:.2f}", "tick", "end"))
    marks.append(_text(WIDTH / 2, base, "low: fits · score · high: strange", "tick"))
    if finite:
        text = f"The threshold lies at {finite[0]:.3f}" if len(scores.limits) == 1 else (
            f"{len(finite)} thresholds lie between {min(finite):.3f} and {max(finite):.3f}"
        )  # fmt: skip
    else:
        text = "The threshold is infinite"
    text += f"; scores of the calibration nodes lie between {low:.3f} and {high:.3f}."
    if scores.true_in is not None and scores.other_out is not None:
        text += (
            f" {percent(scores.true_in)} of the true labels are in, "
            f"{percent(scores.other_out)} of the others are out."
        )
    return plot("scores", base + 8, "Where the threshold lies in the scores", text, marks)


def weights_plot(parts: Mapping[str, float]) -> str:
    """What each part weighs, as bars; those below zero point to the left."""
    row, right = 26.0, WIDTH - 50.0
    low, high = min(0.0, *parts.values()), max(0.0, *parts.values())
    left = 150.0 if low == 0 else 195.0
    unit = (right - left) / ((high - low) or 1.0)
    zero = left - low * unit
    marks = [_line(zero, 4, zero, 8 + row * len(parts), "axis")]
    for place, (name, weight) in enumerate(parts.items()):
        y, length = 8 + place * row, abs(weight) * unit
        x, after = (zero - length, zero + 8) if weight < 0 else (zero, zero + length + 8)
        marks.append(_text(140, y + 13, name.replace("_", " "), "legend", "end"))
        marks.append(_rect(x, y, length, 18, f"bar part{place % 8}"))
        marks.append(_text(after, y + 13, f"{weight:.2f}", "value", "start"))
    text = ", ".join(f"{name.replace('_', ' ')} {weight:.2f}" for name, weight in parts.items())
    return plot("weights", 12 + row * len(parts), "What each part weighs", f"{text}.", marks)
