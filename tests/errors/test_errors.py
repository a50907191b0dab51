"""What users get wrong, and what they are told: one line that names the input, rule and value."""

from __future__ import annotations

import functools
import os
import warnings
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

import snaps
import snaps._runtime.memory as memory
from snaps import metrics
from snaps._checks.classes import encode_labels
from snaps._checks.ids import node_positions
from snaps.folder import read_folder, write_folder
from tests.helpers import small
from tests.helpers.small import CALIB, LABELS, NAMES, NUM_NODES, PROBS, TEST

N, K = NUM_NODES, small.NUM_CLASSES
LOGITS = "(if these are logits, say so: logits=True or --logits)"
PAIR = [[0, 1], [1, 2]]


def complaint(call) -> str:
    """The message of the error that a call must end in."""
    with pytest.raises(snaps.SnapsError) as caught:
        call()
    message = str(caught.value)
    assert message and len(message.splitlines()) == 1
    return message


def changed(array, place, value):
    array = np.array(array)
    array[place] = value
    return array


# ---- Graph: edges, ids and the number of nodes ---------------------------------------------------

GRAPH = {
    "'edges' must have shape (2, edges), got (3, 2); transpose it": lambda: snaps.Graph(
        [[0, 1], [1, 2], [2, 0]]
    ),
    "'edges' must have shape (2, edges), got (4, 4)": lambda: snaps.Graph(np.eye(4, dtype=int)),
    "'edges' must have shape (2, edges), got ()": lambda: snaps.Graph(5),
    "'edges' must be integers, got float64": lambda: snaps.Graph([[0.0, 1.5], [1.0, 2.0]]),
    "'ids' must be given for edges between ids, got None and 'a'": lambda: snaps.Graph(
        [["a"], ["b"]]
    ),
    "'edges' must not be negative, got -3": lambda: snaps.Graph([[0, -3], [1, 2]]),
    "'edges' must lie from 0 to 2, got 3": lambda: snaps.Graph([[0, 3], [1, 2]], num_nodes=3),
    "'edges' must be positions from 0 to 9999999, got 4611686018427387904: pass num_nodes= if "
    "there are so many nodes, else number them from 0": lambda: snaps.Graph([[0], [2**62]]),
    "'edges' must fit 64-bit integers, got 9223372036854775808": lambda: snaps.Graph(
        np.array([[0], [2**63]], np.uint64)
    ),
    "'edges' must hold numbers of at most 64 bits, got 1180591620717411303424": lambda: snaps.Graph(
        [[0], [2**70]]
    ),
    "'edges' must have rows of equal length, got [1, 2]": lambda: snaps.Graph([[0, 1], [2]]),
    "'edges' must be an array, got str": lambda: snaps.Graph("edges.txt"),
    "'edges' must be an array of numbers, got {0, 1}": lambda: snaps.Graph({0, 1}),
    "'edges' as a matrix must be square, got (3, 4)": lambda: snaps.Graph(sp.eye(3, 4)),
    "'edges' must have two dimensions, got shape (2, 2, 2)": lambda: snaps.Graph(
        torch.ones(2, 2, 2).to_sparse()
    ),
    "'num_nodes' must be given for a graph without edges and features": lambda: snaps.Graph(None),
    "'num_nodes' must be an integer of at least 1, got 0": lambda: snaps.Graph(PAIR, num_nodes=0),
    "'num_nodes' must be an integer of at least 1, got 3.0": lambda: snaps.Graph(
        PAIR, num_nodes=3.0
    ),
    "'num_nodes' must be an integer of at least 1, got True": lambda: snaps.Graph(
        PAIR, num_nodes=True
    ),
    "the number of nodes must agree, got 'num_nodes' 5, 'features' 4, 'edges' 3": lambda: (
        snaps.Graph(sp.eye(3), np.ones((4, 2)), 5)
    ),
    "the number of nodes must agree, got 'num_nodes' 3, 'ids' 2": lambda: snaps.Graph(
        PAIR, num_nodes=3, ids=[5, 6]
    ),
    "the number of nodes must lie from 1 to 2147483647, got 'edges' 0": lambda: snaps.Graph(
        sp.csr_array((0, 0))
    ),
    "'ids' must be unique, got 7 twice or more": lambda: snaps.Graph(PAIR, ids=[7, 8, 7]),
    "'ids' must be unique, got b twice or more": lambda: snaps.Graph(PAIR, ids=["a", "b", "b"]),
    "'ids' must be a list of integers or of strings, got [0.5, 1.5, 2.5]": lambda: snaps.Graph(
        PAIR, ids=[0.5, 1.5, 2.5]
    ),
    "'ids' must be a list of integers or of strings, got ['a', None, 'c']": lambda: snaps.Graph(
        PAIR, ids=["a", None, "c"]
    ),
    "'ids' must be a list of integers or of strings, got [[1], [2], [3]]": lambda: snaps.Graph(
        PAIR, ids=[[1], [2], [3]]
    ),
    "'ids' must be a list of integers or of strings, got 'abc'": lambda: snaps.Graph(
        PAIR, ids="abc"
    ),
    "'ids' must name nodes of the graph, got 60": lambda: small.graph().index([3, 60]),
    "'ids' must name nodes of the graph, got node-60": lambda: small.graph(ids=NAMES).index(
        "node-60"
    ),
    "'ids' must name nodes of the graph, got -1": lambda: snaps.Graph(
        PAIR, ids=np.array([2**64 - 1, 5, 6], np.uint64)
    ).index(-1),
    "'ids' must be strings as the nodes' ids are, got integers": lambda: small.graph(
        ids=NAMES
    ).index([3]),
    "'directed' must be True or False, got 'yes'": lambda: snaps.Graph(PAIR, directed="yes"),
    "'self_loops' must be True or False, got 1": lambda: snaps.Graph(PAIR, self_loops=1),
}

# ---- Graph: features -----------------------------------------------------------------------------

