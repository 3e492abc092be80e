"""Proof with the hub that the lanes arrive, and the flow of their streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_agent.leaf.store_health import LeafStore
from backhaul_agent.leaf.streams import link_window
from backhaul_agent.parts.core import Part
from backhaul_agent.uplink.comparison import Comparison
from backhaul_agent.uplink.dispatch import Asks, Watermarks
from backhaul_agent.uplink.epoch_sync import EpochWords
from backhaul_agent.uplink.flow_control import Flow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nats.aio.client import Client

    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.parts.core import Core, Tasks
    from backhaul_agent.status.status import Report


class LaneDelivery(Part):
    """Watermarks, resends, epochs, and the flow of the lanes."""

    def __init__(self, core: Core) -> None:
        config, ledger, writer = core.config, core.ledger, core.writer
        lanes, clock, downlink = core.lanes, core.clock, core.downlink
        watermarks = Watermarks(lanes)
        downlink.register("s.watermark", watermarks.on_message, in_memory=True)
        downlink.register("s.held", watermarks.on_held, in_memory=True)
        downlink.register("s.resend", Asks(lanes).on_message, in_memory=True)
        downlink.register("s.dictionary", writer.packer.on_message)
        self.epoch_words = EpochWords(ledger, writer, clock, lanes)
        core.uplink.on_up.append(self.epoch_words.link_up)
        self.comparison = Comparison(ledger, writer, clock, lanes, config.device.token)
        self.leaf_store = LeafStore([*(lane.stream for lane in lanes), *downlink.streams])
        self.flow = Flow(link_window(config, ledger.lanes), config, clock)
        self.flow.on_ahead |= {lane.name: lane.on_passed for lane in lanes}

    def session(self, client: Client, jetstream: JetStream) -> Tasks:
        """Return the tasks that ask the leaf server and the hub."""
        return (
            self.leaf_store.run(jetstream),
            self.epoch_words.run(jetstream),
            self.comparison.run(jetstream),
            self.flow.run(jetstream),
        )

    def reports(self) -> Iterable[Report]:
        """Return the link's capacity, the leaf's health, and the hub's words in doubt."""
        return (
            ("link", self.flow.status),
            ("leaf", self.leaf_store.status),
            ("ledger", self.comparison.status),
        )
