"""`snaps report`: a page on the sets of a graph folder, to be looked at and passed on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from snaps.cli._options import (
    AskedAlpha,
    AskedK,
    AskedMethod,
    AskedSeed,
    ByClassOption,
    CandidatesOption,
    ClassesOption,
    FolderArgument,
    GroupOption,
    JsonOption,
    LogitsOption,
    MissingOption,
    NeighboursOption,
    RecallOption,
    ScoreOption,
    ThresholdOption,
    UsingOption,
    WeightedOption,
    WeightsOption,
)


def report(
    folder: FolderArgument,
    out: Annotated[Path, typer.Option(help="The page, for instance report.html.")],
    show: Annotated[
        list[str] | None,
        typer.Option(help="Id of a node that the page must carry; may be repeated."),
    ] = None,
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
    logits: LogitsOption = False,
    seed: AskedSeed = None,
    as_json: JsonOption = False,
) -> None:
    """Write a report on the sets that 'snaps predict' makes with the same options.

    One HTML file that needs no network: what was promised and what was observed, how small the
    sets are, for whom they are weaker, how the weights were chosen, where the threshold lies, and
    every node with its set and the reasons for it. Beyond 20,000 nodes it carries a part of them,
    and those asked for with --show. Nodes with role train or valid are not reported on.
    """
    import numpy as np

    from snaps._files import check_apart, check_named, check_page, check_writable
    from snaps._folder_files import folder_files
    from snaps.cli._options import asked_nodes, asked_search, calibrated, named_nodes
    from snaps.cli._show import describe, finite, print_estimator, provenance, status

    check_named(out)
    check_writable(out)  # before the work is done, not after
    check_apart({"--out": out}, [*folder_files(folder), *filter(None, [using])])
    check_page(out, "--out")
    estimator, data, inputs = calibrated(
        folder, using, alpha=alpha, method=method, score=score, k=k, weights=weights,
        class_conditional=class_conditional, group_by=group_by, classes=classes, weighted=weighted,
        missing=missing, threshold=threshold, logits=logits, seed=seed,
        search=asked_search(neighbours, recall, candidates),
    )  # fmt: skip
    used = np.concatenate([data.nodes("train", "valid"), estimator.known_nodes_])
    nodes = np.setdiff1d(asked_nodes(data, estimator), used)
    labels = data.labels if data.labelled[nodes].any() else None
    title = folder.resolve().name
    with status(f"Writing {out}"):
        estimator.report(out, labels, nodes, show=named_nodes(data, show or [], "--show"),
                         title=title)  # fmt: skip
    summary = {"out": str(out), "nodes": len(nodes), **describe(estimator), **provenance(inputs)}
    if as_json:
        print(json.dumps(finite(summary)))
        return
    print_estimator(summary)
    print(f"wrote {out}")
