"""Whether nodes that are found by id are those of before, by what their rows looked like.

Left of the wall: no label is looked at. Rows of features and of probabilities are kept as a few
random projections of a sample of the nodes that were used, some kilobytes in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from snaps._checks import calm
from snaps._runtime.memory import pieces
from snaps._runtime.randomness import FINGERPRINT_STREAM, locate_keys, smallest, uniforms
from snaps.scoring.evidence import Keys
from snaps.scoring.local import Inputs

MOST_NODES, COLUMNS = 512, 4
FEWEST_NODES = 8  # whose ranks tell anything
ROUNDING = 1e-5  # relative differences that the order of a sum, or single precision, may make
UNLIKE = 0.85  # of the way from the same rows (0) to rows that are paired at random (1)
MOST_TIED = 0.8  # of the pairs of old rows: beyond, rows don't tell nodes apart
MOST_MOVED = 0.25  # of the nodes may have their old row at another node
LARGEST = 1e150  # numbers beyond are cut: sums of them stay finite


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """Rows of some nodes, each in few numbers.

    Attributes
    ----------
    keys : uint64 array (m,)
    features, probs : arrays (m, COLUMNS)
        The sum and projections of each row; (m, 0) where there is no table.
    widths : tuple of int
        The number of features and of classes.
    num_nodes : int
        Of the graph.
    """

    keys: Keys
    features: np.ndarray
    probs: np.ndarray
    widths: tuple[int, ...]
    num_nodes: int

    @classmethod
    def of(cls, tables: tuple[Any, Any], nodes: Keys, keys: Keys) -> Fingerprint:
        """Of a sample of the nodes with these keys, of all nodes in the order of the tables."""
        keys = np.sort(keys)
        keys = keys[smallest(0, keys, FINGERPRINT_STREAM, MOST_NODES)]
        positions = locate_keys(nodes, keys)[0]
        features, probs = (_rows_of(table, positions) for table in tables)
        return cls(keys, features, probs, tuple(map(_width, tables)), len(nodes))

    @calm
    def same_nodes(self, inputs: Inputs) -> bool:
        """Whether nodes with these keys look like those of before.

        By features; where these tell nothing, or are all new, by probabilities. Rows must be
        closer to the old rows of the same nodes than a random re-pairing would be, and than rows
        at ids shifted by one or by the number of new nodes; and the old rows must not be found at
        other nodes. Where all rows are equal, they count as the same.
        """
        unlike = False
        for table, old, width in zip(
            _tables(inputs), (self.features, self.probs), self.widths, strict=True
        ):
            if width and _width(table) == width:
                verdict = self._same_rows(inputs, table, old)
                if verdict in ("same", "other"):
                    return verdict == "same"
                unlike |= verdict == "unlike"
        return not unlike

    def _same_rows(
        self, inputs: Inputs, table: Any, old: np.ndarray
    ) -> Literal["same", "other", "unlike", "open"]:
        """What rows of a table say of the nodes; "unlike" where all rows may be new."""
        scale, signs = _scale(old), _signs(_width(table))
        old, margin = old / scale, 1 / np.sqrt(len(old))

        def rows(shift: int) -> tuple[np.ndarray, np.ndarray]:
            positions, present = locate_keys(inputs.keys, self.keys + np.uint64(shift % 2**64))
            return _project(table[positions], signs) / scale, present

        now, present = rows(0)
        own = _distance(old, now, present)
        if own is None:
            return "open"
        if own <= margin:
            return "same"
        more = inputs.num_nodes - self.num_nodes
        for shift in {1, -1, more, -more} - {0}:
            other = _distance(old, *rows(shift))
            if other is not None and other < min(own - margin, UNLIKE):
                return "other"
        if _moved(old[present], now, table, signs, scale):
            return "other"
        return "same" if own < UNLIKE else "unlike"


class Fingerprints(Mapping[str, Fingerprint]):
    """Fingerprints of several sets of nodes, by name; made when one is first asked for.

    Few calibrations are followed by another graph or a file. The tables are those of now.
    """

    def __init__(self, inputs: Inputs, keys: Mapping[str, Keys]):
        self._tables, self._nodes = _tables(inputs), inputs.keys
        self._keys = {name: own for name, own in keys.items() if len(own)}

    @cached_property
    def _made(self) -> dict[str, Fingerprint]:
        make = Fingerprint.of
        return {name: make(self._tables, self._nodes, own) for name, own in self._keys.items()}

    def __getitem__(self, name: str) -> Fingerprint:
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def _tables(inputs: Inputs) -> tuple[Any, Any]:
    return inputs.graph.features, inputs.probs


def _width(table: Any) -> int:
    return 0 if table is None else int(table.shape[1])


def _rows_of(table: Any, positions: np.ndarray) -> np.ndarray:
    if table is None:
        return np.empty((len(positions), 0))
    return _project(table[positions], _signs(_width(table)))


@lru_cache(4)
def _signs(width: int) -> np.ndarray:
    """What columns count in the sum of a row, and in its projections."""
    signs = 2 * uniforms(FINGERPRINT_STREAM, np.arange(width), COLUMNS) - 1
    signs[:, 0] = 1
    signs.flags.writeable = False
    return signs


def _project(rows: Any, signs: np.ndarray) -> np.ndarray:
    """Sums and projections of rows; what is beyond all measure is cut."""
    rows = rows.astype(np.float64)
    with np.errstate(all="ignore"):
        if sp.issparse(rows):
            rows.data = np.clip(rows.data, -LARGEST, LARGEST)
        else:
            rows = np.clip(rows, -LARGEST, LARGEST)
        return np.asarray(rows @ signs)


def _scale(rows: np.ndarray) -> np.ndarray:
    """How much each column varies."""
    spread = np.median(np.abs(rows - np.median(rows, axis=0)), axis=0)
    largest = np.abs(rows).max(axis=0)
    return np.where(spread > 0, spread, np.where(largest > 0, largest, 1.0))


def _distance(old: np.ndarray, now: np.ndarray, whose: np.ndarray) -> float | None:
    """How far rows are from the old ones: 0 for the same, 1 for a random re-pairing.

    By the rank of the old row of each node among the old rows of all; `whose` old rows theirs are.
    None where nodes are too few, or their old rows don't tell them apart.
    """
    best = _rank(old, old[whose], whose)
    if len(whose) < FEWEST_NODES or best > MOST_TIED / 2:
        return None
    return (_rank(old, now, whose) - best) / (0.5 - best)


def _rank(old: np.ndarray, rows: np.ndarray, whose: np.ndarray) -> float:
    """The share of old rows that are closer to a row than its own old one, on average."""
    distances = _apart(rows[:, None], old)
    own = distances[np.arange(len(whose)), whose][:, None]
    closer, tied = (distances < own).sum(), (distances == own).sum() - len(whose)
    return float(closer + tied / 2) / max(len(whose) * (len(old) - 1), 1)


@calm
def _apart(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Distances between rows; none where rounding explains it."""
    out = np.zeros(np.broadcast_shapes(old.shape, new.shape)[:-1])
    for column in range(old.shape[-1]):
        left, right = old[..., column], new[..., column]
        gap = np.abs(left - right)
        small = gap <= ROUNDING * np.maximum(1, np.maximum(np.abs(left), np.abs(right)))
        np.maximum(out, np.where(small, 0, gap), out=out)
    return out


def _moved(
    old: np.ndarray, now: np.ndarray, table: Any, signs: np.ndarray, scale: np.ndarray
) -> bool:
    """Whether the old rows of many nodes are not where they were, but at one other node each."""
    order = np.lexsort(old.T)
    gone = _apart(old, now) > 0
    tied = _apart(old[order[1:]], old[order[:-1]]) == 0  # rows that several nodes have
    gone[order[1:][tied]] = gone[order[:-1][tied]] = False
    wanted = old[gone]
    if len(wanted) <= MOST_MOVED * len(old):
        return False
    wanted = wanted[np.argsort(wanted[:, -1])]
    count = np.zeros(len(wanted), np.int64)
    for block in pieces(table.shape[0], 8 * _width(table)):
        rows = _project(table[block], signs) / scale
        after = np.searchsorted(wanted[:, -1], rows[:, -1])
        for place in (after - 1, after):
            inside = np.flatnonzero((place >= 0) & (place < len(wanted)))
            same = _apart(wanted[place[inside]], rows[inside]) == 0
            np.add.at(count, place[inside[same]], 1)
    return int((count == 1).sum()) > MOST_MOVED * len(old)
