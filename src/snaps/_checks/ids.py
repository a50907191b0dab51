"""The nodes' own names, and what users pass where nodes are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from snaps._checks import as_array, check_nodes, has, plainly, refuse_repeated, shown, to_numpy
from snaps._runtime.memory import pieces
from snaps._runtime.randomness import Positions
from snaps.errors import SnapsError


def check_ids(ids: Any, name: str, *, unique: bool = True) -> np.ndarray:
    """The nodes' own names: integers or strings, none twice unless repeats are allowed."""
    array: Any = np.empty(()) if isinstance(ids, (str, bytes)) else _array(ids, name)
    if array.dtype == object and all(isinstance(item, str) for item in array.flat):
        if any(item.endswith("\0") for item in array.flat):
            raise SnapsError(f"{name} must not end in the character NUL, got one that does")
        array = array.astype(str)
    elif array.dtype == object and all(type(item) in (int, np.int64) for item in array.flat):
        array = to_numpy(array, name.strip("'"))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuU"):
        raise SnapsError(f"{name} must be a list of integers or of strings, got {shown(ids)}")
    refuse_unwritable(array, name)
    if unique:
        refuse_repeated(array, f"{name} must be unique")
    return array


def plain_scalar(value: Any) -> Any:
    """What a tensor or an array of no dimension holds; anything else as it is."""
    scalar = has(value, "item") and getattr(value, "shape", None) == ()
    return value.item() if scalar else value


def refuse_unwritable(texts: np.ndarray, name: str) -> None:
    """Complain about what no file could hold: halves of characters, and NUL, where Arrow stops."""
    if texts.dtype.kind != "U" or not texts.size or not texts.dtype.itemsize:
        return
    for block in pieces(len(texts), texts.itemsize):
        part = np.ascontiguousarray(texts[block])
        codes = part.view(np.uint32).reshape(len(part), -1)
        ended = (codes[:, :-1] == 0) & (codes[:, 1:] != 0)
        halves = (codes >= 0xD800) & (codes <= 0xDFFF)
        bad = np.flatnonzero(halves.any(axis=1) | ended.any(axis=1))
        if bad.size:
            raise SnapsError(
                f"{name} must be text that can be written, got {shown(part[bad[0]].item())}"
            )


class Places:
    """Where unique ids stand, to be asked more than once."""

    def __init__(self, ids: np.ndarray):
        self._ids, n = ids, len(ids)
        numbers = ids.dtype.kind in "iu" and n > 0
        counted = numbers and ids[0] == 0 and ids[-1] == n - 1 and (np.diff(ids) == 1).all()
        self._order = None if counted else np.argsort(ids, kind="stable")
        self._sorted = ids if counted else ids[self._order]

    def find(self, wanted: np.ndarray, name: str) -> Positions:
        """Positions of ids that must be there."""
        ids, n = self._ids, len(self._ids)
        if wanted.size == 0:
            return np.empty(0, np.int64)
        if (ids.dtype.kind == "U") != (wanted.dtype.kind == "U"):
            kinds = ["strings" if each.dtype.kind == "U" else "integers" for each in (ids, wanted)]
            raise SnapsError(f"{name} must be {kinds[0]} as the nodes' ids are, got {kinds[1]}")
        if self._order is None:
            missing = (wanted < 0) | (wanted >= n)
            place = wanted.astype(np.int64, copy=False)
        else:
            # Searched for in the ids' own type: between types NumPy would search among floats.
            # What the cast changes is no id: the comparison then fails.
            rank = np.searchsorted(self._sorted, wanted.astype(ids.dtype))
            place = self._order[np.minimum(rank, n - 1)]
            missing = ids[place] != wanted
        if missing.any():
            first = plainly(wanted[missing][0])
            raise SnapsError(f"{name} must name nodes of the graph, got {first}")
        return place


def locate(ids: np.ndarray, wanted: np.ndarray, name: str) -> Positions:
    """Positions of `wanted` among unique `ids`."""
    return Places(ids).find(wanted, name) if wanted.size else np.empty(0, np.int64)


def node_positions(
    graph_ids: np.ndarray, nodes: Any, name: str, *, empty: bool = False
) -> Positions:
    """Positions of the nodes a user means, each at most once: a mask, positions or string ids.

    Strings are ids, for a graph whose ids are strings. Integers are always positions, also when
    the graph's ids are integers: `Graph.index` turns such ids into positions.
    """
    array = np.empty(0) if isinstance(nodes, str) else _array(nodes, f"'{name}'")
    texts = [isinstance(item, str) for item in array.flat] if array.dtype == object else []
    if any(texts) and not all(texts):
        raise SnapsError(f"'{name}' must be all positions or all ids, got {shown(nodes)}")
    text = array.dtype.kind == "U" or any(texts)
    if not text or array.ndim != 1 or graph_ids.dtype.kind != "U":
        return check_nodes(nodes, name, num_nodes=len(graph_ids), empty=empty)
    wanted = array.astype(str)
    positions = locate(graph_ids, wanted, f"'{name}'")
    refuse_repeated(wanted, f"'{name}' must not repeat a node")
    return check_nodes(positions, name, num_nodes=len(graph_ids), empty=empty)


def _array(values: Any, name: str) -> np.ndarray:
    """What NumPy makes of a list, but without turning [1, "a"] or ["a", nan] into strings."""
    array = as_array(values, name.strip("'"))
    if array.dtype.kind == "U" and not has(values, "dtype"):
        return as_array(values, name.strip("'"), object)
    # NumPy's strings of any length become those of one length by way of objects.
    return array.astype(object) if array.dtype.kind == "T" else array
