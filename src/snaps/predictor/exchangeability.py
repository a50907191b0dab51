"""Do calibration nodes look like the nodes to be predicted? A look that needs no label.

Coverage is guaranteed when the calibration nodes are a fair draw from all nodes in question. Then
whatever is known of a node, such as its top probability or degree, is alike on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from snaps._runtime.memory import pieces
from snaps._runtime.randomness import EXCHANGEABILITY_STREAM, smallest
from snaps._tables import html_table
from snaps.errors import SnapsError
from snaps.predictor.predictor import Predictor

# Of a thousand fair splits at most one may be said to differ; half of that leaves room for chance.
FALSE_ALARMS = 0.0005
# More nodes a side would find differences too small to matter.
MOST_NODES = 100_000
# A numeric column is cut at about this many ranks; finer cuts find no more.
_CELLS = 32
# Chi-square is dominated by classes that are hardly ever drawn, so these are joined.
_LEAST_EXPECTED = 5
# Random splits to compare with, until this many are at least as uneven as the given split.
_BATCHES = (99, 900, 9_000, 40_000)
_ENOUGH = 10
# Below this a p-value is shown as a bound: random splits cannot tell more.
_LEAST_P = 1e-4


@dataclass(frozen=True, eq=False)
class Column:
    """What is known of every node, and the words for calibration nodes that have more or less.

    A column of classes has no such words.
    """

    values: np.ndarray
    more: str = ""
    less: str = ""

    @property
    def is_classes(self) -> bool:
        return not self.more


def node_columns(
    probs: np.ndarray,
    scores: np.ndarray,
    degrees: np.ndarray | None = None,
    classes: np.ndarray | None = None,
) -> dict[str, Column]:
    """What to compare: confidence, predicted class, score of that class and number of links."""
    # In blocks: of a table that must not be changed NumPy would take a copy.
    blocks = pieces(len(probs), probs[:1].nbytes)
    top = np.concatenate([probs[block].argmax(axis=1) for block in blocks])
    rows = np.arange(len(probs))
    columns = {
        "top probability": Column(probs[rows, top], "are more confident", "are less confident"),
        "predicted class": Column(top if classes is None else classes[top]),
        "score of the top label": Column(scores[rows, top], "score higher", "score lower"),
    }
    if degrees is not None:
        columns["degree"] = Column(np.asarray(degrees), "have more links", "have fewer links")
    return columns


@dataclass(frozen=True)
class Comparison:
    """One column on both sides.

    Attributes
    ----------
    what : str
    words : str
        How calibration nodes are, should they differ: "are more confident".
    calib, nodes : float
        Means; for classes, the shares of the class `label`.
    calib_median, nodes_median : float or None
    label : int, str or None
        The class whose shares differ most; its shares are the ones given.
    distance : float
        From 0 (alike) to 1 (nothing in common): the largest difference between the shares of
        nodes up to some value, or in some classes.
    p : float
        How often a fair split would be as uneven, corrected for the number of columns (Holm).
    """

    what: str
    words: str
    calib: float
    nodes: float
    calib_median: float | None
    nodes_median: float | None
    label: int | str | None
    distance: float
    p: float

    @property
    def differs(self) -> bool:
        """Whether a fair split would hardly be so uneven."""
        return self.p <= FALSE_ALARMS

    def __str__(self) -> str:
        if self.label is None:
            digits = _digits(self.calib, self.nodes)
            shown = f"{self.what} {self.calib:.{digits}f} against {self.nodes:.{digits}f}"
        else:
            shown = f"{self.what} {self.label} for {self.calib:.0%} against {self.nodes:.0%}"
        p = f"p < {_LEAST_P:g}" if self.p < _LEAST_P else f"p = {self.p:.2g}"
        return f"{shown}, {p}"


@dataclass(frozen=True)
class Exchangeability:
    """Whether calibration nodes look like the nodes predicted; `print` it for one sentence.

    Attributes
    ----------
    alike : bool
        Whether no column differs. At most 1 of 1,000 fair splits is said to differ. That no
        difference was found proves nothing: labels may differ where nothing else does.
    num_calib, num_nodes : int
        Nodes on both sides.
    rows : tuple of Comparison
    """

    num_calib: int
    num_nodes: int
    rows: tuple[Comparison, ...]

    @property
    def alike(self) -> bool:
        return not any(row.differs for row in self.rows)

    def __str__(self) -> str:
        # Rounded, so that of columns that say the same the first is reported.
        clearest = min(self.rows, key=lambda row: (row.p, -round(row.distance, 1)))
        if not self.alike:
            others = [row.what for row in self.rows if row.differs and row is not clearest]
            also = f"; {_listed(others, 'and')} too" if others else ""
            return (
                f"calibration nodes {clearest.words} than the nodes predicted "
                f"({clearest}{also}): the guarantee does not apply to them"
            )
        names = _listed([row.what for row in self.rows], "or")
        return (
            f"calibration nodes ({self.num_calib:,}) look like the nodes predicted "
            f"({self.num_nodes:,}): no difference in {names} (smallest p {clearest.p:.2g})"
        )

    def _repr_html_(self) -> str:
        rows = []
        for row in self.rows:
            share = "" if row.label is None else f": share of {row.label}"
            digits = 2 if row.label is not None else _digits(row.calib, row.nodes)
            means = (f"{mean:.{digits}f}" for mean in (row.calib, row.nodes))
            p = f"< {_LEAST_P:g}" if row.p < _LEAST_P else f"{row.p:.2g}"
            rows.append([f"{row.what}{share}", *means, p, "yes" if row.differs else "-"])
        header = ["mean of", "calibration nodes", "nodes predicted", "p", "differs"]
        return html_table(header, rows, above=str(self))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, ready for JSON."""
        return {
            "alike": self.alike,
            "message": str(self),
            "num_calib": self.num_calib,
            "num_nodes": self.num_nodes,
            "rows": [asdict(row) | {"differs": row.differs} for row in self.rows],
        }


