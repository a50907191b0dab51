"""What a command may take of memory, what it will need, and what it took."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snaps._estimators import Estimator

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
# Measured: the interpreter, its libraries and what a search has at work; and a node's id, key,
# label and role.
_BASE, _A_NODE = 700 * 10**6, 120


def read_size(text: str | None, name: str) -> int | None:
    """Bytes from '8GB', '8GiB' or '500M'."""
    from snaps._errors import SnapsError

    if text is None:
        return None
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]?)(i?)b?\s*", text.lower())
    if found is None or (found[3] and not found[2]):
        raise SnapsError(f"'{name}' must be a size such as 8GB or 500MB, got {text!r}")
    unit = _BINARY[found[2]] if found[3] else _UNITS[found[2]]
    return int(float(found[1]) * unit)


def shown_size(size: float) -> str:
    """Bytes in a unit that suits them."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def place_for_tables(
    limit: int | None, folder: Path, estimator: Estimator, out: str, *, weighted: bool
) -> str | None:
    """Where large tables must lie for the work to fit the limit: None is memory.

    Complains about a limit that is too small for both, and names the smallest.
    """
    from snaps._errors import SnapsError

    if limit is None:
        return None
    whole, least = needs(folder, estimator, weighted=weighted)
    if limit >= whole:
        return None
    if limit < least:
        # Rounded up, so that the size that is named will do.
        fit = -(-least // 10**8) / 10
        raise SnapsError(
            f"'--memory' must be at least {fit:.1f}GB for this graph, got {shown_size(limit)}"
        )
    return tempfile.gettempdir() if out == "-" else os.fspath(Path(os.path.abspath(out)).parent)


def needs(folder: Path, estimator: Estimator, *, weighted: bool = False) -> tuple[int, int]:
    """Bytes that a prediction takes with all tables in memory, and with the large ones mapped."""
    from snaps._parquet import Columns

    nodes, edges = Columns(folder / "nodes.parquet"), Columns(folder / "edges.parquet")
    n, num_edges = nodes.num_rows, edges.num_rows
    classes, probs_bytes = nodes.width("probs")
    if not classes:
        classes, probs_bytes = sum(name.startswith("p_") for name in nodes.types), 8
    features, feature_bytes = nodes.width("features")
    beside = sum(
        path.stat().st_size for name in ("features.npz", "features.npy")
        if (path := folder / name).exists()
    )  # fmt: skip
    k = getattr(estimator, "k", 0)
    table, graph = 8 * n * classes, (24 if weighted else 16) * num_edges + 8 * n
    building = 8 * num_edges + (48 if weighted else 8) * num_edges
    near = 12 * n * k
    parts = _tables(estimator)
    given = n * classes * probs_bytes + n * features * feature_bytes + beside
    if parts["context"]:
        near, given = 2 * near, given + 8 * n * (features or 128) + 2 * 8 * n * 64
    approximate = k and getattr(estimator, "candidates", None) is None
    searching = near + (4 * n * features + 60 * n if approximate else 0)
    fixed = _BASE + _A_NODE * n + 2 * n * classes
    least = fixed + graph + max(building, searching)
    work = max(searching, near + parts["tables"] * table)
    whole = fixed + graph + max(building, given + table + work)
    return int(whole), int(least)


def _tables(estimator: Estimator) -> dict[str, int]:
    """How many tables (n, K) are there at a time beside the probabilities."""
    if estimator.uses_evidence:
        return {"tables": 9, "context": 1}
    return {"tables": 3, "context": 0}


def peak_memory() -> int | None:
    """The most bytes that this process has held, if the system tells."""
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
