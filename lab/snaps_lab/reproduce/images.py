"""Image classifiers: APS against SNAPS on the outputs of networks, without any link.

A tenth of the items fits the temperature, and the weights of pooled evidence. The rest is halved at
random into calibration and test items, once a trial.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps import metrics
from snaps._checks import check_known, check_probs
from snaps.conformal.calibration import Calibration
from snaps.datasets.load import folders
from snaps.errors import SnapsError
from snaps.estimators import Pooled, SplitConformal
from snaps.graph import Graph
from snaps.images import (
    ETA,
    EmbeddedSNAPS,
    K,
    Outputs,
    load,
    neighbours,
    temperature,
)
from snaps.predictor.estimator import Estimator
from snaps.scores import THR
from snaps.sets import PredictionSets
from snaps.similarity import similarity_graph
from snaps_lab.reproduce import common
from snaps_lab.reproduce.common import Cells, Result, Track
from snaps_lab.reproduce.paper_variant import paper_scores
from snaps_lab.reproduce.runner import Setting
from snaps_lab.reproduce.store import fingerprint

VERSION = 3  # raise it when a change of code changes what a cell holds
ALPHAS = (0.05, 0.1)
TEMPERATURE_SHARE = 10  # one item in so many
FEWEST_ITEMS = 100
PAPER_ROW = "SNAPS, paper's pool"
METHODS: dict[str, Callable[..., Estimator] | None] = {
    "APS": SplitConformal,
    "SNAPS": EmbeddedSNAPS,
    PAPER_ROW: None,  # no estimator: its scores know the calibration nodes
    "THR": partial(SplitConformal, score=THR()),
    "Pooled without regression": partial(Pooled, parts=("own", "similar"), tuning_evidence=False),
    "Pooled": Pooled,
}
AVERAGED = ("coverage", "size", "size_nonempty", "sscv")

# The files to search for in the data folder, and what a reader must know of each.
NAMES = {
    "cifar10_resnet20": "the network's authors kept the checkpoint that was best on these images",
    "cifar10_resnet56": "the network's authors kept the checkpoint that was best on these images",
    "tinyimagenet_val_efficientnet_lite0": "an ImageNet network on enlarged 64 px images, its "
    "logits restricted to the 200 classes; how pixels are scaled was chosen by the accuracy on 300 "
    "of these images",
    "imagenet_sample1000_efficientnet_lite0": "one image a class, probably training images: "
    "a smoke test, where every neighbour is of another class",
}


def build(name: str, datasets: list[str] | None, setting: Setting, track: Track) -> Result:
    """Run the trials of every file of outputs."""
    paths, skipped = _paths(datasets, setting)
    rows = []
    with track(f"{name}: trials", len(paths) * setting.draws) as advance:
        for stem, path in paths.items():
            items = _read(path, setting.seed)
            cells = []
            for trial in range(setting.draws):
                cells.append(_trial(stem, items, trial, setting))
                advance(1)
            rows += _rows(stem, items, cells)
    rows.sort(key=lambda row: ALPHAS.index(row["alpha"]))
    return {
        "table": name,
        "title": "Image classifiers: similar items alone (k = 5, eta = 0.5)",
        "settings": {},
        "trials": setting.draws,
        "seed": setting.seed,
        "rows": rows,
        "notes": {stem: [NAMES[stem]] for stem in paths if stem in NAMES},
        "skipped": skipped,
        "published": common.published()["images"],
    }


def _paths(datasets: list[str] | None, setting: Setting) -> tuple[dict[str, Path], dict[str, str]]:
    """Files by their stem: those asked for, else those the user names, else the usual ones."""
    own = {path.stem: path for path in setting.files}
    if len(own) < len(setting.files):
        raise SnapsError(f"'--file' must not repeat a name, got {sorted(map(str, setting.files))}")
    usual = list(own) or list(NAMES)
    paths, skipped = {}, {}
    for stem in usual if datasets is None else datasets:
        candidates = [folder / f"{stem}.npz" for folder in folders(setting.data_dir).values()]
        existing = [own[stem]] if stem in own else [path for path in candidates if path.is_file()]
        if existing:
            paths[stem] = existing[0]
        else:
            skipped[stem] = f"'{stem}.npz' is neither in SNAPS_DATA nor in the cache"
    return paths, skipped


class _Items:
    """A file's items, the part that fits the temperature set aside."""

    def __init__(self, outputs: Outputs, seed: int):
        n = len(outputs.labels)
        order = np.random.default_rng([seed, n]).permutation(n)
        apart, pool = np.split(order, [n // TEMPERATURE_SHARE])
        pool.sort()
        self.mark = fingerprint(VERSION, outputs.logits, outputs.features, outputs.labels, seed)
        self.temperature = temperature(outputs.logits[apart], outputs.labels[apart])
        self.logits = outputs.logits[pool].astype(np.float64) / self.temperature
        self.labels = outputs.labels[pool]
        self.graph = Graph(None, outputs.features[pool], ids=pool)
        # The same with the part set aside behind, for a method that tunes on it.
        all_items = np.concatenate([pool, apart])
        self.all_logits = outputs.logits[all_items].astype(np.float64) / self.temperature
        self.all_labels = outputs.labels[all_items]
        self.all_graph = Graph(None, outputs.features[all_items], ids=all_items)
        self.apart = np.arange(len(pool), len(all_items))

    @cached_property
    def similar(self) -> sp.csr_array:
        """The neighbours of the pool's items, made when first needed."""
        return neighbours(self.graph.features, ids=self.graph.keys)

    @cached_property
    def all_similar(self) -> sp.csr_array:
        """The similarity graph of all items, with the part set aside."""
        return similarity_graph(self.all_graph.features, Pooled().k, ids=self.all_graph.keys)

    def top(self, k: int) -> float:
        """Share of items whose label is among the k likeliest."""
        own = np.take_along_axis(self.logits, self.labels[:, None], axis=1)
        return float(((self.logits > own).sum(axis=1) < k).mean())


def _read(path: Path, seed: int) -> _Items:
    outputs = load(path)
    try:
        check_known(outputs.labels, np.arange(len(outputs.labels)), "labels")
        if len(outputs.labels) < FEWEST_ITEMS:
            raise SnapsError(
                f"it must hold at least {FEWEST_ITEMS} items, got {len(outputs.labels)}"
            )
        return _Items(outputs, seed)
    except SnapsError as error:
        raise SnapsError(f"cannot use '{path}': {error}") from error


def _trial(stem: str, items: _Items, trial: int, setting: Setting) -> dict[str, Any]:
    """What each method gave at each level, for one choice of the calibration items."""
    cell = f"{stem}-{trial}-{fingerprint(items.mark, trial, ALPHAS, K, ETA, [*METHODS])}"
    known = setting.store.read_json("images", cell)
    if known is not None:
        return known
    n = len(items.labels)
    order = np.random.default_rng([setting.seed, trial, n]).permutation(n)
    calib, test = np.split(order, [n // 2])
    seed = 1000 * setting.seed + trial
    result: dict[str, Any] = {"n_calib": len(calib), "n_test": len(test), "methods": {}}
    for name, kind in METHODS.items():
        truth = items.all_labels if name.startswith("Pooled") else items.labels
        for alpha, sets in zip(ALPHAS, _sets(kind, items, calib, test, seed), strict=True):
            result["methods"][f"{name} {alpha:g}"] = {
                "coverage": metrics.coverage(sets, truth),
                "size": metrics.size(sets),
                "size_nonempty": metrics.size_nonempty(sets),
                "sscv": metrics.sscv(sets, truth, alpha),
            }
    setting.store.write_json("images", cell, result)
    return result


def _sets(
    kind: Callable[..., Estimator] | None,
    items: _Items,
    calib: np.ndarray,
    test: np.ndarray,
    seed: int,
) -> list[PredictionSets]:
    """The sets of the test items at each level."""
    if kind is None:
        probs = check_probs(items.logits, logits=True)
        scores, labels = paper_scores(items.graph, probs, calib, seed=seed), items.labels[calib]
        calibration = Calibration(scores[calib, labels], labels, probs.shape[1])
        masks = [calibration.contains(scores[test], alpha) for alpha in ALPHAS]
        return [PredictionSets(mask, test, num_nodes=len(items.labels)) for mask in masks]
    method = kind(ALPHAS[0], seed=seed)
    if isinstance(method, Pooled):
        method.calibrate(
            items.all_graph, items.all_logits, items.all_labels, calib, items.apart,
            items.all_similar, logits=True,
        )  # fmt: skip
    else:
        similarity = items.similar if kind is EmbeddedSNAPS else None
        method.calibrate(
            items.graph, items.logits, items.labels, calib, similarity=similarity, logits=True
        )
    return [method.predict_set(test, alpha) for alpha in ALPHAS]


def _rows(stem: str, items: _Items, cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over the trials, the coverage to expect, and the paper's numbers if it has them."""
    rows = []
    paper_model = _paper_model(stem, items.logits.shape[1])
    for alpha in ALPHAS:
        for method in METHODS:
            row: dict[str, Any] = {"dataset": stem, "alpha": alpha, "method": method}
            row |= {"top1": items.top(1), "top5": items.top(5), "temperature": items.temperature}
            for key in AVERAGED:
                values = np.array([cell["methods"][f"{method} {alpha:g}"][key] for cell in cells])
                row[key] = float(values.mean())
                row[f"{key}_median"] = float(np.median(values))
                row[f"{key}_se"] = common.standard_error(values)
            n, m = cells[0]["n_calib"], cells[0]["n_test"]
            row |= common.against_law(row["coverage"], n, m, alpha, len(cells))
            for paper in common.published()["images"]:
                same = (paper_model, alpha, "SNAPS" if method == PAPER_ROW else method)
                if (paper["model"], paper["alpha"], paper["method"]) == same:
                    row |= {f"paper_{key}": paper[key] for key in ("coverage", "size", "sscv")}
            rows.append(row)
    return rows


def _paper_model(stem: str, num_classes: int) -> str | None:
    """The paper's ImageNet model that a file such as imagenet_val_resnet101.npz is of."""
    words = set(re.split(r"[^a-z0-9]+", stem.lower()))
    models = {row["model"] for row in common.published()["images"]} & words
    return (
        models.pop() if len(models) == 1 and num_classes == 1000 and "imagenet" in words else None
    )


def layout(result: Result) -> tuple[list[str], Cells]:
    """Ours, and the paper's where it has the same network."""
    paper = any("paper_size" in row for row in result["rows"])
    header = ["alpha", "dataset", "method", "top-1, 5 %", "coverage", "size", "median"]
    header += ["paper", "SSCV", "paper SSCV"] if paper else ["SSCV"]
    rows = []
    for row in result["rows"]:
        cells = [f"{row['alpha']:g}", row["dataset"], row["method"]]
        cells += [f"{100 * row['top1']:.2f}, {100 * row['top5']:.2f}", common.with_mark(row)]
        cells += [common.with_error(row["size"], row["size_se"]), f"{row['size_median']:.3f}"]
        sscv = _number(row["sscv"], 3)
        if paper:
            cells += [_number(row.get("paper_size"), 2), sscv, _number(row.get("paper_sscv"), 3)]
        else:
            cells.append(sscv)
        rows.append(cells)
    return header, rows


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def remarks(result: Result) -> list[str]:
    """How it was made, and whether coverage is as expected."""
    exact = [row for row in result["rows"] if row["method"] != PAPER_ROW]
    return [
        f"{result['trials']} trials, seed {result['seed']}: random halves for calibration and "
        "test; the temperature is fitted on another tenth; ± is the standard error over trials",
        "'median' of the trials' mean sizes is what the paper reports; 'size' is their mean",
        f"'{PAPER_ROW}' takes neighbours from the calibration items, as the paper says; a "
        "calibration item is then its own nearest, and the guarantee is not exact",
        "'Pooled without regression': nor are tuning labels evidence in it "
        "(`tuning_evidence=False`)",
        f"Without '{PAPER_ROW}': {common.consistent(exact)}",
    ]
