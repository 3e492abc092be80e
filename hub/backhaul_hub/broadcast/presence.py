"""Telling the twin job whose agent is there: a vehicle that has nothing to say is not silent.

The server knows who is connected (`links/leaf_connections.py`); the job reads DOWN. So each change is a message there, and a beat
says now and then that the control plane still looks (`backhaul_codec.protocol.presence`). No vehicle is sent any of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass

import structlog
from nats.errors import Error as NatsError

from backhaul_codec.protocol.presence import BEAT, BEAT_S, presence_message
from backhaul_hub.device import DeviceLink
from backhaul_hub.errors import HubError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_runtime.clock import Clock
from backhaul_runtime.trouble import Trouble

LOOK_S = 5.0
GONE_AFTER_S = 15.0
"""An agent that is back sooner, as after a link that broke, was not away: that costs no messages."""
log = structlog.get_logger(__name__)


class PresenceChanges:
    """The presence to tell: devices that are there now, and were not, or the other way round. Pure."""

    def __init__(self) -> None:
        self._told: dict[str, bool] = {}
        self._gone_s: dict[str, float] = {}

    def forget(self) -> None:
        """Tell all of it again."""
        self._told.clear()

    def look(
        self, devices: Iterable[str], links: Mapping[str, DeviceLink], now_s: float
    ) -> list[tuple[str, bool]]:
        """Return the devices that are to be told of now, and whether the agent of each is there.

        One that was never seen there is told of as gone once, so that what an earlier control plane said ends.
        """
        found = []
        for device in devices:
            link = links.get(device)
            there = link is not None and link.up and link.agent is True
            if there:
                self._gone_s.pop(device, None)
            elif now_s - self._gone_s.setdefault(device, now_s) < GONE_AFTER_S:
                continue
            if self._told.get(device) is not there:
                found.append((device, there))
        return found

    def told(self, device: str, *, there: bool) -> None:
        """Take in that one was told of."""
        self._told[device] = there


@dataclass(eq=False)
class Presence:
    """The shell around `PresenceChanges`; lives as long as the control plane.

    Args:
        devices: those that may connect.
        looks: tells whether these are of now: else nothing is told, and what was told ends.
    """

    _api: JetStreamApi
    _clock: Clock
    _devices: Callable[[], Iterable[str]]
    _links: Mapping[str, DeviceLink]
    _looks: Callable[[], bool]

    def __post_init__(self) -> None:
        self._changes = PresenceChanges()
        self._beat_s: float | None = None

    def forget(self) -> None:
        """Tell all of it again: DOWN was made anew."""
        self._changes.forget()
        self._beat_s = None

    async def run(self) -> None:
        """Tell the changes every `LOOK_S` seconds (event loop's clock), for ever."""
        trouble = Trouble(log, "presence_not_told", HubError, NatsError, wait_s=0.0)
        while True:
            async with trouble:
                await self._tell()
            await asyncio.sleep(LOOK_S)

    async def _tell(self) -> None:
        if not self._looks():
            return
        now_s = self._clock.monotonic_s()
        changes = self._changes.look(list(self._devices()), self._links, now_s)
        left = deque(changes)

        def taken(some: Sized) -> None:
            for _ in range(len(some)):
                device, there = left.popleft()
                self._changes.told(device, there=there)

        words = [presence_message(device, there=there) for device, there in changes]
        await self._api.publish_all(words, taken=taken)
        if self._beat_s is None or now_s - self._beat_s >= BEAT_S:
            await self._api.publish(BEAT, b"{}")
            self._beat_s = now_s
