"""Reading UP: one shard's messages into continuity and to consumers, garbage into quarantine.

`UplinkReader` is the shell; `examine` is the decision about one message and does no I/O.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import msgspec
import structlog
from msgspec import Meta
from nats.errors import Error as NatsError

from backhaul_codec import CodecError, Opaque, decode
from backhaul_codec.placed import check_placed
from backhaul_codec.subjects import SubjectError, Uplink, node_of_lane, parse_uplink

from .continuity import Continuity, LaneKey
from .errors import HubError, JetStreamError, RegistryError
from .jetstream import WRONG_LAST_SEQUENCE, JetStreamApi
from .registry import Position, Registry
from .stored import Stored, StoredReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.aio.client import Client

    from .consumers import Consumer

log = structlog.get_logger(__name__)

_BATCH_MESSAGES = 512
_IDLE_S = 0.1
_RETRY_S = 1.0
# The rest stays in UP; the copy and its headers must fit into one message.
_QUARANTINED_BYTES_MAX = 1 << 20
_JSON = 6


@dataclass(frozen=True, slots=True)
class Receipt:
    """A device's word that some seqs of a lane will never come."""

    key: LaneKey
    low: int
    high: int
    reason: str


@dataclass(frozen=True, slots=True)
class Examined:
    """What one message of UP says."""

    key: LaneKey
    seq: int
    uplink: Uplink
    receipt: Receipt | None = None


