"""A graph folder on disk: which files there are, and that they belong together.

A folder is several files, each of which is replaced on its own. `write_folder` gives nodes.parquet
its name last, so that a writer that stops half way leaves no folder that can be read. All files
that it writes carry one mark, a digest of the graph: files of two graphs are not read as one.
"""

from __future__ import annotations

import csv
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from snaps._checks import check_path, in_row
from snaps._checks.ids import check_ids
from snaps._checks.matrices import refuse_weights
from snaps._checks.named import EDGE_COLUMNS
from snaps.errors import SnapsError, warn
from snaps.io.csv import FEATURE, CsvColumns
from snaps.io.features import read_feature_file
from snaps.io.files import sha256, unreadable
from snaps.io.parquet import Columns, is_text

CSV_FILES = ("nodes.csv", "edges.csv")
FEATURE_FILES = ("features.npz", "features.npy")
MARK, FEATURES = "snaps.folder", "snaps.features"  # metadata of files that `write_folder` writes


@dataclass(frozen=True)
class GraphFiles:
    """The files of a graph folder, opened; columns are read when asked for."""

    root: Path
    nodes: Columns
    edges: Columns


@contextmanager
def open_folder(folder: str | os.PathLike[str]) -> Iterator[GraphFiles]:
    """Open a graph folder, whose files must not change within the block."""
    root = check_folder(folder)
    before, cause = _stamps(root), None
    try:
        yield _opened(root)
    except SnapsError as error:
        cause = error
    if _stamps(root) != before:
        raise SnapsError(f"'{root}' must not change while it is read: read it again") from cause
    if cause is not None:
        raise cause


def _opened(root: Path) -> GraphFiles:
    """The files of a folder, if they belong together; ids are strings in all of them or in none."""
    path = _either(root, "nodes")
    nodes = CsvColumns(path) if path.suffix == ".csv" else Columns(path)
    path, named = _either(root, "edges"), is_text(nodes.types.get("id"))
    texts = tuple(chain(*EDGE_COLUMNS)) if named else ()
    edges = CsvColumns(path, texts) if path.suffix == ".csv" else Columns(path)
    check_mark(nodes, edges.path, edges.metadata.get(MARK))
    beside = [name for name in FEATURE_FILES if os.path.exists(root / name)]
    if FEATURES in nodes.metadata and "features" not in nodes and not beside:
        missing = nodes.metadata[FEATURES]
        raise SnapsError(f"'{root}' must hold the {missing} that belongs to '{nodes.file}'")
    return GraphFiles(root, nodes, edges)


def check_folder(folder: Any) -> Path:
    """A folder that is there."""
    root = check_path(folder, "folder")
    if not os.path.isdir(root):
        raise SnapsError(f"cannot read '{root}': no such folder")
    return root


def folder_files(folder: str | os.PathLike[str]) -> list[Path]:
    """The files and folders of part files that a graph folder may consist of."""
    names = ("nodes.parquet", "edges.parquet", *FEATURE_FILES, *CSV_FILES)
    return [Path(folder) / name for name in names]


def check_mark(nodes: Columns, path: Path, mark: str | None) -> None:
    """Refuse a file that `write_folder` wrote for another graph than the nodes."""
    if mark and mark != nodes.metadata.get(MARK, mark):
        raise SnapsError(
            f"'{path.parent}' must hold files that were written together, "
            f"got '{path.name}' of another graph than '{nodes.file}'"
        )


def _stamps(root: Path) -> list[tuple[str, int, int, int]]:
    """What shows that a file is another one: its inode, size and time."""
    stamps = []
    for path in folder_files(root):
        if os.path.islink(path) and not os.path.exists(path):
            raise _dangling(path)
        for file in [path, *part_files(path)] if path.is_dir() else [path]:
            if os.path.exists(file):
                state = file.stat()
                stamps.append((str(file), state.st_ino, state.st_size, state.st_mtime_ns))
    return stamps


def part_files(folder: Path, above: tuple[str, ...] = ()) -> list[Path]:
    """All files below a folder, links followed, in the order of their names."""
    place = os.path.realpath(folder)
    if place in above:
        raise SnapsError(f"cannot read '{folder}': the link leads to a folder that it is in")
    try:
        inside = list(folder.iterdir())
    except OSError as error:
        raise unreadable(folder, error, "not a folder") from error
    files = list[Path]()
    for path in inside:
        if path.is_dir():
            files += part_files(path, (*above, place))
        elif os.path.exists(path):
            files.append(path)
        elif not path.name.startswith((".", "_")):  # which no reader of Parquet looks at
            raise _dangling(path)
    return sorted(files)


def _dangling(path: Path) -> SnapsError:
    return SnapsError(f"cannot read '{path}': the link leads to no file")


