"""Graphs that live on a Spark cluster: the same sets as on one machine, to the last bit.

Parts of scores are made where the rows are; links cost a shuffle of sums. Tuning and threshold run
on the driver with the code of the estimators, on the rows of tuning and calibration nodes alone.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from snaps._checks import check_path, has, plainly, shown
from snaps._checks.classes import check_classes, encode_labels
from snaps.conformal.calibration import Calibration
from snaps.errors import SnapsError, require
from snaps.estimators import SNAPS
from snaps.folder import Folder, check_agreement, classes_of_columns, label_values
from snaps.graph import Graph
from snaps.io.parquet import texts
from snaps.predictor.estimator import Estimator, method_of
from snaps.predictor.predictor import level_for
from snaps.predictor.roles import Roles
from snaps.scores import Score
from snaps.scoring.evidence import Keys
from snaps.scoring.mixing import Mixing
from snaps.scoring.parts import Array, FittedScorer, Mean, Own, Part
from snaps.scoring.pooling import Pooling
from snaps.spark._failures import explained

__all__ = ["Prediction", "predict_sets"]

FITTING = ("own", "linked", "two_hop", "similar")
"""The parts of `Pooled` that a shuffle engine makes."""


@dataclass(frozen=True)
class Prediction:
    """Prediction sets on a cluster, and how they came about.

    Attributes
    ----------
    make : callable
        Makes the DataFrame of `sets` again.
    threshold : float, or array (K,) with class thresholds
    weights : dict of float
        What each part of the method weighs.
    score : Score
        Its parameters chosen.
    alpha : float
    classes : array (K,)
    calib_ids, tune_ids : arrays
        Nodes that calibrated and tuned.
    calib_scores : array
        The scores of calibration nodes' labels.
    num_nodes : int
    inputs : SparkInputs

    Examples
    --------
    >>> import snaps.spark
    >>> found = snaps.spark.predict_sets(spark, nodes, edges)  # doctest: +SKIP
    >>> found.sets.show()  # doctest: +SKIP
    """

    make: Callable[[], Any]
    threshold: Any
    weights: dict[str, float]
    score: Score
    alpha: float
    classes: np.ndarray
    calib_ids: np.ndarray
    tune_ids: np.ndarray
    calib_scores: np.ndarray
    num_nodes: int
    inputs: Any

    @cached_property
    def sets(self) -> Any:
        """A DataFrame with columns id, labels (by name) and size, a row for each node asked for.

        The work is done when it is used: write it once, and read what was written. What is kept
        on the executors for it goes with `close`, or at the end of a `with` block.

        Examples
        --------
        >>> import snaps.spark
        >>> with snaps.spark.predict_sets(spark, nodes, edges) as found:  # doctest: +SKIP
        ...     found.sets.show()
        """
        with explained("cannot make sets"):
            return self.make()

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the sets as Parquet, to a path that does not exist yet.

        Complaints of Spark and of its executors come as one line.

        Examples
        --------
        >>> import snaps.spark
        >>> found = snaps.spark.predict_sets(spark, nodes, edges)  # doctest: +SKIP
        >>> found.write("s3://bucket/sets.parquet")  # doctest: +SKIP
        """
        check_path(path)
        place = os.fspath(path)
        try:
            with explained(f"cannot write {shown(place)}"):
                self.sets.write.mode("errorifexists").parquet(place)
        finally:
            self.inputs.release()
            self.__dict__.pop("sets", None)  # who uses them again has them made again

    def close(self) -> None:
        """Free what is kept on the executors; `sets` cannot be used any more.

        Examples
        --------
        >>> import snaps.spark
        >>> with snaps.spark.predict_sets(spark, nodes, edges) as found:  # doctest: +SKIP
        ...     found.sets.show()
        """
        self.inputs.close()

    def __enter__(self) -> Prediction:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def predict_sets(
    spark: Any,
    nodes: Any,
    edges: Any,
    estimator: Estimator | None = None,
    *,
    classes: Any = None,
    logits: bool = False,
    titles: tuple[str, str] = ("'nodes'", "'edges'"),
) -> Prediction:
    """Prediction sets of nodes in a DataFrame.

    Parameters
    ----------
    spark : SparkSession
    nodes : DataFrame
        The columns of nodes.parquet (see `snaps.folder`): id, probs or p_<class>, label, role and
        features, here a list of numbers or a struct of indices and values. Nodes with role calib
        calibrate; role tune (else valid) tunes, or a part of the calibration nodes does. Sets are
        made for role test, else for every node that has no other use.
    edges : DataFrame
        With columns src and dst; either direction, duplicates and self loops are as good as none.
    estimator : Estimator, optional
        What to run, with its parameters; by default `SNAPS()`. Of `Pooled` the parts own, linked,
        two_hop and similar are made.
    classes : list of K names, optional
        What the columns of probabilities are called, when the labels alone don't tell.
    logits : bool
        Whether probs are logits.
    titles : pair of str
        What messages call nodes and edges.

    Returns
    -------
    Prediction

    Notes
    -----
    Both tables are read several times, and must give the same rows each time: persist or write
    first what is sampled or drawn again.

    Without `candidates`, similar nodes are searched for among all, which is for small graphs; a
    large one needs a number of candidates, the same on every engine.

    Examples
    --------
    >>> import snaps.spark
    >>> nodes = spark.read.parquet("s3://bucket/graph/nodes.parquet")  # doctest: +SKIP
    >>> edges = spark.read.parquet("s3://bucket/graph/edges.parquet")  # doctest: +SKIP
    >>> method = snaps.SNAPS(alpha=0.05, candidates=20_000)
    >>> found = snaps.spark.predict_sets(spark, nodes, edges, method)  # doctest: +SKIP
    """
    require("pyspark", "spark")
    from snaps.spark._columns import read_tables
    from snaps.spark._engine import SparkInputs, check_fits

    if not has(spark, "sparkContext"):
        raise SnapsError(
            "'spark' must be a SparkSession of this process, not one of Spark Connect, "
            f"got {type(spark).__name__}"
        )
    estimator = SNAPS() if estimator is None else estimator
    if not isinstance(estimator, Estimator):
        raise SnapsError(f"'estimator' must be one such as snaps.SNAPS(), got {shown(estimator)}")
    if getattr(estimator, "neighbours", None) == "approximate":
        raise SnapsError("'neighbours' must be 'auto' or 'exact' on Spark, got 'approximate'")
    method = method_of(estimator)
    scorer, alpha, evidence = method.scorer, method.alpha, method.uses_evidence
    tables = read_tables(nodes, edges, titles)
    inputs: Any = SparkInputs(spark, tables, logits)
    folder = _labelled(tables, inputs.num_classes, classes, scorer.needs_tuning, evidence)
    calib = _calibrating(folder, titles[0])
    tune, known = folder.tuning_and_known(evidence)
    roles = Roles.read(
        folder.graph,
        inputs.num_classes,
        folder.labels,
        calib,
        tune_nodes=tune if scorer.needs_tuning else None,
        known_nodes=known if evidence else None,
        classes=folder.classes,
        tune=alpha if scorer.needs_tuning else None,
        seed=method.seed,
    )
    method.warn_missing(inputs.has)
    if isinstance(scorer, Pooling):
        scorer = _fitting(scorer, inputs.has)
    elif isinstance(scorer, Mixing):  # before the work is done, not after
        own = Own(scorer.score, scorer.seed)
        over = [each for each in (scorer.similar, scorer.linked) if each is not None]
        check_fits([own, *(Mean(each, own) for each in over)], inputs.num_classes)
    inputs.ask_for(np.concatenate([roles.calib.ids, roles.tuning.ids]))
    (fitted,) = scorer.fit(inputs, roles.tuning, roles.known, [alpha])
    # What weighs nothing is not made.
    parts = {name: p for name, p in fitted.parts.items() if name == "own" or fitted.weights[name]}
    check_fits(parts.values(), inputs.num_classes)
    asks = [(part, roles.calib.keys) for part in parts.values()]
    rows = dict(zip(parts, inputs.rows(asks), strict=True))
    table = fitted.combine(rows, roles.calib.keys)
    labels = roles.calib.labels
    scores = table[np.arange(len(labels)), labels]
    calibration = Calibration(
        scores, labels, inputs.num_classes, by_class=method.class_conditional,
        promise=method.promise,
    )  # fmt: skip
    level = level_for(method.level, roles.classes)
    asked, test, count = _predicted(inputs)
    counts = None
    if method.promise.confidence is not None:
        counts = np.array([count if test else count - len(roles.known)])
    calibration.warn_few(level, roles.classes, (), counts)
    limits, used = calibration.limits(level, counts)[0], np.empty(0, np.uint64)
    if not test:
        used = np.concatenate([roles.calib.keys, roles.tuning.keys, roles.known.keys])
    sets = _sets(inputs, fitted, parts, limits, roles.classes, used, asked)
    return Prediction(
        sets,
        calibration.threshold(level, counts),
        {name: float(weight) for name, weight in fitted.weights.items()},
        fitted.score,
        float(alpha),
        roles.classes,
        roles.calib.ids,
        roles.tuning.ids,
        scores,
        inputs.num_nodes,
        inputs,
    )


