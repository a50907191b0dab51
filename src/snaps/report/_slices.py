"""For whom the sets are weaker: tables by class, group, degree and size."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from snaps.report._charts import exactly, percent, size_bar, whisker
from snaps.report._facts import Facts, Slice
from snaps.report._markup import counted, exact_share, paragraph

_ROWS = 10  # of a table before the rest is folded away


def slices(facts: Facts) -> str:
    if not facts.n_nodes:
        return paragraph("There is no set to compare.")
    known = facts.evaluation is not None
    lead = (
        "The promise speaks of all nodes together, so some kinds of nodes may be covered less than "
        f"{exactly(facts.promised)} and others more. The dot is what was observed, the bar where "
        "99 % of fair runs would fall if these nodes were like all others, the dashed line the "
        "promise. "
        f"{_weakest(facts)}"
        if known
        else "Labels are not known here, so only the size of the sets can be compared: large sets "
        "mark the kinds of nodes that the classifier finds hard."
    )
    tables = [
        _table(
            facts, "Group", facts.by_group,
            "Groups were given with the data.",
        ),
        _table(
            facts, "True class" if known else "Most likely class", facts.by_class,
            "Weakest first." if known else "Largest sets first.", True,
        ),
        _table(
            facts, "Links", facts.by_degree,
            "Nodes by their number of links: neighbours can only help where there are some.",
        ),
        _table(
            facts, "Labels in the set", facts.by_size,
            "An empty set cannot hold the truth. Single labels that are often wrong would mislead.",
        ),
    ]  # fmt: skip
    return paragraph(lead, kind="lead") + f'<div class="tables">{"".join(tables)}</div>'


def _weakest(facts: Facts) -> str:
    below = [one for one in facts.by_class if one.below]
    if not below:
        if any(one.below for one in (*facts.by_degree, *facts.by_size)):
            return "No class lies below its bar; other kinds of nodes do, marked ▼."
        return "No class lies below its bar."
    worst = min(below, key=lambda one: one.coverage or 0)
    count = "One class lies below its bar" if len(below) == 1 else (
        f"{len(below)} classes lie below their bars"
    )  # fmt: skip
    assert worst.coverage is not None
    text = (
        f"{count}; the weakest is <strong><bdi>{escape(worst.name)}</bdi></strong> with "
        f"{percent(worst.coverage)} of {counted(worst.n, 'node')}."
    )
    if facts.kind in ("calibration", "group"):
        text += " A threshold for each class (class_conditional) would mend that; the sets grow."
    return text


def _table(
    facts: Facts, what: str, slices: Sequence[Slice], why: str, ordered: bool = False
) -> str:
    """A table of slices; beyond some rows the rest is folded away."""
    if not slices:
        return ""
    known = facts.evaluation is not None
    rows = list(slices)
    if ordered and known:
        rows.sort(key=lambda one: (one.coverage is None, one.coverage))
    elif ordered:
        rows.sort(key=lambda one: (one.size is None, -(one.size or 0)))
    # Small slices may lie anywhere: their bars are cut off rather than all others squeezed.
    seen = [one.coverage for one in rows if one.coverage is not None and one.n >= 30]
    lowest = max(min([*seen, 1 - 2 * facts.alpha]) - facts.alpha, 0.0)
    largest = max([one.size for one in rows if one.size is not None], default=1.0)
    sized = slices is not facts.by_size
    plot = '<th scope="col"{}><span class="hidden">as a plot</span></th>'
    cells = f'<th scope="col">{what}</th><th scope="col" class=n>Nodes</th>'
    if known:
        cells += f'<th scope="col" class=n>Coverage</th>{plot.format("")}'
    if sized:
        cells += f'<th scope="col" class=n>Labels per set</th>{plot.format(" class=extra")}'
    body = [_row(one, facts, lowest, largest if sized else None) for one in rows]
    parts = [body[:_ROWS], body[_ROWS:]]
    table = (
        f'<table class="slices"><thead><tr>{cells}</tr></thead><tbody>'
        f"{''.join(parts[0])}</tbody></table>"
    )
    if parts[1]:
        table += (
            f"<details><summary>{len(parts[1]):,} more</summary><table class=slices><thead><tr>"
            f"{cells}</tr></thead><tbody>{''.join(parts[1])}</tbody></table></details>"
        )
    return f"<div><h3>By {what[0].lower()}{what[1:]}</h3>{paragraph(why, kind='why')}{table}</div>"


def _row(one: Slice, facts: Facts, lowest: float, largest: float | None) -> str:
    """`largest` is the size that a full bar stands for; None leaves sizes out."""
    below = one.below
    cells = [f'<th scope="row">{escape(one.name)}</th>', f"<td class=n>{one.n:,}</td>"]
    if facts.evaluation is not None:
        shown = "none" if one.coverage is None else exact_share("slice", one.coverage)
        mark = ' <span class="mark" title="less than chance explains">▼</span>'
        cells.append(f"<td class=n>{shown}{mark if below else ''}</td>")
        cells.append(f"<td>{whisker(one, lowest, facts.promised)}</td>")
    if largest is not None:
        size = "none" if one.size is None else f"{one.size:.2f}"
        cells += [f"<td class=n>{size}</td>", f"<td class=extra>{size_bar(one.size, largest)}</td>"]
    return f"<tr{' class=below' if below else ''}>{''.join(cells)}</tr>"
