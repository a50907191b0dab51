"""How results look on the terminal and in JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from snaps._base import Estimator
    from snaps._evaluation import Evaluation
    from snaps.advisor import Advice
    from snaps.folder import Folder
    from snaps.sets import PredictionSets


def status(text: str) -> Any:
    """A spinner on stderr while something runs, if there is somebody to see it."""
    from contextlib import nullcontext

    from rich.console import Console

    console = Console(stderr=True)
    return console.status(text) if console.is_terminal else nullcontext()


def bar(label: str, total: int) -> Any:
    """A progress bar on stderr."""
    from snaps._progress import track

    return track(True, label, total)


def provenance(inputs: Mapping[str, str]) -> dict[str, Any]:
    """What JSON outputs say of where they come from: the version, and digests of input files."""
    from snaps._version import __version__

    return {"version": __version__, "inputs": dict(inputs)}


def finite(value: Any) -> Any:
    """JSON has no infinity: an infinite threshold becomes null."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if (isinstance(value, float) and value in (float("inf"), float("-inf"))) or value != value:
        return None
    return value


def describe(estimator: Estimator) -> dict[str, Any]:
    """What was calibrated, and how."""
    import numpy as np

    return {
        "method": type(estimator).__name__,
        "score": repr(estimator.score_),
        "alpha": float(estimator.alpha),
        "seed": int(estimator.seed),
        "weights": estimator.part_weights_,
        "neighbours": estimator.neighbours_,
        "threshold": finite(np.asarray(estimator.threshold_).tolist()),
        "calibration_nodes": len(estimator.calib_nodes_),
        "tuning_nodes": len(estimator.tune_nodes_),
        "classes": estimator.classes_.tolist(),
    }


def summarise(estimator: Estimator, data: Folder, sets: PredictionSets, out: str) -> dict[str, Any]:
    """What was predicted; with coverage where labels are known, and a look at the pool."""
    import numpy as np

    sizes = sets.sizes
    summary: dict[str, Any] = {
        "out": out,
        **describe(estimator),
        "sets": len(sets),
        "size": float(sizes.mean()) if len(sets) else None,
        "singletons": float((sizes == 1).mean()) if len(sets) else None,
        "empty": float((sizes == 0).mean()) if len(sets) else None,
    }
    labelled = _to_evaluate(estimator, data, sets.nodes)
    if labelled.size:
        truth = estimator.evaluate(data.labels, labelled)
        kept = ("coverage", "coverage_interval", "inside", "tied", "upper_binds", "singleton_hit")
        summary |= {"labelled": int(labelled.size), **{key: truth[key] for key in kept}}
        summary |= {key: truth[key] for key in ("class_coverage", "group_coverage")}
        summary["weakest_class"] = _weakest(truth, data.labels[labelled], float(estimator.alpha))
    trained = int(np.isin(sets.nodes, data.nodes("train", "valid")).sum())
    if trained:
        print(
            f"snaps: note: {trained} of the sets are for nodes with role train or valid: the "
            "guarantee does not speak of them",
            file=sys.stderr,
        )
    if len(sets):
        look = estimator.exchangeability(sets.nodes)
        summary["exchangeability"] = look.to_dict()
        if not look.alike:
            print(f"snaps: note: {look}", file=sys.stderr)
    return summary


def _weakest(truth: Evaluation, labels: np.ndarray, alpha: float) -> dict[str, Any] | None:
    """The class with the lowest coverage, if that is far below 1 - alpha; else None.

    A threshold per class or group promises something else.
    """
    import numpy as np

    from snaps.calibration import far_below

    if truth["coverage_interval"] is None:
        return None
    names, counts = np.unique(labels, return_counts=True)
    covered = np.array([truth["class_coverage"][name] for name in names.tolist()])
    gap = min(alpha, 0.1)  # twice as many misses as promised, or 0.1 more
    place = far_below(covered, counts, truth["n_calib"], alpha, chance=0.01, gap=gap)
    if place is None:
        return None
    return {
        "class": names[place].item(), "coverage": covered[place].item(),
        "nodes": counts[place].item(),
    }  # fmt: skip


def _to_evaluate(estimator: Estimator, data: Folder, nodes: np.ndarray) -> np.ndarray:
    """Predicted nodes that have a label and were used for nothing else."""
    import numpy as np

    used = [estimator.calib_nodes_, estimator.tune_nodes_, data.nodes("train", "valid")]
    labelled = nodes[data.labelled[nodes]]
    return labelled[~np.isin(labelled, np.concatenate(used))]


