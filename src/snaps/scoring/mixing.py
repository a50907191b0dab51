"""The scorer of SNAPS and DAPS: s^ = (1 - lam - mu) S + lam As S + mu A S.

`Mixing` chooses lam and mu (and the score's own parameters) by the size of the sets on the tuning
nodes. Their labels are not calibrated on, so that tuning costs no validity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from snaps._runtime.progress import stage
from snaps._runtime.randomness import RESAMPLE_STREAM, hashes, uniforms
from snaps.conformal.rank import exact_rank
from snaps.scores import Score, warn_untuned
from snaps.scoring.evidence import Evidence, Keys, check_evidence
from snaps.scoring.parts import Array, Engine, Links, Mean, Own, Part, Probs, Similar

_STEPS = 20  # weights move in steps of 1/20 = 0.05
# The minimum over the grid is noise on a flat surface. The mean of the minima of this many
# resamples of the tuning nodes, and of the fallback with the weight of so many nodes, is calmer.
RESAMPLES, FALLBACK_NODES = 24, 50

Pair = tuple[float, float]  # (lam, mu)


SNAPS_GRID: tuple[Pair, ...] = tuple(
    (lam / _STEPS, (total - lam) / _STEPS)
    for total in range(_STEPS + 1)
    for lam in range(total + 1)
)
"""(lam, mu) with lam + mu <= 1, from the least aggregation to the most: 231 pairs."""

DAPS_GRID: tuple[Pair, ...] = tuple((0.0, mu / _STEPS) for mu in range(_STEPS))
"""(0, mu) with mu = 0, 0.05, ..., 0.95."""

ETA_GRID: tuple[Pair, ...] = tuple((eta / _STEPS, 0.0) for eta in range(_STEPS + 1))
"""(eta, 0) with eta = 0, 0.05, ..., 1."""


def mixing_weights(lam: Any, mu: Any) -> dict[str, Any]:
    """The weight of each part in s^ = (1 - lam - mu) S + lam As S + mu A S; numbers or arrays."""
    return {"own": 1.0 - (lam + mu), "similar": lam, "linked": mu}


@dataclass(frozen=True)
class Mixing:
    """Scores averaged over neighbours, before the weights are chosen.

    Pairs (lam, mu) of the grid are in order of preference among equals; a single one is fixed.
    """

    score: Score  # S
    seed: int  # of its draws
    similar: Similar | None = None  # As; None for lam = 0
    linked: Links | None = None  # A; None for mu = 0
    grid: tuple[Pair, ...] = ((0.0, 0.0),)
    fallback: Pair = (0.0, 0.0)  # with too few tuning nodes; with few, weights lean to it
    averaged: bool = True  # over the best pairs of resamples; else the best pair is taken

    @property
    def needs_tuning(self) -> bool:
        """Whether anything is left to be chosen on tuning nodes."""
        return self.score.needs_tuning or len(self.grid) > 1

    def evidence(self, tuning: Evidence, known: Evidence) -> Evidence:
        """Scores are mixed without looking at labels."""
        return Evidence.none()

    def fit(
        self, engine: Engine, tuning: Evidence, known: Evidence, alphas: Sequence[Fraction]
    ) -> list[FittedMixing]:
        """Choose the score's parameters, then the weights, for each level; `known` is not used."""
        check_evidence(tuning, known)
        return [self._fit(engine, tuning, alpha) for alpha in alphas]

    def _fit(self, engine: Engine, tuning: Evidence, alpha: Fraction) -> FittedMixing:
        score = self.score
        if score.needs_tuning:
            (probs,) = engine.rows([(Probs(), tuning.keys)])
            score = score.tune(probs, tuning, alpha, self.seed)
        fitted = FittedMixing(score, self.seed, self.similar, self.linked, *self.grid[0])
        if len(self.grid) == 1:
            return fitted
        rows = engine.rows([(part, tuning.keys) for part in fitted.parts.values()])
        n = len(tuning.keys)
        rank = exact_rank(n, alpha)
        if rank > n:
            lam, mu = self.fallback
            warn_untuned(n, f"lam={lam:.3g}, mu={mu:.3g}")
            return replace(fitted, lam=lam, mu=mu)
        lam, mu = self._choose(fitted.parts, rows, tuning, rank)
        fitted = replace(fitted, lam=lam, mu=mu)
        scores = fitted.combine(dict(zip(fitted.parts, rows, strict=True)), tuning.keys)
        return replace(fitted, tuning_scores=scores[np.arange(n), tuning.labels])

    def _choose(self, names: Iterable[str], rows: list[Array], tuning: Evidence, rank: int) -> Pair:
        """The first pair of the grid with the smallest sets; averaged, that of many resamples."""
        from snaps._kernels.splitting import mixed_sizes

        n, grid = len(tuning.keys), np.array(self.grid)
        samples = None
        if self.averaged:
            draws = uniforms(0, hashes(self.seed, tuning.keys, RESAMPLE_STREAM), RESAMPLES)
            samples = (draws.T * n).astype(np.int64)
        with stage("tuning"):
            mixtures = _mixtures(names, grid)
            sizes = mixed_sizes(np.stack(rows), tuning.labels, mixtures, rank, samples)
        if not self.averaged:
            return self.grid[int(np.argmin(sizes))]
        best = grid[np.argmin(sizes, axis=0)]
        share = n / (n + FALLBACK_NODES)
        lam, mu = share * best.mean(axis=0) + (1 - share) * np.array(self.fallback)
        return round(float(lam), 4), round(float(mu), 4)

    def tuning_sizes(
        self, engine: Engine, tuning: Evidence, alpha: Fraction, fitted: FittedMixing
    ) -> Array | None:
        """Labels in all sets of the tuning nodes, for each pair of the grid and the fitted one.

        None if there are too few tuning nodes.
        """
        from snaps._kernels.splitting import mixed_sizes

        rank = exact_rank(len(tuning), alpha)
        if rank > len(tuning):
            return None
        rows = engine.rows([(part, tuning.keys) for part in fitted.parts.values()])
        pairs = np.array([*self.grid, (fitted.lam, fitted.mu)])
        table = _mixtures(fitted.parts, pairs)
        return mixed_sizes(np.stack(rows), tuning.labels, table, rank)[:, 0]