FEATURES = {
    "'features' must be finite, got nan in row 2": lambda: snaps.Graph(
        None, changed(np.ones((4, 2)), (2, 1), np.nan)
    ),
    "'features' must be finite, got inf in row 3": lambda: snaps.Graph(
        None, sp.csr_array(changed(np.eye(4), (3, 3), np.inf))
    ),
    "'features' must be finite, got -inf in row 0": lambda: snaps.Graph(
        None, torch.full((4, 2), -torch.inf, dtype=torch.bfloat16)
    ),
    "'features' must have shape (nodes, features), got (4,)": lambda: snaps.Graph(None, np.ones(4)),
    "'features' must have shape (nodes, features), got (4, 0)": lambda: snaps.Graph(
        None, np.ones((4, 0))
    ),
    "'features' must have shape (nodes, features), got (2, 2, 2)": lambda: snaps.Graph(
        None, np.ones((2, 2, 2))
    ),
    "'features' must have two dimensions, got shape (4,)": lambda: snaps.Graph(
        None, torch.ones(4).to_sparse()
    ),
    "'features' must hold numbers, got <U1": lambda: snaps.Graph(None, [["a"], ["b"]]),
    "'features' must hold numbers, got complex128": lambda: snaps.Graph(None, [[1j], [2]]),
    "'features' must be an array of numbers, got None": lambda: snaps.Graph(None, [[1], [None]]),
    "'features' must be an array of numbers, got <NA>": lambda: snaps.Graph(
        None, pd.DataFrame({"x": pd.array([1, None], "Int64")}, dtype=object)
    ),
    "'features' must have rows of equal length, got [1, 3]": lambda: snaps.Graph(
        None, [[1, 2, 3], [4]]
    ),
}

# ---- Graph: PyTorch Geometric and NetworkX -------------------------------------------------------


def named_path(**features):
    path = nx.path_graph(["a", "b", "c"])
    nx.set_node_attributes(path, features, "x")
    return path


OTHERS = (
    ": of other kinds pass one type of edges, or a sparse matrix, to snaps.Graph(edges, features)"
)
FOREIGN = {
    f"'data' must have an edge_index, got Data without{OTHERS}": lambda: snaps.Graph.from_pyg(
        Data(x=torch.ones(3, 2))
    ),
    f"'data' must have an edge_index, got dict without{OTHERS}": lambda: snaps.Graph.from_pyg({}),
    "'edges' must be integers, got float32": lambda: snaps.Graph.from_pyg(
        Data(edge_index=torch.rand(2, 3), num_nodes=4)
    ),
    "'edges' must lie from 0 to 2, got 9": lambda: snaps.Graph.from_pyg(
        Data(edge_index=torch.tensor([[0], [9]]), x=torch.ones(3, 2))
    ),
    "'features' must be finite, got nan in row 1": lambda: snaps.Graph.from_pyg(
        Data(edge_index=torch.tensor([[0], [1]]), x=torch.tensor([[1.0], [torch.nan]]))
    ),
    "'graph' must be a NetworkX graph, got ndarray": lambda: snaps.Graph.from_networkx(np.eye(3)),
    "'graph' must have at least one node, got none": lambda: snaps.Graph.from_networkx(nx.Graph()),
    "'features' must be given for every node, got none for 'c'": lambda: snaps.Graph.from_networkx(
        named_path(a=[1.0], b=[2.0]), "x"
    ),
    "'features' must be given for every node, got none for 'b'": lambda: snaps.Graph.from_networkx(
        named_path(), {"a": [1.0], "c": [1.0]}
    ),
    "'features' must have rows of equal length, got [1, 2]": lambda: snaps.Graph.from_networkx(
        named_path(a=[1.0], b=[2.0, 3.0], c=[1.0]), "x"
    ),
    "'features' must be an array, got str": lambda: snaps.Graph.from_networkx(
        named_path(a="red", b="red", c="blue"), "x"
    ),
    "the number of nodes must agree, got 'num_nodes' 3, 'features' 2, 'ids' 3": lambda: (
        snaps.Graph.from_networkx(named_path(), np.ones((2, 2)))
    ),
    "'ids' must be unique, got 1 twice or more": lambda: snaps.Graph.from_networkx(
        nx.path_graph([1, "1"])
    ),
}

# ---- Probabilities -------------------------------------------------------------------------------


def calibrate(probs=PROBS, labels=LABELS, nodes=CALIB, method=None, **options):
    method = method or snaps.SplitConformal(0.2)
    return method.calibrate(small.graph(), probs, labels, nodes, **options)


PROBABILITIES = {
    "'probs' must be finite, got nan in row 4": lambda: calibrate(changed(PROBS, (4, 1), np.nan)),
    "'probs' must be finite, got inf in row 59": lambda: calibrate(changed(PROBS, (59, 0), np.inf)),
    f"'probs' must not be negative, got -0.25 in row 7 {LOGITS}": lambda: calibrate(
        changed(PROBS, (7, 2), -0.25)
    ),
    f"'probs' must sum to 1 in each row, got 0.98 in row 3 {LOGITS}": lambda: calibrate(
        changed(PROBS, 3, [0.5, 0.4, 0.08])
    ),
    f"'probs' must sum to 1 in each row, got 14 in row 0 {LOGITS}": lambda: calibrate(
        np.tile([9.0, 4.0, 1.0], (N, 1))
    ),
    f"'probs' must sum to 1 in each row, got 2 in row 0 {LOGITS}": lambda: calibrate(
        np.tile([1, 1, 0], (N, 1))
    ),
    f"'probs' must not be negative, got -1.5 in row 0 {LOGITS}": lambda: calibrate(
        torch.tensor([[-1.5, 2.0, 0.5]]).expand(N, K)
    ),
    "'probs' must be finite, got -inf in row 1": lambda: calibrate(
        changed(PROBS, (1, 1), -np.inf), logits=True
    ),
    "'probs' must have shape (nodes, classes), got (60,)": lambda: calibrate(PROBS[:, 0]),
    "'probs' must have shape (nodes, classes), got (1, 60, 3)": lambda: calibrate(PROBS[None]),
    "'probs' must have one row a node (60), got 59 rows": lambda: calibrate(PROBS[1:]),
    "'probs' must have one row a node (60), got 3 rows": lambda: calibrate(PROBS.T),
    "'probs' must have at least two classes, got 1": lambda: calibrate(np.ones((N, 1))),
    "'probs' must have at least one row, got none": lambda: snaps.SplitConformal().calibrate(
        None, np.ones((0, 3)), [], []
    ),
    "'probs' must hold numbers, got bool": lambda: calibrate(PROBS > 0.5),
    "'probs' must hold numbers, got <U3": lambda: calibrate(np.full((N, K), "0.3")),
    "'probs' must be an array, got NoneType": lambda: calibrate(None),
    "'probs' must be an array, got csr_array": lambda: calibrate(sp.csr_array(PROBS)),
    "'probs' must be a dense array, got a sparse tensor": lambda: calibrate(
        torch.tensor(PROBS).to_sparse()
    ),
    "'probs' must have rows of equal length, got [2, 3]": lambda: calibrate(
        [[0.5, 0.5], *PROBS[1:].tolist()]
    ),
    "'logits' must be True or False, got 'no'": lambda: calibrate(logits="no"),
}

