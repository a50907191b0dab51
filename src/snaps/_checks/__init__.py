"""Checks of what users pass; each takes the argument's name, for its message."""

from __future__ import annotations

import math
import os
import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import scipy.sparse as sp

from snaps._runtime.memory import Passed, filled, pieces, softmax
from snaps._runtime.randomness import Positions
from snaps.errors import SnapsError, warn

_REAL = (int, float, Fraction, np.integer, np.floating)
OFF_ONE = 2.0**-8  # what rounding to bfloat16 may do to the sum of a row, twice over
_FINEST = 10**15  # finer levels make no difference on any data
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxlist = 10
_decimal = lru_cache(maxsize=256)(Fraction)

Given = ParamSpec("Given")
Result = TypeVar("Result")


def shown(value: Any) -> str:
    """A value as messages show it: at most 80 characters, none of them a control character."""
    try:
        text = _SHORT.repr(value)
    except Exception:  # an object whose own repr fails
        text = f"a {type(value).__name__}"
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= 80 else f"{text[:77]}..."


def plainly(value: Any) -> str:
    """A number or a name as messages show it: without quotes or its type where it is short."""
    try:
        text = str(value)
    except Exception:  # a number of thousands of digits
        return shown(value)
    return text if len(text) <= 60 and text.isprintable() else shown(text)


