"""What the estimators share: parameters, and `calibrate`.

It reads inputs and roles, fits the scorer on the tuning nodes, scores, and sets the threshold on
the calibration nodes. What it found is one frozen `State`, swapped in at the end.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np

from snaps import _persistence
from snaps._checks import check_alpha, check_flag, check_seed, plainly, warn_confidence
from snaps._checks.named import class_order, column_names
from snaps._errors import SnapsError, warn
from snaps._fingerprint import Fingerprint
from snaps._inputs import Inputs
from snaps._parts import Scorer
from snaps._prediction import Predicting
from snaps._progress import stage
from snaps._recalibration import Recalibrating
from snaps._roles import Roles
from snaps._state import State
from snaps.calibration import Calibration, far_below
from snaps.graph import Graph
from snaps.scores import APS, Score, check_score


@dataclass(eq=False, repr=False)
class Estimator(Predicting, Recalibrating):
    """What the estimators share; a subclass says which scorer."""

    alpha: float | Fraction = 0.05
    _: KW_ONLY
    score: Score = APS()  # noqa: RUF009 - scores are immutable
    seed: int = 0
    class_conditional: bool = False

    needs_graph: ClassVar[bool] = True
    uses_evidence: ClassVar[bool] = False  # whether known labels make a difference
    _advised = None  # type: np.ndarray | None  # keys of nodes that `advise` chose it on

    # -- what a subclass says -------------------------------------------------------------------

    def _check_shared(self) -> None:
        check_alpha(self.alpha)
        check_score(self.score)
        check_seed(self.seed)
        check_flag(self.class_conditional, "class_conditional")

    def read_inputs(
        self, graph: Any, probs: Any, similarity: Any, logits: bool, classes: Any = None
    ) -> Inputs:
        """What this method sees of every node; complains about graph, probs and similarity."""
        if graph is None and self.needs_graph:
            raise SnapsError(f"'graph' must be a snaps.Graph for {type(self).__name__}, got None")
        return Inputs.read(graph, probs, similarity, logits=logits, classes=classes)

    # -- calibrate ------------------------------------------------------------------------------

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
            Nodes to choose parameters on. They may be any labelled nodes but those that calibrate
            (validation nodes cost nothing). By default a seeded half of `nodes`, at most 500, is
            spent on tuning when there is anything to tune.
        similarity : sparse (n, n), optional
            A similarity graph at hand, for instance from `snaps.similarity_graph`.
        logits : bool
        known_nodes : same as nodes, optional
            Nodes whose labels may be used as evidence (`Pooled` does): training and validation
            nodes. They must not calibrate or tune, and are not predicted.
        groups : array (n,) of anything hashable, Series, or mapping from id; optional
            One threshold per group, so that the guarantee holds within each; with
            ``class_conditional``, per group and class.
        classes : list of K names, optional
            What the columns of `probs` are called; needed for an array where labels are strings,
            or integers other than 0, ..., K - 1, and no pandas Categorical.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> import snaps
        >>> from snaps.datasets import make_graph
        >>> from snaps.models import smoothed_regression
        >>> data = make_graph(600, 4, seed=1)
        >>> probs = smoothed_regression(data.graph, data.labels, np.arange(60))
        >>> cp = snaps.SNAPS(alpha=0.1)
        >>> cp = cp.calibrate(data.graph, probs, data.labels, np.arange(60, 260))
        >>> len(cp.calib_nodes_), len(cp.tune_nodes_)
        (100, 100)
        """
        return self._calibrate(
            (graph, probs, similarity, logits), labels, nodes, classes, tune_nodes=tune_nodes,
            known_nodes=known_nodes, groups=groups,
        )  # fmt: skip

    def _calibrate(
        self, given: tuple[Any, ...], labels: Any, nodes: Any, classes: Any, **roles: Any
    ) -> Self:
        """`given` goes to `read_inputs`, the rest to `Roles.read`."""
        scorer = self.scorer()
        alpha = check_alpha(self.alpha)
        warn_confidence(alpha)
        with stage("reading"):
            graph, probs, similarity, logits = given
            probs, classes = class_order(probs, labels, classes)
            inputs = self.read_inputs(graph, probs, similarity, logits, classes)
            read = Roles.read(
                inputs.graph, inputs.num_classes, labels, nodes, classes=classes,
                named=column_names(probs) is not None,
                tune=alpha if scorer.needs_tuning else None, seed=self.seed, **roles,
            )  # fmt: skip
        self._settle(inputs, read, scorer)
        if self._advised is not None:
            self._warn_advised(read, self._advised)
        return self

    def _warn_advised(self, roles: Roles, keys: np.ndarray) -> None:
        count = int(np.isin(roles.calib.keys, keys).sum())
        if count:
            warn(
                f"{count} calibration nodes are among those that advise() chose this method on: "
                "coverage may fall below 1 - alpha"
            )

    def _settle(self, inputs: Inputs, roles: Roles, scorer: Scorer, fitted: Any = None) -> None:
        """Fit unless that is done, set the threshold, and swap the new state in."""
        params = self._frozen_params()
        alpha = check_alpha(params["alpha"])
        if fitted is None:
            self.warn_of(inputs)
        tuned, fresh = scorer.needs_tuning, fitted is None
        if fitted is None:
            (fitted,) = scorer.fit(inputs, roles.tuning, roles.known, [alpha])
        places = inputs.positions(roles.calib.keys)
        scores = inputs.score(fitted, places)[np.arange(len(places)), roles.calib.labels]
        groups = roles.groups
        calibration = Calibration(
            scores,
            roles.calib.labels,
            inputs.num_classes,
            None if groups is None else groups.codes[places],
            1 if groups is None else len(groups.names),
            bool(params["class_conditional"]),
        )
        calibration.warn_few(alpha, roles.classes, () if groups is None else groups.names)
        if fresh and calibration.kind == "calibration" and fitted.tuning_scores is not None:
            _warn_weak_class(calibration, fitted.tuning_scores, roles, alpha)
        given = inputs.similarity is not None and not len(roles.reference)
        graph = inputs.graph
        self._state = State(
            params, inputs, roles, fitted, calibration, given, tuned, graph.weighted,
            directed=graph.directed, fingerprints=_fingerprints(inputs, roles),
        )  # fmt: skip

    def _swap(self, state: State) -> None:
        self._state = state

    def _frozen_params(self) -> dict[str, Any]:
        """The parameters as they are now, also if a list among them is changed later."""
        held = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: copy.copy(value) if isinstance(value, (list, np.ndarray)) else value
            for name, value in held.items()
        }

    def warn_of(self, inputs: Inputs) -> None:
        """Say what the data cannot give to this method."""

    # -- keep and show --------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], data: bool = True) -> None:
        """Write the calibrated estimator to one file, whole or not at all; see `snaps.load`.

        Parameters
        ----------
        path : path
        data : bool
            False leaves out graph, features and probabilities: the file holds parameters, and ids
            and labels of calibration, tuning and known nodes, with a few random projections of
            features and probabilities of at most 512 of them. `recalibrate` brings it to life.

        Examples
        --------
        >>> import numpy as np
        >>> import snaps
        >>> probs = np.tile([0.6, 0.3, 0.1], (40, 1))
        >>> labels = np.array([0, 0, 0, 1] * 10)
        >>> cp = snaps.SplitConformal(0.1, score=snaps.THR())
        >>> cp = cp.calibrate(None, probs, labels, nodes=np.arange(20))
        >>> cp.save("model.snaps")
        >>> snaps.load("model.snaps").threshold_ == cp.threshold_
        True
        """
        state = self._view()[0] if check_flag(data, "data") else self._calibrated()
        alpha = self.alpha
        check_alpha(alpha)
        _persistence.save(path, type(self), alpha, state, data)

    def restored(self, state: State) -> Self:
        """This estimator with a state that was saved."""
        self.scorer()
        self._state = state
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return self._state is not None

    def __repr__(self) -> str:
        text = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        state = self._state
        if state is not None:
            count = len(state.roles.tuning)
            tuned = f", tuned on {count}" if count and state.tuned else ""
            text += f"; calibrated on {len(state.roles.calib)} nodes{tuned}"
            if state.inputs is None:
                text += ", saved without data"
        return f"{type(self).__name__}({text})"


