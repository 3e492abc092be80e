"""Which machine stands in a vehicle: a machine-id of its own, which a cloned disk may or may not have kept."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Machine:
    """Says in files which machine agents run on from their next start.

    Args:
        root: of these files: is made.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._file = root / "etc" / "machine-id"
        self._file.parent.mkdir(parents=True)
        self.put_in(self.another())

    @property
    def id(self) -> str:
        """The machine-id of the one that is in now."""
        return self._file.read_text()

    def put_in(self, id_: str) -> None:
        """Have the machine with this id in the vehicle."""
        self._file.write_text(id_)

    @staticmethod
    def another() -> str:
        """Return the id of a machine that never was there before."""
        return secrets.token_hex(16)
