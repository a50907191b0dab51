"""The pages run as they stand, print what they say they print, and name what exists.

The Python blocks of a page share one namespace and one folder; the lines of an `sh` block are run
there as commands. A `text` block is all that the block before it prints, warnings included: the
words must agree, line breaks don't count, and numbers may differ as they do between machines.
With SNAPS_REFRESH=1 the text blocks are written anew instead.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import textwrap
import warnings
from pathlib import Path

import pytest

from snaps import SnapsWarning
from snaps.cli import main

REPOSITORY = Path(__file__).parents[1]
PAGES = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md")]
PAGES += sorted((REPOSITORY / "docs").glob("*.md"))
RUN = ("production.md", "report.md")

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


def blocks(page):
    """Language, first line, code and what it is said to print, of each block that runs."""
    text = page.read_text()
    found = [
        (block[1], text.count("\n", 0, block.start()) + 1, block[2])
        for block in BLOCK.finditer(text)
    ]
    for (kind, line, code), after in zip(found, [*found[1:], ("", 0, "")], strict=True):
        if kind != "text":
            yield kind, line, code, after[2] if after[0] == "text" else ""


def run_commands(text):
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            assert words[0] == "snaps", f"only commands of snaps run here: {line}"
            with pytest.raises(SystemExit) as ended:
                main(words[1:])
            assert ended.value.code == 0, line


def check_printed(printed, said, where):
    """Words must be equal; numbers may be off by 2 %, or by two in their last digit."""
    one, two = (" ".join(text.split()) for text in (printed, said))
    assert NUMBER.sub("#", one) == NUMBER.sub("#", two), f"{where} prints:\n{printed}"
    for ours, theirs in zip(NUMBER.findall(one), NUMBER.findall(two), strict=True):
        value, wanted = (float(number.replace(",", "")) for number in (ours, theirs))
        step = 10.0 ** -len(theirs.partition(".")[2])
        close = pytest.approx(wanted, rel=0.02, abs=2 * step)
        assert value == close, f"{where} prints {ours}, the page says {theirs}:\n{printed}"


def refresh(page, said, printed):
    lines = [line for text in printed.splitlines() for line in textwrap.wrap(text, 118) or [""]]
    if " ".join(said.split()) != " ".join(printed.split()):
        text = page.read_text()
        page.write_text(text.replace(said, "\n".join(lines) + "\n", 1))


@pytest.mark.parametrize("name", RUN)
def test_page_runs_and_prints_what_it_says(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for kind, line, code, said in blocks(REPOSITORY / "docs" / name):
        where = f"docs/{name}, block at line {line},"
        with warnings.catch_warnings():
            warnings.simplefilter("always", SnapsWarning)
            warnings.showwarning = lambda text, kind, *_: print(f"{kind.__name__}: {text}")
            if kind == "python":
                exec(compile("\n" * line + code, name, "exec"), namespace)
            else:
                assert kind == "sh", f"{where} is neither python, sh nor text"
                run_commands(code)
        printed = "".join(capsys.readouterr())
        if os.environ.get("SNAPS_REFRESH") and said:
            refresh(REPOSITORY / "docs" / name, said, printed)
            continue
        check_printed(printed, said, where)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_what_exists(page):
    text = page.read_text()
    for link in re.findall(r"\]\(([^)#\s]+)", text):
        assert "://" in link or (page.parent / link).exists(), link
    for name in set(re.findall(r"`(snaps(?:\.\w+)+)", text)):
        resolve(name)


def resolve(name):
    """The module, class or function of this dotted name."""
    first, *rest = name.split(".")
    thing = importlib.import_module(first)
    for place, part in enumerate(rest):
        if not hasattr(thing, part):
            importlib.import_module(".".join([first, *rest[: place + 1]]))
        thing = getattr(thing, part)
    return thing


# ---- The checks above find what they are for -----------------------------------------------------


@pytest.mark.parametrize(
    ("said", "agrees"),
    [
        ("coverage 0.9011 of 1,000", True),
        ("coverage  0.9012\nof 1,000", True),
        ("coverage 0.8011 of 1,000", False),
        ("coverage 0.9011 of 1,100", False),
        ("coverage 0.9011 of 1,000 nodes", False),
        ("", False),
    ],
)
def test_printed_text_is_compared(said, agrees):
    if agrees:
        check_printed("coverage 0.9011 of 1,000\n", said, "here")
        return
    with pytest.raises(AssertionError, match="here prints"):
        check_printed("coverage 0.9011 of 1,000\n", said, "here")


def test_a_name_that_is_gone_is_noticed():
    with pytest.raises(ImportError):
        resolve("snaps.images.PaperVariant")
