"""Classifiers that give a graph its class probabilities; those with torch load when touched."""

import importlib
from typing import Any

from snaps.models.softmax import smoothed_regression

__all__ = ["cfgnn", "gnn", "smoothed_regression"]


def __getattr__(name: str) -> Any:
    if name in ("cfgnn", "gnn"):
        return importlib.import_module(f"snaps.models.{name}")
    raise AttributeError(f"module 'snaps.models' has no attribute '{name}'")
