"""The nodes' own names, and what users pass where nodes are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from snaps._checks import check_nodes, shown
from snaps._errors import SnapsError


def check_ids(ids: Any, name: str, *, unique: bool = True) -> np.ndarray:
    """The nodes' own names: a list of integers or of strings, none twice unless told otherwise."""
    array = _array(ids)
    if array.dtype == object and all(isinstance(item, str) for item in array.flat):
        array = array.astype(str)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuU"):
        raise SnapsError(f"{name} must be a list of integers or of strings, got {shown(ids)}")
    if unique:
        _refuse_repeated(array, f"{name} must be unique")
    return array


def locate(ids: np.ndarray, wanted: np.ndarray, name: str) -> np.ndarray:
    """Positions of `wanted` among unique `ids`."""
    if wanted.size == 0:
        return np.empty(0, np.int64)
    if (ids.dtype.kind == "U") != (wanted.dtype.kind == "U"):
        raise SnapsError(f"{name} must be of the type of the nodes' ids, got {wanted.dtype}")
    n = len(ids)
    if ids.dtype.kind in "iu" and ids[0] == 0 and ids[-1] == n - 1 and (np.diff(ids) == 1).all():
        missing = (wanted < 0) | (wanted >= n)
        place = wanted.astype(np.int64, copy=False)
    else:
        order = np.argsort(ids, kind="stable")
        # Searched for in the ids' own type: between types NumPy would search among floats. What
        # the cast changes is no id, as the comparison then tells.
        found = np.searchsorted(ids[order], wanted.astype(ids.dtype))
        place = order[np.minimum(found, n - 1)]
        missing = ids[place] != wanted
    if missing.any():
        raise SnapsError(f"{name} must name nodes of the graph, got {wanted[missing][0]}")
    return place


def node_positions(
    graph_ids: np.ndarray, nodes: Any, name: str, *, empty: bool = False
) -> np.ndarray:
    """Positions of the nodes a user means, each at most once.

    Parameters
    ----------
    graph_ids : array (n,)
        The ids of the graph's nodes.
    nodes : boolean mask (n,), integer positions, or string ids
        Strings are ids, for a graph whose ids are strings. Integers are always positions, also
        when the graph's ids are integers: `Graph.index` turns such ids into positions.
    name : str
        What the user calls this argument.
    empty : bool
        Whether no node at all will do.
    """
    array = np.empty(0) if isinstance(nodes, str) else _array(nodes)
    texts = [isinstance(item, str) for item in array.flat] if array.dtype == object else []
    if any(texts) and not all(texts):
        raise SnapsError(f"'{name}' must be all positions or all ids, got {shown(nodes)}")
    text = array.dtype.kind == "U" or any(texts)
    if not text or array.ndim != 1 or graph_ids.dtype.kind != "U":
        return check_nodes(nodes, name, num_nodes=len(graph_ids), empty=empty)
    wanted = array.astype(str)
    places = locate(graph_ids, wanted, f"'{name}'")
    _refuse_repeated(wanted, f"'{name}' must not repeat a node")
    # Again, for what holds however nodes are given: no node at all is refused by name.
    return check_nodes(places, name, num_nodes=len(graph_ids), empty=empty)


def _array(values: Any) -> np.ndarray:
    """What NumPy makes of a list, but without turning [1, "a"] or ["a", nan] into strings."""
    try:
        array = np.asarray(values)
        if array.dtype.kind == "U" and not hasattr(values, "dtype"):
            array = np.array(values, object)
        elif array.dtype.kind == "T":  # NumPy's strings of any length
            array = array.astype(object)
    except (TypeError, ValueError):  # rows of unequal length, a tensor on another device
        array = np.empty((), object)
    return array


def _refuse_repeated(array: np.ndarray, rule: str) -> None:
    ordered = np.sort(array)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if repeated.size:
        raise SnapsError(f"{rule}, got {repeated[0]} twice or more")
