"""The attacker, bounded; `make fuzz` lets it go on."""

from __future__ import annotations

import pytest

import fuzz


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_refused_or_the_same_answer(seed, one_thread):
    findings, counts = fuzz.run(500, seed)
    assert not findings, "\n".join(findings)
    assert len(counts) > 20
