"""A folder to work in."""

from __future__ import annotations

import pytest


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Work in an empty folder, so that messages show short paths."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
