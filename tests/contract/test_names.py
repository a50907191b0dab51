"""Names, signatures and attributes that users and outside checks rely on (DESIGN.md, section 3).

Compared with literals: changing one of these changes a line here. Attributes and keys may be added.
Section 3 also names what does not exist yet and is left out: `select` and `accept` of the
estimators and `Selection`, `PredictionSets.decide`, `predict_set(empty=)`, `Pooled(class_floor=,
confidence=)` and an `alpha` that maps classes to rates. Left out as parts of the laboratory:
`snaps.reproduce`, `snaps.models` but for `smoothed_regression`, and `extract`, `load` and `Outputs`
of `snaps.images`.
"""

from __future__ import annotations

import inspect
import types
from functools import reduce

import numpy as np
import pytest
import scipy.sparse as sp

import snaps
import snaps.folder
import snaps.spark

from .graphs import setting

ESTIMATORS = ("SplitConformal", "DAPS", "SNAPS", "Pooled", "images.EmbeddedSNAPS")
_NEIGHBOURS = "neighbours='auto', recall=0.95, candidates=None"
_CALIBRATE = "probs, labels, nodes, tune_nodes=None, similarity=None, logits=False, *"
_ROLES = (
    "known_nodes=None, groups=None, classes=None, group_floor=None, missing_labels=0, chances=None"
)
_RECALIBRATE = "self, graph, probs, labels=None, nodes=None, similarity=None, logits=False, *"

