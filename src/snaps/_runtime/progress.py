"""Progress of long work, on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_shown: ContextVar[bool] = ContextVar("shown", default=False)
_clock: ContextVar[_Clock | None] = ContextVar("clock", default=None)


class _Clock:
    """The seconds of each stage; those of a stage within another count for the inner one alone."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._stage: str | None = None
        self._since = time.perf_counter()

    def turn_to(self, stage: str | None) -> str | None:
        """Begin or go on with a stage; which one it was until now."""
        now, before = time.perf_counter(), self._stage
        if before is not None:
            self.seconds[before] = self.seconds.get(before, 0.0) + now - self._since
        self._stage, self._since = stage, now
        return before


@contextmanager
def recorded() -> Iterator[dict[str, float]]:
    """Within the block the seconds of all stages are added up, by name."""
    clock = _Clock()
    token = _clock.set(clock)
    try:
        yield clock.seconds
    finally:
        _clock.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """A stage of long work, whose time is recorded where that is asked for.

    Of stages within one another the inner one counts, and the outer one for the rest.
    """
    clock = _clock.get()
    if clock is None:
        yield
        return
    outer = clock.turn_to(name)
    try:
        yield
    finally:
        clock.turn_to(outer)


@contextmanager
def shown() -> Iterator[None]:
    """Within the block all long work shows its progress: commands do, libraries are quiet."""
    token = _shown.set(True)
    try:
        yield
    finally:
        _shown.reset(token)


def quietly(count: int) -> None:
    """Progress that is not shown."""


@contextmanager
def track(show: bool, label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes how much was done; draws a bar with the time left if `show`.

    The work is a stage, named by the label's first word.
    """
    with stage(label.split()[0]), _bar(show, label, total) as advance:
        yield advance


@contextmanager
def _bar(show: bool, label: str, total: int) -> Iterator[Callable[[int], None]]:
    if not (show or _shown.get()):
        yield quietly
        return
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:  # a bar would leave an empty line behind
        yield quietly
        return
    columns = (
        "{task.description}", bars.BarColumn(), bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(), bars.TimeRemainingColumn(),
    )  # fmt: skip
    with bars.Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda count: progress.advance(task, count)
