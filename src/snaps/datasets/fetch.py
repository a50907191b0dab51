"""`fetch` and `verify`: from the public upstream into the cache, and whether files are sound."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._runtime.progress import track
from snaps.datasets.dataset import Dataset
from snaps.datasets.files import (
    cache_dir,
    found_files,
    how_to_get,
    known_sha256,
    record_path,
    sha256,
)
from snaps.datasets.read import build, read, statistics
from snaps.datasets.registry import DATASETS, Spec, find_spec
from snaps.errors import SnapsError, require
from snaps.graph import Graph
from snaps.io.files import atomic_path, write_npz


def fetch(name: str, *, mirror: str | None = None) -> Path:
    """Download a graph from its public upstream into the cache; a sound copy there is kept.

    The classes of torch_geometric and ogb read the upstream files, in a temporary folder of the
    cache's disk; the result is stored once, in the layout of the data manifest, with a record of
    its checksum, sources and statistics beside it. Most graphs take seconds, but the loaders make
    features dense: coauthor_physics needs 3 GB of memory for a minute. ogbn_products downloads
    1.4 GB and should be given 15 GB of memory and of disk.

    Parameters
    ----------
    name : str
        As for `load`.
    mirror : str, optional
        An address below which the upstream files lie by host and path, as `wget -x` arranges them;
        the environment variable SNAPS_MIRROR by default.

    Returns
    -------
    Path
        The cached file.

    Examples
    --------
    >>> from snaps.datasets import fetch
    >>> path = fetch("cora_ml")  # doctest: +SKIP
    """
    spec = find_spec(name)
    path = cache_dir() / f"{spec.name}.npz"
    if path.is_file():
        try:
            read(spec, path)
            return path
        except SnapsError:
            _say(f"{spec.name}: the cached copy is damaged, getting it anew")
    # Imported here because 'import snaps.datasets' should not pay for urllib.
    from snaps.datasets.download import download

    mirror = mirror or os.environ.get("SNAPS_MIRROR") or None
    sources: dict[str, str] = {}

    def get(url: str, folder: str) -> str:
        _say(f"{spec.name}: downloading {url}")
        file = download(url, folder, mirror)
        sources[url] = sha256(file)
        return str(file)

    with _workshop(path.parent) as folder:
        arrays, origin = _loaded(spec, folder, get, sources)
        _say(f"{spec.name}: checking and storing")
        dataset = build(spec, arrays, f"{spec.name} from {_hosts(sources)}")
        _store(spec, arrays, dataset, path, origin | {"mirror": mirror, "sources": sources})
    return path


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _hosts(sources: Mapping[str, str]) -> str:
    return " and ".join(sorted({url.split("/")[2] for url in sources}))


@contextmanager
def _workshop(cache: Path) -> Iterator[Path]:
    """A temporary folder inside the cache: there is room there, or we hear of it now."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        room = tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache, ignore_cleanup_errors=True)
    except OSError as error:
        raise SnapsError(
            f"cannot write to the cache '{cache}': {error.strerror}; "
            "set SNAPS_CACHE to a folder that you may write to"
        ) from error
    with room as folder:
        yield Path(folder)


# --- Upstream loaders --------------------------------------------------------------------------

Get = Callable[[str, str], str]
Arrays = dict[str, np.ndarray]


def _loaded(
    spec: Spec, folder: Path, get: Get, sources: Mapping[str, str]
) -> tuple[Arrays, dict[str, Any]]:
    """Run the upstream loader; whatever it stumbles on becomes one line."""
    loader = _from_ogb if spec.loader == "ogb" else _from_pyg
    try:
        # What the loaders print is progress, and results alone go to stdout.
        with redirect_stdout(sys.stderr):
            arrays, origin = loader(spec, folder, get)
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
    return arrays, {"loader": origin}


