"""Threads of our own around loops that release the interpreter's lock.

Numba's own threads don't survive a fork and must not be entered from two threads at once; these
live as long as a call, and small work is done without any.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import Any

_limit: ContextVar[int | None] = ContextVar("threads", default=None)


def num_threads() -> int:
    """How many threads to use: NUMBA_NUM_THREADS, else the processors that we may run on."""
    limit = _limit.get()
    if limit is not None:
        return limit
    told = os.environ.get("NUMBA_NUM_THREADS", "")
    if told.isdigit() and int(told) > 0:
        return int(told)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def limit_threads(count: int) -> Iterator[None]:
    """Use at most so many threads within the block; no result depends on it."""
    token = _limit.set(count)
    try:
        yield
    finally:
        _limit.reset(token)


def in_shares(loop: Callable[..., Any], count: int, least: int, *arguments: Any) -> None:
    """Call ``loop(first, last, *arguments)`` for shares of range(count), of at least `least` each.

    The loop must write to places of its own.
    """
    workers = min(num_threads(), count // max(least, 1))
    if workers <= 1:
        if count:
            loop(0, count, *arguments)
        return
    # Several shares per thread, so that none waits for a slow one at the end.
    shares = min(4 * workers, count // max(least, 1))
    edges = [count * i // shares for i in range(shares + 1)]
    with ThreadPoolExecutor(workers) as pool:
        done = [pool.submit(loop, first, last, *arguments) for first, last in pairwise(edges)]
        for each in done:
            each.result()
