"""The control plane, which `backhaul-hub up` runs, as a list of parts.

Order of a shutdown: all tasks are cancelled, then the parts are stopped, the last one first; what a
reader had not stored yet is read again at the next start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import structlog

from backhaul_codec.assurance.metrics import Sample
from backhaul_hub.alerts import metrics as alert_metrics
from backhaul_hub.alerts.service import HealthLook
from backhaul_hub.broadcast.alerts import LiveAlerts
from backhaul_hub.broadcast.events import told_command
from backhaul_hub.commands.command import Command
from backhaul_hub.commands.service import CommandShell
from backhaul_hub.config import HubConfig
from backhaul_hub.control.alert_shell import AlertShell
from backhaul_hub.control.auditing import Auditing
from backhaul_hub.control.dictionary_shell import DictionaryShell
from backhaul_hub.control.endpoints import Answers
from backhaul_hub.control.erasing import Erasing, owed
from backhaul_hub.control.fleet import Devices, Fleet
from backhaul_hub.control.gate import Gate, Hearing
from backhaul_hub.control.ground import Ground
from backhaul_hub.control.heap import Heap
from backhaul_hub.control.reading import Reading
from backhaul_hub.control.stream_watch import Streams
from backhaul_hub.control.subsystem import Subsystem, Tasks, run
from backhaul_hub.control.sync_shell import SyncShell
from backhaul_hub.health import metrics as health_metrics
from backhaul_hub.health.fleet_sight import FleetSight
from backhaul_hub.health.judge import HealthFacts
from backhaul_hub.health.overview import overview
from backhaul_hub.health.watch import HealthWatch
from backhaul_hub.hub_time import HubTime, keep_record
from backhaul_hub.lane_records.imported_rows import trouble as import_trouble
from backhaul_hub.nats.connection import heard
from backhaul_hub.people.history import HistoryGate
from backhaul_hub.standby.leadership import Leadership
from backhaul_hub.tls.watch import CertificateWatch
from backhaul_runtime import metrics_server
from backhaul_runtime.clock import SteadyClock

log = structlog.get_logger(__name__)

# An act is answered once the audit log has it.
_ANSWERED_S = 1.0


class ControlPlane:
    """One hub's control plane.

    Args:
        lower_limits: whether streams may be given lower limits, which drops data.
        leadership: of this machine among several; None: the hub has one control plane.
        own_process: whether nothing else runs in this process, so that its garbage collector may be set.
    """

    def __init__(
        self,
        directory: Path,
        config: HubConfig,
        clock: SteadyClock,
        *,
        lower_limits: bool = False,
        leadership: Leadership | None = None,
        own_process: bool = False,
    ) -> None:
        self._stop = asyncio.Event()
        self.starts_again = False
        """Whether it has come to its end to be made and run once more."""
        time = HubTime.of(directory, config.clock, clock)
        devices = Devices()
        self.ground = ground = Ground(directory, config, time, leadership)
        self.auditing = auditing = Auditing(ground)
        self.dictionaries = dictionaries = DictionaryShell(ground)
        self.sync = sync = SyncShell(ground, devices.known, dictionaries)
        sync.on_desired = auditing.desired
        self.commands = commands = CommandShell(config, time, devices.known, self._tell_command)
        self.fleet = fleet = Fleet(ground, devices, sync, commands, self._tell_again)
        self.gate = gate = Gate(ground, fleet)
        self.reading = reading = Reading(ground, fleet, gate, sync, commands, dictionaries)
        self.streams = Streams(
            *(ground, fleet, gate, sync, commands, reading, dictionaries, lower_limits)
        )
        self.alerts = alerts = AlertShell(ground, sync, lambda: watching.look())
        watching = Watching(ground, fleet, gate, reading, sync, dictionaries, alerts, auditing)
        answers = Answers(
            *(ground, fleet, gate, reading, sync, alerts, auditing),
            lambda: watching.health.status(),
            lambda: watching.overview(),
            lambda: watching.health.shown,
            self.stop,
            self._start_again,
        )
        self.parts = (
            ground,  # alone, and with servers that know the accounts
            self.streams,  # before anything is read from them or written to them
            Erasing(ground, self._start_again),  # while nothing of any device is in memory
            auditing,  # before anybody asks
            dictionaries,  # before anything of UP is looked at
            fleet,  # before anybody is heard to be connected
            gate,
            Early(answers),  # before hub.db is read for the last time
            Hearing(gate, ground, fleet, reading.reader_of),
            sync,
            Operations(ground, sync, commands),
            reading,  # once all who take part in it have restored what they know
            watching,
            alerts,  # once the tree is known, and health has somebody to look
            answers,
            *([Heap()] if own_process else []),  # once all is loaded
            Ready(ground, fleet, reading),
        )

    async def run(self) -> None:
        """Bring the streams in line and serve until `stop`.

        Raises:
            HubError: the server cannot be reached at the start, or a stream cannot be brought in
                line, or hub.db is not usable.
        """
        await run(self.parts, self._stop)

    def stop(self) -> None:
        """Let `run` come to its end."""
        self._stop.set()

    def _start_again(self) -> None:
        """Come to an end and begin anew, once who has asked for it is answered."""
        self.starts_again = True
        asyncio.get_running_loop().call_later(_ANSWERED_S, self.stop)

    def _tell_again(self, device: str) -> None:
        self.reading.tell_again(device)

    def _tell_command(self, command: Command) -> None:
        self.auditing.commanded(command)
        self.sync.tell_live([told_command(command, self.sync.ancestors(command.device))])


@dataclass(eq=False)
class Watching(Subsystem):
    """Looks after health, certificates, metrics, and the record of the clock."""

    _ground: Ground
    _fleet: Fleet
    _gate: Gate
    _reading: Reading
    _sync: SyncShell
    _dictionaries: DictionaryShell
    _alerts: AlertShell
    _auditing: Auditing

    async def start(self) -> None:
        """Make the watches."""
        self._since_ns = self._ground.clock.now_ns()
        ground, fleet, gate = self._ground, self._fleet, self._gate
        self._certificates = CertificateWatch(ground.directory, ground.system, ground.servers)
        sight = FleetSight(
            *(ground.clock, fleet.continuity),
            devices=fleet.devices.active,
            links=gate.leafs.links,
            lags=fleet.sources.lags,
            clocks=fleet.words.clocks,
            vehicles=gate.vehicles.vehicles,
            sync=self._sync.core,
        )
        self.health = HealthWatch(
            *(ground.config, ground.clock, ground.api, self._reading.readers, sight),
            told=self._told,
            standby=ground.leadership,
        )

    async def _told(self) -> HealthFacts:
        ground, fleet, gate = self._ground, self._fleet, self._gate
        silent, alive = await HistoryGate(ground.client).look()
        return HealthFacts(
            None,
            certificates=dict(self._certificates.until),
            flooding=gate.guard.flooding(),
            expanding=gate.guard.expanding(),
            awaited=[*self._dictionaries.book.awaited.missing()],
            crowded=self._dictionaries.book.beyond_bounds(),
            unknown=fleet.unknown,
            older=ground.accounts.older,
            damages=ground.replicas.damages,
            off=ground.replicas.off,
            server_clocks=ground.replicas.clocks,
            imports=await import_trouble(ground.registry, ground.api, ground.clock.now_ns()),
            history=silent if ground.config.health.history else "",
            alive=alive,
            not_told=self._alerts.service.delivery.failing(),
            audit=self._auditing.breach,
            erasing=await owed(ground.directory, ground.registry, alive.erased),
        )

    def look(self) -> HealthLook:
        """Return the findings of health's last look."""
        health = self.health
        return HealthLook(health.looked_ns, health.shown, health.lasting, health.after_s)

    def overview(self) -> dict[str, Any]:
        """Return the hub at one look."""
        return overview(
            *(self.health.status(), self.health.facts, self._fleet.sources.lags),
            version=version("backhaul"),
            since_ns=self._since_ns,
        )

    def tasks(self) -> Tasks:
        """Return the watches."""
        ground = self._ground
        yield self._certificates.run()
        yield self.health.run()
        yield keep_record(ground.clock, ground.directory)
        metrics = (*health_metrics.METRICS, *alert_metrics.METRICS)
        yield metrics_server.serve(ground.config.metrics.listen, metrics, self._samples)

    def _samples(self) -> Iterator[Sample]:
        yield from self.health.samples()
        alerts = self._alerts.service
        yield from alert_metrics.samples(alerts.book.open.values(), alerts.delivery.report())


