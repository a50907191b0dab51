"""Sets of labelled nodes against their labels: `evaluate`, once, and `watch`, as labels arrive."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from snaps import metrics
from snaps._checks import check_alpha, check_known, plainly, shown
from snaps._checks.ids import plain_scalar
from snaps._tables import html_table
from snaps.conformal.calibration import Promise
from snaps.conformal.chances import UNEVEN
from snaps.conformal.coverage import rank_interval
from snaps.conformal.watching import Watch
from snaps.errors import SnapsError
from snaps.io.files import finished, new_axis
from snaps.predictor.predictor import Predictor
from snaps.predictor.roles import read_labels
from snaps.predictor.slices import find_slices, slab_summary, weakest_slice
from snaps.sets import PredictionSets

_PLOTTED = 20  # the weakest classes, and groups, in a picture


class Evaluation(dict[str, Any]):
    """How sets of labelled nodes compare with the truth; `print` it for a table.

    A plain dict of numbers, lists and None; see `SNAPS.evaluate` for its keys.
    """

    def _rows(self) -> list[tuple[str, str, str]]:
        """What is printed: a key, its value, and what it is."""
        nonempty = "-" if self["size_nonempty"] is None else f"{self['size_nonempty']:.3f}"
        rows = [
            ("coverage", f"{self['coverage']:.4f}", _verdict(self)),
            ("size", f"{self['size']:.3f}", "labels per set"),
            ("size_nonempty", nonempty, "labels per set that is not empty"),
            ("singleton_hit", f"{self['singleton_hit']:.1%}", "exactly the true label"),
            ("empty", f"{self['empty']:.1%}", "sets without a label"),
            ("n", str(self["n"]), "nodes evaluated"),
            ("n_calib", str(self["n_calib"]), "calibration nodes"),
        ]
        if "n_effective" in self:
            words = "evenly drawn labels would say as much"
            rows.append(("n_effective", f"{self['n_effective']:.1f}", words))
        rows.append(("n_tune", str(self["n_tune"]), "tuning nodes"))
        if self["tied"]:
            words = "calibration scores that tie: predict_set(smoothed=True) leaves them to chance"
            rows.append(("tied", f"{self['tied']:.1%}", words))
        for what in ("class", "group"):
            coverages, promised = self._coverages(what), self[f"{what}_promise"]
            for name, value in coverages[:5]:
                words = "coverage"
                if promised:
                    least = promised[name]
                    words += ", no promise" if least is None else f", at least {least:g} promised"
                rows.append((f"{what} {name}", f"{value:.4f}", words))
            if len(coverages) > 5:
                rows.append((f"... {len(coverages) - 5} more", "", f"{what} coverages, all higher"))
        return [*rows, *_weak_rows(self)]

    def _coverages(self, what: str) -> list[tuple[Any, float]]:
        """Known coverages of each "class" or "group", the lowest first."""
        coverages = (self[f"{what}_coverage"] or {}).items()
        known = [(name, value) for name, value in coverages if value is not None]
        return sorted(known, key=lambda item: item[1])

    def __str__(self) -> str:
        rows = self._rows()
        wide, middle = (max(len(row[i]) for row in rows) for i in (0, 1))
        return "\n".join(
            f"{name:<{wide}}  {value:>{middle}}  {words}".rstrip() for name, value, words in rows
        )

    def _repr_html_(self) -> str:
        return html_table([], self._rows())

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw the coverage of all nodes, of each class and of each group.

        The bar behind all nodes is the 99 % range of random calibration splits, where one threshold
        is for all.

        Parameters
        ----------
        path : path, optional
            A file to write, .png, .svg or .pdf.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> import snaps
        >>> probs, labels = np.repeat([[0.9, 0.1], [0.2, 0.8]], 100, axis=0), np.repeat([0, 1], 100)
        >>> cp = snaps.SplitConformal(0.1).calibrate(None, probs, labels, np.arange(0, 200, 2))
        >>> figure = cp.evaluate(labels).plot("coverage.png")
        """
        coverages = {"all nodes": self["coverage"]}
        for what in ("class", "group"):
            lowest = self._coverages(what)[:_PLOTTED]
            coverages |= {f"{what} {name}": value for name, value in lowest}
        axis = new_axis(max(1.6, 0.24 * len(coverages) + 1))
        if self["coverage_interval"] is not None:
            low, high = self["coverage_interval"]
            axis.barh(0, high - low, 0.8, low, color="#56B4E9", alpha=0.4, label="99 % of splits")
            axis.legend(loc="best", frameon=False)
        heights = np.arange(len(coverages))
        axis.plot(list(coverages.values()), heights, "o", color="#0072B2")
        axis.set_yticks(heights, list(coverages))
        axis.invert_yaxis()
        axis.grid(axis="y", color="#dddddd", linewidth=0.6)
        axis.set_xlabel("coverage")
        return finished(axis, f"Coverage of {self['n']:,} nodes", path)


