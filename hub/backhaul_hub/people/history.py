"""Passing questions about the past on to the server of history, which is a process of its own (ADR 42).

It knows nothing of rights: who asks may ask once a question comes to this. It has the tables, and the hub has not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from backhaul_codec.errors import CodecError
from backhaul_codec.protocol.history import ALIVE, ANSWER_S_MAX, SUBJECT, Alive, PastQuestion
from backhaul_codec.strict.json import Reader
from backhaul_hub.errors import HubError


class _Refusal(msgspec.Struct):
    message: str
    hint: str


class _Answer(msgspec.Struct):
    """The part of an answer that the hub looks at."""

    error: _Refusal | None = None


_ANSWER = Reader(_Answer)
_ALIVE = Reader(Alive)

AT_ONCE = 8
"""Questions that are on their way; the server works at four, and further ones are refused here."""
START = (
    "start it where the tables are: backhaul-spark serve-history --table-root ROOT --hub-dir DIR"
)
_LOOK_S = 2.0
_WAIT_S = ANSWER_S_MAX + 5.0
_PAUSES_S = (2.0, 4.0, 8.0)
"""After each of these without an answer a question is asked again: a cluster's server that dies takes along what it has in hand."""


class HistoryGate:
    """Asks the server of history.

    Args:
        wait_s: for how long an answer is waited for.
        pauses_s: after which a question is asked again meanwhile.
    """

    def __init__(
        self, client: Client, wait_s: float = _WAIT_S, pauses_s: Sequence[float] = _PAUSES_S
    ) -> None:
        self._client = client
        self._wait_s = wait_s
        self._pauses_s = pauses_s
        self._under_way = 0

    async def ask(self, question: PastQuestion) -> msgspec.Raw:
        """Return the answer, as its server wrote it.

        Raises:
            HubError: nobody serves history, or too many ask; or its server refused, in its own words.
        """
        if self._under_way >= AT_ONCE:
            raise HubError(f"{AT_ONCE} questions about the past are under way", hint="ask again")
        self._under_way += 1
        try:
            return await self._answer(msgspec.json.encode(question))
        finally:
            self._under_way -= 1

    async def look(self) -> tuple[str, Alive]:
        """Return the trouble, empty where somebody answers, and the answer about the jobs beside the tables."""
        try:
            message = await self._client.request(SUBJECT, ALIVE, timeout=_LOOK_S)
            return "", _ALIVE.read(message.data)
        except (NatsError, TimeoutError, CodecError) as error:
            return repr(error), Alive()

    async def _answer(self, body: bytes) -> msgspec.Raw:
        try:
            async with asyncio.timeout(self._wait_s):
                message = await self._first_answer(body)
        except NoRespondersError as error:
            raise HubError("nobody serves history", hint=START) from error
        except (NatsError, TimeoutError) as error:
            what = f"no answer from the server of history: {error!r}"
            raise HubError(what, hint=f"see its log; {START}") from error
        said = _ANSWER.read(message.data)
        if said.error is not None:
            raise HubError(said.error.message, hint=said.error.hint)
        return msgspec.Raw(message.data)

    async def _first_answer(self, body: bytes) -> Msg:
        """Ask, and again while no answer comes; return the first that comes to any of these."""
        asking: list[asyncio.Task[Msg]] = []
        pauses_s = iter(self._pauses_s)
        try:
            while True:
                request = self._client.request(SUBJECT, body, timeout=self._wait_s)
                asking.append(asyncio.create_task(request))
                done, _ = await asyncio.wait(
                    asking, timeout=next(pauses_s, None), return_when=asyncio.FIRST_COMPLETED
                )
                if done:
                    return done.pop().result()
        finally:
            for each in asking:
                each.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
