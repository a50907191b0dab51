"""Graph folders of any size, made and written a row group at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

GROUP = 1 << 18  # rows of a row group
ALIKE = 0.8  # of the edges link nodes of the same class
SIGNAL, NOISE = 2.0, 1.5  # of the classifier's logits
MOST = 20_000  # calibration nodes, and validation nodes


@dataclass(frozen=True)
class Shape:
    """Nodes, undirected edges, features and classes."""

    nodes: int
    edges: int
    features: int
    classes: int

    def scaled(self, nodes: int) -> Shape:
        """The same shape with so many nodes."""
        return Shape(nodes, self.edges * nodes // self.nodes, self.features, self.classes)


PRODUCTS = Shape(2_449_029, 61_859_140, 100, 47)
ARXIV = Shape(169_343, 1_166_243, 128, 40)


def write(folder: Path, shape: Shape, seed: int = 0) -> None:
    """Clusters of features, links within classes, and a classifier that is right now and then."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    labels = rng.integers(shape.classes, size=shape.nodes, dtype=np.int32)
    centres = rng.standard_normal((60, shape.features), dtype=np.float32)
    cluster = np.where(
        rng.random(shape.nodes) < 0.7, labels, rng.integers(60, size=shape.nodes)
    ).astype(np.int32)
    roles = np.full(shape.nodes, 2, np.int8)
    order = rng.permutation(shape.nodes)
    share = min(MOST, shape.nodes // 20)
    roles[order[:share]], roles[order[share : 2 * share]] = 0, 1
    names = pa.array(["calib", "valid", "test"])
    _write(folder / "nodes.parquet", shape.nodes, lambda rows: _nodes(
        rows, labels, cluster, centres, roles, names, shape, rng
    ))  # fmt: skip
    by_class = np.argsort(labels, kind="stable").astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=shape.classes))])
    _write(folder / "edges.parquet", shape.edges, lambda rows: _edges(
        rows, labels, by_class, starts, rng
    ))  # fmt: skip


def _write(path: Path, count: int, make) -> None:  # type: ignore[no-untyped-def]
    writer = None
    for first in range(0, count, GROUP):
        table = make(slice(first, min(first + GROUP, count)))
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=GROUP)
    if writer is not None:
        writer.close()


def _lists(table: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(table.reshape(-1)), table.shape[1])


def _nodes(rows, labels, cluster, centres, roles, names, shape, rng):  # type: ignore[no-untyped-def]
    some = labels[rows]
    features = centres[cluster[rows]]
    features += rng.standard_normal(features.shape, dtype=np.float32)
    logits = NOISE * rng.standard_normal((len(some), shape.classes), dtype=np.float32)
    logits[np.arange(len(some)), some] += SIGNAL
    probs = np.exp(logits)
    probs /= probs.sum(axis=1, keepdims=True)
    return pa.table(
        {
            "id": np.arange(rows.start, rows.stop),
            "probs": _lists(probs),
            "label": some,
            "role": pa.DictionaryArray.from_arrays(roles[rows], names),
            "features": _lists(features),
        }
    )


def _edges(rows, labels, by_class, starts, rng):  # type: ignore[no-untyped-def]
    count = rows.stop - rows.start
    source = rng.integers(len(labels), size=count, dtype=np.int32)
    target = rng.integers(len(labels), size=count, dtype=np.int32)
    own = labels[source]
    low, high = starts[own], starts[own + 1]
    same = by_class[low + (rng.random(count) * (high - low)).astype(np.int64)]
    target = np.where(rng.random(count) < ALIKE, same, target)
    return pa.table({"src": source, "dst": target})
