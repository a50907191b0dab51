"""`Dataset`: a graph and the labels that the graph itself must not know."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from snaps.graph import Graph


# Without eq=False two data sets would be compared array by array, which raises.
@dataclass(frozen=True, eq=False)
class Dataset:
    """A named graph with one label a node, -1 where unknown.

    Examples
    --------
    >>> data = Dataset("pair", Graph([[0], [1]]), np.array([0, 1]))
    >>> data
    Dataset(name='pair', graph=Graph(2 nodes, 1 edges, no features))
    >>> data.num_classes
    2
    """

    name: str
    graph: Graph
    labels: np.ndarray = field(repr=False)

    @property
    def num_classes(self) -> int:
        """One more than the largest label."""
        return int(self.labels.max()) + 1
