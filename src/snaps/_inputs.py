"""The local engine: what is known of every node without labels, and all that can be made of it.

Left of the wall: labels come as evidence, inside the parts that name it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._checks import OFF_ONE, calm, check_flag, check_probs, to_numpy
from snaps._checks.matrices import check_similarity
from snaps._context import context_features, propagate
from snaps._errors import SnapsError, SnapsWarning
from snaps._evidence import Evidence, Keys
from snaps._parts import (
    Array,
    Beliefs,
    Context,
    FittedScorer,
    Links,
    Mean,
    Over,
    Own,
    Part,
    Probs,
    Propagated,
    Similar,
)
from snaps._randomness import locate_keys
from snaps._similarity_update import extend
from snaps.graph import Graph
from snaps.scores import LIBRARY, THR, Score, score_table
from snaps.similarity import similarity_graph

Made = Mapping[Part | Over, Any]


class Inputs:
    """Graph, probabilities, and the similarity graph if the user brought one; never changed.

    What is made of them is memoised by its recipe, which names all that it depends on: whoever
    asks for the same thing gets the same table, and no key can be stale.

    Attributes
    ----------
    graph : Graph
    probs : array (n, K)
    similarity : csr_array or None
        The user's; it then stands for every `Similar`.
    keys : uint64 array (n,)
    has : frozenset of str
        What there is to average over: links, similar, context.
    """

    def __init__(
        self,
        graph: Graph,
        probs: Array,
        similarity: sp.csr_array | None = None,
        made: Made = MappingProxyType({}),
    ):
        self.graph = graph
        self.probs = probs
        self.similarity = similarity
        self.num_nodes, self.num_classes = probs.shape
        self.keys: Keys = graph.keys
        self._made: dict[Any, Any] = dict(made)
        self._held: dict[int, Any] = {}  # the users' scores among the keys, so that no id is reused
        held = {type(recipe) for recipe in made}
        featured, linked = graph.features is not None, graph.adjacency.nnz > 0
        there = {
            "links": linked,
            "similar": similarity is not None or featured or Similar in held,
            "context": (featured and linked) or Context in held,
        }
        self.has = frozenset(name for name, yes in there.items() if yes)

    @classmethod
    def read(
        cls, graph: Graph | None, probs: Any, similarity: Any = None, *, logits: bool = False
    ) -> Inputs:
        """Check what a user passes; without a graph, one without edges."""
        if graph is not None and not isinstance(graph, Graph):
            raise SnapsError(f"'graph' must be a snaps.Graph, got {type(graph).__name__}")
        n = None if graph is None else graph.num_nodes
        table = check_probs(probs, num_nodes=n, logits=check_flag(logits, "logits"))
        table.flags.writeable = False
        if logits:
            _warn_softened(to_numpy(probs, "probs"))
        if graph is None:
            graph = Graph(None, num_nodes=len(table))
        given = None if similarity is None else check_similarity(similarity, len(table))
        return cls(graph, table, given)

    def holding(self, made: Made) -> Inputs:
        """The same inputs with results at hand, by recipe."""
        return Inputs(self.graph, self.probs, self.similarity, {**self._made, **made})

    def following(self, old: Inputs) -> Inputs:
        """The same inputs with the similarity graphs of older ones, brought up to date.

        Exact, and faster than a search from scratch while few nodes are new or changed.
        """
        ours, theirs = self.graph.features, old.graph.features
        if self.similarity is not None or ours is None or theirs is None:
            return self
        return self.holding(
            {
                recipe: extend(near, theirs, old.keys, ours, self.keys, recipe.k)
                for recipe, near in old.made(Similar).items()
                if recipe.weighting == "cosine" and old.similarity is None
            }
        )

    def made(self, *kinds: type) -> dict[Any, Any]:
        """What was made so far of these kinds of recipe."""
        return {recipe: result for recipe, result in self._made.items() if type(recipe) in kinds}

    # -- making ---------------------------------------------------------------------------------

    def get(self, recipe: Part | Over) -> Any:
        """A table (n, K), or a matrix (n, n) or None; made on the first call."""
        score = _score_of(recipe)
        if score is not None and type(score) not in LIBRARY:
            # Equality of a user's score may not see all that it holds: it is known by itself.
            key: Any = (id(score), _without(recipe))
            self._held[id(score)] = score
        else:
            key = recipe
        if key not in self._made:
            self._made[key] = self._make(recipe)
        return self._made[key]

    @calm
    def _make(self, recipe: Part | Over) -> Any:
        from snaps.kernels.aggregation import neighbour_mean

        match recipe:
            case Probs():
                return self.probs
            case Own(score, seed):
                return score_table(score, self.probs, self.keys, seed)
            case Beliefs(evidence):
                return self._certain(evidence, self.probs.copy())
            case Mean(over, of):
                return neighbour_mean(self.get(over), self.get(of))
            case Propagated(over, evidence):
                start = self._certain(evidence, np.zeros_like(self.probs))
                return propagate(self.get(over), start)
            case Links():
                return self.graph.adjacency
            case Similar(k, weighting):
                return self._similar(k, weighting)
            case Context(k):
                features = context_features(self.graph)
                return None if features is None else similarity_graph(features, k, ids=self.keys)

    def _similar(self, k: int, weighting: str) -> sp.csr_array | None:
        if self.similarity is not None or self.graph.features is None:
            return self.similarity
        if weighting == "uniform":
            near = self.get(Similar(k)).copy()
            near.data[:] = 1
            return near
        return similarity_graph(self.graph.features, k, ids=self.keys)

    def _certain(self, evidence: Evidence, table: Array) -> Array:
        """A table with the rows of known nodes replaced by certainty."""
        places, found = locate_keys(self.keys, evidence.keys)
        table[places] = 0
        table[places, evidence.labels[found]] = 1
        return table

    # -- rows -----------------------------------------------------------------------------------

    def positions(self, keys: Keys) -> Array:
        """Where the nodes with these keys stand, those that are here."""
        return locate_keys(self.keys, keys)[0]

    def rows(self, asks: Sequence[tuple[Part, Keys]]) -> list[Array]:
        """Each part at its own nodes, (m, K)."""
        return [self.get(part)[self.positions(keys)] for part, keys in asks]

    @calm
    def score(self, scorer: FittedScorer, nodes: Array | None = None) -> Array:
        """Scores (m, K) of some nodes, by default of all."""
        # What weighs nothing need not be there.
        rows = {
            name: self.get(part)
            for name, part in scorer.parts.items()
            if name == "own" or scorer.weights[name]
        }
        if nodes is None or 2 * len(nodes) > self.num_nodes:
            # Most rows are sooner combined and then taken than taken from each table.
            scores = scorer.combine(rows, self.keys)
            scores = scores if nodes is None else scores.take(nodes, axis=0)
        else:
            few = {name: table.take(nodes, axis=0) for name, table in rows.items()}
            scores = scorer.combine(few, self.keys[nodes])
        if not np.isfinite(scores).all():
            raise SnapsError(
                f"'score' must give scores that can be averaged, got {type(scorer.score).__name__} "
                "with scores beyond all numbers"
            )
        return scores


def _score_of(recipe: Part | Over) -> Score | None:
    """The basic score that a table is made with, if any."""
    while isinstance(recipe, Mean):
        recipe = recipe.of
    return recipe.score if isinstance(recipe, Own) else None


def _without(recipe: Any) -> Any:
    """A recipe with its score left out, for keys that name the score otherwise."""
    if isinstance(recipe, Mean):
        return Mean(recipe.over, _without(recipe.of))
    return replace(recipe, score=THR())


def _warn_softened(table: Array) -> None:
    """Say so when what is given as logits looks like probabilities already."""
    if table.min() >= 0 and (np.abs(table.sum(axis=1, dtype=np.float64) - 1) <= OFF_ONE).all():
        warnings.warn(
            "'probs' already sum to 1 in each row: logits=True softens them once more",
            SnapsWarning,
            stacklevel=6,
        )
