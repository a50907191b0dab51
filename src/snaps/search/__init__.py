"""Nearest neighbours by cosine: exact for sparse and dense features, approximate, and updates."""
