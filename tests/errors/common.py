"""Calls that users get wrong, and the line that they get."""

from __future__ import annotations

import numpy as np
import pytest

import snaps
from tests.helpers import small
from tests.helpers.small import CALIB, LABELS, NUM_NODES, PROBS, TEST

N, K = NUM_NODES, small.NUM_CLASSES
LOGITS = "(if these are logits, say so: logits=True or --logits)"
PAIR = [[0, 1], [1, 2]]


def changed(array, place, value):
    array = np.array(array)
    array[place] = value
    return array


def calibrate(probs=PROBS, labels=LABELS, nodes=CALIB, method=None, **options):
    method = method or snaps.SplitConformal(0.2)
    return method.calibrate(small.graph(), probs, labels, nodes, **options)


def with_parameters(cls=snaps.SNAPS, **parameters):
    return calibrate(method=cls(**parameters))


class Halves(snaps.Score):
    """A score of one's own, which can't be saved."""

    def compute(self, probs, draws):
        return probs / 2


class Broken(snaps.Score):
    def compute(self, probs, draws):
        return probs[:, 0] if self.flat else np.full_like(probs, np.nan)

    def __init__(self, flat):
        self.flat = flat


class MySNAPS(snaps.SNAPS):
    pass


ALPHA = "'alpha' must lie strictly between 0 and 1, got"


def with_similarity(similarity):
    return calibrate(method=snaps.SNAPS(0.2, weights=(0.3, 0.3)), similarity=similarity)


def split(pool=TEST, n_calib=10, method=snaps.SplitConformal(0.2), **options):  # noqa: B008
    return snaps.evaluate_splits(method, None, PROBS, LABELS, pool, n_calib, **options)


MASK = np.array([[True, False, True], [False, True, False]])
SETS = snaps.PredictionSets(MASK)
EMPTY = snaps.PredictionSets(MASK[:0])


def messages(**tables):
    """Run a test with every message of some tables, and the call that gets it."""
    cases = [
        pytest.param(message, call, id=f"{name}: {message[:70]}")
        for name, table in tables.items()
        for message, call in table.items()
    ]
    return pytest.mark.parametrize("message, call", cases)
