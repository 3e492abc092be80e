"""Answering vehicles that ask to be enrolled, on `enrol.<token id>` from account ENROL.

`rules.decide` decides; here it is looked up, signed and stored, in one transaction with what was
decided on. Every request leaves a line in the log.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import msgspec
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from backhaul_codec.protocol.enrolment import (
    EnrolmentError,
    EnrolmentRefused,
    Request,
    read_request,
    request_subject,
    write_answer,
)
from backhaul_codec.protocol.identity import Identity
from backhaul_hub.access.identity_documents import Documents
from backhaul_hub.access.revocations import revocations
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.devices import enrolled, enrolled_anew, read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.enrol import rows as enrolment_rows
from backhaul_hub.enrol.rules import Enrolment, Repeat, decide
from backhaul_hub.enrol.tokens import TokenSettings
from backhaul_hub.errors import HubError
from backhaul_hub.nats.rate_limit import PENDING_MAX, RateLimiter
from backhaul_hub.nats.spoofed_reply import is_spoofed
from backhaul_runtime.clock import Clock

log = structlog.get_logger(__name__)

_NS_PER_S = 1_000_000_000


@dataclass(eq=False)
class EnrolmentService:
    """Enrols who brings a token, for as long as its connection lives.

    Args:
        documents: makes what a vehicle is told.
        clock: says whether a token has expired.
        learn: has servers and control plane know of a new device, before it is told that it is one.
    """

    _registry: Registry
    _documents: Documents
    _clock: Clock
    _learn: Callable[[], Awaitable[None]]

    def __post_init__(self) -> None:
        self._limiter = RateLimiter()
        self._to_learn = False

    async def listen(self, client: Client) -> None:
        """Answer the requests over this connection, in account HUB."""

        async def asked(message: Msg) -> None:
            # The subject is the token's own, which the server sees to. What is not answered is asked again.
            if is_spoofed(message.reply) or not self._limiter.take(
                message.subject, self._clock.monotonic_s()
            ):
                return
            answer = await self.answer(message.subject, message.data)
            with contextlib.suppress(NatsError, ValueError):  # ValueError: nobody wants an answer
                await message.respond(write_answer(answer))

        await client.subscribe(request_subject("*"), cb=asked, pending_msgs_limit=PENDING_MAX)

    async def answer(self, subject: str, body: bytes) -> Identity | EnrolmentRefused:
        """Return the answer to one request; its effects are stored then."""
        try:
            request = read_request(subject, body)
        except EnrolmentError as error:
            log.warning("enrolment_refused", subject=subject, code="garbage", why=str(error))
            return EnrolmentRefused(code="garbage", message=str(error))
        asked = {"token": request.token, "public_key": request.public_key}
        try:
            answer, is_new = await self._registry.write_decided(lambda: self._decide(request))
            if isinstance(answer, EnrolmentRefused):
                log.warning("enrolment_refused", **asked, code=answer.code, why=answer.message)
                return answer
            if is_new:
                log.info("enrolled", device=answer.device, **asked)
            # Not for every repeat: it takes its time where a server of a cluster is away.
            if self._to_learn:
                await self._learn()
                self._to_learn = False
        except (HubError, NatsError, OSError) as error:
            log.warning("enrolment_not_answered", **asked, error=str(error))
            return EnrolmentRefused(
                code="busy", message="the hub has trouble of its own; its log says which"
            )
        return answer

    async def _decide(
        self, request: Request
    ) -> tuple[Sequence[RowChange], tuple[Identity | EnrolmentRefused, bool]]:
        """Return the statements to store, the answer, and whether that enrols somebody."""
        found = await enrolment_rows.find(self._registry, request.token)
        known = (await read_devices(self._registry)).get(found.device) if found else None
        spent = {row.public_key for row in await revocations(self._registry)}
        now_ns = self._clock.now_ns()
        decision = decide(request, found, known, spent, now_ns)
        if isinstance(decision, EnrolmentRefused):
            return [], (decision, False)
        assert found is not None
        if isinstance(decision, Repeat):
            assert known is not None
            # Its key may be another by now, and the hub's address.
            return [], (self._documents.renew(known, now_s=now_ns // _NS_PER_S), False)
        device = _device(found, known, request.public_key, now_ns)
        link = _settings(found).link
        document = self._documents.make(device, link, now_s=now_ns // _NS_PER_S)
        # What the device needs first, its row last: broken off between, it asks again.
        self._documents.write(document)
        stored = enrolled_anew(device) if known else enrolled(device)
        # Before it is stored: the connection may be closed then, and this with it, where floods are seen to.
        self._to_learn = True
        return [enrolment_rows.use(found, request.public_key, now_ns), *stored], (document, True)


def _device(enrolment: Enrolment, known: Device | None, public_key: str, now_ns: int) -> Device:
    """Return the device that a token makes; of one that was revoked all but its login stays."""
    nodes = _settings(enrolment).nodes
    if known is None:
        return Device(enrolment.device, enrolment.device_token, public_key, now_ns, nodes)
    leaving = tuple(sorted({*known.nodes, *known.leaving} - {*nodes}))
    return replace(
        known,
        token=enrolment.device_token,
        public_key=public_key,
        nodes=nodes,
        leaving=leaving,
        revoked_ns=0,
    )


def _settings(enrolment: Enrolment) -> TokenSettings:
    return msgspec.json.decode(enrolment.settings, type=TokenSettings)