def calm(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Let a function compute whatever `np.seterr` says: its results are checked."""

    @wraps(function)
    def called(*arguments: Given.args, **options: Given.kwargs) -> Result:
        with np.errstate(all="ignore"):
            return function(*arguments, **options)

    return called


def machine_memory() -> float:
    """Bytes of memory of this machine; infinite if the system does not say."""
    try:
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return math.inf
    return float(size) if size > 0 else math.inf


def check_memory(size: int, name: str, value: Any) -> None:
    """Refuse what needs more bytes than this machine has: to try would end the process."""
    if size > (available := machine_memory()):
        raise SnapsError(
            f"'{name}' must fit into memory, got {shown(value)}, which takes "
            f"{plainly(size >> 30)} GB or more of {int(available) >> 30}"
        )


def has(value: Any, attribute: str) -> bool:
    """Whether an object has an attribute that can be read, whatever reading it may raise."""
    try:
        return hasattr(value, attribute)
    except Exception:
        return False


def is_tensor(value: Any) -> bool:
    """Whether this is a torch tensor; without torch imported there is none."""
    return isinstance(value, getattr(sys.modules.get("torch"), "Tensor", ()))


def _from_tensor(tensor: Any, name: str) -> np.ndarray:
    """What a dense tensor holds, wherever it lies; a type that NumPy lacks as float32."""
    if tensor.is_nested or str(tensor.layout) != "torch.strided":
        kind = "nested" if tensor.is_nested else "sparse"
        raise SnapsError(f"'{name}' must be a dense array, got a {kind} tensor")
    try:
        plain = tensor.detach().cpu().resolve_conj().resolve_neg()
        if plain.is_quantized:
            plain = plain.dequantize()
        elif plain.is_floating_point() and plain.itemsize < 4:
            plain = plain.float()  # exactly
        return plain.numpy()
    except Exception as error:  # torch has no one error for what cannot be read
        kind = f"{tensor.dtype} on {tensor.device}"
        raise SnapsError(f"'{name}' must be a tensor that can be read, got {kind}") from error


def as_array(value: Any, name: str, dtype: Any = None) -> np.ndarray:
    """An array of anything, from a list, a NumPy array, a pandas column or a torch tensor."""
    if is_tensor(value):
        value = _from_tensor(value, name)
    if value is None or isinstance(value, (str, bytes, dict)) or sp.issparse(value):
        raise SnapsError(f"'{name}' must be an array, got {type(value).__name__}")
    if isinstance(value, np.ma.MaskedArray):
        hidden = int(np.ma.getmaskarray(value).sum())
        if hidden:
            raise SnapsError(f"'{name}' must not be masked, got {hidden} masked entries")
        value = value.data
    try:
        array = np.asarray(value, dtype)
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    except MemoryError:
        raise
    except Exception as error:  # whatever the object's own conversion raises
        rows = value if type(value) in (list, tuple) else []
        sized = (list, tuple, np.ndarray)
        lengths = sorted({len(row) if isinstance(row, sized) else 1 for row in rows})
        if isinstance(error, ValueError) and len(lengths) > 1:
            raise SnapsError(
                f"'{name}' must have rows of equal length, got {lengths[:5]}"
            ) from None
        raise SnapsError(
            f"'{name}' must be an array, got {type(value).__name__} that gives none"
        ) from error


def to_numpy(value: Any, name: str) -> np.ndarray:
    """An array of numbers or of strings; see `as_array`."""
    array = as_array(value, name)
    if array.dtype != object:
        return array
    if array.size == 0:
        return array.astype(np.float64)
    truths = [isinstance(item, (bool, np.bool_)) for item in array.flat]
    if all(truths):
        return array.astype(bool)
    others = [item for item in array.flat if not isinstance(item, _REAL)]
    if others or any(truths):
        others = others or [True]
        raise SnapsError(f"'{name}' must be an array of numbers, got {shown(others[0])}")
    return _exact(array, name)


def _exact(array: np.ndarray, name: str) -> np.ndarray:
    """Python numbers as 64-bit ones, if none of them changes by that."""
    whole = all(isinstance(item, (int, np.integer)) for item in array.flat)
    kinds = (np.int64, np.uint64) if whole else (np.float64,)
    for kind in kinds:
        try:
            converted = array.astype(kind)
        except (OverflowError, ValueError, TypeError):
            continue
        pairs = zip(converted.flat, array.flat, strict=True)
        if all(new == old or new != new for new, old in pairs):
            return converted
    top = max(array.flat, key=abs)
    raise SnapsError(f"'{name}' must hold numbers of at most 64 bits, got {shown(top)}")


def check_alpha(alpha: Any, name: str = "alpha") -> Fraction:
    """Read a miscoverage level as the decimal the user wrote: 0.1 means one tenth exactly."""
    if isinstance(alpha, bool) or not isinstance(alpha, _REAL):
        raise SnapsError(f"'{name}' must be a number between 0 and 1, got {shown(alpha)}")
    if isinstance(alpha, int) or not 0 < alpha < 1:
        raise SnapsError(f"'{name}' must lie strictly between 0 and 1, got {plainly(alpha)}")
    level = alpha if isinstance(alpha, Fraction) else _decimal(str(alpha))
    part, whole = level.numerator, level.denominator
    if min(part, whole - part) * _FINEST < whole or whole.bit_length() > 300:
        raise SnapsError(
            f"'{name}' must be at least 1e-15 away from 0 and 1, and a fraction of at most "
            f"300 bits, got {plainly(alpha)}"
        )
    return level


def check_share(share: Any, name: str) -> Fraction | None:
    """A share that is promised, such as a floor; None and 0 promise nothing."""
    if share is None or (not isinstance(share, bool) and isinstance(share, _REAL) and share == 0):
        return None
    return check_alpha(share, name)


@dataclass(frozen=True)
class Rates:
    """A miscoverage level per class, by the names of the classes."""

    named: tuple[tuple[str, Fraction], ...]

    @property
    def smallest(self) -> Fraction:
        return min(rate for _, rate in self.named)

    def in_order(self, classes: Iterable[Any]) -> tuple[Fraction, ...]:
        """The levels in the order of the classes; all of them must be named, and no other."""
        rates, names = dict(self.named), [str(name) for name in classes]
        for name in rates:
            if name not in names:
                known = ", ".join(names[:10]) + ", ..." * (len(names) > 10)
                raise SnapsError(f"'alpha' must name classes ({known}), got {shown(name)}")
        for name in names:
            if name not in rates:
                raise SnapsError(f"'alpha' must have a rate for every class, got none for {name}")
        return tuple(rates[name] for name in names)


def check_level(alpha: Any, by_class: bool) -> Fraction | Rates:
    """A miscoverage level; or a mapping from class names to levels, with class thresholds."""
    if not isinstance(alpha, Mapping):
        return check_alpha(alpha)
    if not by_class:
        raise SnapsError(
            "'alpha' must be one number unless class_conditional=True (--class-conditional), "
            f"got {shown(dict(alpha))}"
        )
    named = {str(name): check_alpha(rate, f"alpha[{name!r}]") for name, rate in alpha.items()}
    if not named or len(named) < len(alpha):
        raise SnapsError(f"'alpha' must name each class once, got {shown(dict(alpha))}")
    return Rates(tuple(named.items()))


def warn_confidence(alpha: Fraction) -> None:
    """Warn of a confidence level where the miscoverage is asked for."""
    if alpha > Fraction(1, 2):
        level, other = plainly(float(alpha)), f"{float(1 - alpha):g}"
        warn(
            f"alpha={level} asks for sets that contain the true label with probability {other}; "
            f"if you mean a probability of {level}, pass alpha={other}"
        )


def check_integer(value: Any, name: str, *, low: int, high: int | None = None) -> int:
    """An integer of at least `low` (and at most `high`)."""
    rule = f"an integer of at least {low}" if high is None else f"an integer from {low} to {high}"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise SnapsError(f"'{name}' must be {rule}, got {shown(value)}")
    value = int(value)
    if value < low or (high is not None and value > high):
        raise SnapsError(f"'{name}' must be {rule}, got {plainly(value)}")
    return value


def check_number(value: Any, name: str, *, low: float, high: float = math.inf) -> float:
    """A finite number from `low` to `high`."""
    rule = f"a number of at least {low:g}"
    if high < math.inf:
        rule = f"a number from {low:g} to {high:g}"
    if isinstance(value, bool) or not isinstance(value, _REAL):
        raise SnapsError(f"'{name}' must be {rule}, got {shown(value)}")
    if not isinstance(value, Fraction):
        value = int(value) if isinstance(value, (int, np.integer)) else float(value)
    if not (low <= value <= min(high, sys.float_info.max)):
        raise SnapsError(f"'{name}' must be {rule}, got {plainly(value)}")
    return float(value)


METHODS = ("auto", "exact", "approximate")
"""How neighbours may be searched for."""


def check_search(
    method: Any, recall: Any, candidates: Any, name: str = "method"
) -> tuple[str, float]:
    """The search method, and the recall wanted; candidates are searched exactly."""
    if not isinstance(method, str) or method not in METHODS:
        raise SnapsError(f"'{name}' must be one of {', '.join(METHODS)}, got {shown(method)}")
    if method == "approximate" and candidates is not None:
        raise SnapsError(f"'{name}' must be 'auto' or 'exact' with candidates, got 'approximate'")
    return method, check_number(recall, "recall", low=0.5, high=1)


def check_neighbours(
    neighbours: Any, recall: Any, candidates: Any
) -> tuple[str, float, int | None]:
    """The same for estimators, to which candidates are a number."""
    if candidates is not None:
        candidates = check_integer(candidates, "candidates", low=1)
    return *check_search(neighbours, recall, candidates, "neighbours"), candidates


def check_flag(value: Any, name: str) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise SnapsError(f"'{name}' must be True or False, got {shown(value)}")
    return bool(value)


def check_seed(seed: Any, name: str = "seed") -> int:
    """A seed: any integer of 64 bits from 0 on."""
    seed = check_integer(seed, name, low=0)
    if seed >= 2**64:
        raise SnapsError(f"'{name}' must fit 64 bits, got {shown(seed)}")
    return seed


def check_path(path: Any, name: str = "path") -> Path:
    """A place in the file system."""
    try:
        text = os.fspath(path)
        if "\0" not in text and text.encode():
            return Path(text)
    except Exception:  # no path, or one with half a character
        pass
    raise SnapsError(f"'{name}' must be a path, got {shown(path)}")


def in_row(row: int) -> str:
    """A row as messages name it."""
    return f"in row {row}"


@calm
def check_probs(
    probs: Any,
    name: str = "probs",
    *,
    num_nodes: int | None = None,
    logits: bool = False,
    where: Callable[[int], str] = in_row,
    silent: bool = False,
) -> np.ndarray:
    """Class probabilities as float64 (n, K), rows rescaled to sum to one to the last bit.

    Rows may miss one by 2^-8, which lets half-precision outputs through, bfloat16 too. `where`
    says how messages name a row. Warns of logits that are rows of zeros, unless `silent`.
    """
    array = to_numpy(probs, name)
    if array.ndim != 2:
        raise SnapsError(f"'{name}' must have shape (nodes, classes), got {array.shape}")
    if array.dtype.kind not in "fiu":
        raise SnapsError(f"'{name}' must hold numbers, got {array.dtype}")
    if num_nodes is not None and len(array) != num_nodes:
        raise SnapsError(f"'{name}' must have one row a node ({num_nodes}), got {len(array)} rows")
    if len(array) == 0:
        raise SnapsError(f"'{name}' must have at least one row, got none")
    if array.shape[1] < 2:
        raise SnapsError(f"'{name}' must have at least two classes, got {array.shape[1]}")
    if not (isinstance(probs, Passed) and array.dtype == np.float64):
        array = filled(array, np.float64)
    if not logits:
        sums, low = array.sum(axis=1), array.min()
        off = np.abs(sums - 1) > OFF_ONE
        if low >= 0 and not off.any():  # finite, too: the minimum would be nan, or a sum infinite
            array /= sums[:, None]
            return array
    finite = np.isfinite(array)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise SnapsError(f"'{name}' must be finite, got {array[row, column]} {where(row)}")
    if logits:
        zero = np.zeros(len(array), bool)
        for block in pieces(len(array), array[:1].nbytes):
            zero[block] = ~array[block].any(axis=1)
            softmax(array[block])
        if not silent and zero.any():
            warn_unfilled(int(zero.sum()), len(zero), name, where(int(zero.argmax())))
        return array
    hint = "(if these are logits, say so: logits=True or --logits)"
    if low < 0:
        row, column = np.argwhere(array < 0)[0]
        raise SnapsError(
            f"'{name}' must not be negative, got {array[row, column]:g} {where(row)} {hint}"
        )
    row = int(np.flatnonzero(off)[0])
    raise SnapsError(f"'{name}' must sum to 1 in each row, got {sums[row]:.6g} {where(row)} {hint}")


def warn_unfilled(count: int, total: int, name: str, first: str) -> None:
    """Warn of logits that are rows of zeros, unless all are."""
    if 0 < count < total:
        warn(
            f"'{name}' has rows of zeros, {count} of {total} (first: {first}): if no mini-batch "
            "filled these logits, their nodes get uniform probabilities and large sets"
        )


def check_labels(
    labels: Any, name: str = "labels", *, num_nodes: int, num_classes: int
) -> np.ndarray:
    """Labels as int64 (n,), -1 where unknown."""
    array = to_numpy(labels, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (num_nodes,):
        raise SnapsError(f"'{name}' must have shape ({num_nodes},), got {array.shape}")
    if array.dtype.kind not in "iu":
        raise SnapsError(f"'{name}' must be integers with -1 where unknown, got {array.dtype}")
    bad = (array < -1) | (array >= num_classes)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise SnapsError(
            f"'{name}' must lie from 0 to {num_classes - 1}, or be -1 where unknown, "
            f"got {array[row]} at node {row}"
        )
    return array.astype(np.int64)


def check_nodes(nodes: Any, name: str, *, num_nodes: int, empty: bool = False) -> Positions:
    """Node positions as int64, from positions or a boolean mask; each at most once."""
    array = to_numpy(nodes, name)
    if array.dtype == bool:
        if array.shape != (num_nodes,):
            hint = f": take one of {array.shape[1]} columns" if array.ndim == 2 else ""
            raise SnapsError(
                f"'{name}' as a mask must have shape ({num_nodes},), got {array.shape}{hint}"
            )
        array = np.flatnonzero(array)
    if array.ndim != 1:
        raise SnapsError(f"'{name}' must be one-dimensional, got shape {array.shape}")
    if array.size == 0:
        if empty:
            return np.empty(0, np.int64)
        raise SnapsError(f"'{name}' must hold at least one node, got none")
    if array.dtype.kind not in "iu":
        raise SnapsError(f"'{name}' must be integer positions or a boolean mask, got {array.dtype}")
    if array.min() < 0 or array.max() >= num_nodes:
        bad = (array < 0) | (array >= num_nodes)
        raise SnapsError(f"'{name}' must lie from 0 to {num_nodes - 1}, got {array[bad][0]}")
    array = array.astype(np.int64)
    mask = " (a mask must be boolean)" if array.shape == (num_nodes,) and array.max() < 2 else ""
    refuse_repeated(array, f"'{name}' must not repeat a node{mask}")
    return array


def refuse_repeated(array: np.ndarray, rule: str) -> None:
    """Raise SnapsError for repeated entries; small integers are counted, others sorted."""
    if not array.size:
        return
    if array.dtype.kind in "iu" and 0 <= array.min() and array.max() <= 4 * array.size + 1000:
        counts = np.bincount(array.astype(np.int64, copy=False))
        repeated = np.flatnonzero(counts > 1) if counts.max() > 1 else counts[:0]
    else:
        ordered = filled(array)
        ordered.sort()
        repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if repeated.size:
        raise SnapsError(f"{rule}, got {plainly(repeated[0])} twice or more")


def check_disjoint(
    nodes: Positions, name: str, others: Positions, others_name: str, ids: Any = None
) -> None:
    """Two sets of nodes that must not share one; `ids` are the nodes' own names."""
    if not (len(nodes) and len(others)):
        return
    marked = np.zeros(max(nodes.max(), others.max()) + 1, bool)  # np.isin takes longer
    marked[others] = True
    if marked[nodes].any():
        both = np.unique(nodes[marked[nodes]])
        raise SnapsError(
            f"'{name}' must not share nodes with {others_name}, "
            f"got {both.size} in both (first: {_called(both[0], ids)})"
        )


def check_known(labels: np.ndarray, nodes: Positions, name: str, ids: Any = None) -> None:
    """Nodes whose label is needed must have one; `ids` are the nodes' own names."""
    unknown = nodes[labels[nodes] < 0]
    if unknown.size:
        raise SnapsError(
            f"'{name}' must be labelled, got {unknown.size} without a label "
            f"(first: {_called(unknown[0], ids)})"
        )


def _called(node: int, ids: Any) -> str:
    """A node by its name where there are names, else by position."""
    return str(node) if ids is None or ids.dtype.kind != "U" else shown(ids[node].item())


def check_weights(weights: Any, name: str = "weights") -> tuple[float, float]:
    """A pair (lam, mu) that leaves no negative weight for the node itself."""
    try:
        lam, mu = weights
    except Exception:  # whatever iterating raises
        raise SnapsError(
            f"'{name}' must be (lam, mu), 'tune' or 'minimum', got {shown(weights)}"
        ) from None
    lam, mu = check_number(lam, "lam", low=0, high=1), check_number(mu, "mu", low=0, high=1)
    if lam + mu > 1 + 1e-9:
        raise SnapsError(f"'{name}' must sum to at most 1, got {lam:g} + {mu:g}")
    return lam, mu
