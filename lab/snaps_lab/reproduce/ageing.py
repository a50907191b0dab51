"""Time: trained and calibrated on the past, what do sets of the future cover?

Nodes come with dates, and the graph at a stage holds what there was at its end: links between two
nodes appear with the later one. A classifier, tuning nodes and calibration nodes come from the
past. Three ways to go on:

- kept: parameters and threshold of the past, applied to the grown graph
  (`recalibrate(threshold="keep")`);
- old labels: all is fitted again on the grown graph, with the labels of the past alone
  (`recalibrate`);
- fresh labels: the same, but calibrated on random nodes of the period itself.

Only the third has a guarantee. Time shuffled is the control. Two alarms watch the first way:
`exchangeability`, which needs no label, and `watch`, with labels of random nodes of each period.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from snaps._checks import check_alpha
from snaps.conformal.rank import exact_rank
from snaps.conformal.watching import Watch
from snaps.errors import SnapsWarning
from snaps.estimators import methods
from snaps.graph import Graph
from snaps.models import smoothed_regression
from snaps.predictor.estimator import method_of
from snaps.predictor.exchangeability import compare, node_columns
from snaps.predictor.roles import Roles
from snaps.scoring.context import context_features, summary
from snaps.scoring.local import Inputs, Made
from snaps.scoring.parts import Context, Summary
from snaps.similarity import similarity_graph
from snaps.splits import draw_splits
from snaps_lab.reproduce import common, drawing, runner
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.graphs import YEARS, side_table
from snaps_lab.reproduce.protocol import NODES_A_CLASS
from snaps_lab.reproduce.runner import Setting
from snaps_lab.reproduce.store import fingerprint

ALPHAS = (0.05, 0.1)
METHODS = ("APS", "SNAPS", "Pooled")
WAYS = ("kept", "old labels", "fresh labels")
TUNING = CALIBRATION = 500
SHUFFLES = {"pubmed": 3, "arxiv_cs": 1}  # draws of the control, each with an order of its own
CHECKS = 20  # calibration sets a draw of the control whose exchangeability is tested
WATCHES = 20  # calibration sets a draw that are watched
AUDITS, ALARM = 100, 0.01  # labels a period; how likely a false alarm may be
JANUARY_1990 = 1990 * 12


@dataclass(frozen=True)
class Timeline:
    """Dates of a graph's nodes, cut into stages (a graph each) and periods (a coverage each)."""

    model: str
    ends: tuple[int, ...]  # the last date of each stage, the past first
    step: int = 0  # dates a period; 0 for a period a stage

    def periods(self, stage: int) -> list[tuple[int, int]]:
        """First and last date of each period of a stage; the past is one."""
        last = self.ends[stage]
        first = self.ends[stage - 1] + 1 if stage else 0
        if not stage or not self.step:
            return [(first, last)]
        edges = [*range(first, last + 1, self.step), last + 1]
        return [(begin, end - 1) for begin, end in pairwise(edges)]


def _month(year: int, month: int) -> int:
    return year * 12 + month - 1 - JANUARY_1990


TIMELINES = {
    "pubmed": Timeline("gcn", (1994, 1999, 2003, 2006, 2010)),
    "arxiv_cs": Timeline(
        "linear", tuple(_month(y, m) for y, m in ((2016, 12), (2017, 6), (2017, 12), (2018, 6),
                                                  (2018, 12))), step=1,
    ),
}  # fmt: skip
NAMES = tuple(TIMELINES)
# A draw of arXiv CS fits a hundred thousand nodes at five stages.
MOST_DRAWS = {"arxiv_cs": 3}


