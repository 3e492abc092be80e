"""One of several machines with a control plane: it follows, leads while none other does, and follows again."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog
from nats.aio.client import Client

from backhaul_codec.assurance.metrics import Sample
from backhaul_hub.access.keys import read_keys
from backhaul_hub.config import HubConfig
from backhaul_hub.db.journal import NoJournal
from backhaul_hub.db.lock import ENDS_S_MAX, alone_with
from backhaul_hub.db.migrations import SCHEMA_VERSION
from backhaul_hub.db.store import Registry
from backhaul_hub.health.metrics import LEADS
from backhaul_hub.nats.connection import connect
from backhaul_hub.standby.entry import Entry, JournalEntry, messages_of
from backhaul_hub.standby.follower import Follower
from backhaul_hub.standby.judgement import DoubtVerdict
from backhaul_hub.standby.leadership import Leadership
from backhaul_hub.standby.leading import LEFT, LeadersJournal
from backhaul_hub.standby.replica import FollowingRegistry
from backhaul_hub.standby.rows import Term, begin
from backhaul_hub.standby.stream import JournalStream
from backhaul_hub.standby.term_logins import make_logins, with_logins
from backhaul_runtime import metrics_server
from backhaul_runtime.clock import Clock

log = structlog.get_logger(__name__)

Result = TypeVar("Result")
# For a control plane to stop in order; then it is cut short.
_END_S = 30.0


class Plane(Protocol):
    """A control plane."""

    async def run(self) -> None:
        """Serve until `stop`. Raises: HubError, and groups of it."""

    def stop(self) -> None:
        """Let `run` come to its end."""


class StandbyMachine:
    """Runs a control plane whenever this machine leads.

    Args:
        config: hub.toml; [standby] names this machine.
        plane: makes a control plane with settings, for a term.
    """

    def __init__(
        self,
        directory: Path,
        config: HubConfig,
        clock: Clock,
        plane: Callable[[HubConfig, Leadership], Plane],
    ) -> None:
        self._directory = directory
        self._config = config
        self._clock = clock
        self._make_plane = plane
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Let `run` come to its end; where this machine leads, another one takes over."""
        self._stop.set()

    async def run(self) -> None:
        """Follow and lead until `stop`.

        Raises:
            HubError: as `ControlPlane.run`, or this hub.db can follow no journal.
        """
        async with alone_with(self._directory, "the control plane", wait_s=ENDS_S_MAX):
            await self._run()

    async def _run(self) -> None:
        nats = self._config.nats
        # It is never of a term: nothing goes out over it but what the journal's sequence fences.
        client = await connect(nats.url, nats.control)
        try:
            stream = JournalStream(client)
            while not self._stop.is_set():
                follower = Follower(client, stream, self._directory, self._config, self._clock)
                log.info("follows", machine=self._config.standby.machine)
                replica = await self._unless_stopped(self._follow(follower))
                if replica is not None:
                    await self._lead(stream, replica)
        finally:
            await client.close()

    async def _follow(self, follower: Follower) -> FollowingRegistry:
        """Follow, and tell so where Prometheus and probes ask; a control plane that leads listens there itself."""
        listen = self._config.metrics.listen
        told = [Sample(LEADS, 0)]
        telling = metrics_server.serve(listen, [LEADS], told.copy, lambda: follower.ready)
        serving = asyncio.create_task(telling)
        try:
            return await follower.run()
        finally:
            await _ended(serving)

    async def _unless_stopped(self, work: Coroutine[Any, Any, Result]) -> Result | None:
        """Return the result of some work; None where `stop` came first."""
        doing, stopping = asyncio.create_task(work), asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([doing, stopping], return_when=asyncio.FIRST_COMPLETED)
            return await doing if doing.done() else None
        finally:
            await _ended(doing, stopping)

    async def _lead(self, stream: JournalStream, replica: FollowingRegistry) -> None:
        """Take over, unless another machine was first, and lead for as long as it goes well."""
        machine, name = self._config.standby.machine, _name()
        keys = read_keys(self._directory)
        now_s = self._clock.now_ns() // 1_000_000_000
        public = make_logins(self._directory, keys, machine, name, now_s=now_s)
        entry = Entry("lead", name, machine, SCHEMA_VERSION, keys=public)
        try:
            store = stream.store(messages_of(entry), name, replica.position)
            found = await self._unless_stopped(store)
            if found is None or found[0] is not DoubtVerdict.STORED:
                return
            seq = found[1]
            await replica.apply([JournalEntry(seq, entry)])
        finally:
            await replica.close()
        log.info("leads", machine=machine, term=seq)
        journal = LeadersJournal(
            *(stream, Term(seq, machine, public), SCHEMA_VERSION, seq),
            *(_name, self._clock),
        )
        leadership = Leadership(journal, self._config.standby, self._directory, self._clock, _name)
        settings = with_logins(self._config, self._directory, name)
        await self._serve(self._make_plane(settings, leadership), leadership)

    async def _serve(self, plane: Plane, leadership: Leadership) -> None:
        """Run the control plane until it ends, this machine stops, or the term is over; then leave."""
        journal = leadership.journal
        running = asyncio.create_task(plane.run())
        beating, stopping = (
            asyncio.create_task(work) for work in (journal.beat(), self._stop.wait())
        )
        try:
            await asyncio.wait([running, beating, stopping], return_when=asyncio.FIRST_COMPLETED)
            plane.stop()
            await asyncio.wait([running], timeout=_END_S)
            await _ended(running)
            # All that it did is done, and its connections are closed.
            await journal.leave(leadership.successor)
        finally:
            await _ended(running, beating, stopping)
        error = None if running.cancelled() else running.exception()
        if error is None:
            return
        if journal.why == LEFT:
            raise error
        # Without its logins, or out of its term, a control plane ends in many ways.
        log.info("led_no_more", why=journal.why, error=repr(error))


async def begin_journal(client: Client, directory: Path, config: HubConfig) -> None:
    """Have the hub.db of this machine be the first of a new journal, in place of one that there may be.

    No control plane may run anywhere.

    Raises:
        HubError: the server refused, or hub.db is not usable.
    """
    async with alone_with(directory, "the begin of a journal", wait_s=ENDS_S_MAX):
        made = await JournalStream(client).make(config)
        async with await Registry.open(directory / "hub.db", NoJournal()) as registry:
            await begin(registry, made.created)
    log.info("journal_begun", created=made.created)


async def _ended(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks that have not ended, and wait for their end."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        # Again where one has lost the cancellation, as `asyncio.wait_for` did before Python 3.12.
        await asyncio.wait(pending, timeout=1.0)


def _name() -> str:
    return secrets.token_hex(8)
