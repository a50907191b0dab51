"""The same job with TorchCP, MAPIE and crepes: seconds, coverage and size, side by side.

The peers are installed apart, for they ask for versions of their own:

    pip install --no-deps torchcp==1.2.1 MAPIE==1.6.0 crepes==0.9.1
    SNAPS_DATA=... python -m benchmarks.peers

It writes the table into docs/comparison.md. Every tool gets the same probabilities, the same 1,000
calibration nodes, and is timed from there to the sets of all other nodes; the fastest of some runs
counts, so compiling does not.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
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
ALPHA, CALIB = 0.1, 1000
GRAPHS = ("cora_ml", "coauthor_cs")

Job = Callable[[], np.ndarray]


class Subject:
    """A graph with probabilities, and who calibrates and who is predicted."""

    def __init__(self, data_dir: Path, name: str):
        self.name = name
        self.graph, self.labels = load_graph(data_dir, name)
        order = np.random.default_rng(0).permutation(self.graph.num_nodes)
        self.train, self.calib, self.test = np.split(order, [300, 300 + CALIB])
        self.probs = smoothed_regression(self.graph, self.labels, self.train)


def jobs(subject: Subject) -> Iterator[tuple[str, str, Job]]:
    """What is done, with what, and the function that gives a mask (m, K)."""
    for score, kind in (("THR", snaps.THR()), ("APS", snaps.APS())):
        job = f"{score}, no graph"
        yield job, "snaps", lambda s=kind: ours(subject, snaps.SplitConformal(ALPHA, score=s))
        yield job, "TorchCP", lambda s=score: _torchcp(subject, s)
        yield job, "MAPIE", lambda s=score: _mapie(subject, s)
        if score == "THR":
            yield job, "crepes", lambda: _crepes(subject)
    fixed = snaps.SNAPS(ALPHA, weights=(1 / 3, 1 / 3))
    job = "SNAPS, weights 1/3, similar nodes included"
    yield job, "snaps", lambda: ours(subject, fixed)
    yield job, "TorchCP", lambda: torchcp_snaps(subject)
    yield "SNAPS, weights tuned", "snaps", lambda: ours(subject, snaps.SNAPS(ALPHA))
    yield "Pooled", "snaps", lambda: ours(subject, snaps.Pooled(ALPHA))


def ours(subject: Subject, method: Any) -> np.ndarray:
    method.calibrate(
        subject.graph, subject.probs, subject.labels, subject.calib, known_nodes=subject.train
    )
    return method.predict_set(subject.test).mask


def _torchcp(subject: Subject, score: str) -> np.ndarray:
    import torch
    from torchcp.classification.predictor import SplitPredictor
    from torchcp.classification.score import APS, LAC

    function = LAC(score_type="identity") if score == "THR" else APS(score_type="identity")
    predictor = SplitPredictor(function, alpha=ALPHA)
    probs = torch.from_numpy(subject.probs.astype(np.float32))
    labels = torch.from_numpy(subject.labels)
    predictor.calculate_threshold(probs[subject.calib], labels[subject.calib], ALPHA)
    return predictor.predict_with_logits(probs[subject.test]).numpy().astype(bool)


def torchcp_snaps(subject: Subject) -> np.ndarray:
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
    predictor.calculate_threshold(probs, torch.from_numpy(subject.calib), mask, ALPHA)
    sets = predictor.predict_with_logits(probs, torch.from_numpy(subject.test))
    return sets.numpy().astype(bool)


def _mapie(subject: Subject, score: str) -> np.ndarray:
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
    classifier = SplitConformalClassifier(
        Given(), confidence_level=1 - ALPHA, conformity_score=kind
    )
    classifier.conformalize(subject.calib[:, None], subject.labels[subject.calib])
    options = {} if score == "THR" else {"include_last_label": "randomized"}
    _, sets = classifier.predict_set(subject.test[:, None], conformity_score_params=options)
    return sets[:, :, 0]


def _crepes(subject: Subject) -> np.ndarray:
    from crepes import ConformalClassifier

    rows = np.arange(len(subject.calib))
    known = 1 - subject.probs[subject.calib]
    classifier = ConformalClassifier().fit(known[rows, subject.labels[subject.calib]])
    return classifier.predict_set(
        1 - subject.probs[subject.test], confidence=1 - ALPHA, smoothing=False
    ).astype(bool)


def best(job: Job, seconds: float = 3.0) -> tuple[float, np.ndarray]:
    """Fewest seconds of the runs that fit, after a first one, and what the last gave."""
    began = time.perf_counter()
    mask = job()
    fastest = time.perf_counter() - began
    began = time.perf_counter()
    while fastest > seconds or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        mask = job()
        fastest = min(fastest, time.perf_counter() - start)
        if fastest > seconds:
            break
    return fastest, mask


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
        for job, tool, work in jobs(subject):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                seconds, mask = best(work)
            first.setdefault(job, seconds)
            rows = np.arange(len(subject.test))
            covered = mask[rows, subject.labels[subject.test]].mean()
            ratio = "" if tool == "snaps" else f"{seconds / first[job]:.1f}"
            cells = (
                name,
                job,
                tool,
                f"{seconds:.3g}",
                ratio,
                f"{covered:.3f}",
                f"{mask.sum(1).mean():.2f}",
            )
            lines.append("| " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    text = PAGE.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    note = f"Measured in one run on {os.cpu_count()} cores, with {versions}.\n\n"
    PAGE.write_text(before + BEGIN + note + "\n".join(lines) + "\n" + END + after)


if __name__ == "__main__":
    main()
