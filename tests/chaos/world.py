"""The whole system on one machine: a hub, and vehicles whose links go through toxiproxy."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter, defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from backhaul_runtime.clock import SystemClock
from tests.chaos.disks import mounted
from tests.chaos.ingest import Ingest
from tests.chaos.link import ProxyServer
from tests.chaos.links import Links
from tests.chaos.machine import Machine
from tests.chaos.wall import Wall
from tests.support.command_storm import settings
from tests.support.rig.cluster import NAMES, ClusterRig
from tests.support.rig.network import Network
from tests.support.rig.parts import DeviceRig, HubRig, Part, RigError
from tests.support.rig.standby import Machines
from tests.support.run_here import run_here

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
    from pathlib import Path

    from tests.chaos.clone import Clone
    from tests.chaos.damage import Damage, Rollback
    from tests.chaos.disks import Disk
    from tests.chaos.schedule import Fault

_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Vehicle:
    """One vehicle, its link, its clock, and the file in which commands note that they were started."""

    rig: DeviceRig
    link: Links
    wall: Wall
    starts: Path
    machine: Machine

    def agent(self) -> list[str]:
        """Return the command of an agent in this vehicle."""
        return self.wall.agent(self.rig.agent_toml, self.machine.root)


class World:
    """All parts of a run. Make one with `world`."""

    def __init__(
        self,
        hub: HubRig,
        vehicles: dict[str, Vehicle],
        disks: Mapping[tuple[str, str], Disk],
        wall: Wall | None = None,
        network: Network | None = None,
        machines: Machines | None = None,
    ) -> None:
        self.hub = hub
        self.network = network
        """Between three servers, and from control planes to them."""
        self.machines = machines
        """Of two control planes of which one leads."""
        self.wall = wall
        """The clock of the hub's machine, as its control plane reads it; None: its own."""
        self.servers = [*hub.servers.values()] if isinstance(hub, ClusterRig) else [hub.server]
        self.vehicles = vehicles
        self.disks = disks
        """By target and store: file systems that can be filled."""
        self.refusing: set[str] = set()
        """Devices that give nothing up where there is no room, but refuse what is new."""
        self.filled: set[str] = set()
        """Devices under whose ledger the disk was full, and that may give something up then."""
        self.passed_over: Counter[str] = Counter()
        """Faults by kind that this machine does not allow."""
        self.idle: Counter[str] = Counter()
        """Faults by kind that found nothing to do, as where a server that they ask was away."""
        self.killed: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        """Programs that ended by themselves; systemd would start them again, and so do we."""
        self.last_words: list[tuple[str, str]] = []
        """Of each program that ended by itself, every time: the end of its log."""
        self.now_ns = SystemClock().now_ns
        self.rollbacks: list[Rollback] = []
        """Of the hub's store, in the order in which they began."""
        self.store_losses: list[tuple[str, int]] = []
        """Devices whose leaf lost its store, or some of it, and when (ns)."""
        self.clones: list[Clone] = []
        """Of disks, in the order in which they were made."""
        self.told_two: set[str] = set()
        """Devices of which the hub said at some look that two machines use their identity."""
        self.damages: list[Damage] = []
        """Of ledgers, in the order in which they were done."""
        self.ingest: Ingest | None = None
        """Spark's job, where a run has one."""
        self.expanding: Counter[str] = Counter()
        """By device: points that its agent has acknowledged of frames that expand."""
        self.not_refused: list[str] = []
        """Second agents that did not refuse a ledger, in words."""
        self.lost_registries: list[tuple[int, int]] = []
        """From when to when (ns) there was no hub.db, or one that was just being rebuilt."""
        self.copies: Counter[str] = Counter()
        """Messages that were delivered once more, by the kind of fault."""
        # A busy machine takes longer to end a part than a schedule has between its faults.
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def controls(self) -> list[Part]:
        """The control planes."""
        return [*self.machines.parts.values()] if self.machines is not None else [self.hub.control]

    def begin_ingest(self, directory: Path) -> None:
        """Have Spark write the history from now on."""
        self.ingest = Ingest(self.hub.directory, directory)
        self.ingest.job.log.touch()
        self.ingest.job.start()

    def part(self, fault: Fault, name: str) -> Part:
        """Return the program that a fault is about: one of the servers or control planes, agent or leaf."""
        random = Random(str(fault))
        at_hub = {"server": random.choice(self.servers), "control": random.choice(self.controls)}
        if name in at_hub:
            return at_hub[name]
        rig = self.vehicles[fault.target].rig
        return {"agent": rig.agent, "leaf": rig.leaf}[name]

    def parts(self) -> list[Part]:
        """Return all programs of ours, the hub's first."""
        rigs = [each.rig for each in self.vehicles.values()]
        on_vehicles = [part for rig in rigs for part in (rig.agent, rig.leaf)]
        return [*self.servers, *self.controls, *on_vehicles]

    async def kill(self, part: Part) -> None:
        """Kill a part that one has for oneself."""
        if not self.ended_by_itself(part):
            self.killed[part.name] += 1
        await part.stop(signal.SIGKILL)

    async def stand_still(self, part: Part, seconds: float) -> None:
        """Have a part that one has for oneself stand still for so long."""
        pid = part.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)

    def ended_by_itself(self, part: Part) -> bool:
        """Whether a part has, which is noted; whoever asks stops or starts it then."""
        try:
            part.assert_alive()
        except RigError as error:
            self.ended[part.name] += 1
            self.last_words.append((part.name, str(error)))
            return True
        return False

    def deaths(self, device: str) -> int:
        """Return how often a vehicle's agent was killed or ended by itself."""
        name = self.vehicles[device].rig.agent.name
        return self.killed[name] + self.ended[name]

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Have a part, or a link, for oneself."""
        async with self._turns[name]:
            yield

    @asynccontextmanager
    async def turn_of(self, part: Part) -> AsyncIterator[None]:
        """Have a part for oneself; it runs."""
        async with self._turns[part.name]:
            await self._revive(part)
            yield

    async def revive(self) -> None:
        """Start again what has ended by itself, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            for part in self.parts():
                async with self._turns[part.name]:
                    await self._revive(part)

    async def _revive(self, part: Part) -> None:
        if self.ended_by_itself(part):
            await part.start()


