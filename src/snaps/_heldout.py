"""Scores of labelled nodes by fits that never saw their labels, on one footing.

The nodes are cut in folds; a fold is scored by fits on all the others. Scores of two fits don't
compare, so each is replaced by its rank among all scores that its fit gives to nodes it never saw:
its *level*. A level of 0.2 admits a fifth of all pairs of node and label, whatever the fit, so that
a threshold on levels is also a mean size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from snaps._runtime.randomness import CANDIDATE_STREAM, FOLD_STREAM, hashes, smallest
from snaps.predictor.predictor import Method
from snaps.scores import LIBRARY, THR
from snaps.scoring.evidence import Evidence, Labelled
from snaps.scoring.local import Inputs
from snaps.scoring.parts import FittedScorer
from snaps.scoring.pooling import FittedPooling, Pooling

FOLDS = 5  # ten tell no more, at twice the cost
MOST_REFERENCES = 10_000  # nodes without labels that scores are ranked among


def held_out_levels(
    methods: Mapping[str, Method],
    inputs: Inputs,
    nodes: Labelled,
    known: Evidence,
    alpha: Fraction,
    seed: int,
) -> dict[str, np.ndarray]:
    """Levels (m, K) of the nodes for each method; those with class thresholds rank by class."""
    out = {name: np.empty((len(nodes), inputs.num_classes)) for name in methods}
    fold, others = _folds(nodes, seed), _unlabelled(inputs, nodes, known, seed)
    engine = inputs
    for number in range(FOLDS):
        here = np.flatnonzero(fold == number)
        places = np.concatenate([inputs.positions(nodes.keys[here]), others])
        away = nodes.some(fold != number)
        fitting = Evidence(away.ids, away.keys, away.labels)
        for alike, fitted in _fit(methods, engine, fitting, known, alpha):
            scores = engine.score(fitted, places)
            for name in alike:
                out[name][here] = _levels(scores, len(here), methods[name].class_conditional)
        # What knows no labels is made by now: the folds to come take it from here, and what they
        # make of their own labels goes with them.
        engine = inputs.holding({})
    return out


def _folds(nodes: Labelled, seed: int) -> np.ndarray:
    """The fold of each node, all of them equally large."""
    fold = np.empty(len(nodes), np.int64)
    fold[np.argsort(hashes(seed, nodes.keys, FOLD_STREAM))] = np.arange(len(nodes)) % FOLDS
    return fold


def _unlabelled(inputs: Inputs, nodes: Labelled, known: Evidence, seed: int) -> np.ndarray:
    """Positions of nodes that are neither labelled here nor known, at most ten thousand."""
    used = inputs.positions(np.concatenate([nodes.keys, known.keys]))
    rest = np.delete(np.arange(inputs.num_nodes), used)
    return rest[smallest(seed, inputs.keys[rest], CANDIDATE_STREAM, MOST_REFERENCES)]


def _fit(
    methods: Mapping[str, Method],
    inputs: Inputs,
    fitting: Evidence,
    known: Evidence,
    alpha: Fraction,
) -> Iterator[tuple[list[str], FittedScorer]]:
    """Fit every method; names of those that score alike come together.

    The weights of pooled evidence know no score: those that differ in theirs alone share a fit.
    """
    alike: dict[Any, list[str]] = {}
    for name, method in methods.items():
        # Equality of a user's score may not see all that it holds: such a method is by itself.
        key = method.scorer if type(method.scorer.score) in LIBRARY else name
        alike.setdefault(key, []).append(name)
    done: dict[Pooling, FittedPooling] = {}
    for names in alike.values():
        scorer = methods[names[0]].scorer
        if isinstance(scorer, Pooling) and not scorer.score.needs_tuning:
            plain = replace(scorer, score=THR())
            if plain not in done:
                (done[plain],) = plain.fit(inputs, fitting, known, [alpha])
            yield names, replace(done[plain], score=scorer.score)
        else:
            (fitted,) = scorer.fit(inputs, fitting, known, [alpha])
            yield names, fitted


def _levels(scores: np.ndarray, count: int, by_class: bool) -> np.ndarray:
    """The share of all scores, or of a class's, that lie at or below each of the first rows."""
    if by_class:
        columns = [_levels(column[:, None], count, False) for column in scores.T]
        return np.hstack(columns)
    ordered = np.sort(scores, axis=None)
    return np.searchsorted(ordered, scores[:count], side="right") / len(ordered)
