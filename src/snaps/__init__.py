"""Guaranteed prediction sets for node classifiers: SNAPS and its relatives.

Three lines from any classifier's probabilities to sets that hold the true label 95 % of the time:

    graph = snaps.Graph(edges, features)
    cp = snaps.SNAPS(alpha=0.05).calibrate(graph, probs, labels, calibration_nodes)
    sets = cp.predict_set()
"""

from snaps import images, metrics
from snaps._errors import SnapsError, SnapsWarning
from snaps._persistence import load
from snaps.advisor import advise
from snaps.graph import Graph
from snaps.pooled import Pooled
from snaps.predictor import DAPS, SNAPS, SplitConformal
from snaps.scores import APS, RAPS, SAPS, THR, Score
from snaps.sets import PredictionSets
from snaps.similarity import similarity_graph
from snaps.splits import evaluate_splits
from snaps.structure import structural_features

__version__ = "0.1.0"

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
    "SnapsError",
    "SnapsWarning",
    "SplitConformal",
    "THR",
    "advise",
    "evaluate_splits",
    "images",
    "load",
    "metrics",
    "similarity_graph",
    "structural_features",
]
