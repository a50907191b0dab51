"""Class names: whatever users call their labels, below this file a label is a column of `probs`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from snaps._checks import as_array, has, is_tensor, shown
from snaps._checks.ids import plain_scalar, refuse_unwritable
from snaps.errors import SnapsError, warn

_EXACT = 2**53  # beyond it a float may stand for several whole numbers
_FLOATS = (float, np.floating)
_NUMBERS = (int, np.integer, np.bool_, *_FLOATS)
_MISSING = ("NoneType", "NAType", "NaTType", "MaskedConstant")  # pandas may not be installed
_HINT = "pass classes=[...] (--classes) in the order of the columns of probs, or name the columns"


def encode_labels(
    labels: Any,
    *,
    num_nodes: int,
    num_classes: int,
    classes: Any = None,
    name: str = "labels",
) -> tuple[np.ndarray, np.ndarray]:
    """Labels as codes (n,), columns of `probs` or -1 where unknown; and the name of each column.

    Labels are integers, strings, whole floats, booleans or a pandas categorical. Unknown are -1,
    "", None, NaN, NA and masked entries; -1 and "" are names when `classes` holds them. Without
    `classes`, columns are the categories of a categorical if there are K, else 0, ..., K - 1;
    strings, and integers beyond, do not say which column is which.

    >>> encode_labels(["dog", None, "cat"], num_nodes=3, num_classes=2, classes=["dog", "cat"])
    (array([ 0, -1,  1]), array(['dog', 'cat'], dtype='<U3'))
    """
    usual = _usual_codes(labels, num_nodes, num_classes, classes)
    if usual is not None:
        return usual, np.arange(num_classes)
    names, inverse, categories = factorised(labels, name, num_nodes)
    unknown = "" if names.dtype.kind == "U" else -1
    if classes is not None:
        known = check_classes(classes, num_classes)
    else:
        used: Any = [] if categories is None else categories[np.isin(categories, names)]
        if categories is not None and len(categories) == num_classes:
            known = categories
        elif len(used) == num_classes:
            known = used  # in the order of the categories
        else:
            count = int(np.append(names != unknown, False)[inverse].sum())
            known = _classes_of(names[names != unknown], num_classes, name, count)
        _check_order(known, name)
        _warn_alphabetical(labels, known, name)
        refuse_unwritable(known, f"'{name}'")
    column = {value: i for i, value in enumerate(known.tolist())}
    codes = np.array([column.get(value, -1) for value in names.tolist()], np.int64)
    foreign = np.append((codes < 0) & (names != unknown), False)[inverse]
    if foreign.any():
        row = int(np.flatnonzero(foreign)[0])
        value = names[inverse[row]].item()
        if unknown == -1 and np.array_equal(known, np.arange(num_classes)):
            raise SnapsError(
                f"'{name}' must lie from 0 to {num_classes - 1}, or be -1 where unknown, "
                f"got {value} at node {row}" + (f"; {_HINT}" if classes is None else "")
            )
        numbers = unknown == -1 and known.dtype.kind == "U"
        hint = "; if they number the columns, pass np.array(classes)[labels]" if numbers else ""
        raise SnapsError(
            f"'{name}' must be among the classes {shown(known.tolist())}, "
            f"got {shown(value)} at node {row}{hint}"
        )
    return np.append(codes, -1)[inverse], known


def _usual_codes(labels: Any, num_nodes: int, num_classes: int, classes: Any) -> np.ndarray | None:
    """The usual case without a detour: integers from -1 to K - 1 among which 0 is."""
    usual = type(labels) is np.ndarray and labels.dtype.kind == "i"
    if not usual or labels.shape != (num_nodes,) or num_nodes == 0:
        return None
    own = classes is None or (
        type(classes) is np.ndarray
        and classes.dtype.kind == "i"
        and np.array_equal(classes, np.arange(num_classes))
    )
    low = labels.min()
    if not own or low < -1 or labels.max() >= num_classes:
        return None
    if classes is None and low != 0 and not (labels == 0).any():
        return None
    return labels.astype(np.int64)


def check_classes(classes: Any, num_classes: int) -> np.ndarray:
    """The name of each column of `probs`: K integers or K strings, none twice."""
    values, missing = plain_labels(classes, "classes")
    if missing.any():
        raise SnapsError(f"'classes' must be a list of integers or strings, got {shown(classes)}")
    if len(values) != num_classes:
        raise SnapsError(
            f"'classes' must have one entry per column of probs ({num_classes}), got {len(values)}"
        )
    distinct, counts = np.unique(values, return_counts=True)
    if (counts > 1).any():
        repeated = distinct[counts > 1][0].item()
        raise SnapsError(f"'classes' must be unique, got {shown(repeated)} twice or more")
    refuse_unwritable(values, "'classes'")
    return values


def class_code(label: Any, classes: np.ndarray, name: str = "label") -> int:
    """The column of a class that is given by its name."""
    label = plain_scalar(label)
    kinds = str if classes.dtype.kind == "U" else (int, np.integer)
    if isinstance(label, kinds) and not isinstance(label, bool):
        columns = np.flatnonzero(classes == label)
        if columns.size:
            return int(columns[0])
    raise SnapsError(f"'{name}' must be one of {shown(classes.tolist())}, got {shown(label)}")


def _classes_of(names: np.ndarray, num_classes: int, name: str, count: int) -> np.ndarray:
    """The classes if none are named: 0, ..., K - 1, if the distinct known labels allow it."""
    if names.dtype.kind == "U" and len(names):
        refuse_unwritable(names, f"'{name}'")
        raise SnapsError(
            f"'classes' must be given where '{name}' are strings, got None and "
            f"{shown(np.sort(names).tolist())}: {_HINT}"
        )
    low, high = (int(names.min()), int(names.max())) if len(names) else (0, 0)
    if low > 0 and high < num_classes and count >= 10 * num_classes:
        warn(
            f"none of {count} '{name}' is 0: they are taken for columns {low} to {high} of probs; "
            f"if they start at 1, {_HINT}"
        )
    return np.arange(num_classes)


def _check_order(classes: np.ndarray, name: str) -> None:
    """Refuse an order that the user did not choose: as text, 10 comes before 2."""
    texts = classes.tolist()
    if classes.dtype.kind != "U" or not all(re.fullmatch("-?[0-9]+", text) for text in texts):
        return
    if texts == sorted(texts) != sorted(texts, key=int):
        raise SnapsError(
            f"'{name}' must have a clear order, got numbers as text: {shown(texts)}; {_HINT}"
        )


def _warn_alphabetical(labels: Any, known: np.ndarray, name: str) -> None:
    """Say which order is assumed where categories have the one that pandas gives by itself."""
    ordered = getattr(getattr(_only_column(labels), "dtype", None), "ordered", True)
    names = known.tolist()
    if not ordered and known.dtype.kind == "U" and len(names) > 1 and names == sorted(names):
        warn(
            f"the columns of probs are taken for the categories of '{name}' in alphabetical order, "
            f"as pandas makes them: {shown(names)}; classes=[...] says so without this note"
        )


def factorised(
    labels: Any, name: str, num_nodes: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Distinct labels, the place of each node's label among them (-1: none), and categories."""
    labels, categories, order = _only_column(labels), None, None
    if has(labels, "to_list") and has(labels, "to_physical"):  # polars: only an Enum has an order
        order = list(labels.dtype.categories) if type(labels.dtype).__name__ == "Enum" else None
        labels = labels.to_list()
    if has(labels, "dtype") and hasattr(labels.dtype, "categories"):
        labels = getattr(labels, "array", labels)
        categories, _ = plain_labels(labels.categories, name)
        inverse = np.asarray(labels.codes, np.int64)
        _check_shape(inverse, name, num_nodes)
        names = categories
    else:
        values, missing = plain_labels(labels, name, num_nodes)
        names, inverse = _distinct(values)
        inverse[missing] = -1
        if order is not None:
            categories, _ = plain_labels(order, name)
    # Categories that no node has, and what stood below a mask, are no labels.
    present = np.bincount(inverse + 1, minlength=len(names) + 1)[1:] > 0
    if present.all():
        return names, inverse, categories
    return names[present], np.append(np.cumsum(present) - 1, -1)[inverse], categories