def _shown(dataset: str, first: int, last: int) -> str:
    if dataset == "pubmed":
        return f"{max(first, 1964)}-{last % 100:02d}"
    years = [(date + JANUARY_1990) // 12 for date in (first, last)]
    if first == last:
        return f"{years[0]}-{(first + JANUARY_1990) % 12 + 1:02d}"
    return f"1998-{years[1]}"


@lru_cache(maxsize=2)
def _dates(dataset: str, data_dir: Path | None) -> np.ndarray:
    file, unit = (YEARS, "year") if dataset == "pubmed" else (dataset, "month")
    return side_table(file, data_dir, unit)[unit].astype(int)


def _clock(dataset: str, shuffle: int | None, setting: Setting) -> np.ndarray:
    """The date of every node; shuffled for the control."""
    dates = _dates(dataset, setting.data_dir)
    if shuffle is None:
        return dates
    return np.random.default_rng([setting.seed, shuffle, 77]).permutation(dates)


def _grown(dataset: str, dates: np.ndarray, end: int, setting: Setting) -> Graph:
    """The graph at the end of a stage; nodes keep their ids."""
    graph, nodes = runner.dataset(dataset, setting).graph, np.flatnonzero(dates <= end)
    return Graph(graph.adjacency[nodes][:, nodes], graph.features[nodes], ids=nodes)


def _neighbours(dataset: str, graph: Graph, mark: Any, setting: Setting) -> tuple[Any, Made]:
    """Both neighbour graphs of a grown graph, kept on disk, and the summary of its features."""
    import scipy.sparse as sp

    table = summary(graph)
    made = {}
    for kind in ("similarity", "context"):
        cell = f"{dataset}-grown-{graph.num_nodes}-{fingerprint(runner.VERSION, mark, runner.K)}"
        arrays = setting.store.read_arrays(kind, cell)
        if arrays is None:
            context = kind == "context"
            what = context_features(graph.adjacency, table) if context else graph.features
            nearest = similarity_graph(what, runner.K, ids=graph.keys)
            arrays = {"data": nearest.data, "indices": nearest.indices, "indptr": nearest.indptr}
            setting.store.write_arrays(kind, cell, arrays)
        shape = (graph.num_nodes, graph.num_nodes)
        made[kind] = sp.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape)
    return made["similarity"], {Context(runner.K): made["context"], Summary(): table}


# --- One draw ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Past:
    """Ids of the nodes of the past, by what their labels are for."""

    train: np.ndarray
    valid: np.ndarray
    tuning: np.ndarray
    pool: np.ndarray


def _draw_past(dates: np.ndarray, labels: np.ndarray, end: int, seed: int, draw: int) -> Past:
    order = np.random.default_rng([seed, draw]).permutation(np.flatnonzero(dates <= end))
    by_class = [order[labels[order] == y] for y in range(labels.max() + 1)]
    train = np.concatenate([nodes[:NODES_A_CLASS] for nodes in by_class])
    valid = np.concatenate([nodes[NODES_A_CLASS : 2 * NODES_A_CLASS] for nodes in by_class])
    rest = order[~np.isin(order, np.concatenate([train, valid]))]
    return Past(train, valid, rest[:TUNING], rest[TUNING:])


def _classifier(
    model: str, graph: Graph, labels: np.ndarray, past: Past, seed: int
) -> Callable[[Graph], np.ndarray]:
    """What gives the logits of any later graph, learnt from the labels of the past alone."""
    num_classes = int(labels.max()) + 1
    if model == "linear":
        known = np.concatenate([past.train, past.valid])

        def fitted(later: Graph) -> np.ndarray:
            probs = smoothed_regression(
                later, labels[later.ids], np.isin(later.ids, known), num_classes=num_classes
            )
            return np.log(np.maximum(probs, 1e-12))

        return fitted
    from snaps_lab.models import gnn

    roles = [np.flatnonzero(np.isin(graph.ids, nodes)) for nodes in (past.train, past.valid)]
    result = gnn.train(model, graph, labels[graph.ids], *roles, num_classes=num_classes, seed=seed)
    module = gnn.build(model, graph.features.shape[1], num_classes)
    module.load_state_dict(result.state_dict)
    return lambda later: gnn.predict(module, later)


