"""Basic non-conformity scores: class probabilities in, one score a label out; small is plausible.

Each score is a pure function of a node's probabilities and its draws. It sees no label and no role.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from snaps._checks import as_array, check_flag, check_integer, check_number, shown
from snaps._runtime.randomness import Keys, uniforms
from snaps.conformal.rank import enough, exact_rank
from snaps.errors import SnapsError, warn
from snaps.scoring.evidence import Evidence

# The grids over which RAPS is tuned by default; k_reg runs over 0, 1, ..., K - 1.
RAPS_PENALTIES = (0.001, 0.01, 0.1, 0.2, 0.5, 1.0, 1.5)

_ROWS_AT_ONCE = 1 << 16


class Score(ABC):
    """A basic score. Subclass it and write `compute` to bring your own.

    Examples
    --------
    >>> class Margin(Score):
    ...     def compute(self, probs, draws):
    ...         return probs.max(axis=1, keepdims=True) - probs
    >>> score_table(Margin(), np.array([[0.5, 0.3, 0.2]])).round(2)
    array([[0. , 0.2, 0.3]])
    """

    randomized: bool = False
    needs_tuning: bool = False  # whether parameters are left to be chosen by `tune`

    def tune(self, probs: np.ndarray, tuning: Evidence, alpha: Fraction, seed: int) -> Score:
        """The score with all parameters chosen; `probs` are the tuning nodes' rows.

        Examples
        --------
        >>> from fractions import Fraction
        >>> score = THR()
        >>> score.tune(np.eye(2), Evidence.none(), Fraction(1, 10), seed=0) is score
        True
        """
        return self

    @abstractmethod
    def compute(self, probs: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Scores (m, K) of m rows of probabilities, given uniform draws (m, K) in [0, 1).

        A row's scores may depend on that row and its draws alone. `draws` is all ones for a score
        that is not randomized.

        Examples
        --------
        >>> THR().compute(np.array([[0.5, 0.3, 0.2]]), draws=np.ones((1, 3)))
        array([[0.5, 0.7, 0.8]])
        """

    def validate(self) -> None:  # noqa: B027 - nothing to check is a fine default
        """Complain about parameters; called before the score is used.

        Examples
        --------
        >>> SAPS(weight=-1).validate()
        Traceback (most recent call last):
            ...
        snaps.errors.SnapsError: 'weight' must be a number of at least 0, got -1
        """


@dataclass(frozen=True)
class APS(Score):
    """Adaptive prediction sets: the mass of the strictly likelier labels, plus xi times the own.

    Parameters
    ----------
    randomized : bool
        Draw xi uniformly for each node and label; otherwise xi is 1.

    Examples
    --------
    >>> score_table(APS(randomized=False), np.array([[0.5, 0.3, 0.2]]))
    array([[0.5, 0.8, 1. ]])
    """

    randomized: bool = True

    def validate(self) -> None:
        check_flag(self.randomized, "randomized")

    def compute(self, probs: np.ndarray, draws: np.ndarray) -> np.ndarray:
        from snaps._kernels.scoring import cumulative_scores

        return cumulative_scores(probs, draws, 0.0, 0)


@dataclass(frozen=True)
class RAPS(Score):
    """Regularised APS: APS plus `penalty` for each rank beyond `k_reg`.

    Parameters
    ----------
    k_reg : int or "tune"
        Ranks that cost nothing.
    penalty : float or "tune"
        Cost of each further rank.
    randomized : bool

    Notes
    -----
    The rank of a label is one more than the number of strictly likelier labels. "tune" picks the
    pair with the smallest sets on the tuning nodes.

    Examples
    --------
    >>> score_table(RAPS(k_reg=1, penalty=0.1, randomized=False), np.array([[0.5, 0.3, 0.2]]))
    array([[0.5, 0.9, 1.2]])
    """

    k_reg: int | Literal["tune"] = "tune"
    penalty: float | Literal["tune"] = "tune"
    randomized: bool = True

    def validate(self) -> None:
        check_flag(self.randomized, "randomized")
        for name, value in (("k_reg", self.k_reg), ("penalty", self.penalty)):
            if isinstance(value, str) and value != "tune":
                raise SnapsError(f"'{name}' must be a number or 'tune', got {shown(value)}")
        if not isinstance(self.k_reg, str):
            check_integer(self.k_reg, "k_reg", low=0, high=2**31 - 1)
        if not isinstance(self.penalty, str):
            check_number(self.penalty, "penalty", low=0)

    @property
    def needs_tuning(self) -> bool:  # type: ignore[override]
        """Whether 'tune' stands for a parameter."""
        return self.k_reg == "tune" or self.penalty == "tune"

    def tune(self, probs: np.ndarray, tuning: Evidence, alpha: Fraction, seed: int) -> RAPS:
        """The values with the smallest sets on the tuning nodes.

        Among equals the smaller penalty wins, then the larger k_reg: the least regularised.
        """
        if not self.needs_tuning:
            return self
        from snaps._kernels.scoring import rank_table
        from snaps._kernels.splitting import mixed_sizes

        num_classes, labels = probs.shape[1], tuning.labels
        k_regs = range(num_classes - 1, -1, -1) if self.k_reg == "tune" else [int(self.k_reg)]
        penalties = RAPS_PENALTIES if self.penalty == "tune" else (float(self.penalty),)
        if not enough(len(labels), alpha):
            chosen = replace(
                self,
                k_reg=1 if self.k_reg == "tune" else self.k_reg,
                penalty=0.01 if self.penalty == "tune" else self.penalty,
            )
            warn_untuned(len(labels), f"k_reg={chosen.k_reg}, penalty={chosen.penalty}")
            return chosen
        base = score_table(APS(self.randomized), probs, tuning.keys, seed)
        ranks = rank_table(probs)
        grid = np.array([[1.0, penalty] for penalty in penalties])
        rank = exact_rank(len(labels), alpha)
        sizes = np.hstack(
            [
                mixed_sizes(np.stack([base, np.maximum(ranks - k_reg, 0.0)]), labels, grid, rank)
                for k_reg in k_regs
            ]
        )
        best_penalty, best_k_reg = divmod(int(np.argmin(sizes)), len(k_regs))
        return replace(self, k_reg=k_regs[best_k_reg], penalty=penalties[best_penalty])

    def compute(self, probs: np.ndarray, draws: np.ndarray) -> np.ndarray:
        from snaps._kernels.scoring import cumulative_scores

        if self.k_reg == "tune" or self.penalty == "tune":
            raise SnapsError("RAPS must have numbers for 'k_reg' and 'penalty' before it can score")
        return cumulative_scores(probs, draws, float(self.penalty), int(self.k_reg))


