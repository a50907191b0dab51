"""`PredictionSets`: which labels each node may have."""

from __future__ import annotations

import copy
import operator
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from snaps._checks import (
    check_flag,
    check_integer,
    check_nodes,
    has,
    plainly,
    refuse_repeated,
    shown,
    to_numpy,
)
from snaps._checks.classes import check_classes
from snaps._checks.ids import check_ids, locate
from snaps._checks.named import align_nodes, names_of, row_ids
from snaps._tables import html_table
from snaps.errors import SnapsError, require
from snaps.graph import MOST_NODES
from snaps.io.files import check_metadata, check_output, finished, new_axis

if TYPE_CHECKING:
    from snaps.decisions import Decisions

_FEW = 6  # classes that are shown by name
_ROWS = 10  # sets that a notebook shows


class _OutOfRange(SnapsError, IndexError):
    """A position beyond the sets; an IndexError too, as Python expects of what has a length."""


class _UnknownId(SnapsError, KeyError):
    """An id that no set has; a KeyError too, as Python expects of what is looked up by name."""

    __str__ = SnapsError.__str__  # KeyError's would put it in quotes


class SetPromise(NamedTuple):
    """What was asked for when sets were made."""

    kind: str
    """What has a coverage guarantee of its own: class, group, both, or calibration (all nodes)."""
    rates: np.ndarray
    """The miscoverage of each class (K,); all the same without rates per class."""
    floors: list[float | None] | None = None
    """The least coverage of each class with one threshold; None for a class without a floor."""
    confidence: float | None = None


