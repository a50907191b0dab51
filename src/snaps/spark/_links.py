"""Means over links, in two steps: sources add up what they send, targets what they get.

Edges go to the bucket of their source, where its scores are: what all sources of a bucket send to
a target is summed up there, and only the sums go on to the bucket of the target. Sums are exact, so
no order of edges, buckets or retries can change a bit. The few sources that have more edges than a
bucket should hold are sent to all buckets, and their edges go to the bucket of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from snaps._kernels.aggregation import add_rows, exact_sums, mean_of_sums
from snaps.errors import SnapsError
from snaps.scores import LARGEST
from snaps.scoring.parts import Array, Links, Mean, Part
from snaps.spark._batches import one_piece, pieces, unpacked
from snaps.spark._rows import split_parts

MEANS, FIRST, SECOND = 0, 1, 2  # what a row says: a mean, sums over links, sums over their links
SENT = "dst long, hop int, count long, sums binary"

Rows = tuple[np.ndarray, Array]  # links in ascending order, and their rows


def sender(hop: int, heavy: Rows, schema: Any) -> Callable[[Any, Any], Any]:
    """What the sources of one bucket send: their rows, summed up by target."""

    def send(sources: Any, edges: Any) -> Any:
        links, table = _by_link(sources)
        if not len(links):
            table = np.empty((0, heavy[1].shape[1]))
        links, table = np.concatenate([links, heavy[0]]), np.vstack([table, heavy[1]])
        order = np.argsort(links, kind="stable")
        links, table = links[order], table[order]
        src, dst = (one_piece(edges.column(name)).to_numpy() for name in ("src", "dst"))
        if not len(src):
            return pa.Table.from_batches([], schema)
        place = np.minimum(np.searchsorted(links, src), max(len(links) - 1, 0))
        missing = np.flatnonzero(links[place] != src) if len(links) else np.arange(len(src))
        if len(missing):
            raise SnapsError(
                "'nodes' and 'edges' must give the same rows whenever they are read, got others "
                "the second time: persist or write them first"
            )
        if np.abs(table).max() > LARGEST:
            raise SnapsError(f"'score' must give scores of at most {LARGEST:g} for links to share")
        apart = src != dst
        dst, place = dst[apart], place[apart]
        if not len(dst):
            return pa.Table.from_batches([], schema)
        targets = np.unique(dst)
        codes = np.searchsorted(targets, dst)
        # An edge that is listed twice, or both ways, counts once.
        pairs = np.unique(codes * len(links) + place)
        codes, place = np.divmod(pairs, len(links))
        counts = np.bincount(codes, minlength=len(targets))
        indptr = np.concatenate([[0], np.cumsum(counts)])
        # In single precision, as the local engine averages.
        sums = exact_sums(indptr, place, table.astype(np.float32))
        batches = [batch.cast(schema) for batch in _sent(hop, targets, counts, sums)]
        return pa.Table.from_batches(batches, schema)

    return send


def _by_link(nodes: Any) -> Rows:
    links = one_piece(nodes.column("link")).to_numpy()
    return links, unpacked(nodes.column("table"), np.float64)


def _sent(hop: int, targets: np.ndarray, counts: np.ndarray, sums: np.ndarray) -> Iterator[Any]:
    """Sums take 32 bits a number where they fit, as most do, else 64."""
    small = (np.abs(sums) < 2**31).all(axis=1)
    for which, kind in ((small, np.int32), (~small, np.int64)):
        columns = {
            "dst": targets[which],
            "hop": np.full(int(which.sum()), hop, np.int32),
            "count": counts[which],
        }
        yield from pieces(columns, {"sums": sums[which].astype(kind)})


def received(links: np.ndarray, sent: Any, hop: int, own: Array) -> Array:
    """The means of nodes from the sums that came for them; the own row where none came."""
    sent = sent.filter(pc.equal(sent.column("hop"), hop))
    order = np.argsort(links, kind="stable")
    width = own.shape[1]
    sums, counts = np.zeros((len(links), 2 * width), np.int64), np.zeros(len(links), np.int64)
    sizes = pc.binary_length(sent.column("sums"))
    for kind in (np.int32, np.int64):
        rows = sent.filter(pc.equal(sizes, 2 * width * np.dtype(kind).itemsize))
        dst = one_piece(rows.column("dst")).to_numpy()
        place = order[np.minimum(np.searchsorted(links, dst, sorter=order), len(links) - 1)]
        ours = np.flatnonzero(links[place] == dst)
        count = one_piece(rows.column("count")).to_numpy()
        np.add.at(counts, place[ours], count[ours])
        if len(ours):
            add_rows(place[ours], unpacked(rows.column("sums"), kind)[ours], sums)
    return mean_of_sums(sums, counts, own)


def _means(links: np.ndarray, sent: Any) -> Array:
    """Means that come as they are, one for each node."""
    sent = sent.filter(pc.equal(sent.column("hop"), MEANS))
    dst = one_piece(sent.column("dst")).to_numpy()
    order = np.argsort(dst)
    return unpacked(sent.column("sums"), np.float64)[order[np.searchsorted(dst[order], links)]]


def receiver(
    parts: Sequence[Part], linked: Sequence[Part], twice: bool,
    finish: Callable[[Any, dict[Part, Array]], Iterator[Any]], schema: Any,
) -> Callable[[Any, Any], Any]:  # fmt: skip
    """What nodes make of what they got: `finish` takes them and all their parts.

    Their tables hold `parts`, of which the `linked` were sent over links; if `twice`, the means of
    these were sent on, and come as they are.
    """

    def receive(nodes: Any, sent: Any) -> Any:
        if not len(nodes):
            return pa.Table.from_batches([], schema)
        links, table = _by_link(nodes)
        rows = split_parts(table, parts)
        own = np.hstack([rows[part] for part in linked])
        means = _means(links, sent) if twice else received(links, sent, FIRST, own)
        sent_on = split_parts(means, linked)
        first: dict[Part, Array] = {Mean(Links(), part): mean for part, mean in sent_on.items()}
        rows |= first
        if twice:
            means = received(links, sent, SECOND, means)
            again = split_parts(means, list(first))
            rows |= {Mean(Links(), part): mean for part, mean in again.items()}
        return pa.Table.from_batches([batch.cast(schema) for batch in finish(nodes, rows)], schema)

    return receive
