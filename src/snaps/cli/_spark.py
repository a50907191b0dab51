"""`snaps predict --engine spark`: the same sets, made on a cluster."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snaps._estimators import Estimator


def refuse_local(options: Mapping[str, Any]) -> None:
    """Complain about what only the local engine does."""
    from snaps._errors import SnapsError

    for name, value in options.items():
        if value is not None:
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
    from snaps._manifest import folder_files, steady
    from snaps._parquet import check_folder
    from snaps.cli._provenance import provenance
    from snaps.cli._show import finite, print_prediction
    from snaps.sets import check_output
    from snaps.spark import predict_sets
    from snaps.spark._session import read_frames, session

    # A folder that an earlier run wrote is replaced, as a file would be.
    ours = os.path.exists(Path(out) / "_SUCCESS")
    if (Path(out).suffix.lower() if ours else check_output(out, "--out")) != ".parquet":
        raise SnapsError(f"'--out' must end in .parquet with --engine spark, got {shown(out)}")
    check_apart({"--out": out}, folder_files(folder))
    names = None if classes is None else [name.strip() for name in classes.split(",")]
    if names is not None and all(name.lstrip("-").isdigit() for name in names):
        names = [int(name) for name in names]  # type: ignore[misc]
    with session(master) as spark, steady(check_folder(folder)):
        nodes, edges = read_frames(spark, folder)
        found = predict_sets(
            spark, nodes, edges, estimator, classes=names, logits=logits,
            titles=("nodes.parquet", "edges.parquet"),
        )  # fmt: skip
        _write(found, Path(out))
        told = _sizes(spark, out)
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
    }
    print_prediction(summary, as_json)


def _plain(threshold: Any) -> Any:
    import numpy as np

    return np.asarray(threshold).tolist()


def _write(found: Any, out: Path) -> None:
    """Part files in a folder that has its name once all of them are there."""
    from snaps._errors import SnapsError

    room = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.absolute().parent))
    try:
        found.write(str((room / "new").absolute()))
        if os.path.lexists(out):
            os.rename(out, room / "old")
        os.rename(room / "new", out)
    except OSError as error:
        raise SnapsError(f"cannot write '{out}': {error.strerror}") from error
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _sizes(spark: Any, out: str) -> dict[str, Any]:
    """How many sets there are, and how large they are."""
    from pyspark.sql import functions as F

    size = F.col("size")
    shares = [F.avg((size == n).cast("double")) for n in (1, 0)]
    row = spark.read.parquet(os.path.abspath(out)).agg(F.count("*"), F.avg(size), *shares).first()
    return dict(zip(("sets", "size", "singletons", "empty"), row, strict=True))