def compare(
    columns: Mapping[str, Column],
    calib: np.ndarray,
    nodes: np.ndarray,
    keys: np.ndarray,
    seed: int = 0,
) -> Exchangeability:
    """Compare calibration nodes with the nodes to be predicted, column by column.

    The nodes of both sides are divided again at random, up to 50,000 times, and the share of
    deals that are at least as uneven is the p-value. So it is honest for few nodes, many ties and
    rare classes. Takes milliseconds for sides that are alike and a second for others. Calibration
    nodes among `nodes` are left out there; of more than 100,000 on a side, 100,000 are drawn.

    >>> age = Column(np.arange(1000), "are younger", "are older")
    >>> keys = np.arange(1000, dtype=np.uint64)
    >>> print(compare({"birth": age}, np.arange(0, 1000, 5), np.arange(1000), keys))
    calibration nodes (200) look like the nodes predicted (800): no difference in birth
    (smallest p 1)
    >>> print(compare({"birth": age}, np.arange(200), np.arange(1000), keys))
    calibration nodes are older than the nodes predicted (birth 99.50 against 599.50, p < 0.0001):
    the guarantee does not apply to them
    """
    calibrates, asked = np.zeros((2, len(keys)), bool)
    calibrates[calib], asked[nodes] = True, True
    calib, nodes = np.flatnonzero(calibrates), np.flatnonzero(asked & ~calibrates)
    if not calib.size:
        raise SnapsError("'calib' must hold at least one node, got none")
    if not nodes.size:
        raise SnapsError("'nodes' must hold a node that does not calibrate, got none")
    sides = [
        side[smallest(seed, keys[side], EXCHANGEABILITY_STREAM, MOST_NODES)]
        for side in (calib, nodes)
    ]
    tables = {what: _table(column, *sides) for what, column in columns.items()}
    p = _holm([_p_value(tables[what], columns[what].is_classes, seed) for what in columns])
    rows = (
        _comparison(what, column, tables[what], adjusted, *(column.values[s] for s in sides))
        for (what, column), adjusted in zip(columns.items(), p, strict=True)
    )
    return Exchangeability(len(calib), len(nodes), tuple(rows))


# --- How often is a fair split as uneven? ------------------------------------------------------