# ---- Labels and nodes ----------------------------------------------------------------------------

PASS = "pass classes=[...] (--classes) in the order of the columns of probs, or name the columns"
NODES = {
    "'labels' must have shape (60,), got (59,)": lambda: calibrate(labels=LABELS[1:]),
    "'labels' must have shape (60,), got (60, 3)": lambda: calibrate(labels=np.eye(K)[LABELS]),
    "'nodes' must be labelled, got 1 without a label (first: 0) ": lambda: calibrate(
        labels=[None, *LABELS[1:]]
    ),
    f"'labels' must lie from 0 to 2, or be -1 where unknown, got 3 at node 9; {PASS}": lambda: (
        calibrate(labels=changed(LABELS, 9, 3))
    ),
    f"'labels' must lie from 0 to 2, or be -1 where unknown, got -2 at node 0; {PASS}": lambda: (
        calibrate(labels=changed(LABELS, 0, -2))
    ),
    "'nodes' must hold at least one node, got none": lambda: calibrate(nodes=[]),
    "'nodes' must lie from 0 to 59, got 60": lambda: calibrate(nodes=[0, 60]),
    "'nodes' must lie from 0 to 59, got -1": lambda: calibrate(nodes=[0, -1]),
    "'nodes' must lie from 0 to 59, got 18446744073709551615": lambda: calibrate(
        nodes=np.array([2**64 - 1], np.uint64)
    ),
    "'nodes' must hold numbers of at most 64 bits, got 18446744073709551616": lambda: calibrate(
        nodes=[2**64]
    ),
    "'nodes' must not repeat a node, got 5 twice or more": lambda: calibrate(nodes=[1, 5, 3, 5]),
    "'nodes' must be integer positions or a boolean mask, got float64": lambda: calibrate(
        nodes=[0.0, 1.0]
    ),
    "'nodes' must be integer positions or a boolean mask, got <U7": lambda: calibrate(
        nodes=NAMES[:30]
    ),
    "'nodes' as a mask must have shape (60,), got (60, 10): take one of 10 columns": (
        lambda: calibrate(nodes=np.ones((60, 10), bool))
    ),
    "'nodes' must not repeat a node (a mask must be boolean), got 0 twice or more": (
        lambda: calibrate(nodes=np.eye(60, dtype=np.uint8)[3])
    ),
    "'nodes' as a mask must have shape (60,), got (59,)": lambda: calibrate(
        nodes=np.ones(59, bool)
    ),
    "'nodes' must be one-dimensional, got shape ()": lambda: calibrate(nodes=5),
    "'nodes' must be one-dimensional, got shape (2, 2)": lambda: calibrate(nodes=[[0, 1], [2, 3]]),
    "'nodes' must be an array of numbers, got {1, 2}": lambda: calibrate(nodes={1, 2}),
    "'nodes' must be labelled, got 2 without a label (first: 3)": lambda: calibrate(
        labels=changed(LABELS, [3, 8], -1)
    ),
    "'tune_nodes' must be labelled, got 1 without a label (first: 40)": lambda: calibrate(
        labels=changed(LABELS, 40, -1), tune_nodes=[40, 41]
    ),
    "'tune_nodes' must not share nodes with 'nodes', got 2 in both (first: 28)": lambda: calibrate(
        tune_nodes=np.arange(28, 40)
    ),
    "'tune_nodes' must hold at least one node, got none": lambda: calibrate(tune_nodes=[]),
    "'tune_nodes' must lie from 0 to 59, got 99": lambda: calibrate(tune_nodes=[99]),
}

# ---- Estimators: parameters ----------------------------------------------------------------------


def with_parameters(cls=snaps.SNAPS, **parameters):
    return calibrate(method=cls(**parameters))


class Halves(snaps.Score):
    """A score of one's own, which can't be saved."""

    def compute(self, probs, draws):
        return probs / 2


class Broken(snaps.Score):
    def compute(self, probs, draws):
        return probs[:, 0] if self.flat else np.full_like(probs, np.nan)

    def __init__(self, flat):
        self.flat = flat


class MySNAPS(snaps.SNAPS):
    pass


