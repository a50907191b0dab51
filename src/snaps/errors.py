"""The one kind of error and the one kind of warning that users of `snaps` see."""

from __future__ import annotations

import importlib
import sys
import warnings
from types import FrameType, ModuleType


class SnapsError(ValueError):
    """Wrong input: one line that names the input, the rule and the value.

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
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     cp = snaps.SplitConformal(0.1).calibrate(None, np.eye(2), [0, 1], [0])
    >>> print(caught[0].message)
    1 calibration nodes are too few for alpha=0.1 (at least 9): the threshold is infinite
    """


def warn(message: str, category: type[Warning] = SnapsWarning) -> None:
    """Warn at the line that called the package, however many functions lie in between."""
    caller = sys._getframe()  # noqa: SLF001, which has no public name
    frame: FrameType | None = caller
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] == __package__:
            caller = frame.f_back or frame
        frame = frame.f_back
    names = caller.f_globals
    warnings.warn_explicit(
        message,
        category,
        caller.f_code.co_filename,
        caller.f_lineno,
        names.get("__name__") or "<unknown>",
        names.setdefault("__warningregistry__", {}),
    )


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SnapsError(
            f"this needs the package '{module.split('.')[0]}', which is not installed: "
            f"pip install 'snaps-cp[{extra}]'"
        ) from error
