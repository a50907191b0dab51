"""Tables on the terminal whose numbers survive any width, and tables for notebooks."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from html import escape
from typing import Literal

# Cells longer than this wrap at spaces: a remark next to a number need not keep its line.
_LONGEST_CELL = 16


def html_table(
    header: Sequence[object], rows: Iterable[Sequence[object]], *, above: str = "", below: str = ""
) -> str:
    """A table as notebooks show it, with lines of text above and below; all is escaped.

    Examples
    --------
    >>> html_table(["label"], [["<fraud>"]])
    '<div><table><tr><th>label</th></tr><tr><td>&lt;fraud&gt;</td></tr></table></div>'
    """

    def row(cells: Sequence[object], kind: str) -> str:
        inner = (f"<{kind}>{escape(str(cell))}</{kind}>" for cell in cells)
        return f"<tr>{''.join(inner)}</tr>"

    head = row(header, "th") if header else ""
    table = f"<table>{head}{''.join(row(cells, 'td') for cells in rows)}</table>"
    return f"<div>{html_lines(above)}{table}{html_lines(below)}</div>"


def html_lines(text: str) -> str:
    """A paragraph per line, escaped."""
    return "".join(f"<p>{escape(line)}</p>" for line in text.splitlines())


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    names: int = 1,
    title: str = "",
    bold: Sequence[bool] = (),
    texts: Collection[str] = (),
) -> None:
    """Print a table to stdout; from 40 columns on, no number is cut or broken.

    Where columns don't fit, their headers wrap; where they still don't, the table is folded into
    several, each with the names of the rows. A pipe or a file gets all columns side by side,
    unless the environment variable COLUMNS says how wide it is. The first `names` columns name a
    row; `bold` says which rows stand out, and `texts` which other columns hold no numbers.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console, columns = Console(), list(zip(header, *rows, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        console.width = max(console.width, _total(widths))
    narrow = [_least_width(*column) for column in columns]
    parts: list[Sequence[int]] = [range(len(columns))]
    if _total(narrow) > console.width:
        merged = tuple(", ".join(filter(None, row)) for row in zip(*columns[:names], strict=True))
        columns, widths, names = [merged, *columns[names:]], [0, *narrow[names:]], 1
        wide = min(max(map(cell_len, merged)), max(console.width // 3, 18))
        widths[0] = max(min(wide, console.width - _total([0, max(widths)])), 1)
        narrow, parts = widths, _fold(widths, console.width)
    for part in parts:
        # Text, for a cell such as [bold] is to be shown and not obeyed.
        table = Table(
            title=Text(title) if title and part is parts[0] else None, title_justify="left"
        )
        spare = console.width - _total([narrow[i] for i in part])
        for i in part:
            width = min(widths[i], narrow[i] + spare)
            spare -= width - narrow[i]
            left = i < names or columns[i][0] in texts
            justify: Literal["left", "right"] = "left" if left else "right"
            table.add_column(Text(columns[i][0]), justify=justify, width=width, overflow="fold")
        for row in range(len(rows)):
            style = "bold" if row < len(bold) and bold[row] else None
            table.add_row(*(Text(columns[i][row + 1]) for i in part), style=style)
        console.print(table)


def _total(widths: Sequence[int]) -> int:
    """The width of a table: a border and two spaces per column, and a border at the end."""
    return sum(widths) + 3 * len(widths) + 1


def _least_width(name: str, *cells: str) -> int:
    """How narrow a column can be if its header and long cells are broken at spaces."""
    from rich.cells import cell_len

    def width(text: str, longest: int) -> int:
        words = text.split() if cell_len(text) > longest else [text]
        return max(map(cell_len, words), default=0)

    return max(width(name, 0), *(width(cell, _LONGEST_CELL) for cell in cells), 0)


def _fold(widths: Sequence[int], most: int) -> list[Sequence[int]]:
    """Which columns go next to each other; the first is in every part."""
    parts: list[list[int]] = [[0]]
    for i in range(1, len(widths)):
        if len(parts[-1]) > 1 and _total([widths[j] for j in [*parts[-1], i]]) > most:
            parts.append([0])
        parts[-1].append(i)
    return list(parts)
