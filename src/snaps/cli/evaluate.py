"""`snaps evaluate`: all methods side by side, on the user's own data."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snaps.cli._options import (
    CandidatesOption,
    ClassesOption,
    FolderArgument,
    JsonOption,
    KOption,
    LogitsOption,
    NeighboursOption,
    RecallOption,
    SeedOption,
    WeightedOption,
)

if TYPE_CHECKING:
    from snaps.advisor import Advice
    from snaps.folder import Folder


class Goal(StrEnum):
    smallest = "smallest"
    singletons = "singletons"
    classes = "classes"
    sizes = "sizes"


def evaluate(
    folder: FolderArgument,
    splits: Annotated[
        int,
        typer.Option("--splits", "--n-splits", help="Number of random calibration/test splits."),
    ] = 100,
    alpha: Annotated[list[float] | None, typer.Option(help="Level; may be repeated.")] = None,
    calib: Annotated[
        int | None,
        typer.Option(
            "--calib",
            "--n-calib",
            help="Labels spent a split; default: as many as have role calib.",
        ),
    ] = None,
    goal: Annotated[
        Goal | None,
        typer.Option(
            help="Recommend a method: smallest sets, most singletons, balanced classes or sizes."
        ),
    ] = None,
    k: KOption = 20,
    neighbours: NeighboursOption = None,
    recall: RecallOption = None,
    candidates: CandidatesOption = None,
    classes: ClassesOption = None,
    weighted: WeightedOption = False,
    logits: LogitsOption = False,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Compare all methods on many random splits of the labelled nodes of a folder.

    The pool is every labelled node whose role is calib, test or none. Methods with something to
    tune use role tune (else valid), or pay for tuning from the labels of a split; Pooled, to which
    valid is evidence, pays where there is no role tune. With --goal a method is recommended for the
    first level, from the tuning nodes alone: role tune (else valid), or the part of the calibration
    nodes that 'snaps predict' would tune on. It joins the table; a note says so when the table,
    which looks at all labels, has a better one at the goal.
    """
    import numpy as np

    from snaps._checks import check_alpha, check_integer
    from snaps._errors import SnapsError
    from snaps._methods import COMPARED, all_methods, methods
    from snaps.cli._options import asked_search, class_names, read
    from snaps.cli._show import bar, print_comparison, provenance
    from snaps.similarity import similarity_graph
    from snaps.splits import evaluate_splits

    alphas = alpha or [0.05]
    for level in alphas:
        check_alpha(level)
    check_integer(splits, "--splits", low=1)
    compared = methods(COMPARED, k=k, seed=seed)
    search = asked_search(neighbours, recall, candidates)
    for method in compared.values():
        if "neighbours" in method.get_params():
            method.set_params(**search)
        method.scorer()
    data, inputs = read(folder, weighted=weighted)
    pool = np.flatnonzero(data.labelled & np.isin(data.roles, ("", "calib", "test")))
    if pool.size < 2:
        raise SnapsError(f"'{folder}' must have two labelled nodes to split, got {pool.size}")
    if calib is None:
        calib = int(np.isin(pool, data.nodes("calib")).sum())
        if not 0 < calib < pool.size:
            calib = min(1000, pool.size // 2)
    check_integer(calib, "--calib", low=1, high=pool.size - 1)
    names, near = class_names(data, classes), None
    if data.graph.features is not None:
        options = {"method" if name == "neighbours" else name: v for name, v in search.items()}
        near = similarity_graph(
            data.graph.features, k, ids=data.graph.keys, progress=True, **options
        )
    advice = None
    if goal is not None:
        advice = _advice(data, goal, alphas[0], calib, k, seed, near, logits, names)
        compared.setdefault(advice.name, all_methods(k=k, seed=seed)[advice.name])
    rows: list[dict[str, Any]] = []
    with bar("Evaluating", len(compared)) as advance:
        for name, method in compared.items():
            tune, known = data.tuning_and_known(method.uses_evidence)
            result = evaluate_splits(
                method, data.graph, data.probs, data.labels, pool, calib, splits, seed, near,
                tune_nodes=tune, known_nodes=known, alphas=alphas, logits=logits, classes=names,
            )  # fmt: skip
            for i, level in enumerate(alphas):
                means = {key: float(np.mean(values[i])) for key, values in result.items()}
                rows.append({"alpha": level, "method": name, **means})
            advance(1)
    rows.sort(key=lambda row: alphas.index(row["alpha"]))
    first = [row for row in rows if row["alpha"] == alphas[0]]
    note = "" if advice is None else _note(first, advice)
    about = {**provenance(inputs), "seed": seed, "splits": splits}
    print_comparison(rows, about, as_json, advice, note)


def _advice(
    data: Folder,
    goal: Goal,
    alpha: float,
    budget: int,
    k: int,
    seed: int,
    similarity: Any,
    logits: bool,
    classes: Any,
) -> Advice:
    """A recommendation for a folder, without any label of a node that calibrates.

    Judged at the number of calibration nodes that the splits of the table have.
    """
    from snaps._checks import check_alpha
    from snaps._errors import SnapsError
    from snaps._roles import choose_tuning, tuning_share
    from snaps.advisor import advise
    from snaps.calibration import fewest_nodes

    tune, known = data.tuning_and_known()
    if tune is None:
        calib = data.nodes("calib")
        calib = calib[data.labelled[calib]]
        level = check_alpha(alpha)
        share = tuning_share(len(calib), level)
        budget -= tuning_share(budget, level)
        tune = calib[choose_tuning(data.graph.keys[calib], share, seed)]
    if tune.size == 0:
        raise SnapsError("'--goal' must have nodes of role tune, valid or calib to compare on")
    if budget < fewest_nodes(alpha):
        raise SnapsError(
            f"'--goal' must have at least {fewest_nodes(alpha)} nodes that calibrate, got {budget}"
        )
    return advise(
        data.graph, data.probs, data.labels, tune, goal.value, n_calib=budget, alpha=alpha,
        known_nodes=known, similarity=similarity, logits=logits, k=k, seed=seed, classes=classes,
    )  # fmt: skip


def _note(rows: list[dict[str, Any]], advice: Advice) -> str:
    """Why the table seems to say otherwise, where it does.

    The table's numbers rest on labels that calibrate and are predicted: a choice by them would cost
    the guarantee, which is why the recommendation doesn't know them.
    """
    from snaps._choice import GOALS

    key = GOALS[advice.goal]
    (mine,) = (row for row in rows if row["method"] == advice.name)
    notes = _beside(rows, mine, key, advice), _outside(mine, key, advice)
    return "\n".join(filter(None, notes))


def _outside(mine: dict[str, Any], key: str, advice: Advice) -> str:
    """Say so when the table is not where the recommendation expects it."""
    key = key if key in mine else "size"
    told = advice.rows[0]
    if told[f"{key}_low"] <= mine[key] <= told[f"{key}_high"]:
        return ""
    return (
        f"Note: the table has {mine[key]:.3f} for {advice.name}, outside of what the "
        f"recommendation expects. It knows {len(advice.comparison.keys)} tuning nodes alone; "
        "nodes of role valid, taken where none has role tune, may be unlike the others."
    )


def _beside(rows: list[dict[str, Any]], mine: dict[str, Any], key: str, advice: Advice) -> str:
    """Say so when the table has another method ahead."""
    if key not in mine:
        least = min(rows, key=lambda row: row["size"])
        if least is mine:
            return ""
        return (
            f"Note: {least['method']} has the smallest sets in the table ({least['size']:.3f} "
            f"against {mine['size']:.3f}); the goal {advice.goal} is about something that the "
            "table does not show."
        )
    sign = -1 if key == "singleton_hit" else 1
    best = min(rows, key=lambda row: sign * row[key])
    if sign * best[key] >= sign * mine[key]:
        return ""
    by, noise = advice.comparison.difference(best["method"], advice.name, key)
    return (
        f"Note: {best['method']} is ahead in the table ({best[key]:.3f} against {mine[key]:.3f}), "
        f"which looks at labels that calibrate and are predicted. The recommendation must not; on "
        f"{len(advice.comparison.keys)} tuning nodes the two differ by {by:+.3f} "
        f"({by - noise:+.3f} to {by + noise:+.3f})."
    )
