"""A graph folder: nodes.parquet and edges.parquet, as teams keep graphs on disk; or CSV.

Either may be one file or a folder of part files, which may be partitioned (``role=calib/``).
Columns of strings may be dictionary-encoded. What is not listed is left alone. In their place,
nodes.csv and edges.csv have the same columns, but for lists, and an empty field is null.

=========================  ========================================================================
nodes.parquet
``id``                     integers or strings, unique
``probs``                  list or fixed-size list of numbers, one per class
``p_<class>``              or, without ``probs``, one column of numbers per class: the classes are
                           named by these columns, as integers if all look like integers and the
                           labels are no strings; in the order of the file, which for the commands
                           means nothing: they sort them
``label``                  integers, strings, booleans or whole floats; unknown is null, NaN, -1 or
                           "" (-1 and "" are labels if they are classes); may be left out
``role``                   train, valid, tune, calib or test; null or "" is none; may be left out
``features``               list or fixed-size list of numbers; may be left out
``f_<name>``               in nodes.csv: one column of numbers per feature
any other                  strings, numbers or booleans: read on demand, ``columns=["region"]``
edges.parquet
``src``, ``dst``           ids of nodes; or, without them, ``source`` and ``target``
``weight``                 numbers of at least 0, read with ``weighted=True``; may be left out
features.npz               instead of the column, rows in the order of the nodes: ``x``; or
                           ``x_data``, ``x_indices``, ``x_indptr``, ``x_shape``; or what
                           ``scipy.sparse.save_npz`` writes
features.npy               or a dense table
=========================  ========================================================================

Features in two places are refused, and so are files that `write_folder` wrote for two graphs.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from pyarrow import types

from snaps._checks import check_path, shown, to_numpy
from snaps._checks.classes import check_classes, encode_labels, plain_labels
from snaps._checks.ids import check_ids
from snaps._checks.named import PREFIX, align, align_table, as_names, class_order
from snaps._runtime.memory import filled
from snaps.errors import SnapsError
from snaps.graph import Graph, graph_from_files
from snaps.io.files import atomic_path, check_writable, pack_npz
from snaps.io.folders import (
    CSV_FILES,
    FEATURE_FILES,
    FEATURES,
    MARK,
    GraphFiles,
    check_folder,
    open_folder,
)
from snaps.io.parquet import Columns, is_text, null_mask, texts

__all__ = ["Folder", "read_folder", "write_folder"]

ROLES = ("train", "valid", "tune", "calib", "test")


@dataclass(frozen=True)
class Folder:
    """What a graph folder holds.

    Attributes
    ----------
    graph : Graph
    probs : array (n, K)
    labels : array (n,)
        Integers with -1, or strings with "", where unknown.
    classes : array (K,) or None
        The names of the columns of `probs`, if the folder names them.
    roles : str array (n,)
        "" where there is none.
    columns : mapping of arrays (n,)
        The other columns that were asked for.
    class_columns : tuple of str
        The classes that columns ``p_<class>`` name, in the order of the file.
    file : str
        The file of the nodes.

    Examples
    --------
    >>> write_folder("pair", Graph([[0], [1]]), [[0.9, 0.1], [0.3, 0.7]], labels=[0, -1])
    >>> found = read_folder("pair")
    >>> found.graph, found.labels, found.labelled
    (Graph(2 nodes, 1 edges, no features), array([ 0, -1]), array([ True, False]))
    """

    graph: Graph
    probs: np.ndarray
    labels: np.ndarray
    classes: np.ndarray | None
    roles: np.ndarray
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    class_columns: tuple[str, ...] = ()
    file: str = "nodes.parquet"

    def nodes(self, *roles: str) -> np.ndarray:
        """Positions of the nodes with one of these roles.

        Examples
        --------
        >>> write_folder("pair", Graph([[0], [1]]), [[0.9, 0.1], [0.3, 0.7]], roles=["", "test"])
        >>> read_folder("pair").nodes("test")
        array([1])
        """
        return np.flatnonzero(np.isin(self.roles, roles))

    @property
    def labelled(self) -> np.ndarray:
        """Whether the label of each node is known."""
        unknown: Any = "" if self.labels.dtype.kind == "U" else -1
        if self.classes is not None and unknown in self.classes.tolist():
            return np.ones(len(self.labels), bool)
        return self.labels != unknown

    def tuning_and_known(self, evidence: bool = False) -> tuple[np.ndarray | None, np.ndarray]:
        """Labelled nodes that tune, and those that are known; None lets calibration nodes tune.

        Role tune tunes, else role valid; where labels are `evidence`, as for `Pooled`, validation
        nodes say more as known ones, and a part of the calibration nodes tunes.

        Examples
        --------
        >>> roles = ["train", "valid", "test"]
        >>> graph = Graph([[0], [1]], num_nodes=3)
        >>> write_folder("pair", graph, np.full((3, 2), 0.5), [0, 1, -1], roles)
        >>> read_folder("pair").tuning_and_known()
        (array([1]), array([0]))
        """
        roles = ("tune",) if evidence else ("tune", "valid")
        tune = next((nodes for role in roles if (nodes := self._labelled(role)).size), None)
        known = self._labelled("train", "valid")
        return tune, known if tune is None else np.setdiff1d(known, tune)

    def _labelled(self, *roles: str) -> np.ndarray:
        nodes = self.nodes(*roles)
        return nodes[self.labelled[nodes]]


def read_folder(
    folder: str | os.PathLike[str], *, columns: Sequence[str] = (), **options: Any
) -> Folder:
    """Read a graph folder.

    Parameters
    ----------
    folder : path
    columns : list of str
        Other columns of nodes.parquet to read, such as groups for `metrics.group_coverage`.
    **options
        Go to `Graph`: directed, self_loops, weighted.

    Examples
    --------
    >>> write_folder("pair", Graph([[0], [1]], ids=["ann", "bob"]), [[0.9, 0.1], [0.3, 0.7]])
    >>> found = read_folder("pair")
    >>> found.graph, found.probs[1]
    (Graph(2 nodes, 1 edges, no features), array([0.3, 0.7]))
    """
    root = check_folder(folder)
    listed = isinstance(columns, (list, tuple))
    if not listed or not all(isinstance(name, str) for name in columns):
        raise SnapsError(f"'columns' must be a list of column names, got {shown(columns)}")
    with open_folder(root) as files:
        return read_files(files, columns, **options)


def read_files(
    files: GraphFiles, columns: Sequence[str] = (), *, in_order: bool = False, **options: Any
) -> Folder:
    """Read an opened folder; with `in_order`, classes that columns name are sorted."""
    graph, nodes = graph_from_files(files, **options), files.nodes
    labels, missing = _labels(nodes, graph.num_nodes)
    classes, texts = None, list[str]()
    named = [c for c in nodes.types if c.startswith(PREFIX)]
    if "probs" in nodes or not named:
        probs = nodes.lists("probs")
        if named and len(named) == probs.shape[1]:
            raise SnapsError(
                f"{nodes.file} must have a column 'probs' or one 'p_<class>' per class, got both"
            )
    else:
        texts = [name.removeprefix(PREFIX) for name in named]
        classes = classes_of_columns(texts, labels.dtype.kind == "U")
        classes = np.sort(classes) if in_order else classes
        probs = nodes.numbers([f"{PREFIX}{name}" for name in classes.tolist()])
    labels = _mark_unknown(labels, missing, classes, nodes)
    others = {name: nodes.values(name) for name in columns}
    roles = _roles(nodes, graph.num_nodes)
    return Folder(graph, probs, labels, classes, roles, others, tuple(texts), nodes.file)


def read_states(nodes: Columns) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids and roles of the nodes of an opened folder, and whose label is known; nothing else."""
    ids = check_ids(nodes.ids("id"), nodes.title("id"))
    labels, missing = _labels(nodes, len(ids))
    named = [name.removeprefix(PREFIX) for name in nodes.types if name.startswith(PREFIX)]
    unknown: Any = "" if labels.dtype.kind == "U" else -1
    if str(unknown) not in named:
        missing = missing | (labels == unknown)
    return ids, _roles(nodes, len(ids)), ~missing


