"""The wall: what is left of it sees no label but evidence, and mutants that break it die.

Blindness: scores don't change by a bit when the labels of all but tuning and known nodes
are permuted. Coverage through the verbs a user calls follows its distribution, for several
fixed seeds, with the tuning nodes chosen again in every split.
"""

from __future__ import annotations

import importlib
import inspect
import typing
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import snaps
from snaps import advisor, splits
from snaps._runtime import randomness as _randomness
from snaps.datasets import make_graph
from snaps.images import EmbeddedSNAPS
from snaps.models import smoothed_regression
from snaps.predictor import predictor as _base
from snaps.predictor import roles as _roles
from snaps.scoring import evidence as _evidence
from snaps.scoring import local as _inputs
from snaps.scoring.evidence import Evidence, Labelled
from tests.helpers import law

LEFT = [
    "scoring.evidence", "scoring.parts", "scoring.local", "scoring.context", "scoring.logpool",
    "scoring.regression", "scoring.shares", "scoring.mixing", "scoring.pooling", "scores",
    "similarity", "search.update", "structure", "graph",
]  # fmt: skip


# ---- The wall is a type --------------------------------------------------------------------------


def functions_of(module):
    """Every function and method that a module defines."""
    for thing in vars(module).values():
        if getattr(thing, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(thing):
            yield thing
        elif inspect.isclass(thing):
            for member in vars(thing).values():
                member = getattr(member, "__func__", member)
                member = getattr(member, "fget", member)
                if inspect.isfunction(member):
                    yield member


@pytest.mark.parametrize("name", LEFT)
def test_nothing_left_of_the_wall_takes_labels_but_as_evidence(name):
    module = importlib.import_module(f"snaps.{name}")
    for function in functions_of(module):
        if function.__name__.startswith("__") and name == "scoring.evidence":
            continue
        if function is Evidence.of.__func__:  # the gate: who passes is tested below
            continue
        for parameter in inspect.signature(function).parameters.values():
            words = set(parameter.name.split("_"))
            private = function.__name__.startswith("_")
            where = f"{name}.{function.__qualname__}({parameter.name})"
            # Private helpers below a fit get the labels of its evidence as an array.
            allowed = private and name == "scoring.logpool"
            assert allowed or not words & {"label", "labels", "calib", "truth", "roles"}, where
            assert parameter.annotation not in (Labelled, "Labelled"), where


def test_the_gate_is_right_of_the_wall():
    """Labelled nodes become evidence where folds and splits are drawn, and nowhere else."""
    source = Path(snaps.__file__).parent
    callers = {path.stem for path in source.rglob("*.py") if "Evidence.of(" in path.read_text()}
    assert callers == {"advisor", "splits"} and not callers & set(LEFT)


def test_scorers_are_handed_evidence():
    for scorer in (snaps.scoring.mixing.Mixing, snaps.scoring.pooling.Pooling):
        hints = typing.get_type_hints(scorer.fit, vars(importlib.import_module(scorer.__module__)))
        assert hints["tuning"] is Evidence and hints["known"] is Evidence
    assert issubclass(Evidence, Labelled) and not issubclass(Labelled, Evidence)
    assert not isinstance(Roles_of_a_case().calib, Evidence)


def Roles_of_a_case():
    case = small()
    return _roles.Roles.read(case.graph, 3, case.labels, case.pool[:50])


def test_a_calibration_knows_no_graph():
    source = inspect.getsource(importlib.import_module("snaps.conformal.calibration"))
    assert "graph" not in source.replace("no graph", "") and "import Inputs" not in source


# ---- A small pool --------------------------------------------------------------------------------


class Case(typing.NamedTuple):
    graph: snaps.Graph
    probs: np.ndarray
    labels: np.ndarray
    train: np.ndarray
    pool: np.ndarray
    similarity: object


@cache
def small(num_classes=3, num_nodes=400, train=60, k=20, **options):
    made = make_graph(num_nodes, num_classes, homophily=0.7, seed=3, **options)
    nodes = np.arange(train)
    probs = smoothed_regression(made.graph, made.labels, nodes)
    near = snaps.similarity_graph(made.graph.features, k)
    return Case(made.graph, probs, made.labels, nodes, np.arange(train, num_nodes), near)


ESTIMATORS = {
    "APS": lambda **o: snaps.SplitConformal(**o),
    "RAPS": lambda **o: snaps.SplitConformal(score=snaps.RAPS(), **o),
    "DAPS": lambda **o: snaps.DAPS(**o),
    "SNAPS": lambda **o: snaps.SNAPS(**o),
    "SNAPS on RAPS": lambda **o: snaps.SNAPS(score=snaps.RAPS(), **o),
    "Embedded": lambda **o: EmbeddedSNAPS(eta="tune", **o),
    "Pooled": lambda **o: snaps.Pooled(score=snaps.APS(), parts=["own", "linked"], **o),
}
ALPHA = 0.1


def hits_of(make, seed, n_splits, case=None, n_calib=80, **options):
    """Hits of random splits through `calibrate` and `predict_set`, tuning nodes chosen inside."""
    case = case or small()
    random = np.random.default_rng(seed)
    hits, counts = [], set()
    with threadpool_limits(1):
        for _ in range(n_splits):
            order = random.permutation(case.pool)
            calib, test = order[:n_calib], order[n_calib:]
            cp = make(alpha=ALPHA, seed=seed)
            cp.calibrate(
                case.graph, case.probs, case.labels, calib, similarity=case.similarity, **options
            )
            counts.add(len(cp.calib_nodes_))
            mask = cp.predict_set(test).mask
            hits.append(int(mask[np.arange(len(test)), case.labels[test]].sum()))
    (n,) = counts
    return law.fit_hits(hits, law.hit_pmf(n, len(case.pool) - n_calib, ALPHA))


# ---- Coverage, for every seed --------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 7, 20241])
@pytest.mark.parametrize("name", ["APS", "RAPS", "DAPS", "SNAPS", "Embedded"])
def test_the_law_through_calibrate_and_predict_set(name, seed):
    law.assert_law(hits_of(ESTIMATORS[name], seed, 2000), f"{name}, seed {seed}")


@pytest.mark.parametrize("seed, n_splits", [(1, 500), (7, 500), (20241, 500)])
def test_the_law_of_pooled_evidence_through_calibrate_and_predict_set(seed, n_splits):
    case = small(2)
    fit = hits_of(ESTIMATORS["Pooled"], seed, n_splits, case, 60, known_nodes=case.train)
    law.assert_law(fit, f"Pooled, seed {seed}")


def all_parts(seed, n_splits=150):
    """The recommended method as it is: THR, all eight parts, tuned again in every split."""
    case = small(2, 200, 20, 8, num_features=20)

    def make(**options):
        return snaps.Pooled(k=8, **options)

    return hits_of(make, seed, n_splits, case, 60, known_nodes=case.train)


@pytest.mark.parametrize("seed", [0, 7, 20241])
def test_the_law_of_all_parts_of_pooled_evidence_through_calibrate(seed):
    law.assert_law(all_parts(seed), f"Pooled, all parts, seed {seed}")


def test_tuning_nodes_chosen_by_their_own_hash_break_the_law(monkeypatch):
    """The high-hash part of the pool would always calibrate: what this library once did."""

    def by_own_hash(keys, share, seed):
        return _roles.smallest(seed, keys, _roles.TUNE_STREAM, share)

    assert hits_of(ESTIMATORS["DAPS"], 3, 2000).accepted
    monkeypatch.setattr(_roles, "choose_tuning", by_own_hash)
    fits = [hits_of(ESTIMATORS["DAPS"], seed, 2000) for seed in (0, 5)]
    assert not all(fit.accepted for fit in fits)


# ---- Blindness -----------------------------------------------------------------------------------


def permuted(labels, keep, seed=0):
    """The labels of all nodes but `keep`, permuted among themselves."""
    others = np.setdiff1d(np.arange(len(labels)), keep)
    out = labels.copy()
    out[others] = np.random.default_rng(seed).permutation(labels[others])
    assert (out != labels).any()
    return out


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("automatic", [True, False], ids=["automatic", "tune_nodes"])
def test_scores_through_calibrate_are_blind(name, automatic):
    case = small()
    calib, tune = case.pool[:150], None if automatic else case.pool[150:220]

    def scores(labels):
        cp = ESTIMATORS[name](alpha=ALPHA, seed=3).calibrate(
            case.graph, case.probs, labels, calib, tune, case.similarity, known_nodes=case.train
        )
        return cp.scores_, cp.tune_nodes_

    first, tuned = scores(case.labels)
    again, _ = scores(permuted(case.labels, np.concatenate([tuned, case.train])))
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_scores_through_evaluate_splits_are_blind(name, monkeypatch):
    """Thresholds are set right of the wall, so the scores handed over are compared."""
    case, seen = small(), []
    results = splits._results

    def spy(scores, labels, *rest):
        seen.append(scores.copy())
        return results(scores, labels, *rest)

    monkeypatch.setattr(splits, "_results", spy)
    tuned = case.pool[
        splits.smallest(5, case.graph.keys[case.pool], splits.TUNE_STREAM, 60)
    ]  # half of 120
    for labels in (case.labels, permuted(case.labels, np.concatenate([tuned, case.train]))):
        snaps.evaluate_splits(
            ESTIMATORS[name](alpha=ALPHA), case.graph, case.probs, labels, case.pool, 120, 3, 5,
            case.similarity, known_nodes=case.train,
        )  # fmt: skip
    np.testing.assert_array_equal(*seen)


def test_scores_through_advise_are_blind(monkeypatch):
    """A fold is scored by fits that see neither its labels nor those of nodes to come."""
    case, seen = small(), []
    levels = advisor.held_out_levels

    def spy(*given):
        seen.append((given[2], levels(*given)))
        return seen[-1][1]

    monkeypatch.setattr(advisor, "held_out_levels", spy)
    tune = case.pool[:160]
    methods = {name: make(alpha=ALPHA) for name, make in ESTIMATORS.items() if name != "Embedded"}
    words = _randomness.hashes(0, case.graph.keys[tune], _randomness.FOLD_STREAM)
    others = tune[np.argsort(np.argsort(words)) % advisor.FOLDS != 0]
    for labels in (case.labels, permuted(case.labels, np.concatenate([others, case.train]))):
        snaps.advise(
            case.graph, case.probs, labels, tune, alpha=ALPHA, known_nodes=case.train,
            similarity=case.similarity, methods=methods,
        )  # fmt: skip
    (nodes, one), (_, two) = seen
    fold = ~np.isin(nodes.keys, case.graph.keys[others])
    assert 0 < fold.sum() <= len(tune) / advisor.FOLDS
    for name in methods:
        np.testing.assert_array_equal(one[name][fold], two[name][fold])
    assert any((one[name] != two[name]).any() for name in methods)


# ---- Mutants: each must fail the test of coverage or of blindness --------------------------------


def test_tuning_on_the_whole_pool_dies(monkeypatch):
    """The weights then know the calibration and test labels: blindness."""
    case, truth = small(), small().labels
    fit = snaps.scoring.mixing.Mixing.fit

    def whole(self, engine, tuning, known, alphas):
        nodes = case.pool
        everyone = Evidence(nodes, case.graph.keys[nodes], labels_now[0][nodes])
        found = fit(self, engine, everyone, known, alphas)
        return [replace(each, tuning_scores=None) for each in found]

    labels_now = [truth]
    monkeypatch.setattr(snaps.scoring.mixing.Mixing, "fit", whole)
    found = []
    for seed in range(6):
        labels_now[0] = truth if seed == 0 else permuted(truth, case.train, seed)
        cp = snaps.SNAPS(ALPHA).calibrate(
            case.graph, case.probs, labels_now[0], case.pool[:150], similarity=case.similarity
        )
        found.append(cp.scores_)
    assert any((scores != found[0]).any() for scores in found[1:])


def test_tuning_nodes_that_also_calibrate_die(monkeypatch):
    """The weights have the smallest sets on the very nodes that set the threshold: coverage."""
    read = _roles.Roles.read.__func__

    def both(cls, *arguments, **options):
        roles = read(cls, *arguments, **options)
        pairs = zip(
            (roles.calib.ids, roles.calib.keys, roles.calib.labels),
            (roles.tuning.ids, roles.tuning.keys, roles.tuning.labels),
            strict=True,
        )
        joined = [np.concatenate(pair) for pair in pairs]
        order = np.argsort(joined[1])
        return _roles.replace(roles, calib=Labelled(*(array[order] for array in joined)))

    def plain(**options):  # averaged weights overfit too little to be seen
        return ESTIMATORS["SNAPS"](weights="minimum", **options)

    assert hits_of(plain, 7, 2000).accepted
    monkeypatch.setattr(_base.Roles, "read", classmethod(both))
    fit = hits_of(plain, 7, 2000)
    assert not fit.accepted and fit.standard_errors < -4


def test_calibration_labels_as_evidence_die(monkeypatch):
    """Calibration nodes handed over as known ones: blindness and coverage both fail."""
    assert all_parts(1, 60).accepted
    read = _roles.Roles.read.__func__

    def leaking(cls, *arguments, **options):
        roles = read(cls, *arguments, **options)
        calib = roles.calib
        known = _evidence.Evidence(calib.ids, calib.keys, calib.labels)
        return _roles.replace(roles, known=known)

    case = small()
    cp = snaps.Pooled(ALPHA, parts=["own", "propagated"])

    def scores(labels):
        cp.calibrate(case.graph, case.probs, labels, case.pool[:150], case.pool[150:220])
        return cp.scores_

    monkeypatch.setattr(_base.Roles, "read", classmethod(leaking))
    other = permuted(case.labels, np.concatenate([case.pool[150:220], case.train]))
    assert (scores(case.labels) != scores(other)).any()
    assert not all_parts(1, 60).accepted


def test_a_threshold_from_test_scores_dies(monkeypatch):
    """Every node's true score in place of the calibration nodes': coverage."""
    case = small()

    class Wrong(_base.Calibration):
        def __init__(self, scores, labels, *rest):
            everyone = _inputs.Inputs.read(case.graph, case.probs)
            fitted = snaps.scoring.mixing.FittedMixing(snaps.APS(), 1, None, None, 0.0, 0.0)
            table = everyone.score(fitted)[case.pool, case.labels[case.pool]]
            super().__init__(table, case.labels[case.pool], *rest)

    assert hits_of(ESTIMATORS["APS"], 1, 200).accepted
    monkeypatch.setattr(_base, "Calibration", Wrong)
    assert not hits_of(ESTIMATORS["APS"], 1, 200).accepted


# ---- A graph that grows --------------------------------------------------------------------------

TIMES = (300, 360, 420)


@pytest.mark.parametrize("name", ["APS", "SNAPS", "Pooled"])
def test_recalibrated_coverage_follows_the_law_as_nodes_arrive(name):
    """Nodes arrive in random order; the classifier was trained without any of them.

    At each time the graph holds those that came so far. Given the graph and who is in the pool, who
    calibrates is a uniform draw, so coverage on the others has its distribution, at each time.
    """
    made = make_graph(num_nodes=420, num_classes=2, homophily=0.7, seed=9)
    graph, labels = made.graph, made.labels
    train = np.arange(60)
    own = sub(graph, train)
    random, n_calib = np.random.default_rng(4), 60
    n = n_calib if name == "APS" else 39  # that calibrate; the others tune
    splits_each = 100 if name == "Pooled" else 300
    hits = {time: [] for time in TIMES}
    with threadpool_limits(1):
        probs = probabilities(own, labels[train], graph)
        for _ in range(splits_each):
            order = np.concatenate([train, 60 + random.permutation(360)])
            cp = ESTIMATORS[name](alpha=ALPHA, seed=2)
            for time in TIMES:
                here = np.sort(order[:time])
                grown = sub(graph, here)
                if time == TIMES[0]:
                    # Calibration nodes are a uniform draw from all that will ever come.
                    calib = np.searchsorted(here, order[60 : 60 + n_calib])
                    known = np.searchsorted(here, train)
                    cp.calibrate(grown, probs[here], labels[here], calib, known_nodes=known)
                else:
                    cp.recalibrate(grown, probs[here])
                sets = cp.predict_set()
                hits[time].append(int(sets.mask[np.arange(len(sets)), labels[sets.ids]].sum()))
                counts = len(cp.calib_nodes_), len(sets)
                assert counts == (n, time - 60 - n_calib)
    for time in TIMES:
        pmf = law.hit_pmf(n, time - 60 - n_calib, ALPHA)
        law.assert_law(law.fit_hits(hits[time], pmf), f"{name} with {time} nodes")


def sub(graph, nodes):
    """The induced subgraph, nodes under their own ids."""
    return snaps.Graph(graph.adjacency[nodes][:, nodes], graph.features[nodes], ids=nodes)


def probabilities(own, labels, graph):
    """A classifier of features alone, trained on its own subgraph, applied to all nodes."""
    features = np.asarray(graph.features.todense())
    centres = np.stack(
        [np.asarray(own.features[labels == y].mean(axis=0)).ravel() for y in range(2)]
    )
    logits = 30 * features @ centres.T
    logits -= logits.max(axis=1, keepdims=True)
    table = np.exp(logits)
    return table / table.sum(axis=1, keepdims=True)
