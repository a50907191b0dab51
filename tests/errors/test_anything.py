"""Whatever is passed is understood or refused in one line; warnings point at the user's line."""

from __future__ import annotations

import functools
import warnings
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch

import snaps
import snaps._runtime.memory as memory
from snaps import metrics
from snaps._checks.classes import encode_labels
from snaps._checks.ids import node_positions
from snaps.folder import read_folder, write_folder
from tests.errors.common import (
    MASK,
    PAIR,
    SETS,
    K,
    N,
    calibrate,
    split,
    with_parameters,
    with_similarity,
)
from tests.helpers import small
from tests.helpers.small import CALIB, LABELS, NAMES, PROBS, TEST, error_line

# ---- Whatever is passed --------------------------------------------------------------------------

ANYTHING = [
    *(None, True, 0, -1, 1.5, np.nan, np.inf, 1j, 2**70, Fraction(1, 2), Decimal("0.1")),
    *("", "x", "a\nb", "\0", b"x", object(), len, snaps.APS, slice(3), iter([1]), range(3)),
    *([], [[]], [None], [2**70], [1, [2]], [[1], [2, 3]], ["a", 1], {}, {1}, (0.1, 0.2)),
    *(np.array(3), np.array([]), np.array([None]), np.array(["a"]), np.zeros((2, 2, 2))),
    *(np.zeros(N), np.zeros((N, K)), np.full((N, K), np.nan), np.zeros((N, N)), [True] * N),
    *(np.uint64(2**63), np.array([2**63], np.uint64), np.array(["2020"], "datetime64[D]")),
    *(np.void(b"abc"), np.zeros(3, [("a", int)]), np.ma.masked_array([1, 2], [0, 1])),
    *(sp.eye(N), sp.eye(3), sp.csr_array((N, N)), sp.coo_array(range(3)), sp.eye(N, dtype=bool)),
    *(torch.zeros(N), torch.tensor(3), torch.eye(N).to_sparse(), torch.zeros(N) * 1j),
    *(torch.zeros(N, K, dtype=torch.bfloat16), pd.DataFrame({"a": [1, 2]}), pd.Series([1, None])),
    *(pd.Series(["a", "b"]), pd.array([1, None], "Int64")),
]
G = small.graph()
CP = functools.cache(small.calibrated)
TAKERS = {
    "edges": snaps.Graph,
    "features": lambda v: snaps.Graph(None, v),
    "num_nodes": lambda v: snaps.Graph(PAIR, num_nodes=v),
    "ids": lambda v: snaps.Graph(None, ids=v),
    "directed": lambda v: snaps.Graph(PAIR, directed=v),
    "index": G.index,
    "from_pyg": snaps.Graph.from_pyg,
    "from_networkx": snaps.Graph.from_networkx,
    "from_npz": snaps.Graph.from_npz,
    "from_parquet": snaps.Graph.from_parquet,
    "load": snaps.load,
    "graph": lambda v: snaps.SplitConformal(0.2).calibrate(v, PROBS, LABELS, CALIB),
    "probs": calibrate,
    "logits": lambda v: calibrate(v, logits=True),
    "labels": lambda v: calibrate(labels=v),
    "nodes": lambda v: calibrate(nodes=v),
    "tune_nodes": lambda v: calibrate(tune_nodes=v),
    "similarity": with_similarity,
    "alpha": lambda v: with_parameters(alpha=v, k=5),
    "score": lambda v: with_parameters(score=v, k=5, alpha=0.2),
    "weights": lambda v: with_parameters(weights=v, k=5, alpha=0.2),
    "weight": lambda v: with_parameters(snaps.DAPS, weight=v, alpha=0.2),
    "k": lambda v: with_parameters(k=v, alpha=0.2),
    "seed": lambda v: with_parameters(seed=v, k=5, alpha=0.2),
    "class_conditional": lambda v: with_parameters(snaps.DAPS, class_conditional=v, alpha=0.4),
    "k_reg": lambda v: with_parameters(snaps.DAPS, score=snaps.RAPS(k_reg=v), alpha=0.2),
    "penalty": lambda v: with_parameters(snaps.DAPS, score=snaps.RAPS(penalty=v), alpha=0.2),
    "randomized": lambda v: with_parameters(snaps.DAPS, score=snaps.SAPS(randomized=v), alpha=0.2),
    "predict_set": lambda v: CP().predict_set(v),
    "predict_set alpha": lambda v: CP().predict_set(alpha=v),
    "predict_p": lambda v: CP().predict_p(v),
    "evaluate": lambda v: CP().evaluate(v),
    "evaluate nodes": lambda v: CP().evaluate(LABELS, v),
    "explain": lambda v: CP().explain(v),
    "method": lambda v: split(method=v),
    "pool": lambda v: split(pool=v),
    "n_calib": lambda v: split(n_calib=v),
    "alphas": lambda v: split(alphas=v),
    "mask": snaps.PredictionSets,
    "mask classes": lambda v: snaps.PredictionSets(MASK, classes=v),
    "sets[...]": lambda v: SETS[v],
    "write": SETS.write,
    "metadata": lambda v: SETS.write("x.parquet", v),
    "groups": lambda v: metrics.group_coverage(SETS, [0, 1], v),
    "edge_weights": lambda v: snaps.Graph(PAIR, weighted=True, edge_weights=v),
    "weighted": lambda v: snaps.Graph(v, weighted=True),
    "node_positions": lambda v: node_positions(NAMES, v, "nodes"),
    "encode_labels": lambda v: encode_labels(v, num_nodes=2, num_classes=2),
    "classes": lambda v: encode_labels([0, 1], num_nodes=2, num_classes=2, classes=v),
    "write_folder classes": lambda v: write_folder("g", G, PROBS, classes=v),
    "columns": lambda v: read_folder(small.write(Path("g")), columns=v),
    "mask nodes": lambda v: snaps.PredictionSets(MASK, v),
    "mask ids": lambda v: snaps.PredictionSets(MASK, ids=v),
    "sets": lambda v: metrics.coverage(v, [0, 1]),
    "truth": lambda v: metrics.coverage(SETS, v),
    "strata": lambda v: metrics.sscv(SETS, [0, 1], 0.1, v),
    "write_folder": lambda v: write_folder("g", v, v, v, v),
    "write_folder probs": lambda v: write_folder("g", G, v),
    "write_folder labels": lambda v: write_folder("g", G, PROBS, v),
    "write_folder roles": lambda v: write_folder("g", G, PROBS, LABELS, v),
    "similarity_graph": lambda v: snaps.similarity_graph(v, k=2),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TAKERS)
