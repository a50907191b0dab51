"""`Estimator`: what SNAPS and its relatives share. Parameters, `calibrate`, `recalibrate`, `save`.

What can be asked after calibration is in `Calibrated`; one frozen `Predictor` answers it.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

import numpy as np

from snaps._checks import check_flag, check_level, check_seed, check_share, plainly
from snaps._tables import html_table
from snaps.conformal.calibration import Promise
from snaps.errors import SnapsError, warn
from snaps.graph import Graph
from snaps.predictor import persistence
from snaps.predictor.calibrated import Calibrated, same_value
from snaps.predictor.predictor import Method, Predictor
from snaps.predictor.recalibration import recalibrate
from snaps.scores import APS, Score, check_score
from snaps.scoring.parts import Scorer


@dataclass(eq=False, repr=False)
class Estimator(Calibrated):
    """The base class of all estimators; a subclass says which scorer its parameters make."""

    alpha: float | Fraction | Mapping[Any, float] = 0.05
    _: KW_ONLY
    score: Score = APS()  # noqa: RUF009 - scores are immutable
    seed: int = 0
    class_conditional: bool = False
    class_floor: float | None = None
    confidence: float | None = None

    _traits: ClassVar[dict[str, Any]] = {}  # what else its `Method` says
    _advised = None  # type: np.ndarray | None

    def _scorer(self) -> Scorer:
        """The scorer before its fit; raises SnapsError for parameters that are wrong."""
        raise NotImplementedError

    def _method(self) -> Method:
        """The parameters, checked."""
        by_class = check_flag(self.class_conditional, "class_conditional")
        level = check_level(self.alpha, by_class)
        seed = check_seed(self.seed)
        promise = Promise(
            class_floor=check_share(self.class_floor, "class_floor"),
            confidence=check_share(self.confidence, "confidence"),
        )
        if promise.class_floor is not None and by_class:
            raise SnapsError(
                "'class_floor' must be left out with class_conditional=True (--class-conditional), "
                f"got {plainly(self.class_floor)}"
            )
        check_score(self.score)
        name = type(self).__name__
        return Method(name, self._scorer(), level, seed, by_class, promise, **self._traits)

    # -- calibration ----------------------------------------------------------------------------

    def calibrate(
        self,
        graph: Graph | None,
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
    ) -> Self:
        """Score every node and set the threshold on the calibration nodes.

        Parameters
        ----------
        graph : Graph
            May be None for `SplitConformal`.
        probs : array (n, K), or table
            Class probabilities of every node, or logits with ``logits=True``. The columns of a
            DataFrame name the classes, and its index the nodes: both are matched by name.
        labels : array (n,), Series, or mapping from id to label
            Integers with -1 where unknown, strings, or a pandas Categorical; only calibration,
            tuning and known nodes need one. An index is matched to the nodes' ids.
        nodes : array of positions, mask (n,), or ids where these are strings
            Calibration nodes: drawn at random from the same pool as the nodes to predict, and not
            used to train the classifier.
        tune_nodes : same, optional
            Labelled nodes to choose parameters on, such as validation nodes; not calibration
            nodes. By default, if there is anything to tune, a random part of `nodes` (see Notes).
        similarity : sparse (n, n), optional
            A similarity graph that you have, for instance from `snaps.similarity_graph`.
        logits : bool
        known_nodes : same as nodes, optional
            Other nodes whose labels are evidence for `Pooled`, such as training and validation
            nodes. They are not predicted.
        groups : array (n,) of anything hashable, Series, or mapping from id; optional
            One threshold per group, so that the guarantee holds within each; with
            ``class_conditional``, per group and class.
        classes : list of K names, optional
            Names of the columns of `probs`; needed for an array where labels are strings, or
            integers other than 0, ..., K - 1, and no pandas Categorical.
        group_floor : float, optional
            One threshold for all nodes, and a coverage of at least this in every group with enough
            calibration nodes, instead of one threshold per group.
        missing_labels : int
            How many other calibration nodes were drawn whose labels are missing. They count as not
            covered, which keeps the guarantee, whichever they are.
        chances : array (n,), Series, mapping from id, or "edges"; optional
            The chance with which each node was drawn for `nodes`, by itself, where these differ;
            needed for calibration nodes (above 0) and nodes to predict (between 0 and 1). Each
            node then has its own threshold, and the guarantee is about the nodes that were not
            drawn. "edges": proportional to degree, as if ends of random edges were drawn.
            Estimated chances carry no guarantee.

        Notes
        -----
        Without `tune_nodes`, a method that tunes takes half of `nodes` for it, at most 500. Below
        25 / alpha of them it takes less, down to a fifth, so that the number of calibration nodes
        plus one is a multiple of 1 / alpha, at least 4 / alpha: with few nodes, coverage is
        otherwise well above 1 - alpha, and the sets larger than need be. With fewer than about
        5 / alpha nodes nothing is tuned: weights are fixed, and all of them are calibration nodes.
        The division depends on the number of nodes and `alpha` alone (the smallest of several
        levels).

        Examples
        --------
        >>> probs, labels = np.tile([0.6, 0.3, 0.1], (40, 1)), [0, 0, 0, 1] * 10
        >>> cp = snaps.SplitConformal(0.1, score=snaps.THR())
        >>> cp = cp.calibrate(None, probs, labels, nodes=np.arange(20))
        >>> len(cp.calib_nodes_), float(cp.threshold_)
        (20, 0.7)
        """
        return self._calibrate(
            graph, probs, labels, nodes, similarity=similarity, logits=logits, classes=classes,
            tune_nodes=tune_nodes, known_nodes=known_nodes, groups=groups, group_floor=group_floor,
            missing_labels=missing_labels, chances=chances,
        )  # fmt: skip

    def _calibrate(self, graph: Any, probs: Any, labels: Any, nodes: Any, **given: Any) -> Self:
        method, params = self._method(), self._frozen_params()
        predictor = method.calibrate(graph, probs, labels, nodes, **given)
        self._fitted = params, predictor
        if self._advised is not None:
            count = int(np.isin(predictor.roles.calib.keys, self._advised).sum())
            if count:
                warn(
                    f"{count} calibration nodes are among those that advise() chose this method "
                    "on: coverage may fall below 1 - alpha"
                )
        return self

    def recalibrate(
        self,
        graph: Graph | None,
        probs: Any,
        labels: Any = None,
        nodes: Any = None,
        similarity: Any = None,
        logits: bool = False,
        *,
        groups: Any = None,
        classes: Any = None,
        refit: bool = True,
        missing: Literal["error", "drop"] = "error",
        threshold: Literal["set", "keep"] = "set",
        chances: Any = None,
    ) -> Self:
        """Continue on a graph that has grown, or with new probabilities.

        Tuning, known and calibration nodes are found by id on the new graph; parameters are fitted
        again, all nodes are scored, and the threshold is set again. The guarantee applies to the
        nodes of the new graph if new nodes arrived as the calibration nodes once did, and if the
        classifier was trained either without the calibration nodes in its graph or with the new
        ones too.

        Parameters
        ----------
        graph, probs, similarity, logits, groups, chances : see `calibrate`
            Of the new graph. A graph without ids numbers its nodes, so new ones must come last.
            Raises SnapsError if features and probabilities show other nodes under the old ids.
        labels : array (n,), optional
        nodes : array of positions, mask or ids, optional
            More calibration nodes, where labels arrived meanwhile; not with ``threshold="keep"``.
        classes : list of K names, optional
            Names of the columns of an array `probs`, if not in the order of `classes_`.
        refit : bool
            False keeps the parameters, which is faster. They were fitted on a graph with the
            calibration nodes and without the new ones, so that coverage may deviate slightly from
            its exact distribution.
        missing : "error" or "drop"
            What to do about calibration, tuning or known nodes that are gone. Dropping is fine if
            they are gone for reasons unrelated to how well they were predicted.
        threshold : "set" or "keep"
            "keep" applies parameters and threshold as they are to another graph: the guarantee
            then rests on the two graphs being alike. Nodes with an old id count as the same if
            most look the same; in a graph that only numbers its nodes, none does.

        Examples
        --------
        >>> probs, labels = np.tile([0.6, 0.3, 0.1], (40, 1)), [0, 0, 0, 1] * 10
        >>> cp = snaps.SplitConformal(0.1, score=snaps.THR())
        >>> cp = cp.calibrate(None, probs, labels, nodes=np.arange(20))
        >>> cp = cp.recalibrate(None, np.tile([0.5, 0.4, 0.1], (60, 1)))
        >>> len(cp.predict_set())
        40
        """
        return self._recalibrate(
            self._predictor(), graph, probs, labels, nodes, similarity, logits,
            groups=groups, classes=classes, refit=refit, missing=missing, threshold=threshold,
            chances=chances,
        )  # fmt: skip

    def _recalibrate(self, old: Predictor, *given: Any, **options: Any) -> Self:
        method, params = self._method(), self._frozen_params()
        self._fitted = params, recalibrate(old, method, *given, **options)
        return self

    def _frozen_params(self) -> dict[str, Any]:
        """The parameters as they are now, also if a list among them is changed later."""
        return {
            name: copy.copy(value) if isinstance(value, (list, np.ndarray)) else value
            for name, value in self.get_params().items()
        }

    def save(self, path: str | os.PathLike[str], data: bool = True) -> None:
        """Write the calibrated estimator to one file, whole or not at all; see `snaps.load`.

        Parameters
        ----------
        path : path
        data : bool
            False leaves out graph, features and probabilities: the file has parameters, and ids
            and labels of calibration, tuning and known nodes, with a few random projections of
            features and probabilities of at most 512 of them. `recalibrate` it before use.

        Examples
        --------
        >>> probs, labels = np.tile([0.6, 0.3, 0.1], (40, 1)), [0, 0, 0, 1] * 10
        >>> cp = snaps.SplitConformal(0.1, score=snaps.THR())
        >>> cp = cp.calibrate(None, probs, labels, nodes=np.arange(20))
        >>> cp.save("model.snaps")
        >>> snaps.load("model.snaps").threshold_ == cp.threshold_
        True
        """
        params, predictor = self._current()
        check_level(self.alpha, self.class_conditional)
        persistence.save(path, self, params["alpha"], predictor, check_flag(data, "data"))

    # -- parameters, as scikit-learn's tools expect them ----------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name.

        Examples
        --------
        >>> snaps.SNAPS(alpha=0.1).get_params()["k"]
        20
        """
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters; all but alpha take effect with the next `calibrate`.

        Examples
        --------
        >>> snaps.SNAPS(alpha=0.1).set_params(k=10).k
        10
        """
        known = self.get_params()
        for name in parameters:
            if name not in known:
                raise SnapsError(f"'{name}' must be one of {', '.join(known)}, got another name")
        for name, value in parameters.items():
            setattr(self, name, value)
        return self

    def __eq__(self, other: object) -> bool:
        """Whether the other is of the same class, with the same parameters."""
        if type(self) is not type(other):
            return NotImplemented
        theirs = other.get_params()
        return all(same_value(value, theirs[name]) for name, value in self.get_params().items())

    __hash__ = None  # type: ignore[assignment]  # parameters can change

    def __sklearn_is_fitted__(self) -> bool:
        return self._fitted is not None

    def _repr_html_(self) -> str:
        rows = [[name, repr(value)] for name, value in self.get_params().items()]
        if self._fitted is None:
            return html_table([type(self).__name__, "not calibrated"], rows)
        predictor = self._fitted[1]
        nodes = (predictor.roles.calib, predictor.roles.tuning, predictor.roles.known)
        names = ("calibration nodes", "tuning nodes", "known nodes")
        rows += [[name, f"{len(each):,}"] for name, each in zip(names, nodes, strict=True)]
        weights = predictor.scorer.weights.items()
        rows += [[f"weight of {part}", f"{float(weight):.3f}"] for part, weight in weights]
        return html_table([type(self).__name__, "calibrated"], rows)

    def __repr__(self) -> str:
        given = self.get_params()
        text = ", ".join(
            f"{name}={value!r}"
            for name, value in given.items()
            if value is not None or name not in ("class_floor", "confidence")
        )
        fitted = self._fitted
        if fitted is not None:
            predictor = fitted[1]
            tuned = f", tuned on {predictor.num_tuned}" if predictor.num_tuned else ""
            text += f"; calibrated on {len(predictor.roles.calib)} nodes{tuned}"
            if predictor.data is None:
                text += ", saved without data"
        return f"{type(self).__name__}({text})"


# The private doors of an estimator, for the rest of the package.


def method_of(self: Estimator) -> Method:
    """An estimator's parameters, checked."""
    return self._method()


def restored(self: Estimator, make: Callable[[Method], Predictor]) -> Any:
    """An estimator with what a saved file says that calibration gave."""
    self._fitted = self.get_params(), make(self._method())
    return self


def remember_advice(self: Estimator, keys: np.ndarray) -> None:
    """Remember the nodes that `advise` chose this estimator on: they should not calibrate it."""
    self._advised = keys
