"""Speaking to vehicles beside DOWN: the shell around `beside.Beside`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_codec.kinds import Lane
from backhaul_codec.protocol.push import beside_subject
from backhaul_hub.device import Device
from backhaul_hub.lane_names import DOWN, down_filters, node_lanes
from backhaul_hub.links.beside import Beside, Said
from backhaul_hub.nats.jetstream import JetStreamApi, Publication
from backhaul_runtime.clock import Clock
from backhaul_runtime.patched_client import PatchedClient

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
        self._client: PatchedClient | None = None

    def start(self, client: Client, api: JetStreamApi) -> None:
        """Say from now on each message that this API publishes to a device; `client` is a `PatchedClient`."""
        self._client = cast("PatchedClient", client)
        api.on_published = self._stored

    async def run(self) -> None:
        """Say all that is due; for ever. After each reconnect wake all, as at first: a message may be unsaid."""
        assert self._client is not None
        connects = 0
        while True:
            now_s = self._clock.monotonic_s()
            if connects != (connects := self._client.stats["reconnects"]):
                self.beside.wake_all(now_s)
            await self._say(self.beside.due(now_s))
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

    async def _stored(self, messages: Sequence[Publication]) -> None:
        now_s = self._clock.monotonic_s()
        found = (self.beside.stored(subject, body, now_s) for subject, body in messages)
        await self._say([said for said in found if said is not None])

    async def _say(self, some: Sequence[Said]) -> None:
        found = [(self._device(said.device), said) for said in some]
        known = [(device, said) for device, said in found if device is not None]
        if not known or self._client is None:
            return
        try:
            await self._client.publish_many(
                (beside_subject(device.id, device.token, said.leaf_subject), b"", said.body)
                for device, said in known
            )
        except NatsError as error:
            devices = {device.id for device, _ in known}
            log.warning("not_said_beside", devices=sorted(devices)[:10], error=repr(error))
            for device in sorted(devices):
                self.beside.wake(device, self._clock.monotonic_s() + LOOK_S)
