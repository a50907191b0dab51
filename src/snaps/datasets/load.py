"""`load`: a graph of the paper by its name, checked against the paper's table."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from snaps._checks import check_flag, check_labels, check_nodes, check_path
from snaps._errors import SnapsError
from snaps._files import read_npz
from snaps.datasets.dataset import Dataset
from snaps.datasets.registry import Spec, Statistics, find_spec
from snaps.graph import Graph, graph_from_arrays

# The paper cuts percentages to two digits, and Chameleon's and Squirrel's to none.
_HOMOPHILY_TOLERANCE = 0.005


def load(
    name: str, data_dir: str | os.PathLike[str] | None = None, *, download: bool = True
) -> Dataset:
    """Load one of the paper's graphs.

    The first place that has the file is taken: the folder `data_dir` (else the one that the
    environment variable SNAPS_DATA names), the user's cache, and then the public upstream, which
    fills the cache once. The file's checksum and the graph's statistics are checked every time.
    All but the OGBN graphs take less than a second; a download needs the extra 'datasets'.

    Parameters
    ----------
    name : str
        One of `snaps.datasets.names()`; 'CoraML' or 'ogbn-arxiv' do as well.
    data_dir : path, optional
        A folder of files in the layout of the data manifest: `cora_ml.npz`, ...
    download : bool
        Whether the upstream may be asked; see `fetch` for what that involves.

    Returns
    -------
    Dataset
        Undirected, without self loops. Its `notes` say what differs from the paper's graph.

    Notes
    -----
    The CitationFull, Coauthor and Amazon graphs get every positive feature set to 1. Of CoraFull,
    classes with fewer than 50 nodes are dropped. Both as in the paper.

    Examples
    --------
    >>> load("cora_mil", download=False)
    Traceback (most recent call last):
    snaps._errors.SnapsError: there is no dataset 'cora_mil'; did you mean 'cora_ml' or 'cora_full'?
    """
    spec = find_spec(name)
    download = check_flag(download, "download")
    found = found_files(spec, data_dir)
    if found:
        return read(spec, next(iter(found.values())))
    if not download:
        looked = " nor ".join(f"in '{folder}'" for folder in folders(data_dir).values())
        raise SnapsError(f"'{spec.name}.npz' is not {looked}; {how_to_get(spec)}")
    from snaps.datasets.fetch import fetch

    return read(spec, fetch(spec.name))


# --- Where files lie ---------------------------------------------------------------------------


def cache_dir() -> Path:
    """Where downloads are kept: SNAPS_CACHE, else the user's cache folder."""
    named = os.environ.get("SNAPS_CACHE")
    if named:
        return Path(named) / "datasets"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "snaps" / "datasets"


def folders(data_dir: str | os.PathLike[str] | None = None) -> dict[str, Path]:
    """The folders to look in, first things first, by the word that messages use for them."""
    word, named = "data_dir", data_dir
    if named is None:
        # An empty variable is one that a Makefile or a shell script left unset.
        word, named = "SNAPS_DATA", os.environ.get("SNAPS_DATA") or None
    if named is None:
        return {"cache": cache_dir()}
    folder = check_path(named, word)
    if not folder.is_dir():
        raise SnapsError(f"'{word}' must be a folder with .npz files, got '{folder}'")
    return {word: folder, "cache": cache_dir()}


def found_files(spec: Spec, data_dir: str | os.PathLike[str] | None = None) -> dict[str, Path]:
    """The files of a dataset that exist, by the word for their folder."""
    paths = {word: folder / f"{spec.name}.npz" for word, folder in folders(data_dir).items()}
    return {word: path for word, path in paths.items() if path.is_file()}


def how_to_get(spec: Spec) -> str:
    """What to do on a machine without network."""
    return (
        f"run 'snaps datasets fetch {spec.name}' on a machine with network and put its "
        f"{spec.name}.npz and {spec.name}.json into '{cache_dir()}' or into the folder that "
        "SNAPS_DATA names, or set SNAPS_MIRROR to a copy of the upstream sites"
    )


# --- Checksums ---------------------------------------------------------------------------------


def record_path(path: Path) -> Path:
    """The record that `fetch` leaves beside a file."""
    return path.with_suffix(".json")


