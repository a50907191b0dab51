"""The attacker of estimators: random sequences of verbs on one object, saved and loaded in between.

A case builds an estimator of any method, score and spelling of its parameters, calibrates it on a
random graph, and then calls verbs in random order: on the same graph, a grown one, one without some
nodes, without features, or another one. Every step ends in a result or a `SnapsError` of one line.
An estimator that was saved and loaded gives the same answers as the one in memory, to the last bit,
and goes on like it: both play the rest of the sequence.
"""

from __future__ import annotations

import tempfile
import traceback
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import snaps
from snaps.images import EmbeddedSNAPS

N, NEW, K, D = 48, 16, 3, 6  # nodes, nodes that arrive later, classes, features

Random = np.random.Generator


def pick(random: Random, *values: Any) -> Any:
    """One of some values; what can be called is called."""
    value = values[random.integers(len(values))]
    return value() if callable(value) else value


# ---- a world: a graph and all that is known of its nodes -----------------------------------------


class World:
    """Nodes with links, features, probabilities, labels, ids and groups; views of it are graphs."""

    def __init__(self, random: Random):
        n = N + NEW
        self.random, self.n = random, n
        self.labels = random.integers(K, size=n)
        self.probs = random.dirichlet(np.ones(K), n) * 0.6 + 0.4 * np.eye(K)[self.labels]
        if random.random() < 0.2:
            self.probs = self.probs.round(1)
        self.probs = self.probs / self.probs.sum(axis=1, keepdims=True)
        self.probs = self.probs.astype(pick(random, "f8", "f8", "f4", "f2", "g"))
        self.ids = pick(
            random,
            None,
            lambda: np.arange(n) + 1,
            lambda: random.permutation(n),
            lambda: random.permutation(n) * 10**15,
            lambda: np.array([f"v{i}" for i in random.permutation(n)]),
            lambda: np.array([f"é{i:09} " for i in random.permutation(n)]),
            lambda: random.permutation(n).astype(np.uint64) + np.uint64(2**63),
            lambda: random.permutation(n) - n // 2,
        )
        self.edges = random.integers(0, n, (2, pick(random, 0, 60, 200)))
        self.options: dict[str, Any] = {
            "directed": bool(random.random() < 0.3),
            "self_loops": bool(random.random() < 0.3),
        }
        self.weights = None
        if random.random() < 0.4:
            scale = pick(
                random, 1.0, 1.0, 1e-200, 1e200, lambda: 10.0 ** random.integers(-300, 300)
            )
            self.weights = random.random(self.edges.shape[1]) * scale
            if random.random() < 0.3:
                self.weights[::7] = pick(random, 1e-250, 1e250, 0.0)
        self.features = self._features(random)
        self.groups = self._groups(random)
        self.similarity = None
        if random.random() < 0.2:
            near = sp.random_array((n, n), density=0.1, rng=random).tocsr()
            near.data = near.data * pick(random, 1.0, 1e-200, 1e160) - pick(random, 0.0, 0.2)
            if random.random() < 0.3 and near.data.max() < 100:
                near = sp.csr_array((9 * near).astype(np.int32))
            self.similarity = near
        self.names = pick(random, None, None, np.array(["z", "a", "m"]), np.array([7, -2, 30]))

    def _features(self, random: Random) -> Any:
        if random.random() < 0.2:
            return None
        table = random.random((self.n, D)) + 0.5 * np.eye(D)[self.labels]
        if random.random() < 0.3:
            table = table.round()  # ties
        if random.random() < 0.2:
            table[::5] = 0
        if random.random() < 0.15:
            table[::4] *= pick(random, 1e-200, 1e200, 1e-30)
            return table
        table = table.astype(pick(random, "f8", "f4", "f2", "i4", "u1", "?"))
        if random.random() < 0.4:
            return sp.csr_array(table.astype(np.float32) if table.dtype == np.float16 else table)
        return np.asfortranarray(table) if random.random() < 0.3 else table

    def _groups(self, random: Random) -> list[Any] | None:
        kinds = (
            None, None, None, [0, 1], ["x", "y"], [1.5, float("nan")], [None, "x"], [True, 2],
            [(1, 2), (3, 4)], [2**70, 1], [float("inf"), 0.1], [1, "1"], [-0.0, 0.5], ["", " "],
            [np.float32(0.1), np.int8(3)], [b"x", "x"], ["z", "a"], [1e-320, 1],
        )  # fmt: skip
        names = kinds[random.integers(len(kinds))]
        return None if names is None else [names[i] for i in random.integers(2, size=self.n)]

    def graph(self, nodes: np.ndarray, featured: bool = True, **given: Any) -> snaps.Graph:
        """The graph of some nodes, in this order."""
        place = np.full(self.n, -1)
        place[nodes] = np.arange(len(nodes))
        kept = (place[self.edges] >= 0).all(axis=0)
        options = self.options | given
        if self.weights is not None:
            options |= {"weighted": True, "edge_weights": self.weights[kept]}
        features = None
        if featured and self.features is not None:
            features = self.features[nodes]
        ids = None if self.ids is None else self.ids[nodes]
        return snaps.Graph(place[self.edges[:, kept]], features, len(nodes), ids=ids, **options)

    def coded(self, nodes: np.ndarray) -> Any:
        return self.labels[nodes] if self.names is None else self.names[self.labels[nodes]]

    def of(self, nodes: np.ndarray) -> dict[str, Any]:
        """What is given with a graph of these nodes."""
        given: dict[str, Any] = {}
        if self.groups is not None:
            given["groups"] = [self.groups[i] for i in nodes]
        if self.similarity is not None:
            given["similarity"] = self.similarity[nodes][:, nodes]
        return given


