"""A graph whose first nodes trained the classifier."""

from __future__ import annotations

import numpy as np
import pytest

from snaps.datasets import make_graph
from snaps.models import smoothed_regression
from tests.scoring.common import TRAIN


@pytest.fixture(scope="session")
def case():
    data = make_graph(900, 4, seed=3)
    probs = smoothed_regression(data.graph, data.labels, TRAIN)
    return data.graph, probs, data.labels, np.arange(80, 900)
