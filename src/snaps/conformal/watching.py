"""Is the coverage still what calibration promised? A test that may be looked at after every label.

Calibration with rank r of n scores leaves r of the n + 1 gaps between them covered. If nothing has
changed, the next audited score is equally likely to fall into each gap, and opens one more: a Pólya
urn. After h hits among t labels, the next one is a miss with probability
(n + 1 - r + t - h) / (n + 1 + t).

Against it stands a bet on more misses: a mixture over miss rates above (n + 1 - r) / (n + 1), the
promised one, with density proportional to (1 - rate)^(w - 1), w = r / (n + 2 - r). It halves about
every 0.7 promised rates. The probability of all that was seen by the bet, over that by the urn, is
a martingale with mean 1: the wealth of one coin. By Ville's inequality it ever reaches 1 / alarm
with probability at most `alarm`.

The wealth depends on h and t alone, and grows with the misses: the density of the bet over that of
the urn, which is the mixture Beta(n + 1 - r, r), is zero below the promised rate and increases
above it. Where scores tie, each miss would be one too if ties were broken at random, so that the
wealth stays below the martingale of the broken ties. It need not be a supermartingale itself then,
but the bound on false alarms holds.
"""

from __future__ import annotations

import datetime
import io
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from snaps._checks import check_alpha, check_integer, shown
from snaps._tables import html_lines
from snaps.errors import SnapsError
from snaps.io.files import finished, new_axis, read_json, write_json

FORMAT, VERSION = "snaps-watch", 1


def wealth(n: int, rank: int, labels: Any, hits: Any) -> np.ndarray:
    """What one coin has become that was bet on more misses than calibration promised.

    The threshold has a `rank` among n calibration scores; of so many `labels`, `hits` are covered.

    >>> wealth(99, 90, [0, 10, 10], [0, 9, 4]).round(2)
    array([ 1.  ,  0.75, 48.84])
    """
    from scipy.special import betaincc, betaln

    hits = np.asarray(hits)
    misses = np.asarray(labels) - hits
    a, b = n + 1 - rank, rank
    promised, weight = a / (a + b), b / (a + 1)
    with np.errstate(divide="ignore", over="ignore"):
        bet = betaln(1 + misses, weight + hits) + np.log(weight) - weight * np.log1p(-promised)
        above = np.log(betaincc(1 + misses, weight + hits, promised))
        return np.exp(bet + above - betaln(a + misses, b + hits) + betaln(a, b))


