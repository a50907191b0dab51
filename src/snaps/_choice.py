"""Which of some judged methods to recommend: the rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from snaps._judging import NUMBERS, Judged
from snaps.predictor.estimator import Estimator

GOALS = {
    "smallest": "size",
    "singletons": "singleton_hit",
    "classes": "class_gap",
    "sizes": "sscv",
}
"""What a user may want, and the number that tells: the smallest sets, the most sets that are
exactly the true label, every class covered alike, or small and large sets covered alike."""

DEFAULT = "Pooled"  # preferred where nothing is better beyond noise
ERRORS = 2.0  # standard errors either side: what lies within is noise
MOST_TIMES = 2.0  # the smallest sets: what is larger is too dear for any balance


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods judged on the same tuning nodes.

    Attributes
    ----------
    methods : dict of estimators, by name
    judged : dict of their numbers
    keys : array
        Of the tuning nodes.
    n_calib, num_classes : int
    """

    methods: dict[str, Estimator]
    judged: dict[str, Judged]
    keys: np.ndarray
    n_calib: int
    num_classes: int

    def number(self, name: str, key: str) -> float:
        """One number of one method."""
        return float(self.judged[name].means[NUMBERS.index(key)])

    def difference(self, name: str, other: str, key: str) -> tuple[float, float]:
        """By how much a method's number is above another's, and the noise of that."""
        by, errors = self.judged[name].beyond(self.judged[other])
        place = NUMBERS.index(key)
        return float(by[place]), ERRORS * float(errors[place])

    @property
    def smallest(self) -> str:
        """The method with the smallest sets."""
        return min(self.methods, key=lambda name: self.number(name, "size"))

    @property
    def most(self) -> float:
        """The largest mean size that is recommended.

        Half-way from one label to all of them, and at most twice the smallest sets.
        """
        halfway = (1 + self.num_classes) / 2
        return min(halfway, MOST_TIMES * self.number(self.smallest, "size"))

    @property
    def usable(self) -> list[str]:
        """The methods whose sets are not near full; there may be none."""
        return [name for name in self.methods if self.number(name, "size") <= self.most]

    def ranked(self, goal: str) -> list[str]:
        """The pick, then the others by their number, those with near-full sets last.

        The best at the goal wins, but of those within noise of it the default, or else the one with
        the smallest sets. Where all sets are near full, size alone counts.
        """
        usable = self.usable or list(self.methods)
        key = GOALS[goal] if self.usable else "size"
        sign = -1.0 if key == "singleton_hit" else 1.0
        ordered = sorted(
            self.methods, key=lambda name: (name not in usable, sign * self.number(name, key))
        )
        close = [name for name in usable if self.within_noise(name, ordered[0], key)]
        pick = min(close, key=lambda name: (name != DEFAULT, self.number(name, "size")))
        return [pick, *(name for name in ordered if name != pick)]

    def within_noise(self, name: str, other: str, key: str) -> bool:
        """Whether two methods' numbers differ by no more than chance might make them."""
        by, noise = self.difference(name, other, key)
        return abs(by) <= noise

    def row(self, name: str) -> dict[str, Any]:
        """All numbers of a method, with their intervals."""
        judged, out = self.judged[name], dict[str, Any](method=name)
        for key, mean, error in zip(NUMBERS, judged.means, judged.errors, strict=True):
            out[key] = float(mean)
            out[f"{key}_low"] = max(float(mean - ERRORS * error), 0.0)
            out[f"{key}_high"] = float(mean + ERRORS * error)
        return out | {"near_full": name not in self.usable}
