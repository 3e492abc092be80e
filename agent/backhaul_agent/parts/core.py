"""The parts that nearly all others need: the writer, its lanes, the downlink, the link's state."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from backhaul_agent.commit.epoch_gate import EpochGate
from backhaul_agent.commit.epochs import Epochs
from backhaul_agent.commit.marks import Marks
from backhaul_agent.commit.writer import Writer
from backhaul_agent.downlink.downlink import Downlink
from backhaul_agent.hub_time.hub_clock import HubClock
from backhaul_agent.leaf.connection import requester
from backhaul_agent.leaf.link_state import UplinkState
from backhaul_agent.ledger.disk_reserve import Reserve
from backhaul_agent.presence.machine import identify
from backhaul_agent.uplink.lane import Lane

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client

    from backhaul_agent.config import Config
    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.ledger.lane_routing import Lanes
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.status.status import Report
    from backhaul_runtime.clock import SteadyClock

Tasks: TypeAlias = Iterable[Coroutine[Any, Any, None]]


class Part(Protocol):
    """Parts of one subject; each method may be left out."""

    def tasks(self) -> Tasks:
        """Return the tasks that run from the start of the agent to its stop."""
        return ()

    def session(self, client: Client, jetstream: JetStream) -> Tasks:
        """Return the tasks that run as long as a connection to the leaf server does."""
        return ()

    def reports(self) -> Iterable[Report]:
        """Return the sections of the status to which it adds."""
        return ()


class Core(Part):
    """Everything between a program's message and the leaf's streams, and back.

    ``routing``: which nodes have lanes of their own. ``on_commit``: told of each commit, after the lanes.
    """

    def __init__(
        self,
        config: Config,
        system: SteadyClock,
        ledger: Ledger,
        routing: Lanes,
        boot: str,
        random_u32: Callable[[], int],
    ) -> None:
        self.config, self.ledger, self.routing, self.boot = config, ledger, routing, boot
        self.clock = clock = HubClock(system, config.clock)
        self.epochs = Epochs(fresh=ledger.fresh, lanes=ledger.lanes, last_seq=ledger.last_seq)
        if ledger.went_back:
            self.epochs.behind(ledger.went_back)
        marks = Marks(clock)
        self.writer = Writer(
            ledger,
            config,
            clock,
            on_commit=self._committed,
            reserve=Reserve(ledger.path, config.ledger.reserve_bytes),
            marks=marks,
            lanes=routing,
            gate=EpochGate(ledger, clock, self.epochs, random_u32),
        )
        self.machine = identify(ledger.path, boot, lambda: SystemRandom().getrandbits(32))
        self.lanes = [
            Lane(name, ledger, self.writer, config, clock, self.machine.machine)
            for name in ledger.lanes
        ]
        self.on_commit: list[Callable[[], None]] = [lane.on_commit for lane in self.lanes]
        self.downlink = Downlink(config, ledger, self.writer, routing.own)
        self.uplink = UplinkState()
        self.uplink.on_up += [marks.link_up, self.writer.wake]
        self.uplink.on_look.append(self._on_link)

    def session(self, client: Client, jetstream: JetStream) -> Tasks:
        """Return the tasks that watch the link and move messages both ways."""
        return (
            self.uplink.run(requester(client)),
            *(lane.run(client, jetstream) for lane in self.lanes),
            self.downlink.run(client, jetstream),
        )

    def reports(self) -> Iterable[Report]:
        """Return the progress of lanes, ledger, heads and downlink."""
        return (
            ("lanes", lambda: {lane.name: lane.status() for lane in self.lanes}),
            ("ledger", self.ledger.status),
            ("ledger", self.writer.status),
            ("heads", self.writer.keeper.status),
            ("counters", self.writer.counters.status),
            ("counters", self.downlink.status),
        )

    def _committed(self) -> None:
        for tell in self.on_commit:
            tell()

    def _on_link(self, up: bool | None) -> None:
        self.epochs.note_link(up, self.clock.monotonic_s())
        self.writer.wake()