@dataclass(frozen=True, eq=False)
class Watch:
    """What audited labels say of the coverage; `print` it for a verdict. See `SNAPS.watch`.

    Attributes
    ----------
    alarm : float
        Probability of a false alarm at most, however long the watch goes on.
    n, rank : int
        Number of calibration nodes, and rank of the threshold among their scores.
    ids : tuple
        The nodes counted, in the order of arrival.
    hits : bool array (t,)
        Whether each of their labels was covered.
    wealth : array (t,)
        The evidence against the promise after each label: 1 at first, an alarm from 1 / alarm on.
    batches : tuple of (str, int)
        When labels arrived, and how many.

    Examples
    --------
    >>> watch = Watch.start(n=99, rank=90, alarm=0.01)
    >>> watch = watch.count(ids=range(10), hits=[True] * 10, when="2026-05-01")
    >>> watch = watch.count(ids=range(10, 30), hits=[False] * 15 + [True] * 5)
    >>> print(watch)
    ALARM at label 19 of 30: wealth 106 reached 100. 15 labels covered, 15 missed (50.0 %; 10.0 %
    were promised).
    If nothing has changed since calibration, an alarm happens with probability at most 0.01,
    however long you watch.
    Next: look at slices (class_coverage and group_coverage of cp.evaluate, cp.exchangeability),
    draw again from the nodes that are predicted now (snaps draw), and recalibrate on these labels.
    """

    n: int
    rank: int
    alarm: float
    calibration: str
    ids: tuple[int | str, ...]
    hits: np.ndarray
    batches: tuple[tuple[str, int], ...]

    @classmethod
    def start(cls, n: int, rank: int, alarm: float = 0.01, calibration: str = "") -> Watch:
        """A watch that has seen no label.

        Parameters
        ----------
        n, rank : int
        alarm : float
        calibration : str
            Anything that tells this calibration from others, as a digest of its scores.

        Examples
        --------
        >>> len(Watch.start(n=99, rank=90))
        0
        """
        alarm = float(check_alpha(alarm, "alarm"))
        n = check_integer(n, "n", low=1)
        rank = check_integer(rank, "rank", low=1, high=n)
        return cls(n, rank, alarm, calibration, (), np.empty(0, bool), ())

    def count(self, ids: Sequence[int | str], hits: Any, when: str = "") -> Watch:
        """The watch with more labels, in the order of arrival; a node counts once.

        Parameters
        ----------
        ids : sequence
        hits : bool array
            Whether each of their labels is in its set.
        when : str, optional
            The date; by default today's.

        Examples
        --------
        >>> watch = Watch.start(n=99, rank=90).count(["ann", "bob"], [True, False])
        >>> len(watch.count(["bob", "eve"], [True, True]))
        3
        """
        first = {id_: place for place, id_ in reversed(list(enumerate(ids)))}
        new = sorted(first[id_] for id_ in first.keys() - set(self.ids))
        if not new:
            return self
        hits = np.concatenate([self.hits, np.asarray(hits, bool)[new]])
        when = when or datetime.datetime.now(datetime.UTC).date().isoformat()
        return replace(
            self,
            ids=(*self.ids, *(ids[place] for place in new)),
            hits=hits,
            batches=(*self.batches, (when, len(new))),
        )

    def __len__(self) -> int:
        return len(self.hits)

    @cached_property
    def wealth(self) -> np.ndarray:
        path = wealth(self.n, self.rank, np.arange(1, len(self) + 1), np.cumsum(self.hits))
        path.flags.writeable = False
        return path

    @property
    def first_alarm(self) -> int | None:
        """Which label, counted from 1, raised the alarm; None if none did."""
        above = np.flatnonzero(self.wealth >= 1 / self.alarm)
        return int(above[0]) + 1 if above.size else None

    @property
    def alarmed(self) -> bool:
        """Whether there was an alarm."""
        return self.first_alarm is not None

    @property
    def num_covered(self) -> int:
        """How many labels were covered."""
        return int(self.hits.sum())

    @property
    def num_missed(self) -> int:
        """How many labels were missed."""
        return len(self) - self.num_covered

    def _lines(self) -> list[str]:
        if not len(self):
            return ["No labels yet."]
        promised = (self.n + 1 - self.rank) / (self.n + 1)
        counts = (
            f"{self.num_covered} labels covered, {self.num_missed} missed "
            f"({100 * self.num_missed / len(self):.1f} %; {100 * promised:.1f} % were promised)."
        )
        limit, first = 1 / self.alarm, self.first_alarm
        bound = f"with probability at most {self.alarm:g}, however long you watch."
        if first is None:
            return [
                f"No alarm after {len(self)} labels: wealth {self.wealth[-1]:.3g}, at most "
                f"{self.wealth.max():.3g}; {limit:.3g} is an alarm. {counts}",
                f"A false alarm happens {bound} No alarm proves nothing: few labels find large "
                "changes alone.",
            ]
        return [
            f"ALARM at label {first} of {len(self)}: wealth {self.wealth[first - 1]:.3g} reached "
            f"{limit:.3g}. {counts}",
            f"If nothing has changed since calibration, an alarm happens {bound}",
            "Next: look at slices (class_coverage and group_coverage of cp.evaluate, "
            "cp.exchangeability), draw again from the nodes that are predicted now (snaps draw), "
            "and recalibrate on these labels.",
        ]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        lines = html_lines(str(self))
        if not len(self):
            return lines
        picture = io.StringIO()
        self.plot().savefig(picture, format="svg")
        return lines + picture.getvalue()[picture.getvalue().index("<svg") :]

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw the wealth after each label.

        Parameters
        ----------
        path : path, optional
            A file to write, .png, .svg or .pdf.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> figure = Watch.start(n=99, rank=90).count([1, 2], [True, False]).plot("watch.png")
        """
        axis = new_axis()
        steps = np.arange(len(self) + 1)
        axis.plot(steps, np.maximum([1, *self.wealth], 1e-6), color="#0072B2")
        axis.axhline(1 / self.alarm, color="#D55E00", linestyle="--", linewidth=1)
        axis.axhline(1, color="black", linewidth=0.8)
        if self.first_alarm is not None:
            axis.axvline(self.first_alarm, color="#D55E00", linewidth=1)
        for end in np.cumsum([count for _, count in self.batches])[:-1]:
            axis.axvline(end, color="#999999", linewidth=0.6, linestyle=":")
        axis.set_yscale("log")
        axis.set_xlabel("audited labels")
        axis.set_ylabel("wealth")
        title = "No alarm" if self.first_alarm is None else f"Alarm at label {self.first_alarm}"
        return finished(axis, f"{title}; {1 / self.alarm:.3g} is an alarm", path)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, ready for JSON.

        Examples
        --------
        >>> Watch.start(n=99, rank=90).to_dict()["labels"]
        0
        """
        return {
            "alarmed": self.alarmed,
            "first_alarm": self.first_alarm,
            "message": str(self),
            "labels": len(self),
            "covered": self.num_covered,
            "missed": self.num_missed,
            "wealth": self.wealth.tolist(),
            "alarm": self.alarm,
            "calibration_nodes": self.n,
            "rank": self.rank,
            "batches": [list(batch) for batch in self.batches],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a small JSON file, whole or not at all; see `load`.

        Parameters
        ----------
        path : path

        Examples
        --------
        >>> Watch.start(n=99, rank=90).save("watch.json")
        """
        state = asdict(self) | {
            "format": FORMAT,
            "version": VERSION,
            "hits": self.hits.astype(int).tolist(),
            "t": len(self),
            "h": self.num_covered,
            "wealth": float(self.wealth[-1]) if len(self) else 1.0,
        }
        write_json(path, state)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Watch:
        """Read a state that `save` wrote.

        Parameters
        ----------
        path : path

        Examples
        --------
        >>> Watch.start(n=99, rank=90).count(["ann"], [True]).save("watch.json")
        >>> Watch.load("watch.json").ids
        ('ann',)
        """
        state = read_json(path, FORMAT)
        try:
            if state["version"] != VERSION:
                raise SnapsError(f"version {shown(state['version'])}, this snaps reads {VERSION}")
            watch = cls.start(state["n"], state["rank"], state["alarm"], str(state["calibration"]))
            ids, hits, batches = state["ids"], state["hits"], state["batches"]
            when = [(str(date), check_integer(count, "batches", low=1)) for date, count in batches]
            sound = all(type(id_) in (int, str) for id_ in ids) and len(set(ids)) == len(ids)
            sound = sound and len(ids) == len(hits) == state["t"] == sum(each[1] for each in when)
            if not (sound and set(hits) <= {0, 1} and sum(hits) == state["h"]):
                raise SnapsError("its counts don't fit together")
        except SnapsError as error:
            raise SnapsError(f"cannot read '{path}': {error}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise SnapsError(f"cannot read '{path}': its contents don't fit together") from error
        return replace(watch, ids=tuple(ids), hits=np.array(hits, bool), batches=tuple(when))
