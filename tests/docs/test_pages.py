"""The pages run as they stand, print what they say they print, and name what exists.

The Python blocks of a page share one namespace and one folder; the lines of an `sh` block are run
there as commands. A `text` block is all that the block before it prints, warnings included: the
words must agree, line breaks don't count, and numbers may differ as they do between machines.
With SNAPS_REFRESH=1 the text blocks are written again instead. `console` blocks set things up (pip,
make) and are not run, nor are `bibtex` blocks. A block in an HTML comment is run and not shown:
stand-ins for the reader's data.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import textwrap
import warnings
from itertools import zip_longest
from pathlib import Path

import pytest

from snaps import SnapsWarning
from snaps.cli import main

REPOSITORY = Path(__file__).parents[2]
DOCS = sorted((REPOSITORY / "docs").glob("*.md"))
PAGES = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")] + DOCS
NOT_RUN = ("text", "console", "bibtex")
NEEDS = {
    "README.md": "torch_geometric",
    "own_model.md": "torch_geometric",
    "cora.md": "torch_geometric",
    "minibatch.md": "torch_geometric",
    "images.md": "torch",
    "reproducing.md": "torch",
    "spark.md": "pyspark",
}
REAL_DATA = {"reproducing.md", "cora.md", "heterophily.md", "answers.md"}

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOOK = re.compile(r"^took .* of memory\n", re.MULTILINE)  # differs from run to run
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


def blocks(text):
    """Kind, first line, code, and the block of text that follows, if one does, of what runs."""
    found = list(BLOCK.finditer(text))
    for block, after in zip_longest(found, found[1:]):
        if block[1] not in NOT_RUN:
            line = text.count("\n", 0, block.start()) + 1
            yield block[1], line, block[2], after if after and after[1] == "text" else None


RUN = [page for page in PAGES if any(blocks(page.read_text()))]


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


def wrapped(printed):
    """What is printed, in lines that fit a page; tables and pictures of text stay as they are."""
    lines = printed.splitlines()
    if any(mark in printed for mark in "│┃╭"):
        return "".join(f"{line.rstrip()}\n" for line in lines)
    return "".join(f"{part}\n" for line in lines for part in textwrap.wrap(line, 118) or [""])


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_page_runs_and_prints_what_it_says(page, tmp_path, monkeypatch, capsys, request):
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name])
    if page.name in REAL_DATA:
        monkeypatch.setenv("SNAPS_DATA", str(request.getfixturevalue("data_dir")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    namespace, text, rewritten = {"__name__": "__main__"}, page.read_text(), []
    if page.name == "spark.md":
        namespace["spark"] = request.getfixturevalue("spark")
    for kind, line, code, after in blocks(text):
        where = f"{page.name}, block at line {line},"
        with warnings.catch_warnings():
            warnings.simplefilter("always", SnapsWarning)
            warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
            warnings.showwarning = lambda text, kind, *_: print(f"{kind.__name__}: {text}")
            if kind == "python":
                exec(compile("\n" * line + code, page.name, "exec"), namespace)
            else:
                assert kind == "sh", f"{where} is neither python, sh, console nor text"
                run_commands(code)
        printed = TOOK.sub("", "".join(capsys.readouterr()))
        if after and os.environ.get("SNAPS_REFRESH"):
            if " ".join(after[2].split()) != " ".join(printed.split()):
                rewritten.append((*after.span(2), wrapped(printed)))
            continue
        if after or kind == "python":  # a command need not show all that it prints
            check_printed(printed, after[2] if after else "", where)
    for start, end, lines in reversed(rewritten):
        text = text[:start] + lines + text[end:]
    if rewritten:
        page.write_text(text)


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


def test_every_command_is_on_its_page():
    from snaps.cli._app import app

    text = (REPOSITORY / "docs" / "commands.md").read_text()
    commands = {"": app}
    while commands:
        name, command = commands.popitem()
        assert f"snaps {name} --help\n".replace("  ", " ") in text, f"snaps {name}"
        inner = getattr(command, "commands", {})
        commands |= {f"{name} {each}".strip(): one for each, one in inner.items()}


def test_every_warning_is_on_the_troubleshooting_page():
    """Each call of `warn` has three words in a row that the page has too."""
    page = " ".join((REPOSITORY / "docs" / "faq.md").read_text().split())
    seen = 0
    for path in (REPOSITORY / "src" / "snaps").rglob("*.py"):
        for call in re.findall(r"\bwarn\(\s*(f?\".*?)\n? *\)\n", path.read_text(), re.DOTALL):
            text = re.sub(r"\"\s*f?\"", "", call)
            words = re.split(r"\{[^}]*\}|\"", text)
            runs = [part.split() for part in words]
            triples = {" ".join(run[i : i + 3]) for run in runs for i in range(len(run) - 2)}
            assert any(triple in page for triple in triples), f"{path.name}: {text}"
            seen += 1
    assert seen >= 12


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
