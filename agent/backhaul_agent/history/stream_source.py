"""Reads from the OUT streams points that the ledger has forgotten and the leaf still has.

The leaf drops its oldest by its own limits, the ledger by other ones, so OUT may reach further back.
Only what stands there before the first seq that the ledger holds of a lane is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from nats.aio.client import Client
from nats.aio.subscription import Subscription

from backhaul_agent.history.ledger_source import FoundPoints, read_message, subjects_of
from backhaul_agent.history.merge import TIME_MIN, HistoryQuestion
from backhaul_agent.leaf.streams import out_stream
from backhaul_codec import CodecError, peek
from backhaul_codec.kinds import BULK
from backhaul_codec.subjects import dictionary_subject, lane_of
from backhaul_codec.wire.dictionaries import digest_in, plain, read_dictionary
from backhaul_runtime.jetstream import API

if TYPE_CHECKING:
    from backhaul_agent.ledger.ledger import Ledger

BATCH = 256
BATCH_BYTES = 2 << 20
SILENCE_S_MAX = 5.0
RESENT = "Backhaul-Next"  # stands on messages that were appended again, out of order


class _Stored(NamedTuple):
    stream_seq: int
    body: bytes
    resent: bool


class OutHistory:
    """One question to the OUT streams. ``points`` counts those that only they had."""

    def __init__(self, client: Client, ledger: Ledger, question: HistoryQuestion) -> None:
        self.points = 0
        self._client = client
        self._ledger = ledger
        self._question = question
        self._firsts: dict[tuple[str, int], int] = {}  # by lane and epoch: first seq in the ledger
        self._seen: set[tuple[str, int, int]] = set()
        self._found: dict[bytes, bytes | None] = {}  # dictionaries that the ledger lacks

    async def runs(self) -> AsyncGenerator[FoundPoints, None]:
        """Yield points that the ledger has no more, in no order of time."""
        for lane in [*self._ledger.lanes.values(), *self._ledger.closed.values()]:
            rows = await self._ledger.query("SELECT min(seq) FROM messages WHERE lane = ?", lane.id)
            self._firsts[lane.name, lane.epoch] = rows[0][0] or lane.next_seq
        for subject in subjects_of(self._question):
            lane_name = lane_of(subject)
            if lane_name in self._ledger.lanes:
                async for found in self._of_subject(lane_name, subject):
                    yield found

    async def _of_subject(self, lane: str, subject: str) -> AsyncGenerator[FoundPoints, None]:
        stream_seq, count = 1, 1  # mostly the first message says that there is nothing to read
        while stored := await self._batch(out_stream(lane), subject, stream_seq, count):
            for message in stored:
                try:
                    header = peek(message.body)
                except CodecError:
                    continue
                first = self._firsts.get((lane, header.epoch))
                if first is not None and header.seq >= first:
                    if message.resent:
                        continue
                    return  # from here on the ledger has it all
                place = (lane, header.epoch, header.seq)
                if place in self._seen:
                    continue
                self._seen.add(place)
                try:
                    run = read_message(subject, await self._plain(message.body), self._question)
                except CodecError:
                    continue
                if run[0]:
                    self.points += len(run[0])
                    yield FoundPoints(run, TIME_MIN)
            stream_seq, count = stored[-1].stream_seq + 1, BATCH

    async def _plain(self, body: bytes) -> bytes:
        """Return a message without need of its dictionary, which OUT may have where the ledger was lost.

        Raises:
            CodecError: the message is damaged; `dictionary`: neither has it.
        """
        digest = digest_in(body)
        if digest is not None and self._ledger.lookup(digest) is None and digest not in self._found:
            self._found[digest] = None
            for stored in await self._batch(out_stream(BULK), dictionary_subject(digest), 1, 1):
                self._found[digest] = read_dictionary(stored.body, digest)
        return plain(body, lambda it: self._ledger.lookup(it) or self._found.get(it))

    async def _batch(self, stream: str, subject: str, stream_seq: int, count: int) -> list[_Stored]:
        """Return the next messages of a subject; none at the end, or where nobody answers."""
        client = self._client
        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox)
        request = {
            "seq": stream_seq, "next_by_subj": subject, "batch": count, "max_bytes": BATCH_BYTES,
        }  # fmt: skip
        try:
            payload = msgspec.json.encode(request)
            await client.publish(f"{API}.DIRECT.GET.{stream}", payload, reply=inbox)
            return await _collect(subscription)
        finally:
            if not client.is_closed:
                await subscription.unsubscribe()


async def _collect(subscription: Subscription) -> list[_Stored]:
    found: list[_Stored] = []
    while True:
        try:
            async with asyncio.timeout(SILENCE_S_MAX):
                message = await subscription.next_msg(timeout=None)
        except TimeoutError:
            return found
        headers = message.headers or {}
        if "Nats-Sequence" not in headers:
            return found  # the end of the batch, or an error: there is nothing more to be had
        found.append(_Stored(int(headers["Nats-Sequence"]), message.data, RESENT in headers))
