"""Reads one series out of the ledger, in slices, while everything else goes on.

Rows are found by subject and time through an index, oldest first. Each slice is one short query on
the reader connection and a few milliseconds of decoding; between two the loop runs on. What is
staged and what is framed is seen at one moment, so no point is missed or met twice, whatever is
committed meanwhile. What the ledger forgets meanwhile is missing, even where OUT has it: that was
looked through before, up to where the ledger then began.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from backhaul_agent.commit.framer import unpack
from backhaul_agent.history.merge import HistoryQuestion, Run, pick
from backhaul_agent.ledger.eviction_policy import CONFIG
from backhaul_codec import CodecError, Point, Value
from backhaul_codec.kinds import BUNDLE
from backhaul_codec.subjects import (
    BUNDLE_SUBJECT,
    NODE_TYPE_PREFIX,
    encode_token,
    frame_subject,
    node_frame_subject,
    node_lane_subject,
    parse_leaf,
    point_subject,
)
from backhaul_codec.wire.addressed import decode_addressed
from backhaul_codec.wire.dictionaries import plain
from backhaul_codec.wire.select import select

if TYPE_CHECKING:
    from backhaul_agent.ledger.ledger import Ledger

SLICE_ROWS = 32
# Cast, because damage may turn a number, a text or a blob into something else: one such row ends no answer.
_SNAPSHOT = (
    "SELECT 1, id, next_seq, NULL FROM lanes UNION ALL "
    "SELECT 0, id, crc, coalesce(CAST(body AS BLOB), x'') FROM staged WHERE node = ? ORDER BY 1, 2"
)
_EDGES = (
    "SELECT DISTINCT CAST(subject AS BLOB) FROM messages "
    "WHERE value_class = ? AND subject GLOB ? AND t_lo IS NOT NULL"
)
_SLICE = (
    "SELECT t_lo, t_hi, id, lane, coalesce(CAST(seq AS INTEGER), 0), "
    "coalesce(CAST(body AS BLOB), x'') FROM messages "
    "WHERE subject = ? AND (t_lo, t_hi, id) > (?, ?, ?) AND t_lo < ? AND t_hi >= ? "
    "ORDER BY t_lo, t_hi, id LIMIT ?"
)


class FoundPoints(NamedTuple):
    """Points of one message, and the time before which nothing more can come."""

    run: Run
    horizon_ns: int | None


class _Row(NamedTuple):
    t_lo: int
    t_hi: int
    id: int
    lane: int
    seq: int
    body: bytes


class _Cursor:
    """The rows of one subject, oldest first, read ahead by a slice."""

    def __init__(self, ledger: Ledger, question: HistoryQuestion, subject: str) -> None:
        self.subject = subject
        self.rows: list[_Row] = []
        self._ledger = ledger
        self._question = question
        self._after = (-(1 << 63), -(1 << 63), -1)
        self._ended = False

    async def fill(self) -> None:
        """Make sure the next row is there, if there is one."""
        if self.rows or self._ended:
            return
        asked = self._question
        found = await self._ledger.query(
            _SLICE, self.subject, *self._after, asked.to_ns, asked.from_ns, SLICE_ROWS
        )
        self.rows = [_Row(*row) for row in reversed(found)]
        self._ended = len(found) < SLICE_ROWS
        if found:
            self._after = self.rows[0][:3]


class LedgerHistory:
    """One question to one ledger. ``unreadable`` counts messages that are damaged."""

    def __init__(self, ledger: Ledger, question: HistoryQuestion) -> None:
        self.unreadable = 0
        self._ledger = ledger
        self._question = question
        self._bounds: dict[int, int] = {}  # next seq of each lane when we looked

    async def runs(self) -> AsyncGenerator[FoundPoints, None]:
        """Yield the ledger's points, in the order of the earliest time each may have.

        Raises:
            LedgerStorageError: SQLite could not read.
        """
        staged = await self._snapshot()
        cursors = [
            _Cursor(self._ledger, self._question, subject) for subject in await self._subjects()
        ]
        # Staged points come first with no horizon of their own: whatever is older goes before.
        yield FoundPoints(staged, -(1 << 63))
        for cursor in cursors:
            await cursor.fill()
        seen = 0
        while cursors := [cursor for cursor in cursors if cursor.rows]:
            cursor = min(cursors, key=lambda each: each.rows[-1].t_lo)
            row = cursor.rows.pop()
            await cursor.fill()
            horizon_ns = min((each.rows[-1].t_lo for each in cursors if each.rows), default=None)
            yield FoundPoints(self._read(cursor.subject, row), horizon_ns)
            seen += 1
            if seen % SLICE_ROWS == 0:
                await asyncio.sleep(0)
        yield FoundPoints(((), ()), None)

    async def _snapshot(self) -> Run:
        """Note how far the lanes are, and return the series' staged points of the same moment."""
        asked = self._question
        times: list[int] = []
        values: list[Value] = []
        for is_lane, id_, number, body in await self._ledger.query(_SNAPSHOT, asked.node):
            if is_lane:
                self._bounds[id_] = number
            elif zlib.crc32(body) == number:
                for point in _unpacked(asked.node, body):
                    if (point.type, point.key) == (
                        asked.type,
                        asked.key,
                    ) and not point.tombstone & 1:
                        times.append(point.time)
                        values.append(point.value)
        return pick(times, values, asked)

    async def _subjects(self) -> list[str]:
        """Return every subject under which points of the series may stand."""
        node = self._question.node
        edges = await self._ledger.query(_EDGES, CONFIG, f"*p.*.{encode_token(node)}")
        subjects = [subject.decode(errors="replace") for (subject,) in edges]
        found = [subject for subject in subjects if _is_edge_frame(subject, node)]
        return subjects_of(self._question) + found

    def _read(self, subject: str, row: _Row) -> Run:
        if row.seq >= self._bounds.get(row.lane, 0):
            return (), ()  # committed after we looked
        asked = self._question
        try:
            return read_message(subject, plain(row.body, self._ledger.lookup), asked)
        except CodecError:
            self.unreadable += 1
            return (), ()


def subjects_of(asked: HistoryQuestion) -> list[str]:
    """Return the subjects of a series' points; frames of edges, which have the edge's, not in it."""
    node = asked.node
    own = [
        frame_subject(node),
        point_subject(node, asked.type, asked.key),
        node_frame_subject(node),
    ]
    return [BUNDLE_SUBJECT, *own, *(node_lane_subject(node, subject) for subject in own)]


def read_message(subject: str, body: bytes, asked: HistoryQuestion) -> Run:
    """Return the points of a series in one message that came on one of `subjects_of` it.

    Raises:
        CodecError: the message is damaged.
    """
    place = parse_leaf(subject)
    if place.kind is BUNDLE:
        return select(body, asked.type, asked.key, asked.from_ns, asked.to_ns, node=asked.node)
    if place.frame:
        type_ = NODE_TYPE_PREFIX + asked.type if place.parent else asked.type
        return select(body, type_, asked.key, asked.from_ns, asked.to_ns, node=place.frame_node)
    ((_, point),) = decode_addressed(place, body)[1]
    if point.tombstone & 1:
        return (), ()
    return pick([point.time], [point.value], asked)


def _is_edge_frame(subject: str, node: str) -> bool:
    try:
        place = parse_leaf(subject)
    except ValueError:
        return False
    return bool(place.parent) and place.frame and place.node == node


def _unpacked(node: str, body: bytes) -> list[Point]:
    try:
        return unpack(node, body)
    except msgspec.DecodeError:
        return []
