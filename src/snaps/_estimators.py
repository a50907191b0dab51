"""The estimators: which scorer, then calibrate. The verbs are the same for all.

`calibrate` reads inputs and roles, fits the scorer on the tuning nodes, scores, and sets the
threshold on the calibration nodes. What it found is one frozen `State`, swapped in at the end.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, fields, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

import numpy as np

from snaps import _persistence
from snaps._checks import (
    check_alpha,
    check_disjoint,
    check_flag,
    check_integer,
    check_known,
    check_neighbours,
    check_number,
    check_seed,
    check_weights,
    shown,
)
from snaps._errors import NotCalibratedError, SnapsError, SnapsWarning
from snaps._evaluation import Evaluation, evaluate_sets
from snaps._exchangeability import Exchangeability, compare, node_columns
from snaps._explanation import Explanation, explain
from snaps._files import check_writable
from snaps._inputs import Inputs
from snaps._parameters import same
from snaps._parts import Links, Scorer, Search, Similar
from snaps._randomness import SMOOTH_STREAM, hashes, locate_keys, uniforms
from snaps._recalibration import Recalibrating
from snaps._roles import Roles, mixed_seed, read_labels, read_node, read_nodes
from snaps._state import State
from snaps.calibration import Calibration
from snaps.graph import Graph
from snaps.scorers import DAPS_GRID, SNAPS_GRID, Mixing
from snaps.scores import APS, Score, check_score
from snaps.sets import PredictionSets

TUNED = ("tune", "minimum")  # what may stand for weights that are chosen


@dataclass(eq=False, repr=False)
class Estimator(Recalibrating):
    """What the estimators share: parameters, and the verbs."""

    alpha: float | Fraction = 0.05
    _: KW_ONLY
    score: Score = APS()  # noqa: RUF009 - scores are immutable
    seed: int = 0
    class_conditional: bool = False

    needs_graph: ClassVar[bool] = True
    uses_evidence: ClassVar[bool] = False  # whether known labels make a difference
    _state = None  # type: State | None
    _advised = None  # type: np.ndarray | None

    # -- what a subclass says -------------------------------------------------------------------

    def _check_shared(self) -> None:
        check_alpha(self.alpha)
        check_score(self.score)
        check_seed(self.seed)
        check_flag(self.class_conditional, "class_conditional")

    def read_inputs(self, graph: Any, probs: Any, similarity: Any, logits: bool) -> Inputs:
        """What this method sees of every node; complains about graph, probs and similarity."""
        if graph is None and self.needs_graph:
            raise SnapsError(f"'graph' must be a snaps.Graph for {type(self).__name__}, got None")
        return Inputs.read(graph, probs, similarity, logits=logits)

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
        probs : array (n, K)
            Class probabilities of every node, or logits with ``logits=True``.
        labels : array (n,)
            Integers with -1 where unknown, strings, or a pandas Categorical; only calibration,
            tuning and known nodes need one.
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
        groups : array (n,) of anything hashable, optional
            One threshold per group, so that the guarantee holds within each; with
            ``class_conditional``, per group and class.
        classes : list of K names, optional
            What the columns of `probs` are called, when the labels alone don't tell.

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
            (graph, probs, similarity, logits), labels, nodes, tune_nodes=tune_nodes,
            known_nodes=known_nodes, groups=groups, classes=classes,
        )  # fmt: skip

    def _calibrate(self, given: tuple[Any, ...], labels: Any, nodes: Any, **roles: Any) -> Self:
        """`given` goes to `read_inputs`, the rest to `Roles.read`."""
        scorer = self.scorer()
        inputs = self.read_inputs(*given)
        tune = check_alpha(self.alpha) if scorer.needs_tuning else None
        read = Roles.read(
            inputs.graph, inputs.num_classes, labels, nodes, tune=tune, seed=self.seed, **roles
        )
        self._settle(inputs, read, scorer)
        if self._advised is not None:
            self._warn_advised(read, self._advised)
        return self

    def advised_on(self, keys: np.ndarray) -> None:
        """Remember the nodes that this method was chosen on: they should not calibrate it."""
        self._advised = keys

    def _warn_advised(self, roles: Roles, keys: np.ndarray) -> None:
        count = int(np.isin(roles.calib.keys, keys).sum())
        if count:
            warnings.warn(
                f"{count} calibration nodes are among those that advise() chose this method on: "
                "coverage may fall below 1 - alpha",
                SnapsWarning,
                stacklevel=4,
            )

    def _settle(self, inputs: Inputs, roles: Roles, scorer: Scorer, fitted: Any = None) -> None:
        """Fit unless that is done, set the threshold, and swap the new state in."""
        params, alpha = self._frozen_params(), check_alpha(self.alpha)
        if fitted is None:
            self.warn_of(inputs)
        tuned = scorer.needs_tuning
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
            bool(self.class_conditional),
        )
        calibration.warn_few(alpha, roles.classes, () if groups is None else groups.names, 4)
        given = inputs.similarity is not None and not len(roles.reference)
        weighted = inputs.graph.weighted
        self._state = State(params, inputs, roles, fitted, calibration, given, tuned, weighted)

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

    # -- after calibration ----------------------------------------------------------------------

    def _calibrated(self) -> State:
        """The state, if there is one and the parameters are still those it was made with."""
        state = self._state
        if state is None:
            raise NotCalibratedError(
                f"this {type(self).__name__} must be calibrated first: call calibrate()"
            )
        for name, before in state.params.items():
            value = getattr(self, name)
            if name != "alpha" and value is not before and not same(value, before):
                raise SnapsError(
                    f"'{name}' must not be changed after calibration, got {shown(value)} for "
                    f"{shown(before)}: call calibrate() again"
                )
        return state

    def _view(self) -> tuple[State, Inputs]:
        """The state and the graph it speaks of."""
        state = self._calibrated()
        if state.inputs is None:
            raise NotCalibratedError(
                f"this {type(self).__name__} was saved without data: call recalibrate() with a "
                "graph and probabilities first"
            )
        return state, state.inputs

    def _level(self, alpha: Any, state: State) -> Fraction:
        """The level asked for; says so when another than the calibrated one has too few nodes."""
        level = check_alpha(self.alpha if alpha is None else alpha)
        if level != check_alpha(state.params["alpha"]):
            groups = state.roles.groups
            names = () if groups is None else groups.names
            state.calibration.warn_few(level, state.roles.classes, names, 4)
        return level

    def _asked(self, nodes: Any, roles: Roles, inputs: Inputs) -> np.ndarray:
        """The nodes asked for; by default all that were not used."""
        apart = self._state is not None and self._state.apart
        if nodes is None:
            rest = np.ones(inputs.num_nodes, bool)
            used = (roles.calib.keys, roles.tuning.keys, roles.known.keys, roles.reference)
            if not apart:
                rest[locate_keys(inputs.keys, np.concatenate(used))[0]] = False
            return np.flatnonzero(rest)
        wanted = read_nodes(inputs.graph, nodes, "nodes", True)
        if apart:
            return wanted
        for keys, whose in (
            (roles.known.keys, "the known nodes, whose labels were used"),
            (roles.reference, "the reference, which is not to be predicted"),
        ):
            places = locate_keys(inputs.keys, keys)[0]
            check_disjoint(wanted, "nodes", places, whose, inputs.graph.ids)
        return wanted

    def _warn_used(self, wanted: np.ndarray, roles: Roles, inputs: Inputs) -> None:
        """Say so when nodes are predicted that calibrated or tuned."""
        if self._state is not None and self._state.apart:
            return
        keys = np.concatenate([roles.calib.keys, roles.tuning.keys])
        count = int(np.isin(wanted, locate_keys(inputs.keys, keys)[0]).sum())
        if count:
            warnings.warn(
                f"{count} of the nodes calibrated or tuned: the guarantee does not speak of them",
                SnapsWarning,
                stacklevel=3,
            )

    def _smoothing(self, wanted: np.ndarray, inputs: Inputs, roles: Roles) -> np.ndarray:
        """One draw per node and label; another calibration set, another draw.

        Were it the node's alone, a pool would have a bias of its own for each seed.
        """
        keys = hashes(0, inputs.keys[wanted], SMOOTH_STREAM)
        return uniforms(mixed_seed(self.seed, roles.calib.keys), keys, inputs.num_classes)

    def predict_set(
        self, nodes: Any = None, alpha: float | None = None, *, smoothed: bool = False
    ) -> PredictionSets:
        """Prediction sets of some nodes.

        Parameters
        ----------
        nodes : array of positions, mask (n,), or ids where these are strings; optional
            By default all nodes that neither calibrated nor tuned nor were known. The guarantee
            speaks of nodes drawn from the same pool as the calibration nodes; not of nodes that
            calibrated, tuned or trained the classifier.
        alpha : float, optional
            Another level than the estimator's; the weights stay.
        smoothed : bool
            Let chance decide ties, by node and label: coverage is then 1 - alpha on the dot, also
            where many scores tie. The sets hold the labels whose smoothed p-value is above alpha.

        Returns
        -------
        PredictionSets

        Examples
        --------
        >>> import numpy as np
        >>> import snaps
        >>> probs = np.tile([0.6, 0.3, 0.1], (40, 1))
        >>> labels = np.array([0, 0, 0, 1] * 10)
        >>> cp = snaps.SplitConformal(0.1, score=snaps.THR())
        >>> cp = cp.calibrate(None, probs, labels, nodes=np.arange(20))
        >>> sets = cp.predict_set(np.arange(20, 40))
        >>> sets[0]
        array([0, 1])
        >>> cp.predict_set(np.arange(20, 40), alpha=0.4)[0]
        array([0])
        """
        state, inputs = self._view()
        roles = state.roles
        wanted = self._asked(nodes, roles, inputs)
        if nodes is not None:
            self._warn_used(wanted, roles, inputs)
        level = self._level(alpha, state)
        scores = inputs.score(state.scorer, wanted)
        groups = None if roles.groups is None else roles.groups.codes[wanted]
        if check_flag(smoothed, "smoothed"):
            draws = self._smoothing(wanted, inputs, roles)
            mask = state.calibration.p_values(scores, groups, draws) > float(level)
        else:
            mask = state.calibration.contains(scores, level, groups)
        ids = inputs.graph.ids[wanted]
        return PredictionSets(mask, wanted, ids, inputs.num_nodes, roles.classes)

    def predict_p(self, nodes: Any = None, smoothed: bool = False) -> np.ndarray:
        """Conformal p-values (m, K); a label is in the set at alpha when its p-value is above.

        Parameters
        ----------
        nodes : array of positions, mask (n,), or ids where these are strings; optional
        smoothed : bool
            Let chance decide ties, which makes the p-values of true labels exactly uniform.

        Examples
        --------
        >>> import numpy as np
        >>> import snaps
        >>> probs = np.tile([0.6, 0.3, 0.1], (40, 1))
        >>> labels = np.array([0, 0, 0, 1] * 10)
        >>> cp = snaps.SplitConformal(0.1, score=snaps.THR())
        >>> cp = cp.calibrate(None, probs, labels, nodes=np.arange(20))
        >>> cp.predict_p([20]).round(2)
        array([[1.  , 0.29, 0.05]])
        """
        state, inputs = self._view()
        roles = state.roles
        wanted = self._asked(nodes, roles, inputs)
        if nodes is not None:
            self._warn_used(wanted, roles, inputs)
        groups = None if roles.groups is None else roles.groups.codes[wanted]
        draws = self._smoothing(wanted, inputs, roles) if check_flag(smoothed, "smoothed") else None
        return state.calibration.p_values(inputs.score(state.scorer, wanted), groups, draws)

    def evaluate(self, labels: Any, nodes: Any = None) -> Evaluation:
        """Compare the sets of labelled nodes with the truth.

        Parameters
        ----------
        labels : array (n,)
        nodes : array of positions, mask (n,), or ids where these are strings; optional
            By default all labelled nodes that neither calibrated nor tuned nor were known.

        Returns
        -------
        Evaluation
            A dict that prints as a table: coverage, size, size_nonempty, singleton_hit, empty, n,
            threshold, coverage_interval (where the coverage falls with probability 0.99 if the
            nodes were drawn from the same pool as the calibration nodes; None with class or group
            thresholds), inside, class_coverage, group_coverage, n_calib, n_tune, tied (the share of
            calibration scores that tie) and upper_binds (False where scores tie at the threshold:
            coverage may then lie above the interval by right). What is infinite or has no value is
            None: the dict is fit for JSON.

        Examples
        --------
        >>> import numpy as np
        >>> import snaps
        >>> probs = np.tile([0.6, 0.3, 0.1], (40, 1))
        >>> labels = np.array([0, 0, 0, 1] * 10)
        >>> cp = snaps.SplitConformal(0.1, score=snaps.THR())
        >>> cp = cp.calibrate(None, probs, labels, nodes=np.arange(20))
        >>> told = cp.evaluate(labels, np.arange(20, 40))
        >>> told["coverage"], told["size"], told["n"]
        (1.0, 2.0, 20)
        """
        state, inputs = self._view()
        roles = state.roles
        codes, _ = read_labels(labels, inputs.num_nodes, inputs.num_classes, roles.classes)
        wanted = self._asked(nodes, roles, inputs)
        if nodes is None:
            wanted = wanted[codes[wanted] >= 0]
        if wanted.size == 0:
            raise SnapsError("'nodes' must hold at least one labelled node, got none")
        check_known(codes, wanted, "nodes", inputs.graph.ids)
        for whose, keys in (
            ()
            if state.apart
            else (
                ("the calibration nodes", roles.calib.keys),
                ("the tuning nodes", roles.tuning.keys),
            )
        ):
            places = locate_keys(inputs.keys, keys)[0]
            check_disjoint(wanted, "nodes", places, whose, inputs.graph.ids)
        return evaluate_sets(self.predict_set(wanted), codes, state, check_alpha(self.alpha))

    def exchangeability(self, nodes: Any = None) -> Exchangeability:
        """Whether the calibration nodes look like the nodes to be predicted; needs no label.

        Compares top probability, predicted class, score of the top label and degree by rank tests.
        At most 1 of 1,000 fair splits is said to differ. That no difference was found proves
        nothing; a difference means that the guarantee does not speak of these nodes.

        Parameters
        ----------
        nodes : array of positions, mask (n,), or ids where these are strings; optional
            By default all nodes that neither calibrated nor tuned nor were known.

        Returns
        -------
        Exchangeability
            `alike`, and one sentence when printed.

        Examples
        --------
        >>> import numpy as np
        >>> import snaps
        >>> from snaps.datasets import make_graph
        >>> from snaps.models import smoothed_regression
        >>> data = make_graph(600, 4, seed=1)
        >>> probs = smoothed_regression(data.graph, data.labels, np.arange(60))
        >>> cp = snaps.SNAPS(0.1).calibrate(data.graph, probs, data.labels, np.arange(60, 260))
        >>> look = cp.exchangeability()
        >>> look.alike
        True
        >>> print(look)
        calibration nodes (200) look like the nodes predicted (400): no difference in top
        probability, predicted class, score of the top label or degree (smallest p 0.4)
        """
        state, inputs = self._view()
        wanted = self._asked(nodes, state.roles, inputs)
        adjacency = inputs.graph.adjacency
        degrees = np.diff(adjacency.indptr) if adjacency.nnz else None
        scores, classes = inputs.score(state.scorer), state.roles.classes
        columns = node_columns(inputs.probs, scores, degrees, classes)
        roles, drawn = state.roles, self.calib_nodes_
        evidence = getattr(state.scorer, "evidence", roles.known)
        # Tuning nodes of the same draw tell as much, unless their own labels moved their scores.
        if roles.tuning.drawn and not np.isin(roles.tuning.keys, evidence.keys).any():
            drawn = np.concatenate([drawn, self.tune_nodes_])
        return compare(columns, drawn, wanted, inputs.keys, self.seed)

    def explain(self, node: Any) -> Explanation:
        """Why each label is in or out of a node's set, and which neighbours moved its score.

        Parameters
        ----------
        node : int, or str where ids are strings

        Examples
        --------
        >>> import numpy as np
        >>> import snaps
        >>> from snaps.datasets import make_graph
        >>> from snaps.models import smoothed_regression
        >>> data = make_graph(600, 4, seed=1)
        >>> probs = smoothed_regression(data.graph, data.labels, np.arange(60))
        >>> cp = snaps.SNAPS(0.1).calibrate(data.graph, probs, data.labels, np.arange(60, 260))
        >>> print(cp.explain(300))
        node 300
        label         own   similar    linked     mixed  threshold  in
        weight      0.340     0.257     0.403
        0          0.9950    0.9884    0.9294    0.9668     0.7713  -
        1          0.9999    0.7782    0.9948    0.9409     0.7713  -
        2          0.3771    0.8445    0.5829    0.5801     0.7713  yes
        3          0.9918    0.8377    0.9787    0.9469     0.7713  -
        moved most by (37 neighbours in all)
          linked node 76 (weight 0.024): label 0 by -0.0160
          linked node 427 (weight 0.024): label 2 by +0.0148
          linked node 245 (weight 0.024): label 2 by +0.0148
          linked node 591 (weight 0.024): label 2 by +0.0143
          linked node 155 (weight 0.024): label 2 by +0.0142
        """
        state, inputs = self._view()
        roles = state.roles
        place = read_node(inputs.graph, node)
        limits = state.calibration.limits(check_alpha(self.alpha))
        group = 0 if roles.groups is None else roles.groups.codes[place]
        return explain(place, inputs, state.scorer, limits[group], roles.classes)

    def report(
        self,
        path: str | os.PathLike[str],
        labels: Any = None,
        nodes: Any = None,
        *,
        show: Any = None,
        title: str = "",
    ) -> None:
        """Write a report: one HTML page that needs no network, with every node to explore.

        It tells what was promised and observed, how small the sets are, for whom they are weaker,
        how the weights were chosen and where the threshold lies; then each node's set and why.

        Parameters
        ----------
        path : path
        labels : array (n,), optional
            The truth, as far as it is known. Without it coverage cannot be shown.
        nodes : array of positions, mask (n,), or ids where these are strings; optional
            By default all nodes that neither calibrated nor tuned nor were known.
        show : same, optional
            Nodes to be found in the page for certain. It carries all nodes up to 20,000, and a
            random part of more.
        title : str
            What the data is called.

        Examples
        --------
        >>> import numpy as np
        >>> import snaps
        >>> from snaps.datasets import make_graph
        >>> from snaps.models import smoothed_regression
        >>> data = make_graph(600, 4, seed=1)
        >>> probs = smoothed_regression(data.graph, data.labels, np.arange(60))
        >>> cp = snaps.SNAPS(0.1).calibrate(data.graph, probs, data.labels, np.arange(60, 260))
        >>> from pathlib import Path
        >>> cp.report("report.html", data.labels, title="a made graph")
        >>> Path("report.html").stat().st_size < 8_000_000
        True
        """
        from snaps.report import Subject, write_report

        check_writable(path)
        state, inputs = self._view()
        roles, ids = state.roles, inputs.graph.ids
        wanted = self._asked(nodes, roles, inputs)
        if not isinstance(title, str):
            raise SnapsError(f"'title' must be a string, got {shown(title)}")
        asked = read_nodes(inputs.graph, [] if show is None else show, "show", True)
        truth = np.full(inputs.num_nodes, -1)
        if not state.apart:
            for whose, used in (
                ("the calibration nodes", roles.calib),
                ("the tuning nodes", roles.tuning),
                ("the known nodes", roles.known),
            ):
                places, found = locate_keys(inputs.keys, used.keys)
                check_disjoint(wanted, "nodes", places, whose, ids)
                truth[places] = used.labels[found]
        evaluation = None
        if labels is not None:
            truth, _ = read_labels(labels, inputs.num_nodes, inputs.num_classes, roles.classes)
            known = wanted[truth[wanted] >= 0]
            evaluation = self.evaluate(labels, known) if known.size else None
        look = self.exchangeability(wanted) if wanted.size and self.calib_nodes_.size else None
        subject = Subject(
            type(self).__name__, self.scorer(), state, inputs, check_alpha(self.alpha), wanted,
            truth, evaluation, look, int(self.seed), title,
        )  # fmt: skip
        write_report(path, subject, asked)

    def save(self, path: str | os.PathLike[str], data: bool = True) -> None:
        """Write the calibrated estimator to one file, whole or not at all; see `snaps.load`.

        Parameters
        ----------
        path : path
        data : bool
            False leaves out graph, features and probabilities: the file holds parameters, and ids
            and labels of calibration, tuning and known nodes. `recalibrate` brings it to life.

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
        check_alpha(self.alpha)
        # alpha may have changed since calibration.
        _persistence.save(path, type(self), replace(state, params=self.get_params()), data)

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


