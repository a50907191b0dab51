"""`snaps plan`, `draw`, `label` and `watch`: calibration labels, from a budget to an alarm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from snaps.cli._help import argument, flag, name_classes, option
from snaps.cli._options import ALPHA, AS_JSON, FOLDER, IF_MISSING, SEED, THRESHOLD, FolderOptions
from snaps.errors import SnapsError

PLOT = option("File for a picture: .png, .svg or .pdf.", value="file")


def plan(
    *,
    alpha: float = option(f"{ALPHA}.", default=0.05, value="rate"),
    within: float = option("How far coverage may be from 1 - alpha.", default=0.01, value="share"),
    nodes: int | None = option("Number of nodes to predict.", value="number", shown="any"),
    confidence: float = option("Probability of being so close.", default=0.9, value="share"),
    plot: Path | None = PLOT,
    as_json: bool = AS_JSON,
) -> None:
    """Show how many calibration labels you need.

    That is, for a coverage within --within of 1 - alpha.
    The smallest number of labels is exact: the coverage of one calibration draw is Beta-binomial,
    or Beta where the number of nodes to predict is not given.
    """
    from snaps.cli._show import print_result
    from snaps.conformal.planning import plan as make_plan
    from snaps.io.files import check_picture, check_writable

    if plot is not None:
        check_picture(plot, "--plot")
        check_writable(plot)
    needed = make_plan(alpha, within=within, nodes=nodes, confidence=confidence)
    lines = [str(needed)]
    if plot is not None:
        needed.plot(plot)
        lines.append(f"wrote {plot}")
    print_result(needed.to_dict(), as_json, lines)


def draw(
    *,
    folder: Path = FOLDER,
    out: Path = option(
        "CSV file with columns id and label, for people to fill in.", required=True, value="file"
    ),
    nodes: int | None = option("How many nodes to draw, with earlier ones.", value="number"),
    chances: str | None = option(
        "Instead: draw each node by itself, with the chance in this column.", value="column"
    ),
    seed: int | None = SEED,
    as_json: bool = AS_JSON,
) -> None:
    """Draw nodes at random, to be labelled for calibration.

    The pool is role test, else every node without a role, as far as labels are unknown. Nodes with
    role train, valid or tune are never drawn. The first 500 of 800 nodes are the same 500 for the
    same seed. The draw is recorded in draw.json in the folder. Once labels were seen, a second draw
    must extend the first: the same seed, a larger number; --out then has the new nodes alone.
    """
    from snaps.cli._show import print_result
    from snaps.drawing import draw as draw_nodes

    done = draw_nodes(folder, out, nodes=nodes, chances=chances, seed=seed or 0)
    lines = (
        f"{done['nodes']} nodes drawn from a pool of {done['pool_nodes']} with seed {done['seed']}",
        f"{done['to_label']} of them are to be labelled in {out}",
        f"wrote {out} and {done['record']}",
        f"Next: fill in the column label, then snaps label {folder} {out}",
    )
    print_result(done, as_json, lines)


def label(
    *,
    folder: Path = FOLDER,
    file: Path = argument("What 'snaps draw' wrote, with labels.", "FILE"),
    allow_missing: bool = flag("Count nodes without a label as not covered.", "--allow-missing"),
    as_json: bool = AS_JSON,
) -> None:
    """Put filled-in labels into a graph folder, with role calib.

    All nodes drawn must have a label: to leave out the hard ones would break the guarantee. With
    --allow-missing, those without get role calib too, and count as not covered: sets become larger
    and the guarantee holds. Date and digest of the file are added to draw.json in the folder.
    """
    from snaps.cli._show import print_result
    from snaps.drawing import label as merge

    done = merge(folder, file, allow_missing=allow_missing)
    lines = [f"{done['labelled']} labels are in {folder} with role calib"]
    if done["missing"]:
        lines.append(f"{len(done['missing'])} nodes without a label count as not covered")
    print_result(done, as_json, [*lines, f"wrote {done['record']}"])


def watch(
    *,
    model: Path = argument("What 'snaps calibrate' wrote.", "MODEL"),
    source: FolderOptions,
    labels: Path = option(
        "CSV file with columns id and label, in the order of arrival.", required=True, value="file"
    ),
    alarm: float = option("Probability of a false alarm at most.", default=0.01, value="share"),
    state: Path | None = option(
        "File with what was counted before.", value="file", shown="MODEL.watch.json"
    ),
    missing: str | None = IF_MISSING,
    threshold: str | None = THRESHOLD,
    plot: Path | None = PLOT,
    as_json: bool = AS_JSON,
) -> None:
    """Count audited labels, and raise an alarm if coverage drops.

    Audited nodes are drawn at random from the nodes to predict, as 'snaps draw' does. Labels may
    arrive in batches and late: rows without a label are left for later, and a node counts once, in
    the order of arrival. If nothing has changed since calibration, there is ever an alarm with
    probability at most --alarm, however often you look. What was counted is kept in --state; after
    a new calibration begin with a new one.
    """
    from snaps._checks import plainly
    from snaps.cli._calibration import check_outputs, class_names, read
    from snaps.cli._show import print_result
    from snaps.drawing import read_labels
    from snaps.io.files import check_picture
    from snaps.predictor.loading import load

    state = state or model.with_name(f"{model.name}.watch.json")
    written: dict[str, Any] = {"--state": state} | ({} if plot is None else {"--plot": plot})
    if plot is not None:
        check_picture(plot, "--plot")
    check_outputs(written, source, model, labels)
    estimator = load(model)
    if estimator.effective_labels_ is not None:
        raise SnapsError(
            f"'MODEL' must have calibration nodes that were drawn evenly, got {model} with chances"
        )
    data, _ = read(source)
    name_classes(estimator.classes_)
    options = {"missing": missing, "threshold": threshold}
    estimator.recalibrate(  # no node joins those calibrated on
        data.graph, data.probs, logits=source.logits, classes=class_names(data, source.classes),
        **{key: value for key, value in options.items() if value},
    )  # fmt: skip
    arrived = {id_: text for id_, text in read_labels(labels, data.graph.ids).items() if text}
    classes = {str(name): name for name in estimator.classes_.tolist()}
    for text in arrived.values():
        if text not in classes:
            raise SnapsError(
                f"'{labels}' column 'label' must be one of {', '.join(list(classes)[:8])}, "
                f"got {plainly(text)}"
            )
    if not arrived:
        raise SnapsError(f"'{labels}' must have at least one label, got none")
    audited = {id_: classes[text] for id_, text in arrived.items()}
    before = state if state.exists() else None
    watched = estimator.watch(audited, data.graph.index(list(audited)), state=before, alarm=alarm)
    watched.save(state)
    if plot is not None:
        watched.plot(plot)
    lines = [str(watched), f"wrote {' and '.join(map(str, written.values()))}"]
    print_result({"state": str(state), **watched.to_dict()}, as_json, lines)