def write_folder(
    folder: str | os.PathLike[str],
    graph: Graph,
    probs: Any,
    labels: Any = None,
    roles: Any = None,
    *,
    classes: Any = None,
) -> None:
    """Write a graph folder that `read_folder` and the commands read.

    Parameters
    ----------
    folder : path
        Made if it does not exist.
    graph : Graph
        A weighted graph has its weights written.
    probs : array (n, K)
    labels : array (n,), optional
        Integers or strings; -1, "", None or NaN where unknown.
    roles : str array (n,), optional
        "" where there is none.
    classes : list of K integers or strings, optional
        The names of the columns of `probs`, which become columns ``p_<class>``; not needed for
        labels 0, ..., K - 1.

    Examples
    --------
    >>> graph = Graph([[0], [1]], ids=["ann", "bob"])
    >>> write_folder("pair", graph, [[0.9, 0.1], [0.3, 0.7]], ["cat", ""], classes=["cat", "dog"])
    >>> sorted(os.listdir("pair"))
    ['edges.parquet', 'nodes.parquet']
    """
    root = check_path(folder, "folder")
    for name in CSV_FILES:
        if os.path.exists(root / name):
            raise SnapsError(f"'folder' must hold no {name}, which is no part of what is written")
    if not isinstance(graph, Graph):
        raise SnapsError(f"'graph' must be a snaps.Graph, got {type(graph).__name__}")
    n = graph.num_nodes
    probs, classes = class_order(probs, labels, classes)
    table = to_numpy(align_table(probs, graph, classes), "probs")
    if table.ndim != 2 or len(table) != n:
        raise SnapsError(f"'probs' must have shape ({n}, classes), got {table.shape}")
    if table.shape[1] < 2:
        raise SnapsError(f"'probs' must have at least two classes, got {table.shape[1]}")
    if table.dtype.kind not in "fiu":
        raise SnapsError(f"'probs' must hold numbers, got {table.dtype}")
    if table.dtype.itemsize > 8 or not table.dtype.isnative:  # which Arrow does not know
        table = table.astype(np.float64)
    nodes: dict[str, Any] = {"id": pa.array(graph.ids)}
    labels = None if labels is None else align(labels, graph, "labels", partial=True)
    roles = None if roles is None else align(roles, graph, "roles", partial=True)
    names, label = _label_column(labels, n, table.shape[1], classes)
    if names is None:
        nodes["probs"] = list_array(table)
    else:
        for column, name in enumerate(names.tolist()):
            nodes[f"{PREFIX}{name}"] = pa.array(table[:, column])
    if label is not None:
        nodes["label"] = label
    if roles is not None:
        roles = check_ids(roles, "'roles'", unique=False)
        if len(roles) != n:
            raise SnapsError(f"'roles' must have one entry a node ({n}), got {len(roles)}")
        _check_roles(roles, "'roles'")
        nodes["role"] = pa.array(roles, mask=roles == "")
    if isinstance(graph.features, np.ndarray):
        nodes["features"] = list_array(graph.features)
    coo = (graph.adjacency if graph.directed else sp.triu(graph.adjacency)).tocoo()
    source, target = coo.coords
    edges: dict[str, Any] = {"src": graph.ids[source], "dst": graph.ids[target]}
    if graph.weighted:
        edges["weight"] = coo.data
    _write(root, nodes, edges, graph.features if sp.issparse(graph.features) else None)