def _labelled(tables: Any, num_classes: int, classes: Any, tuned: bool, evidence: bool) -> Folder:
    """The nodes whose labels are used, as if they were a folder of their own."""
    roles = ["calib", *(["tune"] if tuned else []), *(["train", "valid"] if evidence else [])]
    folder = _with_roles(tables, num_classes, classes, roles)
    if tuned and not evidence and folder.tuning_and_known()[0] is None:
        folder = _with_roles(tables, num_classes, folder.classes, ["calib", "valid"], known=True)
    return folder


def _with_roles(
    tables: Any, num_classes: int, classes: Any, roles: list[str], *, known: bool = False
) -> Folder:
    """The nodes with some roles; `known` classes need not be derived from the labels."""
    from pyspark.sql import functions as F

    from snaps.spark._batches import ids_of

    title = tables.title("label")
    with tables.reading():
        nodes = tables.nodes.where(F.col("role").isin(roles))
        table = nodes.select("id", "label", "role").toArrow()
    labels, missing = _values(table, title)
    if tables.classes is not None and not known:
        columns = classes_of_columns(tables.classes, labels.dtype.kind == "U")
        if classes is not None:
            given = check_classes(classes, len(columns)).tolist()
            check_agreement(sorted(map(str, given)), sorted(map(str, columns.tolist())))
        classes = columns
    names = classes if known else _class_names(tables, num_classes, classes, title)
    unknown: Any = "" if labels.dtype.kind == "U" else -1
    if missing.any() and unknown in names.tolist():
        row = table.column("id")[int(np.flatnonzero(missing)[0])].as_py()
        raise SnapsError(
            f"{title} must not be null where {shown(unknown)} is a class, got null for id {row}"
        )
    labels = np.where(missing, unknown, labels)
    ids = ids_of(table.column("id"))
    node_roles = texts(table.column("role").combine_chunks(), tables.title("role"))
    if "calib" not in node_roles:
        raise SnapsError(f"{tables.title('role')} must mark calibration nodes 'calib', got none")
    graph = Graph(None, num_nodes=len(ids), ids=ids)
    return Folder(graph, np.empty((len(ids), 0)), labels, names, node_roles)


