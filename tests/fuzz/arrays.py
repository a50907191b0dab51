"""The attacker of arguments: every public callable, its arrays spelled otherwise, changed, foreign.

A case takes a callable with arguments that are fine, changes what one or two of them *mean* (or
not), and then how they are *spelled*: type, container, order, masks, sparse structure. Either the
call ends in a `SnapsError` of one line, or its answer has the bits that the plain spelling of the
same meaning gives. What must be refused is, what is merely spelled otherwise is not. Foreign values
of all kinds may be refused or understood, and end in no other exception.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch

import snaps
from snaps import metrics
from snaps.images import EmbeddedSNAPS, join, temperature
from snaps.models import smoothed_regression
from tests.fuzz.spellings import (
    DENSE_LOOSE,
    DENSE_STRICT,
    MEANINGS,
    SPARSE,
    SPARSE_LOOSE,
    SPARSE_STRICT,
    Array,
    D,
    K,
    N,
    as_tuple,
)

_RANDOM = np.random.default_rng(11)
_DENSE = _RANDOM.random((N, D)).round(3)
_NAMES = np.array([f"v{(7 * i) % N}" for i in range(N)])


# ---- arguments that are fine ---------------------------------------------------------------------

PLAIN: dict[str, Array] = {
    "probs": _RANDOM.dirichlet(np.ones(K), N),
    "logits": _RANDOM.normal(size=(N, K)) + np.eye(K)[np.arange(N) % K],
    "labels": np.arange(N) % K,
    "nodes": np.arange(20),
    "others": np.arange(20, 30),
    "rest": np.arange(30, N),
    "pool": np.arange(N),
    "features": _DENSE,
    "sparse": sp.csr_array(np.where(_DENSE > 0.5, _DENSE, 0)),
    "edges": _RANDOM.integers(0, N, (2, 60)),
    "weights": _RANDOM.random(60).round(3) + 0.5,
    "similarity": snaps.similarity_graph(_DENSE, 4),
    "names": _NAMES,
    "numbers": np.arange(N) * 5 + 3,
    "groups": np.arange(N) % 2,
    "classes": np.array([4, 2, 9]),
    "mask": _RANDOM.random((N, K)) < 0.6,
}


@dataclass(frozen=True)
class Target:
    """A public callable: the kinds of its array arguments, and its answer as arrays."""

    name: str
    call: Callable[..., Any]
    kinds: dict[str, str]


def outcome(estimator: Any) -> tuple[Array, ...]:
    """What a calibrated estimator says."""
    sets = estimator.predict_set()
    return (estimator.scores_, estimator.threshold_, sets.mask, sets.ids, estimator.predict_p())


def graph_outcome(graph: snaps.Graph) -> tuple[Array, ...]:
    features = graph.features
    table = features.toarray() if sp.issparse(features) else features
    parts = graph.adjacency.data, graph.adjacency.indices, graph.adjacency.indptr
    return (*parts, graph.ids, graph.keys, np.empty(0) if table is None else table.astype(float))


def matrix_outcome(matrix: sp.csr_array) -> tuple[Array, ...]:
    return matrix.data, matrix.indices, matrix.indptr


def _graph(**options: Any) -> snaps.Graph:
    return snaps.Graph(PLAIN["edges"], PLAIN["features"], N, **options)


GRAPH, NAMED = _graph(), _graph(ids=_NAMES)
CALIBRATED = snaps.SNAPS(0.2, k=4, weights=(0.3, 0.2)).calibrate(
    NAMED, PLAIN["probs"], PLAIN["labels"], PLAIN["nodes"]
)
SETS = CALIBRATED.predict_set()


def _calibrate(method: Callable[[], Any], graph: Any) -> Callable[..., Any]:
    def call(**given: Any) -> tuple[Array, ...]:
        return outcome(method().calibrate(graph, **given))

    return call


def _recalibrate(**given: Any) -> tuple[Array, ...]:
    cp = snaps.SNAPS(0.2, k=4, weights=(0.3, 0.2))
    cp.calibrate(GRAPH, PLAIN["probs"], PLAIN["labels"], PLAIN["nodes"])
    return outcome(cp.recalibrate(GRAPH, **given))


def _splits(**given: Any) -> tuple[Array, ...]:
    method = snaps.SNAPS(0.2, k=4, weights=(0.3, 0.2))
    out = snaps.evaluate_splits(method, GRAPH, n_calib=15, n_splits=3, **given)
    return tuple(out.values())


def _advise(**given: Any) -> tuple[Array, ...]:
    methods = {"split": snaps.SplitConformal(0.4), "daps": snaps.DAPS(0.4, weight=0.5)}
    rows = snaps.advise(GRAPH, alpha=0.4, methods=methods, **given).rows
    return tuple(np.array([row["size"], row["worst_size"]]) for row in rows)


def _predict(nodes: Any) -> tuple[Array, ...]:
    sets = CALIBRATED.predict_set(nodes)
    return sets.mask, sets.ids, CALIBRATED.predict_p(nodes)


def _evaluate(labels: Any, nodes: Any) -> tuple[Array, ...]:
    evaluation = CALIBRATED.evaluate(labels, nodes)
    return np.array([evaluation["coverage"], evaluation["size"]]), np.array([evaluation["n"]])


def _sets(mask: Any, nodes: Any, classes: Any) -> tuple[Array, ...]:
    sets = snaps.PredictionSets(mask, nodes, num_nodes=N, classes=classes)
    return sets.mask, sets.nodes, sets.classes, *sets.labels()


def _some(key: Any) -> tuple[Array, ...]:
    some = SETS[key]
    return (some.mask, some.ids) if isinstance(some, snaps.PredictionSets) else (some,)


def _metrics(labels: Any, groups: Any) -> tuple[Array, ...]:
    by_group = metrics.group_coverage(SETS, labels, groups)
    return (
        np.array([metrics.coverage(SETS, labels), metrics.singleton_hit(SETS, labels)]),
        metrics.class_coverage(SETS, labels),
        np.array([metrics.sscv(SETS, labels, 0.2), metrics.class_gap(SETS, labels, 0.2)]),
        np.array(list(by_group.values())),
    )


def _similarity(features: Any, ids: Any, candidates: Any) -> tuple[Array, ...]:
    return matrix_outcome(snaps.similarity_graph(features, 4, ids=ids, candidates=candidates))


def _structure(features: Any) -> tuple[Array, ...]:
    graph = snaps.Graph(PLAIN["edges"], features, N)
    return matrix_outcome(snaps.structural_features(graph))


def _embedded(features: Any, reference: Any) -> tuple[Array, ...]:
    cp = EmbeddedSNAPS(0.2, k=4, eta=0.4)
    given = PLAIN["probs"], PLAIN["labels"], PLAIN["nodes"]
    return outcome(cp.calibrate(features, *given, reference=reference))


def _join(**given: Any) -> tuple[Array, ...]:
    *tables, reference = join(reference_features=_DENSE, reference_probs=PLAIN["probs"], **given)
    cp = EmbeddedSNAPS(0.2, k=4, eta=0.4)
    return outcome(cp.calibrate(*tables, PLAIN["nodes"], reference=reference))


_ROLES = {"probs": "probs", "labels": "labels", "nodes": "nodes"}
TARGETS = [
    Target("Graph", lambda **g: graph_outcome(snaps.Graph(num_nodes=N, **g)),
           {"edges": "edges", "features": "features", "ids": "names"}),
    Target("Graph, numbers", lambda **g: graph_outcome(snaps.Graph(num_nodes=N, **g)),
           {"edges": "edges", "features": "sparse", "ids": "numbers"}),
    Target("Graph, weighted",
           lambda **g: graph_outcome(snaps.Graph(num_nodes=N, weighted=True, directed=True, **g)),
           {"edges": "edges", "edge_weights": "weights"}),
    Target("Graph of a matrix", lambda m: graph_outcome(snaps.Graph(m, weighted=True)),
           {"m": "similarity"}),
    Target("index", lambda ids: (NAMED.index(ids),), {"ids": "names"}),
    Target("similarity_graph", _similarity,
           {"features": "features", "ids": "numbers", "candidates": "nodes"}),
    Target("similarity_graph, sparse", lambda x: matrix_outcome(snaps.similarity_graph(x, 4)),
           {"x": "sparse"}),
    Target("structural_features", _structure, {"features": "features"}),
    Target("structural_features, sparse", _structure, {"features": "sparse"}),
    Target("SplitConformal", _calibrate(lambda: snaps.SplitConformal(0.2), None), _ROLES),
    Target("SplitConformal, logits",
           _calibrate(lambda: snaps.SplitConformal(0.2, score=snaps.RAPS(1, 0.1)), None),
           {"probs": "logits", "labels": "labels", "nodes": "nodes"}),
    Target("DAPS", _calibrate(lambda: snaps.DAPS(0.2, class_conditional=True), GRAPH),
           {**_ROLES, "tune_nodes": "others", "known_nodes": "rest"}),
    Target("SNAPS", _calibrate(lambda: snaps.SNAPS(0.2, k=4), NAMED),
           {**_ROLES, "similarity": "similarity", "groups": "groups"}),
    Target("SNAPS, named classes",
           _calibrate(lambda: snaps.SNAPS(0.2, k=4, weights=(0.3, 0.2)), NAMED),
           {"probs": "probs", "labels": "coded", "nodes": "named nodes", "classes": "classes"}),
    Target("Pooled", _calibrate(lambda: snaps.Pooled(0.4, k=4), GRAPH),
           {**_ROLES, "tune_nodes": "others", "known_nodes": "rest"}),
    Target("EmbeddedSNAPS", _embedded, {"features": "features", "reference": "rest"}),
    Target("recalibrate", _recalibrate, {"probs": "probs", "labels": "labels", "nodes": "others"}),
    Target("predict", _predict, {"nodes": "named rest"}),
    Target("evaluate", _evaluate, {"labels": "labels", "nodes": "rest"}),
    Target("exchangeability",
           lambda nodes: (np.array([r.p for r in CALIBRATED.exchangeability(nodes).rows]),),
           {"nodes": "rest"}),
    Target("evaluate_splits", _splits,
           {"probs": "probs", "labels": "labels", "pool": "pool", "similarity": "similarity"}),
    Target("advise", _advise, {"probs": "probs", "labels": "labels", "tune_nodes": "pool"}),
    Target("PredictionSets", _sets, {"mask": "mask", "nodes": "pool", "classes": "classes"}),
    Target("sets[...]", _some, {"key": "few"}),
    Target("metrics", _metrics, {"labels": "labels", "groups": "groups"}),
    Target("join", _join, {"features": "features", "probs": "probs", "labels": "labels"}),
    Target("temperature", lambda **g: (np.array([temperature(**g)]),),
           {"logits": "logits", "labels": "labels"}),
    Target("smoothed_regression", lambda **g: (smoothed_regression(GRAPH, num_classes=K, **g),),
           {"labels": "labels", "train_nodes": "nodes"}),
]  # fmt: skip

PLAIN["coded"] = PLAIN["classes"][PLAIN["labels"]]
PLAIN["named nodes"], PLAIN["named rest"] = _NAMES[:20], _NAMES[30:]
PLAIN["few"] = np.array([3, 0, 7])


# ---- foreign values ------------------------------------------------------------------------------


class Raising:
    """Whatever is asked of it, it raises."""

    def _raise(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no\nway")

    __array__ = __len__ = __iter__ = __getitem__ = __eq__ = __hash__ = _raise
    __repr__ = __str__ = __float__ = __int__ = __index__ = __bool__ = __lt__ = _raise
    __fspath__ = __getattr__ = _raise


class Endless:
    """An array of itself."""

    def __array__(self, *_: Any, **__: Any) -> Array:
        return np.array([self, self], object)


def broken_tensor(layout: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if layout == "coo":
            ends = torch.tensor([[0, -5], [1, 99]])
            return torch.sparse_coo_tensor(ends, torch.ones(2), (N, N), check_invariants=False)
        ends = torch.tensor([0] + [10**6] * N), torch.tensor([0, 99])
        return torch.sparse_csr_tensor(*ends, torch.ones(2), (N, N), check_invariants=False)


FOREIGN: dict[str, Callable[[], Any]] = {
    "raising": Raising,
    "raising list": lambda: [Raising()] * N,
    "endless": Endless,
    "recursive": lambda: (lambda items: items.append(items) or items)([]),
    "ragged": lambda: [[1, 2], [3]],
    "ragged objects": lambda: np.array([[1, 2], [3]], object),
    "ragged deeper": lambda: [[[1], [2, 3]]] * 2,
    "no objects": lambda: np.empty(0, object),
    "rows of no objects": lambda: np.empty((N, 0), object),
    "none": lambda: None,
    "nones": lambda: [None] * N,
    "text": lambda: "abc",
    "bytes": lambda: b"abc",
    "rows of bytes": lambda: np.zeros(N, "S3"),
    "set": lambda: {1, 2},
    "dict": lambda: {0: 1},
    "generator": lambda: (i for i in range(3)),
    "type": lambda: np.ndarray,
    "module": lambda: np,
    "number": lambda: 5,
    "nan": lambda: float("nan"),
    "huge": lambda: 10**5000,
    "huge numbers": lambda: [10**400] * N,
    "huge fractions": lambda: [[Fraction(10**400, 3)] * K] * N,
    "tiny fractions": lambda: [[Fraction(1, 10**400)] * K] * N,
    "far numbers": lambda: np.arange(N) * 10**8,
    "far away": lambda: [[0], [2_000_000_000]],
    "far matrix": lambda: sp.coo_array(([1.0], ([0], [5])), shape=(10**12, 10**12)),
    "wide matrix": lambda: sp.coo_array(([1.0], ([0], [2**40])), shape=(N, 2**41)),
    "infinite longdoubles": lambda: np.full((N, K), np.longdouble("1e400")),
    "complex": lambda: np.zeros((N, K), complex),
    "records": lambda: np.zeros(N, [("a", int)]),
    "void": lambda: np.zeros(N, "V4"),
    "dates": lambda: np.zeros(N, "M8[s]"),
    "spans": lambda: np.zeros(N, "m8[s]"),
    "surrogates": lambda: [f"a\udcff{i}" for i in range(N)],
    "half a character": lambda: ["\ud800"] * N,
    "ends in NUL": lambda: [f"{i}\0" for i in range(N)],
    "control characters": lambda: [f"a\n\x1b[31m{i}" for i in range(N)],
    "long names": lambda: ["x" * 300] * N,
    "1 and a": lambda: [1, "a"] * (N // 2),
    "nan and a": lambda: [float("nan"), "a"] * (N // 2),
    "decimals": lambda: [Decimal("0.5")] * N,
    "columns that look like torch": lambda: pd.DataFrame(
        PLAIN["probs"], columns=["detach", "dtype", "layout"]
    ),
    "missing": lambda: pd.array([1, None] * (N // 2), "Int64"),
    "missing text": lambda: pd.Series(["a", None] * (N // 2), dtype="string"),
    "missing categories": lambda: pd.Categorical([None] * N),
    "intervals": lambda: pd.interval_range(0, N),
    "periods": lambda: pd.period_range("2000", periods=N, freq="D"),
    "pairs": lambda: pd.MultiIndex.from_product([range(4), range(10)]),
    "sparse column": lambda: pd.arrays.SparseArray(np.arange(N) % K),
    "all masked": lambda: np.ma.masked_all(N, int),
    "masked names": lambda: np.ma.array(_NAMES, mask=np.arange(N) % 2 == 0),
    "meta tensor": lambda: torch.ones(N, K, device="meta"),
    "nested tensor": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "quantised tensor": lambda: torch.quantize_per_tensor(torch.ones(N, K), 0.1, 0, torch.quint8),
    "complex tensor": lambda: torch.ones(N, K, dtype=torch.cfloat).conj(),
    "blocked tensor": lambda: torch.eye(N).to_sparse_bsr((2, 2)),
    "hybrid tensor": lambda: torch.ones(N, K, 2).to_sparse(2),
    "broken tensor": lambda: broken_tensor("coo"),
    "broken CSR tensor": lambda: broken_tensor("csr"),
    "tensor class": lambda: torch.Tensor,
    "complex matrix": lambda: sp.csr_array(np.eye(N)).astype(complex),
    "row": lambda: sp.coo_array(np.ones(N)),
    "graph": lambda: GRAPH,
    "sets": lambda: SETS,
}


# ---- a case --------------------------------------------------------------------------------------


class Outcome:
    """What a call did: its answer, or that it was refused; any other end is a finding."""

    def __init__(self, target: Target, given: dict[str, Any], *, calm: bool = True):
        self.answer: tuple[Array, ...] | None = None
        self.fault = ""
        try:
            with np.errstate(all="warn" if calm else "raise"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.answer = tuple(np.asarray(each) for each in target.call(**given))
        except snaps.SnapsError as error:
            self.message = str(error)
            if len(self.message.splitlines()) != 1 or not self.message.isprintable():
                self.fault = f"a message of more than a line: {self.message!r}"
            elif len(self.message) > 400:
                self.fault = f"a message of {len(self.message)} characters"
        except Exception as error:
            place = [f for f in traceback.extract_tb(error.__traceback__) if "snaps" in f.filename]
            where = f"{place[-1].filename}:{place[-1].lineno}" if place else "?"
            self.fault = f"{type(error).__name__} at {where}: {str(error)[:100]!r}"

    def same(self, other: Outcome, close: bool) -> bool:
        if self.answer is None or other.answer is None:
            return self.answer is other.answer
        if len(self.answer) != len(other.answer):
            return False
        return all(_equal(a, b, close) for a, b in zip(self.answer, other.answer, strict=True))


def _equal(one: Array, two: Array, close: bool) -> bool:
    if one.shape != two.shape:
        return False
    if one.dtype.kind != "f" or two.dtype.kind != "f":
        return bool((one == two).all())
    if close:
        return np.allclose(one, two, rtol=1e-9, atol=1e-12, equal_nan=True)
    return np.array_equal(one, two, equal_nan=True)


_BASE: dict[str, Outcome] = {}


def _plain_outcome(target: Target) -> Outcome:
    if target.name not in _BASE:
        _BASE[target.name] = Outcome(target, _given(target))
        if _BASE[target.name].answer is None:
            raise AssertionError(f"{target.name} is refused: {_BASE[target.name].message}")
    return _BASE[target.name]


def _given(target: Target) -> dict[str, Any]:
    given = {name: PLAIN[kind] for name, kind in target.kinds.items()}
    return given | ({"logits": True} if target.name == "SplitConformal, logits" else {})


def case(seed: int, number: int) -> tuple[str, str]:
    """Play one case; what was done, and what is wrong about what happened ("" if nothing)."""
    random = np.random.default_rng([seed, number])
    target = TARGETS[random.integers(len(TARGETS))]
    plain, steps = _given(target), [target.name]
    calm = random.random() < 0.5
    names = list(target.kinds)
    name = names[random.integers(len(names))]
    kind = target.kinds[name]
    if random.random() < 0.15:
        foreign = list(FOREIGN)[random.integers(len(FOREIGN))]
        outcome = Outcome(target, plain | {name: FOREIGN[foreign]()}, calm=calm)
        return f"{target.name}({name}: {foreign})", outcome.fault
    refused: bool | None = None
    changed = False
    if random.random() < 0.4:
        meaning = MEANINGS[random.integers(len(MEANINGS))]
        other = meaning(kind, PLAIN[kind], random)
        if other is not None:
            plain[name], refused = other
            changed = True
            steps.append(f"{name}: {meaning.__name__}")
    spelled, strict, close = dict(plain), True, False
    for each in {name, names[random.integers(len(names))]}:
        is_sparse = target.kinds[each] in SPARSE
        loose = random.random() < 0.4
        if is_sparse:
            spellings = SPARSE_LOOSE if loose else SPARSE_STRICT
        else:
            spellings = DENSE_LOOSE if loose else DENSE_STRICT
        spelling = spellings[random.integers(len(spellings))]
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            alone = not is_sparse and plain[each].ndim == 0
            own = plain[each].copy()  # SciPy sorts some matrices in place to convert them
            other = None if alone else spelling(target.kinds[each], own, random)
        if other is None:
            continue
        steps.append(f"{each}: {spelling.__name__}")
        strict &= not loose
        close |= is_sparse  # sums in another order round otherwise
        if isinstance(other, tuple) and len(other) == 2 and spelling is not as_tuple:
            other, plain[each] = other
            changed = True
            if plain[each] is None:
                spelled[each], refused = other, True
                break
            if each == name:
                refused = None
        spelled[each] = other
    what = f"{', '.join(steps)}{'' if calm else ', seterr raise'}"
    outcome = Outcome(target, spelled, calm=calm)
    if outcome.fault:
        return what, outcome.fault
    if refused:
        return what, "" if outcome.answer is None else "accepted"
    expected = Outcome(target, plain) if changed else _plain_outcome(target)
    if expected.fault:
        return what, f"spelled plainly: {expected.fault}"
    if outcome.same(expected, close):
        return what, ""
    if outcome.answer is None:
        return what, f"refused: {outcome.message}" if strict else ""
    return what, "another answer" if expected.answer is not None else "accepted when spelled so"
