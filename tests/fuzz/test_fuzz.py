"""The attacker, bounded; `make fuzz` lets it go on."""

from __future__ import annotations

import pytest

from tests.fuzz import __main__ as fuzz
from tests.fuzz import files as fuzz_files
from tests.fuzz import sequences as fuzz_sequences


@pytest.mark.parametrize("seed", [1, 2])
def test_refused_or_the_same_answer(seed, one_thread):
    findings, counts = fuzz.run(500, seed)
    assert not findings, "\n".join(findings)
    assert len(counts) > 20


@pytest.mark.parametrize("seed", [1, 2])
def test_sequences_of_verbs_and_files_in_between(seed, one_thread):
    played = [fuzz_sequences.case(seed, number) for number in range(80)]
    findings = [f"{what}: {fault}" for what, fault in played if fault]
    assert not findings, "\n".join(findings)


def test_tampered_headers(one_thread):
    saved = ("saved SNAPS", "saved Pooled", "saved without data")
    cases = [number for number in range(3000) if fuzz_files.kind_of(5, number) in saved][:150]
    played = [fuzz_files.case(5, number) for number in cases]
    findings = [f"{what}: {fault}" for what, fault in played if fault]
    assert not findings, "\n".join(findings)
    assert sum("tampered" in what for what, _ in played) > 10
