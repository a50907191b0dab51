"""How `make docs` builds the pages: offline, and every warning is an error."""

from snaps import __version__

project, author, copyright = "snaps", "The snaps developers", "The snaps developers"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["results/*.md"]
source_suffix = {".md": "markdown"}
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings tell types in words
autodoc_inherit_docstrings = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_param = False
napoleon_use_ivar = True
default_role = "code"

html_theme = "furo"
html_title = f"snaps {version}"
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_js_files = [("pages.js", {"defer": ""})]
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
