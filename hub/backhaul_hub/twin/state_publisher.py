"""Keeping TWIN_STATE: from the finds of UP's readers to messages in the stream.

Values go in atomic batches: one sync to disk for up to 500 of them. A batch is stored whole or not at
all, and what is not is tried again, so each newest value arrives, some perhaps twice. What a control
plane that was killed had not published yet, the next one finds again (twin/state_recall.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog
from nats.errors import Error as NatsError

from backhaul_codec.state.merge import HeadKey
from backhaul_hub.config import HubConfig
from backhaul_hub.errors import HubError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.sync.core import Announcement, HubSync
from backhaul_hub.sync.heads import is_hub_origin
from backhaul_hub.sync.newest_readings import DeviceSeries, NewReading, Reading, Readings
from backhaul_hub.twin.state_messages import (
    StateKey,
    StateValue,
    Waiting,
    state_body,
    state_subject,
)
from backhaul_runtime.clock import Clock
from backhaul_runtime.trouble import Trouble

log = structlog.get_logger(__name__)

_BATCH_VALUES = 500


class StatePublisher:
    """Publishes newest values.

    Args:
        core: knows the heads, and how good each vehicle's clock is.
    """

    def __init__(
        self,
        config: HubConfig,
        clock: Clock,
        api: JetStreamApi,
        core: HubSync,
        readings: Readings,
    ) -> None:
        self.busy = False
        """Whether something waits to be published, or is on its way."""
        kinds = (HubError, NatsError)
        self.trouble = Trouble(log, "state_not_published", *kinds, over="state_published_again")
        """Whether the server did not take the last batch."""
        self._env = config.twin.env
        self._age_ns_max = config.twin.state_age_s_max * 1_000_000_000
        self._clock = clock
        self._api = api
        self._core = core
        self._readings = readings
        self._waiting = Waiting()
        self._due = asyncio.Event()

    def tell(self, announcements: Iterable[Announcement], fresh: Iterable[NewReading]) -> None:
        """Have the news published: heads that a vehicle has changed, and readings."""
        for announcement in announcements:
            device, key, head, _ = announcement.change
            if key.parent or is_hub_origin(head.origin):
                continue
            series = DeviceSeries(key.node, key.type, key.key)
            reading = self._readings.of(device).get(series)
            if reading is None or reading.time <= head.time:
                quality = self._quality(device)
                value = StateValue(head.time, head.value, quality, head.deleted)
                self._waiting.add(StateKey(device, *series), value)
        for device, series, reading, quality in fresh:
            if self._is_newest(device, series, reading):
                stated = StateValue(*reading, quality or self._quality(device))
                self._waiting.add(StateKey(device, *series), stated)
        self._wake()

    def lost(self) -> None:
        """Take in that the stream was made anew: publish all its values again."""
        since_ns = self._clock.now_ns() - self._age_ns_max
        for device, series, reading in self._readings.all():
            if reading.time >= since_ns and self._is_newest(device, series, reading):
                self._waiting.add(StateKey(device, *series), StateValue(*reading))
        for device, key, head in self._core.heads.all():
            if head.time >= since_ns and not key.parent and not is_hub_origin(head.origin):
                value = StateValue(head.time, head.value, None, head.deleted)
                self._waiting.add(StateKey(device, key.node, key.type, key.key), value)
        self._wake()

    async def run(self) -> None:
        """Publish until cancelled; trouble with the server is logged once and waited out."""
        while True:
            await self._due.wait()
            self._due.clear()
            while taken := self._waiting.take(_BATCH_VALUES):
                async with self.trouble:
                    try:
                        await self._publish(taken)
                    except (HubError, NatsError):
                        self._waiting.put_back(taken)
                        raise
            self.busy = False

    def _wake(self) -> None:
        if self._waiting:
            self.busy = True
            self._due.set()

    def _is_newest(self, device: str, series: DeviceSeries, reading: Reading) -> bool:
        """Tell whether nothing newer was said of this series in a point of its own."""
        head = self._core.heads.get(device, HeadKey("", *series))
        return head is None or is_hub_origin(head.origin) or head.time <= reading.time

    def _quality(self, device: str) -> str | None:
        words = self._core.peer(device).clock.words
        return words[-1].said if words else None

    async def _publish(self, values: list[tuple[StateKey, StateValue]]) -> None:
        messages = [(state_subject(self._env, key), state_body(key, it)) for key, it in values]
        await self._api.publish_all(messages)
