"""The shell around `policy.Metered`: learns the facts, and has the link switched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from nats.errors import Error as NatsError

from backhaul_agent.cancellation import heard
from backhaul_agent.config import Config
from backhaul_agent.downlink.downlink import Downlink
from backhaul_agent.errors import JetStreamError, LedgerStorageError, LinkSwitchError
from backhaul_agent.leaf.jetstream import JetStream
from backhaul_agent.leaf.link_state import UplinkState
from backhaul_agent.ledger.eviction_policy import ACCOUNT, CONFIG, EVENT, STATE, TELEMETRY
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.metered.link_switch import LinkSwitch
from backhaul_agent.metered.policy import Metered, Phase, VisitFacts, VisitPlan
from backhaul_agent.uplink.lane import Lane
from backhaul_codec.subjects import shared_subject
from backhaul_runtime.clock import Clock

LOOK_S = 1.0
SHARED_SHOWN_S = 60.0  # after the last time that another machine was online as well
# What the agent says of itself is never a reason to pay for a link.
OWN_EVENTS = frozenset(
    f"e.{kind}"
    for kind in (
        "receipt", "mark", "epoch", "clock", "seen", "digest", "heads", "quarantined"
    )
)  # fmt: skip
CLASSES = {"telemetry": TELEMETRY, "state": STATE, "config": CONFIG, "event": EVENT}
SUBJECTS_MAX = 256
log = structlog.get_logger("visits")


class Visits:
    """Keeps the link as the plan wants it; lives as long as the daemon."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        ledger: Ledger,
        lanes: Sequence[Lane],
        downlink: Downlink,
        uplink: UplinkState,
        chance: Callable[[], float],
        moving: Callable[[], int | None] = lambda: None,
    ) -> None:
        link = config.link
        plan = VisitPlan(
            link.mode,
            link.schedule_s,
            link.linger_s,
            link.connect_s_max,
            config.artifacts.visit_s_max,
        )
        self.metered = Metered(plan, chance, clock.monotonic_s())
        self.last_error = ""
        self._config = config
        self._clock = clock
        self._ledger = ledger
        self._lanes = lanes
        self._downlink = downlink
        self._uplink = uplink
        self._moving = moving
        self._urgent = Urgent(ledger, CLASSES[link.urgent])
        self._switch = LinkSwitch(config) if link.switched else None
        self._is_on: bool | None = None  # what the leaf server was last told
        self._up_s = 0.0
        self._away_until_s: float | None = None
        self._wake = asyncio.Event()
        uplink.on_up.append(self._on_up)

    def on_commit(self) -> None:
        """Learn that the ledger has grown: something urgent may wait."""
        self._wake.set()

    def stay_away(self, yield_s: float) -> None:
        """Learn that another machine with this identity is online, and has the link for so long."""
        log.error("identity_used_twice", stays_away_s=round(yield_s, 1))
        self._away_until_s = self._clock.monotonic_s() + yield_s
        self._wake.set()

    async def run(self, jetstream: JetStream) -> None:
        """Visit the hub by the plan for as long as this connection lives (the caller cancels)."""
        if self._switch is None:
            return
        self._is_on = None  # another leaf server, perhaps
        while True:
            self._wake.clear()
            try:
                before = self.metered.phase
                self.metered.step(await self._facts(jetstream))
                if self.metered.phase is not before:
                    log.info("link", phase=self.metered.phase, before=before)
                await self._apply(self._switch)
            except (
                LinkSwitchError,
                JetStreamError,
                LedgerStorageError,
                NatsError,
                OSError,
            ) as error:
                self._trouble(str(error) or type(error).__name__)
            await asyncio.sleep(LOOK_S / 4)  # commits may come one after another
            await heard(self._wake, LOOK_S)

    def status(self) -> dict[str, Any]:
        """Return the part of ``agent.status`` about when the link is up."""
        metered, now_s = self.metered, self._clock.monotonic_s()
        next_s = metered.next_visit_s
        return {
            "mode": metered.plan.mode,
            "up": self._uplink.up,
            "phase": str(metered.phase),
            "visits": metered.visits,
            "next_visit_s": None
            if next_s is None or metered.phase is not Phase.IDLE
            else round(max(0.0, next_s - now_s), 1),
            "last_failure": self.last_error or metered.last_failure,
            "shared": self._away_until_s is not None
            and now_s < self._away_until_s + SHARED_SHOWN_S,
            "switched": self._switch is not None,
        }

    async def _apply(self, switch: LinkSwitch) -> None:
        away_s = self._away_until_s
        wanted = self.metered.wants_link and (away_s is None or self._clock.monotonic_s() >= away_s)
        if self._is_on is wanted:
            return
        await switch.set(wanted)
        self._is_on = wanted
        if self.last_error:
            log.info("link_switched_again", after=self.last_error)
            self.last_error = ""

    async def _facts(self, jetstream: JetStream) -> VisitFacts:
        draining = self.metered.phase is Phase.DRAINING
        return VisitFacts(
            now_s=self._clock.monotonic_s(),
            up=self._uplink.up,
            urgent=await self._urgent.waits(),
            # What waits for the time is owed too: the link is how the time comes.
            lanes={(lane.name, lane.epoch): (lane.last_seq, lane.watermark)
                   for lane in self._ledger.every_lane()},
            told=await self._told(jetstream) if draining else False,
            received=self._downlink.messages,
            moving=self._moving(),
        )  # fmt: skip

    async def _told(self, jetstream: JetStream) -> bool:
        """Return whether the hub was heard since the link came up, and all it has for us is committed."""
        if not self._config.device.down_stream:
            return True
        up_s = self._clock.monotonic_s() - self._up_s
        for stream in self._downlink.streams:
            info = await jetstream.info(stream)
            for source in info.get("sources") or []:
                if source["lag"] or not 0 <= source["active"] / 1e9 < up_s:
                    return False
        return await self._downlink.at_end(jetstream)

    def _on_up(self) -> None:
        self._up_s = self._clock.monotonic_s()
        self._wake.set()

    def _trouble(self, error: str) -> None:
        """Log a failure once, until it changes or heals."""
        if error != self.last_error:
            log.error("link_not_switched", error=error)
        self.last_error = error


class Urgent:
    """Knows whether something is in the ledger, not yet at the hub, that is worth a visit."""

    def __init__(self, ledger: Ledger, value_class: int) -> None:
        self._ledger = ledger
        self._class = value_class
        self._looked: dict[int, int] = {}  # by the lane's id, as below
        self._urgent: dict[int, int] = {}

    async def waits(self) -> bool:
        """Return whether it does; every message is looked at once."""
        lanes = self._ledger.every_lane()
        for lane in lanes:
            last_seq = lane.last_seq
            after = max(self._looked.get(lane.id, 0), lane.watermark)
            if last_seq > after:
                found = await self._ledger.subjects(
                    lane, after, self._class, ACCOUNT - 1, SUBJECTS_MAX
                )
                for seq, subject in found:
                    if ".".join(shared_subject(subject).split(".")[:2]) not in OWN_EVENTS:
                        self._urgent[lane.id] = seq
                self._looked[lane.id] = found[-1][0] if len(found) == SUBJECTS_MAX else last_seq
        return any(lane.watermark < self._urgent.get(lane.id, 0) for lane in lanes)
