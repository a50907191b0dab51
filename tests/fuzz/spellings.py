"""What else an array may mean, and how else the same may be spelled, for the attacker."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch

N, K, D = 40, 3, 5  # nodes, classes and features of all that is attacked

Array = Any
Random = np.random.Generator

TABLES = ("probs", "logits", "features")
NODES = ("nodes", "others", "rest", "pool")
LABELS = ("labels", "coded")
WHOLE = (*LABELS, *NODES, "edges", "numbers", "classes", "few", "groups")
TEXTS = ("names", "named nodes", "named rest")
SPARSE = ("sparse", "similarity")


# ---- what else they may mean ---------------------------------------------------------------------
# Each gives the plain spelling of another meaning, and whether that must be refused.


def _at(array: Array, random: Random, value: Any) -> Array:
    out = array.copy()
    out.reshape(-1)[random.integers(out.size)] = value
    return out


def not_finite(kind: str, array: Array, random: Random) -> Any:
    if kind in TABLES or kind == "weights":
        return _at(array, random, random.choice([np.nan, np.inf, -np.inf])), True
    if kind in SPARSE:
        out = array.copy()
        out.data[random.integers(out.nnz)] = random.choice([np.nan, np.inf])
        return out, True
    return None


def out_of_range(kind: str, array: Array, random: Random) -> Any:
    if kind in NODES or kind == "edges":
        return _at(array, random, random.choice([-1, -N, N + 3, 2**31 + 1, 2**62, -(2**63)])), True
    if kind == "few":
        return _at(array, random, random.choice([N, -N - 1, 2**40])), True
    if kind in LABELS:
        return _at(array, random, random.choice([-7, K + 90, 2**40])), True
    if kind == "probs":
        return _at(array, random, random.choice([-0.5, 1.5, 1e300])), True
    if kind == "weights":
        return _at(array, random, -1.0), True
    if kind in ("named nodes", "named rest"):
        return _at(array, random, random.choice(["", "v99", "x"])), True
    return None


def repeated(kind: str, array: Array, random: Random) -> Any:
    if kind in (*NODES, *TEXTS, "numbers", "classes"):
        one, two = random.choice(len(array), 2, replace=False)
        out = array.copy()
        out[one] = out[two]
        return out, None if kind == "names" else True
    return None


def wrong_shape(kind: str, array: Array, random: Random) -> Any:
    if kind in SPARSE:
        return array[: N - 1], True if kind == "similarity" else None
    options = [array[None], array.reshape(array.shape[0], -1, 1), array[:0], np.array(array[0])]
    if kind in (*TABLES, "mask", *LABELS, "groups", "weights"):
        options += [array[1:], np.concatenate([array, array[:1]])]
    out = options[random.integers(len(options))]
    # (n, 1) is a column, no row may be none, one of what is few may be alone.
    unsure = out.shape == (*array.shape, 1) or out.size == 0 or out.ndim == 0
    return out, None if unsure or kind in ("few", "names", "classes") else True


def reordered(kind: str, array: Array, random: Random) -> Any:
    """Another meaning that is fine as well; where it is not, the answer stays as it is."""
    if kind in SPARSE:
        return sp.csr_array(array[random.permutation(N)]), None
    order = random.permutation(len(array) if kind not in ("edges",) else 2)
    return array[order], None


def extreme(kind: str, array: Array, random: Random) -> Any:
    scale = float(random.choice([1e-320, 1e-200, 1e200, 1e300, 0.0]))
    if kind in ("features", "logits"):
        rows = random.random(len(array)) < 0.3
        return np.where(rows[:, None], array * scale, array), None
    if kind == "weights":
        return array * scale, None
    if kind in SPARSE:
        out = array.copy()
        out.data[random.random(out.nnz) < 0.3] *= scale
        return out, None
    return None


def unknown(kind: str, array: Array, random: Random) -> Any:
    return (np.where(random.random(N) < 0.1, -1, array), None) if kind in LABELS else None


MEANINGS = (not_finite, out_of_range, repeated, wrong_shape, reordered, extreme, unknown)


# ---- how else they may be spelled ----------------------------------------------------------------
# Each gives the same meaning otherwise. In STRICT, plain and other spelling must agree in all; the
# rest may also be refused. (spelling, plain) where the spelling itself rounds.


def as_list(kind: str, array: Array, random: Random) -> Any:
    return array.tolist()


def as_tuple(kind: str, array: Array, random: Random) -> Any:
    return tuple(array.tolist())


def as_object(kind: str, array: Array, random: Random) -> Any:
    return array.astype(object) if array.size else None


def fortran(kind: str, array: Array, random: Random) -> Any:
    return np.asfortranarray(array)


def strided(kind: str, array: Array, random: Random) -> Any:
    return np.repeat(array, 2, axis=0)[::2] if array.ndim else None


def backwards(kind: str, array: Array, random: Random) -> Any:
    return array[::-1].copy()[::-1] if array.ndim else None


def read_only(kind: str, array: Array, random: Random) -> Any:
    out = array.copy()
    out.flags.writeable = False
    return out


def swapped(kind: str, array: Array, random: Random) -> Any:
    return array.astype(array.dtype.newbyteorder()) if array.dtype.kind in "iufU" else None


def unaligned(kind: str, array: Array, random: Random) -> Any:
    if array.dtype.kind not in "iuf" or not array.size:
        return None
    raw = np.zeros(array.nbytes + 1, np.uint8)
    out = raw[1:].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


def other_type(kind: str, array: Array, random: Random) -> Any:
    """Another number type that holds the same values, or the values it rounds to."""
    if array.dtype.kind in "iu":
        names = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
        fitting = [n for n in names if (array == array.astype(n)).all()]
        if not array.size or not fitting:
            return None
        # As unsigned 64-bit numbers, -1 wraps around.
        other = array.astype(fitting[random.integers(len(fitting))])
        return other if (array < 0).any() == (other < 0).any() else None
    if array.dtype.kind != "f":
        return None
    name = random.choice(["float16", "float32", "longdouble"])
    with np.errstate(all="ignore"):
        other = array.astype(name)
        return other, other.astype(np.float64)


def no_mask(kind: str, array: Array, random: Random) -> Any:
    return np.ma.masked_array(array)


def subclass(kind: str, array: Array, random: Random) -> Any:
    return np.asmatrix(array) if array.ndim == 2 else array.view(np.recarray)


def as_tensor(kind: str, array: Array, random: Random) -> Any:
    if array.dtype.kind not in "iufb":
        return None
    tensor = torch.tensor(array)
    if array.dtype.kind == "f" and random.random() < 0.5:
        tensor.requires_grad_()
    return tensor


def as_half_tensor(kind: str, array: Array, random: Random) -> Any:
    if array.dtype.kind != "f" or kind == "weights":
        return None
    names = ["bfloat16", "float16", "float8_e5m2", "float8_e4m3fn"]
    half = torch.tensor(array).to(getattr(torch, names[random.integers(len(names))]))
    return half, half.double().numpy()


def as_frame(kind: str, array: Array, random: Random) -> Any:
    # An index that names rows, and tables of edges, which name ids, are the business of names.py.
    if array.ndim not in (1, 2) or kind == "edges":
        return None
    return pd.DataFrame(array) if array.ndim == 2 else pd.Series(array)


def as_nullable(kind: str, array: Array, random: Random) -> Any:
    names = {"i": "Int64", "b": "boolean", "f": "Float64", "U": "string"}
    if array.ndim != 1 or not array.size:
        return None
    return pd.Series(array).astype(names[array.dtype.kind])


def as_arrow(kind: str, array: Array, random: Random) -> Any:
    names = {"i": "int64[pyarrow]", "f": "double[pyarrow]", "U": "string[pyarrow]"}
    if array.ndim != 1 or not array.size or array.dtype.kind not in names:
        return None
    return pd.Series(array.tolist(), dtype=names[array.dtype.kind])


def as_categories(kind: str, array: Array, random: Random) -> Any:
    return pd.Categorical(array) if array.ndim == 1 and kind in (*TEXTS, "groups") else None


def as_fractions(kind: str, array: Array, random: Random) -> Any:
    if array.dtype.kind != "f" or array.ndim != 2 or not np.isfinite(array).all():
        return None
    return [[Fraction(x) for x in row] for row in array.tolist()]


def as_decimals(kind: str, array: Array, random: Random) -> Any:
    if array.ndim != 2 or array.dtype.kind != "f":
        return None
    return [[Decimal(x) for x in row] for row in array.tolist()]


def as_mask(kind: str, array: Array, random: Random) -> Any:
    if kind not in NODES or array.ndim != 1 or not array.size:
        return None
    fine = (array >= 0).all() and (array < N).all() and (np.diff(array) > 0).all()
    return np.isin(np.arange(N), array) if fine else None


def as_range(kind: str, array: Array, random: Random) -> Any:
    if array.ndim != 1 or array.dtype.kind != "i" or not array.size:
        return None
    return range(array[0], array[-1] + 1) if (np.diff(array) == 1).all() else None


def as_floats(kind: str, array: Array, random: Random) -> Any:
    return array.astype(float) if array.dtype.kind in "iu" else None


def as_text(kind: str, array: Array, random: Random) -> Any:
    if kind in TEXTS and array.ndim == 1 and array.size:
        return array.astype(np.dtypes.StringDType())
    return None


def masked(kind: str, array: Array, random: Random) -> Any:
    """Some entries hidden: unknown labels, nodes without a group; else it must be refused."""
    if not array.size or not array.ndim:
        return None
    hidden = random.random(array.shape) < 0.2
    hidden.reshape(-1)[random.integers(array.size)] = True
    out = np.ma.masked_array(array, hidden)
    if kind in LABELS and array.shape == (N,):
        return out, np.where(hidden, -1, array)
    if kind == "groups" and array.shape == (N,):
        return out, np.where(hidden, None, array.astype(object))
    return out, None


def _matrix(name: str) -> Callable[..., Any]:
    def spell(kind: str, matrix: Any, random: Random) -> Any:
        return getattr(matrix, f"to{name}")()

    spell.__name__ = f"as_{name}"
    return spell


def old_matrix(kind: str, matrix: Any, random: Random) -> Any:
    return sp.csr_matrix(matrix)


def long_indices(kind: str, matrix: Any, random: Random) -> Any:
    out = matrix.copy()
    out.indices, out.indptr = out.indices.astype(np.int64), out.indptr.astype(np.int64)
    return out


def split_entries(kind: str, matrix: Any, random: Random) -> Any:
    """Entries listed twice, half each."""
    coo = matrix.tocoo()
    if (np.abs(coo.data) < 1e-300).any():
        return None
    halves, order = np.concatenate([coo.data, coo.data]) / 2, random.permutation(2 * coo.nnz)
    rows, columns = (np.concatenate([ends, ends])[order] for ends in coo.coords)
    out = sp.coo_array((halves[order], (rows, columns)), shape=coo.shape)
    return out if random.random() < 0.5 else _unsummed(out)


def _unsummed(coo: sp.coo_array) -> sp.csr_array:
    order = np.argsort(coo.coords[0], kind="stable")
    counts = np.bincount(coo.coords[0], minlength=coo.shape[0])
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return sp.csr_array((coo.data[order], coo.coords[1][order], indptr), shape=coo.shape)


def zeros_listed(kind: str, matrix: Any, random: Random) -> Any:
    coo = matrix.tocoo()
    rows = np.append(coo.coords[0], random.integers(coo.shape[0], size=5))
    columns = np.append(coo.coords[1], random.integers(coo.shape[1], size=5))
    data = np.append(coo.data, np.zeros(5))
    return sp.coo_array((data, (rows, columns)), shape=coo.shape)


def false_flags(kind: str, matrix: Any, random: Random) -> Any:
    """Rows in another order under the claim that they are in order."""
    out = matrix.copy()
    for row in range(out.shape[0]):
        part = slice(out.indptr[row], out.indptr[row + 1])
        out.indices[part], out.data[part] = out.indices[part][::-1], out.data[part][::-1]
    out.has_sorted_indices = out.has_canonical_format = True
    return out


def frozen_matrix(kind: str, matrix: Any, random: Random) -> Any:
    out = matrix.copy()
    for each in (out.data, out.indices, out.indptr):
        each.flags.writeable = False
    return out


def sparse_tensor(kind: str, matrix: Any, random: Random) -> Any:
    dense = torch.tensor(matrix.toarray())
    if not torch.isfinite(dense).all():
        return None
    name = ("to_sparse", "to_sparse_csr", "to_sparse_csc")[random.integers(3)]
    return getattr(dense, name)()


def broken(kind: str, matrix: Any, random: Random) -> Any:
    """A structure that no matrix has: must be refused, whatever it means."""
    name = ("csr", "csc", "coo")[random.integers(3)]
    out = getattr(matrix, f"to{name}")(copy=True)
    if not out.nnz:
        return None
    place = random.integers(out.nnz)
    far = int(random.choice([-1, -(2**31), 10**6, 2**31 - 1]))
    if name == "coo":
        out.coords[random.integers(2)][place] = far
        return out, None
    how = random.integers(5)
    if how == 0:
        out.indices[place] = far
    elif how == 1:
        out.indptr[-1] = out.nnz + 10**6
    elif how == 2:
        out.indptr[random.integers(1, len(out.indptr) - 1)] = far
    elif how == 3:
        out.data = out.data[: out.nnz // 2]
    else:
        out.indices = out.indices.astype(float)
    return out, None


DENSE_STRICT = (
    as_list, as_tuple, as_object, fortran, strided, backwards, read_only, swapped, unaligned,
    other_type, no_mask, as_tensor, as_frame, as_text, as_mask, as_range,
)  # fmt: skip
DENSE_LOOSE = (
    subclass, as_half_tensor, as_nullable, as_arrow, as_categories, as_fractions, as_decimals,
    as_floats, masked,
)  # fmt: skip
SPARSE_STRICT = (
    _matrix("csc"), _matrix("coo"), _matrix("lil"), _matrix("dok"), _matrix("bsr"), old_matrix,
    long_indices, frozen_matrix, zeros_listed, split_entries, false_flags,
)  # fmt: skip
SPARSE_LOOSE = (sparse_tensor, broken)
