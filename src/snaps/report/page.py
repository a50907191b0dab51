"""From numbers to a page: one self-contained HTML file, made by the template next to this module.

The template has all sentences of the page. It escapes every value that is put into it; nothing on
the page asks a network for anything.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from snaps._version import __version__
from snaps.io.files import atomic_path
from snaps.report import charts
from snaps.report.explorer import Explorer, pack_explorer
from snaps.report.facts import Facts, Subject, gather
from snaps.report.notes import Note, find_notes


def write_report(path: str | os.PathLike[str], subject: Subject, show: np.ndarray) -> None:
    """Write the page, whole or not at all; `show` are positions of nodes that it must have."""
    facts = gather(subject)
    notes = find_notes(subject, facts.weights.chosen)
    page = render(facts, notes, pack_explorer(subject, show))
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="replace")


def render(facts: Facts, notes: Sequence[Note], explorer: Explorer) -> str:
    """The whole page."""
    return _templates().get_template("page.html.jinja").render(
        facts=facts, notes=notes, explorer=explorer, charts=charts, version=__version__,
        style=_asset("page.css"), script=_asset("page.js"),
    )  # fmt: skip


@cache
def _templates() -> Environment:
    """The templates of this package: values are escaped, and a misspelt name raises."""
    environment = Environment(
        loader=PackageLoader("snaps.report", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["percent"] = charts.percent
    environment.filters["exact_percent"] = charts.exact_percent
    environment.filters["thousands"] = "{:,}".format
    environment.filters["digest"] = _digest
    return environment


def _asset(name: str) -> Markup:
    """A file of this package, to be put into the page as it is."""
    return Markup(files("snaps.report").joinpath(name).read_text("utf-8"))


def _digest(text: str) -> str:
    """The hash by which a page's security policy names its own style and script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
