"""The one list of methods, by the names that tables and commands show."""

from __future__ import annotations

from collections.abc import Iterable

from snaps._base import Estimator
from snaps._errors import SnapsError
from snaps._estimators import DAPS, SNAPS, SplitConformal
from snaps._pooled import Pooled
from snaps.pooling import FIRST_EDITION
from snaps.scores import APS, RAPS, THR

COMPARED = ("APS", "RAPS", "THR", "DAPS", "SNAPS", "SNAPS on THR", "Pooled")
"""Those that `snaps evaluate` compares."""

CANDIDATES = (*COMPARED, "Pooled on APS", "APS, class thresholds", "Pooled, class thresholds")
"""Those that `snaps.advise` recommends from."""


def all_methods(alpha: float = 0.05, *, k: int = 20, seed: int = 0) -> dict[str, Estimator]:
    """Every method with its usual settings."""
    return {
        "APS": SplitConformal(alpha, score=APS(), seed=seed),
        "RAPS": SplitConformal(alpha, score=RAPS(), seed=seed),
        "THR": SplitConformal(alpha, score=THR(), seed=seed),
        "DAPS": DAPS(alpha, seed=seed),
        "SNAPS": SNAPS(alpha, k=k, seed=seed),
        "SNAPS, minimum": SNAPS(alpha, k=k, weights="minimum", seed=seed),
        "SNAPS, thirds": SNAPS(alpha, k=k, weights=(1 / 3, 1 / 3), seed=seed),
        "SNAPS on THR": SNAPS(alpha, score=THR(), k=k, seed=seed),
        "SNAPS on THR, thirds": SNAPS(alpha, score=THR(), k=k, weights=(1 / 3, 1 / 3), seed=seed),
        "SNAPS on RAPS": SNAPS(alpha, score=RAPS(), k=k, seed=seed),
        "Pooled": Pooled(alpha, k=k, seed=seed),
        "Pooled, first edition": Pooled(
            alpha, k=k, parts=FIRST_EDITION, tuning_evidence=False, seed=seed
        ),
        "Pooled on APS": Pooled(alpha, score=APS(), k=k, seed=seed),
        "APS, class thresholds": SplitConformal(alpha, class_conditional=True, seed=seed),
        "Pooled, class thresholds": Pooled(alpha, k=k, class_conditional=True, seed=seed),
    }


def methods(
    names: Iterable[str], alpha: float = 0.05, *, k: int = 20, seed: int = 0
) -> dict[str, Estimator]:
    """Some of them, in the order asked for."""
    known = all_methods(alpha, k=k, seed=seed)
    for name in names:
        if name not in known:
            raise SnapsError(f"'methods' must be among {', '.join(known)}, got {name!r}")
    return {name: known[name] for name in names}
