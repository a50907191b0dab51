"""Train the paper's node classifiers, or your own, and get the logits of every node."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from snaps._checks import (
    check_disjoint,
    check_integer,
    check_known,
    check_labels,
    check_nodes,
    check_seed,
    to_numpy,
)
from snaps._checks.named import align
from snaps.errors import SnapsError
from snaps.graph import Graph
from snaps_lab.models.fsgnn import FSGNN
from snaps_lab.models.networks import APPNP, GAT, GCN, MLP, Network, Wrapped, features_of
from snaps_lab.models.sampling import FANOUTS, Batch, Sampler
from snaps_lab.models.training import Losses, fit, load_weights, save_weights, seeded, threads_set

__all__ = [
    "PAPER",
    "Settings",
    "TrainingResult",
    "build",
    "embed",
    "load_weights",
    "predict",
    "save_weights",
    "train",
]


@dataclass(frozen=True)
class Settings:
    """A model and how it is trained.

    Parameters
    ----------
    network : callable
        Called as `network(num_features, num_classes, **options)`. Gives a `Network`, or any module
        that maps `(x, edge_index)` to the logits of all nodes, as in PyTorch Geometric.
    options : mapping
        Its keyword arguments.
    learning_rate, weight_decay : float
        Of Adam.
    parts : mapping
        Options of Adam for parts of the network, by their names, in place of these two:
        `{"attention": {"lr": 0.04, "weight_decay": 0.1}}`.
    max_epochs : int
        Most epochs.
    patience : int
        Stop after this many epochs, over the whole training, without a better validation loss.
    resets : bool
        Count these epochs from zero after each better validation loss.
    noisy_validation : bool
        Take the validation loss with dropout on, as the paper's authors do.

    Examples
    --------
    >>> Settings(GCN, {"hidden": 32}, weight_decay=1e-3).patience
    100
    """

    network: Callable[..., nn.Module]
    options: Mapping[str, Any] = field(default_factory=dict)
    learning_rate: float = 0.01
    weight_decay: float = 0.0
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    max_epochs: int = 10_000
    patience: int = 100
    resets: bool = False
    noisy_validation: bool = False


PAPER = {
    "gcn": Settings(GCN, {"dropout": 0.8}, weight_decay=1e-3),
    "gat": Settings(GAT, {"dropout": 0.6, "attention_dropout": 0.3}, weight_decay=1e-2),
    "appnp": Settings(APPNP, {"dropout": 0.5, "hops": 10, "teleport": 0.1}, weight_decay=1e-4),
    "mlp": Settings(MLP, {"dropout": 0.8}, weight_decay=1e-2),
    # The two OGBN graphs: a fixed number of epochs, of which the best is kept.
    "gcn-arxiv": Settings(
        GCN,
        {"hidden": 256, "layers": 3, "dropout": 0.5, "batch_norm": True},
        max_epochs=500,
        patience=500,
    ),
    "gcn-products": Settings(
        GCN, {"hidden": 256, "layers": 3, "dropout": 0.5}, max_epochs=300, patience=300
    ),
    "fsgnn-chameleon": Settings(
        FSGNN,
        {"dropout": 0.5},
        learning_rate=0.005,
        parts={"attention": {"weight_decay": 0.1}},
        max_epochs=1500,
        resets=True,
    ),
    "fsgnn-squirrel": Settings(
        FSGNN,
        {"dropout": 0.7},
        parts={"attention": {"lr": 0.04, "weight_decay": 0.1}, "last": {"weight_decay": 1e-3}},
        max_epochs=1500,
        resets=True,
    ),
}
"""The paper's models by name."""


@dataclass(frozen=True)
class TrainingResult:
    """What a training gives.

    Attributes
    ----------
    logits : ndarray (n, K), float32
        Of every node, from the weights with the least validation loss.
    epochs, best_epoch : int
        Steps taken, and steps after which the validation loss was least.
    valid_loss : float
        That loss.
    seconds : float
        Wall time.
    state_dict : dict
        Those weights.

    Examples
    --------
    >>> from snaps.datasets import make_graph
    >>> data = make_graph(300, 3, seed=0)
    >>> result = train("mlp", data.graph, data.labels, [0, 1, 2], [3, 4, 5], max_epochs=5)
    >>> result.epochs, result.logits.shape
    (5, (300, 3))
    """

    logits: np.ndarray
    epochs: int
    best_epoch: int
    valid_loss: float
    seconds: float
    state_dict: dict[str, Tensor]


