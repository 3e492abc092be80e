"""One term of a control plane that leads: its journal, its followers, and its successor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from backhaul_codec.assurance.conditions import Finding
from backhaul_hub.access.push import AccountKeeper
from backhaul_hub.config import StandbySection
from backhaul_hub.db.store import Registry
from backhaul_hub.standby.copies import CopyDesk
from backhaul_hub.standby.leading import LeadersJournal
from backhaul_hub.standby.report import REPORTS, FollowerReport, Followers
from backhaul_hub.standby.rows import go_on
from backhaul_hub.standby.term_logins import shut_out_others
from backhaul_runtime.clock import Clock

_PLACE_S = 600.0
_reports = msgspec.json.Decoder(FollowerReport)


class Leadership:
    """One term of this machine.

    Args:
        journal: the term's.
        new_name: returns a name that nothing else has.
    """

    def __init__(
        self,
        journal: LeadersJournal,
        config: StandbySection,
        directory: Path,
        clock: Clock,
        new_name: Callable[[], str],
    ) -> None:
        self.journal = journal
        self.successor = ""
        """Which machine is to lead next; empty: any."""
        self._config = config
        self._clock = clock
        self._desk = CopyDesk(directory, new_name)
        self._since_ns = clock.now_ns()
        self._followers = Followers(config.others, clock.monotonic_s())

    async def shut_out_others(
        self, registry: Registry, accounts: AccountKeeper, system: Client, servers: int
    ) -> None:
        """Return once no machine that led before can do anything any more. Raises: RegistryError."""
        await shut_out_others(
            *(registry, accounts, system),
            term_seq=self.journal.term.seq,
            servers=servers,
            now_ns=self._clock.now_ns(),
        )

    async def open(self, client: Client) -> None:
        """Hear the machines that follow, and have copies made for them, while the connection lives."""
        await client.subscribe(REPORTS, cb=self._heard)
        await self._desk.open(client)

    async def keep_place(self, registry: Registry) -> None:
        """Have hub.db note how far it goes where nothing else is written, lest the journal forgets where that was."""
        while True:
            await asyncio.sleep(_PLACE_S)
            await registry.write([go_on(self.journal.position)])

    async def close(self) -> None:
        """Delete the copy that was made for others."""
        await self._desk.close()

    def hand_over(self, to: str) -> dict[str, Any]:
        """Choose who leads next: `to`, or any that is ready. Raises: HubError: none is."""
        self.successor = self._followers.to_lead(to, self._clock.monotonic_s())
        return {"from": self._config.machine, "to": self.successor}

    def status(self) -> dict[str, Any]:
        """Return the leader, and each follower with its distance."""
        journal, now_s = self.journal, self._clock.monotonic_s()
        return {
            "leads": self._config.machine,
            "since_ns": self._since_ns,
            "term": journal.term.seq,
            "position": journal.position,
            "silent_s": round(journal.silent_s(), 1),
            "follow": self._followers.rows(journal.position, now_s),
        }

    def findings(self) -> Iterable[Finding]:
        """Return the faults of machines that follow."""
        return self._followers.findings(self.journal.position, self._clock.monotonic_s())

    async def _heard(self, message: Msg) -> None:
        try:
            report = _reports.decode(message.data)
        except msgspec.DecodeError:
            return
        if report.machine != self._config.machine:
            self._followers.hear(report, self._clock.monotonic_s())
