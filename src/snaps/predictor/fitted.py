"""What calibration found, as attributes with a trailing underscore."""

from __future__ import annotations

from typing import Any

import numpy as np

from snaps._checks import check_alpha, shown
from snaps.errors import NotCalibratedError, SnapsError
from snaps.predictor.parameters import Parameters, same
from snaps.predictor.state import State
from snaps.scores import Score
from snaps.scoring.local import Inputs
from snaps.scoring.parts import Context, Scorer, Search, Similar
from snaps.similarity import SimilarityGraph


class Fitted(Parameters):
    """The attributes of a calibrated estimator; asking before calibration is an error."""

    alpha: Any

    _state = None  # type: State | None

    def scorer(self) -> Scorer:
        """The method's scorer, before its fit; complains about parameters.

        Examples
        --------
        >>> import snaps
        >>> snaps.SNAPS(weights=(0.3, 0.3)).scorer().needs_tuning
        False
        """
        raise NotImplementedError

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

    @property
    def threshold_(self) -> Any:
        """The largest score that is still in; one per class, group, or both where asked for."""
        return self._calibrated().calibration.threshold(check_alpha(self.alpha))

    @property
    def weights_(self) -> Any:
        """The weights chosen."""
        fitted = self._calibrated().scorer
        return fitted.lam, fitted.mu

    @property
    def part_weights_(self) -> dict[str, float]:
        """What each part of the method weighs, by name."""
        return {name: float(w) for name, w in self._calibrated().scorer.weights.items()}

    @property
    def score_(self) -> Score:
        """The basic score, its parameters chosen."""
        return self._calibrated().scorer.score

    @property
    def classes_(self) -> np.ndarray:
        """Names of the classes, in the order of the columns of probabilities."""
        return self._calibrated().roles.classes

    @property
    def groups_(self) -> tuple[Any, ...]:
        """Names of the groups, in the order of their thresholds; none without groups."""
        groups = self._calibrated().roles.groups
        return () if groups is None else groups.names

    @property
    def neighbours_(self) -> dict[str, dict[str, Any]]:
        """How similar nodes were found, and those in a similar context: method and recall.

        With them the number of candidates, of which the recall then speaks alone; None is all
        nodes. Empty where none were looked for, be it because the user brought a similarity graph.
        """
        inputs = self._view()[1]

        def found(search: Search, near: SimilarityGraph) -> dict[str, Any]:
            among = search.candidates
            return {
                "method": near.method,
                "recall": near.recall,
                "candidates": None if among is None else min(among, len(inputs.keys)),
            }

        return {
            type(recipe).__name__.lower(): found(recipe.search, near)
            for recipe, near in inputs.made(Similar, Context).items()
            if isinstance(near, SimilarityGraph)
        }

    @property
    def scores_(self) -> np.ndarray:
        """Scores (n, K) of every node and label, computed when asked for."""
        state, inputs = self._view()
        return inputs.score(state.scorer)

    @property
    def calib_nodes_(self) -> np.ndarray:
        """Positions of the nodes that calibrated."""
        state, inputs = self._view()
        return inputs.positions(state.roles.calib.keys)

    @property
    def calib_labels_(self) -> np.ndarray:
        """Their classes, as columns of the probabilities."""
        return self._calibrated().roles.calib.labels

    @property
    def calib_scores_(self) -> np.ndarray:
        """Their scores."""
        return self._calibrated().calibration.scores

    @property
    def tune_nodes_(self) -> np.ndarray:
        """Positions of the nodes that tuned."""
        state, inputs = self._view()
        return inputs.positions(state.roles.tuning.keys)

    @property
    def known_nodes_(self) -> np.ndarray:
        """Positions of the known nodes."""
        state, inputs = self._view()
        return inputs.positions(state.roles.known.keys)

    @property
    def calib_ids_(self) -> np.ndarray:
        """Ids of the nodes that calibrated."""
        return self._calibrated().roles.calib.ids

    @property
    def tune_ids_(self) -> np.ndarray:
        """Ids of the nodes that tuned."""
        return self._calibrated().roles.tuning.ids

    @property
    def known_ids_(self) -> np.ndarray:
        """Ids of the known nodes."""
        return self._calibrated().roles.known.ids
