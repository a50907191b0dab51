"""`load`: a saved estimator back in memory."""

from __future__ import annotations

import os
from typing import Any

from snaps import _persistence
from snaps._errors import SnapsError
from snaps._estimators import DAPS, SNAPS, SplitConformal
from snaps._pooled import Pooled
from snaps.images import EmbeddedSNAPS

_ESTIMATORS = {kind.__name__: kind for kind in (SNAPS, Pooled, DAPS, SplitConformal, EmbeddedSNAPS)}


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
    """
    name, header, arrays = _persistence.read(path)
    try:
        params = _persistence.parameters(header)
        state = _persistence.state(header, arrays, params)
        return _ESTIMATORS[name](**params).restored(state)
    except SnapsError as error:
        raise SnapsError(f"cannot load '{path}': {error}") from error
    except KeyError as error:
        raise SnapsError(f"cannot load '{path}': {error} is missing or unknown") from error
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise SnapsError(f"cannot load '{path}': its contents don't fit together") from error
