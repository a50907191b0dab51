"""How the loops are compiled: once, and kept on disk where that is possible.

The kept code is a convenience. A read-only or full disk and damaged files cost a compilation in
each process and one line, never the result.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from snaps.errors import SnapsError, warn

try:
    import numba
    from llvmlite import ir
    from numba import njit, types
    from numba.core import cgutils
    from numba.core.runtime.nrt import rtsys
    from numba.extending import intrinsic
except ValueError as error:
    given = [f"{name}={os.environ[name]}" for name in sorted(os.environ) if name[:6] == "NUMBA_"]
    raise SnapsError(
        f"the environment must have settings that Numba takes, got {' '.join(given)}: {error}"
    ) from error
if getattr(numba.config, "DISABLE_JIT", False):
    raise SnapsError(
        "NUMBA_DISABLE_JIT must be 0 or unset, "
        f"got {os.environ.get('NUMBA_DISABLE_JIT')}: loops must be compiled"
    )

__all__ = ["helper", "loop", "njit", "numba", "prefetch"]

_told: list[str] = []
_announced: list[bool] = []
# An entry for C, which is not used, would take a tenth of the time to compile.
_PLAIN: Any = {"nogil": True, "no_cfunc_wrapper": True}
_BYTE, _NUMBER = ir.IntType(8).as_pointer(), ir.IntType(32)
_KIND = ir.FunctionType(ir.VoidType(), [_BYTE, _NUMBER, _NUMBER, _NUMBER])


def loop(function: Callable[..., Any], **options: Any) -> Any:
    """Compile a loop over arrays, without the interpreter's lock."""
    options = _PLAIN | options
    try:
        compiled = njit(cache=True, **options)(function)
    except RuntimeError as error:  # there is no folder to keep it in
        _tell(error)
        return njit(**options)(function)
    held: Any = compiled
    held._cache = _Forgiving(held._cache)  # noqa: SLF001 - numba has no other door
    return compiled


def helper(function: Callable[..., Any]) -> Any:
    """Compile what loops alone call: an entry for Python would take a third of the time."""
    return loop(function, no_cpython_wrapper=True)


@intrinsic
def prefetch(typing: Any, array: Any, place: Any) -> Any:
    """Ask for the line of memory around a place of a flat array; nothing is read or changed."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        held = context.make_array(signature.args[0])(context, builder, values[0])
        address = builder.bitcast(builder.gep(held.data, [values[1]]), _BYTE)
        function = cgutils.get_or_insert_function(builder.module, _KIND, "llvm.prefetch.p0i8")
        read, stay, data = _NUMBER(0), _NUMBER(3), _NUMBER(1)
        builder.call(function, [address, read, stay, data])
        return context.get_dummy_value()

    return types.void(array, place), generate


class _Forgiving:
    """Numba's cache of one loop, whose failures are no failures of the loop."""

    def __init__(self, cache: Any):
        self._cache = cache

    def load_overload(self, signature: Any, context: Any) -> Any:
        kept = None
        try:
            # load_overload first loads all that compiling needs, half a second; kept code needs
            # the runtime alone.
            rtsys.initialize(context)
            load = getattr(self._cache, "_load_overload", self._cache.load_overload)
            kept = load(signature, context)
        except Exception as error:  # unpickling raises whatever flipped bits suggest
            _tell(error)
        if kept is None:
            _announce()
        return kept

    def save_overload(self, signature: Any, result: Any) -> None:
        try:
            self._cache.save_overload(signature, result)
        except Exception as error:
            _tell(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)


def _announce() -> None:
    """Say once, in a notebook too, why the first use takes longer; SNAPS_QUIET=1 keeps quiet."""
    if not _announced and sys.stderr is not None and os.environ.get("SNAPS_QUIET") != "1":
        line = "snaps: compiling on first use, about ten seconds; later uses start at once"
        print(line, file=sys.stderr, flush=True)
    _announced.append(True)


def _tell(error: Exception) -> None:
    """Say it once."""
    if not _told:
        _told.append(str(error))
        warn(
            f"compiled code cannot be kept ({type(error).__name__}): it is compiled again in each "
            "process; NUMBA_CACHE_DIR may name a folder for it"
        )
