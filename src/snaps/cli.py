"""The commands: demo, predict, evaluate. Results go to stdout or --out, progress to stderr."""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from snaps.datasets.commands import app as datasets_app
from snaps.reproduce.commands import reproduce

if TYPE_CHECKING:
    from snaps._estimators import Estimator
    from snaps.advisor import Advice
    from snaps.folder import Folder

app = typer.Typer(
    name="snaps",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Guaranteed prediction sets for node classifiers.",
    epilog="Start with: snaps demo",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(datasets_app)
app.command(epilog="Example: snaps reproduce table1 --datasets cora_ml,citeseer")(reproduce)


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


class Goal(StrEnum):
    smallest = "smallest"
    singletons = "singletons"
    classes = "classes"
    sizes = "sizes"


class Engine(StrEnum):
    local = "local"


FolderArgument = Annotated[
    Path,
    typer.Argument(help="Graph folder with nodes.parquet and edges.parquet.", metavar="FOLDER"),
]
AlphaOption = Annotated[
    float, typer.Option(help="Miscoverage: sets hold the truth 1 - alpha often.")
]
SeedOption = Annotated[int, typer.Option(help="Fixes every random draw.")]
KOption = Annotated[int, typer.Option("--k", help="Number of similar nodes (SNAPS).")]
LogitsOption = Annotated[bool, typer.Option("--logits", help="The column probs holds logits.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def _version(value: bool) -> None:
    if value:
        from snaps import __version__

        print(f"snaps {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback on errors.")] = False,
) -> None:
    pass


@app.command(
    epilog="Example: snaps predict mygraph --alpha 0.05 --out sets.parquet",
)
def predict(
    folder: FolderArgument,
    out: Annotated[Path, typer.Option(help="Parquet file for the sets: id, labels, size.")],
    alpha: AlphaOption = 0.05,
    method: Annotated[Method, typer.Option(help="How scores are corrected.")] = Method.SNAPS,
    score: Annotated[
        ScoreName | None, typer.Option(help="The basic score; default: aps, thr for pooled.")
    ] = None,
    k: KOption = 20,
    weights: Annotated[
        str | None, typer.Option(help="Fixed weights: 'lam,mu' for snaps, 'mu' for daps.")
    ] = None,
    class_conditional: Annotated[
        bool, typer.Option("--class-conditional", help="A threshold for each class.")
    ] = False,
    save: Annotated[Path | None, typer.Option(help="Also save the calibrated estimator.")] = None,
    logits: LogitsOption = False,
    seed: SeedOption = 0,
    engine: Annotated[Engine, typer.Option(help="Where to compute.")] = Engine.local,
    as_json: JsonOption = False,
) -> None:
    """Write prediction sets for the nodes of a graph folder.

    Nodes with role calib calibrate; role tune (else valid) chooses the weights, or a part of the
    calibration nodes does. Sets are written for role test, else for every node that is neither
    calib nor tune. Method pooled takes the labels of roles train and valid as evidence, unless
    they tune, and writes no sets for them.
    """
    import numpy as np

    from snaps._errors import SnapsError
    from snaps._files import check_writable
    from snaps.folder import read_folder

    # Before the work is done, not after.
    for path in filter(None, (out, save)):
        check_writable(path)
    estimator = _estimator(method, score, alpha, k, weights, class_conditional, seed)
    with _status(f"Reading {folder}"):
        data = read_folder(folder)
    calib = data.nodes("calib")
    if calib.size == 0:
        raise SnapsError(
            "nodes.parquet column 'role' must mark calibration nodes 'calib', got none"
        )
    bare = calib[data.labels[calib] < 0]
    if bare.size:
        raise SnapsError(
            "nodes.parquet column 'label' must be given where the role is calib, "
            f"got null for id {data.graph.ids[bare[0]]}"
        )
    similarity = _similarity(data, method, k)
    with _status("Calibrating"):
        known = data.known_nodes if method is Method.POOLED else None
        estimator.calibrate(
            data.graph, data.probs, data.labels, calib, data.tune_nodes, similarity, logits,
            known_nodes=known,
        )  # fmt: skip
        asked = data.nodes("test")
        if asked.size == 0:
            used = np.concatenate([calib, data.nodes("tune"), estimator.known_nodes_])
            asked = np.setdiff1d(np.arange(data.graph.num_nodes), used)
        sets = estimator.predict_set(asked)
        sets.to_parquet(out)
        if save is not None:
            estimator.save(save)
    _print_prediction(_summary(estimator, data, sets, out), as_json)


@app.command(
    epilog="Example: snaps evaluate mygraph --splits 100 --alpha 0.05 --alpha 0.1",
)
def evaluate(
    folder: FolderArgument,
    splits: Annotated[int, typer.Option(help="Number of random calibration/test splits.")] = 100,
    alpha: Annotated[list[float] | None, typer.Option(help="Level; may be repeated.")] = None,
    calib: Annotated[
        int | None, typer.Option(help="Labels spent a split; default: as many as have role calib.")
    ] = None,
    goal: Annotated[
        Goal | None,
        typer.Option(
            help="Recommend a method: smallest sets, most singletons, balanced classes or sizes."
        ),
    ] = None,
    k: KOption = 20,
    logits: LogitsOption = False,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Compare all methods on many random splits of the labelled nodes of a folder.

    The pool is every labelled node whose role is calib, test or none. Methods with something to
    tune use role tune (else valid), or pay for tuning from the labels of a split. With --goal a
    method is recommended, from the tuning nodes alone: role tune (else valid), or the part of the
    calibration nodes that 'snaps predict' would tune on.
    """
    import numpy as np

    from snaps._checks import check_alpha, check_integer
    from snaps._errors import SnapsError
    from snaps._methods import COMPARED
    from snaps._methods import methods as named_methods
    from snaps.folder import read_folder
    from snaps.splits import evaluate_splits

    alphas = alpha or [0.05]
    for level in alphas:
        check_alpha(level)
    check_integer(splits, "--splits", low=1)
    methods = named_methods(COMPARED, k=k, seed=seed)
    for method in methods.values():
        method.scorer()
    with _status(f"Reading {folder}"):
        data = read_folder(folder)
    pool = np.flatnonzero((data.labels >= 0) & np.isin(data.roles, ("", "calib", "test")))
    if pool.size < 2:
        raise SnapsError(f"'{folder}' must have two labelled nodes to split, got {pool.size}")
    if calib is None:
        calib = int(np.isin(pool, data.nodes("calib")).sum())
        if not 0 < calib < pool.size:
            calib = min(1000, pool.size // 2)
    check_integer(calib, "--calib", low=1, high=pool.size - 1)
    similarity = _similarity(data, Method.SNAPS, k)
    rows: list[dict[str, Any]] = []
    with _bar("Evaluating", len(methods)) as advance:
        for name, method in methods.items():
            result = evaluate_splits(
                method,
                data.graph,
                data.probs,
                data.labels,
                pool,
                calib,
                splits,
                seed,
                similarity,
                tune_nodes=data.tune_nodes,
                known_nodes=data.known_nodes,
                alphas=alphas,
                logits=logits,
            )
            for i, level in enumerate(alphas):
                means = {key: float(np.mean(values[i])) for key, values in result.items()}
                rows.append({"alpha": level, "method": name, **means})
            advance(1)
    rows.sort(key=lambda row: alphas.index(row["alpha"]))
    advice = None if goal is None else _advice(data, goal, alphas[0], k, seed, similarity, logits)
    _print_comparison(rows, splits, as_json, advice)


def _advice(
    data: Folder, goal: Goal, alpha: float, k: int, seed: int, similarity: Any, logits: bool
) -> Advice:
    """A recommendation for a folder, without any label of a node that calibrates."""
    from snaps._checks import check_alpha
    from snaps._errors import SnapsError
    from snaps._roles import choose_tuning, tuning_share
    from snaps.advisor import advise

    tune = data.tune_nodes
    if tune is None:
        calib = data.nodes("calib")
        calib = calib[data.labels[calib] >= 0]
        share = tuning_share(len(calib), check_alpha(alpha))
        tune = calib[choose_tuning(data.graph.keys[calib], share, seed)]
    if tune.size == 0:
        raise SnapsError("'--goal' must have nodes of role tune, valid or calib to compare on")
    return advise(
        data.graph, data.probs, data.labels, tune, goal.value, alpha=alpha,
        known_nodes=data.known_nodes, similarity=similarity, logits=logits, k=k, seed=seed,
    )  # fmt: skip


@app.command(epilog="Example: snaps demo --out demo")
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("demo"),
    nodes: Annotated[int, typer.Option(help="Size of the made graph.")] = 3000,
    alpha: AlphaOption = 0.05,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Make a graph, train a classifier on it, and compare APS, RAPS, DAPS and SNAPS.

    Works offline. Writes a picture (demo.png), the sets of SNAPS (sets.parquet) and the graph as a
    folder that 'snaps predict' reads (graph/).
    """
    from snaps.demo import run

    with _bar("Demo", 5) as advance:
        result = run(out, num_nodes=nodes, alpha=alpha, seed=seed, advance=advance)
    _print_comparison(result.rows, result.splits, as_json)
    if not as_json:
        print(f"Classifier accuracy {result.accuracy:.3f} on {result.description}")
        for path in result.files:
            print(f"wrote {path}")
        print(f"Next: snaps predict {out / 'graph'} --alpha {alpha:g} --out sets.parquet")


def _estimator(
    method: Method,
    score: ScoreName | None,
    alpha: float,
    k: int,
    weights: str | None,
    class_conditional: bool,
    seed: int,
) -> Estimator:
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
    numbers = _numbers(weights, {Method.SNAPS: 2, Method.DAPS: 1}.get(method, 0), method)
    estimator: Estimator
    if method is Method.SNAPS:
        pair: Any = "tune" if numbers is None else tuple(numbers)
        estimator = snaps.SNAPS(alpha, k=k, weights=pair, **common)
    elif method is Method.POOLED:
        estimator = snaps.Pooled(alpha, k=k, **common)
    elif method is Method.DAPS:
        estimator = snaps.DAPS(alpha, weight="tune" if numbers is None else numbers[0], **common)
    else:
        estimator = snaps.SplitConformal(alpha, **common)
    estimator.scorer()
    return estimator


def _numbers(text: str | None, count: int, method: Method) -> list[float] | None:
    from snaps._errors import SnapsError

    if text is None:
        return None
    rule = {2: "two numbers 'lam,mu'", 1: "one number 'mu'", 0: "left out"}[count]
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != count or count == 0:
        raise SnapsError(f"'--weights' must be {rule} for method {method.value}, got {text!r}")
    return numbers


def _similarity(data: Folder, method: Method, k: int) -> Any:
    """The similarity graph with progress, for the methods that need it."""
    from snaps.similarity import similarity_graph

    if method not in (Method.SNAPS, Method.POOLED) or data.graph.features is None:
        return None
    return similarity_graph(data.graph.features, k, ids=data.graph.keys, progress=True)


def _summary(estimator: Estimator, data: Folder, sets: Any, out: Path) -> dict[str, Any]:
    import numpy as np

    sizes = sets.sizes
    summary: dict[str, Any] = {
        "out": str(out),
        "method": type(estimator).__name__,
        "score": repr(estimator.score_),
        "alpha": estimator.alpha,
        "weights": estimator.part_weights_,
        "threshold": np.asarray(estimator.threshold_).tolist(),
        "calibration_nodes": len(estimator.calib_nodes_),
        "tuning_nodes": len(estimator.tune_nodes_),
        "sets": len(sets),
        "size": float(sizes.mean()) if len(sets) else None,
        "singletons": float((sizes == 1).mean()) if len(sets) else None,
        "empty": float((sizes == 0).mean()) if len(sets) else None,
    }
    labelled = sets.nodes[data.labels[sets.nodes] >= 0]
    used = np.concatenate(
        [estimator.calib_nodes_, estimator.tune_nodes_, data.nodes("train", "valid")]
    )
    labelled = np.setdiff1d(labelled, used)
    if labelled.size:
        truth = estimator.evaluate(data.labels, labelled)
        summary |= {
            "labelled": int(labelled.size),
            "coverage": truth["coverage"],
            "coverage_interval": truth["coverage_interval"],
            "singleton_hit": truth["singleton_hit"],
        }
    return summary


def _print_prediction(summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(_finite(summary)))
        return
    size = summary["size"]
    weights = ", ".join(f"{name} {weight:.2f}" for name, weight in summary["weights"].items())
    print(f"{summary['method']} with {summary['score']}, alpha {summary['alpha']:g}")
    print(f"calibrated on {summary['calibration_nodes']} nodes, tuned on {summary['tuning_nodes']}")
    if summary["method"] != "SplitConformal":
        print(f"weights: {weights}")
    if size is not None:
        print(
            f"{summary['sets']} sets, mean size {size:.3f}, "
            f"{summary['singletons']:.1%} single labels, {summary['empty']:.1%} empty"
        )
    if "coverage" in summary:
        line = f"coverage {summary['coverage']:.4f} on {summary['labelled']} labelled nodes"
        if summary["coverage_interval"]:
            low, high = summary["coverage_interval"]
            line += f" (expected between {low:.4f} and {high:.4f})"
        print(line)
    print(f"wrote {summary['out']}")


def _print_comparison(
    rows: list[dict[str, Any]], splits: int, as_json: bool, advice: Advice | None = None
) -> None:
    if as_json:
        told: dict[str, Any] = {"splits": splits, "results": rows}
        if advice is not None:
            told["advice"] = {
                "goal": advice.goal,
                "method": advice.name,
                "runner_up": advice.runner_up,
                "reason": advice.reason,
                "results": advice.rows,
            }
        print(json.dumps(_finite(told)))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Means over {splits} random splits", title_justify="left")
    table.add_column("alpha", justify="right")
    table.add_column("method", no_wrap=True)
    for name in ("coverage", "size", "non-empty", "single hits", "calib", "test"):
        table.add_column(name, justify="right")
    best = {
        alpha: min(row["size"] for row in rows if row["alpha"] == alpha)
        for alpha in {row["alpha"] for row in rows}
    }
    for row in rows:
        table.add_row(
            f"{row['alpha']:g}",
            row["method"],
            f"{row['coverage']:.4f}",
            f"{row['size']:.3f}",
            f"{row['size_nonempty']:.3f}",
            f"{row['singleton_hit']:.1%}",
            f"{row['n_calib']:.0f}",
            f"{row['n_test']:.0f}",
            style="bold" if row["size"] == best[row["alpha"]] else None,
        )
    Console().print(table)
    if advice is not None:
        print(f"Recommended: {advice}")


def _finite(value: Any) -> Any:
    """JSON has no infinity: an infinite threshold becomes null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if (isinstance(value, float) and value in (float("inf"), float("-inf"))) or value != value:
        return None
    return value


def _status(text: str) -> Any:
    """A spinner on stderr while something runs, if there is somebody to see it."""
    from rich.console import Console

    return Console(stderr=True).status(text)


def _bar(label: str, total: int) -> Any:
    from snaps._progress import track

    return track(True, label, total)


def _show_warning(message: Any, category: Any, *_: Any, **__: Any) -> None:
    print(f"snaps: note: {message}", file=sys.stderr)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command; every error is one line on stderr and exit code 2 (1 if it is our fault)."""
    from snaps._errors import SnapsError, SnapsWarning

    # Threads that wait for work should sleep: by default they spin, and processors with them.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"] or ["--help"]
    with warnings.catch_warnings():
        warnings.simplefilter("default", SnapsWarning)
        warnings.showwarning = _show_warning
        try:
            code = app(given, prog_name="snaps", standalone_mode=False)
            sys.stdout.flush()
        except BrokenPipeError:  # who read stdout has gone, as head does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except Exception as error:
            if debug:
                traceback.print_exc()
            usage = getattr(error, "format_message", None)  # of typer's own errors
            if usage is not None or isinstance(error, SnapsError):
                text, code = f"error: {usage() if usage else error}", 2
            else:
                kind = type(error).__name__
                text, code = f"unexpected {kind}: {error} (--debug shows details)", 1
            print("snaps:", " ".join(text.split()), file=sys.stderr)
        sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
