"""How a graph folder becomes a calibrated estimator."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from snaps._checks import check_probs, shown
from snaps._checks.named import named_columns
from snaps._runtime import progress as _progress
from snaps._runtime.memory import passed, place_tables
from snaps._runtime.randomness import locate_keys
from snaps.cli._help import name_classes
from snaps.cli._options import FolderOptions, MethodOptions, SavedOptions, given_options
from snaps.cli._resources import place_for_tables, shape_of
from snaps.cli._show import status
from snaps.conformal.calibration import Calibration, warn_few
from snaps.conformal.coverage import rank_interval
from snaps.conformal.rank import enough, fewest_nodes
from snaps.drawing import check_drawn, missing_ids, read_numbers
from snaps.errors import SnapsError
from snaps.folder import ROLES, Folder, check_agreement, read_files
from snaps.io.files import check_apart, check_writable
from snaps.io.folders import GraphFiles, digests, folder_files, open_folder
from snaps.predictor.estimator import Estimator, method_of
from snaps.predictor.loading import load
from snaps.predictor.predictor import Method, level_for
from snaps.predictor.roles import Roles

EDGES = "edges"  # instead of a column of chances


def check_outputs(written: Mapping[str, Any], source: FolderOptions, *others: Path | None) -> None:
    """Before any work, refuse outputs, by option, that cannot be written or are inputs."""
    files = {name: path for name, path in written.items() if path not in (None, "-")}
    for path in files.values():
        check_writable(path)
    check_apart(files, [*folder_files(source.folder), *filter(None, others)])


def calibrated(
    source: FolderOptions,
    how: MethodOptions,
    saved: SavedOptions,
    limit: int | None = None,
    out: str = "-",
    named: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> tuple[Estimator, Folder, dict[str, str]]:
    """The estimator of the options, or a saved one, calibrated on a folder.

    Also the folder, and the digests of all files that were read. Within a limit on memory, large
    tables may be stored in temporary files next to `out`. Classes that options name must exist,
    which is checked before anything is calibrated.
    """
    estimator = asked_estimator(how, saved)

    def place(files: GraphFiles) -> None:
        if limit is not None:
            shape = shape_of(files, weighted=source.weighted, group_by=how.group_by)
            place_tables(place_for_tables(limit, shape, estimator, out))

    data, inputs = read(source, how.group_by, place, chances=how.chances)
    if not source.logits:  # of a table that is as large as the scores, one copy is enough
        data = replace(data, probs=passed(data.probs, np.float64))
    check_drawn(source.folder, how.chances)
    names = class_names(data, source.classes)
    options = {
        "logits": source.logits,
        "groups": None if how.group_by is None else data.columns[how.group_by],
        "chances": chances_of(data, how.chances),
        "classes": names,
    }
    classes = range(data.probs.shape[1]) if names is None else names
    if saved.using is not None:
        classes = estimator.classes_
    name_classes(classes)
    for option, texts in named.items():
        for text in texts:
            class_of(text, classes, option)
    with _progress.stage("calibration"), _progress.shown():
        if saved.using is None:
            _calibrate(estimator, data, options | {"group_floor": how.group_floor}, source.folder)
        else:
            inputs |= digests([saved.using])
            _recalibrate(estimator, data, saved, options, source.folder)
    return estimator, data, inputs


def read(
    source: FolderOptions,
    group_by: str | None = None,
    place: Callable[[GraphFiles], None] | None = None,
    *,
    chances: str | None = None,
) -> tuple[Folder, dict[str, str]]:
    """A graph folder and the digests of its files, with a spinner.

    `place` says where its large tables are stored, and is called before they are read.
    """
    if group_by in ("id", "label", "role", "probs", "features"):
        raise SnapsError(
            "'--group-by' must be a column that reveals no labels, and is known for every "
            f"node to predict, got {group_by!r}"
        )
    columns = [name for name in (group_by, chances) if name not in (None, EDGES)]
    with status(f"Reading {source.folder}"), open_folder(source.folder) as files:
        if chances == EDGES and EDGES in files.nodes:
            raise SnapsError(
                f"'--chances' must not be {EDGES} where {files.nodes.file} has a column of that "
                "name: give the column another name"
            )
        if place is not None:
            place(files)
        data = read_files(files, columns, in_order=True, weighted=source.weighted)
        return data, digests(folder_files(source.folder))


def chances_of(data: Folder, column: str | None, pool: np.ndarray | None = None) -> Any:
    """The chances in a column, or the word for those by degree; None if none were asked for.

    Those of the nodes in the pool, by default of the nodes to predict, are checked before any work.
    """
    if column is None or column == EDGES:
        return column
    values = read_numbers(data.columns[column], f"{data.file} column '{column}'")
    pool = _to_predict(data) if pool is None else pool
    bad = pool[~((values[pool] > 0) & (values[pool] < 1))]
    if bad.size:
        raise SnapsError(
            f"{data.file} column '{column}' must lie between 0 and 1, both excluded, for nodes to "
            f"predict, got {values[bad[0]]:g} for id {shown(data.graph.ids[bad[0]].item())}"
        )
    return values


def _to_predict(data: Folder) -> np.ndarray:
    """Nodes with role test, else without a role, as 'snaps draw' has them."""
    return data.nodes("test") if data.nodes("test").size else data.nodes("")


def class_names(data: Folder, classes: str | None) -> Any:
    """The names of the columns of probs: the folder's, else the option's, else None."""
    if classes is None:
        return data.classes
    names = read_names(classes, integers=data.labels.dtype.kind in "iu")
    if data.classes is None:
        return names
    check_agreement(names, data.class_columns)
    return data.classes


def read_names(classes: str, *, integers: bool) -> list[Any]:
    """The names of --classes, as integers if they look like it and may be."""
    names = [name.strip() for name in classes.split(",")]
    if integers and all(re.fullmatch("-?[0-9]{1,19}", name) for name in names):
        return [int(name) for name in names]
    return names


def class_of(text: str, classes: Any, option: str = "--label") -> Any:
    """The class, a number or a name, that is written on a command line."""
    names = {str(name): name for name in np.asarray(classes).tolist()}
    if text not in names:
        raise SnapsError(f"'{option}' must be one of {shown(list(names))}, got {shown(text)}")
    return names[text]


def asked_nodes(data: Folder, estimator: Estimator) -> np.ndarray:
    """The nodes to predict: role test, else every node that has no other use.

    With chances those without a role: training nodes had no chance to be drawn.
    """
    if estimator.effective_labels_ is not None:
        return _to_predict(data)
    return free_nodes(data, estimator.calib_nodes_, estimator.tune_nodes_, estimator.known_nodes_)


def free_nodes(data: Folder, *used: np.ndarray) -> np.ndarray:
    """Nodes with role test, else those that are not in `used` and have no role calib or tune."""
    asked = data.nodes("test")
    if asked.size:
        return asked
    free = np.ones(data.graph.num_nodes, bool)
    free[np.concatenate([*used, data.nodes("calib", "tune")])] = False
    return np.flatnonzero(free)


def named_nodes(data: Folder, ids: Sequence[str], name: str) -> np.ndarray:
    """Positions of the nodes with these ids, as they are written on a command line."""
    positions = {str(id_): i for i, id_ in enumerate(data.graph.ids.tolist())} if ids else {}
    for id_ in ids:
        if id_ not in positions:
            raise SnapsError(f"'{name}' must name nodes of the folder, got {shown(id_)}")
    return np.unique([positions[id_] for id_ in ids]).astype(np.int64)


def asked_estimator(how: MethodOptions, saved: SavedOptions) -> Estimator:
    """The estimator of the options, or the saved one, before it is calibrated on a folder."""
    if saved.using is None:
        for option in given_options(saved):
            raise SnapsError(f"'{option}' must go with --with, got it alone")
        return how.estimator()
    for option in given_options(how):
        if option not in ("--alpha", "--group-by", "--chances"):
            raise SnapsError(f"'{option}' must be left out with --with: the file has it")
    estimator = load(saved.using)
    if how.alpha is not None:
        estimator.set_params(alpha=how.alpha)
        method_of(estimator)
    return estimator


def _calibrate(estimator: Estimator, data: Folder, options: dict[str, Any], folder: Path) -> None:
    """Calibrate on the nodes with role calib."""
    calib, missing = labelled_nodes(data, data.nodes("calib"), folder)
    if calib.size == 0:
        raise SnapsError(f"{data.file} column 'role' must mark calibration nodes 'calib', got none")
    method = method_of(estimator)
    tune, known = data.tuning_and_known(method.uses_evidence)
    estimator.calibrate(
        data.graph, named_columns(data.probs, data.classes), data.labels, calib,
        tune if method.scorer.needs_tuning else None,
        known_nodes=known if method.uses_evidence else None, missing_labels=missing, **options,
    )  # fmt: skip


def _recalibrate(
    estimator: Any, data: Folder, saved: SavedOptions, options: dict[str, Any], folder: Path
) -> None:
    """Go on with a saved estimator; calibrate also on nodes with role calib that are new to it."""
    ids, calib = data.graph.ids, data.nodes("calib")
    for known in (estimator.calib_ids_, estimator.tune_ids_, estimator.known_ids_):
        calib = calib[~np.isin(ids[calib], known)]
    calib, missing = labelled_nodes(data, calib, folder)
    if missing != estimator.missing_labels_ and saved.threshold != "keep":
        raise SnapsError(
            f"{data.file} must have as many calibration nodes without a label as calibrated with, "
            f"{estimator.missing_labels_}, got {missing}: call calibrate() again"
        )
    trained = data.nodes("train")
    trained = trained[np.isin(ids[trained], estimator.calib_ids_)]
    if trained.size:
        raise SnapsError(
            f"{data.file} column 'role' must not be train for calibration nodes, got "
            f"{trained.size} such (first: {shown(ids[trained[0]].item())})"
        )
    new = calib if calib.size and saved.threshold != "keep" else None
    given = {"missing": saved.missing, "threshold": saved.threshold}
    options |= {name: value for name, value in given.items() if value is not None}
    estimator.recalibrate(data.graph, data.probs, data.labels, new, **options)


def labelled_nodes(data: Folder, calib: np.ndarray, folder: Path) -> tuple[np.ndarray, int]:
    """Calibration nodes with a label, and how many have none by the record of 'snaps label'."""
    bare = calib[~data.labelled[calib]]
    if bare.size:
        missing = missing_ids(folder)
        for id_ in data.graph.ids[bare].tolist():
            if id_ not in missing:
                raise SnapsError(
                    f"{data.file} column 'label' must be given where the role is calib, "
                    f"got null for id {shown(id_)}"
                )
    return np.setdiff1d(calib, bare), len(bare)


def contents(data: Folder, classes: Any) -> dict[str, Any]:
    """What the files of a folder hold."""
    graph, sums = data.graph, data.probs.sum(axis=1, dtype=np.float64)
    members = {role or "none": data.nodes(role) for role in (*ROLES, "")}
    labels, counts = np.unique(data.labels[data.labelled], return_counts=True)
    return {
        "nodes": graph.num_nodes,
        "ids": "integers" if graph.ids.dtype.kind in "iu" else "strings",
        "edges": graph.num_edges,
        "isolated": int((np.diff(graph.adjacency.indptr) == 0).sum()),
        "features": None if graph.features is None else list(graph.features.shape),
        "classes": np.asarray(classes).tolist(),
        "sums": [float(sums.min()), float(sums.max())] if len(sums) else None,
        "labels": dict(zip(map(str, labels.tolist()), counts.tolist(), strict=True)),
        "roles": {
            role: [int(nodes.size), int(data.labelled[nodes].sum())]
            for role, nodes in members.items()
            if nodes.size
        },
    }


def plan_calibration(
    data: Folder, source: FolderOptions, method: Method, names: Any, groups: Any, even: bool
) -> dict[str, Any]:
    """What 'snaps predict' would calibrate on, tune on and predict; raises what it would raise."""
    ids = data.graph.ids
    check_probs(
        data.probs, logits=source.logits, where=lambda row: f"for id {shown(ids[row].item())}"
    )
    calib, bare = labelled_nodes(data, data.nodes("calib"), source.folder)
    if calib.size == 0:
        raise SnapsError(
            f"{data.file} column 'role' must mark calibration nodes 'calib', got none: alpha "
            f"{float(method.alpha):g} takes at least {fewest_nodes(method.alpha)} labelled nodes "
            "drawn at random ('snaps plan' shows how many are good, 'snaps draw' draws them)"
        )
    tuning = method.scorer.needs_tuning
    tune, known = data.tuning_and_known(method.uses_evidence)
    tune, known = tune if tuning else None, known if method.uses_evidence else known[:0]
    roles = Roles.read(
        data.graph, data.probs.shape[1], data.labels, calib, classes=names, groups=groups,
        tune_nodes=tune, known_nodes=known, tune=method.alpha if tuning else None,
        seed=method.seed, missing_labels=bare,
    )  # fmt: skip
    predicted = free_nodes(data, known, *([] if tune is None else [tune]))
    positions, count = locate_keys(data.graph.keys, roles.calib.keys)[0], len(roles.calib.labels)
    calibration = Calibration(  # how many scores there are is all that is asked of it
        np.zeros(count), roles.calib.labels, len(roles.classes),
        roles.groups.codes[positions] if roles.groups.given else 0,
        len(roles.groups), method.class_conditional, method.promise, bare,
    )  # fmt: skip
    level = level_for(method.level, roles.classes)
    calibration.warn_few(level, roles.classes, roles.groups.names)
    method.warn_missing(frozenset() if data.graph.features is None else frozenset(["similar"]))
    plan: dict[str, Any] = {
        "calibration_nodes": count,
        "tuning_nodes": len(roles.tuning.labels),
        "known_nodes": len(known),
        "predicted": len(predicted),
        "predicted_with_label": int(data.labelled[predicted].sum()),
    }
    if calibration.kind == "calibration":
        rank = calibration.rank(method.alpha)
        plan["reachable"] = rank <= count
        floors = method.promise.class_floor or method.promise.group_floor
        if predicted.size and even and not (floors or bare):
            plan["coverage_interval"] = rank_interval(count, len(predicted), rank)
    return plan


def plan_continuation(
    data: Folder, folder: Path, estimator: Estimator, saved: SavedOptions
) -> dict[str, Any]:
    """What 'snaps predict --with' would find of a saved predictor, by id."""
    if len(estimator.classes_) != data.probs.shape[1]:
        raise SnapsError(
            f"'{saved.using}' must have the {data.probs.shape[1]} classes of the folder, got "
            f"{len(estimator.classes_)}"
        )
    ids, kept = data.graph.ids, []
    for name in ("calib_ids_", "tune_ids_", "known_ids_"):
        saved_ids = getattr(estimator, name)
        gone = saved_ids[~np.isin(saved_ids, ids)]
        if gone.size and saved.missing != "drop":
            raise SnapsError(
                f"{data.file} must have all nodes of '{saved.using}', got {gone.size} missing "
                f"(first: {shown(gone[0].item())}): --missing drop goes on without them"
            )
        kept.append(np.flatnonzero(np.isin(ids, saved_ids)))
    new = np.setdiff1d(data.nodes("calib"), np.concatenate(kept))
    new, _ = labelled_nodes(data, new, folder)
    new = new if saved.threshold != "keep" else new[:0]
    count, alpha = len(kept[0]) + len(new), method_of(estimator).alpha
    if not (saved.threshold == "keep" or enough(count, alpha)):
        warn_few({"": count}, 1, "calibration", alpha)
    predicted = free_nodes(data, *kept)
    return {
        "with": str(saved.using),
        "calibration_nodes": count,
        "new_calibration_nodes": len(new),
        "tuning_nodes": len(kept[1]),
        "known_nodes": len(kept[2]),
        "predicted": len(predicted),
        "predicted_with_label": int(data.labelled[predicted].sum()),
    }
