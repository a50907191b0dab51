"""Graph folders as tests compare, refuse, take apart and rewrite them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import snaps
from snaps.folder import read_folder
from tests.helpers import small
from tests.helpers.small import LABELS, NAMES, NUM_NODES, PROBS, ROLES


def same_folder(folder, graph, labels=LABELS, roles=ROLES):
    assert folder.graph.ids.tolist() == graph.ids.tolist()
    assert (folder.graph.adjacency != graph.adjacency).nnz == 0
    for mine, theirs in zip(
        (folder.probs, folder.labels, folder.roles), (PROBS, labels, roles), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)
    if graph.features is None:
        assert folder.graph.features is None
    else:
        assert type(folder.graph.features) is type(graph.features)
        difference = folder.graph.features - graph.features
        assert abs(difference).max() == 0


FEATURES = {
    "dense": small.FEATURES,
    "single precision": small.FEATURES.astype(np.float32),
    "sparse": sp.csr_array(small.FEATURES * (small.FEATURES > 0.7)),
    "none": None,
}
IDS = {"positions": None, "names": NAMES, "numbers": np.arange(NUM_NODES)[::-1] * 7 - 100}


def listed(kind, table=PROBS, size=-1):
    return pa.array(table.tolist(), pa.list_(kind, size))


CLASSES = np.array(["theory", "genetics", "a;b, c"])
UNKNOWN = np.where(np.arange(NUM_NODES) % 7 == 0, -1, LABELS)
TEXT = np.where(UNKNOWN < 0, "", CLASSES[UNKNOWN])


def refusal(folder, **options):
    with pytest.raises(snaps.SnapsError) as caught:
        read_folder(folder, **options)
    return str(caught.value).replace(f"{folder}", "g")


def into_parts(path, changes=({}, {}, {})):
    """Turn a Parquet file into a folder of three part files, each changed in its own way."""
    table = pq.read_table(path)
    path.unlink()
    path.mkdir()
    (path / "_SUCCESS").touch()
    (path / ".part-0.crc").write_bytes(b"\0")
    bounds = np.linspace(0, table.num_rows, 4).astype(int)
    for i, change in enumerate(changes):
        part = table.slice(bounds[i], bounds[i + 1] - bounds[i])
        for name, kind in change.items():
            place = part.column_names.index(name)
            if kind is None:
                part = part.remove_column(place)
            elif kind == pa.null():
                part = part.set_column(place, name, pa.nulls(part.num_rows))
            else:
                part = part.set_column(place, name, part.column(name).cast(kind))
        pq.write_table(part, path / f"part-{i}.snappy.parquet")
