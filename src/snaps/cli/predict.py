"""`snaps predict`: prediction sets for the nodes of a graph folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from snaps.cli._options import (
    ByClassOption,
    ClassesOption,
    FolderArgument,
    GroupOption,
    JsonOption,
    LogitsOption,
    Method,
    ScoreOption,
    WeightedOption,
    WeightsOption,
)


def predict(
    folder: FolderArgument,
    out: Annotated[
        str,
        typer.Option(help="File for id, labels and size: .parquet, .csv or .jsonl; - is CSV."),
    ],
    alpha: Annotated[
        float | None,
        typer.Option(help="Miscoverage: sets hold the truth 1 - alpha often. Default: 0.05."),
    ] = None,
    using: Annotated[
        Path | None, typer.Option("--with", help="A predictor that 'snaps calibrate' wrote.")
    ] = None,
    method: Annotated[
        Method | None, typer.Option(help="How scores are corrected. Default: snaps.")
    ] = None,
    score: ScoreOption = None,
    k: Annotated[
        int | None, typer.Option("--k", help="Number of similar nodes. Default: 20.")
    ] = None,
    weights: WeightsOption = None,
    class_conditional: ByClassOption = False,
    group_by: GroupOption = None,
    classes: ClassesOption = None,
    weighted: WeightedOption = False,
    missing: Annotated[
        str | None,
        typer.Option(help="With --with: 'drop' goes on without calibration nodes that are gone."),
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(help="With --with: 'keep' applies the threshold as it is to another graph."),
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Also save the calibrated estimator.")] = None,
    logits: LogitsOption = False,
    seed: Annotated[int | None, typer.Option(help="Fixes every random draw. Default: 0.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write prediction sets for the nodes of a graph folder.

    Nodes with role calib calibrate; role tune (else valid) chooses the weights, or a part of the
    calibration nodes does. Sets are written for role test, else for every node that is neither
    calib nor tune. Method pooled takes the labels of roles train and valid as evidence, writes no
    sets for them, and without a role tune tunes on a part of the calibration nodes.

    With --with, the calibration and tuning nodes of the file are found by id, parameters are
    fitted again on this folder's graph, and nodes with role calib that are new calibrate too.
    """
    from snaps._errors import SnapsError
    from snaps._files import check_apart, check_writable
    from snaps._manifest import folder_files
    from snaps._progress import shown
    from snaps.cli._options import asked_nodes, calibrate_folder, make_estimator, read
    from snaps.cli._provenance import Digests, provenance
    from snaps.cli._show import print_prediction, summarise
    from snaps.sets import check_output

    # Before the work is done, not after.
    check_output(out, "--out")
    if save is not None:
        check_writable(save)
    written = {"--out": out, "--save": save}
    check_apart(
        {name: path for name, path in written.items() if path is not None and path != "-"},
        [*folder_files(folder), *filter(None, [using])],
    )
    fixed: dict[str, Any] = {
        "--method": method, "--score": score, "--k": k, "--weights": weights, "--seed": seed,
        "--class-conditional": class_conditional or None, "--classes": classes,
    }  # fmt: skip
    if using is not None:
        given = [name for name, value in fixed.items() if value is not None]
        if given:
            raise SnapsError(f"'{given[0]}' must be left out with --with: the file has it")
    for name, value in (("--missing", missing), ("--threshold", threshold)):
        if using is None and value is not None:
            raise SnapsError(f"'{name}' must go with --with, got it alone")
    if using is None:
        estimator = make_estimator(
            method or Method.SNAPS, score, 0.05 if alpha is None else alpha, 20 if k is None else k,
            weights, class_conditional, 0 if seed is None else seed,
        )  # fmt: skip
    else:
        from snaps._loading import load

        estimator = load(using)
        if alpha is not None:
            estimator.set_params(alpha=alpha)
            estimator.scorer()
    data, inputs = read(folder, group_by=group_by, weighted=weighted)
    if using is None:
        calibrate_folder(estimator, data, group_by=group_by, classes=classes, logits=logits)
    else:
        inputs |= Digests([using]).get()
        with shown():
            _recalibrate(estimator, data, group_by, missing, threshold, logits)
    sets = estimator.predict_set(asked_nodes(data, estimator))
    sets.write(out, metadata=_metadata(estimator, inputs))
    if save is not None:
        estimator.save(save)
    summary = {**summarise(estimator, data, sets, out), **provenance(inputs)}
    if save is not None:
        summary["saved"] = str(save)
    print_prediction(summary, as_json)


def _recalibrate(
    estimator: Any,
    data: Any,
    group_by: str | None,
    missing: str | None,
    threshold: str | None,
    logits: bool,
) -> None:
    """Go on with a saved estimator; nodes with role calib that it does not know calibrate too."""
    import numpy as np

    from snaps._checks import shown
    from snaps._errors import SnapsError
    from snaps.cli._options import labelled_nodes

    known = estimator.calib_ids_, estimator.tune_ids_, estimator.known_ids_
    nodes = labelled_nodes(data, "calib", but=known)
    trained = data.nodes("train")
    trained = trained[np.isin(data.graph.ids[trained], estimator.calib_ids_)]
    if trained.size:
        raise SnapsError(
            "nodes.parquet column 'role' must not be train for nodes that calibrate, got "
            f"{trained.size} such (first: {shown(data.graph.ids[trained[0]].item())})"
        )
    if threshold == "keep":
        nodes = nodes[:0]
    estimator.recalibrate(
        data.graph, data.probs, data.labels, nodes if nodes.size else None, logits=logits,
        groups=data.columns[group_by] if group_by else None,
        missing="error" if missing is None else missing,
        threshold="set" if threshold is None else threshold,
    )  # fmt: skip


def _metadata(estimator: Any, inputs: Mapping[str, str]) -> dict[str, str]:
    """Where the sets come from, for the metadata of a Parquet file."""
    import json

    from snaps.cli._provenance import provenance
    from snaps.cli._show import describe

    told = {**describe(estimator), **provenance(inputs), "inputs": json.dumps(inputs)}
    kept = (
        "version", "method", "score", "alpha", "seed", "calibration_nodes", "tuning_nodes",
        "inputs",
    )  # fmt: skip
    return {f"snaps.{name}": str(told[name]) for name in kept}
