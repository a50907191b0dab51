"""Graphs from their public upstream: downloaded here, read by torch_geometric and ogb.

`snaps.datasets.fetch` finds this module through the entry point group `snaps.upstream`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps.datasets.dataset import Arrays, build, statistics
from snaps.datasets.load import how_to_get
from snaps.datasets.registry import Spec
from snaps.errors import SnapsError
from snaps.graph import Graph
from snaps.io.files import atomic_path, sha256, write_npz
from snaps_lab.download import download, replaced

__all__ = ["store"]

Get = Callable[[str, str], str]  # downloads a URL into a folder, returns the path


def store(spec: Spec, path: Path, mirror: str | None) -> None:
    """Download a graph, and store it with a record of its checksum, sources and statistics."""
    sources: dict[str, str] = {}

    def get(url: str, folder: str) -> str:
        _print_progress(f"{spec.name}: downloading {url}")
        file = download(url, folder, mirror)
        sources[url] = sha256(file)
        return str(file)

    with _temporary_folder(path.parent) as folder:
        arrays, loader = _read(spec, folder, get, sources)
        _print_progress(f"{spec.name}: checking and storing")
        dataset = build(spec, arrays, f"{spec.name} from {_hosts(sources)}")
        path.with_suffix(".json").unlink(missing_ok=True)  # the record of another file
        write_npz(path, arrays, compress=True)
    record = {
        "name": spec.name,
        "sha256": sha256(path),
        "bytes": path.stat().st_size,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "loader": loader,
        "mirror": mirror,
        "sources": sources,
        "statistics": asdict(statistics(dataset, directed=spec.directed)),
        "notes": dataset.notes,
    }
    with atomic_path(path.with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _hosts(sources: Iterable[str]) -> str:
    return " and ".join(sorted({url.split("/")[2] for url in sources}))


def _temporary_folder(cache: Path) -> tempfile.TemporaryDirectory[str]:
    """A folder inside the cache: on its disk there is room, and an error comes early."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache, ignore_cleanup_errors=True)
    except OSError as error:
        raise SnapsError(
            f"cannot write to the cache '{cache}': {error.strerror}; "
            "set SNAPS_CACHE to a folder that you may write to"
        ) from error


def _read(spec: Spec, folder: str, get: Get, sources: Mapping[str, str]) -> tuple[Arrays, str]:
    """Run the upstream loader; whatever it raises becomes one line."""
    try:
        # What the loaders print is progress, and results alone go to stdout.
        with redirect_stdout(sys.stderr):
            return (_from_ogb if spec.loader == "ogb" else _from_pyg)(spec, folder, get)
    except SnapsError as error:
        raise SnapsError(f"cannot fetch '{spec.name}': {error}; {how_to_get(spec)}") from error
    except Exception as error:  # zipfile, NumPy, pandas and the loaders raise what they like
        sent = f"what {_hosts(sources)} sent" if sources else "the upstream files"
        # One sentence: NumPy's second is the advice to unpickle what was sent.
        reason = f"{type(error).__name__}: {error}".split(". ")[0]
        raise SnapsError(
            f"cannot fetch '{spec.name}': {spec.loader} cannot read {sent}, which may be damaged "
            f"or cut short ({reason})"
        ) from error


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