class PredictionSets:
    """One set of labels per node.

    Parameters
    ----------
    mask : bool array (m, K)
        Row i says which labels the i-th set holds.
    nodes : array (m,), optional
        Positions of the nodes in their graph; 0, 1, ... by default.
    ids : array (m,), optional
        The nodes' own names; their positions by default.
    num_nodes : int, optional
        Number of nodes of the graph, which labels must match in `snaps.metrics`.
    classes : list of K integers or strings, optional
        The names of the labels; 0, ..., K - 1 by default.
    metadata : mapping of str to str, optional
        How the sets were made, which Parquet files keep: `predict_set` gives the version, method,
        score, alpha, seed, and the numbers of calibration and tuning nodes.

    Examples
    --------
    >>> sets = PredictionSets(np.array([[True, False, True], [False, True, False]]))
    >>> sets
    PredictionSets(2 nodes, 3 classes, mean size 1.50)
    >>> sets[0], sets.sizes
    (array([0, 2]), array([2, 1]))
    >>> named = PredictionSets(sets.mask, ids=["ann", "bob"], classes=["cat", "dog", "fox"])
    >>> for labels in named[0:1]:
    ...     print(labels)
    ['cat' 'fox']
    >>> named["bob"]
    array(['dog'], dtype='<U3')
    """

    promise: SetPromise | None = None  # if `predict_set` made them

    def __init__(
        self,
        mask: Any,
        nodes: Any = None,
        ids: Any = None,
        num_nodes: int | None = None,
        classes: Any = None,
        metadata: Mapping[str, str] | None = None,
    ):
        table = names_of(mask)
        if table is not None and (table.columns or row_ids(mask, "mask") is not None):
            raise SnapsError("'mask' must be an array with ids= and classes=, got names in a table")
        self.mask = to_numpy(mask, "mask")
        if self.mask.ndim != 2 or self.mask.dtype != bool:
            raise SnapsError(
                f"'mask' must be a boolean array (nodes, classes), "
                f"got {self.mask.dtype} {self.mask.shape}"
            )
        given = np.arange(len(self.mask)) if nodes is None else to_numpy(nodes, "nodes")
        if num_nodes is None:
            # Positions tell the last node; a mask has an entry for each.
            is_mask = given.dtype.kind not in "iu"
            num_nodes = max(1, given.size) if is_mask else int(given.max(initial=0)) + 1
        self.num_nodes = check_integer(num_nodes, "num_nodes", low=1, high=MOST_NODES)
        self.nodes = check_nodes(given, "nodes", num_nodes=self.num_nodes, empty=True)
        self.ids = self.nodes if ids is None else check_ids(ids, "'ids'", unique=False)
        for name, array in (("nodes", self.nodes), ("ids", self.ids)):
            if len(array) != len(self.mask):
                raise SnapsError(
                    f"'{name}' must have one entry a set ({len(self.mask)}), got {len(array)}"
                )
        num_classes = self.mask.shape[1]
        default = np.arange(num_classes)
        self.classes = default if classes is None else check_classes(classes, num_classes)
        self.metadata = check_metadata(metadata)

    @property
    def sizes(self) -> np.ndarray:
        """Number of labels in each set.

        Examples
        --------
        >>> PredictionSets(np.array([[True, True], [False, False]])).sizes
        array([2, 0])
        """
        return self.mask.sum(axis=1)

    def labels(self) -> list[np.ndarray]:
        """The sets as a list of arrays of labels, by name.

        Examples
        --------
        >>> mask = np.array([[True, True], [False, False]])
        >>> PredictionSets(mask, classes=["cat", "dog"]).labels()
        [array(['cat', 'dog'], dtype='<U3'), array([], dtype='<U3')]
        """
        names = self.classes[np.nonzero(self.mask)[1]]
        return np.split(names, np.cumsum(self.sizes)[:-1]) if len(self) else []

    def __len__(self) -> int:
        return len(self.mask)

    def __iter__(self) -> Iterator[np.ndarray]:
        """The labels of each set."""
        return (self.classes[row] for row in self.mask)

    def __getitem__(self, key: Any) -> Any:
        """Labels of the i-th set, or of the node with an id; or some of the sets.

        Strings are ids, where these are strings. Integers are positions always. Some of the sets
        are those of a slice, of a list of positions or of ids, or of a mask.
        """
        if isinstance(key, slice):
            return self._some(np.arange(len(self))[key])
        if isinstance(key, str) and self.ids.dtype.kind == "U":
            return self.classes[self.mask[self._with_ids([key])[0]]]
        if self.ids.dtype.kind == "U" and (names := _texts(key)):
            return self._some(self._with_ids(names))
        if _is_position(key):
            return self.classes[self.mask[self._within(operator.index(key))]]
        key = align_nodes(key, self.ids, "sets[...]") if has(key, "to_numpy") else key
        try:
            positions = to_numpy(key, "sets[...]")
        except SnapsError:
            positions = np.empty((), object)
        if positions.dtype == bool and positions.shape == (len(self),):
            positions = np.flatnonzero(positions)
        if positions.ndim != 1 or (positions.size and positions.dtype.kind not in "iu"):
            raise SnapsError(
                "'sets[...]' must be a position, a slice, a list of positions or a boolean mask "
                f"({len(self)},), or string ids where nodes have them, got {shown(key)}"
            )
        outside = (positions < -len(self)) | (positions >= len(self))
        if outside.any():
            self._within(positions[outside][0].item())
        return self._some(np.arange(len(self))[positions.astype(np.int64)])

    def _within(self, i: int) -> int:
        n = len(self)
        if not -n <= i < n:
            raise _OutOfRange(f"'sets[...]' must lie from {-n} to {n - 1}, got {plainly(i)}")
        return i % n

    def _with_ids(self, names: list[str]) -> np.ndarray:
        """The positions of the sets with these ids."""
        wanted = np.array(names)
        same = np.isin(self.ids, wanted)
        unknown = ~np.isin(wanted, self.ids[same])
        if unknown.any():
            raise _UnknownId(
                f"'sets[...]' must be ids of nodes with a set, got {shown(names[unknown.argmax()])}"
            )
        refuse_repeated(self.ids[same], "'sets[...]' must be ids that a single set has")
        positions = np.flatnonzero(same)
        return positions[locate(self.ids[positions], wanted, "'sets[...]'")]

    def _some(self, positions: np.ndarray) -> PredictionSets:
        chosen = copy.copy(self)
        chosen.mask, chosen.nodes = self.mask[positions], self.nodes[positions]
        chosen.ids, chosen.metadata = self.ids[positions], dict(self.metadata)
        return chosen

    def decide(self, actions: Mapping[Any, str], otherwise: str = "review") -> Decisions:
        """Turn sets into actions: that of the class where a set has a single label.

        Sets that are empty, have several labels, or a label without an action, get `otherwise`.
        With class thresholds (``class_conditional=True``) at most a share alpha of the nodes of a
        class are given the action of another class. With one threshold at most a share alpha of
        all nodes are, and nothing is promised per class.

        Parameters
        ----------
        actions : mapping from class to str
        otherwise : str

        Returns
        -------
        Decisions
            A column, with counts and the promises in words.

        Examples
        --------
        >>> mask = np.array([[True, False], [True, True], [False, True]])
        >>> sets = PredictionSets(mask, ids=["ann", "bob", "eve"], classes=["fraud", "honest"])
        >>> sets.decide({"fraud": "block", "honest": "pass"})
        Decisions(1 block, 1 pass, 1 review)
        """
        from snaps.decisions import Decisions

        return Decisions(self, actions, otherwise)

    def __repr__(self) -> str:
        size = f"{self.sizes.mean():.2f}" if len(self) else "nan"
        classes = f"{self.mask.shape[1]} classes"
        named = not np.array_equal(self.classes, np.arange(len(self.classes)))
        if named and len(self.classes) <= _FEW:
            classes += f" {shown(self.classes.tolist())}"
        return f"PredictionSets({len(self)} nodes, {classes}, mean size {size})"

    def _repr_html_(self) -> str:
        rows = [
            [plainly(id_), ", ".join(map(plainly, labels)), len(labels)]
            for id_, labels in zip(self.ids[:_ROWS], self, strict=False)
        ]
        more = f"{len(self) - _ROWS} more nodes" if len(self) > _ROWS else ""
        return html_table(["id", "labels", "size"], rows, above=repr(self), below=more)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw which share of the sets has no label, one label, two, and so on.

        Parameters
        ----------
        path : path, optional
            A file to write, .png, .svg or .pdf.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> figure = PredictionSets(np.array([[True, True], [False, True]])).plot("sizes.png")
        """
        counts = np.bincount(self.sizes, minlength=2)
        axis = new_axis()
        axis.bar(range(len(counts)), counts / max(len(self), 1), color="#0072B2")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set_xlabel("labels in a set")
        axis.set_ylabel("share of sets")
        size = f", mean size {self.sizes.mean():.2f}" if len(self) else ""
        return finished(axis, f"{len(self):,} sets{size}", path)

    def to_pandas(self, *, wide: bool = False, p: Any = None) -> Any:
        """A DataFrame with columns id, labels (by name) and size.

        Parameters
        ----------
        wide : bool
            Instead of labels, a column ``in_<class>`` for each class.
        p : array (m, K), optional
            With `wide`: p-values of the same nodes, ``cp.predict_p(nodes)``, as columns
            ``p_<class>``.

        Examples
        --------
        >>> sets = PredictionSets(np.array([[True, True], [False, True]]), ids=["ann", "bob"])
        >>> sets.to_pandas()
            id  labels  size
        0  ann  [0, 1]     2
        1  bob     [1]     1
        >>> sets.to_pandas(wide=True, p=[[0.2, 0.3], [0.01, 0.9]])
            id  size   in_0  in_1   p_0  p_1
        0  ann     2   True  True  0.20  0.3
        1  bob     1  False  True  0.01  0.9
        """
        wide = check_flag(wide, "wide")
        if p is not None and not wide:
            raise SnapsError("'p' must go with wide=True, got it alone")
        values = None if p is None else to_numpy(p, "p")
        if values is not None and values.shape != self.mask.shape:
            raise SnapsError(f"'p' must have shape {self.mask.shape}, got {values.shape}")
        pandas = require("pandas", "all")
        if not wide:
            return pandas.DataFrame({"id": self.ids, "labels": self.labels(), "size": self.sizes})
        columns = {"id": self.ids, "size": self.sizes}
        for prefix, table in (("in", self.mask), ("p", values)):
            if table is not None:
                columns |= {f"{prefix}_{c}": table[:, y] for y, c in enumerate(self.classes)}
        return pandas.DataFrame(columns)

    def to_parquet(
        self, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
    ) -> None:
        """Write columns id, labels and size (int32), whole or not at all.

        Labels are a list<int32>, list<int64> if they don't fit, or list<string> if they are names.

        Parameters
        ----------
        path : path
        metadata : mapping of str to str, optional
            Kept as key-value metadata of the file's schema, next to those of the sets themselves.

        Examples
        --------
        >>> sets = PredictionSets(np.array([[True, True], [False, True]]))
        >>> sets.to_parquet("sets.parquet", metadata={"made by": "me"})
        >>> import pyarrow.parquet as pq
        >>> pq.read_table("sets.parquet").column_names
        ['id', 'labels', 'size']
        """
        from snaps.io.writers import write_sets

        write_sets(self, path, ".parquet", check_metadata(metadata))

    def write(
        self, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
    ) -> None:
        """Write columns id, labels and size in the format of the file's suffix.

        ``.parquet``
            See `to_parquet`.
        ``.csv``
            Labels are joined by ``;``. A name that holds ``;``, quotes or a line break is itself
            quoted as in CSV, so that any names come back: a field is read by
            ``next(csv.reader([field], delimiter=";"), [])``. No set is an empty field. Ids and
            names that begin with ``=``, ``+``, ``-`` or ``@`` are written as they are, so that
            they are found again: a spreadsheet may take them for formulas. Import such a file
            with these columns as text.
        ``.jsonl``
            One JSON object per line: ``{"id": "a", "labels": [0, 2], "size": 2}``.
        ``-``
            CSV on standard output.

        Parameters
        ----------
        path : path
        metadata : mapping of str to str, optional
            Kept by Parquet alone, next to those of the sets themselves.

        Examples
        --------
        >>> sets = PredictionSets(np.array([[True, True], [False, True]]), ids=["ann", "bob"])
        >>> sets.write("sets.jsonl")
        >>> print(open("sets.jsonl").read(), end="")
        {"id": "ann", "labels": [0, 1], "size": 2}
        {"id": "bob", "labels": [1], "size": 1}
        """
        from snaps.io.writers import write_sets

        write_sets(self, path, check_output(path), check_metadata(metadata))


def trusted_sets(
    mask: np.ndarray,
    nodes: np.ndarray,
    ids: np.ndarray,
    num_nodes: int,
    classes: np.ndarray,
    metadata: dict[str, str],
) -> PredictionSets:
    """Sets of arrays that were checked before."""
    sets = PredictionSets.__new__(PredictionSets)
    sets.mask, sets.nodes, sets.ids, sets.num_nodes = mask, nodes, ids, num_nodes
    sets.classes, sets.metadata = classes, metadata
    return sets


def _is_position(key: Any) -> bool:
    try:
        operator.index(key)
    except Exception:  # whatever the key's own conversion raises
        return False
    return not isinstance(key, (bool, np.bool_)) and getattr(key, "ndim", 0) == 0


def _texts(key: Any) -> list[str]:
    """The strings of a list, array or column of nothing else; none of anything else."""
    if getattr(getattr(key, "dtype", None), "kind", "O") not in "OUT":
        return []
    items: Any = list(key) if isinstance(key, (list, tuple)) else key
    if hasattr(items, "tolist") and not isinstance(items, type):
        items = items.tolist()
    whole = isinstance(items, list) and all(isinstance(item, str) for item in items)
    return items if whole else []