def train(
    model: str | Settings | nn.Module,
    graph: Graph,
    labels: Any,
    train_nodes: Any,
    valid_nodes: Any,
    *,
    num_classes: int | None = None,
    seed: int = 0,
    max_epochs: int | None = None,
    patience: int | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    batch_size: int | None = None,
    fanouts: Sequence[int] = FANOUTS,
    threads: int = 1,
) -> TrainingResult:
    """Train a node classifier, full batch or not, with early stopping on the validation loss.

    Takes seconds on graphs of ten thousand nodes, with GAT up to a minute or so.

    Parameters
    ----------
    model : str, Settings or Module
        'gcn', 'gat', 'appnp' or 'mlp' with the paper's settings, 'gcn-arxiv', 'gcn-products',
        'fsgnn-chameleon', 'fsgnn-squirrel'; or your settings; or a module that maps
        `(x, edge_index)` to the logits of all nodes, as in PyTorch Geometric, which is then
        trained in place.
    graph : Graph
        With features. Sparse features stay sparse, except for a module of your own.
    labels : array (n,)
        Only those of `train_nodes` and `valid_nodes` are looked at; -1 where unknown.
    train_nodes, valid_nodes : array
        Positions or a boolean mask; no node in both.
    num_classes : int, optional
        One more than the largest label of any node by default.
    seed : int
        Of the first weights and of dropout. The same seed gives the same logits to the last bit on
        the same machine. Torch's own random state stays untouched.
    max_epochs, patience : int, optional
        In place of those of the settings.
    optimizer : Optimizer, optional
        For a module of your own; Adam with learning rate 0.01 by default.
    batch_size : int, optional
        Train on batches of so many nodes and their sampled neighbourhoods, where the full batch
        does not fit into memory. An epoch is then a pass over the training nodes, and validation
        reads sampled neighbourhoods as well, the same ones in each epoch; the final logits are
        exact. All nodes in one batch by default.
    fanouts : sequence of int
        Most neighbours to sample per node, hop by hop, as many hops as there are layers.
    threads : int
        Threads to use. One makes the result the same on every number of cores, and is best when
        anything else runs: a process a core for many trainings, more threads for a large graph.

    Returns
    -------
    TrainingResult

    Examples
    --------
    >>> from snaps.datasets import make_graph
    >>> data = make_graph(500, 3, seed=0)
    >>> nodes = np.arange(500)
    >>> result = train("gcn", data.graph, data.labels, nodes[:60], nodes[60:120], max_epochs=100)
    >>> bool((result.logits.argmax(axis=1) == data.labels)[120:].mean() > 0.8)
    True
    """
    began = time.perf_counter()
    seed = check_seed(seed)
    threads = check_integer(threads, "threads", low=1)
    labels = align(labels, graph, "labels")
    train_nodes = check_nodes(train_nodes, "train_nodes", num_nodes=graph.num_nodes)
    valid_nodes = check_nodes(valid_nodes, "valid_nodes", num_nodes=graph.num_nodes)
    check_disjoint(train_nodes, "train_nodes", valid_nodes, "'valid_nodes'")
    if num_classes is None:
        num_classes = max(2, int(to_numpy(labels, "labels").max(initial=0)) + 1)
    num_classes = check_integer(num_classes, "num_classes", low=2)
    labels = check_labels(labels, num_nodes=graph.num_nodes, num_classes=num_classes)
    check_known(labels, train_nodes, "train_nodes")
    check_known(labels, valid_nodes, "valid_nodes")
    settings = _settings(model)
    max_epochs = check_integer(
        settings.max_epochs if max_epochs is None else max_epochs, "max_epochs", low=1
    )
    patience = check_integer(settings.patience if patience is None else patience, "patience", low=1)

    with seeded(seed), threads_set(threads):
        module = build(settings, features_of(graph).shape[1], num_classes)
        parts = labels, train_nodes, valid_nodes, settings.noisy_validation
        if batch_size is None:
            losses = _losses(_network(module), graph, *parts)
        else:
            batch_size = _check_batch_size(batch_size, module)
            sampler = Sampler(graph, fanouts)
            losses = _sampled_losses(_network(module), sampler, *parts, batch_size, seed)
        if optimizer is None:
            optimizer = torch.optim.Adam(
                _groups(module, settings),
                lr=settings.learning_rate,
                weight_decay=settings.weight_decay,
                fused=True,  # eight times faster here than torch's default
            )
        outcome = fit(
            module, optimizer, losses,
            max_epochs=max_epochs, patience=patience, resets=settings.resets,
        )  # fmt: skip
        logits = predict(module, graph, threads=threads, by_layer=batch_size is not None)
    seconds = time.perf_counter() - began
    return TrainingResult(logits, *outcome, seconds, dict(module.state_dict()))


def build(model: str | Settings, num_features: int, num_classes: int) -> nn.Module:
    """Make a model with fresh weights, drawn from torch's random state.

    Examples
    --------
    >>> sum(p.numel() for p in build("mlp", 10, 3).parameters())
    899
    """
    settings = _settings(model)
    return settings.network(num_features, num_classes, **settings.options)


