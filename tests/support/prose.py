"""Find headless clauses: "what", "whoever", or a bare "who" where a noun should stand.

python -m tests.support.prose [FILE ...]   print each one, with its line
python -m tests.support.prose --lower      write down the counts that have fallen
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[2]
COUNTS = ROOT / "tests" / "headless_clauses.json"
"""How many headless clauses each file may have: a number here only falls."""
_ALWAYS = re.compile(r"\b(?:what|whatever|whoever|whichever)\b", re.IGNORECASE)
# After these no noun stands for "who" to belong to.
_BEFORE = (
    "and or by of to for from with on at say says said know knows known ask asks tell tells told see sees is are "
    "was but that than as where how if not only no in between among show shows name names hear hears let lets"
)
_BARE = re.compile(
    rf"(?:^|[.:;,(-]\s*|\b(?:{'|'.join(_BEFORE.split())})\s+)(?:who|whom|whose)\b", re.IGNORECASE
)
_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n\s*\n|\|")
_NO_PROSE = [
    (re.compile(r"```.*?```", re.DOTALL), ""),
    (re.compile(r"`[^`\n]*`"), "X"),
    (re.compile(r"\]\([^)]*\)"), "]"),
    (re.compile(r"^ {4}.*$", re.MULTILINE), ""),
]


class Opening(NamedTuple):
    """The first line of a docstring, and where it stands."""

    file: str
    line: int
    text: str


def clauses(text: str) -> int:
    """Return how many headless clauses a text has; a question has none."""
    return sum(
        len(_ALWAYS.findall(sentence)) + len(_BARE.findall(sentence.strip()))
        for sentence in _SENTENCES.split(text)
        if not sentence.rstrip().endswith("?")
    )


def words(text: str) -> int:
    """Return how many words a text has."""
    return len(re.findall(r"[A-Za-z']+", text))


def prose(page: str) -> str:
    """Return the prose of a Markdown page: no code, no targets of links; lines stay where they are."""
    for pattern, instead in _NO_PROSE:
        for found in reversed(list(pattern.finditer(page))):
            lines = "\n" * found[0].count("\n")
            page = f"{page[: found.start()]}{instead}{lines}{page[found.end() :]}"
    return page


def pages() -> list[str]:
    """Return the Markdown files of the project."""
    return _files("*.md")


def openings() -> list[Opening]:
    """Return the first lines of all docstrings of the four packages."""
    found = []
    for file in _files("agent/*.py", "hub/*.py", "codec/*.py", "spark/*.py"):
        for node in ast.walk(ast.parse((ROOT / file).read_text())):
            kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                line = node.body[0].lineno
                found.append(Opening(file, line, re.sub(r"`[^`]*`", "X", text.partition("\n")[0])))
    return found


def counted() -> dict[str, int]:
    """Return how many headless clauses each file has: pages in all, code in docstrings' first lines."""
    found = {page: clauses(prose((ROOT / page).read_text())) for page in pages()}
    for opening in openings():
        found[opening.file] = found.get(opening.file, 0) + (clauses(opening.text) > 0)
    return {file: count for file, count in sorted(found.items()) if count}


def _files(*patterns: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return listed.stdout.split()


def _shown(files: Iterable[str]) -> Iterator[str]:
    wanted = set(files)
    for page in pages():
        if not wanted or page in wanted:
            for number, line in enumerate(prose((ROOT / page).read_text()).splitlines(), 1):
                if clauses(line):
                    yield f"{page}:{number}: {line.strip()}"
    for opening in openings():
        if (not wanted or opening.file in wanted) and clauses(opening.text):
            yield f"{opening.file}:{opening.line}: {opening.text}"


def _lower() -> None:
    allowed = json.loads(COUNTS.read_text()) if COUNTS.exists() else counted()
    now = counted()
    lower = {file: min(allowed[file], now[file]) for file in sorted(allowed) if file in now}
    COUNTS.write_text(json.dumps(lower, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--lower"]:
        _lower()
    else:
        sys.stdout.writelines(f"{line}\n" for line in _shown(sys.argv[1:]))
