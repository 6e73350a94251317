"""How `make docs` makes the site.

Sphinx, MyST and furo, with pages of reference made of the code while it builds.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import meanstream

project = "Meanstream"
author = "The Meanstream authors"
copyright = author  # noqa: A001 - Sphinx's name
version = release = meanstream.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "_site.links",
    "_site.mathml",
    "_site.reference",
]
root_doc = "index"
exclude_patterns = ["_site"]

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
smartquotes = False  # an option in a sentence begins with two hyphens
highlight_language = "sh"
suppress_warnings = ["ref.python"]  # a parameter may be called as an attribute somewhere is

autodoc_typehints = "none"  # signatures have them; the docstrings say units and shapes
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

# `make docs` runs with -n: links between pages are all resolved. What docstrings name in single
# quotes is a name of the reader's, not a link; types in them are words.
default_role = "code"
nitpick_ignore_regex = [("py:.*", ".*")]

html_theme = "furo"
html_title = f"Meanstream {release}"
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_theme_options = {"sidebar_hide_name": False, "navigation_with_keys": True}
