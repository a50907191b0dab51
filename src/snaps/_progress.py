"""Progress of long work, on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_shown: ContextVar[bool] = ContextVar("shown", default=False)
_recorded: ContextVar[dict[str, float] | None] = ContextVar("recorded", default=None)


@contextmanager
def recorded() -> Iterator[dict[str, float]]:
    """Within the block the seconds of all stages are added up, by name."""
    seconds: dict[str, float] = {}
    token = _recorded.set(seconds)
    try:
        yield seconds
    finally:
        _recorded.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """A stage of long work, whose time is recorded where that is asked for.

    Of stages within one another only the outer one counts.
    """
    seconds = _recorded.get()
    if seconds is None:
        yield
        return
    token = _recorded.set(None)
    begin = time.perf_counter()
    try:
        yield
    finally:
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - begin
        _recorded.reset(token)


@contextmanager
def shown() -> Iterator[None]:
    """Within the block all long work shows its progress: commands do, libraries are quiet."""
    token = _shown.set(True)
    try:
        yield
    finally:
        _shown.reset(token)


@contextmanager
def track(show: bool, label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function to be told how much was done; draws a bar with the time left if `show`.

    The work is a stage, named by the label's first word.
    """
    with stage(label.split()[0]), _bar(show, label, total) as advance:
        yield advance


@contextmanager
def _bar(show: bool, label: str, total: int) -> Iterator[Callable[[int], None]]:
    if not (show or _shown.get()):
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    if not console.is_terminal:  # a bar would leave an empty line behind
        yield lambda count: None
        return
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda count: progress.advance(task, count)
