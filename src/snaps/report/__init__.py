"""The report: one self-contained HTML page on a calibrated estimator, with nodes to explore.

See `SNAPS.report`. `facts` gathers the numbers, `notes` what a reader should know, `explorer` packs
the nodes, `charts` draws, and `page` fills the template (page.html.jinja, page.css and page.js).
"""

from __future__ import annotations

from snaps.report.facts import Subject
from snaps.report.page import write_report

__all__ = ["Subject", "write_report"]
