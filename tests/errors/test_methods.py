"""Probabilities, labels, nodes and parameters that users get wrong."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

import snaps
from tests.errors.common import (
    ALPHA,
    LOGITS,
    Broken,
    K,
    N,
    calibrate,
    changed,
    messages,
    with_parameters,
)
from tests.helpers.small import LABELS, NAMES, PROBS, error_line

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


@messages(probabilities=PROBABILITIES, nodes=NODES, parameters=PARAMETERS)
def test_message(message, call):
    assert error_line(call) == message.rstrip()
