"""Tables on the terminal whose numbers survive any width: too many columns go below each other."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Cells longer than this wrap at spaces: a remark beside a number need not keep its line.
_LONGEST_CELL = 16
# Where a table is folded, the names of rows take a third of the width, and at least this much.
_SHARE, _LEAST_NAMES = 3, 18

Rows = Sequence[Sequence[str]]


def print_table(
    header: Sequence[str],
    rows: Rows,
    *,
    names: int = 1,
    title: str = "",
    bold: Sequence[bool] = (),
) -> None:
    """Print a table to stdout; from 40 columns on, no number is cut or broken.

    Where columns don't fit, their headers wrap; where they still don't, the table is folded into
    several, each with the names of the rows. A pipe or a file gets all columns side by side,
    unless the environment variable COLUMNS says how wide it is.

    Parameters
    ----------
    header : sequence of str
    rows : sequence of rows, each of as many cells
    names : int
        How many columns at the left name a row.
    title : str
    bold : sequence of bool, optional
        Which rows stand out.
    """
    from rich.console import Console

    console = Console()
    whole = _Block(header, rows, _widths(header, rows, wrap=False), names)
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        console.width = max(console.width, whole.total)
    for count, block in enumerate(_blocks(whole, console.width)):
        console.print(_rich(block, title if count == 0 else "", bold))


@dataclass(frozen=True)
class _Block:
    """Columns side by side, each of a fixed width."""

    header: Sequence[str]
    rows: Rows
    widths: list[int]
    names: int

    @property
    def total(self) -> int:
        """With a border and two spaces per column, and a border at the end."""
        return _total(self.widths)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 3 * len(widths) + 1


def _widths(header: Sequence[str], rows: Rows, *, wrap: bool) -> list[int]:
    """How wide each column is; with `wrap`, headers and long cells are broken at spaces."""
    from rich.cells import cell_len

    def longest_word(text: str) -> int:
        return max(map(cell_len, text.split()), default=0)

    def cell_width(text: str) -> int:
        return longest_word(text) if wrap and cell_len(text) > _LONGEST_CELL else cell_len(text)

    return [
        max([longest_word(name) if wrap else cell_len(name), *(cell_width(row[i]) for row in rows)])
        for i, name in enumerate(header)
    ]


def _blocks(whole: _Block, width: int) -> list[_Block]:
    """The table as it is, with wrapped headers, or folded: the first that fits."""
    if whole.total <= width:
        return [whole]
    narrow = _widths(whole.header, whole.rows, wrap=True)
    spare = width - _total(narrow)
    if spare < 0:
        return _folded(whole, narrow, width)
    for i in range(whole.names):  # the longest texts, so they get the room that is left
        more = min(spare, whole.widths[i] - narrow[i])
        narrow[i] += more
        spare -= more
    return [_Block(whole.header, whole.rows, narrow, whole.names)]


def _folded(whole: _Block, narrow: list[int], width: int) -> list[_Block]:
    """Several tables, one below the other; all names of a row share a column, which may wrap."""
    names, *merged = (
        ", ".join(filter(None, row[: whole.names])) for row in (whole.header, *whole.rows)
    )
    [room] = _widths([names], [[name] for name in merged], wrap=False)
    widest = max(narrow[whole.names :], default=0)
    room = min(room, max(width // _SHARE, _LEAST_NAMES), width - _total([0, widest]))
    parts: list[list[int]] = [[]]
    for i in range(whole.names, len(narrow)):
        if parts[-1] and _total([room, *(narrow[j] for j in parts[-1]), narrow[i]]) > width:
            parts.append([])
        parts[-1].append(i)
    return [
        _Block(
            [names, *(whole.header[i] for i in part)],
            [[name, *(row[i] for i in part)] for name, row in zip(merged, whole.rows, strict=True)],
            [max(room, 1), *(narrow[i] for i in part)],
            1,
        )
        for part in parts
    ]


def _rich(block: _Block, title: str, bold: Sequence[bool]) -> Any:
    from rich.table import Table
    from rich.text import Text

    # Text, for a cell such as [bold] is to be shown and not obeyed.
    table = Table(title=Text(title) if title else None, title_justify="left")
    for i, (name, width) in enumerate(zip(block.header, block.widths, strict=True)):
        justify: Any = "left" if i < block.names else "right"
        table.add_column(Text(name), justify=justify, width=width, overflow="fold")
    for i, row in enumerate(block.rows):
        style = "bold" if i < len(bold) and bold[i] else None
        table.add_row(*map(Text, row), style=style)
    return table
