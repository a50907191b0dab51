"""The report: one self-contained HTML page on a calibrated estimator, and its nodes to explore.

See `SNAPS.report`. Gathered as numbers (`_facts`, `_notes`), packed for the explorer (`_explorer`),
drawn (`_charts`) and written as a page (`_page`, with page.html, page.css and page.js).
"""

from __future__ import annotations

import os

import numpy as np

from snaps.io.files import atomic_path
from snaps.report._explorer import pack_explorer
from snaps.report._facts import Facts, Subject, gather
from snaps.report._page import render

__all__ = ["Facts", "Subject", "gather", "write_report"]


def write_report(path: str | os.PathLike[str], subject: Subject, show: np.ndarray) -> None:
    """Write the page, whole or not at all; `show` are positions of nodes to carry for certain."""
    from snaps import __version__

    page = render(gather(subject), pack_explorer(subject, show), __version__)
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="replace")
