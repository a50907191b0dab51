"""What tests of several folders share."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import snaps
from snaps import similarity
from snaps.models import smoothed_regression
from snaps.search import small
from tests.helpers.papers import CLASSES


@pytest.fixture(scope="session")
def papers():
    """A graph of papers as arrays in order, and as a user of pandas has it: in any order."""
    data = snaps.datasets.make_graph(600, 4, seed=1)
    ids = np.array([f"paper-{(7 * i) % 600:05}" for i in range(600)])
    probs = smoothed_regression(data.graph, data.labels, np.arange(60))
    graph = snaps.Graph(data.graph.adjacency, data.graph.features, ids=ids)
    frame = pd.DataFrame(probs, index=ids, columns=CLASSES)[["DB", "DM", "AI", "IR"]]
    frame = frame.sample(frac=1, random_state=1)
    labels = pd.Series(CLASSES[data.labels], index=ids).sample(frac=1, random_state=2)
    role = pd.Series(["train"] * 60 + ["calib"] * 200 + ["test"] * 340, index=ids)
    role = role.sample(frac=1, random_state=3)
    return graph, probs, CLASSES[data.labels], frame, labels, role


@pytest.fixture
def both_paths(monkeypatch):
    """Run a function on the sparse path and on the dense one, both compiled."""
    monkeypatch.setattr(small, "MOST_NODES", -1)

    def run(function):
        out = []
        for cost in (0.0, 1e300):
            monkeypatch.setattr(similarity, "STEP_COST", cost)
            out.append(function())
        return out

    return run