def _cell(dataset: str, draw: int, shuffle: int | None, setting: Setting) -> list[dict[str, Any]]:
    """Coverage and size of every method, way and period in one draw."""

    def make() -> list[dict[str, Any]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SnapsWarning)  # that nodes differ is the subject
            return _draw(dataset, draw, shuffle, setting)

    depends = (
        runner.mark(dataset, setting), repr(TIMELINES[dataset]), METHODS, ALPHAS, shuffle, WATCHES,
        AUDITS, ALARM,
    )  # fmt: skip
    name = f"{dataset}-time-{'shuffled-' * (shuffle is not None)}{draw}"
    return runner.kept(name, (*depends, *runner.settled(setting)), setting, make)


def _draw(dataset: str, draw: int, shuffle: int | None, setting: Setting) -> list[dict[str, Any]]:
    timeline, labels = TIMELINES[dataset], runner.dataset(dataset, setting).labels
    dates, seed = _clock(dataset, shuffle, setting), runner.draw_seed(setting, draw)
    past = _draw_past(dates, labels, timeline.ends[0], setting.seed, draw)
    levels = [check_alpha(alpha) for alpha in ALPHAS]
    tried = {name: method_of(m).scorer for name, m in methods(METHODS, seed=seed).items()}
    checks = 1 if shuffle is None else CHECKS
    first: dict[tuple[str, Fraction], Any] = {}
    watches: dict[tuple[str, Fraction], list[Watch]] = {}
    classify: Callable[[Graph], np.ndarray] | None = None
    rows = []
    for stage, end in enumerate(timeline.ends):
        graph = _grown(dataset, dates, end, setting)
        if classify is None:
            classify = _classifier(timeline.model, graph, labels, past, seed)
        mark = (runner.mark(dataset, setting), shuffle, end)
        similar, made = _neighbours(dataset, graph, mark, setting)
        inputs = Inputs.read(graph, classify(graph), similar, logits=True).holding(made)
        roles = _roles(graph, labels, past)
        pool = inputs.positions(roles.calib.keys)
        drawn = draw_splits(seed, roles.calib.keys, CALIBRATION, setting.splits)
        for name, scorer in tried.items():
            refitted = scorer.fit(inputs, roles.tuning, roles.known, levels)
            for level, fitted in zip(levels, refitted, strict=True):
                key = (name, level)
                if not stage:
                    true = _true(inputs.score(fitted, pool), roles.calib.labels)
                    first[key] = fitted, _thresholds(true[drawn], level)
                    fresh = Watch.start(CALIBRATION, exact_rank(CALIBRATION, level), ALARM)
                    watches[key] = [fresh] * min(WATCHES, len(drawn))
                now = inputs.score(fitted)
                true = _true(now[pool], roles.calib.labels)
                before = now if not stage else inputs.score(first[key][0])
                again = _thresholds(true[drawn], level)
                ways = {"kept": (before, first[key][1]), "old labels": (now, again)}
                columns = node_columns(inputs.probs, now, np.diff(graph.adjacency.indptr))
                for begin, last in timeline.periods(stage):
                    when = dates[graph.ids]
                    nodes = np.flatnonzero((when >= begin) & (when <= last)) if stage else pool
                    truth = labels[graph.ids[nodes]]
                    if stage:
                        covered = _true(before[nodes], truth) <= first[key][1][:, None]
                        random = np.random.default_rng([seed, begin])
                        watches[key] = _watched(watches[key], graph.ids[nodes], covered, random)
                    about = {
                        "method": name,
                        "alpha": float(level),
                        "period": _shown(dataset, begin, last),
                        "stage": stage,
                        "nodes": len(nodes),
                        "accuracy": float((inputs.probs[nodes].argmax(1) == truth).mean()),
                        "noticed": [
                            not compare(columns, pool[each], nodes, graph.keys, seed).alike
                            for each in drawn[:checks]
                        ],
                        "alarms": [watch.first_alarm for watch in watches[key]],
                    }
                    for way, (scores, limits) in ways.items():
                        spared = drawn if not stage else None
                        measured = _covered(scores[nodes], truth, limits, spared)
                        rows.append(about | {"way": way} | measured)
                    measured = _fresh(now[nodes], truth, graph.keys[nodes], level, seed, setting)
                    rows.append(about | {"way": "fresh labels"} | measured)
    return rows


