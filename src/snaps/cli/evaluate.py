"""`snaps evaluate`: all methods side by side, on the user's own data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from snaps.cli._help import flag, option
from snaps.cli._options import AS_JSON, SEED, FolderOptions, SearchOptions
from snaps.errors import SnapsError

if TYPE_CHECKING:
    from snaps.advisor import Advice
    from snaps.folder import Folder


def evaluate(
    *,
    source: FolderOptions,
    splits: int = option(
        "Number of random calibration/test splits.",
        "--splits",
        "--n-splits",
        default=100,
        value="number",
    ),
    alpha: list[float] | None = option(
        "Error rate of the sets; may be repeated.", value="rate", shown=0.05
    ),
    calib: int | None = option(
        "Labelled nodes per split to calibrate and tune on.",
        "--calib",
        "--n-calib",
        value="number",
        shown="as many as have role calib",
    ),
    goal: Literal["smallest", "singletons", "classes", "sizes"] | None = option(
        "Recommend a method: smallest sets, most singletons, balanced classes or sizes."
    ),
    chances: str | None = option(
        "Draw labels with the chances in this column, or by edges, in each split.", value="column"
    ),
    smoothed: bool = flag(
        "Let chance decide on ties: coverage is exactly 1 - alpha.", "--smoothed"
    ),
    search: SearchOptions,
    seed: int | None = SEED,
    as_json: bool = AS_JSON,
) -> None:
    """Compare all methods on random splits of the labelled nodes.

    The labelled nodes with role calib, test or none are split at random into calibration and test
    nodes, many times. Parameters are tuned on role tune (else valid, but for Pooled), otherwise on
    a part of each calibration split.

    With --goal, a method is also recommended for the first alpha. It is chosen on the tuning nodes
    alone, so that its guarantee stays valid, and joins the table, which looks at all labels.
    """
    import numpy as np

    from snaps._checks import check_alpha, check_integer
    from snaps._runtime.progress import track
    from snaps.cli._calibration import chances_of, class_names, read
    from snaps.cli._show import comparison_row, print_comparison, provenance
    from snaps.estimators import COMPARED, all_methods, methods
    from snaps.predictor.estimator import method_of
    from snaps.similarity import similarity_graph
    from snaps.splits import evaluate_splits

    alphas, seed = list(dict.fromkeys(alpha or [0.05])), seed or 0
    for level in alphas:
        check_alpha(level)
    check_integer(splits, "--splits", low=1)
    for name, given in (("--chances", chances is not None), ("--smoothed", smoothed)):
        if given and goal is not None:
            raise SnapsError(f"'--goal' must be left out with {name}, got {goal}")
    asked = {"k": 20} | search.search()
    compared = methods(COMPARED, k=asked["k"], seed=seed)
    for method in compared.values():
        if "neighbours" in method.get_params():
            method.set_params(**asked)
        method_of(method)
    data, inputs = read(source, chances=chances)
    pool = np.flatnonzero(data.labelled & np.isin(data.roles, ("", "calib", "test")))
    if pool.size < 2:
        raise SnapsError(
            f"'{source.folder}' must have two labelled nodes to split, got {pool.size}"
        )
    if calib is None:
        calib = int(np.isin(pool, data.nodes("calib")).sum())
        if not 0 < calib < pool.size:
            calib = min(1000, pool.size // 2)
    check_integer(calib, "--calib", low=1, high=pool.size - 1)
    names, similarity, advice = class_names(data, source.classes), None, None
    if data.graph.features is not None:
        options = {"method" if name == "neighbours" else name: v for name, v in asked.items()}
        similarity = similarity_graph(
            data.graph.features, ids=data.graph.keys, progress=True, **options
        )
    common = {"similarity": similarity, "logits": source.logits, "classes": names, "seed": seed}
    drawn = chances_of(data, chances, pool)
    if goal is not None:
        advice = _advice(data, goal, alphas[0], calib, k=asked["k"], **common)
        offered = all_methods(alphas[0], k=asked["k"], seed=seed)
        compared.setdefault(advice.name, offered[advice.name])
    rows: list[dict[str, Any]] = []
    with track(True, "Evaluating", len(compared)) as advance:
        for name, method in compared.items():
            tune, known = data.tuning_and_known(method_of(method).uses_evidence)
            result = evaluate_splits(
                method, data.graph, data.probs, data.labels, pool, calib, splits,
                tune_nodes=tune, known_nodes=known, alphas=alphas, chances=drawn,
                smoothed=smoothed, **common,
            )  # fmt: skip
            for i, level in enumerate(alphas):
                own = {key: values[i] for key, values in result.items()}
                rows.append(comparison_row(level, name, own))
            advance(1)
    rows.sort(key=lambda row: alphas.index(row["alpha"]))
    first = [row for row in rows if row["alpha"] == alphas[0]]
    note = "" if advice is None else _note(first, advice)
    about = {**provenance(inputs), "seed": seed, "splits": splits}
    about |= {"smoothed": True} if smoothed else {}
    print_comparison(rows, about, as_json, advice, note)


def _advice(
    data: Folder, goal: str, alpha: float, budget: int, *, seed: int, **options: Any
) -> Advice:
    """A recommendation for a folder, without any label of a calibration node.

    Judged at the number of calibration nodes that the splits of the table have.
    """
    from snaps._checks import check_alpha
    from snaps.advisor import advise
    from snaps.conformal.rank import fewest_nodes, tuning_share
    from snaps.predictor.roles import choose_tuning

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
            f"'--goal' must have at least {fewest_nodes(alpha)} calibration nodes, got {budget}"
        )
    return advise(
        data.graph, data.probs, data.labels, tune, goal, n_calib=budget, alpha=alpha,
        known_nodes=known, seed=seed, **options,
    )  # fmt: skip


def _note(rows: list[dict[str, Any]], advice: Advice) -> str:
    """Why the table seems to say otherwise, where it does.

    The table's numbers rest on labels of calibration and test nodes: a choice by them would cost
    the guarantee, which is why the recommendation does not use them.
    """
    from snaps.advisor import GOALS

    key, notes, tuning = GOALS[advice.goal], [], len(advice.comparison.keys)
    (mine,) = (row for row in rows if row["method"] == advice.name)
    in_table = key in mine
    sign = -1 if key == "singleton_hit" else 1
    key = key if in_table else "size"
    best = min(rows, key=lambda row: sign * row[key])
    if not in_table and best is not mine:
        notes.append(
            f"Note: {best['method']} has the smallest sets in the table ({best['size']:.3f} "
            f"against {mine['size']:.3f}); the goal {advice.goal} is about something that the "
            "table does not show."
        )
    elif sign * best[key] < sign * mine[key]:
        by, noise = advice.comparison.difference(best["method"], advice.name, key)
        notes.append(
            f"Note: {best['method']} is ahead in the table ({best[key]:.3f} against "
            f"{mine[key]:.3f}), which looks at labels of calibration and test nodes. The "
            f"recommendation must not; on {tuning} tuning nodes the two differ by {by:+.3f} "
            f"({by - noise:+.3f} to {by + noise:+.3f})."
        )
    if not advice.rows[0][f"{key}_low"] <= mine[key] <= advice.rows[0][f"{key}_high"]:
        notes.append(
            f"Note: the table has {mine[key]:.3f} for {advice.name}, outside of what the "
            f"recommendation expects. It knows {tuning} tuning nodes alone; nodes of role valid, "
            "taken where none has role tune, may be unlike the others."
        )
    return "\n".join(notes)
