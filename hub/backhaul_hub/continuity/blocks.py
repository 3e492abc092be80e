"""Where things stand in UP: per block of a stream, which seqs of which lanes are in it.

A block is 8,192 sequences of one UP stream. When a stream loses some of its sequences, the blocks
say what was in them, so that the hub stops counting on exactly that. Pure; lane_records/block_store.py keeps
the blocks in hub.db, written with the read position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from backhaul_codec.ranges import RangeSet
from backhaul_hub.continuity.lane_key import LaneKey

BLOCK_MESSAGES = 8192
# How finely the times of a block's messages are known, for telling what its age took.
GRAIN_MESSAGES = 256
_GRAINS = BLOCK_MESSAGES // GRAIN_MESSAGES


def block_of(stream_seq: int) -> int:
    """Return the number of the block that a sequence of a stream is in."""
    return stream_seq // BLOCK_MESSAGES


@dataclass(slots=True)
class Block:
    """The record of one block of a stream, without the lanes in it."""

    number: int
    low: int = 0
    """The first sequence that was read of it; 0 where none was."""
    high: int = 0
    high_ns: int = 0
    """When the stream took in the message at `high`: the same sequence with another time is another
    message."""
    messages: int = 0
    grains: list[int] = field(default_factory=lambda: [0] * _GRAINS)
    """For each 256 sequences: when the stream took in the first, ns; 0 where none was read."""

    def add(self, stream_seq: int, stored_ns: int) -> None:
        """Take in a message; sequences ascend."""
        self.low = self.low or stream_seq
        self.high, self.high_ns = stream_seq, stored_ns
        self.messages += 1
        grain = stream_seq % BLOCK_MESSAGES // GRAIN_MESSAGES
        self.grains[grain] = self.grains[grain] or stored_ns

    @property
    def absent(self) -> int:
        """How many sequences between `low` and `high` the stream did not have."""
        return self.high - self.low + 1 - self.messages

    def newest_ns_before(self, stream_seq: int) -> int:
        """Return when the newest message below a sequence was stored, at the earliest; 0: none.

        Exact where all that was read of the block is below it, else of up to 256 messages the
        first one's time.
        """
        if stream_seq > self.high:
            return self.high_ns
        last = (stream_seq - 1) % BLOCK_MESSAGES // GRAIN_MESSAGES
        known = [stamp for stamp in self.grains[: last + 1] if stamp]
        return known[-1] if stream_seq > self.low and known else 0


@dataclass(slots=True)
class BlockContent:
    """A block with the seqs of the lanes in it, repeats included."""

    block: Block
    lanes: dict[LaneKey, RangeSet] = field(default_factory=dict)
    changed: set[LaneKey] = field(default_factory=set)
    """Lanes whose rows are not as they are here."""
    added: list[tuple[LaneKey, int]] = field(default_factory=list)
    """What no turn has told yet."""

    def add(self, stream_seq: int, stored_ns: int, place: tuple[LaneKey, int] | None) -> None:
        """Take in a message; `place` in its lane, None for one that has none."""
        self.block.add(stream_seq, stored_ns)
        if place is None:
            return
        self.hold(*place)

    def hold(self, key: LaneKey, seq: int) -> None:
        """Take in that a message with this place stands in it."""
        held = self.lanes.get(key)
        if held is None:
            held = self.lanes[key] = RangeSet()
        if held.add(seq):
            self.changed.add(key)
            self.added.append((key, seq))


class BlockLog:
    """The blocks of one stream that are being read: the newest, and those whose rows are to be put."""

    def __init__(self, newest: BlockContent | None = None) -> None:
        self._open: dict[int, BlockContent] = {}
        self._touched: set[int] = set()
        self._untold: set[int] = set()
        if newest is not None:
            self._open[newest.block.number] = newest

    def add(self, stream_seq: int, stored_ns: int, place: tuple[LaneKey, int] | None) -> None:
        """Take in the stream's next message."""
        number = block_of(stream_seq)
        content = self._open.get(number)
        if content is None:
            content = self._open[number] = BlockContent(Block(number))
        content.add(stream_seq, stored_ns, place)
        self._touch(number)

    def add_held(self, stream_seq: int, place: tuple[LaneKey, int]) -> bool:
        """Take in that a message of an open block counts as held now; False where its block is not open."""
        content = self._open.get(block_of(stream_seq))
        if content is None:
            return False
        content.hold(*place)
        self._touch(content.block.number)
        return True

    def contents(self) -> Mapping[int, BlockContent]:
        """Return the open blocks by number."""
        return self._open

    def take_news(self) -> list[tuple[Block, list[tuple[LaneKey, int]]]]:
        """Return the open blocks that changed since the last call, each with the messages that came into it."""
        news: list[tuple[Block, list[tuple[LaneKey, int]]]] = []
        for number in sorted(self._untold):
            content = self._open[number]
            news.append((content.block, content.added))
            content.added = []
        self._untold.clear()
        return news

    def take_closed(self) -> list[tuple[Block, Mapping[LaneKey, RangeSet]]]:
        """Return the blocks behind which another has begun, with the lanes that changed in them; forget them."""
        if len(self._open) < 2:
            return []
        newest = max(self._open)
        return self._take([number for number in sorted(self._touched) if number != newest])

    def take_changes(self) -> list[tuple[Block, Mapping[LaneKey, RangeSet]]]:
        """Return the blocks whose rows are not as they are here with the lanes that changed in them; keep the newest."""
        return self._take(sorted(self._touched))

    def replace(self, newest: BlockContent | None) -> None:
        """Go on in `newest`: it is open, or its rows are as it is. None: in a block that is not begun."""
        if newest is not None and self._open.get(newest.block.number) is newest:
            return
        self._open = {} if newest is None else {newest.block.number: newest}
        self._touched.clear()
        self._untold.clear()

    def catch_up(self, block: Block, added: Iterable[tuple[LaneKey, int]]) -> None:
        """Take in a turn that was told: the record of the newest block after it, and the messages that it added."""
        content = self._open.setdefault(block.number, BlockContent(block))
        content.block = block
        for place in added:
            content.hold(*place)
        content.added = []
        self._touched.add(block.number)

    def forget(self, key: LaneKey) -> None:
        """Forget a lane."""
        for content in self._open.values():
            if content.lanes.pop(key, None) is not None:
                content.changed.discard(key)
                content.added = [place for place in content.added if place[0] != key]

    def _touch(self, number: int) -> None:
        self._touched.add(number)
        self._untold.add(number)

    def _take(self, numbers: list[int]) -> list[tuple[Block, Mapping[LaneKey, RangeSet]]]:
        changes: list[tuple[Block, Mapping[LaneKey, RangeSet]]] = []
        for number in numbers:
            content = self._open[number]
            changes.append((content.block, {key: content.lanes[key] for key in content.changed}))
            content.changed.clear()
        self._touched.difference_update(numbers)
        newest = max(self._open, default=0)
        for number in [number for number in self._open if number != newest]:
            del self._open[number]
            self._touched.discard(number)
            self._untold.discard(number)
        return changes


