"""The time: the hub's answers to `clk.<device>`, over core NATS, stored nowhere.

A question may name epochs of the vehicle's ledger; then what the hub knows of them goes along (uplink/known_epochs.py).
It may also say how far lanes go of which the hub confirms nothing: their sources may have stopped, and
what goes by the stream cannot say so. And it may say what the vehicle says of itself (vehicles/core.py).

Who asks is in the subject: the server lets a device publish only its own, and what may show another
is refused (nats/spoofed_reply.py). The answer goes to
the subject that the hub knows for this device, never to the question's reply subject: no permission
is checked on those, so a device could have the hub publish anywhere in its own account.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated

import msgspec
import structlog
from msgspec import Meta
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from backhaul_codec.strict.json import JsonError, Reader
from backhaul_hub.access.rules import CLOCK_QUESTIONS, clock_answer_subject
from backhaul_hub.errors import HubError
from backhaul_hub.nats.rate_limit import PENDING_MAX, RateLimiter
from backhaul_hub.nats.spoofed_reply import is_spoofed
from backhaul_hub.uplink.hashes import HASHES_MAX
from backhaul_hub.uplink.known_epochs import Ends, Known, Lanes
from backhaul_runtime.clock import Clock

EPOCHS_MAX = 16
"""Epochs in one question."""
LANES_MAX = 1024
"""Lanes in one question."""
WAITING_MAX = 256
"""Questions about epochs that wait until all of UP is read; what comes beside is told the time only."""
_INT64_MAX = (1 << 63) - 1
Epoch = Annotated[int, Meta(ge=1, lt=1 << 32)]
Seq = Annotated[int, Meta(ge=1, lt=1 << 62)]
log = structlog.get_logger(__name__)


class AskedHashes(msgspec.Struct, frozen=True):
    """Which hashes a device asks for: of the seqs ``lo`` to ``hi`` of a lane."""

    lane: Annotated[str, Meta(max_length=256)]
    epoch: Epoch
    lo: Seq
    hi: Seq


class HashesAnswer(msgspec.Struct, frozen=True):
    """The hashes of a lane's messages from ``lo`` on, as uplink/hashes.py has them."""

    lane: str
    epoch: int
    lo: int
    hashes: list[str | None]


class PushWord(msgspec.Struct, frozen=True):
    """The lanes of an epoch that a vehicle pushes, and after which seq (links/pushes.py); all others are to be sourced.

    ``in_``: it would not source DOWN, and listens to what is spoken beside (links/beside.py). ``terse``: it reads terse
    watermarks there, and waits for them.
    """

    epoch: Epoch
    lanes: Annotated[dict[str, Annotated[int, Meta(ge=0, lt=1 << 62)]], Meta(max_length=LANES_MAX)]
    in_: bool = msgspec.field(name="in", default=False)
    terse: bool = False


class ClockQuestion(msgspec.Struct, frozen=True):
    """A device's question: ``t1`` is its own affair, and comes back with the answer.

    ``lanes``: the last seqs of lanes of ``epoch`` that stand still.
    """

    t1: Annotated[int, Meta(ge=-_INT64_MAX, le=_INT64_MAX)]
    epochs: Annotated[tuple[Epoch, ...], Meta(max_length=EPOCHS_MAX)] = ()
    epoch: Epoch | None = None
    lanes: Annotated[dict[str, Seq], Meta(max_length=LANES_MAX)] = {}
    hashes: AskedHashes | None = None
    push: PushWord | None = None
    vehicle: msgspec.Raw = msgspec.Raw()
    """Empty: it says nothing. Read by whoever wants it: what it says of itself must not cost a vehicle the time."""


class ClockAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """When the question arrived here (``t2``) and the answer left (``t3``): ns since 1970.

    ``epochs``: what is known of those that were asked about; None where that cannot be said now.
    ``chain``: the hashes at their watermarks. ``hashes``: those that were asked for. ``yield_s``: for so long
    the device is to stay away: it is another machine's turn, which has the same identity. ``push``: the lanes that
    no source brings, where the device has said which it would push. ``downs``: the last sequence in DOWN of what comes
    through its IN, and through the stream of each node that has one, by lane, "" for IN; where it would not source them. ``terse``: watermarks
    beside are said so, and more seldom.
    """

    t1: int
    t2: int
    t3: int
    epochs: dict[int, Lanes] | None = None
    chain: dict[int, Ends] = {}
    hashes: HashesAnswer | None = None
    yield_s: int = 0
    push: list[str] | None = None
    downs: dict[str, int] | None = None
    terse: bool = False


_read = Reader(ClockQuestion).read


