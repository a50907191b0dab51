"""Guaranteed prediction sets for node classifiers: SNAPS and its relatives.

From any classifier's probabilities to sets that contain the true label with probability 0.95:

    graph = snaps.Graph(edges, features)
    cp = snaps.SNAPS(alpha=0.05).calibrate(graph, probs, labels, calibration_nodes)
    sets = cp.predict_set()
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from snaps._version import __version__
from snaps.errors import SnapsError, SnapsWarning

if TYPE_CHECKING:
    from snaps import datasets, images, metrics, models, spark
    from snaps.advisor import advise
    from snaps.conformal.planning import plan
    from snaps.conformal.watching import Watch
    from snaps.estimators import DAPS, SNAPS, Pooled, SplitConformal
    from snaps.graph import Graph
    from snaps.predictor.loading import load
    from snaps.predictor.selection import Selection
    from snaps.scores import APS, RAPS, SAPS, THR, Score
    from snaps.sets import PredictionSets
    from snaps.similarity import similarity_graph
    from snaps.splits import evaluate_splits
    from snaps.structure import structural_features

__all__ = [
    "APS",
    "DAPS",
    "Graph",
    "Pooled",
    "PredictionSets",
    "RAPS",
    "SAPS",
    "SNAPS",
    "Score",
    "Selection",
    "SnapsError",
    "SnapsWarning",
    "SplitConformal",
    "THR",
    "Watch",
    "__version__",
    "advise",
    "datasets",
    "evaluate_splits",
    "images",
    "load",
    "metrics",
    "models",
    "plan",
    "similarity_graph",
    "spark",
    "structural_features",
]

# Imported when first asked for: the command line starts at once.
_NAMES = {
    "advisor": ("advise",),
    "conformal.planning": ("plan",),
    "conformal.watching": ("Watch",),
    "estimators": ("DAPS", "Pooled", "SNAPS", "SplitConformal"),
    "graph": ("Graph",),
    "predictor.loading": ("load",),
    "predictor.selection": ("Selection",),
    "scores": ("APS", "RAPS", "SAPS", "Score", "THR"),
    "sets": ("PredictionSets",),
    "similarity": ("similarity_graph",),
    "splits": ("evaluate_splits",),
    "structure": ("structural_features",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"snaps.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    if not name.startswith("__") and importlib.util.find_spec(f"snaps.{name}") is not None:
        return importlib.import_module(f"snaps.{name}")
    raise AttributeError(f"module 'snaps' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
