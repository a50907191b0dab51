"""How the command line speaks: help in groups, and messages of the library in terms of options."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperCommand

# Groups of options, in the order in which they are shown; the others come first.
METHOD, PROMISE, SEARCH = "Method", "Coverage", "Similar nodes"
SAVED, INPUT, RESOURCES = "Go on with a saved predictor", "Input", "Resources"
_GROUPS = ("Options", METHOD, PROMISE, SEARCH, SAVED, INPUT, RESOURCES)


def option(
    text: str,
    *names: str,
    group: str | None = None,
    value: str | None = None,
    default: Any = None,
    **more: Any,
) -> Any:
    """An option with its help text, and its names if it is called otherwise or is a flag.

    `value` is what its value is called; `default` holds where that of the parameter is None.
    """
    text = text if default is None else f"{text}  [default: {default}]"
    metavar = None if value is None else f"<{value}>"
    return typer.Option(*names, help=text, metavar=metavar, rich_help_panel=group, **more)


def argument(text: str, name: str) -> Any:
    """An argument with its help text, and its name."""
    return typer.Argument(help=text, metavar=name)


class Command(TyperCommand):
    """A command whose help lists its options in groups."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Arguments that must be given stand without braces."""
        return [
            re.sub(r"\{([^{}]*)\}", r"\1", piece) for piece in super().collect_usage_pieces(ctx)
        ]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then options by group."""
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", *_GROUPS)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                argued = parameter.param_type_name == "argument"
                group = getattr(parameter, "rich_help_panel", None) or "Options"
                sections["Arguments" if argued else group].append(record)
        for name, records in sections.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


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
