"""The commands, a file each. Results go to stdout or --out, progress and notes to stderr.

Nothing is imported here that takes time: from the first moment on, Ctrl-C ends quietly.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from typing import Any, NoReturn

_interrupts: list[int] = []


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command; every error is one line on stderr and exit code 2 (1 if it is our fault)."""
    _interrupts.clear()
    hook, handler = sys.unraisablehook, signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread()
    ours = ours and handler is signal.default_int_handler
    try:
        if ours:
            sys.unraisablehook = _unraisable
            signal.signal(signal.SIGINT, _interrupt)
        from snaps.cli._app import run

        run(arguments)
    except KeyboardInterrupt:
        sys.exit(130)
    except ImportError:
        if interrupted():
            sys.exit(130)
        raise
    finally:
        if ours:
            sys.unraisablehook = hook
            if signal.getsignal(signal.SIGINT) is _interrupt:  # a command that ends may ignore more
                signal.signal(signal.SIGINT, handler)


def _interrupt(number: int, frame: Any) -> NoReturn:
    _interrupts.append(number)
    raise KeyboardInterrupt


def _unraisable(args: Any) -> None:
    """Where Python drops Ctrl-C or the exit on a signal, as in callbacks, it is raised again."""
    dropped = args.exc_value
    if isinstance(dropped, KeyboardInterrupt):
        number: int = signal.SIGINT
    elif isinstance(dropped, SystemExit) and isinstance(dropped.code, int) and dropped.code > 128:
        number = dropped.code - 128  # of the signal
    else:
        sys.__unraisablehook__(args)
        return
    threading.Timer(0.01, _thread.interrupt_main, (number,)).start()  # once the callback has ended


def interrupted() -> bool:
    """Whether Ctrl-C was pressed, whatever became of the exception."""
    return bool(_interrupts)