ALPHA = "'alpha' must lie strictly between 0 and 1, got"
PARAMETERS = {
    f"{ALPHA} 0": lambda: with_parameters(alpha=0),
    f"{ALPHA} 1": lambda: with_parameters(alpha=1),
    f"{ALPHA} nan": lambda: with_parameters(alpha=np.nan),
    f"{ALPHA} -0.1": lambda: with_parameters(alpha=-0.1),
    f"{ALPHA} 5": lambda: with_parameters(alpha=np.int64(5)),
    "'alpha' must be a number between 0 and 1, got '0.1'": lambda: with_parameters(alpha="0.1"),
    "'alpha' must be a number between 0 and 1, got None": lambda: with_parameters(alpha=None),
    "'alpha' must be a number between 0 and 1, got True": lambda: with_parameters(alpha=True),
    "'alpha' must be a number between 0 and 1, got [0.1, 0.2]": lambda: with_parameters(
        alpha=[0.1, 0.2]
    ),
    "'alpha' must be a number between 0 and 1, got array([0.1])": lambda: with_parameters(
        alpha=np.array([0.1])
    ),
    "'alpha' must be a number between 0 and 1, got 0.1j": lambda: with_parameters(alpha=0.1j),
    "'k' must be an integer of at least 1, got 0": lambda: with_parameters(k=0),
    "'k' must be an integer of at least 1, got -5": lambda: with_parameters(k=-5),
    "'k' must be an integer of at least 1, got 20.0": lambda: with_parameters(k=20.0),
    "'k' must be smaller than the number of nodes 60, got 60": lambda: with_parameters(k=60),
    "'weights' must be (lam, mu), 'tune' or 'minimum', got 'auto'": lambda: with_parameters(
        weights="auto"
    ),
    "'weights' must be (lam, mu), 'tune' or 'minimum', got 0.5": lambda: with_parameters(
        weights=0.5
    ),
    "'weights' must be (lam, mu), 'tune' or 'minimum', got (0.1, 0.2, 0.7)": lambda: (
        with_parameters(weights=(0.1, 0.2, 0.7))
    ),
    "'weights' must be (lam, mu), 'tune' or 'minimum', got None": lambda: with_parameters(
        weights=None
    ),
    "'weights' must sum to at most 1, got 0.6 + 0.5": lambda: with_parameters(weights=(0.6, 0.5)),
    "'lam' must be a number from 0 to 1, got -0.1": lambda: with_parameters(weights=(-0.1, 0.5)),
    "'mu' must be a number from 0 to 1, got nan": lambda: with_parameters(weights=(0.1, np.nan)),
    "'weight' must be a number from 0 to 1, got 1.5": lambda: with_parameters(
        snaps.DAPS, weight=1.5
    ),
    "'weight' must be a number from 0 to 1, got array([0.1, 0.2])": lambda: with_parameters(
        snaps.DAPS, weight=np.array([0.1, 0.2])
    ),
    "'weight' must be a number from 0 to 1, 'tune' or 'minimum', got 'auto'": lambda: (
        with_parameters(snaps.DAPS, weight="auto")
    ),
    "'seed' must be an integer of at least 0, got -1": lambda: with_parameters(seed=-1),
    "'seed' must be an integer of at least 0, got None": lambda: with_parameters(seed=None),
    "'class_conditional' must be True or False, got 'yes'": lambda: with_parameters(
        class_conditional="yes"
    ),
    "'score' must be a score such as snaps.APS(), got 'aps'": lambda: with_parameters(score="aps"),
    "'score' must be a score such as snaps.APS(), got <class 'snaps.scores.APS'>": lambda: (
        with_parameters(score=snaps.APS)
    ),
    "'score' must give a finite score for each row and label (60, 3), "
    "got Broken with shape (60,)": lambda: with_parameters(score=Broken(True)),
    "'score' must give a finite score for each row and label (60, 3), "
    "got Broken with shape (60, 3)": lambda: with_parameters(score=Broken(False)),
    "'randomized' must be True or False, got 1": lambda: with_parameters(score=snaps.APS(1)),
    "'k_reg' must be an integer from 0 to 2147483647, got -1": lambda: with_parameters(
        score=snaps.RAPS(k_reg=-1)
    ),
    "'k_reg' must be a number or 'tune', got 'auto'": lambda: with_parameters(
        score=snaps.RAPS(k_reg="auto")
    ),
    "'penalty' must be a number of at least 0, got inf": lambda: with_parameters(
        score=snaps.RAPS(penalty=np.inf)
    ),
    "'penalty' must be a number of at least 0, got array([0.1, 0.2])": lambda: with_parameters(
        score=snaps.RAPS(penalty=np.array([0.1, 0.2]))
    ),
    "'weight' must be a number of at least 0, got -0.2": lambda: with_parameters(
        score=snaps.SAPS(weight=-0.2)
    ),
}

# ---- Estimators: the graph and the similarity graph ----------------------------------------------


def with_similarity(similarity):
    return calibrate(method=snaps.SNAPS(0.2, weights=(0.3, 0.3)), similarity=similarity)


SIMILARITY = {
    "'similarity' must be a sparse matrix, got ndarray": lambda: with_similarity(np.ones((N, N))),
    "'similarity' must be a sparse matrix, got str": lambda: with_similarity("similar.npz"),
    "'similarity' must have shape (60, 60), got (59, 59)": lambda: with_similarity(sp.eye(59)),
    "'similarity' must have shape (60, 60), got (60, 20)": lambda: with_similarity(sp.eye(N, 20)),
    "'similarity' must be finite, got nan in row 7": lambda: with_similarity(
        sp.csr_array(([0.5, np.nan], ([2, 7], [3, 9])), (N, N))
    ),
    "'similarity' must be finite, got inf in row 0": lambda: with_similarity(
        sp.coo_array(([np.inf], ([0], [1])), (N, N))
    ),
    "'similarity' must hold numbers, got complex128": lambda: with_similarity(
        sp.eye(N, dtype=complex)
    ),
    "'graph' must be a snaps.Graph for SNAPS, got None": lambda: snaps.SNAPS().calibrate(
        None, PROBS, LABELS, CALIB
    ),
    "'graph' must be a snaps.Graph for DAPS, got None": lambda: snaps.DAPS().calibrate(
        None, PROBS, LABELS, CALIB
    ),
    "'graph' must be a snaps.Graph, got ndarray": lambda: snaps.SNAPS().calibrate(
        PROBS, small.graph(), LABELS, CALIB
    ),
    "'graph' must be a snaps.Graph, got Data: snaps.Graph.from_pyg(data) makes one": lambda: (
        snaps.SNAPS().calibrate(Data(edge_index=torch.tensor(PAIR)), PROBS, LABELS, CALIB)
    ),
}

# ---- Estimators: prediction, evaluation, explanation ---------------------------------------------

