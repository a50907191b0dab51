"""`PredictionSets`: which labels each node may have."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from snaps._checks import check_integer, check_nodes, to_numpy
from snaps._errors import SnapsError, require
from snaps._files import atomic_path
from snaps._ids import check_ids
from snaps.graph import MOST_NODES


class PredictionSets:
    """One set of labels a node.

    Parameters
    ----------
    mask : bool array (m, K)
        Row i says which labels the i-th set holds.
    nodes : array (m,), optional
        Positions of the nodes in their graph; 0, 1, ... by default.
    ids : array (m,), optional
        The nodes' own names; their positions by default.
    num_nodes : int, optional
        Number of nodes of the graph, which labels must match in `snaps.metrics`.

    Examples
    --------
    >>> sets = PredictionSets(np.array([[True, False, True], [False, True, False]]))
    >>> sets
    PredictionSets(2 nodes, 3 classes, mean size 1.50)
    >>> sets[0], sets.sizes
    (array([0, 2]), array([2, 1]))
    """

    def __init__(self, mask: Any, nodes: Any = None, ids: Any = None, num_nodes: int | None = None):
        self.mask = to_numpy(mask, "mask")
        if self.mask.ndim != 2 or self.mask.dtype != bool:
            raise SnapsError(
                f"'mask' must be a boolean array (nodes, classes), "
                f"got {self.mask.dtype} {self.mask.shape}"
            )
        places = np.arange(len(self.mask)) if nodes is None else to_numpy(nodes, "nodes")
        if num_nodes is None:
            # Positions tell the last node; a mask has an entry for each.
            positions = places.dtype.kind in "iu"
            num_nodes = int(places.max(initial=0)) + 1 if positions else max(1, places.size)
        self.num_nodes = check_integer(num_nodes, "num_nodes", low=1, high=MOST_NODES)
        self.nodes = check_nodes(places, "nodes", num_nodes=self.num_nodes, empty=True)
        self.ids = self.nodes if ids is None else check_ids(ids, "'ids'", unique=False)
        for name, array in (("nodes", self.nodes), ("ids", self.ids)):
            if len(array) != len(self.mask):
                raise SnapsError(
                    f"'{name}' must have one entry a set ({len(self.mask)}), got {len(array)}"
                )

    @property
    def sizes(self) -> np.ndarray:
        """Number of labels in each set."""
        return self.mask.sum(axis=1)

    def labels(self) -> list[np.ndarray]:
        """The sets as a list of label arrays."""
        return np.split(np.nonzero(self.mask)[1], np.cumsum(self.sizes)[:-1]) if len(self) else []

    def __len__(self) -> int:
        return len(self.mask)

    def __getitem__(self, i: int) -> np.ndarray:
        """Labels of the i-th set."""
        return np.flatnonzero(self.mask[i])

    def __repr__(self) -> str:
        size = f"{self.sizes.mean():.2f}" if len(self) else "nan"
        return f"PredictionSets({len(self)} nodes, {self.mask.shape[1]} classes, mean size {size})"

    def to_pandas(self) -> Any:
        """A DataFrame with columns id, labels and size."""
        pandas = require("pandas", "all")
        return pandas.DataFrame({"id": self.ids, "labels": self.labels(), "size": self.sizes})

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write columns id, labels (list<int32>) and size (int32), whole or not at all."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        offsets = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int32)
        values = np.nonzero(self.mask)[1].astype(np.int32)
        table = pa.table(
            {
                "id": pa.array(self.ids),
                "labels": pa.ListArray.from_arrays(pa.array(offsets), pa.array(values)),
                "size": pa.array(self.sizes.astype(np.int32)),
            }
        )
        with atomic_path(path) as temporary:
            pq.write_table(table, temporary)
