"""What the library says, in the words of the command line: options and names of classes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

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
