"""A graph folder: nodes.parquet and edges.parquet, as teams keep graphs on disk.

nodes.parquet has the columns ``id`` (integer or string), ``probs`` (list of float), ``features``
(list of float; or a features.npz beside it, rows in the order of the nodes), ``label`` (nullable)
and ``role`` (nullable: train, valid, tune, calib, test). edges.parquet has ``src`` and ``dst``.
Either may be a folder of part files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._checks import check_labels, check_path, shown, to_numpy
from snaps._errors import SnapsError
from snaps._files import atomic_path, read_npz
from snaps.graph import Graph, check_ids, features_from_arrays, locate

ROLES = ("train", "valid", "tune", "calib", "test")


@dataclass(frozen=True)
class Folder:
    """What a graph folder holds; all but the graph is empty when only that was asked for."""

    graph: Graph
    probs: np.ndarray
    labels: np.ndarray
    roles: np.ndarray

    def nodes(self, *roles: str) -> np.ndarray:
        """Positions of the nodes with one of these roles."""
        return np.flatnonzero(np.isin(self.roles, roles))

    @property
    def tune_nodes(self) -> np.ndarray | None:
        """Labelled nodes with role tune, else valid, else None."""
        for role in ("tune", "valid"):
            nodes = self.nodes(role)
            nodes = nodes[self.labels[nodes] >= 0]
            if nodes.size:
                return nodes
        return None

    @property
    def known_nodes(self) -> np.ndarray:
        """Labelled nodes with role train or valid that don't tune: evidence for `Pooled`."""
        nodes = self.nodes("train", "valid")
        tune = self.tune_nodes
        nodes = nodes[self.labels[nodes] >= 0]
        return nodes if tune is None else np.setdiff1d(nodes, tune)


def read_folder(
    folder: str | os.PathLike[str], *, graph_only: bool = False, **options: Any
) -> Folder:
    """Read a graph folder; `options` go to `Graph`."""
    root = check_path(folder, "folder")
    if not root.is_dir():
        raise SnapsError(f"cannot read '{root}': no such folder")
    nodes, edges = _read(root / "nodes.parquet"), _read(root / "edges.parquet")
    ids = check_ids(_ids(nodes, "nodes.parquet", "id"), "nodes.parquet column 'id'")
    if len(ids) == 0:
        raise SnapsError(f"'{root / 'nodes.parquet'}' must hold at least one node, got none")
    ends = [_ids(edges, "edges.parquet", name) for name in ("src", "dst")]
    source, target = (
        locate(ids, end, f"edges.parquet column '{name}'")
        for name, end in zip(("src", "dst"), ends, strict=True)
    )
    features: Any = None
    if "features" in nodes:
        features = _lists(nodes, "features")
    elif (beside := root / "features.npz").exists():
        features = features_from_arrays(read_npz(beside), beside)
        if features is None:
            raise SnapsError(
                f"'{beside}' must hold 'x' or 'x_data', 'x_indices', 'x_indptr', 'x_shape'"
            )
        if features.shape[0] != len(ids):
            raise SnapsError(
                f"'{beside}' must have one row a node ({len(ids)}), got {features.shape[0]}"
            )
    graph = Graph(np.stack([source, target]), features, len(ids), ids=ids, **options)
    if graph_only:
        return Folder(graph, np.empty((0, 0)), np.empty(0, np.int64), np.empty(0, "U5"))
    probs = _lists(nodes, "probs")
    return Folder(graph, probs, _labels(nodes, *probs.shape), _roles(nodes, len(probs)))


def write_folder(
    folder: str | os.PathLike[str], graph: Graph, probs: Any, labels: Any = None, roles: Any = None
) -> None:
    """Write a graph folder that `read_folder` and the commands read.

    Parameters
    ----------
    folder : path
        Made if it does not exist.
    graph : Graph
    probs : array (n, K)
    labels : int array (n,), optional
        -1 where unknown.
    roles : str array (n,), optional
        "" where there is none.
    """
    import pyarrow as pa

    root = check_path(folder, "folder")
    if not isinstance(graph, Graph):
        raise SnapsError(f"'graph' must be a snaps.Graph, got {type(graph).__name__}")
    table = to_numpy(probs, "probs")
    if table.ndim != 2 or len(table) != graph.num_nodes:
        raise SnapsError(f"'probs' must have shape ({graph.num_nodes}, classes), got {table.shape}")
    columns: dict[str, Any] = {"id": pa.array(graph.ids), "probs": _list_array(table)}
    if labels is not None:
        n, num_classes = table.shape
        labels = check_labels(labels, num_nodes=n, num_classes=num_classes)
        columns["label"] = pa.array(labels, mask=labels < 0)
    if roles is not None:
        names = check_ids(roles, "'roles'", unique=False)
        if len(names) != graph.num_nodes:
            raise SnapsError(
                f"'roles' must have one entry a node ({graph.num_nodes}), got {len(names)}"
            )
        _check_roles(names, "'roles'")
        columns["role"] = pa.array(names, mask=names == "")
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SnapsError(f"cannot write '{root}': {error.strerror}") from error
    if isinstance(graph.features, np.ndarray):
        columns["features"] = _list_array(graph.features)
    elif graph.features is not None:
        x = graph.features
        with atomic_path(root / "features.npz") as temporary, open(temporary, "wb") as file:
            np.savez_compressed(
                file,
                x_data=x.data,
                x_indices=x.indices,
                x_indptr=x.indptr,
                x_shape=np.array(x.shape),
            )
    else:
        (root / "features.npz").unlink(missing_ok=True)  # of an older graph
    links = graph.adjacency if graph.directed else sp.triu(graph.adjacency)
    source, target = links.tocoo().coords
    _write(root / "edges.parquet", {"src": graph.ids[source], "dst": graph.ids[target]})
    _write(root / "nodes.parquet", columns)


