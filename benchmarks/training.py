"""Training of GCN, GAT and APPNP, against PyTorch Geometric's own layers.

The same data, epochs, optimiser and dropout, the best epoch kept, one thread each. Theirs are
given the features as torch's CSR, which is faster here than dense, and run over all nodes once for
the training loss and once for the validation loss, as their users do.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric import nn as pyg

from benchmarks.data import load_graph
from snaps.graph import Graph
from snaps_lab.models import gnn

EPOCHS = {"cora_ml": 50, "coauthor_cs": 20}
SEEDS = 3
NODES_A_CLASS = 20


class GCN(nn.Module):
    """Two of PyTorch Geometric's convolutions."""

    def __init__(self, num_features: int, num_classes: int, *, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.first = pyg.GCNConv(num_features, 64, cached=True)
        self.last = pyg.GCNConv(64, num_classes, cached=True)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Logits of all nodes."""
        hidden = F.dropout(self.first(x, edges).relu(), self.dropout, self.training)
        return self.last(hidden, edges)


class GAT(nn.Module):
    """Two of its attention layers, of eight heads and one."""

    def __init__(
        self, num_features: int, num_classes: int, *, dropout: float, attention_dropout: float
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.first = pyg.GATConv(num_features, 64, heads=8, dropout=attention_dropout)
        self.last = pyg.GATConv(512, num_classes)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Logits of all nodes."""
        hidden = F.dropout(F.elu(self.first(x, edges)), self.dropout, self.training)
        return self.last(hidden, edges)


class APPNP(nn.Module):
    """Two linear layers and its propagation."""

    def __init__(
        self, num_features: int, num_classes: int, *, dropout: float, hops: int, teleport: float
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.first = nn.Linear(num_features, 64, bias=False)
        self.last = nn.Linear(64, num_classes, bias=False)
        self.walk = pyg.APPNP(K=hops, alpha=teleport, cached=True)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Logits of all nodes."""
        hidden = F.dropout(self.first(x).relu(), self.dropout, self.training)
        return self.walk(self.last(hidden), edges)


class OnSparse(nn.Module):
    """A model that reads sparse features, whatever it is given."""

    def __init__(self, model: nn.Module, features: Tensor) -> None:
        super().__init__()
        self.model, self.features = model, features

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Logits of all nodes."""
        return self.model(self.features, edges)


THEIRS: dict[str, Callable[..., nn.Module]] = {"gcn": GCN, "gat": GAT, "appnp": APPNP}


def run(data_dir: Path) -> list[dict[str, float | str]]:
    """One row per graph and model: seconds of both, their ratio, and both accuracies."""
    rows: list[dict[str, float | str]] = []
    for name, epochs in EPOCHS.items():
        if not (data_dir / f"{name}.npz").is_file():
            print(f"skipped {name}: {name}.npz is not in {data_dir}", file=sys.stderr)
            continue
        graph, labels = load_graph(data_dir, name)
        bare = Graph(graph.adjacency, np.zeros((graph.num_nodes, 1)))
        for model in THEIRS:
            ours = (gnn.PAPER[model], graph)
            theirs = (_theirs(model, graph, int(labels.max()) + 1), bare)
            _train(*ours, labels, seed=0, epochs=1)  # compiles, or loads what was
            found = np.array(
                [
                    [_train(*each, labels, seed, epochs) for each in (ours, theirs)]
                    for seed in range(SEEDS)
                ]
            )
            seconds, accuracy = found[..., 0].min(axis=0), 100 * found[..., 1]
            spread = accuracy.std(axis=0, ddof=1)
            rows.append(
                {
                    "graph": name,
                    "model": model.upper(),
                    "epochs": str(epochs),
                    "snaps s": seconds[0],
                    "PyG s": seconds[1],
                    "PyG / snaps": seconds[1] / seconds[0],
                    "snaps accuracy %": f"{accuracy[:, 0].mean():.1f} ± {spread[0]:.1f}",
                    "PyG accuracy %": f"{accuracy[:, 1].mean():.1f} ± {spread[1]:.1f}",
                }
            )
    return rows


def _theirs(model: str, graph: Graph, num_classes: int) -> gnn.Settings:
    """PyTorch Geometric's model with our settings, which takes a graph without features."""
    ours, features = gnn.PAPER[model], sp.csr_array(graph.features, dtype=np.float32)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        table = torch.sparse_csr_tensor(
            features.indptr,
            features.indices,
            features.data,
            features.shape,
            check_invariants=False,
        )

    def network(*_: int, **options: float) -> nn.Module:
        return OnSparse(THEIRS[model](features.shape[1], num_classes, **options), table)

    return gnn.Settings(network, ours.options, ours.learning_rate, ours.weight_decay)


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
