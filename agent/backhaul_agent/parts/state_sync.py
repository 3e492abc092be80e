"""The state that hub and vehicle hold alike: configuration, artifacts; and commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_agent.artifacts.manager import Artifacts
from backhaul_agent.artifacts.service import ArtifactService
from backhaul_agent.artifacts.store import ArtifactStore
from backhaul_agent.commands.service import CommandService
from backhaul_agent.commit.epochs import Verdict
from backhaul_agent.commit.heads import on_points
from backhaul_agent.parts.core import Part
from backhaul_agent.sync.on_link_up import LinkNews
from backhaul_agent.sync.restamp import Restamps
from backhaul_agent.sync.service import ConfigService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nats.aio.client import Client

    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.parts.core import Core, Tasks
    from backhaul_agent.parts.lane_delivery import LaneDelivery
    from backhaul_agent.status.status import Report


class StateSync(Part):
    """Everything that follows from the hub's writes for this vehicle.

    ``client``: the connection to the leaf server, None while there is none.
    """

    def __init__(
        self, core: Core, delivery: LaneDelivery, client: Callable[[], Client | None]
    ) -> None:
        config, ledger, writer = core.config, core.ledger, core.writer
        clock, uplink, downlink = core.clock, core.uplink, core.downlink
        self._config_service = ConfigService(writer, config)
        self.commands = CommandService(config, ledger, writer, clock, client)
        # A root that is told must not wait beside what changes it: the answer would come too late.
        self.link_news = LinkNews(
            config, ledger, writer, clock, uplink,
            settled=lambda: (
                not (clock.mark or ledger.held_messages)
                and core.epochs.verdict is not Verdict.WAITING
            ),
        )  # fmt: skip
        self.artifacts = Artifacts(
            config, clock, ArtifactStore(config.artifacts), writer.keeper, uplink,
            self._config_service.set, core.boot,
        )  # fmt: skip
        self._artifact_service = ArtifactService(self.artifacts)
        writer.keeper.on_heads.append(self.artifacts.on_heads)
        delivery.flow.on_rate += [
            self.artifacts.transfers.link_carries,
            self.link_news.heads_first.carries,
        ]
        restamps = Restamps(writer.keeper, clock.now_ns, self.link_news.compare_again)
        downlink.register("p", on_points)
        downlink.register("c", self.commands.on_message)
        downlink.register("s.restamp", restamps.on_message)
        downlink.register("s.digest", self.link_news.digests.on_message)

    def session(self, client: Client, jetstream: JetStream) -> Tasks:
        """Return the tasks that answer programs, compare with the hub, and fetch artifacts."""
        return (
            self.commands.tidy(jetstream),
            self._config_service.run(client),
            self.link_news.run(),
            self._artifact_service.run(client),
            self.artifacts.run(client),
        )

    def reports(self) -> Iterable[Report]:
        """Return the state of comparisons, commands and artifacts."""
        return (
            ("heads", self.link_news.digests.status),
            ("commands", self.commands.status),
            ("artifacts", self.artifacts.room.status),
        )
