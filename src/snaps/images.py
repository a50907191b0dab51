"""Images, or anything with a classifier's outputs and embeddings but no links.

A score is corrected by those of the most similar items alone: s^ = (1 - eta) S + eta As S, with
k = 5 and eta = 0.5 as in the paper. The rest is SNAPS: the same scores, verbs and guarantee.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp

from snaps._checks import (
    check_disjoint,
    check_flag,
    check_integer,
    check_known,
    check_labels,
    check_nodes,
    check_number,
    check_probs,
    shown,
    to_numpy,
)
from snaps._errors import SnapsError, require
from snaps._files import atomic_path, read_npz
from snaps.estimator import Estimator, Inputs
from snaps.graph import Graph, check_features
from snaps.scores import APS, Score
from snaps.similarity import similarity_graph
from snaps.tuning import eta_grid

K, ETA = 5, 0.5  # the paper's
COLDEST, HOTTEST = 0.01, 100.0  # temperatures


# --- Prediction sets ---------------------------------------------------------------------------


def neighbours(
    features: Any,
    k: int = K,
    *,
    weighting: Literal["uniform", "cosine"] = "uniform",
    reference: Any = None,
    ids: Any = None,
) -> sp.csr_array:
    """Each item's `k` nearest items by the cosine of their features; exact, in quadratic time.

    Parameters
    ----------
    features : array (n, d)
    k : int
    weighting : "uniform" or "cosine"
        What a neighbour weighs. Only items with a cosine above zero are neighbours.
    reference : array of positions, or mask (n,), optional
        Only these may be neighbours; by default every item may. An item is never its own.
    ids : integers (n,), optional
        Break ties, the smaller id first. Default: positions.

    Returns
    -------
    csr_array (n, n)
        For `similarity=` of `EmbeddedSNAPS.calibrate` or `snaps.evaluate_splits`.

    Examples
    --------
    >>> neighbours([[1, 0], [3, 4], [0, 2]], k=1).toarray()
    array([[0., 1., 0.],
           [0., 0., 1.],
           [0., 1., 0.]])
    """
    _check_weighting(weighting)
    if reference is not None:
        table = check_features(features)
        k = check_integer(k, "k", low=1)
        reference = check_nodes(reference, "reference", num_nodes=table.shape[0])
        if k > len(reference):
            raise SnapsError(
                f"'k' must be at most the number of 'reference' items {len(reference)}, got {k}"
            )
    found = similarity_graph(features, k, ids=ids, candidates=reference)
    if weighting == "uniform":
        found.data[:] = 1
    return found


class EmbeddedSNAPS(Estimator):
    """SNAPS for items without links: s^ = (1 - eta) S + eta As S.

    Parameters
    ----------
    alpha : float
        Miscoverage: sets hold the true label with probability at least 1 - alpha.
    score : Score
        The basic score S.
    k : int
        Number of similar items.
    eta : float or "tune"
        Their weight; tuned over 0, 0.05, ..., 1.
    weighting : "uniform" or "cosine"
        What each of them weighs within it.
    seed : int
    class_conditional : bool
        One threshold a class, so that the guarantee holds within each class; the sets grow.

    Attributes
    ----------
    weights_ : (eta, 0.0)
    threshold_, scores_, score_, calib_nodes_, tune_nodes_ : see `snaps.SplitConformal`

    Notes
    -----
    By default all items given are each other's possible neighbours, whatever their role: the
    guarantee is that of `snaps.SNAPS`, exact. New items to predict come with those that calibrate,
    in one call. All verbs take positions of items as `nodes`.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> labels = random.integers(3, size=300)
    >>> features = np.eye(3)[labels] + random.random((300, 3))
    >>> cp = EmbeddedSNAPS(alpha=0.1)
    >>> cp.calibrate(features, 2 * features, labels, nodes=np.arange(150), logits=True).weights_
    (0.5, 0.0)
    >>> len(cp.predict_set())
    150
    """

    _parts = ("own", "similar")

    def __init__(
        self,
        alpha: float = 0.05,
        *,
        score: Score = APS(),  # noqa: B008 - scores are immutable
        k: int = K,
        eta: float | Literal["tune"] = ETA,
        weighting: Literal["uniform", "cosine"] = "uniform",
        seed: int = 0,
        class_conditional: bool = False,
    ):
        self.alpha = alpha
        self.score = score
        self.k = k
        self.eta = eta
        self.weighting = weighting
        self.seed = seed
        self.class_conditional = class_conditional

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_integer(self.k, "k", low=1)
        _check_weighting(self.weighting)
        if isinstance(self.eta, str) and self.eta != "tune":
            raise SnapsError(f"'eta' must be a number from 0 to 1 or 'tune', got {shown(self.eta)}")
        if not isinstance(self.eta, str):
            check_number(self.eta, "eta", low=0, high=1)

    def _grid(self) -> list[tuple[float, float]] | None:
        return eta_grid() if isinstance(self.eta, str) else None

    def _fixed_weights(self) -> tuple[float, float]:
        return ETA if isinstance(self.eta, str) else float(self.eta), 0.0

    def _prepare(self, graph: Any, probs: Any, similarity: Any, logits: bool) -> Inputs:
        return super()._prepare(_items(graph), probs, similarity, logits)

    def _similarity(self, inputs: Inputs) -> sp.csr_array | None:
        if inputs.given is not None:
            return inputs.given
        assert inputs.graph is not None
        find = partial(neighbours, inputs.graph.features, self.k, weighting=self.weighting)
        return inputs.once(("nearest", self.k, self.weighting), partial(find, ids=inputs.keys))

    def calibrate(
        self,
        features: Any,
        probs: Any,
        labels: Any,
        nodes: Any,
        tune_nodes: Any = None,
        similarity: Any = None,
        logits: bool = False,
        *,
        reference: Any = None,
    ) -> Self:
        """Score every item and set the threshold on the calibration items.

        Parameters
        ----------
        features : array (n, d), or Graph with features
            Embeddings such as the input of a network's last layer. Links of a graph are not used.
        probs, labels, nodes, tune_nodes, similarity, logits : see `snaps.SNAPS.calibrate`
        reference : array of positions, or mask (n,), optional
            Only these items, for instance those that trained the classifier, are neighbours. They
            must not calibrate and are not to be predicted; see `join` for arrays of their own.

        Returns
        -------
        self
        """
        items = _items(features)
        if reference is not None:
            if similarity is not None:
                raise SnapsError("'reference' must not be given beside 'similarity', got both")
            self._check_parameters()
            calib = check_nodes(nodes, "nodes", num_nodes=items.num_nodes)
            others = check_nodes(reference, "reference", num_nodes=items.num_nodes)
            check_disjoint(others, "reference", calib, "'nodes'")
            similarity = neighbours(
                items.features, self.k, weighting=self.weighting, reference=others, ids=items.keys
            )
        return super().calibrate(items, probs, labels, nodes, tune_nodes, similarity, logits)


class PaperVariant(EmbeddedSNAPS):
    """The paper's own variant, for comparison: neighbours come from the calibration items alone.

    Its guarantee is not exact, because the scores know who calibrates. A calibration item that is
    among its own neighbours keeps more of its score than a test item does, so coverage drifts (by
    two points on CIFAR-10 where 0.90 is asked); with `leave_one_out` it still has one candidate
    fewer, which is only nearly the same. `EmbeddedSNAPS` costs no more and is exact.

    Parameters
    ----------
    alpha : float
    k : int
    eta : float
    leave_one_out : bool
        Whether a calibration item is left out of its own neighbours.
    seed : int
    """

    def __init__(
        self,
        alpha: float = 0.05,
        *,
        k: int = K,
        eta: float = ETA,
        leave_one_out: bool = False,
        seed: int = 0,
    ):
        super().__init__(alpha, k=k, eta=eta, seed=seed)
        self.leave_one_out = leave_one_out

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_flag(self.leave_one_out, "leave_one_out")
        check_number(self.eta, "eta", low=0, high=1)

    def _prepare(self, graph: Any, probs: Any, similarity: Any, logits: bool) -> Inputs:
        # An item may be its own neighbour here, which the usual checks would not let through.
        return replace(super()._prepare(graph, probs, None, logits), given=similarity)

    def _similarity(self, inputs: Inputs) -> sp.csr_array | None:
        if inputs.given is None:
            raise SnapsError(
                "PaperVariant must know who calibrates: call calibrate() in each split"
            )
        return inputs.given

    def calibrate(
        self,
        features: Any,
        probs: Any,
        labels: Any,
        nodes: Any,
        tune_nodes: Any = None,
        similarity: Any = None,
        logits: bool = False,
        *,
        reference: Any = None,
    ) -> Self:
        """See `EmbeddedSNAPS.calibrate`; nothing is tuned, and `nodes` are the reference."""
        if not all(given is None for given in (tune_nodes, similarity, reference)):
            raise SnapsError("PaperVariant takes no 'tune_nodes', 'similarity' or 'reference'")
        self._check_parameters()
        items = _items(features)
        calib = check_nodes(nodes, "nodes", num_nodes=items.num_nodes)
        most = len(calib) - self.leave_one_out
        if self.k > most:
            raise SnapsError(f"'k' must be at most {most} for {len(calib)} 'nodes', got {self.k}")
        near = neighbours(items.features, self.k, reference=calib, ids=items.keys)
        if not self.leave_one_out:
            near = _with_themselves(near, calib, self.k)
        return Estimator.calibrate(self, items, probs, labels, calib, None, near, logits)


def _with_themselves(near: sp.csr_array, nodes: np.ndarray, k: int) -> sp.csr_array:
    """Put `nodes` among their own k neighbours; the last one of k makes room."""
    full = nodes[np.diff(near.indptr)[nodes] == k]
    near.data[near.indptr[full + 1] - 1] = 0
    near.eliminate_zeros()
    own = np.zeros(near.shape[0])
    own[nodes] = 1
    return sp.csr_array(near + sp.diags_array(own))


def _items(features: Any) -> Graph:
    """Items as a graph without links."""
    if features is None or (isinstance(features, Graph) and features.features is None):
        raise SnapsError("'features' must have a row for each item, got none")
    return features if isinstance(features, Graph) else Graph(None, features)


def _check_weighting(weighting: Any) -> None:
    if not isinstance(weighting, str) or weighting not in ("uniform", "cosine"):
        raise SnapsError(f"'weighting' must be 'uniform' or 'cosine', got {shown(weighting)}")


def join(
    features: Any, probs: Any, labels: Any, reference_features: Any, reference_probs: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Put a reference set of its own, such as training images, behind the items.

    Parameters
    ----------
    features, probs, labels : arrays (n, d), (n, K), (n,)
        Of the items that calibrate or are predicted. `probs` may be logits.
    reference_features, reference_probs : arrays (r, d), (r, K)
        Of other items. Their labels are not used.

    Returns
    -------
    features, probs, labels : arrays (n + r, ...)
        The items keep their positions. The labels of the reference are unknown: -1.
    reference : array (r,)
        Positions n, n + 1, ... for `EmbeddedSNAPS.calibrate`.

    Examples
    --------
    >>> items, others = np.eye(3), np.ones((2, 3))
    >>> features, probs, labels, reference = join(items, items, [0, 1, 2], others, others / 3)
    >>> labels, reference
    (array([ 0,  1,  2, -1, -1]), array([3, 4]))
    """
    given = {
        "features": features,
        "probs": probs,
        "reference_features": reference_features,
        "reference_probs": reference_probs,
    }
    tables = {name: to_numpy(value, name) for name, value in given.items()}
    for name, table in tables.items():
        if table.ndim != 2:
            raise SnapsError(f"'{name}' must have two dimensions, got shape {table.shape}")
    for whose in ("", "reference_"):
        count, got = len(tables[f"{whose}features"]), len(tables[f"{whose}probs"])
        if count != got:
            raise SnapsError(f"'{whose}probs' must have one row an item ({count}), got {got} rows")
    joined = {}
    for name in ("features", "probs"):
        own, other = tables[name], tables[f"reference_{name}"]
        if own.shape[1] != other.shape[1]:
            raise SnapsError(
                f"'reference_{name}' must have as many columns as '{name}' ({own.shape[1]}), "
                f"got {other.shape[1]}"
            )
        joined[name] = np.concatenate([own, other])
    n, num_classes = tables["probs"].shape
    known = check_labels(labels, num_nodes=n, num_classes=num_classes)
    reference = np.arange(n, len(joined["probs"]))
    known = np.concatenate([known, np.full(len(reference), -1)])
    return joined["features"], joined["probs"], known, reference


