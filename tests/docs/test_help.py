"""`help()` and the API page: whatever is public is on the page, and has an example that runs.

The examples themselves are run as doctests.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

import snaps

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "\n".join(path.read_text() for path in sorted((DOCS / "reference").glob("*.md")))
MODULES = (
    "metrics",
    "images",
    "datasets",
    "folder",
    "models",
    "spark",
)


def public(module):
    """Classes and functions that a module says are its own."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            name
            for name, thing in vars(module).items()
            if not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__
        ]
    things = {name: getattr(module, name) for name in names}
    return {n: t for n, t in things.items() if inspect.isclass(t) or inspect.isfunction(t)}


def methods(kind):
    """A class's public methods, each with the texts of those that it stands for."""
    for verb in dir(kind):
        method = inspect.getattr_static(kind, verb)
        function = getattr(method, "__func__", method)
        if not verb.startswith("_") and inspect.isfunction(function):
            yield (
                verb,
                "".join(
                    getattr(each, verb).__doc__ or ""
                    for each in kind.__mro__[:-1]
                    if hasattr(each, verb)
                ),
            )


def texts():
    """The docstring of every public class, function and method, by its dotted name."""
    found = {}
    for name in ("", *MODULES):
        module = importlib.import_module(f"snaps.{name}".rstrip("."))
        for own, thing in public(module).items():
            found[f"{module.__name__}.{own}"] = inspect.getdoc(thing) or ""
            if inspect.isclass(thing) and not issubclass(thing, Exception):
                found |= {f"{module.__name__}.{own}.{verb}": text for verb, text in methods(thing)}
    return found


TEXTS = texts()
ON_PAGE = set(re.findall(r"auto(?:class|function|exception):: (snaps[\w.]+)", PAGE))


@pytest.mark.parametrize("name", TEXTS)
def test_everything_public_has_an_example(name):
    assert ">>>" in TEXTS[name], f"help({name}) shows no example"


@pytest.mark.parametrize("module", ["", *MODULES])
def test_everything_public_is_on_the_page(module):
    if f"automodule:: snaps.{module}\n" in PAGE:
        return
    place = f"snaps.{module}".rstrip(".")
    wanted = {f"{place}.{name}" for name in public(importlib.import_module(place))}
    assert not wanted - ON_PAGE


def test_the_page_names_what_exists():
    for name in ON_PAGE:
        module, _, thing = name.rpartition(".")
        assert hasattr(importlib.import_module(module), thing), name


def test_the_version_stands_in_one_place():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert snaps.__version__ not in text
    assert 'attr = "snaps._version.__version__"' in text


def test_the_citation_and_the_workflow_can_be_read():
    yaml = pytest.importorskip("yaml")
    root = Path(__file__).parents[2]
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    assert citation["authors"] == [{"name": "The snaps developers"}]
    assert len(citation["preferred-citation"]["authors"]) == 6
    targets = set(re.findall(r"^([\w-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    jobs = yaml.safe_load((root / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    lines = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    made = {line.split()[1] for line in lines if line.startswith("make ")}
    said = set(re.findall(r"\bmake ([\w-]+)", (root / ".ci" / "run").read_text()))
    assert made == said <= targets
    for path in [root / ".pre-commit-config.yaml", *(root / ".github").rglob("*.yml")]:
        yaml.safe_load(path.read_text())


def test_what_is_released_agrees():
    """`make release-check` builds the distributions; what needs no build is looked at here."""
    from tests import release

    assert release.version() == snaps.__version__
    assert release.versions_disagree() == []
    assert release.broken_links((DOCS.parent / "README.md").read_text()) == []
    assert release.broken_links("[a](nowhere.md), [b](README.md#c)") == [
        "README.md links to nowhere.md"
    ]
