"""Graphs from their public upstream: downloaded here, read by torch_geometric and ogb.

`snaps.datasets.fetch` finds this module through the entry point group `snaps.upstream`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps.datasets.dataset import Arrays
from snaps.datasets.registry import Spec
from snaps.graph import Graph
from snaps_lab.download import download, replaced

__all__ = ["download", "read"]

Get = Callable[[str, str], str]  # downloads a URL into a folder, returns the path


def read(spec: Spec, folder: str, get: Get) -> tuple[Arrays, str]:
    """The arrays of a graph, and what read them; `get` downloads its files."""
    return (_from_ogb if spec.loader == "ogb" else _from_pyg)(spec, folder, get)


def _from_pyg(spec: Spec, folder: str, get: Get) -> tuple[Arrays, str]:
    """Read with a class of torch_geometric.datasets."""
    import torch_geometric
    from torch_geometric import datasets

    loader = getattr(datasets, spec.loader)

    def download_url(url: str, folder: str, *_: Any, **__: Any) -> str:
        return get(url, folder)

    with replaced(sys.modules[loader.__module__], download_url=download_url):
        data = loader(folder, **spec.arguments)[0]
    edges = data.edge_index.numpy()
    arrays = dict(_manifest_arrays(edges, data.x.numpy(), data.y.numpy()))
    if spec.directed:
        arrays["edge_index_directed"] = edges.astype(np.int32)
    if "train_mask" in data and data.train_mask.ndim == 2:
        masks = (data.train_mask, data.val_mask, data.test_mask)
        code = sum(place * mask.numpy().T for place, mask in enumerate(masks, start=1))
        arrays["split_code"] = np.asarray(code, np.int8)
    arguments = ", ".join(f"{key}={value!r}" for key, value in spec.arguments.items())
    return arrays, f"torch_geometric {torch_geometric.__version__}, {spec.loader}({arguments})"


def _from_ogb(spec: Spec, folder: str, get: Get) -> tuple[Arrays, str]:
    """Read with OGB's loader for plain arrays; `get` downloads a URL into a folder.

    Its class for torch_geometric calls torch.load in a way that torch refuses since 2.6.
    """
    import ogb
    from ogb.nodeproppred import dataset as module

    # Its own question about large downloads waits for an answer on stdin.
    with replaced(module, download_url=get, decide_download=lambda url: True):
        loader = module.NodePropPredDataset(root=folder, **spec.arguments)
    graph, labels = loader[0]
    edges = graph["edge_index"]
    arrays = dict(_manifest_arrays(edges, graph["node_feat"], labels.reshape(-1)))
    if spec.directed:
        arrays["edge_index_directed"] = edges.astype(np.int32)
    for part, nodes in loader.get_idx_split().items():
        arrays[f"{part}_idx"] = np.asarray(nodes, np.int64)
    return arrays, f"ogb {ogb.__version__}, NodePropPredDataset({spec.arguments['name']!r})"


def _manifest_arrays(edges: np.ndarray, features: np.ndarray, labels: np.ndarray) -> Arrays:
    """A graph in the layout of the data manifest."""
    adjacency = Graph(edges, num_nodes=len(labels)).adjacency
    arrays = {
        "adj_indptr": adjacency.indptr.astype(np.int32),
        "adj_indices": adjacency.indices.astype(np.int32),
        "y": labels.astype(np.int64),
    }
    # An entry of a sparse table costs twice the bytes: its value and its column.
    if 2 * np.count_nonzero(features) > features.size:
        return arrays | {"x": features.astype(np.float32)}
    table = sp.csr_array(features)
    return arrays | {
        "x_data": table.data.astype(np.float32),
        "x_indices": table.indices.astype(np.int32),
        "x_indptr": table.indptr.astype(np.int32),
        "x_shape": np.array(table.shape, np.int64),
    }