@asynccontextmanager
async def world(
    directory: Path,
    devices: Sequence[str],
    small: Iterable[tuple[str, str]] = (),
    *,
    cluster: bool = False,
    standby: bool = False,
) -> AsyncIterator[World]:
    """Start a hub and vehicles with files in a directory that exists; stop all of it at the end.

    In a `cluster` the hub has three servers; with `standby` two control planes, of which one leads. `small` names what is to be on a disk of its own, if that is
    allowed: targets and stores. The last of several devices refuses what there is no room for, the others
    give up what is cheapest.

    Raises:
        NoToxiproxyError: there is no toxiproxy server.
    """
    async with AsyncExitStack() as stack:
        paths = {_place(directory, *each): each for each in small}
        # A server's own is within a directory that `init` makes.
        late = {path for path, (_, store) in paths.items() if store in NAMES}
        disks = await stack.enter_async_context(mounted(paths.keys() - late))
        proxies = await stack.enter_async_context(ProxyServer(directory))
        kind = ClusterRig if cluster else HubRig
        hub = kind(directory / "hub", watermark_interval_s=0.2, run=run_here)
        await hub.init()
        disks = disks | await stack.enter_async_context(mounted(late))
        network = await _network(hub, proxies)
        hub_wall = Wall(directory / "hub-offset", SystemClock().now_ns)
        control = hub.control
        hub.control = Part(control.name, hub_wall.control_plane(hub.directory), control.log)
        stack.push_async_callback(hub.stop)
        await hub.start()
        vehicles: dict[str, Vehicle] = {}
        for device in devices:
            link = await Links.to(hub, proxies, device)
            rig = await DeviceRig.add(hub, device, directory / device, links=link.ports)
            wall = Wall(directory / f"{device}-offset", SystemClock().now_ns)
            machine = Machine(directory / f"{device}-machine")
            command = wall.agent(rig.agent_toml, machine.root)
            rig.agent = Part(rig.agent.name, command, rig.agent.log)
            starts = directory / f"{device}-starts"
            starts.touch()
            config = rig.agent_toml.read_text() + settings(starts)
            if device in devices[1:][-1:]:
                config = config.replace("[ledger]\n", '[ledger]\nwhen_full = "refuse"\n')
            if device == devices[0]:
                config = config.replace("[link]\n", "[link]\npush = false\n")
            rig.agent_toml.write_text(config)
            stack.push_async_callback(rig.stop)
            await rig.start()
            vehicles[device] = Vehicle(rig, link, wall, starts, machine)
        machines = Machines(hub, hub_wall.control_plane) if standby else None
        if machines is not None:
            await hub.control.stop()
            stack.push_async_callback(machines.stop)
            await machines.start(partial(_cables_of_b, network, machines))
        stores = {paths[path]: disk for path, disk in disks.items()}
        made = World(hub, vehicles, stores, hub_wall, network, machines)
        made.refusing.update(devices[1:][-1:])
        try:
            yield made
        finally:
            if made.ingest is not None:
                made.ingest.job.end()


async def _network(hub: HubRig, proxies: ProxyServer) -> Network | None:
    """Lay cables between the servers of a cluster, which has its files and does not run."""
    if not isinstance(hub, ClusterRig):
        return None
    numbers = count()
    network = Network(lambda port: proxies.link(f"cable-{next(numbers)}-{port}", port))
    await network.between(hub)
    return network


async def _cables_of_b(network: Network | None, machines: Machines) -> None:
    if network is not None:
        assert isinstance(machines.hub, ClusterRig)
        await network.of_control(machines.hub, machines.places["b"] / "hub.toml", "b")


def _place(directory: Path, target: str, store: str) -> Path:
    """Return what a disk is mounted at; the leaf's holds all else that a vehicle has, too."""
    if store in NAMES:
        return directory / target / "servers" / store / "jetstream"
    return directory / target / ("backhaul-agent" if store == "ledger" else "")