class UnreadableError(Exception):
    """A message of UP that no reader will understand: `code` for counting, `reason` in words."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def examine(subject: str, body: bytes) -> Examined:
    """Read one message as far as continuity needs, and check all the rest of it.

    Raises:
        UnreadableError: it is garbage, by its subject or its body.
    """
    try:
        uplink = parse_uplink(subject)
        header = check_placed(uplink, body)
    except SubjectError as error:
        raise UnreadableError("subject", str(error)) from error
    except CodecError as error:
        raise UnreadableError(error.code, error.reason) from error
    if header.epoch == 0 or header.seq == 0:
        raise UnreadableError("no_position", "the message has no epoch and seq of a lane")
    key = LaneKey(uplink.device, uplink.lane, header.epoch)
    is_receipt = (uplink.letter, uplink.type) == ("e", "receipt")
    receipt = _receipt(uplink.device, body) if is_receipt else None
    return Examined(key, header.seq, uplink, receipt)


class UplinkReader:
    """Reads one UP stream from where hub.db says, for ever.

    Args:
        client: a connection in account HUB.
        consumers: told of every good message, in this order (see consumers.py).
    """

    def __init__(
        self,
        stream: str,
        client: Client,
        api: JetStreamApi,
        continuity: Continuity,
        registry: Registry,
        consumers: Sequence[Consumer] = (),
    ) -> None:
        self.stream = stream
        self.position = Position()
        self._reader = StoredReader(client, stream)
        self._api = api
        self._went_back = False
        self._continuity = continuity
        self._registry = registry
        self._consumers = consumers

    async def run(self) -> None:
        """Read until cancelled; trouble with the server is logged once and waited out."""
        self.position = await self._registry.position(self.stream)
        trouble = ""
        while True:
            try:
                await self._check_position()
                while not self._went_back:
                    messages = await self._reader.read(self.position.seq + 1, _BATCH_MESSAGES)
                    if trouble:
                        log.info("uplink_resumed", stream=self.stream, seq=self.position.seq)
                        trouble = ""
                    if messages:
                        await self._take(messages)
                    else:
                        await asyncio.sleep(_IDLE_S)
            except (HubError, NatsError, OSError) as error:
                if str(error) != trouble:
                    trouble = str(error) or repr(error)
                    log.warning("uplink_interrupted", stream=self.stream, error=trouble)
                await asyncio.sleep(_RETRY_S)

    def note_state(self, created: str, last_seq: int) -> None:
        """Take in how the stream is now: a store put back while nobody looked is noticed so."""
        known = self.position
        self._went_back = bool(known.created) and (known.created != created or known.seq > last_seq)

    async def _check_position(self) -> None:
        """See that the stream is still the one that was read, and as long as it was."""
        self._went_back = False
        info = await self._api.request(f"STREAM.INFO.{self.stream}")
        created, last_seq = info["created"], info["state"]["last_seq"]
        was_at = self.position.seq
        if not self.position.created:
            self.position = Position(created)
        elif self.position.created != created:
            log.error("stream_recreated", stream=self.stream, was_at=was_at)
            self.position = Position(created, 0, self.position.quarantined)
        elif was_at > last_seq:
            # The store went back in time: a restored backup, or a power cut with a lazy sync.
            log.error("stream_rolled_back", stream=self.stream, was_at=was_at, last_seq=last_seq)
            # All of it is read again: what is known already counts as a repeat, and what the
            # stream took in since it went back is not passed over.
            self.position = Position(created, 0, self.position.quarantined)

    async def _take(self, messages: list[Stored]) -> None:
        """Set garbage aside, count the rest, and store both with the new position."""
        examined: list[tuple[Stored, Examined]] = []
        for message in messages:
            try:
                examined.append((message, examine(message.subject, message.body)))
            except UnreadableError as error:
                await self._quarantine(message, error)
        async with self._registry.turn:
            # From here on nothing is read again, so nothing is counted twice.
            for message, said in examined:
                self._tell(message, said)
            garbage = len(messages) - len(examined)
            self.position = Position(
                self.position.created, messages[-1].seq, self.position.quarantined + garbage
            )
            await self._store()
        for consumer in self._consumers:
            consumer.stored()

    def _tell(self, message: Stored, said: Examined) -> None:
        is_new = self._continuity.arrived(said.key, said.seq, len(message.body), message.stored_ns)
        if said.receipt is not None:
            self._explain(said.receipt)
        for consumer in self._consumers:
            consumer.on_message(said.key, said.seq, said.uplink, message.body, is_new)

    async def _store(self) -> None:
        """Store the position and what changed on the way to it, trying until the disk takes it."""
        lanes = self._continuity.take_changed()
        changes = [change for each in self._consumers for change in each.take_changes()]
        while True:
            try:
                await self._registry.store(self.stream, self.position, lanes, changes)
            except RegistryError as error:
                log.warning("hub_db_does_not_write", stream=self.stream, error=str(error))
                await asyncio.sleep(_RETRY_S)
            else:
                return

    def _explain(self, receipt: Receipt) -> None:
        log.warning(
            "receipt",
            device=receipt.key.device,
            lane=receipt.key.lane,
            low=receipt.low,
            high=receipt.high,
            reason=receipt.reason,
        )
        self._continuity.explain(receipt.key, receipt.low, receipt.high)

    async def _quarantine(self, message: Stored, error: UnreadableError) -> None:
        log.warning(
            "quarantined",
            stream=self.stream,
            seq=message.seq,
            subject=message.subject,
            reason=error.reason,
        )
        try:
            await self._api.publish(
                # A stream that was made anew counts its sequences anew.
                f"quarantine.{self.stream}.{_digits(self.position.created)}.{message.seq}",
                message.body[:_QUARANTINED_BYTES_MAX],
                {
                    "Backhaul-Size": str(len(message.body)),
                    "Backhaul-Subject": message.subject,
                    "Backhaul-Code": error.code,
                    "Backhaul-Reason": error.reason.replace("\n", " "),
                    # A stretch of UP that is read again sets nothing aside twice.
                    "Nats-Expected-Last-Subject-Sequence": "0",
                },
            )
        except JetStreamError as refused:
            if refused.code != WRONG_LAST_SEQUENCE:
                raise


def _digits(text: str) -> str:
    return "".join(character for character in text if character.isdigit())


class _ReceiptBody(msgspec.Struct, frozen=True):
    """The JSON of an `e.receipt` event."""

    lane: str
    epoch: Annotated[int, Meta(ge=1, lt=1 << 32)]
    lo: Annotated[int, Meta(ge=1, lt=1 << 62)]
    hi: Annotated[int, Meta(ge=1, lt=1 << 62)]
    reason: str


def _receipt(device: str, body: bytes) -> Receipt:
    value = decode(body, node="-", type="-", key="").points[0].value
    if not isinstance(value, Opaque) or value.dtype != _JSON:
        raise UnreadableError("receipt", "a receipt whose value is no JSON")
    try:
        said = msgspec.json.decode(value.data, type=_ReceiptBody)
    except msgspec.DecodeError as error:
        raise UnreadableError("receipt", f"a receipt that is none: {error}") from error
    try:
        node_of_lane(said.lane)
    except SubjectError as error:
        raise UnreadableError("receipt", f"a receipt for no lane: {error}") from error
    if said.lo > said.hi:
        raise UnreadableError("receipt", f"a receipt for no range: {said.lo}..{said.hi}")
    return Receipt(LaneKey(device, said.lane, said.epoch), said.lo, said.hi, said.reason)
