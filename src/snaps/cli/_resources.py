"""What `--memory` allows: a bound on what a prediction needs, and where large tables then lie."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from snaps._checks import shown
from snaps._checks.named import PREFIX
from snaps._runtime.memory import LARGE
from snaps.errors import SnapsError
from snaps.io.csv import FEATURE, CsvColumns
from snaps.io.features import feature_sizes, float_bytes
from snaps.io.folders import FEATURE_FILES, GraphFiles
from snaps.io.parquet import is_text
from snaps.predictor.estimator import Estimator, method_of


@dataclass(frozen=True)
class Shape:
    """What the memory of a prediction depends on; docs/scale.md explains the bound."""

    nodes: int
    edges: int
    classes: int
    features: int = 0  # bytes of all features, as they are read and as floats
    columns: int = 0  # of the features
    weighted: bool = False
    held: int = 0  # other bytes that no file can hold: strings, and what is read at a time
    padded: int = 0  # bytes of tables of strings, in which each is as long as the longest


def needed(shape: Shape, estimator: Estimator) -> tuple[int, int]:
    """Bytes that a prediction takes with all tables in memory, and with the large ones mapped."""
    nodes, pooled, k = shape.nodes, method_of(estimator).uses_evidence, getattr(estimator, "k", 0)
    everyone = k > 0 and getattr(estimator, "candidates", None) is None
    graph = (40 if shape.weighted else 16) * shape.edges
    search = 12 * nodes * k * (1 + pooled)
    if everyone:
        search += 450 * nodes + max(shape.features, 4 * nodes * min(shape.columns, 512))
    if pooled or everyone:  # singular vectors have a row for each column
        search += 7100 * shape.columns
    least = 700 * 10**6 + (130 + 3 * shape.classes) * nodes + shape.held
    least += graph + max(graph, search)  # the graph is built before the search
    table = 8 * nodes * shape.classes
    tables = table * (7 if pooled else 4) * (1 if table >= LARGE else 2)
    mapped = shape.features + max(2 * shape.features, tables) + (2300 if pooled else 200) * nodes
    return least + mapped + shape.padded, least


def shape_of(files: GraphFiles, *, weighted: bool = False, group_by: str | None = None) -> Shape:
    """The shape of a folder, of which strings are read for their lengths."""
    nodes, rows, edges = files.nodes, files.nodes.num_rows, files.edges.num_rows
    (classes, _), (columns, kind), turned = nodes.width("probs"), nodes.width("features"), 0
    held = sum(table.nbytes for table in (nodes, files.edges) if isinstance(table, CsvColumns))
    held += rows * (300 * is_text(nodes.types.get("id")) + 12 * nodes.longest("label"))
    if not classes:
        classes = sum(name.startswith(PREFIX) for name in nodes.types)
        held += classes * min(2**21, 16 * rows)  # a page of each column
    if isinstance(nodes, CsvColumns):
        columns, kind = sum(name.startswith(FEATURE) for name in nodes.types), np.dtype(float)
    features = rows * columns * float_bytes(kind)
    for path in (files.root / name for name in FEATURE_FILES):
        if path.exists():
            features, columns, turned = feature_sizes(path)
    padded = 12 * rows * (nodes.longest("id") + nodes.longest(group_by or ""))
    return Shape(rows, edges, classes, features, columns, weighted, held + turned, padded)


def place_for_tables(limit: int, shape: Shape, estimator: Estimator, out: str) -> str | None:
    """The folder in which large tables are mapped to stay within the limit; None is memory."""
    whole, least = needed(shape, estimator)
    if limit >= whole:
        return None
    if limit < least:  # rounded up, so that the size that is named will do
        raise SnapsError(
            f"'--memory' must be at least {-(-least // 10**8) / 10:.1f}GB for this graph, "
            f"got {shown_size(limit)}"
        )
    # Where the sets will be, and so where writing was checked: links are followed.
    return tempfile.gettempdir() if out == "-" else os.path.dirname(os.path.realpath(out))


def read_size(text: str, name: str) -> int:
    """Bytes from '8GB', '8GiB' or '500M'."""
    parts = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]?)(i?)b?\s*", text.lower())
    if parts is None or (parts[3] and not parts[2]):
        raise SnapsError(f"'{name}' must be a size such as 8GB or 500MB, got {shown(text)}")
    size = float(parts[1]) * (1024 if parts[3] else 1000) ** " kmgt".index(parts[2] or " ")
    if size >= 10**18:  # no machine has as much; so many digits that they are infinite are more
        raise SnapsError(f"'{name}' must be less than 1,000,000 TB, got {shown(text)}")
    return int(size)


def shown_size(size: float) -> str:
    """Bytes in a unit that suits them."""
    for unit, bytes_, digits in (("GB", 1e9, 1), ("MB", 1e6, 0), ("kB", 1e3, 0)):
        if size >= bytes_:
            return f"{size / bytes_:.{digits}f} {unit}"
    return f"{size:.0f} bytes"


def peak_memory() -> int | None:
    """The most bytes that this process has held, if the system tells."""
    with suppress(OSError, IndexError):  # where there is no such file, or no such line
        status = Path("/proc/self/status").read_text()  # what `resource` says may be the parent's
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
