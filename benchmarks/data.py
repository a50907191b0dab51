"""Real graphs for the benchmarks, read from the folder in SNAPS_DATA."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from snaps.graph import Graph, graph_from_arrays
from snaps.io.files import read_npz


def load_graph(data_dir: Path, name: str) -> tuple[Graph, np.ndarray]:
    """A graph with binary features, and its labels."""
    arrays = read_npz(data_dir / f"{name}.npz")
    if "x_data" in arrays:
        arrays["x_data"] = np.ones_like(arrays["x_data"])
    return graph_from_arrays(arrays, name), arrays["y"]