SIGNATURES = {
    # Graphs, similarity, data
    "Graph": "(edges, features=None, num_nodes=None, *, ids=None, directed=False, "
    "self_loops=False, weighted=False, edge_weights=None)",
    "Graph.from_pyg": "(data, *, weighted=False, **options)",
    "Graph.from_networkx": "(graph, features=None, *, weighted=False, **options)",
    "Graph.from_npz": "(path, **options)",
    "Graph.from_parquet": "(folder, *, weighted=False, **options)",
    "Graph.index": "(self, ids)",
    "similarity_graph": "(features, k=20, *, method='auto', recall=0.95, candidates=None, "
    "rows=None, ids=None, seed=0, progress=False)",
    "structural_features": "(graph, hops=2)",
    "datasets.make_graph": "(num_nodes=2000, num_classes=5, *, homophily=0.8, degree=8.0, "
    "tail=2.5, imbalance=0.0, features='words', num_features=None, signal=1.0, seed=0)",
    "datasets.load": "(name, data_dir=None, *, download=True)",
    "datasets.fetch": "(name, *, mirror=None)",
    "datasets.verify": "(names=None, data_dir=None, *, progress=False)",
    "datasets.names": "()",
    "models.smoothed_regression": "(graph, labels, train_nodes, *, num_classes=None, hops=2, "
    "weight_decay=1e-05, max_iter=200)",
    "folder.read_folder": "(folder, *, columns=(), **options)",
    "folder.write_folder": "(folder, graph, probs, labels=None, roles=None, *, classes=None)",
    # Scores
    "APS": "(randomized=True)",
    "RAPS": "(k_reg='tune', penalty='tune', randomized=True)",
    "SAPS": "(weight=0.1, randomized=True)",
    "THR": "()",
    "Score.compute": "(self, probs, draws)",
    "Score.tune": "(self, probs, tuning, alpha, seed)",
    "Score.validate": "(self)",
    # Estimators
    "SplitConformal": "(alpha=0.05, *, score=APS(randomized=True), seed=0, "
    "class_conditional=False, class_floor=None, confidence=None)",
    "DAPS": "(alpha=0.05, *, score=APS(randomized=True), seed=0, class_conditional=False, "
    "class_floor=None, confidence=None, weight='tune')",
    "SNAPS": "(alpha=0.05, *, score=APS(randomized=True), seed=0, class_conditional=False, "
    f"class_floor=None, confidence=None, k=20, weights='tune', {_NEIGHBOURS})",
    "Pooled": "(alpha=0.05, *, score=THR(), seed=0, class_conditional=False, class_floor=None, "
    f"confidence=None, parts='auto', k=20, tuning_evidence=True, {_NEIGHBOURS})",
    "images.EmbeddedSNAPS": "(alpha=0.05, *, score=APS(randomized=True), seed=0, "
    "class_conditional=False, class_floor=None, confidence=None, k=5, eta=0.5, "
    "weighting='uniform')",
    **{f"{name}.calibrate": f"(self, graph, {_CALIBRATE}, {_ROLES})" for name in ESTIMATORS[:-1]},
    **{
        f"{name}.recalibrate": f"({_RECALIBRATE}, groups=None, classes=None, refit=True, "
        "missing='error', threshold='set', chances=None)"
        for name in ESTIMATORS[:-1]
    },
    "images.EmbeddedSNAPS.calibrate": f"(self, features, {_CALIBRATE}, {_ROLES}, reference=None)",
    "images.EmbeddedSNAPS.recalibrate": f"({_RECALIBRATE}, reference=None, **options)",
    **{
        f"{name}.{verb}": signature
        for name in ESTIMATORS
        for verb, signature in {
            "predict_set": "(self, nodes=None, alpha=None, *, smoothed=False, empty='keep')",
            "predict_p": "(self, nodes=None, smoothed=False)",
            "select": "(self, label, fdr=0.1, nodes=None)",
            "accept": "(self, error=0.02, nodes=None)",
            "evaluate": "(self, labels, nodes=None, *, empty='keep')",
            "explain": "(self, node)",
            "exchangeability": "(self, nodes=None)",
            "watch": "(self, labels, nodes, *, state=None, alarm=0.01)",
            "report": "(self, path, labels=None, nodes=None, *, show=None, title='', "
            "source='', watch=None)",
            "save": "(self, path, data=True)",
            "get_params": "(self, deep=True)",
            "set_params": "(self, **parameters)",
        }.items()
    },
    "load": "(path)",
    "plan": "(alpha=0.05, *, within=0.01, nodes=None, confidence=0.9)",
    "evaluate_splits": "(method, graph, probs, labels, pool, n_calib, n_splits=100, seed=0, "
    "similarity=None, *, tune_nodes=None, n_tune=None, known_nodes=None, alphas=None, "
    "logits=False, classes=None, groups=None, group_floor=None, select=None, fdr=None, "
    "accept=None, chances=None, smoothed=False)",
    "advise": "(graph, probs, labels, tune_nodes, goal='smallest', *, n_calib=None, alpha=0.05, "
    "known_nodes=None, similarity=None, logits=False, methods=None, k=20, seed=0, classes=None)",
    "images.join": "(features, probs, labels, reference_features, reference_probs)",
    "images.neighbours": "(features, k=5, *, weighting='uniform', reference=None, ids=None)",
    "images.temperature": "(logits, labels)",
    # Sets and metrics
    "PredictionSets": "(mask, nodes=None, ids=None, num_nodes=None, classes=None, metadata=None)",
    "PredictionSets.labels": "(self)",
    "PredictionSets.decide": "(self, actions, otherwise='review')",
    "Selection.to_pandas": "(self)",
    "Selection.write": "(self, path)",
    "PredictionSets.__len__": "(self)",
    "PredictionSets.__iter__": "(self)",
    "PredictionSets.__getitem__": "(self, key)",
    "PredictionSets.to_pandas": "(self, *, wide=False, p=None)",
    "PredictionSets.to_parquet": "(self, path, metadata=None)",
    "PredictionSets.write": "(self, path, metadata=None)",
    "metrics.coverage": "(sets, labels)",
    "metrics.size": "(sets, labels=None)",
    "metrics.size_nonempty": "(sets, labels=None)",
    "metrics.singleton_hit": "(sets, labels)",
    "metrics.empty": "(sets, labels=None)",
    "metrics.sscv": "(sets, labels, alpha, "
    "strata=((0, 1), (2, 3), (4, 10), (11, 100), (101, inf)))",
    "metrics.class_coverage": "(sets, labels)",
    "metrics.class_gap": "(sets, labels, alpha)",
    "metrics.group_coverage": "(sets, labels, groups)",
    # Spark
    "spark.predict_sets": "(spark, nodes, edges, estimator=None, *, classes=None, logits=False, "
    """titles=("'nodes'", "'edges'"))""",
}
PUBLIC = {
    "APS", "DAPS", "Graph", "Pooled", "PredictionSets", "RAPS", "SAPS", "SNAPS", "Score",
    "Selection", "SnapsError", "SnapsWarning", "SplitConformal", "THR", "Watch", "__version__",
    "advise", "datasets", "evaluate_splits", "images", "load", "metrics", "models", "plan",
    "similarity_graph", "spark", "structural_features",
}  # fmt: skip
FITTED = {
    "threshold_", "weights_", "part_weights_", "score_", "scores_", "classes_", "groups_",
    "neighbours_", "calib_nodes_", "calib_ids_", "calib_labels_", "calib_scores_", "tune_nodes_",
    "tune_ids_", "known_nodes_", "known_ids_", "missing_labels_",
}  # fmt: skip
EVALUATION = [
    "coverage", "size", "size_nonempty", "singleton_hit", "empty", "n", "threshold",
    "coverage_interval", "inside", "tied", "upper_binds", "n_calib", "n_tune", "class_coverage",
    "group_coverage",
]  # fmt: skip
SPLITS = [
    "coverage", "size", "size_nonempty", "singleton_hit", "empty", "threshold", "n_calib", "n_test",
]  # fmt: skip


