"""Running `HubSync`: its tasks, its services, and what they share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
import structlog
from nats.errors import Error as NatsError

from backhaul_hub.broadcast.events import LiveEvents, told_document
from backhaul_hub.broadcast.points import Rebroadcast, Told, told, told_reading
from backhaul_hub.continuity.future_stamps import FutureRule
from backhaul_hub.control.dictionary_shell import DictionaryShell
from backhaul_hub.control.ground import Ground
from backhaul_hub.control.subsystem import Subsystem, Tasks
from backhaul_hub.device import Device
from backhaul_hub.errors import HubError
from backhaul_hub.lane_records.lane_rows import read_position
from backhaul_hub.nats.patience import patiently
from backhaul_hub.shadow.bucket import Revision
from backhaul_hub.shadow.service import ShadowKeeper
from backhaul_hub.shards import up_name
from backhaul_hub.sync.core import HubSync
from backhaul_hub.sync.newest_readings import Readings
from backhaul_hub.sync.outbox import Publisher
from backhaul_hub.sync.restore import restore
from backhaul_hub.timestamps import rfc3339
from backhaul_hub.twin.state_publisher import StatePublisher
from backhaul_hub.twin.state_recall import look_back, recall
from backhaul_hub.uplink.consumer import Consumer

log = structlog.get_logger(__name__)

_INTERVAL_S = 1.0
"""How often a device is told the same thing anew, at most."""


class SyncShell(Subsystem):
    """Everything around one `HubSync`."""

    def __init__(
        self,
        ground: Ground,
        devices: Callable[[], Mapping[str, Device]],
        dictionaries: DictionaryShell,
    ) -> None:
        self._ground = ground
        self._dictionaries = dictionaries
        self._config = config = ground.config
        self._clock = clock = ground.clock
        self._devices = devices
        future = FutureRule(config.clock.max_future_skew_s)
        self.core = HubSync(clock, future, devices, conflicts_max=config.conflicts.rows_max)
        self.on_desired: Callable[[str, int, str], None] = lambda *_: None
        """Hears of each revision of desired values: device, number, who wrote it."""
        self._to_say = asyncio.Event()
        newest = config.twin.newest
        self._stating = newest and config.twin.state
        listening = newest and (config.tree.rebroadcast == "all" or self._stating)
        self.readings = Readings(clock, future, listening=listening, keep=newest)
        self._state: StatePublisher | None = None
        self._shadow: ShadowKeeper | None = None
        self._rebroadcast: Rebroadcast | None = None
        self._events = LiveEvents(self.tell_live, self.ancestors)

    @property
    def consumers(self) -> list[Consumer]:
        """What takes part in the reading of UP."""
        return [self.core, self.readings, self._events]

    def ancestors(self, device: str) -> tuple[str, ...]:
        """Return the subject tokens of a device and of all above it."""
        return self.core.tree.ancestor_tokens(device, device)

    def tell_live(self, some: Iterable[Told]) -> None:
        """Have published along the tree what is no point, unless hub.toml says otherwise."""
        if self._rebroadcast is not None and self._config.tree.rebroadcast != "off":
            self._rebroadcast.tell(some)

    async def start(self) -> None:
        """Read hub.db and TWIN_STATE, and look at the desired documents."""
        client, api, registry = self._ground.client, self._ground.api, self._ground.registry
        await restore(self.core, registry)
        publisher = Publisher(self.core.outbox, self.core.heads, api, registry, self._devices)
        rebroadcast = self._rebroadcast = Rebroadcast(client)
        along_the_tree = self._config.tree.rebroadcast != "off"
        readings_too = self._config.tree.rebroadcast == "all"
        self._work = [publisher.run, rebroadcast.run, self._tell_devices]
        if self._stating:
            self._state = await self._begin_state()
            self._work.append(self._state.run)
        shadow = ShadowKeeper(
            *(self._config.twin, self._clock, client, api, self.core, registry, self._devices),
            on_document=self._tell_document,
            on_desired=self.on_desired,
        )
        await shadow.start()
        self._work += [shadow.read_desired, shadow.publish]
        self._shadow = shadow

        def tell() -> None:
            announcements = list(self.core.announcements)
            self.core.announcements.clear()
            fresh, self.readings.fresh = self.readings.fresh, []
            if self._state is not None:
                self._state.tell(announcements, fresh)
            news, self.core.news = self.core.news, set()
            shadow.tell(announcements, news)
            rebroadcast.tell(told(each, along_the_tree=along_the_tree) for each in announcements)
            above = self.core.tree.ancestor_tokens
            rebroadcast.tell(
                told_reading(new, above(new.device, new.series.node))
                for new in (fresh if readings_too else ())
            )

        tell()
        self.core.on_stored += [tell, publisher.wake, self._wake]

    def tasks(self) -> Tasks:
        """Return the tasks that tell of heads, readings and shadows."""
        return [work() for work in self._work]

    def _tell_document(self, device: str, part: str, number: int, body: bytes | None) -> None:
        text = None if body is None else body.decode(errors="replace")
        revision = Revision(number, rfc3339(self._clock.now_ns()), text)
        self.tell_live([told_document(device, part, revision, self.ancestors(device))])

    def compare_again(self, device: str) -> None:
        """Have a device compare its heads with ours, unless they are known to be the same."""
        self.core.compare_again(device)
        self._wake()

    def state_lost(self) -> None:
        """Take in that TWIN_STATE was made anew."""
        if self._state is not None:
            self._state.lost()

    def shadow_lost(self) -> None:
        """Take in that TWIN_SHADOW was made anew."""
        if self._shadow is not None:
            self._shadow.lost()

    def devices_changed(self) -> None:
        """Take in that there may be other devices than before."""
        self.core.tree.forget()
        if self._shadow is not None:
            self._shadow.look_again()

    async def _begin_state(self) -> StatePublisher:
        client, api = self._ground.client, self._ground.api
        # A control plane that takes over as a server dies begins while streams have no leader.
        patience_s = self._ground.patience_s
        await patiently(partial(recall, client, self.core.heads, self.readings), patience_s)
        for shard in range(self._config.fleet.shards):
            stream = up_name(shard)
            end = (await read_position(self._ground.registry, stream)).seq
            book = self._dictionaries.book
            look = partial(look_back, client, stream, end, self.readings, book)
            await patiently(look, patience_s)
        return StatePublisher(self._config, self._clock, api, self.core, self.readings)

    def report(self, device: str) -> dict[str, Any]:
        """Return a device's part of `backhaul-hub devices --json`: heads, stamps from the future."""
        peer = self.core.peer(device)
        heads = {
            "count": len(self.core.heads.of(device).heads),
            "in_sync": peer.in_sync,
            "compared_ns": peer.compared_ns,
            "waiting": self.core.outbox.waiting(device),
            "conflicts": self.core.conflicts.open(device),
        }
        return {"heads": heads, "future": self.readings.ahead.report(device)}

    def _wake(self) -> None:
        if self.core.unequal or self.core.restamps:
            self._to_say.set()

    async def _tell_devices(self) -> None:
        """Tell devices of stamps that were refused, and whose heads differ the digests of ours.

        What cannot be said now is not said again: as long as heads differ the device asks.
        """
        while True:
            await self._to_say.wait()
            self._to_say.clear()
            words, self.core.restamps = self.core.restamps, {}
            for device in sorted(self.core.unequal):
                digests = self.core.heads.of(device).heads.digests()
                words[f"in.{device}.s.digest"] = msgspec.json.encode({"nodes": digests})
            self.core.unequal.clear()
            try:
                await self._ground.api.publish_all(list(words.items()))
            except (HubError, NatsError) as error:
                log.warning("devices_not_told", words=len(words), error=str(error))
            await asyncio.sleep(_INTERVAL_S)
