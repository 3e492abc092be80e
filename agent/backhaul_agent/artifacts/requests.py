"""Talking with the hub about artifacts: questions out on ``blob.<device>``, answers to each asker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from nats.aio.client import Client
from nats.aio.msg import Msg

from backhaul_agent.cancellation import heed_cancel
from backhaul_agent.config import Config
from backhaul_agent.errors import ArtifactError
from backhaul_codec.protocol import blobs

WAITING_MAX = 2 * blobs.WINDOW_BYTES_MAX // 1024
TRIES = 4
TRY_S = 10.0


class BlobLink:
    """Both ends of the exchange on one connection to the leaf server.

    ``first``: number of the first talk, drawn at random: answers to another run are not ours.
    """

    def __init__(self, config: Config, client: Client, first: int) -> None:
        self._client = client
        self._question = f"blob.{config.device.id}"
        self._answer = f"blobr.{config.device.id}.{config.device.token}"
        self._talks: dict[int, Talk] = {}
        self._next = first

    async def start(self) -> None:
        """Listen to answers for as long as the connection lives."""
        await self._client.subscribe(self._answer, cb=self._take)

    @contextmanager
    def talk(self) -> Iterator[Talk]:
        """Begin to ask about one file."""
        number, self._next = self._next, self._next + 1
        self._talks[number] = talk = Talk(self._client, self._question, number)
        try:
            yield talk
        finally:
            del self._talks[number]

    async def _take(self, message: Msg) -> None:
        try:
            answer = blobs.decode_answer(message.data)
        except blobs.NOT_READ:
            return
        talk = self._talks.get(answer.ask)
        if talk is not None and not talk.answers.full():
            talk.answers.put_nowait(answer)


class Talk:
    """Questions about one file, and the answers to them."""

    def __init__(self, client: Client, subject: str, number: int) -> None:
        self.number = number
        self.answers: asyncio.Queue[blobs.Answer] = asyncio.Queue(WAITING_MAX)
        self._client = client
        self._subject = subject

    async def say(self, question: blobs.Question) -> None:
        """Send a question; its answer comes to `hear`, or not."""
        await self._client.publish(self._subject, blobs.encode(question))
        heed_cancel()

    async def hear(self, wait_s: float) -> blobs.Answer:
        """Return the next answer.

        Raises:
            TimeoutError: there was none in time. ArtifactError: the hub refused.
        """
        async with asyncio.timeout(wait_s):
            answer = await self.answers.get()
        if isinstance(answer, blobs.Refused):
            raise ArtifactError(answer.message, code=answer.code)
        return answer

    async def ask(self, question: blobs.Find | blobs.Offer) -> blobs.Found | blobs.Held:
        """Ask until it is answered; pieces under way from before are passed over.

        Raises:
            ArtifactError: the hub refused, or does not answer.
        """
        for _ in range(TRIES):
            await self.say(question)
            try:
                while True:
                    answer = await self.hear(TRY_S)
                    if isinstance(answer, blobs.Found | blobs.Held):
                        return answer
            except TimeoutError:
                continue
        raise ArtifactError("the hub does not answer about artifacts", code="silent")