@pytest.fixture(scope="module")
def given():
    return setting("words")


def named(path):
    return reduce(getattr, path.split("."), snaps)


def has(value, *names):
    return [name for name in names if not hasattr(value, name)] == []


def signature(function) -> str:
    """Names, kinds and defaults of parameters, without annotations."""
    full = inspect.signature(function)
    bare = [each.replace(annotation=each.empty) for each in full.parameters.values()]
    return str(inspect.Signature(bare))


@pytest.mark.parametrize("path", SIGNATURES)
def test_signatures(path):
    assert signature(named(path)) == SIGNATURES[path]


def test_public_names():
    assert set(snaps.__all__) >= PUBLIC and set(dir(snaps)) >= PUBLIC
    assert has(snaps, *PUBLIC)
    modules = {name for name in PUBLIC if isinstance(getattr(snaps, name), types.ModuleType)}
    assert modules == {"datasets", "images", "metrics", "models", "spark"}
    assert (snaps.images.K, snaps.images.ETA) == (5, 0.5)
    assert has(snaps.spark.Prediction, "sets", "write", "close")


def test_errors_and_warnings():
    assert issubclass(snaps.SnapsError, ValueError)
    assert issubclass(snaps.SnapsWarning, UserWarning)
    error = snaps.SnapsError("'k' must be\n  a number")
    assert str(error) == "'k' must be a number"


def test_scores_are_values():
    scores = {
        "APS(randomized=True)": snaps.APS(),
        "RAPS(k_reg=2, penalty=0.5, randomized=False)": snaps.RAPS(2, 0.5, False),
        "SAPS(weight=0.3, randomized=True)": snaps.SAPS(0.3),
        "THR()": snaps.THR(),
    }
    for text, score in scores.items():
        assert repr(score) == text and isinstance(score, snaps.Score)
        assert score.randomized is ("randomized=True" in text) and score.needs_tuning is False
    assert snaps.APS() == snaps.APS() and hash(snaps.APS()) == hash(snaps.APS())
    assert snaps.RAPS().needs_tuning is True


