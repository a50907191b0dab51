"""The tables of a graph: which columns they must have, and what must hold for every row."""

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

from snaps._checks import check_probs, plainly, shown
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


def checker(title: str, logits: bool, classes: list[str] | None = None) -> Any:
    """Check every row: a partition's first problem, its lengths, and its rows of zeros."""
    check_batch = _BatchCheck(title, logits, classes)

    def check(batches: Iterable[Any]) -> Iterator[Any]:
        problem: str | None = None
        lengths: tuple[int, int] | None = None
        zeros = 0
        for batch in batches:
            if not len(batch) or problem:
                continue
            try:
                batch_lengths = check_batch(batch)
                if lengths is not None and batch_lengths != lengths:
                    name = "probs" if batch_lengths[0] != lengths[0] else "features"
                    old, new = (pair[name == "features"] for pair in (lengths, batch_lengths))
                    raise SnapsError(
                        f"{title} column '{name}' must have lists of equal length ({old}), "
                        f"got {new} {_called(batch.column('id'), 0)}"
                    )
                lengths = batch_lengths
                zeros += int((~lists(batch.column("probs")).any(axis=1)).sum())
            except SnapsError as error:
                problem = str(error)
        if problem or lengths:
            classes, width = lengths or (None, None)
            numbers = {"classes": classes, "width": width, "zeros": zeros}
            columns = {name: pa.array([number], pa.int64()) for name, number in numbers.items()}
            yield pa.RecordBatch.from_pydict(
                {"problem": pa.array([problem], pa.string())} | columns
            )

    return check


def _called(ids: Any, row: int) -> str:
    value = ids[row].as_py()
    return f"for id {shown(value) if isinstance(value, str) else plainly(value)}"


@dataclass(frozen=True)
class _BatchCheck:
    """Raises for the first bad row of a batch; gives the lengths of probs and features."""

    title: str  # what messages call the nodes
    logits: bool
    classes: list[str] | None  # those that columns of probabilities name

    def __call__(self, batch: Any) -> tuple[int, int]:
        ids = batch.column("id")
        self._check_ids(ids)

        def name(row: int) -> str:
            return _called(ids, row)

        classes = self._check_probs(batch.column("probs"), name)
        width = -1
        if "features" in batch.schema.names:
            width = self._check_features(batch.column("features"), name)
        self._check_roles(batch.column("role").fill_null(""), name)
        return classes, width

    def _check_ids(self, ids: Any) -> None:
        if ids.null_count:
            raise SnapsError(f"{self.title} column 'id' must not be null, got null")
        if not pa.types.is_integer(ids.type):
            row = pc.index(pc.match_substring(ids, "\0"), True).as_py()
            if row >= 0:  # NumPy's strings drop it at their end, Arrow whatever follows it
                raise SnapsError(
                    f"{self.title} column 'id' must not hold the character NUL, "
                    f"got {ids[row].as_py()!r}"
                )

    def _check_probs(self, column: Any, name: Named) -> int:
        title, values = f"{self.title} column 'probs'", column.flatten()
        if self.classes is not None:
            title = f"{self.title} columns 'p_<class>'"
            if values.null_count:
                row, place = divmod(_first_null(values), len(self.classes))
                raise SnapsError(
                    f"{self.title} column '{PREFIX}{self.classes[place]}' must not be null, "
                    f"got null {name(row)}"
                )
        width = _length(column, title, name)
        with _titled(title, "probs"):
            check_probs(lists(column), "probs", logits=self.logits, where=name, silent=True)
        return width

    def _check_features(self, column: Any, name: Named) -> int:
        """The length of lists; -1 for sparse ones, which may end anywhere."""
        title, width = f"{self.title} column 'features'", -1
        table: Any
        if pa.types.is_struct(column.type):
            table = features_of(column, _check_sparse(column, title, name))
        else:
            width, table = _length(column, title, name), lists(column)
        with _titled(title, "features"):
            check_features(table, where=name)
        return width

    def _check_roles(self, roles: Any, name: Named) -> None:
        row = pc.index(pc.is_in(roles, pa.array(["", *ROLES], roles.type)), False).as_py()
        if row >= 0:
            raise SnapsError(
                f"{self.title} column 'role' must be one of {', '.join(ROLES)} or empty, "
                f"got {shown(roles[row].as_py())} {name(row)}"
            )


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
