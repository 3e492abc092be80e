"""The hub's knowledge of the epochs of a vehicle's ledger, once all of UP's messages are read.

A vehicle goes on in an epoch only if nobody knows more of it than its ledger. The hub may say so only
when nothing that would tell otherwise stands unread in UP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nats.errors import Error as NatsError

from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.errors import HubError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.uplink.reader import UplinkReader
from backhaul_runtime.clock import Clock

WAIT_S_MAX = 1.0
"""For how long what UP held when the question came may take to be read."""
_LOOK_S = 0.02

Lanes = dict[str, tuple[int, int]]
"""By lane: the highest seq that the hub knows, and the watermark."""
Ends = dict[str, tuple[str, int]]
"""By lane: the hash of the message at the watermark, in hex, empty where it is not known, and the fork."""


@dataclass(eq=False)
class Known:
    """Answers for all devices.

    Args:
        reader_of: the reader of the shard that a device sends to, None before there is one.
    """

    _api: JetStreamApi
    _continuity: Continuity
    _clock: Clock
    _reader_of: Callable[[str], UplinkReader | None]

    async def of(self, device: str, epochs: Iterable[int]) -> dict[int, Lanes] | None:
        """Return the knowledge of some epochs of a device, None where that cannot be said now."""
        reader = self._reader_of(device)
        if reader is None or not await self._has_read_all(reader):
            return None
        return {epoch: self._lanes(device, epoch) for epoch in epochs}

    async def ends(self, device: str, epochs: Iterable[int]) -> dict[int, Ends]:
        """Return the hashes at the watermarks of some epochs of a device; to be asked after `of`."""
        found: dict[int, Ends] = {}
        for epoch in epochs:
            ends = found[epoch] = {}
            for lane in self._continuity.known(device, epoch):
                key = LaneKey(device, lane, epoch)
                state = self._continuity.lanes.get(key)
                if state is None:  # it has made room while others were looked up
                    continue
                seq, known = state.proven
                text = known.hex()
                if not known and seq:
                    (held,) = await self.hashes(device, lane, epoch, seq, seq) or [None]
                    text = held or ""
                ends[lane] = text, int(self._continuity.fork_of(key))
        return found

    async def hashes(
        self, device: str, lane: str, epoch: int, low: int, high: int
    ) -> list[str | None] | None:
        """Return the hashes of a lane's messages (see `Hashes.of`), None where they cannot be said now."""
        reader = self._reader_of(device)
        if reader is None or not await self._has_read_all(reader):
            return None
        try:
            return await reader.hashes.of(LaneKey(device, lane, epoch), low, high)
        except (HubError, NatsError):
            return None

    async def _has_read_all(self, reader: UplinkReader) -> bool:
        deadline_s = self._clock.monotonic_s() + WAIT_S_MAX
        try:
            info = await self._api.info(reader.stream)
        except (HubError, NatsError):
            return False
        while not (reader.caught_up and reader.position.seq >= info["state"]["last_seq"]):
            if self._clock.monotonic_s() >= deadline_s:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    def _lanes(self, device: str, epoch: int) -> Lanes:
        lanes = self._continuity.lanes
        return {
            lane: (highest, lanes[LaneKey(device, lane, epoch)].proven[0])
            for lane, highest in self._continuity.known(device, epoch).items()
        }
