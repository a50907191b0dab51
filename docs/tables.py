"""Write the pages of results from docs/results: python docs/tables.py

`snaps reproduce NAME --out docs/results` makes the numbers. This script gives every table a page in
docs/tables, with the averages on top and all rows folded, and fills the summary of docs/results.md.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from snaps_lab.reproduce import catalogue, distances, render

DOCS = Path(__file__).parent
METHODS = {"APS": "APS", "RAPS": "RAPS", "DAPS": "DAPS", "SNAPS": "SNAPS, as in the paper"}
NOTE = "<!-- Written by docs/tables.py from docs/results; do not edit. -->\n"


def read() -> list[dict[str, Any]]:
    """All results, each with the one made as the authors did, if there is one."""
    found = []
    for name in catalogue.EXPERIMENTS:
        path = DOCS / "results" / f"{name}.json"
        if path.exists():
            result = json.loads(path.read_text())
            theirs = path.with_name(f"{name}{render.AS_AUTHORS}.json")
            if theirs.exists():
                result["theirs"] = json.loads(theirs.read_text())
            found.append(result)
    return found


def table_page(result: dict[str, Any]) -> str:
    """A table's page: picture, averages, what to know of it, and all rows, folded."""
    lines = render.markdown(result, "../results").splitlines()
    notes = [line for line in lines if line.startswith("- ")]
    rows = [line for line in lines if line.startswith("|")]
    head, body = rows[:2], rows[2:]
    rest = [line for line in lines[1:] if line and line not in {*notes, *rows}]
    averages = [row for row in body if re.search(r"\| Averages? of", row)]
    text = [f"# {lines[0].removeprefix('## ')}", "", NOTE]
    text += [part for line in rest for part in (line, "")]
    if averages:
        text += ["## Averages", "", *head, *averages, ""]
    text += ["## What to know", "", *notes, ""]
    few = len(body) <= 20 and not averages
    fold = ["## Rows", ""] if few else [f"<details><summary>All {len(body)} rows</summary>", ""]
    text += [*fold, *head, *body, ""]
    return "\n".join([*text, *([] if few else ["</details>", ""])])


def cells(result: dict[str, Any]) -> tuple[int, int]:
    """In how many cells mean coverage is consistent with its distribution, and of how many."""
    rows = result["rows"]
    if not any("inside_law" in row for row in rows):
        rows = result["summary"] if isinstance(result.get("summary"), list) else []
    inside = [row["inside_law"] for row in rows if "inside_law" in row]
    return sum(inside), len(inside)


def near(result: dict[str, Any], odd: Any) -> tuple[int, int]:
    """In how many cells the size matches the paper's, and of how many."""
    hits = [distances.near_paper(row) for row in distances.judged(result, odd)]
    return sum(hits), len(hits)


def averages() -> list[str]:
    """Labels per set and coverage, mean of the seven graphs with their own features."""
    lines = ["| method | labels per set at 95 % | at 90 % | coverage at 95 % | at 90 % |"]
    lines.append("|---|---|---|---|---|")
    found: dict[tuple[str, float], dict[str, Any]] = {}
    for name in ("table1", "gcn-0.1", "pooled"):
        for row in json.loads((DOCS / "results" / f"{name}.json").read_text())["averages"]:
            shown = METHODS.get(row["method"]) if name != "pooled" else row["method"]
            if shown and row["datasets"] == 7 and (name != "pooled" or shown == "Pooled"):
                found[shown, row["alpha"]] = row
    for shown in (*METHODS.values(), "Pooled"):
        both = [found[shown, alpha] for alpha in (0.05, 0.1)]
        numbers = [f"{row['size']:.2f}" for row in both] + [f"{r['coverage']:.3f}" for r in both]
        lines.append(f"| {shown} | {' | '.join(numbers)} |")
    return lines


