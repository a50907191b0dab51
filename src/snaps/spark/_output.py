"""A folder of sets that Spark writes: it appears whole or not at all, as a file would."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from snaps.errors import SnapsError
from snaps.io.parquet import column_names
from snaps.spark._failures import explained
from snaps.spark._session import read_parquet


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
