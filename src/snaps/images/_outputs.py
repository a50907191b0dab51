"""What a classifier says of its items, and the file that holds it."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from snaps._checks import check_labels, check_probs
from snaps._checks.features import check_features
from snaps.errors import SnapsError
from snaps.io.files import open_npz, write_npz


# Without eq=False two of them would be compared array by array, which raises.
@dataclass(frozen=True, eq=False)
class Outputs:
    """What a classifier says of its items.

    Attributes
    ----------
    logits : array (n, K)
    features : array (n, d)
    labels : int array (n,)
        -1 where unknown.

    Examples
    --------
    >>> Outputs(logits=np.zeros((2, 3)), features=np.ones((2, 4)), labels=np.array([0, -1]))
    Outputs(2 items, 3 classes, 4 features)
    """

    logits: np.ndarray
    features: np.ndarray
    labels: np.ndarray

    def __repr__(self) -> str:
        (n, k), d = self.logits.shape, self.features.shape[1]
        return f"Outputs({n} items, {k} classes, {d} features)"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an .npz for `load`, whole or not at all.

        Examples
        --------
        >>> Outputs(np.zeros((2, 3)), np.ones((2, 4)), np.array([0, 2])).save("outputs.npz")
        >>> load("outputs.npz")
        Outputs(2 items, 3 classes, 4 features)
        """
        arrays = {"logits": self.logits, "features": self.features, "labels": self.labels}
        write_npz(path, arrays, compress=True)


def load(path: str | os.PathLike[str]) -> Outputs:
    """Read an .npz with the arrays logits (n, K), features (n, d) and labels (n,).

    Half precision will do. Nothing in a file is ever executed.

    Examples
    --------
    >>> np.savez("outputs.npz", logits=np.zeros((2, 3)), features=np.eye(2), labels=[0, 2])
    >>> load("outputs.npz")
    Outputs(2 items, 3 classes, 2 features)
    """
    names = ("logits", "features", "labels")
    with open_npz(path) as arrays:
        missing = [name for name in names if name not in arrays]
        if missing:
            raise SnapsError(
                f"'{path}' must hold the array '{missing[0]}', got {sorted(arrays)[:8]}"
            )
        logits, table, labels = (arrays[name] for name in names)
    try:
        shape = check_probs(logits, "logits", logits=True).shape
        features = check_features(table)
        if len(features) != shape[0]:
            raise SnapsError(
                f"'features' must have {shape[0]} rows like 'logits', got {len(features)}"
            )
        labels = check_labels(labels, num_nodes=shape[0], num_classes=shape[1])
    except SnapsError as error:
        raise SnapsError(f"cannot read '{path}': {error}") from error
    return Outputs(logits, features, labels)
