"""Tables as text: on the terminal, as Markdown, CSV and JSON, and as one page of results."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from snaps._tables import print_table
from snaps.errors import SnapsError
from snaps.io.files import atomic_path, check_writable, parse_json
from snaps_lab.reproduce import catalogue, distances
from snaps_lab.reproduce.common import display, made_with

DPI = 110
AS_AUTHORS = "-as-authors"
# What else there is to say of surrogate features.
CHOSEN = {"cora_full": ", made in a way that was chosen with labels"}
# Columns that say what a row is about, wherever they open a table.
NAMES = (
    "model", "alpha", "dataset", "method", "parts", "varied", "tuning", "calibration", "label", "k",
    "same-label nodes", "order of time", "period",
)  # fmt: skip


def remarks(result: dict[str, Any]) -> list[str]:
    """What a reader must know of a table: how it was made, what is missing, what is odd."""
    out = []
    settings = result["settings"]
    if settings:
        line = made_with(settings)
        if settings["as_authors"]:
            line += ", as the authors did it"
        out.append(line + "; ± is the standard error over draws" * (result["table"] != "accuracy"))
    for name, notes in result["notes"].items():
        chosen = CHOSEN.get(name, "")
        out += [f"{display(name)}: {note}{chosen * ('surrogate' in note)}" for note in notes]
    if result["skipped"]:
        out.append("Not available: " + ", ".join(display(name) for name in result["skipped"]))
    module = catalogue.find(result["table"])
    return out + (module.remarks(result) if hasattr(module, "remarks") else [])


def terminal(result: dict[str, Any]) -> None:
    """Print a table to stdout."""
    header, rows = catalogue.find(result["table"]).layout(result)
    names = next((i for i, name in enumerate(header) if name not in NAMES), len(header))
    print_table(header, rows, names=names, title=result["title"])
    for line in remarks(result):
        print(line)


def markdown(result: dict[str, Any], pictures: str = ".") -> str:
    """A table as Markdown, with its remarks and its picture in the folder `pictures`."""
    module = catalogue.find(result["table"])
    header, rows = module.layout(result)
    lines = [f"## {_heading(result)}", ""]
    lines += [f"- {line}" for line in remarks(result)]
    if hasattr(module, "draw"):
        lines += ["", f"![{result['title']}]({pictures}/{stem(result)}.png)", "", module.CAPTION]
    lines += ["", _pipe(header), _pipe(["---"] * len(header)), *(_pipe(row) for row in rows), ""]
    return "\n".join(lines)


def _heading(result: dict[str, Any]) -> str:
    return f"{result['table']}: {result['title']}"


def stem(result: dict[str, Any]) -> str:
    """How a result's files are called."""
    return result["table"] + AS_AUTHORS * bool(result["settings"].get("as_authors"))


