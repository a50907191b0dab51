"""Published tables on the terminal, and stored cells that were tampered with."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import snaps
from snaps_lab.reproduce import catalogue, render
from snaps_lab.reproduce.store import Store

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results"


def numbers(text):
    return set(re.findall(r"[-+]?\d+\.\d+%?", text))


@pytest.mark.parametrize(
    "name", ["table1", "images", "pooled", "pooled-labels", "advice", "figure3"]
)
@pytest.mark.parametrize("width", [40, 60])
def test_published_tables_keep_their_numbers(name, width, capsys, monkeypatch):
    result = json.loads((RESULTS / f"{name}.json").read_text())
    monkeypatch.setenv("COLUMNS", str(width))
    render.terminal(result)
    text = capsys.readouterr().out
    for row in catalogue.find(name).layout(result)[1]:
        assert numbers(" ".join(row)) <= numbers(text)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000], ids=["open", "objects"])
def test_cells_that_are_nested_deeply(tmp_path, text):
    store = Store(tmp_path)
    store.path("cells", "a", ".json").write_text(text)
    with pytest.warns(snaps.SnapsWarning, match="not as it was written"):
        assert store.read_json("cells", "a") is None
