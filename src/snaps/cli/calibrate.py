"""`snaps calibrate`: what predict does before it predicts, kept for later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from snaps.cli._options import (
    AlphaOption,
    AskedK,
    ByClassOption,
    CandidatesOption,
    ClassesOption,
    FolderArgument,
    GroupOption,
    JsonOption,
    LogitsOption,
    Method,
    MethodOption,
    NeighboursOption,
    RecallOption,
    ScoreOption,
    SeedOption,
    WeightedOption,
    WeightsOption,
)


def calibrate(
    folder: FolderArgument,
    out: Annotated[Path, typer.Option(help="File for the calibrated predictor.")],
    alpha: AlphaOption = 0.05,
    method: MethodOption = Method.SNAPS,
    score: ScoreOption = None,
    k: AskedK = None,
    neighbours: NeighboursOption = None,
    recall: RecallOption = None,
    candidates: CandidatesOption = None,
    weights: WeightsOption = None,
    class_conditional: ByClassOption = False,
    group_by: GroupOption = None,
    classes: ClassesOption = None,
    weighted: WeightedOption = False,
    data: Annotated[
        bool, typer.Option("--data", help="Keep graph and probabilities in the file, too.")
    ] = False,
    logits: LogitsOption = False,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Calibrate on the nodes of a graph folder and keep the result for 'snaps predict --with'.

    Nodes with role calib calibrate; role tune (else valid, but for method pooled, to which valid is
    evidence) chooses the weights, or a part of the calibration nodes does. The file holds
    parameters, and the ids and labels of these nodes: later they are found by id in a folder that
    may have grown, and the threshold is set anew there.
    """
    from snaps._files import check_apart, check_named, check_writable
    from snaps._folder_files import folder_files
    from snaps.cli._options import asked_search, calibrate_folder, make_estimator, read
    from snaps.cli._show import describe, finite, print_estimator, provenance

    check_named(out)
    check_writable(out)  # before the work is done, not after
    check_apart({"--out": out}, folder_files(folder))
    search = asked_search(neighbours, recall, candidates)
    estimator = make_estimator(method, score, alpha, k, weights, class_conditional, seed, search)
    found, inputs = read(folder, group_by=group_by, weighted=weighted)
    calibrate_folder(estimator, found, group_by=group_by, classes=classes, logits=logits)
    estimator.save(out, data=data)
    summary = {"out": str(out), **describe(estimator), **provenance(inputs)}
    if as_json:
        print(json.dumps(finite(summary)))
        return
    print_estimator(summary)
    print(f"wrote {out}")