def _values(table: Any, title: str) -> tuple[np.ndarray, np.ndarray]:
    """The labels of a table, and where there is none; a bad one is named by its id."""
    column = table.column("label").combine_chunks()

    def fails(rows: int) -> bool:
        try:
            label_values(column[:rows], title)
        except SnapsError:
            return True
        return False

    try:
        return label_values(column, title)
    except SnapsError as error:
        text = str(error)
        if text.startswith("'label'"):
            bad = bisect_left(range(1, len(column) + 1), True, key=fails)
            name = plainly(table.column("id")[bad].as_py())
            text = f"{title}{text.removeprefix(repr('label'))} for id {name}"
        if row := re.search(r" in row (\d+)$", text):
            name = plainly(table.column("id")[int(row[1])].as_py())
            text = f"{text[: row.start()]} for id {name}"
        raise SnapsError(text) from error


def _class_names(tables: Any, num_classes: int, classes: Any, title: str) -> np.ndarray:
    """The names of the classes, from the distinct labels of all nodes."""
    from pyspark.sql import functions as F

    table = tables.nodes.groupBy("label").agg(F.min("id").alias("id"))
    with tables.reading():
        table = table.orderBy("label").limit(num_classes + 1000).toArrow()
    labels, missing = _values(table, title)
    if labels.dtype.kind == "U":
        labels = labels.astype(object)
    known = labels[~missing]
    try:
        return encode_labels(
            known, num_nodes=len(known), num_classes=num_classes, classes=classes, name="label"
        )[1]
    except SnapsError as error:
        ids = np.array(table.column("id").to_pylist(), object)[~missing]
        text = re.sub(
            r" at node (\d+)", lambda at: f" for id {plainly(ids[int(at[1])])}", str(error)
        )
        raise SnapsError(text.replace("'label'", title)) from error


