"""Whether nodes that are found by id are those of before, by what their rows looked like.

Left of the wall: no label is looked at. Rows of features and of probabilities are kept as a few
random projections of a sample of the nodes that were used, some kilobytes in all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._checks import calm
from snaps._evidence import Keys
from snaps._inputs import Inputs
from snaps._randomness import FINGERPRINT_STREAM, locate_keys, smallest, uniforms
from snaps.kernels.memory import pieces

MOST_NODES, COLUMNS = 512, 4
FEWEST_NODES = 8  # whose ranks tell anything
ROUNDING = 1e-5  # relative differences that the order of a sum, or single precision, may make
UNLIKE = 0.75  # of the way from the same rows (0) to rows that are paired at random (1)
MOST_TIED = 0.8  # of the pairs of old rows: beyond, rows don't tell nodes apart


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """Rows of some nodes, each in few numbers.

    Attributes
    ----------
    keys : uint64 array (m,)
    features, probs : arrays (m, COLUMNS)
        The sum and projections of each row; (m, 0) where there is no table.
    widths : (int, int)
        The number of features and of classes.
    num_nodes : int
        Of the graph.
    """

    keys: Keys
    features: np.ndarray
    probs: np.ndarray
    widths: tuple[int, int]
    num_nodes: int

    @classmethod
    def of(cls, inputs: Inputs, keys: Keys) -> Fingerprint:
        """Of a sample of the nodes with these keys."""
        keys = np.sort(keys)
        keys = keys[smallest(0, keys, FINGERPRINT_STREAM, MOST_NODES)]
        features, probs = _tables(inputs)
        places = inputs.positions(keys)
        widths = _width(features), _width(probs)
        rows = _project(features, places), _project(probs, places)
        return cls(keys, *rows, widths, inputs.num_nodes)

    def same_nodes(self, inputs: Inputs) -> bool:
        """Whether nodes with these keys look like those of before.

        By features, else by probabilities: the rows must be closer to the old rows of the same
        nodes than to those of a random re-pairing, and than rows at ids shifted by one or by the
        number of new nodes; and the old rows of most nodes must not be found at other nodes. If
        rows don't tell nodes apart, they count as the same.
        """
        tables = zip(_tables(inputs), (self.features, self.probs), self.widths, strict=True)
        told = False
        for table, old, width in tables:
            if not width or _width(table) != width:
                continue
            scale = _scale(old)
            rows, margin = old / scale, 1 / np.sqrt(len(old))

            def distance(shift: int, table: Any = table, rows: Any = rows, scale: Any = scale) -> Any:
                places, here = locate_keys(inputs.keys, self.keys + np.uint64(shift % 2**64))
                return _distance(rows, _project(table, places) / scale, here)

            own = distance(0)
            if own is None:
                continue
            if own <= margin:
                return True
            more = inputs.num_nodes - self.num_nodes
            shifted = (distance(shift) for shift in {1, -1, more, -more} - {0})
            if any(each is not None and each < own - margin for each in shifted):
                return False
            if _moved(table, rows, scale):
                return False
            if own < UNLIKE:
                return True
            told = True
        return not told


def _tables(inputs: Inputs) -> tuple[Any, Any]:
    return inputs.graph.features, inputs.probs


def _width(table: Any) -> int:
    return 0 if table is None else int(table.shape[1])


@calm
def _project(table: Any, places: np.ndarray | slice) -> np.ndarray:
    """The sum of each row, and random projections of it."""
    if table is None:
        return np.empty((len(places), 0))
    rows = table[places]
    signs = 2 * uniforms(FINGERPRINT_STREAM, np.arange(_width(table)), COLUMNS) - 1
    signs[:, 0] = 1
    if sp.issparse(rows):
        rows = rows.astype(np.float64)
        rows.data = np.clip(rows.data, -1e150, 1e150)
    else:
        rows = np.clip(np.asarray(rows, np.float64), -1e150, 1e150)
    return np.asarray(rows @ signs)


def _scale(rows: np.ndarray) -> np.ndarray:
    """How much each column varies."""
    spread = np.median(np.abs(rows - np.median(rows, axis=0)), axis=0)
    largest = np.abs(rows).max(axis=0)
    return np.where(spread > 0, spread, np.where(largest > 0, largest, 1.0))


def _distance(old: np.ndarray, now: np.ndarray, here: np.ndarray) -> float | None:
    """How far rows are from the old ones: 0 for the same, 1 for a random re-pairing.

    By the rank of the old row of each node among the old rows of all; `here` says whose the rows
    are. None where too many old rows tie, or nodes are too few, to tell.
    """
    if len(here) < FEWEST_NODES:
        return None

    def rank(rows: np.ndarray) -> float:
        distances = _apart(rows[:, None], old)
        own = distances[np.arange(len(here)), here][:, None]
        before, tied = (distances < own).sum(), (distances == own).sum() - len(here)
        return float(before + tied / 2) / (len(here) * (len(old) - 1))

    best = rank(old[here])
    if best > MOST_TIED / 2:
        return None
    return (rank(now) - best) / (0.5 - best)


def _apart(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Distances between rows; none where rounding explains it."""
    out = np.zeros(np.broadcast_shapes(one.shape, two.shape)[:-1])
    for column in range(one.shape[-1]):
        left, right = one[..., column], two[..., column]
        gap = np.abs(left - right)
        small = gap <= ROUNDING * np.maximum(1, np.maximum(np.abs(left), np.abs(right)))
        np.maximum(out, np.where(small, 0, gap), out=out)
    return out


def _moved(table: Any, old: np.ndarray, scale: np.ndarray) -> bool:
    """Whether the old rows of most nodes are found elsewhere; they are not where they were."""
    order = np.lexsort(old.T)
    single = np.ones(len(old), bool)  # whose row no other node of the sample has
    same = _apart(old[order[1:]], old[order[:-1]]) == 0
    single[order[1:][same]] = single[order[:-1][same]] = False
    wanted = old[single]
    wanted = wanted[np.argsort(wanted[:, -1])]
    if 2 * len(wanted) < len(old):
        return False
    found = np.zeros(len(wanted), bool)
    for some in pieces(table.shape[0], 8 * _width(table)):
        rows = _project(table, some) / scale
        after = np.searchsorted(wanted[:, -1], rows[:, -1])
        for place in (after - 1, after):
            near = np.clip(place, 0, len(wanted) - 1)
            found[near[_apart(wanted[near], rows) == 0]] = True
    return 2 * int(found.sum()) > len(wanted)
