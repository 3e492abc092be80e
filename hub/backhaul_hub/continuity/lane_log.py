"""The log of turns: lanes and open blocks as the newest turns left them, before they go into rows of their own. Pure.

A turn over all shards changes a lane for nearly each of its messages, of vehicles that have nothing to do with
one another: written in place, each would change a page of hub.db. So a turn is written as one row, and now and
then all lanes that changed meanwhile go into their rows, in the order of their keys, some each turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from backhaul_hub.continuity.blocks import Block
from backhaul_hub.continuity.lane_key import LaneKey

Place = tuple[LaneKey, int]
"""A message: its lane, and its seq there."""
LaneRow = tuple[Any, ...]
"""A row of table `lane`; it begins with the key."""
_Due = TypeVar("_Due")
_LANES_MIN = 8192
_TURNS = 64
"""So many turns a fold takes."""
_BYTES_MAX = 64 << 20


class LoggedBlock(NamedTuple):
    """An open block: its record after a turn, and the messages that the turn added."""

    stream: str
    number: int
    low: int
    high: int
    high_ns: int
    messages: int
    grains: list[int]
    added: list[Place]

    @property
    def block(self) -> Block:
        """Its record."""
        return Block(*self[1:6], list(self.grains))

    def without(self, gone: Collection[LaneKey]) -> LoggedBlock:
        """Return it as if nothing of these lanes had come."""
        if not gone:
            return self
        return self._replace(added=[place for place in self.added if place[0] not in gone])


def logged_block(stream: str, block: Block, added: list[Place]) -> LoggedBlock:
    """Return a block, and the messages that a turn added, as the log has them."""
    numbers = (block.number, block.low, block.high, block.high_ns, block.messages)
    return LoggedBlock(stream, *numbers, block.grains, added)


class LoggedTurn(NamedTuple):
    """The changes of one turn."""

    lanes: list[LaneRow]
    """As they are after it."""
    gone: list[LaneKey]
    """Lanes that made room."""
    blocks: list[LoggedBlock]


_turns = msgspec.msgpack.Decoder(LoggedTurn)


def to_bytes(turn: LoggedTurn) -> bytes:
    """Return a turn as hub.db stores it."""
    return msgspec.msgpack.encode(turn)


def from_bytes(content: bytes) -> LoggedTurn:
    """Return a turn as it was stored. Raises: msgspec.DecodeError: it is none."""
    return _turns.decode(content)


def blocks_in(turns: Iterable[LoggedTurn]) -> dict[str, list[LoggedBlock]]:
    """Return the words of turns on open blocks, by stream; lanes that made room in a later turn are left out."""
    found: dict[str, list[LoggedBlock]] = {}
    for turn in turns:
        if turn.gone:
            for blocks in found.values():
                blocks[:] = [each.without(turn.gone) for each in blocks]
        for each in turn.blocks:
            found.setdefault(each.stream, []).append(each)
    return found


class Fold(NamedTuple):
    """The lanes and blocks that go into rows with a turn."""

    lanes: Sequence[LaneKey] = ()
    streams: Sequence[str] = ()
    """Those whose open blocks do."""
    through: int = 0
    """All that turns up to this one changed stands in rows then; 0: no fold ends here."""


class LaneFolding:
    """Decides which lanes and blocks go into their rows when.

    Args:
        lanes_min: a fold begins once turns have changed so many lanes, and as many as there are; 0: with each turn.
        turns: over so many it is spread.
        bytes_max: it also begins once turns have so many bytes: a lane of many holes is large each time.
    """

    def __init__(
        self, lanes_min: int = _LANES_MIN, turns: int = _TURNS, bytes_max: int = _BYTES_MAX
    ) -> None:
        self.last = 0
        """The number of the newest turn."""
        self._lanes_min, self._turns, self._bytes_max = lanes_min, turns, bytes_max
        # Since the last fold began.
        self._logged = self._bytes = 0
        # What has changed since it was put into rows.
        self._lanes: set[LaneKey] = set()
        self._streams: dict[str, None] = {}
        # What the fold that is under way has still to put.
        self._due_lanes: list[LaneKey] = []
        self._due_streams: list[str] = []
        self._lane_share = self._stream_share = 0
        self._through = 0

    def note(
        self, number: int, size: int, lanes: Collection[LaneKey], streams: Iterable[str]
    ) -> None:
        """Take in a turn: its number and bytes, the lanes that it changed, and the streams whose open blocks."""
        self.last = number
        self._bytes += size
        self._logged += len(lanes)
        self._lanes.update(lanes)
        self._streams.update(dict.fromkeys(streams))

    def next(self, lanes: int) -> Fold:
        """Return the lanes and blocks that go into rows with the last turn. `lanes`: the number of all."""
        if not self._through:
            enough = self._lanes_min and max(self._lanes_min, lanes)
            if self._logged < enough and self._bytes < self._bytes_max:
                return Fold()
            self._begin()
        due, self._due_lanes = _cut(self._due_lanes, self._lane_share)
        streams, self._due_streams = _cut(self._due_streams, self._stream_share)
        if self._due_lanes or self._due_streams:
            return Fold(due, streams)
        through, self._through = self._through, 0
        return Fold(due, streams, through)

    def whole(self) -> Fold:
        """Return all that is not in rows: nothing in the log counts any more."""
        lanes, streams = {*self._lanes, *self._due_lanes}, {*self._streams, *self._due_streams}
        self._lanes, self._streams, self._logged, self._bytes = set(), {}, 0, 0
        self._due_lanes, self._due_streams, self._through = [], [], 0
        return Fold(sorted(lanes), sorted(streams), self.last)

    def _begin(self) -> None:
        # In order of their keys: then neighbours in a page of hub.db are written together.
        self._due_lanes, self._lanes = sorted(self._lanes), set()
        self._due_streams, self._streams = list(self._streams), {}
        self._lane_share = len(self._due_lanes) // self._turns + 1
        self._stream_share = len(self._due_streams) // self._turns + 1
        self._through, self._logged, self._bytes = self.last, 0, 0


def _cut(due: list[_Due], share: int) -> tuple[list[_Due], list[_Due]]:
    return due[:share], due[share:]
