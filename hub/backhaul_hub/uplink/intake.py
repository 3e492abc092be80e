"""The intake of all shards of UP: it examines the messages of their readers, tells consumers, and stores the turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import structlog

from backhaul_codec.wire.expansion import Expansion
from backhaul_hub.continuity.examine import Examined, Find, UnreadableError
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import RegistryError
from backhaul_hub.lane_records.block_store import forget_lanes
from backhaul_hub.lane_records.device_words import WordBook
from backhaul_hub.lane_records.lane_rows import ReadPosition, store_positions
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
    ) -> None:
        self.continuity = continuity
        self.registry = registry
        self.dictionaries = dictionaries
        self.words = words or WordBook(continuity)
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

    async def store(
        self, positions: Mapping[str, ReadPosition], changes: Sequence[RowChange]
    ) -> None:
        """Store the positions in these streams and all changes on the way to them, trying until the disk takes it.

        To be called by the holder of the registry's turn.
        """
        lanes = self.continuity.take_changed()
        changes = [
            *changes,
            *forget_lanes(self.continuity.take_forgotten()),
            *self.words.take_changes(),
            *(change for each in self._consumers for change in each.take_changes()),
        ]
        trouble = Trouble(log, "hub_db_does_not_write", RegistryError)
        while True:
            async with trouble:
                return await store_positions(self.registry, positions, lanes, changes)

    def stored(self) -> None:
        """Tell all consumers that the turn is on disk."""
        for consumer in self._consumers:
            consumer.stored()
