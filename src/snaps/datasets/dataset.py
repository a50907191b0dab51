"""`Dataset`: a graph and the labels that the graph itself must not know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from snaps.graph import Graph


# Without eq=False two data sets would be compared array by array, which raises.
@dataclass(frozen=True, eq=False)
class Dataset:
    """A named graph with one label a node, -1 where unknown.

    Attributes
    ----------
    name : str
    graph : Graph
    labels : ndarray (n,)
    splits : mapping of str to ndarray
        Public splits, if there are any: "train", "valid" and "test" hold node positions;
        "geom_gcn" (10, n) holds ten splits as codes: 1 train, 2 valid, 3 test, 0 unused.
    notes : tuple of str
        What a table of results on this data must say, such as features that are a surrogate.
    directed_edges : ndarray (2, E) or None
        The original directed edges with their self loops, where these are known; `graph` links
        both ways.

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
    splits: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = field(default=(), repr=False)
    directed_edges: np.ndarray | None = field(default=None, repr=False)

    @property
    def num_classes(self) -> int:
        """One more than the largest label."""
        return int(self.labels.max()) + 1