def test_graphs(given):
    graph = snaps.Graph([[0, 1], [1, 2]], np.eye(3), ids=["a", "b", "c"])
    assert isinstance(graph.adjacency, sp.csr_array) and graph.adjacency.shape == (3, 3)
    assert (graph.num_nodes, graph.num_edges) == (3, 2)
    assert (graph.directed, graph.weighted, graph.named) == (False, False, True)
    assert graph.features.shape == (3, 3) and graph.keys.dtype == np.uint64
    assert graph.ids.tolist() == ["a", "b", "c"] and graph.index(["c", "a"]).tolist() == [2, 0]
    assert repr(graph) == "Graph(3 nodes, 2 edges, 3 features)"
    similarity = snaps.similarity_graph(given.graph.features)
    assert isinstance(similarity, sp.csr_array)
    assert (similarity.method, similarity.recall) == ("exact", 1.0)


def test_datasets():
    data = snaps.datasets.make_graph(40, 3, degree=2)
    assert has(data, "name", "graph", "labels", "splits", "notes", "directed_edges")
    assert data.num_classes == 3 and isinstance(data, snaps.datasets.Dataset)
    assert snaps.datasets.names() == [
        "cora_ml", "pubmed", "citeseer", "cora_full", "coauthor_cs", "coauthor_physics",
        "amazon_computers", "amazon_photo", "ogbn_arxiv", "ogbn_products", "chameleon", "squirrel",
        "actor",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ESTIMATORS)
def test_fitted_attributes(name, given):
    cp = named(name)(0.1)
    names = FITTED | ({"bias_", "probs_"} if name == "Pooled" else set())
    for each in names:
        with pytest.raises(snaps.SnapsError) as caught:
            getattr(cp, each)
        assert isinstance(caught.value, AttributeError)  # as hasattr expects
    first = given.graph.features.toarray() if name == "images.EmbeddedSNAPS" else given.graph
    assert cp.calibrate(first, given.probs, given.labels, given.calib) is cp
    assert has(cp, *names)
    n, num_classes = given.probs.shape
    assert isinstance(cp.threshold_, float) and cp.scores_.shape == (n, num_classes)
    assert isinstance(cp.score_, snaps.Score) and cp.classes_.tolist() == [0, 1, 2, 3]
    if name == "Pooled":
        assert isinstance(cp.weights_, dict) and cp.weights_ == cp.part_weights_
        assert cp.bias_.shape == (num_classes,) and cp.probs_.shape == (n, num_classes)
    else:
        similar, linked = cp.weights_
        assert 0 <= similar <= 1 and 0 <= linked <= 1
    used = np.concatenate([cp.calib_nodes_, cp.tune_nodes_])
    assert sorted(used) == given.calib.tolist() and cp.known_nodes_.size == 0
    assert len(cp.calib_labels_) == len(cp.calib_scores_) == len(cp.calib_ids_)
    assert cp.groups_ == () and isinstance(cp.neighbours_, dict)


def test_thresholds_by_class_and_group(given):
    shapes = {}
    for by_class in (False, True):
        for groups in (None, given.bands):
            cp = given.calibrate(
                snaps.SplitConformal(0.3, class_conditional=by_class), groups=groups
            )
            shapes[by_class, groups is not None] = np.shape(cp.threshold_)
    assert shapes == {
        (False, False): (), (False, True): (2,), (True, False): (4,), (True, True): (2, 4),
    }  # fmt: skip
    assert cp.groups_ == ("few", "many")


def test_sets(given):
    cp = given.calibrate(snaps.SNAPS(0.1))
    sets = cp.predict_set(np.arange(300, 310))
    assert isinstance(sets, snaps.PredictionSets) and len(sets) == 10
    assert sets.mask.shape == (10, 4) and sets.mask.dtype == bool
    assert sets.nodes.tolist() == sets.ids.tolist() == list(range(300, 310))
    assert (sets.sizes == sets.mask.sum(axis=1)).all() and sets.num_nodes == 500
    assert sets.classes.tolist() == [0, 1, 2, 3]
    labels = [np.flatnonzero(row).tolist() for row in sets.mask]
    assert [each.tolist() for each in sets.labels()] == [each.tolist() for each in sets] == labels
    assert sets[3].tolist() == labels[3] and len(sets[2:5]) == len(sets[[1, 2, 3]]) == 3
    assert sets.to_pandas().columns.tolist() == ["id", "labels", "size"]
    assert list(sets.metadata) == [
        "snaps.version", "snaps.method", "snaps.score", "snaps.alpha", "snaps.seed",
        "snaps.calibration_nodes", "snaps.tuning_nodes",
    ]  # fmt: skip
    assert len(cp.predict_set()) == 500 - len(given.calib) - len(given.train)
    assert cp.predict_p().shape == (500 - len(given.calib) - len(given.train), 4)


