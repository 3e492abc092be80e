"""The rows of hub.db that continuity rests on: lanes, and how far each stream of UP was read.

What the newest turns changed in lanes may stand in the log of turns alone (continuity/lane_log.py).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from backhaul_codec.ranges import RangeSet
from backhaul_hub.continuity import chain, lane_log
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.lane_log import LaneRow, LoggedTurn
from backhaul_hub.continuity.lane_state import Explained, LaneState
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry

# In one statement: between two a turn may move lanes from the log into their rows. SQLite looks through the log's
# bytes faster than anybody reads them.
_LANES_AND_LOG = (
    "SELECT device, lane, epoch, held, aged, seen, receipts, said, messages, repeats, body_bytes,"
    " last_seen_ns, chain, NULL FROM lane WHERE ?1 IN ('', device)"
    " UNION ALL SELECT '', '', 0, '', '', '', '', 0, 0, 0, 0, number, '', content FROM lane_log"
    " WHERE ?1 = '' OR instr(content, CAST(?1 AS BLOB))"
)
_PUT_LANE = "INSERT OR REPLACE INTO lane VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class ReadPosition:
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


async def read_lanes(registry: Registry, device: str = "") -> dict[LaneKey, LaneState]:
    """Return continuity's books at the last `store`, of one device or (empty) of all."""
    rows = await registry.fetch(_LANES_AND_LOG, (device,))
    found: dict[LaneKey, Sequence[Any]] = {_key(row): row for row in rows if row[13] is None}
    for _, content in sorted((row[11], row[13]) for row in rows if row[13] is not None):
        turn = lane_log.from_bytes(content)
        for key in turn.gone:
            found.pop(key, None)
        found |= {_key(row): row for row in turn.lanes if device in ("", row[0])}
    return {key: _lane_state(*row[3:13]) for key, row in found.items()}


async def read_turns(registry: Registry) -> list[tuple[int, int, LoggedTurn]]:
    """Return the turns that stand in the log, in order: number, size in bytes, contents.

    Raises:
        RegistryError: the database refused.
    """
    rows = await registry.fetch("SELECT number, content FROM lane_log ORDER BY number")
    return [(number, len(content), lane_log.from_bytes(content)) for number, content in rows]


async def read_position(registry: Registry, stream: str) -> ReadPosition:
    """Return how far a stream has been read (nothing, where it never was)."""
    rows = await registry.fetch(
        "SELECT created, seq, quarantined, stored_ns, first_seq FROM position WHERE stream = ?",
        (stream,),
    )
    return next((ReadPosition(*row) for row in rows), ReadPosition())


async def store_read(
    registry: Registry,
    stream: str,
    position: ReadPosition,
    lanes: Mapping[LaneKey, LaneState],
    changes: Sequence[RowChange] = (),
) -> None:
    """Write a read position and all that changed on the way there, atomically.

    Raises:
        RegistryError: the database refused; nothing was written.
    """
    await store_positions(registry, {stream: position}, lanes, changes)


async def store_positions(
    registry: Registry,
    positions: Mapping[str, ReadPosition],
    lanes: Mapping[LaneKey, LaneState],
    changes: Sequence[RowChange] = (),
) -> None:
    """Write the read positions of streams and all that changed on the way there, atomically.

    Raises:
        RegistryError: the database refused; nothing was written.
    """
    rows = [lane_row(key, state) for key, state in lanes.items()]
    read = [
        (stream, at.created, at.seq, at.quarantined, at.stored_ns, at.first_seq)
        for stream, at in positions.items()
    ]
    await registry.write(
        [
            RowChange(_PUT_LANE, rows),
            RowChange("INSERT OR REPLACE INTO position VALUES (?, ?, ?, ?, ?, ?)", read),
            *changes,
        ]
    )


def log_turn(number: int, content: bytes) -> RowChange:
    """Return the statement that writes a turn into the log."""
    return RowChange("INSERT INTO lane_log VALUES (?, ?)", [(number, content)])


def forget_turns(through: int) -> RowChange:
    """Return the statement that deletes the turns up to a number: all that they say stands in rows."""
    return RowChange("DELETE FROM lane_log WHERE number <= ?", [(through,)])


def lane_row(key: LaneKey, state: LaneState) -> LaneRow:
    """Return a lane as hub.db has it."""
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


def _key(row: Sequence[Any]) -> LaneKey:
    # Each row brings texts of its own, of the same few names.
    return LaneKey(sys.intern(row[0]), sys.intern(row[1]), row[2])


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
    explained = msgspec.json.decode(receipts, type=list[Explained]) if receipts else []
    return LaneState(
        _ranges(held),
        _ranges(aged),
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
    if len(ranges) == 1:  # nearly every one
        [(low, high)] = ranges
        return f"[[{low},{high}]]"
    return msgspec.json.encode(list(ranges)).decode()


def _ranges(text: str) -> RangeSet:
    return RangeSet(msgspec.json.decode(text, type=list[tuple[int, int]]) if text else ())
