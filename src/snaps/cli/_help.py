"""How the command line speaks: commands from functions, and messages in terms of options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, field, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click

# Groups of options, in the order in which they are shown; the others come first.
METHOD, PROMISE, SEARCH = "Method", "Coverage", "Similar nodes"
SAVED, INPUT, RESOURCES = "Go on with a saved predictor", "Input", "Resources"
_GROUPS = ("Arguments", "Options", METHOD, PROMISE, SEARCH, SAVED, INPUT, RESOURCES)


def option(
    text: str,
    *names: str,
    default: Any = None,
    required: bool = False,
    group: str = "Options",
    value: str | None = None,
    shown: Any = None,
    parser: Callable[[str], Any] | None = None,
) -> Any:
    """A default that makes an option of a command's parameter, or of a dataclass's field.

    `names` are for flags, and for options not called as their parameter; `value` is what the help
    calls the value, `shown` what it says of a default of None, and `parser` reads the value.
    """
    shown = shown if default is None else default
    text = text if shown is None else f"{text}  [default: {shown}]"
    about = {
        "help": text, "names": names, "group": group, "metavar": value and f"<{value}>",
        "parser": parser,
    }  # fmt: skip
    return field(default=MISSING if required else default, metadata=about)


def flag(text: str, name: str, group: str = "Options") -> Any:
    """An option without a value."""
    return field(default=False, metadata={"help": text, "names": (name,), "group": group})


def argument(text: str, name: str, default: Any = MISSING) -> Any:
    """The same for an argument."""
    about = {"help": text, "group": "Arguments", "metavar": name}
    return field(default=default, metadata=about)


class _Place(click.Path):
    """A path that is not empty: an unset variable of a shell must not mean the current folder."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value == "":
            self.fail("'' is not a path.", param, ctx)
        return super().convert(value, param, ctx)


class Command(click.Command):
    """A command from a function: options from its parameters, help from its docstring.

    A parameter that is a dataclass stands for the options that are its fields.
    """

    def __init__(self, function: Callable[..., Any], name: str | None, example: str):
        self._about: dict[str | None, Mapping[str, Any]] = {}
        groups, params = dict[str, Any](), list[click.Parameter]()
        for each in inspect.signature(function, eval_str=True).parameters.values():
            declared = {each.name: (each.annotation, each.default)}
            if is_dataclass(each.annotation):
                kind = groups[each.name] = each.annotation
                hints, own = get_type_hints(kind), vars(kind)["__annotations__"]
                inherited_last = sorted(fields(kind), key=lambda item: item.name not in own)
                declared = {item.name: (hints[item.name], item) for item in inherited_last}
            for option_name, (annotation, about) in declared.items():
                self._about[option_name] = about.metadata
                params.append(_parameter(option_name, annotation, about))

        def run(**values: Any) -> None:
            for group, kind in groups.items():
                values[group] = kind(**{item.name: values.pop(item.name) for item in fields(kind)})
            function(**values)

        super().__init__(
            name or function.__name__,
            callback=run,
            params=params,
            help=inspect.getdoc(function),
            epilog=f"Example: snaps {example}",
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write arguments, then options by group."""
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in _GROUPS}
        for parameter in self.get_params(ctx):
            about = self._about.get(parameter.name, {"group": "Options"})
            if isinstance(parameter, click.Argument):
                needed = "  [required]" if parameter.required else ""
                sections["Arguments"].append((about["metavar"], about["help"] + needed))
            elif (record := parameter.get_help_record(ctx)) is not None:
                sections[about["group"]].append(record)
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


def _parameter(name: str, kind: Any, declared: Any) -> click.Parameter:
    """An option or argument of click."""
    about, required = declared.metadata, declared.default is MISSING
    if NoneType in get_args(kind):
        kind = next(each for each in get_args(kind) if each is not NoneType)
    several = get_origin(kind) is list
    (kind,) = get_args(kind) if several else (kind,)
    read, metavar = about.get("parser") or kind, about.get("metavar")
    if get_origin(kind) is Literal:
        read, metavar = click.Choice(get_args(kind)), f"<{'|'.join(get_args(kind))}>"
    elif kind is Path:
        read = _Place(path_type=Path)
    shared: dict[str, Any] = {"type": read, "required": required}
    if several:
        shared["callback"] = lambda _, __, values: list(values) or None
    if about["group"] == "Arguments":
        if several:
            shared["nargs"], metavar = -1, f"{metavar}..." if required else f"[{metavar}]..."
        return click.Argument([name], metavar=metavar, **shared)
    names = [name, *(about["names"] or (f"--{name.replace('_', '-')}",))]
    if kind is bool:
        return click.Option(names, is_flag=True, help=about["help"])
    if not required:
        shared["default"] = declared.default
    return click.Option(names, metavar=metavar, multiple=several, help=about["help"], **shared)


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
    (r"\bcalibrate\(\) again", "run 'snaps calibrate' again"),
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
