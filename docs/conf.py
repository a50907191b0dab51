"""How `make docs` builds the pages: offline, and every warning is an error."""

import json
import re
import zlib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from snaps import __version__

project, author, copyright = "snaps", "The snaps developers", "The snaps developers"
version = release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["results/*.md"]
source_suffix = {".md": "markdown"}
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings have the types in words
autodoc_inherit_docstrings = True
autosummary_generate = False  # tables alone: the pages are written
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_param = False
napoleon_custom_sections = ["Attribute list"]  # see `tabulate_attributes`
default_role = "py:obj"  # `snaps.Graph` in a docstring is a link, `weights="tune"` is code

html_theme = "furo"
html_title = f"snaps {version}"
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_js_files = [("pages.js", {"defer": ""})]
html_search_scorer = str(Path(__file__).parent / "static" / "scorer.js")
html_show_search_summary = False  # it would fetch pages, which browsers refuse for files
html_copy_source = False
html_show_sourcelink = False
SERIF = '"Iowan Old Style", "Palatino Linotype", Palatino, "Book Antiqua", Georgia, serif'
html_theme_options = {
    "light_css_variables": {
        "font-stack--headings": SERIF,
        "color-brand-primary": "#005a8e",
        "color-brand-content": "#005a8e",
        "color-background-primary": "#fdfdfb",
        "color-background-secondary": "#f4f4f0",
    },
    "dark_css_variables": {"color-brand-primary": "#7cc6f0", "color-brand-content": "#7cc6f0"},
}
pygments_style, pygments_dark_style = "default", "github-dark"

# What other projects' names link to. Their inventories would need a network: these few names are
# written into inventories of our own.
ELSEWHERE = {
    "numpy": (
        "https://numpy.org/doc/stable/",
        {"numpy.ndarray": "reference/generated/numpy.ndarray.html"},
    ),
    "scipy": (
        "https://docs.scipy.org/doc/scipy/",
        {"scipy.sparse.csr_array": "reference/generated/scipy.sparse.csr_array.html"},
    ),
    "pandas": (
        "https://pandas.pydata.org/docs/",
        {
            "pandas.DataFrame": "reference/api/pandas.DataFrame.html",
            "pandas.Series": "reference/api/pandas.Series.html",
            "pandas.Categorical": "reference/api/pandas.Categorical.html",
        },
    ),
    "networkx": (
        "https://networkx.org/documentation/stable/",
        {"networkx.Graph": "reference/classes/graph.html"},
    ),
    "torch": (
        "https://docs.pytorch.org/docs/stable/",
        {"torch.Tensor": "tensors.html"},
    ),
    "torch_geometric": (
        "https://pytorch-geometric.readthedocs.io/en/latest/",
        {
            "torch_geometric.data.Data": "generated/torch_geometric.data.Data.html",
            "torch_geometric.loader.NeighborLoader": (
                "generated/torch_geometric.loader.NeighborLoader.html"
            ),
        },
    ),
}


def write_inventories(app: Sphinx, config: Any) -> None:
    """Inventories of the names above, where intersphinx finds them without a network."""
    folder = Path(app.doctreedir) / "elsewhere"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (address, pages) in ELSEWHERE.items():
        head = f"# Sphinx inventory version 2\n# Project: {name}\n# Version: \n"
        head += "# The remainder of this file is compressed using zlib.\n"
        lines = "".join(f"{each} py:class 1 {page} -\n" for each, page in pages.items())
        path = folder / f"{name}.inv"
        path.write_bytes(head.encode() + zlib.compress(lines.encode()))
        config.intersphinx_mapping[name] = (address, str(path))


intersphinx_mapping: dict[str, Any] = {}


class LinkNames(SphinxTransform):
    """`snaps.Pooled` in the text of a page links to its place in the reference."""

    default_priority = 5
    NAME = re.compile(r"((?:snaps|snaps_lab)(?:\.\w+)+|[A-Z]\w+)(\(.*\))?$")

    def apply(self, **_: Any) -> None:
        for literal in list(self.document.findall(nodes.literal)):
            found = self.NAME.fullmatch(literal.astext())
            inside = isinstance(literal.parent, (nodes.reference, addnodes.pending_xref))
            if not found or inside or literal.get("classes"):
                continue
            name = found[1] if "." in found[1] else f"snaps.{found[1]}"
            link = addnodes.pending_xref(
                "", refdomain="py", reftype="obj", reftarget=name, refexplicit=True,
                refdoc=self.env.docname, refwarn=False,
            )  # fmt: skip
            literal.replace_self(link)
            link += literal


def tabulate_attributes(app: Any, what: str, name: str, obj: Any, options: Any, lines: Any) -> None:
    """The section Attributes of a docstring as a list of names, several of which may share a line.

    napoleon would take `weights_` for a link and lose all but the last of several names.
    """
    heads = [i for i, line in enumerate(lines) if line.strip() == "Attributes"]
    if not heads or not set(lines[heads[0] + 1].strip()) == {"-"}:
        return
    start = heads[0]
    end = next(
        (
            i - 1
            for i in range(start + 3, len(lines))
            if lines[i].strip() and not lines[i].strip("-") and lines[i - 1].strip()
        ),
        len(lines),
    )
    entries: list[str] = []
    for line in lines[start + 2 : end]:
        if line[:1].strip():
            head, _, rest = line.partition(" : ")
            shown = ", ".join(f"``{each.strip()}``" for each in head.split(","))
            entries.append(f"- {shown}" + f": {rest}" * bool(rest))
        elif line.strip():
            entries[-1] += f"{'.' if ': ' in entries[-1] else ':'} {line.strip()}"
    lines[start:end] = ["Attribute list", "--------------", *entries, ""]


def notebook(path: Path) -> str:
    """A notebook as Markdown, with the outputs that it was saved with."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(re.sub(r"\]\(\.\./docs/", "](", source))
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                picture = "".join(data["image/png"]).replace("\n", "")
                parts.append(
                    f'```{{raw}} html\n<img alt="" src="data:image/png;base64,{picture}">\n```'
                )
            else:
                text = "".join(output.get("text", data.get("text/plain", "")))
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def read_source(app: Sphinx, docname: str, source: list[str]) -> None:
    """The tutorial's page is the notebook."""
    if docname == "tutorial":
        path = Path(app.srcdir).parent / "examples" / "tutorial.ipynb"
        source[0] += notebook(path).partition("\n")[2]  # its title is on the page


def add_report(app: Sphinx, failure: Exception | None) -> None:
    """A report of the demo's graph, to be looked at: what `snaps report` writes."""
    if failure or app.builder.format != "html" or "report" not in app.env.found_docs:
        return
    import tempfile
    from contextlib import redirect_stdout
    from io import StringIO

    from snaps.cli import main

    with tempfile.TemporaryDirectory() as folder:
        for command in (
            ["demo", "--out", f"{folder}/demo"],
            [
                "report", f"{folder}/demo/graph", "--method", "pooled", "--alpha", "0.05",
                "--out", str(Path(app.outdir) / "sample-report.html"),
            ],
        ):  # fmt: skip
            try:
                with redirect_stdout(StringIO()):
                    main(command)
            except SystemExit as ended:
                if ended.code:
                    raise RuntimeError(f"snaps {' '.join(command)} failed") from ended


def setup(app: Sphinx) -> None:
    app.add_transform(LinkNames)
    app.connect("config-inited", write_inventories, priority=100)
    app.connect("source-read", read_source)
    app.connect("autodoc-process-docstring", tabulate_attributes, priority=100)
    app.connect("build-finished", add_report)
