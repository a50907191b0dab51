"""Names that inputs carry: a row belongs to the node with its id, a column to the class it names.

Tables and columns of pandas, polars and Arrow, and mappings keyed by node, are brought into the
order of the graph and of the classes here, or refused; below this file positions are enough. The
default index 0, 1, ... of pandas names nothing: such rows are in the graph's order, as an array's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from snaps._checks import as_array, has, is_tensor, plainly, shown
from snaps._checks.classes import check_classes, factorised
from snaps._checks.ids import check_ids
from snaps.errors import SnapsError, warn

ID = "id"
_IDS = ("id", "ids", "node", "node_id", "nodeid")  # what a column of ids may be called
EDGE_COLUMNS = (("src", "dst"), ("source", "target"))
PREFIX = "p_"  # of columns of probabilities in a graph folder


@dataclass(frozen=True)
class Named:
    """A table or a column, and the names it carries."""

    value: Any  # a pandas object, an array or a list, without a column of ids
    rows: Any  # the name of each row, or None
    chosen: bool = True  # whether rows 0, 1, ... are names, too: those of a mapping or a column are
    columns: list[Any] | None = None  # None if this is no table or its columns are only numbered

    def take(self, order: np.ndarray) -> Any:
        """Rows in another order, missing where it says -1."""
        complete = order.min(initial=0) >= 0
        if has(self.value, "iloc"):
            if complete:
                return self.value.iloc[order]
            return self.value.reset_index(drop=True).reindex(order)
        if complete and isinstance(self.value, np.ndarray):
            return self.value[order]
        return [None if row < 0 else self.value[row] for row in order.tolist()]


class Nodes(Protocol):
    """What names are matched to: a graph."""

    @property
    def ids(self) -> np.ndarray: ...
    @property
    def named(self) -> bool: ...
    @property
    def adjacency(self) -> Any: ...


_UNNAMED = (np.ndarray, list, tuple)  # what carries no names


def names_of(value: Any) -> Named | None:
    """A value that carries names, with them; None for arrays, lists and tensors."""
    if type(value) in _UNNAMED:
        return None
    if isinstance(value, Named):
        return value
    if isinstance(value, Mapping) and not sp.issparse(value):  # a dok_array is a dict
        return Named(list(value.values()), list(value))
    if has(value, "iloc") and has(value, "index"):  # pandas
        chosen = value.index.names != [None]
        if not has(value, "columns"):
            return Named(value, value.index, chosen)
        columns = list(value.columns)
        # Integers without a name are what is left of an order of rows: the column has the ids.
        numbers = not chosen and getattr(value.index.dtype, "kind", "O") in "iu"
        if columns.count(ID) == 1 and numbers:
            columns.remove(ID)
            rest = value[columns] if len(columns) > 1 else value[columns[0]] if columns else value
            return Named(rest, value[ID], columns=_chosen_columns(columns))
        return Named(value, value.index, chosen, _chosen_columns(columns))
    listed = "columns" if has(value, "get_column") else "column_names"  # polars, else Arrow
    if not has(value, listed):
        return None
    arrays = {name: np.asarray(column_of(value, name)) for name in getattr(value, listed)}
    rows = arrays.pop(ID, None)
    parts = list(arrays.values())
    table = np.stack(parts, axis=1) if len(parts) > 1 else parts[0] if parts else np.empty(0)
    return Named(table, rows, columns=_chosen_columns(list(arrays)))


def column_of(table: Any, name: Any) -> Any:
    """A column of a table or mapping by its name."""
    if has(table, "get_column"):
        return table.get_column(name)
    return table.column(name) if has(table, "column_names") else table[name]


def _chosen_columns(columns: list[Any]) -> list[Any] | None:
    """Names of columns, unless they only number them, as pandas and polars do by default."""
    default = columns == [f"column_{i}" for i in range(len(columns))]
    return None if default or _counts(columns) else columns


def _counts(names: Any) -> bool:
    """Whether names are 0, 1, ... in this order."""
    if names is None or not all(isinstance(name, (int, np.integer)) for name in names[:1]):
        return False
    return bool(np.array_equal(np.asarray(names), np.arange(len(names))))


# -- rows ------------------------------------------------------------------------------------------


def align(value: Any, graph: Nodes, name: str, *, partial: bool = False) -> Any:
    """A value with a row per node, or per some if `partial`, in the order of the graph.

    What carries no names is returned as it is.
    """
    named = names_of(value)
    if named is None:
        return value
    order = _order(named, graph.ids, name, partial, _is_anchored(graph))
    return named.value if order is None else named.take(order)


def of_sets(value: Any, ids: np.ndarray, nodes: np.ndarray, name: str) -> tuple[Any, np.ndarray]:
    """A value with a row per node, and the row of each set, by id where rows have names."""
    named = names_of(value)
    if named is None:
        return value, nodes
    numbers = _numbers(ids)
    if not named.chosen and named.rows is not None and _counts(named.rows) and numbers is not None:
        # The sets are of some nodes only: their ids may be positions of others.
        inside = (numbers >= 0) & (numbers < len(named.rows))
        if not np.array_equal(numbers, nodes) and inside.any():
            raise SnapsError(
                f"'{name}' must have the nodes' ids as its index, got the default one, which may "
                f"mean ids or positions: {_by_position(named)}"
            )
        return named.value, nodes
    order = _order(named, ids, name, others=True)
    return (named.value, nodes) if order is None else (named.take(order), np.arange(len(ids)))


def align_mask(nodes: Any, graph: Nodes, name: str) -> Any:
    """Nodes that a user names; see `align_nodes`."""
    return align_nodes(nodes, graph.ids, name, _is_anchored(graph))


def align_nodes(nodes: Any, ids: np.ndarray, name: str, anchored: bool = True) -> Any:
    """Nodes that a user names, a mask by id where its rows have names.

    Integers of pandas may be positions or ids: where these differ, that must be said.
    """
    if isinstance(nodes, (np.ndarray, list, tuple, range, set, str)) or is_tensor(nodes):
        return nodes
    if isinstance(nodes, Mapping) or has(nodes, "columns"):
        raise SnapsError(f"'{name}' must be a list of nodes or a mask, got {shown(type(nodes))}")
    if not (has(nodes, "to_numpy") and has(nodes, "__len__")):
        return nodes
    # A Series or an Index of pandas, a column of polars or of Arrow.
    values = as_array(nodes, name)
    items = values.tolist() if values.dtype.kind == "O" and values.ndim == 1 else []
    if values.dtype.kind == "b" or (items and all(isinstance(item, bool) for item in items)):
        named, mask = names_of(nodes), np.asarray(values, bool)
        order = None if named is None else _order(named, ids, name, False, anchored)
        return mask if order is None else mask[order]
    integers = values.dtype.kind in "iu" or (items and all(isinstance(i, int) for i in items))
    if integers and _may_be_ids(values, ids):
        raise SnapsError(
            f"'{name}' must be positions or ids, got integers of a {type(nodes).__name__}, which "
            "may be either: pass graph.index(...) for ids, .to_numpy() for positions"
        )
    return nodes


def _may_be_ids(values: np.ndarray, ids: np.ndarray) -> bool:
    """Whether integers may name other nodes than those at these positions."""
    if ids.dtype.kind in "iu":
        return not _counts(ids)
    return not _counts(_numbers(ids)) and bool(np.isin(values.astype(str), ids).any())


def _is_anchored(graph: Nodes) -> bool:
    """Whether the nodes' numbers mean anything but the order of the rows."""
    return graph.named or graph.adjacency.nnz > 0


