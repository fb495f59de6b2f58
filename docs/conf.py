"""How Sphinx builds these pages: `make docs`."""

from tidings import __version__

project = "Tidings"
author = "The Tidings authors"
copyright = "The Tidings authors"  # noqa: A001 - Sphinx's own name
version = release = __version__

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"Tidings {__version__}"
html_theme_options = {"navigation_with_keys": True}
