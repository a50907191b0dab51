"""What a calibrated estimator can be asked: sets, p-values, how well it does, and why."""

from __future__ import annotations

import os
from fractions import Fraction
from typing import Any

import numpy as np

from snaps._checks import (
    check_alpha,
    check_disjoint,
    check_flag,
    check_known,
    shown,
    warn_confidence,
)
from snaps._runtime.memory import taken
from snaps._runtime.randomness import SMOOTH_STREAM, hashes, locate_keys, uniforms
from snaps._version import __version__
from snaps.errors import SnapsError, warn
from snaps.io.files import check_page, check_writable
from snaps.predictor.evaluation import Evaluation, evaluate_sets
from snaps.predictor.exchangeability import Exchangeability, compare, node_columns
from snaps.predictor.explanation import Explanation, explain
from snaps.predictor.fitted import Fitted
from snaps.predictor.roles import mixed_seed, read_labels, read_node, read_nodes
from snaps.predictor.state import State
from snaps.scoring.local import Inputs
from snaps.sets import PredictionSets


class Predicting(Fitted):
    """The verbs after calibration."""

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
        wanted = _asked(nodes, state, inputs)
        if nodes is not None:
            _warn_used(wanted, state, inputs)
        level = check_alpha(self.alpha if alpha is None else alpha)
        _warn_level(level, state)
        sets = _sets(wanted, level, state, inputs, check_flag(smoothed, "smoothed"))
        made = {
            "version": __version__,
            "method": type(self).__name__,
            "score": repr(state.scorer.score),
            "alpha": float(level),
            "seed": int(state.params["seed"]),
            "calibration_nodes": len(state.roles.calib),
            "tuning_nodes": len(state.roles.tuning),
        }
        sets.metadata = {f"snaps.{name}": str(value) for name, value in made.items()}
        return sets

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
        wanted = _asked(nodes, state, inputs)
        if nodes is not None:
            _warn_used(wanted, state, inputs)
        return _p_values(wanted, state, inputs, check_flag(smoothed, "smoothed"))

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
        (state, inputs), level = self._view(), check_alpha(self.alpha)
        _warn_level(level, state)
        return _evaluated(labels, nodes, level, state, inputs)

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
        return _compared(_asked(nodes, state, inputs), state, inputs)

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
        (state, inputs), level = self._view(), check_alpha(self.alpha)
        roles = state.roles
        place = read_node(inputs.graph, node)
        limits = state.calibration.limits(level)
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
            Ends in .html or .htm.
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
        check_page(path, "path")
        (state, inputs), level = self._view(), check_alpha(self.alpha)
        roles, ids = state.roles, inputs.graph.ids
        wanted = _asked(nodes, state, inputs)
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
            truth, _ = read_labels(inputs.graph, labels, inputs.num_classes, roles.classes)
            known = wanted[truth[wanted] >= 0]
            _warn_level(level, state)
            evaluation = _evaluated(labels, known, level, state, inputs) if known.size else None
        compared = wanted.size and inputs.positions(roles.calib.keys).size
        look = _compared(wanted, state, inputs) if compared else None
        subject = Subject(
            type(self).__name__, self.scorer(), state, inputs, level, wanted,
            truth, evaluation, look, int(state.params["seed"]), title,
        )  # fmt: skip
        write_report(path, subject, asked)


# -- what the verbs share: each takes the state that the verb saw, as it may change meanwhile ------


def _asked(nodes: Any, state: State, inputs: Inputs) -> np.ndarray:
    """The nodes asked for; by default all that were not used."""
    roles = state.roles
    if nodes is None:
        rest = np.ones(inputs.num_nodes, bool)
        used = [] if state.apart else [roles.calib.keys, roles.tuning.keys, roles.known.keys]
        rest[locate_keys(inputs.keys, np.concatenate([*used, roles.reference]))[0]] = False
        return np.flatnonzero(rest)
    wanted = read_nodes(inputs.graph, nodes, "nodes", True)
    refused = {"the reference, which is not to be predicted": roles.reference}
    if not state.apart:
        refused["the known nodes, whose labels were used"] = roles.known.keys
    for whose, keys in refused.items():
        places = locate_keys(inputs.keys, keys)[0]
        check_disjoint(wanted, "nodes", places, whose, inputs.graph.ids)
    return wanted


