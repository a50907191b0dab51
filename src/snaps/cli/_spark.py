"""`snaps predict --engine spark`: the same sets, made on a cluster."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from snaps._checks import shown
from snaps.cli._calibration import read_names
from snaps.cli._options import FolderOptions, MethodOptions
from snaps.cli._show import prediction, print_summary, provenance, rates
from snaps.drawing import check_drawn
from snaps.errors import SnapsError
from snaps.io.files import check_apart, check_output
from snaps.io.folders import CSV_FILES, check_folder, folder_files, open_folder
from snaps.spark import predict_sets
from snaps.spark._session import address, is_output, read_frames, session, set_sizes, staged

_LOCAL = (
    "--with", "--group-by", "--group-floor", "--chances", "--empty", "--weighted", "--missing",
    "--threshold", "--save", "--memory", "--recall", "--decide", "--otherwise",
)  # fmt: skip


def predict_on_spark(
    source: FolderOptions,
    how: MethodOptions,
    out: str,
    master: str | None,
    as_json: bool,
    given: Mapping[str, Any],
) -> None:
    """Write sets as a folder of part files, and say what was done.

    `given` are the options that were given; what only the local engine does is refused.
    """
    for name in _LOCAL:
        if given.get(name) is not None:
            raise SnapsError(f"'{name}' must be left out with --engine spark, got {given[name]}")
    if how.neighbours == "approximate":
        raise SnapsError(
            "'--neighbours' must be auto or exact with --engine spark, got approximate"
        )
    estimator, folder = how.estimator(), source.folder
    place = _check_places(folder, out)
    check_drawn(folder, None)
    names = None if source.classes is None else read_names(source.classes, integers=True)
    began = time.perf_counter()
    # Replaced once the session has ended: until then Spark may write, and the folder may change.
    with staged(place) as new, open_folder(folder), session(master) as spark:
        nodes, edges = read_frames(spark, folder)
        result = predict_sets(
            spark, nodes, edges, estimator, classes=names, logits=source.logits,
            titles=("nodes.parquet", "edges.parquet"),
        )  # fmt: skip
        result.write(address(new))
        sizes = set_sizes(spark, new)
    summary: dict[str, Any] = {
        "out": out,
        "engine": "spark",
        "method": type(estimator).__name__,
        "score": repr(result.score),
        "alpha": rates(estimator.alpha),
        **{
            name: value
            for name in ("class_floor", "confidence")
            if (value := getattr(estimator, name)) is not None
        },
        "seed": int(estimator.seed),
        "weights": result.weights,
        "threshold": np.asarray(result.threshold).tolist(),
        "calibration_nodes": len(result.calib_ids),
        "tuning_nodes": len(result.tune_ids),
        "classes": result.classes.tolist(),
        **sizes,
        **provenance({}),
        "seconds": {"total": time.perf_counter() - began},
        "peak_memory": None,  # it is the executors'
    }
    print_summary(summary, as_json, prediction(summary))


def _check_places(folder: Path, out: str) -> Path:
    """Where the sets will be, links followed, if folder and output suit Spark."""
    for name, path in (("FOLDER", str(folder)), ("--out", out)):
        if re.match("[A-Za-z][A-Za-z0-9+.-]+:/", path) and not os.path.exists(path):
            raise SnapsError(
                f"'{name}' must be a path of this machine, got {shown(path)}: for what is "
                "elsewhere, read DataFrames and call snaps.spark.predict_sets"
            )
    check_folder(folder)
    for name in CSV_FILES:
        if os.path.exists(folder / name):
            raise SnapsError(f"'--engine' must be local for a folder with {name}, got spark")
    # A folder that an earlier run wrote is replaced, as a file would be.
    place = Path(os.path.realpath(out))
    suffix = Path(out).suffix.lower() if is_output(place) else check_output(out, "--out")
    if suffix != ".parquet":
        raise SnapsError(f"'--out' must end in .parquet with --engine spark, got {shown(out)}")
    check_apart({"--out": out}, folder_files(folder))
    return place