@dataclass(eq=False)
class Operations(Subsystem):
    """Operators' commands, and the alerts of the twin job."""

    _ground: Ground
    _sync: SyncShell
    _commands: CommandShell

    async def start(self) -> None:
        """Take commands in, and listen for alerts."""
        ground = self._ground
        self._work = await self._commands.start(ground.client, ground.api, ground.registry)
        env, sync = ground.config.twin.env, self._sync
        self._alerts = LiveAlerts(env, sync.tell_live, sync.ancestors)
        await self._alerts.start(ground.client, ground.api)

    def tasks(self) -> Tasks:
        """Return the work on commands, and the keeper of the alerts' consumer."""
        return *self._work, self._alerts.keep(self._ground.api)


@dataclass(eq=False)
class Early(Subsystem):
    """Answers operators while the other parts still start."""

    _answers: Answers

    async def start(self) -> None:
        """Answer, as far as the table says so."""
        await self._answers.early()


@dataclass(eq=False)
class Ready(Subsystem):
    """Says so once all parts are up and the server knows their subscriptions."""

    _ground: Ground
    _fleet: Fleet
    _reading: Reading

    def tasks(self) -> Tasks:
        """Return the saying: the last task, as others subscribe in their first step."""
        yield self._say()

    async def _say(self) -> None:
        await heard(self._ground.client)  # by those who were told to wait for this
        shards = len(self._reading.readers)
        log.info("ready", devices=len(self._fleet.devices.known()), shards=shards)
