"""Graphs with labels to try things on."""

from snaps.datasets.dataset import Dataset
from snaps.datasets.synthetic import make_graph

__all__ = ["Dataset", "make_graph"]
