"""The dictionaries of vehicles while the control plane runs: brought in line at the start, asked for where they miss."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog
from nats.errors import Error as NatsError

from backhaul_hub.control.ground import Ground
from backhaul_hub.control.subsystem import Subsystem, Tasks
from backhaul_hub.device import DeviceLink
from backhaul_hub.errors import HubError
from backhaul_hub.uplink.dictionaries import Dictionaries
from backhaul_runtime.trouble import Trouble

log = structlog.get_logger(__name__)

_INTERVAL_S = 1.0
_LOOK_S = 10.0


class DictionaryShell(Subsystem):
    """Its `book` is there once it has started."""

    book: Dictionaries

    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    async def start(self) -> None:
        """Have hub.db and the stream DICT hold the same, before anything of UP is looked at."""
        ground = self._ground
        shards = ground.config.fleet.shards
        self.book = Dictionaries(ground.api, ground.registry, ground.clock, shards=shards)
        await self.book.begin()

    async def ask(
        self,
        links: Mapping[str, DeviceLink],
        settled: Callable[[], bool],
        interval_s: float = _INTERVAL_S,
    ) -> None:
        """Ask connected vehicles for the dictionaries that messages of theirs wait for; for ever.

        Args:
            links: of the devices that have ever connected.
            settled: whether all that UP holds has been read: it may bring them.
            interval_s: between two looks.
        """
        while True:
            await asyncio.sleep(interval_s)
            if settled():
                up = {device: link.since_ns for device, link in links.items() if link.up}
                for device, digest in self.book.awaited.asks(up, self._ground.clock.monotonic_s()):
                    await self._ask(device, digest.hex())

    def tasks(self) -> Tasks:
        """Return the watch on the stream: it may have been emptied, or put back from an older copy."""
        yield self._look()

    async def _look(self) -> None:
        trouble = Trouble(log, "dictionaries_not_compared", HubError, NatsError, wait_s=0.0)
        while True:
            await asyncio.sleep(_LOOK_S)
            async with trouble:
                await self.book.look()

    async def _ask(self, device: str, digest: str) -> None:
        try:
            body = msgspec.json.encode({"digest": digest})
            await self._ground.api.publish(f"in.{device}.s.dictionary", body)
        except (HubError, NatsError) as error:
            log.warning("dictionary_not_asked", device=device, error=str(error))
        else:
            log.info("dictionary_asked", device=device, digest=digest)
