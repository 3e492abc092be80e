"""What has arrived at the hub, counted from outside by reading UP like any NATS client."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from backhaul_codec import decode
from backhaul_codec.subjects import parse_uplink
from backhaul_codec.wire.plain_reader import PlainReader
from backhaul_hub import shards

if TYPE_CHECKING:
    from tests.support.rig.parts import HubRig


class HubView:
    """Counts readings in UP, each message once whatever the link repeats."""

    def __init__(self) -> None:
        self.points: Counter[str] = Counter()
        """Readings at the hub, by device."""
        self._seen: set[tuple[str, str, int, int]] = set()
        self._dictionaries = PlainReader()
        self._changed = asyncio.Condition()

    async def watch(self, hub: HubRig) -> None:
        """Read UP_00 from its beginning until cancelled."""
        # What account HUB hears of account UP comes under this name.
        client = await hub.connect(inbox_prefix=shards.DELIVERIES.encode())
        try:
            # An ordered consumer starts anew by itself where it misses a message.
            subscription = await client.jetstream(prefix=shards.API).subscribe(
                "up.>", stream="UP_00", ordered_consumer=True
            )
            async for message in subscription.messages:
                self._count(message.subject, message.data)
                async with self._changed:
                    self._changed.notify_all()
        finally:
            await client.close()

    async def until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Wait until something is true of `points`.

        Raises:
            TimeoutError: it did not come true in time.
        """
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(condition)

    def _count(self, subject: str, body: bytes) -> None:
        uplink = parse_uplink(subject)
        body = self._dictionaries.take(uplink, body)
        if uplink.system:
            return
        message = decode(body, node=uplink.node, type=uplink.type, key=uplink.key)
        identity = (uplink.device, uplink.lane, message.epoch, message.seq)
        if identity not in self._seen:
            self._seen.add(identity)
            self.points[uplink.device] += len(message.points)
