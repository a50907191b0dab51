"""The tables of a graph: the columns they must have, and what is checked once before any work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from snaps._checks import check_probs, plainly, shown, warn_unfilled
from snaps._checks.features import check_features
from snaps._checks.named import PREFIX
from snaps.errors import SnapsError
from snaps.folder import ROLES, classes_of_columns
from snaps.io.folders import end_columns
from snaps.spark._batches import features_of, lists
from snaps.spark._failures import explained

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_NUMBERS = (*_INTEGERS, "float", "double")
_LISTS = tuple(f"array<{kind}>" for kind in _NUMBERS)
_INDICES = tuple(f"array<{kind}>" for kind in _INTEGERS)
_MOST_COLUMNS = 2**31 - 1  # that features may have, on any engine
CHECKED = "problem string, classes long, width long, zeros long"

Named = Callable[[int], str]  # how messages name a row


@dataclass(frozen=True)
class Tables:
    """Nodes and edges as the engine takes them."""

    nodes: Any  # id, probs, role, label and, if there are any, features
    edges: Any  # src and dst, of the type of id
    classes: list[str] | None  # those that columns of probabilities name
    titles: tuple[str, str]  # what messages call the tables

    @property
    def text(self) -> bool:
        """Whether ids are strings."""
        return bool(self.nodes.schema["id"].dataType.simpleString() == "string")

    @property
    def has_features(self) -> bool:
        return "features" in self.nodes.columns

    def title(self, name: str) -> str:
        """A column as messages call it."""
        return f"{self._table(name)} column '{name}'"

    def reading(self, name: str = "id") -> AbstractContextManager[None]:
        """What Spark says where the table of a column is read, in one line."""
        return explained(f"cannot read {self._table(name)}")

    def _table(self, name: str) -> str:
        return self.titles[name in ("src", "dst")]


def read_tables(nodes: Any, edges: Any, titles: tuple[str, str] = ("'nodes'", "'edges'")) -> Tables:
    """The columns that are needed, held against their types."""
    table = _Table(nodes, titles[0])
    named = [name for name in table.kinds if name.startswith(PREFIX)]
    classes = None
    table.check("id", (*_INTEGERS, "string"), "integers or strings")
    if "probs" in table.kinds or not named:
        table.check("probs", _LISTS, "a list of numbers")
        probs = table.column("probs")
    else:
        for name in named:
            table.check(name, _NUMBERS, "numbers")
        if len(named) < 2:
            raise SnapsError(
                f"{titles[0]} must have two columns 'p_<class>' or more, got {named[0]}"
            )
        texts = [name.removeprefix(PREFIX) for name in named]
        names = classes_of_columns(texts, table.kinds.get("label") == "string")
        classes = list(map(str, np.sort(names).tolist()))
        probs = F.array(*[table.column(f"{PREFIX}{name}").cast("double") for name in classes])
    columns = [table.id("id"), probs.alias("probs")]
    for name, sorts, rule in (
        ("role", ("string",), "strings"),
        ("label", (*_NUMBERS, "string", "boolean"), "integers or strings"),
    ):
        present = table.kinds.get(name, "void") != "void"
        if present:
            table.check(name, sorts, rule)
        columns.append((table.column(name) if present else F.lit(None).cast("string")).alias(name))
    if "features" in table.kinds:
        table.check_features()
        columns.append(table.column("features").alias("features"))
    pairs, text = _Table(edges, titles[1]), table.kinds["id"] == "string"
    source, target = end_columns(pairs.kinds)
    for name in (source, target):
        pairs.check(name, (*_INTEGERS, "string"), "integers or strings")
        if (pairs.kinds[name] == "string") != text:
            raise SnapsError(
                f"{titles[1]} column '{name}' must be of the type of the nodes' ids "
                f"({table.kinds['id']}), got {pairs.kinds[name]}"
            )
    ends = pairs.frame.select(pairs.id(source).alias("src"), pairs.id(target).alias("dst"))
    return Tables(table.frame.select(*columns), ends, classes, titles)


class _Table:
    """A DataFrame whose columns go by their place: names may hold any character, in any case.

    `frame` has columns 0, 1, ..., and `kinds` their types by name.
    """

    def __init__(self, given: Any, title: str):
        schema = getattr(given, "schema", None)
        if schema is None or not hasattr(given, "select"):
            raise SnapsError(f"{title} must be a Spark DataFrame, got {type(given).__name__}")
        if given.isStreaming:
            raise SnapsError(f"{title} must be a table that is complete, got a stream")
        self._title, self._names = title, [field.name for field in schema.fields]
        self._types = {field.name: field.dataType for field in schema.fields}
        self.kinds = {name: kind.simpleString() for name, kind in self._types.items()}
        self.frame = given.toDF(*map(str, range(len(self._names))))

    def column(self, name: str) -> Any:
        return F.col(str(self._names.index(name)))

    def id(self, name: str) -> Any:
        """A column of ids: strings, or integers of 64 bits."""
        column = self.column(name)
        return (column if self.kinds[name] == "string" else column.cast("long")).alias(name)

    def check(self, name: str, sorts: tuple[str, ...], rule: str) -> None:
        """Raise unless a column is there, once, and of one of these types."""
        if name not in self.kinds:
            names = ", ".join(self.kinds) or "none"
            raise SnapsError(f"{self._title} must have a column '{name}', got {names}")
        if self._names.count(name) > 1:
            raise SnapsError(
                f"{self._title} must have one column '{name}', got {self._names.count(name)}"
            )
        if self.kinds[name] not in sorts:
            raise SnapsError(
                f"{self._title} column '{name}' must be {rule}, got {self.kinds[name]}"
            )

    def check_features(self) -> None:
        """Lists of numbers, or structs of lists: indices and values, in any order."""
        sorts, kind = _LISTS, self._types["features"]
        if isinstance(kind, StructType):
            parts = {field.name: field.dataType.simpleString() for field in kind.fields}
            indices, values = parts.pop("indices", ""), parts.pop("values", "")
            if not parts and indices in _INDICES and values in _LISTS:
                sorts = (self.kinds["features"],)
        rule = "a list of numbers, or a struct of indices (integers) and values (numbers)"
        self.check("features", sorts, rule)


def check_edges(tables: Tables) -> tuple[int, bool]:
    """How many edges there are, and whether any links two nodes."""
    counts = tables.edges.select(
        F.count("*").alias("all"), F.count("src").alias("src"), F.count("dst").alias("dst"),
        F.count_if(F.col("src") != F.col("dst")).alias("apart"),
    )  # fmt: skip
    with tables.reading("src"):
        counts = counts.first()
    for name in ("src", "dst"):
        if counts[name] < counts["all"]:
            other = "dst" if name == "src" else "src"
            with tables.reading(name):
                row = tables.edges.where(F.col(name).isNull()).first()
            at = "null too" if row[other] is None else plainly(row[other])
            raise SnapsError(
                f"{tables.title(name)} must not be null, got null where {other} is {at}"
            )
    return int(counts["all"]), bool(counts["apart"])


def check_ends(tables: Tables, num_nodes: int) -> None:
    """Refuse an edge to a node that is not there, whether or not its scores are needed."""
    ids = tables.nodes.select("id")
    ends = tables.edges.select(F.explode(F.array("src", "dst")).alias("id")).distinct()
    with tables.reading():
        (lost,) = ends.join(ids, "id", "left_anti").agg(F.min("id")).first()
        if lost is None:
            return
        at_source = tables.edges.where(F.col("src") == lost).limit(1).count()
        if tables.nodes.count() != num_nodes:
            raise other_rows(tables.titles[0])
    raise SnapsError(
        f"{tables.title('src' if at_source else 'dst')} must name nodes of the graph, "
        f"got {plainly(lost)}"
    )


def other_rows(title: str) -> SnapsError:
    """A table that is not the same whenever it is read."""
    return SnapsError(
        f"{title} must give the same rows whenever it is read, got others the second time: "
        "persist or write it first"
    )


def check_nodes(tables: Tables, logits: bool) -> tuple[int, int, int]:
    """The number of nodes, of classes and of features."""
    title = tables.titles[0]
    with tables.reading():
        summary = (
            tables.nodes.mapInArrow(checker(title, logits, tables.classes), CHECKED)
            .agg(
                F.min("problem").alias("problem"),
                F.sum("zeros").alias("zeros"),
                *[f(name).alias(f"{f.__name__}_{name}") for f in (F.min, F.max)
                  for name in ("classes", "width")],
            )
            .first()
        )  # fmt: skip
    if summary["problem"]:
        raise SnapsError(summary["problem"])
    if summary["max_classes"] is None:
        raise SnapsError(f"{title} must hold at least one node, got none")
    for name, column in (("classes", "probs"), ("width", "features")):
        low, high = summary[f"min_{name}"], summary[f"max_{name}"]
        if low != high:
            with tables.reading():
                row = tables.nodes.where(F.size(column) == low).select("id").first()
            raise SnapsError(
                f"{tables.title(column)} must have lists of equal length ({high}), "
                f"got {low} for id {plainly(row['id'])}"
            )
    with tables.reading():
        again = tables.nodes.groupBy("id").count().where("count > 1").first()
        count = tables.nodes.count()
    if again is not None:
        raise SnapsError(
            f"{tables.title('id')} must be unique, got {plainly(again['id'])} twice or more"
        )
    if logits and summary["zeros"]:
        unfilled = tables.nodes.where(F.forall("probs", lambda value: value == 0))
        with tables.reading():
            (first,) = unfilled.agg(F.min("id")).first()
        warn_unfilled(summary["zeros"], count, "probs", f"for id {plainly(first)}")
    return count, int(summary["max_classes"]), int(summary["max_width"])


def checker(title: str, logits: bool, classes: list[str] | None = None) -> Any:
    """Check every row: a batch's first problem, its lengths, and its rows of zeros."""

    def check(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in filter(len, batches):
            problem, width, num_classes, zeros = None, None, None, 0
            try:
                num_classes, width = _check_batch(batch, title, logits, classes)
                zeros = int((~lists(batch.column("probs")).any(axis=1)).sum())
            except SnapsError as error:
                problem = str(error)
            columns = [pa.array([number], pa.int64()) for number in (num_classes, width, zeros)]
            names = ["problem", "classes", "width", "zeros"]
            yield pa.RecordBatch.from_arrays([pa.array([problem], pa.string()), *columns], names)

    return check


def _check_batch(
    batch: Any, title: str, logits: bool, classes: list[str] | None
) -> tuple[int, int]:
    """Raise for the first bad row; the lengths of probs and features (-1 for sparse ones)."""
    ids, roles, width = batch.column("id"), batch.column("role").fill_null(""), -1
    if ids.null_count:
        raise SnapsError(f"{title} column 'id' must not be null, got null")
    if not pa.types.is_integer(ids.type):
        row = pc.index(pc.match_substring(ids, "\0"), True).as_py()
        if row >= 0:  # NumPy's strings drop it at their end, Arrow whatever follows it
            raise SnapsError(
                f"{title} column 'id' must not hold the character NUL, got {ids[row].as_py()!r}"
            )

    def name(row: int) -> str:
        value = ids[row].as_py()
        return f"for id {shown(value) if isinstance(value, str) else plainly(value)}"

    num_classes = _check_probs(batch.column("probs"), title, name, logits, classes)
    if "features" in batch.schema.names:
        width = _check_features(batch.column("features"), f"{title} column 'features'", name)
    row = pc.index(pc.is_in(roles, pa.array(["", *ROLES], roles.type)), False).as_py()
    if row >= 0:
        raise SnapsError(
            f"{title} column 'role' must be one of {', '.join(ROLES)} or empty, "
            f"got {shown(roles[row].as_py())} {name(row)}"
        )
    return num_classes, width


def _check_probs(
    column: Any, title: str, name: Named, logits: bool, classes: list[str] | None
) -> int:
    whole, values = f"{title} column 'probs'", column.flatten()
    if classes is not None:
        whole = f"{title} columns 'p_<class>'"
        if values.null_count:
            row, place = divmod(_first_null(values), len(classes))
            raise SnapsError(
                f"{title} column '{PREFIX}{classes[place]}' must not be null, got null {name(row)}"
            )
    width = _length(column, whole, name)
    with _titled(whole, "probs"):
        check_probs(lists(column), "probs", logits=logits, where=name, silent=True)
    return width


def _check_features(column: Any, title: str, name: Named) -> int:
    """The length of lists; -1 for sparse ones, which may end anywhere."""
    if pa.types.is_struct(column.type):
        width, table = -1, features_of(column, _check_sparse(column, title, name))
    else:
        width, table = _length(column, title, name), lists(column)
    with _titled(title, "features"):
        check_features(table, where=name)
    return width


@contextmanager
def _titled(title: str, name: str) -> Iterator[None]:
    """The checks of the core call it 'probs': name the column."""
    try:
        yield
    except SnapsError as error:
        raise SnapsError(f"{title}{str(error).removeprefix(repr(name))}") from error


def _first_null(column: Any) -> int:
    return int(pc.index(column.is_null(), True).as_py())


def _length(column: Any, title: str, name: Named) -> int:
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
        row = _first_null(values) // int(widths[0])
        raise SnapsError(f"{title} must not hold nulls, got one {name(row)}")
    return int(widths[0])


def _no_null(column: Any, title: str, name: Named) -> None:
    if column.null_count:
        raise SnapsError(f"{title} must not be null, got null {name(_first_null(column))}")


def _check_sparse(column: Any, title: str, name: Named) -> int:
    """As many indices as values, none null, indices from 0 on and ascending; how far they go."""
    _no_null(column, title, name)
    counts = {}
    for each in ("indices", "values"):
        part = column.field(each)
        _no_null(part, f"{title} ({each})", name)
        counts[each] = part.value_lengths().to_numpy()
        if part.flatten().null_count:
            row = np.searchsorted(np.cumsum(counts[each]), _first_null(part.flatten()), "right")
            raise SnapsError(f"{title} ({each}) must not hold nulls, got one {name(int(row))}")
    other = np.flatnonzero(counts["indices"] != counts["values"])
    if len(other):
        few, many = (int(counts[each][other[0]]) for each in ("indices", "values"))
        raise SnapsError(
            f"{title} must have a value for each index, "
            f"got {few} indices and {many} values {name(int(other[0]))}"
        )
    indices = column.field("indices").flatten().to_numpy()
    rows = np.repeat(np.arange(len(column)), counts["indices"])
    wrong = (indices < 0) | (indices >= _MOST_COLUMNS)
    if wrong.any():
        bad = int(np.flatnonzero(wrong)[0])
        raise SnapsError(
            f"{title} must have indices from 0 to {_MOST_COLUMNS - 1}, "
            f"got {indices[bad]} {name(int(rows[bad]))}"
        )
    back = np.flatnonzero((indices[1:] <= indices[:-1]) & (rows[1:] == rows[:-1]))
    if len(back):
        bad = int(back[0])
        raise SnapsError(
            f"{title} must have ascending indices, "
            f"got {indices[bad + 1]} after {indices[bad]} {name(int(rows[bad]))}"
        )
    return int(indices.max(initial=0)) + 1
