"""Training of GCN, GAT and APPNP, against PyTorch Geometric's own layers.

The same data, epochs, optimiser, dropout and stopping rule (the best of all epochs is kept), one
thread each. Their models are given the dense features, and a pass over all nodes for the training
loss and one for the validation loss; ours read sparse features and the neighbourhood of the loss.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.data import load_graph
from snaps.graph import Graph
from snaps.models import gnn

GRAPHS = ("cora_ml", "coauthor_cs")
EPOCHS = 50
SEEDS = 3
NODES_A_CLASS = 20


class GCN(nn.Module):
    """Two of PyTorch Geometric's convolutions."""

    def __init__(self, num_features: int, num_classes: int, *, dropout: float) -> None:
        from torch_geometric.nn import GCNConv

        super().__init__()
        self.dropout = dropout
        self.first = GCNConv(num_features, 64, cached=True)
        self.last = GCNConv(64, num_classes, cached=True)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Logits of all nodes."""
        hidden = F.dropout(self.first(x, edges).relu(), self.dropout, self.training)
        return self.last(hidden, edges)


class GAT(nn.Module):
    """Two of its attention layers, of eight heads and one."""

    def __init__(
        self, num_features: int, num_classes: int, *, dropout: float, attention_dropout: float
    ) -> None:
        from torch_geometric.nn import GATConv

        super().__init__()
        self.dropout = dropout
        self.first = GATConv(num_features, 64, heads=8, dropout=attention_dropout)
        self.last = GATConv(512, num_classes)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Logits of all nodes."""
        hidden = F.dropout(F.elu(self.first(x, edges)), self.dropout, self.training)
        return self.last(hidden, edges)


class APPNP(nn.Module):
    """Two linear layers and its propagation."""

    def __init__(
        self, num_features: int, num_classes: int, *, dropout: float, hops: int, teleport: float
    ) -> None:
        from torch_geometric.nn import APPNP as Propagation

        super().__init__()
        self.dropout = dropout
        self.first = nn.Linear(num_features, 64, bias=False)
        self.last = nn.Linear(64, num_classes, bias=False)
        self.walk = Propagation(K=hops, alpha=teleport, cached=True)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Logits of all nodes."""
        hidden = F.dropout(self.first(x).relu(), self.dropout, self.training)
        return self.walk(self.last(hidden), edges)


THEIRS: dict[str, Callable[..., nn.Module]] = {"gcn": GCN, "gat": GAT, "appnp": APPNP}


def run(data_dir: Path) -> list[dict[str, float | str]]:
    """One row per graph and model: milliseconds per epoch, their ratio, and both accuracies."""
    rows: list[dict[str, float | str]] = []
    for name in GRAPHS:
        if not (data_dir / f"{name}.npz").is_file():
            print(f"skipped {name}: {name}.npz is not in {data_dir}", file=sys.stderr)
            continue
        graph, labels = load_graph(data_dir, name)
        for model, network in THEIRS.items():
            ours = gnn.PAPER[model]
            theirs = gnn.Settings(
                network, ours.options, ours.learning_rate, weight_decay=ours.weight_decay
            )
            _train(ours, graph, labels, seed=0, epochs=2)  # compiles, or loads what was
            _train(theirs, graph, labels, seed=0, epochs=2)
            found = np.array(
                [
                    [_train(settings, graph, labels, seed, EPOCHS) for settings in (ours, theirs)]
                    for seed in range(SEEDS)
                ]
            )
            seconds, accuracy = found[..., 0].min(axis=0), 100 * found[..., 1]
            spread = accuracy.std(axis=0, ddof=1)
            rows.append(
                {
                    "graph": name,
                    "model": model.upper(),
                    "snaps ms/epoch": 1000 * seconds[0] / EPOCHS,
                    "PyG ms/epoch": 1000 * seconds[1] / EPOCHS,
                    "PyG / snaps": seconds[1] / seconds[0],
                    "snaps accuracy %": f"{accuracy[:, 0].mean():.1f} ± {spread[0]:.1f}",
                    "PyG accuracy %": f"{accuracy[:, 1].mean():.1f} ± {spread[1]:.1f}",
                }
            )
    return rows


def available() -> bool:
    """Whether there is something to compare with."""
    return importlib.util.find_spec("torch_geometric") is not None


def _train(
    settings: gnn.Settings, graph: Graph, labels: np.ndarray, seed: int, epochs: int
) -> tuple[float, float]:
    """Seconds of a training, and the accuracy on all other nodes."""
    order = np.random.default_rng(seed).permutation(graph.num_nodes)
    by_class = [order[labels[order] == y] for y in range(labels.max() + 1)]
    train = np.concatenate([nodes[:NODES_A_CLASS] for nodes in by_class])
    valid = np.concatenate([nodes[NODES_A_CLASS : 2 * NODES_A_CLASS] for nodes in by_class])
    torch.manual_seed(seed)
    result = gnn.train(
        settings, graph, labels, train, valid, seed=seed, max_epochs=epochs, patience=epochs + 1
    )
    rest = np.setdiff1d(order, np.concatenate([train, valid]))
    hit = result.logits.argmax(axis=1)[rest] == labels[rest]
    return result.seconds, float(hit.mean())