# --- Outputs of a network ----------------------------------------------------------------------


def temperature(logits: Any, labels: Any) -> float:
    """Fit a temperature T: softmax(logits / T) has the least negative log-likelihood.

    The items it is fitted on must not calibrate, nor be predicted: their labels are spent.

    Parameters
    ----------
    logits : array (n, K)
    labels : int array (n,)

    Returns
    -------
    float

    Examples
    --------
    >>> round(temperature([[2.0, 0.0]] * 4, [0, 0, 0, 1]), 3)  # 2 / log(3): right 3 times in 4
    1.82
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import logsumexp

    shape = check_probs(logits, "logits", logits=True).shape
    known = check_labels(labels, num_nodes=shape[0], num_classes=shape[1])
    check_known(known, np.arange(len(known)), "labels")
    values = to_numpy(logits, "logits").astype(np.float64)
    # Against the true label's logit no number is lost to the others' size.
    values -= values[np.arange(len(known)), known][:, None]

    def loss(log_scale: float) -> float:
        return float(logsumexp(values * np.exp(log_scale), axis=1).mean())

    low, high = -np.log(HOTTEST), -np.log(COLDEST)
    best = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-6})
    if min(best.x - low, high - best.x) < 1e-3:
        extreme = "right" if best.x > 0 else "no better than chance"
        raise SnapsError(
            f"'logits' must have a best temperature from {COLDEST:g} to {HOTTEST:g}, got none: "
            f"on these {len(known)} items they are too often {extreme}"
        )
    return float(np.exp(-best.x))


# Without eq=False two of them would be compared array by array, which raises.
@dataclass(frozen=True, eq=False)
class Outputs:
    """What a classifier says of its items.

    Attributes
    ----------
    logits : array (n, K)
    features : array (n, d)
    labels : int array (n,)
        -1 where unknown.
    """

    logits: np.ndarray
    features: np.ndarray
    labels: np.ndarray

    def __repr__(self) -> str:
        (n, k), d = self.logits.shape, self.features.shape[1]
        return f"Outputs({n} items, {k} classes, {d} features)"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an .npz for `load`, whole or not at all."""
        arrays = {"logits": self.logits, "features": self.features, "labels": self.labels}
        with atomic_path(path) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)


