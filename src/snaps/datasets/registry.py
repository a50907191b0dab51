"""The graphs that can be loaded by name: what each is, where it comes from, how it is prepared."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from snaps._checks import shown
from snaps.errors import SnapsError


@dataclass(frozen=True)
class Statistics:
    """A row of the paper's table of datasets.

    `edges` counts both directions of an undirected graph, and the links of a directed one;
    `homophily` is the share of edges whose ends have equal labels.
    """

    nodes: int
    features: int
    edges: int
    classes: int
    homophily: float


@dataclass(frozen=True)
class Spec:
    """What is known of a dataset before it is loaded."""

    name: str  # the key that `load` takes, and the name of the file without .npz
    title: str  # the name in the paper
    statistics: Statistics  # the paper's row, errors included; else the data manifest's
    # The class of torch_geometric.datasets that reads the upstream files, and what to pass to it;
    # for the OGB graphs "ogb", and OGB's own name.
    loader: str
    arguments: Mapping[str, Any]
    sha256: str | None = None  # of the file that the data manifest describes
    aliases: tuple[str, ...] = ()  # case and punctuation of names may differ anyway
    binary: bool = False  # every positive feature is set to 1, as the upstream loader does
    smallest_class: int = 0  # classes with fewer nodes are dropped, with their nodes
    directed: bool = False  # the paper counts the original directed edges, which are kept
    # Values that may stand in place of the paper's: what the graph is known to have in truth.
    corrections: Mapping[str, range] = field(default_factory=dict)
    in_paper: bool = True  # whether `statistics` is a row of the paper's table


# fmt: off
_SPECS = (
    Spec("cora_ml", "CoraML", Statistics(2995, 2879, 16316, 7, 0.7885),
         "CitationFull", {"name": "Cora_ML"},
         "f593ea7734606a525e1566dc3ab38657309d924d9b38c790041ee4df051ec080", binary=True),
    Spec("pubmed", "PubMed", Statistics(19717, 500, 88648, 3, 0.8023),
         "CitationFull", {"name": "PubMed"},
         "01e378465731b482e23b4c6877a0e189385b7f4d9f06bbdb3f7b1ecbc48c5deb", binary=True),
    Spec("citeseer", "CiteSeer", Statistics(4230, 602, 10674, 6, 0.9494),
         "CitationFull", {"name": "CiteSeer"},
         "7369b792123ad0b8851cb264a1a8ee087e4a53a78315bfef566d62db658aeab4", binary=True),
    Spec("cora_full", "CoraFull", Statistics(19749, 8710, 126524, 68, 0.5676),
         "CitationFull", {"name": "Cora"},
         "13e48769e744923714d50c8b225a9542b58316fa328a4116d5ef61f8644500a4", binary=True,
         smallest_class=50),
    Spec("coauthor_cs", "Coauthor CS", Statistics(18333, 6805, 163788, 15, 0.8080),
         "Coauthor", {"name": "CS"},
         "672282d8cccc936e1845fc42cadb26d241de3ee351c49ddddb28bf1e517e7396", binary=True,
         aliases=("CS",)),
    Spec("coauthor_physics", "Coauthor Physics", Statistics(34493, 8415, 495924, 5, 0.9314),
         "Coauthor", {"name": "Physics"},
         "8c205af18c26e5e6e0f922bddce8b79b92b11b233e25b5e2195d5ccaa2ab5112", binary=True,
         aliases=("Physics",)),
    Spec("amazon_computers", "Amazon Computers", Statistics(13752, 767, 491722, 10, 0.7772),
         "Amazon", {"name": "Computers"},
         "a90467f2226ebe095fd5e74ad95120464ec25690d8874eb51882fe63d7391d2b", binary=True,
         aliases=("Computers",)),
    Spec("amazon_photo", "Amazon Photo", Statistics(7650, 745, 238162, 8, 0.8272),
         "Amazon", {"name": "Photo"},
         "f972d0670b6ea09b32403ec7b61a2067cc674b47a6b570c66e662c62543eb865", binary=True,
         aliases=("Photo",)),
    Spec("ogbn_arxiv", "OGBN Arxiv", Statistics(169343, 128, 1166243, 40, 0.6551),
         "ogb", {"name": "ogbn-arxiv"}, aliases=("Arxiv",), directed=True),
    # OGB counts self loops of 64 nodes twice (snap-stanford/ogb issue 41); we keep none. How many
    # entries go is not agreed on, so a few more are allowed for than the 128.
    Spec("ogbn_products", "OGBN Products", Statistics(2449029, 100, 123718280, 49, 0.8075),
         "ogb", {"name": "ogbn-products"}, aliases=("Products",),
         corrections={"classes": range(47, 48), "edges": range(123718280 - 256, 123718280)}),
    Spec("chameleon", "Chameleon", Statistics(2277, 2325, 36101, 5, 0.23),
         "WikipediaNetwork", {"name": "chameleon"},
         "51f4078987c4f783f304970aac99626f1b423731d5ba6086d21e7a3500592c36", directed=True),
    Spec("squirrel", "Squirrel", Statistics(5201, 2089, 217073, 5, 0.22),
         "WikipediaNetwork", {"name": "squirrel"},
         "0f4883d047271f02a4f0c6c13533b1a529a7f2dc2f07413ed17cb8c6751bc307", directed=True),
    Spec("actor", "Actor", Statistics(7600, 932, 53318, 5, 0.2167), "Actor", {},
         "cc3f8e6852a90659b8eca9a00a48df273c09928e6f85f6302c63c56ec73e0b9c", aliases=("Film",),
         in_paper=False),
)
# fmt: on

DATASETS: dict[str, Spec] = {spec.name: spec for spec in _SPECS}


def find_spec(name: Any) -> Spec:
    """The dataset that a user means; case, spaces, hyphens and underscores don't matter.

    Examples
    --------
    >>> find_spec("CoraML").name, find_spec("ogbn-arxiv").name, find_spec("CS").name
    ('cora_ml', 'ogbn_arxiv', 'coauthor_cs')
    >>> find_spec("cora")
    Traceback (most recent call last):
    snaps.errors.SnapsError: there is no dataset 'cora'; did you mean 'cora_ml' or 'cora_full'?
    """
    if not isinstance(name, str):
        raise SnapsError(f"'name' must be the name of a dataset, got {shown(name)}")
    spellings = {
        _letters(spelling): spec
        for spec in DATASETS.values()
        for spelling in (spec.name, spec.title, *spec.aliases)
    }
    wanted = _letters(name)
    if wanted in spellings:
        return spellings[wanted]
    hint = "there are " + ", ".join(DATASETS)
    if close := difflib.get_close_matches(wanted, spellings):
        names = dict.fromkeys(spellings[spelling].name for spelling in close)  # each once
        hint = f"did you mean {' or '.join(map(repr, list(names)[:2]))}?"
    raise SnapsError(f"there is no dataset {shown(name)}; {hint}")


def _letters(name: str) -> str:
    """A name without case, spaces and punctuation."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
