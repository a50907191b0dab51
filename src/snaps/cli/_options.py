"""The options that commands share, each declared once, and the estimator that they describe."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from snaps.cli._help import INPUT, METHOD, PROMISE, SAVED, SEARCH, argument, flag, option
from snaps.errors import SnapsError

if TYPE_CHECKING:
    from snaps.predictor.estimator import Estimator


METHODS = {"snaps": "SNAPS", "pooled": "Pooled", "daps": "DAPS", "split": "SplitConformal"}
_method, _promise = partial(option, group=METHOD), partial(option, group=PROMISE)
_search, _saved = partial(option, group=SEARCH), partial(option, group=SAVED)


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
SEED = option("Fixes every random draw.", value="number", shown=0)
AS_JSON = flag("Print the result as JSON.", "--json")
FOLDER = argument("Graph folder: nodes and edges in Parquet or CSV.", "FOLDER")
IF_MISSING = _saved("'drop' goes on without calibration nodes that are gone.", value="drop")
THRESHOLD = _saved("'keep' applies the saved threshold to another graph.", value="keep")


@dataclass(frozen=True)
class FolderOptions:
    """Which graph folder is read, and how."""

    folder: Path = FOLDER
    classes: str | None = option(
        "Names of the columns of probs, separated by commas, in their order.",
        group=INPUT, value="names",
    )  # fmt: skip
    weighted: bool = flag("Use the column weight of the edges.", "--weighted", INPUT)
    logits: bool = flag("The column probs holds logits.", "--logits", INPUT)


@dataclass(frozen=True)
class SearchOptions:
    """How similar nodes are searched for."""

    k: int | None = _search("How many per node.", value="number", shown=20)
    neighbours: Literal["auto", "exact", "approximate"] | None = _search(
        "How to search; auto is exact where that is fast.", shown="auto"
    )
    recall: float | None = _search(
        "Recall that an approximate search must reach.", value="share", shown=0.95
    )
    candidates: int | None = _search(
        "Search exactly, among this many randomly sampled candidates.",
        value="number", shown="all nodes",
    )  # fmt: skip

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

    alpha: Any = _method(
        f"{ALPHA}; with --class-conditional also per class, as fraud=0.02,honest=0.1.",
        value="rate", shown=0.05, parser=read_alpha,
    )  # fmt: skip
    method: Literal["snaps", "pooled", "daps", "split"] | None = _method(
        "How scores are corrected.", shown="snaps"
    )
    score: Literal["aps", "raps", "saps", "thr"] | None = _method(
        "The basic score.", shown="aps; thr for pooled"
    )
    weights: str | None = _method(
        "Fixed: 'lam,mu' for snaps, 'mu' for daps; or tune, minimum.", value="numbers", shown="tune"
    )
    seed: int | None = _method("Fixes every random draw.", value="number", shown=0)
    class_conditional: bool = flag("A threshold per class.", "--class-conditional", PROMISE)
    class_floor: float | None = _promise(
        "Cover at least this share of every class, next to 1 - alpha of all.", value="share"
    )
    group_by: str | None = _promise(
        "A threshold per value of this column of the nodes.", value="column"
    )
    group_floor: float | None = _promise(
        "With --group-by: one threshold, and at least this share of every group covered.",
        value="share",
    )
    chances: str | None = _promise(
        "Column with the chance of each node to be drawn for labelling; or edges.", value="column"
    )
    confidence: float | None = _promise(
        "Reach the coverage with this probability in this draw, not only on average.",
        value="share",
    )

    def estimator(self) -> Estimator:
        """The estimator that the options describe, its parameters checked."""
        import snaps
        from snaps.predictor.estimator import method_of

        if self.group_floor is not None and self.group_by is None:
            raise SnapsError(f"'--group-floor' must go with --group-by, got {self.group_floor}")
        method = self.method or "snaps"
        kind = getattr(snaps, METHODS[method])
        takes = inspect.signature(kind).parameters
        for name, value in self.search().items():
            if name not in takes:
                raise SnapsError(
                    f"'--{name}' must be left out for method {method}, which looks for no similar "
                    f"nodes, got {value}"
                )
        arguments = {name: getattr(self, name, None) for name in takes}
        if self.score is not None:
            arguments["score"] = getattr(snaps, self.score.upper())()
        if self.weights is not None:
            name = "weight" if method == "daps" else "weights"
            arguments[name] = _weights(self.weights, method)
        given = {name: value for name, value in arguments.items() if value is not None}
        estimator: Estimator = kind(**given)
        method_of(estimator)
        return estimator


@dataclass(frozen=True)
class SavedOptions:
    """What to go on with."""

    using: Path | None = _saved("What 'snaps calibrate' wrote.", "--with", value="file")
    missing: str | None = IF_MISSING
    threshold: str | None = THRESHOLD


def _weights(text: str, method: str) -> Any:
    """What an estimator takes for the option: a word, a number or a pair."""
    rules = {"snaps": (2, "two numbers 'lam,mu'"), "daps": (1, "one number 'mu'")}
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