@dataclass(frozen=True)
class SAPS(Score):
    """Sorted adaptive prediction sets: keeps only the top probability and the ranks.

    The top label scores xi * p_max; the label of rank o scores p_max + (o - 2 + xi) * weight.

    Parameters
    ----------
    weight : float
        Cost of each rank beyond the first.
    randomized : bool
        Draw xi uniformly; otherwise it is 1.

    Examples
    --------
    >>> score_table(SAPS(weight=0.1, randomized=False), np.array([[0.5, 0.3, 0.2]]))
    array([[0.5, 0.6, 0.7]])
    """

    weight: float = 0.1
    randomized: bool = True

    def validate(self) -> None:
        check_flag(self.randomized, "randomized")
        check_number(self.weight, "weight", low=0)

    def compute(self, probs: np.ndarray, draws: np.ndarray) -> np.ndarray:
        from snaps._kernels.scoring import rank_table

        ranks = rank_table(probs)
        top = probs.max(axis=1, keepdims=True)
        return np.where(ranks == 1, draws * top, top + (ranks - 2 + draws) * float(self.weight))


@dataclass(frozen=True)
class THR(Score):
    """One minus the label's probability: the smallest sets on average, the least adaptive.

    Examples
    --------
    >>> score_table(THR(), np.array([[0.5, 0.3, 0.2]]))
    array([[0.5, 0.7, 0.8]])
    """

    def compute(self, probs: np.ndarray, draws: np.ndarray) -> np.ndarray:
        return 1.0 - probs


def warn_untuned(n: int, fallback: str) -> None:
    """Say that nothing was tuned, and what is used instead."""
    nodes, also = (f"{n} nodes", "") if n else ("the calibration nodes", " as well")
    warn(f"{nodes} are too few to tune on{also}: using {fallback}")


LIBRARY = frozenset({APS, RAPS, SAPS, THR})
"""Scores that are frozen, and equal where their parameters are; a subclass need not be."""


def check_score(score: Score, name: str = "score") -> Score:
    """A score object with valid parameters."""
    if not isinstance(score, Score):
        raise SnapsError(f"'{name}' must be a score such as snaps.APS(), got {shown(score)}")
    score.validate()
    return score


def score_table(
    score: Score, probs: np.ndarray, keys: Keys | None = None, seed: int = 0
) -> np.ndarray:
    """Score every node and label, in blocks of rows so that draws never fill the memory."""
    keys = np.arange(len(probs), dtype=np.uint64) if keys is None else keys
    if len(probs) <= _ROWS_AT_ONCE:
        return _block(score, probs, keys, seed)
    out = np.empty(probs.shape)
    for start in range(0, len(probs), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        out[rows] = _block(score, probs[rows], keys[rows], seed)
    return out


def _block(score: Score, probs: np.ndarray, keys: Keys, seed: int) -> np.ndarray:
    """The scores of a block of rows: finite numbers of the shape of `probs`."""
    if score.randomized:
        draws = uniforms(seed, keys, probs.shape[1])
    else:
        draws = np.ones_like(probs)
    if type(score) in LIBRARY:
        block = score.compute(probs, draws)
    else:
        # A score of the user's own may work in place, and give what it keeps.
        try:
            block = as_array(score.compute(probs.copy(), draws), "score")
            block = block.astype(np.float64) if block.dtype.kind in "fiub" else np.empty(0)
        except SnapsError:
            block = np.empty(0)
    if block.shape != probs.shape or not np.isfinite(block).all():
        raise SnapsError(
            f"'score' must give a finite score for each row and label {probs.shape}, "
            f"got {type(score).__name__} with shape {np.shape(block)}"
        )
    return block


LARGEST = 1024.0
"""A score up to which single precision keeps its digits and sums over links are exact."""


def is_moderate(score: Score, num_classes: int) -> bool:
    """Whether no score of so many classes exceeds `LARGEST`.

    Scores of the users' own may be of any size.

    Examples
    --------
    >>> is_moderate(RAPS(penalty=1.5), 10), is_moderate(RAPS(penalty=1e9), 10)
    (True, False)
    """
    sizes = (getattr(score, name, 0.0) for name in ("penalty", "weight"))
    return type(score) in LIBRARY and all(
        isinstance(size, str) or 1 + size * num_classes <= LARGEST for size in sizes
    )
