"""Which files may grow in the directory of artifacts: promised before the first byte, to one program or all.

A file that is handed over, or fetched, has its whole size promised at its beginning, so that those after
it are told that there is no room; a program never has all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from backhaul_agent.artifacts.store import ArtifactStore
from backhaul_agent.errors import ArtifactError, Code, RefusedError

SPOOLS_MAX = 4  # half handed over, and two of one program
SPOOLS_OF_ONE_MAX = 2
UPLOADS_MAX = 64  # waiting to be sent, and so many of one program
UPLOADS_OF_ONE_MAX = 48
IDLE_S_MAX = 600.0  # what is half handed over and not written to for so long makes way


class ArtifactRoom:
    """The promised bytes of each program. ``refused``: how often there was no room or no place."""

    def __init__(self, store: ArtifactStore, wanted: Callable[[], Collection[Path]]) -> None:
        # From 0 on: what is counted for the first time has grown, too (status/health.py).
        self.refused = {"room": 0, "busy": 0}
        self.make_way: Callable[[], Awaitable[None]] = _nothing
        """Called before a promise: what is given up by whoever began it makes way."""
        self._store = store
        self._wanted = wanted
        self._one_by_one = asyncio.Lock()
        self._promised: dict[Path, int] = {}
        self._owners: dict[Path, str] = {}

    async def promise(self, path: Path, whole: int, program: str = "") -> None:
        """Promise a file that grows its whole size.

        Args:
            path: where it grows.
            whole: its size in bytes, once it is whole.
            program: whose it is; empty: the agent fetches it, or nobody knows.

        Raises:
            ArtifactError: there is no room, or this program has had its part.
            OSError: the disk cannot be looked at.
        """
        await self.make_way()
        # Looked at and promised in one: another would be told of the same room meanwhile.
        async with self._one_by_one:
            try:
                await asyncio.to_thread(self._require, path, whole, program)
            except ArtifactError:
                self.refused["room"] += 1
                raise
            self._promised[path] = whole
            if program:
                self._owners[path] = program

    def status(self) -> dict[str, Any]:
        """Return the artifacts' part of the status."""
        return {"refused": dict(self.refused)}

    def _require(self, path: Path, whole: int, program: str) -> None:
        others = {each: size for each, size in self._promised.items() if each != path}
        if program:
            mine = [each for each, owner in self._owners.items() if owner == program]
            held = sum(self._promised.get(each) or self._store.size(each) for each in mine)
            self._store.require_part(held + whole)
        self._store.require_room(path, whole, self._wanted(), others)

    def release(self, path: Path) -> None:
        """Take a promise back: the file is whole, or grows no more. It still belongs to its program."""
        self._promised.pop(path, None)

    def forget(self, path: Path) -> None:
        """Learn that a file is gone."""
        self.release(path)
        self._owners.pop(path, None)

    def promised_bytes(self) -> int:
        """Return how much files may still grow."""
        return sum(max(0, size - self._store.size(path)) for path, size in self._promised.items())

    def require_place(self, waiting: Iterable[Path], program: str) -> None:
        """See that one file more may wait to be sent.

        Raises:
            RefusedError: too many do.
        """
        paths = list(waiting)
        own = sum(bool(program) and self._owners.get(path) == program for path in paths)
        if len(paths) >= UPLOADS_MAX or own >= UPLOADS_OF_ONE_MAX:
            self.refused["busy"] += 1
            text = f"{own} files of yours" if own >= UPLOADS_OF_ONE_MAX else f"{len(paths)} files"
            raise RefusedError(Code.BUSY, f"{text} wait to be sent: cancel some")


async def _nothing() -> None:
    """Make no way."""
