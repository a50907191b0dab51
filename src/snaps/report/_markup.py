"""Small pieces of the page. What comes from users' data passes `escape`."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from snaps.report._charts import percent


def exact_value(name: str, value: float, words: str) -> str:
    """A number as it is read, with its exact value beside it."""
    return f'<data class="{name}" value="{value!r}">{escape(words)}</data>'


def exact_share(name: str, value: float) -> str:
    return exact_value(name, value, percent(value))


def paragraph(*sentences: str, kind: str = "") -> str:
    text = " ".join(sentence for sentence in sentences if sentence)
    return f'<p class="{kind}">{text}</p>' if kind else f"<p>{text}</p>"


def counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def terms(rows: Iterable[tuple[str, str, str]]) -> str:
    """Names, values in HTML, and a line that explains each."""
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{value}<small>{escape(why)}</small></dd></div>"
        for name, value, why in rows
    )
    return f'<dl class="terms">{cells}</dl>'
