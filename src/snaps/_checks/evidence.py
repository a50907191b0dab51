"""The wall at run time."""

from __future__ import annotations

from snaps.scoring.evidence import Evidence


def check_evidence(*nodes: object) -> None:
    """What is no evidence does not come through."""
    for each in nodes:
        if type(each) is not Evidence:
            raise TypeError(f"a scorer may see Evidence alone, got {type(each).__name__}")
