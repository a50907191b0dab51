"""`snaps check`: a first look at a graph folder, before anything is calibrated."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snaps.cli._options import AsJson, FolderOptions, MethodOptions, SavedOptions, with_options

if TYPE_CHECKING:
    from snaps.folder import Folder
    from snaps.predictor.estimator import Estimator
    from snaps.predictor.predictor import Method


@with_options
def check(
    source: FolderOptions, how: MethodOptions, saved: SavedOptions, as_json: AsJson = False
) -> None:
    """Look at a graph folder: what it has, what will happen.

    Reads and checks everything that 'snaps predict' reads, with the same options, and prints what
    was found, which nodes would be calibrated on, tuned on and predicted, whether there are enough
    of them for alpha, and what is missing. Nothing is written and nothing calibrated. Exit code 2
    if 'snaps predict' would stop.
    """
    from snaps.cli._calibration import asked_estimator, class_names, read
    from snaps.cli._help import in_options, name_classes
    from snaps.cli._show import provenance
    from snaps.drawing import check_drawn
    from snaps.errors import SnapsError, SnapsWarning
    from snaps.predictor.estimator import method_of

    estimator = asked_estimator(how, saved)
    method = method_of(estimator)
    data, inputs = read(source, how.group_by, chances=how.chances)
    names, missing = class_names(data, source.classes), list[str]()
    name_classes(range(data.probs.shape[1]) if names is None else names)
    result: dict[str, Any] = {"folder": str(source.folder), "found": _found(data, names)}
    plan: dict[str, Any] = {"method": method.name, "alpha": float(method.alpha)}
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", SnapsWarning)
        try:
            groups = data.columns[how.group_by] if how.group_by else None
            method = method.with_group_floor(how.group_floor, groups)
            if saved.using is None:
                check_drawn(source.folder, how.chances)
                plan |= _planned(data, source, method, names, groups, how.chances is None)
            else:
                plan |= _continued(data, source.folder, estimator, saved)
        except SnapsError as error:
            missing.append(in_options(str(error)))
    texts = [in_options(str(note.message)) for note in notes if note.category is SnapsWarning]
    result |= {"plan": plan, "missing": missing, "notes": [*texts, *_remarks(data, plan)]}
    if as_json:
        print(json.dumps({**result, "ready": not missing, **provenance(inputs)}))
    else:
        _print(result)
    if missing:
        raise SnapsError(f"'{source.folder}' is not ready: {missing[0]}")


def _found(data: Folder, names: Any) -> dict[str, Any]:
    """What the files hold."""
    import numpy as np

    from snaps.folder import ROLES

    graph, sums = data.graph, data.probs.sum(axis=1, dtype=np.float64)
    shape = None if graph.features is None else list(graph.features.shape)
    roles = {}
    for role in (*ROLES, ""):
        nodes = data.nodes(role)
        if nodes.size:
            roles[role or "none"] = [int(nodes.size), int(data.labelled[nodes].sum())]
    labels, counts = np.unique(data.labels[data.labelled], return_counts=True)
    return {
        "nodes": graph.num_nodes,
        "ids": "integers" if graph.ids.dtype.kind in "iu" else "strings",
        "edges": graph.num_edges,
        "isolated": int((np.diff(graph.adjacency.indptr) == 0).sum()),
        "features": shape,
        "classes": list(range(data.probs.shape[1]))
        if names is None
        else np.asarray(names).tolist(),
        "sums": [float(sums.min()), float(sums.max())] if len(sums) else None,
        "labels": dict(zip(map(str, labels.tolist()), counts.tolist(), strict=True)),
        "roles": roles,
    }


def _planned(
    data: Folder, source: FolderOptions, method: Method, names: Any, groups: Any, even: bool
) -> dict[str, Any]:
    """What 'snaps predict' would calibrate on, tune on and predict; raises what it would raise."""
    import numpy as np

    from snaps._checks import check_probs, shown
    from snaps._runtime.randomness import locate_keys
    from snaps.cli._calibration import free_nodes, labelled_nodes
    from snaps.conformal.calibration import Calibration
    from snaps.conformal.coverage import rank_interval
    from snaps.conformal.rank import fewest_nodes
    from snaps.errors import SnapsError
    from snaps.predictor.predictor import level_for
    from snaps.predictor.roles import Roles

    def where(row: int) -> str:
        return f"for id {shown(data.graph.ids[row].item())}"

    check_probs(data.probs, logits=source.logits, where=where)
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
    places, count = locate_keys(data.graph.keys, roles.calib.keys)[0], len(roles.calib.labels)
    calibration = Calibration(  # how many scores there are is all that is asked of it
        np.zeros(count), roles.calib.labels, len(roles.classes),
        roles.groups.codes[places] if roles.groups.given else 0,
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


def _continued(
    data: Folder, folder: Path, estimator: Estimator, saved: SavedOptions
) -> dict[str, Any]:
    """What 'snaps predict --with' would find of a saved predictor, by id."""
    import numpy as np

    from snaps._checks import shown
    from snaps.cli._calibration import free_nodes, labelled_nodes
    from snaps.conformal.calibration import warn_few
    from snaps.conformal.rank import enough
    from snaps.errors import SnapsError
    from snaps.predictor.estimator import method_of

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


def _remarks(data: Folder, plan: dict[str, Any]) -> list[str]:
    """What is no error, and worth knowing."""
    remarks = []
    if data.graph.num_edges == 0:
        remarks.append("there are no edges: linked nodes cannot correct each other's scores")
    if plan.get("predicted") == 0:
        remarks.append("no node is left to predict: give nodes the role test, or no role")
    elif plan.get("predicted_with_label") == 0:
        remarks.append("no node to predict has a label: coverage is promised, and cannot be seen")
    return remarks


def _print(result: dict[str, Any]) -> None:
    """The result as lines."""
    from snaps._tables import print_table

    found, plan = result["found"], result["plan"]
    names = [str(name) for name in found["classes"]]
    listed = ", ".join(names[:8]) + ", ..." * (len(names) > 8)
    counts = list(found["labels"].values())
    features = "none" if found["features"] is None else "{:,} x {:,}".format(*found["features"])
    lines = {
        "nodes": f"{found['nodes']:,}, ids are {found['ids']}",
        "edges": f"{found['edges']:,}; {found['isolated']:,} isolated nodes",
        "features": features,
        "classes": f"{len(names)}: {listed}",
        "probabilities": "rows sum to {:.4g} ... {:.4g}".format(*found["sums"] or (0, 0)),
        "labels": f"{sum(counts):,} of {found['nodes']:,} nodes",
    }
    if counts:
        lines["labels"] += f"; {len(counts)} classes, {min(counts):,} to {max(counts):,} per class"
    print(f"Found in {result['folder']}")
    for name, text in lines.items():
        print(f"  {name:<14} {text}")
    rows = [[name, *(f"{count:,}" for count in pair)] for name, pair in found["roles"].items()]
    print_table(["role", "nodes", "with label"], rows)
    if "predicted" in plan:
        print("\n".join(_steps(plan)))
    for text in result["notes"]:  # the error message says what is missing
        print(f"Note: {text}")


def _steps(plan: dict[str, Any]) -> list[str]:
    """What 'snaps predict' would do, a line each."""
    lines = [f"'snaps predict' with {plan['method']} at alpha {plan['alpha']:g} will"]
    calibration = f"calibrate on {plan['calibration_nodes']:,} nodes"
    if plan.get("new_calibration_nodes"):
        calibration += f", of which {plan['new_calibration_nodes']:,} are new"
    lines.append(calibration)
    if plan["tuning_nodes"]:
        lines.append(f"tune on {plan['tuning_nodes']:,} nodes")
    if plan["known_nodes"]:
        lines.append(f"take {plan['known_nodes']:,} known labels as evidence")
    lines.append(f"predict {plan['predicted']:,} nodes")
    if plan.get("reachable") and "coverage_interval" in plan:
        low, high = plan["coverage_interval"]
        lines.append(f"cover {low:.1%} to {high:.1%} of them, in 99% of draws")
    return [lines[0], *(f"  {line}" for line in lines[1:])]
