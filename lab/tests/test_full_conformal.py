"""Full conformal prediction with calibration labels as evidence: the benchmark runs, and covers."""

from __future__ import annotations

import pytest
from benchmarks.full_conformal import _one_graph

from snaps_lab.reproduce.runner import Setting
from snaps_lab.reproduce.store import Store


@pytest.mark.long
def test_one_graph(tmp_path, data_dir):
    setting = Setting(Store(tmp_path), data_dir, draws=1, splits=2)
    row = _one_graph("citeseer", setting, most=300)
    assert 0.9 < float(row["full coverage"]) < 0.99
    assert 0.7 < float(row["full / split"]) < 1.1
