"""The gate of the hub: which vehicles come in, by which key, and the answers to their questions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from backhaul_hub.access.identity_documents import Documents
from backhaul_hub.artifacts.service import BlobService
from backhaul_hub.control.fleet import Fleet
from backhaul_hub.control.ground import Ground
from backhaul_hub.control.subsystem import Subsystem, Tasks
from backhaul_hub.enrol.adopter import Adopter
from backhaul_hub.enrol.rotation_keeper import RotationKeeper
from backhaul_hub.enrol.service import EnrolmentService
from backhaul_hub.flood.guard import FloodGuard
from backhaul_hub.links.clock_service import ClockService
from backhaul_hub.links.leaf_connections import LEAFS_INTERVAL_S, Leafs
from backhaul_hub.links.reception import Reception
from backhaul_hub.links.reset_service import ResetService
from backhaul_hub.nats.connection import connect
from backhaul_hub.uplink.known_epochs import Known
from backhaul_hub.uplink.reader import UplinkReader
from backhaul_hub.vehicles.keeper import VehicleKeeper


class Gate(Subsystem):
    """Knows the links, the keys and the machines of vehicles, and keeps floods out.

    `rotations`, `leafs` and `vehicles` are there once it has started.
    """

    rotations: RotationKeeper
    leafs: Leafs
    vehicles: VehicleKeeper

    def __init__(self, ground: Ground, fleet: Fleet) -> None:
        self._ground = ground
        self._fleet = fleet
        nats = ground.config.nats
        self.reception = Reception(lambda: connect(nats.url, nats.control))
        self.guard = FloodGuard(
            ground.config.flood,
            ground.clock,
            lambda devices: ground.accounts.keep_out(ground.system, devices),
            self.reception.deaf,
        )

    async def start(self) -> None:
        """Look at rotations, then take stock of the links."""
        ground, fleet = self._ground, self._fleet
        self.documents = Documents(ground.directory, ground.config, ground.keys)
        self.rotations = RotationKeeper(
            *(ground.keys, self.documents, ground.clock, fleet.devices.known, fleet.learn_all)
        )
        await self.rotations.look(ground.registry)
        self._adopter = Adopter(
            *(ground.registry, ground.clock, fleet.devices.known),
            *(lambda: self.rotations.rotations, fleet.learn_all),
        )
        self.leafs = Leafs(
            *(ground.system, ground.keys.account("FLEET").public, ground.clock),
            fleet.devices.of_leaf,
            fleet.link_up,
            fleet.link_down,
            self.rotations.connected,
            on_listening=fleet.link_listens,
            on_claims=self._adopter.heard,
            carried=self.guard.carried,
            servers=ground.servers,
        )
        await self.leafs.start()
        self.vehicles = await VehicleKeeper.open(
            *(ground.registry, ground.clock, self.leafs.links, fleet.continuity),
            fleet.devices.token_of,
        )

    def hear(self, device: str, said: bytes) -> float:
        """Take in a question of a device's agent, and its words on itself; return for how many seconds it is to stay away."""
        self.leafs.heard(device)
        return self.vehicles.hear(device, said)

    def tasks(self) -> Tasks:
        """Return the watches on links, floods, keys and machines."""
        ground = self._ground
        account = ground.keys.account("FLEET").public
        yield self.leafs.watch(LEAFS_INTERVAL_S)
        yield self.leafs.watch_new()
        yield self.guard.run(ground.system, account, self.leafs, ground.servers)
        yield self.rotations.run(ground.api, ground.registry, self.leafs.cut)
        yield self.vehicles.run()
        yield self._adopter.run()


@dataclass(eq=False)
class Hearing(Subsystem):
    """Answers the questions of vehicles: resets, the time, artifacts, enrolment.

    Args:
        reader_of: returns the reader of a device's shard; None: there is none yet.
    """

    _gate: Gate
    _ground: Ground
    _fleet: Fleet
    _reader_of: Callable[[str], UplinkReader | None]

    async def start(self) -> None:
        """Listen on a connection of its own."""
        gate, ground, fleet = self._gate, self._ground, self._fleet
        may_ask, token_of = gate.guard.may_ask, fleet.devices.token_of
        resets = ResetService(ground.client, ground.clock, may_ask, fleet.source_set_up)
        enrolling = EnrolmentService(ground.registry, gate.documents, ground.clock, fleet.learn_all)
        known = Known(ground.api, fleet.continuity, ground.clock, self._reader_of)
        times = ClockService(
            *(ground.client, ground.clock, token_of, known, may_ask, fleet.stands_still),
            on_heard=gate.hear,
            on_push=fleet.sources.push,
            down_ends=fleet.down_ends,
            on_terse=fleet.speaker.beside.terse,
        )
        self._blobs = BlobService(
            *(ground.client, ground.clock, token_of, ground.directory / "uploads"),
            *(ground.config.artifacts, may_ask),
        )
        await gate.reception.open(resets.listen, times.listen, self._blobs.listen, enrolling.listen)

    def tasks(self) -> Tasks:
        """Return the work for artifacts, and the watch on the connection."""
        return self._blobs.run(), self._gate.reception.watch()

    async def stop(self) -> None:
        """Close the connection before the others, which carry the last answers."""
        await self._gate.reception.close()