# ---- an estimator --------------------------------------------------------------------------------


def make_estimator(random: Random) -> Any:
    score = pick(
        random,
        lambda: snaps.APS(bool(random.random() < 0.7)),
        lambda: snaps.RAPS(
            pick(random, "tune", 1, np.int64(2)), pick(random, "tune", 0.1, np.float32(0.3)),
            randomized=bool(random.random() < 0.7),
        ),
        lambda: snaps.SAPS(pick(random, 0.1, 1, np.float32(0.3), Fraction(1, 3))),
        snaps.THR,
    )  # fmt: skip
    shared = {
        "alpha": pick(random, 0.1, 0.2, 0.25, Fraction(1, 3), np.float32(0.2), np.float64(0.15),
                      np.float16(0.3), 0.123456789, Fraction(1, 7)),
        "score": score,
        "seed": pick(random, 0, 3, 2**63 + 1, np.int64(5), np.uint64(2**64 - 1)),
        "class_conditional": pick(random, False, False, True, np.True_),
    }  # fmt: skip
    search = pick(
        random,
        {},
        {},
        {"neighbours": "exact"},
        {"candidates": pick(random, 10, np.int32(30), 1000)},
        {"neighbours": "approximate", "recall": pick(random, 0.5, np.float32(0.9))},
    )
    k = pick(random, 2, 5, np.int64(4), 20)
    parts = ("own", "linked", "similar", "context", "propagated", "regression")
    kind = random.integers(5)
    if kind == 0:
        return snaps.SplitConformal(**shared)
    if kind == 1:
        weight = pick(random, "tune", "minimum", 0.5, 1, Fraction(1, 3), np.float32(0.3))
        return snaps.DAPS(weight=weight, **shared)
    if kind == 2:
        weights = pick(
            random, "tune", "minimum", (0.3, 0.2), [0.1, 0.9], np.array([0.3, 0.3], np.float32),
            (Fraction(1, 3), Fraction(1, 3)), (1, 0), (0.0, 0.0),
        )  # fmt: skip
        return snaps.SNAPS(k=k, weights=weights, **search, **shared)
    if kind == 3:
        chosen = pick(
            random, "auto", "auto", parts, ["own", "linked"], np.array(["own", "similar"])
        )
        evidence = bool(random.random() < 0.7)
        return snaps.Pooled(k=k, parts=chosen, tuning_evidence=evidence, **search, **shared)
    eta = pick(random, 0.5, "tune", 1, Fraction(1, 3), np.float32(0.2))
    weighting = pick(random, "uniform", "cosine")
    return EmbeddedSNAPS(k=pick(random, 2, 5), eta=eta, weighting=weighting, **shared)


# ---- answers -------------------------------------------------------------------------------------