def test_whatever_is_passed_is_understood_or_refused_in_one_line(here, name):
    """Never a traceback from below."""
    refused = 0
    for value in ANYTHING:
        try:
            TAKERS[name](value)
        except snaps.SnapsError as error:
            refused += 1
            assert len(str(error).splitlines()) == 1 and len(str(error)) < 300
    assert refused > len(ANYTHING) / 2


# ---- The messages themselves ---------------------------------------------------------------------


def test_a_message_is_one_line_whatever_is_in_it():
    assert str(snaps.SnapsError("a value\n  of two lines")) == "a value of two lines"
    for value in (
        "a\nb",
        np.zeros((50, 50)),
        pd.DataFrame(PROBS),
        torch.rand(9, 9),
        list(range(99)),
    ):
        message = error_line(lambda value=value: snaps.SNAPS(value).calibrate(None, 0, 0, 0))
        assert message.startswith("'alpha' must be a number between 0 and 1, got ")
        assert len(message) < 120


# ---- Warnings ------------------------------------------------------------------------------------


def test_logits_that_no_mini_batch_filled_are_noticed():
    """Softmax makes rows of zeros uniform: larger sets, and no error."""
    logits = np.log(PROBS)
    logits[[7, 20]] = 0
    rule = (
        "'probs' has rows of zeros, 2 of 60 (first: in row 7): if no mini-batch filled these "
        "logits, their nodes get uniform probabilities and large sets"
    )
    method = snaps.SplitConformal(0.2)
    assert small.noted(method.calibrate, None, logits, LABELS, CALIB, logits=True)[1] == [rule]
    with memory.placed("."):
        assert small.noted(method.calibrate, None, logits, LABELS, CALIB, logits=True)[1] == [rule]
    for given in (np.log(PROBS), np.zeros_like(PROBS)):  # a model may know nothing of any node
        assert small.noted(method.calibrate, None, given, LABELS, CALIB, logits=True)[1] == []
    logits[7] = np.nan
    assert "'probs' must be finite, got nan in row 7" in error_line(
        lambda: method.calibrate(None, logits, LABELS, CALIB, logits=True)
    )
    given = PROBS.copy()
    given[7] = 0
    assert error_line(lambda: method.calibrate(None, given, LABELS, CALIB)).startswith(
        "'probs' must sum to 1 in each row, got 0 in row 7"
    )


