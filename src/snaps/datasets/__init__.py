"""Graphs with labels: those of the paper by name, and synthetic ones."""

from snaps.datasets.dataset import Dataset
from snaps.datasets.load import fetch, load, verify
from snaps.datasets.registry import DATASETS
from snaps.datasets.synthetic import make_graph


def names() -> list[str]:
    """The names that `load` takes.

    Examples
    --------
    >>> names()[:3]
    ['cora_ml', 'pubmed', 'citeseer']
    """
    return list(DATASETS)


__all__ = ["Dataset", "fetch", "load", "make_graph", "names", "verify"]
