"""Sets and estimators of the papers of `tests/conftest.py`, whose inputs carry names."""

from __future__ import annotations

import numpy as np

import snaps

CLASSES = np.array(["AI", "DB", "DM", "IR"])
POSITIONS = "set its index to the ids, or pass .to_numpy() for rows in the graph's order"


def calibrated(papers, probs=None, labels=None, nodes=None, method=None, **options):
    graph, _, _, frame, series, role = papers
    return (method or snaps.SNAPS(0.1)).calibrate(
        graph,
        frame if probs is None else probs,
        series if labels is None else labels,
        role == "calib" if nodes is None else nodes,
        **options,
    )


def same_sets(sets, others):
    assert (
        sets.ids.tolist() == others.ids.tolist()
        and sets.classes.tolist() == others.classes.tolist()
    )
    assert (sets.mask == others.mask).all()