@pytest.fixture
def with_weights(tmp_path):
    write_folder(tmp_path, small.graph(), PROBS, LABELS)
    small.change(tmp_path, "edges", src=lambda ids: ids, weight=pa.array(np.ones(num_links())))
    return tmp_path


def num_links():
    return small.graph().adjacency.nnz // 2


BARE = snaps.Graph(small.EDGES, num_nodes=N)
WARNED = {
    "no features": lambda _: snaps.SNAPS(0.2).calibrate(BARE, PROBS, LABELS, CALIB),
    "no features to split": lambda _: snaps.evaluate_splits(
        snaps.SNAPS(0.2), BARE, PROBS, LABELS, np.arange(N), 30, n_splits=2
    ),
    "too few": lambda _: snaps.DAPS(0.01).calibrate(small.graph(), PROBS, LABELS, CALIB),
    "too few to tune on": lambda _: snaps.SNAPS(0.2).calibrate(
        small.graph(), PROBS, LABELS, CALIB, TEST[:1]
    ),
    "too few to split": lambda _: snaps.evaluate_splits(
        snaps.SplitConformal(0.01), None, PROBS, LABELS, np.arange(N), 30, n_splits=2
    ),
    "too few at another level": lambda _: small.calibrated().predict_set(TEST, alpha=0.001),
    "nodes that were used": lambda _: small.calibrated().predict_set(CALIB),
    "p-values of nodes that were used": lambda _: small.calibrated().predict_p(CALIB),
    "nodes that were used, in a loop": lambda _: [
        small.calibrated().predict_set(nodes) for nodes in (CALIB, CALIB[:9])
    ],
    "logits that sum to one": lambda _: snaps.SplitConformal(0.2).calibrate(
        None, PROBS, LABELS, CALIB, logits=True
    ),
    "logits that sum to one, to split": lambda _: snaps.evaluate_splits(
        snaps.SplitConformal(0.2), None, PROBS, LABELS, np.arange(N), 30, n_splits=2, logits=True
    ),
    "threshold of another graph": lambda _: small.calibrated().recalibrate(
        small.graph(), PROBS, threshold="keep"
    ),
    "labels that start at 1": lambda _: snaps.SplitConformal(0.2).calibrate(
        None, PROBS, np.maximum(LABELS, 1), CALIB
    ),
    "weights": lambda folder: read_folder(folder),
    "weights of a graph": lambda folder: snaps.Graph.from_parquet(folder),
}


@pytest.mark.parametrize("case", WARNED)
def test_warnings_point_at_the_line_of_the_user(case, with_weights):
    """Of several a method called another, and the warning named a line of the package."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        WARNED[case](with_weights)
    ours = [one for one in caught if issubclass(one.category, snaps.SnapsWarning)]
    assert ours and {one.filename for one in ours} == {__file__}
