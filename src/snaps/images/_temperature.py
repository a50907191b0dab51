"""Temperature scaling of logits."""

from __future__ import annotations

from typing import Any

import numpy as np

from snaps._checks import calm, check_known, check_labels, check_probs, to_numpy
from snaps.errors import SnapsError

COLDEST, HOTTEST = 0.01, 100.0  # temperatures


@calm
def temperature(logits: Any, labels: Any) -> float:
    """Fit a temperature T: softmax(logits / T) has the least negative log-likelihood.

    The items it is fitted on must not calibrate, nor be predicted: their labels are spent.

    Parameters
    ----------
    logits : array (n, K)
    labels : int array (n,)

    Returns
    -------
    float

    Examples
    --------
    >>> round(temperature([[2.0, 0.0]] * 4, [0, 0, 0, 1]), 3)  # 2 / log(3): right 3 times in 4
    1.82
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import logsumexp

    shape = check_probs(logits, "logits", logits=True).shape
    known = check_labels(labels, num_nodes=shape[0], num_classes=shape[1])
    check_known(known, np.arange(len(known)), "labels")
    values = to_numpy(logits, "logits").astype(np.float64)
    # Against the true label's logit no number is lost to the others' size.
    values -= values[np.arange(len(known)), known][:, None]

    def loss(log_scale: float) -> float:
        return float(logsumexp(values * np.exp(log_scale), axis=1).mean())

    low, high = -np.log(HOTTEST), -np.log(COLDEST)
    best = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-6})
    if min(best.x - low, high - best.x) < 1e-3:
        extreme = "right" if best.x > 0 else "no better than chance"
        raise SnapsError(
            f"'logits' must have a best temperature from {COLDEST:g} to {HOTTEST:g}, got none: "
            f"on these {len(known)} items they are too often {extreme}"
        )
    return float(np.exp(-best.x))
