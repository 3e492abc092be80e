"""What time it is: the hub's answers to `clk.<device>`, over core NATS, stored nowhere.

A question may name epochs of the vehicle's ledger; then what the hub knows of them goes along (known.py).
It may also say how far lanes go of which the hub confirms nothing: their sources may have stopped, and
what goes by the stream cannot say so.

Who asks is in the subject: the server lets a device publish only its own, and what may show another
is refused (forged.py). The answer goes to
the subject that the hub knows for this device, never to the question's reply subject: no permission
is checked on those, so a device could have the hub publish anywhere in its own account.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import msgspec
import structlog
from msgspec import Meta
from nats.errors import Error as NatsError

from .accounts import CLOCK_QUESTIONS, clock_answer_subject
from .allowance import PENDING_MAX, Allowance
from .forged import is_forged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from .clock import Clock
    from .known import Known, Lanes

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


class Question(msgspec.Struct, frozen=True):
    """What a device asks: ``t1`` is its own affair, and comes back with the answer.

    ``lanes``: the last seqs of lanes of ``epoch`` that stand still.
    """

    t1: Annotated[int, Meta(ge=-_INT64_MAX, le=_INT64_MAX)]
    epochs: Annotated[tuple[Epoch, ...], Meta(max_length=EPOCHS_MAX)] = ()
    epoch: Epoch | None = None
    lanes: Annotated[dict[str, Seq], Meta(max_length=LANES_MAX)] = {}


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """When the question arrived here (``t2``) and the answer left (``t3``): ns since 1970.

    ``epochs``: what is known of those that were asked about; None where that cannot be said now.
    """

    t1: int
    t2: int
    t3: int
    epochs: dict[int, Lanes] | None = None


_decode = msgspec.json.Decoder(Question).decode


class ClockService:
    """Answers for as long as its connection lives.

    Args:
        client: a connection in account HUB.
        token_of: a device's token, None for a device that is not known.
        known: knows what the hub knows of epochs; None: nobody is told.
        may_ask: counts a device's question, and says whether it may ask still (flood.py).
        on_still: called with a device, an epoch, and the last seqs of lanes of it that stand still.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        token_of: Callable[[str], str | None],
        known: Known | None = None,
        may_ask: Callable[[str], bool] = lambda _: True,
        on_still: Callable[[str, int, Mapping[str, int]], None] = lambda *_: None,
    ) -> None:
        self.answered = 0
        self.refused = 0
        self._client = client
        self._clock = clock
        self._token_of = token_of
        self._allowance = Allowance()
        self._known = known
        self._may_ask = may_ask
        self._on_still = on_still
        self._waiting: set[asyncio.Task[None]] = set()

    async def listen(self, client: Client) -> None:
        """Answer what is asked over a connection in account HUB."""
        await client.subscribe(
            CLOCK_QUESTIONS, cb=self._on_question, pending_msgs_limit=PENDING_MAX
        )

    async def _on_question(self, message: Msg) -> None:
        t2 = self._clock.now_ns()
        device = message.subject.partition(".")[2]
        token = self._token_of(device)
        # What is cheap to refuse comes first: there may be a flood of it.
        if token is None or is_forged(message.reply) or not self._may_ask(device):
            self.refused += 1
            return
        try:
            question = _decode(message.data)
        except msgspec.DecodeError:
            self.refused += 1
            return
        if not self._allowance.take(device, self._clock.monotonic_s()):
            self.refused += 1
            return
        if question.epoch is not None and question.lanes:
            self._on_still(device, question.epoch, question.lanes)
        if question.epochs and self._known is not None and len(self._waiting) < WAITING_MAX:
            task = asyncio.create_task(self._answer(device, token, question, t2, self._known))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)
        else:
            await self._tell(device, token, Answer(question.t1, t2, self._clock.now_ns()))

    async def _answer(
        self, device: str, token: str, question: Question, t2: int, known: Known
    ) -> None:
        """Answer once it is known what the hub knows; the time that takes counts as the hub's."""
        epochs = await known.of(device, question.epochs)
        await self._tell(device, token, Answer(question.t1, t2, self._clock.now_ns(), epochs))

    async def _tell(self, device: str, token: str, answer: Answer) -> None:
        try:
            await self._client.publish(
                clock_answer_subject(device, token), msgspec.json.encode(answer)
            )
            self.answered += 1
        except NatsError as error:
            log.warning("time_not_told", device=device, error=str(error))
