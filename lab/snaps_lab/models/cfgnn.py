"""CF-GNN (Huang et al., NeurIPS 2023): a graph network that corrects a classifier's probabilities.

The network reads the classifier's class probabilities and the edges, and gives new logits. It is
trained with cross-entropy first, then with cross-entropy + weight x inefficiency. The inefficiency
is the size of the prediction sets, made soft: a label's score is one minus its probability, the
threshold is the quantile of the true labels' scores on one half of the correction nodes, and a
label of the other half counts sigmoid((threshold - score) / temperature).

The quantile is an interpolated order statistic, as `torch.quantile` gives it, at rank
(1 - alpha)(n + 1): its gradient reaches the two nodes whose scores stand there.

Correction nodes are spent: use them neither for calibration nor for prediction afterwards. No other
label is read, so that what is left of the pool stays exchangeable.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from snaps._checks import (
    check_alpha,
    check_disjoint,
    check_flag,
    check_integer,
    check_known,
    check_labels,
    check_nodes,
    check_number,
    check_probs,
    check_seed,
    shown,
)
from snaps._checks.named import align, align_table, class_order
from snaps._runtime.randomness import CORRECTION_STREAM, smallest
from snaps.conformal.calibration import Calibration
from snaps.conformal.rank import fewest_nodes
from snaps.errors import SnapsError
from snaps.graph import Graph
from snaps.scores import APS, score_table
from snaps_lab.models.gnn import predict
from snaps_lab.models.networks import Corrector
from snaps_lab.models.training import Losses, fit, seeded, threads_set

__all__ = ["AUTHORS", "CorrectionResult", "Settings", "correct", "inefficiency", "soft_quantile"]


@dataclass(frozen=True)
class Settings:
    """A correction network and how it is trained.

    Parameters
    ----------
    layer : 'gcn' or 'gat'
        Graph convolutions, or attention with one head.
    layers, hidden : int
        How many layers, and the width between them.
    learning_rate, weight_decay : float
        Of Adam.
    dropout : float
        Before each layer.
    residual : bool
        Let the network add to the classifier's log-probabilities. The authors' own network makes
        logits from scratch, which takes many more epochs and labels.
    temperature : float
        Of the soft sets; the smaller, the closer to real sets and the rougher the gradient.
    target : int
        A soft set up to this size costs nothing.
    weight : float
        Of the inefficiency, relative to the cross-entropy.
    warm_up : int
        Epochs of cross-entropy alone.
    max_epochs : int
        Most epochs, warm-up included.
    patience : int
        Stop after this many epochs, over the whole training, without smaller sets.

    Examples
    --------
    >>> Settings(layer="gat", layers=2, hidden=64).temperature
    0.1
    """

    layer: Literal["gcn", "gat"] = "gcn"
    layers: int = 2
    hidden: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 5e-4
    dropout: float = 0.5
    residual: bool = True
    temperature: float = 0.1
    target: int = 1
    weight: float = 1.0
    warm_up: int = 1000
    max_epochs: int = 5000
    patience: int = 5000

    def validate(self) -> None:
        """Raise SnapsError if a parameter is wrong.

        Examples
        --------
        >>> Settings(hidden=0).validate()
        Traceback (most recent call last):
            ...
        snaps.errors.SnapsError: 'hidden' must be an integer of at least 1, got 0
        """
        if self.layer not in ("gcn", "gat"):
            raise SnapsError(f"'layer' must be 'gcn' or 'gat', got {shown(self.layer)}")
        for name in ("layers", "hidden", "max_epochs", "patience"):
            check_integer(getattr(self, name), name, low=1)
        for name in ("target", "warm_up"):
            check_integer(getattr(self, name), name, low=0)
        for name in ("learning_rate", "temperature"):
            if check_number(getattr(self, name), name, low=0) == 0:
                raise SnapsError(f"'{name}' must be above 0, got 0")
        for name in ("weight_decay", "weight"):
            check_number(getattr(self, name), name, low=0)
        check_number(self.dropout, "dropout", low=0, high=0.99)
        check_flag(self.residual, "residual")


AUTHORS = {
    "cora_ml": Settings("gat", 2, 64, 1e-4, residual=False, temperature=1.0, target=1, weight=0.1),
    "citeseer": Settings(
        "gcn", 3, 256, 1e-3, residual=False, temperature=1e-3, target=0, weight=1.0
    ),
    "pubmed": Settings("gat", 3, 128, 0.1, residual=False, temperature=1e-3, target=1, weight=1e-3),
}
"""What the authors of CF-GNN found for three graphs; they pass the classifier's `train_nodes`."""