def _warn_level(level: Fraction, state: State) -> None:
    """Warn of another level than the calibrated one where it has too few nodes, or is too high."""
    if level != check_alpha(state.params["alpha"]):
        warn_confidence(level)
        groups = state.roles.groups
        names = () if groups is None else groups.names
        state.calibration.warn_few(level, state.roles.classes, names)


def _warn_used(wanted: np.ndarray, state: State, inputs: Inputs) -> None:
    """Say so when nodes are predicted that calibrated or tuned."""
    if state.apart:
        return
    keys = np.concatenate([state.roles.calib.keys, state.roles.tuning.keys])
    count = int(np.isin(wanted, locate_keys(inputs.keys, keys)[0]).sum())
    if count:
        warn(f"{count} of the nodes were used to calibrate or tune: the guarantee does not apply")


def _sets(
    wanted: np.ndarray, level: Fraction, state: State, inputs: Inputs, smoothed: bool = False
) -> PredictionSets:
    roles = state.roles
    if smoothed:
        mask = _p_values(wanted, state, inputs, True) > float(level)
    else:
        groups = None if roles.groups is None else roles.groups.codes[wanted]
        scores = inputs.score(state.scorer, wanted)
        mask = state.calibration.contains(scores, level, groups)
    ids = np.asarray(taken(inputs.graph.ids, wanted))
    return PredictionSets(mask, wanted, ids, inputs.num_nodes, roles.classes)


def _p_values(wanted: np.ndarray, state: State, inputs: Inputs, smoothed: bool) -> np.ndarray:
    roles, draws = state.roles, None
    groups = None if roles.groups is None else roles.groups.codes[wanted]
    if smoothed:
        # One draw per node and label; another calibration set, another draw: were it the node's
        # alone, a pool would have a bias of its own for each seed.
        keys = hashes(0, inputs.keys[wanted], SMOOTH_STREAM)
        seed = mixed_seed(state.params["seed"], roles.calib.keys)
        draws = uniforms(seed, keys, inputs.num_classes)
    return state.calibration.p_values(inputs.score(state.scorer, wanted), groups, draws)


def _evaluated(
    labels: Any, nodes: Any, level: Fraction, state: State, inputs: Inputs
) -> Evaluation:
    roles = state.roles
    codes, _ = read_labels(inputs.graph, labels, inputs.num_classes, roles.classes)
    wanted = _asked(nodes, state, inputs)
    if nodes is None:
        wanted = wanted[codes[wanted] >= 0]
    if wanted.size == 0:
        raise SnapsError("'nodes' must hold at least one labelled node, got none")
    check_known(codes, wanted, "nodes", inputs.graph.ids)
    if not state.apart:
        for whose, keys in (
            ("the calibration nodes", roles.calib.keys),
            ("the tuning nodes", roles.tuning.keys),
        ):
            places = locate_keys(inputs.keys, keys)[0]
            check_disjoint(wanted, "nodes", places, whose, inputs.graph.ids)
    return evaluate_sets(_sets(wanted, level, state, inputs), codes, state, level)


def _compared(wanted: np.ndarray, state: State, inputs: Inputs) -> Exchangeability:
    """Calibration nodes against the nodes wanted."""
    roles, adjacency = state.roles, inputs.graph.adjacency
    degrees = np.diff(adjacency.indptr) if adjacency.nnz else None
    columns = node_columns(inputs.probs, inputs.score(state.scorer), degrees, roles.classes)
    drawn = inputs.positions(roles.calib.keys)
    evidence = getattr(state.scorer, "evidence", roles.known)
    # Tuning nodes of the same draw tell as much, unless their own labels moved their scores.
    if roles.tuning.drawn and not np.isin(roles.tuning.keys, evidence.keys).any():
        drawn = np.concatenate([drawn, inputs.positions(roles.tuning.keys)])
    return compare(columns, drawn, wanted, inputs.keys, state.params["seed"])
