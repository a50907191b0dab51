"""`load`: a graph of the paper by its name, checked against the paper's table."""

from __future__ import annotations

import os

from snaps._checks import check_flag
from snaps.datasets.dataset import Dataset
from snaps.datasets.fetch import fetch
from snaps.datasets.files import folders, found_files, how_to_get
from snaps.datasets.read import read
from snaps.datasets.registry import find_spec
from snaps.errors import SnapsError


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
    snaps.errors.SnapsError: there is no dataset 'cora_mil'; did you mean 'cora_ml' or 'cora_full'?
    """
    spec = find_spec(name)
    download = check_flag(download, "download")
    found = found_files(spec, data_dir)
    if found:
        return read(spec, next(iter(found.values())))
    if not download:
        looked = " nor ".join(f"in '{folder}'" for folder in folders(data_dir).values())
        raise SnapsError(f"'{spec.name}.npz' is not {looked}; {how_to_get(spec)}")
    return read(spec, fetch(spec.name))
