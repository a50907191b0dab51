"""`Estimator`: what SNAPS and its relatives share. Parameters, `calibrate`, and what follows it.

All that can be asked after calibration is answered by one frozen `Predictor`.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

import numpy as np

from snaps._checks import check_flag, check_level, check_seed, check_share, plainly, shown
from snaps._tables import html_table
from snaps.conformal.calibration import Promise
from snaps.conformal.watching import Watch
from snaps.errors import NotCalibratedError, SnapsError, warn
from snaps.graph import Graph
from snaps.predictor import persistence
from snaps.predictor.evaluation import Evaluation, evaluate, watch
from snaps.predictor.exchangeability import Exchangeability, exchangeability
from snaps.predictor.explanation import Explanation, explain
from snaps.predictor.predictor import Method, Predictor
from snaps.predictor.recalibration import recalibrate
from snaps.predictor.selection import Selection, accept, select
from snaps.scores import APS, LIBRARY, Score, check_score
from snaps.scoring.parts import Scorer
from snaps.sets import PredictionSets


def _fact(ask: Callable[[Any, Predictor], Any], doc: str) -> Any:
    """An attribute that calibration gives; asking for it before raises NotCalibratedError."""
    return property(lambda self: ask(self, self._predictor()), doc=doc)


@dataclass(eq=False, repr=False)
class Estimator:
    """The base class of all estimators; a subclass says which scorer its parameters make."""

    alpha: float | Fraction | Mapping[Any, float] = 0.05
    _: KW_ONLY
    score: Score = APS()  # noqa: RUF009 - scores are immutable
    seed: int = 0
    class_conditional: bool = False
    class_floor: float | None = None
    confidence: float | None = None

    _traits: ClassVar[dict[str, Any]] = {}  # what else its `Method` says
    # The parameters that were calibrated with, and what came of it; swapped as a whole.
    _fitted = None  # type: tuple[dict[str, Any], Predictor] | None
    _advised = None  # type: np.ndarray | None

    def _scorer(self) -> Scorer:
        """The scorer before its fit; raises SnapsError for parameters that are wrong."""
        raise NotImplementedError

    def _method(self) -> Method:
        """The parameters, checked."""
        by_class = check_flag(self.class_conditional, "class_conditional")
        level = check_level(self.alpha, by_class)
        check_score(self.score)
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
            if name != "alpha" and value is not before and not _same(value, before):
                raise SnapsError(
                    f"'{name}' must not be changed after calibration, got {shown(value)} for "
                    f"{shown(before)}: call calibrate() again"
                )
        return fitted

    # -- prediction -----------------------------------------------------------------------------

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
        return all(_same(value, theirs[name]) for name, value in self.get_params().items())

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


def _same(value: Any, other: Any) -> bool:
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