def test_evaluations(given):
    cp = given.calibrate(snaps.SplitConformal(0.1), groups=given.bands)
    evaluation = cp.evaluate(given.labels)
    assert isinstance(evaluation, dict) and list(evaluation)[: len(EVALUATION)] == EVALUATION
    assert list(evaluation["class_coverage"]) == [0, 1, 2, 3]
    assert list(evaluation["group_coverage"]) == ["few", "many"]
    about = given.graph, given.probs, given.labels, np.arange(50, 500), 100
    result = snaps.evaluate_splits(snaps.SplitConformal(0.1), *about, n_splits=3)
    assert list(result)[: len(SPLITS)] == SPLITS
    assert all(np.shape(result[name]) == (3,) for name in SPLITS)
    methods = {"a": snaps.SplitConformal(0.1), "b": snaps.SplitConformal(class_conditional=True)}
    both = snaps.evaluate_splits(methods, *about, n_splits=3, alphas=[0.2, 0.3])
    assert list(both) == ["a", "b"] and both["a"]["coverage"].shape == (2, 3)
    assert both["b"]["threshold"].shape == (2, 3, 4)


def test_explanations(given):
    cp = given.calibrate(snaps.SNAPS(0.1, weights=(0.3, 0.3)))
    why = cp.explain(300)
    assert has(why, "node", "id", "classes", "parts", "weights", "mixed", "threshold", "inside")
    assert list(why.parts) == list(why.weights) == ["own", "similar", "linked"]
    assert why.mixed.shape == why.threshold.shape == why.inside.shape == (4,)
    assert has(why.neighbours[0], "node", "id", "part", "weight", "shift")
    assert why.to_pandas().columns.tolist() == [
        "own", "similar", "linked", "mixed", "threshold", "in",
    ]  # fmt: skip
    look = cp.exchangeability()
    assert has(look, "alike", "num_calib", "num_nodes", "rows")
    assert list(look.to_dict()) == ["alike", "message", "num_calib", "num_nodes", "rows"]
    assert [row.what for row in look.rows] == [
        "top probability", "predicted class", "score of the top label", "degree",
    ]  # fmt: skip
    assert has(look.rows[0], "calib", "nodes", "calib_median", "nodes_median", "label", "p")
    assert has(look.rows[0], "distance", "differs", "words")


def test_advice(given):
    about = given.graph, given.probs, given.labels, given.calib
    methods = {"APS": snaps.SplitConformal(0.2), "THR": snaps.SplitConformal(score=snaps.THR())}
    advice = snaps.advise(*about, alpha=0.2, methods=methods)
    assert has(advice, "goal", "name", "runner_up", "method", "reason", "cost", "rows")
    numbers = ("size", "singleton_hit", "worst_class", "worst_size")
    spans = [f"{number}{end}" for number in numbers for end in ("", "_low", "_high")]
    assert list(advice.rows[0]) == ["method", *spans, "near_full"]
    assert advice.for_goal("sizes").goal == "sizes"


def test_folders(given, tmp_path):
    roles = np.where(np.isin(np.arange(500), given.calib), "calib", "")
    snaps.folder.write_folder(tmp_path, given.graph, given.probs, given.labels, roles)
    folder = snaps.folder.read_folder(tmp_path)
    assert isinstance(folder, snaps.folder.Folder)
    assert has(folder, "graph", "probs", "labels", "classes", "roles", "columns", "labelled")
    assert folder.nodes("calib").tolist() == given.calib.tolist()
    assert signature(snaps.folder.Folder.tuning_and_known) == "(self, evidence=False)"