def digests(paths: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of files and of folders of part files, by their names.

    What `sha256sum` prints of a file; of a folder of part files, what it prints of its own output
    for all of them in the order of their names.
    """
    out = {}
    for path in filter(os.path.exists, paths):
        if path.is_dir():
            lines = [f"{sha256(p)}  {p.relative_to(path).as_posix()}\n" for p in part_files(path)]
            out[path.name] = hashlib.sha256("".join(lines).encode()).hexdigest()
        else:
            out[path.name] = sha256(path)
    return out


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


def read_graph(files: GraphFiles, *, weighted: bool) -> tuple[dict[str, Any], Any]:
    """Edges and ids of a graph folder as arguments of a `Graph`, and its features."""
    nodes, edges = files.nodes, files.edges
    ids = check_ids(nodes.ids("id"), nodes.title("id"))
    if len(ids) == 0:
        raise SnapsError(f"'{nodes.path}' must hold at least one node, got none")
    names = end_columns(edges)
    edges.check_memory([name for name in names if name in edges])
    ends = edges.places(names, ids)
    weights = None
    if weighted:
        weights = edges.numbers(["weight"])[:, 0]
        refuse_weights(weights, edges.title("weight"), in_row)
    elif "weight" in edges:
        warn(f"{edges.title('weight')} is ignored; weighted=True (--weighted) uses it")
    parts = {"edges": ends, "num_nodes": len(ids), "ids": ids, "edge_weights": weights}
    return parts, read_features(files.root, nodes, len(ids))


def read_features(root: Path, nodes: Columns, num_nodes: int) -> Any:
    """The features of a graph folder, from wherever they are; None if there are none."""
    present = [root / name for name in FEATURE_FILES if os.path.exists(root / name)]
    sources = [nodes.title("features")] if "features" in nodes else []
    named = [name for name in nodes.types if name.startswith(FEATURE)]
    if isinstance(nodes, CsvColumns) and named:
        sources.append(f"{nodes.file} columns '{FEATURE}<name>'")
    sources += [path.name for path in present]
    if len(sources) > 1:
        raise SnapsError(f"'{root}' must have features in one place, got {' and '.join(sources)}")
    if not sources:
        return None
    if not present:
        return nodes.numbers(named) if "features" not in nodes else nodes.lists("features")
    features, mark = read_feature_file(present[0], num_nodes)
    check_mark(nodes, present[0], mark)
    return features


def change_nodes(path: Path, new: Path, rows: np.ndarray, columns: Mapping[str, list[str]]) -> None:
    """Write nodes.parquet or nodes.csv to `new` with other values in some rows of columns of names.

    All else stays: other columns, the order of rows, and what the file says of itself. An empty
    string is null. A column that is missing is added.
    """
    if path.is_dir():
        raise SnapsError(f"'{path}' must be one file to be changed, got a folder of part files")
    change = _change_csv if path.suffix == ".csv" else _change_parquet
    change(path, new, rows, columns)


def _change_csv(path: Path, new: Path, rows: np.ndarray, columns: Mapping[str, list[str]]) -> None:
    """Field by field, as text."""
    with open(path, newline="", encoding="utf-8-sig") as old:
        header, *lines = (line for line in csv.reader(old) if line)
    for name, values in columns.items():
        if name not in header:
            header.append(name)
            lines = [[*line, ""] for line in lines]
        place = header.index(name)
        for row, value in zip(rows.tolist(), values, strict=True):
            lines[row][place] = value
    with open(new, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *lines])


def _change_parquet(
    path: Path, new: Path, rows: np.ndarray, columns: Mapping[str, list[str]]
) -> None:
    """One row group after the other, so that wide features need not fit into memory."""
    with pq.ParquetFile(path, page_checksum_verification=True) as old:
        schema, changed = old.schema_arrow, dict[str, Any]()
        chosen = np.zeros(old.metadata.num_rows, bool)
        chosen[rows] = True
        for name, values in columns.items():
            place = schema.get_field_index(name)
            kind = None if place < 0 else schema.field(place).type
            new_values = _typed(values, kind, f"{path.name} column '{name}'")
            column = pa.nulls(len(chosen), new_values.type)
            if place >= 0:
                column = old.read([name]).column(0).cast(new_values.type).combine_chunks()
            in_order = new_values.take(pa.array(np.argsort(rows)))
            changed[name] = pc.replace_with_mask(column, pa.array(chosen), in_order)
            field = pa.field(name, column.type)
            schema = schema.append(field) if place < 0 else schema.set(place, field)
        begin = 0
        with pq.ParquetWriter(new, schema, write_page_checksum=True) as writer:
            for group in range(old.num_row_groups):
                table = old.read_row_group(group)
                fresh = {name: table[name] for name in table.column_names}
                for name, column in changed.items():
                    fresh[name] = column.slice(begin, len(table))
                writer.write_table(pa.table(fresh).cast(schema))
                begin += len(table)


def _typed(values: list[str], kind: Any, title: str) -> Any:
    """Names as an Arrow array of their column's type, if it has one; "" is null."""
    if kind is not None and types.is_dictionary(kind):
        kind = kind.value_type
    if kind is None or types.is_null(kind):
        plain = all(re.fullmatch("0|-?[1-9][0-9]{0,17}", value) for value in values if value)
        kind = pa.int64() if plain else pa.string()
    try:
        return pa.array([value or None for value in values], pa.string()).cast(kind)
    except pa.ArrowException as error:
        raise SnapsError(f"{title} must take the labels as {kind}: {error}") from error
