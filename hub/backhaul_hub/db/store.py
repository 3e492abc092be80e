"""hub.db: the devices, what continuity knows, and how far each UP stream has been read.

Continuity and read positions are written in one transaction, so after a crash the hub reads a
stretch of UP again and comes to the same result; it never skips one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import quote

import aiosqlite
import msgspec

from backhaul_codec.ranges import RangeSet
from backhaul_codec.subjects import DEVICE_ID
from backhaul_hub.continuity import chain
from backhaul_hub.continuity.lane_book import Explained, LaneKey, LaneState
from backhaul_hub.db.migrations import prepare, prepare_to_read
from backhaul_hub.errors import RegistryError
from backhaul_hub.sync import heads
from backhaul_hub.uplink.consumer import Change

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

Decided = TypeVar("Decided")
_PUT_LANE = "INSERT OR REPLACE INTO lane VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Device:
    """One enrolled vehicle or gateway."""

    id: str
    token: str
    """96 random bits in hex: part of its consumers' and subjects' names."""
    public_key: str
    """Of the nkey with which it logs in."""
    added_ns: int
    nodes: tuple[str, ...] = ()
    """Nodes with streams of their own, by name, sorted."""
    leaving: tuple[str, ...] = ()
    """Nodes that had some: their lanes are read on until nothing of them is missing."""
    revoked_ns: int = 0
    """When its key was revoked; what came of it before stays. 0: it was not."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a stream has been read."""

    created: str = ""
    """The stream's creation time as the server writes it: another one is another stream."""
    seq: int = 0
    quarantined: int = 0
    """Messages of this stream that were set aside."""
    stored_ns: int = 0
    """When the stream took in the message at `seq`: another time is another message."""
    first_seq: int = 0
    """Where the stream began when it was last looked at; what was before is accounted for."""


def check_device_id(device: str) -> str:
    """Return the id if it is one.

    Raises:
        RegistryError: it is not.
    """
    if not DEVICE_ID.fullmatch(device):
        raise RegistryError(
            f"{device!r} is no device id",
            hint="letters, digits, _ and -, at most 63, and a letter or digit first: VID-001",
        )
    if device == heads.FLEET:
        raise RegistryError(f"{heads.FLEET} is the root of the hub's tree, no device")
    return device