def print_estimator(summary: dict[str, Any], file: Any = None) -> None:
    """What was calibrated, in two or three lines."""
    tuned = f", tuned on {summary['tuning_nodes']}" if summary["tuning_nodes"] else ""
    print(f"{summary['method']} with {summary['score']}, alpha {summary['alpha']:g}", file=file)
    print(f"calibrated on {summary['calibration_nodes']} nodes{tuned}", file=file)
    if len(summary["weights"]) > 1:
        listed = ", ".join(f"{name} {weight:.2f}" for name, weight in summary["weights"].items())
        print(f"weights: {listed}", file=file)
    for name, found in summary.get("neighbours", {}).items():  # Spark has none to tell
        what = "similar nodes" if name == "similar" else "nodes in a similar context"
        if found["method"] == "approximate":
            print(f"{what}: approximate, recall {found['recall']:.3f}", file=file)
        elif found["candidates"] is not None:
            print(f"{what}: exact, among {found['candidates']} random candidates", file=file)


def print_prediction(summary: dict[str, Any], as_json: bool) -> None:
    """What was predicted; beside sets on stdout, the summary goes to stderr."""
    from snaps._checks import plainly
    from snaps.cli._resources import in_words

    file = sys.stderr if summary["out"] == "-" else sys.stdout
    if as_json:
        print(json.dumps(finite(summary)), file=file)
        return
    print_estimator(summary, file)
    if summary["size"] is not None:
        print(
            f"{summary['sets']} sets, mean size {summary['size']:.3f}, "
            f"{summary['singletons']:.1%} single labels, {summary['empty']:.1%} empty",
            file=file,
        )
    if "coverage" in summary:
        line = f"coverage {summary['coverage']:.4f} on {summary['labelled']} labelled nodes"
        if summary["coverage_interval"]:
            low, high = summary["coverage_interval"]
            where = "" if summary["inside"] else "OUTSIDE what is "
            line += f" ({where}expected: between {low:.4f} and {high:.4f})"
        if summary["upper_binds"] is False:
            line += f"; {summary['tied']:.1%} of the calibration scores tie, which adds coverage"
        print(line, file=file)
        if weakest := summary["weakest_class"]:
            print(
                f"class {plainly(weakest['class'])} is covered {weakest['coverage']:.4f} on "
                f"{weakest['nodes']} nodes, far below {1 - summary['alpha']:g}: "
                "--class-conditional gives each class a threshold of its own",
                file=file,
            )
        if summary["group_coverage"]:
            told = {k: v for k, v in summary["group_coverage"].items() if v is not None}
            worst = sorted(told.items(), key=lambda item: item[1])[:8]
            listed = ", ".join(f"{name} {value:.4f}" for name, value in worst)
            more = f", and {len(told) - 8} more" if len(told) > 8 else ""
            print(f"coverage by group, lowest first: {listed}{more}", file=file)
    print(in_words(summary), file=file)
    if summary["out"] != "-":
        print(f"wrote {summary['out']}", file=file)
    if "saved" in summary:
        print(f"wrote {summary['saved']}", file=file)


def print_comparison(
    rows: list[dict[str, Any]],
    about: dict[str, Any],
    as_json: bool,
    advice: Advice | None = None,
    note: str = "",
) -> None:
    """Methods side by side; `about` says over how many splits, and where they come from.

    A note goes with the advice, on where the two differ.
    """
    if as_json:
        told: dict[str, Any] = {**about, "results": rows}
        if advice is not None:
            told["advice"] = {
                "goal": advice.goal,
                "method": advice.name,
                "runner_up": advice.runner_up,
                "reason": advice.reason,
                "cost": advice.cost,
                "note": note,
                "tuning_nodes": len(advice.comparison.keys),
                "calibration_nodes": advice.comparison.n_calib,
                "results": advice.rows,
            }
        print(json.dumps(finite(told)))
        return
    from snaps._tables import print_table

    best = {
        alpha: min(row["size"] for row in rows if row["alpha"] == alpha)
        for alpha in {row["alpha"] for row in rows}
    }
    header = [
        "alpha", "method", "coverage", "size", "non-empty", "single hits", "calib", "test",
    ]  # fmt: skip
    cells = [
        [
            f"{row['alpha']:g}",
            row["method"],
            f"{row['coverage']:.4f}",
            f"{row['size']:.3f}",
            f"{row['size_nonempty']:.3f}",
            f"{row['singleton_hit']:.1%}",
            f"{row['n_calib']:.0f}",
            f"{row['n_test']:.0f}",
        ]
        for row in rows
    ]
    bold = [row["size"] == best[row["alpha"]] for row in rows]
    title = f"Means over {about['splits']} random splits"
    print_table(header, cells, names=2, title=title, bold=bold)
    if advice is not None:
        print(f"Recommended: {advice}")
        if note:
            print(note)
