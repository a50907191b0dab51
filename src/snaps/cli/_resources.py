"""What a command may take of memory, what it will need, and what it took."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from snaps.kernels.memory import LARGE

if TYPE_CHECKING:
    from snaps._base import Estimator

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
# Estimates: the interpreter, its libraries and what a search has at work; and a node's id, key,
# label and role.
_BASE, _A_NODE = 700 * 10**6, 120
# Of each column that is read Parquet holds a page, as it is in the file and decoded.
_A_PAGE = 2 * 2**20
# Tables that finding singular vectors holds at a time: the products, what LAPACK copies, and the
# rows of a block, which are an eighth of the columns.
_BASES = 6.5


def read_size(text: str | None, name: str) -> int | None:
    """Bytes from '8GB', '8GiB' or '500M'."""
    from snaps._checks import shown
    from snaps._errors import SnapsError

    if text is None:
        return None
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]?)(i?)b?\s*", text.lower())
    if found is None or (found[3] and not found[2]):
        raise SnapsError(f"'{name}' must be a size such as 8GB or 500MB, got {shown(text)}")
    size = float(found[1]) * (_BINARY[found[2]] if found[3] else _UNITS[found[2]])
    if size >= 10**18:  # no machine has as much; so many digits that they are infinite are more
        raise SnapsError(f"'{name}' must be less than 1,000,000 TB, got {shown(text)}")
    return int(size)


def shown_size(size: float) -> str:
    """Bytes in a unit that suits them."""
    for unit, least, digits in (("GB", 1e9, 1), ("MB", 1e6, 0), ("kB", 1e3, 0)):
        if size >= least:
            return f"{size / least:.{digits}f} {unit}"
    return f"{size:.0f} bytes"


def place_for_tables(
    limit: int | None,
    folder: Path,
    estimator: Estimator,
    out: str,
    *,
    weighted: bool,
    group_by: str | None = None,
) -> str | None:
    """Where large tables must lie for the work to fit the limit: None is memory.

    Complains about a limit that is too small for both, and names the smallest.
    """
    from snaps._errors import SnapsError

    if limit is None:
        return None
    whole, least = needs(folder, estimator, weighted=weighted, group_by=group_by)
    if limit >= whole:
        return None
    if limit < least:
        # Rounded up, so that the size that is named will do.
        fit = -(-least // 10**8) / 10
        raise SnapsError(
            f"'--memory' must be at least {fit:.1f}GB for this graph, got {shown_size(limit)}"
        )
    # Where the sets will lie, and so where writing was checked: links are followed.
    return tempfile.gettempdir() if out == "-" else os.path.dirname(os.path.realpath(out))


def needs(
    folder: Path, estimator: Estimator, *, weighted: bool = False, group_by: str | None = None
) -> tuple[int, int]:
    """Bytes that a prediction takes with all tables in memory, and with the large ones mapped."""
    from snaps._csv import FEATURE, CsvColumns
    from snaps._folder_files import open_folder
    from snaps._parquet import is_text

    with open_folder(folder) as files:
        nodes, edges = files.nodes, files.edges
    held = sum(each.nbytes for each in (nodes, edges) if isinstance(each, CsvColumns))
    classes, kind = nodes.width("probs")
    columns, probs_bytes = 1, kind.itemsize
    if not classes:
        classes, probs_bytes = sum(name.startswith("p_") for name in nodes.types), 8
        columns = classes
    features, kind = nodes.width("features")
    feature_bytes, sparse, turned, width = _held(kind), 0, 0, 0
    if isinstance(nodes, CsvColumns):
        features, feature_bytes = sum(name.startswith(FEATURE) for name in nodes.types), 8
    if not features:
        features, feature_bytes, sparse, turned, width = _beside(folder)
    # A string takes the bytes of the longest; labels are also sorted, which no file helps with.
    named = 300 * is_text(nodes.types.get("id")) + 12 * nodes.longest("label")
    padded = 12 * nodes.longest("id") + 12 * nodes.longest(group_by or "")
    whole, least = needed(
        nodes.num_rows, edges.num_rows, classes, features, getattr(estimator, "k", 0),
        probs_bytes=probs_bytes, feature_bytes=feature_bytes,
        sparse=sparse, turned=turned, named=named, padded=padded,
        columns=columns, width=width,
        everyone=getattr(estimator, "candidates", None) is None,
        pooled=estimator.uses_evidence, weighted=weighted,
    )  # fmt: skip
    return whole + held, least + held


def _held(kind: np.dtype) -> int:
    """Bytes of a feature as it is read, and of the float that it is turned into."""
    if kind in (np.float32, np.float64):
        return kind.itemsize
    return kind.itemsize + (4 if kind.itemsize < 4 else 8)


def _beside(folder: Path) -> tuple[int, int, int, int, int]:
    """Features in a file of their own: columns, bytes of each, bytes if sparse, and to turn these.

    SciPy turns one sparse format into another in memory, by way of arrays as large. Sparse rows of
    few columns are searched as dense ones; of others the number of columns comes last.
    """
    from snaps._cells import WIDE
    from snaps._feature_files import read_npy
    from snaps._files import open_npz

    table, packed = folder / "features.npy", folder / "features.npz"
    if table.exists():
        array = read_npy(table)
        return array.shape[-1] if array.ndim else 0, _held(array.dtype), 0, 0, 0
    if not packed.exists():
        return 0, 0, 0, 0, 0
    with open_npz(packed) as arrays:
        if "x" in arrays and "format" not in arrays:
            kind, shape = arrays.header("x")
            return shape[-1] if shape else 0, _held(kind), 0, 0, 0
        size = sum(arrays.sizes.values())
        other = "format" in arrays and arrays["format"].tolist() not in ("csr", b"csr")
        ends = arrays.get("shape" if "format" in arrays else "x_shape", np.empty(0))
        width = int(ends.flat[-1]) if ends.size and ends.dtype.kind in "iu" else 0
    return width if width <= WIDE else 0, 0, size, 2 * size * other, width


def needed(
    nodes: int,
    edges: int,
    classes: int,
    features: int,
    k: int,
    *,
    probs_bytes: int = 4,
    feature_bytes: int = 4,
    sparse: int = 0,
    turned: int = 0,
    named: int = 0,
    padded: int = 0,
    columns: int = 1,
    width: int = 0,
    everyone: bool = True,
    pooled: bool = False,
    weighted: bool = False,
) -> tuple[int, int]:
    """The same by numbers, of which probabilities and features have so many bytes each as read.

    `sparse` are bytes of sparse features, `turned` those that their way from another sparse format
    takes, `named` bytes per node of strings, `padded` those of strings as long as the longest,
    which may be mapped, `columns` those that probabilities are read from, `width` the columns of
    features where these are sparse and many, and `everyone` says that neighbours are looked for
    among all nodes.
    """
    from snaps._context import SUMMARY_SIZE

    table, near = 8 * nodes * classes, 12 * nodes * k
    searched = nodes * features * feature_bytes + sparse
    # Sparse features are looked at in a copy.
    given = nodes * classes * probs_bytes + searched + sparse
    graph = (24 if weighted else 16) * edges + 8 * nodes
    building = (56 if weighted else 16) * edges
    if pooled:  # a second graph of neighbours, the features summed up, and those in context
        near, given = 2 * near, given + 8 * nodes * min(features or 128, 128) + 1024 * nodes
    searching = near + (4 * features + 60) * nodes * bool(k and everyone)
    # Leading singular vectors have as many rows as features have columns: of all features to sum
    # them up, of wide sparse ones to search among all nodes.
    if pooled or (k and everyone and not features):
        width = max(width, features)
        searching += int(_BASES * 8 * (SUMMARY_SIZE + 8) * width) * (width > SUMMARY_SIZE)
    fixed = _BASE + (_A_NODE + named + 2 * classes) * nodes + graph
    # In blocks: scores of all nodes, of those asked for, and as neighbours read them, in half the
    # bytes. Small tables are made whole, one for each part.
    tables = (6.0, 13.0) if pooled else (2.5, 6.5)
    # Where rows have a single entry, they are searched in a copy with these scaled.
    scaled = searched * bool(k)
    work = max(searching + scaled, near + int(tables[table < LARGE] * table))
    reading = max(columns * min(_A_PAGE, 16 * nodes), turned)
    whole, least = max(building, given + max(reading, table + work)), max(building, searching)
    return fixed + padded * nodes + whole, fixed + max(least, reading)


def peak_memory() -> int | None:
    """The most bytes that this process has held, if the system tells."""
    status = Path("/proc/self/status")
    if status.exists():  # what `resource` says there may be the parent's
        found = re.search(r"^VmHWM:\s*(\d+) kB", status.read_text(), re.MULTILINE)
        if found:
            return int(found[1]) * 1024
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024


def told(seconds: dict[str, float], total: float) -> dict[str, Any]:
    """Time by stage and the most memory, for the end of a report."""
    return {"seconds": {**seconds, "total": total}, "peak_memory": peak_memory()}


def in_words(summary: dict[str, Any]) -> str:
    """The same in a line."""
    seconds = dict(summary["seconds"])
    total = seconds.pop("total")
    stages = ", ".join(f"{name} {time:.1f}" for name, time in seconds.items() if time >= 0.05)
    line = f"took {total:.1f} s" + (f" ({stages})" if stages else "")
    peak = summary["peak_memory"]
    return line if peak is None else f"{line} and {shown_size(peak)} of memory"
