"""The commands, with a small synthetic graph for CoraML and a quick classifier for the GCN.

A program, for tests that kill runs: `python -m lab.tests.small reproduce table1 ...`, with
SNAPS_DATA set to a folder that `write_data` filled. The processes that a run starts import this
file as well, and so get the same graph and classifier.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np

from snaps.datasets import make_graph
from snaps.datasets.dataset import statistics
from snaps.datasets.registry import DATASETS
from snaps.models import smoothed_regression

DATA = make_graph(600, 3, num_features=200, seed=0)
SPEC = replace(DATASETS["cora_ml"], statistics=statistics(DATA), sha256=None)
SECONDS = 0.3  # that training takes, for a run to be killed meanwhile


def write_data(folder: Path) -> None:
    """Write the graph under CoraML's name, in the layout of the data manifest."""
    adjacency = DATA.graph.adjacency
    np.savez(
        folder / "cora_ml.npz", adj_indptr=adjacency.indptr, adj_indices=adjacency.indices,
        x=DATA.graph.features.toarray(), y=DATA.labels,
    )  # fmt: skip


def train(model, graph, labels, training, validation, *, num_classes, seed):
    """Logits of the quick classifier, in the form of `snaps_lab.models.gnn.train`."""
    time.sleep(SECONDS)
    probs = smoothed_regression(graph, labels, training, num_classes=num_classes)
    return SimpleNamespace(logits=np.log(probs + 1e-9), epochs=1)


# In place of the module, which would import torch for seconds.
GNN = ModuleType("snaps_lab.models.gnn")
GNN.train = train

if __name__ in ("__main__", "__mp_main__"):
    DATASETS["cora_ml"] = SPEC
    sys.modules["snaps_lab.models.gnn"] = GNN

if __name__ == "__main__":
    from snaps.cli import main

    main()
