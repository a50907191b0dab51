"""`snaps select` and `snaps accept`: lists of nodes with a bound on the share that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from snaps.cli._help import option
from snaps.cli._options import AS_JSON, FolderOptions, MethodOptions, SavedOptions
from snaps.errors import SnapsError

if TYPE_CHECKING:
    from snaps.predictor.selection import Selection

OUT = option(
    "File for id, label, p, selected and rank: .parquet, .csv, .jsonl; - is CSV.",
    required=True, value="file",
)  # fmt: skip


def select(
    *,
    label: str = option("The class to list nodes of.", required=True, value="class"),
    out: str = OUT,
    source: FolderOptions,
    how: MethodOptions,
    saved: SavedOptions,
    fdr: float = option(
        "False discovery rate: the share of another class, on average.", default=0.1, value="share"
    ),
    as_json: bool = AS_JSON,
) -> None:
    """List nodes of a class, with a bound on false discoveries.

    On average over draws of the calibration nodes, at most a share --fdr of the nodes selected is
    of another class. Nodes with role test are looked at, else every node without a role; the file
    has a row for each, and the column selected says which to act on. Roles, methods and --with are
    as for 'snaps predict'; thresholds per class or group play no part.
    """
    from snaps._checks import check_alpha
    from snaps.cli._calibration import class_of

    check_alpha(fdr, "--fdr")
    _write_list(
        lambda estimator, nodes: estimator.select(class_of(label, estimator.classes_), fdr, nodes),
        {"label": label, "fdr": fdr}, out, source, how, saved, as_json,
    )  # fmt: skip


def accept(
    *,
    out: str = OUT,
    source: FolderOptions,
    how: MethodOptions,
    saved: SavedOptions,
    error: float = option(
        "The share of accepted labels that is wrong, on average.", default=0.02, value="share"
    ),
    as_json: bool = AS_JSON,
) -> None:
    """List nodes whose top label can be accepted without review.

    On average over draws of the calibration nodes, at most a share --error of the labels accepted
    is wrong. Nodes, roles and the columns of the file are as for 'snaps select'.
    """
    from snaps._checks import check_alpha

    check_alpha(error, "--error")
    _write_list(
        lambda estimator, nodes: estimator.accept(error, nodes),
        {"error": error}, out, source, how, saved, as_json,
    )  # fmt: skip


def _write_list(
    choose: Callable[[Any, Any], Selection],
    asked: dict[str, Any],
    out: str,
    source: FolderOptions,
    how: MethodOptions,
    saved: SavedOptions,
    as_json: bool,
) -> None:
    """Calibrate, write the list, and print what is promised of it."""
    import numpy as np

    from snaps.cli._calibration import asked_nodes, calibrated, check_outputs
    from snaps.cli._show import compared, describe, print_summary
    from snaps.drawing import drawn_with
    from snaps.io.files import check_output

    chances = how.chances or drawn_with(source.folder)
    if chances is not None:
        raise SnapsError(
            "lists must have calibration nodes that were drawn evenly, got nodes drawn by "
            f"'{chances}'; 'snaps predict --chances {chances}' makes sets of them"
        )
    named = {"--label": [asked["label"]]} if "label" in asked else {}
    check_output(out, "--out")
    check_outputs({"--out": out}, source, saved.using)
    estimator, data, inputs = calibrated(source, how, saved, named=named)
    # Labels of train and valid nodes are known, and the classifier has seen them.
    nodes = np.setdiff1d(asked_nodes(data, estimator), data.nodes("train", "valid"))
    chosen = choose(estimator, nodes)
    chosen.write(out)
    summary: dict[str, Any] = {"out": out, **describe(estimator, inputs), **asked}
    summary |= {"nodes": len(chosen.p), "selected": len(chosen), "certifiable": chosen.certifiable}
    labelled = chosen.selected & data.labelled[chosen.nodes]
    if labelled.any():
        wrong = data.labels[chosen.nodes[labelled]] != chosen.label[labelled]
        summary |= {"labelled": int(labelled.sum()), "false_share": float(wrong.mean())}
    if len(nodes):
        summary |= compared(estimator, nodes)
    lines = [str(chosen)]
    if "false_share" in summary:
        share, count = summary["false_share"], summary["labelled"]
        lines.append(
            f"{share:.1%} are wrong among the {count} of them that have a label; the promise is an "
            "average, and a single draw may be above it"
        )
    print_summary(summary, as_json, lines)
