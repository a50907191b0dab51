"""Failures of Spark, in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

from snaps.errors import SnapsError

# What the Python of an executor says if it is not the one that the package is installed for.
_UNLIKE = re.compile(
    r"(?:ModuleNotFoundError: |\[PYTHON_VERSION_MISMATCH\] )"
    r"(No module named '(?:snaps|numpy|scipy|numba|pyarrow)\b.*|Python in worker .*)"
)
_OF_PROGRAMS = ("Traceback (most recent call last)", "[INTERNAL_ERROR")


@contextmanager
def explained(otherwise: str = "") -> Iterator[None]:
    """What executors raise as SnapsError, in its one line; other errors of Spark after `otherwise`.

    Errors of Python on executors stay as they are: mistakes of a program, which its trace shows.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        for line in text.splitlines():
            _, raised, message = line.partition("SnapsError: ")
            if raised:
                raise SnapsError(message) from error
        if unlike := _UNLIKE.search(text):
            raise SnapsError(
                "the package must be installed for the Python of the executors, which "
                f"PYSPARK_PYTHON or spark.pyspark.python names, got {unlike[1].rstrip('.')}"
            ) from error
        if otherwise and not any(each in text for each in _OF_PROGRAMS):
            raise SnapsError(f"{otherwise}: {reason(error)}") from error
        raise


def reason(error: BaseException) -> str:
    """The innermost cause that an error of Spark or Java names."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    named = [line for line in lines if re.match(r"(: )?[\w.$]+(Exception|Error)\b", line)]
    text = _bare(causes[-1] if causes else (named or lines or [type(error).__name__])[0])
    file = re.search(r"while reading file (.+?)\.(\s|$)", str(error))
    if file is None:
        return text
    # Files are named by the outermost error alone, columns of a damaged one by the last but one.
    if len(causes) > 1:
        text = f"{_bare(causes[-2])}: {text}"
    name = file[1].rpartition("/")[2]
    return text if name in text else f"{unquote(file[1]).removeprefix('file://')}: {text}"


def _bare(line: str) -> str:
    """A line of Java's without what means nothing to who reads it."""
    text = re.sub(r"^(Caused by: |: )+", "", line)
    text = re.sub(r"^([\w$]+\.)+(?=[\w$]+(Exception|Error))", "", text)  # of which package
    text = re.sub(r"^(\[[A-Z_.0-9]+\] )", "", text)
    # What follows is Spark's advice on calls that are ours.
    return re.sub(r"(\. Set mode as .*|\s*SQLSTATE: \w+)", "", text).rstrip(".")
