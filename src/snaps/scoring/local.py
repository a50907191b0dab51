"""The local engine: graph and probabilities, and every table that scorers ask for.

Labels reach it as evidence alone, inside the parts that name it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._checks import OFF_ONE, check_flag, check_probs, has, to_numpy
from snaps._checks.matrices import check_similarity
from snaps._checks.named import align_table, row_ids
from snaps._runtime.memory import LARGE, is_large, pieces, room, taken
from snaps._runtime.progress import stage
from snaps._runtime.randomness import SHARES_STREAM, Positions, locate_keys, smallest
from snaps.errors import SnapsError, warn
from snaps.graph import Graph
from snaps.scores import LIBRARY, Score, is_moderate, score_table
from snaps.scoring.context import SUMMARY_SIZE, context_features, mass_without, propagate, summary
from snaps.scoring.evidence import Evidence, Keys, codes_of, with_certainty
from snaps.scoring.parts import (
    Array,
    Averaged,
    Basis,
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
    Regressed,
    Ridge,
    Similar,
    Summary,
    without_score,
)
from snaps.scoring.regression import fit_in_context, guess_everywhere
from snaps.search.update import extend
from snaps.similarity import nearest

MANY = 2**28  # from so many numbers per step on, all folds are propagated in one pass

Recipe = Part | Over | Basis
Made = Mapping[Recipe, Any]


class Inputs:
    """Graph, probabilities, and the similarity graph if the user passed one; never changed.

    Tables are memoised by their recipe, which names all that they depend on, so that none can be
    stale.

    Attributes
    ----------
    graph : Graph
    probs : array (n, K)
    similarity : csr_array or None
        The user's, which is then used for every `Similar`.
    keys : uint64 array (n,)
    has : frozenset of str
        What the data has: features, and links, similar, context to average over.
    large : bool
        Whether tables are made in blocks.
    kind : dtype
        The precision of the tables behind the regression and the context graph.
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
        self.large = is_large(probs.shape)
        self.kind = np.float32 if probs.size * 8 >= LARGE else np.float64
        self._blocks = pieces(self.num_nodes, 8 * self.num_classes)
        self._scored: tuple[FittedScorer, Array] | None = None
        self._steps: dict[Propagated, int] = {}
        self._held: dict[int, Any] = {}  # scores of the user's: kept alive, as their id is a key
        held = {type(recipe) for recipe in made}
        featured, linked = graph.features is not None, graph.adjacency.nnz > 0
        available = {
            "features": featured,
            "links": linked,
            "similar": similarity is not None or featured or Similar in held,
            "context": (featured and linked) or Context in held,
        }
        self.has = frozenset(name for name, yes in available.items() if yes)

    @classmethod
    def read(
        cls,
        graph: Graph | None,
        probs: Any,
        similarity: Any = None,
        *,
        logits: bool = False,
        classes: Any = None,
    ) -> Inputs:
        """Check what a user passes; without a graph, one without edges.

        A table of probabilities is matched by name: its rows to the nodes' ids, and its columns to
        the classes.
        """
        if graph is not None and not isinstance(graph, Graph):
            hint = ": snaps.Graph.from_pyg(data) makes one" if has(graph, "edge_index") else ""
            raise SnapsError(f"'graph' must be a snaps.Graph, got {type(graph).__name__}{hint}")
        ids = row_ids(probs, "probs") if graph is None else None
        if ids is not None:
            graph = Graph(None, num_nodes=len(ids), ids=ids)
        probs = align_table(probs, graph, classes)
        n = None if graph is None else graph.num_nodes
        table = check_probs(probs, num_nodes=n, logits=check_flag(logits, "logits"))
        table.flags.writeable = False
        if logits:
            raw = to_numpy(probs, "probs")
            off = np.abs(raw.sum(axis=1, dtype=np.float64) - 1) if raw.min() >= 0 else np.inf
            if np.all(off <= OFF_ONE):
                warn("'probs' already sum to 1 in each row: logits=True softens them once more")
        if graph is None:
            graph = Graph(None, num_nodes=len(table))
        given = None if similarity is None else check_similarity(similarity, len(table))
        return cls(graph, table, given)

    def holding(self, made: Made) -> Inputs:
        """The same inputs with results that are already made, by recipe."""
        copy = Inputs(self.graph, self.probs, self.similarity, {**self._made, **made})
        copy._held, copy._steps = dict(self._held), dict(self._steps)
        return copy

    def following(self, old: Inputs) -> Inputs:
        """The same inputs with the similarity graphs of older ones, brought up to date.

        Exact, and faster than a search from scratch while few nodes are new or changed.
        """
        ours, theirs = self.graph.features, old.graph.features
        if self.similarity is not None or ours is None or theirs is None:
            return self
        with stage("similarity"):
            made = {
                recipe: extend(similar, theirs, old.keys, ours, self.keys, recipe.k)
                for recipe, similar in old.made(Similar).items()
                if recipe.weighting == "cosine"
                and old.similarity is None
                and recipe.k < self.num_nodes
                and recipe.search.candidates is None
                and getattr(similar, "method", "exact") == "exact"  # has the true neighbours
            }
        return self.holding(made)

    def made(self, *kinds: type) -> dict[Any, Any]:
        """What was made so far of these kinds of recipe."""
        return {recipe: result for recipe, result in self._made.items() if type(recipe) in kinds}

    # -- tables of all nodes --------------------------------------------------------------------

    def get(self, recipe: Recipe) -> Any:
        """A table (n, K), or a matrix (n, n) or None; made on the first call."""
        key = self._key(recipe)
        if key not in self._made:
            with np.errstate(all="ignore"):
                self._made[key] = self._make(recipe)
        return self._made[key]

    def _key(self, recipe: Recipe) -> Any:
        score = _score_of(recipe)
        if score is None or type(score) in LIBRARY:
            return recipe
        # The equality of a user's score may not cover all its state: its identity is the key.
        self._held[id(score)] = score
        return id(score), without_score(recipe)

    def _make(self, recipe: Recipe) -> Any:
        match recipe:
            case Probs():
                return self.probs
            case Own() | Mean() | Beliefs():
                self._prepare(recipe)
                return self._in_blocks(lambda block: self._made_block(recipe, block, {}))
            case Averaged(of):
                self._prepare(of)
                kind = np.float32 if self._is_usual(of) else np.float64
                return self._in_blocks(lambda block: self._block(of, block, {}), kind)
            case Propagated(over, evidence):
                return self._propagated(over, [evidence])[0]
            case Regressed(k, evidence, _, search):
                model = self.get(Ridge(k, evidence, search))
                guesses = guess_everywhere(self, recipe.over, model.coefficients)
                if self.large:
                    self._made.pop(Summary(), None)  # large, and not read again
                return guesses
            case Ridge(k, evidence, search):
                return fit_in_context(self, Context(k, search), evidence)
            case Summary():
                return summary(self.graph, kind=self.kind)
            case Links():
                return self.graph.adjacency
            case Similar():
                return self._similar(recipe)
            case Context(k, search):
                if "context" not in self.has:
                    return None
                with stage("similarity"):
                    table = context_features(self.graph.adjacency, self._summary_for_context())
                    return nearest(table, k, self.keys, **vars(search))

    def _summary_for_context(self) -> Array:
        """The summary, which is not kept in memory during a search if it is soon made again."""
        assert self.graph.features is not None
        if self.large and self.graph.features.shape[1] <= SUMMARY_SIZE:
            return summary(self.graph, kind=self.kind)
        table: Array = self.get(Summary())
        return table

    def _in_blocks(self, make: Callable[[slice], Array], kind: Any = np.float64) -> Array:
        """A table (n, K) whose rows depend on themselves alone, made block by block."""
        if len(self._blocks) == 1:
            return np.asarray(make(self._blocks[0]), kind)
        out = room(self.probs.shape, kind)
        for block in self._blocks:
            out[block] = make(block)
        return out

    def _prepare(self, part: Part) -> None:
        """Make the tables of all nodes that blocks of a part read."""
        while isinstance(part, Mean):
            if self.get(part.over) is not None:
                self.get(Averaged(part.of))
            part = part.of
        if not isinstance(part, (Own, Beliefs)):
            self.get(part)

    def _is_kept(self, part: Part) -> bool:
        """Whether the table of all nodes is kept; on large graphs, not if rows are made alone."""
        return not self.large or not isinstance(part, (Own, Beliefs, Mean))

    def _block(self, part: Part, block: slice, rows: dict[Any, Array]) -> Array:
        """Successive rows of a part; `rows` has those of other parts, and gets these."""
        key = self._key(part)
        if key not in rows:
            if key in self._made or self._is_kept(part):
                rows[key] = np.asarray(self.get(part)[block], np.float64)
            else:
                rows[key] = self._made_block(part, block, rows)
        return rows[key]

    def _made_block(self, part: Part, block: slice, rows: dict[Any, Array]) -> Array:
        if not isinstance(part, Mean):
            return table_of(part, self.probs[block], self.keys[block])
        from snaps._kernels.aggregation import neighbour_mean

        own, matrix = self._block(part.of, block, rows), self.get(part.over)
        if matrix is None:
            return own
        return neighbour_mean(
            matrix, self.get(Averaged(part.of)), own, block, exact=self._exact(part)
        )

    def _exact(self, mean: Mean) -> bool:
        """Whether to sum exactly: over links, whose order differs between engines.

        Weights of links and scores of the user's may be of any size, and are summed as usual.
        """
        return isinstance(mean.over, Links) and not self.graph.weighted and self._is_usual(mean)

    def _is_usual(self, part: Part) -> bool:
        """Whether a table holds numbers around one: probabilities, and scores of moderate size."""
        score = _score_of(part)
        return score is None or is_moderate(score, self.num_classes)

    @stage("similarity")
    def _similar(self, recipe: Similar) -> sp.csr_array | None:
        if self.similarity is not None or self.graph.features is None:
            return self.similarity
        if recipe.weighting == "uniform":
            uniform = self.get(replace(recipe, weighting="cosine")).copy()
            uniform.data[:] = 1
            return uniform
        return nearest(self.graph.features, recipe.k, self.keys, **vars(recipe.search))

    def _propagated(self, over: Over, evidence: Sequence[Evidence]) -> list[Array]:
        """Several sets of known labels, propagated together."""
        matrix = self.get(over)
        with stage("propagation"):
            known = [codes_of(self.keys, each) for each in evidence]
            kind = np.float32 if self.large else np.float64
            masses, steps = propagate(matrix, known, self.num_classes)
            for each, count in zip(evidence, steps, strict=True):
                self._steps[Propagated(over, each)] = count
            return [np.asarray(mass, kind) for mass in masses]

    def mean_of(self, table: Array, over: Over) -> Array:
        """The mean of a table over neighbours, for all nodes."""
        from snaps._kernels.aggregation import neighbour_mean

        matrix = self.get(over)
        if matrix is None:
            return table
        out = room(table.shape, table.dtype)
        for block in pieces(len(table), 8 * table.shape[1]):
            out[block] = neighbour_mean(matrix, table, rows=block)
        return out

    def mean_at(self, table: Array, over: Over, positions: Positions) -> Array:
        """The mean of a table over neighbours, at some nodes."""
        from snaps._kernels.aggregation import neighbour_mean

        own, matrix = table[positions], self.get(over)
        return own if matrix is None else neighbour_mean(matrix[positions], table, own)

    # -- rows of some nodes ---------------------------------------------------------------------

    def positions(self, keys: Keys) -> Positions:
        """Positions of the nodes with these keys, of those that the graph has."""
        if not self.graph.named:  # keys are positions
            return keys[keys < np.uint64(self.num_nodes)].astype(np.int64)
        return locate_keys(self.keys, keys)[0]

    def others(self, but: Keys, seed: int, count: int) -> Keys:
        """The keys of `count` random nodes that are not among `but`, in ascending order."""
        keys = np.sort(self.keys[~np.isin(self.keys, but)])
        return keys[smallest(seed, keys, SHARES_STREAM, count)]

    def rows(self, asks: Sequence[tuple[Part, Keys]]) -> list[Array]:
        """Each part at its own nodes, (m, K).

        Of parts that depend on evidence, which are asked for once, only these rows are made.
        """
        with stage("scores"), np.errstate(all="ignore"):
            for kind in (Context, Similar):  # searches need the most memory, and come first
                for over in dict.fromkeys(getattr(part, "over", None) for part, _ in asks):
                    if isinstance(over, kind):
                        self.get(over)
            together = self._propagated_together(asks)
            return [
                together[i] if i in together else self._rows(part, self.positions(keys), once=True)
                for i, (part, keys) in enumerate(asks)
            ]

    def _propagated_together(self, asks: Sequence[tuple[Part, Keys]]) -> dict[int, Array]:
        """Rows of the propagated parts, by their place among the asks.

        Parts over the same edges are propagated together, as many as a block holds. Over very many
        edges all labels are propagated once, and the mass of those that a part leaves out is
        subtracted.
        """
        out: dict[int, Array] = {}
        flows = [(i, part) for i, (part, _) in enumerate(asks) if isinstance(part, Propagated)]
        for over in dict.fromkeys(part.over for _, part in flows):
            same = [(i, part.evidence) for i, part in flows if part.over == over]
            matrix = self.get(over)
            if len(same) > 1 and matrix is not None and matrix.nnz * self.num_classes >= MANY:
                whole = reduce(Evidence.united, (evidence for _, evidence in same))
                part = Propagated(over, whole)
                table = self.get(part)
                for i, evidence in same:
                    left_out = whole.subset(~np.isin(whole.keys, evidence.keys))
                    nodes, codes = self.positions(asks[i][1]), codes_of(self.keys, left_out)
                    mass, steps = np.asarray(table[nodes], np.float64), self._steps[part]
                    out[i] = mass_without(matrix, mass, steps, nodes, codes)
                continue
            for batch in pieces(len(same), 4 * self.probs.size) if len(same) > 1 else ():
                tables = self._propagated(over, [evidence for _, evidence in same[batch]])
                for (i, _), table in zip(same[batch], tables, strict=True):
                    out[i] = table[self.positions(asks[i][1])]
        return out

    def _rows(self, part: Part, positions: Positions, once: bool = False) -> Array:
        """Rows of a part; tables with evidence that is asked for `once` are not kept."""
        match part:
            case Regressed(k, evidence, True, search):
                _, rows = locate_keys(self.keys[positions], evidence.keys)
                return self.get(Ridge(k, evidence, search)).left_out[rows]
            case Propagated(over, evidence) if once and self.large and part not in self._made:
                return np.asarray(self._propagated(over, [evidence])[0][positions], np.float64)
        seen_once = once and _has_evidence(part)
        if self._is_kept(part) and not seen_once:
            return np.asarray(self.get(part).take(positions, axis=0), np.float64)
        match part:
            case Own() | Beliefs():
                return table_of(part, self.probs[positions], self.keys[positions])
            case Mean(over, of):
                from snaps._kernels.aggregation import neighbour_mean, neighbour_mean_at

                matrix, exact = self.get(over), self._exact(part)
                if matrix is None or not seen_once:
                    own = self._rows(of, positions, once)
                if matrix is None:
                    return own
                if not seen_once:
                    table = self.get(Averaged(of))
                    return neighbour_mean(matrix[positions], table, own, exact=exact)
                return neighbour_mean_at(
                    matrix, lambda rows: self._rows(of, rows, once), positions, np.float32,
                    exact=exact,
                )  # fmt: skip
        return np.asarray(self.get(part)[positions], np.float64)

    def mean_rows(
        self, over: Over, rows: Callable[[Positions], Array], positions: Positions
    ) -> Array:
        """The mean over neighbours of some nodes, of a table whose rows are made on demand."""
        from snaps._kernels.aggregation import neighbour_mean_at

        matrix = self.get(over)
        return rows(positions) if matrix is None else neighbour_mean_at(matrix, rows, positions)

    # -- scores ---------------------------------------------------------------------------------

    def score(self, scorer: FittedScorer, nodes: Positions | None = None) -> Array:
        """Scores (m, K) of some nodes, by default of all."""
        # Parts without weight are not made. The regression comes first: it needs the most memory.
        wanted = [
            each for each in scorer.parts.items() if each[0] == "own" or scorer.weights[each[0]]
        ]
        parts = dict(sorted(wanted, key=lambda each: not isinstance(each[1], Regressed)))
        most = nodes is None or 2 * len(nodes) > self.num_nodes
        with stage("scores"), np.errstate(all="ignore"):
            if nodes is None or (most and (len(parts) > 1 or self.large)):
                # Faster than taking most rows from each table.
                scores = self._all_scores(scorer, parts)
                if nodes is not None:
                    scores = taken(scores, nodes)
                elif not self.large:
                    scores = scores.copy()
            else:
                rows = {name: self._rows(part, nodes) for name, part in parts.items()}
                scores = scorer.combine(rows, self.keys[nodes])
        if scores.size and not np.isfinite([scores.min(), scores.max()]).all():
            raise SnapsError(
                f"'score' must give scores that can be averaged, got {type(scorer.score).__name__} "
                "with scores beyond all numbers"
            )
        return scores

    def _all_scores(self, scorer: FittedScorer, parts: Mapping[str, Part]) -> Array:
        """Scores of all nodes; kept if one block holds them, and of large graphs."""
        scored = self._scored  # which another thread may replace
        if scored is not None and scored[0] is scorer:
            return scored[1]
        for part in parts.values():
            self._prepare(part)

        def combine(block: slice) -> Array:
            made: dict[Any, Array] = {}  # parts that several others contain
            rows = {name: self._block(part, block, made) for name, part in parts.items()}
            return scorer.combine(rows, self.keys[block])

        table = self._in_blocks(combine)
        if self.large or len(self._blocks) == 1:
            table.flags.writeable = False
            self._scored = scorer, table
        if self.large:
            for recipe in self.made(Averaged, Propagated, Regressed):  # large, and not read again
                self._made.pop(recipe, None)
        return table


def table_of(part: Part, probs: Array, keys: Keys) -> Array:
    """A part that each row gives by itself."""
    match part:
        case Probs():
            return probs
        case Own(score, seed):
            return score_table(score, probs, keys, seed)
        case Beliefs(evidence):
            return with_certainty(probs.copy(), keys, evidence)
    raise TypeError(part)


def _has_evidence(part: Part) -> bool:
    """Whether a table is made from probabilities in which known labels replace guesses."""
    while isinstance(part, Mean):
        part = part.of
    return isinstance(part, Beliefs)


def _score_of(recipe: object) -> Score | None:
    """The basic score that a table is made with, if any."""
    while isinstance(recipe, (Mean, Averaged)):
        recipe = recipe.of
    return recipe.score if isinstance(recipe, Own) else None
