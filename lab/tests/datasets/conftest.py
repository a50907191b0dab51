"""An empty cache, and small graphs that take the place of real ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from snaps.datasets.registry import DATASETS, Statistics
from snaps_lab import download


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache of its own for every test, and no settings of the user's."""
    for name in ("SNAPS_DATA", "SNAPS_MIRROR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SNAPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download, "_PAUSE", 0.0)
    return tmp_path / "cache" / "datasets"


@pytest.fixture
def expect(monkeypatch):
    """Let a name stand for a small graph."""

    def change(name: str, statistics: Statistics, **changes):
        spec = replace(DATASETS[name], statistics=statistics, sha256=None, **changes)
        monkeypatch.setitem(DATASETS, name, spec)
        return spec

    return change