def most_demanding(methods: Iterable[Estimator]) -> Estimator:
    """Whose inputs serve all of some methods, in whatever order they come."""

    def demands(one: Estimator) -> tuple[bool, bool]:
        return one.needs_graph, type(one).read_inputs is Estimator.read_inputs

    return max(methods, key=demands)


class SplitConformal(Estimator):
    """Split conformal prediction with a basic score; the graph is not used.

    Parameters
    ----------
    alpha : float
        Miscoverage: sets hold the true label with probability at least 1 - alpha.
    score : Score
        `snaps.APS()`, `snaps.RAPS()`, `snaps.SAPS()`, `snaps.THR()` or your own.
    seed : int
        Fixes the draws of randomised scores and the choice of tuning nodes.
    class_conditional : bool
        One threshold per class, so that the guarantee holds within each class; the sets grow.

    Attributes
    ----------
    threshold_ : float, or array (K,) with class thresholds
    scores_ : array (n, K)
    calib_nodes_, tune_nodes_ : arrays of positions
    score_ : Score, its parameters chosen
    classes_ : array (K,)

    Examples
    --------
    >>> import numpy as np
    >>> probs = np.tile([0.6, 0.3, 0.1], (40, 1))
    >>> labels = np.array([0, 0, 0, 1] * 10)
    >>> cp = SplitConformal(alpha=0.1).calibrate(None, probs, labels, nodes=np.arange(20))
    >>> len(cp.predict_set())
    20
    """

    needs_graph: ClassVar[bool] = False

    def scorer(self) -> Mixing:
        """The basic score alone."""
        self._check_shared()
        return Mixing(self.score, self.seed)


