"""What Spark complains about, in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from snaps._errors import SnapsError


@contextmanager
def told(otherwise: str = "") -> Iterator[None]:
    """Complaints that executors raise, as the one line they are.

    Parameters
    ----------
    otherwise : str
        What goes before the reason of any other error of Spark, which else stays as it is.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        for line in str(error).splitlines():
            _, found, message = line.partition("SnapsError: ")
            if found:
                raise SnapsError(message) from error
        if otherwise:
            raise SnapsError(f"{otherwise}: {reason(error)}") from error
        raise


def reason(error: BaseException) -> str:
    """The innermost cause that an error of Spark or Java names."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    named = [line for line in lines if re.match(r"(: )?[\w.$]+(Exception|Error)\b", line)]
    text = causes[-1] if causes else (named or lines or [type(error).__name__])[0]
    text = re.sub(r"^(Caused by: |: )+", "", text)
    text = re.sub(r"^([\w$]+\.)+(?=[\w$]+(Exception|Error))", "", text)  # of which package
    text = re.sub(r"^(\[[A-Z_.0-9]+\] )", "", text)
    # What follows is Spark's advice on calls that are ours.
    return re.sub(r"(\. Set mode as .*|\s*SQLSTATE: \w+)", "", text).rstrip(".")