def summary(results: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Two sentences about all cells, and the list of tables with theirs."""
    lines = [
        "| table | cells | coverage as expected | size matches the paper | run as the authors |"
    ]
    lines.append("|---|---|---|---|---|")
    totals = [[0, 0], [0, 0], [0, 0]]
    for result in results:
        theirs = result.get("theirs", {"rows": []})
        counts = (cells(result), near(result, result["notes"]), near(theirs, result["notes"]))
        for total, count in zip(totals, counts, strict=True):
            total[0], total[1] = total[0] + count[0], total[1] + count[1]
        shown = [f"{hits} of {of}" if of else "" for hits, of in counts]
        link = f"[{result['table']}: {result['title']}](tables/{result['table']}.md)"
        lines.append(f"| {link} | {len(result['rows'])} | {' | '.join(shown)} |")
    (lawful, all_cells), (ours, papers), (authors, theirs_too) = totals
    said = [
        f"**Coverage.** Mean coverage lies within four standard errors of its exact distribution "
        f"in {lawful:,} of {all_cells:,} cells (table, graph, method, level).",
        f"**The paper.** Our set sizes match the published ones (within two standard errors and "
        f"rounding) in {ours} of {papers} cells; run exactly as the authors' code does, in "
        f"{authors} of {theirs_too}.",
    ]
    return said, lines


def budgets(result: dict[str, Any]) -> list[str]:
    """Labels per set by label budget, mean over the graphs."""
    names = ["APS", "SNAPS, 1/3", "SNAPS, halves", "SNAPS", "Pooled, halves", "Pooled"]
    lines = [f"| alpha | labels | tune, calibrate | {' | '.join(names)} |", "|---" * 9 + "|"]
    sizes = {(r["alpha"], r["budget"], r["method"]): r for r in result["averages"]}
    for alpha, budget in dict.fromkeys((each[0], each[1]) for each in sizes):
        row = [sizes[alpha, budget, name] for name in names]
        parts = f"{row[3]['n_tune']}, {row[3]['n_calib']}"
        cells = " | ".join(f"{each['size']:.2f}" for each in row)
        lines.append(f"| {alpha:g} | {budget} | {parts} | {cells} |")
    return lines


def decisions(result: dict[str, Any]) -> list[str]:
    """What floors, class thresholds and accepted labels cost, mean over the graphs."""
    found = {(r["promise"], r["level"], r["method"]): r for r in result["averages"]}
    kinds = ("one threshold", "floor 0.8", "class thresholds")
    lines = [f"| alpha | method | {' | '.join(kinds)} |", "|---" * 5 + "|"]
    for alpha in (0.1, 0.05):
        for method in ("APS", "SNAPS", "Pooled"):
            row = [found[kind, alpha, method] for kind in kinds]
            cells = " | ".join(f"{each['size']:.2f}, {each['worst_class']:.3f}" for each in row)
            lines.append(f"| {alpha:g} | {method} | {cells} |")
    whos = ("classifier", "classifier, retrained", "Pooled")
    lines += ["", "Share of the nodes accepted, and of these the wrong ones:", ""]
    lines += [f"| error | {' | '.join(whos)} |", "|---" * 4 + "|"]
    for error in (0.01, 0.02, 0.05):
        row = [found["accept", error, who] for who in whos]
        cells = " | ".join(f"{each['selected']:.1%}, {each['wrong']:.2%}" for each in row)
        lines.append(f"| {error:g} | {cells} |")
    return lines


def replace(text: str, mark: str, lines: list[str]) -> str:
    """Put lines between the marks of this name."""
    begin, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
    before, _, rest = text.partition(begin)
    return before + begin + "\n".join(["", *lines, "", ""]) + end + rest.partition(end)[2]


def main() -> None:
    results, folder = read(), DOCS / "tables"
    folder.mkdir(exist_ok=True)
    for result in results:
        (folder / f"{result['table']}.md").write_text(table_page(result))
    about = (DOCS / "results" / "about.md").read_text().partition("How to read it:")[2]
    head = f"# How to read the tables, and where we differ\n\n{NOTE}\nHow to read them:"
    (folder / "differences.md").write_text(head + about)
    said, lines = summary(results)
    page = DOCS / "results.md"
    text = replace(page.read_text(), "averages", averages())
    text = replace(text, "cells", [said[1], "", said[0]])
    names = [f"{result['table']} <tables/{result['table']}>" for result in results]
    first = "How to read the tables <tables/differences>"
    tree = [":::{toctree}", ":hidden:", "", first, *names, ":::"]
    page.write_text(replace(text, "tables", [*lines, "", *tree]))
    for name, table, write in (
        ("pooled", "budgets", budgets),
        ("decisions", "decisions", decisions),
    ):
        (result,) = (result for result in results if result["table"] == table)
        page = DOCS / f"{name}.md"
        page.write_text(replace(page.read_text(), table, write(result)))
    print(f"wrote results.md and {len(results) + 1} pages in tables/")


if __name__ == "__main__":
    main()