def _fingerprints(inputs: Inputs, roles: Roles) -> dict[str, Fingerprint]:
    """What the nodes that are found by id later look like now."""
    used = np.concatenate([roles.calib.keys, roles.tuning.keys, roles.known.keys])
    whose = {"used": used, "reference": roles.reference}
    return {name: Fingerprint.of(inputs, keys) for name, keys in whose.items() if len(keys)}


# When tuning nodes show that a class is served far worse: so many of them, with a coverage that far
# below, which chance alone gives so rarely.
WEAK_NODES, WEAK_GAP, WEAK_CHANCE = 20, 0.2, 1e-4


def _warn_weak_class(
    calibration: Calibration, scores: np.ndarray, roles: Roles, alpha: Fraction
) -> None:
    """Warn of the class that is covered worst, if the tuning nodes show it far below the rest."""
    labels, num_classes = roles.tuning.labels, len(roles.classes)
    counts = np.bincount(labels, minlength=num_classes)
    hits = np.bincount(
        labels, weights=scores <= calibration.threshold(alpha), minlength=num_classes
    )
    covered = hits / np.maximum(counts, 1)
    told = np.where(counts >= WEAK_NODES, counts, 0)
    weakest = far_below(covered, told, len(calibration), alpha, chance=WEAK_CHANCE, gap=WEAK_GAP)
    if weakest is not None:
        warn(
            f"class {plainly(roles.classes[weakest])} is covered {covered[weakest]:.2f} on "
            f"{counts[weakest]} tuning nodes, far below {float(1 - alpha):g}: "
            "class_conditional=True (--class-conditional) gives each class its own threshold"
        )


def most_demanding(methods: Iterable[Estimator]) -> Estimator:
    """Whose inputs serve all of some methods, in whatever order they come."""

    def demands(one: Estimator) -> tuple[bool, bool]:
        return one.needs_graph, type(one).read_inputs is Estimator.read_inputs

    return max(methods, key=demands)
