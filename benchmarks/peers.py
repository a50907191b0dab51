"""The same job with TorchCP, MAPIE and crepes: seconds, coverage and size, side by side.

The peers are installed apart, for they ask for versions of their own:

    pip install --no-deps torchcp==1.2.1 MAPIE==1.6.0 crepes==0.9.1
    SNAPS_DATA=... python -m benchmarks.peers

It writes the table into docs/comparison.md. Every tool gets the same probabilities and the same
1,000 calibration nodes, and is timed from there to the sets of all other nodes; the fastest of some
runs counts, so compiling does not. TorchCP is timed with one thread and with all, and the better of
the two counts. Coverage and size are means over 100 splits, the same for all tools; those of our
graph methods are drawn by `evaluate_splits`.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np

import snaps
from benchmarks.data import load_graph
from snaps.models import smoothed_regression

PAGE = Path(__file__).parents[1] / "docs" / "comparison.md"
BEGIN, END = "<!-- times -->\n", "<!-- /times -->\n"
ALPHA, CALIB, SPLITS = 0.1, 1000, 100
GRAPHS = ("cora_ml", "coauthor_cs")

Split = tuple[np.ndarray, np.ndarray]
Predict = Callable[[Split], np.ndarray]  # calibration and test nodes to a mask (m, K)


class Subject:
    """A graph with probabilities, and who calibrates and who is predicted."""

    def __init__(self, data_dir: Path, name: str):
        self.name = name
        self.graph, self.labels = load_graph(data_dir, name)
        order = np.random.default_rng(0).permutation(self.graph.num_nodes)
        self.train, self.pool = np.split(order, [300])
        self.probs = smoothed_regression(self.graph, self.labels, self.train)
        self.calib, self.test = np.split(self.pool, [CALIB])

    def splits(self) -> Iterator[Split]:
        """Random calibration nodes and all others, as often as asked for."""
        for seed in range(SPLITS):
            yield tuple(np.split(np.random.default_rng(seed).permutation(self.pool), [CALIB]))


@dataclass
class Job:
    """What is done, with what: `start` makes what all splits share, and gives what predicts one.

    `method` is one of ours whose splits `evaluate_splits` draws; `judged` says whether splits are
    made at all. `plain` ones of torch are timed from ready tensors, with one thread as well.
    """

    name: str
    tool: str
    start: Callable[[], Predict]
    method: Any = None
    judged: bool = True
    plain: bool = False


def jobs(subject: Subject) -> Iterator[Job]:
    """All jobs; of each, ours first."""
    for score, kind in (("THR", snaps.THR()), ("APS", snaps.APS())):
        name = f"{score}, no graph"
        plain = snaps.SplitConformal(ALPHA, score=kind)
        yield Job(name, "snaps", lambda s=plain: _ours(subject, s))
        yield Job(name, "TorchCP", lambda s=score: _torchcp(subject, s), plain=True)
        yield Job(name, "MAPIE", lambda s=score: _mapie(subject, s))
        if score == "THR":  # the same sets; of many nodes it takes seconds
            yield Job(name, "crepes", lambda: _crepes(subject), judged=len(subject.pool) < 5000)
    fixed, tuned = snaps.SNAPS(ALPHA, weights=(1 / 3, 1 / 3)), snaps.SNAPS(ALPHA)
    name = "SNAPS, weights 1/3, similar nodes included"
    yield Job(name, "snaps", lambda: _ours(subject, fixed), fixed)
    yield Job(name, "TorchCP", lambda: _torchcp_snaps(subject))
    yield Job("SNAPS, weights tuned", "snaps", lambda: _ours(subject, tuned), tuned)
    pooled = snaps.Pooled(ALPHA)
    yield Job("Pooled", "snaps", lambda: _ours(subject, pooled), pooled)


def ours(subject: Subject, method: Any) -> np.ndarray:
    """The sets of the first split."""
    return _ours(subject, method)((subject.calib, subject.test))


def torchcp_snaps(subject: Subject) -> np.ndarray:
    """The same with TorchCP, which searches for similar nodes on the way."""
    return _torchcp_snaps(subject)((subject.calib, subject.test))


def _ours(subject: Subject, method: Any) -> Predict:
    def predict(split: Split) -> np.ndarray:
        calib, test = split
        data = subject.graph, subject.probs, subject.labels
        method.calibrate(*data, calib, known_nodes=subject.train)
        return method.predict_set(test).mask

    return predict


def _torchcp(subject: Subject, score: str) -> Predict:
    import torch
    from torchcp.classification.predictor import SplitPredictor
    from torchcp.classification.score import APS, LAC

    function = LAC(score_type="identity") if score == "THR" else APS(score_type="identity")
    predictor = SplitPredictor(function, alpha=ALPHA)
    probs = torch.from_numpy(subject.probs.astype(np.float32))
    labels = torch.from_numpy(subject.labels)

    def predict(split: Split) -> np.ndarray:
        calib, test = map(torch.from_numpy, split)
        predictor.calculate_threshold(probs[calib], labels[calib], ALPHA)
        return predictor.predict_with_logits(probs[test]).numpy().astype(bool)

    return predict


def _torchcp_snaps(subject: Subject) -> Predict:
    import torch
    from torch_geometric.data import Data
    from torchcp.classification.score import APS
    from torchcp.graph.predictor import SplitPredictor
    from torchcp.graph.score import SNAPS

    source, target = subject.graph.adjacency.tocoo().coords
    features = subject.graph.features
    data = Data(
        x=torch.from_numpy(features if isinstance(features, np.ndarray) else features.toarray()),
        edge_index=torch.from_numpy(np.stack([source, target]).astype(np.int64)),
        y=torch.from_numpy(subject.labels),
    )
    probs = torch.from_numpy(subject.probs.astype(np.float32))
    score = SNAPS(data, APS(score_type="identity"), features=data.x, k=20)
    predictor = SplitPredictor(data, score, alpha=ALPHA)
    mask = torch.nn.functional.one_hot(data.y, probs.shape[1]).bool()

    def predict(split: Split) -> np.ndarray:
        calib, test = map(torch.from_numpy, split)
        predictor.calculate_threshold(probs, calib, mask, ALPHA)
        return predictor.predict_with_logits(probs, test).numpy().astype(bool)

    return predict


def _mapie(subject: Subject, score: str) -> Predict:
    from mapie.classification import SplitConformalClassifier
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Given(ClassifierMixin, BaseEstimator):
        """A classifier that looks its probabilities up."""

        def __init__(self) -> None:
            self.classes_, self.fitted_ = np.arange(subject.probs.shape[1]), True

        def fit(self, rows: Any, labels: Any) -> Any:
            return self

        def predict_proba(self, rows: np.ndarray) -> np.ndarray:
            return subject.probs[rows[:, 0]]

        def predict(self, rows: np.ndarray) -> np.ndarray:
            return self.predict_proba(rows).argmax(axis=1)

    kind = "lac" if score == "THR" else "aps"
    options = {} if score == "THR" else {"include_last_label": "randomized"}

    def predict(split: Split) -> np.ndarray:
        calib, test = split
        classifier = SplitConformalClassifier(
            Given(), confidence_level=1 - ALPHA, conformity_score=kind
        )
        classifier.conformalize(calib[:, None], subject.labels[calib])
        _, sets = classifier.predict_set(test[:, None], conformity_score_params=options)
        return sets[:, :, 0]

    return predict


def _crepes(subject: Subject) -> Predict:
    from crepes import ConformalClassifier

    def predict(split: Split) -> np.ndarray:
        calib, test = split
        known = 1 - subject.probs[calib]
        classifier = ConformalClassifier().fit(known[np.arange(len(calib)), subject.labels[calib]])
        return classifier.predict_set(
            1 - subject.probs[test], confidence=1 - ALPHA, smoothing=False
        ).astype(bool)

    return predict


def seconds_of(subject: Subject, job: Job, most: float = 3.0) -> float:
    """Fewest seconds from probabilities to sets, of the runs that fit; two unless they are long."""
    import torch

    fastest, usual = float("inf"), torch.get_num_threads()
    ready = job.start() if job.plain else None
    for threads in {usual, 1} if job.plain else {usual}:
        torch.set_num_threads(threads)
        began, runs = time.perf_counter(), 0
        while runs < (2 if fastest < 10 * most else 1) or time.perf_counter() - began < most:
            start = time.perf_counter()
            (ready or job.start())((subject.calib, subject.test))
            fastest, runs = min(fastest, time.perf_counter() - start), runs + 1
    torch.set_num_threads(usual)
    return fastest


def judge(subject: Subject, job: Job) -> tuple[float, float] | None:
    """Mean coverage and size over the splits."""
    if not job.judged:
        return None
    if job.method is not None:
        case = subject.graph, subject.probs, subject.labels, np.sort(subject.pool)
        found = snaps.evaluate_splits(job.method, *case, CALIB, SPLITS, known_nodes=subject.train)
        return float(found["coverage"].mean()), float(found["size"].mean())
    predict, pairs = job.start(), []
    for calib, test in subject.splits():
        mask = predict((calib, test))
        hits = mask[np.arange(len(test)), subject.labels[test]]
        pairs.append((hits.mean(), mask.sum(axis=1).mean()))
    coverage, size = np.mean(pairs, axis=0).tolist()
    return coverage, size


def stand_in() -> None:
    """For packages that TorchCP imports and these jobs don't use."""
    for name in ("torchsort", "transformers", "torchvision"):
        sys.modules.setdefault(name, MagicMock())


def main() -> None:
    """Measure, print, and write the table into the page."""
    stand_in()
    versions = ", ".join(
        f"{name} {metadata.version(name)}" for name in ("torchcp", "MAPIE", "crepes")
    )
    lines = ["| graph | job | with | seconds | times snaps | coverage | labels per set |"]
    lines.append("|---|---|---|---|---|---|---|")
    for name in GRAPHS:
        subject = Subject(Path(os.environ["SNAPS_DATA"]), name)
        first: dict[str, float] = {}
        for job in jobs(subject):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                seconds, found = seconds_of(subject, job), judge(subject, job)
            first.setdefault(job.name, seconds)
            times = seconds / first[job.name]
            ratio = "" if job.tool == "snaps" else f"{times:.{0 if times >= 10 else 2}f}"
            means = ("", "") if found is None else (f"{found[0]:.4f}", f"{found[1]:.2f}")
            cells = (name, job.name, job.tool, f"{seconds:.3g}", ratio, *means)
            lines.append("| " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    text = PAGE.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    note = f"Measured in one run on {os.cpu_count()} cores, with {versions}.\n\n"
    PAGE.write_text(before + BEGIN + note + "\n".join(lines) + "\n" + END + after)


if __name__ == "__main__":
    main()
