"""Every method gives the recorded results: sets and integers exactly, floats to 1e-12."""

from __future__ import annotations

import numpy as np
import pytest

from . import golden

GROUPS = [(name, group) for name, groups in golden.GROUPS.items() for group in groups]


@pytest.fixture(scope="module")
def recorded():
    """The recorded entries, by file and group."""
    entries = {pair: {} for pair in GROUPS}
    for name in golden.GROUPS:
        for key, value in golden.read(name).items():
            entries[name, key.split("/")[0]][key] = value
    return entries


@pytest.mark.parametrize("name, group", GROUPS)
def test_results_are_as_recorded(recorded, request, name, group):
    real = name in golden.REAL
    computed = golden.compute(name, group, request.getfixturevalue("data_dir") if real else None)
    assert recorded[name, group]
    rows = golden.compare(recorded[name, group], computed)
    assert [str(row) for row in rows if not row.accepted] == []


def altered(value):
    """An entry that is off by as little as must be noticed; None if it cannot be."""
    if isinstance(value, str):
        return value + " "
    value = value.copy()
    if not value.size or not np.isfinite(value.flat[-1]):
        return None
    value.flat[-1] += 1e-9 if value.dtype.kind == "f" else 1
    return value


@pytest.mark.parametrize("name", golden.GROUPS)
def test_small_differences_are_noticed(name):
    """A float that is off by 1e-9, an integer, a text, an entry more or less: none is accepted."""
    before = golden.read(name)
    changed = {key: altered(value) for key, value in before.items()}
    changed = {key: value for key, value in changed.items() if value is not None}
    rows = golden.compare({key: before[key] for key in changed}, changed)
    assert [row.name for row in rows if row.accepted and not row.name.endswith(".bits")] == []
    *most, last = before
    rows = golden.compare(before, {key: before[key] for key in most} | {"zzz": "text"})
    refused = [row.name for row in rows if not row.accepted]
    assert refused == [f"{last} (gone)", "zzz (new)"]


def test_the_files_are_small():
    assert sum(path.stat().st_size for path in golden.FOLDER.iterdir()) <= 300_000
