"""Following: entries are applied as they come, until the machine that leads leaves or says nothing more."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_hub.config import HubConfig
from backhaul_hub.errors import HubError, RegistryError
from backhaul_hub.standby.copies import fetch_copy
from backhaul_hub.standby.entry import JournalError
from backhaul_hub.standby.patience import LeaderPatience
from backhaul_hub.standby.replica import FollowingRegistry
from backhaul_hub.standby.report import REPORTS, FollowerReport
from backhaul_hub.standby.stream import JournalEnds, JournalStream
from backhaul_runtime.clock import Clock
from backhaul_runtime.trouble import Trouble

log = structlog.get_logger(__name__)

_LOOK_S = 0.2
_REPORT_S = 1.0
_COPY_AGAIN_S = 10.0
FORMER = "hub.db.before-standby"


class Follower:
    """Follows from `run`'s call until this machine is to lead.

    Args:
        stream: the journal.
        clock: for silences.
    """

    def __init__(
        self,
        client: Client,
        stream: JournalStream,
        directory: Path,
        config: HubConfig,
        clock: Clock,
    ) -> None:
        self._client = client
        self._stream = stream
        self._path = directory / "hub.db"
        self._machine = config.standby.machine
        self._clock = clock
        self._patience = LeaderPatience(config.standby.patience_s, self._machine)
        self._replica: FollowingRegistry | None = None
        self._why = "it has not read the journal yet"
        self._reported_s = -_REPORT_S
        self._copied_s = -_COPY_AGAIN_S
        self._trouble = Trouble(
            *(log, "following_waits", HubError, NatsError, JournalError, OSError), wait_s=_LOOK_S
        )

    @property
    def ready(self) -> bool:
        """Whether this machine could lead at once."""
        return not self._why

    async def run(self) -> FollowingRegistry:
        """Follow; return hub.db, which holds all of the journal, once nobody leads any more.

        Raises:
            HubError: this hub.db can follow no journal, which an operator has to decide; or the connection is closed.
        """
        try:
            await self._open()
            while True:
                if self._client.is_closed:
                    raise HubError("the connection to the hub's nats-server has closed for good")
                async with self._trouble:
                    if await self._look():
                        found, self._replica = self._replica, None
                        assert found is not None  # it was looked at
                        return found
                await self._report()
                await asyncio.sleep(_LOOK_S)
        finally:
            if self._replica is not None:
                await self._replica.close()

    async def _open(self) -> None:
        """Open hub.db; one that goes by no journal is moved aside, and a copy of the leader's takes its place."""
        ends = await self._ends()
        if ends is None:
            raise HubError(
                "the hub has no journal",
                hint="on the machine whose hub.db counts, once: backhaul-hub up --begin-journal",
            )
        replica = await FollowingRegistry.open(self._path)
        if replica is not None and replica.created != ends.created:
            await replica.close()
            replica = None
        self._replica = replica
        if replica is None and self._path.exists():
            log.warning("hub_db_moved_aside", to=FORMER)
            self._path.replace(self._path.with_name(FORMER))
            for suffix in ("-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        if replica is not None and replica.position > ends.last_seq:
            raise HubError(
                f"{self._path} holds more than the hub's journal, which has lost entries",
                hint="on the machine whose hub.db is the newest, once: backhaul-hub up --begin-journal",
            )

    async def _ends(self) -> JournalEnds | None:
        while True:
            async with self._trouble:
                return await self._stream.ends()

    async def _look(self) -> bool:
        """Read the new entries; tell whether this machine is to lead.

        Raises:
            HubError, NatsError: the servers do not answer.
            JournalError, RegistryError, OSError: hub.db cannot go on, and no copy was to be had.
        """
        try:
            ends = await self._stream.ends()
        except (HubError, NatsError):
            self._why = "the journal's servers do not answer"
            self._patience.unanswered()
            raise
        if ends is None:
            self._why = "the hub's journal is gone"
            self._patience.unanswered()
            raise HubError(self._why)
        self._patience.answered(ends.last_seq, self._clock.monotonic_s())
        try:
            replica = await self._caught_up(ends)
        except (JournalError, RegistryError) as error:
            self._why = str(error)
            await self._copy(str(error))
            return False
        except HubError as error:
            self._why = str(error)
            raise
        self._why = ""
        return self._patience.over and replica.position == ends.last_seq

    async def _caught_up(self, ends: JournalEnds) -> FollowingRegistry:
        replica = self._replica
        if replica is None:
            raise JournalError("there is no hub.db here yet")
        if ends.created != replica.created:
            raise JournalError("the journal is another one now")
        if replica.position > ends.last_seq:
            raise HubError("the journal has lost entries")
        if replica.position + 1 < ends.first_seq:
            raise JournalError(
                f"the journal begins at {ends.first_seq}, hub.db goes to {replica.position}"
            )
        try:
            while replica.assembler.position < ends.last_seq:
                before = replica.assembler.position
                entries = await self._stream.read(replica.assembler)
                if replica.assembler.position == before:
                    break  # a server that lags has answered
                await replica.apply(entries)
                for _, entry in entries:
                    self._patience.read(entry)
                await self._report()
        except BaseException:
            replica.read_again()
            raise
        return replica

    async def _copy(self, why: str) -> None:
        """Put a copy of the leader's hub.db in the place of this one. Raises: JournalError, HubError, OSError."""
        now_s = self._clock.monotonic_s()
        if now_s - self._copied_s < _COPY_AGAIN_S:
            raise JournalError(why)
        self._copied_s = now_s
        log.warning("copy_needed", why=why)
        replica, self._replica = self._replica, None
        if replica is not None:
            await replica.close()
        try:
            await fetch_copy(self._client, self._path)
        finally:
            self._replica = await FollowingRegistry.open(self._path)

    async def _report(self) -> None:
        """Tell the machine that leads how far this one is, once a second at most."""
        now_s = self._clock.monotonic_s()
        if now_s - self._reported_s < _REPORT_S:
            return
        self._reported_s = now_s
        position = self._replica.position if self._replica is not None else 0
        report = FollowerReport(self._machine, position, self.ready, self._why)
        with suppress(NatsError):
            await self._client.publish(REPORTS, msgspec.json.encode(report))
