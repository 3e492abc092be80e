"""The docs site: how Sphinx makes it of the project's Markdown pages (`make docs`).

The pages are written to be read in the repository, so their links stay as they are: this file resolves a link to a
folder to the README there, and leaves of a link to code its text alone. A link to nothing, or to a heading
that no page has, is a warning, and `tools/build-docs` treats a warning as an error.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]

project = "backhaul"
release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**", "[a-z]*/README.md", "deploy/systemd/README.md"]
exclude_patterns = ["docs/conf.py"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"backhaul {release}"
html_copy_source = False
html_show_copyright = False
# No host is asked for anything: neither while the site is made, nor while it is read.
html_permalinks_icon = "#"

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def _within_the_site(_: Sphinx, page: str, source: list[str]) -> None:
    """Rewrite links of one page to files and folders that are no pages of the site."""
    folder = (ROOT / page).parent

    def rewritten(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        path = folder / target
        if path.is_dir() and (path / "README.md").exists():
            return f"[{text}]({os.path.relpath(path / 'README.md', folder)}{anchor})"
        return text if path.exists() and path.suffix != ".md" else link[0]

    source[0] = _LINK.sub(rewritten, source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx of the above."""
    app.connect("source-read", _within_the_site)
    return {"parallel_read_safe": True}
