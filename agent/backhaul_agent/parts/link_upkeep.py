"""The link's plan, the count of its bytes, and the redials of the leaf."""

from __future__ import annotations

from random import SystemRandom
from typing import TYPE_CHECKING

from backhaul_agent.leaf import redial_service
from backhaul_agent.leaf.redial import Redial
from backhaul_agent.metered.account import LinkAccount
from backhaul_agent.metered.controller import Visits
from backhaul_agent.parts.core import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nats.aio.client import Client

    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.parts.core import Core, Tasks
    from backhaul_agent.status.status import Report


class LinkUpkeep(Part):
    """Budget, visits and redials. ``moving``: bytes of artifacts that have moved, None where none wants the link."""

    def __init__(self, core: Core, moving: Callable[[], int | None]) -> None:
        config, writer = core.config, core.writer
        self._clock = core.clock
        self.account = LinkAccount(
            *(config.link, config.frame.age_s_max, core.clock),
            set_flush_s=writer.set_flush_s,
            wake=writer.wake,
        )
        self.account.restore(core.ledger.meta)
        writer.join(self.account)
        self._redial = Redial(config.link.redial_after_s)
        core.uplink.on_traffic.append(self.account.on_traffic)
        core.uplink.on_look.append(self._on_link)
        self.visits = Visits(
            config, core.clock, core.ledger, core.lanes, core.downlink, core.uplink,
            SystemRandom().random, moving=moving,
        )  # fmt: skip
        core.on_commit.append(self.visits.on_commit)

    def tasks(self) -> Tasks:
        """Return the task that counts the link's bytes."""
        return (self.account.run(),)

    def session(self, client: Client, jetstream: JetStream) -> Tasks:
        """Return the tasks that keep the link as planned, and answer requests for a redial."""
        return (
            self.visits.run(jetstream),
            redial_service.serve(client, self._redial, self._clock.monotonic_s),
        )

    def reports(self) -> Iterable[Report]:
        """Return the plan of the link, its bytes, and the leaf's redials."""
        return (
            ("link", self.visits.status),
            ("link", self.account.status),
            ("leaf", lambda: self._redial.status(self._clock.monotonic_s())),
        )

    def _on_link(self, up: bool | None) -> None:
        wanted, now_s = self.visits.metered.wants_link, self._clock.monotonic_s()
        self._redial.note(up, wanted=wanted, now_s=now_s)
