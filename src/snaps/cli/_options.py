"""The options that commands share, each declared once, and the estimator that they describe."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import click

from snaps.cli._help import INPUT, METHOD, PROMISE, SAVED, SEARCH, argument, option
from snaps.errors import SnapsError

if TYPE_CHECKING:
    from snaps.predictor.estimator import Estimator


class Method(StrEnum):
    """The names of estimators, and what they are called on the command line."""

    SNAPS = "snaps"
    Pooled = "pooled"
    DAPS = "daps"
    SplitConformal = "split"


class Score(StrEnum):
    """The names of scores, and what they are called on the command line."""

    APS = "aps"
    RAPS = "raps"
    SAPS = "saps"
    THR = "thr"


class Neighbours(StrEnum):
    AUTO = "auto"
    EXACT = "exact"
    APPROXIMATE = "approximate"


def read_alpha(text: str) -> Any:
    """A level, or 'class=level,class=level' as a mapping."""
    try:
        if "=" not in text:
            return float(text)
        pairs = [part.rpartition("=") for part in text.split(",")]
        rates = {name.strip(): float(rate) for name, _, rate in pairs}
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number, nor class=number,...") from None
    if len(rates) < len(pairs):
        raise click.BadParameter(f"{text!r} must name each class once")
    return rates


ALPHA = "Error rate: sets contain the true label with probability at least 1 - alpha"
Alpha = Annotated[
    Any,
    option(
        f"{ALPHA}; with --class-conditional also per class, as fraud=0.02,honest=0.1.",
        group=METHOD, value="rate", default=0.05, parser=read_alpha,
    ),
]  # fmt: skip
Seed = Annotated[int | None, option("Fixes every random draw.", value="number", default=0)]
AsJson = Annotated[bool, option("Print the result as JSON.", "--json")]
FolderArgument = Annotated[
    Path, argument("Graph folder: nodes and edges in Parquet or CSV.", "FOLDER")
]


Missing = Annotated[
    str | None,
    option("'drop' goes on without calibration nodes that are gone.", group=SAVED, value="drop"),
]
Threshold = Annotated[
    str | None,
    option("'keep' applies the saved threshold to another graph.", group=SAVED, value="keep"),
]


@dataclass(frozen=True)
class FolderOptions:
    """Which graph folder is read, and how."""

    folder: FolderArgument
    classes: Annotated[
        str | None,
        option(
            "Names of the columns of probs, separated by commas, in their order.",
            group=INPUT, value="names",
        ),
    ] = None  # fmt: skip
    weighted: Annotated[
        bool, option("Use the column weight of the edges.", "--weighted", group=INPUT)
    ] = False
    logits: Annotated[bool, option("The column probs holds logits.", "--logits", group=INPUT)] = (
        False
    )


@dataclass(frozen=True)
class SearchOptions:
    """How similar nodes are searched for."""

    k: Annotated[
        int | None, option("How many per node.", "--k", group=SEARCH, value="number", default=20)
    ] = None
    neighbours: Annotated[
        Neighbours | None,
        option("How to search; auto is exact where that is fast.", group=SEARCH, default="auto"),
    ] = None
    recall: Annotated[
        float | None,
        option(
            "Recall that an approximate search must reach.",
            group=SEARCH, value="share", default=0.95,
        ),
    ] = None  # fmt: skip
    candidates: Annotated[
        int | None,
        option(
            "Search exactly, among this many randomly sampled candidates.",
            group=SEARCH, value="number", default="all nodes",
        ),
    ] = None  # fmt: skip

    def search(self) -> dict[str, Any]:
        """What was asked of the search, as parameters of an estimator."""
        if self.recall is not None and (self.neighbours == "exact" or self.candidates is not None):
            other = "--neighbours exact" if self.candidates is None else "--candidates"
            raise SnapsError(
                f"'--recall' must be left out with {other}, which finds all, got {self.recall}"
            )
        values = {field.name: getattr(self, field.name) for field in fields(SearchOptions)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class MethodOptions(SearchOptions):
    """Which estimator is calibrated."""

    alpha: Alpha = None
    method: Annotated[
        Method | None, option("How scores are corrected.", group=METHOD, default="snaps")
    ] = None
    score: Annotated[
        Score | None, option("The basic score.", group=METHOD, default="aps; thr for pooled")
    ] = None
    weights: Annotated[
        str | None,
        option(
            "Fixed: 'lam,mu' for snaps, 'mu' for daps; or tune, minimum.",
            group=METHOD, value="numbers", default="tune",
        ),
    ] = None  # fmt: skip
    seed: Annotated[
        int | None,
        option("Fixes every random draw.", group=METHOD, value="number", default=0),
    ] = None
    class_conditional: Annotated[
        bool, option("A threshold per class.", "--class-conditional", group=PROMISE)
    ] = False
    class_floor: Annotated[
        float | None,
        option(
            "Cover at least this share of every class, next to 1 - alpha of all.",
            group=PROMISE, value="share",
        ),
    ] = None  # fmt: skip
    group_by: Annotated[
        str | None,
        option("A threshold per value of this column of the nodes.", group=PROMISE, value="column"),
    ] = None
    group_floor: Annotated[
        float | None,
        option(
            "With --group-by: one threshold, and at least this share of every group covered.",
            group=PROMISE, value="share",
        ),
    ] = None  # fmt: skip
    chances: Annotated[
        str | None,
        option(
            "Column with the chance of each node to be drawn for labelling; or edges.",
            group=PROMISE, value="column",
        ),
    ] = None  # fmt: skip
    confidence: Annotated[
        float | None,
        option(
            "Reach the coverage with this probability in this draw, not only on average.",
            group=PROMISE, value="share",
        ),
    ] = None  # fmt: skip

    def estimator(self) -> Estimator:
        """The estimator that the options describe, its parameters checked."""
        import snaps
        from snaps.predictor.estimator import method_of

        if self.group_floor is not None and self.group_by is None:
            raise SnapsError(f"'--group-floor' must go with --group-by, got {self.group_floor}")
        method = self.method or Method.SNAPS
        kind = getattr(snaps, method.name)
        takes = inspect.signature(kind).parameters
        for name, value in self.search().items():
            if name not in takes:
                raise SnapsError(
                    f"'--{name}' must be left out for method {method}, which looks for no similar "
                    f"nodes, got {value}"
                )
        arguments = {name: getattr(self, name, None) for name in takes}
        if self.score is not None:
            arguments["score"] = getattr(snaps, self.score.name)()
        if self.weights is not None:
            name = "weight" if method is Method.DAPS else "weights"
            arguments[name] = _weights(self.weights, method)
        given = {name: value for name, value in arguments.items() if value is not None}
        estimator: Estimator = kind(**given)
        method_of(estimator)
        return estimator


@dataclass(frozen=True)
class SavedOptions:
    """What to go on with."""

    using: Annotated[
        Path | None,
        option("What 'snaps calibrate' wrote.", "--with", group=SAVED, value="file"),
    ] = None
    missing: Missing = None
    threshold: Threshold = None


def _weights(text: str, method: Method) -> Any:
    """What an estimator takes for the option: a word, a number or a pair."""
    rules = {Method.SNAPS: (2, "two numbers 'lam,mu'"), Method.DAPS: (1, "one number 'mu'")}
    count, rule = rules.get(method, (0, ""))
    if count and text in ("tune", "minimum"):
        return text
    rule = f"{rule}, 'tune' or 'minimum'" if count else "left out"
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != count or count == 0:
        raise SnapsError(f"'--weights' must be {rule} for method {method}, got {text!r}")
    if not all(0 <= number <= 1 for number in numbers):  # which the library says of 'lam' and 'mu'
        raise SnapsError(f"'--weights' must lie from 0 to 1, got {text!r}")
    return tuple(numbers) if count > 1 else numbers[0]


def given_options(options: Any) -> dict[str, Any]:
    """The options that were given, by what they are called on the command line."""
    return {
        "--with" if field.name == "using" else f"--{field.name.replace('_', '-')}": value
        for field in fields(options)
        if (value := getattr(options, field.name)) != field.default
    }


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Make the fields of a command's dataclasses options of the command."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if is_dataclass(kind) and callable(kind)}
    parameters = list[inspect.Parameter]()
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            hints |= get_type_hints(groups[name], include_extras=True)
            own = inspect.get_annotations(groups[name])  # which come before inherited ones
            declared = inspect.signature(groups[name]).parameters.values()
            parameters += sorted(declared, key=lambda each: each.name not in own)
        else:
            parameters.append(parameter)

    @wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each.replace(annotation=hints[each.name], kind=each.KEYWORD_ONLY) for each in parameters]
    )
    return run