def _write(root: Path, nodes: dict[str, Any], edges: dict[str, Any], features: Any) -> None:
    """Write all files, then give them their names: a full disk leaves the old folder as it was."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SnapsError(f"cannot write {shown(str(root))}: {error.strerror}") from error
    tables, arrays = [pa.table(nodes), pa.table(edges)], dict[str, np.ndarray]()
    if features is not None:
        arrays = {f"x_{part}": getattr(features, part) for part in ("data", "indices", "indptr")}
        arrays["x_shape"] = np.array(features.shape)
    mark, beside = _mark(tables, arrays), FEATURE_FILES[0]
    metadata = {MARK: mark} | ({FEATURES: beside} if arrays else {})
    nodes_table, edges_table = (table.replace_schema_metadata(metadata) for table in tables)
    last = root / "nodes.parquet"
    with atomic_path(last) as path:
        pq.write_table(nodes_table, path, write_page_checksum=True)
        with ExitStack() as others:
            path = others.enter_context(atomic_path(root / "edges.parquet"))
            pq.write_table(edges_table, path, write_page_checksum=True)
            if arrays:
                path = others.enter_context(atomic_path(root / beside))
                pack_npz(path, arrays, compress=True, comment=mark)
            # From here until the end no reader takes the files for a folder.
            check_writable(last).unlink(missing_ok=True)
        for name in FEATURE_FILES:
            if not (arrays and name == beside):
                (root / name).unlink(missing_ok=True)  # of an older graph


def _mark(tables: Sequence[Any], arrays: Mapping[str, np.ndarray]) -> str:
    """A digest of all that is written."""
    digest = hashlib.blake2b(digest_size=16)
    for table in tables:
        digest.update(str(table.schema).encode())
        for column in table.columns:
            for buffer in (each for chunk in column.chunks for each in chunk.buffers() if each):
                digest.update(buffer)
    for array in arrays.values():
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def list_array(table: np.ndarray) -> Any:
    """The rows of a table as an Arrow array of lists."""
    offsets = np.arange(len(table) + 1, dtype=np.int64) * table.shape[1]
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(table.reshape(-1)))


def _label_column(
    labels: Any, num_nodes: int, num_classes: int, classes: Any
) -> tuple[np.ndarray | None, Any]:
    """Names of the classes unless they are 0, ..., K - 1 by default, and the column of labels."""
    names = None if classes is None else check_classes(classes, num_classes)
    codes = np.full(num_nodes, -1)
    if labels is not None:
        codes, columns = encode_labels(
            labels, num_nodes=num_nodes, num_classes=num_classes, classes=names
        )
        if names is None and not np.array_equal(columns, np.arange(num_classes)):
            names = columns
    # Of classes such as "0" and "1" only a column of labels shows that they are strings.
    if labels is None and (names is None or names.dtype.kind != "U"):
        return names, None
    known = np.arange(num_classes) if names is None else names
    return names, pa.array(known[codes], mask=codes < 0)


def _labels(nodes: Columns, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels as integers or strings, and where there is none."""
    (column,) = nodes.read(["label"], nulls=True) if "label" in nodes else (pa.nulls(num_nodes),)
    return label_values(column, nodes.title("label"))