def _pipe(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def as_csv(result: dict[str, Any]) -> str:
    """The rows with all their numbers."""
    keys = list(dict.fromkeys(key for row in result["rows"] for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, keys, lineterminator="\n")
    writer.writeheader()
    writer.writerows(result["rows"])
    return text.getvalue()


def check_places(names: Iterable[str], folder: Path, page: Path | None) -> None:
    """Refuse a folder or page that cannot be written, before any work; nothing is made here."""
    if folder.is_dir():
        for name in names:
            check_writable(folder / f"{name}.json")
    elif os.path.lexists(folder):
        raise SnapsError(f"cannot write '{folder}': it is not a folder")
    else:
        missing = Path(os.path.abspath(folder))
        while not os.path.lexists(missing.parent):
            missing = missing.parent
        check_writable(missing)
    if page is not None:
        # What the folder lies in is there by the time that the page is written.
        whole, place = Path(os.path.abspath(folder)), Path(os.path.abspath(page)).parent
        if place.is_dir() or place not in (whole, *whole.parents):
            check_writable(page)


def write(result: dict[str, Any], folder: Path) -> list[Path]:
    """Write a table as .json, .csv and .md into a folder, and its picture as .png and .svg."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SnapsError(f"cannot write '{folder}': {error.strerror}") from error
    texts = {
        ".json": as_json(result, indent=1) + "\n",
        ".csv": as_csv(result),
        ".md": markdown(result),
    }
    paths = []
    for suffix, text in texts.items():
        path = folder / f"{stem(result)}{suffix}"
        with atomic_path(path) as temporary:
            temporary.write_text(text)
        paths.append(path)
    module = catalogue.find(result["table"])
    if hasattr(module, "draw"):
        paths += _write_picture(module.draw(result), folder, stem(result))
    return paths


def _write_picture(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write a figure as .png and .svg; the same numbers give the same files."""
    from matplotlib import rc_context

    paths = []
    for suffix in (".png", ".svg"):
        path = folder / f"{name}{suffix}"
        metadata = {"Date": None} if suffix == ".svg" else None
        with rc_context({"svg.hashsalt": name}), atomic_path(path) as temporary:
            figure.savefig(temporary, format=suffix[1:], dpi=DPI, metadata=metadata)
        paths.append(path)
    return paths


def as_json(value: Any, indent: int | None = None) -> str:
    """Results as JSON, which knows neither NaN nor infinity: null stands for them."""
    return json.dumps(_rounded(value), indent=indent, allow_nan=False)


def _rounded(value: Any) -> Any:
    """Ten digits are more than any table shows, and keep files small."""
    if isinstance(value, float):
        return float(f"{value:.10g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return value


def page(folder: Path, path: Path) -> None:
    """Write one page of all the tables whose .json lie in a folder, a summary on top.

    A table that was also made as the authors did shows both.
    """
    results = []
    for name in catalogue.EXPERIMENTS:
        result, theirs = (_read(folder, name, kind) for kind in ("", AS_AUTHORS))
        if result is None:
            result, theirs = theirs, None
        if result is not None:
            results.append(result if theirs is None else {**result, "theirs": theirs})
    if not results:
        raise SnapsError(f"'{folder}' must hold results such as table1.json, got none")
    about = folder / "about.md"
    head = about.read_text() if about.exists() else "# Results\n"
    with atomic_path(path) as temporary:
        pictures = os.path.relpath(folder, path.parent)
        texts = [markdown(result, pictures) for result in results]
        temporary.write_text("\n".join([head, _summary(results), *texts]))


def _read(folder: Path, name: str, kind: str) -> dict[str, Any] | None:
    """A result, if the file is there; refused unless it can be shown."""
    source = folder / f"{name}{kind}.json"
    if not source.exists():
        return None
    try:
        result: dict[str, Any] = parse_json(source.read_bytes())
    except OSError as error:
        raise SnapsError(f"cannot read '{source}': {error.strerror}") from error
    except ValueError as error:
        raise SnapsError(f"cannot read '{source}': not valid JSON") from error
    try:
        if stem(result) == name + kind:
            markdown(result), _summary([result])
            return result
        why = None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        why = error
    raise SnapsError(f"cannot read '{source}': not a result of 'snaps reproduce {name}'") from why


def _summary(results: list[dict[str, Any]]) -> str:
    """The tables of the page, how many cells have the expected coverage, how many are near."""
    header = [
        "table", "cells", "coverage as expected", f"within {distances.NEAR} of the paper",
        "as the authors",
    ]  # fmt: skip
    lines = ["## All tables", ""]
    in_paper = {row["dataset"] for result in results for row in distances.published(result)}
    odd = dict.fromkeys(name for result in results for name in result["notes"] if name in in_paper)
    if odd:
        names = " and ".join(map(display, odd))
        note = (
            f"The last two columns leave out {names}, which is unlike the paper's: see its notes."
        )
        lines += [note, ""]
    lines += [_pipe(header), _pipe(["---"] * len(header))]
    for result in results:
        heading, theirs = _heading(result), result.get("theirs", {"rows": []})
        near_paper = [_near(each, result["notes"]) for each in (result, theirs)]
        link = f"[{heading}](#{anchor(heading)})"
        lines.append(_pipe([link, str(len(result["rows"])), _consistent(result), *near_paper]))
    return "\n".join([*lines, ""])


def _consistent(result: dict[str, Any]) -> str:
    """How many cells have the expected coverage; figure 3 keeps coverages apart from its scores."""
    rows = result["rows"]
    if not any("inside_law" in row for row in rows):
        rows = result["summary"] if isinstance(result.get("summary"), list) else []
    return _share([row["inside_law"] for row in rows if "inside_law" in row])


def _near(result: dict[str, Any], odd: Collection[str]) -> str:
    return _share([distances.near_paper(row) for row in distances.judged(result, odd)])


def _share(hits: list[bool]) -> str:
    return f"{sum(hits)} of {len(hits)}" if hits else ""


def anchor(heading: str) -> str:
    """The address of a heading within a page, as Markdown makes it."""
    kept = "".join(c for c in heading.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")