def _from_pyg(spec: Spec, folder: Path, get: Get) -> tuple[Arrays, str]:
    """Read with a class of torch_geometric.datasets."""
    package = require("torch_geometric", "datasets")
    loader = getattr(require("torch_geometric.datasets", "datasets"), spec.loader)

    def download_url(url: str, folder: str, *_: Any, **__: Any) -> str:
        return get(url, folder)

    with _replaced(sys.modules[loader.__module__], download_url=download_url):
        data = loader(str(folder), **spec.arguments)[0]
    edges = data.edge_index.numpy()
    arrays = _arrays(edges, data.x.numpy(), data.y.numpy())
    if spec.directed:
        arrays["edge_index_directed"] = edges.astype(np.int32)
    if "train_mask" in data and data.train_mask.ndim == 2:
        masks = (data.train_mask, data.val_mask, data.test_mask)
        code = sum(place * mask.numpy().T for place, mask in enumerate(masks, start=1))
        arrays["split_code"] = np.asarray(code, np.int8)
    arguments = ", ".join(f"{key}={value!r}" for key, value in spec.arguments.items())
    return arrays, f"torch_geometric {package.__version__}, {spec.loader}({arguments})"


def _from_ogb(spec: Spec, folder: Path, get: Get) -> tuple[Arrays, str]:
    """Read with OGB's loader for plain arrays.

    Its class for torch_geometric calls torch.load in a way that torch refuses since 2.6.
    """
    package = require("ogb", "datasets")
    module = require("ogb.nodeproppred.dataset", "datasets")
    # Its own question about large downloads waits for an answer on stdin.
    with _replaced(module, download_url=get, decide_download=lambda url: True):
        loader = module.NodePropPredDataset(root=str(folder), **spec.arguments)
    graph, labels = loader[0]
    arrays = _arrays(graph["edge_index"], graph["node_feat"], labels.reshape(-1))
    if spec.directed:
        arrays["edge_index_directed"] = graph["edge_index"].astype(np.int32)
    for part, nodes in loader.get_idx_split().items():
        arrays[f"{part}_idx"] = np.asarray(nodes, np.int64)
    return arrays, f"ogb {package.__version__}, NodePropPredDataset({spec.arguments['name']!r})"


@contextmanager
def _replaced(module: ModuleType, **functions: Any) -> Iterator[None]:
    """Let a loader's module download through us: it knows the addresses, we check and resume."""
    before = {name: getattr(module, name) for name in functions}
    try:
        for name, function in functions.items():
            setattr(module, name, function)
        yield
    finally:
        for name, function in before.items():
            setattr(module, name, function)


def _arrays(edges: np.ndarray, features: np.ndarray, labels: np.ndarray) -> Arrays:
    """The layout of the data manifest."""
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


def _store(
    spec: Spec, arrays: Arrays, dataset: Dataset, path: Path, origin: Mapping[str, Any]
) -> None:
    """Write the file, then its record; a file without one is held against the manifest alone."""
    record_path(path).unlink(missing_ok=True)
    write_npz(path, arrays, compress=True)
    record = {
        "name": spec.name,
        "sha256": sha256(path),
        "bytes": path.stat().st_size,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **origin,
        "statistics": asdict(statistics(dataset, directed=spec.directed)),
        "notes": dataset.notes,
    }
    with atomic_path(record_path(path)) as temporary:
        temporary.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


# --- Are files sound? --------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What `verify` found: `state` is "ok", "missing" or "damaged"."""

    name: str
    state: str
    place: str
    path: Path | None
    detail: str


def verify(
    names: Iterable[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    progress: bool = False,
) -> list[Verdict]:
    """Check the checksum and the statistics of every file that `load` might take.

    Parameters
    ----------
    names : iterable of str, optional
        All datasets by default.
    data_dir : path, optional
        As for `load`.
    progress : bool
        Show a bar on stderr.

    Returns
    -------
    list of Verdict
        One a file, or one that says "missing" where a dataset has none.

    Examples
    --------
    >>> [verdict.name for verdict in verify(["cora_ml"], ".")]
    ['cora_ml']
    """
    specs = [find_spec(name) for name in (DATASETS if names is None else names)]
    verdicts = []
    with track(progress, "Verifying", len(specs)) as advance:
        for spec in specs:
            found = found_files(spec, data_dir)
            verdicts += [_verdict(spec, place, path) for place, path in found.items()]
            if not found:
                verdicts.append(Verdict(spec.name, "missing", "", None, "in no folder"))
            advance(1)
    return verdicts


def _verdict(spec: Spec, place: str, path: Path) -> Verdict:
    try:
        dataset = read(spec, path)
        known = known_sha256(spec, path) is not None
    except SnapsError as error:
        return Verdict(spec.name, "damaged", place, path, str(error))
    detail = "checksum and statistics match" if known else "statistics match, no checksum known"
    return Verdict(spec.name, "ok", place, path, "; ".join([detail, *dataset.notes]))
