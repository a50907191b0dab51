"""Constant matrices, sparse or dense, whose product with a tensor is differentiable.

Features and normalised adjacencies do not change while a network is trained. Their products are
nearly all of its work, so they get one plain loop over rows instead of gather and scatter, and
their gradient one product with the transpose instead of torch's general sparse path.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from snaps._kernels.compiling import numba

# A stored entry of a sparse matrix costs about as much as this many entries of a dense one
# (measured at 64 columns); the choice of format and of the order of products rests on it.
_DENSE_PER_SPARSE = 4


class CSR(NamedTuple):
    """The arrays of a CSR matrix, in the types that the loops are compiled for."""

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray

    @classmethod
    def of(cls, matrix: Any) -> CSR:
        """Convert a SciPy matrix: a wide indptr, since entries may pass 2^31; narrow indices."""
        csr = sp.csr_array(matrix)
        return cls(
            csr.indptr.astype(np.int64), csr.indices.astype(np.int32), csr.data.astype(np.float32)
        )


@numba.njit(parallel=True, fastmath=True, cache=True)
def _multiply(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, dense: np.ndarray
) -> np.ndarray:
    """Multiply a CSR matrix with each matrix of a stack (b, columns, width)."""
    stack, _, width = dense.shape
    rows = len(indptr) - 1
    out = np.zeros((stack, rows, width), np.float32)
    # One matrix of the stack after the other, so that the one in use stays in the cache.
    for task in numba.prange(stack * rows):
        b, i = task // rows, task % rows
        for e in range(indptr[i], indptr[i + 1]):
            value, j = data[e], indices[e]
            for c in range(width):
                out[b, i, c] += value * dense[b, j, c]
    return out


class Constant(Protocol):
    """A constant linear map by rows, and its transpose, as the loops that run it want them."""

    @property
    def rows(self) -> Any: ...

    @property
    def columns(self) -> Any: ...


class TwoWay:
    """A SciPy matrix by rows and, once a gradient asks for it, by columns."""

    def __init__(self, matrix: Any) -> None:
        self._matrix = matrix

    @cached_property
    def rows(self) -> CSR:
        return CSR.of(self._matrix)

    @cached_property
    def columns(self) -> CSR:
        return CSR.of(self._matrix.T)


class Matrix:
    """A constant matrix, kept dense where that makes its products faster.

    Parameters
    ----------
    values : SciPy sparse matrix or array of shape (rows, columns)
        Sparse values are turned dense when more than a quarter of the entries is stored.

    Examples
    --------
    >>> weight = torch.ones(3, 2, requires_grad=True)
    >>> out = Matrix(sp.diags_array([1.0, 2.0, 0.0])) @ weight
    >>> out.sum().backward()
    >>> weight.grad[:, 0].tolist()
    [1.0, 2.0, 0.0]
    """

    def __init__(self, values: Any) -> None:
        self.shape: tuple[int, int] = values.shape
        self._sparse: TwoWay | None = None
        if sp.issparse(values) and values.nnz <= dense_cost(*values.shape):
            self._sparse = TwoWay(values)
        else:
            dense = values.toarray() if sp.issparse(values) else values
            self._dense = torch.from_numpy(np.ascontiguousarray(dense, np.float32))

    def __matmul__(self, other: Tensor) -> Tensor:
        """Multiply with a tensor (columns, width), or with each of a stack (b, columns, width)."""
        if self._sparse is not None:
            return product(self._sparse, times, other)
        if other.ndim == 2:
            return self._dense @ other
        # One wide product instead of several narrow ones.
        wide = self._dense @ other.transpose(0, 1).flatten(1)
        return wide.unflatten(1, (other.shape[0], other.shape[2])).transpose(0, 1)


class Walk:
    """Steps of a walk that may return to its start, as one constant matrix that is never formed.

    Parameters
    ----------
    adjacency : SciPy sparse matrix of shape (n, n)
        The weights of a step.
    hops : int
        How many steps.
    teleport : float
        Probability to return to the start, at each step.
    """

    def __init__(self, adjacency: Any, hops: int, teleport: float) -> None:
        self.hops, self.teleport = hops, teleport
        self._step = TwoWay((1 - teleport) * adjacency)

    def __matmul__(self, other: Tensor) -> Tensor:
        """Multiply with a tensor (n, width)."""
        return product(self._step, self._run, other)

    def _run(self, step: CSR, start: np.ndarray) -> np.ndarray:
        place, home = start, np.float32(self.teleport) * start
        for _ in range(self.hops):
            place = times(step, place)
            place += home
        return place


def dense_cost(rows: int, columns: int) -> float:
    """Cost of a product with a dense constant matrix, in entries of a sparse one."""
    return rows * columns / _DENSE_PER_SPARSE


def product_cost(values: Any) -> float:
    """Cost of a product with a constant matrix in its cheaper format, in sparse entries."""
    dense = dense_cost(*values.shape)
    return min(float(values.nnz), dense) if sp.issparse(values) else dense


def times(csr: CSR, dense: np.ndarray) -> np.ndarray:
    """Multiply a matrix with each of a stack (b, columns, width)."""
    out: np.ndarray = _multiply(*csr, dense)
    return out


def product(
    constant: Constant, run: Callable[[Any, np.ndarray], np.ndarray], other: Tensor
) -> Tensor:
    """`run(constant.rows, other)`, whose gradient is `run(constant.columns, ...)`.

    `other` is a tensor (n, width), or a stack (b, n, width).
    """
    out: Tensor = _Product.apply(other if other.ndim == 3 else other[None], constant, run)
    return out if other.ndim == 3 else out[0]


class _Product(torch.autograd.Function):
    """Constant times dense stack; the gradient is the transpose times what comes back."""

    @staticmethod
    def forward(
        ctx: Any, dense: Tensor, constant: Constant, run: Callable[[Any, np.ndarray], np.ndarray]
    ) -> Tensor:
        ctx.constant, ctx.run = constant, run
        return torch.from_numpy(run(constant.rows, dense.contiguous().numpy()))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        grad = grads[0].contiguous().numpy()
        return torch.from_numpy(ctx.run(ctx.constant.columns, grad)), None, None
