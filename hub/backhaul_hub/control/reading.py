"""The readers of UP, and the messages that tell vehicles how far the hub holds their lanes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import structlog

from backhaul_hub.broadcast.presence import Presence
from backhaul_hub.commands.service import CommandShell
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.control.dictionary_shell import DictionaryShell
from backhaul_hub.control.fleet import Fleet
from backhaul_hub.control.gate import Gate
from backhaul_hub.control.ground import Ground
from backhaul_hub.control.subsystem import Subsystem, Tasks
from backhaul_hub.control.sync_shell import SyncShell
from backhaul_hub.lane_names import DOWN
from backhaul_hub.nats.stream_reader import StoredReader
from backhaul_hub.shards import shard_of, up_name
from backhaul_hub.uplink.intake import UplinkIntake
from backhaul_hub.uplink.notify import WatermarkNotifier
from backhaul_hub.uplink.reader import UplinkReader
from backhaul_hub.uplink.standing_requests import standing_requests
from backhaul_hub.uplink.turns import UplinkTurns

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Reading(Subsystem):
    """Reads UP, tells vehicles watermarks and gaps, and tells the twin job which vehicles are there."""

    _ground: Ground
    _fleet: Fleet
    _gate: Gate
    _sync: SyncShell
    _commands: CommandShell
    _dictionaries: DictionaryShell
    readers: list[UplinkReader] = field(default_factory=list)
    """Of the shards in their order; empty until it has started."""

    async def start(self) -> None:
        """Make readers and tellers."""
        ground, fleet, gate = self._ground, self._fleet, self._gate
        consumers = [*self._sync.consumers, self._commands, gate.rotations]
        intake = UplinkIntake(
            *(fleet.continuity, ground.registry, self._dictionaries.book, consumers, fleet.words),
            *(gate.guard.unreadable, gate.guard.expanded),
        )
        self.readers += (
            UplinkReader(up_name(shard), ground.client, ground.api, intake, ground.replicas.doubt)
            for shard in range(ground.config.fleet.shards)
        )
        self.turns = UplinkTurns(ground.client, intake, self.readers)
        active, leafs = fleet.devices.active, gate.leafs
        self.notifier = WatermarkNotifier(
            *(ground.api, fleet.continuity, ground.clock),
            devices=active,
            links=leafs.links,
            lags=fleet.sources.lags,
            settled=self._settled,
            answerer=gate.vehicles.vehicles.identities.answerer,
            standing=partial(standing_requests, StoredReader(ground.client, DOWN)),
        )
        self._dictionaries.book.on_held = self._confirm_soon
        self.presence = Presence(*(ground.api, ground.clock, active, leafs.links, leafs.looks))

    def tasks(self) -> Tasks:
        """Return the readers and the tellers."""
        yield self.notifier.tell_watermarks(self._ground.config.watermark.interval_s)
        yield self.notifier.tell_hurried()
        yield self.notifier.ask_for_gaps()
        yield self.presence.run()
        yield self._dictionaries.ask(self._gate.leafs.links, self._settled)
        yield self.turns.run()

    def _confirm_soon(self, lane: LaneKey, seq: int) -> None:
        """Have a vehicle told at once that a message is held which brought a dictionary: it packs nothing before."""
        self._fleet.speaker.beside.expect(lane.device, lane.lane, lane.epoch, seq)
        self.notifier.hurry(lane.device)

    def _settled(self) -> bool:
        """Tell whether all that UP holds has been read."""
        return all(reader.caught_up for reader in self.readers)

    def reader_of(self, device: str) -> UplinkReader | None:
        """Return who reads a device's shard; None before all have been made."""
        return self.readers[shard_of(device, len(self.readers))] if self.readers else None

    def tell_again(self, device: str) -> None:
        """Tell a device the words that its source may have passed over, but for commands (`source_set_up`)."""
        if self._fleet.devices.token_of(device) is not None:
            self._sync.compare_again(device)
            self.notifier.tell_again(device)