def _calibrating(folder: Folder, title: str) -> np.ndarray:
    """Positions of the calibration nodes, all of which must have a label."""
    calib = folder.nodes("calib")
    bare = calib[~folder.labelled[calib]]
    if bare.size:
        raise SnapsError(
            f"{title} column 'label' must be given where the role is calib, "
            f"got null for id {plainly(folder.graph.ids[bare[0]].item())}"
        )
    return calib


def _fitting(scorer: Pooling, has: frozenset[str]) -> Pooling:
    """The parts of `Pooled` that are made here."""
    if scorer.parts is None:
        available = {"own", *(["linked", "two_hop"] if "links" in has else [])}
        available |= {"similar"} & has
        return replace(scorer, parts=tuple(name for name in FITTING if name in available))
    others = [name for name in scorer.parts if name not in FITTING]
    if others:
        raise SnapsError(f"'parts' must be among {', '.join(FITTING)} on Spark, got {others[0]!r}")
    return scorer


def _predicted(inputs: Any) -> tuple[Any, bool, int]:
    """The nodes to predict, whether by their role (test), and how many they are."""
    from pyspark.sql import functions as F

    role = F.coalesce(F.col("role"), F.lit(""))
    with inputs.tables.reading():
        test = inputs.nodes.where(role == "test").limit(1).count() > 0
    asked, count = inputs.asked(role == "test" if test else ~role.isin("calib", "tune"))
    return asked, test, count


def _sets(
    inputs: Any, fitted: FittedScorer, parts: dict[str, Part], limits: np.ndarray,
    classes: np.ndarray, used: Keys, asked: Any,
) -> Callable[[], Any]:  # fmt: skip
    """Makes the sets of the nodes asked for, but those that are used otherwise."""
    import pyarrow as pa

    from snaps.io.writers import class_array, label_lists
    from snaps.spark._batches import keys_of

    names = class_array(classes)

    def finish(nodes: Any, rows: dict[Part, Array]) -> Iterator[Any]:
        keys = keys_of(nodes.column("id"))
        scores = fitted.combine({name: rows[part] for name, part in parts.items()}, keys)
        others = ~np.isin(keys, used)
        mask = (scores <= limits)[others]
        columns = {
            "id": pa.array(nodes.column("id")).filter(pa.array(others)),
            "labels": label_lists(mask, names),
            "size": pa.array(mask.sum(axis=1).astype(np.int32)),
        }
        yield pa.RecordBatch.from_pydict(columns)

    kind = {"int32": "int", "int64": "bigint"}.get(str(names.type), "string")
    schema = f"id {'string' if inputs.tables.text else 'long'}, labels array<{kind}>, size int"
    return lambda: inputs.all(list(parts.values()), finish, schema, asked)