def _order(
    named: Named,
    ids: np.ndarray,
    name: str,
    partial: bool = False,
    anchored: bool = True,
    others: bool = False,
) -> np.ndarray | None:
    """The place of each id among the rows, -1 for none; None if rows are in the graph's order.

    Nodes may be without a row if `partial`, and rows may name other nodes if `others`.
    """
    rows = named.rows
    if rows is None:
        return None
    if not named.chosen and _counts(rows):
        if _shuffled(ids):
            raise SnapsError(
                f"'{name}' must have the graph's ids as its index, got the default one, and the "
                f"ids are the same numbers in another order: {_by_position(named)}"
            )
        return None
    if not anchored:
        raise SnapsError(
            f"'{name}' must have the default index where neither graph nor probs have ids, got "
            f"{shown(_item(next(iter(rows))))} first: {_by_position(named)}"
        )
    texts = ids.dtype.kind == "U"
    listed = [row if isinstance(row, str) or not texts else str(row) for row in rows]
    place = dict(zip(listed, range(len(listed)), strict=True))
    if len(place) < len(listed):
        twice = next(row for i, row in enumerate(listed) if place[row] != i)
        raise SnapsError(f"{_title(named, name)} must not repeat an id, got {shown(twice)} twice")
    order = np.fromiter((place.pop(each, -1) for each in ids.tolist()), np.int64, len(ids))
    if place and not others:
        foreign = shown(_item(next(iter(place))))
        raise SnapsError(
            f"{_title(named, name)} must be ids of the graph's nodes, got {foreign}: "
            f"{_by_position(named)}"
        )
    if not partial and order.min(initial=0) < 0:
        first = plainly(ids[int(np.argmin(order))])
        raise SnapsError(f"{_title(named, name)} must hold every node, got none for {first}")
    return order


