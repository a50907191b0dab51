"""What the paper's authors do where the library does otherwise, for `--as-authors`.

Their code leaves a node without neighbours a neighbour mean of zero, so that its scores shrink and
its set is nearly full; and it chooses parameters by the mean size of the sets that are not empty.
Two more habits of theirs stand elsewhere: the part of the labels for tuning (`protocol`), and a
validation loss with dropout on (`runner`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps.conformal.rank import conformal_rank
from snaps.graph import Graph
from snaps.predictor.estimator import Estimator, method_of
from snaps.scores import RAPS, RAPS_PENALTIES, Score, score_table
from snaps.scoring.evidence import Evidence, Keys
from snaps.scoring.mixing import FittedMixing, Mixing, mixing_weights
from snaps.scoring.parts import Array, Engine, Probs

Alone = Mapping[str, Keys]  # the nodes without neighbours, by the part that lacks them


def as_authors(method: Estimator, graph: Graph, similar: sp.csr_array) -> Estimator:
    """The same method, as the authors would have run it."""
    alone = {
        "linked": graph.keys[np.diff(graph.adjacency.indptr) == 0],
        "similar": graph.keys[np.diff(similar.indptr) == 0],
    }
    return AsAuthors(method.alpha, score=method.score, seed=method.seed, method=method, alone=alone)


@dataclass(eq=False, repr=False, kw_only=True)
class AsAuthors(Estimator):
    """A method that mixes scores, with the authors' habits."""

    method: Estimator
    alone: Alone = field(default_factory=dict)

    def _scorer(self) -> AuthorsMixing:
        """The method's own scorer, with their habits."""
        ours = method_of(self.method).scorer
        return AuthorsMixing(**_fields(ours), alone=self.alone)


@dataclass(frozen=True)
class AuthorsMixing(Mixing):
    """`Mixing` as the authors have it."""

    alone: Alone = field(default_factory=dict)

    def fit(
        self, engine: Engine, tuning: Evidence, known: Evidence, alphas: Sequence[Fraction]
    ) -> list[FittedMixing]:
        """Choose the score's parameters, then the weights, by the sets that are not empty."""
        return [self._fit_level(engine, tuning, alpha) for alpha in alphas]

    def _fit_level(self, engine: Engine, tuning: Evidence, alpha: Fraction) -> FittedMixing:
        score, rank = self.score, conformal_rank(len(tuning), alpha)
        if score.needs_tuning:
            (probs,) = engine.rows([(Probs(), tuning.keys)])
            score = _tuned(score, probs, tuning, rank, self.seed)
        fitted = FittedAuthors(
            score, self.seed, self.similar, self.linked, *self.grid[0], alone=self.alone
        )
        if len(self.grid) == 1:
            return fitted
        parts = fitted.parts
        made = engine.rows([(part, tuning.keys) for part in parts.values()])
        rows = fitted.without(dict(zip(parts, made, strict=True)), tuning.keys)
        weights = (mixing_weights(*pair) for pair in self.grid)
        mixed = (sum(each[name] * rows[name] for name in rows) for each in weights)
        lam, mu = self.grid[_smallest(mixed, tuning.labels, rank)]
        return replace(fitted, lam=lam, mu=mu)


@dataclass(frozen=True)
class FittedAuthors(FittedMixing):
    """Whose nodes without neighbours have a mean of zero."""

    alone: Alone = field(default_factory=dict, kw_only=True)

    def combine(self, rows: Mapping[str, Array], keys: Keys) -> Array:
        """The weighted sum."""
        return super().combine(self.without(rows, keys), keys)

    def without(self, rows: Mapping[str, Array], keys: Keys) -> dict[str, Array]:
        """The rows, with zeros for the means of nodes without neighbours."""
        out = dict(rows)
        for name in out.keys() & self.alone.keys():
            lonely = np.isin(keys, self.alone[name])
            out[name] = np.where(lonely[:, None], 0.0, out[name])
        return out


def _tuned(score: Score, probs: Array, tuning: Evidence, rank: int, seed: int) -> Score:
    """RAPS with the parameters of the smallest sets; of equals the least regularised."""
    assert isinstance(score, RAPS)
    choices = [
        replace(score, k_reg=k_reg, penalty=penalty)
        for penalty in RAPS_PENALTIES
        for k_reg in range(probs.shape[1] - 1, -1, -1)
    ]
    tables = (score_table(choice, probs, tuning.keys, seed) for choice in choices)
    return choices[_smallest(tables, tuning.labels, rank)]


def _smallest(tables: Iterable[Array], labels: Array, rank: int) -> int:
    """Which table of scores has the smallest sets on its own nodes, empty ones left out."""
    sizes = []
    for scores in tables:
        true = scores[np.arange(len(labels)), labels]
        inside = scores <= np.partition(true, rank - 1)[rank - 1]
        sizes.append(inside.sum() / inside.any(axis=1).sum())
    return int(np.argmin(sizes))


def _fields(scorer: Any) -> dict[str, Any]:
    return {each.name: getattr(scorer, each.name) for each in fields(scorer)}
