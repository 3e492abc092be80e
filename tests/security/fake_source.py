"""A leaf that says it is the stream OUT_bulk which the hub sources, and delivers what it likes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Self

from tests.support.waiting import until

if TYPE_CHECKING:
    from backhaul_codec.protocol.identity import Identity

    from .leaf_client import Heard, RawLeaf

_SET_UP_S_MAX = 60.0
_STREAMS = ("OUT_live", "OUT_bulk")


class FakeSource:
    """Answers the hub's resets of the durable on OUT_bulk; `deliver` sends what it then sources."""

    def __init__(self, leaf: RawLeaf, identity: Identity) -> None:
        self._leaf = leaf
        self._device = identity.device
        self._token = identity.token
        self._ready: set[str] = set()
        self.resets = 0
        """How often the hub has set its source of OUT_bulk up."""
        self._sent = 0
        self.reply = ""
        """Of the answer to a reset."""
        leaf.answer = self._answer

    async def open(self) -> Self:
        """Connect, and wait until the hub sources from here."""
        # At once: the hub asks as soon as the link is there, and then not again for 5 s.
        await self._leaf.open(wait=False)
        await self._leaf.listen(
            *(f"$JS.{self._device}.API.CONSUMER.RESET.{each}.{self._token}" for each in _STREAMS),
            f"$JS.FC.OUT_bulk.{self._token}.*",
        )
        await until(lambda: len(self._ready) == len(_STREAMS), deadline_s=_SET_UP_S_MAX)
        await self._leaf.flush()
        return self

    @property
    def closed(self) -> bool:
        """Whether the server has ended its link."""
        return self._leaf.closed.is_set()

    async def flush(self) -> None:
        """Wait until the server has taken in all that was sent."""
        await self._leaf.flush()

    async def deliver(
        self, payload: bytes, *, subject: str = "f.gps", headers: bytes = b""
    ) -> None:
        """Deliver a message as of this subject, which the server takes from the reply."""
        self._sent += 1
        place = f"1.{self._sent}.{self._sent}.1700000000000000000.0"
        reply = f"$JS.ACK.OUT_bulk.{self._token}.{place}@{subject}"
        await self.speak(payload, reply=reply, headers=headers)

    async def skip(self) -> None:
        """Deliver out of turn, which has the hub set its source up again."""
        self._sent += 1000
        await self.deliver(b"attack")

    async def speak(self, payload: bytes = b"", *, reply: str = "", headers: bytes = b"") -> None:
        """Send anything to where the hub's source listens."""
        await self._leaf.publish(
            f"dlv.{self._device}.{self._token}_bulk", payload, reply=reply, headers=headers
        )

    async def _answer(self, heard: Heard) -> None:
        stream = heard.subject.split(".")[-2]
        if ".CONSUMER.RESET." not in heard.subject or stream not in _STREAMS:
            return
        nothing = {"consumer_seq": 0, "stream_seq": 0}
        answer = {
            "type": "io.nats.jetstream.api.v1.consumer_reset_response",
            "stream_name": stream,
            "name": self._token,
            "created": "2026-01-01T00:00:00Z",
            "config": {"durable_name": self._token, "ack_policy": "flow_control"},
            "delivered": nothing,
            "ack_floor": nothing,
            "reset_seq": 1,
        }
        if stream == "OUT_bulk":
            self._sent = 0
            self.resets += 1
        await self._leaf.publish(heard.reply, json.dumps(answer).encode(), reply=self.reply)
        self._ready.add(stream)
