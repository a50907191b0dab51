"""Randomness as a pure function of (seed, node, label), so that every run, order and engine agrees.

A draw is a hash of three integers, not the next number of a stream. Calibration and prediction
therefore see the same draw, and neither row order, chunking nor threads can change a result.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# Arrays that must not be taken for one another; their types tell them apart.
Keys: TypeAlias = NDArray[np.uint64]  # one per node, made from its id: names it on any graph
Positions: TypeAlias = NDArray[np.signedinteger[Any]]  # of nodes among those of one graph

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)

# Streams keep draws for different purposes apart: the label of a score's draw is 0, 1, 2, ...
TUNE_STREAM = -1
CANDIDATE_STREAM = -2
SPLIT_STREAM = -3
SMOOTH_STREAM = -4
ORACLE_STREAM = -5
CORRECTION_STREAM = -6
EXCHANGEABILITY_STREAM = -7
RESAMPLE_STREAM = -8
SHARES_STREAM = -9
FOLD_STREAM = -10
REPORT_STREAM = -11
CELL_STREAM = -12
FINGERPRINT_STREAM = -13
DRAW_STREAM = -14
SLAB_STREAM = -15


def mix(z: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser: a bijection of 64-bit words that passes as random.

    Plain enough for numba, which compiles it for the loops.
    """
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


def key_states(seed: int, keys: np.ndarray) -> np.ndarray:
    """Hash (seed, key): where the hashes of all of a key's streams begin."""
    with np.errstate(over="ignore"):
        state = mix(np.array([int(seed) % 2**64], np.uint64) + GOLDEN)
        return mix((state ^ np.asarray(keys).astype(np.uint64)) + GOLDEN)


def hashes(seed: int, keys: np.ndarray, streams: np.ndarray | int) -> np.ndarray:
    """Hash (seed, key, stream) to 64-bit words; `keys` and `streams` broadcast."""
    with np.errstate(over="ignore"):
        streams = np.asarray(streams, np.int64).astype(np.uint64)
        return mix((key_states(seed, keys) ^ streams) + GOLDEN)


def uniforms(seed: int, keys: np.ndarray, num_labels: int) -> np.ndarray:
    """Draw one uniform in [0, 1) for each node and label.

    >>> draw = uniforms(0, np.array([7, 8, 9], np.uint64), 4)
    >>> bool((draw[1] == uniforms(0, np.array([8], np.uint64), 4)).all())
    True
    """
    from snaps._kernels import scoring

    return scoring.uniforms(key_states(seed, keys), num_labels)


def smallest(seed: int, keys: Keys, stream: int, count: int) -> Positions:
    """Positions of the `count` nodes with the smallest hash: a random subset without an order."""
    words = hashes(seed, keys, stream)
    if count >= len(words):
        return np.arange(len(words))
    return np.sort(np.argpartition(words, count)[:count])


def node_keys(ids: np.ndarray) -> Keys:
    """Turn node ids, integers or strings, into 64-bit keys that depend on the id alone."""
    if ids.dtype.kind in "iu":
        return ids.astype(np.uint64)
    digests = [hashlib.blake2b(str(i).encode(), digest_size=8).digest() for i in ids]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def ranks(keys: Keys, dtype: Any = np.int64) -> np.ndarray:
    """Each node's place in the order of the keys."""
    rank = np.empty(len(keys), dtype)
    ascending = bool((keys[1:] > keys[:-1]).all())
    order = slice(None) if ascending else np.argsort(keys, kind="stable")
    rank[order] = np.arange(len(keys), dtype=dtype)
    return rank


def in_order(keys: Keys, positions: Positions) -> Positions:
    """Different positions among nodes with these keys, in the order of the keys."""
    if not (keys[1:] > keys[:-1]).all():
        return positions[np.argsort(keys[positions], kind="stable")]
    chosen = np.zeros(len(keys), bool)
    chosen[positions] = True
    return np.flatnonzero(chosen)


def locate_keys(keys: Keys, wanted: Keys) -> tuple[Positions, Positions]:
    """Positions of nodes with these keys among all, and which of them are there at all."""
    if not len(keys):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    ascending = bool((keys[1:] > keys[:-1]).all())
    if ascending and keys[0] == 0 and keys[-1] == len(keys) - 1:  # positions
        present = np.flatnonzero(wanted < len(keys))
        return wanted[present].astype(np.int64), present
    order = None if ascending else np.argsort(keys, kind="stable")
    place = np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)
    if order is not None:
        place = order[place]
    present = np.flatnonzero(keys[place] == wanted)
    return place[present], present
