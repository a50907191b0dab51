"""`snaps report`: a page on the sets of a graph folder, to be looked at and passed on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from snaps.cli._help import option
from snaps.cli._options import AS_JSON, FolderOptions, MethodOptions, SavedOptions
from snaps.errors import SnapsError

if TYPE_CHECKING:
    from snaps.conformal.watching import Watch
    from snaps.predictor.estimator import Estimator


def report(
    *,
    out: Path = option("The page, for instance report.html.", required=True, value="file"),
    source: FolderOptions,
    how: MethodOptions,
    saved: SavedOptions,
    show: list[str] | None = option(
        "Id of a node that the page must show; may be repeated.", value="id"
    ),
    as_json: bool = AS_JSON,
) -> None:
    """Write an HTML report on the sets of a graph folder.

    They are the sets that 'snaps predict' makes with the same options. One file that needs no
    network: what was promised and what was observed, how small the
    sets are, for which nodes they are weaker, how the weights were chosen, where the threshold
    lies, and every node with its set and the reasons for it. Beyond 20,000 nodes it shows a part of
    them, and those asked for with --show. Nodes with role train or valid are not reported on.
    """
    import numpy as np

    from snaps.cli._calibration import asked_nodes, calibrated, check_outputs, named_nodes
    from snaps.cli._show import describe, print_summary, status
    from snaps.io.files import check_named, check_page
    from snaps.io.folders import folder_files

    check_named(out)
    check_outputs({"--out": out}, source, saved.using)
    check_page(out, "--out")
    estimator, data, inputs = calibrated(source, how, saved)
    used = np.concatenate([data.nodes("train", "valid"), estimator.known_nodes_])
    nodes = np.setdiff1d(asked_nodes(data, estimator), used)
    labels = data.labels if data.labelled[nodes].any() else None
    shown, title = named_nodes(data, show or [], "--show"), source.folder.resolve().name
    read = {file.name for file in folder_files(source.folder)}
    parts = [f"{name} {inputs[name][:12]}" for name in inputs if name in read]
    about = f"{title} (SHA-256: {', '.join(parts)})"
    watched = None if saved.using is None else _watched(estimator, saved.using, data.labels)
    with status(f"Writing {out}"):
        estimator.report(out, labels, nodes, show=shown, title=title, source=about, watch=watched)
    summary = {"out": str(out), "nodes": len(nodes), **describe(estimator, inputs)}
    print_summary(summary, as_json)


def _watched(estimator: Estimator, model: Path, labels: Any) -> Watch | None:
    """What 'snaps watch' has counted next to a model, if it is of this calibration."""
    from snaps.cli._show import remark
    from snaps.conformal.watching import Watch

    state = model.with_name(f"{model.name}.watch.json")
    if not state.exists():
        return None
    try:
        return estimator.watch(labels, [], state=state, alarm=Watch.load(state).alarm)
    except SnapsError as error:
        remark(f"'{state}' is left out of the report: {error}")
        return None
