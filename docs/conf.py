"""Settings of the documentation site: `make docs` builds it into docs/_build/html, without network.

The pages are plain Markdown that also reads well on its own. Three of them are generated when the
site is built: the commands, the Python interface, and the notebook (docs/generate.py).
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from generate import plain_docstring, write_generated_pages

from tagmask.version import __version__

project = "tagmask"
author = "The tagmask developers"
copyright = "The tagmask developers, Apache-2.0"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = False
suppress_warnings = ["config.cache"]

# links to headings, as on GitHub: [text](page.md#heading)
myst_heading_anchors = 4

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"tagmask {__version__}"
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}


def setup(app: Any) -> None:
    """Generate the pages that come from the code, before anything is read."""
    write_generated_pages(Path(__file__).parent)

    def show_plainly(
        app: Any, kind: str, name: str, what: Any, options: Any, lines: list[str]
    ) -> None:
        plain_docstring(kind, lines)

    def shorten(
        app: Any,
        kind: str,
        name: str,
        what: Any,
        options: Any,
        signature: str | None,
        returned: str | None,
    ) -> tuple[str, str] | None:
        # the page of the commands lists the settings
        is_long = isinstance(what, type) and signature is not None and len(signature) > 400
        return ("(…)", "") if is_long and dataclasses.is_dataclass(what) else None

    app.connect("autodoc-process-signature", shorten)
    # before napoleon, which reads Args and Returns
    app.connect("autodoc-process-docstring", show_plainly, priority=400)
