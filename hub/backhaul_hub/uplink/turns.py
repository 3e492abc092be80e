"""The turns in which UP is read: one over all its shards, stored in one transaction.

A turn costs the same whatever it brings: its questions, its transaction, what numpy takes before the first
message. So all shards share it. One whose stream or server is in trouble leaves it until that is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from nats.aio.client import Client

from backhaul_hub.db.change import RowChange
from backhaul_hub.errors import HubError
from backhaul_hub.nats.stream_reader import ReadQuestion, Stored, read_many
from backhaul_hub.uplink.dictionaries import parts
from backhaul_hub.uplink.intake import UplinkIntake
from backhaul_hub.uplink.reader import TROUBLES, UplinkReader

TURN_MESSAGES = 4096
"""Of all shards, where all have that many."""
SHARD_MESSAGES_MAX = 512
_SHARD_MESSAGES_MIN = 32
_TURN_S = 0.1
_LARGE_TURN_S = 0.25
"""From a large turn to the next. Each costs some 2 ms whatever it brings, and numpy proves 500 frames in the time of 50."""
_LARGE_TURN_MESSAGES = 64

ReadMany = Callable[[Client, Sequence[ReadQuestion]], Awaitable[list[list[Stored] | HubError]]]


class UplinkTurns:
    """Reads all streams of UP from where hub.db says, for ever.

    Args:
        intake: that of the readers.
        readers: of the shards.
        read_many: asks all streams at once.
        shard_messages_max: of one shard in a turn.
    """

    def __init__(
        self,
        client: Client,
        intake: UplinkIntake,
        readers: Sequence[UplinkReader],
        *,
        read_many: ReadMany = read_many,
        shard_messages_max: int = SHARD_MESSAGES_MAX,
    ) -> None:
        self._client = client
        self._intake = intake
        self._readers = readers
        self._read_many = read_many
        self._shard_messages_max = shard_messages_max
        self._recovering: dict[UplinkReader, asyncio.Task[None]] = {}
        self._messages = 0
        """Those of the last turn."""

    async def run(self) -> None:
        """Read until cancelled; trouble with the server is logged once and waited out."""
        try:
            for reader in self._readers:
                await reader.begin()
            while True:
                began_s = asyncio.get_running_loop().time()
                if not await self._turn():
                    passed_s = asyncio.get_running_loop().time() - began_s
                    large = self._messages >= _LARGE_TURN_MESSAGES
                    turn_s = _LARGE_TURN_S if large else _TURN_S
                    await asyncio.sleep(max(0.0, turn_s - passed_s))
        finally:
            for task in self._recovering.values():
                task.cancel()
            await asyncio.gather(*self._recovering.values(), return_exceptions=True)
            for reader in self._readers:
                reader.end()

    async def _turn(self) -> bool:
        """Read once; return whether there may be more."""
        self._messages = 0
        able = self._able()
        if not able:
            return False
        most = max(_SHARD_MESSAGES_MIN, TURN_MESSAGES // len(able))
        most = min(self._shard_messages_max, most)
        try:
            answers = await self._read_many(self._client, [each.wanted(most) for each in able])
        except TROUBLES as error:
            for reader in able:
                reader.fail(error)
            return False
        joint: list[tuple[UplinkReader, Stored]] = []
        more = False
        for reader, answer in zip(able, answers, strict=True):
            try:
                messages = await reader.accept(answer)
            except TROUBLES as error:
                reader.fail(error)
                continue
            joint += ((reader, message) for message in messages)
            more = more or len(messages) >= most
        self._messages, done = len(joint), 0
        for part in parts([message for _, message in joint]):
            await take(self._intake, joint[done : done + len(part)])
            done += len(part)
        for reader in able:
            if not reader.look_due:
                try:
                    more = await reader.take_up() or more
                except TROUBLES as error:
                    reader.fail(error)
        return more

    def _able(self) -> list[UplinkReader]:
        """Return the readers that may read on; have all others look at their streams first."""
        for reader, task in list(self._recovering.items()):
            if task.done():
                del self._recovering[reader]
                task.result()
        for reader in self._readers:
            if reader.look_due and reader not in self._recovering:
                self._recovering[reader] = asyncio.create_task(reader.recover())
        return [reader for reader in self._readers if reader not in self._recovering]


async def take(intake: UplinkIntake, some: Sequence[tuple[UplinkReader, Stored]]) -> None:
    """Set garbage aside, count the rest, and store both with the new positions.

    `some`: messages, those of one reader in their order; of a reader that is in trouble none is taken.
    """
    of: dict[UplinkReader, list[Stored]] = {}
    for reader, message in some:
        of.setdefault(reader, []).append(message)
    for reader, messages in of.items():
        if not reader.look_due:
            try:
                # From here on the dictionaries among them are kept: only then do their messages count as held.
                await intake.dictionaries.prepare(messages)
            except TROUBLES as error:
                reader.fail(error)
    of = {reader: messages for reader, messages in of.items() if not reader.look_due}
    every = iter(await intake.examine([each for messages in of.values() for each in messages]))
    examined = {
        reader: [(message, next(every)) for message in messages] for reader, messages in of.items()
    }
    for reader, pairs in examined.items():
        try:
            await reader.set_aside(pairs)
        except TROUBLES as error:
            reader.fail(error)
    taken = [reader for reader in examined if not reader.look_due]
    if not taken:
        return
    async with intake.registry.turn:
        # From here on nothing is read again, so nothing is counted twice.
        rows: dict[str, list[tuple[Any, ...]]] = {}
        for reader in taken:
            for change in reader.tell(examined[reader]):
                rows.setdefault(change.statement, []).extend(change.rows)
        changes = [RowChange(*each) for each in rows.items()]
        await intake.store({reader.stream: reader.position for reader in taken}, changes)
    intake.stored()
    for reader in taken:
        reader.judge_repeats()
