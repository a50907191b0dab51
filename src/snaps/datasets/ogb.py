"""OGB's raw files, read with its own package: ogbn-arxiv and ogbn-products.

The only file of `snaps.datasets` that imports ogb, and with it torch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from snaps._errors import require
from snaps.datasets.dataset import Arrays, manifest_arrays
from snaps.datasets.download import replaced
from snaps.datasets.registry import Spec


def from_ogb(spec: Spec, folder: str, get: Callable[[str, str], str]) -> tuple[Arrays, str]:
    """Read with OGB's loader for plain arrays; `get` downloads a URL into a folder.

    Its class for torch_geometric calls torch.load in a way that torch refuses since 2.6.
    """
    package = require("ogb", "datasets")
    module = require("ogb.nodeproppred.dataset", "datasets")
    # Its own question about large downloads waits for an answer on stdin.
    with replaced(module, download_url=get, decide_download=lambda url: True):
        loader = module.NodePropPredDataset(root=folder, **spec.arguments)
    graph, labels = loader[0]
    edges = graph["edge_index"]
    arrays = dict(manifest_arrays(edges, graph["node_feat"], labels.reshape(-1)))
    if spec.directed:
        arrays["edge_index_directed"] = edges.astype(np.int32)
    for part, nodes in loader.get_idx_split().items():
        arrays[f"{part}_idx"] = np.asarray(nodes, np.int64)
    return arrays, f"ogb {package.__version__}, NodePropPredDataset({spec.arguments['name']!r})"
