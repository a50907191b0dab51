"""Images, or anything with a classifier's outputs and embeddings but no links.

A score is corrected by those of the most similar items alone: s^ = (1 - eta) S + eta As S, with
k = 5 and eta = 0.5 as in the paper. The rest is SNAPS: the same scores, verbs and guarantee.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp

from snaps._checks import (
    calm,
    check_disjoint,
    check_integer,
    check_known,
    check_labels,
    check_nodes,
    check_number,
    check_probs,
    shown,
    to_numpy,
)
from snaps._checks.features import check_features
from snaps._runtime.randomness import locate_keys
from snaps.errors import SnapsError
from snaps.estimators import TUNED
from snaps.graph import Graph
from snaps.io.files import open_npz, write_npz
from snaps.predictor.estimator import Estimator
from snaps.predictor.predictor import Predictor, read_items
from snaps.predictor.roles import read_nodes
from snaps.scoring.mixing import ETA_GRID, Mixing
from snaps.scoring.parts import Similar
from snaps.similarity import similarity_graph

__all__ = ["ETA", "EmbeddedSNAPS", "K", "Outputs", "join", "load", "neighbours", "temperature"]

K, ETA = 5, 0.5  # the paper's
_COLDEST, _HOTTEST = 0.01, 100.0  # temperatures


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
    graph = similarity_graph(features, k, ids=ids, candidates=reference)
    if weighting == "uniform":
        graph.data[:] = 1
    return graph


@dataclass(eq=False, repr=False, kw_only=True)
class EmbeddedSNAPS(Estimator):
    """SNAPS for items without links: s^ = (1 - eta) S + eta As S.

    Parameters
    ----------
    k : int
        Number of similar items.
    eta : float, "tune" or "minimum"
        Their weight. "minimum" takes the one with the smallest sets on the tuning nodes, of 0,
        0.05, ..., 1. "tune" averages the minima of 24 resamples of them and leans to 0.5 where they
        are few, as in `snaps.SNAPS`.
    weighting : "uniform" or "cosine"
        What each of them weighs within it.
    alpha, score, seed, class_conditional, class_floor, confidence : see `snaps.SNAPS`

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

    _traits: ClassVar[dict[str, Any]] = {"items": True}

    k: int = K
    eta: float | Literal["tune", "minimum"] = ETA
    weighting: Literal["uniform", "cosine"] = "uniform"

    def _scorer(self) -> Mixing:
        """Own and similar scores."""
        k = check_integer(self.k, "k", low=1)
        _check_weighting(self.weighting)
        if isinstance(self.eta, str) and self.eta not in TUNED:
            raise SnapsError(
                f"'eta' must be a number from 0 to 1, 'tune' or 'minimum', got {shown(self.eta)}"
            )
        grid = ETA_GRID
        if not isinstance(self.eta, str):
            grid = ((check_number(self.eta, "eta", low=0, high=1), 0.0),)
        return Mixing(
            self.score, self.seed, Similar(k, self.weighting), grid=grid, fallback=(ETA, 0.0),
            averaged=self.eta == "tune",
        )  # fmt: skip

    def _similar(self, items: Graph, reference: Any) -> sp.csr_array:
        return neighbours(
            items.features, self.k, weighting=self.weighting, reference=reference, ids=items.keys
        )

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
        known_nodes: Any = None,
        groups: Any = None,
        classes: Any = None,
        group_floor: float | None = None,
        missing_labels: int = 0,
        chances: Any = None,
        reference: Any = None,
    ) -> Self:
        """Score every item and set the threshold on the calibration items.

        Parameters
        ----------
        features : array (n, d), or Graph with features
            Embeddings such as the input of a network's last layer. Links of a graph are not used.
        probs, labels, nodes, tune_nodes, similarity, logits, known_nodes, groups, classes, \
        group_floor, missing_labels, chances : see `snaps.SNAPS.calibrate`
        reference : array of positions, mask (n,), or ids where these are strings; optional
            Only these items, for instance those that trained the classifier, are neighbours. They
            must not calibrate and are not to be predicted; see `join` for arrays of their own.

        Returns
        -------
        self

        Examples
        --------
        >>> random = np.random.default_rng(0)
        >>> labels = random.integers(3, size=300)
        >>> features = np.eye(3)[labels] + random.random((300, 3))
        >>> cp = EmbeddedSNAPS(alpha=0.1)
        >>> items, others = np.arange(100, 200), np.arange(100)
        >>> cp = cp.calibrate(features, 2 * features, labels, items, logits=True, reference=others)
        >>> len(cp.predict_set())
        100
        """
        self._method()
        items = read_items(features)
        if reference is not None:
            similarity = self._similar(items, _read_reference(items, reference, similarity))
        return self._calibrate(
            items, probs, labels, nodes, similarity=similarity, logits=logits, classes=classes,
            tune_nodes=tune_nodes, known_nodes=known_nodes, groups=groups, reference=reference,
            group_floor=group_floor, missing_labels=missing_labels, chances=chances,
        )  # fmt: skip

    def recalibrate(
        self,
        graph: Any,
        probs: Any,
        labels: Any = None,
        nodes: Any = None,
        similarity: Any = None,
        logits: bool = False,
        *,
        reference: Any = None,
        **options: Any,
    ) -> Self:
        """Go on with more items, or with outputs of the classifier made again.

        Items are found by position, or by the ids of a `Graph`: new ones must come last among
        those that calibrate or are predicted.

        Parameters
        ----------
        graph : array (n, d), or Graph with features
            The features of all items.
        probs, labels, nodes, similarity, logits, options : see `snaps.SNAPS.recalibrate`
        reference : array of positions, mask (n,), or ids where these are strings; optional
            Where the reference is now, if `calibrate` got one. By default at the positions of
            before; `join` puts it behind the items, so with more items it must be given again.

        Returns
        -------
        self

        Examples
        --------
        >>> random = np.random.default_rng(0)
        >>> labels = random.integers(3, size=300)
        >>> features = np.eye(3)[labels] + random.random((300, 3))
        >>> others = np.eye(3)[random.integers(3, size=50)] + random.random((50, 3))
        >>> *early, reference = join(features[:200], features[:200], labels[:200], others, others)
        >>> cp = EmbeddedSNAPS(alpha=0.1)
        >>> items = np.arange(100)
        >>> cp = cp.calibrate(*early, items, logits=True, reference=reference)
        >>> more, probs, _, reference = join(features, features, labels, others, others)
        >>> cp = cp.recalibrate(more, probs, logits=True, reference=reference)
        >>> len(cp.predict_set())
        200
        """
        old, items = self._predictor(), read_items(graph)
        if reference is not None:
            old = _referring_to(_read_reference(items, reference, similarity), items, old)
        if similarity is None and len(old.roles.reference) and not old.given_similarity:
            similarity = self._similar(items, locate_keys(items.keys, old.roles.reference)[0])
        return self._recalibrate(old, items, probs, labels, nodes, similarity, logits, **options)


