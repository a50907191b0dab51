"""Images, or anything with a classifier's outputs and embeddings but no links.

A score is corrected by those of the most similar items alone: s^ = (1 - eta) S + eta As S, with
k = 5 and eta = 0.5 as in the paper. The rest is SNAPS: the same scores, verbs and guarantee.
"""

from snaps.images._embedded import ETA, EmbeddedSNAPS, K, join, neighbours
from snaps.images._outputs import Outputs, load
from snaps.images._temperature import temperature

__all__ = [
    "ETA",
    "EmbeddedSNAPS",
    "K",
    "Outputs",
    "join",
    "load",
    "neighbours",
    "temperature",
]
