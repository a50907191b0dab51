"""Calibration, tuning and known nodes: the label array is split into them here, and then dropped.

Positions, masks, ids and names that users pass become positions, keys and label codes here.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from snaps._checks import check_disjoint, check_integer, check_known, shown
from snaps._checks.classes import check_groups, encode_labels
from snaps._checks.ids import check_ids, locate, node_positions, plain_scalar
from snaps._checks.named import align, align_mask
from snaps._runtime.randomness import (
    SMOOTH_STREAM,
    TUNE_STREAM,
    hashes,
    in_order,
    locate_keys,
    smallest,
    uniforms,
)
from snaps.conformal.rank import tuning_share
from snaps.errors import SnapsError
from snaps.graph import Graph
from snaps.predictor.chances import read_odds
from snaps.scoring.evidence import Evidence, Keys, Labelled

Kind = TypeVar("Kind", bound=Labelled)


def choose_tuning(keys: Keys, share: int, seed: int) -> np.ndarray:
    """Which of the calibration nodes, given by their keys, become tuning nodes.

    Chosen with a digest of the whole set: by a node's own hash alone, the remaining calibration
    nodes would always be the high-hash part of the pool, and test nodes come from all of it.
    """
    return smallest(mixed_seed(seed, keys), keys, TUNE_STREAM, share)


def mixed_seed(seed: int, keys: Keys) -> int:
    """A seed that also depends on a set of nodes."""
    digest = hashlib.blake2b(np.sort(keys).astype("<u8").tobytes(), digest_size=8).digest()
    return int(seed) ^ int.from_bytes(digest, "little")


def smoothing_draws(seed: int, calib: Keys, keys: Keys, num_classes: int) -> np.ndarray:
    """The draws that break ties: one per node and label.

    They depend on the calibration set too: were they the node's alone, each seed would have a bias
    of its own on a pool.
    """
    return uniforms(mixed_seed(seed, calib), hashes(0, keys, SMOOTH_STREAM), num_classes)


@dataclass(frozen=True, eq=False)
class Groups:
    """Which group every node of a graph is in: codes (n,) into names.

    Without names there is one group for all.
    """

    codes: np.ndarray
    names: tuple[Any, ...] = ()

    @property
    def given(self) -> bool:
        """Whether the user named groups."""
        return bool(self.names)

    def __len__(self) -> int:
        return max(len(self.names), 1)

    @classmethod
    def read(cls, groups: Any, graph: Graph, first: tuple[Any, ...] = ()) -> Groups:
        """From one entry per node, of anything hashable; None is one group for all.

        The names in `first` keep their codes.
        """
        if groups is None:
            return cls.single(graph.num_nodes)
        values = check_groups(align(groups, graph, "groups"), graph.num_nodes)
        new = set(values) - set(first)
        try:
            names = sorted(new)
        except Exception:  # of mixed kinds
            names = sorted(new, key=lambda name: (type(name).__name__, str(name)))
        names = [*first, *names]
        code = {name: place for place, name in enumerate(names)}
        return cls(np.array([code[value] for value in values], np.int64), tuple(names))

    @classmethod
    def single(cls, num_nodes: int) -> Groups:
        """One group for all nodes."""
        return cls(np.broadcast_to(np.int64(0), num_nodes))


@dataclass(frozen=True, eq=False)
class Roles:
    """The roles of the nodes of one graph.

    Attributes
    ----------
    calib : Labelled
        Calibration nodes: only the conformal layer sees their labels.
    tuning, known : Evidence
        Nodes whose labels choose parameters, or are evidence about others.
    reference : array of keys
        Nodes without labels that are not to be predicted either.
    classes : array (K,)
        Names of the classes, in the order of the columns of probabilities.
    groups : Groups
    named : bool
        Whether the columns of probabilities had these names, in whatever order.
    missing : int
        How many calibration nodes were drawn whose labels are missing.
    odds : array (n,) or None
        Each node's odds against having been drawn, where chances were given: see `read_odds`.
    """

    calib: Labelled
    tuning: Evidence
    known: Evidence
    reference: Keys
    classes: np.ndarray
    groups: Groups
    named: bool = False
    missing: int = 0
    odds: np.ndarray | None = None

    @classmethod
    def read(
        cls,
        graph: Graph,
        num_classes: int,
        labels: Any,
        nodes: Any,
        *,
        tune_nodes: Any = None,
        known_nodes: Any = None,
        reference: Any = None,
        groups: Any = None,
        classes: Any = None,
        named: bool = False,
        tune: Fraction | None = None,
        seed: int = 0,
        name: str = "nodes",
        missing_labels: int = 0,
        chances: Any = None,
    ) -> Roles:
        """Split the label array.

        Parameters
        ----------
        tune : Fraction, optional
            The level to tune for, by a part of `nodes`, when no `tune_nodes` are given.
        name : str
            What the user calls `nodes`.
        """
        ids = graph.ids
        codes, names = read_labels(graph, labels, num_classes, classes)
        names.flags.writeable = False
        calib = read_nodes(graph, nodes, name)
        check_known(codes, calib, name, ids)
        odds = None if chances is None else read_odds(chances, graph, calib)
        tuning = calib[:0]
        if tune_nodes is not None:
            tuning = read_nodes(graph, tune_nodes, "tune_nodes")
            check_known(codes, tuning, "tune_nodes", ids)
            check_disjoint(tuning, "tune_nodes", calib, f"'{name}'", ids)
        others = {f"'{name}'": calib}
        if tuning.size:
            others["the tuning nodes"] = tuning
        known = unlabelled = calib[:0]
        if known_nodes is not None:
            known = read_nodes(graph, known_nodes, "known_nodes", True)
            check_known(codes, known, "known_nodes", ids)
        if reference is not None:
            unlabelled = read_nodes(graph, reference, "reference", True)
        for what, other in others.items():
            check_disjoint(known, "known_nodes", other, what, ids)
            check_disjoint(unlabelled, "reference", other, what, ids)
        if tune_nodes is None and tune is not None:
            share = tuning_share(len(calib), tune)
            chosen = choose_tuning(graph.keys[calib], share, seed)
            tuning, calib = calib[chosen], np.delete(calib, chosen)

        return cls(
            _labelled(Labelled, graph, codes, calib),
            replace(_labelled(Evidence, graph, codes, tuning), drawn=tune_nodes is None),
            _labelled(Evidence, graph, codes, known),
            graph.keys[unlabelled],
            names,
            Groups.read(groups, graph),
            named,
            check_integer(missing_labels, "missing_labels", low=0),
            odds,
        )

    def again(
        self,
        graph: Graph,
        labels: Any = None,
        nodes: Any = None,
        *,
        groups: Any = None,
        chances: Any = None,
        drop: bool = False,
        keep: bool = False,
    ) -> Roles:
        """The same nodes on another graph, found by id, and more calibration nodes if given.

        Parameters
        ----------
        labels, nodes : as for `read`, optional
            Labels on the new graph; more calibration nodes.
        drop : bool
            Go on without nodes that are gone; otherwise that is an error.
        keep : bool
            Whether the thresholds are kept, and with them the groups they are for.
        """
        if self.groups.given and groups is None:
            raise SnapsError("'groups' must be given for the new graph, as they were to calibrate")
        if self.odds is not None and chances is None:
            raise SnapsError("'chances' must be given for the new graph, as they were to calibrate")
        # Kept thresholds belong to the old groups, new ones to those of the new graph.
        again = Groups.read(groups, graph, self.groups.names if keep else ())
        gone = len(self.reference) - len(locate_keys(graph.keys, self.reference)[1])
        if gone and not drop:
            raise SnapsError(
                f"'graph' must have all {len(self.reference)} reference items, got {gone} missing: "
                "missing='drop' goes on without them"
            )
        calib = _still_here(graph, self.calib, "calibration", drop)
        tuning = _still_here(graph, self.tuning, "tuning", drop)
        known = _still_here(graph, self.known, "known", drop)
        if nodes is not None and labels is None:
            raise SnapsError("'labels' must be given with 'nodes', got None")
        if labels is not None and (graph.named or not keep):
            codes, _ = read_labels(graph, labels, len(self.classes), self.classes)
            for old in (calib, tuning, known):
                _check_same(graph, old, codes)
            if nodes is not None:
                more = read_nodes(graph, nodes, "nodes")
                check_known(codes, more, "nodes", graph.ids)
                for what, keys in (
                    ("the tuning nodes", tuning.keys),
                    ("the known nodes", known.keys),
                    ("the reference", self.reference),
                ):
                    positions = locate_keys(graph.keys, keys)[0]
                    check_disjoint(more, "nodes", positions, what, graph.ids)
                old_positions = locate_keys(graph.keys, calib.keys)[0]
                both = np.union1d(old_positions, more)
                codes = codes.copy()
                codes[old_positions] = calib.labels
                calib = _labelled(Labelled, graph, codes, both)
        drawn = locate_keys(graph.keys, calib.keys)[0]
        return replace(
            self,
            calib=calib,
            tuning=tuning,
            known=known,
            reference=np.intersect1d(self.reference, graph.keys),
            groups=again,
            odds=None if chances is None else read_odds(chances, graph, drawn),
        )


def read_nodes(graph: Graph, nodes: Any, name: str, empty: bool = False) -> np.ndarray:
    """Positions of the nodes that a user names: by position, mask or, where they are text, id."""
    return node_positions(graph.ids, align_mask(nodes, graph, name), name, empty=empty)


def read_labels(
    graph: Graph, labels: Any, num_classes: int, classes: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Labels as columns of probabilities, -1 where unknown, and the names of the columns."""
    values = align(labels, graph, "labels", partial=True)
    return encode_labels(
        values, num_nodes=graph.num_nodes, num_classes=num_classes, classes=classes
    )


