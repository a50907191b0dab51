"""Features: dense or sparse tables of numbers, from any library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._checks import calm, in_row, is_tensor, to_numpy
from snaps._checks.matrices import check_matrix
from snaps._runtime.memory import filled, pieces
from snaps.errors import SnapsError

_MOST_COLUMNS = 2**31 - 1  # the loops number columns by 32 bits


@calm
def check_features(
    features: Any, *, where: Callable[[int], str] = in_row
) -> np.ndarray | sp.csr_array:
    """Features as a float array (n, d), dense or CSR, all finite; `where` names a row."""
    if is_torch_sparse(features):
        features = from_torch_sparse(features, "features")
    if sp.issparse(features):
        table = check_matrix(features, "features")
        table.sort_indices()
        table.has_canonical_format = True
        values = table.data
    else:
        table = values = to_numpy(features, "features")
    if table.ndim != 2 or 0 in table.shape:
        raise SnapsError(f"'features' must have shape (nodes, features), got {table.shape}")
    if table.shape[1] > _MOST_COLUMNS:
        raise SnapsError(f"'features' must have at most {_MOST_COLUMNS} columns, got {table.shape}")
    if values.dtype.kind not in "fiub":
        raise SnapsError(f"'features' must hold numbers, got {values.dtype}")
    if values.dtype not in (np.float32, np.float64):
        values = filled(values, np.float32 if values.dtype.itemsize < 4 else np.float64)
        if sp.issparse(table):
            table.data = values
        else:
            table = values
    check_finite(table, where)
    return table


def check_finite(table: Any, where: Callable[[int], str] = in_row) -> None:
    """Refuse features that are not finite."""
    values = table.data if sp.issparse(table) else table
    for block in pieces(len(values), values[:1].nbytes):
        finite = np.isfinite(values[block])
        if not finite.all():
            bad = tuple(np.argwhere(~finite)[0] + (block.start, 0)[: finite.ndim])
            row = int(bad[0])
            if sp.issparse(table):
                row = int(np.searchsorted(table.indptr, row, side="right")) - 1
            raise SnapsError(f"'features' must be finite, got {values[bad]} {where(row)}")


def is_torch_sparse(value: Any) -> bool:
    """Whether this is a torch tensor in a sparse layout."""
    return is_tensor(value) and not value.is_nested and str(value.layout) != "torch.strided"


def from_torch_sparse(tensor: Any, name: str) -> Any:
    """A sparse torch tensor as a SciPy matrix, its indices as they are: torch may trust them."""
    if tensor.dim() != 2:
        raise SnapsError(f"'{name}' must have two dimensions, got shape {tuple(tensor.shape)}")
    shape, layout = tuple(tensor.shape), str(tensor.layout).removeprefix("torch.sparse_")
    try:
        plain = tensor.detach().cpu()
        if layout == "coo":
            ends, values = plain._indices(), plain._values()  # noqa: SLF001 - not yet summed up
            return sp.coo_array((to_numpy(values, name), tuple(ends.numpy())), shape)
        if layout == "csr":
            ends = plain.col_indices().numpy(), plain.crow_indices().numpy()
            return sp.csr_array((to_numpy(plain.values(), name), *ends), shape)
        if layout == "csc":
            ends = plain.row_indices().numpy(), plain.ccol_indices().numpy()
            return sp.csc_array((to_numpy(plain.values(), name), *ends), shape)
    except Exception as error:  # neither torch nor SciPy has one error for what may be wrong
        raise SnapsError(f"'{name}' must be a valid sparse tensor: {error}") from error
    raise SnapsError(f"'{name}' must be a sparse tensor in COO, CSR or CSC, got {layout}")