@dataclass(frozen=True)
class CorrectionResult:
    """What a correction gives.

    Attributes
    ----------
    logits : ndarray (n, K), float32
        Of every node, from the weights of `best_epoch`.
    probs : ndarray (n, K), float64
        Their softmax.
    nodes : ndarray
        The correction nodes, which are spent.
    epochs, best_epoch : int
        Steps taken, and steps after which the sets were smallest.
    curve : dict of ndarray (epochs + 1,)
        Before each step and after the last, without dropout: `inefficiency`, the soft one that is
        trained; `size`, of the APS sets that choose the checkpoint; `cross_entropy`.
    seconds, cpu_seconds : float
        Wall and processor time.

    Examples
    --------
    >>> from snaps.datasets import make_graph
    >>> from snaps.models import smoothed_regression
    >>> data = make_graph(300, 3, seed=0)
    >>> probs = smoothed_regression(data.graph, data.labels, np.arange(30))
    >>> quick = Settings(warm_up=5, max_epochs=10)
    >>> result = correct(data.graph, probs, data.labels, np.arange(30, 130), 0.1, quick)
    >>> result.epochs, result.probs.shape
    (10, (300, 3))
    """

    logits: np.ndarray
    probs: np.ndarray
    nodes: np.ndarray
    epochs: int
    best_epoch: int
    curve: dict[str, np.ndarray]
    seconds: float
    cpu_seconds: float


