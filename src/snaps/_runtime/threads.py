"""Threads of our own around loops that release the interpreter's lock.

Numba's own threads don't survive a fork and must not be entered from two threads at once; these
do and may be. Small work is done without any.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np

from snaps._runtime.progress import quietly

_limit: ContextVar[int | None] = ContextVar("threads", default=None)


def num_threads() -> int:
    """How many threads to use: NUMBA_NUM_THREADS, else the processors that we may run on."""
    limit = _limit.get()
    if limit is not None:
        return limit
    setting = os.environ.get("NUMBA_NUM_THREADS", "")
    if setting.isdigit() and int(setting) > 0:
        return int(setting)
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
    waiting = iter(list(pairwise(edges)))  # a list's iterator gives each share to one thread

    def work() -> None:
        for first, last in waiting:
            loop(first, last, *arguments)

    pool = _threads()
    others = [pool.submit(work) for _ in range(workers - 1)]
    work()
    for other in others:
        other.result()


def blocks(rows: np.ndarray, width: int) -> list[np.ndarray]:
    """Rows in pieces of so many."""
    return [rows[start : start + width] for start in range(0, len(rows), max(width, 1))]


@contextmanager
def single_products() -> Iterator[None]:
    """One thread per BLAS product within the block; one block within another costs nothing.

    Most libraries have one limit for the whole process: the first block to begin, in any thread,
    remembers what it was, and the last to end puts it back.
    """
    with _lock:
        if not _inside:
            _usual[:] = [(library, library.num_threads) for library in _libraries(len(sys.modules))]
        _inside.append(None)
        _allow_one()
    try:
        yield
    finally:
        with _lock:
            _inside.pop()
            if not _inside:
                _allow(_usual)


@lru_cache(1)
def _libraries(_modules: int) -> list[Any]:
    """The BLAS libraries of the process; looked for again once more modules are imported."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas").lib_controllers


def _allow(threads: list[tuple[Any, int]]) -> None:
    """Let each library use so many threads per product, whichever thread of ours asks for it."""
    for library, count in threads:
        # From 3.8 on threadpoolctl does nothing for threads other than the first that asked.
        release = getattr(library, "clear_controlling_thread", lambda **_: None)
        release(force=True)
        library.set_num_threads(count)
        release(force=True)


def _allow_one() -> None:
    """One thread per product; some libraries need the setting in each thread that has products."""
    _allow([(library, 1) for library, _ in _usual])


def in_blocks(
    work: Callable[[np.ndarray], None],
    rows: np.ndarray,
    most: int,
    advance: Callable[[int], None] = quietly,
    weight: int = 1,
) -> None:
    """Do the work for all rows, at most `most` at a time, with one thread per BLAS product.

    With all threads in each product, they would wait for one another. A row counts as progress by
    its weight.
    """
    workers = num_threads()
    shares = blocks(rows, min(most, len(rows) // (4 * workers) + 1))
    with single_products(), ThreadPoolExecutor(workers, initializer=_allow_one) as pool:
        for share, _ in zip(shares, pool.map(work, shares), strict=True):
            advance(len(share) * weight)


_pool: list[ThreadPoolExecutor] = []
_inside: list[None] = []  # an item for each block of `single_products`
_usual: list[tuple[Any, int]] = []  # BLAS libraries and their threads outside of these
_lock = Lock()


def _threads() -> ThreadPoolExecutor:
    """Threads that wait for work; starting them again would cost more than most of it."""
    with _lock:
        if not _pool:
            _pool.append(ThreadPoolExecutor(max(32, num_threads()), "snaps"))
        return _pool[0]


def _forget_threads() -> None:
    """A forked process has none of its parent's threads."""
    global _lock
    _lock = Lock()
    _pool.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
