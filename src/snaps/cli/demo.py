"""`snaps demo`: a synthetic graph, a classifier, five methods side by side, a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from snaps.cli._help import option
from snaps.cli._options import ALPHA, AS_JSON, SEED
from snaps.errors import SnapsError

if TYPE_CHECKING:
    import numpy as np

TRAINING_NODES_A_CLASS = 20
SPLITS = 100
AREAS = ("biology", "chemistry", "history", "law", "medicine", "physics")


def demo(
    *,
    out: Path = option("Folder for the results.", default=Path("demo"), value="folder"),
    nodes: int = option("Nodes of the synthetic graph.", default=3000, value="number"),
    alpha: float = option(f"{ALPHA}.", default=0.05, value="rate"),
    seed: int | None = SEED,
    as_json: bool = AS_JSON,
) -> None:
    """Try it on a synthetic graph: methods compared, sets, report.

    A classifier is trained on the graph, and APS, RAPS, DAPS, SNAPS and Pooled are compared. Works
    offline. Writes a report to open in a browser (report.html), a picture (demo.png), the
    sets of Pooled (sets.parquet) and the graph as a folder that 'snaps predict' reads (graph/).
    """
    import numpy as np

    from snaps._checks import check_alpha, check_integer, check_seed
    from snaps._runtime.progress import track
    from snaps.cli._show import comparison_row, print_comparison, provenance
    from snaps.datasets import make_graph
    from snaps.estimators import methods
    from snaps.folder import write_folder
    from snaps.models import smoothed_regression
    from snaps.similarity import similarity_graph
    from snaps.splits import evaluate_splits

    seed = seed or 0
    check_alpha(alpha)
    check_seed(seed)
    check_integer(nodes, "nodes", low=200)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SnapsError(f"cannot write '{out}': {error.strerror}") from error
    with track(True, "Demo", 5) as advance:
        data = make_graph(
            nodes, num_classes=len(AREAS), homophily=0.7, degree=3.0, signal=1.5, seed=seed
        )
        graph, labels = data.graph, data.labels
        advance(1)

        order = np.random.default_rng(seed).permutation(nodes)
        by_class = [order[labels[order] == y] for y in range(data.num_classes)]
        train = np.concatenate([members[:TRAINING_NODES_A_CLASS] for members in by_class])
        pool = np.setdiff1d(np.arange(nodes), train)
        probs = smoothed_regression(graph, labels, train)
        accuracy = float((probs.argmax(axis=1) == labels)[pool].mean())
        advance(1)

        similarity = similarity_graph(graph.features, ids=graph.keys)
        advance(1)

        budget = min(1000, len(pool) // 2)
        compared = methods(("APS", "RAPS", "DAPS", "SNAPS", "Pooled"), alpha, seed=seed)
        evidence: dict[str, Any] = {"similarity": similarity, "known_nodes": train}
        results = evaluate_splits(
            compared, graph, probs, labels, pool, budget, SPLITS, seed, **evidence
        )
        advance(1)

        shuffled = np.random.default_rng(seed).permutation(pool)
        calib, test = shuffled[:budget], shuffled[budget:]
        roles = np.full(nodes, "", "U5")
        roles[train], roles[calib], roles[test] = "train", "calib", "test"
        named = np.array(AREAS)[labels]
        write_folder(out / "graph", graph, probs, named, roles, classes=list(AREAS))
        sizes = {}
        for name in ("APS", "SNAPS", "Pooled"):
            sets = (
                compared[name]
                .calibrate(graph, probs, named, calib, classes=list(AREAS), **evidence)
                .predict_set(test)
            )
            sizes[name] = sets.sizes
            if name == "Pooled":
                sets.to_parquet(out / "sets.parquet")
        draw(out / "demo.png", results, sizes, alpha)
        compared["Pooled"].report(
            out / "report.html", named, test, title="papers of a synthetic graph",
            source=f"snaps demo --nodes {nodes} --seed {seed}",
        )  # fmt: skip
        advance(1)
    rows = [comparison_row(alpha, name, result) for name, result in results.items()]
    print_comparison(rows, {**provenance({}), "seed": seed, "splits": SPLITS}, as_json)
    if not as_json:
        print(f"Classifier accuracy {accuracy:.3f} on {graph!r}")
        for name in ("report.html", "demo.png", "sets.parquet", "graph"):
            print(f"wrote {out / name}")
        again = f"snaps predict {out / 'graph'} --method pooled --alpha {alpha:g}"
        print(f"Next: {again} --out sets.parquet")


def draw(
    path: Path,
    results: dict[str, dict[str, np.ndarray]],
    sizes: dict[str, np.ndarray],
    alpha: float,
) -> None:
    """Coverage and size of each method over the splits, and how large the sets are."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from snaps.io.files import atomic_path

    colours = dict(
        zip(results, ("#999999", "#56B4E9", "#E69F00", "#0072B2", "#D55E00"), strict=True)
    )
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = axes = figure.subplots(1, 3)
    for axis, key in ((left, "coverage"), (middle, "size")):
        values = [result[key] for result in results.values()]
        boxes = axis.boxplot(values, widths=0.6, patch_artist=True, showfliers=False)
        for box, colour in zip(boxes["boxes"], colours.values(), strict=True):
            box.set_facecolor(colour)
        for line in boxes["medians"]:
            line.set_color("black")
        axis.set_xticks(range(1, len(results) + 1), list(results))
    left.axhline(1 - alpha, color="black", linewidth=1, linestyle="--")
    middle.set_ylim(bottom=0)
    top = max(int(each.max()) for each in sizes.values())
    for shift, (name, counts) in enumerate(sizes.items()):
        share = np.bincount(counts, minlength=top + 1) / len(counts)
        places = np.arange(top + 1) + 0.28 * (shift - 1)
        right.bar(places, share, width=0.28, label=name, color=colours[name])
    right.set_xticks(range(top + 1))
    right.legend(frameon=False)
    titles = (
        f"Coverage: {1 - alpha:g} is promised",
        "Mean size of the sets: small is good",
        "Share of sets by number of labels",
    )
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title, fontsize=11)
        axis.spines[["top", "right"]].set_visible(False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150, format="png")