class Registry:
    """One open hub.db. Open it with `Registry.open`, close it with `close` or `async with`."""

    def __init__(self, connection: aiosqlite.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self.turn = asyncio.Lock()
        """Held by the one reader of UP that changes what is known and stores that change."""
        # One connection, several writers: a transaction is one writer's at a time.
        self._writing = asyncio.Lock()

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Open hub.db, and make it where it is missing.

        Raises:
            RegistryError: it is no database of this project, a newer one, or not readable.
        """
        try:
            # It holds tokens: nobody else's to read, from the first byte on.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            raise RegistryError(f"{path}: {error}") from error
        return await cls._open(path, prepare, mode="rwc")

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

    async def add_device(self, device: Device) -> None:
        """Enrol a device.

        Raises:
            RegistryError: its id is none, or taken, also by a group.
        """
        await self.require_free(device.id)
        try:
            await self.write(enrolled(device))
        except RegistryError as error:
            if isinstance(error.__cause__, sqlite3.IntegrityError):
                raise RegistryError(f"device {device.id} exists already") from None
            raise

    async def require_free(self, device: str) -> None:
        """Refuse an id that is none, or a group's. Raises: RegistryError."""
        check_device_id(device)
        groups = "SELECT 1 FROM head WHERE device = ? AND ? IN (node, parent) AND key = '' LIMIT 1"
        if await self.fetch(groups, (heads.FLEET, device)):
            raise RegistryError(f"{device} is a group in the hub's tree already")

    async def devices(self) -> dict[str, Device]:
        """Return all devices by id, in the order of their ids."""
        nodes: dict[tuple[str, bool], list[str]] = {}
        for device, node, leaving in await self.fetch(
            "SELECT device, node, leaving FROM device_node ORDER BY node"
        ):
            nodes.setdefault((device, bool(leaving)), []).append(node)
        rows = await self.fetch(
            "SELECT id, token, device.public_key, added_ns, coalesce(revoked_ns, 0) "
            "FROM device LEFT JOIN revocation ON revocation.public_key = device.public_key "
            "ORDER BY id"
        )
        return {
            id_: Device(
                id_,
                token,
                public_key,
                added_ns,
                nodes=tuple(nodes.get((id_, False), ())),
                leaving=tuple(nodes.get((id_, True), ())),
                revoked_ns=revoked_ns,
            )
            for id_, token, public_key, added_ns, revoked_ns in rows
        }

    async def lanes(self, device: str = "") -> dict[LaneKey, LaneState]:
        """Return what continuity knew at the last `store`, of one device or (empty) of all."""
        rows = await self.fetch(
            "SELECT device, lane, epoch, held, aged, seen, receipts, said, messages, repeats,"
            " body_bytes, last_seen_ns, chain FROM lane WHERE ?1 IN ('', device)",
            (device,),
        )
        return {LaneKey(*row[:3]): _lane_state(*row[3:]) for row in rows}

    async def position(self, stream: str) -> Position:
        """Return how far a stream has been read (nothing, where it never was)."""
        rows = await self.fetch(
            "SELECT created, seq, quarantined, stored_ns, first_seq FROM position WHERE stream = ?",
            (stream,),
        )
        return next((Position(*row) for row in rows), Position())

    async def store(
        self,
        stream: str,
        position: Position,
        lanes: Mapping[LaneKey, LaneState],
        changes: Sequence[Change] = (),
    ) -> None:
        """Write a read position and all that changed on the way there, atomically.

        Raises:
            RegistryError: the database refused; nothing was written.
        """
        rows = [_lane_row(key, state) for key, state in lanes.items()]
        read = (stream, *astuple(position))
        await self.write(
            [
                Change(_PUT_LANE, rows),
                Change("INSERT OR REPLACE INTO position VALUES (?, ?, ?, ?, ?, ?)", [read]),
                *changes,
            ]
        )

    async def write(self, changes: Sequence[Change]) -> None:
        """Write rows atomically.

        Raises:
            RegistryError: the database refused; nothing was written.
        """

        async def decided() -> tuple[Sequence[Change], None]:
            return changes, None

        await self.write_decided(decided)

    async def write_decided(
        self, decide: Callable[[], Awaitable[tuple[Sequence[Change], Decided]]]
    ) -> Decided:
        """Write the rows that ``decide`` returns, and return what it returns beside them.

        Nobody writes between what it reads and that, no other program either: command lines write in
        the same hub.db.

        Raises:
            RegistryError: the database refused; nothing was written.
        """
        async with self._writing:
            return await self._write(decide)

    async def _write(
        self, decide: Callable[[], Awaitable[tuple[Sequence[Change], Decided]]]
    ) -> Decided:
        try:
            await self._connection.execute("BEGIN IMMEDIATE")
            changes, decided = await decide()
            for change in changes:
                await self._connection.executemany(change.statement, change.rows)
            await self._connection.execute("COMMIT")
        except BaseException as error:
            # A cancelled writer leaves a transaction behind as a failed one does, also one that only begins
            # after this: SQLite's thread takes one step after the other.
            with contextlib.suppress(sqlite3.Error):
                await self._connection.rollback()
            if isinstance(error, sqlite3.Error):
                raise RegistryError(f"{self._path}: {error}") from error
            raise
        return decided

    async def fetch(self, query: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """Return the rows of a query.

        Raises:
            RegistryError: the database refused.
        """
        try:
            return list(await self._connection.execute_fetchall(query, values))
        except sqlite3.Error as error:
            raise RegistryError(f"{self._path}: {error}") from error


def enrolled(device: Device) -> list[Change]:
    """Return the statements that store a device that is not there."""
    row = (device.id, device.token, device.public_key, device.added_ns)
    return [Change("INSERT INTO device VALUES (?, ?, ?, ?)", [row]), *node_changes(device)]


def enrolled_anew(device: Device) -> list[Change]:
    """Return the statements that give a device that is there another key, token and nodes."""
    row = (device.token, device.public_key, device.id)
    return [
        Change("UPDATE device SET token = ?, public_key = ? WHERE id = ?", [row]),
        *node_changes(device),
    ]


def node_changes(device: Device) -> list[Change]:
    """Return the statements that store which nodes of a device have streams of their own, or had."""
    named = [(node, False) for node in device.nodes] + [(node, True) for node in device.leaving]
    return [
        Change("DELETE FROM device_node WHERE device = ?", [(device.id,)]),
        Change(
            "INSERT INTO device_node VALUES (?, ?, ?)",
            [(device.id, node, leaving) for node, leaving in named],
        ),
    ]


def _lane_row(key: LaneKey, state: LaneState) -> tuple[object, ...]:
    return (
        *key,
        _text(state.held),
        _text(state.aged) if state.aged else "",
        # Most hubs lose nothing: then all that was ever seen is held.
        _text(state.seen) if state.seen != state.held else None,
        msgspec.json.encode(state.receipts).decode() if state.receipts else "",
        state.said,
        state.messages,
        state.repeats,
        state.body_bytes,
        state.last_seen_ns,
        chain.to_text(state.chain),
    )


def _lane_state(
    held: str,
    aged: str,
    seen: str | None,
    receipts: str,
    said: int,
    messages: int,
    repeats: int,
    body_bytes: int,
    last_seen_ns: int,
    links: str,
) -> LaneState:
    explained = msgspec.json.decode(receipts or "[]", type=list[Explained])
    return LaneState(
        _ranges(held),
        _ranges(aged or "[]"),
        _ranges(held if seen is None else seen),
        RangeSet((low, high) for low, high, _ in explained),
        explained,
        said,
        messages,
        repeats,
        body_bytes,
        last_seen_ns,
        chain.from_text(links),
    )


def _text(ranges: RangeSet) -> str:
    return msgspec.json.encode(list(ranges)).decode()


def _ranges(text: str) -> RangeSet:
    return RangeSet(msgspec.json.decode(text, type=list[tuple[int, int]]))
