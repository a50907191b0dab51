"""The report: one self-contained HTML page on a calibrated estimator, with nodes to explore.

See `SNAPS.report`. `facts` gathers the numbers, `notes` what a reader should know, `explorer` packs
the nodes, `charts` draws, and `page` fills the template (page.html.jinja, page.css and page.js).
"""

from __future__ import annotations

import os
from typing import Any

from snaps._checks import check_disjoint, shown
from snaps.errors import SnapsError
from snaps.io.files import check_page, check_writable
from snaps.predictor.evaluation import compare_with_truth
from snaps.predictor.exchangeability import compare_at
from snaps.predictor.predictor import Predictor
from snaps.predictor.roles import read_labels, read_nodes
from snaps.report.facts import Subject
from snaps.report.page import write_report

__all__ = ["Subject", "report", "write_report"]


def report(
    predictor: Predictor,
    path: str | os.PathLike[str],
    labels: Any = None,
    nodes: Any = None,
    *,
    show: Any = None,
    title: str = "",
) -> None:
    """Write the report on a predictor's sets; see `SNAPS.report`."""
    check_writable(path)
    check_page(path, "path")
    inputs, roles = predictor.inputs, predictor.roles
    wanted = predictor.wanted(nodes)
    if not isinstance(title, str):
        raise SnapsError(f"'title' must be a string, got {shown(title)}")
    shown_nodes = read_nodes(inputs.graph, [] if show is None else show, "show", True)
    for whose, keys in predictor.used():
        check_disjoint(wanted, "nodes", inputs.positions(keys), whose, inputs.graph.ids)
    truth, evaluation = predictor.labels_of_used(), None
    if labels is not None:
        truth, _ = read_labels(inputs.graph, labels, inputs.num_classes, roles.classes)
        labelled = wanted[truth[wanted] >= 0]
        if labelled.size:
            sets = predictor.sets_at(labelled)
            evaluation = compare_with_truth(predictor, sets, truth[labelled])
    comparable = wanted.size and inputs.positions(roles.calib.keys).size
    look = compare_at(predictor, wanted) if comparable else None
    write_report(path, Subject(predictor, wanted, truth, evaluation, look, title), shown_nodes)
