"""The services of the agent for programs on the vehicle, and for the technician."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backhaul_agent.history.service import HistoryService
from backhaul_agent.ingest.listener import Listener
from backhaul_agent.ingest.parse import Intake
from backhaul_agent.ingest.replay_service import ReplayService
from backhaul_agent.leaf.connection import LeafConnection
from backhaul_agent.parts.core import Part
from backhaul_agent.status.recent import Recent, RecentService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nats.aio.client import Client

    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.page.technician import TechnicianPage
    from backhaul_agent.parts.core import Core, Tasks
    from backhaul_agent.parts.link_upkeep import LinkUpkeep
    from backhaul_agent.status.status import Report


class Programs(Part):
    """The listener and the services beside it, over one connection. ``status``: the source of the page."""

    def __init__(self, core: Core, link: LinkUpkeep, status: Callable[[], dict[str, Any]]) -> None:
        config, clock, ledger = core.config, core.clock, core.ledger
        intake = Intake(config, clock)
        self.listener = Listener(intake, core.writer, config, clock, link.account.sieve.require)
        self.connection = LeafConnection(config, self.listener.on_overrun, self.listener.doors)
        self._replay = ReplayService(ledger, intake, core.writer, clock)
        self._history = HistoryService(ledger)
        self._recent = RecentService(Recent(ledger))
        self._page = self._make_page(core, status) if config.page.listen else None
        self._listening = True

    def client(self) -> Client | None:
        """Return the connection to the leaf server, None while there is none."""
        return self.connection.client

    def tasks(self) -> Tasks:
        """Return the page, if there is one."""
        return (self._page.run(),) if self._page is not None else ()

    def session(self, client: Client, jetstream: JetStream) -> Tasks:
        """Return the tasks that answer programs."""
        return (self.listener.send_answers(client), self._history.run(client))

    async def listen(self, client: Client) -> None:
        """Subscribe to programs' questions, and, unless `stop` was called, to their publishes."""
        await self._recent.run(client)
        if self._listening:
            await self.listener.listen(client)
            await self._replay.run(client)

    async def stop(self) -> None:
        """Unsubscribe: delivered messages are taken in, nothing new comes."""
        self._listening = False
        await self.listener.stop()

    def reports(self) -> Iterable[Report]:
        """Return the counts of programs' messages, and the programs that sent too many."""
        return (
            ("programs", self.listener.floods.as_json),
            ("counters", self.listener.status),
        )

    def _make_page(self, core: Core, status: Callable[[], dict[str, Any]]) -> TechnicianPage:
        from backhaul_agent.page.technician import TechnicianPage  # and with it the HTTP server

        page = TechnicianPage(
            core.config, core.ledger, core.writer.keeper, status=status,
            client=self.client, recent=self._recent.ask, clock=core.clock,
        )  # fmt: skip
        self.listener.on_kept.append(page.live.note)
        return page