def predict(
    module: nn.Module, graph: Graph, *, threads: int = 1, by_layer: bool = False
) -> np.ndarray:
    """Logits of every node, (n, K) float32; leaves the module in evaluation mode.

    With `by_layer` a GCN is run layer by layer in blocks of nodes: less memory, other rounding.

    Examples
    --------
    >>> from snaps.datasets import make_graph
    >>> graph = make_graph(100, 3, seed=0).graph
    >>> predict(build("mlp", graph.features.shape[1], 3), graph).shape
    (100, 3)
    """
    network = _network(module)
    network.eval()
    with torch.no_grad(), threads_set(threads):
        logits: np.ndarray = (network.infer(graph) if by_layer else network(graph)).numpy()
    return logits


def embed(module: nn.Module, graph: Graph, *, threads: int = 1) -> np.ndarray:
    """Embeddings of every node, (n, d) float32: what the last layer of an FSGNN reads.

    Examples
    --------
    >>> from snaps.datasets import make_graph
    >>> graph = make_graph(100, 3, seed=0).graph
    >>> embed(build("fsgnn-chameleon", graph.features.shape[1], 3), graph).shape
    (100, 448)
    """
    if not isinstance(module, FSGNN):
        raise SnapsError(f"'module' must be an FSGNN, got {type(module).__name__}")
    with torch.no_grad(), threads_set(threads):
        embeddings: np.ndarray = module.embed(graph).numpy()
    return embeddings


def _groups(module: nn.Module, settings: Settings) -> list[dict[str, Any]]:
    """The parameters as Adam wants them: those of each named part, and the rest."""
    names = {name.split(".")[0] for name, _ in module.named_parameters()}
    unknown = sorted(set(settings.parts) - names)
    if unknown:
        known = ", ".join(sorted(names))
        raise SnapsError(f"'parts' must be among the network's {known}, got {unknown[0]!r}")
    groups: dict[str, dict[str, Any]] = {"": {"params": []}}
    groups |= {name: {"params": [], **options} for name, options in settings.parts.items()}
    for name, parameter in module.named_parameters():
        part = name.split(".")[0]
        groups[part if part in groups else ""]["params"].append(parameter)
    return list(groups.values())


def _settings(model: str | Settings | nn.Module) -> Settings:
    if isinstance(model, Settings):
        return model
    if isinstance(model, nn.Module):
        return Settings(lambda num_features, num_classes: model)
    if model not in PAPER:
        raise SnapsError(f"'model' must be one of {', '.join(PAPER)}, got {model!r}")
    return PAPER[model]


def _network(module: nn.Module) -> Network:
    return module if isinstance(module, Network) else Wrapped(module)


def _losses(
    network: Network,
    graph: Graph,
    labels: np.ndarray,
    train_nodes: np.ndarray,
    valid_nodes: np.ndarray,
    noisy: bool,
) -> Losses:
    """Cross-entropy on the training nodes with dropout, and on the validation nodes without.

    Unless it is to be `noisy`.
    """
    shared, (train_view, valid_view) = network.prepare(graph, [train_nodes, valid_nodes])
    train_labels = torch.from_numpy(labels[train_nodes])
    valid_labels = torch.from_numpy(labels[valid_nodes])

    def losses() -> tuple[list[Tensor], Tensor]:
        hidden = network.start(shared)
        network.train(noisy)
        with torch.no_grad():
            valid_loss = F.cross_entropy(network.finish(hidden, valid_view), valid_labels)
        network.train()
        train_loss = F.cross_entropy(network.finish(hidden, train_view), train_labels)
        return [train_loss], valid_loss

    return losses


def _check_batch_size(batch_size: int, module: nn.Module) -> int:
    batch_size = check_integer(batch_size, "batch_size", low=1)
    if isinstance(module, FSGNN):
        raise SnapsError(
            f"'batch_size' must be None for an FSGNN, which reads the whole graph, got {batch_size}"
        )
    return batch_size


def _sampled_losses(
    network: Network,
    sampler: Sampler,
    labels: np.ndarray,
    train_nodes: np.ndarray,
    valid_nodes: np.ndarray,
    noisy: bool,
    batch_size: int,
    seed: int,
) -> Losses:
    """The same on sampled neighbourhoods: a training loss per batch."""
    rng = np.random.default_rng([seed, 0])

    def loss(batch: Batch) -> Tensor:
        shared, (view,) = network.prepare(batch.graph, [batch.seeds])
        targets = torch.from_numpy(labels[batch.nodes[batch.seeds]])
        return F.cross_entropy(network.finish(network.start(shared), view), targets)

    def train_losses() -> Iterator[Tensor]:
        network.train()
        for batch in sampler.batches(train_nodes, batch_size, rng):
            yield loss(batch)

    def losses() -> tuple[Iterator[Tensor], Tensor]:
        network.train(noisy)
        same = np.random.default_rng([seed, 1])
        valid_loss = torch.zeros(())
        with torch.no_grad():
            for batch in sampler.batches(valid_nodes, batch_size, same):
                valid_loss += loss(batch) * (len(batch.seeds) / len(valid_nodes))
        return train_losses(), valid_loss

    return losses
