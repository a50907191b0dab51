"""Parts that are made where the rows are: nothing of them is shuffled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._checks import calm, check_probs
from snaps._kernels.aggregation import neighbour_mean
from snaps._runtime.threads import limit_threads
from snaps.scoring.evidence import Keys
from snaps.scoring.local import table_of
from snaps.scoring.parts import Array, Links, Mean, Part, Similar
from snaps.similarity import similarity_graph
from snaps.spark._batches import features_of, gathered, keys_of, lists, pieces

LEAST_ROWS = 8192  # that are compared with the candidates at a time


@dataclass(frozen=True)
class Candidates:
    """The nodes that may be similar ones: small enough to be sent to every executor."""

    keys: Keys
    probs: Array
    features: Any
    width: int


@dataclass(frozen=True)
class RowMaker:
    """Makes parts of any rows of nodes.

    Without candidates, which are broadcast, no node has similar ones, and every row is its own
    mean. A task may use so many threads.
    """

    parts: tuple[Part, ...]
    logits: bool = False
    candidates: Any = None
    threads: int = 1

    def __call__(self, batches: Iterable[Any], *kept: str) -> Iterator[Any]:
        """Some columns of nodes, and `table`: all parts of each row side by side."""
        for batch, rows in self.tables(batches):
            columns = {name: batch.column(name) for name in kept}
            yield from pieces(columns, {"table": np.hstack(list(rows.values()))})

    def tables(self, batches: Iterable[Any]) -> Iterator[tuple[Any, dict[Part, Array]]]:
        """Batches of nodes, and the parts of their rows."""
        least = 0
        if self.candidates is not None and any(isinstance(part, Mean) for part in self.parts):
            # Each time, the candidates are prepared again: as many rows are worth that.
            least = max(LEAST_ROWS, len(self.candidates.value.keys))
        for batch in gathered(iter(batches), least):
            with limit_threads(self.threads):
                made = self.make(batch)
            yield batch, dict(zip(self.parts, made, strict=True))

    @calm
    def make(self, batch: Any) -> list[Array]:
        """The parts of the rows of a batch."""
        probs = check_probs(lists(batch.column("probs")), logits=self.logits, silent=True)
        keys = keys_of(batch.column("id"))
        similar: dict[Similar, sp.csr_array] = {}
        out = []
        for part in self.parts:
            own = table_of(part.of if isinstance(part, Mean) else part, probs, keys)
            if not isinstance(part, Mean) or self.candidates is None:
                out.append(own)
                continue
            assert isinstance(part.over, Similar)
            known = self.candidates.value
            if part.over not in similar:
                features = features_of(batch.column("features"), known.width)
                similar[part.over] = _search(part.over, known, features, keys)
            theirs = table_of(part.of, known.probs, known.keys).astype(np.float32)
            out.append(neighbour_mean(similar[part.over], theirs, own))
        return out


def is_local(part: Part) -> bool:
    """Whether a part is made where the rows are."""
    return not (isinstance(part, Mean) and isinstance(part.over, Links))


def _search(over: Similar, known: Candidates, features: Any, keys: Keys) -> sp.csr_array:
    """The similar ones among the candidates, (rows, candidates).

    Rows that are candidates themselves go by their place among these, so that no node is found to
    be similar to itself.
    """
    count = len(known.keys)
    order = np.argsort(known.keys)
    place = order[np.minimum(np.searchsorted(known.keys, keys, sorter=order), count - 1)]
    others = np.flatnonzero(known.keys[place] != keys)
    place[others] = count + np.arange(len(others))
    stack = sp.vstack if sp.issparse(features) else np.vstack
    table = stack([known.features, features[others]])
    k = min(over.k, table.shape[0] - 1)
    if k == 0:
        return sp.csr_array((len(keys), count))
    ids = np.concatenate([known.keys, keys[others]])
    graph = similarity_graph(table, k, candidates=np.arange(count), rows=place, ids=ids)
    return sp.csr_array((graph.data, graph.indices, graph.indptr), shape=(len(keys), count))


def split_parts(table: Array, parts: Sequence[Part]) -> dict[Part, Array]:
    """The parts that stand side by side in a table."""
    return dict(zip(parts, np.hsplit(table, len(parts)), strict=True)) if parts else {}
