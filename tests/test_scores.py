"""Basic scores against plain transcriptions of their formulas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import snaps
import snaps.datasets
from tests.helpers import transcription as t
from tests.helpers.worlds import CLOSE, SCORES, basic_scores, quietly, worlds


@given(worlds(), st.booleans())
@pytest.mark.parametrize("name", [*SCORES, "thr"])
def test_basic_scores(name, world, randomized):
    score, expected = basic_scores(world, name, randomized)
    cp = snaps.SplitConformal(alpha=0.5, score=score, seed=world.seed)
    quietly(cp.calibrate, *world.arrays(), [0])
    np.testing.assert_allclose(cp.scores_, expected, **CLOSE)


@given(worlds(), st.floats(0.1, 30))
def test_logits_are_turned_into_probabilities(world, scale):
    random = np.random.default_rng(world.seed % 2**32)
    logits = scale * random.normal(size=(world.num_nodes, world.num_labels))
    probs = [t.softmax(row) for row in logits.tolist()]
    graph, _, labels = world.arrays()
    cp = snaps.SplitConformal(alpha=0.5, seed=world.seed)
    quietly(cp.calibrate, graph, logits, labels, [0], logits=True)
    np.testing.assert_allclose(cp.scores_, t.table(t.aps, probs, world.draws()), **CLOSE)