def load(path: str | os.PathLike[str]) -> Outputs:
    """Read an .npz with the arrays logits (n, K), features (n, d) and labels (n,).

    Half precision will do. Nothing in a file is ever executed.
    """
    arrays = read_npz(path)
    missing = [name for name in ("logits", "features", "labels") if name not in arrays]
    if missing:
        raise SnapsError(f"'{path}' must hold the array '{missing[0]}', got {sorted(arrays)[:8]}")
    logits, labels = arrays["logits"], arrays["labels"]
    try:
        shape = check_probs(logits, "logits", logits=True).shape
        features = check_features(arrays["features"])
        if len(features) != shape[0]:
            raise SnapsError(
                f"'features' must have {shape[0]} rows like 'logits', got {len(features)}"
            )
        labels = check_labels(labels, num_nodes=shape[0], num_classes=shape[1])
    except SnapsError as error:
        raise SnapsError(f"cannot read '{path}': {error}") from error
    return Outputs(logits, features, labels)


def extract(model: Any, loader: Iterable[Any], layer: Any = None, device: Any = "cpu") -> Outputs:
    """Run a torch classifier and keep its logits and what enters its last linear layer.

    The model is moved to `device`; its modes are left as they were.

    Parameters
    ----------
    model : torch.nn.Module
        Gives logits (b, K), or an object with such an attribute `logits`.
    loader : iterable of (inputs, labels)
        Such as a torch DataLoader that does not shuffle.
    layer : str or torch.nn.Module, optional
        The layer, or its name, whose input is taken as features. Default: the linear layer that
        was added last.
    device : str or torch.device

    Returns
    -------
    Outputs
        In the order of the loader; features of more than two dimensions are flattened.
    """
    torch = require("torch", "gnn")
    if not isinstance(model, torch.nn.Module):
        raise SnapsError(f"'model' must be a torch.nn.Module, got {type(model).__name__}")
    chosen, place = _find_layer(torch, model, layer), _check_device(torch, device)
    try:
        batches = iter(loader)
    except TypeError:
        raise SnapsError(
            f"'loader' must give pairs (inputs, labels) of tensors, got {type(loader).__name__}"
        ) from None
    seen: list[Any] = []
    rows: dict[str, list[np.ndarray]] = {"logits": [], "features": [], "labels": []}
    modes = {module: module.training for module in model.modules()}
    hook = chosen.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    try:
        model.to(place).eval()
        with torch.no_grad():
            for batch in batches:
                inputs, labels = _check_batch(batch)
                seen.clear()
                result = model(inputs.to(place))
                if len(seen) != 1:
                    raise SnapsError(f"'layer' must run once a batch, got {len(seen)} times")
                rows["logits"].append(to_numpy(getattr(result, "logits", result), "logits"))
                rows["features"].append(to_numpy(seen[0].flatten(1), "features"))
                rows["labels"].append(to_numpy(labels, "labels").reshape(-1))
    finally:
        hook.remove()
        for module, mode in modes.items():
            module.training = mode
    if not rows["logits"]:
        raise SnapsError("'loader' must give at least one batch, got none")
    arrays = {name: np.concatenate(parts) for name, parts in rows.items()}
    shape = check_probs(arrays["logits"], "logits", logits=True).shape
    check_labels(arrays["labels"], num_nodes=shape[0], num_classes=shape[1])
    if len(arrays["features"]) != shape[0]:
        raise SnapsError(
            f"'layer' must see one row an item ({shape[0]}), got {len(arrays['features'])}"
        )
    return Outputs(**arrays)


def _find_layer(torch: Any, model: Any, layer: Any) -> Any:
    """The layer that a user names, or the last linear one."""
    modules = dict(model.named_modules())
    if layer is None:
        linear = [module for module in modules.values() if isinstance(module, torch.nn.Linear)]
        if not linear:
            raise SnapsError("'layer' must be given for a model without a linear layer, got None")
        return linear[-1]
    if isinstance(layer, str) and layer in modules:
        return modules[layer]
    if any(module is layer for module in modules.values()):
        return layer
    raise SnapsError(f"'layer' must be one of the model's {list(modules)[1:]}, got {shown(layer)}")


def _check_device(torch: Any, device: Any) -> Any:
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except Exception as error:  # torch has no one error for a device that is not there
        raise SnapsError(
            f"'device' must be one that torch finds, such as 'cpu', got {shown(device)}"
        ) from error
    return place


def _check_batch(batch: Any) -> tuple[Any, Any]:
    """Inputs as a tensor, and labels."""
    pair = isinstance(batch, (tuple, list)) and len(batch) == 2
    if not pair or not hasattr(batch[0], "detach"):
        raise SnapsError(
            f"'loader' must give pairs (inputs, labels) of tensors, got {type(batch).__name__}"
        )
    return batch[0], batch[1]
