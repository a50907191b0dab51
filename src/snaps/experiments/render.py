"""Tables as text: on the terminal, as Markdown, CSV and JSON, and as one page of results."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from snaps.datasets.registry import DATASETS
from snaps.errors import SnapsError
from snaps.experiments.tables import NAMES
from snaps.files import atomic_path

Cells = list[list[str]]

WIDTH = 130  # of a table that goes to a file or a pipe


def layout(result: dict[str, Any]) -> tuple[list[str], Cells]:
    """Header and rows of a table, as text."""
    if result["table"] == "accuracy":
        return _accuracy(result)
    if result["table"] == "datasets":
        return _datasets(result)
    header = [
        "alpha", "dataset", "method", "coverage", "size", "size, non-empty", "paper", "difference",
        "SH %", "paper SH %",
    ]  # fmt: skip
    rows = [_result_row(row, _display(row["dataset"])) for row in result["rows"]]
    rows += [_result_row(row, _average_label(row)) for row in result["averages"]]
    return header, rows


def _average_label(row: dict[str, Any]) -> str:
    left_out = ", ".join(_display(name) for name in row["without"])
    return f"Average of {row['datasets']}" + (f" without {left_out}" if left_out else "")


def _result_row(row: dict[str, Any], label: str) -> list[str]:
    paper = row.get("paper_size")
    difference = "" if paper is None else f"{row['size_nonempty'] / paper - 1:+.1%}"
    hit, paper_hit = row["singleton_hit"], row.get("paper_singleton_hit")
    outside = "" if row.get("inside_law", True) else " (outside the law)"
    return [
        f"{row['alpha']:g}",
        label,
        row["method"],
        f"{row['coverage']:.4f}{outside}",
        _with_error(row["size"], row.get("size_se")),
        _with_error(row["size_nonempty"], row.get("size_nonempty_se")),
        "" if paper is None else f"{paper:.2f}",
        difference,
        f"{100 * hit:.2f}",
        "" if paper_hit is None else f"{100 * paper_hit:.2f}",
    ]


def _accuracy(result: dict[str, Any]) -> tuple[list[str], Cells]:
    header = ["model", "dataset", "accuracy %", "paper %", "within two sd", "epochs", "CPU s"]
    rows = [
        [
            row["model"].upper(),
            _display(row["dataset"]),
            _with_error(100 * row["accuracy"], None if row["sd"] is None else 100 * row["sd"], 2),
            ""
            if row["paper_accuracy"] is None
            else _with_error(100 * row["paper_accuracy"], 100 * (row["paper_sd"] or 0), 2),
            {True: "yes", False: "no", None: ""}[row.get("within_two_sd")],
            f"{row['epochs']:.0f}",
            f"{row['cpu_seconds']:.1f}",
        ]
        for row in result["rows"]
    ]
    return header, rows


def _datasets(result: dict[str, Any]) -> tuple[list[str], Cells]:
    header = ["dataset", "nodes", "features", "edges", "classes", "homophily %", "as in the paper"]
    rows = []
    for row in result["rows"]:
        keys = ("nodes", "features", "edges", "classes")
        differ = [key for key in keys if row.get(f"paper_{key}", row[key]) != row[key]]
        told = "" if "paper_nodes" not in row else ", ".join(
            f"{key}: {row[f'paper_{key}']}" for key in differ
        ) or "yes"  # fmt: skip
        rows.append(
            [
                _display(row["dataset"]),
                *(str(row[key]) for key in keys),
                f"{100 * row['homophily']:.2f}",
                told,
            ]
        )
    return header, rows


def _display(name: str) -> str:
    return DATASETS[name].title if name in DATASETS else name


def _with_error(value: float, error: float | None, digits: int = 3) -> str:
    return f"{value:.{digits}f}" if error is None else f"{value:.{digits}f} ± {error:.{digits}f}"


def remarks(result: dict[str, Any]) -> list[str]:
    """What a reader must know of a table: how it was made, what is missing, what is odd."""
    out = []
    settings = result["settings"]
    if settings:
        line = f"{settings['draws']} draws of training nodes x {settings['splits']} splits"
        line += ", seed " + str(settings["seed"])
        if settings["as_authors"]:
            line += ", tuning set as the authors chose it"
        out.append(line + "; ± is the standard error over draws" * (result["table"] != "accuracy"))
    for name, notes in result["notes"].items():
        out += [f"{_display(name)}: {note}" for note in notes]
    if result["skipped"]:
        out.append("Not at hand: " + ", ".join(_display(name) for name in result["skipped"]))
    if "cpu_seconds" in result:
        spent = result["cpu_seconds"]
        conformal = spent["similarity"] + spent["conformal"]
        out.append(
            f"Processor time: training {spent['training']:.0f} s, conformal {conformal:.0f} s "
            f"(similarity graphs {spent['similarity']:.0f} s, methods and splits "
            f"{spent['conformal']:.0f} s): {conformal / max(spent['training'], 1e-9):.1%} of it"
        )
    if result["rows"] and "inside_law" in result["rows"][0]:
        inside = sum(row["inside_law"] for row in result["rows"])
        out.append(
            f"Mean coverage within four standard errors of the law: {inside} of "
            f"{len(result['rows'])} cells"
        )
    return out


def terminal(result: dict[str, Any]) -> None:
    """Print a table to stdout."""
    from rich.console import Console
    from rich.table import Table

    header, rows = layout(result)
    table = Table(title=result["title"], title_justify="left")
    for name in header:
        text = name in ("alpha", "dataset", "method", "model", "as in the paper")
        table.add_column(name, justify="left" if text else "right", no_wrap=text)
    for row in rows:
        table.add_row(*row)
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    console.print(table)
    for line in remarks(result):
        print(line)


def markdown(result: dict[str, Any]) -> str:
    """A table as Markdown, with its remarks."""
    header, rows = layout(result)
    lines = [f"## {result['table']}: {result['title']}", ""]
    lines += [f"- {line}" for line in remarks(result)]
    lines += ["", _pipe(header), _pipe(["---"] * len(header)), *(_pipe(row) for row in rows), ""]
    return "\n".join(lines)


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


def write(result: dict[str, Any], folder: Path) -> list[Path]:
    """Write a table as .json, .csv and .md into a folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SnapsError(f"cannot write '{folder}': {error.strerror}") from error
    texts = {
        ".json": json.dumps(_rounded(result), indent=1) + "\n",
        ".csv": as_csv(result),
        ".md": markdown(result),
    }
    paths = []
    for suffix, text in texts.items():
        path = folder / f"{result['table']}{suffix}"
        with atomic_path(path) as temporary:
            temporary.write_text(text)
        paths.append(path)
    return paths


def _rounded(value: Any) -> Any:
    """Ten digits are more than any table shows, and keep files small."""
    if isinstance(value, float):
        return float(f"{value:.10g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value


def page(folder: Path, path: Path) -> None:
    """Write one page of all the tables whose .json lie in a folder."""
    results = []
    for name in NAMES:
        source = folder / f"{name}.json"
        if source.exists():
            try:
                results.append(json.loads(source.read_text()))
            except ValueError as error:
                raise SnapsError(f"cannot read '{source}': not valid JSON") from error
    if not results:
        raise SnapsError(f"'{folder}' must hold results such as table1.json, got none")
    about = folder / "about.md"
    head = about.read_text() if about.exists() else "# Results\n"
    with atomic_path(path) as temporary:
        temporary.write_text("\n".join([head, *(markdown(result) for result in results)]))
