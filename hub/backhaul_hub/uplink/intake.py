"""The intake of all shards of UP: it examines the messages of their readers, tells consumers, and stores the turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import structlog

from backhaul_codec.wire.expansion import Expansion
from backhaul_hub.continuity import lane_log
from backhaul_hub.continuity.blocks import OpenBlocks
from backhaul_hub.continuity.examine import Examined, Find, UnreadableError
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.lane_log import (
    LaneFolding,
    LoggedBlock,
    LoggedTurn,
    blocks_in,
    logged_block,
)
from backhaul_hub.continuity.lane_state import LaneState
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import RegistryError
from backhaul_hub.lane_records.block_store import forget_lanes, put_blocks
from backhaul_hub.lane_records.device_words import WordBook
from backhaul_hub.lane_records.lane_rows import (
    ReadPosition,
    forget_turns,
    lane_row,
    log_turn,
    read_turns,
    store_positions,
)
from backhaul_hub.nats.stream_reader import Stored
from backhaul_hub.uplink.consumer import Consumer
from backhaul_hub.uplink.dictionaries import Dictionaries
from backhaul_runtime.trouble import Trouble

log = structlog.get_logger(__name__)

_POINTS_AT_ONCE = 1 << 18
Said: TypeAlias = Examined | UnreadableError
ExamineMany: TypeAlias = Callable[[Sequence[tuple[str, bytes]], Find], Iterable[Said]]


class UplinkIntake:
    """Takes in the messages of all readers of UP.

    Args:
        dictionaries: what messages are packed against.
        consumers: told of every good message, in this order (see uplink/consumer.py).
        words: takes in what vehicles say of their lanes.
        unreadable: told of the device that has sent an unreadable message.
        expanded: told of each other message: its device, what it comes to, its bytes, and when it was
            stored (ns).
        examine: other than `examine_many`, with the same results.
        folding: when what turns changed goes into rows.
    """

    def __init__(
        self,
        continuity: Continuity,
        registry: Registry,
        dictionaries: Dictionaries,
        consumers: Sequence[Consumer] = (),
        words: WordBook | None = None,
        unreadable: Callable[[str], None] = lambda _: None,
        expanded: Callable[[str, Expansion, int, int], None] = lambda *_: None,
        *,
        examine: ExamineMany | None = None,
        folding: LaneFolding | None = None,
    ) -> None:
        self.continuity = continuity
        self.registry = registry
        self.dictionaries = dictionaries
        self.words = words or WordBook(continuity)
        self.blocks = OpenBlocks()
        """Those of all streams; whoever reads one says `begin` first."""
        self._folding = folding or LaneFolding()
        self._beginning, self._begun = asyncio.Lock(), False
        self._logged: dict[str, list[LoggedBlock]] = {}
        self.unreadable = unreadable
        self._consumers = (dictionaries, *consumers)
        self._expanded = expanded
        if examine is None:
            # Here: it loads numpy, which command lines do without.
            from backhaul_hub.continuity.examine_many import examine_many

            examine = examine_many
        self._examine = examine

    async def examine(self, messages: Sequence[Stored]) -> list[Said]:
        """Return the contents of each of these messages; their dictionaries are at hand (`prepare`)."""
        examined: list[Said] = []
        points = 0
        pairs = [(message.subject, message.body) for message in messages]
        every = self._examine(pairs, self.dictionaries.find)
        for message, said in zip(messages, every, strict=True):
            try:
                if isinstance(said, UnreadableError):
                    raise said
                self.dictionaries.require_kept(said)
            except UnreadableError as error:
                examined.append(error)
                continue
            examined.append(said)
            self._expanded(said.key.device, said.expansion, len(message.body), message.stored_ns)
            points += said.expansion.points
            if points > _POINTS_AT_ONCE:  # others wait: above all who keeps such a vehicle out
                points = 0
                await asyncio.sleep(0)
        return examined

    def tell(self, said: Examined, *, is_new: bool) -> None:
        """Tell a message that counts as held to all consumers."""
        for consumer in self._consumers:
            consumer.on_message(said, is_new)

    async def begin(self) -> None:
        """Take in the log of turns, once. Raises: RegistryError: the database refused."""
        async with self._beginning:
            if self._begun:
                return
            turns = await read_turns(self.registry)
            for number, size, turn in turns:
                lanes = {LaneKey(*row[:3]) for row in turn.lanes}
                streams = [each.stream for each in turn.blocks]
                self._folding.note(number, size, lanes, streams)
            self._logged = blocks_in(turn for *_, turn in turns)
            self._begun = True

    def catch_up(self, stream: str, number: int) -> None:
        """Take in the log's word on the open block of a stream; its rows are there already."""
        for each in self._logged.pop(stream, ()):
            if each.number == number:
                self.blocks.of(stream).catch_up(each.block, each.added)

    async def store(
        self,
        positions: Mapping[str, ReadPosition],
        changes: Sequence[RowChange],
        *,
        whole: bool = False,
    ) -> None:
        """Store the positions in these streams and all changes on the way to them, trying until the disk takes it.

        To be called by the holder of the registry's turn. `whole`: open blocks are others than turns have told.
        """
        # One that has come back in the same turn has a row, and all that blocks say of it is true.
        known = self.continuity.lanes
        gone = [key for key in self.continuity.take_forgotten() if key not in known]
        self.blocks.forget(gone)
        lanes, logged = self._log_turn(gone, whole=whole)
        changes = [
            *changes,
            *logged,
            *forget_lanes(gone),
            *self.words.take_changes(),
            *(change for each in self._consumers for change in each.take_changes()),
        ]
        trouble = Trouble(log, "hub_db_does_not_write", RegistryError)
        while True:
            async with trouble:
                return await store_positions(self.registry, positions, lanes, changes)

    def _log_turn(
        self, gone: list[LaneKey], *, whole: bool
    ) -> tuple[dict[LaneKey, LaneState], list[RowChange]]:
        """Return the lanes to be put into rows, and the statements for blocks and the log."""
        known, changed = self.continuity.lanes, self.continuity.take_changed()
        news = [
            logged_block(stream, *each)
            for stream, log in self.blocks.logs.items()
            for each in log.take_news()
        ]
        lanes = [lane_row(key, state) for key, state in changed.items()]
        content = lane_log.to_bytes(LoggedTurn(lanes, gone, news))
        number = self._folding.last + 1
        streams = [each.stream for each in news]
        self._folding.note(number, len(content), changed.keys(), streams)
        fold = self._folding.whole() if whole else self._folding.next(len(known))
        put = put_blocks({each: self.blocks.of(each).take_changes() for each in fold.streams})
        if fold.through:
            put.append(forget_turns(fold.through))
        if fold.through < number and (changed or gone or news):
            put.append(log_turn(number, content))
        return {key: known[key] for key in fold.lanes if key in known}, put

    def stored(self) -> None:
        """Tell all consumers that the turn is on disk."""
        for consumer in self._consumers:
            consumer.stored()