@dataclass(eq=False, repr=False, kw_only=True)
class DAPS(Estimator):
    """Diffusion over links: s^ = (1 - mu) S + mu A S.

    Parameters
    ----------
    alpha : float
    score : Score
    weight : float, "tune" or "minimum"
        mu, the weight of the linked nodes. "tune" and "minimum" try 0, 0.05, ..., 0.95 on the
        tuning nodes; see `SNAPS`.
    seed : int
    class_conditional : bool

    Attributes
    ----------
    weights_ : (0.0, mu)
    threshold_, scores_, score_, calib_nodes_, tune_nodes_, classes_ : see `SplitConformal`

    Examples
    --------
    >>> import numpy as np
    >>> import snaps
    >>> from snaps.datasets import make_graph
    >>> from snaps.models import smoothed_regression
    >>> data = make_graph(600, 4, seed=1)
    >>> probs = smoothed_regression(data.graph, data.labels, np.arange(60))
    >>> cp = snaps.DAPS(alpha=0.1, weight=0.5)
    >>> cp = cp.calibrate(data.graph, probs, data.labels, nodes=np.arange(60, 260))
    >>> cp.weights_
    (0.0, 0.5)
    >>> cp.predict_set(np.arange(260, 600))
    PredictionSets(340 nodes, 4 classes, mean size 1.00)
    """

    weight: float | Literal["tune", "minimum"] = "tune"

    def scorer(self) -> Mixing:
        """Own and linked scores."""
        self._check_shared()
        if isinstance(self.weight, str):
            if self.weight not in TUNED:
                raise SnapsError(
                    "'weight' must be a number from 0 to 1, 'tune' or 'minimum', "
                    f"got {shown(self.weight)}"
                )
            grid = DAPS_GRID
        else:
            grid = ((0.0, check_number(self.weight, "weight", low=0, high=1)),)
        averaged = self.weight == "tune"
        return Mixing(
            self.score, self.seed, None, Links(), grid, fallback=(0.0, 0.5), averaged=averaged
        )