def answers(cp: Any, world: World, nodes: np.ndarray) -> dict[str, Any]:
    """All that an estimator says, or the message it refuses with."""
    truth = world.coded(nodes)
    asked: dict[str, Callable[[], Any]] = {
        "sets": lambda: _sets(cp.predict_set()),
        "smoothed sets": lambda: _sets(cp.predict_set(smoothed=True)),
        "sets at another level": lambda: _sets(cp.predict_set(alpha=0.37)),
        "p-values": lambda: cp.predict_p(),
        "smoothed p-values": lambda: cp.predict_p(smoothed=True),
        "p-values of few": lambda: cp.predict_p(np.arange(3)),
        "scores": lambda: cp.scores_,
        "threshold": lambda: cp.threshold_,
        "parts": lambda: (list(cp.part_weights_), list(cp.part_weights_.values())),
        "score": lambda: score_record(cp.score_),
        "classes": lambda: cp.classes_,
        "groups": lambda: repr(cp.groups_),
        "neighbours": lambda: repr(cp.neighbours_),
        "nodes": lambda: (cp.calib_nodes_, cp.tune_nodes_, cp.known_nodes_),
        "ids": lambda: (cp.calib_ids_, cp.tune_ids_, cp.known_ids_),
        "calibration": lambda: (cp.calib_labels_, cp.calib_scores_),
        "evaluation": lambda: repr(cp.evaluate(truth)),
        "exchangeability": lambda: str(cp.exchangeability()),
        "explanation": lambda: str(cp.explain(len(nodes) - 1)),
        "pooled": lambda: cp.probs_ if isinstance(cp, snaps.Pooled) else None,
    }
    return {name: tried(call) for name, call in asked.items()}


def score_record(score: Any) -> tuple[str, list[Any]]:
    """A score and its parameters; a number of any type as the float that a file has."""
    values = [v if isinstance(v, str) else float(v) for v in vars(score).values()]
    return type(score).__name__, values


def _sets(sets: Any) -> tuple[Any, ...]:
    return sets.mask, sets.ids, sets.nodes, sets.classes


class Fault(Exception):
    """Anything but a result or a `SnapsError` of one line."""


