"""`load`: a saved estimator back in memory."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from snaps.errors import NotEnoughMemory, SnapsError
from snaps.estimators import DAPS, SNAPS, Pooled, SplitConformal
from snaps.images import EmbeddedSNAPS
from snaps.predictor import persistence
from snaps.predictor.estimator import restored

_ESTIMATORS = {kind.__name__: kind for kind in (SNAPS, Pooled, DAPS, SplitConformal, EmbeddedSNAPS)}

# What arrays and a header that don't belong together may raise.
_MISFITS = (TypeError, ValueError, ArithmeticError, AttributeError, IndexError, RecursionError)


def load(path: str | os.PathLike[str]) -> Any:
    """Read an estimator written by `save`.

    Files that are truncated, foreign, tampered with or of another version are refused by name;
    nothing in a file is ever executed.

    Parameters
    ----------
    path : path

    Returns
    -------
    SNAPS, Pooled, DAPS, SplitConformal or EmbeddedSNAPS
        Calibrated. One that was saved with ``data=False`` must `recalibrate` before it predicts.

    Examples
    --------
    >>> import numpy as np
    >>> import snaps
    >>> probs = np.tile([0.6, 0.3, 0.1], (40, 1))
    >>> labels = np.array([0, 0, 0, 1] * 10)
    >>> cp = snaps.SplitConformal(0.1, score=snaps.THR())
    >>> cp = cp.calibrate(None, probs, labels, nodes=np.arange(20))
    >>> cp.save("model.snaps")
    >>> load("model.snaps")
    SplitConformal(alpha=0.1, score=THR(), seed=0, class_conditional=False; calibrated on 20
    nodes)
    """
    with persistence.opened(path) as (name, header, arrays):
        try:
            estimator = _ESTIMATORS[name](**persistence.parameters(header))
            return restored(estimator, partial(persistence.unpack, header, arrays))
        except NotEnoughMemory:
            raise
        except SnapsError as error:
            raise SnapsError(f"cannot load '{path}': {error}") from error
        except KeyError as error:
            raise SnapsError(f"cannot load '{path}': {error} is missing or unknown") from error
        except _MISFITS as error:
            raise SnapsError(f"cannot load '{path}': its contents don't fit together") from error
