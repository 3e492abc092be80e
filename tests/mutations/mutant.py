"""What a planted bug is: one edit of one file, and the tests that must go red for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Mutant(NamedTuple):
    """A bug that somebody could make. ``old`` stands in ``file`` exactly once.

    ``tests``: ids of pytest without parameters, of which one must fail.
    """

    name: str
    bug: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def plant(self, tree: Path) -> None:
        """Put the bug into a tree.

        Raises:
            ValueError: the text to replace is not there exactly once.
        """
        path = tree / self.file
        path.write_text(self.changed(path.read_text()))

    def changed(self, text: str) -> str:
        """Return the file's text with the bug. Raises: ValueError: as `plant`."""
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: its old text stands {count} times in {self.file}")
        return text.replace(self.old, self.new)


def named(file: str, *tests: str) -> tuple[str, ...]:
    """Return the ids of tests of one file."""
    return tuple(f"{file}::{test}" for test in tests)