def _table(column: Column, calib: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """How many nodes of each side (2, cells) have a class, or a value within some ranks."""
    values = column.values[np.concatenate([calib, nodes])]
    if column.is_classes:
        _, cells, sizes = np.unique(values, return_inverse=True, return_counts=True)
        share = min(len(calib), len(nodes)) / len(values)
        rare = sizes * share < _LEAST_EXPECTED
        cells = np.where(rare[cells], -1, cells)
    else:
        below = np.searchsorted(np.sort(values), values)  # the same for ties: they stay together
        cells = _CELLS * below // len(values)
    cells = np.unique(cells, return_inverse=True)[1]
    sides = cells[: len(calib)], cells[len(calib) :]
    return np.stack([np.bincount(side, minlength=cells.max() + 1) for side in sides])


def _p_value(table: np.ndarray, is_classes: bool, seed: int) -> float:
    """Share of random splits of the same nodes that are at least as uneven as this one."""
    total = table.sum(axis=0)
    if len(total) == 1:
        return 1.0
    side = table[np.argmin(table.sum(axis=1))]
    uneven = _chi_square if is_classes else _anderson_darling
    # A hair less, since equal splits may differ by rounding.
    given = uneven(side[None], total)[0] * (1 - 1e-9)
    # A stream is fine here: what is drawn are counts, which belong to no node.
    rng = np.random.default_rng(seed)
    drawn = exceeded = 0
    for batch in _BATCHES:
        splits = rng.multivariate_hypergeometric(total, side.sum(), batch, method="marginals")
        exceeded += int((uneven(splits, total) >= given).sum())
        drawn += batch
        if exceeded >= _ENOUGH:
            break
    return (1 + exceeded) / (1 + drawn)


def _chi_square(splits: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Pearson's statistic of many splits (splits, cells), up to a factor."""
    share = splits[0].sum() / total.sum()
    return (splits - share * total) ** 2 @ (1 / total)


def _anderson_darling(splits: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Anderson and Darling's statistic of many splits, up to a factor.

    As powerful as Mann and Whitney's against a shift, and it notices other shapes as well.
    """
    shares = total / total.sum()
    below = np.cumsum(shares)[:-1]
    gaps = np.cumsum(splits[:, :-1], axis=1) / splits[0].sum() - below
    return gaps**2 @ ((shares[:-1] + shares[1:]) / (below * (1 - below)))


def _holm(p: list[float]) -> list[float]:
    order = np.argsort(p, kind="stable")
    steps = np.asarray(p)[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return adjusted.tolist()


# --- In words ----------------------------------------------------------------------------------


def _comparison(
    what: str, column: Column, table: np.ndarray, p: float, calib: np.ndarray, nodes: np.ndarray
) -> Comparison:
    shares = table / table.sum(axis=1, keepdims=True)
    if column.is_classes:
        distance = float(np.abs(shares[0] - shares[1]).sum() / 2)
        label, own, other = _most_uneven_class(calib, nodes)
        words = "are of other classes"
        return Comparison(what, words, own, other, None, None, label, distance, p)
    below = np.cumsum(shares, axis=1)
    distance = float(np.abs(below[0] - below[1]).max())
    means = float(calib.mean()), float(nodes.mean())
    medians = float(np.median(calib)), float(np.median(nodes))
    # Mann and Whitney's: twice the chance that a calibration node has more, minus one.
    shift = 2 * float(((below[1] - shares[1] / 2) * shares[0]).sum()) - 1
    words = column.more if shift > 0 else column.less
    # "More" would mislead where most of the difference is in the spread, or the means disagree.
    if abs(shift) < distance / 2 or shift * (means[0] - means[1]) <= 0:
        words = "are spread otherwise"
    return Comparison(what, words, *means, *medians, None, distance, p)


def _most_uneven_class(calib: np.ndarray, nodes: np.ndarray) -> tuple[Any, float, float]:
    """The class whose shares differ most, and its shares."""
    classes, cells = np.unique(np.concatenate([calib, nodes]), return_inverse=True)
    sides = cells[: len(calib)], cells[len(calib) :]
    own, other = (np.bincount(side, minlength=len(classes)) / len(side) for side in sides)
    most = int(np.abs(own - other).argmax())
    return classes[most].item(), float(own[most]), float(other[most])


def _digits(one: float, other: float) -> int:
    """Digits after the point: two, or more where the numbers would look alike."""
    gap = abs(one - other)
    return next((digits for digits in range(2, 6) if gap >= 2 * 10.0**-digits), 6 if gap else 2)


def _listed(names: list[str], word: str) -> str:
    return f" {word} ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def exchangeability(predictor: Predictor, nodes: Any = None) -> Exchangeability:
    """Compare calibration nodes with the nodes wanted; see `SNAPS.exchangeability`."""
    if predictor.calibration.odds is not None:
        raise SnapsError(
            "'chances' must be left out for exchangeability, got unequal ones: nodes drawn with "
            "them do not look like the others"
        )
    return compare_at(predictor, predictor.wanted(nodes))


def compare_at(predictor: Predictor, positions: np.ndarray) -> Exchangeability:
    """Compare calibration nodes with the nodes at these positions."""
    inputs, roles, adjacency = predictor.inputs, predictor.roles, predictor.inputs.graph.adjacency
    degrees = np.diff(adjacency.indptr) if adjacency.nnz else None
    scores = inputs.score(predictor.scorer)
    columns = node_columns(inputs.probs, scores, degrees, roles.classes)
    drawn = inputs.positions(roles.calib.keys)
    # Tuning nodes of the same draw tell as much, unless their own labels moved their scores.
    seen = np.isin(roles.tuning.keys, predictor.scorer.evidence.keys).any()
    if roles.tuning.drawn and not seen:
        drawn = np.concatenate([drawn, inputs.positions(roles.tuning.keys)])
    return compare(columns, drawn, positions, inputs.keys, predictor.method.seed)
