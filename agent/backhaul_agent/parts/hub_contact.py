"""The agent's questions to the hub and its reports, beside the lanes: time, health, pushes, keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backhaul_agent.enrol.key_rotation import KeyRotation
from backhaul_agent.leaf.link_watch import LinkWatch
from backhaul_agent.parts.core import Part
from backhaul_agent.push.pusher import Pusher
from backhaul_agent.push.sleeper import Sleeper
from backhaul_agent.status.health_watch import HealthWatch
from backhaul_agent.time_sync.timekeeper import Timekeeper
from backhaul_agent.uplink.stall_report import StallReport
from backhaul_codec.protocol.rotation import SUBJECT as rotation_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.parts.core import Core, Tasks
    from backhaul_agent.parts.lane_delivery import LaneDelivery
    from backhaul_agent.parts.link_upkeep import LinkUpkeep
    from backhaul_agent.parts.state_sync import StateSync
    from backhaul_agent.status.status import Report


class HubContact(Part):
    """The exchange with the hub, and all that rides on it."""

    def __init__(
        self,
        core: Core,
        delivery: LaneDelivery,
        sync: StateSync,
        link: LinkUpkeep,
        status: Callable[[], dict[str, Any]],
        credentials: Path | None,
        on_look: Callable[[], None],
    ) -> None:
        config, clock, ledger = core.config, core.clock, core.ledger
        uplink, downlink = core.uplink, core.downlink
        self._core = core
        self._stall_report = StallReport(config.link.stalled_after_s)
        if config.device.down_stream:  # else nobody confirms anything
            uplink.on_look.append(self._tell_what_stands_still)
        if credentials is not None:
            kept = ledger.path.with_name("key-rotation.json")
            rotation = KeyRotation(config.device.id, kept, credentials, clock.now_ns)
            downlink.register(rotation_subject, rotation.on_message)
        self.health = HealthWatch(config, clock, status, core.machine, on_look)
        self.timekeeper = Timekeeper(
            *(config, clock, ledger, core.writer, uplink),
            *(delivery.epoch_words, self.health.report, delivery.comparison),
        )
        self.timekeeper.on_step_over.append(sync.link_news.compare_again)
        exchange = self.timekeeper.exchange
        exchange.on_yield = link.visits.stay_away
        self._watch = LinkWatch(config, uplink, exchange.ask)
        self._pusher = pusher = Pusher(
            config, ledger, core.lanes, uplink, clock, exchange.push_word_changed
        )
        self._sleeper = sleeper = Sleeper(
            *(config, downlink, uplink, clock, exchange.push_word_changed, core.routing.own),
            in_doubt=lambda: pusher.policy.wakes,
            enabled=pusher.enabled,
        )
        exchange.push_word = lambda: pusher.word(asks_down_end=sleeper.sleep.asks)
        exchange.on_push, exchange.on_down_ends = pusher.heard, sleeper.sleep.heard
        delivery.flow.on_rate.append(pusher.policy.carries)
        delivery.flow.unread = sync.link_news.pushed = pusher.policy.asleep

    def tasks(self) -> Tasks:
        """Return the tasks that keep time, look for conditions, and end half-open links."""
        return (self.timekeeper.run(), self.health.run(), self._watch.run())

    def session(self, client: Client, jetstream: JetStream) -> Tasks:
        """Return the tasks that ask the hub for the time, and push."""
        return (
            self.timekeeper.serve(client),
            self._pusher.run(jetstream),
            self._sleeper.run(client, jetstream),
        )

    def reports(self) -> Iterable[Report]:
        """Return the quality of the time, and the state of pushes."""
        return (
            ("clock", self.timekeeper.status),
            ("link", self._watch.status),
            ("link", self._pusher.status),
            ("link", self._sleeper.status),
        )

    def _tell_what_stands_still(self, up: bool | None) -> None:
        core = self._core
        lanes = ((lane.name, *lane.entered.owed()) for lane in core.lanes)
        if still := self._stall_report.look(lanes, core.clock.monotonic_s(), up=bool(up)):
            self.timekeeper.exchange.tell(core.ledger.epoch, still)
