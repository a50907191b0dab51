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
from importlib.metadata import entry_points
from typing import Any, NoReturn

import click

from snaps._version import __version__
from snaps.cli import interrupted
from snaps.cli._help import Program, in_options
from snaps.cli.check import check
from snaps.cli.datasets import datasets
from snaps.cli.demo import demo
from snaps.cli.evaluate import evaluate
from snaps.cli.labels import draw, label, plan, watch
from snaps.cli.predict import calibrate, predict
from snaps.cli.report import report
from snaps.cli.select import accept, select
from snaps.errors import SnapsError, SnapsWarning

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


def _show_completion(context: click.Context, _: Any, shell: str | None) -> None:
    if shell is not None:
        from click.shell_completion import shell_complete

        context.exit(shell_complete(context.command, {}, "snaps", COMPLETE, f"{shell}_source"))


COMPLETE = "_SNAPS_COMPLETE"  # the variable by which a shell asks for completions
app = Program(
    "snaps",
    help="Guaranteed prediction sets for node classifiers.",
    epilog="Start with: snaps demo",
    context_settings={"help_option_names": ["-h", "--help"]},
)
click.version_option(__version__, message="snaps %(version)s", help="Show the version.")(app)
click.option("--debug", is_flag=True, expose_value=False, help="Show a traceback on errors.")(app)
click.option(
    "--show-completion", type=click.Choice(["bash", "zsh", "fish"]), is_eager=True,
    expose_value=False, callback=_show_completion, metavar="<bash|zsh|fish>",
    help="Show what completes commands and options in a shell.",
)(app)  # fmt: skip
for _command, _example in _EXAMPLES.items():
    app.add(_command, _example)


@app.command(
    hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def reproduce() -> None:
    """Make a table or figure of the paper (needs the laboratory)."""
    raise SnapsError(
        "'reproduce' must come from the laboratory, which is not installed: in a clone of the "
        "repository, pip install -c lab/constraints.txt -e lab"
    )


app.add_command(datasets)


def add_commands() -> None:
    """The commands of other distributions, by their entry points: `reproduce` of the laboratory."""
    for entry in entry_points(group="snaps.commands"):
        entry.load()(app)


def _show_warning(message: Any, category: Any, *_: Any, **__: Any) -> None:
    print(f"snaps: note: {in_options(str(message))}", file=sys.stderr)


def run(arguments: list[str] | None) -> NoReturn:
    """Run a command: see `snaps.cli.main`."""
    # Threads that wait for work should sleep: by default they spin, and processors with them.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    given = sys.argv[1:] if arguments is None else arguments
    if threading.current_thread() is threading.main_thread():
        _end_on_signals()
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"] or ["--help"]
    if {"reproduce", "-h", "--help"} & set(given[:2]):  # reading entry points takes time
        add_commands()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other packages
        warnings.simplefilter("default", SnapsWarning)
        warnings.showwarning = _show_warning
        finder: Any = _NoPandasForArrow()
        sys.meta_path.insert(0, finder)
        try:
            _prepare_streams()
            code = _invoke(given)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader of stdout has ended, as head does
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
        sys.exit(code)


def _invoke(given: list[str]) -> int:
    """Run the program with these arguments."""
    if os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(app, {}, "snaps", COMPLETE, os.environ[COMPLETE])
    try:
        with app.make_context("snaps", given) as context:
            app.invoke(context)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    return 0


class _NoPandasForArrow:
    """Hide pandas while pyarrow.dataset is imported, which would take half a second for it.

    No command passes pandas objects to pyarrow; all other imports of pandas find it.
    """

    def find_spec(self, name: str, *_: Any) -> None:
        dataset = sys.modules.get("pyarrow.dataset")
        if name == "pandas" and dataset is not None and not hasattr(dataset, "dataset"):
            raise ModuleNotFoundError(name=name)


def _end_on_signals() -> None:
    """End as on Ctrl-C when asked to, or without a terminal: half-written files are removed."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # not every system has both
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # as nohup asks
            signal.signal(number, lambda number, _: sys.exit(128 + number))


def _prepare_streams() -> None:
    """Make any text printable; raise if standard output is closed."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")
    if sys.stdout is None:
        raise OSError(errno.EBADF, "it is closed")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _explain(error: Exception, given: list[str]) -> tuple[str, int]:
    """What to say of an error, and the exit code."""
    if isinstance(error, click.ClickException):
        return f"error: {error.format_message()}", 2
    if isinstance(error, SnapsError):
        return f"error: {_with_options(str(error), given)}", 2
    if isinstance(error, MemoryError):
        return f"error: there is not enough memory: {error}", 1
    # Files that cannot be read or written are named where that happens.
    if isinstance(error, OSError) and error.filename is None:
        _forget_stdout()
        return f"error: cannot write to standard output: {error.strerror or error}", 2
    return f"unexpected {type(error).__name__}: {error} (--debug shows details)", 1


def _with_options(text: str, given: list[str]) -> str:
    """A message of the library, its parameters called as the options that were given."""
    text = in_options(text)
    options = {argument.partition("=")[0] for argument in given}
    named = re.match(r"'(\w+)'", text)
    option = "--" + named[1].replace("_", "-") if named else ""
    return f"'{option}'{text[named.end() :]}" if named and option in options else text


def _forget_stdout() -> None:
    """Discard what is still to be written, or Python would print an error when it ends."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
