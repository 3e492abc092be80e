"""When something new of each vehicle was stored at the hub: in its streams, by their own stamps."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nats.errors import Error as NatsError

from backhaul_codec.subjects import parse_uplink
from backhaul_hub.errors import HubError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.nats.stream_reader import StoredReader
from backhaul_hub.shards import up_name
from tests.support.errors import TrialError

if TYPE_CHECKING:
    from nats.aio.client import Client

    from tests.support.rig.parts import HubRig

_POLL_S = 0.2
_READ_MESSAGES = 2000


class Arrivals:
    """Reads the shards of UP from where they end now.

    Args:
        client: stays connected, however often the servers start anew.
    """

    def __init__(self, client: Client, shards: int) -> None:
        self.first_ns: dict[tuple[str, str], int] = {}
        """When the first new message of each vehicle and lane was stored."""
        self.messages = 0
        self.first_stored_ns, self.last_stored_ns = 0, 0
        self._client = client
        self._next = dict.fromkeys(map(up_name, range(shards)), 1)

    async def begin(self) -> None:
        """Take what is there for old."""
        for stream in self._next:
            info = await JetStreamApi(self._client).info(stream)
            self._next[stream] = info["state"]["last_seq"] + 1

    def of(self, lane: str) -> dict[str, int]:
        """Return when the first new message of each vehicle was stored, of a lane."""
        return {device: at for (device, its), at in self.first_ns.items() if its == lane}

    async def look(self) -> None:
        """Take in what has come since."""
        for stream in self._next:
            reader = StoredReader(self._client, stream)
            try:
                while batch := await reader.read(self._next[stream], _READ_MESSAGES):
                    for message in batch:
                        place = parse_uplink(message.subject)
                        self.first_ns.setdefault((place.device, place.lane), message.stored_ns)
                        self.last_stored_ns = max(self.last_stored_ns, message.stored_ns)
                        self.first_stored_ns = min(
                            self.first_stored_ns or message.stored_ns, message.stored_ns
                        )
                    self.messages += len(batch)
                    self._next[stream] = batch[-1].seq + 1
            except (HubError, NatsError, TimeoutError):
                continue  # the server is not there yet

    async def until(self, hub: HubRig, count: int, lane: str, timeout_s: float) -> None:
        """Wait until something new of a lane has come of so many vehicles.

        Raises:
            TrialError: it has not, in time.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        while len(self.of(lane)) < count:
            hub.control.assert_alive()
            if loop.time() > end_s:
                there = len(self.of(lane))
                raise TrialError(f"{lane} of {there} of {count} vehicles came in {timeout_s:g} s")
            await asyncio.sleep(_POLL_S)
            await self.look()
