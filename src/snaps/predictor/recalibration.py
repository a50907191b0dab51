"""`recalibrate`: going on with a graph that has grown, or with another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np

from snaps._checks import check_alpha, check_flag, shown
from snaps._checks.named import column_names, named_columns
from snaps._runtime.progress import stage
from snaps._runtime.randomness import locate_keys
from snaps.errors import SnapsError, warn
from snaps.graph import Graph
from snaps.predictor.fitted import Fitted
from snaps.predictor.roles import Roles
from snaps.predictor.state import State
from snaps.scoring.evidence import Evidence
from snaps.scoring.local import Inputs
from snaps.scoring.parts import Scorer


class Recalibrating(Fitted):
    """The verb, for estimators that say how to read, fit and settle."""

    def read_inputs(
        self, graph: Any, probs: Any, similarity: Any, logits: bool, classes: Any = None
    ) -> Inputs:
        """What this method sees of every node; complains about graph, probs and similarity."""
        raise NotImplementedError

    def _settle(self, inputs: Inputs, roles: Roles, scorer: Scorer, fitted: Any = None) -> None:
        raise NotImplementedError

    def _swap(self, state: State) -> None:
        raise NotImplementedError

    def _frozen_params(self) -> dict[str, Any]:
        raise NotImplementedError

    def similarity_again(self, graph: Any, old: Roles) -> Any:
        """The similarity graph of a new graph, where it is not simply made of its features."""

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
    ) -> Self:
        """Go on with a graph that has grown, or with probabilities made anew.

        Everything that sees no label is made on the new graph. Tuning, known and calibration nodes
        are found by id; parameters are fitted again, all nodes are scored, and the threshold is set
        anew. The guarantee then speaks of the nodes of the new graph, if the new ones arrived as
        the calibration nodes once did, and if the classifier was trained either without the
        calibration nodes in its graph or with the new ones too.

        Parameters
        ----------
        graph, probs, similarity, logits, groups : see `calibrate`
            Of the new graph. Nodes go by their id; a graph without ids of its own numbers its
            nodes, so new ones must come last. A graph that has other nodes under these ids, by
            their features and probabilities, is refused.
        labels : array (n,), optional
        nodes : array of positions, mask or ids, optional
            Nodes that calibrate beside the old ones, where labels arrived meanwhile; not with
            ``threshold="keep"``.
        classes : list of K names, optional
            What the columns of an array `probs` are called, if not in the order of `classes_`.
            Columns of a table are matched by their names.
        refit : bool
            False keeps the parameters, which is faster. They were fitted on a graph that held the
            calibration nodes but not the new ones, so the two are no longer treated alike and
            coverage may leave its exact law, a little.
        missing : "error" or "drop"
            What to do about calibration, tuning or known nodes that are gone. Dropping is fine
            when their going has nothing to do with how well they were predicted.
        threshold : "set" or "keep"
            "keep" applies parameters and threshold as they are to another graph: the promise then
            rests on the two graphs being alike. Nodes with an id of before are taken for the same
            if most look the same; in a graph that only numbers its nodes, none is.

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
        >>> early = snaps.Graph(data.graph.adjacency[:500, :500], data.graph.features[:500])
        >>> known = data.labels[:500]
        >>> cp = snaps.SNAPS(0.1).calibrate(early, probs[:500], known, np.arange(60, 260))
        >>> cp = cp.recalibrate(data.graph, probs)
        >>> cp.predict_set(np.arange(500, 600))
        PredictionSets(100 nodes, 4 classes, mean size 0.98)
        """
        return self._recalibrate(
            self._calibrated(), graph, probs, labels, nodes, similarity, logits,
            groups=groups, classes=classes, refit=refit, missing=missing, threshold=threshold,
        )  # fmt: skip

    def _recalibrate(
        self,
        old: State,
        graph: Any,
        probs: Any,
        labels: Any,
        nodes: Any,
        similarity: Any,
        logits: bool,
        *,
        groups: Any = None,
        classes: Any = None,
        refit: bool = True,
        missing: Literal["error", "drop"] = "error",
        threshold: Literal["set", "keep"] = "set",
    ) -> Self:
        """Go on from a state."""
        check_flag(refit, "refit")
        for name, value, allowed in (
            ("missing", missing, ("error", "drop")),
            ("threshold", threshold, ("set", "keep")),
        ):
            if not isinstance(value, str) or value not in allowed:
                raise SnapsError(
                    f"'{name}' must be {' or '.join(map(repr, allowed))}, got {shown(value)}"
                )
        scorer = self.scorer()
        keep = threshold == "keep"
        if keep and nodes is not None:
            raise SnapsError("'nodes' must be left out with threshold='keep', got both")
        if keep and groups is not None and old.roles.groups is None:
            raise SnapsError(
                "'groups' must be left out with threshold='keep': there is one threshold for all"
            )
        if similarity is None and old.given:
            raise SnapsError("'similarity' must be given for the new graph, as it was to calibrate")
        if similarity is None:
            similarity = self.similarity_again(graph, old.roles)
        with stage("reading"):
            probs = named_columns(probs, classes)
            if old.roles.named and column_names(probs) is None:
                raise SnapsError(
                    "'classes' must be given for probs whose columns have no names, as they had "
                    "to calibrate, got None: pass classes=[...] (--classes) in their order"
                )
            inputs = self.read_inputs(graph, probs, similarity, logits, old.roles.classes)
        if inputs.num_classes != len(old.roles.classes):
            raise SnapsError(
                f"'probs' must have {len(old.roles.classes)} columns as calibrated with, "
                f"got {inputs.num_classes}"
            )
        if inputs.graph.weighted != old.weighted:
            rule = "weighted" if old.weighted else "without weights"
            raise SnapsError(f"'graph' must be {rule}, as it was to calibrate")
        other_way = old.directed is not None and inputs.graph.directed != old.directed
        if other_way and inputs.graph.adjacency.nnz:
            rule = "directed" if old.directed else "undirected"
            raise SnapsError(f"'graph' must be {rule}, as it was to calibrate")
        if keep or not refit:
            _check_features(old.scorer, inputs, "threshold='keep'" if keep else "refit=False")
        same = {name: each.same_nodes(inputs) for name, each in old.fingerprints.items()}
        _check_same_nodes(same, old.roles, keep)
        # Nodes that are only numbered are not those of before, nor are nodes that look otherwise.
        apart = keep and not (inputs.graph.named and same.get("used", True))
        if old.inputs is not None:
            inputs = inputs.following(old.inputs)
        here = locate_keys(inputs.keys, old.roles.calib.keys)[1]
        if not keep and not here.size and nodes is None:
            raise SnapsError(
                f"'graph' must have calibration nodes, got none of {len(old.roles.calib)}: for "
                "another graph calibrate() anew, or threshold='keep' if the graphs are alike"
            )
        roles = old.roles.again(
            inputs.graph, None if apart else labels, nodes, groups=groups,
            drop=keep or missing == "drop", keep=keep,
        )  # fmt: skip
        if keep:
            warn(
                "threshold and parameters are those of another graph: the promise rests on the "
                "two graphs being alike"
            )
            self._keep(
                old, inputs, roles, _with_evidence(old.scorer, scorer, old.roles, apart), apart
            )
            return self
        if not refit:
            warn(
                "parameters were fitted on a graph without the new nodes: coverage may leave its "
                "exact law (refit=True fits them again)"
            )
        fitted = None if refit else _with_evidence(old.scorer, scorer, roles)
        self._settle(inputs, roles, scorer, fitted)
        return self

    def _keep(self, old: State, inputs: Inputs, roles: Roles, fitted: Any, apart: bool) -> None:
        """Swap in the old parameters and threshold with another graph; of `roles`, the groups."""
        calibration, names = old.calibration, ()
        if roles.groups is not None:
            names = roles.groups.names
            calibration = replace(calibration, num_groups=len(names))
        params = self._frozen_params()
        calibration.warn_few(check_alpha(params["alpha"]), roles.classes, names)
        inputs.score(fitted, np.arange(1))  # what cannot be scored is not swapped in
        self._swap(
            replace(
                old,
                params=params,
                inputs=inputs,
                roles=replace(old.roles, groups=roles.groups),  # whoever calibrated did so
                scorer=fitted,
                calibration=calibration,
                apart=apart,
            )
        )


def _with_evidence(fitted: Any, scorer: Any, roles: Roles, apart: bool = False) -> Any:
    """A fitted scorer with the evidence that a graph has: none of nodes that are not there."""
    if not hasattr(fitted, "evidence"):
        return fitted
    if apart:
        return replace(fitted, evidence=Evidence.none())
    known = roles.known.joined(roles.tuning) if scorer.tuning_evidence else roles.known
    return replace(fitted, evidence=known)


def _check_features(fitted: Any, inputs: Inputs, option: str) -> None:
    """Parameters that are kept may weigh what only features give."""
    parts = {"similar": "similar", **dict.fromkeys(("context", "propagated_context"), "features")}
    parts["regression"] = "features"
    for name, weight in fitted.weights.items():
        if weight and name in parts and parts[name] not in inputs.has:
            raise SnapsError(
                f"'graph' must have features, as it had to calibrate: {option} keeps parameters "
                "that use them"
            )


def _check_same_nodes(same: Mapping[str, bool], roles: Roles, keep: bool) -> None:
    """Nodes that are found by id must be those of before; with a kept threshold, the reference."""
    if not keep and not same.get("used", True):
        count = len(roles.calib) + len(roles.tuning) + len(roles.known)
        raise SnapsError(
            f"'graph' must have the {count} calibration, tuning and known nodes under their old "
            "ids, got other nodes there by features or probabilities (are ids shifted, or nodes "
            "in another order?): correct the ids, or call calibrate() on this graph"
        )
    if not same.get("reference", True):
        raise SnapsError(
            f"'reference' must be given again: by features or probabilities the "
            f"{len(roles.reference)} items at the old positions are others"
        )
