"""Classifiers that give a graph its class probabilities."""

from snaps.models.softmax import smoothed_regression

__all__ = ["smoothed_regression"]
