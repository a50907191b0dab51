"""`snaps predict`: prediction sets for the nodes of a graph folder."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from snaps.cli._options import (
    AskedAlpha,
    AskedK,
    AskedMethod,
    AskedSeed,
    ByClassOption,
    CandidatesOption,
    ClassesOption,
    Engine,
    EngineOption,
    FolderArgument,
    GroupOption,
    JsonOption,
    LogitsOption,
    MasterOption,
    MemoryOption,
    Method,
    MissingOption,
    NeighboursOption,
    RecallOption,
    ScoreOption,
    ThresholdOption,
    UsingOption,
    WeightedOption,
    WeightsOption,
)


def predict(
    folder: FolderArgument,
    out: Annotated[
        str,
        typer.Option(help="File for id, labels and size: .parquet, .csv or .jsonl; - is CSV."),
    ],
    alpha: AskedAlpha = None,
    using: UsingOption = None,
    method: AskedMethod = None,
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
    missing: MissingOption = None,
    threshold: ThresholdOption = None,
    save: Annotated[Path | None, typer.Option(help="Also save the calibrated estimator.")] = None,
    memory: MemoryOption = None,
    logits: LogitsOption = False,
    seed: AskedSeed = None,
    engine: EngineOption = Engine.LOCAL,
    master: MasterOption = None,
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
    from snaps.cli._options import asked_nodes, asked_search, calibrated, make_estimator

    search = asked_search(neighbours, recall, candidates)
    if engine is Engine.SPARK:
        from snaps.cli._spark import predict_on_spark, refuse_local

        refuse_local({
            "--with": using, "--group-by": group_by, "--weighted": weighted or None,
            "--missing": missing, "--threshold": threshold, "--save": save, "--memory": memory,
            "--neighbours": search.get("neighbours"), "--recall": recall,
        })  # fmt: skip
        estimator = make_estimator(
            method or Method.SNAPS, score, 0.05 if alpha is None else alpha, k, weights,
            class_conditional, 0 if seed is None else seed, search,
        )  # fmt: skip
        predict_on_spark(folder, out, estimator, master, classes, logits, as_json)
        return
    if master is not None:
        raise typer.BadParameter("it goes with --engine spark", param_hint="--master")
    from snaps._files import check_apart, check_writable
    from snaps._folder_files import folder_files
    from snaps._progress import recorded, stage
    from snaps.cli._resources import read_size, told
    from snaps.cli._show import print_prediction, provenance, summarise
    from snaps.kernels.memory import placed
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
    limit, began = read_size(memory, "--memory"), time.perf_counter()
    with recorded() as seconds, placed():
        with stage("reading"):  # what is more than reading and checking has stages of its own
            estimator, data, inputs = calibrated(
                folder, using, alpha=alpha, method=method, score=score, k=k, weights=weights,
                class_conditional=class_conditional, group_by=group_by, classes=classes,
                weighted=weighted, missing=missing, threshold=threshold, logits=logits, seed=seed,
                search=search, memory=limit, out=out,
            )  # fmt: skip
        with stage("sets"):
            sets = estimator.predict_set(asked_nodes(data, estimator))
        with stage("writing"):
            sets.write(out, metadata={"snaps.inputs": json.dumps(inputs)})
            if save is not None:
                _save(estimator, save, out)
        with stage("summary"):
            summary = {**summarise(estimator, data, sets, out), **provenance(inputs)}
    if save is not None:
        summary["saved"] = str(save)
    print_prediction({**summary, **told(seconds, time.perf_counter() - began)}, as_json)


def _save(estimator: Any, path: Path, out: str) -> None:
    """Save the estimator; if that fails, say that the sets are there already."""
    from snaps._errors import SnapsError

    try:
        estimator.save(path)
    except SnapsError as error:
        where = "on standard output" if out == "-" else f"in '{out}'"
        raise SnapsError(f"{error}; the sets are {where}") from error
