"""From numbers to a page: sentences, tables and plots in one self-contained HTML file.

Text that comes from users' data passes `escape`; nothing on the page asks a network for anything.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib.resources import files
from string import Template

from snaps.report._charts import (
    exactly,
    law_plot,
    line_plot,
    percent,
    score_plot,
    size_plot,
    triangle_plot,
    weights_plot,
)
from snaps.report._explorer import Explorer
from snaps.report._facts import PARTS, Facts, Sizes
from snaps.report._markup import counted, exact_share, exact_value, paragraph, terms
from snaps.report._slices import slices

METHODS = {
    "SplitConformal": "the basic score of each node by itself",
    "DAPS": "each node's score, mixed with the mean over the nodes it links to",
    "SNAPS": "each node's score, mixed with the means over its most similar nodes and its links",
    "EmbeddedSNAPS": "each item's score, mixed with the mean over its most similar items",
    "Pooled": "evidence about each node from many sides, multiplied and then scored",
}
_SCOPE = {
    "calibration": "",
    "class": " for each class",
    "group": " for each group",
    "group and class": " for each class in each group",
}


def render(facts: Facts, explorer: Explorer, version: str) -> str:
    """The whole page."""
    read = {name: _asset(f"page.{name}") for name in ("html", "css", "js")}
    policy = (
        f"default-src 'none'; style-src '{_digest(read['css'])}'; "
        f"script-src '{_digest(read['js'])}'; base-uri 'none'; form-action 'none'"
    )
    title = facts.title or "Prediction sets"
    parts = {
        "policy": policy,
        "style": read["css"],
        "script": read["js"],
        "data": explorer.data,
        "version": escape(version),
        "title": f"{escape(title)}: {escape(_headline(facts))}",
        "overline": f"Prediction sets · <bdi>{escape(facts.title or facts.method)}</bdi>",
        "headline": escape(_headline(facts)),
        "promise": _promise(facts),
        "law": _law(facts),
        "tiles": _tiles(facts),
        "sizes": _sizes(facts),
        "size_plot": _size_plot(facts),
        "slices": slices(facts),
        "weights": _weights(facts),
        "weights_plot": _weights_plot(facts),
        "threshold": _threshold(facts),
        "score_plot": score_plot(facts.scores),
        "notes": _notes(facts),
        "explorer": _explorer(facts, explorer),
        "made": _made(facts, version),
    }
    return Template(read["html"]).substitute(parts)


def _asset(name: str) -> str:
    return files("snaps.report").joinpath(name).read_text("utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


# -- promised and observed -----------------------------------------------------------------------


def _useless(facts: Facts) -> bool:
    """Whether all sets are full for want of calibration nodes."""
    return all(limit is None for _, limit in facts.scores.limits)


def _headline(facts: Facts) -> str:
    promised, told = exactly(facts.promised), facts.evaluation
    if not facts.n_nodes:
        return f"{promised} promised; no node to predict."
    if _useless(facts):
        return f"{promised} promised, at the price of full sets."
    if told is None:
        return f"{promised} promised; not yet checked."
    return f"{promised} promised{_SCOPE[facts.kind]}, {percent(told['coverage'])} observed."


def _promise(facts: Facts) -> str:
    told = facts.evaluation
    scope = _SCOPE[facts.kind]
    what = (
        f"{counted(facts.n_nodes, 'node')} got a set of labels instead of one guess. The promise "
        f"is that the true label is in the set for <strong>{exactly(facts.promised)}</strong> of "
        f"such nodes{scope}, however good or bad the classifier is."
    )
    if not facts.n_nodes:
        what = "No node is left to predict, or none was asked for."
    out = [paragraph(what, kind="lead")]
    if told is not None:
        hits = round(told["coverage"] * told["n"])
        seen = (
            f"Observed: {hits:,} of {counted(told['n'], 'set')} with a known truth hold it, "
            f"{exact_share('coverage', told['coverage'])}."
        )
        out.append(paragraph(seen, _verdict(facts)))
    elif facts.n_nodes:
        out.append(
            paragraph(
                "The true labels of these nodes are not known here, so nothing can be observed "
                "yet. Write the report again with labels to see what was kept of the promise."
            )
        )
    if facts.alike is not None:
        out.append(paragraph(f"Fair draw: {escape(facts.alike)}.", kind="why"))
    serious = [note for note in facts.notes if note.serious]
    if serious:
        titles = "; ".join(escape(note.title.lower()) for note in serious)
        out.append(paragraph(f'<a href="#notes">Read this first: {titles}.</a>', kind="alarm"))
    return "".join(out)


def _verdict(facts: Facts) -> str:
    told = facts.evaluation
    assert told is not None
    if told["coverage_interval"] is None:
        counted = [one for one in facts.by_group or facts.by_class if one.n]
        below = [one for one in counted if one.below]
        what = "groups" if facts.by_group else "classes"
        return (
            f"Of {len(counted):,} {what} with nodes to look at, {len(counted) - len(below):,} are "
            "covered as they should be: not below where 99 % of fair runs fall."
        )
    low, high = told["coverage_interval"]
    ends = (
        f"By the luck of the draw 99 % of fair runs fall between {exact_share('low', low)} and "
        f"{exact_share('high', high)}"
    )
    if told["inside"]:
        return f'{ends}: <strong class="good">this run is inside, as it should be.</strong>'
    if told["coverage"] < low:
        return (
            f'{ends}: <strong class="bad">this run is below. Chance hardly explains that; do not '
            "rely on the promise here.</strong>"
        )
    return f"{ends}: <strong>this run is above: the sets are larger than they need be.</strong>"


def _law(facts: Facts) -> str:
    if facts.law is None or facts.evaluation is None:
        return ""
    caption = (
        "The curve shows how coverage varies from one fair run to the next with "
        f"{counted(facts.n_calib, 'calibration node')}; shaded, where 99 % of runs fall."
    )
    plot = law_plot(facts.law, facts.promised, facts.evaluation["coverage"])
    return f"{plot}<figcaption>{caption}</figcaption>"


# -- sizes ---------------------------------------------------------------------------------------


def _tiles(facts: Facts) -> str:
    if facts.sizes is None:
        return ""
    ours, basic = facts.sizes, facts.basic

    def beside(value: str | None) -> str:
        return "" if value is None else f" {_basic_name(facts)} alone: {value}."

    def share(name: str) -> str | None:
        return None if basic is None else percent(getattr(basic, name))

    tiles = [
        (
            exact_value("size", ours.mean, f"{ours.mean:.2f}"),
            "labels per set",
            "The mean; 1 would be a plain answer for every node."
            + beside(None if basic is None else f"{basic.mean:.2f}"),
        ),
        (
            exact_share("single", ours.single),
            "a single label",
            "Sets that are a plain answer: one label and no other." + beside(share("single")),
        ),
        (
            exact_share("empty", ours.empty),
            "empty",
            "No label fits: an unusual node, to be looked at by hand." + beside(share("empty")),
        ),
        (
            exact_share("full", ours.full),
            "full",
            "All labels are possible: the set tells nothing." + beside(share("full")),
        ),
    ]
    if facts.evaluation is not None:
        hit = facts.evaluation["singleton_hit"]
        tiles.insert(
            2,
            (
                exact_share("singleton_hit", hit),
                "single and right",
                "Sets that are exactly the true label: the more, the better.",
            ),
        )
    cells = "".join(
        f"<div><dt>{name}</dt><dd>{value}<small>{escape(why)}</small></dd></div>"
        for value, name, why in tiles
    )
    return f'<dl class="tiles">{cells}</dl>'


def _basic_name(facts: Facts) -> str:
    return facts.score.partition("(")[0]


def _sizes(facts: Facts) -> str:
    ours, basic = facts.sizes, facts.basic
    if ours is None:
        return paragraph("There is no set to measure.")
    out = [
        paragraph(
            "A small set says much, a large one little. The promise is kept either way: what the "
            "method can do is to make the sets small."
        )
    ]
    if basic is not None:
        gain = 1 - ours.mean / basic.mean if basic.mean else 0.0
        name = escape(_basic_name(facts))
        if gain > 0.005:
            text = (
                f"Neighbours make them <strong>{percent(gain, 0)} smaller</strong>: "
                f"{ours.mean:.2f} labels instead of {basic.mean:.2f} with {name} alone"
            )
        elif gain < -0.005:
            text = (
                f"Neighbours don't help here: {ours.mean:.2f} labels, and {basic.mean:.2f} with "
                f"{name} alone"
            )
        else:
            text = f"With neighbours and without, the sets are as large: {basic.mean:.2f} labels"
        out.append(paragraph(f"{text}{_same_promise(ours, basic)}."))
    return "".join(out)


def _same_promise(ours: Sizes, basic: Sizes) -> str:
    if ours.coverage is None or basic.coverage is None:
        return ", calibrated on the same nodes for the same promise"
    return (
        f", for the same promise and on the same nodes (observed {percent(ours.coverage)} and "
        f"{percent(basic.coverage)})"
    )


def _size_plot(facts: Facts) -> str:
    if facts.sizes is None:
        return ""
    name = f"{facts.method} ({_basic_name(facts)})" if facts.basic is None else facts.method
    plot = size_plot(facts.sizes, facts.basic, name, _basic_name(facts))
    return f"{plot}<figcaption>Share of the sets by their number of labels.</figcaption>"


# -- weights and threshold -----------------------------------------------------------------------


def _weights(facts: Facts) -> str:
    weights = facts.weights
    texts = {
        "none": "This method looks at each node by itself: there is nothing to weigh. Methods "
        "that ask neighbours (DAPS, SNAPS, Pooled) often make smaller sets.",
        "given": "These weights were given, not chosen here.",
        "grid": f"{len(weights.pairs)} mixtures were compared on "
        f"{counted(facts.n_tune, 'tuning node')}, whose labels take no part in the threshold. "
        "Which one gives the smallest sets there is partly luck, so the weights are a mean of the "
        "best ones of many resamples; few tuning nodes lean towards equal weights.",
        "fit": f"They were fitted on {counted(facts.n_tune, 'tuning node')}, whose labels take no "
        "part in the threshold, so that the true labels there become likely.",
        "default": "There were too few tuning nodes to choose on: usual weights were taken.",
        "kept": "These weights were chosen earlier, on another graph.",
    }
    out = [paragraph(f"{facts.method}: {METHODS.get(facts.method, 'a method of your own')}.")]
    out.append(paragraph(texts[weights.chosen]))
    out.append(
        paragraph(
            "Whatever the weights, the promise is the same: they only make the sets larger or "
            "smaller.",
            kind="why",
        )
    )
    if len(weights.parts) > 1:
        out.append(
            terms(
                (
                    name.replace("_", " "),
                    exact_value(f"weight-{name}", weight, f"{weight:.2f}"),
                    PARTS.get(name, ("", ""))[1],
                )
                for name, weight in weights.parts.items()
            )
        )
    return "".join(out)


def _weights_plot(facts: Facts) -> str:
    weights = facts.weights
    if weights.chosen == "grid":
        lam, mu = weights.pair
        if all(one == 0 for one, _ in weights.pairs):
            plot = line_plot(weights, "linked", mu)
        elif all(two == 0 for _, two in weights.pairs):
            plot = line_plot(weights, "similar", lam)
        else:
            plot = triangle_plot(weights, (lam, mu))
            return (
                f"{plot}<figcaption>Labels per set of the tuning nodes for every mixture: the "
                "stronger the colour, the smaller the sets.</figcaption>"
            )
        return f"{plot}<figcaption>Labels per set of the tuning nodes.</figcaption>"
    if len(weights.parts) < 2:
        return ""
    caption = "What each part weighs; a part of weight 0 is not asked."
    return f"{weights_plot(weights.parts)}<figcaption>{caption}</figcaption>"


def _threshold(facts: Facts) -> str:
    scores = facts.scores
    out = [
        paragraph(
            "Every label of every node has a score that says how strange the label looks there. A "
            "label is in the set when its score is not above the threshold."
        )
    ]
    finite = [(name, limit) for name, limit in scores.limits if limit is not None]
    if len(scores.limits) == 1 and finite:
        limit = finite[0][1]
        out.append(
            paragraph(
                f"The threshold is {exact_value('threshold', limit, f'{limit:.3f}')}: "
                f"{facts.scores.at_most:,} of {counted(facts.n_calib, 'calibration node')} have "
                "their true label at or below it. That is the promised share, rounded up for the "
                "node to come."
            )
        )
    elif len(scores.limits) == 1:
        out.append(
            paragraph("The threshold is infinite: there are too few calibration nodes for it.")
        )
    else:
        what = {"class": "class", "group": "group"}.get(facts.kind, "group and class")
        out.append(
            paragraph(
                f"Each {what} has a threshold of its own, set so that {exactly(facts.promised)} of "
                f"its calibration nodes don't exceed it with their true label."
            )
        )
    if scores.true_in is not None and scores.other_out is not None:
        out.append(
            paragraph(
                f"Among the calibration nodes {exact_share('true_in', scores.true_in)} of the true "
                f"labels are in, and {exact_share('other_out', scores.other_out)} of all other "
                "labels are ruled out. The further apart the two heaps, the smaller the sets."
            )
        )
    if len(scores.limits) > 1:
        rows = "".join(
            f'<tr><th scope="row">{escape(name)}</th><td class=n>'
            f"{'infinite' if limit is None else f'{limit:.3f}'}</td></tr>"
            for name, limit in scores.limits
        )
        out.append(
            f"<details><summary>{len(scores.limits):,} thresholds</summary><table><thead><tr>"
            f'<th scope="col">{what.capitalize()}</th><th scope="col" class=n>Threshold</th></tr>'
            f"</thead><tbody>{rows}</tbody></table></details>"
        )
    return "".join(out)


# -- notes, explorer, provenance -----------------------------------------------------------------


def _notes(facts: Facts) -> str:
    if not facts.notes:
        return paragraph(
            "Nothing stands out: there are enough calibration nodes, of every class, and no node "
            "is cut off from its neighbours."
        )
    rows = "".join(
        f'<li class="{"serious" if note.serious else "mild"}"><h3>{escape(note.title)}</h3>'
        f"<p>{escape(note.text)}</p></li>"
        for note in facts.notes
    )
    return f'<ul class="notes">{rows}</ul>'


def _explorer(facts: Facts, explorer: Explorer) -> str:
    text = (
        "Why does a node have the set it has? Find it by its id, or filter; then click from node "
        "to neighbour. The address of a node can be kept and shared: it ends in #node= and its id."
    )
    if explorer.nodes < explorer.out_of:
        text += (
            f" This file carries {explorer.nodes:,} of {explorer.out_of:,} nodes, chosen by a hash "
            "of their ids, and those asked for when it was written. All numbers above are of all "
            "nodes."
        )
    return escape(text)


def _made(facts: Facts, version: str) -> str:
    method = METHODS.get(facts.method, "a method of your own")
    rows = [
        ("Method", escape(facts.method), f"How scores are made: {method}."),
        ("Basic score", escape(facts.score), "How strange a label looks, given the classifier."),
        (
            "alpha",
            exact_value("alpha", facts.alpha, f"{facts.alpha:g}"),
            "The share of sets that may miss the truth; the promise is 1 - alpha.",
        ),
        ("Nodes", f"{facts.num_nodes:,}", "All that the graph has, whatever their role."),
        ("Links", f"{facts.num_edges:,}", "Between nodes; none for images and other items."),
        ("Features", f"{facts.num_features:,}", "Columns that tell which nodes are similar."),
        ("Classes", f"{facts.num_classes:,}", "The labels that a set may hold."),
        (
            "Calibration nodes",
            exact_value("n_calib", facts.n_calib, f"{facts.n_calib:,}"),
            "Labelled nodes that set the threshold, and do nothing else.",
        ),
        (
            "Tuning nodes",
            exact_value("n_tune", facts.n_tune, f"{facts.n_tune:,}"),
            "Labelled nodes that chose weights; they don't calibrate.",
        ),
        ("Known nodes", f"{facts.n_known:,}", "Nodes whose labels were evidence for others."),
        (
            "Predicted nodes",
            exact_value("n_nodes", facts.n_nodes, f"{facts.n_nodes:,}"),
            "Nodes that this report speaks of.",
        ),
        ("Seed", str(facts.seed), "Fixes every random draw: the same input, the same sets."),
        ("Version", f"snaps {escape(version)}", "The program that wrote this page."),
    ]
    return terms(rows)
