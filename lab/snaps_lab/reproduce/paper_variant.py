"""The paper's own variant for images, for comparison: neighbours from the calibration items alone.

Its guarantee is not exact, because its scores depend on which nodes are calibration nodes. So it is
no estimator of the library. A calibration item that is among its own neighbours keeps more of its
score than a test item does, so coverage drifts (by two points on CIFAR-10 where 0.90 is asked);
left out of them it still has one candidate fewer, which is only nearly the same.
`snaps.images.EmbeddedSNAPS` costs no more and is exact.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from snaps._kernels.aggregation import neighbour_mean
from snaps.graph import Graph
from snaps.images import ETA, K, neighbours
from snaps.scores import APS, score_table


def paper_scores(
    items: Graph,
    probs: np.ndarray,
    calib: np.ndarray,
    *,
    k: int = K,
    eta: float = ETA,
    leave_one_out: bool = False,
    seed: int = 0,
) -> np.ndarray:
    """Scores (n, K) of every item, each mixed with those of its nearest calibration items."""
    similar = neighbours(items.features, k, reference=calib, ids=items.keys)
    if not leave_one_out:
        similar = _with_themselves(similar, calib, k)
    own = score_table(APS(), probs, items.keys, seed)
    return (1 - eta) * own + eta * neighbour_mean(similar, own)


def _with_themselves(similar: sp.csr_array, nodes: np.ndarray, k: int) -> sp.csr_array:
    """Put `nodes` among their own k neighbours; the last one of k makes room."""
    full = nodes[np.diff(similar.indptr)[nodes] == k]
    similar.data[similar.indptr[full + 1] - 1] = 0
    similar.eliminate_zeros()
    own = np.zeros(similar.shape[0])
    own[nodes] = 1
    return sp.csr_array(similar + sp.diags_array(own))
