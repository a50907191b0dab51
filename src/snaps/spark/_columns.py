"""The tables of a graph: which columns they must have, and what must hold for every row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from snaps._checks import check_probs, plainly, shown
from snaps._checks.features import check_features
from snaps._errors import SnapsError
from snaps.folder import PREFIX, ROLES
from snaps.spark._batches import features_of, lists, one

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_NUMBERS = (*_INTEGERS, "float", "double")
_LISTS = tuple(f"array<{kind}>" for kind in _NUMBERS)
CHECKED = "problem string, classes long, width long"


@dataclass(frozen=True)
class Tables:
    """Nodes and edges as the engine takes them.

    Attributes
    ----------
    nodes : DataFrame
        With columns id, probs, role, label and, if there are any, features.
    edges : DataFrame
        With columns src and dst, of the type of id.
    classes : list of str or None
        Names of the columns of probabilities, where these are columns of their own.
    title : what messages call the tables
    """

    nodes: Any
    edges: Any
    classes: list[str] | None
    titles: tuple[str, str]

    @property
    def text(self) -> bool:
        """Whether ids are strings."""
        return _kinds(self.nodes)["id"] == "string"

    @property
    def has_features(self) -> bool:
        return "features" in self.nodes.columns

    def title(self, name: str) -> str:
        """A column as messages call it."""
        return f"{self.titles[name in ('src', 'dst')]} column '{name}'"


def read_tables(nodes: Any, edges: Any, titles: tuple[str, str] = ("'nodes'", "'edges'")) -> Tables:
    """The columns that are needed, held against their types."""
    from pyspark.sql import functions as F

    kinds = _kinds(nodes, titles[0])
    named = [name for name in kinds if name.startswith(PREFIX)]
    classes = None
    _check(kinds, "id", (*_INTEGERS, "string"), "integers or strings", titles[0])
    if "probs" in kinds or not named:
        _check(kinds, "probs", _LISTS, "a list of numbers", titles[0])
        probs = F.col("probs")
    else:
        for name in named:
            _check(kinds, name, _NUMBERS, "numbers", titles[0])
        # A null in one of them makes the list null, which is found by its id.
        whole = F.array(*[F.col(f"`{name}`").cast("double") for name in named])
        empty = F.greatest(*[F.col(f"`{name}`").isNull() for name in named])
        probs = F.when(~empty, whole)
        classes = [name.removeprefix(PREFIX) for name in named]
    columns = [_id("id", kinds).alias("id"), probs.alias("probs")]
    for name, sorts, rule in (
        ("role", ("string",), "strings"),
        ("label", (*_NUMBERS, "string", "boolean"), "integers or strings"),
    ):
        there = name in kinds and kinds[name] != "void"
        if there:
            _check(kinds, name, sorts, rule, titles[0])
        columns.append((F.col(name) if there else F.lit(None).cast("string")).alias(name))
    if "features" in kinds:
        if not _is_sparse(kinds["features"]):
            _check(kinds, "features", _LISTS, "a list of numbers", titles[0])
        columns.append(F.col("features"))
    ends = _kinds(edges, titles[1])
    for name in ("src", "dst"):
        _check(ends, name, (*_INTEGERS, "string"), "integers or strings", titles[1])
        if (ends[name] == "string") != (kinds["id"] == "string"):
            raise SnapsError(
                f"{titles[1]} column '{name}' must be of the type of the nodes' ids "
                f"({kinds['id']}), got {ends[name]}"
            )
    pairs = edges.select(_id("src", ends).alias("src"), _id("dst", ends).alias("dst"))
    return Tables(nodes.select(*columns), pairs, classes, titles)


def _kinds(table: Any, title: str = "") -> dict[str, str]:
    """The types of columns, by name."""
    schema = getattr(table, "schema", None)
    if schema is None or not hasattr(table, "select"):
        raise SnapsError(f"{title} must be a Spark DataFrame, got {type(table).__name__}")
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def _check(kinds: dict[str, str], name: str, sorts: tuple[str, ...], rule: str, title: str) -> None:
    if name not in kinds:
        found = ", ".join(kinds) or "none"
        raise SnapsError(f"{title} must have a column '{name}', got {found}")
    if kinds[name] not in sorts:
        raise SnapsError(f"{title} column '{name}' must be {rule}, got {kinds[name]}")


def _is_sparse(kind: str) -> bool:
    parts = kind.removeprefix("struct<").removesuffix(">").split(",")
    return kind.startswith("struct<") and [part.split(":")[0] for part in parts] == [
        "indices",
        "values",
    ]


def _id(name: str, kinds: dict[str, str]) -> Any:
    from pyspark.sql import functions as F

    return F.col(name) if kinds[name] == "string" else F.col(name).cast("long")


def checker(title: str, logits: bool) -> Any:
    """Look at every row of nodes; each partition tells its first problem and its widths."""

    def check(batches: Iterable[Any]) -> Iterator[Any]:
        problem: str | None = None
        lengths: tuple[int, int] | None = None
        for batch in batches:
            if not len(batch) or problem:
                continue
            try:
                found = _look(batch, title, logits)
                if lengths is not None and found != lengths:
                    name = "probs" if found[0] != lengths[0] else "features"
                    old, new = (pair[name == "features"] for pair in (lengths, found))
                    raise SnapsError(
                        f"{title} column '{name}' must have lists of equal length ({old}), "
                        f"got {new} {_called(batch.column('id'), 0)}"
                    )
                lengths = found
            except SnapsError as error:
                problem = str(error)
        if problem or lengths:
            classes, width = lengths or (None, None)
            yield pa.RecordBatch.from_pydict(
                {
                    "problem": pa.array([problem], pa.string()),
                    "classes": pa.array([classes], pa.int64()),
                    "width": pa.array([width], pa.int64()),
                }
            )

    return check


def _called(ids: Any, row: int) -> str:
    value = ids[row].as_py()
    return f"for id {shown(value) if isinstance(value, str) else plainly(value)}"


def _look(batch: Any, title: str, logits: bool) -> tuple[int, int]:
    """Complain about the first bad row of a batch; the lengths of probabilities and features."""
    ids = batch.column("id")
    if ids.null_count:
        raise SnapsError(f"{title} column 'id' must not be null, got null")

    def name(row: int) -> str:
        return _called(ids, row)

    classes, width = _length(batch.column("probs"), f"{title} column 'probs'", name), -1
    # The checks of the core speak of 'probs'; the table's name goes before it.
    try:
        check_probs(lists(batch.column("probs")), "probs", logits=logits, where=name)
        if "features" in batch.schema.names:
            column = batch.column("features")
            if pa.types.is_struct(column.type):
                _check_sparse(column, f"{title} column 'features'", name)
                width = int(pc.max(column.field("indices").flatten()).as_py() or 0) + 1
                check_features(features_of(column, width), where=name)
                width = -1
            else:
                width = _length(column, f"{title} column 'features'", name)
                check_features(lists(column), where=name)
    except SnapsError as error:
        raise SnapsError(str(error).replace("'", f"{title} column '", 1)) from error
    roles = one(batch.column("role")).fill_null("")
    bad = ~pc.is_in(roles, pa.array(["", *ROLES])).to_numpy(zero_copy_only=False)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise SnapsError(
            f"{title} column 'role' must be one of {', '.join(ROLES)} or empty, "
            f"got {shown(roles[row].as_py())} {name(row)}"
        )
    return classes, width


def _length(column: Any, title: str, name: Any) -> int:
    """The one length that all lists of a column have."""
    _no_null(column, title, name)
    widths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    other = np.flatnonzero(widths != widths[0])
    if len(other):
        raise SnapsError(
            f"{title} must have lists of equal length ({widths[0]}), "
            f"got {widths[other[0]]} {name(int(other[0]))}"
        )
    values = column.flatten()
    if values.null_count:
        row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        raise SnapsError(f"{title} must not hold nulls, got one {name(row // int(widths[0]))}")
    return int(widths[0])


def _no_null(column: Any, title: str, name: Any) -> None:
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise SnapsError(f"{title} must not be null, got null {name(row)}")


def _check_sparse(column: Any, title: str, name: Any) -> None:
    """Indices and values: as many of each, none null, indices from 0 on and ascending."""
    _no_null(column, title, name)
    for each in ("indices", "values"):
        _no_null(column.field(each), f"{title} ({each})", name)
        if column.field(each).flatten().null_count:
            raise SnapsError(f"{title} ({each}) must not hold nulls, got one")
    indices = column.field("indices")
    counts = indices.value_lengths().to_numpy()
    other = np.flatnonzero(counts != column.field("values").value_lengths().to_numpy())
    if len(other):
        raise SnapsError(f"{title} must have a value for each index, got {name(int(other[0]))}")
    values = indices.flatten().to_numpy()
    rows = np.repeat(np.arange(len(counts)), counts)
    bad = values < 0
    bad[1:] |= (values[1:] <= values[:-1]) & (rows[1:] == rows[:-1])
    if bad.any():
        row = int(rows[np.flatnonzero(bad)[0]])
        raise SnapsError(f"{title} must have ascending indices from 0 on, got {name(row)}")
