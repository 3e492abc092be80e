"""The stream JOURNAL: made, read, and written to with the sequence that is expected."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_hub.config import HubConfig
from backhaul_hub.errors import HubError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.stream_reader import StoredReader
from backhaul_hub.standby.entry import Assembler, JournalEntry, nonce_of
from backhaul_hub.standby.judgement import DoubtVerdict, judge
from backhaul_hub.streams.streams import JOURNAL, JOURNAL_SUBJECT, journal_stream

_ANSWER_S = 2.0
_AGAIN_S = 0.1
_READ_MESSAGES = 256


class JournalEnds(NamedTuple):
    """The journal as its leader tells of it."""

    created: str
    first_seq: int
    last_seq: int


class JournalStream:
    """JOURNAL over one connection in account HUB."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._api = JetStreamApi(client, timeout_s=_ANSWER_S)
        self._reader = StoredReader(client, JOURNAL, timeout_s=_ANSWER_S)

    async def ends(self) -> JournalEnds | None:
        """Return where it begins and ends, by its leader's word; None: there is no such stream.

        Raises:
            HubError, NatsError: nobody answers.
        """
        info = await self._api.stream_info(JOURNAL)
        if info is None:
            return None
        state = info["state"]
        return JournalEnds(info["created"], state["first_seq"], state["last_seq"])

    async def make(self, config: HubConfig) -> JournalEnds:
        """Make the stream, in place of one that may be there. Raises: HubError."""
        await self._api.delete_stream(JOURNAL)
        await self._api.request(f"STREAM.CREATE.{JOURNAL}", journal_stream(config), timeout_s=10.0)
        made = await self.ends()
        if made is None:
            raise HubError(f"the stream {JOURNAL} was made and is gone")
        return made

    async def read(self, assembler: Assembler) -> list[JournalEntry]:
        """Return the entries that follow the assembler's last one; none at the end.

        Raises:
            HubError: nobody answers.
            JournalError: a message is none, or some are missing.
        """
        found: list[JournalEntry] = []
        for stored in await self._reader.read(assembler.position + 1, _READ_MESSAGES):
            found += assembler.take(stored.seq, stored.body)
        return found

    async def store(
        self, bodies: Sequence[bytes], nonce: str, position: int
    ) -> tuple[DoubtVerdict, int]:
        """Store an entry behind `position`, its last sequence so far; return its fate, and its own last.

        It returns when that is certain, however long nobody answers: the verdict is stored, deposed or lost.
        """
        for attempt in count(1):
            try:
                await self._publish(bodies, position, f"{nonce}-{attempt}")
                verdict = DoubtVerdict.STORED
            except (HubError, NatsError):
                verdict = await self._in_doubt(nonce, position)
            if verdict is not DoubtVerdict.AGAIN:
                return verdict, position + len(bodies)
        raise AssertionError

    async def _publish(self, bodies: Sequence[bytes], position: int, batch: str) -> None:
        expected = {"Nats-Expected-Last-Sequence": str(position)}
        if len(bodies) == 1:
            await self._api.publish(JOURNAL_SUBJECT, bodies[0], expected)
            return
        for number, body in enumerate(bodies[:-1], 1):
            headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            await self._client.publish(
                JOURNAL_SUBJECT, body, headers=headers | (expected if number == 1 else {})
            )
        last = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(len(bodies))}
        await self._api.publish(JOURNAL_SUBJECT, bodies[-1], last | {"Nats-Batch-Commit": "1"})

    async def _in_doubt(self, nonce: str, position: int) -> DoubtVerdict:
        while True:
            await asyncio.sleep(_AGAIN_S)
            try:
                message = await self._api.message(JOURNAL, seq=position + 1)
                ends = await self.ends()
            except (HubError, NatsError):
                continue
            found = None if message is None else nonce_of(message.data)
            verdict = judge(position, nonce, found, ends.last_seq if ends else -1)
            if verdict is not DoubtVerdict.ASK:
                return verdict
