"""hub.db: one SQLite file, read by query and written in transactions.

Nobody writes between what a writer reads to decide and what it writes, no other program either. Rows
belong to the rooms that keep them: `db.devices`, `lane_records.lane_rows`, and each room's `rows`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

import aiosqlite

from backhaul_hub.db.change import RowChange
from backhaul_hub.db.journal import ForeignJournal, Journal, NoJournal
from backhaul_hub.db.migrations import prepare, prepare_to_read
from backhaul_hub.errors import RegistryError

Decided = TypeVar("Decided")
_HAS_JOURNAL = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'journal'"


class Registry:
    """One open hub.db. Open it with `Registry.open`, close it with `close` or `async with`."""

    def __init__(self, connection: aiosqlite.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._journal: Journal = NoJournal()
        # Not set while a transaction is executed and committed: a journal may refuse what it would have others read.
        self._settled = asyncio.Event()
        self._settled.set()
        self.turn = asyncio.Lock()
        """Held by the one reader of UP that changes what is known and stores that change."""
        # One connection, several writers: a transaction is one writer's at a time.
        self._writing = asyncio.Lock()

    @classmethod
    async def open(cls, path: Path, journal: Journal | None = None) -> Self:
        """Open hub.db, and make it where it is missing.

        `journal`: commits what is written; None: SQLite alone, or nobody where stand-bys follow this hub.db.

        Raises:
            RegistryError: it is no database of this project, a newer one, or not readable.
        """
        try:
            # It holds tokens: nobody else's to read, from the first byte on. One that is there is left alone: a process
            # that closes a descriptor of it gives up the locks of its own connections, and the next program to
            # close it would take the log from under them.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise RegistryError(f"{path}: {error}") from error
        registry = await cls._open(path, prepare, mode="rwc")
        try:
            if journal is None and await registry.fetch(_HAS_JOURNAL):
                journal = ForeignJournal()
        except BaseException:
            await registry.close()
            raise
        registry._journal = journal or NoJournal()
        return registry

    @classmethod
    async def open_existing(cls, path: Path) -> Self:
        """Open hub.db to read in it, while the control plane runs or not.

        Raises:
            RegistryError: there is none, or it is no database of this project, or not readable.
        """
        # aiosqlite leaves a thread behind that fails by itself where SQLite finds no file.
        if not await asyncio.to_thread(path.exists):
            raise RegistryError(
                f"{path} does not exist", hint="say where the hub's directory is with --dir"
            )
        return await cls._open(path, prepare_to_read, mode="rw")

    @classmethod
    async def _open(
        cls,
        path: Path,
        prepare: Callable[[aiosqlite.Connection, Path], Awaitable[None]],
        *,
        mode: str,
    ) -> Self:
        address = f"file:{quote(str(path))}?mode={mode}"
        try:
            connection = await aiosqlite.connect(address, uri=True, isolation_level=None)
        except sqlite3.Error as error:
            raise RegistryError(f"{path}: {error}") from error
        try:
            await prepare(connection, path)
        except sqlite3.Error as error:
            # An open connection is a thread that would keep the whole program from ending.
            await connection.close()
            raise RegistryError(f"{path}: {error}") from error
        except BaseException:
            await connection.close()
            raise
        return cls(connection, path)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the database."""
        await self._connection.close()

    async def write(self, changes: Sequence[RowChange]) -> None:
        """Write rows atomically.

        Raises:
            RegistryError: the database refused; nothing was written.
        """

        async def decided() -> tuple[Sequence[RowChange], None]:
            return changes, None

        await self.write_decided(decided)

    async def write_decided(
        self, decide: Callable[[], Awaitable[tuple[Sequence[RowChange], Decided]]]
    ) -> Decided:
        """Write the rows that ``decide`` returns, and return its other result.

        Nobody writes between what it reads and that, no other program either: command lines write in
        the same hub.db.

        Raises:
            RegistryError: the database refused; nothing was written.
        """
        async with self._writing:
            return await self._write(decide)

    async def _write(
        self, decide: Callable[[], Awaitable[tuple[Sequence[RowChange], Decided]]]
    ) -> Decided:
        try:
            await self._connection.execute("BEGIN IMMEDIATE")
            changes, decided = await decide()
            self._settled.clear()
            # Each is a way to SQLite's thread and back.
            changes = [change for change in changes if change.rows]
            changed = 0
            for change in changes:
                cursor = await self._connection.executemany(change.statement, change.rows)
                changed += cursor.rowcount
            await self._journal.commit(self._connection, changes, changed)
        except BaseException as error:
            # A cancelled writer leaves a transaction behind as a failed one does, also one that only begins
            # after this: SQLite's thread takes one step after the other.
            with contextlib.suppress(sqlite3.Error):
                await self._connection.rollback()
            if isinstance(error, sqlite3.Error):
                raise RegistryError(f"{self._path}: {error}") from error
            raise
        finally:
            self._settled.set()
        return decided

    async def compact(self) -> None:
        """Have the file hold its rows, and nothing that was deleted or replaced. Raises: RegistryError."""
        async with self._writing:
            try:
                await self._connection.execute("VACUUM")
                # The log beside it still has all former pages.
                await self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            except sqlite3.Error as error:
                raise RegistryError(f"{self._path}: {error}") from error

    async def fetch(self, query: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """Return the rows of a query.

        Raises:
            RegistryError: the database refused.
        """
        await self._settled.wait()
        try:
            return list(await self._connection.execute_fetchall(query, values))
        except sqlite3.Error as error:
            raise RegistryError(f"{self._path}: {error}") from error