def _only_column(labels: Any) -> Any:
    """The column of a table of pandas that has no other."""
    single = has(labels, "iloc") and getattr(labels, "ndim", 1) == 2 and labels.shape[1] == 1
    return labels.iloc[:, 0] if single else labels


def _distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values that hold all that occur, each once, and the place of each value among them."""
    if values.dtype.kind == "U":
        items = values.tolist()
        place = {item: i for i, item in enumerate(dict.fromkeys(items))}
        inverse = np.fromiter(map(place.__getitem__, items), np.int64, len(items))
        return np.array(list(place), str), inverse
    low, high = (int(values.min()), int(values.max())) if values.size else (0, -1)
    if high - low > 4 * len(values) + 1000:
        return np.unique(values, return_inverse=True)
    return low + np.arange(high - low + 1), values - low


def _check_shape(array: np.ndarray, name: str, num_nodes: int | None) -> None:
    if num_nodes is not None and array.shape != (num_nodes,):
        raise SnapsError(f"'{name}' must have shape ({num_nodes},), got {array.shape}")


def plain_labels(
    values: Any, name: str, num_nodes: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Values as int64 or strings (n,), and where there is none."""
    array, missing = _array(values, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array, missing = array[:, 0], missing[:, 0]
    if num_nodes is not None:
        _check_shape(array, name, num_nodes)
    elif array.ndim != 1:
        raise SnapsError(f"'{name}' must be a list of integers or strings, got {shown(values)}")
    if array.dtype.kind in "OT":
        return _from_objects(array.tolist(), missing, name)
    kind = array.dtype.kind
    if kind not in "iubfU":
        raise SnapsError(f"'{name}' must be integers or strings, got {array.dtype}")
    if kind == "f":
        missing = missing | np.isnan(array)
        array = np.where(missing, np.float64(0), array)
        bad = (array != np.floor(array)) | (np.abs(array) > _EXACT)
        if bad.any():
            raise SnapsError(f"'{name}' must be whole numbers, got {array[bad][0]}")
    if kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        raise SnapsError(f"'{name}' must fit 64-bit integers, got {array.max()}")
    return (array if kind == "U" else array.astype(np.int64, copy=False)), missing


def _array(values: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """An array of any type, without what NumPy would turn into something else on the way."""
    if np.ma.isMaskedArray(values):
        missing, array = np.ma.getmaskarray(values), np.array(values.data)
        if array.dtype.kind in "iufbUO":
            array[missing] = {"U": "", "O": None}.get(array.dtype.kind, 0)
        return array, missing
    dtype: Any = values.dtype if has(values, "dtype") else None
    if has(values, "isna") and not isinstance(dtype, np.dtype) and hasattr(dtype, "kind"):
        # A pandas column of a type of its own; as floats its integers would not be exact.
        missing = np.asarray(values.isna(), bool)
        if dtype.kind in "iub":
            own = {"i": np.int64, "u": np.uint64, "b": np.bool_}[dtype.kind]
            return values.to_numpy(dtype=own, na_value=0), missing
        return values.to_numpy(dtype=object, na_value=None), missing
    # As an array, a list such as [1, "a"] or ["a", nan] would become strings.
    array = as_array(values, name, object if dtype is None else None)
    return array, np.zeros(array.shape, bool)


def _from_objects(
    items: list[Any], missing: np.ndarray, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Python's integers, whole floats or strings; None and its like are missing."""
    types = set(map(type, items))
    none = {kind for kind in types if kind.__name__ in _MISSING}
    floats = {kind for kind in types if issubclass(kind, _FLOATS)}
    if none or floats:
        gone = (type(item) in none or (type(item) in floats and item != item) for item in items)
        missing = missing | np.fromiter(gone, bool, len(items))
    known = items
    if missing.any():
        known = [item for item, gone in zip(items, missing.tolist(), strict=True) if not gone]
    kinds = set(map(type, known))
    foreign = {kind for kind in kinds if not issubclass(kind, (str, *_NUMBERS))}
    if foreign:
        first = next(item for item in known if type(item) in foreign)
        raise SnapsError(f"'{name}' must be integers or strings, got {shown(first)}")
    text = [kind for kind in kinds if issubclass(kind, str)]
    if text and len(text) < len(kinds):
        string = shown(next(item for item in known if isinstance(item, str)))
        number = shown(next(item for item in known if not isinstance(item, str)))
        raise SnapsError(f"'{name}' must be all integers or all strings, got {string} and {number}")
    if text:
        # NumPy's strings can't end in NUL: two names would become one.
        if any(item.endswith("\0") for item in set(known)):
            raise SnapsError(f"'{name}' must not end in the character NUL, got one that does")
        strings = np.full(len(items), "", object)
        strings[~missing] = known
        return strings.astype(str), missing
    numbers = np.zeros(len(items), np.int64)
    wrong = [item for item in known if isinstance(item, _FLOATS) and not _is_whole(item)]
    if wrong:
        raise SnapsError(f"'{name}' must be whole numbers, got {wrong[0]}")
    try:
        numbers[~missing] = np.array([int(item) for item in known], np.int64)
    except OverflowError:
        top = max(known, key=abs)
        raise SnapsError(f"'{name}' must fit 64-bit integers, got {shown(int(top))}") from None
    return numbers, missing


def check_groups(groups: Any, num_nodes: int) -> list[Any]:
    """The group of each node as Python's own values, None where there is none."""
    # Not as an array where it can be helped: NumPy would take tuples for rows, dates for numbers.
    if isinstance(groups, (list, tuple)):
        values = list(groups)
    else:
        listed = has(groups, "tolist") and not is_tensor(groups)
        array = groups if listed else as_array(groups, "groups")
        if getattr(array, "ndim", 1) == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if getattr(array, "ndim", 1) != 1:
            raise SnapsError(f"'groups' must have shape ({num_nodes},), got {array.shape}")
        values = array.tolist()
    if len(values) != num_nodes:
        raise SnapsError(f"'groups' must have shape ({num_nodes},), got ({len(values)},)")
    values = [value.item() if isinstance(value, np.generic) else value for value in values]
    values = [None if _is_missing(value) else value for value in values]
    for node, value in enumerate(values):
        try:
            hash(value)
        except Exception:  # whatever the value's own hash raises
            raise SnapsError(
                f"'groups' must be hashable, got {shown(value)} at node {node}"
            ) from None
    return values


def _is_missing(item: Any) -> bool:
    """Whether a value stands for none: None, NaN, NA, NaT or masked."""
    return type(item).__name__ in _MISSING or (isinstance(item, _FLOATS) and item != item)


def _is_whole(number: Any) -> bool:
    return abs(float(number)) <= _EXACT and number == int(number)
