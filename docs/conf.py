"""Sphinx configuration: `make docs` builds the site into build/docs, and every warning is an error."""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs/_ext")]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

project = "hardmax"
author = "the hardmax authors"
version = release = PROJECT["version"]

extensions = [
    "blind_lists",
    "metrics_table",
    "myst_parser",
    "openapi_fields",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinxarg.ext",
]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = [
    "myst.xref_missing"
]  # links to files of the repository, which tests/system/test_readme.py checks

autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_numpy_docstring = False

html_theme = "pydata_sphinx_theme"
html_title = f"hardmax {version}"
templates_path = ["_templates"]
html_static_path: list[str] = []
html_copy_source = False
html_show_copyright = False
html_sidebars = {"**": ["navigation"]}
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "navbar_center": [],  # the side bar has the sections and their pages
    "templates_skip_empty_check": ["navigation.html"],
}
copybutton_prompt_text = "$ "
