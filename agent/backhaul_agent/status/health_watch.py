"""The shell around `health.AgentHealth`: looks now and then, and logs each beginning and end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from backhaul_agent.config import Config
from backhaul_agent.hub_time.hub_clock import HubClock
from backhaul_agent.presence.machine import Machine
from backhaul_agent.presence.self_report import SelfReport
from backhaul_agent.status.health import AgentHealth
from backhaul_codec.assurance.conditions import Condition

log = structlog.get_logger("health")


class HealthWatch:
    """Lives as long as the daemon. ``shown``: the conditions by the last look; ``report``: for the hub.

    ``on_look``: what else is looked at each time; what it raises ends the agent.
    """

    def __init__(
        self,
        config: Config,
        clock: HubClock,
        status: Callable[[], dict[str, Any]],
        machine: Machine,
        on_look: Callable[[], None] = lambda: None,
    ) -> None:
        self.shown: list[Condition] = []
        self.report = SelfReport(clock, machine, status, lambda: self.shown)
        self._health = AgentHealth(config.health, hub_confirms=bool(config.device.down_stream))
        self._interval_s = config.health.interval_s
        self._clock = clock
        self._status = status
        self._on_look = on_look

    async def run(self) -> None:
        """Look every ``interval_s`` seconds (the caller cancels)."""
        while True:
            self._on_look()
            self.look()
            await asyncio.sleep(self._interval_s)

    def look(self) -> None:
        """Look once."""
        before = {(each.code, each.about) for each in self.shown}
        self._health.look(self._status(), self._clock.monotonic_s(), self._clock.now_ns())
        self.shown = self._health.conditions.shown()
        now = {(each.code, each.about) for each in self.shown}
        for code, about in sorted(now - before):
            log.warning("condition", code=code, about=about)
        for code, about in sorted(before - now):
            log.info("condition_over", code=code, about=about)