PREDICTION = {
    "this SNAPS must be calibrated first: call calibrate()": lambda: snaps.SNAPS().predict_set(),
    "this DAPS must be calibrated first: call calibrate()": lambda: snaps.DAPS().predict_p(),
    "this SplitConformal must be calibrated first: call calibrate()": lambda: (
        snaps.SplitConformal().save("x.npz")
    ),
    "'nodes' must lie from 0 to 59, got 77": lambda: small.calibrated().predict_set([77]),
    "'nodes' must be one-dimensional, got shape ()": lambda: small.calibrated().predict_set(3),
    "'nodes' must not repeat a node, got 31 twice or more": lambda: small.calibrated().predict_p(
        [31, 31]
    ),
    "'nodes' as a mask must have shape (60,), got (2,)": lambda: small.calibrated().predict_set(
        [True, False]
    ),
    f"{ALPHA} 2": lambda: small.calibrated().predict_set(alpha=2),
    "'smoothed' must be True or False, got 'yes'": lambda: small.calibrated().predict_p(
        smoothed="yes"
    ),
    "'labels' must be an array, got NoneType": lambda: small.calibrated().evaluate(None),
    "'labels' must have shape (60,), got (30,)": lambda: small.calibrated().evaluate(LABELS[:30]),
    "'nodes' must be labelled, got 30 without a label (first: 30)": lambda: (
        small.calibrated().evaluate(np.full(N, -1), TEST)
    ),
    "'nodes' must hold at least one labelled node, got none": lambda: small.calibrated().evaluate(
        np.full(N, -1)
    ),
    "'nodes' must not share nodes with the calibration nodes, got 30 in both (first: 0)": lambda: (
        small.calibrated().evaluate(LABELS, np.arange(N))
    ),
    "'nodes' must not share nodes with the tuning nodes, got 10 in both (first: 30)": lambda: (
        small.calibrated(tune_nodes=np.arange(30, 40)).evaluate(LABELS, TEST)
    ),
    "'node' must be an integer from 0 to 59, got 60": lambda: small.calibrated().explain(60),
    "'node' must name nodes of the graph, got node-77": lambda: small.calibrated(
        named=True
    ).explain("node-77"),
    "'node' must be integers as the nodes' ids are, got strings": lambda: (
        small.calibrated().explain("node-7")
    ),
}

# ---- Splits --------------------------------------------------------------------------------------


def split(pool=TEST, n_calib=10, method=snaps.SplitConformal(0.2), **options):  # noqa: B008
    return snaps.evaluate_splits(method, None, PROBS, LABELS, pool, n_calib, **options)


SPLITS = {
    "'method' must be an estimator such as snaps.SNAPS(), got 'snaps'": lambda: split(
        method="snaps"
    ),
    "'method' must be an estimator such as snaps.SNAPS(), "
    "got <class 'snaps.estimators.SNAPS'>": lambda: split(method=snaps.SNAPS),
    "'pool' must hold at least two nodes, got 1": lambda: split(pool=[3], n_calib=1),
    "'pool' must hold at least one node, got none": lambda: split(pool=[]),
    "'pool' must lie from 0 to 59, got 60": lambda: split(pool=np.arange(N + 1)),
    "'n_calib' must be an integer from 1 to 29, got 30": lambda: split(n_calib=30),
    "'n_calib' must be an integer from 1 to 29, got 0": lambda: split(n_calib=0),
    "'n_calib' must be an integer from 1 to 29, got 0.5": lambda: split(n_calib=0.5),
    "'n_splits' must be an integer of at least 1, got 0": lambda: split(n_splits=0),
    "'seed' must be an integer of at least 0, got 1.5": lambda: split(seed=1.5),
    "'alphas' must be a list of at least one level, got 0.1": lambda: split(alphas=0.1),
    "'alphas' must be a list of at least one level, got []": lambda: split(alphas=[]),
    "'alphas' must lie strictly between 0 and 1, got 1.0": lambda: split(alphas=[0.1, 1.0]),
    "'alphas' must be a number between 0 and 1, got '0'": lambda: split(alphas="0.1"),
    "'tune_nodes' must not share nodes with 'pool', got 1 in both (first: 30)": lambda: split(
        tune_nodes=[5, 30]
    ),
    "'graph' must be a snaps.Graph for SNAPS, got None": lambda: split(method=snaps.SNAPS()),
}

# ---- Sets and metrics ----------------------------------------------------------------------------

MASK = np.array([[True, False, True], [False, True, False]])
SETS = snaps.PredictionSets(MASK)
EMPTY = snaps.PredictionSets(MASK[:0])

RESULTS = {
    "'mask' must be a boolean array (nodes, classes), got int64 (2, 3)": lambda: (
        snaps.PredictionSets(MASK.astype(int))
    ),
    "'mask' must be a boolean array (nodes, classes), got bool (3,)": lambda: snaps.PredictionSets(
        MASK[0]
    ),
    "'nodes' must have one entry a set (2), got 3": lambda: snaps.PredictionSets(MASK, [0, 1, 2]),
    "'nodes' must lie from 0 to 0, got -1": lambda: snaps.PredictionSets(MASK, [-1, 0]),
    "'nodes' must be integer positions or a boolean mask, got <U1": lambda: snaps.PredictionSets(
        MASK, ["a", "b"]
    ),
    "'num_nodes' must be an integer from 1 to 2147483647, got '2'": lambda: snaps.PredictionSets(
        MASK, num_nodes="2"
    ),
    "'ids' must have one entry a set (2), got 1": lambda: snaps.PredictionSets(MASK, ids=[7]),
    "'ids' must be a list of integers or of strings, got 7": lambda: snaps.PredictionSets(
        MASK, ids=7
    ),
    "'sets' must be PredictionSets, got ndarray": lambda: metrics.coverage(MASK, [0, 1]),
    "'sets' must be PredictionSets, got list": lambda: metrics.size([[0], [1]]),
    "'sets' must hold at least one set, got none": lambda: metrics.empty(EMPTY),
    "'labels' must have shape (2,), got (3,)": lambda: metrics.coverage(SETS, [0, 1, 2]),
    "'labels' must lie from 0 to 2, or be -1 where unknown, got 3 at node 1": lambda: (
        metrics.singleton_hit(SETS, [0, 3])
    ),
    "'labels' must be labelled, got 1 without a label (first: 1)": lambda: metrics.class_coverage(
        SETS, [0, -1]
    ),
    f"{ALPHA} 1.5": lambda: metrics.sscv(SETS, [0, 1], alpha=1.5),
    f"{ALPHA} 0.0": lambda: metrics.class_gap(SETS, [0, 1], alpha=0.0),
    "'strata' must cover the sizes that occur, got [(4, 9)]": lambda: metrics.sscv(
        SETS, [0, 1], 0.1, strata=[(4, 9)]
    ),
    "'strata' must be pairs of sizes, got [0, 1, 2]": lambda: metrics.sscv(
        SETS, [0, 1], 0.1, strata=[0, 1, 2]
    ),
}