class OpenBlocks:
    """The open blocks of all streams."""

    def __init__(self) -> None:
        self.logs: dict[str, BlockLog] = {}

    def of(self, stream: str) -> BlockLog:
        """Return those of one stream."""
        return self.logs.setdefault(stream, BlockLog())

    def forget(self, keys: Iterable[LaneKey]) -> None:
        """Forget lanes."""
        for key in keys:
            for each in self.logs.values():
                each.forget(key)


@dataclass(frozen=True, slots=True)
class StreamState:
    """A server's word on a stream."""

    created: str
    first_seq: int
    """The next sequence, where the stream is empty."""
    last_seq: int
    stored_bytes: int
    deleted: int
    """Sequences between the first and the last that are gone."""
    age_ns_max: int
    """0: no limit."""
    bytes_max: int
    """-1: no limit."""
    now_ns: int
    """The server's time of saying so."""


# The server makes room for a message before it stores it; one is 1 MiB at most.
_ROOM_BYTES_MAX = 2 << 20
_AGE_SLACK_NS = 5 * 1_000_000_000


def limits_explain(state: StreamState, blocks: list[Block]) -> bool:
    """Say whether age or size explain that all below `first_seq` is gone.

    `blocks`: those that have sequences below it. Where age took the first of 256 messages, it is
    believed of the others of them too: a purge that ends there is not told from aging.
    """
    room_bytes = min(_ROOM_BYTES_MAX, state.bytes_max // 2)
    if 0 < state.bytes_max <= state.stored_bytes + room_bytes:
        return True
    newest_ns = max((block.newest_ns_before(state.first_seq) for block in blocks), default=0)
    if state.age_ns_max <= 0:
        return newest_ns == 0
    return newest_ns <= state.now_ns - state.age_ns_max + _AGE_SLACK_NS
