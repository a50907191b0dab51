"""`recalibrate`: from one predictor to the next, on a graph that has grown or on another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from snaps._checks import check_flag, shown
from snaps._checks.named import column_names, named_columns
from snaps._runtime.progress import stage
from snaps.errors import SnapsError, warn
from snaps.predictor.chances import check_promise
from snaps.predictor.predictor import Method, Predictor, level_for
from snaps.predictor.roles import Roles
from snaps.scoring.evidence import Evidence
from snaps.scoring.local import Inputs
from snaps.scoring.parts import FittedScorer


def recalibrate(
    old: Predictor,
    method: Method,
    graph: Any,
    probs: Any,
    labels: Any = None,
    nodes: Any = None,
    similarity: Any = None,
    logits: bool = False,
    *,
    groups: Any = None,
    classes: Any = None,
    refit: bool = True,
    missing: Literal["error", "drop"] = "error",
    threshold: Literal["set", "keep"] = "set",
    chances: Any = None,
) -> Predictor:
    """A predictor for another graph; see `SNAPS.recalibrate`."""
    check_flag(refit, "refit")
    _check_choice(missing, "missing", "error", "drop")
    _check_choice(threshold, "threshold", "set", "keep")
    keep = threshold == "keep"
    method = method.with_group_floor(old.method.promise.group_floor, old.roles.groups.names)
    if keep and nodes is not None:
        raise SnapsError("'nodes' must be left out with threshold='keep', got both")
    if keep and groups is not None and not old.roles.groups.given:
        raise SnapsError(
            "'groups' must be left out with threshold='keep': there is one threshold for all"
        )
    if chances is not None:
        check_promise(method.promise, old.roles.missing)
    if keep and (chances is not None or old.roles.odds is not None):
        raise SnapsError(
            "'threshold' must be 'set' with chances, got 'keep': nodes of another graph had no "
            "chance to be drawn"
        )
    if similarity is None and old.given_similarity:
        raise SnapsError("'similarity' must be given for the new graph, as it was to calibrate")
    with stage("reading"):
        inputs = _read(old, method, graph, probs, similarity, logits, classes)
    if keep or not refit:
        _check_features(old.scorer, inputs, "threshold='keep'" if keep else "refit=False")
    same = {name: each.same_nodes(inputs) for name, each in old.fingerprints.items()}
    _check_same_nodes(same, old.roles, keep)
    # Nodes that are only numbered are not those of before, nor are nodes that look otherwise.
    apart = keep and not (inputs.graph.named and same.get("used", True))
    if old.data is not None:
        inputs = inputs.following(old.data)
    if not (keep or nodes is not None or len(inputs.positions(old.roles.calib.keys))):
        raise SnapsError(
            f"'graph' must have calibration nodes, got none of {len(old.roles.calib)}: for "
            "another graph call calibrate(), or threshold='keep' if the graphs are alike"
        )
    roles = old.roles.again(
        inputs.graph, None if apart else labels, nodes, groups=groups,
        chances=chances, drop=keep or missing == "drop", keep=keep,
    )  # fmt: skip
    if keep:
        warn(
            "threshold and parameters are those of another graph: the promise rests on the "
            "two graphs being alike"
        )
        return _kept(old, method, inputs, roles, apart)
    fitted = None
    if not refit:
        warn(
            "parameters were fitted on a graph without the new nodes: coverage may leave its "
            "exact law (refit=True fits them again)"
        )
        fitted = old.scorer.with_evidence(method.scorer.evidence(roles.tuning, roles.known))
    return method.fit(inputs, roles, fitted)


def _check_choice(value: Any, name: str, one: str, other: str) -> None:
    if not isinstance(value, str) or value not in (one, other):
        raise SnapsError(f"'{name}' must be '{one}' or '{other}', got {shown(value)}")


def _read(
    old: Predictor, method: Method, graph: Any, probs: Any, similarity: Any, logits: bool,
    classes: Any,
) -> Inputs:  # fmt: skip
    """The new inputs, if they are of the kind that was calibrated on."""
    probs, names = named_columns(probs, classes), old.roles.classes
    if old.roles.named and column_names(probs) is None:
        raise SnapsError(
            "'classes' must be given for probs whose columns have no names, as they had "
            "to calibrate, got None: pass classes=[...] (--classes) in their order"
        )
    inputs = method.read(graph, probs, similarity, logits, names)
    if inputs.num_classes != len(names):
        raise SnapsError(
            f"'probs' must have {len(names)} columns as calibrated with, got {inputs.num_classes}"
        )
    if inputs.graph.weighted != old.weighted:
        rule = "weighted" if old.weighted else "without weights"
        raise SnapsError(f"'graph' must be {rule}, as it was to calibrate")
    turned = old.directed is not None and inputs.graph.directed != old.directed
    if turned and inputs.graph.adjacency.nnz:
        rule = "directed" if old.directed else "undirected"
        raise SnapsError(f"'graph' must be {rule}, as it was to calibrate")
    return inputs


def _kept(old: Predictor, method: Method, inputs: Inputs, roles: Roles, apart: bool) -> Predictor:
    """The old parameters and threshold with another graph; of `roles`, the groups."""
    used = old.roles
    seen = Evidence.none() if apart else method.scorer.evidence(used.tuning, used.known)
    fitted = old.scorer.with_evidence(seen)
    calibration = replace(old.calibration, num_groups=len(roles.groups))
    calibration.warn_few(level_for(method.level, roles.classes), roles.classes, roles.groups.names)
    inputs.score(fitted, np.arange(1))  # scores that cannot be averaged are refused here
    return replace(
        old,
        method=method,
        data=inputs,
        roles=replace(used, groups=roles.groups),
        scorer=fitted,
        calibration=calibration,
        apart=apart,
        fingerprints=dict(old.fingerprints),  # which hold no table of the old graph
    )


def _check_features(fitted: FittedScorer, inputs: Inputs, option: str) -> None:
    """Parameters that are kept may weigh what only features give."""
    parts = ("context", "propagated_context", "regression")
    needed = {"similar": "similar", **dict.fromkeys(parts, "features")}
    for name, weight in fitted.weights.items():
        if weight and name in needed and needed[name] not in inputs.has:
            raise SnapsError(
                f"'graph' must have features, as it had to calibrate: {option} keeps parameters "
                "that use them"
            )


def _check_same_nodes(same: Mapping[str, bool], roles: Roles, keep: bool) -> None:
    """Nodes that are found by id must be those of before; with a kept threshold, the reference."""
    if not keep and not same.get("used", True):
        count = len(roles.calib) + len(roles.tuning) + len(roles.known)
        raise SnapsError(
            f"'graph' must have the {count} calibration, tuning and known nodes under their old "
            "ids, got other nodes there by features or probabilities (are ids shifted, or nodes "
            "in another order?): correct the ids, or call calibrate() on this graph"
        )
    if not same.get("reference", True):
        raise SnapsError(
            f"'reference' must be given again: by features or probabilities the "
            f"{len(roles.reference)} items at the old positions are others"
        )