def _shuffled(ids: np.ndarray) -> bool:
    """Whether ids are 0, ..., n - 1 in another order, be it as text."""
    numbers = _numbers(ids)
    return numbers is not None and not _counts(numbers) and _counts(np.sort(numbers))


def _numbers(ids: np.ndarray) -> np.ndarray | None:
    """Ids as the positions that they may be taken for; None if one is no number."""
    if ids.dtype.kind == "U":
        # No text of more than nine digits is a position.
        if ids.dtype.itemsize > 4 * 9 or not np.char.isdecimal(ids).all():
            return None
        numbers = ids.astype(np.int64)
        return numbers if (numbers.astype(str) == ids).all() else None
    return ids.astype(np.int64)


def _title(named: Named, name: str) -> str:
    if isinstance(named.value, list):
        return f"the keys of '{name}'"
    return f"the column 'id' of '{name}'" if named.chosen else f"the index of '{name}'"


def _by_position(named: Named) -> str:
    """What to do about rows that match no id."""
    if isinstance(named.value, list):
        return "key it by the graph's ids"
    if named.chosen and not has(named.value, "iloc"):
        return "give its rows the graph's ids"
    return "set its index to the ids, or pass .to_numpy() for rows in the graph's order"


def _item(value: Any) -> Any:
    """A value without NumPy's type."""
    return value.item() if isinstance(value, np.generic) else value


def align_features(
    features: Any, ids: np.ndarray | None, alone: bool
) -> tuple[Any, np.ndarray | None]:
    """Features in the order of the ids, and the ids, which a table may give where there are none.

    `alone` says that no edges number the nodes.
    """
    named = names_of(features)
    if named is None:
        return features, ids
    for column in named.columns or ():
        if str(column).lower() in _IDS:
            raise SnapsError(
                f"'features' must not have a column of ids, got {shown(column)}: make it the "
                f"index, call it {ID} in a table without an index, or leave it out"
            )
    wanted = ids
    if ids is None:
        own = row_ids(features, "features")
        if own is None or alone or own.dtype.kind == "U":
            return named.value, own
        wanted = np.arange(len(named.rows))  # as edges number the nodes
    order = _order(named, np.asarray(wanted), "features", False)
    return (named.value if order is None else named.take(order)), ids


def row_ids(value: Any, name: str) -> np.ndarray | None:
    """The names of rows as ids of nodes that have none yet; None without names."""
    named = names_of(value)
    if named is None or named.rows is None or not (named.chosen or not _counts(named.rows)):
        return None
    return check_ids(list(map(_item, named.rows)), _title(named, name))


# -- columns ---------------------------------------------------------------------------------------


def column_names(probs: Any) -> list[Any] | None:
    """The names of the columns of probabilities, if they have any."""
    named = names_of(probs)
    return None if named is None else named.columns


