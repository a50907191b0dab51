"""What several commands share: options, and how a folder becomes an estimator."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np

    from snaps._base import Estimator
    from snaps.folder import Folder


class Method(StrEnum):
    SNAPS = "snaps"
    POOLED = "pooled"
    DAPS = "daps"
    SPLIT = "split"


class Neighbours(StrEnum):
    AUTO = "auto"
    EXACT = "exact"
    APPROXIMATE = "approximate"


class Engine(StrEnum):
    LOCAL = "local"
    SPARK = "spark"


class ScoreName(StrEnum):
    aps = "aps"
    raps = "raps"
    saps = "saps"
    thr = "thr"


FolderArgument = Annotated[
    Path,
    typer.Argument(help="Graph folder: nodes and edges in Parquet or CSV.", metavar="FOLDER"),
]
AlphaOption = Annotated[
    float, typer.Option(help="Miscoverage: sets hold the truth 1 - alpha often.")
]
SeedOption = Annotated[int, typer.Option(help="Fixes every random draw.")]
KOption = Annotated[int, typer.Option("--k", help="Number of similar nodes.")]
NeighboursOption = Annotated[
    Neighbours | None,
    typer.Option(help="How similar nodes are found. Default: exactly where that takes seconds."),
]
RecallOption = Annotated[
    float | None,
    typer.Option(help="Share of similar nodes that an approximate search is to find: 0.95."),
]
CandidatesOption = Annotated[
    int | None, typer.Option(help="Find similar nodes among so many random ones, exactly.")
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        help="Memory to stay within, such as 8GB: large tables then lie beside --out while it runs."
    ),
]
LogitsOption = Annotated[bool, typer.Option("--logits", help="The column probs holds logits.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
MethodOption = Annotated[Method, typer.Option(help="How scores are corrected.")]
ScoreOption = Annotated[
    ScoreName | None, typer.Option(help="The basic score; default: aps, thr for pooled.")
]
WeightsOption = Annotated[
    str | None, typer.Option(help="Fixed: 'lam,mu' for snaps, 'mu' for daps; or tune, minimum.")
]
ByClassOption = Annotated[
    bool, typer.Option("--class-conditional", help="A threshold for each class.")
]
GroupOption = Annotated[
    str | None,
    typer.Option("--group-by", help="A threshold for each value of this column of the nodes."),
]
UsingOption = Annotated[
    Path | None, typer.Option("--with", help="A predictor that 'snaps calibrate' wrote.")
]
MissingOption = Annotated[
    str | None,
    typer.Option(help="With --with: 'drop' goes on without calibration nodes that are gone."),
]
ThresholdOption = Annotated[
    str | None,
    typer.Option(help="With --with: 'keep' applies the threshold as it is to another graph."),
]
# Without a default of their own, so that what goes with --with can be told from what was given.
AskedAlpha = Annotated[
    float | None,
    typer.Option(help="Miscoverage: sets hold the truth 1 - alpha often. Default: 0.05."),
]
AskedMethod = Annotated[
    Method | None, typer.Option(help="How scores are corrected. Default: snaps.")
]
AskedK = Annotated[int | None, typer.Option("--k", help="Number of similar nodes. Default: 20.")]
AskedSeed = Annotated[int | None, typer.Option(help="Fixes every random draw. Default: 0.")]
WeightedOption = Annotated[
    bool, typer.Option("--weighted", help="Use the column weight of the edges.")
]
EngineOption = Annotated[
    Engine, typer.Option(help="Where to work: in this process, or on a Spark cluster.")
]
MasterOption = Annotated[
    str | None,
    typer.Option(help="With --engine spark: the cluster, such as spark://host:7077 or yarn."),
]
ClassesOption = Annotated[
    str | None,
    typer.Option(help="Names of the columns of probs, separated by commas, in their order."),
]


def make_estimator(
    method: Method,
    score: ScoreName | None,
    alpha: float,
    k: int | None,
    weights: str | None,
    class_conditional: bool,
    seed: int,
    search: Mapping[str, Any],
) -> Estimator:
    """The estimator that the options describe, its parameters checked."""
    import snaps
    from snaps._errors import SnapsError

    near = {**({} if k is None else {"k": k}), **search}
    if near and method in (Method.DAPS, Method.SPLIT):
        name, value = next(iter(near.items()))
        raise SnapsError(
            f"'--{name}' must be left out for method {method.value}, which looks for no similar "
            f"nodes, got {value}"
        )

    scores = {
        ScoreName.aps: snaps.APS(),
        ScoreName.raps: snaps.RAPS(),
        ScoreName.saps: snaps.SAPS(),
        ScoreName.thr: snaps.THR(),
    }
    default = ScoreName.thr if method is Method.POOLED else ScoreName.aps
    common: dict[str, Any] = {
        "score": scores[score or default],
        "seed": seed,
        "class_conditional": class_conditional,
    }
    chosen = _weights(weights, {Method.SNAPS: 2, Method.DAPS: 1}.get(method, 0), method)
    estimator: Estimator
    if method is Method.SNAPS:
        estimator = snaps.SNAPS(alpha, weights=chosen, **common, **near)
    elif method is Method.POOLED:
        estimator = snaps.Pooled(alpha, **common, **near)
    elif method is Method.DAPS:
        estimator = snaps.DAPS(alpha, weight=chosen, **common)
    else:
        estimator = snaps.SplitConformal(alpha, **common)
    estimator.scorer()
    return estimator


def asked_search(
    neighbours: Neighbours | None, recall: float | None, candidates: int | None
) -> dict[str, Any]:
    """What was asked of the search for similar nodes, as parameters of an estimator."""
    from snaps._errors import SnapsError

    how = None if neighbours is None else neighbours.value
    if recall is not None and (how == "exact" or candidates is not None):
        other = "--candidates" if candidates is not None else "--neighbours exact"
        raise SnapsError(f"'--recall' must be left out with {other}, which finds all, got {recall}")
    asked = {"neighbours": how, "recall": recall, "candidates": candidates}
    return {name: value for name, value in asked.items() if value is not None}


def _weights(text: str | None, count: int, method: Method) -> Any:
    """What an estimator takes for the option: a word, a number or a pair."""
    from snaps._errors import SnapsError

    if text is None:
        return "tune"
    if count and text in ("tune", "minimum"):
        return text
    words = ", 'tune' or 'minimum'"
    rule = {2: f"two numbers 'lam,mu'{words}", 1: f"one number 'mu'{words}", 0: "left out"}[count]
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != count or count == 0:
        raise SnapsError(f"'--weights' must be {rule} for method {method.value}, got {text!r}")
    if not all(0 <= number <= 1 for number in numbers):  # which the library says of 'lam' and 'mu'
        raise SnapsError(f"'--weights' must lie from 0 to 1, got {text!r}")
    return tuple(numbers) if count > 1 else numbers[0]


def read(
    folder: Path, *, group_by: str | None = None, weighted: bool = False
) -> tuple[Folder, dict[str, str]]:
    """A graph folder and the digests of its files, with a spinner."""
    from snaps._errors import SnapsError
    from snaps._folder_files import digests, folder_files, open_folder
    from snaps.cli._show import status
    from snaps.folder import read_files

    if group_by in ("id", "label", "role", "probs", "features"):
        raise SnapsError(
            "'--group-by' must be a column that tells nothing of labels, and is known for every "
            f"node to predict, got {group_by!r}"
        )
    columns = [group_by] if group_by else []
    with status(f"Reading {folder}"), open_folder(folder) as files:
        data = read_files(files, columns, in_order=True, weighted=weighted)
        return data, digests(folder_files(folder))


def class_names(data: Folder, classes: str | None) -> Any:
    """The names of the columns of probs: the folder's, else the option's, else None."""
    from snaps.folder import check_agreement

    if classes is None:
        return data.classes
    names = read_names(classes, integers=data.labels.dtype.kind in "iu")
    if data.classes is not None:
        check_agreement(names, data.class_columns)
        return data.classes
    return names


def read_names(classes: str, *, integers: bool) -> list[Any]:
    """The names of --classes, as integers if they look like it and may be."""
    names = [name.strip() for name in classes.split(",")]
    if integers and all(re.fullmatch("-?[0-9]{1,19}", name) for name in names):
        return [int(name) for name in names]
    return names


def labelled_nodes(data: Folder, role: str, but: Sequence[np.ndarray] = ()) -> np.ndarray:
    """Nodes with a role, but those with these ids; all of them must have a label."""
    import numpy as np

    from snaps._checks import shown
    from snaps._errors import SnapsError

    nodes = data.nodes(role)
    for ids in but:
        nodes = nodes[~np.isin(data.graph.ids[nodes], ids)]
    bare = nodes[~data.labelled[nodes]]
    if bare.size:
        raise SnapsError(
            f"{data.file} column 'label' must be given where the role is {role}, "
            f"got null for id {shown(data.graph.ids[bare[0]].item())}"
        )
    return nodes


def calibrate_folder(
    estimator: Estimator,
    data: Folder,
    *,
    group_by: str | None,
    classes: str | None,
    logits: bool,
) -> Estimator:
    """Calibrate on the nodes with role calib."""
    from snaps._checks.named import named_columns
    from snaps._errors import SnapsError
    from snaps._progress import shown, stage
    from snaps.cli._words import name_classes

    calib = labelled_nodes(data, "calib")
    if calib.size == 0:
        raise SnapsError(f"{data.file} column 'role' must mark calibration nodes 'calib', got none")
    tune, known = data.tuning_and_known(estimator.uses_evidence)
    names = class_names(data, classes)
    name_classes(range(data.probs.shape[1]) if names is None else names)
    with stage("calibration"), shown():
        return estimator.calibrate(
            data.graph, named_columns(data.probs, data.classes), data.labels, calib,
            tune if estimator.scorer().needs_tuning else None,
            logits=logits, known_nodes=known if estimator.uses_evidence else None,
            groups=data.columns[group_by] if group_by else None, classes=names,
        )  # fmt: skip


def calibrated(
    folder: Path,
    using: Path | None,
    *,
    alpha: float | None,
    method: Method | None,
    score: ScoreName | None,
    k: int | None,
    weights: str | None,
    class_conditional: bool,
    group_by: str | None,
    classes: str | None,
    weighted: bool,
    missing: str | None,
    threshold: str | None,
    logits: bool,
    seed: int | None,
    search: Mapping[str, Any],
    memory: int | None = None,
    out: str = "-",
) -> tuple[Estimator, Folder, dict[str, str]]:
    """The estimator of the options, or one that was kept, calibrated on a folder.

    Also the folder, and the digests of all files that were read. Within a limit of `memory`, large
    tables may lie beside `out`.
    """
    from snaps._errors import SnapsError
    from snaps._folder_files import check_folder, digests
    from snaps._progress import shown, stage
    from snaps.cli._resources import place_for_tables
    from snaps.kernels.memory import place_tables

    fixed: dict[str, Any] = {
        "--method": method, "--score": score, "--k": k, "--weights": weights, "--seed": seed,
        "--class-conditional": class_conditional or None,
        **{f"--{name}": value for name, value in search.items()},
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
            method or Method.SNAPS, score, 0.05 if alpha is None else alpha, k, weights,
            class_conditional, 0 if seed is None else seed, search,
        )  # fmt: skip
    else:
        from snaps._loading import load

        estimator = load(using)
        if alpha is not None:
            estimator.set_params(alpha=alpha)
            estimator.scorer()
    asked: dict[str, Any] = {"weighted": weighted, "group_by": group_by}
    place_tables(place_for_tables(memory, check_folder(folder), estimator, out, **asked))
    data, inputs = read(folder, **asked)
    if using is None:
        calibrate_folder(estimator, data, group_by=group_by, classes=classes, logits=logits)
    else:
        inputs |= digests([using])
        with stage("calibration"), shown():
            _recalibrate(estimator, data, group_by, classes, missing, threshold, logits)
    return estimator, data, inputs


def _recalibrate(
    estimator: Any,
    data: Any,
    group_by: str | None,
    classes: str | None,
    missing: str | None,
    threshold: str | None,
    logits: bool,
) -> None:
    """Go on with a saved estimator; nodes with role calib that it does not know calibrate too."""
    import numpy as np

    from snaps._checks import shown
    from snaps._errors import SnapsError
    from snaps.cli._words import name_classes

    name_classes(estimator.classes_)
    known = estimator.calib_ids_, estimator.tune_ids_, estimator.known_ids_
    nodes = labelled_nodes(data, "calib", but=known)
    trained = data.nodes("train")
    trained = trained[np.isin(data.graph.ids[trained], estimator.calib_ids_)]
    if trained.size:
        raise SnapsError(
            f"{data.file} column 'role' must not be train for nodes that calibrate, got "
            f"{trained.size} such (first: {shown(data.graph.ids[trained[0]].item())})"
        )
    if threshold == "keep":
        nodes = nodes[:0]
    estimator.recalibrate(
        data.graph, data.probs, data.labels, nodes if nodes.size else None, logits=logits,
        groups=data.columns[group_by] if group_by else None, classes=class_names(data, classes),
        missing="error" if missing is None else missing,
        threshold="set" if threshold is None else threshold,
    )  # fmt: skip


def asked_nodes(data: Folder, estimator: Estimator) -> np.ndarray:
    """The nodes to predict: role test, else every node that has no other use."""
    import numpy as np

    asked = data.nodes("test")
    if asked.size:
        return asked
    used = [estimator.calib_nodes_, estimator.tune_nodes_, estimator.known_nodes_]
    used += [data.nodes("calib"), data.nodes("tune")]
    free = np.ones(data.graph.num_nodes, bool)
    free[np.concatenate(used)] = False
    return np.flatnonzero(free)


def named_nodes(data: Folder, ids: Sequence[str], name: str) -> np.ndarray:
    """Positions of the nodes with these ids, as they are written on a command line."""
    import numpy as np

    from snaps._checks import shown
    from snaps._errors import SnapsError

    place = {str(one): i for i, one in enumerate(data.graph.ids.tolist())} if ids else {}
    missing = [one for one in ids if one not in place]
    if missing:
        raise SnapsError(f"'{name}' must name nodes of the folder, got {shown(missing[0])}")
    return np.unique([place[one] for one in ids]).astype(np.int64)
