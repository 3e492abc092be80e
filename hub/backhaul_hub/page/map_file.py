"""An operator's own map for the page: one file of PMTiles, version 3, of which browsers ask for parts.

What a browser could only tell in riddles, as that a file was copied in part, is found here: it costs a read of 127 bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

URL = "map.pmtiles"
_MAGIC = b"PMTiles"
_VERSION = 3
# The header's beginning: magic, version, then place and length of root directory, metadata, leaf directories, tiles.
_HEADER = struct.Struct("<7sB8Q")


@dataclass(frozen=True, slots=True)
class MapFile:
    """The file that `[page] map` names; it may be exchanged while the page is served."""

    path: Path

    def problem(self) -> str:
        """Return why it can be no map; empty: it can be one. Blocking."""
        try:
            with self.path.open("rb") as file:
                head = file.read(_HEADER.size)
                size = file.seek(0, 2)
        except OSError as error:
            return f"{self.path.name}: {error.strerror}"
        if not head.startswith(_MAGIC):
            return f"{self.path.name} is no PMTiles file"
        if len(head) < _HEADER.size:
            return f"{self.path.name} ends in the middle of its header"
        _, version, *places = _HEADER.unpack(head)
        if version != _VERSION:
            return f"{self.path.name} is PMTiles of version {version}: version {_VERSION} is needed"
        needed = max(at + length for at, length in zip(places[::2], places[1::2], strict=True))
        if size < needed:
            return f"{self.path.name} has {size:,} of its {needed:,} bytes"
        return ""

    def as_json(self) -> dict[str, str]:
        """Return the URL and the problem, for the page. Blocking."""
        return {"url": URL, "problem": self.problem()}
