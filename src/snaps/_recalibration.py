"""`recalibrate`: going on with a graph that has grown, or with another one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Self

from snaps._checks import check_alpha, check_flag, shown
from snaps._errors import SnapsError, warn
from snaps._evidence import Evidence
from snaps._fitted import Fitted
from snaps._inputs import Inputs
from snaps._parts import Scorer
from snaps._progress import stage
from snaps._randomness import locate_keys
from snaps._roles import Roles
from snaps._state import State
from snaps.graph import Graph


class Recalibrating(Fitted):
    """The verb, for estimators that say how to read, fit and settle."""

    def read_inputs(self, graph: Any, probs: Any, similarity: Any, logits: bool) -> Inputs:
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
            nodes, so new ones must come last.
        labels : array (n,), optional
        nodes : array of positions, mask or ids, optional
            Nodes that calibrate beside the old ones, where labels arrived meanwhile; not with
            ``threshold="keep"``.
        refit : bool
            False keeps the parameters, which is faster. They were fitted on a graph that held the
            calibration nodes but not the new ones, so the two are no longer treated alike and
            coverage may leave its exact law, a little.
        missing : "error" or "drop"
            What to do about calibration, tuning or known nodes that are gone. Dropping is fine
            when their going has nothing to do with how well they were predicted.
        threshold : "set" or "keep"
            "keep" applies parameters and threshold as they are to another graph: the promise then
            rests on the two graphs being alike. Nodes with an id of before are taken for the same;
            in a graph that only numbers its nodes, none is.

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
        check_flag(refit, "refit")
        for name, value, allowed in (
            ("missing", missing, ("error", "drop")),
            ("threshold", threshold, ("set", "keep")),
        ):
            if not isinstance(value, str) or value not in allowed:
                raise SnapsError(
                    f"'{name}' must be {' or '.join(map(repr, allowed))}, got {shown(value)}"
                )
        old, scorer = self._calibrated(), self.scorer()
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
            inputs = self.read_inputs(graph, probs, similarity, logits)
        if inputs.num_classes != len(old.roles.classes):
            raise SnapsError(
                f"'probs' must have {len(old.roles.classes)} columns as calibrated with, "
                f"got {inputs.num_classes}"
            )
        if inputs.graph.weighted != old.weighted:
            rule = "weighted" if old.weighted else "without weights"
            raise SnapsError(f"'graph' must be {rule}, as it was to calibrate")
        if old.inputs is not None:
            inputs = inputs.following(old.inputs)
        here = locate_keys(inputs.keys, old.roles.calib.keys)[1]
        if not keep and not here.size and nodes is None:
            raise SnapsError(
                f"'graph' must have calibration nodes, got none of {len(old.roles.calib)}: for "
                "another graph calibrate() anew, or threshold='keep' if the graphs are alike"
            )
        roles = old.roles.again(
            inputs.graph, labels, nodes, groups=groups, drop=keep or missing == "drop", keep=keep
        )
        if keep:
            warn(
                "threshold and parameters are those of another graph: the promise rests on the "
                "two graphs being alike"
            )
            self._keep(old, inputs, roles)
            return self
        if not refit:
            warn(
                "parameters were fitted on a graph without the new nodes: coverage may leave its "
                "exact law (refit=True fits them again)"
            )
        self._settle(inputs, roles, scorer, None if refit else old.scorer)
        return self

    def _keep(self, old: State, inputs: Inputs, roles: Roles) -> None:
        """Swap in the old parameters and threshold with another graph; of `roles`, the groups."""
        # Nodes that are only numbered are not those of before.
        apart, fitted = not inputs.graph.named, old.scorer
        if apart and hasattr(fitted, "evidence"):
            fitted = replace(fitted, evidence=Evidence.none())
        calibration, names = old.calibration, ()
        if roles.groups is not None:
            names = roles.groups.names
            calibration = replace(calibration, num_groups=len(names))
        calibration.warn_few(check_alpha(self.alpha), roles.classes, names)
        self._swap(
            replace(
                old,
                params=self._frozen_params(),
                inputs=inputs,
                roles=replace(old.roles, groups=roles.groups),  # whoever calibrated did so
                scorer=fitted,
                calibration=calibration,
                apart=apart,
            )
        )
