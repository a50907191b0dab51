"""The vocabulary of scoring: parts, engines, scorers.

A *part* is a recipe for a table (n, K), plain data that names all it depends on. A *scorer* says
which parts it needs, is fitted on the parts' rows of tuning nodes, and combines rows into scores.
An *engine* makes parts over all nodes.

All of them take labels as `Evidence` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol, Self

import numpy as np

from snaps.scores import THR, Score
from snaps.scoring.evidence import Evidence, Keys

Array = np.ndarray


# -- neighbours that means are over --------------------------------------------------------------


@dataclass(frozen=True)
class Links:
    """The linked nodes."""


@dataclass(frozen=True)
class Search:
    """How neighbours are searched for; see `similarity_graph`."""

    method: str = "auto"
    recall: float = 0.95
    candidates: int | None = None


@dataclass(frozen=True)
class Similar:
    """The k nodes with the most similar features."""

    k: int
    weighting: str = "cosine"  # or "uniform"
    search: Search = Search()


@dataclass(frozen=True)
class Context:
    """The k nodes with the most similar features and surroundings."""

    k: int
    search: Search = Search()


Over = Links | Similar | Context

# -- tables (n, K) -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Probs:
    """The classifier's probabilities."""


@dataclass(frozen=True)
class Own:
    """A basic score of every node and label."""

    score: Score
    seed: int


@dataclass(frozen=True)
class Beliefs:
    """The probabilities, with known labels in place of guesses."""

    evidence: Evidence


@dataclass(frozen=True)
class Mean:
    """The weighted mean over neighbours; a node without any has its own row."""

    over: Over
    of: Part


@dataclass(frozen=True)
class Propagated:
    """Known labels, propagated: the mass of each label that reaches a node."""

    over: Over
    evidence: Evidence


@dataclass(frozen=True)
class Regressed:
    """Labels as a linear model guesses them from features in context, fitted on the evidence."""

    k: int
    evidence: Evidence
    left_out: bool = False  # the rows of evidence nodes are then made without their own labels
    search: Search = Search()

    @property
    def over(self) -> Context:
        """The neighbours whose features are used."""
        return Context(self.k, self.search)


Part = Probs | Own | Beliefs | Mean | Propagated | Regressed

# -- intermediate tables ---------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """The features, reduced to few columns."""


@dataclass(frozen=True)
class Ridge:
    """The linear model behind `Regressed`."""

    k: int
    evidence: Evidence
    search: Search = Search()


@dataclass(frozen=True)
class Averaged:
    """A table in single precision, which halves what means have to read."""

    of: Part


Basis = Summary | Ridge | Averaged


def without_score(recipe: Any) -> Any:
    """A recipe with its score left out, for keys that name the score otherwise."""
    if isinstance(recipe, (Mean, Averaged)):
        return replace(recipe, of=without_score(recipe.of))
    return replace(recipe, score=THR())


# -- engines and scorers -----------------------------------------------------


class Engine(Protocol):
    """Makes parts over all nodes; fitting and combining are the same code for every engine."""

    num_classes: int
    has: frozenset[str]
    """What the data has: features, and links, similar, context to average over."""

    def rows(self, asks: Sequence[tuple[Part, Keys]]) -> list[Array]:
        """Each part at its own nodes, (m, K)."""

    def others(self, but: Keys, seed: int, count: int) -> Keys:
        """The keys of `count` random nodes that are not among `but`, in ascending order."""


class FittedScorer(Protocol):
    """Parameters, and evidence by key; no table, no graph."""

    @property
    def score(self) -> Score:
        """The basic score, its parameters chosen."""

    @property
    def seed(self) -> int:
        """Of the score's draws."""

    @property
    def evidence(self) -> Evidence:
        """The labels that the parts are made with."""

    @property
    def parts(self) -> Mapping[str, Part]:
        """The parts that it combines, by name."""

    @property
    def weights(self) -> Mapping[str, float]:
        """The weight of each part."""

    @property
    def tuning_scores(self) -> Array | None:
        """Scores of the tuning nodes' labels, none by a fit that saw it; None if none tuned."""

    def with_evidence(self, evidence: Evidence) -> Self:
        """The same parameters with the labels of another graph, if labels are used at all."""

    def with_score(self, score: Score) -> Self:
        """The same parameters with another basic score."""

    def combine(self, rows: Mapping[str, Array], keys: Keys) -> Array:
        """Scores (m, K) from m rows of each part; row by row."""

    def shown(self, name: str, rows: Array) -> Array:
        """A part's rows as they enter the combination, for explanations."""

    def shift(self, name: str, own: Array, other: Array, share: float, mean: Array) -> Array:
        """What a neighbour with this share of a mean moved, for explanations."""

    def pack(self) -> dict[str, Any]:
        """The parameters for a saved file, all but score, seed and evidence; arrays as arrays."""


class Scorer(Protocol):
    """A method before its fit."""

    @property
    def score(self) -> Score:
        """The basic score."""

    @property
    def needs_tuning(self) -> bool:
        """Whether anything is left to be chosen on tuning nodes."""

    def evidence(self, tuning: Evidence, known: Evidence) -> Evidence:
        """The labels that parts are made with once it is fitted."""

    def fit(
        self, engine: Engine, tuning: Evidence, known: Evidence, alphas: Sequence[Fraction]
    ) -> list[Any]:
        """One fitted scorer per level; what knows no level is fitted once."""
