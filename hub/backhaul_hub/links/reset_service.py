"""Resets of durables on DOWN: a leaf's question before it sources through one.

No device reaches the hub's JetStream API itself, not even for this one question: the API goes by the
subject that it is told, and a leaf can have it told another (nats/spoofed_reply.py), as
`$JS.API.STREAM.DELETE.UP_00`. So the control plane asks in its place, by the subject that the server
has let through; of one durable one question at a time, and no more than a `RateLimiter` of them.

It also looks at the answer. The leaf takes "delivered" in it for what it has got, and while somebody
still listens the server may say there what it has delivered since the reset, to nobody: all of that
would never come again, commands among it (ADR 1, case 2). Such a durable is reset once more.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import msgspec
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from backhaul_codec.device_token import DEVICE_TOKEN
from backhaul_codec.strict.json import JsonError, Reader
from backhaul_hub.lane_names import DOWN, RESETS
from backhaul_hub.nats.rate_limit import PENDING_MAX, RateLimiter
from backhaul_runtime.clock import Clock
from backhaul_runtime.jetstream import API

WAITING_MAX = 1024
"""Resets under way; a leaf whose reset is passed over asks again after 5 s."""
_ANSWER_S_MAX = 5.0
RESETS_MAX = 5
"""How often one question resets; after that it gets no answer, and the leaf asks again."""
# What the server puts in place of the reply that another account's question came with.
_ACROSS_ACCOUNTS = "_R_."
# See `lane_names.down_durable`.
_DURABLE = re.compile(rf"(?P<device>.+?)-{DEVICE_TOKEN}(_.+)?")
log = structlog.get_logger(__name__)


class ResetService:
    """Passes resets on for as long as its connection lives.

    Args:
        may_ask: counts a device's question, and says whether it may ask still (flood/detector.py).
        on_reset: hears whose durable was reset: its leaf sets up its source anew.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        may_ask: Callable[[str], bool] = lambda _: True,
        on_reset: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.refused = 0
        self._client = client
        self._clock = clock
        self._may_ask = may_ask
        self._on_reset = on_reset
        self._limiter = RateLimiter()
        self._waiting: dict[str, asyncio.Task[None]] = {}

    async def listen(self, client: Client) -> None:
        """Pass on the questions over a connection in account HUB."""
        await client.subscribe(RESETS, cb=self._on_question, pending_msgs_limit=PENDING_MAX)

    async def _on_question(self, message: Msg) -> None:
        # A subject that is not the true one comes with the spoofed reply that shows it.
        honest = message.reply.startswith(_ACROSS_ACCOUNTS)
        durable = message.subject.rpartition(".")[2]
        whose = _DURABLE.fullmatch(durable)
        if (
            not honest
            or whose is None
            or not self._may_ask(whose["device"])
            or durable in self._waiting
            or len(self._waiting) >= WAITING_MAX
            or not self._limiter.take(durable, self._clock.monotonic_s())
        ):
            self.refused += 1
            return
        self._waiting[durable] = task = asyncio.create_task(
            self._pass_on(message, durable, whose["device"])
        )
        task.add_done_callback(lambda _: self._waiting.pop(durable, None))

    async def _pass_on(self, message: Msg, durable: str, device: str) -> None:
        subject = f"{API}.CONSUMER.RESET.{DOWN}.{durable}"
        try:
            for _ in range(RESETS_MAX):
                answer = await self._client.request(subject, message.data, timeout=_ANSWER_S_MAX)
                if not says_too_much(answer.data):
                    # Not over the connection that it came on, which may be gone by now (links/reception.py).
                    await self._client.publish(message.reply, answer.data)
                    self._on_reset(device)
                    return
                log.info("reset_again", durable=durable)
        except NatsError as error:
            log.warning("reset_not_passed_on", durable=durable, error=repr(error))


class _Delivered(msgspec.Struct):
    stream_seq: int = 0


class _Answer(msgspec.Struct):
    """A server's answer to a reset, as far as it is looked at; a refusal has none of it."""

    reset_seq: int = 0
    delivered: _Delivered = msgspec.field(default_factory=_Delivered)


_read_answer = Reader(_Answer).read


def says_too_much(answer: bytes) -> bool:
    """Tell whether more was delivered than the reset has left behind it."""
    try:
        said = _read_answer(answer)
    except JsonError:
        return False
    return 0 < said.reset_seq <= said.delivered.stream_seq
