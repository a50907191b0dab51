"""`snaps check`: a first look at a graph folder, before anything is calibrated."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

from snaps.cli._help import in_options, name_classes
from snaps.cli._options import AS_JSON, FolderOptions, MethodOptions, SavedOptions
from snaps.errors import SnapsError, SnapsWarning


def check(
    *, source: FolderOptions, how: MethodOptions, saved: SavedOptions, as_json: bool = AS_JSON
) -> None:
    """Look at a graph folder: what it has, what will happen.

    Reads and checks everything that 'snaps predict' reads, with the same options, and prints what
    was found, which nodes would be calibrated on, tuned on and predicted, whether there are enough
    of them for alpha, and what is missing. Nothing is written and nothing calibrated. Exit code 2
    if 'snaps predict' would stop.
    """
    from snaps.cli._calibration import (
        asked_estimator,
        class_names,
        contents,
        plan_calibration,
        plan_continuation,
        read,
    )
    from snaps.cli._show import provenance
    from snaps.drawing import check_drawn
    from snaps.predictor.estimator import method_of

    estimator = asked_estimator(how, saved)
    method = method_of(estimator)
    data, inputs = read(source, how.group_by, chances=how.chances)
    names, missing = class_names(data, source.classes), list[str]()
    classes = range(data.probs.shape[1]) if names is None else names
    name_classes(classes)
    result: dict[str, Any] = {"folder": str(source.folder), "found": contents(data, classes)}
    plan: dict[str, Any] = {"method": method.name, "alpha": float(method.alpha)}
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", SnapsWarning)
        try:
            groups = None if how.group_by is None else data.columns[how.group_by]
            method = method.with_group_floor(how.group_floor, groups)
            if saved.using is None:
                check_drawn(source.folder, how.chances)
                plan |= plan_calibration(data, source, method, names, groups, how.chances is None)
            else:
                plan |= plan_continuation(data, source.folder, estimator, saved)
        except SnapsError as error:
            missing.append(in_options(str(error)))
    texts = [in_options(str(note.message)) for note in notes if note.category is SnapsWarning]
    result |= {"plan": plan, "missing": missing, "notes": [*texts, *_remarks(result, plan)]}
    if as_json:
        print(json.dumps({**result, "ready": not missing, **provenance(inputs)}))
    else:
        _print(result)
    if missing:
        raise SnapsError(f"'{source.folder}' is not ready: {missing[0]}")


def _remarks(result: dict[str, Any], plan: dict[str, Any]) -> Iterator[str]:
    """What is no error, and worth knowing."""
    if result["found"]["edges"] == 0:
        yield "there are no edges: linked nodes cannot correct each other's scores"
    if plan.get("predicted") == 0:
        yield "no node is left to predict: give nodes the role test, or no role"
    elif plan.get("predicted_with_label") == 0:
        yield "no node to predict has a label: coverage is promised, and cannot be seen"


def _print(result: dict[str, Any]) -> None:
    """The result as lines."""
    from snaps._tables import print_table

    held, plan = result["found"], result["plan"]
    names = [str(name) for name in held["classes"]]
    listed = ", ".join(names[:8]) + ", ..." * (len(names) > 8)
    counts = list(held["labels"].values())
    features = "none" if held["features"] is None else "{:,} x {:,}".format(*held["features"])
    lines = {
        "nodes": f"{held['nodes']:,}, ids are {held['ids']}",
        "edges": f"{held['edges']:,}; {held['isolated']:,} isolated nodes",
        "features": features,
        "classes": f"{len(names)}: {listed}",
        "probabilities": "rows sum to {:.4g} ... {:.4g}".format(*held["sums"] or (0, 0)),
        "labels": f"{sum(counts):,} of {held['nodes']:,} nodes",
    }
    if counts:
        lines["labels"] += f"; {len(counts)} classes, {min(counts):,} to {max(counts):,} per class"
    print(f"Found in {result['folder']}")
    for name, text in lines.items():
        print(f"  {name:<14} {text}")
    rows = [[name, *(f"{count:,}" for count in pair)] for name, pair in held["roles"].items()]
    print_table(["role", "nodes", "with label"], rows)
    if "predicted" in plan:
        print("\n".join(_steps(plan)))
    for text in result["notes"]:  # the error message says what is missing
        print(f"Note: {text}")


def _steps(plan: dict[str, Any]) -> Iterator[str]:
    """What 'snaps predict' would do, a line each."""
    yield f"'snaps predict' with {plan['method']} at alpha {plan['alpha']:g} will"
    new = plan.get("new_calibration_nodes")
    of_which = f", of which {new:,} are new" if new else ""
    yield f"  calibrate on {plan['calibration_nodes']:,} nodes{of_which}"
    if plan["tuning_nodes"]:
        yield f"  tune on {plan['tuning_nodes']:,} nodes"
    if plan["known_nodes"]:
        yield f"  take {plan['known_nodes']:,} known labels as evidence"
    yield f"  predict {plan['predicted']:,} nodes"
    if plan.get("reachable") and "coverage_interval" in plan:
        low, high = plan["coverage_interval"]
        yield f"  cover {low:.1%} to {high:.1%} of them, in 99% of draws"
