"""Commits of transactions of hub.db: by SQLite alone, or after a journal has taken them (ADR 50)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from backhaul_hub.db.change import RowChange
from backhaul_hub.errors import RegistryError

if TYPE_CHECKING:
    import aiosqlite


class Journal(Protocol):
    """The one way by which a transaction of hub.db is committed."""

    async def commit(
        self, connection: aiosqlite.Connection, changes: Sequence[RowChange], changed: int
    ) -> None:
        """Commit the open transaction; where this raises, the caller takes it back.

        Args:
            connection: hub.db, within the transaction; all statements were executed.
            changes: the statements, in their order, each with rows.
            changed: how many rows they have changed.

        Raises:
            RegistryError: it must not be committed.
            sqlite3.Error: SQLite refused.
        """
        ...


class NoJournal:
    """Of a hub on one machine: SQLite alone."""

    async def commit(
        self, connection: aiosqlite.Connection, changes: Sequence[RowChange], changed: int
    ) -> None:
        """Commit. Raises: sqlite3.Error: SQLite refused."""
        await connection.execute("COMMIT")


class ForeignJournal:
    """Of a hub.db that a control plane ships to stand-bys, opened by another program: it may read alone."""

    async def commit(
        self, connection: aiosqlite.Connection, changes: Sequence[RowChange], changed: int
    ) -> None:
        """Refuse. Raises: RegistryError: always."""
        raise RegistryError(
            "this hub has stand-bys: what a command writes into hub.db itself would never reach them",
            hint="only the control plane that leads writes there: ask it",
        )
