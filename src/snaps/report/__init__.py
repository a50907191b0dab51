"""The report: one self-contained HTML page on a calibrated estimator, with nodes to explore.

See `SNAPS.report`. `facts` gathers the numbers, `summary` the first screen, `notes` what a reader
should know, `explorer` packs the nodes, `charts` draws, and this file fills the template
(page.html.jinja, page.css and page.js), which has all sentences of the page. It escapes every value
that is put into it; nothing on the page asks a network for anything.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import os
import time
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from snaps._checks import shown
from snaps._version import __version__
from snaps.errors import SnapsError
from snaps.io.files import atomic_path, check_page, check_writable
from snaps.predictor.evaluation import compare_with_truth, slice_name, watch_of
from snaps.predictor.exchangeability import compare_at
from snaps.predictor.predictor import Predictor
from snaps.predictor.roles import read_labels, read_nodes
from snaps.report import charts
from snaps.report.explorer import pack_explorer
from snaps.report.facts import Subject, gather
from snaps.report.notes import find_notes
from snaps.report.summary import summarise


def report(
    predictor: Predictor,
    path: str | os.PathLike[str],
    labels: Any = None,
    nodes: Any = None,
    *,
    show: Any = None,
    title: str = "",
    source: str = "",
    watched: Any = None,
) -> None:
    """Write the report on a predictor's sets, whole or not at all; see `SNAPS.report`."""
    check_writable(path)
    check_page(path, "path")
    inputs, roles = predictor.inputs, predictor.roles
    wanted = predictor.wanted(nodes)
    for name, text in (("title", title), ("source", source)):
        if not isinstance(text, str):
            raise SnapsError(f"'{name}' must be a string, got {shown(text)}")
    if watched is not None:
        watched = watch_of(predictor, watched)
    shown_nodes = read_nodes(inputs.graph, [] if show is None else show, "show", True)
    predictor.refuse_used(wanted)
    truth, evaluation = predictor.labels_of_used(), None
    if labels is not None:
        truth, _ = read_labels(inputs.graph, labels, inputs.num_classes, roles.classes)
        labelled = wanted[truth[wanted] >= 0]
        if labelled.size:
            sets = predictor.sets_at(labelled)
            evaluation = compare_with_truth(predictor, sets, truth[labelled])
    even = predictor.calibration.odds is None  # else nodes drawn and not drawn look different
    comparable = even and wanted.size and inputs.positions(roles.calib.keys).size
    look = compare_at(predictor, wanted) if comparable else None
    subject = Subject(predictor, wanted, truth, predictor.sets_at(wanted), evaluation, look)
    facts, summary = gather(subject), summarise(subject)
    examples = [example.position for example in summary.examples]
    packed = pack_explorer(subject, np.union1d(shown_nodes, examples).astype(np.int64))
    page = _templates().get_template("page.html.jinja").render(
        title=title, source=source, date=_today(), version=__version__,
        facts=facts, summary=summary, notes=find_notes(subject, facts.weights.chosen),
        watch=watched, slice_name=slice_name, explorer=packed, charts=charts,
        style=_asset("page.css"), script=_asset("page.js"),
    )  # fmt: skip
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="replace")


def _today() -> str:
    """The date; that of SOURCE_DATE_EPOCH, where pages must come out the same on every day."""
    seconds = float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date().isoformat()


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
    for share in (charts.percent, charts.exact_percent, charts.aligned_percent):
        environment.filters[share.__name__] = share
    environment.filters |= {"thousands": "{:,}".format, "digest": _digest}
    return environment


def _asset(name: str) -> Markup:
    """A file of this package, to be put into the page as it is."""
    return Markup(files("snaps.report").joinpath(name).read_text("utf-8"))


def _digest(text: str) -> str:
    """The hash by which a page's security policy names its own style and script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
