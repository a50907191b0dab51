"""Words: the field's terms, plainly. What readers of MAPIE or PyG stumbled over stays out."""

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
    "made graph": "synthetic graph",
    "at hand": "available, given",
    "does not speak of": "does not apply to",
    "nobody": "none, no node",
    "whoever": "(name it)",
    "everybody": "all nodes",
    "somebody": "(name it)",
}
SOURCES = [
    path
    for pattern in ("*.py", "*.jinja", "*.js")
    for path in (ROOT / "src" / "snaps").rglob(pattern)
    if path.parent.name != "cli"  # whose words are still to be gone over
]
# Help texts as they are, and what was changed: not words of the pages.
GENERATED = {"commands.md", "changelog.md", "results.md"}
SOURCES += [path for path in (ROOT / "docs").glob("*.md") if path.name not in GENERATED]
SOURCES += [ROOT / "README.md", *(ROOT / "examples").iterdir(), *(ROOT / "docs").glob("*.py")]


@pytest.mark.parametrize("word", BANNED)
def test_plain_words(word):
    pattern = re.compile(rf"\b{word}\b", re.IGNORECASE)
    places = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not places, f"say instead of '{word}': {BANNED[word]}\n" + "\n".join(places)
