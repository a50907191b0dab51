"""How results look on the terminal and in JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from snaps._checks import plainly
from snaps._version import __version__
from snaps.cli._help import in_options
from snaps.conformal.chances import UNEVEN
from snaps.conformal.coverage import far_below

if TYPE_CHECKING:
    from snaps.advisor import Advice
    from snaps.folder import Folder
    from snaps.predictor.estimator import Estimator
    from snaps.predictor.evaluation import Evaluation
    from snaps.sets import PredictionSets


def status(text: str) -> Any:
    """A spinner on stderr while something runs, if that is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    return console.status(text) if console.is_terminal else nullcontext()


def provenance(inputs: Mapping[str, str]) -> dict[str, Any]:
    """What JSON outputs say of where they come from: the version, and digests of input files."""
    return {"version": __version__, "inputs": dict(inputs)}


def finite(value: Any) -> Any:
    """JSON has no infinity: an infinite threshold becomes null."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def describe(estimator: Estimator, inputs: Mapping[str, str]) -> dict[str, Any]:
    """What was calibrated, how, and on which files; with chances a threshold is per node."""
    labels = estimator.effective_labels_
    return {
        "method": type(estimator).__name__,
        "score": repr(estimator.score_),
        "alpha": rates(estimator.alpha),
        **estimator.promises_,
        "seed": int(estimator.seed),
        "weights": estimator.part_weights_,
        "neighbours": estimator.neighbours_,
        "threshold": np.asarray(estimator.threshold_).tolist() if labels is None else None,
        "calibration_nodes": len(estimator.calib_ids_),
        **({"missing_labels": missing} if (missing := estimator.missing_labels_) else {}),
        **({} if labels is None else {"effective_labels": labels}),
        "tuning_nodes": len(estimator.tune_ids_),
        "classes": estimator.classes_.tolist(),
        **provenance(inputs),
    }


def summarise(
    estimator: Estimator, data: Folder, sets: PredictionSets, empty: Any = "keep"
) -> dict[str, Any]:
    """What was predicted; with coverage where labels are known, and a look at the pool."""
    sizes, any_sets = sets.sizes, len(sets) > 0
    summary: dict[str, Any] = {
        "sets": len(sets),
        "size": float(sizes.mean()) if any_sets else None,
        "singletons": float((sizes == 1).mean()) if any_sets else None,
        "empty": float((sizes == 0).mean()) if any_sets else None,
    }
    trained = data.nodes("train", "valid")
    used = np.concatenate([estimator.calib_nodes_, estimator.tune_nodes_, trained])
    labelled = np.setdiff1d(sets.nodes[data.labelled[sets.nodes]], used)
    if labelled.size:
        truth = estimator.evaluate(data.labels, labelled, empty=empty)
        kept = (
            "coverage", "coverage_interval", "inside", "tied", "upper_binds", "singleton_hit",
            "class_coverage", "group_coverage", "class_promise", "group_promise",
        )  # fmt: skip
        summary |= {"labelled": int(labelled.size), **{key: truth[key] for key in kept}}
        summary["weakest_class"] = _weakest(truth, data.labels[labelled], estimator.alpha)
    if count := int(np.isin(sets.nodes, trained).sum()):
        remark(
            f"{count} of the sets are for nodes with role train or valid: the guarantee does not "
            "apply to them"
        )
    if any_sets and estimator.effective_labels_ is None:
        summary |= compared(estimator, sets.nodes)
    return summary


def compared(estimator: Estimator, nodes: np.ndarray) -> dict[str, Any]:
    """Whether the nodes look like the calibration nodes; a remark if they do not."""
    look = estimator.exchangeability(nodes)
    if not look.alike:
        remark(str(look))
    return {"exchangeability": look.to_dict()}


def remark(text: str) -> None:
    """A remark on stderr."""
    print(f"snaps: note: {text}", file=sys.stderr)


def rates(alpha: Any) -> Any:
    """The miscoverage as JSON has it."""
    if isinstance(alpha, Mapping):
        return {str(name): float(rate) for name, rate in alpha.items()}
    return float(alpha)


def _weakest(truth: Evaluation, labels: np.ndarray, alpha: Any) -> dict[str, Any] | None:
    """The class with the lowest coverage, if that is far below 1 - alpha; else None.

    Thresholds or floors per class or group promise something else.
    """
    if truth["coverage_interval"] is None or truth["class_promise"] is not None:
        return None
    alpha = float(alpha)
    names, counts = np.unique(labels, return_counts=True)
    covered = np.array([truth["class_coverage"][name] for name in names.tolist()])
    gap = min(alpha, 0.1)  # twice as many misses as promised, or 0.1 more
    place = far_below(covered, counts, truth["n_calib"], alpha, chance=0.01, gap=gap)
    if place is None:
        return None
    columns = {"class": names, "coverage": covered, "nodes": counts}
    return {key: values[place].item() for key, values in columns.items()}


def print_result(result: Any, as_json: bool, lines: Iterable[str], file: Any = None) -> None:
    """A result as JSON, or as lines."""
    print(json.dumps(result) if as_json else "\n".join(lines), file=file)


def print_summary(summary: dict[str, Any], as_json: bool, lines: Iterable[str] = ()) -> None:
    """What was calibrated and made of it; next to a result on stdout, on stderr."""
    file = sys.stderr if summary["out"] == "-" else sys.stdout
    paths = (summary["out"], summary.get("saved", "-"))
    written = [f"wrote {path}" for path in paths if path != "-"]
    print_result(finite(summary), as_json, [*_estimator(summary), *lines, *written], file)


def _estimator(summary: dict[str, Any]) -> Iterator[str]:
    """What was calibrated, in two or three lines."""
    tuned = f", tuned on {summary['tuning_nodes']}" if summary["tuning_nodes"] else ""
    alpha = summary["alpha"]
    if isinstance(alpha, dict):
        alpha = ", ".join(f"{name} {rate:g}" for name, rate in alpha.items())
    promise = "".join(
        f", {name.replace('_', ' ')} {summary[name]:g}"
        for name in ("class_floor", "group_floor", "confidence")
        if summary.get(name) is not None
    )
    yield f"{summary['method']} with {summary['score']}, alpha {alpha}{promise}"
    labels = summary.get("effective_labels")
    even = "" if labels is None else f" (effective number {labels:.1f}, by their chances)"
    missing = summary.get("missing_labels")
    lost = "" if missing is None else f" and {missing} without a label, which count as not covered"
    yield f"calibrated on {summary['calibration_nodes']} nodes{lost}{even}{tuned}"
    if len(summary["weights"]) > 1:
        listed = ", ".join(f"{name} {weight:.2f}" for name, weight in summary["weights"].items())
        yield f"weights: {listed}"
    for name, search in summary.get("neighbours", {}).items():  # of Spark they are not known
        what = "similar nodes" if name == "similar" else "nodes in a similar context"
        if search["method"] == "approximate":
            yield f"{what}: approximate, recall {search['recall']:.3f}"
        elif search["candidates"] is not None:
            yield f"{what}: exact, among {search['candidates']} random candidates"


def prediction(summary: dict[str, Any]) -> Iterator[str]:
    """What was predicted, a line each."""
    if summary["size"] is not None:
        yield (
            f"{summary['sets']} sets, mean size {summary['size']:.3f}, "
            f"{summary['singletons']:.1%} single labels, {summary['empty']:.1%} empty"
        )
    if "coverage" in summary:
        yield from _coverage(summary)
    if "decisions" in summary:
        counted = (f"{count} {name}" for name, count in summary["decisions"].items())
        yield f"decisions: {', '.join(counted)}"
        yield from map(in_options, summary["promises"])
    yield _costs(summary)


def _coverage(summary: dict[str, Any]) -> list[str]:
    """How often the sets contain the true label: in all, and where it is least."""
    line = f"coverage {summary['coverage']:.4f} on {summary['labelled']} labelled nodes"
    if summary["coverage_interval"]:
        low, high = summary["coverage_interval"]
        where = "" if summary["inside"] else "OUTSIDE what is "
        line += f" ({where}expected: between {low:.4f} and {high:.4f})"
    elif "effective_labels" in summary:
        line += f" ({UNEVEN})"
    if summary["upper_binds"] is False and summary["tied"]:
        line += f"; {summary['tied']:.1%} of the calibration scores tie, which adds coverage"
    lines = [line]
    if weakest := summary["weakest_class"]:
        lines.append(
            f"class {plainly(weakest['class'])} is covered {weakest['coverage']:.4f} on "
            f"{weakest['nodes']} nodes, far below {1 - summary['alpha']:g}: "
            "--class-floor promises every class a least coverage, --class-conditional gives each "
            "a threshold of its own"
        )
    if summary["group_coverage"]:
        lines += _lowest("group", summary["group_coverage"])
    if promised := summary.get("class_promise"):
        lines += _lowest("class", summary["class_coverage"], promised)
    return lines


def _lowest(
    what: str, coverages: dict[Any, float | None], promised: dict[Any, Any] | None = None
) -> Iterator[str]:
    """The lowest coverages of classes or groups in a line, if there are any."""
    known = {name: value for name, value in coverages.items() if value is not None}
    if not known:
        return
    texts = []
    for name, value in sorted(known.items(), key=lambda item: item[1])[:8]:
        texts.append(f"{name} {value:.4f}")
        if promised is not None:
            least = promised[name]
            texts[-1] += f" (promised {least:g})" if least else " (no promise)"
    texts += [f"and {len(known) - 8} more"] if len(known) > 8 else []
    yield f"coverage by {what}, lowest first: {', '.join(texts)}"


def _costs(summary: dict[str, Any]) -> str:
    """Time by stage and the most memory, in a line."""
    from snaps.cli._resources import shown_size

    seconds = dict(summary["seconds"])
    line = f"took {seconds.pop('total'):.1f} s"
    stages = ", ".join(f"{name} {time:.1f}" for name, time in seconds.items() if time >= 0.05)
    line += f" ({stages})" if stages else ""
    peak = summary["peak_memory"]
    return line if peak is None else f"{line} and {shown_size(peak)} of memory"


def comparison_row(alpha: float, method: str, result: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The means over the splits of a method."""
    means = {name: float(np.mean(x)) for name, x in result.items() if name != "class_coverage"}
    return {"alpha": alpha, "method": method, **means}


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
        result: dict[str, Any] = {**about, "results": rows}
        if advice is not None:
            result["advice"] = {
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
        print(json.dumps(finite(result)))
        return
    from snaps._tables import print_table

    columns = {
        "alpha": ("alpha", "g"), "method": ("method", ""), "coverage": ("coverage", ".4f"),
        "size": ("size", ".3f"), "non-empty": ("size_nonempty", ".3f"),
        "single hits": ("singleton_hit", ".1%"), "calib": ("n_calib", ".0f"),
        "test": ("n_test", ".0f"),
    }  # fmt: skip
    cells = [[format(row[key], digits) for key, digits in columns.values()] for row in rows]
    sizes = [[other["size"] for other in rows if other["alpha"] == row["alpha"]] for row in rows]
    bold = [row["size"] == min(others) for row, others in zip(rows, sizes, strict=True)]
    title = f"Means over {about['splits']} random splits" + ", smoothed" * ("smoothed" in about)
    print_table(list(columns), cells, names=2, title=title, bold=bold)
    if advice is not None:
        print(f"Recommended: {advice}")
        if note:
            print(note)