class ClockService:
    """Answers for as long as its connection lives.

    Args:
        token_of: a device's token, None for a device that is not known.
        known: knows what the hub knows of epochs; None: nobody is told.
        may_ask: counts a device's question, and says whether it may ask still (flood/detector.py).
        on_still: called with a device, an epoch, and the last seqs of lanes of it that stand still.
        on_heard: called with a device whose agent has asked, and what it says of itself, empty for nothing;
            returns for how many seconds it is to stay away.
        on_push: called with a device, an epoch, and the lanes that it would push after their seqs; returns those
            that it may.
        down_ends: returns the last sequence in DOWN of what comes through each stream of a device, None where it has none.
        on_terse: called with a device and whether it reads terse watermarks; returns whether it gets them.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        token_of: Callable[[str], str | None],
        known: Known | None = None,
        may_ask: Callable[[str], bool] = lambda _: True,
        on_still: Callable[[str, int, Mapping[str, int]], None] = lambda *_: None,
        on_heard: Callable[[str, bytes], float] = lambda *_: 0.0,
        on_push: Callable[[str, int, Mapping[str, int]], list[str]] = lambda *_: [],
        down_ends: Callable[[str], Awaitable[dict[str, int] | None]] | None = None,
        on_terse: Callable[[str, bool], bool] = lambda *_: False,
    ) -> None:
        self.answered = 0
        self.refused = 0
        self._client = client
        self._clock = clock
        self._token_of = token_of
        self._limiter = RateLimiter()
        self._known = known
        self._may_ask = may_ask
        self._on_still = on_still
        self._on_heard = on_heard
        self._on_push = on_push
        self._down_ends = down_ends
        self._on_terse = on_terse
        self._waiting: set[asyncio.Task[None]] = set()

    async def listen(self, client: Client) -> None:
        """Answer the questions over a connection in account HUB."""
        await client.subscribe(
            CLOCK_QUESTIONS, cb=self._on_question, pending_msgs_limit=PENDING_MAX
        )

    async def _on_question(self, message: Msg) -> None:
        t2 = self._clock.now_ns()
        device = message.subject.partition(".")[2]
        token = self._token_of(device)
        # What is cheap to refuse comes first: there may be a flood of it.
        if token is None or is_spoofed(message.reply) or not self._may_ask(device):
            self.refused += 1
            return
        try:
            question = _read(message.data)
        except JsonError:
            self.refused += 1
            return
        if not self._limiter.take(device, self._clock.monotonic_s()):
            self.refused += 1
            return
        yield_s = math.ceil(self._on_heard(device, bytes(question.vehicle)))
        if question.epoch is not None and question.lanes:
            self._on_still(device, question.epoch, question.lanes)
        push, word = None, question.push
        terse = self._on_terse(device, word is not None and word.terse)
        if word is not None and not yield_s:
            push = self._on_push(device, word.epoch, word.lanes)
        elif word is None:
            # It pushes nothing, whatever it said before: an older agent may go on in its place.
            self._on_push(device, 0, {})
        asks_known = self._known is not None and (question.epochs or question.hashes)
        asks_end = self._down_ends is not None and word is not None and word.in_
        if (asks_known or asks_end) and not yield_s and len(self._waiting) < WAITING_MAX:
            task = asyncio.create_task(self._answer(device, token, question, t2, push, terse=terse))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)
        else:
            answer = ClockAnswer(
                *(question.t1, t2, self._clock.now_ns()), yield_s=yield_s, push=push, terse=terse
            )
            await self._tell(device, token, answer)

    async def _answer(
        self,
        device: str,
        token: str,
        question: ClockQuestion,
        t2: int,
        push: list[str] | None,
        *,
        terse: bool,
    ) -> None:
        """Answer once the hub's knowledge is at hand; the time that takes counts as the hub's."""
        epochs, chain, downs = None, {}, None
        if question.epochs and self._known is not None:
            epochs = await self._known.of(device, question.epochs)
            chain = {} if epochs is None else await self._known.ends(device, question.epochs)
        hashes = await self._hashes(device, question.hashes)
        if question.push is not None and question.push.in_ and self._down_ends is not None:
            with contextlib.suppress(HubError, NatsError):  # it asks again
                downs = await self._down_ends(device)
        answer = ClockAnswer(
            *(question.t1, t2, self._clock.now_ns(), epochs, chain, hashes),
            push=push,
            downs=downs,
            terse=terse,
        )
        await self._tell(device, token, answer)

    async def _hashes(self, device: str, asked: AskedHashes | None) -> HashesAnswer | None:
        if self._known is None or asked is None or not 0 <= asked.hi - asked.lo < HASHES_MAX:
            return None
        found = await self._known.hashes(device, asked.lane, asked.epoch, asked.lo, asked.hi)
        return None if found is None else HashesAnswer(asked.lane, asked.epoch, asked.lo, found)

    async def _tell(self, device: str, token: str, answer: ClockAnswer) -> None:
        try:
            await self._client.publish(
                clock_answer_subject(device, token), msgspec.json.encode(answer)
            )
            self.answered += 1
        except NatsError as error:
            log.warning("time_not_told", device=device, error=str(error))