BANNERS = {
    "graph": GRAPH,
    "features": FEATURES,
    "foreign": FOREIGN,
    "probabilities": PROBABILITIES,
    "nodes": NODES,
    "parameters": PARAMETERS,
    "similarity": SIMILARITY,
    "prediction": PREDICTION,
    "splits": SPLITS,
    "results": RESULTS,
}


@pytest.mark.parametrize(
    "message, call",
    [pytest.param(m, c, id=f"{b}: {m[:70]}") for b, t in BANNERS.items() for m, c in t.items()],
)
def test_message(message, call):
    assert complaint(call) == message.rstrip()


@pytest.mark.parametrize("metric", ["size", "size_nonempty", "empty"])
def test_metrics_without_labels_refuse_no_sets(metric):
    message = complaint(lambda: getattr(metrics, metric)(EMPTY))
    assert message == "'sets' must hold at least one set, got none"


# ---- Files ---------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Work in an empty folder, so that messages show short paths."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save_npz(**arrays):
    np.savez("graph.npz", **arrays)


CSR = {"adj_indptr": np.array([0, 1, 1]), "adj_indices": np.array([1])}
X = "'graph.npz' must hold the array"

NPZ = {
    f"{X} 'adj_indptr', got ['y']": {"y": np.ones(3)},
    f"{X} 'adj_indices', got ['adj_indptr']": {"adj_indptr": np.array([0, 1])},
    f"{X} 'x_data' next to 'x_indptr'": {**CSR, "x_indptr": np.array([0, 1, 1])},
    "cannot read 'graph.npz': damaged, or not an .npz archive of plain arrays": {
        **CSR,
        "x": np.array([{"pickled": True}]),
    },
    "'features' must be finite, got nan in row 1": {**CSR, "x": np.array([[1.0], [np.nan]])},
    "the number of nodes must agree, got 'features' 3, 'edges' 2": {**CSR, "x": np.ones((3, 1))},
}


@pytest.mark.parametrize("message, arrays", NPZ.items(), ids=[m[:70] for m in NPZ])
def test_graph_from_npz(here, message, arrays):
    save_npz(**arrays)
    assert complaint(lambda: snaps.Graph.from_npz("graph.npz")) == message


@pytest.mark.parametrize(
    "name, value",
    [
        ("adj_indptr", np.array(3)),
        ("adj_indptr", np.array([0.0, 0.5, 1.0])),
        ("adj_indices", np.array([1.0])),
        ("adj_indices", np.array([5])),
        ("adj_indices", np.array([-1])),
        ("adj_indptr", np.array(["a", "b", "c"])),
        ("adj_indptr", np.array([0, 9, 1])),
        ("adj_indices", np.array(1)),
        ("x_shape", np.array(3)),
        ("x_shape", np.array(["a", "b"])),
        ("x_indptr", np.array([0, 1])),
        ("x_data", np.array([1.0, 2.0])),
    ],
    ids=str,
)
def test_graph_from_npz_with_arrays_that_make_no_matrix(here, name, value):
    x = {
        "x_indptr": np.array([0, 1, 1]),
        "x_indices": np.array([0]),
        "x_data": np.ones(1),
        "x_shape": np.array([2, 2]),
    }
    save_npz(**{**CSR, **x, name: value})
    message = complaint(lambda: snaps.Graph.from_npz("graph.npz"))
    assert message.startswith(
        f"'graph.npz' must hold a valid sparse matrix '{name.split('_')[0]}_*"
    )


