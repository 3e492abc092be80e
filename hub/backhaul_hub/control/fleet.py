"""The devices as hub.db has them, and the sources of their lanes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from backhaul_codec.kinds import Lane
from backhaul_codec.protocol.identity import leaf_name
from backhaul_hub.access.revocations import UNKNOWN_KEY
from backhaul_hub.commands.service import CommandShell
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.control.ground import Ground
from backhaul_hub.control.subsystem import Subsystem, Tasks
from backhaul_hub.control.sync_shell import SyncShell
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.erased import erasures
from backhaul_hub.device import Device
from backhaul_hub.lane_names import lanes_of
from backhaul_hub.lane_records.device_words import WordBook
from backhaul_hub.lane_records.device_words_store import restore as restore_words
from backhaul_hub.lane_records.lane_rows import read_lanes
from backhaul_hub.links.down_consumers import drop_stale_consumers, make_writable
from backhaul_hub.links.recent_setups import RecentSetups
from backhaul_hub.links.source_keeper import SourceKeeper
from backhaul_hub.links.speaker import Speaker

log = structlog.get_logger(__name__)

_AT_ONCE = 32
"""Questions about durables that are under way to the server."""


class Devices:
    """The devices as hub.db was read last: one object for all who look at them."""

    def __init__(self) -> None:
        self._known: dict[str, Device] = {}
        self._active: dict[str, Device] = {}

    def known(self) -> dict[str, Device]:
        """Return all devices by their ids; never changed, but replaced."""
        return self._known

    def active(self) -> dict[str, Device]:
        """Return the devices that may connect, all but those that were revoked; never changed, but replaced."""
        return self._active

    def one(self, id_: str) -> Device | None:
        """Return a device that may connect, None for any other."""
        known = self._known.get(id_)
        return known if known and not known.revoked_ns else None

    def replace(self, known: dict[str, Device]) -> None:
        """Take in that hub.db was read again."""
        self._known = known
        self._active = {id_: device for id_, device in known.items() if not device.revoked_ns}

    def token_of(self, device: str) -> str | None:
        """Return the token of a device that may connect."""
        known = self.one(device)
        return known.token if known else None

    def of_leaf(self, leaf: str) -> str | None:
        """Return whose leaf has a name."""
        device = self._known.get(leaf.rpartition("-")[0])
        if device is None or leaf != leaf_name(device.id, device.token):
            return None
        # Back again it is heard with which key.
        return None if device.public_key.startswith(UNKNOWN_KEY) else device.id


class Fleet(Subsystem):
    """Knows the devices and how their lanes stand, and keeps the sources of UP.

    Args:
        tell_again: told of a device whose source may have passed something over.
    """

    def __init__(
        self,
        ground: Ground,
        devices: Devices,
        sync: SyncShell,
        commands: CommandShell,
        tell_again: Callable[[str], None],
    ) -> None:
        self.devices = devices
        self.continuity = Continuity()
        self.words = WordBook(self.continuity)
        self.sources = SourceKeeper(ground.config, ground.clock, self.continuity, devices.known)
        self.set_ups = RecentSetups(ground.clock, tell_again)
        self.speaker = Speaker(ground.clock, devices.one)
        self.unknown: set[str] = set()
        """Devices of which DOWN has durables, and hub.db nothing."""
        self._ground = ground
        self._sync = sync
        self._commands = commands
        self._learning = asyncio.Lock()
        # Devices without a durable on DOWN, as the server refused it: seen to when we learn again.
        self._unwritable: set[str] = set()

    async def start(self) -> None:
        """Read lanes and devices out of hub.db, and take stock of the sources."""
        self.continuity.restore(await read_lanes(self._ground.registry))
        self.continuity.erased = frozenset(await erasures(self._ground.registry))
        await restore_words(self._ground.registry, self.words)
        await self.learn()
        await self.sources.start(self._ground.api, self._ground.keys.source_api)
        self.speaker.start(self._ground.client, self._ground.api)

    def tasks(self) -> Tasks:
        """Return the keepers of the sources."""
        yield self.sources.keep(self._ground.api, self.learn)
        yield self.set_ups.run()
        yield self.speaker.run()

    async def learn_all(self) -> None:
        """Learn of the devices, and have the servers know them.

        A node's lanes stand in accounts, and so do revoked keys. A server that is away is told when it is
        back: nobody has to wait for that.
        """
        await self.learn()
        await self._ground.push()

    async def learn(self) -> None:
        """Learn of the devices in hub.db, and see that each can be written to."""
        # One after another: what was read before must not be taken in after what was read since.
        async with self._learning:
            await self._learn()

    async def _learn(self) -> None:
        known, before = await read_devices(self._ground.registry), self.devices.known()
        changed = [
            device
            for device in known.values()
            if not device.revoked_ns
            and (device != before.get(device.id) or device.id in self._unwritable)
        ]
        for at in range(0, len(changed), _AT_ONCE):
            await asyncio.gather(*map(self.make_writable, changed[at : at + _AT_ONCE]))
        self.devices.replace(known)
        self.sources.change(before)
        self._sync.devices_changed()
        stale = await drop_stale_consumers(self._ground.api, known.values())
        for name in stale.dropped:
            log.info("consumer_dropped", consumer=name)
        self.unknown = stale.unknown

    async def make_writable(self, device: Device) -> None:
        """Give a device its durables on DOWN; where the server refuses, when we learn again."""
        self._unwritable.add(device.id)
        if await make_writable(self._ground.api, device):
            self._unwritable.discard(device.id)

    def link_up(self, device: str) -> None:
        """Take in that a device's leaf has connected."""
        self._commands.link_up(device)
        self.speaker.linked(device)
        # A reset may have been the last that a control plane did before it died.
        self.set_ups.note(device)

    def link_listens(self, device: str) -> None:
        """Take in that a device whose leaf has connected can be asked for its lanes."""
        self.sources.connected(device)

    def link_down(self, device: str) -> None:
        """Take in that a device's leaf is gone."""
        self.sources.disconnected(device)
        self._commands.link_down(device)
        self.set_ups.drop(device)
        self.speaker.beside.gone(device)

    async def down_ends(self, device: str) -> dict[Lane, int] | None:
        """Return the last sequence in DOWN of the part that each stream of a device sources (links/speaker.py)."""
        return await self.speaker.last_seqs(self._ground.api, device)

    def source_set_up(self, device: str) -> None:
        """Take in that a device's durable on DOWN was reset."""
        self._commands.source_set_up(device)
        self.set_ups.note(device)

    def stands_still(self, device: str, epoch: int, lanes: Mapping[str, int]) -> None:
        """Take in how far lanes go of which the device has heard nothing for a while.

        Either the hub has not got that, and then it is owed, and a source that brings nothing is set up
        anew; or it has, and the device is told again.
        """
        for lane in lanes_of(self.devices.known()[device]):
            if lane in lanes:
                log.info("lane_stands_still", device=device, lane=lane, seq=lanes[lane])
                self.sources.stands_still(LaneKey(device, lane, epoch), lanes[lane])
        self.set_ups.note(device)
