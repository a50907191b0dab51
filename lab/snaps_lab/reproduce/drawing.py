"""How the figures look: for print, and for readers who do not distinguish red from green."""

from __future__ import annotations

import math
from typing import Any

# Okabe and Ito's colours, each with a marker and a line of its own.
STYLES = (
    {"color": "#0072B2", "marker": "o", "linestyle": "-"},
    {"color": "#D55E00", "marker": "s", "linestyle": "--"},
    {"color": "#009E73", "marker": "^", "linestyle": "-."},
    {"color": "#CC79A7", "marker": "D", "linestyle": ":"},
    {"color": "#E69F00", "marker": "v", "linestyle": "-"},
    {"color": "#56B4E9", "marker": "P", "linestyle": "--"},
    {"color": "#000000", "marker": "X", "linestyle": "-."},
    {"color": "#999999", "marker": "*", "linestyle": ":"},
)
COLOURS = "cividis"
GREY = "#666666"
TICKS = (0, 1, 2, 5, 10, 20, 50, 100, 300, 1000)
SMALL, MEDIUM = 8.5, 10.5  # points


def style(place: int) -> dict[str, Any]:
    """Colour, marker and line of the place-th curve."""
    return {"markersize": 4.5, "linewidth": 1.4, **STYLES[place % len(STYLES)]}


def panels(rows: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    """A figure of rows x columns panels, each of a size in inches, and its axes as a 2-d array."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def grid(count: int, widest: int = 3) -> tuple[int, int]:
    """Rows and columns for so many panels."""
    columns = min(count, widest)
    return math.ceil(count / columns), columns


def label(axis: Any, title: str, across: str, up: str) -> None:
    """Title and axes of a panel."""
    axis.set_title(title, fontsize=MEDIUM)
    axis.set_xlabel(across, fontsize=MEDIUM - 1)
    axis.set_ylabel(up, fontsize=MEDIUM - 1)
    axis.tick_params(labelsize=SMALL)
    axis.spines[["top", "right"]].set_visible(False)


def counts_axis(axis: Any, values: list[int]) -> None:
    """A logarithmic axis for counts that has room for zero, with a few plain numbers on it."""
    axis.set_xscale("symlog", linthresh=1, linscale=0.3)
    shown = [v for v in TICKS if min(values) <= v <= max(values)]
    axis.set_xticks(shown, [str(v) for v in shown])
    axis.set_xticks([], minor=True)
    axis.set_xlim(-0.3 if min(values) == 0 else 0.85 * min(values), 1.15 * max(values))


def mark_k(axis: Any, k: int) -> None:
    """A line at the number of neighbours that SNAPS takes by default."""
    axis.axvline(k, color=GREY, linewidth=0.9, linestyle=(0, (1, 2)), label=f"k = {k}, the default")


def colour_bar(figure: Any, image: Any, axis: Any, text: str) -> None:
    """A bar next to a heat map that shows what its colours mean."""
    bar = figure.colorbar(image, ax=axis, shrink=0.9)
    bar.set_label(text, fontsize=MEDIUM - 1)
    bar.ax.tick_params(labelsize=SMALL)
    bar.outline.set_visible(False)
