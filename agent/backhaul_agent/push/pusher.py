"""Pushing lanes that only trickle: the shell around `policy.PushPolicy`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog
from nats.errors import Error as NatsError

from backhaul_agent.errors import JetStreamError
from backhaul_agent.push.policy import PATIENCE_S, TERSE_PATIENCE_S, PushPolicy, TrickleView

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from backhaul_agent.config import Config
    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.leaf.link_state import UplinkState
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.uplink.lane import Lane
    from backhaul_codec.kinds import Lane as LaneName
    from backhaul_runtime.clock import Clock

LOOK_S = 1.0
TEND_S = 5.0
"""How often a sleeping lane's durable is looked at and moved on, on the leaf: a link that comes back begins there."""
TERSE_STALLED_S_MIN = 30.0
"""With a shorter `stalled_after_s` watermarks are to come as often as they did before there were terse ones."""
OWED_BYTES_MAX = 64 * 1024
"""Bytes of a lane that the hub need not have confirmed: it confirms a trickle every ten seconds."""
log = structlog.get_logger("push")


class Pusher:
    """Knows which lanes are pushed; lives as long as the daemon.

    Args:
        tell: has the hub asked now; it reads `word`.
    """

    def __init__(
        self,
        config: Config,
        ledger: Ledger,
        lanes: Collection[Lane],
        uplink: UplinkState,
        clock: Clock,
        tell: Callable[[], None],
    ) -> None:
        rate_bytes_s = config.link.rate_kbit_s * 1000 / 8
        self.policy = PushPolicy(OWED_BYTES_MAX, rate_bytes_s, measured=not config.link.adaptive)
        self.enabled = config.link.push and config.link.mode == "always"
        # Of a lane that is told of each 20 s, and 5 s late, such a short time would make a stall.
        self._reads_terse = config.link.stalled_after_s >= TERSE_STALLED_S_MIN
        self._durable = config.device.token
        self._ledger = ledger
        self._lanes = {lane.name: lane for lane in lanes}
        self._uplink = uplink
        self._clock = clock
        self._tell = tell
        self._word: dict[LaneName, int] = {}
        self._tended: dict[LaneName, tuple[int, float]] = {}
        if self.enabled:
            uplink.on_look.append(self._on_look)
            uplink.on_up.append(self._begin_anew)
            for lane in lanes:
                lane.pushing = self.policy

    def word(self, *, asks_down_end: bool = False) -> dict[str, Any] | None:
        """Return the word for the hub's next question; None where nothing is ever pushed.

        ``asks_down_end``: whether the hub is to say where DOWN ends for this vehicle.
        """
        if not self.enabled or not self._ledger.epoch:
            return None
        epoch = self.policy.epoch or self._ledger.epoch
        word: dict[str, Any] = {"epoch": epoch, "lanes": self._word}
        if self._reads_terse:
            word["terse"] = True
        return word | {"in": True} if asks_down_end else word

    def heard(self, asleep: list[LaneName], terse: bool = False) -> None:
        """Take in the hub's answer to the word: the lanes that it does not source; whether it tells watermarks more seldom."""
        self.policy.patience_s = TERSE_PATIENCE_S if terse else PATIENCE_S
        self.policy.heard(asleep, self._clock.monotonic_s())

    def status(self) -> dict[str, Any]:
        """Return the part of ``agent.status`` about the link."""
        asleep = sorted(name for name in self._lanes if self.policy.asleep(name))
        return {"pushed": asleep, "push_wakes": self.policy.wakes} if self.enabled else {}

    async def run(self, jetstream: JetStream) -> None:
        """Look about once a second, for as long as this connection lives (the caller cancels)."""
        self._begin_anew()
        while self.enabled:
            await asyncio.sleep(LOOK_S)
            if self._uplink.up:
                await self.look(jetstream)

    async def look(self, jetstream: JetStream) -> None:
        """Look at the lanes once, while the link is up: see to durables, and tell the hub any new word."""
        before = {name for name in self._lanes if self.policy.asleep(name)}
        views = {name: _view(lane) for name, lane in self._lanes.items()}
        changed = self.policy.look(self._ledger.epoch, views, self._clock.monotonic_s())
        for name, lane in self._lanes.items():
            if name in before:
                await self._tend(jetstream, lane, at_once=not self.policy.asleep(name))
        if changed:
            self._word = self.policy.word
            log.info("lanes_pushed", after=self._word)
        if changed or self.policy.unsettled:
            self._tell()

    async def _tend(self, jetstream: JetStream, lane: Lane, *, at_once: bool) -> None:
        """Have a durable that nobody reads go on after the messages that the hub has confirmed.

        Else the hub would read all that was pushed once more when it sources the lane again. Where it does so already,
        as after its control plane began anew, it is told again. `at_once`: the lane is woken now.
        """
        now_s = self._clock.monotonic_s()
        # Copies of what the hub has asked for may stand before that, and are still to be read.
        position = None if lane.resends.flying else lane.entered.confirmed_position()
        known, since_s = self._tended.get(lane.name, (0, -TEND_S))
        if not (at_once or now_s - since_s >= TEND_S):
            return
        durable = f"{lane.stream}.{self._durable}"
        try:
            info = await jetstream.request(f"CONSUMER.INFO.{durable}")
            if info.get("push_bound"):
                self._tell()
            elif position is not None and position != known:
                await jetstream.request(f"CONSUMER.RESET.{durable}", {"seq": position + 1})
                known = position
            self._tended[lane.name] = known, now_s
        except (JetStreamError, NatsError, TimeoutError) as error:
            log.info("durable_not_moved", lane=lane.name, error=str(error))

    def _on_look(self, up: bool | None) -> None:
        if not up:
            self._begin_anew()

    def _begin_anew(self) -> None:
        self.policy.link()
        self._word = {}
        self._tended.clear()


def _view(lane: Lane) -> TrickleView:
    appended, watermark = lane.entered.owed()
    status = lane.entered.status()
    behind = status["ready_seq"] > appended
    # Copies that were not pushed come by the source alone.
    behind = behind or lane.resends.flying
    runs = lane.entered.runs
    # Messages of former epochs that are left stand before the first one of this epoch.
    if not appended:
        runs = runs and all(former.whole for former in lane.entered.chain()[:-1])
    return TrickleView(appended, watermark, status["outstanding_bytes"], runs, behind)