def _verdict(evaluation: Evaluation) -> str:
    if evaluation["coverage_interval"] is None:
        return UNEVEN if "n_effective" in evaluation else ""
    low, high = evaluation["coverage_interval"]
    place = "inside" if evaluation["inside"] else "OUTSIDE"
    text = f"{place} [{low:.4f}, {high:.4f}], the 99 % range of random calibration splits"
    if not evaluation["upper_binds"]:
        why = "scores tie" if evaluation["tied"] else "more may be covered than that"
        text += f"; {why}, so the upper end does not bind"
    if evaluation["confidence"] is not None:
        text += f"; promised with confidence {evaluation['confidence']:g}"
    return text


def _weak_rows(evaluation: Evaluation) -> Iterator[tuple[str, str, str]]:
    """The weakest slice and the worst slab, in a line each."""
    weakest, slab = evaluation["weakest_slice"], evaluation["worst_slab"]
    words = (
        f"{slice_name(weakest)}, {weakest['n']} nodes: the weakest of {weakest['slices']} slices; "
        f"chance alone gives at least {weakest['chance_coverage']:.4f}"
    )
    yield "weakest slice", f"{weakest['coverage']:.4f}", words
    if slab is not None:
        low, high = slab["chance_interval"]
        words = (
            f"searched on {slab['searched']} nodes, estimated on {slab['n']} others; "
            f"chance alone gives [{low:.4f}, {high:.4f}]"
        )
        yield "worst slab", f"{slab['coverage']:.4f}", words


def slice_name(weakest: Mapping[str, Any]) -> str:
    """A slice in words: class law, 0 links, confidence up to 0.52, 2 labels in the set."""
    by, name = weakest["by"], str(weakest["name"]).replace("\u00a0", " ")
    counted = {"links": "link", "set size": "label"}
    if by in counted:
        what = f"{name} {counted[by]}{'' if name == '1' else 's'}"
        return what if by == "links" else f"{what} in the set"
    return f"{by} {name}"


