"""Small graphs, files of them, and the command."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import snaps.cli
from snaps import SnapsError
from snaps.datasets.registry import Statistics


def error_line(function, *arguments, **options) -> str:
    """The one line of the error that a call raises."""
    with pytest.raises(SnapsError) as caught:
        function(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def command(capsys, *arguments) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as left:
        snaps.cli.main(["datasets", *arguments])
    output = capsys.readouterr()
    return left.value.code, output.out, output.err


class Small:
    """A random directed graph with repeated entries, self loops, counted words and labels."""

    def __init__(self, n: int = 60, d: int = 12, classes: int = 3, seed: int = 0):
        rng = np.random.default_rng(seed)
        self.labels = np.arange(n) % classes
        self.words = rng.poisson(0.3, size=(n, d)).astype(np.float32)
        self.words[0, -1] = 2  # the formats that list words know no other number of columns
        self.words[np.arange(n), rng.integers(d, size=n)] += 1
        pairs = {tuple(pair) for pair in rng.integers(n, size=(4 * n, 2))}
        self.edges = np.array(sorted(pairs | {(3, 3)})).T
        self.dense = rng.normal(size=(n, d)).astype(np.float32)

    def links(self) -> set[tuple[int, int]]:
        """Both directions of every edge, without self loops."""
        pairs = {(int(a), int(b)) for a, b in self.edges.T if a != b}
        return pairs | {(b, a) for a, b in pairs}

    def statistics(self, edges: int | None = None) -> Statistics:
        links = self.links()
        equal = sum(self.labels[a] == self.labels[b] for a, b in links)
        return Statistics(
            nodes=len(self.labels),
            features=self.words.shape[1],
            edges=len(links) if edges is None else edges,
            classes=len(set(self.labels.tolist())),
            homophily=equal / len(links),
        )

    def manifest(self) -> dict[str, np.ndarray]:
        """The arrays of the data manifest's layout."""
        n = len(self.labels)
        source, target = np.array(sorted(self.links())).T
        adjacency = sp.csr_array((np.ones(len(source)), (source, target)), shape=(n, n))
        table = sp.csr_array(self.words)
        return {
            "adj_indptr": adjacency.indptr,
            "adj_indices": adjacency.indices,
            "x_data": table.data,
            "x_indices": table.indices,
            "x_indptr": table.indptr,
            "x_shape": np.array(table.shape),
            "y": self.labels,
        }


def put(folder, name: str, arrays: dict[str, np.ndarray]):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.npz"
    np.savez_compressed(path, **arrays)
    return path


def assert_is(data, small: Small, features: np.ndarray) -> None:
    n = len(small.labels)
    expected = np.zeros((n, n))
    for a, b in small.links():
        expected[a, b] = 1
    np.testing.assert_array_equal(data.graph.adjacency.toarray(), expected)
    table = data.graph.features
    np.testing.assert_array_equal(table.toarray() if sp.issparse(table) else table, features)
    np.testing.assert_array_equal(data.labels, small.labels)
