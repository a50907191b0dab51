"""How the command line speaks: commands from functions, and messages in terms of options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import click

# Groups of options, in the order in which they are shown; the others come first.
METHOD, PROMISE, SEARCH = "Method", "Coverage", "Similar nodes"
SAVED, INPUT, RESOURCES = "Go on with a saved predictor", "Input", "Resources"
_GROUPS = ("Arguments", "Options", METHOD, PROMISE, SEARCH, SAVED, INPUT, RESOURCES)


@dataclass(frozen=True)
class Declared:
    """What the annotation of a command's parameter says about it, next to its type."""

    text: str
    names: tuple[str, ...] = ()
    group: str = "Options"
    metavar: str | None = None
    parser: Callable[[str], Any] | None = None


def option(
    text: str,
    *names: str,
    group: str = "Options",
    value: str | None = None,
    default: Any = None,
    parser: Callable[[str], Any] | None = None,
) -> Declared:
    """An option with its help text, and its names if it is called otherwise or is a flag.

    `value` is what its value is called, `parser` makes a value of its text, and `default` holds
    where that of the parameter is None.
    """
    text = text if default is None else f"{text}  [default: {default}]"
    return Declared(text, names, group, value and f"<{value}>", parser)


def argument(text: str, name: str) -> Declared:
    """An argument with its help text, and its name."""
    return Declared(text, group="Arguments", metavar=name)


class _Place(click.Path):
    """A path that is not empty: an unset variable of a shell must not mean the current folder."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value == "":
            self.fail("'' is not a path.", param, ctx)
        return super().convert(value, param, ctx)


class Command(click.Command):
    """A command from a function: parameters from its signature, help from its docstring.

    The help lists arguments, and options in groups.
    """

    def __init__(self, function: Callable[..., Any], name: str | None, example: str):
        parameters = inspect.signature(function, eval_str=True).parameters.values()
        self.declared: dict[str | None, Declared] = {
            each.name: get_args(each.annotation)[1] for each in parameters
        }
        super().__init__(
            name or function.__name__,
            callback=function,
            params=[_parameter(each) for each in parameters],
            help=inspect.getdoc(function),
            epilog=f"Example: snaps {example}",
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write arguments, then options by group."""
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in _GROUPS}
        for parameter in self.get_params(ctx):
            declared = self.declared.get(parameter.name)
            if isinstance(parameter, click.Argument) and declared is not None:
                needed = "  [required]" if parameter.required else ""
                sections["Arguments"].append((str(declared.metavar), declared.text + needed))
            elif (record := parameter.get_help_record(ctx)) is not None:
                sections[declared.group if declared else "Options"].append(record)
        for name, records in sections.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)

    def format_arguments(self, *_: Any) -> None:
        """Nothing: versions of click that know arguments in the help would list them twice."""


class Program(click.Group):
    """Commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def add(self, function: Callable[..., Any], example: str, name: str | None = None) -> None:
        """Add what a function does as a command."""
        self.add_command(Command(function, name, example))


def _parameter(parameter: inspect.Parameter) -> click.Parameter:
    """An option or argument from what a function says of a parameter."""
    kind, declared = get_args(parameter.annotation)
    if NoneType in get_args(kind):
        kind = next(each for each in get_args(kind) if each is not NoneType)
    several = get_origin(kind) is list
    if several:
        (kind,) = get_args(kind)
    read: Any = declared.parser or kind
    metavar = declared.metavar
    if get_origin(kind) is Literal:
        read, metavar = click.Choice(get_args(kind)), f"<{'|'.join(get_args(kind))}>"
    elif kind is Path:
        read = _Place(path_type=Path)
    required = parameter.default is parameter.empty
    shared: dict[str, Any] = {"type": read, "required": required, "metavar": metavar}
    if several:
        shared["callback"] = lambda _, __, values: list(values) or None
    if declared.group == "Arguments":
        if several:
            shared |= {"nargs": -1, "metavar": f"{metavar}..." if required else f"[{metavar}]..."}
        return click.Argument([parameter.name], **shared)
    names = declared.names or (f"--{parameter.name.replace('_', '-')}",)
    if kind is bool:
        return click.Option([parameter.name, *names], is_flag=True, help=declared.text)
    text = declared.text
    if not required:
        shared["default"] = parameter.default
        text += "" if parameter.default is None else f"  [default: {parameter.default}]"
    return click.Option([parameter.name, *names], multiple=several, help=text, **shared)


# Arguments of Python, and what users of the command line write instead.
_WORDS = (
    (r"\w+=[^ ,;:()]+ \((--[^)]+)\)", r"\1"),  # the library names both
    (r"pass these nodes as known_nodes \((role \w+)\)", r"give these nodes the \1"),
    (r"\w+=True or (--[\w-]+)", r"\1"),
    (r"\b(logits|weighted)=True", r"--\1"),
    (r"\b(missing|threshold)='(\w+)'", r"--\1 \2"),
    (r"\bpass alpha=", "pass --alpha "),
    (r"^'classes' must", "'--classes' must"),
    (r"^'labels' must", "column 'label' must"),
    (r"; if they number the columns, pass .*", ""),
    (r"where 'labels' are", "where labels are"),
    (r"\bcalibrate\(\) (?:anew|again)", "run 'snaps calibrate' again"),
    (r"\bcall calibrate\(\)", "run 'snaps calibrate'"),
)
_classes: list[str] = []


def name_classes(classes: Iterable[Any]) -> None:
    """Keep the names of the columns of probabilities, for messages that count them."""
    _classes[:] = map(str, classes)


def in_options(text: str) -> str:
    """A message of the library with options for arguments, and names for columns of classes."""
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)

    def named(column: re.Match[str]) -> str:
        place = int(column[1])
        return f"class {_classes[place]}" if place < len(_classes) else column[0]

    return re.sub(r"the class in column (\d+) of probs", named, text)