def _watched(
    watches: list[Watch], ids: np.ndarray, covered: np.ndarray, random: np.random.Generator
) -> list[Watch]:
    """Each with the labels of random nodes of a period; `covered` has a row a calibration set."""
    out = []
    for watch, hits in zip(watches, covered, strict=False):
        audited = random.permutation(len(ids))[:AUDITS]
        out.append(watch.count(ids[audited].tolist(), hits[audited]))
    return out


def _roles(graph: Graph, labels: np.ndarray, past: Past) -> Roles:
    """The nodes of the past on a grown graph; the rest of the past is the pool to calibrate on."""

    def positions(ids: np.ndarray) -> np.ndarray:
        return np.flatnonzero(np.isin(graph.ids, ids))

    roles = Roles.read(
        graph, int(labels.max()) + 1, labels[graph.ids], positions(past.pool),
        tune_nodes=positions(past.tuning),
        known_nodes=positions(np.concatenate([past.train, past.valid])),
    )  # fmt: skip
    return replace(roles, tuning=replace(roles.tuning, drawn=True))


def _true(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return scores[np.arange(len(labels)), labels]


def _thresholds(scores: np.ndarray, level: Fraction) -> np.ndarray:
    """Of each calibration set: rows of the scores of its true labels."""
    rank = exact_rank(scores.shape[1], level)
    return np.partition(scores, rank - 1, axis=1)[:, rank - 1]


def _covered(
    scores: np.ndarray, labels: np.ndarray, limits: np.ndarray, spared: np.ndarray | None
) -> dict[str, float]:
    """Means over the thresholds; of each, the nodes in its row of `spared` are left out."""
    true, coverage, size = _true(scores, labels), [], []
    for place, limit in enumerate(limits):
        keep = np.ones(len(labels), bool)
        if spared is not None:
            keep[spared[place]] = False
        coverage.append((true[keep] <= limit).mean())
        size.append((scores[keep] <= limit).sum(axis=1).mean())
    return {"coverage": float(np.mean(coverage)), "size": float(np.mean(size))}


def _fresh(
    scores: np.ndarray, labels: np.ndarray, keys: np.ndarray, level: Fraction, seed: int,
    setting: Setting,
) -> dict[str, float]:  # fmt: skip
    """Calibrated on random nodes of the period, and looked at on the others."""
    count = min(CALIBRATION, len(labels) // 2)
    drawn = draw_splits(seed, keys, count, setting.splits)
    limits = _thresholds(_true(scores, labels)[drawn], level)
    return _covered(scores, labels, limits, drawn)


# --- The table -----------------------------------------------------------------------------------


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Each draw of each graph, then of the control."""
    names, skipped = common.present(datasets, NAMES, setting)
    pieces: list[tuple[str, int, int | None]] = []
    for dataset in names:
        draws = range(min(setting.draws, MOST_DRAWS.get(dataset, setting.draws)))
        pieces += [(dataset, draw, None) for draw in draws]
        shuffles = range(min(setting.draws, SHUFFLES[dataset]))
        pieces += [(dataset, shuffle, shuffle) for shuffle in shuffles]
    with track(f"{name}: draws", len(pieces)) as advance:
        runner.in_processes(_cell, pieces, setting, advance)
    rows = []
    for dataset in names:
        for shuffled in (False, True):
            mine = [p for p in pieces if p[0] == dataset and (p[2] is not None) == shuffled]
            cells = [_cell(*piece, setting) for piece in mine]
            if cells:
                about = {"dataset": dataset, "order": "shuffled" if shuffled else "as it was"}
                rows += [about | row for row in _over_draws(cells)]
    return {
        "table": name,
        "title": "Trained and calibrated on the past, predicting the future",
        "settings": common.settings(setting),
        "rows": rows,
        "notes": common.notes(names, setting),
        "skipped": skipped,
    }


def _over_draws(cells: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    out = []
    for same in zip(*cells, strict=True):
        keys = ("method", "alpha", "way", "period", "stage")
        row: dict[str, Any] = {key: same[0][key] for key in keys}
        for key in ("coverage", "size", "accuracy", "nodes"):
            row[key] = float(np.mean([cell[key] for cell in same]))
        for key in ("coverage", "size"):
            row[f"{key}_se"] = common.standard_error(np.array([cell[key] for cell in same]))
        alarms = [alarm for cell in same for alarm in cell["noticed"]]
        row |= {"noticed": sum(alarms), "checks": len(alarms), "draws": len(same)}
        first = [label for cell in same for label in cell["alarms"]]
        row |= {"alarmed": sum(label is not None for label in first), "watches": len(first)}
        half = float(np.median([np.inf if at is None else at for at in first]))
        row["alarm_label"] = half if np.isfinite(half) else None
        out.append(row)
    return out


def layout(result: Result) -> tuple[list[str], Cells]:
    """A row a graph, level, method and period; the three ways side by side."""
    header = ["dataset", "order of time", "alpha", "method", "period", "nodes", "accuracy %"]
    header += [f"coverage, {way}" for way in WAYS] + [f"size, {way}" for way in WAYS]
    header += ["noticed without labels", f"alarms so far, {AUDITS} audits a period"]
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in result["rows"]:
        keys = ("dataset", "order", "alpha", "method", "stage", "period")
        groups.setdefault(tuple(row[key] for key in keys), {})[row["way"]] = row
    rows = []
    for (dataset, order, alpha, method, _, period), ways in groups.items():
        kept = ways["kept"]
        cells = [common.display(dataset), order, f"{alpha:g}", method, period]
        cells += [f"{kept['nodes']:.0f}", f"{100 * kept['accuracy']:.1f}"]
        for key, digits in (("coverage", 3), ("size", 2)):
            cells += [
                common.with_error(ways[way][key], ways[way].get(f"{key}_se"), digits)
                for way in WAYS
            ]
        cells += [
            f"{kept['noticed']} of {kept['checks']}",
            f"{kept['alarmed']} of {kept['watches']}",
        ]
        rows.append(cells)
    return header, rows


CAPTION = (
    "Coverage by period at 90 %: the threshold kept, set again with the old labels on the grown "
    "graph, and with 500 fresh labels of each period. The guarantee ends with the past: later only "
    "fresh labels have one. Crosses mark periods in which most tests of exchangeability, which "
    "needs no label, noticed a difference; triangles those by which most watches on the kept "
    "threshold, with 100 labels a period, had raised their alarm."
)


def remarks(result: Result) -> list[str]:
    """What was done, how far coverage fell, and what was noticed."""
    models = {
        "pubmed": "PubMed: a GCN of the past",
        "arxiv_cs": "arXiv CS: a linear model of smoothed features, fitted again every half-year "
        "with the labels of the past",
    }
    classifiers = "; ".join(models[name] for name in common.by_dataset(result["rows"]))
    lines = [
        f"Of the past: {NODES_A_CLASS} training and {NODES_A_CLASS} validation nodes per class, "
        f"{TUNING} tuning and {CALIBRATION} calibration nodes; the graph holds what there was at "
        f"the end of each stage; {classifiers}",
        "Kept: parameters and threshold of the past; old labels: fitted and calibrated again on "
        f"the grown graph; fresh labels: calibrated on {CALIBRATION} random nodes of the period",
        f"Watched: the kept threshold of {WATCHES} calibration sets a draw, with the labels of "
        f"{AUDITS} random nodes of each later period; a false alarm may happen with probability "
        f"{ALARM:g} while nodes are exchangeable",
    ]
    for dataset in common.by_dataset(result["rows"]):
        for order in ("as it was", "shuffled"):
            lines += _reading(result, dataset, order)
    return lines


def _reading(result: Result, dataset: str, order: str) -> list[str]:
    mine = [row for row in result["rows"] if (row["dataset"], row["order"]) == (dataset, order)]
    later = [row for row in mine if row["stage"]]
    if not later:
        return []
    spans = []
    for way in WAYS:
        for alpha in ALPHAS:
            coverages = [r["coverage"] for r in later if (r["way"], r["alpha"]) == (way, alpha)]
            spans.append(f"{way} at {1 - alpha:g}: {min(coverages):.3f} to {max(coverages):.3f}")
    once = [row for row in later if row["way"] == WAYS[0]]
    noticed, checks = sum(row["noticed"] for row in once), sum(row["checks"] for row in once)
    what = "false alarms" if order == "shuffled" else "noticed without labels"
    last = [row for row in once if row["period"] == once[-1]["period"]]
    alarmed, watches = sum(row["alarmed"] for row in last), sum(row["watches"] for row in last)
    return [
        f"{common.display(dataset)}, time {order}: coverage of later periods, all methods: "
        + "; ".join(spans)
        + f"; {what}: {noticed} of {checks} tests"
        + f"; alarms of watch by the last period: {alarmed} of {watches}"
    ]


def draw(result: Result) -> Any:
    """Coverage at 0.1 over the periods: a panel a graph and method, a curve a way."""
    names = list(common.by_dataset(result["rows"]))
    figure, axes = drawing.panels(len(names), len(METHODS), 4.2, 3.2)
    for line, dataset in zip(axes, names, strict=True):
        for axis, method in zip(line, METHODS, strict=True):
            if axis is not line[0]:
                axis.sharey(line[0])
            about = {"dataset": dataset, "order": "as it was", "method": method, "alpha": ALPHAS[1]}
            mine = [row for row in result["rows"] if about.items() <= row.items()]
            periods = list(dict.fromkeys(row["period"] for row in mine))
            for place, way in enumerate(WAYS):
                by_period = {row["period"]: row for row in mine if row["way"] == way}
                heights = [by_period[period]["coverage"] for period in periods]
                axis.plot(range(len(periods)), heights, label=way, **drawing.style(place))
            lowest = min(row["coverage"] for row in result["rows"] if row["dataset"] == dataset)
            for count, of, below, mark, word in (
                ("noticed", "checks", 0.02, "x", "noticed without labels"),
                ("alarmed", "watches", 0.04, "^", "alarm of watch"),
            ):
                most = {row["period"] for row in mine if row[count] > row[of] / 2}
                when = [at for at, period in enumerate(periods) if period in most]
                heights = [lowest - below] * len(when)
                axis.plot(when, heights, mark, color=drawing.GREY, label=word)
            axis.axhline(1 - ALPHAS[1], color=drawing.GREY, linewidth=0.9)
            axis.axvline(0.5, color=drawing.GREY, linewidth=0.9, linestyle=(0, (1, 2)))
            every = max(1, len(periods) // 6)
            axis.set_xticks(range(0, len(periods), every), periods[::every], rotation=30)
            up = "coverage" if axis is line[0] else ""
            drawing.label(axis, f"{common.display(dataset)}, {method}", "", up)
    curves = axes[0][0].get_legend_handles_labels()
    figure.legend(*curves, loc="outside upper center", ncols=5, fontsize=drawing.SMALL)
    return figure