def sha256(path: Path) -> str:
    """The checksum of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def known_sha256(spec: Spec, path: Path) -> str | None:
    """What a file's checksum should be: the record beside it says, else the data manifest."""
    record = record_path(path)
    if not record.exists():
        return spec.sha256
    try:
        return str(json.loads(record.read_text(encoding="utf-8"))["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        raise SnapsError(f"'{record}' must be a JSON record with a 'sha256'") from None


def _check_sha256(spec: Spec, path: Path) -> None:
    expected = known_sha256(spec, path)
    if expected is None or (actual := sha256(path)) == expected:
        return
    record = record_path(path)
    witness = f"'{record.name}'" if record.exists() else "the data manifest"
    hint = "" if record.exists() else f" (a fetched file needs its {record.name} beside it)"
    raise SnapsError(
        f"'{path}' has the wrong checksum: sha256 {actual[:12]}... where {witness} says "
        f"{expected[:12]}...{hint}"
    )


# --- From arrays to a checked dataset ----------------------------------------------------------


def read(spec: Spec, path: Path) -> Dataset:
    """Read a file, compare its checksum and build the dataset."""
    try:
        arrays = read_npz(path)
        _check_sha256(spec, path)
        return build(spec, arrays, path)
    except SnapsError as error:
        if path.parent == cache_dir():
            remedy = f"get it anew: snaps datasets fetch {spec.name}"
        else:
            remedy = f"replace it, or remove it to have '{spec.name}' from the cache or upstream"
        raise SnapsError(f"{error}; {remedy}") from error


def build(spec: Spec, arrays: Mapping[str, np.ndarray], path: Any) -> Dataset:
    """Prepare a graph as the paper does, and hold its statistics against the paper's."""
    surrogate = bool(arrays.get("x_is_surrogate", False))
    arrays = dict(arrays)
    # A surrogate is a dense embedding: its positive values mean something.
    if spec.binary and not surrogate:
        for part in ("x", "x_data"):
            if part in arrays:
                arrays[part] = np.where(arrays[part] > 0, np.float32(1), arrays[part])
    graph = graph_from_arrays(arrays, path)
    labels = _labels(arrays, graph.num_nodes, path)
    splits: dict[str, np.ndarray] = {}
    directed = None
    if spec.smallest_class:
        graph, labels = _without_small_classes(graph, labels, spec.smallest_class)
    else:
        splits = _splits(arrays, graph.num_nodes, path)
        directed = _directed_edges(arrays, graph.num_nodes, path)
    if spec.directed and directed is None:
        raise SnapsError(f"'{path}' must hold the array 'edge_index_directed'")
    plain = Dataset(spec.name, graph, labels, splits, directed_edges=directed)
    notes = _deviations(spec, statistics(plain, directed=spec.directed), surrogate, path)
    return Dataset(spec.name, graph, labels, splits, notes, directed)


def _labels(arrays: Mapping[str, np.ndarray], num_nodes: int, path: Any) -> np.ndarray:
    if "y" not in arrays:
        raise SnapsError(f"'{path}' must hold the array 'y', got {sorted(arrays)[:8]}")
    labels = arrays["y"]
    top = int(labels.max()) if labels.size and labels.dtype.kind in "iu" else 0
    return check_labels(labels, f"y of {path}", num_nodes=num_nodes, num_classes=top + 1)


def _without_small_classes(
    graph: Graph, labels: np.ndarray, smallest: int
) -> tuple[Graph, np.ndarray]:
    """The subgraph of the classes that are large enough, relabelled 0, 1, ... in their order."""
    classes, where, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    large = (sizes >= smallest) & (classes >= 0)
    keep = np.flatnonzero(large[where])
    features = None if graph.features is None else graph.features[keep]
    renumbered = np.cumsum(large) - 1
    return Graph(graph.adjacency[keep][:, keep], features), renumbered[where[keep]]


def _splits(arrays: Mapping[str, np.ndarray], num_nodes: int, path: Any) -> dict[str, np.ndarray]:
    splits = {
        part: check_nodes(arrays[f"{part}_idx"], f"{part}_idx of {path}", num_nodes=num_nodes)
        for part in ("train", "valid", "test")
        if f"{part}_idx" in arrays
    }
    for name in ("split_code", "geom_split_code"):
        if name not in arrays:
            continue
        if arrays[name].ndim != 2 or arrays[name].shape[1] != num_nodes:
            raise SnapsError(
                f"'{name} of {path}' must have shape (splits, {num_nodes}), "
                f"got {arrays[name].shape}"
            )
        splits["geom_gcn"] = arrays[name]
    return splits


def _directed_edges(
    arrays: Mapping[str, np.ndarray], num_nodes: int, path: Any
) -> np.ndarray | None:
    edges = arrays.get("edge_index_directed")
    if edges is None:
        return None
    if edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
        raise SnapsError(
            f"'edge_index_directed of {path}' must be integers of shape (2, edges), "
            f"got {edges.dtype} {edges.shape}"
        )
    if edges.size and not (0 <= edges.min() and edges.max() < num_nodes):
        raise SnapsError(f"'edge_index_directed of {path}' must lie from 0 to {num_nodes - 1}")
    return edges


def statistics(dataset: Dataset, *, directed: bool = False) -> Statistics:
    """Count what the paper's table counts; the original directed edges if `directed`."""
    adjacency, labels = dataset.graph.adjacency, dataset.labels.astype(np.int32)
    if directed and dataset.directed_edges is not None:
        edges = dataset.directed_edges.shape[1]
    else:
        edges = int(adjacency.nnz)
    equal = np.repeat(labels, np.diff(adjacency.indptr)) == labels[adjacency.indices]
    features = dataset.graph.features
    return Statistics(
        nodes=dataset.graph.num_nodes,
        features=0 if features is None else features.shape[1],
        edges=edges,
        classes=len(np.unique(labels[labels >= 0])),
        homophily=float(equal.mean()) if equal.size else 0.0,
    )


def _deviations(spec: Spec, actual: Statistics, surrogate: bool, path: Any) -> tuple[str, ...]:
    """Notes on what is known to differ from the paper's table; anything else is an error."""
    table = "the paper's table" if spec.in_paper else "the data manifest"
    notes, errors = [], []
    expected = asdict(spec.statistics)
    for name, value in asdict(actual).items():
        due = expected[name]
        if name == "homophily":
            if abs(value - due) > _HOMOPHILY_TOLERANCE:
                errors.append(f"{name} {value:.4f} instead of {due:.4f}")
        elif name == "features" and surrogate:
            notes.append(f"features are a surrogate: {value} columns instead of {due}")
        elif value in spec.corrections.get(name, ()):
            notes.append(f"{value} {name}, where {table} says {due}")
        elif value != due:
            errors.append(f"{value} {name} instead of {due}")
    if errors:
        raise SnapsError(f"'{path}' is not the graph of {table}: {', '.join(errors)}")
    return tuple(notes)
