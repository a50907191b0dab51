"""Starting Spark for a command, and reading a graph folder with it."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._checks import shown
from snaps._errors import SnapsError, require
from snaps._manifest import FEATURE_FILES
from snaps._parquet import Columns, read_features
from snaps.spark._told import reason

PATIENCE = 5.0  # seconds to wait for a master to answer


@contextmanager
def session(master: str | None = None) -> Iterator[Any]:
    """A Spark session of our own, stopped in the end."""
    pyspark = require("pyspark", "spark")
    check_java()
    if master is not None:
        _check_master(master)
    from pyspark.sql import SparkSession

    warnings.filterwarnings("ignore", "PySpark does not yet fully support", FutureWarning)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # The package brings a whole Spark; clusters within one machine ask where it is.
    os.environ.setdefault("SPARK_HOME", pyspark.__path__[0])
    quiet = f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}"
    os.environ.setdefault("SPARK_SUBMIT_OPTS", quiet)
    builder = SparkSession.builder.appName("snaps")
    builder = builder.config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
    if master is not None:
        builder = builder.master(master)
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # Java's errors have no one class
        named = "" if master is None else f" with '--master' {shown(master)}"
        raise SnapsError(f"Spark must start{named}, got {reason(error)}") from error
    try:
        yield spark
    finally:
        spark.stop()


def check_java() -> None:
    """Spark runs on Java: say so before it fails."""
    home = os.environ.get("JAVA_HOME")
    if home is not None and not os.path.exists(Path(home) / "bin" / "java"):
        raise SnapsError(f"JAVA_HOME must be the folder of a Java, got {shown(home)}")
    if home is None and shutil.which("java") is None:
        raise SnapsError("Spark needs Java 17 or newer, and there is none: install it")


def _check_master(master: str) -> None:
    """Whether this names a cluster that answers; Spark itself would try for minutes."""
    if master != "yarn" and not master.startswith(("local", "k8s://", "spark://")):
        raise SnapsError(
            f"'--master' must be yarn, or start with spark://, k8s:// or local, got {shown(master)}"
        )
    if not master.startswith("spark://"):
        return
    why = "no address"
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            why = "it must end in a port, such as spark://host:7077"
            continue
        try:
            socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
            return
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
    raise SnapsError(
        f"'--master' must be the address of a Spark master, got {shown(master)}: {why}"
    )


def address(path: Path) -> str:
    """A path of this machine for Spark, whose own file system may be another."""
    return f"file://{path.absolute()}"


def read_parquet(spark: Any, path: Path) -> Any:
    """A Parquet file of this machine, or a folder of them, as a DataFrame."""
    plain = re.sub(r"([][{}*?\\])", r"\\\1", address(path))  # a name, no pattern
    try:
        return spark.read.parquet(plain)
    except Exception as error:  # Java's errors have no one class
        raise SnapsError(f"cannot read '{path}': {reason(error)}") from error


def read_frames(spark: Any, root: Path) -> tuple[Any, Any]:
    """The nodes and edges of a graph folder as DataFrames.

    Features in a file beside the nodes go through the memory of the driver, once.
    """
    frames = []
    for name in ("nodes.parquet", "edges.parquet"):
        path = root / name
        if not os.path.exists(path):
            raise SnapsError(f"cannot read '{path}': no such file")
        frames.append(read_parquet(spark, path))
    nodes, edges = frames
    if any(os.path.exists(root / name) for name in FEATURE_FILES):
        nodes = nodes.join(_feature_frame(spark, root), "id")
    return nodes, edges


def _feature_frame(spark: Any, root: Path) -> Any:
    import pyarrow as pa

    columns = Columns(root / "nodes.parquet")
    ids = columns.ids("id")
    table = read_features(root, columns, len(ids))
    if not sp.issparse(table):
        values = pa.array(np.ascontiguousarray(table).reshape(-1))
        offsets = np.arange(len(ids) + 1) * table.shape[1]
        column: Any = pa.LargeListArray.from_arrays(pa.array(offsets), values)
    else:
        table = sp.csr_array(table)
        table.sum_duplicates()
        offsets = pa.array(table.indptr.astype(np.int64))
        indices = pa.LargeListArray.from_arrays(offsets, pa.array(table.indices.astype(np.int64)))
        values = pa.LargeListArray.from_arrays(offsets, pa.array(table.data))
        column = pa.StructArray.from_arrays([indices, values], ["indices", "values"])
    return spark.createDataFrame(pa.table({"id": pa.array(ids), "features": column}))
