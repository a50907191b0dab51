"""What is asked of a cluster, its nodes and its edges, looked at once before any work."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import functions as F

from snaps._checks import plainly, warn_unfilled
from snaps.errors import SnapsError
from snaps.scores import LARGEST, LIBRARY, is_moderate
from snaps.scoring.parts import Beliefs, Mean, Own, Part, Probs
from snaps.spark._columns import CHECKED, Tables, checker


def check_edges(tables: Tables) -> tuple[int, bool]:
    """How many edges there are, and whether any links two nodes."""
    counts = tables.edges.select(
        F.count("*").alias("all"), F.count("src").alias("src"), F.count("dst").alias("dst"),
        F.count_if(F.col("src") != F.col("dst")).alias("apart"),
    )  # fmt: skip
    with tables.reading("src"):
        counts = counts.first()
    for name in ("src", "dst"):
        if counts[name] < counts["all"]:
            other = "dst" if name == "src" else "src"
            with tables.reading(name):
                row = tables.edges.where(F.col(name).isNull()).first()
            at = "null too" if row[other] is None else plainly(row[other])
            raise SnapsError(
                f"{tables.title(name)} must not be null, got null where {other} is {at}"
            )
    return int(counts["all"]), bool(counts["apart"])


def check_ends(tables: Tables, num_nodes: int) -> None:
    """Refuse an edge to a node that is not there, whether or not its scores are needed."""
    ids = tables.nodes.select("id")
    ends = tables.edges.select(F.explode(F.array("src", "dst")).alias("id")).distinct()
    with tables.reading():
        (lost,) = ends.join(ids, "id", "left_anti").agg(F.min("id")).first()
        if lost is None:
            return
        at_source = tables.edges.where(F.col("src") == lost).limit(1).count()
        if tables.nodes.count() != num_nodes:
            raise other_rows(tables.titles[0])
    raise SnapsError(
        f"{tables.title('src' if at_source else 'dst')} must name nodes of the graph, "
        f"got {plainly(lost)}"
    )


def other_rows(title: str) -> SnapsError:
    """A table that is not the same whenever it is read."""
    return SnapsError(
        f"{title} must give the same rows whenever it is read, got others the second time: "
        "persist or write it first"
    )


def check_nodes(tables: Tables, logits: bool) -> tuple[int, int, int]:
    """The number of nodes, of classes and of features."""
    title = tables.titles[0]
    with tables.reading():
        summary = (
            tables.nodes.mapInArrow(checker(title, logits, tables.classes), CHECKED)
            .agg(
                F.min("problem").alias("problem"),
                F.sum("zeros").alias("zeros"),
                *[f(name).alias(f"{f.__name__}_{name}") for f in (F.min, F.max)
                  for name in ("classes", "width")],
            )
            .first()
        )  # fmt: skip
    if summary["problem"]:
        raise SnapsError(summary["problem"])
    if summary["max_classes"] is None:
        raise SnapsError(f"{title} must hold at least one node, got none")
    for name, column in (("classes", "probs"), ("width", "features")):
        low, high = summary[f"min_{name}"], summary[f"max_{name}"]
        if low != high:
            with tables.reading():
                row = tables.nodes.where(F.size(column) == low).select("id").first()
            raise SnapsError(
                f"{tables.title(column)} must have lists of equal length ({high}), "
                f"got {low} for id {plainly(row['id'])}"
            )
    with tables.reading():
        again = tables.nodes.groupBy("id").count().where("count > 1").first()
        count = tables.nodes.count()
    if again is not None:
        raise SnapsError(
            f"{tables.title('id')} must be unique, got {plainly(again['id'])} twice or more"
        )
    if logits and summary["zeros"]:
        unfilled = tables.nodes.where(F.forall("probs", lambda value: value == 0))
        with tables.reading():
            (first,) = unfilled.agg(F.min("id")).first()
        warn_unfilled(summary["zeros"], count, "probs", f"for id {plainly(first)}")
    return count, int(summary["max_classes"]), int(summary["max_width"])


def check_fits(parts: Iterable[Part], num_classes: int) -> None:
    """Whether this engine makes these parts."""
    for part in parts:
        averaged = isinstance(part, Mean)
        while isinstance(part, Mean):
            part = part.of
        if isinstance(part, Own) and type(part.score) not in LIBRARY:
            raise SnapsError(
                f"'score' must be APS, RAPS, SAPS or THR on Spark, got {type(part.score).__name__}"
            )
        if averaged and isinstance(part, Own) and not is_moderate(part.score, num_classes):
            raise SnapsError(
                f"'score' must give scores of at most {LARGEST:g} to be averaged on Spark, "
                f"got {part.score!r} and {num_classes} classes"
            )
        if not isinstance(part, (Own, Probs, Beliefs)):
            raise SnapsError(f"'parts' must be among those that Spark makes, got {part!r:.40}")
