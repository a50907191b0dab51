"""`snaps predict`: sets of a graph folder; `snaps calibrate`: what sets need, for later."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Literal

import click

from snaps.cli._help import RESOURCES, flag, option
from snaps.cli._options import AS_JSON, FolderOptions, MethodOptions, SavedOptions, given_options
from snaps.errors import SnapsError, warn

_resource = partial(option, group=RESOURCES)


def predict(
    *,
    out: str = option(
        "File for id, labels and size: .parquet, .csv or .jsonl; - is CSV.",
        required=True,
        value="file",
    ),
    source: FolderOptions,
    how: MethodOptions,
    saved: SavedOptions,
    empty: Literal["keep", "top"] = option(
        "'top' adds the most probable label to sets that would be empty.", default="keep"
    ),
    save: Path | None = option("Also save the calibrated predictor.", value="file"),
    decide: str | None = option(
        "Actions for sets of one label, such as 'fraud=block,honest=pass': adds a column decision.",
        value="actions",
    ),
    otherwise: str | None = option(
        "With --decide: the action for all other sets.", value="action", shown="review"
    ),
    memory: str | None = _resource(
        "Memory to stay within, such as 8GB. Large tables are stored in temporary files next to "
        "--out if need be.",
        value="size",
    ),
    engine: Literal["local", "spark"] = _resource(
        "Where to work: in this process, or on a Spark cluster.", default="local"
    ),
    master: str | None = _resource(
        "With --engine spark: the cluster, such as spark://host:7077 or yarn.", value="address"
    ),
    as_json: bool = AS_JSON,
) -> None:
    """Write prediction sets for the nodes of a graph folder.

    The column role decides what a node is used for:

    \b
    calib  sets the threshold; the labels are needed
    tune   chooses parameters; else valid, else a part of calib
    train  with pooled: known label, evidence for others, no set
    valid  with pooled the same; else chooses parameters where none has role tune
    test   gets a set; if none has it, every node that is neither calib nor tune

    With --with, the calibration and tuning nodes of the file are matched by id, parameters are
    fitted again on this folder's graph, and new nodes with role calib join the calibration set.
    """
    if engine == "spark":
        from snaps.cli._spark import predict_on_spark

        given = given_options(source) | given_options(how) | given_options(saved)
        given |= {
            "--empty": empty if empty != "keep" else None,
            "--save": save,
            "--memory": memory,
            "--decide": decide,
            "--otherwise": otherwise,
        }
        predict_on_spark(source, how, out, master, as_json, given)
        return
    if master is not None:
        raise click.BadParameter("it goes with --engine spark", param_hint="--master")
    from snaps._runtime.memory import is_placed, placed
    from snaps._runtime.progress import recorded, stage
    from snaps.cli._calibration import asked_nodes, calibrated, check_outputs, class_of
    from snaps.cli._resources import peak_memory, read_size, shown_size
    from snaps.cli._show import describe, prediction, print_summary, summarise
    from snaps.io.files import check_output

    check_output(out, "--out")
    actions = _read_actions(decide, otherwise)
    check_outputs({"--out": out, "--save": save}, source, saved.using)
    limit = None if memory is None else read_size(memory, "--memory")
    began = time.perf_counter()
    with recorded() as seconds, placed():
        with stage("reading"):  # what is more than reading and checking has stages of its own
            named = {"--decide": list(actions)}
            estimator, data, inputs = calibrated(source, how, saved, limit, out, named=named)
        with stage("sets"):
            sets = estimator.predict_set(asked_nodes(data, estimator), empty=empty)
            decisions = None
            if actions:
                by_class = {class_of(name, sets.classes): text for name, text in actions.items()}
                decisions = sets.decide(by_class, otherwise or "review")
        with stage("writing"):
            (decisions or sets).write(out, metadata={"snaps.inputs": json.dumps(inputs)})
            if save is not None:
                try:
                    estimator.save(save)
                except SnapsError as error:
                    where = "on standard output" if out == "-" else f"in '{out}'"
                    raise SnapsError(f"{error}; the sets are {where}") from error
        with stage("summary"):
            summary = describe(estimator, inputs)
            summary |= summarise(estimator, data, sets, empty)
            if decisions is not None:
                summary["decisions"] = decisions.counts
                summary["promises"] = decisions.promises
        mapped, peak = is_placed(), peak_memory()
    if limit is not None and peak is not None and peak > limit and not mapped:
        warn(f"--memory {memory} was exceeded: the command took {shown_size(peak)}")
    summary = {"out": out} | ({} if save is None else {"saved": str(save)}) | summary
    summary["seconds"] = {**seconds, "total": time.perf_counter() - began}
    summary["peak_memory"] = peak
    print_summary(summary, as_json, prediction(summary))


def calibrate(
    *,
    out: Path = option("File for the calibrated predictor.", required=True, value="file"),
    source: FolderOptions,
    how: MethodOptions,
    data: bool = flag("Keep graph and probabilities in the file, too.", "--data"),
    as_json: bool = AS_JSON,
) -> None:
    """Calibrate on a graph folder, and save the result for later.

    Roles and methods are as for 'snaps predict', which goes on with the file by --with. The file
    holds parameters, and the ids and labels of the calibration, tuning and known nodes. Later they
    are matched by id in a folder that may have grown, and the threshold is set again there.
    """
    from snaps.cli._calibration import calibrated, check_outputs
    from snaps.cli._show import describe, print_summary
    from snaps.io.files import check_named

    check_named(out)
    check_outputs({"--out": out}, source)
    estimator, _, inputs = calibrated(source, how, SavedOptions())
    estimator.save(out, data=data)
    print_summary({"out": str(out), **describe(estimator, inputs)}, as_json)


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