def class_order(probs: Any, labels: Any, classes: Any) -> tuple[Any, Any]:
    """Probabilities with their names, and the order of the classes; None if it is not known.

    What the user says, else the order of the labels' categories, else the names of the columns,
    sorted: so that a table gives the same results in whatever order its columns come.
    """
    named = names_of(probs)
    if named is None:
        return probs, classes
    if classes is not None or named.columns is None:
        return named, classes
    table = names_of(labels)
    given = [] if labels is None else labels if table is None else table.value
    values, _, categories = factorised(given, "labels")
    known = {str(value) for value in values.tolist() if value not in (-1, "")}
    texts = _texts(named.columns)
    if not known <= set(texts):
        texts = _without_prefix(texts)
    strange = [text for text in texts if text not in known]
    if strange and known and known <= set(texts) and categories is None:
        warn(
            f"no label is of class {strange[0]!r}, which is a column of probs: classes=[...] says "
            "which columns are classes, and a column that is none must be left out"
        )
    if categories is not None and set(texts) <= set(map(str, categories.tolist())):
        order = [name for name in categories.tolist() if str(name) in set(texts)]
    else:
        order = sorted(as_names(texts, values.dtype.kind == "U"))
    return named, check_classes(order, len(texts))


def as_names(texts: list[str], text: bool) -> list[Any]:
    """Names of classes: integers if they look like it, unless labels are known to be strings."""
    if not text and all(re.fullmatch("0|-?[1-9][0-9]*", each) for each in texts):
        return list(map(int, texts))
    return texts


def named_columns(probs: Any, columns: Any) -> Any:
    """Probabilities whose columns have these names, if any are given."""
    if columns is None:
        return probs
    named = names_of(probs)
    if named is not None and named.columns is not None:
        match_columns(named.columns, check_classes(columns, len(named.columns)))
        return probs
    if named is None:
        named = Named(as_array(probs, "probs"), None)
    if np.ndim(named.value) != 2:
        return probs  # to be refused for its shape
    names = check_classes(columns, np.shape(named.value)[1])
    return replace(named, columns=names.tolist())


def match_columns(columns: Iterable[Any], classes: np.ndarray) -> np.ndarray:
    """The place of each class among columns that have names."""
    texts, wanted = _texts(columns), list(map(str, classes.tolist()))
    if set(texts) != set(wanted):
        texts = _without_prefix(texts)
    place = {text: i for i, text in enumerate(texts)}
    for text in wanted:
        if text not in place:
            raise SnapsError(
                f"'probs' must have a column for each class, got none for {shown(text)} among "
                f"{shown(texts)}"
            )
    if len(texts) > len(wanted):
        other = next(text for i, text in enumerate(texts) if text not in wanted or place[text] != i)
        raise SnapsError(
            f"'probs' must have one column per class {shown(wanted)}, got also {shown(other)}"
        )
    return np.array([place[text] for text in wanted])


def _texts(columns: Iterable[Any]) -> list[str]:
    """Names of columns as text; those of truth values and whole floats as that of the integer."""
    return [str(int(name) if _is_whole(name) else name) for name in map(_item, columns)]


def _is_whole(name: Any) -> bool:
    return isinstance(name, bool) or (isinstance(name, float) and name.is_integer())


def _without_prefix(texts: list[str]) -> list[str]:
    whole = all(text.startswith(PREFIX) for text in texts)
    return [text.removeprefix(PREFIX) for text in texts] if whole else texts


# -- both ------------------------------------------------------------------------------------------


def align_table(probs: Any, graph: Nodes | None, classes: Any) -> Any:
    """Probabilities with rows in the order of the graph and columns in that of the classes."""
    named = names_of(probs)
    if named is None:
        return probs
    if isinstance(named.value, list):
        row = next((row for row in named.value if names_of(row) is not None), None)
        if row is not None:
            kind = type(row).__name__
            raise SnapsError(f"'probs' must map nodes to lists of numbers, got a {kind}")
    order = None
    if graph is not None:
        order = _order(named, graph.ids, "probs", False, _is_anchored(graph))
    table = as_array(named.value if order is None else named.take(order), "probs")
    if named.columns is None or classes is None:
        return table
    order = match_columns(named.columns, np.asarray(classes))
    return table if _counts(order) else table[:, order]
