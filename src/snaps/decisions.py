"""`Decisions`: an action per node, from its prediction set, with what is promised of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from snaps._checks import shown
from snaps._checks.classes import class_code
from snaps._tables import html_table
from snaps.errors import SnapsError
from snaps.io.files import check_metadata, check_output

if TYPE_CHECKING:
    from snaps.sets import PredictionSets


class Decisions:
    """A column of actions, one per set; `print` it for counts and what is promised.

    `PredictionSets.decide` makes it. It is taken as an array wherever one is: ``np.asarray``, a
    column of a DataFrame.

    Attributes
    ----------
    sets : PredictionSets
    actions : array (m,) of str
        The action of the class where a set has one label, `otherwise` elsewhere.
    action_of : dict
        Class to action, by the names of the classes.
    otherwise : str

    Examples
    --------
    >>> import snaps
    >>> mask = np.array([[True, False], [True, True], [False, True], [False, False]])
    >>> sets = snaps.PredictionSets(mask, classes=["fraud", "honest"])
    >>> decisions = sets.decide({"fraud": "block", "honest": "pass"}, otherwise="review")
    >>> decisions.actions.tolist()
    ['block', 'review', 'pass', 'review']
    >>> decisions.counts
    {'block': 1, 'pass': 1, 'review': 2}
    """

    def __init__(self, sets: PredictionSets, actions: Mapping[Any, str], otherwise: str):
        codes = _check_actions(actions, otherwise, sets.classes)
        self.sets, self.otherwise, self._codes = sets, otherwise, codes
        self.action_of = {sets.classes[code].item(): action for code, action in codes.items()}
        by_class = [codes.get(code, otherwise) for code in range(len(sets.classes))]
        single = np.where(sets.sizes == 1, sets.mask.argmax(axis=1), -1)
        self.actions = np.array([*by_class, otherwise])[single]

    @property
    def counts(self) -> dict[str, int]:
        """How many nodes are given each action."""
        names = dict.fromkeys([*self.action_of.values(), self.otherwise])
        return {name: int(np.count_nonzero(self.actions == name)) for name in names}

    @property
    def promises(self) -> list[str]:
        """What is promised of the actions, and what is not, a sentence each."""
        promise = self.sets.promise
        if promise is None:
            return ["Nothing is promised: these sets do not come from predict_set."]
        within = " within each group" if "group" in promise.kind else ""
        often = "On average"
        if promise.confidence is not None:
            often = f"With {_percent(promise.confidence)} confidence"
        shared = self.otherwise in self.action_of.values()
        bounds: list[float | None] = promise.rates.tolist()
        lines = []
        if "class" not in promise.kind:
            aside = f" (other than '{self.otherwise}')" if shared else ""
            lines.append(
                f"{often} at most {_percent(promise.rates[0])} of all nodes{within} are given the "
                f"action of a class that is not theirs{aside}."
            )
            bounds = [None if floor is None else 1 - floor for floor in promise.floors or ()]
        lines += self._by_class(bounds, often, within)
        if None in (bounds or [None]):
            lines.append(
                f"Nothing is promised {'for the other classes' if any(bounds) else 'per class'}: "
                "class_conditional=True (--class-conditional) does that."
            )
        if shared:
            lines.append(
                f"Nothing is promised of '{self.otherwise}', which all other sets are given too."
            )
        lines.append(
            "Not promised: the share of the nodes with an action that is right; select bounds it."
        )
        return lines

    def _by_class(self, bounds: list[float | None], often: str, within: str) -> list[str]:
        """The wrong actions that the nodes of each class are given at most, where that is known."""
        lines = []
        for code, bound in enumerate(bounds):
            harmless = {self.otherwise, self._codes.get(code)}
            wrong = [a for a in dict.fromkeys(self._codes.values()) if a not in harmless]
            if wrong and bound is not None:
                given = " or ".join(f"'{action}'" for action in wrong)
                whose = f"the nodes of class {self.sets.classes[code]}{within}"
                lines.append(f"{often} at most {_percent(bound)} of {whose} are given {given}.")
        return lines

    def __len__(self) -> int:
        return len(self.actions)

    def __iter__(self) -> Iterator[str]:
        return iter(self.actions.tolist())

    def __getitem__(self, key: Any) -> Any:
        return self.actions[key]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.actions, dtype=dtype)

    def __repr__(self) -> str:
        return f"Decisions({self._counted()})"

    def _counted(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in self.counts.items())

    def __str__(self) -> str:
        return "\n".join([self._counted(), *self.promises])

    def _repr_html_(self) -> str:
        return html_table(["action", "nodes"], self.counts.items(), below="\n".join(self.promises))

    def to_pandas(self) -> Any:
        """The sets' DataFrame with the column decision: id, labels, size, decision.

        Examples
        --------
        >>> import snaps
        >>> sets = snaps.PredictionSets(np.array([[True, True], [False, True]]))
        >>> sets.decide({1: "pass"}).to_pandas()
           id  labels  size decision
        0   0  [0, 1]     2   review
        1   1     [1]     1     pass
        """
        return self.sets.to_pandas().assign(decision=self.actions)

    def write(
        self, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
    ) -> None:
        """Write columns id, labels, size and decision; see `PredictionSets.write`.

        Examples
        --------
        >>> import snaps
        >>> sets = snaps.PredictionSets(np.array([[True, True], [False, True]]))
        >>> sets.decide({1: "pass"}).write("decisions.csv")
        >>> print(open("decisions.csv").read(), end="")
        "id","labels","size","decision"
        0,"0;1",2,"review"
        1,"1",1,"pass"
        """
        from snaps.io.writers import write_sets

        kind = check_output(path)
        write_sets(self.sets, path, kind, check_metadata(metadata), {"decision": self.actions})


def _check_actions(actions: Any, otherwise: Any, classes: np.ndarray) -> dict[int, str]:
    """Actions by the column of their class."""
    if not isinstance(actions, Mapping) or not actions:
        raise SnapsError(
            f"'actions' must map classes to actions, such as {{'fraud': 'block'}}, got "
            f"{shown(actions)}"
        )
    codes = {class_code(name, classes, "actions"): action for name, action in actions.items()}
    for name, action in [("actions", each) for each in codes.values()] + [("otherwise", otherwise)]:
        if not isinstance(action, str) or not action or not action.isprintable():
            raise SnapsError(f"'{name}' must be text on one line, got {shown(action)}")
    return codes


def _percent(rate: float) -> str:
    return f"{100 * float(rate):g} %"