def _write(path: Path, columns: dict[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with atomic_path(path) as temporary:
        pq.write_table(pa.table(columns), temporary)


def _list_array(table: np.ndarray) -> Any:
    import pyarrow as pa

    offsets = np.arange(0, table.size + 1, table.shape[1], dtype=np.int64)
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(table.reshape(-1)))


def _read(path: Path) -> dict[str, Any]:
    """Columns by name; part files may differ in what they leave out and in number types."""
    import pyarrow as pa
    from pyarrow.dataset import dataset

    if not path.exists():
        raise SnapsError(f"cannot read '{path}': no such file")
    try:
        parts = dataset(path, format="parquet", partitioning="hive")
        schemas = [parts.schema, *(part.physical_schema for part in parts.get_fragments())]
        schema = pa.unify_schemas(schemas, promote_options="permissive")
        table = dataset(path, schema, format="parquet", partitioning="hive").to_table()
        table.validate(full=True)
        return dict(zip(table.column_names, table.columns, strict=True))
    except Exception as error:  # pyarrow raises whatever flipped bits suggest
        what = "damaged or not a Parquet file"
        if path.is_dir():
            what = "a file in it is damaged, not Parquet or unlike the others"
        raise SnapsError(f"cannot read '{path}': {what}") from error


def _column(table: dict[str, Any], file: str, name: str, *, nulls: bool = False) -> Any:
    import pyarrow.types as types

    if name not in table:
        found = ", ".join(table) or "none"
        raise SnapsError(f"{file} must have a column '{name}', got {found}")
    column = table[name]
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    column = column.combine_chunks()
    if column.null_count and not nulls:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise SnapsError(f"{file} column '{name}' must not be null, got null in row {row}")
    return column


def _ids(table: dict[str, Any], file: str, name: str) -> np.ndarray:
    import pyarrow.types as types

    column = _column(table, file, name)
    if types.is_integer(column.type):
        return column.to_numpy()
    if _is_text(column.type) or len(column) == 0:
        return np.array(column.to_pylist(), dtype=str)
    raise SnapsError(f"{file} column '{name}' must be integers or strings, got {column.type}")


def _is_text(kind: Any) -> bool:
    import pyarrow.types as types

    return types.is_string(kind) or types.is_large_string(kind)


def _lists(table: dict[str, Any], name: str) -> np.ndarray:
    """A list column as a table (n, width)."""
    import pyarrow.compute as pc
    import pyarrow.types as types

    column = _column(table, "nodes.parquet", name)
    kind = column.type
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        raise SnapsError(f"nodes.parquet column '{name}' must be a list of numbers, got {kind}")
    if not (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)):
        raise SnapsError(f"nodes.parquet column '{name}' must be a list of numbers, got {kind}")
    widths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    if (widths != widths[0]).any():
        row = int(np.flatnonzero(widths != widths[0])[0])
        raise SnapsError(
            f"nodes.parquet column '{name}' must have lists of equal length ({widths[0]}), "
            f"got {widths[row]} in row {row}"
        )
    values = column.flatten()
    if values.null_count:
        row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]) // widths[0]
        raise SnapsError(f"nodes.parquet column '{name}' must not hold nulls, got one in row {row}")
    return values.to_numpy(zero_copy_only=False).reshape(len(column), int(widths[0]))


def _labels(table: dict[str, Any], n: int, num_classes: int) -> np.ndarray:
    import pyarrow.types as types

    if "label" not in table or types.is_null(table["label"].type):
        return np.full(n, -1)
    column = _column(table, "nodes.parquet", "label", nulls=True)
    if not types.is_integer(column.type):
        raise SnapsError(f"nodes.parquet column 'label' must be integers, got {column.type}")
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    labels = check_labels(values, "label", num_nodes=n, num_classes=num_classes)
    labels[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return labels


def _roles(table: dict[str, Any], n: int) -> np.ndarray:
    import pyarrow.types as types

    if "role" not in table or types.is_null(table["role"].type):
        return np.full(n, "", "U5")
    column = _column(table, "nodes.parquet", "role", nulls=True)
    if not _is_text(column.type):
        raise SnapsError(f"nodes.parquet column 'role' must be strings, got {column.type}")
    roles = np.array(column.fill_null("").to_pylist(), dtype=str)
    _check_roles(roles, "nodes.parquet column 'role'")
    return roles


def _check_roles(roles: np.ndarray, name: str) -> None:
    bad = ~np.isin(roles, ("", *ROLES))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise SnapsError(
            f"{name} must be one of {', '.join(ROLES)} or empty, "
            f"got {shown(roles[row].item())} in row {row}"
        )