def correct(
    graph: Graph,
    probs: Any,
    labels: Any,
    correction_nodes: Any,
    alpha: float | Fraction,
    settings: Settings | None = None,
    *,
    train_nodes: Any = None,
    seed: int = 0,
    logits: bool = False,
    threads: int = 1,
) -> CorrectionResult:
    """Train a correction of a classifier's probabilities that makes prediction sets smaller.

    Takes seconds on a few thousand nodes, up to a minute on twenty thousand.

    Parameters
    ----------
    graph : Graph
        Its edges alone are read.
    probs : array (n, K)
        The classifier's probabilities of every node, or logits with ``logits=True``.
    labels : int array (n,)
        Only those of `correction_nodes` and `train_nodes` are read; -1 where unknown.
    correction_nodes : array of positions, or mask (n,)
        Labelled nodes to train on: about half of the calibration nodes, drawn at random. A
        seeded half of them gives the quantile, the other half the sizes.
    alpha : float
        The level the sets are made small for.
    settings : Settings, optional
        See `AUTHORS` for those of three graphs.
    train_nodes : array of positions, or mask (n,), optional
        Nodes for the cross-entropy, such as those that trained the classifier; by default the half
        of the correction nodes that gives the quantile, which the classifier has not seen.
    seed : int
        Of the halves, the first weights and dropout.
    threads : int
        See `snaps_lab.models.gnn.train`.

    Returns
    -------
    CorrectionResult

    Notes
    -----
    The labels of the second half take no part in the loss. They choose the checkpoint: the one
    with the smallest APS sets on that half, at the threshold that these labels set.

    Examples
    --------
    >>> from snaps.datasets import make_graph
    >>> import snaps
    >>> data = make_graph(500, 3, seed=0)
    >>> probs = snaps.models.smoothed_regression(data.graph, data.labels, np.arange(60))
    >>> found = correct(data.graph, probs, data.labels, np.arange(60, 160), 0.1,
    ...                 Settings(warm_up=20, max_epochs=40))
    >>> aps = snaps.SplitConformal(0.1, score=snaps.APS())
    >>> sets = aps.calibrate(data.graph, found.probs, data.labels, np.arange(160, 260))
    """
    wall, processor = time.perf_counter(), time.process_time()
    settings = Settings() if settings is None else settings
    if not isinstance(settings, Settings):
        raise SnapsError(f"'settings' must be cfgnn.Settings, got {shown(settings)}")
    settings.validate()
    level, seed = check_alpha(alpha), check_seed(seed)
    threads = check_integer(threads, "threads", low=1)
    if not isinstance(graph, Graph):
        raise SnapsError(f"'graph' must be a snaps.Graph, got {type(graph).__name__}")
    probs, classes = class_order(probs, labels, None)
    probs, labels = align_table(probs, graph, classes), align(labels, graph, "labels")
    table = check_probs(probs, num_nodes=graph.num_nodes, logits=check_flag(logits, "logits"))
    n, num_classes = table.shape
    known = check_labels(labels, num_nodes=n, num_classes=num_classes)
    nodes = check_nodes(correction_nodes, "correction_nodes", num_nodes=n)
    check_known(known, nodes, "correction_nodes")
    trained = np.empty(0, np.int64)
    if train_nodes is not None:
        trained = check_nodes(train_nodes, "train_nodes", num_nodes=n)
        check_known(known, trained, "train_nodes")
        check_disjoint(trained, "train_nodes", nodes, "'correction_nodes'")
    fewest = 2 * fewest_nodes(level)
    if len(nodes) < fewest:
        raise SnapsError(
            f"'correction_nodes' must hold at least {fewest} nodes for "
            f"alpha={float(level):g}, got {len(nodes)}"
        )

    chosen = smallest(seed, graph.keys[nodes], CORRECTION_STREAM, len(nodes) // 2)
    halves = _Halves(nodes[chosen], np.delete(nodes, chosen))
    inputs = Graph(graph.adjacency, table, directed=graph.directed, self_loops=True, ids=graph.ids)
    with seeded(seed), threads_set(threads):
        network = Corrector(
            num_classes,
            num_classes,
            attention=settings.layer == "gat",
            hidden=settings.hidden,
            layers=settings.layers,
            dropout=settings.dropout,
            residual=settings.residual,
        )
        losses, curve = _losses(network, inputs, known, halves, trained, level, settings, seed)
        optimizer = torch.optim.Adam(
            network.parameters(),
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        outcome = fit(
            network,
            optimizer,
            losses,
            max_epochs=settings.max_epochs,
            patience=settings.patience,
        )
        corrected = predict(network, inputs, threads=threads)
    return CorrectionResult(
        corrected,
        check_probs(corrected, logits=True),
        nodes,
        outcome.epochs,
        outcome.best_epoch,
        {name: np.array(values) for name, values in curve.items()},
        time.perf_counter() - wall,
        time.process_time() - processor,
    )


class _Halves(NamedTuple):
    """Correction nodes by what they are for."""

    quantile: np.ndarray
    size: np.ndarray


def _losses(
    network: Corrector,
    graph: Graph,
    labels: np.ndarray,
    halves: _Halves,
    trained: np.ndarray,
    alpha: Fraction,
    settings: Settings,
    seed: int,
) -> tuple[Losses, dict[str, list[float]]]:
    """The losses that `fit` asks for, and the curve that they write."""
    nodes = np.concatenate([*halves, trained])
    shared, (view,) = network.prepare(graph, [nodes])
    first, both = len(halves.quantile), len(halves.quantile) + len(halves.size)
    learnt = np.arange(both, len(nodes)) if len(trained) else np.arange(first)
    positions = torch.from_numpy(learnt)
    targets = torch.from_numpy(labels[nodes[learnt]])
    own = torch.from_numpy(labels[halves.quantile])
    keys, held_out = graph.keys[halves.size], labels[halves.size]
    curve: dict[str, list[float]] = {"inefficiency": [], "size": [], "cross_entropy": []}

    def parts() -> tuple[Tensor, Tensor, Tensor]:
        logits = network.finish(network.start(shared), view)
        probs = F.softmax(logits, dim=1)
        true = probs[:first].gather(1, own[:, None])[:, 0]
        soft = inefficiency(true, probs[first:both], alpha, settings.temperature, settings.target)
        return F.cross_entropy(logits[positions], targets), soft, probs

    def losses() -> tuple[list[Tensor], Tensor]:
        network.eval()
        with torch.no_grad():
            entropy, soft, probs = parts()
        size = _aps_size(probs[first:both].double().numpy(), keys, held_out, alpha, seed)
        for values, value in zip(curve.values(), (float(soft), size, float(entropy)), strict=True):
            values.append(value)
        network.train()
        entropy, soft, _ = parts()
        warmed_up = len(curve["size"]) > settings.warm_up
        loss = entropy + settings.weight * soft if warmed_up else entropy
        return [loss], torch.tensor(size)

    return losses, curve


def _aps_size(
    probs: np.ndarray, keys: np.ndarray, labels: np.ndarray, alpha: Fraction, seed: int
) -> float:
    """Mean size of some nodes' APS sets, at the threshold that their labels set."""
    scores = score_table(APS(), probs / probs.sum(axis=1, keepdims=True), keys, seed)
    own = scores[np.arange(len(labels)), labels]
    limit = Calibration(own, labels, scores.shape[1]).threshold(alpha)
    return float((scores <= limit).sum(axis=1).mean())


def inefficiency(
    true: Tensor, probs: Tensor, alpha: float | Fraction, temperature: float, target: float = 0.0
) -> Tensor:
    """Mean soft size of the sets, beyond a target.

    Parameters
    ----------
    true : Tensor (n,)
        Probabilities of the true labels of the nodes that give the quantile.
    probs : Tensor (m, K)
        Probabilities of the nodes whose sets are measured.
    alpha : float
    temperature : float
        As it goes to zero, the soft sizes go to those of the sets 1 - probs <= quantile.
    target : float
        A set up to this size costs nothing.

    Examples
    --------
    >>> probs = torch.tensor([[0.9, 0.1], [0.6, 0.4]])
    >>> round(float(inefficiency(torch.full((20,), 0.5), probs, 0.1, temperature=0.01)), 2)
    1.0
    """
    limit = soft_quantile(1 - true, alpha)
    sizes = torch.sigmoid((limit - (1 - probs)) / temperature).sum(dim=1)
    return F.relu(sizes - target).mean()


def soft_quantile(scores: Tensor, alpha: float | Fraction) -> Tensor:
    """The order statistic of n scores at rank (1 - alpha)(n + 1), or 1, interpolated between ranks.

    The conformal threshold is the one at the next whole rank. Differentiable: the gradient goes to
    the one or two scores that it is made of.

    Examples
    --------
    >>> float(soft_quantile(torch.tensor([4.0, 1.0, 2.0, 3.0]), 0.5))
    2.5
    """
    n = len(scores)
    rank = max((1 - check_alpha(alpha)) * (n + 1), Fraction(1))
    if rank > n:
        raise SnapsError(
            f"'scores' must hold at least {fewest_nodes(alpha)} numbers for "
            f"alpha={float(alpha):g}, got {n}"
        )
    return torch.quantile(scores, float((rank - 1) / max(n - 1, 1)))
