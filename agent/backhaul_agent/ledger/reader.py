"""Questions to a ledger, on a connection of its own, which the commit task never blocks."""

from __future__ import annotations

import asyncio
import sqlite3
import zlib
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiosqlite
import msgspec

from backhaul_agent.errors import LedgerStorageError
from backhaul_agent.hub_time.hub_clock import Boot
from backhaul_agent.ledger import boots as ledger_boots
from backhaul_agent.ledger.lanes import CommittedLane
from backhaul_agent.ledger.rows import (
    ROW_BYTES,
    DictionaryRow,
    HeadRow,
    LedgerRow,
    OwnRow,
    Pending,
    StagedRow,
)
from backhaul_codec import CodecError, hash_of, peek
from backhaul_codec.wire.dictionaries import plain
from backhaul_codec.wire.envelope import NO_LINK, unseal

RUNS_SLICE = 8192
CLOCKS = range(3)  # how good a frame's clock can be; the greatest is the least


class LedgerReader:
    """The committed state of a ledger: its lanes at hand, its rows by query.

    Each query raises LedgerStorageError where SQLite could not read.
    """

    def __init__(self, path: Path, reader: aiosqlite.Connection, epoch: int) -> None:
        self.path = path
        self.epoch = epoch
        self.lanes: dict[str, CommittedLane] = {}
        self.closed: dict[
            tuple[str, int], CommittedLane
        ] = {}  # lanes of former epochs, by name and epoch
        self.dictionaries: dict[bytes, DictionaryRow] = {}  # by digest
        self.damaged = asyncio.Event()
        """Set once SQLite says so of the file: nothing that is left to do on it can be relied on."""
        self.damage = ""
        self._reader = reader
        self._reader_lock = asyncio.Lock()

    @property
    def epochs(self) -> set[int]:
        """Return the epochs this ledger knows of, the current one included."""
        return {self.epoch, *(epoch for _, epoch in self.closed)}

    def lookup(self, digest: bytes) -> bytes | None:
        """Return the dictionary of a digest, None where this vehicle does not have it."""
        row = self.dictionaries.get(digest)
        return row.body if row else None

    def lane(self, name: str, epoch: int) -> CommittedLane | None:
        """Return a lane of the current epoch (0) or a former one, None where it is not known."""
        if epoch in (0, self.epoch):
            return self.lanes.get(name)
        return self.closed.get((name, epoch))

    def every_lane(self) -> list[CommittedLane]:
        """Return all lanes, those of former epochs first, in the order in which they began."""
        former = sorted(self.closed.values(), key=lambda lane: lane.id)
        return [*former, *sorted(self.lanes.values(), key=lambda lane: lane.id)]

    @property
    def held_messages(self) -> int:
        """Return how many messages wait for their times, or behind one that does."""
        lanes = (*self.closed.values(), *self.lanes.values())
        return sum(lane.last_seq - lane.ready_seq for lane in lanes)

    def last_seq(self, name: str) -> int:
        """Return how far a lane goes in the current epoch, 0 where it is not known."""
        lane = self.lanes.get(name)
        return lane.last_seq if lane else 0

    async def read(
        self, lane: str, from_seq: int, rows_max: int, epoch: int = 0
    ) -> list[LedgerRow]:
        """Return up to ``rows_max`` committed messages of a lane from ``from_seq`` on, in order.

        ``epoch`` 0 is the current one.
        """
        found = self.lane(lane, epoch)
        where = "seq >= ? ORDER BY seq LIMIT ?"
        return await self._rows(found, where, from_seq, rows_max) if found else []

    async def _rows(self, lane: CommittedLane, where: str, *parameters: int) -> list[LedgerRow]:
        # Cast, because damage may turn a blob into text that is no UTF-8, or into a number: the
        # row must come back, so that it can be judged and set aside.
        query = (
            "SELECT seq, CAST(subject AS BLOB), CAST(body AS BLOB), boot FROM messages "  # noqa: S608
            f"WHERE lane = ? AND {where}"
        )
        rows = await self.query(query, lane.id, *parameters)
        return [
            LedgerRow(seq, _text(subject), body or b"", boot) for seq, subject, body, boot in rows
        ]

    async def hash_at(self, lane: CommittedLane, seq: int) -> bytes | None:
        """Return the hash of a lane's message in its chain, None where nothing tells it any more."""
        if seq == lane.chain.seq:
            return lane.chain.hash
        # What the message behind it names comes first: the message itself may be damaged by now.
        for row in await self._rows(lane, "seq IN (?, ?) ORDER BY seq DESC", seq, seq + 1):
            try:
                link = unseal(plain(row.body, self.lookup))[0].link
            except CodecError:
                continue
            if row.seq > seq and link not in (b"", NO_LINK):
                return link
            if row.seq == seq < lane.chain.seq:
                return hash_of(row.subject, row.body)
        return None

    async def is_linked(self, lane: CommittedLane, seq: int) -> bool:
        """Whether a lane's message carries a link; also where it is no more, if a later one does."""
        for row in await self._rows(lane, "seq >= ? ORDER BY seq LIMIT 1", seq):
            try:
                return bool(peek(row.body).link)
            except CodecError:
                return True
        return lane.chain.hash != NO_LINK

    async def is_chained(self, lane: CommittedLane, seq: int) -> bool:
        """Whether the hash at a seq proves all below it, as far as that is not confirmed.

        It does not in a spare epoch, whose messages name none before them.
        """
        links = []
        where = "seq > ? AND seq <= ? ORDER BY seq LIMIT 2"
        for row in await self._rows(lane, where, lane.confirmed, seq):
            try:
                links.append((row.seq, peek(row.body).link))
            except CodecError:
                links.append((row.seq, b""))
        if len(links) < 2 and (not links or links[0][0] == seq):
            return True
        return links[-1][1] != NO_LINK

    async def owned(self, lane: CommittedLane, after_seq: int, rows_max: int) -> list[OwnRow]:
        """Return messages of a lane behind a seq, with all that the ledger has of them, in order."""
        query = (
            "SELECT id, seq, CAST(subject AS BLOB), CAST(body AS BLOB), value_class, t_lo, t_hi "
            "FROM messages WHERE lane = ? AND seq > ? AND boot = 0 ORDER BY seq LIMIT ?"
        )
        return [
            OwnRow(id_, seq, _text(subject), body or b"", *rest)
            for id_, seq, subject, body, *rest in await self.query(
                query, lane.id, after_seq, rows_max
            )
        ]

    async def subjects(
        self, lane: CommittedLane, after_seq: int, class_min: int, class_max: int, rows_max: int
    ) -> list[tuple[int, str]]:
        """Return seq and subject of messages of these value classes after a seq, in order."""
        query = (
            "SELECT seq, CAST(subject AS BLOB) FROM messages WHERE lane = ? AND seq > ?"
            " AND value_class BETWEEN ? AND ? ORDER BY seq LIMIT ?"
        )
        rows = await self.query(query, lane.id, after_seq, class_min, class_max, rows_max)
        return [(seq, _text(subject)) for seq, subject in rows]

    async def explained(self, lane: CommittedLane, lo: int, hi: int) -> set[int]:
        """Return which seqs of ``lo..hi`` are quarantined or evicted: they will never come."""
        query = "SELECT seq FROM quarantined WHERE lane = ? AND epoch = ? AND seq BETWEEN ? AND ?"
        found = {seq for (seq,) in await self.query(query, lane.name, lane.epoch, lo, hi)}
        query = "SELECT lo, hi FROM evicted WHERE lane = ? AND lo <= ? AND hi >= ?"
        for first, last in await self.query(query, lane.id, hi, lo):
            found.update(range(max(first, lo), min(last, hi) + 1))
        return found

    async def runs(self, lane: str, epoch: int, lo: int, hi: int) -> list[tuple[int, int]]:
        """Return the runs of seqs in ``lo..hi`` that are there and may leave, in order."""
        found = self.lane(lane, epoch)
        runs: list[tuple[int, int]] = []
        if found is None:
            return runs
        hi = min(hi, found.ready_seq)
        query = (
            "SELECT min(seq), max(seq) FROM (SELECT seq, seq - row_number() OVER (ORDER BY seq) "
            "AS run FROM messages WHERE lane = ? AND seq BETWEEN ? AND ?) GROUP BY run ORDER BY 1"
        )
        # In slices, so that other readers get their turn.
        for low in range(lo, hi + 1, RUNS_SLICE):
            high = min(hi, low + RUNS_SLICE - 1)
            runs += [(a, b) for a, b in await self.query(query, found.id, low, high)]
        return runs

    async def given_up(self, lane: str, epoch: int, lo: int, hi: int) -> list[tuple[int, int, str]]:
        """Return the part of ``lo..hi`` that was quarantined or evicted, and why: (first, last, reason)."""
        query = (
            "SELECT seq, seq, 'quarantined: ' || reason FROM quarantined "
            "WHERE lane = ? AND epoch = ? AND seq BETWEEN ? AND ?"
        )
        spans = [(a, b, why) for a, b, why in await self.query(query, lane, epoch, lo, hi)]
        if (found := self.lane(lane, epoch)) is not None:
            query = "SELECT lo, hi, reason FROM evicted WHERE lane = ? AND lo <= ? AND hi >= ?"
            for first, last, reason in await self.query(query, found.id, hi, lo):
                spans.append((max(first, lo), min(last, hi), reason))
        return sorted(spans)

    async def sizes(self, lane: CommittedLane, lo: int, hi: int) -> list[tuple[int, int]]:
        """Return ``(last seq, bytes)`` of each run of 64 seqs in ``lo..hi``, in order."""
        query = (
            f"SELECT max(seq), sum(length(subject) + length(body) + {ROW_BYTES}) FROM messages "  # noqa: S608 - a constant
            "WHERE lane = ? AND seq BETWEEN ? AND ? GROUP BY seq / 64 ORDER BY 1"
        )
        return [(seq, size) for seq, size in await self.query(query, lane.id, lo, hi)]

    async def staged(self) -> list[StagedRow]:
        """Return all staged rows in the order they were acknowledged."""
        query = (
            "SELECT id, CAST(node AS BLOB), coalesce(CAST(points AS INTEGER), 0), "
            "CAST(crc AS INTEGER), coalesce(CAST(body AS BLOB), x''), "
            "coalesce(CAST(boot AS INTEGER), 0), CAST(clock AS INTEGER) FROM staged ORDER BY id"
        )
        return [
            StagedRow(
                id_, _text(node), points, body, zlib.crc32(body) == crc, boot,
                clock if clock in CLOCKS else max(CLOCKS),
            )
            for id_, node, points, crc, body, boot, clock in await self.query(query)
        ]  # fmt: skip

    async def boots(self) -> list[Boot]:
        """Return the machine's starts as known, oldest first.

        One that damage makes no sense of has its number, which stays taken, and no name.
        """
        return [_boot(*row) for row in await self.query(ledger_boots.BOOTS)]

    async def pending(self, but_of: Collection[int], rows_max: int) -> list[Pending]:
        """Return up to ``rows_max`` messages that wait to be settled, but none of some boots."""
        rows = await self.query(ledger_boots.pending(len(but_of)), *but_of, rows_max)
        return [
            Pending(id_, _text(subject), body or b"", boot) for id_, subject, body, boot in rows
        ]

    async def heads(self) -> list[HeadRow]:
        """Return all heads; `commit.heads` judges which of them are whole."""
        query = (
            "SELECT CAST(parent AS BLOB), CAST(node AS BLOB), CAST(type AS BLOB), "
            "CAST(key AS BLOB), CAST(crc AS INTEGER), CAST(body AS BLOB) FROM heads"
        )
        return [
            HeadRow(_text(parent), _text(node), _text(type_), _text(key), crc, body or b"")
            for parent, node, type_, key, crc, body in await self.query(query)
        ]

    async def query(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Ask the reading connection, which sees committed rows and never waits for the writer."""
        try:
            async with self._reader_lock:
                rows = await self._reader.execute_fetchall(query, parameters)
        except (sqlite3.Error, OSError) as error:
            raise self._failure("reading", error) from error
        return [tuple(row) for row in rows]

    def _failure(self, operation: str, cause: Exception) -> LedgerStorageError:
        """Return the error of an operation, and note its word on the file."""
        error = LedgerStorageError(self.path, operation, cause)
        if error.damaged and not self.damage:
            self.damage = error.problem
            self.damaged.set()
        return error


def _boot(number: int, boot: bytes | None, *times: object) -> Boot:
    if boot is not None:
        with suppress(msgspec.ValidationError):
            return msgspec.convert((number, _text(boot), *times), Boot)
    return Boot(number, "", 0)


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode(errors="replace")
