"""Spark for a command: starting it, reading a graph folder, and writing a folder of sets."""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from snaps._checks import shown
from snaps._checks.features import check_features
from snaps.errors import SnapsError, require
from snaps.folder import list_array
from snaps.io.folders import FEATURE_FILES, read_features
from snaps.io.parquet import Columns, column_names, is_text
from snaps.spark._failures import explained, reason

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
    with _ended_on_signals() as running:
        try:
            spark = builder.getOrCreate()
        except Exception as error:  # Java's errors have no one class
            named = "" if master is None else f" with '--master' {shown(master)}"
            why = reason(error)
            if "Java gateway process exited" in why:
                why += ": Spark 4 needs Java 17 or newer"
            raise SnapsError(f"Spark must start{named}, got {why}") from error
        running()
        try:
            yield spark
        except Exception:
            spark.stop()
            raise
        spark.stop()


@contextmanager
def _ended_on_signals() -> Iterator[Callable[[], None]]:
    """Whatever ends the command, such as Ctrl-C, ends the Java that it started, without a word.

    Java ignores Ctrl-C, one that is still starting would stay, and py4j logs what interrupts it.
    Ctrl-C exits: py4j would answer a KeyboardInterrupt by asking Java, which may fail. Gives a
    function to call when Spark runs: it has put a handler of its own in place, and has files to
    remove when it ends.
    """
    from pyspark import java_gateway

    started: list[Any] = []
    runs: list[bool] = []
    popen, disabled = vars(java_gateway)["Popen"], logging.root.manager.disable

    def start(*arguments: Any, **options: Any) -> Any:
        started.append(popen(*arguments, **options))
        return started[-1]

    before = signal.getsignal(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()

    def handle_interrupts() -> None:
        if in_main:
            ignored = before is signal.SIG_IGN
            signal.signal(
                signal.SIGINT,
                signal.SIG_IGN if ignored else lambda *_: sys.exit(128 + signal.SIGINT),
            )

    def running() -> None:
        handle_interrupts()
        runs.append(True)

    vars(java_gateway)["Popen"] = start
    logging.disable()
    handle_interrupts()
    try:
        yield running
    except Exception:
        logging.disable(disabled)
        raise
    except BaseException:
        sys.stderr = open(os.devnull, "w")  # threads of PySpark report that Java is gone
        for process in started:
            # Java that is asked to end while it starts reports that it cannot start.
            process.terminate() if runs else process.kill()
        for process in started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
            process.kill()
        raise
    else:
        logging.disable(disabled)
    finally:
        vars(java_gateway)["Popen"] = popen
        if in_main:
            signal.signal(signal.SIGINT, before)


def check_java() -> None:
    """Spark runs on Java: say so before it fails."""
    home = os.environ.get("JAVA_HOME")  # empty is as good as unset
    if home and not os.path.exists(Path(home) / "bin" / "java"):
        raise SnapsError(f"JAVA_HOME must be the folder of a Java, got {shown(home)}")
    if not home and shutil.which("java") is None:
        raise SnapsError("Spark needs Java 17 or newer, and there is none: install it")


def _check_master(master: str) -> None:
    """Whether this names a cluster that answers; Spark itself would try for minutes."""
    if master != "yarn" and not master.startswith(("local", "k8s://", "spark://")):
        raise SnapsError(
            f"'--master' must be yarn, or start with spark://, k8s:// or local, got {shown(master)}"
        )
    if master == "yarn":
        _check_hadoop()
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


def _check_hadoop() -> None:
    """YARN is found by its configuration; a script of the installation's own may set it, too."""
    home = os.environ.get("SPARK_CONF_DIR") or Path(os.environ.get("SPARK_HOME", "")) / "conf"
    names = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
    folders = {name: os.environ[name] for name in names if os.environ.get(name)}
    if not folders and not os.path.exists(Path(home) / "spark-env.sh"):
        raise SnapsError(
            "'--master' yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR, the folder of the cluster's "
            "configuration, got neither"
        )
    for name, folder in folders.items():
        if not os.path.isdir(folder):
            raise SnapsError(f"{name} must be the folder of a configuration, got {shown(folder)}")


def address(path: Path) -> str:
    """A path of this machine for Spark, whose own file system may be another."""
    return f"file://{path.absolute()}"


def read_parquet(spark: Any, path: Path, schema: Any = None, *, deep: bool = False) -> Any:
    """A Parquet file of this machine, or a folder of them, as a DataFrame.

    `deep` looks into folders whose names say nothing.
    """
    plain = re.sub(r"([][{}*?\\])", r"\\\1", address(path))  # a name, no pattern
    reader = spark.read if schema is None else spark.read.schema(schema)
    if deep:
        reader = reader.option("recursiveFileLookup", "true")
    try:
        return reader.parquet(plain)
    except Exception as error:  # Java's errors have no one class
        raise SnapsError(f"cannot read '{path}': {reason(error)}") from error


def _read_parts(spark: Any, path: Path) -> Any:
    """A Parquet file or a folder of them; parts may differ in what they leave out and in width.

    What the names of folders say has the type that the local engine gives it: Spark would take
    label=1.5 for a number, and label=2026-01-01 for a date.
    """
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    if not os.path.exists(path):
        raise SnapsError(f"cannot read '{path}': no such file")
    if not path.is_dir():
        return read_parquet(spark, path)
    columns = Columns(path)
    keys, unlike = columns.keys, columns.unlike_parts()
    frame = read_parquet(spark, path, deep=not keys)
    if len(unlike) < 2 and not keys:
        return frame
    schemas = [frame.schema, *(read_parquet(spark, Path(part)).schema for part in unlike)]
    fields: dict[str, Any] = {}
    for field in (field for schema in schemas for field in schema.fields):
        first = fields.setdefault(field.name, field)
        first.dataType = _wider(first.dataType, field.dataType)
    for name, kind in keys.items():
        fields[name] = StructField(name, StringType() if is_text(kind) else LongType())
    return read_parquet(spark, path, StructType(list(fields.values())), deep=not keys)


def _wider(first: Any, second: Any) -> Any:
    """The type that holds both, as far as Spark reads one as the other; else the first."""
    from pyspark.sql.types import ArrayType

    if isinstance(first, ArrayType) and isinstance(second, ArrayType):
        return ArrayType(_wider(first.elementType, second.elementType))
    names = [each.simpleString() for each in (first, second)]
    if names[0] == "void":
        return second
    for order in (("tinyint", "smallint", "int", "bigint"), ("float", "double")):
        if all(name in order for name in names):
            return max(first, second, key=lambda each: order.index(each.simpleString()))
    return first


def read_frames(spark: Any, root: Path) -> tuple[Any, Any]:
    """The nodes and edges of a graph folder as DataFrames.

    Features in a file of their own go through the memory of the driver, once.
    """
    nodes, edges = (_read_parts(spark, root / f"{name}.parquet") for name in ("nodes", "edges"))
    if any(os.path.exists(root / name) for name in FEATURE_FILES):
        nodes = nodes.join(_feature_frame(spark, root), "id")
    return nodes, edges


def _feature_frame(spark: Any, root: Path) -> Any:
    columns = Columns(root / "nodes.parquet")
    ids = columns.ids("id")
    # As the floats that the local engine makes of them: Spark has no half precision, no unsigned
    # integers and one byte order.
    table: Any = check_features(read_features(root, columns, len(ids)))
    if not sp.issparse(table):
        column: Any = list_array(np.ascontiguousarray(table))
    else:
        offsets = pa.array(table.indptr.astype(np.int64))
        indices = pa.LargeListArray.from_arrays(offsets, pa.array(table.indices.astype(np.int64)))
        values = pa.LargeListArray.from_arrays(offsets, pa.array(table.data))
        column = pa.StructArray.from_arrays([indices, values], ["indices", "values"])
    return spark.createDataFrame(pa.table({"id": pa.array(ids), "features": column}))


def is_output(out: Path) -> bool:
    """Whether this is a folder of sets that Spark wrote, and nothing else."""
    if not os.path.exists(out / "_SUCCESS"):
        return False
    names = [name for name in os.listdir(out) if not name.endswith(".crc") and name != "_SUCCESS"]
    columns = [column_names(out / name) for name in names]
    return bool(columns) and all(each == ["id", "labels", "size"] for each in columns)


@contextmanager
def staged(out: Path) -> Iterator[Path]:
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
    try:
        yield
    except OSError as error:
        raise SnapsError(f"cannot write '{out}': {error.strerror}") from error


def set_sizes(spark: Any, out: Path) -> dict[str, Any]:
    """How many sets there are, and how large they are."""
    from pyspark.sql import functions as F

    size = F.col("size")
    shares = [F.avg((size == n).cast("double")) for n in (1, 0)]
    with explained(f"cannot read '{out}'"):
        row = read_parquet(spark, out).agg(F.count("*"), F.avg(size), *shares).first()
    return dict(zip(("sets", "size", "singletons", "empty"), row, strict=True))
