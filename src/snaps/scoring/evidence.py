"""`Evidence`: the labels that scoring may use, as a type.

Scorers accept labels as `Evidence` alone: those of tuning and known nodes. Calibration nodes are
`Labelled` and no `Evidence`, so passing them to a scorer is a type error. Nodes are named by their
key, which is the same on every graph.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from snaps._runtime.randomness import Keys as Keys
from snaps._runtime.randomness import locate_keys

Codes: TypeAlias = NDArray[np.signedinteger[Any]]  # labels, as columns of the probabilities


@dataclass(frozen=True, eq=False)
class Labelled:
    """Nodes in the order of their keys, and their labels; equal by digest."""

    ids: np.ndarray  # the nodes' own names
    keys: Keys
    labels: Codes

    @classmethod
    def none(cls) -> Self:
        """No nodes."""
        return cls(np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.keys)

    def subset(self, chosen: np.ndarray) -> Self:
        """Those at the chosen indices, or of a mask."""
        ids, keys, labels = (each[chosen] for each in (self.ids, self.keys, self.labels))
        return replace(self, ids=ids, keys=keys, labels=labels)

    @cached_property
    def digest(self) -> bytes:
        """A digest of nodes and labels."""
        words = np.concatenate([self.keys, self.labels.astype(np.uint64)])
        return hashlib.blake2b(words.astype("<u8").tobytes(), digest_size=16).digest()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash((type(self), self.digest))


@dataclass(frozen=True, eq=False)
class Evidence(Labelled):
    """Tuning or known nodes: the only labels that scoring may see.

    Attributes
    ----------
    drawn : bool
        Whether they are a random part of the pool of calibration and test nodes.
    """

    drawn: bool = False

    @classmethod
    def of(cls, nodes: Labelled, drawn: bool = False) -> Evidence:
        """From nodes that are neither calibrated on nor predicted."""
        return cls(nodes.ids, nodes.keys, nodes.labels, drawn)

    def joined(self, other: Evidence) -> Evidence:
        """Both together."""
        if not len(self) or not len(other):
            return self if len(self) else other
        keys = np.concatenate([self.keys, other.keys])
        order = np.argsort(keys, kind="stable")
        ids = np.concatenate([self.ids, other.ids])
        labels = np.concatenate([self.labels, other.labels])
        return Evidence(ids[order], keys[order], labels[order])

    def united(self, other: Evidence) -> Evidence:
        """Both together, where some nodes are in both."""
        return self.joined(other.subset(~np.isin(other.keys, self.keys)))


def codes_of(keys: Keys, evidence: Evidence) -> np.ndarray:
    """The known label of each node with these keys, -1 where none is known."""
    codes = np.full(len(keys), -1, np.int32)
    positions, present = locate_keys(keys, evidence.keys)
    codes[positions] = evidence.labels[present]
    return codes


def with_certainty(table: np.ndarray, keys: Keys, evidence: Evidence) -> np.ndarray:
    """A table of nodes with these keys, the rows of known ones replaced by certainty; in place."""
    positions, present = locate_keys(keys, evidence.keys)
    table[positions] = 0
    table[positions, evidence.labels[present]] = 1
    return table


def check_evidence(*nodes: object) -> None:
    """Refuse labels that are no evidence, at run time too."""
    for each in nodes:
        if type(each) is not Evidence:
            raise TypeError(f"a scorer may see Evidence alone, got {type(each).__name__}")