def _read_reference(items: Graph, reference: Any, similarity: Any) -> np.ndarray:
    """Positions of the only items that may be neighbours."""
    if similarity is not None:
        raise SnapsError("'reference' must not be given with 'similarity', got both")
    return read_nodes(items, reference, "reference")


def _referring_to(reference: np.ndarray, items: Graph, predictor: Predictor) -> Predictor:
    """A predictor whose reference is at these positions of the items."""
    roles = predictor.roles
    if not len(roles.reference):
        raise SnapsError("'reference' must be left out, as it was to calibrate")
    used = {"calibration": roles.calib, "tuning": roles.tuning, "known": roles.known}
    for whose, nodes in used.items():
        positions = locate_keys(items.keys, nodes.keys)[0]
        check_disjoint(reference, "reference", positions, f"the {whose} nodes", items.ids)
    prints = {name: each for name, each in predictor.fingerprints.items() if name != "reference"}
    roles = replace(roles, reference=items.keys[reference])
    return replace(predictor, roles=roles, fingerprints=prints)


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
        Positions n, n + 1, ... for `EmbeddedSNAPS.calibrate`, and for `recalibrate` where there
        are other items.

    Examples
    --------
    >>> items, others = np.eye(3), np.ones((2, 3))
    >>> features, probs, labels, reference = join(items, items, [0, 1, 2], others, others / 3)
    >>> labels, reference
    (array([ 0,  1,  2, -1, -1]), array([3, 4]))
    """
    given = {
        "features": features, "probs": probs,
        "reference_features": reference_features, "reference_probs": reference_probs,
    }  # fmt: skip
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

    Examples
    --------
    >>> Outputs(logits=np.zeros((2, 3)), features=np.ones((2, 4)), labels=np.array([0, -1]))
    Outputs(2 items, 3 classes, 4 features)
    """

    logits: np.ndarray
    features: np.ndarray
    labels: np.ndarray

    def __repr__(self) -> str:
        (n, k), d = self.logits.shape, self.features.shape[1]
        return f"Outputs({n} items, {k} classes, {d} features)"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an .npz for `load`, whole or not at all.

        Examples
        --------
        >>> Outputs(np.zeros((2, 3)), np.ones((2, 4)), np.array([0, 2])).save("outputs.npz")
        >>> load("outputs.npz")
        Outputs(2 items, 3 classes, 4 features)
        """
        arrays = {"logits": self.logits, "features": self.features, "labels": self.labels}
        write_npz(path, arrays, compress=True)


def load(path: str | os.PathLike[str]) -> Outputs:
    """Read an .npz with the arrays logits (n, K), features (n, d) and labels (n,).

    Half precision will do. Nothing in a file is ever executed.

    Examples
    --------
    >>> np.savez("outputs.npz", logits=np.zeros((2, 3)), features=np.eye(2), labels=[0, 2])
    >>> load("outputs.npz")
    Outputs(2 items, 3 classes, 2 features)
    """
    names = ("logits", "features", "labels")
    with open_npz(path) as arrays:
        missing = [name for name in names if name not in arrays]
        if missing:
            raise SnapsError(
                f"'{path}' must hold the array '{missing[0]}', got {sorted(arrays)[:8]}"
            )
        logits, table, labels = (arrays[name] for name in names)
    try:
        shape = check_probs(logits, "logits", logits=True).shape
        features = check_features(table)
        if len(features) != shape[0]:
            raise SnapsError(
                f"'features' must have {shape[0]} rows like 'logits', got {len(features)}"
            )
        labels = check_labels(labels, num_nodes=shape[0], num_classes=shape[1])
    except SnapsError as error:
        raise SnapsError(f"cannot read '{path}': {error}") from error
    return Outputs(logits, features, labels)


@calm
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

    low, high = -np.log(_HOTTEST), -np.log(_COLDEST)
    best = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-6})
    if min(best.x - low, high - best.x) < 1e-3:
        extreme = "right" if best.x > 0 else "no better than chance"
        raise SnapsError(
            f"'logits' must have a best temperature from {_COLDEST:g} to {_HOTTEST:g}, got none: "
            f"on these {len(known)} items they are too often {extreme}"
        )
    return float(np.exp(-best.x))
