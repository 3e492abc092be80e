"""hub.db of a machine that follows: entries of the journal applied, each as it was at the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from backhaul_hub.db.change import RowChange
from backhaul_hub.db.migrations import SCHEMA_VERSION
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import RegistryError
from backhaul_hub.standby.entry import Assembler, JournalEntry, JournalError
from backhaul_hub.standby.rows import JournalPlace, Term, begun, go_on, read_place

if TYPE_CHECKING:
    import aiosqlite

# An idle leader writes beats alone: hub.db follows them now and then, lest the journal forgets where it was.
_BEATS_MAX = 600


class _Checking:
    """Commits entries that changed as many rows here as at the leader."""

    expected = 0

    async def commit(
        self, connection: aiosqlite.Connection, changes: Sequence[RowChange], changed: int
    ) -> None:
        """Commit. Raises: RegistryError: another number of rows was changed."""
        if changed != self.expected:
            raise RegistryError(
                f"hub.db differs from the leader's: {changed} rows were changed, {self.expected} there"
            )
        await connection.execute("COMMIT")


class FollowingRegistry:
    """One open hub.db that goes by a journal."""

    def __init__(self, registry: Registry, checking: _Checking, place: JournalPlace) -> None:
        self.registry = registry
        self.created = place.created
        self.position = place.seq
        """The last sequence of the journal that hub.db holds."""
        self.assembler = Assembler(place.seq)
        self._checking = checking
        self._noted = place.seq

    @classmethod
    async def open(cls, path: Path) -> Self | None:
        """Open hub.db; None: it is not there, or goes by no journal. Raises: RegistryError."""
        if not await asyncio.to_thread(path.exists):
            return None
        checking = _Checking()
        registry = await Registry.open(path, checking)
        try:
            place = await read_place(registry)
        except BaseException:
            await registry.close()
            raise
        if place is None:
            await registry.close()
            return None
        return cls(registry, checking, place)

    async def close(self) -> None:
        """Close hub.db."""
        await self.registry.close()

    def read_again(self) -> None:
        """Have the entries read once more that were not applied."""
        self.assembler = Assembler(self.position)

    async def apply(self, entries: Sequence[JournalEntry]) -> None:
        """Apply entries that follow one another, in one transaction.

        Raises:
            JournalError: one is of another schema.
            RegistryError: SQLite refused, or other rows were changed than at the leader.
        """
        changes: list[RowChange] = []
        expected = 0
        for seq, entry in entries:
            if entry.kind in ("rows", "lead") and entry.schema != SCHEMA_VERSION:
                raise JournalError(
                    f"the leader's hub.db has schema {entry.schema}, this program knows {SCHEMA_VERSION}"
                )
            if entry.kind == "lead":
                changes.append(begun(Term(seq, entry.machine, entry.keys)))
                expected += 1
            changes += (RowChange(statement, rows) for statement, rows in entry.changes)
            expected += entry.changed
        if not entries:
            return
        last = entries[-1].seq
        if changes or last - self._noted > _BEATS_MAX:
            self._checking.expected = expected + 1
            await self.registry.write([*changes, go_on(last)])
            self._noted = last
        self.position = last