READERS = {
    "load": snaps.load,
    "from_npz": snaps.Graph.from_npz,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_unreadable_archives(here, read):
    assert complaint(lambda: read(None)) == "'path' must be a path, got None"
    assert complaint(lambda: read("x.npz")) == "cannot read 'x.npz': No such file or directory"
    assert complaint(lambda: read("a\nb")) == "cannot read 'a b': No such file or directory"
    assert complaint(lambda: read(here)) == f"cannot read '{here}': Is a directory"
    for content in (b"", b"PK\x03\x04", b"hello world", b"\x80\x04\x95pickle"):
        (here / "x.npz").write_bytes(content)
        damaged = "cannot read 'x.npz': damaged, or not an .npz archive of plain arrays"
        assert complaint(lambda: read("x.npz")) == damaged


# ---- Graph folders -------------------------------------------------------------------------------


def lists(rows, kind=None):
    return pa.array([list(row) for row in rows], pa.list_(kind or pa.float64()))


IDS = NAMES.tolist()
NODE, EDGE = "nodes.parquet column", "edges.parquet column"
LENGTHS = "must have lists of equal length (3), got 2 in row 1"
ONE_SHORT = [PROBS[0], PROBS[1, :2], *PROBS[2:]]

FOLDERS = {
    "nodes.parquet must have a column 'id', got probs, label, role, features": (
        "nodes",
        "id",
        None,
    ),
    "nodes.parquet must have a column 'probs', or columns 'p_<class>', "
    "got id, label, role, features": (
        "nodes",
        "probs",
        None,
    ),
    "edges.parquet must have a column 'src', got dst": ("edges", "src", None),
    "edges.parquet must have a column 'dst', got src": ("edges", "dst", None),
    f"{NODE} 'id' must not be null, got null in row 59": ("nodes", "id", [*IDS[:-1], None]),
    f"{NODE} 'probs' must not be null, got null in row 0": (
        "nodes",
        "probs",
        pa.array([None, *PROBS[1:].tolist()]),
    ),
    f"{NODE} 'probs' must not hold nulls, got one in row 2": (
        "nodes",
        "probs",
        pa.array([*PROBS[:2].tolist(), [0.5, None, 0.5], *PROBS[3:].tolist()]),
    ),
    f"{NODE} 'features' must not be null, got null in row 5": (
        "nodes",
        "features",
        pa.array([[1.0]] * 5 + [None] + [[1.0]] * 54),
    ),
    f"{EDGE} 'src' must not be null, got null in row 0": (
        "edges",
        "src",
        lambda old: [None, *old[1:]],
    ),
    f"{EDGE} 'dst' must not be null, got null in row 1": (
        "edges",
        "dst",
        lambda old: [old[0], None, *old[2:]],
    ),
    f"{NODE} 'id' must be integers or strings, got double": ("nodes", "id", np.arange(N) + 0.5),
    f"{NODE} 'id' must be integers or strings, got bool": ("nodes", "id", [True] * N),
    f"{NODE} 'id' must be unique, got node-7 twice or more": ("nodes", "id", ["node-7", *IDS[1:]]),
    f"{NODE} 'probs' must be a list of numbers, got double": ("nodes", "probs", PROBS[:, 0]),
    f"{NODE} 'probs' must be a list of numbers, got list<": (
        "nodes",
        "probs",
        pa.array([["a", "b"]] * N),
    ),
    f"{NODE} 'probs' {LENGTHS}": ("nodes", "probs", lists(ONE_SHORT)),
    f"{NODE} 'features' {LENGTHS}": ("nodes", "features", lists(ONE_SHORT)),
    "'features' must be finite, got nan in row 4": (
        "nodes",
        "features",
        lists(changed(PROBS, (4, 0), np.nan)),
    ),
    "'label' must be whole numbers, got 1.5": ("nodes", "label", changed(LABELS + 0.0, 3, 1.5)),
    "'label' must fit 64-bit integers, got 18446744073709551615": (
        "nodes",
        "label",
        changed(LABELS.astype(np.uint64), 3, 2**64 - 1),
    ),
    f"{NODE} 'label' must be integers or strings, got timestamp[us]": (
        "nodes",
        "label",
        pa.array(LABELS, pa.timestamp("us")),
    ),
    f"{NODE} 'role' must be one of train, valid, tune, calib, test or empty, got 'dev' in row 2": (
        "nodes",
        "role",
        ["calib", None, "dev", *["test"] * 57],
    ),
    f"{NODE} 'role' must be strings, got int64": ("nodes", "role", np.arange(N)),
    f"{EDGE} 'src' must be strings as the nodes' ids are, got integers": (
        "edges",
        "src",
        lambda old: range(len(old)),
    ),
    f"{EDGE} 'dst' must name nodes of the graph, got nobody": (
        "edges",
        "dst",
        lambda old: [*old[:-1], "nobody"],
    ),
    f"{EDGE} 'src' must be integers or strings, got double": (
        "edges",
        "src",
        lambda old: [0.5] * len(old),
    ),
}


@pytest.mark.parametrize("message, what", FOLDERS.items(), ids=[m[:80] for m in FOLDERS])
def test_folder(here, message, what):
    name, column, values = what
    small.change(small.write(here / "g"), name, **{column: values})
    assert complaint(lambda: read_folder("g")).startswith(message)


def test_folder_files(here):
    assert complaint(lambda: read_folder(None)) == "'folder' must be a path, got None"
    assert complaint(lambda: snaps.Graph.from_parquet("g")) == "cannot read 'g': no such folder"
    small.write(here / "g")
    assert complaint(lambda: read_folder("g/nodes.parquet")) == (
        "cannot read 'g/nodes.parquet': no such folder"
    )
    for name in ("nodes.parquet", "edges.parquet"):
        path = here / "g" / name
        whole = path.read_bytes()
        for content in (b"", b"id,probs\n", whole[: len(whole) // 2], whole[:-3], whole[9:]):
            path.write_bytes(content)
            damaged = f"cannot read 'g/{name}': damaged or not a Parquet file"
            assert complaint(lambda: read_folder("g")) == damaged
        path.unlink()
        assert complaint(lambda: read_folder("g")) == f"cannot read 'g/{name}': no such file"
        path.write_bytes(whole)


def test_folder_with_text_that_is_none(here):
    small.write(here / "g")
    damaged = pa.array([b"\xff%d" % i for i in range(N)], pa.binary()).view(pa.string())
    small.change(here / "g", "nodes", id=damaged)
    message = "cannot read 'g/nodes.parquet': damaged or not a Parquet file"
    assert complaint(lambda: read_folder("g")) == message


def test_folder_of_part_files(here):
    small.write(here / "g")
    file = here / "g" / "nodes.parquet"
    whole = file.read_bytes()
    file.unlink()
    file.mkdir()
    assert complaint(lambda: read_folder("g")) == "nodes.parquet must have a column 'id', got none"
    (file / "part-0.parquet").write_bytes(whole)
    (file / "part-1.parquet").write_bytes(whole[:100])
    broken = "cannot read 'g/nodes.parquet/part-1.parquet': damaged or not a Parquet file"
    assert complaint(lambda: read_folder("g")) == broken
    (file / "part-1.parquet").write_bytes(whole)
    assert complaint(lambda: read_folder("g")).startswith(f"{NODE} 'id' must be unique, got node-")
    (file / "part-1.parquet").write_bytes(b"")
    small.change(file, "part-0", label=LABELS.astype(str))
    (file / "part-1.parquet").write_bytes(whole)
    broken = (
        "cannot read 'g/nodes.parquet': a file in it is damaged, not Parquet or unlike the others"
    )
    assert complaint(lambda: read_folder("g")) == broken


def test_folder_without_nodes(here):
    small.write(here / "g")
    none = {"id": [], "probs": None, "features": None, "label": None, "role": None}
    small.change(here / "g", "nodes", **none)
    message = "'g/nodes.parquet' must hold at least one node, got none"
    assert complaint(lambda: read_folder("g")) == message
    assert complaint(lambda: snaps.Graph.from_parquet("g")) == message


FEATURE_FILES = {
    "'g/features.npz' must hold 'x' or 'x_data', 'x_indices', 'x_indptr', 'x_shape'": {"y": PROBS},
    "'g/features.npz' must have one row a node (60), got 59": {"x": PROBS[1:]},
    "'g/features.npz' must hold the array 'x_indices' next to 'x_indptr'": {
        "x_indptr": [0],
        "x_data": [],
        "x_shape": [60, 2],
    },
    "'g/features.npz' must hold the array 'shape' next to 'format'": {"format": b"csr"},
    "'g/features.npz' must hold the array 'data' next to 'format'": {
        "format": b"csr",
        "shape": [60, 2],
    },
    "'g/features.npz' must hold the array 'col' next to 'format'": {
        "format": "coo",
        "shape": [60, 2],
        "data": [],
        "row": [],
    },
    "'g/features.npz' must have a format among csr, csc, bsr, coo, dia, got 'lil'": {
        "format": b"lil",
    },
}


@pytest.mark.parametrize("message, arrays", FEATURE_FILES.items(), ids=list(FEATURE_FILES))
def test_features_beside_a_folder(here, message, arrays):
    small.change(small.write(here / "g"), "nodes", features=None)
    np.savez(here / "g" / "features.npz", **arrays)
    assert complaint(lambda: read_folder("g")) == message


WRITING = {
    "'folder' must be a path, got 3": (3,),
    "'graph' must be a snaps.Graph, got ndarray": ("g", PROBS),
    "'probs' must have shape (60, classes), got (59, 3)": ("g", small.graph(), PROBS[1:]),
    "'labels' must lie from 0 to 2, or be -1 where unknown, got 3 at node 0; "
    "pass classes=[...] (--classes) in the order of the columns of probs, or name the columns": (
        "g",
        small.graph(),
        PROBS,
        changed(LABELS, 0, 3),
    ),
    "'probs' must hold numbers, got bool": ("g", small.graph(), PROBS > 0.5),
    "'roles' must have one entry a node (60), got 2": (
        "g",
        small.graph(),
        PROBS,
        LABELS,
        ["calib", "test"],
    ),
    "'roles' must be a list of integers or of strings, got ['calib', None]": (
        "g",
        small.graph(),
        PROBS,
        LABELS,
        ["calib", None],
    ),
    "'roles' must be one of train, valid, tune, calib, test or empty, got 'dev' in row 0": (
        "g",
        small.graph(),
        PROBS,
        LABELS,
        ["dev"] * N,
    ),
    "cannot write 'file/g': Not a directory": ("file/g", small.graph(), PROBS),
}


@pytest.mark.parametrize("message, arguments", WRITING.items(), ids=list(WRITING))
def test_writing_a_folder(here, message, arguments):
    (here / "file").touch()
    arguments = (*arguments, small.graph(), PROBS)[:3] + arguments[3:]
    assert complaint(lambda: write_folder(*arguments)) == message
    assert [path.name for path in here.iterdir()] == ["file"]


# ---- Saving --------------------------------------------------------------------------------------

PLACES = {
    "nowhere/x": "there is no folder '{here}/nowhere'",
    "file/x": "there is no folder '{here}/file'",
    "folder": "it is a folder",
    "pipe": "it is not a regular file",
}


@pytest.mark.parametrize("place, reason", PLACES.items(), ids=[p[:20] for p in PLACES])
@pytest.mark.parametrize("what", ["estimator", "sets"])
def test_places_that_cannot_be_written(here, what, place, reason):
    (here / "folder").mkdir()
    (here / "file").touch()
    os.mkfifo("pipe")
    cp = small.calibrated()
    write = cp.save if what == "estimator" else cp.predict_set().to_parquet
    assert complaint(lambda: write(place)) == f"cannot write '{place}': {reason.format(here=here)}"
    assert complaint(lambda: write(7)) == "'path' must be a path, got 7"


def test_names_of_files_may_have_255_bytes(here):
    cp = small.calibrated()
    cp.save("é" * 125 + ".suff")
    assert snaps.load("é" * 125 + ".suff").alpha == cp.alpha
    shown, rule = "x" * 27 + "..." + "x" * 28, "its name must have at most 255 bytes, got 256"
    assert complaint(lambda: cp.save("x" * 256)) == f"cannot write '{shown}': {rule}"
    assert complaint(lambda: read_folder("x" * 256)).endswith("': no such folder")
    told = complaint(lambda: write_folder("x" * 256, small.graph(), PROBS))
    assert told.startswith("cannot write 'xxx") and told.endswith(": File name too long")
    assert complaint(lambda: snaps.load("x" * 256)).endswith("': File name too long")


def test_a_folder_without_permission(here, monkeypatch):
    """Root may write anywhere, so the answer of the system is made up."""
    monkeypatch.setattr("os.access", lambda path, mode: False)
    message = complaint(lambda: small.calibrated().save("x.npz"))
    assert message == f"cannot write 'x.npz': no permission in '{here}'"


def test_what_cannot_be_saved(here):
    known = "must be one of"
    own_score = small.calibrated(snaps.SplitConformal(0.2, score=Halves()))
    message = f"'score' {known} APS, RAPS, SAPS, THR to be saved, got Halves"
    assert complaint(lambda: own_score.save("x.npz")) == message
    own_class = small.calibrated(MySNAPS(0.2, k=5, weights=(0.2, 0.2)))
    estimators = "SNAPS, Pooled, DAPS, SplitConformal, EmbeddedSNAPS"
    message = f"the estimator {known} {estimators} to be saved, got MySNAPS"
    assert complaint(lambda: own_class.save("x.npz")) == message
    assert list(here.iterdir()) == []


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
        message = complaint(lambda value=value: snaps.SNAPS(value).calibrate(None, 0, 0, 0))
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
    assert "'probs' must be finite, got nan in row 7" in complaint(
        lambda: method.calibrate(None, logits, LABELS, CALIB, logits=True)
    )
    given = PROBS.copy()
    given[7] = 0
    assert complaint(lambda: method.calibrate(None, given, LABELS, CALIB)).startswith(
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