def _mixtures(names: Iterable[str], pairs: Array) -> Array:
    """The weight of each part (pairs, parts)."""
    weights = mixing_weights(*pairs.T)
    return np.stack([weights[name] for name in names], axis=1)


@dataclass(frozen=True)
class FittedMixing:
    """`Mixing` with everything chosen, and the scores of the tuning nodes' labels."""

    score: Score
    seed: int
    similar: Similar | None
    linked: Links | None
    lam: float
    mu: float
    tuning_scores: Array | None = field(default=None, compare=False, repr=False)

    parts: Mapping[str, Part] = field(init=False, compare=False, repr=False)
    weights: Mapping[str, float] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        own, weights = Own(self.score, self.seed), mixing_weights(self.lam, self.mu)
        parts: dict[str, Part] = {"own": own}
        if self.similar is not None:
            parts["similar"] = Mean(self.similar, own)
        if self.linked is not None:
            parts["linked"] = Mean(self.linked, own)
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "weights", {name: weights[name] for name in parts})

    @property
    def evidence(self) -> Evidence:
        """No label is used."""
        return Evidence.none()

    def with_evidence(self, evidence: Evidence) -> FittedMixing:
        """The same: no label is used."""
        return self

    def with_score(self, score: Score) -> FittedMixing:
        """The same weights with another basic score."""
        return replace(self, score=score)

    def pack(self) -> dict[str, Any]:
        """Whose means are mixed, and the weights."""
        return {
            "kind": "mixing",
            "similar": None if self.similar is None else asdict(self.similar),
            "linked": self.linked is not None,
            "weights": [self.lam, self.mu],
        }

    def combine(self, rows: Mapping[str, Array], keys: Keys) -> Array:
        """The weighted sum."""
        mixed = self.weights["own"] * rows["own"]
        for name, weight in self.weights.items():
            if weight and name != "own":
                mixed += weight * rows[name]
        return mixed

    def shown(self, name: str, rows: Array) -> Array:
        """Scores are shown as they are."""
        return rows

    def shift(self, name: str, own: Array, other: Array, share: float, mean: Array) -> Array:
        """What a neighbour added to each label's score: weight * (its score - the own score)."""
        return self.weights[name] * share * (other - own)
