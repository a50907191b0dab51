"""`select` and `accept`: lists of nodes with a false discovery rate; `Selection` is the result."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from snaps._checks import check_alpha, plainly
from snaps._checks.classes import class_code
from snaps._runtime.memory import pieces, taken
from snaps._runtime.progress import stage
from snaps._tables import html_table
from snaps.conformal.selection import benjamini_hochberg, fewest_selected, wrong_counts
from snaps.errors import SnapsError, require
from snaps.io.files import check_output
from snaps.predictor.predictor import Predictor
from snaps.scores import THR
from snaps.scoring.local import Inputs
from snaps.scoring.parts import FittedScorer

_SHOWN = 10  # rows of a table in a notebook


@dataclass(frozen=True, eq=False, repr=False)
class Selection:
    """Nodes asked for, and which of them are selected; `print` it for the promise in words.

    Its length is the number of nodes selected, and iterating gives their ids, the strongest
    evidence first. See `SNAPS.select` and `SNAPS.accept`, which make it.

    Attributes
    ----------
    nodes : int array (m,)
        Positions of all nodes asked for.
    ids : array (m,)
        Their names.
    label : array (m,)
        The label asked for; of `accept`, the most probable label of each node.
    p : float array (m,)
        (1 + the number of wrong calibration nodes with at least this node's evidence) / (n + 1).
    selected : bool array (m,)
    evidence : float array (m,)
        The method's probability of the label.
    fdr : Fraction
        On average at most this share of the nodes selected is wrong.
    n_calib : int
        Number of calibration nodes, n; those whose labels are missing count as wrong.
    accepts : bool
        Whether it comes from `accept`.

    Examples
    --------
    >>> import snaps
    >>> probs, labels = np.repeat([[0.9, 0.1], [0.2, 0.8]], 200, axis=0), np.repeat([0, 1], 200)
    >>> cp = snaps.SplitConformal(0.1).calibrate(None, probs, labels, np.arange(0, 400, 2))
    >>> flagged = cp.select(1, fdr=0.1)
    >>> flagged
    Selection(100 of 200 nodes, label 1, fdr=0.1)
    >>> len(flagged), next(iter(flagged))
    (100, 201)
    >>> flagged.p[flagged.selected].max().round(4)
    np.float64(0.005)
    """

    nodes: np.ndarray
    ids: np.ndarray
    label: np.ndarray
    p: np.ndarray
    selected: np.ndarray
    evidence: np.ndarray
    fdr: Fraction
    n_calib: int
    accepts: bool = False

    @cached_property
    def rank(self) -> np.ndarray:
        """The order for review (m,): 1 is the strongest evidence, and those selected come first.

        Examples
        --------
        >>> import snaps
        >>> probs = np.linspace([0.9, 0.1], [0.1, 0.9], 40)
        >>> cp = snaps.SplitConformal(0.1).calibrate(None, probs, [0, 1] * 20, np.arange(20))
        >>> cp.select(0, nodes=[20, 30, 25]).rank
        array([1, 3, 2])
        """
        rank = np.empty(len(self.evidence), np.int64)
        rank[np.argsort(-self.evidence, kind="stable")] = np.arange(1, len(rank) + 1)
        return rank

    @property
    def certifiable(self) -> float:
        """The smallest rate that n calibration nodes can certify for a list this long.

        No p-value is below 1 / (n + 1), so that k of m nodes cannot be selected at a rate below
        m / (k (n + 1)). Infinite for an empty list.

        Examples
        --------
        >>> import snaps
        >>> probs, labels = np.repeat([[0.9, 0.1], [0.2, 0.8]], 200, axis=0), np.repeat([0, 1], 200)
        >>> cp = snaps.SplitConformal(0.1).calibrate(None, probs, labels, np.arange(0, 400, 2))
        >>> round(cp.select(1, fdr=0.1).certifiable, 5)
        0.00995
        """
        chosen = len(self)
        return len(self.p) / (chosen * (self.n_calib + 1)) if chosen else float("inf")

    def __len__(self) -> int:
        return int(np.count_nonzero(self.selected))

    def __iter__(self) -> Iterator[Any]:
        """Ids of the nodes selected, the strongest evidence first."""
        chosen = np.flatnonzero(self.selected)
        return iter(self.ids[chosen[np.argsort(self.rank[chosen])]].tolist())

    def __repr__(self) -> str:
        what = "" if self.accepts or not len(self.label) else f", label {self.label[0]}"
        rate = f"{'error' if self.accepts else 'fdr'}={float(self.fdr):g}"
        return f"Selection({len(self)} of {len(self.p)} nodes{what}, {rate})"

    def __str__(self) -> str:
        chosen, rate = len(self), f"{100 * float(self.fdr):g} %"
        done, wrong = "accepted with the most probable label", "wrong"
        if not self.accepts:
            name = f" as {plainly(self.label[0])}" if len(self.label) else ""
            done, wrong = f"selected{name}", "of another label"
        line = f"{chosen} of {len(self.p)} nodes {done}"
        if not chosen:
            return f"{line} at a rate of {rate}: {self._why_none()}"
        return (
            f"{line}: on average at most {rate} of such a list are {wrong}, over draws of "
            f"{self.n_calib} calibration nodes.\nThe smallest rate that {self.n_calib} calibration "
            f"nodes can certify for a list this long is {100 * self.certifiable:.2g} %."
        )

    def _why_none(self) -> str:
        """Why a list is empty: too few calibration nodes, or too little evidence."""
        n, m = self.n_calib, len(self.p)
        if not m:
            return "no nodes were asked for."
        needed = fewest_selected(m, n, self.fdr)
        if needed > m:
            few = fewest_selected(1, 0, self.fdr) - 1
            return f"{n} calibration nodes are too few for any list (at least {few})."
        strongest = int(np.count_nonzero(self.p <= 1 / (n + 1)))
        return (
            f"with {n} calibration nodes a list has at least {needed} nodes, and {strongest} have "
            "stronger evidence than every wrong calibration node. More calibration nodes allow "
            "shorter lists."
        )

    def _repr_html_(self) -> str:
        first, columns = np.argsort(self.rank)[:_SHOWN], self._columns()
        rows = ([plainly(values[i]) for values in columns.values()] for i in first)
        more = f"{len(self.p) - len(first)} more nodes" if len(self.p) > len(first) else ""
        return html_table(list(columns), rows, above=str(self), below=more)

    def _columns(self) -> dict[str, np.ndarray]:
        return {
            "id": self.ids,
            "label": self.label,
            "p": self.p,
            "selected": self.selected,
            "rank": self.rank,
        }

    def to_pandas(self) -> Any:
        """A DataFrame with a row per node asked for: id, label, p, selected and rank.

        Examples
        --------
        >>> import snaps
        >>> probs, labels = np.repeat([[0.9, 0.1], [0.2, 0.8]], 200, axis=0), np.repeat([0, 1], 200)
        >>> cp = snaps.SplitConformal(0.1).calibrate(None, probs, labels, np.arange(0, 400, 2))
        >>> cp.select(1, fdr=0.1, nodes=[101, 301]).to_pandas()
            id  label         p  selected  rank
        0  101      1  0.502488     False     2
        1  301      1  0.004975      True     1
        """
        return require("pandas", "all").DataFrame(self._columns())

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a row per node asked for: id, label, p, selected and rank, whole or not at all.

        Parameters
        ----------
        path : path
            Ends in .parquet, .csv or .jsonl; - is CSV on standard output. Act on the rows where
            `selected` is true; the others are there for review, in the order of `rank`.

        Examples
        --------
        >>> import snaps
        >>> probs, labels = np.repeat([[0.9, 0.1], [0.2, 0.8]], 200, axis=0), np.repeat([0, 1], 200)
        >>> cp = snaps.SplitConformal(0.1).calibrate(None, probs, labels, np.arange(0, 400, 2))
        >>> cp.accept(error=0.1, nodes=[101, 301]).write("accepted.csv")
        >>> print(open("accepted.csv").read(), end="")
        "id","label","p","selected","rank"
        101,0,0.004975124378109453,true,1
        301,1,0.004975124378109453,true,2
        """
        from snaps.io.writers import write_table

        write_table(self._columns(), path, check_output(path))


def select(predictor: Predictor, label: Any, fdr: Any, nodes: Any) -> Selection:
    """The nodes that have a label; see `SNAPS.select`."""
    rate = check_alpha(fdr, "fdr")
    return _selection(predictor, rate, nodes, class_code(label, predictor.roles.classes))


def accept(predictor: Predictor, error: Any, nodes: Any) -> Selection:
    """The nodes whose most probable label is right; see `SNAPS.accept`."""
    return _selection(predictor, check_alpha(error, "error"), nodes, None)


def _selection(predictor: Predictor, rate: Fraction, nodes: Any, code: int | None) -> Selection:
    inputs, roles = predictor.inputs, predictor.roles
    if roles.odds is not None:  # Benjamini-Hochberg on weighted p-values keeps no rate
        raise SnapsError(
            "'chances' must be left out for select and accept, whose lists need calibration nodes "
            "that were drawn evenly, got chances"
        )
    calib = inputs.positions(roles.calib.keys)
    if predictor.apart or len(calib) < len(roles.calib):
        raise SnapsError(
            "'threshold' must be 'set' for select and accept, got 'keep': they need the "
            "calibration nodes on this graph"
        )
    wanted = predictor.wanted(nodes)
    predictor.refuse_used(wanted)
    with stage("selection"):
        both = np.concatenate([calib, wanted])
        evidence, guess = label_evidence(inputs, predictor.scorer, both, code)
        n = len(calib)
        counts = wrong_counts(evidence[n:], evidence[:n], guess[:n] != roles.calib.labels)
        # Calibration nodes whose labels never came count as wrong, with the strongest evidence.
        counts, drawn = counts + roles.missing, n + roles.missing
        return Selection(
            nodes=wanted,
            ids=np.asarray(taken(inputs.graph.ids, wanted)),
            label=roles.classes[guess[n:]],
            p=counts / (drawn + 1),
            selected=benjamini_hochberg(counts, drawn, rate),
            evidence=evidence[n:],
            fdr=rate,
            n_calib=drawn,
            accepts=code is None,
        )


def label_evidence(
    inputs: Inputs, scorer: FittedScorer, positions: np.ndarray, code: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Per node, the probability of a label, and the label; if None is asked for, of the top label.

    The probability is the classifier's, mixed over neighbours or pooled with the fitted weights,
    whatever the method's score: adaptive scores are made for sets, and order nodes badly (the top
    label of a sure node scores higher than that of an unsure one). It depends on no role and no
    random draw. Some nodes at a time, so that no table of all labels is kept.
    """
    plain = scorer.with_score(THR())
    evidence, guess = np.empty(len(positions)), np.empty(len(positions), np.int64)
    for block in pieces(len(positions), 8 * inputs.num_classes):
        probs = 1 - inputs.score(plain, positions[block])
        guess[block] = probs.argmax(axis=1) if code is None else code
        evidence[block] = probs[np.arange(len(probs)), guess[block]]
    return evidence, guess