def _labelled(kind: type[Kind], graph: Graph, codes: np.ndarray, positions: np.ndarray) -> Kind:
    """The nodes at these positions with their labels, in the order of their keys, read-only."""
    positions = in_order(graph.keys, positions) if positions.size else positions
    arrays = graph.ids[positions], graph.keys[positions], codes[positions]
    for array in arrays:
        array.flags.writeable = False
    return kind(*arrays)


def _still_here(graph: Graph, nodes: Kind, what: str, drop: bool) -> Kind:
    """Those of the nodes that the graph still has."""
    _, present = locate_keys(graph.keys, nodes.keys)
    if len(present) == len(nodes):
        return nodes
    gone = np.delete(np.arange(len(nodes)), present)
    if not drop:
        raise SnapsError(
            f"'graph' must have all {len(nodes)} {what} nodes, got {len(gone)} missing (first: "
            f"{shown(nodes.ids[gone[0]].item())}): missing='drop' (--missing drop) goes on without "
            "them"
        )
    return nodes.subset(present)


def _check_same(graph: Graph, nodes: Labelled, codes: np.ndarray) -> None:
    """Labels that are given again must be the old ones."""
    positions, present = locate_keys(graph.keys, nodes.keys)
    now = codes[positions]
    other = np.flatnonzero((now >= 0) & (now != nodes.labels[present]))
    if other.size:
        raise SnapsError(
            f"'labels' must agree with those calibrated with, got {len(other)} that differ "
            f"(first: {shown(nodes.ids[present[other[0]]].item())}): call calibrate() again"
        )


def read_node(graph: Graph, node: Any) -> int:
    """Position of the one node that a user names."""
    node = plain_scalar(node)
    if isinstance(node, str):
        return int(locate(graph.ids, check_ids([node], "'node'"), "'node'")[0])
    return check_integer(node, "node", low=0, high=graph.num_nodes - 1)
