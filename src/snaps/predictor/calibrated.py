"""`Calibrated`: what can be asked of an estimator after calibration.

Each verb is documented here for users and hands over to the estimator's `Predictor`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from snaps._checks import shown
from snaps.conformal.watching import Watch
from snaps.errors import NotCalibratedError, SnapsError
from snaps.predictor.evaluation import Evaluation, evaluate, watch
from snaps.predictor.exchangeability import Exchangeability, exchangeability
from snaps.predictor.explanation import Explanation, explain
from snaps.predictor.predictor import Predictor
from snaps.predictor.selection import Selection, accept, select
from snaps.scores import LIBRARY, Score
from snaps.sets import PredictionSets


def _fact(ask: Callable[[Any, Predictor], Any], doc: str) -> Any:
    """An attribute that calibration gives; asking for it before raises NotCalibratedError."""
    return property(lambda self: ask(self, self._predictor()), doc=doc)


class Calibrated:
    """The verbs and attributes of an estimator that calibration gives."""

    alpha: Any

    # The parameters that were calibrated with, and what came of it; swapped as a whole.
    _fitted = None  # type: tuple[dict[str, Any], Predictor] | None

    def _predictor(self) -> Predictor:
        """What calibration gave, if the parameters are still those calibrated with."""
        return self._current()[1]

    def _current(self) -> tuple[dict[str, Any], Predictor]:
        """The parameters calibrated with, and what calibration gave."""
        fitted = self._fitted  # which another thread may replace
        if fitted is None:
            raise NotCalibratedError(
                f"this {type(self).__name__} must be calibrated first: call calibrate()"
            )
        for name, before in fitted[0].items():
            value = getattr(self, name)
            if name != "alpha" and value is not before and not same_value(value, before):
                raise SnapsError(
                    f"'{name}' must not be changed after calibration, got {shown(value)} for "
                    f"{shown(before)}: call calibrate() again"
                )
        return fitted

    def predict_set(
        self,
        nodes: Any = None,
        alpha: float | Mapping[Any, float] | None = None,
        *,
        smoothed: bool = False,
        empty: Literal["keep", "top"] = "keep",
    ) -> PredictionSets:
        """Prediction sets of some nodes.

        Parameters
        ----------
        nodes : array of positions, mask (n,), or ids where these are strings; optional
            By default all but calibration, tuning and known nodes. The guarantee applies to nodes
            drawn from the same pool as the calibration nodes, not to nodes that were used to
            calibrate, tune or train.
        alpha : float, or mapping from class to float; optional
            Another level than the estimator's; the weights stay.
        smoothed : bool
            Break ties at random per node and label: coverage is then exactly 1 - alpha also where
            scores tie. The sets contain the labels whose smoothed p-value is above alpha.
        empty : "keep" or "top"
            "top" adds the most probable label to sets that would be empty. Coverage can only rise.

        Examples
        --------
        >>> probs, labels = np.tile([0.6, 0.3, 0.1], (40, 1)), [0, 0, 0, 1] * 10
        >>> cp = snaps.SplitConformal(0.1, score=snaps.THR())
        >>> cp = cp.calibrate(None, probs, labels, nodes=np.arange(20))
        >>> cp.predict_set(np.arange(20, 40))[0]
        array([0, 1])
        >>> cp.predict_set(np.arange(20, 40), alpha=0.4)[0]
        array([0])
        """
        level = self.alpha if alpha is None else alpha
        return self._predictor().at(level).sets(nodes, smoothed, empty)

    def predict_p(self, nodes: Any = None, smoothed: bool = False) -> np.ndarray:
        """Conformal p-values (m, K): a label is in the set at alpha if its p-value is above alpha.

        Parameters
        ----------
        nodes : see `predict_set`
        smoothed : bool
            Break ties at random, which makes the p-values of true labels exactly uniform.

        Examples
        --------
        >>> probs, labels = np.tile([0.6, 0.3, 0.1], (40, 1)), [0, 0, 0, 1] * 10
        >>> cp = snaps.SplitConformal(0.1, score=snaps.THR())
        >>> cp = cp.calibrate(None, probs, labels, nodes=np.arange(20))
        >>> cp.predict_p([20]).round(2)
        array([[1.  , 0.29, 0.05]])
        """
        return self._predictor().p_values(nodes, smoothed)

    def select(self, label: Any, fdr: float = 0.1, nodes: Any = None) -> Selection:
        """List nodes that have a label, with a bound on the share that has not.

        On average over draws of the calibration nodes, at most a share `fdr` of the nodes selected
        is of another label; an empty list has none. This holds for nodes drawn from the same pool
        as the calibration nodes, linked or not, and for each label by itself. Thresholds, groups
        and `alpha` play no part.

        Parameters
        ----------
        label : int or str
            A class, as in `classes_`.
        fdr : float
            The false discovery rate.
        nodes : array of positions, mask (n,), or ids where these are strings; optional
            By default all but calibration, tuning and known nodes, which cannot be selected.
            Choose them without looking at evidence or labels.

        Notes
        -----
        Jin and Candès, *Selection by prediction with conformal p-values*, JMLR 2023. Evidence is
        the method's probability of the label; ties count against a node, so nothing is smoothed.

        Examples
        --------
        >>> probs, labels = np.repeat([[0.9, 0.1], [0.2, 0.8]], 200, axis=0), np.repeat([0, 1], 200)
        >>> cp = snaps.SplitConformal(0.1).calibrate(None, probs, labels, np.arange(0, 400, 2))
        >>> flagged = cp.select(1, fdr=0.1)
        >>> len(flagged), flagged.ids[flagged.selected][:3]
        (100, array([201, 203, 205]))
        """
        return select(self._predictor(), label, fdr, nodes)

    def accept(self, error: float = 0.02, nodes: Any = None) -> Selection:
        """List nodes whose most probable label may be taken as it is.

        On average over draws of the calibration nodes, at most a share `error` of the labels
        accepted is wrong. See `select` for what this needs.

        Parameters
        ----------
        error : float
            The false discovery rate of accepted labels.
        nodes : see `select`

        Examples
        --------
        >>> probs, labels = np.repeat([[0.9, 0.1], [0.2, 0.8]], 200, axis=0), np.repeat([0, 1], 200)
        >>> cp = snaps.SplitConformal(0.1).calibrate(None, probs, labels, np.arange(0, 400, 2))
        >>> print(cp.accept(error=0.02))
        200 of 200 nodes accepted with the most probable label: on average at most 2 % of such a
        list are wrong, over draws of 200 calibration nodes.
        The smallest rate that 200 calibration nodes can certify for a list this long is 0.5 %.
        """
        return accept(self._predictor(), error, nodes)

    def evaluate(
        self, labels: Any, nodes: Any = None, *, empty: Literal["keep", "top"] = "keep"
    ) -> Evaluation:
        """Compare the sets of labelled nodes with their labels.

        Parameters
        ----------
        labels : array (n,)
        nodes : array of positions, mask (n,), or ids where these are strings; optional
            By default all labelled nodes but calibration, tuning and known nodes.
        empty : see `predict_set`

        Returns
        -------
        Evaluation
            A dict, fit for JSON, that prints as a table: coverage, size, size_nonempty,
            singleton_hit, empty, n, threshold, n_calib, n_tune, class_coverage, group_coverage;
            coverage_interval (where coverage falls with probability 0.99 for nodes of the same
            pool; None with class or group thresholds, or chances) and inside; tied (share of
            calibration scores that tie) and upper_binds (False if scores tie at the threshold:
            coverage may then exceed the interval); class_promise, group_promise and confidence
            (what is promised beyond the average); with chances n_effective, and no threshold, as it
            differs between nodes. Infinite and missing values are None.

            weakest_slice is a dict on the slice that chance explains least, of all by class, group,
            degree, top probability (in fifths) and set size: by, name, coverage, n, the number of
            slices, chance_coverage (if coverage is alike everywhere, the weakest of so many has at
            least this in 99 % of draws, given the overall coverage) and chance (how probable so
            weak a slice is then, at most). worst_slab is a dict on the worst-slab coverage
            (Cauchois et al. 2021) in the space of probabilities and log degree: searched for among
            slabs with at least a fifth of the nodes on one half of (up to 40,000) nodes, estimated
            on n nodes of the other half; None below 100 nodes. Both are estimates and no promise.

        Examples
        --------
        >>> probs, labels = np.tile([0.6, 0.3, 0.1], (40, 1)), [0, 0, 0, 1] * 10
        >>> cp = snaps.SplitConformal(0.1, score=snaps.THR())
        >>> cp = cp.calibrate(None, probs, labels, nodes=np.arange(20))
        >>> result = cp.evaluate(labels, np.arange(20, 40))
        >>> result["coverage"], result["size"], result["n"]
        (1.0, 2.0, 20)
        """
        return evaluate(self._predictor().at(self.alpha), labels, nodes, empty)

    def watch(
        self,
        labels: Any,
        nodes: Any,
        *,
        state: Watch | str | os.PathLike[str] | None = None,
        alarm: float = 0.01,
    ) -> Watch:
        """Test, label by label, whether coverage is still what calibration promised.

        Labels of randomly audited nodes may arrive in batches and late, and you may look after
        each. If audited and calibration nodes are drawn alike and scored on one graph, there is
        ever an alarm with probability at most `alarm`, however long you watch.

        Parameters
        ----------
        labels : array (n,), Series, or mapping from id to label
        nodes : array of positions or ids
            The audited nodes, in the order in which their labels arrived. A node counts once: those
            that `state` has counted are left out.
        state : Watch or path, optional
            What was seen before: an earlier result, or the file that its `save` wrote.
        alarm : float
            Probability of a false alarm at most.

        Examples
        --------
        >>> probs, labels = np.tile([0.6, 0.3, 0.1], (40, 1)), [0, 0, 0, 1] * 10
        >>> cp = snaps.SplitConformal(0.4, score=snaps.THR())
        >>> cp = cp.calibrate(None, probs, labels, nodes=np.arange(20))
        >>> watch = cp.watch(labels, [20, 21, 23])
        >>> watch = cp.watch(labels, [21, 22], state=watch)
        >>> watch.hits, watch.alarmed
        (array([ True,  True, False,  True]), False)
        """
        return watch(self._predictor().at(self.alpha, quiet=True), labels, nodes, state, alarm)

    def exchangeability(self, nodes: Any = None) -> Exchangeability:
        """Test whether calibration nodes look like the nodes to predict; needs no label.

        Compares top probability, predicted class, score of the top label and degree by rank tests,
        with a false alarm in at most 1 of 1,000 fair splits. A difference means that the guarantee
        does not apply to these nodes; no difference proves nothing.

        Parameters
        ----------
        nodes : see `predict_set`

        Examples
        --------
        >>> probs, labels = np.tile([0.6, 0.3, 0.1], (40, 1)), [0, 0, 0, 1] * 10
        >>> cp = snaps.SplitConformal(0.1, score=snaps.THR())
        >>> cp = cp.calibrate(None, probs, labels, nodes=np.arange(20))
        >>> cp.exchangeability().alike
        True
        """
        return exchangeability(self._predictor(), nodes)

    def explain(self, node: Any) -> Explanation:
        """Show why each label is in or out of a node's set, and which neighbours moved its score.

        Parameters
        ----------
        node : int, or str where ids are strings

        Examples
        --------
        >>> probs, labels = np.tile([0.6, 0.3, 0.1], (40, 1)), [0, 0, 0, 1] * 10
        >>> cp = snaps.SplitConformal(0.1, score=snaps.THR())
        >>> cp = cp.calibrate(None, probs, labels, nodes=np.arange(20))
        >>> print(cp.explain(30))
        node 30
        label         own     mixed  threshold  in
        weight      1.000
        0          0.4000    0.4000     0.7000  yes
        1          0.7000    0.7000     0.7000  yes
        2          0.9000    0.9000     0.7000  -
        """
        return explain(self._predictor().at(self.alpha, quiet=True), node)

    def report(
        self,
        path: str | os.PathLike[str],
        labels: Any = None,
        nodes: Any = None,
        *,
        show: Any = None,
        title: str = "",
        source: str = "",
        watch: Watch | str | os.PathLike[str] | None = None,
    ) -> None:
        """Write a report: one HTML page that needs no network, with every node to explore.

        Parameters
        ----------
        path : path
            Ends in .html or .htm.
        labels : array (n,), optional
            Labels as far as they are known. Without them coverage cannot be shown.
        nodes : see `predict_set`
        show : same, optional
            Nodes that the page must contain. It has all nodes up to 20,000, and a random part of
            more.
        title : str
            Name of the data.
        source : str
            Where the data came from, as a reader should cite it.
        watch : Watch or path, optional
            What `watch` has counted since calibration; its evidence is then shown over time.

        Examples
        --------
        >>> probs, labels = np.tile([0.6, 0.3, 0.1], (40, 1)), [0, 0, 0, 1] * 10
        >>> cp = snaps.SplitConformal(0.1, score=snaps.THR())
        >>> cp = cp.calibrate(None, probs, labels, nodes=np.arange(20))
        >>> cp.report("report.html", labels)
        """
        from snaps.report import report

        predictor = self._predictor().at(self.alpha, quiet=labels is None)
        report(predictor, path, labels, nodes, show=show, title=title, source=source, watched=watch)

    # -- what calibration gave ------------------------------------------------------------------

    threshold_ = _fact(
        lambda cp, p: p.at(cp.alpha, quiet=True).threshold(),
        "The largest score that is still in; one per class, group, or both where asked for; one "
        "per node with unequal chances.",
    )
    promises_ = _fact(
        lambda _, p: p.shown_promise(),
        "What is promised beyond an average: class_floor, group_floor and confidence, as far as "
        "they were asked for.",
    )
    weights_ = _fact(
        lambda _, p: (p.scorer.weights.get("similar", 0.0), p.scorer.weights.get("linked", 0.0)),
        "The weights (lam, mu) of similar and linked nodes.",
    )
    part_weights_ = _fact(
        lambda _, p: {name: float(weight) for name, weight in p.scorer.weights.items()},
        "What each part of the method weighs, by name.",
    )
    score_ = _fact(lambda _, p: p.scorer.score, "The basic score, its parameters chosen.")
    scores_ = _fact(
        lambda _, p: p.inputs.score(p.scorer),
        "Scores (n, K) of every node and label, computed when asked for.",
    )
    classes_ = _fact(
        lambda _, p: p.roles.classes,
        "Names of the classes, in the order of the columns of probabilities.",
    )
    groups_ = _fact(
        lambda _, p: p.roles.groups.names,
        "Names of the groups, in the order of their thresholds; none without groups.",
    )
    calib_nodes_ = _fact(
        lambda _, p: p.inputs.positions(p.roles.calib.keys), "Positions of the calibration nodes."
    )
    tune_nodes_ = _fact(
        lambda _, p: p.inputs.positions(p.roles.tuning.keys), "Positions of the tuning nodes."
    )
    known_nodes_ = _fact(
        lambda _, p: p.inputs.positions(p.roles.known.keys), "Positions of the known nodes."
    )
    calib_ids_ = _fact(lambda _, p: p.roles.calib.ids, "Ids of the calibration nodes.")
    tune_ids_ = _fact(lambda _, p: p.roles.tuning.ids, "Ids of the tuning nodes.")
    known_ids_ = _fact(lambda _, p: p.roles.known.ids, "Ids of the known nodes.")
    calib_labels_ = _fact(
        lambda _, p: p.roles.calib.labels,
        "Classes of the calibration nodes, as columns of the probabilities.",
    )
    missing_labels_ = _fact(
        lambda _, p: p.roles.missing, "How many calibration nodes count as not covered."
    )
    effective_labels_ = _fact(
        lambda _, p: p.effective_labels,
        "How many evenly drawn labels say as much as those drawn with `chances`; None without.",
    )
    calib_scores_ = _fact(
        lambda _, p: p.calibration.scores, "Scores of the calibration nodes' labels."
    )
    neighbours_ = _fact(
        lambda _, p: p.searches(),
        "How similar nodes, and those in a similar context, were searched for: method, recall, and "
        "the number of candidates (None: all nodes). Empty where there was no search.",
    )


def same_value(value: Any, other: Any) -> bool:
    """Whether two parameters are equal, arrays included."""
    sequences = (np.ndarray, list, tuple)
    if isinstance(value, Score) and type(value) not in LIBRARY:
        return value is other  # a class of the user's may hold what its equality does not see
    try:
        if isinstance(value, sequences) or isinstance(other, sequences):
            return np.array_equal(np.asarray(value), np.asarray(other))
        return bool(value == other)
    except Exception:  # what cannot even be compared
        return False
