"""The one kind of error and the one kind of warning that users of `snaps` see."""

from __future__ import annotations

import importlib
from types import ModuleType


class SnapsError(ValueError):
    """A complaint about input: one line that names the input, the rule and the value.

    Examples
    --------
    >>> import snaps
    >>> try:
    ...     snaps.Graph([[0, 1, 2]])
    ... except snaps.SnapsError as error:
    ...     print(error)
    'edges' must have shape (2, edges), got (1, 3)
    """

    def __init__(self, message: str):
        super().__init__(" ".join(line.strip() for line in message.splitlines()))


class NotCalibratedError(SnapsError, AttributeError):
    """Something was asked of an estimator that only calibration can tell."""


class NotEnoughMemory(SnapsError, MemoryError):
    """The input may be sound, but this machine cannot hold it."""


class SnapsWarning(UserWarning):
    """Something the user should know: the result is valid but not what they may expect.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> import snaps
    >>> with warnings.catch_warnings(record=True) as told:
    ...     warnings.simplefilter("always")
    ...     cp = snaps.SplitConformal(0.1).calibrate(None, np.eye(2), [0, 1], [0])
    >>> print(told[0].message)
    1 calibration nodes are too few for alpha=0.1 (at least 9): the threshold is infinite
    """


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SnapsError(
            f"this needs the package '{module.split('.')[0]}', which is not installed: "
            f"pip install 'snaps-cp[{extra}]'"
        ) from error
