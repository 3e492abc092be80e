"""Speaking to vehicles beside DOWN: the shell around `beside.Beside`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_codec.kinds import Lane
from backhaul_codec.protocol.push import beside_subject
from backhaul_hub.device import Device
from backhaul_hub.lane_names import DOWN, down_filters, node_lanes
from backhaul_hub.links.beside import Beside, Said
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_runtime.clock import Clock

LOOK_S = 1.0
log = structlog.get_logger(__name__)


class Speaker:
    """Speaks over the connection that writes into DOWN.

    Args:
        device: returns a device that may connect, None for any other.
    """

    def __init__(
        self,
        clock: Clock,
        device: Callable[[str], Device | None],
    ) -> None:
        self.beside = Beside()
        self._clock = clock
        self._device = device
        self._client: Client | None = None

    def start(self, client: Client, api: JetStreamApi) -> None:
        """Say from now on each message that this API publishes to a device."""
        self._client = client
        api.on_published = self._stored

    async def run(self) -> None:
        """Say all that is due; for ever. After each reconnect wake all, as at first: a message may be unsaid."""
        assert self._client is not None
        connects = 0
        while True:
            now_s = self._clock.monotonic_s()
            if connects != (connects := self._client.stats["reconnects"]):
                self.beside.wake_all(now_s)
            for said in self.beside.due(now_s):
                await self._say(said)
            await asyncio.sleep(LOOK_S)

    def linked(self, device: str) -> None:
        """Take in that a device's link has come up."""
        self.beside.linked(device, self._clock.monotonic_s())

    async def last_seqs(self, api: JetStreamApi, device: str) -> dict[Lane, int] | None:
        """Return the last sequence in DOWN of the part that each stream of a device sources; None for no such device.

        By the lane of the stream's node, "" for IN itself.

        Raises:
            HubError: nobody answered.
        """
        known = self._device(device)
        if known is None:
            return None
        return {
            lane: max([await api.last_seq(DOWN, part) for part in down_filters(known, lane)])
            for lane in ("", *node_lanes(known))
        }

    async def _stored(self, subject: str, body: bytes) -> None:
        said = self.beside.stored(subject, body, self._clock.monotonic_s())
        if said is not None:
            await self._say(said)

    async def _say(self, said: Said) -> None:
        device = self._device(said.device)
        if device is None or self._client is None:
            return
        try:
            subject = beside_subject(device.id, device.token, said.leaf_subject)
            await self._client.publish(subject, said.body)
        except NatsError as error:
            log.warning("not_said_beside", device=device.id, error=repr(error))
            self.beside.wake(device.id, self._clock.monotonic_s() + LOOK_S)
