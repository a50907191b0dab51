"""What several commands share: options, and how a folder becomes an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np

    from snaps._estimators import Estimator
    from snaps.folder import Folder


class Method(StrEnum):
    SNAPS = "snaps"
    POOLED = "pooled"
    DAPS = "daps"
    SPLIT = "split"


class ScoreName(StrEnum):
    aps = "aps"
    raps = "raps"
    saps = "saps"
    thr = "thr"


FolderArgument = Annotated[
    Path,
    typer.Argument(help="Graph folder with nodes.parquet and edges.parquet.", metavar="FOLDER"),
]
AlphaOption = Annotated[
    float, typer.Option(help="Miscoverage: sets hold the truth 1 - alpha often.")
]
SeedOption = Annotated[int, typer.Option(help="Fixes every random draw.")]
KOption = Annotated[int, typer.Option("--k", help="Number of similar nodes.")]
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
    typer.Option("--group-by", help="A threshold for each value of this column of nodes.parquet."),
]
WeightedOption = Annotated[
    bool, typer.Option("--weighted", help="Use the column weight of edges.parquet.")
]
ClassesOption = Annotated[
    str | None,
    typer.Option(help="Names of the columns of probs, separated by commas, in their order."),
]


def make_estimator(
    method: Method,
    score: ScoreName | None,
    alpha: float,
    k: int,
    weights: str | None,
    class_conditional: bool,
    seed: int,
) -> Estimator:
    """The estimator that the options describe, its parameters checked."""
    import snaps

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
        estimator = snaps.SNAPS(alpha, k=k, weights=chosen, **common)
    elif method is Method.POOLED:
        estimator = snaps.Pooled(alpha, k=k, **common)
    elif method is Method.DAPS:
        estimator = snaps.DAPS(alpha, weight=chosen, **common)
    else:
        estimator = snaps.SplitConformal(alpha, **common)
    estimator.scorer()
    return estimator


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
    return tuple(numbers) if count > 1 else numbers[0]


def read(folder: Path, *, group_by: str | None = None, weighted: bool = False) -> Folder:
    """A graph folder, with a spinner."""
    from snaps._errors import SnapsError
    from snaps.cli._show import status
    from snaps.folder import read_folder

    if group_by in ("id", "label", "role", "probs", "features"):
        raise SnapsError(
            "'--group-by' must be a column that tells nothing of labels, and is known for every "
            f"node to predict, got {group_by!r}"
        )
    with status(f"Reading {folder}"):
        return read_folder(folder, columns=[group_by] if group_by else [], weighted=weighted)


def class_names(data: Folder, classes: str | None) -> Any:
    """The names of the columns of probs: the option's, else the folder's, else None."""
    if classes is None:
        return data.classes
    names = [name.strip() for name in classes.split(",")]
    if data.labels.dtype.kind in "iu" and all(name.lstrip("-").isdigit() for name in names):
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
            f"nodes.parquet column 'label' must be given where the role is {role}, "
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
    from snaps._errors import SnapsError
    from snaps._pooled import Pooled
    from snaps._progress import shown

    calib = labelled_nodes(data, "calib")
    if calib.size == 0:
        raise SnapsError(
            "nodes.parquet column 'role' must mark calibration nodes 'calib', got none"
        )
    tunes = estimator.scorer().needs_tuning
    with shown():
        return estimator.calibrate(
            data.graph, data.probs, data.labels, calib, data.tune_nodes if tunes else None,
            logits=logits, known_nodes=data.known_nodes if isinstance(estimator, Pooled) else None,
            groups=data.columns[group_by] if group_by else None, classes=class_names(data, classes),
        )  # fmt: skip


def asked_nodes(data: Folder, estimator: Estimator) -> np.ndarray:
    """The nodes to predict: role test, else every node that has no other use."""
    import numpy as np

    asked = data.nodes("test")
    if asked.size:
        return asked
    used = [estimator.calib_nodes_, estimator.tune_nodes_, estimator.known_nodes_]
    used += [data.nodes("calib"), data.nodes("tune")]
    return np.setdiff1d(np.arange(data.graph.num_nodes), np.concatenate(used))