def tried(call: Callable[[], Any]) -> Any:
    """A result, or the message of a `SnapsError`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except snaps.SnapsError as error:
            message = str(error)
            if "\n" in message or not message:
                raise Fault(f"a message of several lines: {message!r}") from error
            return f"refused: {message}"
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            fault = f"{type(error).__name__}: {error} in {Path(where.filename).name}:{where.lineno}"
            raise Fault(fault) from error


def equal(one: Any, two: Any) -> bool:
    """To the last bit."""
    if isinstance(one, tuple | list) and isinstance(two, tuple | list):
        return len(one) == len(two) and all(map(equal, one, two))
    if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
        one, two = np.asarray(one), np.asarray(two)
        return one.dtype.kind == two.dtype.kind and np.array_equal(one, two)
    return bool(one == two)


def differences(one: dict[str, Any], two: dict[str, Any]) -> list[str]:
    return [name for name in one if not equal(one[name], two[name])]


# ---- verbs ---------------------------------------------------------------------------------------


def saved(cp: Any, data: bool) -> Any:
    """The estimator after a detour through a file."""
    with tempfile.TemporaryDirectory(prefix="fuzz") as folder:
        path = Path(folder) / "x.snaps"
        done = tried(lambda: cp.save(path, data=data))
        return done if done is not None else tried(lambda: snaps.load(path))


def report(cp: Any, labels: Any) -> Any:
    with tempfile.TemporaryDirectory(prefix="fuzz") as folder:
        path = Path(folder) / "report.html"
        done = tried(lambda: cp.report(path, labels))
        return done if done is not None else path.read_text()


def case(seed: int, number: int) -> tuple[str, str]:
    """Play one case; what was done, and what is wrong about what happened ("" if nothing)."""
    random = np.random.default_rng([seed, number, 77])
    world = World(random)
    start = np.arange(N)
    steps: list[str] = []
    try:
        cp = make_estimator(random)
        steps.append(repr(cp))
        fault = _play(random, world, cp, start, steps)
    except Fault as error:
        fault = str(error)
    return f"sequence, {'; '.join(steps)}", fault


def _calibrate(random: Random, world: World, cp: Any, nodes: np.ndarray) -> Any:
    """Calibrate on a graph of these nodes."""
    given = world.of(nodes)
    order = random.permutation(N)
    given["nodes"] = order[: pick(random, 12, 24)]
    if random.random() < 0.5:
        given["tune_nodes"] = order[24:34]
    if random.random() < 0.5:
        given["known_nodes"] = order[34:42]
    if world.names is not None:
        given["classes"] = world.names
    if isinstance(cp, EmbeddedSNAPS) and random.random() < 0.5:
        given.pop("similarity", None)
        given["reference"] = order[42:]
    probs = world.probs[nodes]
    if random.random() < 0.1:
        probs, given["logits"] = np.log(probs + 0.01), True
    if isinstance(cp, snaps.SplitConformal) and random.random() < 0.3:
        return tried(lambda: cp.calibrate(None, probs, world.coded(nodes), **given))
    graph = world.graph(nodes)
    return tried(lambda: cp.calibrate(graph, probs, world.coded(nodes), **given))


def _recalibration(random: Random, world: World) -> tuple[str, np.ndarray, Callable[[Any], Any]]:
    """A call of `recalibrate`: in words, the graph's nodes, and how to call it."""
    nodes = pick(
        random,
        np.arange(N),
        np.arange(N + NEW),
        lambda: np.arange(pick(random, 5, 20, 40)),
        lambda: random.permutation(N + NEW),
        lambda: np.sort(random.permutation(N + NEW)[:40]),
        np.arange(N, N + NEW),
    )
    options: dict[str, Any] = world.of(nodes)
    if random.random() < 0.4:
        options["refit"] = False
    if random.random() < 0.6:
        options["missing"] = "drop"
    if random.random() < 0.4:
        options["threshold"] = "keep"
    if random.random() < 0.1:
        options.pop(pick(random, "groups", "similarity"), None)
    labels = None
    if random.random() < 0.3:
        labels = world.coded(nodes)
        if random.random() < 0.5:
            options["nodes"] = np.arange(max(len(nodes) - 8, 0), len(nodes))
    featured = bool(random.random() < 0.85)
    graph = world.graph(np.roll(nodes, 1) if random.random() < 0.1 else nodes, featured)
    if random.random() < 0.1:
        graph = world.graph(nodes, featured, directed=not world.options["directed"])
    if random.random() < 0.1:
        ids = None if world.ids is None else world.ids[nodes]
        graph = snaps.Graph(None, graph.features, len(nodes), ids=ids)
    probs = world.probs[nodes]
    if random.random() < 0.3:
        probs = probs * 0.8 + 0.2 * np.roll(probs, 1, axis=0)
    words = f"recalibrate(of {len(nodes)} nodes, {', '.join(sorted(options))}"
    words += "" if featured else ", without features"
    reference = np.arange(len(nodes) // 2, len(nodes)) if random.random() < 0.2 else None

    def call(cp: Any) -> Any:
        own = {"reference": reference} if isinstance(cp, EmbeddedSNAPS) else {}
        return cp.recalibrate(graph, probs, labels, **own, **options)

    return f"{words})", nodes, call


def _play(random: Random, world: World, cp: Any, nodes: np.ndarray, steps: list[str]) -> str:
    steps.append("calibrate")
    if isinstance(result := _calibrate(random, world, cp, nodes), str):
        steps.append(result)
        return ""
    for _ in range(random.integers(2, 7)):
        step = random.integers(6)
        if step == 0:
            level = pick(random, 0.15, 0.3, Fraction(1, 6), np.float32(0.4))
            steps.append(f"set_params(alpha={level!r})")
            cp.set_params(alpha=level)
        elif step in (1, 2):
            words, where, call = _recalibration(random, world)
            steps.append(words)
            bare = saved(cp, False)
            result = tried(lambda call=call, cp=cp: call(cp))
            if not isinstance(result, str):
                nodes = where
            if not isinstance(bare, str):
                again = tried(lambda call=call, bare=bare: call(bare))
                if isinstance(result, str) or isinstance(again, str):
                    if result != again and not (isinstance(result, str) and isinstance(again, str)):
                        return f"{result} after saving without data: {again}"
                else:
                    wrong = differences(answers(cp, world, nodes), answers(bare, world, nodes))
                    # In memory, similarity graphs are updated that no part may need any more.
                    wrong = [name for name in wrong if name != "neighbours"]
                    if wrong:
                        return f"after saving without data, other {', '.join(wrong)}"
        elif step == 3:
            steps.append("save")
            other = saved(cp, True)
            if isinstance(other, str):
                steps.append(other)
                continue
            wrong = differences(answers(cp, world, nodes), answers(other, world, nodes))
            if wrong:
                return f"after loading, other {', '.join(wrong)}"
            if random.random() < 0.5:
                steps.append("go on with what was loaded")
                cp = other
        elif step == 4 and random.random() < 0.3:
            steps.append("report")
            labels = world.coded(nodes) if random.random() < 0.5 else None
            text = report(cp, labels)
            other = saved(cp, True)
            plain = "np." not in steps[0] and "Fraction" not in steps[0]
            if not isinstance(other, str) and plain and report(other, labels) != text:
                return "after loading, another report"
        else:
            steps.append("ask")
            answers(cp, world, nodes)
    return ""
