"""Every experiment by name. A module makes one kind of them and lays its results out:

- `build(name, datasets, setting, track)` runs what is missing and returns a result for JSON: a dict
  with the keys table (its name), title, settings, rows, notes, skipped, and more if it likes;
- `layout(result)` gives the header and the rows of its table, as text;
- `remarks(result)`, if there is one, gives what a reader must know, a line each;
- `draw(result)`, if there is one, gives a matplotlib figure;
- `NAMES`, if there are any, are the names of its data where these are not graphs;
- `AS_AUTHORS`, if it is there and true, says that it can be made as the authors did, wholly.
"""

from __future__ import annotations

import difflib
from importlib import import_module
from types import ModuleType

from snaps.errors import SnapsError

# In the order of the page of results.
EXPERIMENTS = {
    "table1": "tables",
    "gcn-0.1": "tables",
    "gat": "tables",
    "appnp": "tables",
    "mlp": "tables",
    "raps": "tables",
    "ablation": "tables",
    "thirds": "tables",
    "images": "images",
    "cfgnn": "cfgnn",
    "heterophily": "heterophily",
    "pooled": "pooled",
    "pooled-models": "pooled",
    "pooled-parts": "pooled_parts",
    "pooled-labels": "pooled_labels",
    "budgets": "budgets",
    "decisions": "decisions",
    "ties": "ties",
    "shares": "shares",
    "heldout": "heldout",
    "time": "ageing",
    "gpt": "gpt",
    "arxiv-cs": "arxiv_cs",
    "advice": "advice",
    "accuracy": "accuracy",
    "datasets": "statistics",
    "figure1a": "figure1a",
    "figure1b": "figure1b",
    "figure1c": "figure1c",
    "figure3": "figure3",
    "figure4": "figure4",
}


def find(name: str) -> ModuleType:
    """The module that makes an experiment."""
    if name not in EXPERIMENTS:
        known = (*EXPERIMENTS, "all")
        alike = difflib.get_close_matches(name, known, 3, 0.3) or known
        raise SnapsError(f"'TABLE' must be a known table such as {', '.join(alike)}, got {name!r}")
    return import_module(f"snaps_lab.reproduce.{EXPERIMENTS[name]}")


def as_authors(name: str) -> bool:
    """Whether an experiment can be made as the paper's authors did."""
    return bool(getattr(find(name), "AS_AUTHORS", False))
