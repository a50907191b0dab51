"""`snaps predict`: prediction sets for the nodes of a graph folder."""

from __future__ import annotations

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from snaps.cli._options import (
    AsJson,
    FolderOptions,
    MethodOptions,
    SavedOptions,
    given_options,
    with_options,
)
from snaps.errors import SnapsError


class Engine(StrEnum):
    LOCAL = "local"
    SPARK = "spark"


class Empty(StrEnum):
    KEEP = "keep"
    TOP = "top"


@with_options
def predict(
    out: Annotated[
        str,
        typer.Option(help="File for id, labels and size: .parquet, .csv or .jsonl; - is CSV."),
    ],
    source: FolderOptions,
    how: MethodOptions,
    saved: SavedOptions,
    empty: Annotated[
        Empty,
        typer.Option(help="'top' adds the most probable label to sets that would be empty."),
    ] = Empty.KEEP,
    save: Annotated[Path | None, typer.Option(help="Also save the calibrated estimator.")] = None,
    decide: Annotated[
        str | None,
        typer.Option(
            help="Actions for sets of one label, such as 'fraud=block,honest=pass': adds a column "
            "decision.",
        ),
    ] = None,
    otherwise: Annotated[
        str | None, typer.Option(help="With --decide: the action for all other sets.  [review]")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Memory to stay within, such as 8GB. Large tables are stored in temporary files "
            "next to --out if need be."
        ),
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="Where to work: in this process, or on a Spark cluster.")
    ] = Engine.LOCAL,
    master: Annotated[
        str | None,
        typer.Option(help="With --engine spark: the cluster, such as spark://host:7077 or yarn."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write prediction sets for the nodes of a graph folder.

    Nodes with role calib are the calibration set. The weights are tuned on role tune, else on
    valid, else on a part of the calibration nodes. Sets are written for role test, else for every
    node that is neither calib nor tune. Method pooled takes the labels of roles train and valid as
    evidence, writes no sets for them, and without a role tune tunes on a part of the calibration
    nodes.

    With --with, the calibration and tuning nodes of the file are matched by id, parameters are
    fitted again on this folder's graph, and new nodes with role calib join the calibration set.
    """
    if engine is Engine.SPARK:
        from snaps.cli._spark import predict_on_spark

        given = given_options(source) | given_options(how) | given_options(saved)
        given |= {"--empty": empty} if empty is not Empty.KEEP else {}
        given |= {"--save": save, "--memory": memory, "--decide": decide, "--otherwise": otherwise}
        predict_on_spark(source, how, out, master, as_json, given)
        return
    if master is not None:
        raise typer.BadParameter("it goes with --engine spark", param_hint="--master")
    from snaps._runtime.memory import is_placed, placed
    from snaps._runtime.progress import recorded, stage
    from snaps.cli._calibration import asked_nodes, calibrated, class_of
    from snaps.cli._resources import peak_memory, read_size, shown_size
    from snaps.cli._show import describe, print_prediction, summarise
    from snaps.errors import warn
    from snaps.io.files import check_apart, check_writable
    from snaps.io.folders import folder_files
    from snaps.sets import check_output

    # Before the work is done, not after.
    check_output(out, "--out")
    actions = _read_actions(decide, otherwise)
    if save is not None:
        check_writable(save)
    written: dict[str, Any] = {"--out": None if out == "-" else out, "--save": save}
    check_apart(
        {name: path for name, path in written.items() if path is not None},
        [*folder_files(source.folder), *filter(None, [saved.using])],
    )
    limit = None if memory is None else read_size(memory, "--memory")
    began = time.perf_counter()
    with recorded() as seconds, placed():
        with stage("reading"):  # what is more than reading and checking has stages of its own
            named = {"--decide": list(actions)}
            estimator, data, inputs = calibrated(source, how, saved, limit, out, named=named)
        with stage("sets"):
            sets = estimator.predict_set(asked_nodes(data, estimator), empty=empty.value)
            decisions = None
            if actions:
                by_class = {class_of(name, sets.classes): text for name, text in actions.items()}
                decisions = sets.decide(by_class, otherwise or "review")
        with stage("writing"):
            (decisions or sets).write(out, metadata={"snaps.inputs": json.dumps(inputs)})
            if save is not None:
                _save(estimator, save, out)
        with stage("summary"):
            summary = describe(estimator, inputs)
            summary |= summarise(estimator, data, sets, empty.value)
            if decisions is not None:
                summary["decisions"] = decisions.counts
                summary["promises"] = decisions.promises
        mapped, peak = is_placed(), peak_memory()
    if limit is not None and peak is not None and peak > limit and not mapped:
        warn(f"--memory {memory} was exceeded: the command took {shown_size(peak)}")
    summary = {"out": out} | ({} if save is None else {"saved": str(save)}) | summary
    summary["seconds"] = {**seconds, "total": time.perf_counter() - began}
    print_prediction({**summary, "peak_memory": peak}, as_json)


def _read_actions(decide: str | None, otherwise: str | None) -> dict[str, str]:
    """Actions by the text of their class."""
    from snaps._checks import shown

    if decide is None:
        if otherwise is not None:
            raise SnapsError(f"'--otherwise' must go with --decide, got {shown(otherwise)} alone")
        return {}
    pairs = [pair.partition("=") for pair in decide.split(",")]
    actions = {name.strip(): action.strip() for name, _, action in pairs}
    if len(actions) < len(pairs) or not all(name and text for name, text in actions.items()):
        raise SnapsError(
            "'--decide' must be class=action, separated by commas, each class once, got "
            f"{shown(decide)}"
        )
    return actions


def _save(estimator: Any, path: Path, out: str) -> None:
    """Save the estimator; if that fails, say that the sets are there already."""
    try:
        estimator.save(path)
    except SnapsError as error:
        where = "on standard output" if out == "-" else f"in '{out}'"
        raise SnapsError(f"{error}; the sets are {where}") from error