def _plain(value: Any) -> Any:
    """Numbers as JSON has them: what is infinite or not a number is None."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value]
    value = plain_scalar(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _name(value: Any) -> Any:
    """A key that JSON takes."""
    value = plain_scalar(value)
    return value if isinstance(value, (str, int, float, type(None))) else str(value)


def evaluate(
    predictor: Predictor, labels: Any, nodes: Any = None, empty: str = "keep"
) -> Evaluation:
    """Compare the sets of labelled nodes with their labels; see `SNAPS.evaluate`."""
    inputs, roles = predictor.inputs, predictor.roles
    codes, _ = read_labels(inputs.graph, labels, inputs.num_classes, roles.classes)
    wanted = predictor.wanted(nodes)
    if nodes is None:
        wanted = wanted[codes[wanted] >= 0]
    if wanted.size == 0:
        raise SnapsError("'nodes' must hold at least one labelled node, got none")
    check_known(codes, wanted, "nodes", inputs.graph.ids)
    predictor.refuse_used(wanted)
    return compare_with_truth(predictor, predictor.sets_of(wanted, empty=empty), codes[wanted])


def compare_with_truth(predictor: Predictor, sets: PredictionSets, truth: np.ndarray) -> Evaluation:
    """What `evaluate` returns, for sets of nodes whose label codes are `truth`."""
    calibration, roles = predictor.calibration, predictor.roles
    hits = sets.mask[np.arange(len(sets)), truth]
    coverage = float(hits.mean())
    interval = inside = upper_binds = None
    uneven = calibration.odds is not None
    if calibration.kind == "calibration" and not uneven:
        rank = calibration.rank(predictor.alpha, len(sets))
        interval = rank_interval(len(calibration) + calibration.missing, len(sets), rank)
        topped = sets.metadata.get("snaps.empty") == "top"
        exact = not (topped or calibration.missing or calibration.lifted(predictor.alpha))
        upper_binds = exact and not (_ties_at_threshold(predictor, sets.nodes, truth))
        inside = interval[0] <= coverage and (coverage <= interval[1] or not upper_binds)

    def by(values: np.ndarray, names: Any) -> dict[Any, float | None]:
        count = np.bincount(values, minlength=len(names))
        hit = np.bincount(values, weights=hits, minlength=len(names))
        return {
            _name(name): float(hit[i] / count[i]) if count[i] else None
            for i, name in enumerate(names)
        }

    def promised(kind: str, names: Any) -> dict[Any, float | None] | None:
        values = predictor.promised(kind)
        return None if values is None else dict(zip(map(_name, names), values, strict=True))

    groups = roles.groups
    weakest = weakest_slice(find_slices(predictor, sets, truth), hits)
    return Evaluation(
        **({"n_effective": predictor.effective_labels} if uneven else {}),
        coverage=coverage,
        size=metrics.size(sets),
        size_nonempty=_plain(metrics.size_nonempty(sets)),
        singleton_hit=float((hits & (sets.sizes == 1)).mean()),
        empty=metrics.empty(sets),
        n=len(sets),
        threshold=None if uneven else _plain(predictor.threshold(sets.nodes)),
        coverage_interval=interval,
        inside=inside,
        tied=calibration.tied_share(),
        upper_binds=upper_binds,
        n_calib=len(calibration),
        n_tune=predictor.num_tuned,
        class_coverage=by(truth, roles.classes),
        group_coverage=by(groups.codes[sets.nodes], groups.names) if groups.given else None,
        class_promise=promised("class", roles.classes),
        group_promise=promised("group", groups.names) if groups.given else None,
        confidence=predictor.shown_promise().get("confidence"),
        weakest_slice=weakest | {"name": _name(weakest["name"])},
        worst_slab=slab_summary(predictor, sets.nodes, hits),
    )


def _ties_at_threshold(predictor: Predictor, positions: np.ndarray, truth: np.ndarray) -> bool:
    """Whether scores tie at the threshold, which lets in more than the coverage distribution."""
    calibration, codes = predictor.calibration, predictor.roles.groups.codes[positions]
    limits = calibration.limits(predictor.level, predictor.counts(positions))
    scores = predictor.inputs.score(predictor.scorer, positions)[np.arange(len(truth)), truth]
    own = limits[codes if calibration.by_group else 0, truth if calibration.per_class else 0]
    ties = (calibration.scores[:, None] == np.unique(limits)).sum(axis=0)
    return bool((ties > 1).any() or (scores == own).any())


def watch(
    predictor: Predictor, labels: Any, nodes: Any, state: Any = None, alarm: float = 0.01
) -> Watch:
    """Count labels of audited nodes, in the order given; see `SNAPS.watch`."""
    level = check_alpha(alarm, "alarm")
    before = _fresh(predictor, float(level))
    if state is not None:
        before = _continued(before, _loaded(state))
    inputs, roles = predictor.inputs, predictor.roles
    codes, _ = read_labels(inputs.graph, labels, inputs.num_classes, roles.classes)
    wanted = predictor.wanted(nodes)
    check_known(codes, wanted, "nodes", inputs.graph.ids)
    predictor.refuse_used(wanted)
    if wanted.size == 0:
        return before
    sets = predictor.sets_at(wanted)
    return before.count(sets.ids.tolist(), sets.mask[np.arange(len(sets)), codes[wanted]])


def watch_of(predictor: Predictor, state: Any) -> Watch:
    """A watch or the file of one, which must be of this calibration."""
    if not isinstance(state, (Watch, str, os.PathLike)):
        raise SnapsError(f"'watch' must be a Watch or a path, got {shown(state)}")
    state = _loaded(state)
    return _continued(_fresh(predictor, state.alarm), state)


def _loaded(state: Any) -> Watch:
    return state if isinstance(state, Watch) else Watch.load(state)


def _fresh(predictor: Predictor, alarm: float) -> Watch:
    """A watch on this calibration that has seen no label."""
    calibration = predictor.calibration
    if predictor.roles.odds is not None:
        raise SnapsError(
            "'watch' must have calibration nodes that were drawn evenly, got chances: its alarm "
            "rests on ranks"
        )
    if calibration.kind != "calibration":
        raise SnapsError(
            f"'watch' must have one threshold for all nodes, got one per {calibration.kind}"
        )
    if calibration.promise != Promise():
        promised = ", ".join(predictor.shown_promise())
        raise SnapsError(
            f"'watch' must have a threshold that promises an average alone, got {promised}"
        )
    n = len(calibration) + calibration.missing
    rank = calibration.rank(predictor.alpha)
    if rank > len(calibration):
        raise SnapsError(
            f"'alpha' must give a finite threshold, which can be missed, got "
            f"{float(predictor.alpha):g} with {n} calibration nodes"
        )
    keys = np.sort(predictor.roles.calib.keys).astype("<u8")
    return Watch.start(n, rank, alarm, hashlib.sha256(keys.tobytes()).hexdigest())


def _continued(fresh: Watch, state: Watch) -> Watch:
    """A state, if it belongs to this calibration and to the same alarm."""
    if state.alarm != fresh.alarm:
        raise SnapsError(
            f"'alarm' must stay as it was when the watch began, {state.alarm:g}, "
            f"got {plainly(fresh.alarm)}"
        )
    mine, theirs = ((w.n, w.rank, w.calibration) for w in (fresh, state))
    if mine != theirs:
        raise SnapsError(
            f"'state' must be of this calibration (rank {fresh.rank} of {fresh.n} nodes), got one "
            f"of rank {state.rank} of {state.n}{' other' * (mine[:2] == theirs[:2])} nodes: after "
            "a calibration begin a new one"
        )
    return state
