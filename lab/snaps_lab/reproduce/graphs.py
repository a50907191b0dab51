"""Graphs that only the laboratory reads: for evaluation alone, and with dates.

Nothing is chosen on the graphs in `HELD_OUT`: no setting, no default. They are read from SNAPS_DATA
or the cache, and are not downloaded.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from snaps.datasets import Dataset, load
from snaps.datasets.load import folders, read
from snaps.datasets.registry import DATASETS, Spec, Statistics
from snaps.errors import SnapsError
from snaps.io.files import read_npz

# fmt: off
_SPECS = (
    Spec("dblp", "DBLP", Statistics(17716, 1639, 105734, 4, 0.8279), "CitationFull",
         {"name": "DBLP"}, binary=True, in_paper=False),
    Spec("planetoid_cora", "Planetoid Cora", Statistics(2708, 1433, 10556, 7, 0.8100),
         "Planetoid", {"name": "Cora"}, binary=True, in_paper=False),
    Spec("planetoid_citeseer", "Planetoid CiteSeer", Statistics(3327, 3703, 9104, 6, 0.7355),
         "Planetoid", {"name": "CiteSeer"}, binary=True, in_paper=False),
    Spec("tolokers", "Tolokers", Statistics(11758, 10, 1038000, 2, 0.5945),
         "HeterophilousGraphDataset", {"name": "Tolokers"}, in_paper=False),
    Spec("arxiv_cs", "arXiv CS", Statistics(116715, 8000, 1466148, 40, 0.4717), "", {},
         binary=True, in_paper=False),
)
# fmt: on
EXTRA = {spec.name: spec for spec in _SPECS}
HELD_OUT = ("dblp", "planetoid_cora", "planetoid_citeseer", "tolokers")
YEARS = "pubmed_years"  # the years of PubMed's nodes and an LLM's answers, in the graph's order


def load_graph(name: str, data_dir: Path | None) -> Dataset:
    """A graph of the library's registry, or of the laboratory's."""
    if name not in EXTRA:
        return load(name, data_dir=data_dir)
    data = read(EXTRA[name], _file(name, data_dir))
    if name != "planetoid_citeseer":
        return data
    # Fifteen nodes of the original have neither words nor a label, which the file stores as 0.
    labels = np.where(np.diff(data.graph.features.indptr) == 0, -1, data.labels)
    count = int((labels < 0).sum())
    return replace(data, labels=labels, notes=(f"{count} nodes have no label and are left out",))


def side_table(name: str, data_dir: Path | None, *wanted: str) -> dict[str, np.ndarray]:
    """Arrays of a file that say more about nodes than a graph does, such as dates."""
    arrays = read_npz(_file(name, data_dir))
    return {key: arrays[key] for key in wanted}


def title(name: str) -> str:
    """A graph's name as people write it."""
    spec = EXTRA.get(name) or DATASETS.get(name)
    return spec.title if spec else name


def _file(name: str, data_dir: Path | None) -> Path:
    candidates = [folder / f"{name}.npz" for folder in folders(data_dir).values()]
    for path in candidates:
        if path.is_file():
            return path
    searched = " nor ".join(f"in '{path.parent}'" for path in candidates)
    raise SnapsError(f"'{name}.npz' is not {searched}")
