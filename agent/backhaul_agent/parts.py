"""The parts of the agent around an open ledger: wired, started, and stopped in order.

They stop in this order:
0. commands: running executables are ended with their process groups, within four seconds
1. unsubscribe from ``app.``: delivered messages are taken in, nothing new comes
2. final commit: everything taken in is durable, framed, and answered
3. append: the ledger's messages go to the leaf, for at most `DRAIN_S_MAX`; the rest waits on disk
4. close: the connection; the caller closes the ledger
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any

import structlog
from nats.aio.client import Client
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
from backhaul_agent.config import Config
from backhaul_agent.downlink.downlink import Downlink
from backhaul_agent.enrol.key_rotation import KeyRotation
from backhaul_agent.errors import LedgerCorruptError
from backhaul_agent.history.service import HistoryService
from backhaul_agent.hub_time.hub_clock import HubClock
from backhaul_agent.ingest.listener import Listener
from backhaul_agent.ingest.parse import Intake
from backhaul_agent.ingest.replay_service import ReplayService
from backhaul_agent.leaf import redial_service
from backhaul_agent.leaf.connection import LeafConnection, requester
from backhaul_agent.leaf.jetstream import JetStream
from backhaul_agent.leaf.link_state import UplinkState
from backhaul_agent.leaf.redial import Redial
from backhaul_agent.leaf.store_health import LeafStore
from backhaul_agent.leaf.streams import link_window
from backhaul_agent.ledger.disk_reserve import Reserve
from backhaul_agent.ledger.lane_routing import Lanes
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.ledger.system_events import event
from backhaul_agent.metered.account import LinkAccount
from backhaul_agent.metered.controller import Visits
from backhaul_agent.presence.machine import identify
from backhaul_agent.push.pusher import Pusher
from backhaul_agent.push.sleeper import Sleeper
from backhaul_agent.status.health_watch import HealthWatch
from backhaul_agent.status.metrics import METRICS, samples
from backhaul_agent.status.recent import Recent
from backhaul_agent.status.recent_service import RecentService
from backhaul_agent.status.service import serve
from backhaul_agent.status.status import Report, memory_bytes_max, status
from backhaul_agent.sync.on_link_up import LinkNews
from backhaul_agent.sync.restamp import Restamps
from backhaul_agent.sync.service import ConfigService
from backhaul_agent.time_sync.timekeeper import Timekeeper
from backhaul_agent.uplink.comparison import Comparison
from backhaul_agent.uplink.dispatch import Asks, Watermarks
from backhaul_agent.uplink.epoch_sync import EpochWords
from backhaul_agent.uplink.flow_control import Flow
from backhaul_agent.uplink.lane import Lane
from backhaul_agent.uplink.stall_report import StallReport
from backhaul_codec.protocol.rotation import SUBJECT as rotation_subject
from backhaul_runtime import metrics_server
from backhaul_runtime.clock import SteadyClock

if TYPE_CHECKING:
    from backhaul_agent.page.technician import TechnicianPage
    from backhaul_agent.systemd_notify import Notifier

DRAIN_S_MAX = 5.0
ANSWER_S_MAX = 2.0
log = structlog.get_logger("daemon")


class Parts:
    """Everything around an open ledger, wired together."""

    def __init__(
        self,
        config: Config,
        system: SteadyClock,
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
        self._account = account = LinkAccount(
            *(config.link, config.frame.age_s_max, clock),
            set_flush_s=self._writer.set_flush_s,
            wake=self._writer.wake,
        )
        account.restore(ledger.meta)
        self._writer.join(account)
        intake = Intake(config, clock)
        self._listener = Listener(intake, self._writer, config, clock, account.sieve.require)
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
        self._downlink.register("s.dictionary", self._writer.packer.on_message)
        self._downlink.register("p", on_points)
        self._config_service = ConfigService(self._writer, config)
        self._history = HistoryService(ledger)
        self._link = LeafConnection(config, self._listener.on_overrun, self._listener.doors)
        self._commands = CommandService(
            config, ledger, self._writer, clock, lambda: self._link.client
        )
        self._downlink.register("c", self._commands.on_message)
        self._uplink = UplinkState()
        self._redial = Redial(config.link.redial_after_s)
        self._stall_report = StallReport(config.link.stalled_after_s)
        self._uplink.on_up += [marks.link_up, self._writer.wake]
        self._uplink.on_look.append(self._on_link)
        self._uplink.on_traffic.append(account.on_traffic)
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
        self._flow.on_rate.append(self._artifacts.transfers.link_carries)
        self._artifact_service = ArtifactService(self._artifacts)
        chance = SystemRandom().random
        self._visits = Visits(
            config, clock, ledger, self._lanes, self._downlink, self._uplink, chance,
            moving=lambda: self._artifacts.moving,
        )  # fmt: skip
        self._flow.on_rate.append(self._link_news.heads_first.carries)
        restamps = Restamps(self._writer.keeper, clock.now_ns, self._link_news.compare_again)
        self._downlink.register("s.restamp", restamps.on_message)
        if credentials is not None:
            kept = ledger.path.with_name("key-rotation.json")
            rotation = KeyRotation(config.device.id, kept, credentials, clock.now_ns)
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
        exchange = self._timekeeper.exchange
        exchange.on_yield = self._visits.stay_away
        self._pusher = Pusher(
            config, ledger, self._lanes, self._uplink, clock, exchange.push_word_changed
        )
        self._sleeper = Sleeper(
            *(config, self._downlink, self._uplink, clock, exchange.push_word_changed),
            lanes.own,
            in_doubt=lambda: self._pusher.policy.wakes,
            enabled=self._pusher.enabled,
        )
        exchange.push_word = lambda: self._pusher.word(asks_down_end=self._sleeper.sleep.asks)
        exchange.on_push, exchange.on_down_ends = self._pusher.heard, self._sleeper.sleep.heard
        self._flow.on_rate.append(self._pusher.policy.carries)
        self._flow.unread = self._link_news.pushed = self._pusher.policy.asleep
        self._timekeeper.on_step_over.append(self._link_news.compare_again)
        self._recent = RecentService(Recent(ledger))
        self._page = self._make_page() if config.page.listen else None
        self._listening = True
        self._reports: list[Report] = [
            ("", self._status),
            ("clock", self._timekeeper.status),
            ("lanes", lambda: {lane.name: lane.status() for lane in self._lanes}),
            ("link", self._visits.status),
            ("link", self._flow.status),
            ("link", self._account.status),
            ("link", self._pusher.status),
            ("link", self._sleeper.status),
            ("leaf", self._leaf_store.status),
            ("leaf", lambda: self._redial.status(clock.monotonic_s())),
            ("ledger", ledger.status),
            ("ledger", self._writer.status),
            ("ledger", self._comparison.status),
            ("heads", self._writer.keeper.status),
            ("heads", self._link_news.digests.status),
            ("commands", self._commands.status),
            ("programs", self._listener.floods.as_json),
            ("artifacts", self._artifacts.room.status),
            ("counters", self._listener.status),
            ("counters", self._writer.counters.status),
            ("counters", self._downlink.status),
        ]

    async def run(self, stop: asyncio.Event, damages: Sequence[str] = ()) -> None:
        """Run until ``stop`` is set, then shut down in order; tell the hub of damaged ledgers before.

        Raises:
            ExceptionGroup: with a `LedgerCorruptError`, where SQLite says so of the ledger.
            LedgerError: it cannot be read at the start.
        """
        await self._timekeeper.start(self._boot)
        await self._writer.restore()
        for damage in damages:
            self._writer.tell(event("quarantined", {"ledger": damage}, self._clock.now_ns()))
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(self._writer.run())
            judging = group.create_task(self._until_damaged())
            commanding = group.create_task(self._commands.run())
            works = (
                self._timekeeper.run(),
                self._link.run(self._session),
                self._health.run(),
                self._account.run(),
                metrics_server.serve(
                    self._config.metrics.listen, METRICS, lambda: samples(self.status())
                ),
                self._notifier.watchdog(lambda: not writing.done()),
            )
            others = [group.create_task(work) for work in works]
            if self._page is not None:
                others.append(group.create_task(self._page.run()))
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
            for each in others:
                each.cancel()

    async def _until_damaged(self) -> None:
        """End all that runs once the ledger is known to be damaged."""
        await self._ledger.damaged.wait()
        raise LedgerCorruptError(self._ledger.path, self._ledger.damage)

    async def _session(self, client: Client) -> None:
        """Everything that lives on one connection."""
        jetstream = JetStream(requester(client))
        works = (
            self._listener.send_answers(client),
            self._uplink.run(requester(client)),
            self._leaf_store.run(jetstream),
            self._timekeeper.serve(client),
            self._epoch_words.run(jetstream),
            self._comparison.run(jetstream),
            *(lane.run(client, jetstream) for lane in self._lanes),
            self._downlink.run(client, jetstream),
            self._commands.tidy(jetstream),
            self._config_service.run(client),
            self._link_news.run(),
            self._history.run(client),
            self._flow.run(jetstream),
            self._pusher.run(jetstream),
            self._sleeper.run(client, jetstream),
            self._visits.run(jetstream),
            self._artifact_service.run(client),
            self._artifacts.run(client),
        )
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
            await serve(client, self._config.device.id, self.status)
            await self._recent.run(client)
            await redial_service.serve(client, self._redial, self._clock.monotonic_s)
            if self._listening:
                await self._listener.listen(client)
                await self._replay.run(client)

    def _make_page(self) -> TechnicianPage:
        from backhaul_agent.page.technician import TechnicianPage  # and with it the HTTP server

        page = TechnicianPage(
            self._config, self._ledger, self._writer.keeper, status=self.status,
            client=lambda: self._link.client, recent=self._recent.ask, clock=self._clock,
        )  # fmt: skip
        self._listener.on_kept.append(page.live.note)
        return page

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
            log.warning("shutdown_step_failed", step=what, error=repr(error))

    def _on_commit(self) -> None:
        for lane in self._lanes:
            lane.on_commit()
        self._visits.on_commit()

    def _on_link(self, up: bool | None) -> None:
        now_s = self._clock.monotonic_s()
        self._writer.gate.epochs.note_link(up, now_s)
        self._redial.note(up, wanted=self._visits.metered.wants_link, now_s=now_s)
        self._writer.wake()

    def _tell_what_stands_still(self, up: bool | None) -> None:
        lanes = ((lane.name, *lane.entered.owed()) for lane in self._lanes)
        if still := self._stall_report.look(lanes, self._clock.monotonic_s(), up=bool(up)):
            self._timekeeper.exchange.tell(self._ledger.epoch, still)

    def status(self) -> dict[str, Any]:
        """Return the answer to ``agent.status``."""
        return status(self._reports)

    def _status(self) -> dict[str, Any]:
        """Return the parts of the status that stand at its top."""
        writer, leaf, downlink = self._writer, self._leaf_store, self._downlink
        errors = [
            *(writer.counters.last_error, leaf.error),
            *(lane.last_error for lane in self._lanes),
            downlink.last_error,
        ]
        return {
            "device": self._config.device.id,
            "epoch": self._ledger.epoch,
            "machine": asdict(self._health.report.machine),
            "uptime_s": round(self._clock.monotonic_s() - self._started_s, 3),
            "memory_bytes_max": memory_bytes_max(),
            "conditions": [condition.as_json() for condition in self._health.shown],
            "connects": self._link.connects,
            "connected": self._link.client is not None,
            "last_error": next(filter(None, errors), ""),
        }
