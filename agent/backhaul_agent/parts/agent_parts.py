"""The agent around an open ledger: all its parts, started, and stopped in order.

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
from typing import TYPE_CHECKING, Any

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_agent.config import Config
from backhaul_agent.errors import LedgerCorruptError
from backhaul_agent.leaf.connection import requester
from backhaul_agent.leaf.jetstream import JetStream
from backhaul_agent.ledger.lane_routing import Lanes
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.ledger.system_events import event
from backhaul_agent.parts.core import Core, Part
from backhaul_agent.parts.hub_contact import HubContact
from backhaul_agent.parts.lane_delivery import LaneDelivery
from backhaul_agent.parts.link_upkeep import LinkUpkeep
from backhaul_agent.parts.programs import Programs
from backhaul_agent.parts.state_sync import StateSync
from backhaul_agent.status.metrics import METRICS, samples
from backhaul_agent.status.status import Report, memory_bytes_max, serve, status
from backhaul_runtime import metrics_server
from backhaul_runtime.clock import SteadyClock

if TYPE_CHECKING:
    from backhaul_runtime.systemd_notify import Notifier

DRAIN_S_MAX = 5.0
ANSWER_S_MAX = 2.0
# In this order they stand in the status.
SECTIONS = (
    *("", "clock", "lanes", "link", "leaf", "ledger", "heads"),
    *("commands", "programs", "artifacts", "counters"),
)
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
        self._notifier = notifier
        self.core = core = Core(config, system, ledger, lanes, boot, random_u32)
        self._started_s = core.clock.monotonic_s()
        self._delivery = LaneDelivery(core)
        self._sync = sync = StateSync(core, self._delivery, lambda: self._programs.client())
        link = LinkUpkeep(core, moving=lambda: sync.artifacts.moving)
        self._contact = HubContact(
            core, self._delivery, sync, link, self.status, credentials, on_look
        )
        self._programs = Programs(core, link, self.status)
        self._parts: list[Part] = [
            *(self._programs, core, self._delivery, sync, link, self._contact)
        ]
        reports: list[Report] = [("", self._status)]
        for part in self._parts:
            reports += part.reports()
        self._reports = sorted(reports, key=lambda report: SECTIONS.index(report[0]))

    async def run(self, stop: asyncio.Event, damages: Sequence[str] = ()) -> None:
        """Run until ``stop`` is set, then shut down in order; tell the hub of damaged ledgers before.

        Raises:
            ExceptionGroup: with a `LedgerCorruptError`, where SQLite says so of the ledger.
            LedgerError: it cannot be read at the start.
        """
        core, writer = self.core, self.core.writer
        await self._contact.timekeeper.start(core.boot)
        await writer.restore()
        for damage in damages:
            writer.tell(event("quarantined", {"ledger": damage}, core.clock.now_ns()))
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(writer.run())
            judging = group.create_task(self._until_damaged())
            commanding = group.create_task(self._sync.commands.run())
            works = (
                self._programs.connection.run(self._session),
                metrics_server.serve(
                    core.config.metrics.listen, METRICS, lambda: samples(self.status())
                ),
                self._notifier.watchdog(lambda: not writing.done()),
                *(task for part in self._parts for task in part.tasks()),
            )
            others = [group.create_task(work) for work in works]
            self._notifier.send("READY=1")
            log.info(
                "started", device=core.config.device.id, epoch=core.ledger.epoch,
                staged_points=writer.buffered_points,
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
        ledger = self.core.ledger
        await ledger.damaged.wait()
        raise LedgerCorruptError(ledger.path, ledger.damage)

    async def _session(self, client: Client) -> None:
        """Everything that lives on one connection."""
        jetstream = JetStream(requester(client))
        async with asyncio.TaskGroup() as group:
            for part in self._parts:
                for work in part.session(client, jetstream):
                    group.create_task(work)
            await serve(client, self.core.config.device.id, self.status)
            await self._programs.listen(client)

    async def _shut_down(self, writing: asyncio.Task[None]) -> None:
        """Take steps 1 to 3 of the shutdown, in order; each has a deadline."""
        programs = self._programs
        await self._within(ANSWER_S_MAX, "unsubscribing", programs.stop())
        self.core.writer.stop()
        await writing
        if programs.client() is None:
            return
        await self._within(ANSWER_S_MAX, "answering", programs.listener.answered())
        await self._within(DRAIN_S_MAX, "appending", self._drained())

    async def _drained(self) -> None:
        for lane in self.core.lanes:
            await lane.drained()

    async def _within(self, limit_s: float, what: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await work
        except (TimeoutError, NatsError) as error:
            log.warning("shutdown_step_failed", step=what, error=repr(error))

    def status(self) -> dict[str, Any]:
        """Return the answer to ``agent.status``."""
        return status(self._reports)

    def _status(self) -> dict[str, Any]:
        """Return the values of the status that stand at its top."""
        core, connection, health = self.core, self._programs.connection, self._contact.health
        errors = (
            *(core.writer.counters.last_error, self._delivery.leaf_store.error),
            *(lane.last_error for lane in core.lanes),
            core.downlink.last_error,
        )
        return {
            "device": core.config.device.id,
            "epoch": core.ledger.epoch,
            "machine": asdict(health.report.machine),
            "uptime_s": round(core.clock.monotonic_s() - self._started_s, 3),
            "memory_bytes_max": memory_bytes_max(),
            "conditions": [condition.as_json() for condition in health.shown],
            "connects": connection.connects,
            "connected": connection.client is not None,
            "last_error": next(filter(None, errors), ""),
        }
