"""`snaps predict --engine spark`: the same sets, made on a cluster."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snaps._base import Estimator


def refuse_local(options: Mapping[str, Any]) -> None:
    """Complain about what only the local engine does."""
    from snaps._errors import SnapsError

    for name, value in options.items():
        if name == "--neighbours":
            if value == "approximate":
                raise SnapsError(f"'{name}' must be auto or exact with --engine spark, got {value}")
        elif value is not None:
            raise SnapsError(f"'{name}' must be left out with --engine spark, got {value}")


def predict_on_spark(
    folder: Path,
    out: str,
    estimator: Estimator,
    master: str | None,
    classes: str | None,
    logits: bool,
    as_json: bool,
) -> None:
    """Write sets as a folder of part files, and say what was done."""
    from snaps._checks import shown
    from snaps._errors import SnapsError
    from snaps._files import check_apart
    from snaps._folder_files import CSV_FILES, check_folder, folder_files, open_folder
    from snaps.cli._options import read_names
    from snaps.cli._show import finite, print_prediction, provenance
    from snaps.sets import check_output
    from snaps.spark import predict_sets
    from snaps.spark._session import address, read_frames, session

    for name, path in (("FOLDER", str(folder)), ("--out", out)):
        _check_mounted(name, path)
    check_folder(folder)
    for name in CSV_FILES:
        if os.path.exists(folder / name):
            raise SnapsError(f"'--engine' must be local for a folder with {name}, got spark")
    # A folder that an earlier run wrote is replaced, as a file would be, where a link leads too.
    place = Path(os.path.realpath(out))
    ours = _is_ours(place)
    if (Path(out).suffix.lower() if ours else check_output(out, "--out")) != ".parquet":
        raise SnapsError(f"'--out' must end in .parquet with --engine spark, got {shown(out)}")
    check_apart({"--out": out}, folder_files(folder))
    names = None if classes is None else read_names(classes, integers=True)
    began = time.perf_counter()
    # Replaced once the session has ended: until then Spark may write, and the folder may change.
    with _staged(place) as new:
        with open_folder(folder), session(master) as spark:
            nodes, edges = read_frames(spark, folder)
            found = predict_sets(
                spark, nodes, edges, estimator, classes=names, logits=logits,
                titles=("nodes.parquet", "edges.parquet"),
            )  # fmt: skip
            found.write(address(new))
            told = _sizes(spark, new)
    summary: dict[str, Any] = {
        "out": out,
        "engine": "spark",
        "method": type(estimator).__name__,
        "score": repr(found.score),
        "alpha": found.alpha,
        "seed": int(estimator.seed),
        "weights": found.weights,
        "threshold": finite(_plain(found.threshold)),
        "calibration_nodes": len(found.calib_ids),
        "tuning_nodes": len(found.tune_ids),
        "classes": found.classes.tolist(),
        **told,
        **provenance({}),
        # The memory is the executors'.
        "seconds": {"total": time.perf_counter() - began},
        "peak_memory": None,
    }
    print_prediction(summary, as_json)


def _plain(threshold: Any) -> Any:
    import numpy as np

    return np.asarray(threshold).tolist()


def _check_mounted(name: str, path: str) -> None:
    """The command reads and writes what the file system of this machine shows."""
    from snaps._checks import shown
    from snaps._errors import SnapsError

    if re.match("[A-Za-z][A-Za-z0-9+.-]+:/", path) and not os.path.exists(path):
        raise SnapsError(
            f"'{name}' must be a path of this machine, got {shown(path)}: for what is elsewhere, "
            "read DataFrames and call snaps.spark.predict_sets"
        )


def _is_ours(out: Path) -> bool:
    """Whether this is a folder of sets that Spark wrote, and nothing else."""
    from pyarrow.parquet import read_schema

    if not os.path.exists(out / "_SUCCESS"):
        return False
    names = [name for name in os.listdir(out) if not name.endswith(".crc") and name != "_SUCCESS"]
    try:
        columns = [read_schema(out / name).names for name in names]
    except Exception:  # of whatever else may lie there
        return False
    return bool(columns) and all(each == ["id", "labels", "size"] for each in columns)


@contextmanager
def _staged(out: Path) -> Iterator[Path]:
    """A path to write part files to, which have the name of `out` once all of them are there."""
    # With the permissions of any folder: executors may run as another user.
    room = out.absolute().with_name(f".{out.name}.{secrets.token_hex(4)}")
    with _refused(out):
        room.mkdir()
    try:
        yield room / "new"
        with _refused(out):
            if os.path.lexists(out):
                os.rename(out, room / "old")
            os.rename(room / "new", out)
    finally:
        shutil.rmtree(room, ignore_errors=True)


@contextmanager
def _refused(out: Path) -> Iterator[None]:
    from snaps._errors import SnapsError

    try:
        yield
    except OSError as error:
        raise SnapsError(f"cannot write '{out}': {error.strerror}") from error


def _sizes(spark: Any, out: Path) -> dict[str, Any]:
    """How many sets there are, and how large they are."""
    from pyspark.sql import functions as F

    from snaps.spark._session import read_parquet
    from snaps.spark._told import told

    size = F.col("size")
    shares = [F.avg((size == n).cast("double")) for n in (1, 0)]
    with told(f"cannot read '{out}'"):
        row = read_parquet(spark, out).agg(F.count("*"), F.avg(size), *shares).first()
    return dict(zip(("sets", "size", "singletons", "empty"), row, strict=True))
