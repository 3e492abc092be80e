"""The agent as a running process: what is started, and in which order it stops.

Start: lock the ledger (`ledger/lock.py`), open it, take staged rows back, connect (for ever), tell
systemd READY. The leaf server may come before or after the agent.

Stop, on SIGTERM or SIGINT (`stop`):
0. commands: what runs is ended with its process group, within four seconds
1. unsubscribe from ``app.``: what was delivered is taken in, nothing new comes
2. final commit: everything taken in is durable, framed, and answered
3. append: what the ledger holds goes to the leaf, for at most `DRAIN_S_MAX`; the rest waits on disk
4. close: the connection, then the ledger
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any

import structlog
from nats.errors import Error as NatsError

from backhaul_agent.artifacts.manager import Artifacts
from backhaul_agent.artifacts.service import ArtifactService
from backhaul_agent.artifacts.store import ArtifactStore
from backhaul_agent.commands.service import CommandService
from backhaul_agent.commit.epoch_gate import EpochGate
from backhaul_agent.commit.epochs import Epochs, Verdict
from backhaul_agent.commit.heads import on_points
from backhaul_agent.commit.marks import Marks
from backhaul_agent.commit.writer import Writer
from backhaul_agent.downlink.downlink import Downlink
from backhaul_agent.enrol.key_rotation import KeyRotation
from backhaul_agent.errors import LedgerCorruptError, LedgerStorageError, alone_in, damage_in
from backhaul_agent.history.service import HistoryService
from backhaul_agent.hub_time.hub_clock import HubClock
from backhaul_agent.ingest.listener import Listener
from backhaul_agent.ingest.parse import Intake
from backhaul_agent.ingest.replay_service import ReplayService
from backhaul_agent.leaf.connection import Link, requester
from backhaul_agent.leaf.jetstream import JetStream
from backhaul_agent.leaf.link_state import UplinkState
from backhaul_agent.leaf.store_health import LeafStore
from backhaul_agent.leaf.streams import link_window
from backhaul_agent.ledger.damage import set_aside
from backhaul_agent.ledger.disk_reserve import Reserve
from backhaul_agent.ledger.lane_routing import Lanes
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.ledger.lock import LedgerLock
from backhaul_agent.ledger.schema import open_file
from backhaul_agent.ledger.system_events import event
from backhaul_agent.metered.controller import Visits
from backhaul_agent.presence.machine import identify
from backhaul_agent.status import metrics_server
from backhaul_agent.status.health_watch import HealthWatch
from backhaul_agent.status.metrics import METRICS, samples
from backhaul_agent.status.service import serve
from backhaul_agent.status.status import status
from backhaul_agent.sync.on_link_up import LinkNews
from backhaul_agent.sync.restamp import Restamps
from backhaul_agent.sync.service import ConfigService
from backhaul_agent.time_sync.timekeeper import Timekeeper
from backhaul_agent.uplink.comparison import Comparison
from backhaul_agent.uplink.dispatch import Asks, Watermarks
from backhaul_agent.uplink.epoch_sync import EpochWords
from backhaul_agent.uplink.flow_control import Flow
from backhaul_agent.uplink.lane import Lane
from backhaul_agent.uplink.stall_report import Standstill
from backhaul_codec.protocol.rotation import SUBJECT as rotation_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from nats.aio.client import Client

    from backhaul_agent.clock import Clock
    from backhaul_agent.config import Config
    from backhaul_agent.ledger.schema import Opener
    from backhaul_agent.systemd_notify import Notifier

DRAIN_S_MAX = 5.0
SET_ASIDE_MAX = 3  # ledgers in one run: a disk that damages one after the other is of no use
ROOM_LOOK_S = 1.0  # between two tries to open a ledger on a full disk
ANSWER_S_MAX = 2.0
log = structlog.get_logger("daemon")


class Daemon:
    """Wires the parts together and runs them. `run` returns after `stop`."""

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock,
        random_u32: Callable[[], int],
        notifier: Notifier,
        opener: Opener = open_file,
        boot: str = "",
        credentials: Path | None = None,
    ) -> None:
        self._config = config
        self._credentials = credentials
        self._clock = clock
        self._random_u32 = random_u32
        self._notifier = notifier
        self._opener = opener
        # Without a name for this start of the machine, each start of the agent counts as one.
        self._boot = boot or f"process-{random_u32():08x}"
        self._stop = asyncio.Event()
        self.parts: Parts | None = None

    def stop(self) -> None:
        """Begin the shutdown; safe to call from a signal handler, and more than once."""
        self._stop.set()

    async def run(self) -> None:
        """Run until `stop`; a ledger that is damaged is set aside, and a new one goes on.

        Raises:
            LedgerInUseError: another agent runs on this ledger; nothing was changed.
            LedgerError: the ledger cannot be used, and neither damage nor a full disk is why; or one after the other was
                damaged, or could not be set aside.
        """
        path = Path(self._config.ledger.path)
        with LedgerLock(path, Reserve(path, self._config.ledger.reserve_bytes)) as lock:
            await self._run(path, lock)

    async def _run(self, path: Path, lock: LedgerLock) -> None:
        damages: list[str] = []
        for left in range(SET_ASIDE_MAX, -1, -1):
            try:
                await self._live(path, lock, damages)
            except Exception as error:
                damage = damage_in(error)
                if not (damage and left):
                    if (told := alone_in(error)) is error:
                        raise
                    # A group of it would be told with a traceback, and without what to do.
                    raise told from told.__cause__
                damages.append(damage)
            else:
                return
            try:
                kept = set_aside(path)
            except OSError as error:
                raise LedgerStorageError(path, "setting aside", error) from error
            log.error("ledger set aside", damage=damage, kept=str(kept or ""))

    async def _live(self, path: Path, lock: LedgerLock, damages: Sequence[str]) -> None:
        """Run on one ledger; `damages` say why those before were set aside: nobody may have told it yet."""
        reserve = Reserve(path, self._config.ledger.reserve_bytes)
        lanes = Lanes(self._config.streams.nodes)
        ledger = await self._opened(path, reserve, lanes)
        try:
            self.parts = Parts(
                self._config, self._clock, ledger, lanes, self._notifier, self._boot,
                self._random_u32, self._credentials, on_look=lock.renew,
            )  # fmt: skip
            await self.parts.run(self._stop, damages)
        finally:
            self.parts = None
            await ledger.close()
            log.info("stopped")

    async def _opened(self, path: Path, reserve: Reserve, lanes: Lanes) -> Ledger:
        """Open the ledger; wait for room on its disk where the reserve is spent, too."""
        config, told = self._config.ledger, False
        while True:
            try:
                return await Ledger.open(
                    path,
                    device=self._config.device.id,
                    bytes_max=config.bytes_max,
                    when_full=config.when_full,
                    reserve=reserve,
                    epoch=self._random_u32,
                    opener=self._opener,
                    lanes=lanes.names,
                )
            except LedgerStorageError as error:
                if not error.disk_full or self._stop.is_set():
                    raise
                if not told:
                    log.warning("no room to open the ledger", error=str(error), hint="make room")
                told = True
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), ROOM_LOOK_S)


class Parts:
    """Everything around an open ledger, wired together."""

    def __init__(
        self,
        config: Config,
        system: Clock,
        ledger: Ledger,
        lanes: Lanes,
        notifier: Notifier,
        boot: str,
        random_u32: Callable[[], int],
        credentials: Path | None,
        on_look: Callable[[], None],
    ) -> None:
        self._config = config
        self._clock = clock = HubClock(system, config.clock)
        self._boot = boot
        self._ledger = ledger
        self._notifier = notifier
        self._started_s = clock.monotonic_s()
        reserve = Reserve(ledger.path, config.ledger.reserve_bytes)
        epochs = Epochs(fresh=ledger.fresh, lanes=ledger.lanes, last_seq=ledger.last_seq)
        if ledger.went_back:
            epochs.behind(ledger.went_back)
        marks = Marks(clock)
        self._writer = Writer(
            ledger,
            config,
            clock,
            on_commit=self._on_commit,
            reserve=reserve,
            marks=marks,
            lanes=lanes,
            gate=EpochGate(ledger, clock, epochs, random_u32),
        )
        intake = Intake(config, clock)
        self._listener = Listener(intake, self._writer, config, clock)
        self._replay = ReplayService(ledger, intake, self._writer, clock)
        machine = identify(ledger.path, boot, lambda: SystemRandom().getrandbits(32))
        self._lanes = [
            Lane(name, ledger, self._writer, config, clock, machine.machine)
            for name in ledger.lanes
        ]
        self._downlink = Downlink(config, ledger, self._writer, lanes.own)
        watermarks = Watermarks(self._lanes)
        self._downlink.register("s.watermark", watermarks.on_message, in_memory=True)
        self._downlink.register("s.held", watermarks.on_held, in_memory=True)
        self._downlink.register("s.resend", Asks(self._lanes).on_message, in_memory=True)
        self._downlink.register("p", on_points)
        self._config_service = ConfigService(self._writer, config)
        self._history = HistoryService(ledger)
        self._link = Link(config, self._listener.on_overrun, self._listener.doors)
        self._commands = CommandService(
            config, ledger, self._writer, clock, lambda: self._link.client
        )
        self._downlink.register("c", self._commands.on_message)
        self._uplink = UplinkState()
        self._standstill = Standstill(config.link.stalled_after_s)
        self._uplink.on_up += [marks.link_up, self._writer.wake]
        self._uplink.on_look.append(self._on_link)
        if config.device.down_stream:  # else nobody confirms anything
            self._uplink.on_look.append(self._tell_what_stands_still)
        self._epoch_words = EpochWords(ledger, self._writer, clock, self._lanes)
        self._uplink.on_up.append(self._epoch_words.link_up)
        self._comparison = Comparison(ledger, self._writer, clock, self._lanes, config.device.token)
        out = [lane.stream for lane in self._lanes]
        self._leaf_store = LeafStore([*out, *self._downlink.streams])
        self._flow = Flow(link_window(config, ledger.lanes), config, clock)
        self._flow.on_ahead |= {lane.name: lane.on_passed for lane in self._lanes}
        # A root that is told must not wait beside what changes it: the answer would come too late.
        self._link_news = LinkNews(
            config, ledger, self._writer, clock, self._uplink,
            settled=lambda: (
                not (clock.mark or ledger.held_messages) and epochs.verdict is not Verdict.WAITING
            ),
        )  # fmt: skip
        self._artifacts = Artifacts(
            config, clock, ArtifactStore(config.artifacts), self._writer.keeper, self._uplink,
            self._config_service.set, boot,
        )  # fmt: skip
        self._writer.keeper.on_heads.append(self._artifacts.on_heads)
        self._flow.on_rate.append(self._artifacts.carrier.link_carries)
        self._artifact_service = ArtifactService(self._artifacts)
        chance = SystemRandom().random
        self._visits = Visits(
            config, clock, ledger, self._lanes, self._downlink, self._uplink, chance,
            moving=lambda: self._artifacts.moving,
        )  # fmt: skip
        self._flow.on_rate.append(self._link_news.heads_first.carries)
        restamps = Restamps(self._writer.keeper, clock.time_ns, self._link_news.compare_again)
        self._downlink.register("s.restamp", restamps.on_message)
        if credentials is not None:
            kept = ledger.path.with_name("key-rotation.json")
            rotation = KeyRotation(config.device.id, kept, credentials, clock.time_ns)
            self._downlink.register(rotation_subject, rotation.on_message)
        self._downlink.register("s.digest", self._link_news.digests.on_message)
        self._health = HealthWatch(config, clock, self.status, machine, on_look)
        self._timekeeper = Timekeeper(
            config,
            clock,
            ledger,
            self._writer,
            self._uplink,
            self._epoch_words,
            self._health.report,
            self._comparison,
        )
        self._timekeeper.exchange.on_yield = self._visits.stay_away
        self._timekeeper.on_step_over.append(self._link_news.compare_again)
        self._listening = True

    async def run(self, stop: asyncio.Event, damages: Sequence[str] = ()) -> None:
        """Run until ``stop`` is set, then shut down in order; tell the hub what the last ledgers had.

        Raises:
            ExceptionGroup: with a `LedgerCorruptError`, where SQLite says so of the ledger.
            LedgerError: it cannot be read at the start.
        """
        await self._timekeeper.start(self._boot)
        await self._writer.restore()
        for damage in damages:
            self._writer.tell(event("quarantined", {"ledger": damage}, self._clock.time_ns()))
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(self._writer.run())
            timekeeping = group.create_task(self._timekeeper.run())
            judging = group.create_task(self._until_damaged())
            linking = group.create_task(self._link.run(self._session))
            commanding = group.create_task(self._commands.run())
            looking = group.create_task(self._health.run())
            measuring = group.create_task(
                metrics_server.serve(
                    self._config.metrics.listen, METRICS, lambda: samples(self.status())
                )
            )
            watching = group.create_task(self._notifier.watchdog(lambda: not writing.done()))
            self._notifier.send("READY=1")
            log.info(
                "started", device=self._config.device.id, epoch=self._ledger.epoch,
                staged_points=self._writer.buffered_points,
            )  # fmt: skip
            await stop.wait()
            self._notifier.send("STOPPING=1")
            judging.cancel()
            commanding.cancel()
            await asyncio.wait([commanding])
            await self._shut_down(writing)
            linking.cancel()
            timekeeping.cancel()
            looking.cancel()
            measuring.cancel()
            watching.cancel()

    async def _until_damaged(self) -> None:
        """End all that runs once the ledger is known to be damaged."""
        await self._ledger.damaged.wait()
        raise LedgerCorruptError(self._ledger.path, self._ledger.damage)

    async def _session(self, client: Client) -> None:
        """Everything that lives on one connection."""
        jetstream = JetStream(requester(client))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listener.send_answers(client))
            group.create_task(self._uplink.run(requester(client)))
            group.create_task(self._leaf_store.run(jetstream))
            group.create_task(self._timekeeper.serve(client))
            group.create_task(self._epoch_words.run(jetstream))
            group.create_task(self._comparison.run(jetstream))
            for lane in self._lanes:
                group.create_task(lane.run(client, jetstream))
            group.create_task(self._downlink.run(client, jetstream))
            group.create_task(self._commands.tidy(jetstream))
            group.create_task(self._config_service.run(client))
            group.create_task(self._link_news.run())
            group.create_task(self._history.run(client))
            group.create_task(self._flow.run(jetstream))
            group.create_task(self._visits.run(jetstream))
            group.create_task(self._artifact_service.run(client))
            group.create_task(self._artifacts.run(client))
            await serve(client, self._config.device.id, self.status)
            if self._listening:
                await self._listener.listen(client)
                await self._replay.run(client)

    async def _shut_down(self, writing: asyncio.Task[None]) -> None:
        """Take steps 1 to 3 of the shutdown, in order; each has a deadline."""
        self._listening = False
        await self._within(ANSWER_S_MAX, "unsubscribing", self._listener.stop())
        self._writer.stop()
        await writing
        if self._link.client is None:
            return
        await self._within(ANSWER_S_MAX, "answering", self._listener.answered())
        await self._within(DRAIN_S_MAX, "appending", self._drained())

    async def _drained(self) -> None:
        for lane in self._lanes:
            await lane.drained()

    async def _within(self, limit_s: float, what: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await work
        except (TimeoutError, NatsError) as error:
            log.warning("shutdown goes on without waiting", step=what, error=repr(error))

    def _on_commit(self) -> None:
        for lane in self._lanes:
            lane.on_commit()
        self._visits.on_commit()

    def _on_link(self, up: bool | None) -> None:
        self._writer.gate.epochs.note_link(up, self._clock.monotonic_s())
        self._writer.wake()

    def _tell_what_stands_still(self, up: bool | None) -> None:
        lanes = ((lane.name, *lane.owed()) for lane in self._lanes)
        if still := self._standstill.look(lanes, self._clock.monotonic_s(), up=bool(up)):
            self._timekeeper.exchange.tell(self._ledger.epoch, still)

    def status(self) -> dict[str, Any]:
        """Return the answer to ``agent.status``."""
        return status(
            device=self._config.device.id,
            uptime_s=self._clock.monotonic_s() - self._started_s,
            ledger=self._ledger,
            writer=self._writer,
            lanes=self._lanes,
            link=self._link,
            listener=self._listener,
            downlink=self._downlink,
            digests=self._link_news.digests,
            flow=self._flow,
            visits=self._visits,
            leaf_store=self._leaf_store,
            timekeeper=self._timekeeper,
            commands=self._commands,
            artifacts=self._artifacts,
            health=self._health,
        )
