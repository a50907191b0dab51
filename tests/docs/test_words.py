"""Words: the field's terms, plainly, in code, messages, pages and tests.

What readers of MAPIE or PyG stumbled over stays out.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BANNED = {
    "told": "reported, printed, given",
    "anew": "again",
    "in peace": "(delete)",
    "on the dot": "exactly",
    "by right": "as expected",
    "made graphs?": "synthetic graph",
    "at hand": "available, given",
    "does not speak of": "does not apply to",
    "nobody": "none, no node",
    "whoever": "(name it)",
    "everybody": "all nodes",
    "somebody": "(name it)",
    "first edition": "(name what differs: unreleased software has no editions)",
    "second edition": "(name what differs)",
    "inside the law": "as expected, consistent with the coverage distribution",
    "outside the law": "not as expected",
}
SOURCES = [
    path
    for pattern in ("*.py", "*.jinja", "*.js")
    for path in (ROOT / "src" / "snaps").rglob(pattern)
]
# What was changed, and results: not words of the pages.
GENERATED = {"changelog.md", "results.md"}
SOURCES += [path for path in (ROOT / "docs").glob("*.md") if path.name not in GENERATED]
SOURCES += [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "examples").iterdir()]
SOURCES += [*(ROOT / "docs").glob("*.py"), *(ROOT / "docs" / "tables").glob("*.md")]
SOURCES += [
    path
    for folder in ("lab", "tests", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
    if path != Path(__file__).resolve()  # which names the words
]


@pytest.mark.parametrize("word", BANNED)
def test_plain_words(word):
    # Also as a part of a name_of_several_words.
    pattern = re.compile(rf"(?:\b|(?<=\w_)){word}(?:\b|(?=_))", re.IGNORECASE)
    places = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not places, f"say instead of '{word}': {BANNED[word]}\n" + "\n".join(places)
