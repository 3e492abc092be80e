"""The tasks around the clock: it is looked at, the hub is told, and waiting stamps are corrected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog
from nats.aio.client import Client

from backhaul_agent.commit.writer import Writer
from backhaul_agent.config import Config
from backhaul_agent.hub_time.hub_clock import MS_NS, HubClock, HubClockState
from backhaul_agent.leaf.link_state import UplinkState
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.ledger.rows import number_of
from backhaul_agent.ledger.system_events import event
from backhaul_agent.presence.self_report import SelfReport
from backhaul_agent.time_sync.correct_stamps import StampCorrector, clock_body
from backhaul_agent.time_sync.exchange import Exchange
from backhaul_agent.uplink.comparison import Comparison
from backhaul_agent.uplink.epoch_sync import EpochWords

LOOK_S = 1.0
OFFSET_NS_MAX = 100 * MS_NS  # what an offset or error may change by before anybody is told
ERROR_GROWTH_MAX = 4
HUB_NS = "hub_ns"  # the newest stamp of the hub's, in the ledger's meta table
log = structlog.get_logger("clock")


def is_news(told: HubClockState | None, now: HubClockState) -> bool:
    """Return whether the hub must be told: another quality, or an offset or error that matters.

    Offsets within the error that was told are no news: nothing else was promised.
    """
    if told is None or (told.quality, told.boot) != (now.quality, now.boot):
        return True
    if (told.step_ns is None) != (now.step_ns is None):
        return True
    if abs(now.offset_ns - told.offset_ns) > OFFSET_NS_MAX + (told.error_ns or 0):
        return True
    if told.error_ns is None or now.error_ns is None:
        return told.error_ns != now.error_ns
    low, high = sorted((told.error_ns, now.error_ns))
    return high > OFFSET_NS_MAX and high > ERROR_GROWTH_MAX * low


class Patience:
    """How long messages without a true time are held: only time with the link up counts.

    With the link down nothing could leave anyway, and waiting on costs nothing. With it up, a hub
    that does not tell the time within ``hold_s_max`` is taken for one that never will.
    """

    def __init__(self, hold_s_max: float) -> None:
        self.held_s = 0.0
        self._hold_s_max = hold_s_max
        self._before_s: float | None = None

    def over(self, now_s: float, *, waiting: bool) -> bool:
        """Return whether it is over; ``waiting``: the time is unset, and the link is up."""
        if waiting and self._before_s is not None:
            self.held_s += now_s - self._before_s
        self._before_s = now_s if waiting else None
        return self.held_s >= self._hold_s_max


class Timekeeper:
    """The shell around the clock; lives as long as the daemon."""

    def __init__(
        self,
        config: Config,
        clock: HubClock,
        ledger: Ledger,
        writer: Writer,
        uplink: UplinkState,
        words: EpochWords | None = None,
        report: SelfReport | None = None,
        comparison: Comparison | None = None,
    ) -> None:
        self.exchange = Exchange(
            config, clock, self._look, words, report.make if report else None, comparison
        )
        self.corrector = StampCorrector(ledger, writer, clock)
        self._clock = clock
        self._ledger = ledger
        self._writer = writer
        self._uplink = uplink
        self._patience = Patience(config.clock.hold_s_max)
        self._told: HubClockState | None = None
        self._marking = False
        self._connected = False
        self._stepped = False
        self.on_step_over: list[Callable[[], None]] = []
        """Called when the hub's clock had stepped, and this is over: followed, or taken back."""
        uplink.on_up.append(self.exchange.due)
        self._report = report
        uplink.on_look.append(self._report_change)

    async def start(self, boot: str) -> None:
        """Set the clock up from the ledger, before anything is stamped.

        Raises:
            LedgerStorageError: the ledger cannot be read.
        """
        newest_ns = number_of(self._ledger.meta, HUB_NS)
        self._clock.start(boot, await self._ledger.boots(), newest_ns)
        self._look()

    async def run(self) -> None:
        """Look about once a second, and correct the stamps that can be (the caller cancels)."""
        self.corrector.due()  # what earlier starts of the machine have left
        async with asyncio.TaskGroup() as group:
            group.create_task(self.corrector.run())
            while True:
                await asyncio.sleep(LOOK_S)
                self._look()
                self.exchange.look()

    async def serve(self, client: Client) -> None:
        """Ask the hub for as long as this connection lives (the caller cancels)."""
        self._connected = True
        try:
            await self.exchange.run(client)
        finally:
            self._connected = False

    def status(self) -> dict[str, Any]:
        """Return the clock's part of `backhaul-agent status`; times in ns."""
        clock = self._clock
        step = clock.steps.step
        return clock_body(clock.state()) | {
            "time_ns": clock.now_ns(),
            "held_messages": self._ledger.held_messages,
            "held_s": round(self._patience.held_s, 1),
            "answers": self.exchange.answers,
            "answers_garbage": self.exchange.garbage,
            "round_trip_ns": self.exchange.round_trip_ns,
            "jumps": clock.jumps,
            "step_ns": step.step_ns if step is not None else None,
            "step_looks": step.looks if step is not None else 0,
            "step_confirms_in_s": clock.steps.confirms_in_ns(clock.steady_ns()) / 1e9,
            "stamps_corrected": self.corrector.corrected,
            "stamps_given_up": self.corrector.given_up,
            "steps_adopted": clock.steps.adopted,
        }

    def _report_change(self, up: bool | None) -> None:
        if self._report is not None and self._report.is_due(up):
            self.exchange.report()

    def _look(self) -> None:
        clock = self._clock
        if jump_ns := clock.look():
            log.warning("wall_clock_jumped", seconds=round(jump_ns / 1e9, 3))
            self.exchange.due()
        waiting = self._connected and self._uplink.up is not False and bool(clock.mark)
        if self._patience.over(clock.monotonic_s(), waiting=waiting) and clock.mark:
            log.warning(
                "no_time_from_hub",
                held_s=round(self._patience.held_s, 1),
            )
            clock.release()
        # Held also: staged points that were under suspicion until after the last settling.
        if (self._marking or self._ledger.held_messages) and not clock.mark:
            self.corrector.due()
        self._marking = bool(clock.mark)
        stepped, self._stepped = self._stepped, clock.steps.step is not None
        if stepped and not self._stepped:
            log.info("hub_clock_trusted", steps_adopted=clock.steps.adopted)
            for tell in self.on_step_over:
                tell()
        self._tell()

    def _tell(self) -> None:
        state = self._clock.state()
        if not is_news(self._told, state):
            return
        if state.step_ns is not None and (self._told is None or self._told.step_ns is None):
            log.warning(
                "hub_clock_stepped",
                step_s=round(state.step_ns / 1e9, 3),
                confirms_in_s=round(
                    self._clock.steps.confirms_in_ns(self._clock.steady_ns()) / 1e9
                ),
            )
        if self._told is None or self._told.quality is not state.quality:
            log.info("clock", **clock_body(state))
        self._told = state
        self._writer.tell(event("clock", clock_body(state), self._clock.now_ns()))
