"""`load`, `fetch` and `verify`: graphs by name, from a folder, the cache or their upstream."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from snaps._checks import check_flag, check_path
from snaps._runtime.progress import track
from snaps.datasets.dataset import Dataset, build
from snaps.datasets.registry import DATASETS, Spec, find_spec
from snaps.errors import SnapsError
from snaps.io.files import open_npz, parse_json, sha256


def load(
    name: str, data_dir: str | os.PathLike[str] | None = None, *, download: bool = True
) -> Dataset:
    """Load one of the paper's graphs.

    The first place that has the file is taken: the folder `data_dir` (else the one that the
    environment variable SNAPS_DATA names), the user's cache, and then the public upstream, which
    fills the cache once. The file's checksum and the graph's statistics are checked every time.
    All but the OGBN graphs take less than a second; a download needs the laboratory.

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
    snaps.errors.SnapsError: there is no dataset 'cora_mil'; did you mean 'cora_ml' or 'cora_full'?
    """
    spec = find_spec(name)
    download = check_flag(download, "download")
    paths = list(found_files(spec, data_dir).values())
    if paths:
        return read(spec, paths[0])
    if not download:
        searched = " nor ".join(f"in '{folder}'" for folder in folders(data_dir).values())
        raise SnapsError(f"'{spec.name}.npz' is not {searched}; {how_to_get(spec)}")
    return read(spec, fetch(spec.name))


# --- Files -------------------------------------------------------------------------------------


def cache_dir() -> Path:
    """Where downloads are kept: SNAPS_CACHE, else the user's cache folder."""
    named = os.environ.get("SNAPS_CACHE")
    if named:
        return Path(named) / "datasets"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "snaps" / "datasets"


def folders(data_dir: str | os.PathLike[str] | None = None) -> dict[str, Path]:
    """The folders to search, in this order, by the word that messages use for them."""
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


def known_sha256(spec: Spec, path: Path) -> str | None:
    """What a file's checksum should be: by the record next to it, else by the data manifest."""
    record = path.with_suffix(".json")
    if not record.exists():
        return spec.sha256
    try:
        return str(parse_json(record.read_bytes())["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        raise SnapsError(f"'{record}' must be a JSON record with a 'sha256'") from None


def read(spec: Spec, path: Path) -> Dataset:
    """Read a file, compare its checksum and build the dataset."""
    try:
        with open_npz(path) as arrays:
            _check_sha256(spec, path)
            return build(spec, arrays, path)
    except SnapsError as error:
        if path.parent == cache_dir():
            remedy = f"get it again: snaps datasets fetch {spec.name}"
        else:
            remedy = f"replace it, or remove it to have '{spec.name}' from the cache or upstream"
        raise SnapsError(f"{error}; {remedy}") from error


def _check_sha256(spec: Spec, path: Path) -> None:
    expected = known_sha256(spec, path)
    if expected is None or (actual := sha256(path)) == expected:
        return
    record = path.with_suffix(".json")
    witness, hint = f"'{record.name}'", ""
    if not record.exists():
        witness = "the data manifest"
        hint = f" (a fetched file needs its {record.name} next to it)"
    raise SnapsError(
        f"'{path}' has the wrong checksum: sha256 {actual[:12]}... where {witness} says "
        f"{expected[:12]}...{hint}"
    )


# --- Downloads ---------------------------------------------------------------------------------


def fetch(name: str, *, mirror: str | None = None) -> Path:
    """Download a graph from its public upstream into the cache; a sound copy there is kept.

    The laboratory reads the upstream files with torch_geometric and ogb, in a temporary folder of
    the cache's disk; the result is stored once, in the layout of the data manifest, with a record
    of its checksum, sources and statistics. Most graphs take seconds, but the loaders make
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
            print(f"{spec.name}: the cached copy is damaged, getting it again", file=sys.stderr)
    _upstream(spec).store(spec, path, mirror or os.environ.get("SNAPS_MIRROR") or None)
    return path


def how_to_get(spec: Spec) -> str:
    """What to do on a machine without network."""
    return (
        f"run 'snaps datasets fetch {spec.name}' on a machine with network and put its "
        f"{spec.name}.npz and {spec.name}.json into '{cache_dir()}' or into the folder that "
        "SNAPS_DATA names, or set SNAPS_MIRROR to a copy of the upstream sites"
    )


def _upstream(spec: Spec) -> Any:
    """What downloads, reads and stores upstream files: a module that the laboratory registers."""
    for entry in entry_points(group="snaps.upstream"):
        return entry.load()
    raise SnapsError(
        f"cannot fetch '{spec.name}': upstream files are read by the laboratory, which is not "
        "installed: in a clone of the repository, pip install -c lab/constraints.txt -e lab"
    )


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
            paths = found_files(spec, data_dir)
            verdicts += [_verdict(spec, place, path) for place, path in paths.items()]
            if not paths:
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
