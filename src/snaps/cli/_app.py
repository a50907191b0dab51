"""The program: its commands, what is printed on errors, and exit codes."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from copy import copy
from importlib.metadata import entry_points
from typing import Annotated, Any, NoReturn

import typer

from snaps._version import __version__
from snaps.cli import interrupted
from snaps.cli._help import Command, in_options
from snaps.cli.check import check
from snaps.cli.datasets import app as datasets_app
from snaps.cli.demo import demo
from snaps.cli.evaluate import evaluate
from snaps.cli.labels import draw, label, plan, watch
from snaps.cli.predict import calibrate, predict
from snaps.cli.report import report
from snaps.cli.select import accept, select
from snaps.errors import SnapsError, SnapsWarning

app = typer.Typer(
    name="snaps",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Guaranteed prediction sets for node classifiers.",
    epilog="Start with: snaps demo",
    context_settings={"help_option_names": ["-h", "--help"]},
)
_EXAMPLES: dict[Callable[..., None], str] = {  # in the order of the help
    demo: "demo --out demo",
    check: "check mygraph --method pooled",
    predict: "predict mygraph --method pooled --out sets.parquet",
    calibrate: "calibrate mygraph --method pooled --out model.snaps",
    evaluate: "evaluate mygraph --splits 100 --alpha 0.05 --alpha 0.1",
    report: "report mygraph --method pooled --out report.html",
    select: "select mygraph --method pooled --label fraud --out list.csv",
    accept: "accept mygraph --method pooled --error 0.02 --out list.csv",
    plan: "plan --alpha 0.05 --within 0.01 --nodes 10000",
    draw: "draw mygraph --nodes 500 --out to_label.csv --seed 7",
    label: "label mygraph to_label.csv",
    watch: "watch model.snaps mygraph --labels audit.csv --alarm 0.01",
}
for _command, _example in _EXAMPLES.items():
    app.command(cls=Command, epilog=f"Example: snaps {_example}")(_command)
app.add_typer(datasets_app)


def add_commands() -> None:
    """The commands of other distributions, by their entry points: `reproduce` of the laboratory."""
    for entry in entry_points(group="snaps.commands"):
        entry.load()(app)


@app.command(
    hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def reproduce() -> None:
    """Make a table or figure of the paper (needs the laboratory)."""
    raise SnapsError(
        "'reproduce' must come from the laboratory, which is not installed: in a clone of the "
        "repository, pip install -c lab/constraints.txt -e lab"
    )


def _version(value: bool) -> None:
    if value:
        print(f"snaps {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback on errors.")] = False,
) -> None:
    pass


def _show_warning(message: Any, category: Any, *_: Any, **__: Any) -> None:
    print(f"snaps: note: {in_options(str(message))}", file=sys.stderr)


def run(arguments: list[str] | None) -> NoReturn:
    """Run a command; every error is one line on stderr and exit code 2 (1 if it is our fault)."""
    # Threads that wait for work should sleep: by default they spin, and processors with them.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    given = sys.argv[1:] if arguments is None else arguments
    if threading.current_thread() is threading.main_thread():
        _end_on_signals()
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"] or ["--help"]
    if given[0] in ("reproduce", "-h", "--help"):  # others need not wait for the look around
        add_commands()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # others' affairs
        warnings.simplefilter("default", SnapsWarning)
        warnings.showwarning = _show_warning
        finder: Any = _NoPandasForArrow()
        sys.meta_path.insert(0, finder)
        try:
            _prepare_streams()
            code = _with_command(given[0])(given, prog_name="snaps", standalone_mode=False)
            sys.stdout.flush()
        except BrokenPipeError:  # who read stdout has gone, as head does
            _forget_stdout()
            sys.exit(1)
        except Exception as error:
            if interrupted():  # which C code may turn into an error of its own
                sys.exit(130)
            if debug:
                traceback.print_exc()
            text, code = _explain(error, given)
            print("snaps:", " ".join(text.split()), file=sys.stderr)
        finally:
            sys.meta_path.remove(finder)
        sys.exit(code if isinstance(code, int) else 0)


def _with_command(name: str) -> typer.Typer:
    """The program with one command if that is known: typer prepares all, a fifth of a second."""
    named = [each for each in app.registered_commands if each.callback in _EXAMPLES]
    chosen = [each for each in named if getattr(each.callback, "__name__", "") == name]
    if not chosen:
        return app
    one = copy(app)
    one.registered_commands, one.registered_groups = chosen, []
    return one


class _NoPandasForArrow:
    """Hides pandas while pyarrow.dataset is imported, which looks for it: half a second.

    No command passes pyarrow anything of pandas; whoever else imports pandas finds it.
    """

    def find_spec(self, name: str, *_: Any) -> None:
        dataset = sys.modules.get("pyarrow.dataset")
        if name == "pandas" and dataset is not None and not hasattr(dataset, "dataset"):
            raise ModuleNotFoundError(name=name)


def _end_on_signals() -> None:
    """Who is asked to end, or loses the terminal, does as on Ctrl-C: what is half-written goes."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # not every system has both
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # as nohup asks
            signal.signal(number, lambda number, _: sys.exit(128 + number))


def _prepare_streams() -> None:
    """Any text can be printed; where nobody can read it, that is said."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")
    if sys.stdout is None:
        raise OSError(errno.EBADF, "it is closed")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _explain(error: Exception, given: list[str]) -> tuple[str, int]:
    """What to say of an error, and the exit code."""
    usage = getattr(error, "format_message", None)  # of typer's own errors
    if usage is not None or isinstance(error, SnapsError):
        text = _with_value(usage(), error) if usage else _with_options(str(error), given)
        return f"error: {text}", 2
    if isinstance(error, MemoryError):
        return f"error: there is not enough memory: {error}", 1
    # Files that cannot be read or written are told of where that happens.
    if isinstance(error, OSError) and error.filename is None:
        _forget_stdout()
        return f"error: cannot write to standard output: {error.strerror or error}", 2
    return f"unexpected {type(error).__name__}: {error} (--debug shows details)", 1


def _with_options(text: str, given: list[str]) -> str:
    """A complaint of the library, its parameters called as the options that were given."""
    text = in_options(text)
    options = {argument.partition("=")[0] for argument in given}
    named = re.match(r"'(\w+)'", text)
    option = "--" + named[1].replace("_", "-") if named else ""
    return f"'{option}'{text[named.end() :]}" if named and option in options else text


def _with_value(text: str, error: Exception) -> str:
    """A complaint of typer's, with the value, which pydantic tells it and some versions drop."""
    from snaps._checks import shown

    text = text.replace(": Value error, ", ": ")  # pydantic's own words
    errors = getattr(error.__cause__, "errors", None)
    value = errors()[0].get("input") if callable(errors) else None
    return f"{text}, got {shown(value)}" if value is not None and shown(value) not in text else text


def _forget_stdout() -> None:
    """Let what is still to be written go nowhere, or Python would complain when it ends."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
