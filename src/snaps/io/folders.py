"""A graph folder as the arguments of a `Graph`: which files there are, and what is in them."""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path
from typing import Any

from snaps._checks import check_path
from snaps._checks.ids import check_ids
from snaps._checks.named import EDGE_COLUMNS
from snaps._manifest import FEATURE_FILES, steady
from snaps.errors import SnapsError, warn
from snaps.io.csv import FEATURE, CsvColumns
from snaps.io.features import read_feature_file
from snaps.io.parquet import Columns, is_text


def open_nodes(root: Path) -> Columns:
    """The columns of nodes.parquet or nodes.csv."""
    path = _either(root, "nodes")
    return CsvColumns(path) if path.suffix == ".csv" else Columns(path)


def open_edges(root: Path, nodes: Columns) -> Columns:
    """The columns of edges.parquet or edges.csv; ids are strings in CSV where the nodes' are."""
    path = _either(root, "edges")
    if path.suffix != ".csv":
        return Columns(path)
    named = is_text(nodes.types.get("id"))
    return CsvColumns(path, tuple(chain(*EDGE_COLUMNS)) if named else ())


def _either(root: Path, name: str) -> Path:
    parquet, csv = root / f"{name}.parquet", root / f"{name}.csv"
    if not os.path.exists(csv):
        return parquet
    if os.path.exists(parquet):
        raise SnapsError(f"'{root}' must have one of {parquet.name} and {csv.name}, got both")
    return csv


def end_columns(names: Any) -> list[str]:
    """The columns of edges that hold ids: src and dst; without them, source and target."""
    pairs = [pair for pair in EDGE_COLUMNS if all(name in names for name in pair)]
    return list((pairs or EDGE_COLUMNS)[0])


def check_folder(folder: Any) -> Path:
    """A folder that is there."""
    root = check_path(folder, "folder")
    if not os.path.isdir(root):
        raise SnapsError(f"cannot read '{root}': no such folder")
    return root


def read_graph(
    folder: str | os.PathLike[str], *, weighted: bool
) -> tuple[dict[str, Any], Any, str]:
    """Edges and ids of a graph folder as arguments of a `Graph`, features, and the edges' file."""
    root = check_folder(folder)
    with steady(root):
        return _read_graph(root, weighted)


def _read_graph(root: Path, weighted: bool) -> tuple[dict[str, Any], Any, str]:
    nodes = open_nodes(root)
    edges = open_edges(root, nodes)
    ids = check_ids(nodes.ids("id"), nodes.title("id"))
    if len(ids) == 0:
        raise SnapsError(f"'{nodes.path}' must hold at least one node, got none")
    names = end_columns(edges)
    edges.check_memory([name for name in names if name in edges])
    ends = edges.places(names, ids)
    weights = None
    if weighted:
        weights = edges.numbers(["weight"])[:, 0]
    elif "weight" in edges:
        warn(f"{edges.title('weight')} is ignored; weighted=True (--weighted) uses it")
    parts = {"edges": ends, "num_nodes": len(ids), "ids": ids, "edge_weights": weights}
    return parts, read_features(root, nodes, len(ids)), edges.file


def read_features(root: Path, nodes: Columns, num_nodes: int) -> Any:
    """The features of a graph folder, from wherever they are; None if there are none."""
    present = [root / name for name in FEATURE_FILES if os.path.exists(root / name)]
    places = [nodes.title("features")] if "features" in nodes else []
    named = [name for name in nodes.types if name.startswith(FEATURE)]
    if isinstance(nodes, CsvColumns) and named:
        places.append(f"{nodes.file} columns '{FEATURE}<name>'")
    places += [path.name for path in present]
    if len(places) > 1:
        raise SnapsError(f"'{root}' must have features in one place, got {' and '.join(places)}")
    if not places:
        return None
    if not present:
        return nodes.numbers(named) if "features" not in nodes else nodes.lists("features")
    return read_feature_file(present[0], num_nodes)
