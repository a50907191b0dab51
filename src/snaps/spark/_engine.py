"""The engine on Spark: parts of few nodes on the driver, of all nodes where they are.

Left of the wall: labels come as evidence, inside the parts that name it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from snaps._checks import check_flag
from snaps._runtime.randomness import (
    CANDIDATE_STREAM,
    SHARES_STREAM,
    hashes,
    locate_keys,
    node_keys,
    smallest,
)
from snaps.errors import SnapsError
from snaps.scores import LARGEST, LIBRARY, is_moderate
from snaps.scoring.evidence import Keys
from snaps.scoring.parts import Array, Beliefs, Links, Mean, Own, Part, Probs, Similar
from snaps.spark import _links
from snaps.spark._batches import features_of, ids_of, keys_of, pieces, unpacked
from snaps.spark._columns import Tables, check_edges, check_ends, check_nodes, other_rows
from snaps.spark._failures import explained
from snaps.spark._rows import Candidates, RowMaker, is_local

BUCKET_BYTES = 32 * 2**20  # that reach a bucket, about; a task holds one of them in memory
MOST_BUCKETS = 100_000
TASK_ROWS = 10_000  # that a task takes at least, where partitions are smaller
FEW_TARGETS = 100_000  # which a hub may send to from one bucket
SAMPLED_EDGES = 2_000_000  # in which nodes with very many links are looked for
# All nodes are candidates where no number is given, as long as comparing them takes so many
# multiplications at most, and sending them so many bytes.
MOST_PRODUCTS, MOST_SENT = 1e12, 2**28

Finish = Callable[[Any, dict[Part, Array]], Iterator[Any]]


@dataclass(frozen=True)
class Asked:
    """Nodes of which parts are to be made."""

    nodes: Any
    links: Any = None  # theirs, where only edges into them are to be looked at
    share: float = 1.0  # of all edges, about


class SparkInputs:
    """Nodes and edges on a cluster, checked; `has` says what scores may be averaged over."""

    def __init__(self, spark: Any, tables: Tables, logits: bool = False):
        self.spark, self.tables, self.nodes = spark, tables, tables.nodes
        self._logits = check_flag(logits, "logits")
        self._num_edges, linked = check_edges(tables)
        self.num_nodes, self.num_classes, self._width = check_nodes(tables, self._logits)
        check_ends(tables, self.num_nodes)
        # Each task over the nodes costs, even if it has no row.
        least = 2 * spark.sparkContext.defaultParallelism
        total = self.num_nodes * (self.num_classes + max(self._width, 0)) * 8
        tasks = math.ceil(max(least, total / BUCKET_BYTES, self.num_nodes / TASK_ROWS))
        self.nodes = self.nodes.coalesce(tasks)
        self._seed, self.nodes = self._with_links()
        ends = tables.edges.select(
            _link(F.col("src"), self._seed).alias("src"),
            _link(F.col("dst"), self._seed).alias("dst"),
        )
        # Both ways, read once. Self loops are left out where their ends are known to be nodes.
        back = F.struct(F.col("dst").alias("src"), F.col("src").alias("dst"))
        self.edges = ends.select(F.inline(F.array(F.struct("src", "dst"), back)))
        present = {"links": linked, "similar": tables.has_features}
        self.has = frozenset(name for name in present if present[name])
        self._few: Any = None
        self._rows: dict[Part, Array] = {}
        self._broadcast: dict[Similar, Any] = {}
        self._heavy: np.ndarray | None = None
        self._persisted: list[Any] = []

    def _with_links(self) -> tuple[int, Any]:
        """Nodes with 64 bits that edges know them by: integers themselves, names hashed.

        A seed under which two names have the same hash is not taken.
        """
        if not self.tables.text:
            return -1, self.nodes.withColumn("link", F.col("id"))
        for seed in range(8):
            nodes = self.nodes.withColumn("link", _link(F.col("id"), seed))
            with self.tables.reading():
                again = nodes.groupBy("link").count().where("count > 1").first()
            if again is None:
                return seed, nodes
        raise SnapsError(f"{self.tables.title('id')} must be names with different hashes")

    # -- few rows, on the driver ----------------------------------------------------------------

    def ask_for(self, ids: np.ndarray) -> None:
        """Of which nodes `rows` will be asked: all of their rows are made at once."""
        self._ids = ids[np.argsort(node_keys(ids), kind="stable")]
        self._keys = node_keys(self._ids)
        self._few = self.spark.createDataFrame(pa.table({"id": pa.array(self._ids)}))
        self._rows.clear()

    def others(self, but: Keys, seed: int, count: int) -> Keys:
        """The keys of so many random nodes that are not among some, in ascending order."""
        nodes = self._smallest(count, seed, SHARES_STREAM, ["id"], but)
        ids = ids_of(nodes.column("id"))
        self.ask_for(np.union1d(self._ids, ids))
        return np.sort(node_keys(ids))

    def rows(self, asks: Sequence[tuple[Part, Keys]]) -> list[Array]:
        """Each part at its own nodes, (m, K)."""
        new = list(dict.fromkeys(part for part, _ in asks if part not in self._rows))
        if new:
            self._rows |= self._collect(new)
        return [self._rows[part][locate_keys(self._keys, keys)[0]] for part, keys in asks]

    def _collect(self, parts: list[Part]) -> dict[Part, Array]:
        """Parts of the few nodes, in the order of their keys."""
        named = {f"part{i}": part for i, part in enumerate(parts)}

        def finish(nodes: Any, rows: dict[Part, Array]) -> Iterator[Any]:
            tables = {name: rows[part] for name, part in named.items()}
            return pieces({"id": nodes.column("id")}, tables)

        schema = self._schema("id", *named)
        nodes = self.nodes.join(F.broadcast(self._few), "id", "left_semi")
        links = self._few.select(_link(F.col("id"), self._seed).alias("link"))
        # Their links may well be more than average.
        asked = Asked(nodes, links, min(4 * len(self._ids) / self.num_nodes, 1.0))
        try:
            with explained("cannot make scores"):
                collected = self.all(parts, finish, schema, asked).toArrow()
        finally:
            self.release()
        positions, rows = locate_keys(self._keys, keys_of(collected.column("id")))
        if not len(positions) == len(collected) == len(np.unique(positions)) == len(self._keys):
            raise other_rows(self.tables.titles[0])
        out = {}
        for name, part in named.items():
            table = np.empty((len(self._keys), self.num_classes))
            table[positions] = unpacked(collected.column(name), np.float64)[rows]
            out[part] = table
        return out

    # -- all rows, where they are ---------------------------------------------------------------

    def all(
        self, parts: Sequence[Part], finish: Finish, schema: str, asked: Asked,
        kept: tuple[str, ...] = ("link", "id"),
    ) -> Any:  # fmt: skip
        """A DataFrame of what `finish` makes of kept columns of nodes and their parts."""
        linked, twice = _hops(parts)
        plain = tuple(dict.fromkeys([*filter(is_local, parts), *linked]))
        make = self._maker(plain)
        if not linked:
            return asked.nodes.mapInArrow(
                lambda batches: (out for each in make.tables(batches) for out in finish(*each)),
                schema,
            )
        base = asked.nodes.mapInArrow(
            lambda batches: make(batches, *kept), self._schema(*kept, "table")
        )
        sent = self._sent_twice(linked, asked) if twice else self._sent(linked, asked)
        receive = _links.receiver(plain, linked, twice, finish, self._arrow(schema))
        buckets = self._buckets(asked.share)
        left = _placed(base, _bucket("link", buckets), buckets)
        right = _placed(sent, _bucket("dst", buckets), buckets)
        return left.cogroup(right).applyInArrow(receive, schema)

    def _maker(self, parts: tuple[Part, ...]) -> RowMaker:
        candidates = None
        for part in parts if self.tables.has_features else ():
            if isinstance(part, Mean):
                assert isinstance(part.over, Similar)
                candidates = self._candidates(part.over)
        threads = int(self.spark.conf.get("spark.task.cpus", "1"))
        return RowMaker(parts, self._logits, candidates, threads)

    def _schema(self, *names: str) -> str:
        """Columns of nodes, and tables as binary values."""
        kinds = {"link": "long", "id": "string" if self.tables.text else "long"}
        return ", ".join(f"{name} {kinds.get(name, 'binary')}" for name in names)

    def _arrow(self, schema: str) -> Any:
        """A schema as Arrow has it in this session, which may ask for large types."""
        large = self.spark.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false")
        return to_arrow_schema(
            cast(StructType, StructType.fromDDL(schema)), prefers_large_types=large == "true"
        )

    def _sent(self, parts: list[Part], asked: Asked) -> Any:
        """What links bring: sums of rows."""
        edges, nodes = self._into(asked.links), self.nodes.select("link", "id", "probs")
        if asked.links is not None:
            starts = edges.select(F.col("src").alias("link")).distinct()
            nodes = nodes.join(starts, "link", "left_semi")
        make = self._maker(tuple(parts))
        sources = nodes.mapInArrow(
            lambda batches: make(batches, "link"), self._schema("link", "table")
        )
        return self._send(sources, edges, _links.FIRST, len(parts), asked.share)

    def _sent_twice(self, parts: list[Part], asked: Asked) -> Any:
        """What links to links bring: sums of means, and the means themselves."""
        edges, nodes, middle = self._into(asked.links), self.nodes, None
        if asked.links is not None:
            middle = edges.select(F.col("src").alias("link")).union(asked.links).distinct()
            nodes = nodes.join(middle, "link", "left_semi")
        share = min(asked.share * max(self._num_edges / self.num_nodes, 1), 1.0)
        once = [Mean(Links(), part) for part in parts]

        def finish(nodes: Any, rows: dict[Part, Array]) -> Iterator[Any]:
            table = np.hstack([rows[part] for part in once])
            return pieces({"link": nodes.column("link")}, {"table": table})

        schema, asked_first = self._schema("link", "table"), Asked(nodes, middle, share)
        means = self.all(once, finish, schema, asked_first, ("link",)).persist()
        self._persisted.append(means)
        second = self._send(means, edges, _links.SECOND, len(parts), asked.share)
        own = means.select(
            F.col("link").alias("dst"), F.lit(_links.MEANS).alias("hop"),
            F.lit(1).cast("long").alias("count"), F.col("table").alias("sums"),
        )  # fmt: skip
        return second.union(own)

    def release(self) -> None:
        """Let go of means that were kept on the executors."""
        while self._persisted:
            self._persisted.pop().unpersist()

    def close(self) -> None:
        """Let go of all that is kept on the executors; nothing can be made any more."""
        self.release()
        while self._broadcast:
            self._broadcast.popitem()[1].destroy()

    def _into(self, targets: Any) -> Any:
        """Edges into some nodes."""
        if targets is None:
            return self.edges
        targets = targets.select(targets["link"].alias("dst"))
        return self.edges.join(targets, "dst", "left_semi").select("src", "dst")

    def _send(self, sources: Any, edges: Any, hop: int, count: int, share: float) -> Any:
        """Sums of what sources send along a share of all edges, by target."""
        buckets, heavy = self._buckets(share), self._spread(share)
        bucket, rows = _bucket("src", buckets), np.empty((0, count * self.num_classes))
        if len(heavy):
            bucket = F.when(F.col("src").isin(heavy.tolist()), _bucket("dst", buckets)).otherwise(
                bucket
            )
            is_heavy = F.col("link").isin(heavy.tolist())
            hubs = sources.where(is_heavy).toArrow()
            sources = sources.where(~is_heavy)
            heavy = hubs.column("link").to_numpy()
            rows = unpacked(hubs.column("table"), np.float64).reshape(len(heavy), rows.shape[1])
        left = _placed(sources, _bucket("link", buckets), buckets)
        right = _placed(edges, bucket, buckets)
        send = _links.sender(hop, (heavy, rows), self._arrow(_links.SENT))
        return left.cogroup(right).applyInArrow(send, _links.SENT)

    def _buckets(self, share: float = 1.0) -> int:
        """So many that each gets a few dozen megabytes, and every core a few of them."""
        total = (2 * self._num_edges + self.num_nodes) * self.num_classes * 8
        least = 2 * self.spark.sparkContext.defaultParallelism
        return int(min(max(math.ceil(share * total / BUCKET_BYTES), least), MOST_BUCKETS))

    def _spread(self, share: float) -> np.ndarray:
        """Nodes whose edges are spread; to few targets, not even a hub has many."""
        few = share < 1 and share * self.num_nodes < FEW_TARGETS
        return np.empty(0, np.int64) if few else self.heavy_links()

    def asked(self, condition: Any) -> tuple[Asked, int]:
        """The nodes for which a condition on columns holds, and how many they are.

        Where they are few, their neighbours are all that is looked at.
        """
        nodes = self.nodes.where(condition)
        with self.tables.reading():
            count = nodes.count()
        share = count / self.num_nodes
        return Asked(nodes, nodes.select("link"), share) if share < 0.5 else Asked(nodes), count

    def heavy_links(self) -> np.ndarray:
        """Nodes with more links than a bucket should hold, by a sample of the edges."""
        if self._heavy is None:
            total = 2 * self._num_edges
            share = min(SAMPLED_EDGES / max(total, 1), 1.0)
            ends = self.tables.edges.sample(share, seed=0) if share < 1 else self.tables.edges
            ends = ends.select(F.explode(F.array("src", "dst")).alias("id"))
            least = max(share * total / self._buckets() / 2, 100)
            hubs = ends.groupBy("id").count().where(F.col("count") > least)
            with self.tables.reading("src"):
                links = hubs.select(_link(F.col("id"), self._seed).alias("link")).toArrow()
            self._heavy = np.sort(links.column("link").to_numpy())
        return self._heavy

    # -- candidates -----------------------------------------------------------------------------

    def _candidates(self, over: Similar) -> Any:
        """The nodes that may be similar ones, the same as on one machine, sent to everyone."""
        if over not in self._broadcast:
            columns, none = ("id", "probs", "features"), np.empty(0, np.uint64)
            table = self._smallest(self._count(over), 0, CANDIDATE_STREAM, columns, none)
            width = self._width
            if width < 0:
                width = 1 + (self._first(F.max(F.array_max("features.indices"))) or 0)
            batch = table.combine_chunks().to_batches()[0]
            (probs,) = RowMaker((Probs(),), self._logits).make(batch)
            features = features_of(batch.column("features"), width)
            known = Candidates(keys_of(batch.column("id")), probs, features, width)
            with explained("cannot send candidates to the executors"):
                self._broadcast[over] = self.spark.sparkContext.broadcast(known)
        return self._broadcast[over]

    def _first(self, column: Any) -> Any:
        """An aggregate over all nodes."""
        with self.tables.reading():
            return self.nodes.select(column).first()[0]

    def _count(self, over: Similar) -> int:
        """How many candidates there are to be."""
        if over.k >= self.num_nodes:
            raise SnapsError(
                f"'k' must be smaller than the number of nodes {self.num_nodes}, got {over.k}"
            )
        if over.search.candidates is not None:
            return min(over.search.candidates, self.num_nodes)
        sparse = self._width < 0
        filled = self._first(F.avg(F.size("features.indices"))) if sparse else self._width
        products, sent = self.num_nodes**2 * filled, self.num_nodes * filled * 8
        if products > MOST_PRODUCTS or sent > MOST_SENT:
            raise SnapsError(
                f"'candidates' must be given on Spark for {self.num_nodes} nodes, such as "
                "candidates=20000 (--candidates 20000): all are too many to be compared"
            )
        return self.num_nodes

    def _smallest(
        self, count: int, seed: int, stream: int, columns: Sequence[str], but: Keys
    ) -> Any:
        """The nodes with the smallest hashes that are not among some, in the order of keys."""
        nodes = self.nodes.select(*columns)
        share = (count + 8 * math.sqrt(count) + 16) / max(self.num_nodes - len(but), 1)
        while True:
            limit = np.uint64(min(int(share * 2.0**64), 2**64 - 1))

            def pick(batches: Iterable[Any], limit: np.uint64 = limit) -> Iterator[Any]:
                for batch in batches:
                    keys = keys_of(batch.column("id"))
                    few = (hashes(seed, keys, stream) <= limit) & ~np.isin(keys, but)
                    yield batch.filter(pa.array(few))

            with self.tables.reading():
                table = nodes.mapInArrow(pick, nodes.schema).toArrow()
            if len(table) >= count or share >= 1:
                keys = keys_of(table.column("id"))
                chosen = smallest(seed, keys, stream, count)
                return table.take(pa.array(chosen[np.argsort(keys[chosen])]))
            share *= 2


def check_fits(parts: Iterable[Part], num_classes: int) -> None:
    """Whether this engine makes these parts."""
    for part in parts:
        averaged = isinstance(part, Mean)
        while isinstance(part, Mean):
            part = part.of
        if isinstance(part, Own) and type(part.score) not in LIBRARY:
            raise SnapsError(
                f"'score' must be APS, RAPS, SAPS or THR on Spark, got {type(part.score).__name__}"
            )
        if averaged and isinstance(part, Own) and not is_moderate(part.score, num_classes):
            raise SnapsError(
                f"'score' must give scores of at most {LARGEST:g} to be averaged on Spark, "
                f"got {part.score!r} and {num_classes} classes"
            )
        if not isinstance(part, (Own, Probs, Beliefs)):
            raise SnapsError(f"'parts' must be among those that Spark makes, got {part!r:.40}")


def _link(column: Any, seed: int) -> Any:
    return column if seed < 0 else F.xxhash64(F.lit(seed), column)


def _bucket(name: str, count: int) -> Any:
    return F.pmod(F.xxhash64(F.lit(1), F.col(name)), F.lit(count)).cast("int")


def _placed(table: Any, bucket: Any, count: int) -> Any:
    """A table with each row in the task of its bucket."""
    return table.withColumn("bucket", bucket).repartitionById(count, "bucket").groupBy("bucket")


def _hops(parts: Iterable[Part]) -> tuple[list[Part], bool]:
    """What is sent over links, and whether it is sent on from there."""
    sent: dict[Part, None] = {}
    twice = False
    for part in parts:
        hops = 0
        while isinstance(part, Mean) and isinstance(part.over, Links):
            part, hops = part.of, hops + 1
        if hops:
            sent[part] = None
        twice |= hops > 1
    return list(sent), twice
