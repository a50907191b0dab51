"""What a calibrated estimator holds: one frozen object, swapped in whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from snaps.conformal.calibration import Calibration
from snaps.predictor.fingerprint import Fingerprint
from snaps.predictor.roles import Roles
from snaps.scoring.local import Inputs


@dataclass(frozen=True, eq=False)
class State:
    """The two layers after calibration.

    Attributes
    ----------
    params : dict
        The estimator's parameters when it was calibrated.
    inputs : Inputs or None
        None when it was saved without data.
    given : bool
        Whether the user brought the similarity graph.
    tuned : bool
        Whether anything was chosen on the tuning nodes.
    weighted : bool
        Whether the links had weights.
    apart : bool
        Whether the graph is another than the one calibrated on: no node of it was used.
    directed : bool or None
        Whether the links had a direction; None in files that don't say.
    fingerprints : mapping of str to Fingerprint
        What nodes looked like: those "used" (calibration, tuning, known) and the "reference".
        Files of before have none.
    roles : Roles
    scorer : FittedScorer
    calibration : Calibration
    """

    params: dict[str, Any]
    inputs: Inputs | None
    roles: Roles
    scorer: Any
    calibration: Calibration
    given: bool = False
    tuned: bool = True
    weighted: bool = False
    apart: bool = False
    directed: bool | None = None
    fingerprints: Mapping[str, Fingerprint] = field(default_factory=dict)