def label_values(column: Any, title: str) -> tuple[np.ndarray, np.ndarray]:
    """An Arrow column of labels as integers or strings, and where there is none."""
    kind, num_nodes = column.type, len(column)
    if types.is_null(kind):
        return np.zeros(num_nodes, np.int64), np.ones(num_nodes, bool)
    missing = null_mask(column)
    if is_text(kind):
        return texts(column, title), missing
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        filled = column.fill_null(False if types.is_boolean(kind) else 0)
        numbers = filled.to_numpy(zero_copy_only=False)
        values, nan = plain_labels(numbers, "label", num_nodes)
        return values, missing | nan
    raise SnapsError(f"{title} must be integers or strings, got {kind}")


def _mark_unknown(
    labels: np.ndarray, missing: np.ndarray, classes: np.ndarray | None, nodes: Columns
) -> np.ndarray:
    """Write -1 or "" where a label is unknown, and hold the others against the classes."""
    unknown: Any = "" if labels.dtype.kind == "U" else -1
    ambiguous = classes is not None and unknown in classes.tolist()
    if ambiguous and missing.any() and not missing.all():
        raise SnapsError(
            f"{nodes.title('label')} must not be null where {shown(unknown)} is a class, "
            f"got null in row {int(missing.argmax())}"
        )
    labels = np.asarray(filled(labels))
    labels[missing] = unknown
    if classes is not None:
        encode_labels(
            labels, num_nodes=len(labels), num_classes=len(classes), classes=classes, name="label"
        )
    return labels


def classes_of_columns(names: list[str], text: bool) -> np.ndarray:
    """Names of classes; they are integers if they look like it and no label is a string."""
    return check_classes(as_names(names, text), len(names))


def check_agreement(classes: Any, columns: Sequence[Any]) -> None:
    """Refuse names of classes that are not those of the columns ``p_<class>``, in their order."""
    names = check_classes(classes, len(columns)).tolist()
    if list(map(str, names)) != list(map(str, columns)):
        raise SnapsError(
            "'classes' must be left out where columns p_<class> name the classes "
            f"({shown(list(columns))}), got {shown(names)}"
        )


def _roles(nodes: Columns, num_nodes: int) -> np.ndarray:
    kind = nodes.types.get("role")
    if kind is None or types.is_null(kind):
        return np.full(num_nodes, "", "U5")
    (column,) = nodes.read(["role"], nulls=True)
    if not is_text(kind):
        raise SnapsError(f"{nodes.title('role')} must be strings, got {kind}")
    roles = texts(column, nodes.title("role"))
    _check_roles(roles, nodes.title("role"))
    return roles


def _check_roles(roles: np.ndarray, name: str) -> None:
    bad = np.flatnonzero(~np.isin(roles, ("", *ROLES)))
    if bad.size:
        raise SnapsError(
            f"{name} must be one of {', '.join(ROLES)} or empty, "
            f"got {shown(roles[bad[0]].item())} in row {bad[0]}"
        )
