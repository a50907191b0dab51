"""Check what would be released: wheel, sdist, metadata, versions, and the links of the README.

python tests/release.py dist
"""

from __future__ import annotations

import email
import re
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).parents[1]
IN_WHEEL = ("snaps/py.typed", "snaps/report/page.html.jinja", "snaps/spark/log4j2.properties")
IN_SDIST = ("README.md", "LICENSE", "pyproject.toml", "src/snaps/__init__.py")
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href|srcset)=\"([^\"]+)\"")


def version() -> str:
    """The version of the sources."""
    text = (ROOT / "src/snaps/_version.py").read_text()
    return re.search(r'__version__ = "(.+)"', text)[1]


def versions_disagree() -> list[str]:
    """Places that name another version than the sources."""
    name = version()
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    wrong = [] if heading and heading[1] == name else [f"CHANGELOG.md does not begin with {name}"]
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    if cited and cited[1].strip("\"'") != name:
        wrong.append(f"CITATION.cff is of version {cited[1]}, not {name}")
    return wrong


def broken_links(text: str) -> list[str]:
    """Links of the README to files that do not exist."""
    links = {one or two for one, two in LINK.findall(text)}
    own = (link.partition("#")[0] for link in sorted(links) if "://" not in link)
    return [f"README.md links to {link}" for link in own if link and not (ROOT / link).exists()]


def relative_links(text: str) -> int:
    """How many links only work in a clone."""
    return sum("://" not in (one or two) for one, two in LINK.findall(text))


def poor_metadata(metadata: Message) -> list[str]:
    """What an index would show badly."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    wanted = {
        "Name": project["name"], "Version": version(), "Summary": project["description"],
        "License-Expression": project["license"], "Requires-Python": project["requires-python"],
        "Description-Content-Type": "text/markdown",
    }  # fmt: skip
    wrong = [f"{k} is {metadata[k]!r}, not {v!r}" for k, v in wanted.items() if metadata[k] != v]
    if metadata.get_payload().strip() != (ROOT / "README.md").read_text().strip():
        wrong.append("the description is not README.md")
    required = [each for each in metadata.get_all("Requires-Dist", []) if "extra ==" not in each]
    if len(required) != len(project["dependencies"]):
        wrong.append(f"{len(required)} dependencies, not {len(project['dependencies'])}")
    return wrong


def check(folder: Path) -> list[str]:
    """What is wrong with the distributions in a folder."""
    wheels, archives = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(archives) != 1:
        return [f"{folder} must hold one wheel and one sdist"]
    with zipfile.ZipFile(wheels[0]) as wheel:
        names = wheel.namelist()
        (place,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        wrong = poor_metadata(email.message_from_string(wheel.read(place).decode()))
    wrong += [f"the wheel has no {name}" for name in IN_WHEEL if name not in names]
    roots = {name.partition("/")[0] for name in names}
    wrong += [f"the wheel has {root}" for root in roots if not root.startswith("snaps")]
    with tarfile.open(archives[0]) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    return wrong + [f"the sdist has no {name}" for name in IN_SDIST if name not in inside]


if __name__ == "__main__":
    readme = (ROOT / "README.md").read_text()
    found = [*check(Path(sys.argv[1])), *versions_disagree(), *broken_links(readme)]
    print("\n".join(found) or "wheel, sdist, metadata, versions and links are as they should be")
    if count := relative_links(readme):
        print(f"note: {count} links of README.md work in a clone only, not on a package index")
    sys.exit(bool(found))
