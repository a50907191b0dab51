"""Parameters that can be read, changed, compared and cloned, as scikit-learn's tools expect."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from snaps.errors import SnapsError
from snaps.scores import LIBRARY, Score


@dataclass(eq=False, repr=False)
class Parameters:
    """For dataclasses: their fields are the parameters."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name, as scikit-learn's tools ask for them.

        Examples
        --------
        >>> import snaps
        >>> snaps.SNAPS(alpha=0.1).get_params()["k"]
        20
        """
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters; but for alpha, a calibrated estimator must then calibrate anew.

        Examples
        --------
        >>> import snaps
        >>> snaps.SNAPS(alpha=0.1).set_params(k=10).k
        10
        """
        known = self.get_params()
        for name in parameters:
            if name not in known:
                raise SnapsError(f"'{name}' must be one of {', '.join(known)}, got another name")
        for name, value in parameters.items():
            setattr(self, name, value)
        return self

    def __eq__(self, other: object) -> bool:
        """Whether the other is of the same kind, with the same parameters."""
        if type(self) is not type(other):
            return NotImplemented
        mine, theirs = self.get_params(), other.get_params()
        return all(same(mine[name], theirs[name]) for name in mine)

    __hash__ = None  # type: ignore[assignment]  # parameters can change


def same(one: Any, two: Any) -> bool:
    """Whether two parameters are equal, arrays included."""
    sequences = (np.ndarray, list, tuple)
    if isinstance(one, Score) and type(one) not in LIBRARY:
        return one is two  # a class of the user's may hold what its equality does not see
    try:
        if isinstance(one, sequences) or isinstance(two, sequences):
            return np.array_equal(np.asarray(one), np.asarray(two))
        return bool(one == two)
    except Exception:  # what cannot even be compared
        return False