@dataclass(eq=False, repr=False, kw_only=True)
class SNAPS(Estimator):
    """Similarity-navigated adaptive prediction sets: s^ = (1 - lam - mu) S + lam As S + mu A S.

    Parameters
    ----------
    alpha : float
        Miscoverage: sets hold the true label with probability at least 1 - alpha.
    score : Score
        The basic score S.
    k : int
        Number of similar nodes.
    weights : (lam, mu), "tune" or "minimum"
        lam weighs the k most similar nodes, mu the linked ones. "minimum" takes the pair with the
        smallest sets on the tuning nodes, of all pairs of multiples of 0.05 with lam + mu <= 1, as
        the paper does. "tune" averages the minima of 24 resamples of the tuning nodes and leans to
        (1/3, 1/3) where they are few, which gives smaller sets on other nodes.
    neighbours : "auto", "exact" or "approximate"
        How similar nodes are looked for; "auto" is exact where that takes seconds.
    recall : float
        The share of similar nodes that an approximate search is to find.
    candidates : int, optional
        Look for similar nodes among so many random ones only, exactly.
    seed : int
        Fixes the draws of randomised scores and the choice of tuning nodes.
    class_conditional : bool
        One threshold per class, so that the guarantee holds within each class; the sets grow.

    Attributes
    ----------
    weights_ : (lam, mu)
    threshold_, scores_, score_, calib_nodes_, tune_nodes_, classes_ : see `SplitConformal`

    Notes
    -----
    The guarantee is marginal and asks that calibration nodes are a random draw from the pool of
    nodes to be predicted. A node without similar or linked nodes keeps that weight for itself.
    Cost: the similarity graph once (see `similarity_graph`), then two sparse products.

    Examples
    --------
    >>> import numpy as np
    >>> from snaps.datasets import make_graph
    >>> from snaps.models import smoothed_regression
    >>> data = make_graph(600, 4, seed=1)
    >>> probs = smoothed_regression(data.graph, data.labels, np.arange(60))
    >>> cp = SNAPS(alpha=0.1).calibrate(data.graph, probs, data.labels, nodes=np.arange(60, 260))
    >>> len(cp.predict_set(np.arange(260, 600)))
    340
    """

    k: int = 20
    weights: tuple[float, float] | Literal["tune", "minimum"] = "tune"
    neighbours: Literal["auto", "exact", "approximate"] = "auto"
    recall: float = 0.95
    candidates: int | None = None

    def scorer(self) -> Mixing:
        """Own, similar and linked scores."""
        self._check_shared()
        search = Search(*check_neighbours(self.neighbours, self.recall, self.candidates))
        similar = Similar(check_integer(self.k, "k", low=1), search=search)
        tuned = isinstance(self.weights, str) and self.weights in TUNED
        grid = SNAPS_GRID if tuned else (check_weights(self.weights),)
        averaged = tuned and self.weights == "tune"
        return Mixing(self.score, self.seed, similar, Links(), grid, (1 / 3, 1 / 3), averaged)

    def warn_of(self, inputs: Inputs) -> None:
        if "similar" not in inputs.has:
            warnings.warn(
                "the graph has no features, so no node has similar ones: SNAPS is DAPS here",
                SnapsWarning,
                stacklevel=5,
            )
